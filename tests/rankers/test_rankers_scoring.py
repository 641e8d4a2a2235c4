"""Loading and scoring in a service: few imports, threads, and frames of numbers without a detour."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from crowdrank import GLS, Ensemble, GDAPairwise, GDAPairwiseMART, LambdaMART
from crowdrank.errors import InputError
from crowdrank.judgments import frames
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import as_matrix
from crowdrank.testing import example_world

HEAVY = {"numba", "scipy", "pandas", "sklearn", "narwhals", "lightgbm", "polars", "torch", "dask", "llvmlite"}
"""Libraries that scoring a matrix needs only if the ranker does."""
SCORE = """
import sys
import numpy
if sys.argv[1] == "trees": import lightgbm
before = set(sys.modules)
from crowdrank import Ranker
for path in sys.argv[2:]:
    ranker = Ranker.load(path)
    ranker.predict(numpy.zeros((5, ranker.n_features_in_)), numpy.zeros(5, int))
print(*(set(sys.modules) - before))
"""


def fitted(ranker: Ranker) -> Ranker:
    world = example_world()
    if isinstance(ranker, GDAPairwiseMART):
        ranker.model = GDAPairwise(n_iter=2).fit(world.judgments)
    return ranker.fit(world.features, world.gold["grade"].to_numpy())


def small_forest() -> LambdaMART:
    return LambdaMART(n_estimators=15, min_child_samples=5, n_jobs=1)


@pytest.mark.parametrize(
    ("libraries", "rankers"),
    [
        ("none", [GLS()]),
        (
            "trees",
            [
                small_forest(),
                GLS(tree_features=5),
                Ensemble([small_forest(), GLS()]),
                GDAPairwiseMART(n_estimators=5, min_child_samples=5),
            ],
        ),
    ],
    ids=["linear", "trees"],
)
def test_loading_imports_only_what_a_matrix_needs(libraries: str, rankers: list[Ranker], tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(len(rankers))]
    for ranker, path in zip(rankers, paths, strict=True):
        fitted(ranker).save(path)
    command = [sys.executable, "-c", SCORE, libraries, *map(str, paths)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "crowdrank.rankers.ranker" in loaded
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert not [name for name in loaded if name.endswith("kernels")]


@pytest.mark.parametrize("ranker", [GLS(), small_forest(), Ensemble([small_forest(), GLS()])], ids=str)
def test_threads_share_a_ranker(ranker: Ranker) -> None:
    world = example_world()
    fit, names = fitted(ranker), list(ranker.features_)
    query = world.features["query"].to_numpy()
    X = world.features[names].to_numpy()
    parts = [np.flatnonzero(query == one) for one in np.unique(query)]
    expected = [fit.predict(X[rows], query[rows]) for rows in parts]

    def score(number: int) -> list[Any]:
        # Every thread begins with another query, so that different queries are scored at the same time.
        order = np.roll(np.arange(len(parts)), number).tolist() * 3
        frame = pd.DataFrame(X, columns=names)
        inputs = [frame.iloc[parts[one]] if one % 2 else X[parts[one]] for one in order]
        return [(one, fit.predict(rows, query[parts[one]])) for one, rows in zip(order, inputs, strict=True)]

    with ThreadPoolExecutor(8) as pool:
        for scores in pool.map(score, range(8)):
            for one, found in scores:
                np.testing.assert_array_equal(found, expected[one])


NUMBERS = pd.DataFrame(
    {
        "query": ["a", "a", "b"],
        "x": [1.5, np.nan, -2.0],
        "count": np.array([1, 2**40, 3], np.int64),
        "small": np.array([1, 2, 3], np.uint8),
        "single": np.array([0.1, 0.2, 0.3], np.float32),
        "flag": [True, False, True],
    }
)
NAMES = ("flag", "x", "single", "count", "small")


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize("names", [NAMES, (), ("x",)])
def test_a_frame_of_numbers_is_converted_at_once(
    library: Any, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = as_matrix(library(NUMBERS), names)
    monkeypatch.setattr(frames, "numeric_matrix", lambda *_: None)
    slow = as_matrix(library(NUMBERS), names)
    np.testing.assert_array_equal(fast[0], slow[0])
    assert fast[0].dtype == np.float64
    assert fast[1] == slow[1] == (names or tuple(NUMBERS.columns[1:]))


def test_columns_that_are_not_plain_numbers_are_converted_one_by_one() -> None:
    for frame in (
        pd.DataFrame({"x": ["1.5", ""]}),
        pd.DataFrame({"x": pd.array([1, None], "Int64")}),
        pd.DataFrame({"x": pd.Categorical(["1.5", "2"])}),
        pl.DataFrame({"x": ["1.5", ""]}),
        pl.DataFrame({"x": pl.Series([1, 2], dtype=pl.Decimal(10, 2))}),
    ):
        assert frames.numeric_matrix(frame, ["x"]) is None
        assert as_matrix(frame)[0].shape == (2, 1)
    assert as_matrix(pl.DataFrame({"x": [1, None]}).lazy())[0].tolist() == [[1.0], [pytest.approx(np.nan, nan_ok=True)]]


def test_columns_of_numbers_are_found_by_their_text() -> None:
    assert as_matrix(pd.DataFrame([[1.0, 2.0]], columns=[7, 8]), ("8", "7"))[0].tolist() == [[2.0, 1.0]]


# Features by name.


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_columns_are_found_by_name_and_others_are_ignored(library: Any) -> None:
    world = example_world()
    ranker = fitted(GLS())
    expected = ranker.predict(world.features)
    shuffled = world.features[world.features.columns[::-1]].assign(clicks="many", extra=np.inf)
    np.testing.assert_array_equal(ranker.predict(library(shuffled)), expected)


def test_missing_features_are_named_in_one_error() -> None:
    world = example_world()
    ranker, features = fitted(GLS()), world.features
    first, second = ranker.features_[:2]
    with pytest.raises(InputError) as caught:
        ranker.predict(features.rename(columns={first: first.upper()}).drop(columns=second))
    assert caught.value.kind == "missing-features"
    assert repr(first) in caught.value.problem
    assert repr(second) in caught.value.problem
    assert f"did you mean '{first.upper()}'" in caught.value.problem


def test_a_matrix_of_another_width_is_refused_with_both_numbers() -> None:
    ranker = fitted(GLS())
    with pytest.raises(InputError) as caught:
        ranker.predict(np.zeros((3, 7)))
    assert caught.value.kind == "feature-count"
    assert "7 features" in caught.value.problem
    assert str(ranker.n_features_in_) in caught.value.problem


def test_a_frame_for_a_ranker_that_was_fitted_to_a_matrix_is_refused() -> None:
    ranker = GLS().fit([[0.0], [1.0]], [0, 1], query=[1, 1])
    with pytest.raises(InputError) as caught:
        ranker.predict(pd.DataFrame({"bm25": [0.5]}))
    assert caught.value.kind == "missing-features"
    assert caught.value.fix is not None
    assert "matrix" in caught.value.fix.text


def test_trees_whose_features_have_other_names_are_not_loaded(tmp_path: Path) -> None:
    ranker = fitted(small_forest())
    names = ranker.features_
    ranker.features_ = (names[1], names[0], *names[2:])
    ranker.save(tmp_path / "model")
    with pytest.raises(InputError) as caught:
        Ranker.load(tmp_path / "model")
    assert caught.value.kind == "damaged"
    ranker.features_ = names
    ranker.save(tmp_path / "model")
    assert Ranker.load(tmp_path / "model").features_ == names


def test_names_that_lightgbm_cannot_hold_are_checked_too(tmp_path: Path) -> None:
    world = example_world()
    names = ["title length", "title:length", "größe", "Länge [m]", *world.features.columns[6:]]
    features = world.features.set_axis([*world.features.columns[:2], *names], axis=1)
    ranker = small_forest().fit(features, world.gold["grade"].to_numpy())
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(Ranker.load(tmp_path / "model").predict(features), ranker.predict(features))
