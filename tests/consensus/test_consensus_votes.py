"""Votes against obvious references."""

from __future__ import annotations

from collections import Counter
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import Average, FamilyMean, Highest, MajorityVote, evaluate
from crowdrank.consensus.assembly import add_agreements
from crowdrank.consensus.votes import count_votes
from crowdrank.errors import UsageError
from crowdrank.readers.datasets import dataset

grades = st.lists(st.integers(0, 4), min_size=1, max_size=9)


def majority_twin(given_grades: list[int]) -> int:
    """OVERLAP 4.1: tied grades from most to least relevant, the one at position ceil(m / 2)."""
    counts = Counter(given_grades)
    tied = sorted((grade for grade, count in counts.items() if count == max(counts.values())), reverse=True)
    return tied[ceil(len(tied) / 2) - 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(grades, min_size=1, max_size=5))
def test_votes_equal_their_definitions(items: list[list[int]]) -> None:
    rows = [
        (f"d{item}", f"w{voter}", grade)
        for item, given_grades in enumerate(items)
        for voter, grade in enumerate(given_grades)
    ]
    # One item with every grade fixes the scale at 0-4.
    rows += [("all", f"w{grade}", grade) for grade in range(5)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    for cls, reference in ((MajorityVote, majority_twin), (Average, np.mean), (Highest, max)):
        table = cls().fit(frame).consensus_.documents.set_index("document")
        for item, given_grades in enumerate(items):
            assert np.isclose(table.loc[f"d{item}", "relevance"], float(reference(given_grades)))


def test_three_tied_grades_give_the_middle_one_and_two_the_higher() -> None:
    frame = pd.DataFrame({"document": ["a"] * 3 + ["b"] * 2, "assessor": list("xyzxy"), "grade": [0, 2, 4, 1, 3]})
    assert MajorityVote().fit_predict(frame).to_dict() == {"a": 2, "b": 3}


def test_a_family_has_one_voice_on_each_document() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"document": rng.integers(0, 20, 300), "assessor": rng.integers(0, 30, 300), "grade": rng.integers(0, 4, 300)}
    ).drop_duplicates(["document", "assessor"])
    frame["family"] = [None if who < 3 else f"f{who % 4}" for who in frame["assessor"]]
    unit = frame["family"].fillna(frame["assessor"].astype(str))
    reference = frame.groupby(["document", unit])["grade"].mean().groupby("document").mean()
    found = FamilyMean().fit(frame).consensus_.documents.set_index("document")["relevance"]
    assert np.allclose(found.loc[reference.index], reference)
    plain = frame.drop(columns="family")
    one, other = (cls().fit(plain).consensus_.documents["relevance"] for cls in (FamilyMean, Average))
    assert np.allclose(one, other)


@pytest.mark.data
def test_the_family_mean_on_dl20(data_folder: Path) -> None:
    """The judges that cover everything; reference: .613 / .848 / .680 / .702."""
    data = dataset("trec-dl20")
    judgments = data.read_judgments()
    n_judged = np.bincount(judgments.assessor)
    complete = judgments.where(n_judged[judgments.assessor] > 8000)
    assert complete.n_assessors == 55
    measures = ["AP(rel=2)", "nDCG", "nDCG@10", "Tau"]
    scored = evaluate(
        FamilyMean().fit(complete).consensus_.documents, data.read_gold().frame, measures, unjudged="skip"
    )
    assert list(scored.means.values()) == pytest.approx([0.613, 0.848, 0.680, 0.702], abs=0.003)


def test_more_votes_are_surer() -> None:
    few = pd.DataFrame({"document": "few", "assessor": ["x", "y"], "grade": [0, 1]})
    many = pd.DataFrame({"document": "many", "assessor": [f"w{n}" for n in range(40)], "grade": [0, 1] * 20})
    table = Average().fit(pd.concat([few, many])).consensus_.documents.set_index("document")
    assert table.loc["many", "sd"] < table.loc["few", "sd"]


def test_counting_kernels_equal_numpy() -> None:
    rng = np.random.default_rng(0)
    offsets = np.array([0, 3, 3, 7])
    grade = rng.integers(0, 3, 7).astype(np.int8)
    assessor = rng.integers(0, 4, 7).astype(np.int32)
    item = np.repeat(np.arange(3), np.diff(offsets))
    votes = np.zeros((3, 3))
    np.add.at(votes, (item, grade), 1)
    assert (count_votes(offsets, grade, 3) == votes).all()
    answer = np.array([1, -1, 2], np.int8)
    agreed, asked = np.zeros(4), np.zeros(4)
    sets = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype=np.bool_)
    add_agreements(offsets, assessor, grade, answer, sets, agreed, asked)
    known = answer[item] >= 0
    assert (asked == np.bincount(assessor[known], minlength=4)).all()
    assert (agreed == np.bincount(assessor[known & sets[answer[item], grade]], minlength=4)).all()


@pytest.mark.parametrize("cls", [MajorityVote, Average, FamilyMean, Highest])
def test_cannot_judge_is_no_vote_for_the_highest_grade(cls: type[MajorityVote]) -> None:
    with pytest.raises(UsageError, match="unjudgeable_as must be one of lowest, drop, not 'model'"):
        cls(unjudgeable_as="model").fit(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))
