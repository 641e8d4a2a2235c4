"""Ranges and shares of missing values of the training features: computed by fit, saved, validated on loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdrank import GLS, Ensemble
from crowdrank._saved_estimators import read_arrays
from crowdrank.errors import CrowdrankWarning
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import ARRAY_NAMES, FeatureStatistics

X = np.array([[1.0, 5.0, np.nan], [np.nan, 9.0, np.nan], [-2.0, 0.0, np.nan], [0.5, 7.0, np.nan]])


@pytest.fixture
def fitted() -> GLS:
    with pytest.warns(CrowdrankWarning):
        return GLS().fit(X, [0, 1, 2, 0], query=["a", "a", "b", "b"])


def test_statistics_ignore_missing_values() -> None:
    found = FeatureStatistics.from_matrix(X)
    np.testing.assert_array_equal(found.minimum, [-2.0, 0.0, np.nan])
    np.testing.assert_array_equal(found.maximum, [1.0, 9.0, np.nan])
    np.testing.assert_array_equal(found.missing_share, [0.25, 0.0, 1.0])


def test_statistics_survive_save_and_load(fitted: GLS, tmp_path: Path) -> None:
    fitted.save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker").feature_statistics_
    assert loaded is not None
    for name, array in FeatureStatistics.from_matrix(X).arrays.items():
        np.testing.assert_array_equal(loaded.arrays[name], array)


def test_saved_ranges_can_be_of_any_size() -> None:
    found = FeatureStatistics.from_arrays(FeatureStatistics.from_matrix(np.array([[-1e300, 1e300]])).arrays, 2)
    assert found is not None
    assert (found.minimum.tolist(), found.maximum.tolist()) == ([-1e300, 1e300], [-1e300, 1e300])


def test_an_ensemble_of_fitted_rankers_has_the_statistics_of_the_first(fitted: GLS) -> None:
    assert Ensemble.from_weights([fitted, fitted], [1, 1]).feature_statistics_ is fitted.feature_statistics_


def test_a_ranker_saved_without_statistics_is_loaded_and_saved_again(fitted: GLS, tmp_path: Path) -> None:
    fitted.feature_statistics_ = None
    fitted.save(tmp_path / "ranker")
    loaded = Ranker.load(tmp_path / "ranker")
    assert loaded.feature_statistics_ is None
    loaded.save(tmp_path / "again")
    assert not set(read_arrays(tmp_path / "again" / "arrays.parquet")) & set(ARRAY_NAMES.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("feature_minimum", None),
        ("feature_minimum", np.array([2.0, 0.0, np.nan])),
        ("feature_minimum", np.array([-2.0, 0.0, 1.0])),
        ("feature_minimum", np.array([-np.inf, 0.0, np.nan])),
        ("feature_maximum", np.array([1.0, np.nan, np.nan])),
        ("feature_maximum", np.array([1.0, 2.0])),
        ("feature_missing_share", np.array([0.25, 1.0, 1.0])),
        ("feature_missing_share", np.array([-0.25, 0.0, 1.0])),
        ("feature_missing_share", np.array([np.nan, 0.0, 1.0])),
        ("feature_missing_share", np.array([0.25, 0.0, 0.5])),
        ("feature_missing_share", np.array([0, 0, 1])),
    ],
)
def test_damaged_statistics_are_refused(name: str, value: Any) -> None:
    arrays = FeatureStatistics.from_matrix(X).arrays
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    with pytest.raises(ValueError, match=r"feature|array"):
        FeatureStatistics.from_arrays(arrays, 3)
