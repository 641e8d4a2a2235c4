"""Engines give exported rankers the same scores and the same order as the rankers themselves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank import GLS, RD, PointwiseGBDT
from crowdrank._typing import Floats
from crowdrank.rankers.export import EXPORTERS, get_exporter
from crowdrank.rankers.export.exportable_models import (
    LEAF,
    Forest,
    LinearModel,
    Tree,
    float32_above,
    float32_at_most,
    read_forest,
)
from crowdrank.rankers.export.exporter import ForestExporter, Target, find_exportable
from crowdrank.rankers.export.solr import SOLR_THRESHOLD_SLACK, lowered_threshold
from crowdrank.rankers.single_feature import SingleFeature

from .engine_evaluators import EVALUATORS, Rows, Scores, xgboost_model

TOLERANCE = 1e-5
SOLR_MARGIN = 2e-6
FOREST_ENGINES = [name for name in EXPORTERS if name != "lightgbm"]
"""Engines whose exporters take a forest that no LightGBM model has."""
SPECIAL = np.array([0.0, -0.0, np.nan, 1e-7, -1e-7, 1e-38, 1.0, 3e38, -3e38], np.float32)


@np.errstate(over="ignore")
def rows_near(thresholds: list[Floats], engine: str, rng: np.random.Generator) -> Rows:
    """Return rows with values at thresholds, up to two float32 steps beside them, and special values."""
    columns = []
    for points in thresholds:
        near = np.nan_to_num(points.astype(np.float32))
        steps = [near]
        for direction in (np.float32(-np.inf), np.float32(np.inf)):
            first = np.nextafter(near, direction)
            steps += [first, np.nextafter(first, direction)]
        values = np.concatenate([*steps, near - np.float32(3e-6), near + np.float32(3e-6), SPECIAL])
        values = values[np.isnan(values) | (np.abs(values) < np.finfo(np.float32).max)]
        if engine == "solr" and len(points):
            distance = np.abs(values[:, None].astype(float) - points).min(axis=1)
            values = values[np.isnan(values) | (distance >= SOLR_MARGIN)]
        columns.append(rng.permutation(np.resize(values, max(60, len(values)))))
    return np.column_stack([np.resize(column, max(map(len, columns))) for column in columns])


def assert_same_scores(found: Scores, expected: Floats) -> None:
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    order = np.argsort(expected, kind="stable")
    apart = expected[order][None, :] - expected[order][:, None] > TOLERANCE
    in_order = found[order][None, :] > found[order][:, None]
    assert in_order[apart].all()


def score_forest(forest: Forest, rows: Rows) -> Floats:
    """Score rows in double precision, as LightGBM does."""
    scores = np.zeros(len(rows))
    for tree in forest.trees:
        for row, values in enumerate(rows.astype(float)):
            node = 0
            while tree.feature[node] != LEAF:
                value = values[tree.feature[node]]
                left = tree.missing_left[node] if np.isnan(value) else value <= tree.threshold[node]
                node = int((tree.left if left else tree.right)[node])
            scores[row] += tree.value[node]
    return scores


def thresholds_of(forest: Forest) -> list[Floats]:
    points: list[list[float]] = [[] for _ in forest.names]
    for feature, threshold, _ in forest.splits:
        points[feature].append(threshold)
    return [np.array(one) for one in points]


# Forests of any thresholds.


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Draw forests with thresholds of any size, most of which are not float32 numbers."""
    n_features = draw(st.integers(1, 3))
    size = st.floats(-300, 300).map(lambda power: 10.0**power)
    common = st.floats(-100, 100, allow_subnormal=False)
    numbers = st.one_of(common, size, size.map(lambda one: -one), st.sampled_from([0.0, 1e-35, 0.1, 1e300, -1e300]))
    value = st.floats(-2, 2, allow_subnormal=False)

    def tree() -> Tree:
        nodes: list[list[float]] = []

        def add(depth: int) -> int:
            place = len(nodes)
            nodes.append([LEAF, 0, 0, 0, 0, 0])
            if depth == 3 or (depth and draw(st.booleans())):
                nodes[place][5] = draw(value)
            else:
                nodes[place][:3] = draw(st.integers(0, n_features - 1)), draw(numbers), draw(st.booleans())
                nodes[place][3], nodes[place][4] = add(depth + 1), add(depth + 1)
            return place

        add(0)
        columns = np.array(nodes, float).T
        whole = [column.astype(int) for column in (columns[0], columns[3], columns[4])]
        return Tree(whole[0], columns[1], columns[2].astype(bool), whole[1], whole[2], columns[5])

    names = tuple(f"feature_{number}" for number in range(n_features))
    return Forest(names, tuple(tree() for _ in range(draw(st.integers(1, 3)))))


def write_forest(engine: str, forest: Forest, folder: Path) -> None:
    exporter = get_exporter(engine)
    assert isinstance(exporter, ForestExporter)
    exporter.write_forest(forest, Target(folder, "products"))


@pytest.mark.parametrize("engine", FOREST_ENGINES)
@given(forest=forests(), seed=st.integers(0, 100))
def test_engines_score_any_forest_like_a_forest_in_double_precision(engine: str, forest: Forest, seed: int) -> None:
    rows = rows_near(thresholds_of(forest), engine, np.random.default_rng(seed))
    if engine == "ranklib":
        rows = np.nan_to_num(rows)
    with tempfile.TemporaryDirectory() as folder:
        write_forest(engine, forest, Path(folder))
        found = EVALUATORS[engine](Path(folder), rows, list(forest.names))
    assert_same_scores(found, score_forest(forest, rows))


@given(forest=forests(), seed=st.integers(0, 100))
def test_xgboost_and_treelite_read_the_trees_of_the_ltr_plugin(forest: Forest, seed: int) -> None:
    xgboost, treelite = pytest.importorskip("xgboost"), pytest.importorskip("treelite")
    rows = rows_near(thresholds_of(forest), "elasticsearch-ltr", np.random.default_rng(seed))
    names = list(forest.names)
    with tempfile.TemporaryDirectory() as folder:
        write_forest("elasticsearch-ltr", forest, Path(folder))
        text = xgboost_model(Path(folder), names)
    expected = score_forest(forest, rows)
    booster = xgboost.Booster(model_file=bytearray(text.encode()))
    assert_same_scores(booster.predict(xgboost.DMatrix(rows, nthread=1)).astype(float), expected)
    model = treelite.frontend.from_xgboost_json(text)
    assert_same_scores(treelite.gtil.predict(model, rows, nthread=1).ravel().astype(float), expected)


# Rankers that LightGBM trained.


@st.composite
def trained_rankers(draw: st.DrawFn) -> PointwiseGBDT:
    """Draw rankers trained on features of several scales, with zeros, repeated and missing values."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n = draw(st.integers(20, 60))
    scales = 10.0 ** np.array(draw(st.lists(st.integers(-7, 5), min_size=2, max_size=3)))
    X = rng.normal(size=(n, len(scales))) * scales
    kinds = draw(st.lists(st.sampled_from(["real", "whole", "zeros", "missing"]), min_size=len(scales)))
    for column, kind in zip(X.T, kinds, strict=False):
        if kind == "whole":
            column[:] = np.round(column / scales.max())
        elif kind != "real":
            column[rng.random(n) < 0.4] = 0.0 if kind == "zeros" else np.nan
    y = rng.integers(0, 3, n)
    ranker = PointwiseGBDT(
        n_estimators=draw(st.integers(1, 8)), num_leaves=draw(st.integers(2, 6)), min_child_samples=3
    )
    return ranker.fit(X, y, query=np.zeros(n, int))


def rows_for(ranker: PointwiseGBDT, engine: str, seed: int = 0) -> Rows:
    """Return rows near the thresholds of a ranker; LightGBM reads numbers of at most 1e-35 as 0."""
    rows = rows_near(thresholds_of(read_forest(ranker)), engine, np.random.default_rng(seed))
    return np.where(np.abs(rows) <= np.float32(1e-35), np.float32(0), rows)


@pytest.mark.filterwarnings("ignore::crowdrank.errors.CrowdrankWarning")
@given(ranker=trained_rankers(), seed=st.integers(0, 100))
def test_engines_score_trained_forests_like_the_ranker(ranker: PointwiseGBDT, seed: int) -> None:
    for engine in EXPORTERS:
        rows = rows_for(ranker, engine, seed)
        if engine == "ranklib":
            rows = np.nan_to_num(rows)
        with tempfile.TemporaryDirectory() as folder:
            get_exporter(engine).write(ranker, Target(Path(folder), "products"))
            found = EVALUATORS[engine](Path(folder), rows, list(ranker.features_))
        assert_same_scores(found, ranker.predict(rows.astype(float)))


@pytest.mark.filterwarnings("ignore::crowdrank.errors.CrowdrankWarning")
@given(ranker=trained_rankers())
def test_treelite_reads_the_text_for_lightgbm(ranker: PointwiseGBDT) -> None:
    treelite = pytest.importorskip("treelite")
    rows = rows_for(ranker, "lightgbm").astype(float)
    with tempfile.TemporaryDirectory() as folder:
        get_exporter("lightgbm").write(ranker, Target(Path(folder), "products"))
        model = treelite.frontend.load_lightgbm_model(Path(folder) / "model.txt")
    assert_same_scores(treelite.gtil.predict(model, rows, nthread=1).ravel(), ranker.predict(rows))


@pytest.mark.parametrize("more", [{"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}, {"boosting": "dart"}])
@pytest.mark.parametrize("engine", EXPORTERS)
def test_other_kinds_of_boosting_have_the_same_scores(engine: str, more: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    ranker = PointwiseGBDT(n_estimators=6, num_leaves=5, min_child_samples=3, lightgbm=more)
    ranker.fit(X, rng.integers(0, 3, 80), query=np.zeros(80, int))
    rows = X.astype(np.float32)
    get_exporter(engine).write(ranker, Target(tmp_path, "products"))
    found = EVALUATORS[engine](tmp_path, rows, list(ranker.features_))
    assert_same_scores(found, ranker.predict(rows.astype(float)))


# Linear rankers.

LINEAR = [name for name in EXPORTERS if get_exporter(name).supports_linear]


@pytest.mark.parametrize("engine", LINEAR)
@pytest.mark.parametrize("ranker", [GLS(), RD(), SingleFeature("f2")], ids=lambda one: type(one).__name__)
def test_engines_score_linear_rankers_up_to_the_intercept(engine: str, ranker: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 4)) * [1, 10, 0.1, 0] + [0, 5, 0, 3]
    ranker.fit(X, rng.integers(0, 3, 60), query=np.zeros(60, int))
    exporter, model = get_exporter(engine), find_exportable(ranker)
    assert isinstance(model, LinearModel)
    exporter.write(model, Target(tmp_path, "products"))
    rows = X.astype(np.float32)
    expected = ranker.predict(rows.astype(float))
    if exporter.adds_intercept:
        assert_same_scores(EVALUATORS[engine](tmp_path, rows, list(ranker.features_)), expected)
    else:
        shifted = EVALUATORS[engine](tmp_path, rows, list(ranker.features_)) + model.intercept
        assert_same_scores(shifted, expected)


def test_onnx_fills_in_missing_values_as_a_linear_ranker(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3)) + 4
    ranker = GLS().fit(X, rng.integers(0, 3, 60), query=np.zeros(60, int))
    get_exporter("onnx").write(find_exportable(ranker), Target(tmp_path, "products"))
    rows = np.where(rng.random(X.shape) < 0.4, np.nan, X).astype(np.float32)
    assert_same_scores(EVALUATORS["onnx"](tmp_path, rows, list(ranker.features_)), ranker.predict(rows.astype(float)))


# Thresholds.

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(numbers, st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_thresholds_split_float32_values_alike(threshold: float, drawn: float) -> None:
    near = np.float32(np.clip(threshold, -3e38, 3e38))
    for value in (drawn, near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
        if abs(value) < np.finfo(np.float32).max:
            assert (float(value) <= threshold) == (value <= np.float32(float32_at_most(threshold)))
            assert (float(value) <= threshold) == (value < np.float32(float32_above(threshold)))


@given(st.floats(-1e38, 1e38))
def test_solr_thresholds_are_right_to_a_rounding_error(threshold: float) -> None:
    wanted = np.float32(float32_at_most(threshold))
    lowered = np.float32(lowered_threshold(threshold))
    assert lowered == lowered_threshold(threshold), "it is a float32 number"
    assert lowered + SOLR_THRESHOLD_SLACK <= wanted
    assert float(wanted) - float(lowered + SOLR_THRESHOLD_SLACK) <= max(
        np.spacing(np.abs(lowered)), np.spacing(np.abs(wanted))
    )


@pytest.mark.parametrize("threshold", [0.5, 2.5, 1e-35, 100.25, 7.0, 1e6])
def test_common_solr_thresholds_separate_float32_neighbors(threshold: float) -> None:
    effective = np.float32(lowered_threshold(threshold)) + SOLR_THRESHOLD_SLACK
    value = np.float32(float32_at_most(threshold)) if threshold > 1e-30 else np.float32(0)
    assert value <= effective < np.nextafter(np.float32(threshold), np.float32(np.inf))
