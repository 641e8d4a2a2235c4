"""Krippendorff's alpha and weighted kappa against published examples, peers, and slow references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import read_judgments
from crowdrank.assessors.agreement import (
    METRICS,
    alpha_from_coincidences,
    krippendorff_alpha,
    pairwise_agreement,
    weighted_kappa,
)
from crowdrank.errors import UsageError

OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
"""Krippendorff (2011), Computing Krippendorff's alpha-reliability, section C."""
PUBLISHED = {"nominal": 0.743, "ordinal": 0.815, "interval": 0.849}


def judged(rows: list[list[int | None]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (f"u{unit}", f"o{observer}", grade)
            for observer, grades in enumerate(rows)
            for unit, grade in enumerate(grades)
            if grade is not None
        ],
        columns=["document", "assessor", "grade"],
    )


def a_crowd(seed: int, items: int = 40, assessors: int = 6, grades: int = 4, share: float = 0.6) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, grades, items)
    item, who = np.nonzero(rng.random((items, assessors)) < share)
    grade = np.where(rng.random(len(item)) < 0.6, truth[item], rng.integers(0, grades, len(item)))
    frame = pd.DataFrame({"document": [f"d{n}" for n in item], "assessor": [f"w{n}" for n in who], "grade": grade})
    # The scale must not depend on chance.
    ends = pd.DataFrame({"document": "ends", "assessor": ["w0", "w1"], "grade": [0, grades - 1]})
    return pd.concat([frame, ends], ignore_index=True)


def slow_alpha(frame: pd.DataFrame, metric: str) -> float:
    """Alpha pair by pair: disagreement within documents over that of any two judgments."""
    units = [group.to_list() for _, group in frame.groupby("document")["grade"] if len(group) > 1]
    pooled = [grade for unit in units for grade in unit]

    def apart(one: int, other: int) -> float:
        if metric == "nominal":
            return float(one != other)
        if metric == "interval":
            return float(one - other) ** 2
        low, high = min(one, other), max(one, other)
        between = sum(low <= grade <= high for grade in pooled)
        return float(between - (pooled.count(low) + pooled.count(high)) / 2) ** 2 if low != high else 0.0

    seen = sum(apart(a, b) / (len(unit) - 1) for unit in units for i, a in enumerate(unit) for b in unit[:i]) * 2
    chance = sum(apart(a, b) for i, a in enumerate(pooled) for b in pooled[:i]) * 2
    return 1 - seen / (chance / (len(pooled) - 1))


@pytest.mark.parametrize("metric", METRICS)
def test_alpha_is_that_of_the_published_example(metric: str) -> None:
    assert krippendorff_alpha(judged(OBSERVERS), metric).value == pytest.approx(PUBLISHED[metric], abs=5e-4)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_alpha_equals_its_slow_reference(metric: str, seed: int) -> None:
    frame = a_crowd(seed, items=12)
    assert krippendorff_alpha(frame, metric, resamples=1).value == pytest.approx(slow_alpha(frame, metric), abs=1e-9)


def test_the_bootstrap_equals_drawing_documents_one_by_one() -> None:
    frame = a_crowd(2, items=80)
    alpha = krippendorff_alpha(frame, "interval", resamples=4000)
    votes = pd.crosstab(frame["document"], frame["grade"]).to_numpy()
    votes = votes[votes.sum(axis=1) > 1]
    each = votes[:, :, None] * votes[:, None, :] - votes[:, :, None] * np.eye(4)
    each = each / (votes.sum(axis=1) - 1)[:, None, None]
    rng = np.random.default_rng(5)
    drawn = np.stack([each[rng.integers(len(each), size=len(each))].sum(axis=0) for _ in range(4000)])
    lower, upper = np.quantile(alpha_from_coincidences(drawn, np.arange(4.0), "interval"), [0.025, 0.975])
    assert alpha.lower == pytest.approx(lower, abs=0.01)
    assert alpha.upper == pytest.approx(upper, abs=0.01)


def test_the_interval_holds_alpha_and_narrows_with_documents() -> None:
    small, large = (krippendorff_alpha(a_crowd(3, items=items)) for items in (40, 1000))
    for alpha in (small, large):
        assert alpha.lower < alpha.value < alpha.upper
    assert large.upper - large.lower < (small.upper - small.lower) / 2
    assert krippendorff_alpha(a_crowd(3)) == small  # same seed, same interval


def test_random_answers_have_alpha_zero_and_equal_ones_one() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"document": np.repeat(np.arange(500), 4), "assessor": np.tile(list("wxyz"), 500)})
    assert abs(krippendorff_alpha(frame.assign(grade=rng.integers(0, 4, 2000))).value) < 0.06
    assert krippendorff_alpha(frame.assign(grade=frame["document"] % 4)).value == pytest.approx(1)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(a_crowd(0).assign(grade=1), id="one grade"),
        pytest.param(a_crowd(0).drop_duplicates("document"), id="one judgment per document"),
        pytest.param(a_crowd(0).head(1), id="one judgment"),
    ],
)
def test_alpha_of_nothing_to_compare_is_not_defined(frame: pd.DataFrame) -> None:
    alpha = krippendorff_alpha(frame)
    assert np.isnan([alpha.value, alpha.lower, alpha.upper]).all()
    assert alpha.documents == (frame["document"].value_counts() > 1).sum()
    assert "is not defined" in str(alpha)


def test_cannot_judge_answers_are_missing() -> None:
    frame = a_crowd(0)
    blank = pd.DataFrame({"document": "d0", "assessor": ["v1", "v2"], "grade": -2})
    judgments = read_judgments(pd.concat([frame, blank]), unjudgeable=-2)
    assert krippendorff_alpha(judgments) == krippendorff_alpha(frame)


@pytest.mark.parametrize("wrong", [{"metric": "ratio"}, {"level": 95}, {"resamples": 0}])
def test_alpha_refuses_invalid_parameters(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        krippendorff_alpha(a_crowd(0), **wrong)
    assert caught.value.parameter == next(iter(wrong))


@pytest.mark.parametrize("weights", ["linear", "quadratic"])
@settings(max_examples=50, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_kappa_equals_scikit_learns(weights: str, pairs: list[tuple[int, int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    one, other = zip(*pairs, strict=True)
    ours = weighted_kappa(one, other, 5, weights)
    if len({*one, *other}) == 1:
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(metrics.cohen_kappa_score(one, other, labels=range(5), weights=weights), abs=1e-12)


@pytest.mark.parametrize("weights", ["linear", "quadratic"])
def test_pairs_are_compared_on_shared_documents(weights: str) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    frame = a_crowd(4, items=100, share=0.5)
    table = pairwise_agreement(frame, weights, min_documents=25)
    wide = frame.pivot(index="document", columns="assessor", values="grade")
    shared = {(a, b): wide[[a, b]].dropna() for a in wide.columns for b in wide.columns if a < b}
    assert table["documents"].tolist() == sorted(len(both) for both in shared.values() if len(both) >= 25)[::-1]
    for row in table.itertuples():
        both = wide[[row.assessor, row.other]].dropna().astype(int).to_numpy()
        assert row.documents == len(both)
        assert row.agreement == pytest.approx((both[:, 0] == both[:, 1]).mean())
        assert row.difference == pytest.approx((both[:, 0] - both[:, 1]).mean())
        expected = metrics.cohen_kappa_score(both[:, 0], both[:, 1], labels=range(4), weights=weights)
        assert row.kappa == pytest.approx(expected)


def test_pairs_come_in_the_library_of_the_judgments() -> None:
    frame = a_crowd(4)
    assert isinstance(pairwise_agreement(pl.DataFrame(frame.to_dict("list"))), pl.DataFrame)
    assert len(pairwise_agreement(frame.query("assessor == 'w0'"))) == 0
    for wrong in ({"weights": "cubic"}, {"min_documents": 0}):
        with pytest.raises(UsageError) as caught:
            pairwise_agreement(frame, **wrong)
        assert caught.value.parameter == next(iter(wrong))


def test_alpha_without_shared_documents_says_so() -> None:
    frame = pd.DataFrame({"document": list("abc"), "assessor": list("xyx"), "grade": [0, 3, 1]})
    assert "no document has several judgments" in str(krippendorff_alpha(frame))
    assert "are equal" in str(krippendorff_alpha(frame.assign(document="a", assessor=list("xyz"), grade=1)))
