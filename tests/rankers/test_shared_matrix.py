"""Rankers that are fitted to a shared matrix are those that are fitted to the same features on their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import crowdrank
from crowdrank.rankers.boosting import PointwiseGBDT
from crowdrank.rankers.training_data import NamedMatrix, RankingData, SharedMatrix

NAMES = tuple(f"f{number}" for number in range(6))
QUERY = np.repeat(np.arange(40), 10)


@pytest.fixture(scope="module")
def values() -> Any:
    matrix = np.random.default_rng(0).normal(size=(400, 6))
    matrix[::7, 2] = np.nan
    return matrix


def labels(X: Any, seed: int) -> Any:
    noise = np.random.default_rng(seed).normal(size=len(X))
    return np.clip(np.round(X[:, 0] + X[:, seed % 2] + noise), 0, 4)


def trees_of(ranker: Any) -> str:
    return str(ranker.booster_.model_to_string())


def fit(X: Any, seed: int, **parameters: Any) -> Any:
    return crowdrank.LambdaMART(n_estimators=8, n_jobs=1, **parameters).fit(X, labels(X.matrix, seed), query=QUERY)


@pytest.mark.parametrize("parameters", [{}, {"min_child_samples": 5}, {"lightgbm": {"max_bin": 15}}])
def test_trees_are_those_of_separate_fits(values: Any, parameters: dict[str, Any]) -> None:
    shared = SharedMatrix(values, NAMES)
    fit(shared, 9)  # other parameters have bins of their own
    for seed in (1, 2):
        together, alone = fit(shared, seed, **parameters), fit(NamedMatrix(values, NAMES), seed, **parameters)
        assert trees_of(together) == trees_of(alone)
        np.testing.assert_array_equal(together.feature_importances_, alone.feature_importances_)
        for name, numbers in alone.feature_statistics_.arrays.items():
            np.testing.assert_array_equal(together.feature_statistics_.arrays[name], numbers)


def test_features_are_binned_once_for_all_fits_also_in_threads(values: Any) -> None:
    import lightgbm

    shared, made = SharedMatrix(values, NAMES), []
    construct = lightgbm.Dataset.construct

    def counting(dataset: Any) -> Any:
        made.extend([dataset] * (dataset._handle is None))
        return construct(dataset)

    with patch.object(lightgbm.Dataset, "construct", counting), ThreadPoolExecutor(3) as pool:
        parallel = list(pool.map(lambda seed: trees_of(fit(shared, seed)), range(4)))
    assert len(made) == 1
    assert parallel == [trees_of(fit(NamedMatrix(values, NAMES), seed)) for seed in range(4)]


def test_a_loss_with_targets_has_a_data_set_of_its_own(values: Any) -> None:
    shared, y = SharedMatrix(values, NAMES), labels(values, 1)
    fit(shared, 1)
    together, alone = (
        PointwiseGBDT(n_estimators=5, n_jobs=1).fit(one, y, query=QUERY) for one in (shared, NamedMatrix(values, NAMES))
    )
    assert trees_of(together) == trees_of(alone)


def test_rows_that_were_sorted_are_not_shared(values: Any) -> None:
    shared, y = SharedMatrix(values, NAMES), labels(values, 1)
    assert RankingData.from_ids(shared, y, QUERY).original_matrix is shared
    mixed = np.random.default_rng(1).permutation(QUERY)
    with pytest.warns(UserWarning, match="adjacent"):
        assert RankingData.from_ids(shared, y, mixed).original_matrix is None
    assert RankingData.from_ids(shared, y, QUERY).take_queries(np.array([0, 1])).original_matrix is None
