"""Expert grades: read, joined to judgments, shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judgments_reference import check

from crowdrank import read_gold, read_judgments
from crowdrank.errors import InputError

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
    assert gold.for_items(judgments).tolist() == [expert.get(item, -1) for item in items]
    as_judgments = gold.as_judgments()
    check(as_judgments)
    assert gold.for_items(as_judgments).tolist() == as_judgments.grade.tolist()


def test_gold_meets_judgments_on_their_scale() -> None:
    judgments = read_judgments(pd.DataFrame({"document": [1, 2, 3], "assessor": "x", "grade": ["1", "5", "3"]}))
    gold = read_gold(pd.DataFrame({"document": ["3", "9"], "grade": [2, 0]}))
    assert gold.for_items(judgments).tolist() == [-1, -1, 1]
    with pytest.raises(InputError, match="the expert grade 0 is not on the judgments' scale 1-5; give both the same"):
        read_gold(pd.DataFrame({"document": ["3"], "grade": [0]})).for_items(judgments)


def test_gold_with_names() -> None:
    judgments = read_judgments(pd.DataFrame({"document": ["a"], "assessor": "x", "grade": ["Good"]}), grades="Bad,Good")
    gold = read_gold(pd.DataFrame({"item": ["a"], "truth": ["good"]}), grades="Bad,Good")
    assert gold.for_items(judgments).tolist() == [1]
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
