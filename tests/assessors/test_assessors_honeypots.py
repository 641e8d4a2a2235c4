"""Accuracy on planted documents, and Wilson's interval against SciPy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from crowdrank import read_judgments, simulate
from crowdrank.assessors.agreement import honeypot_accuracy, wilson
from crowdrank.errors import UsageError


@given(n=st.integers(1, 300), share=st.floats(0, 1), level=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(n: int, share: float, level: float) -> None:
    right = round(share * n)
    lower, upper = wilson(right, n, level)
    expected = binomtest(right, n).proportion_ci(level, method="wilson")
    assert float(lower) == pytest.approx(expected.low, abs=1e-12)
    assert float(upper) == pytest.approx(expected.high, abs=1e-12)


def test_wilson_without_a_trial_is_nan_and_levels_are_checked() -> None:
    assert np.isnan(wilson(0, 0)).all()
    with pytest.raises(UsageError) as caught:
        wilson(1, 2, 95)
    assert caught.value.parameter == "level"


def test_honeypots_are_counted_as_a_group_by_counts_them() -> None:
    frame = simulate(queries=20, assessors=12, random_state=2).judgments
    judgments = read_judgments(frame)
    planted = frame[frame["honeypot"].notna()]
    right = planted["grade"] == planted["honeypot"]
    expected = right.groupby(planted["assessor"]).agg(["size", "sum"])
    found = pd.DataFrame(honeypot_accuracy(judgments), index=judgments.assessors.to_pylist())
    asked = found[found["asked"] > 0].sort_index()
    assert asked["asked"].to_list() == expected["size"].to_list()
    assert asked["right"].to_list() == expected["sum"].to_list()
    assert ((asked["lower"] <= asked["share"]) & (asked["share"] <= asked["upper"])).all()


def test_without_honeypots_nobody_is_asked() -> None:
    frame = simulate(queries=3, honeypots=0, random_state=2).judgments.drop(columns="honeypot")
    found = honeypot_accuracy(read_judgments(frame))
    assert not found["asked"].any()
    assert np.isnan(found["share"].astype(float)).all()


def test_cannot_judge_is_right_where_it_is_the_right_answer() -> None:
    frame = pd.DataFrame(
        {"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [-2, 0, 1], "honeypot": [-2, -2, None]}
    )
    assert honeypot_accuracy(read_judgments(frame, unjudgeable=-2))["right"].tolist() == [1, 0]
