"""Expert grades: read, joined to judgments, shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank import read_gold, read_judgments
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments.scale import GradeMap, Scale
from judgments_reference import check

PAIRS = st.tuples(st.sampled_from("abc"), st.sampled_from("wxyz"))
GRADED = st.dictionaries(PAIRS, st.integers(0, 3), min_size=1)


def frame(graded: dict[tuple[str, str], int], **columns: Any) -> pd.DataFrame:
    keys = list(graded)
    return pd.DataFrame(
        {"query": [k[0] for k in keys], "document": [k[1] for k in keys], "grade": list(graded.values()), **columns}
    )


@given(GRADED, GRADED)
def test_gold_finds_its_items(judged: dict[tuple[str, str], int], expert: dict[tuple[str, str], int]) -> None:
    judgments = read_judgments(frame(judged, assessor="ann"), grades="0-3")
    gold = read_gold(frame(expert), grades="0-3")
    items = judgments.frame[["query", "document"]].itertuples(index=False, name=None)
    assert gold.for_items(judgments).code.tolist() == [expert.get(item, -1) for item in items]
    as_judgments = gold.as_judgments()
    check(as_judgments)
    assert gold.for_items(as_judgments).code.tolist() == as_judgments.grade.tolist()


def test_right_answers_are_on_the_scale_of_the_judgments() -> None:
    judgments = read_judgments(pd.DataFrame({"document": [1, 2, 3], "assessor": "x", "grade": ["1", "5", "3"]}))
    answers = read_gold(pd.DataFrame({"document": ["3", "9"], "grade": [2, 0]}))
    assert answers.codes_by_name(judgments).tolist() == [-1, -1, 1]
    with pytest.raises(InputError) as caught:
        read_gold(pd.DataFrame({"document": ["3"], "grade": [0]})).codes_by_name(judgments)
    assert caught.value.kind == "scales-differ"


def test_grades_of_scales_of_equal_length_correspond_by_position() -> None:
    judgments = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": [0, 2]}), grades="0-2")
    gold = read_gold(pd.DataFrame({"document": ["b"], "grade": [3]}), grades="1-3").for_items(judgments)
    assert gold.sets is not None
    assert gold.code.tolist() == [-1, 2]
    assert gold.sets[2].tolist() == [False, False, True]
    assert read_gold(pd.DataFrame({"document": ["b"], "grade": [1]})).for_items(judgments).sets is None


@pytest.mark.parametrize("grade_map", ["no=0-1,yes=2-4", {"no": [0, 1], "yes": [2, 3, 4]}, "no=0|1,yes=2|3|4"])
def test_a_map_says_which_grades_an_expert_grade_stands_for(grade_map: Any) -> None:
    judgments = read_judgments(pd.DataFrame({"document": ["a"], "assessor": "x", "grade": [4]}), grades="0-4")
    gold = read_gold(pd.DataFrame({"document": ["a"], "grade": ["yes"]}), grades="no,yes", map=grade_map)
    sets = gold.for_items(judgments).sets
    assert sets is not None
    assert sets.astype(int).tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize("text", ["0", "0=", "=1", "0=1=2", "", "0=1,0=2", "0=4-1", "0=0-999999999"])
def test_a_text_that_is_no_map_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        GradeMap.parse(text)
    assert caught.value.message.parameter == "map"


@pytest.mark.parametrize("text", ["0=0-1", "0=0,1=7", "0=0,1=1,2=2"])
def test_a_map_names_all_expert_grades_and_grades_of_both_scales(text: str) -> None:
    with pytest.raises(InputError) as caught:
        GradeMap.parse(text).sets(Scale.parse("0,1"), Scale.parse("0-4"))
    assert caught.value.kind == "grade-map"


def test_gold_with_names() -> None:
    judgments = read_judgments(pd.DataFrame({"document": ["a"], "assessor": "x", "grade": ["Good"]}), grades="Bad,Good")
    gold = read_gold(pd.DataFrame({"item": ["a"], "truth": ["good"]}), grades="Bad,Good")
    assert gold.for_items(judgments).code.tolist() == [1]
    assert gold.frame["grade"].tolist() == [1]
    assert repr(gold) == "<Gold: 1 document in 1 query, grades Bad,Good>"


def test_the_same_grade_twice_is_one() -> None:
    gold = read_gold(pd.DataFrame({"document": ["a", "b", "a"], "grade": [1, 0, 1]}))
    assert len(gold) == 2
    assert gold.code.tolist() == [1, 0]


def test_unjudgeable_gold_is_lowest_or_left_out() -> None:
    labels = pd.DataFrame({"document": ["a", "b"], "grade": [-2, 2]})
    assert read_gold(labels, unjudgeable=-2, grades="0-2").code.tolist() == [0, 2]
    assert read_gold(labels, unjudgeable=-2, unjudgeable_as="drop").document.to_pylist() == ["b"]
    with pytest.raises(InputError, match="no judgment is left"):
        read_gold(labels[:1], unjudgeable=-2, unjudgeable_as="drop")


def test_gold_comes_back_in_the_same_library() -> None:
    gold = read_gold(pl.DataFrame({"document": [1, 2], "grade": [1, 0]}))
    assert isinstance(gold.frame, pl.DataFrame)
    assert gold.frame["document"].to_list() == [1, 2]
    np.testing.assert_array_equal(gold.code, [1, 0])
