"""Ensembles as functions of scores, folds and a search for weights."""

from __future__ import annotations

import numpy as np
import pytest

from crowdrank._typing import Booleans, Floats
from crowdrank.pipeline.ensembles import (
    ALL,
    CROWD,
    EXPERT,
    WEIGHTED,
    MemberScores,
    average_ensemble,
    build_ensembles,
    fold_pairs,
    weight_search,
    weighted_ensemble,
)

QUERY = np.repeat(np.arange(8), 4)
FOLD = np.repeat([0, 0, 1, 1, 2, 2, -1, -1], 4)


def member(score: Floats, nested: Floats | None = None) -> MemberScores:
    return MemberScores(score, np.broadcast_to(score, (3, len(score))) if nested is None else nested)


def members() -> dict[str, MemberScores]:
    scores = np.random.default_rng(0).normal(size=(3, len(QUERY)))
    return dict(zip(("majority", "gda", "expert-only"), map(member, scores), strict=True))


def first_only(scores: Floats, rows: Booleans) -> Floats:
    return np.asarray(np.eye(len(scores))[0])


def test_average_is_the_mean_of_the_members() -> None:
    some = members()
    ensemble = average_ensemble(some, ["majority", "gda"])
    np.testing.assert_allclose(ensemble.score, (some["majority"].score + some["gda"].score) / 2)
    assert ensemble.weights == {"majority": 0.5, "gda": 0.5}


def test_weights_of_a_fold_are_searched_on_the_nested_scores_of_other_folds() -> None:
    nested = np.full((3, len(QUERY)), np.nan)
    for own in range(3):
        nested[own, (FOLD >= 0) & (own != FOLD)] = own
    some = {"gda": member(np.zeros(len(QUERY))), "expert-only": member(np.ones(len(QUERY)), nested)}
    calls: list[tuple[list[int], list[float]]] = []

    def search(scores: Floats, rows: Booleans) -> Floats:
        calls.append((np.unique(FOLD[rows]).tolist(), np.unique(scores[1, rows]).tolist()))
        return np.array([1.0 - len(calls) / 10, len(calls) / 10])

    ensemble = weighted_ensemble(some, FOLD, search)
    assert calls == [([1, 2], [0.0]), ([0, 2], [1.0]), ([0, 1], [2.0]), ([0, 1, 2], [1.0])]
    np.testing.assert_allclose(ensemble.fold_weights[:, 1], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(ensemble.score, np.choose(FOLD, [0.1, 0.2, 0.3, 0.4], mode="wrap"))
    assert ensemble.weights == pytest.approx({"gda": 0.6, "expert-only": 0.4})


def test_folds_that_a_member_cannot_rank_do_not_count() -> None:
    nested = np.full((3, len(QUERY)), np.nan)
    nested[0, FOLD == 2] = 1.0
    some = {"gda": member(np.zeros(len(QUERY))), "expert-only": member(np.ones(len(QUERY)), nested)}
    searched: list[list[int]] = []

    def search(scores: Floats, rows: Booleans) -> Floats:
        searched.append(np.unique(FOLD[rows]).tolist())
        return np.array([0.25, 0.75])

    ensemble = weighted_ensemble(some, FOLD, search)
    assert searched == [[2], [0, 1, 2]]
    assert ensemble.fold_weights.tolist() == [[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]]


def test_an_ensemble_within_an_ensemble_is_split_into_its_members() -> None:
    found = build_ensembles(members(), ["majority", "gda"], FOLD, lambda scores, rows: np.full(len(scores), 0.5))
    assert list(found) == [CROWD, ALL, EXPERT, WEIGHTED]
    assert found[EXPERT].weights == {"majority": 0.25, "gda": 0.25, "expert-only": 0.5}
    assert found[ALL].weights == pytest.approx(dict.fromkeys(("majority", "gda", "expert-only"), 1 / 3))


def test_members_without_weight_are_left_out() -> None:
    found = build_ensembles(members(), ["majority", "gda"], FOLD, first_only)
    assert found[WEIGHTED].weights == {"majority": 1.0}
    assert found[EXPERT].weights == {"majority": 0.5, "gda": 0.5}


def test_without_folds_there_is_only_the_average_of_crowd_members() -> None:
    found = build_ensembles(members(), ["majority", "gda"], np.full(len(QUERY), -1), first_only)
    assert list(found) == [CROWD]


def test_the_search_prefers_the_member_that_ranks_by_the_grades() -> None:
    grade = np.tile([0.0, 1.0, 2.0, np.nan], 8)
    scores = np.tile([0.0, 1.0, 2.0, 9.0], 8) * np.array([[1], [-1]])
    weights = weight_search(QUERY, grade, "nDCG@10", "exponential", 0)(scores, FOLD != 0)
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > 0.5


def test_scores_are_standardized_within_queries() -> None:
    score = np.where(FOLD == 1, np.nan, np.arange(32.0) * 5)
    found = MemberScores(score, np.stack([score, score])).standardized(QUERY)
    assert np.isnan(found.score[FOLD == 1]).all()
    np.testing.assert_allclose(found.score[:4], np.array([-3, -1, 1, 3]) / np.sqrt(5))
    np.testing.assert_array_equal(found.nested[1], found.score)


@pytest.mark.parametrize(("n_folds", "n_pairs"), [(0, 0), (2, 1), (4, 6), (5, 10), (8, 16)])
def test_number_of_pairs_is_linear_in_that_of_folds(n_folds: int, n_pairs: int) -> None:
    pairs = list(fold_pairs(n_folds))
    assert len(set(pairs)) == len(pairs) == n_pairs
    if n_folds > 5:
        assert np.bincount(np.ravel(pairs)).tolist() == [4] * n_folds
