"""Ties are exact: the value is the average over every order that equal scores allow."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from evaluation_reference import REFERENCES, one_query, orders, random_world, tau
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank.evaluation.evaluate import Ties, evaluate

NAMES = [*REFERENCES, "Tau", "TauB", "Spearman"]
LISTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(documents=LISTS, missing=st.lists(st.integers(0, 3), max_size=3))
def test_expected_is_the_average_over_all_orders(documents: list[tuple[int, int]], missing: list[int]) -> None:
    scores, grades = [score for score, _ in documents], [grade for _, grade in documents]
    pool = [*grades, *missing]
    means = evaluate(*one_query(scores, pool), REFERENCES).means
    for name, reference in REFERENCES.items():
        if max(pool) < (2 if "rel=2" in name else 1):
            assert math.isnan(means[name])
            continue
        average = np.mean([reference(order, pool) for order in orders(scores, grades)])
        assert means[name] == pytest.approx(average, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(documents=LISTS)
def test_tau_is_the_average_over_all_orders_too(documents: list[tuple[int, int]]) -> None:
    scores, grades = [score for score, _ in documents], [grade for _, grade in documents]
    value = evaluate(*one_query(scores, grades), "Tau").means["Tau"]
    if len(set(grades)) == 1:
        assert math.isnan(value)
    else:
        falling = range(len(grades), 0, -1)
        average = np.mean([tau(list(falling), order) for order in orders(scores, grades)])
        assert value == pytest.approx(average, abs=1e-12)


def values(run: pd.DataFrame, gold: pd.DataFrame, ties: Ties = "expected") -> pd.DataFrame:
    frame = pd.DataFrame(evaluate(run, gold, NAMES, ties=ties, unjudged="nonrelevant").frame)
    return frame.set_index("query").sort_index()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_names_and_the_order_of_rows_do_not_matter(seed: int) -> None:
    run, gold = random_world(seed, ties=True, n_queries=8, highest=3)
    rng = np.random.default_rng(seed)
    renamed = {f"d{i}": f"x{j}" for i, j in enumerate(rng.permutation(30))}

    def disguised(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(document=frame["document"].map(renamed)).sample(frac=1, random_state=seed)

    pd.testing.assert_frame_equal(values(disguised(run), disguised(gold)), values(run, gold), atol=1e-12, rtol=0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), ties=st.sampled_from(["expected", "document", "given"]))
def test_only_the_order_of_scores_matters(seed: int, ties: Ties) -> None:
    run, gold = random_world(seed, ties=True, n_queries=8, highest=3)
    mapped = run.assign(score=np.exp(run["score"]) * 3 - 100)
    pd.testing.assert_frame_equal(values(mapped, gold, ties), values(run, gold, ties))


@settings(max_examples=40, deadline=None)
@given(grades=st.lists(st.integers(0, 4), min_size=1, max_size=12).filter(any))
def test_the_perfect_order_has_ndcg_one(grades: list[int]) -> None:
    names = ["nDCG", "nDCG@3", "nDCG(dcg='log2')@5", "nDCG(gains='0,1,3,7,15')", "AP", "RR"]
    means = evaluate(*one_query([float(grade) for grade in grades], grades), names).means
    assert means == pytest.approx(dict.fromkeys(names, 1.0), abs=1e-12)


def test_ties_by_document_and_as_given() -> None:
    gold = pd.DataFrame({"document": ["9", "10", "8"], "grade": [1, 0, 0]})
    run = pd.DataFrame({"document": [10, 8, 9], "score": [1, 1, 1]})
    assert evaluate(run, gold, "RR", ties="document").means["RR"] == 1.0  # '9' comes before '8' and '10'
    assert evaluate(run, gold, "RR", ties="given").means["RR"] == pytest.approx(1 / 3)
    assert evaluate(run, gold, "RR").means["RR"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_a_large_group_of_ties_stays_exact() -> None:
    n = 2000
    run, gold = one_query([0.0] * n, [1] + [0] * (n - 1))
    means = evaluate(run, gold, "RR AP P@10 nDCG ERR@10 Tau").means
    harmonic = np.sum(1 / np.arange(1, n + 1)) / n
    assert means["RR"] == pytest.approx(harmonic, abs=1e-12)
    assert means["AP"] == pytest.approx(harmonic, abs=1e-12)
    assert means["P@10"] == pytest.approx(1 / n, abs=1e-12)
    assert means["nDCG"] == pytest.approx(np.mean(1 / np.log2(np.arange(2, n + 2))), abs=1e-12)
    assert means["ERR@10"] == pytest.approx(np.sum(1 / np.arange(1, 11)) / n / 16, abs=1e-12)
    assert means["Tau"] == 0.0
