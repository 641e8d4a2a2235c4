"""Every exporter exports or refuses every ranker, and refuses bad input with an error that says what to do."""

from __future__ import annotations

import json
import shutil
from functools import cache
from inspect import isabstract
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import GLS, GDAPairwise, LambdaMART, PointwiseGBDT, get_ranker
from crowdrank._typing import Floats, Integers
from crowdrank.errors import CrowdrankWarning, InputError, NotFittedError, OutputError, UsageError
from crowdrank.rankers import RANKERS
from crowdrank.rankers.export import EXPORTERS, get_exporter
from crowdrank.rankers.export.exportable_models import read_forest
from crowdrank.rankers.export.exporter import Exporter, find_exportable
from crowdrank.rankers.ranker import Ranker
from crowdrank.testing import example_world
from terminal import crowdrank as command

from .engine_evaluators import EVALUATORS

SMALL = {"n_estimators": 8, "num_leaves": 5, "min_child_samples": 5, "n_trees": 5, "epochs": 2}
REFUSED = {"ensemble", "lambdarank-net", "tree-features"}
"""Rankers that no engine evaluates."""
LINEAR = {"gls", "rd", "single-feature"}


@cache
def fitted(name: str) -> Ranker:
    """Return a fitted ranker of each kind."""
    world, ranker = example_world(), get_ranker(name)
    parameters = ranker.get_params(deep=False)
    ranker.set_params(**{key: value for key, value in SMALL.items() if key in parameters})
    if "model" in parameters:
        ranker.set_params(model=GDAPairwise().fit(world.judgments))
    return ranker.fit(world.features, world.gold["grade"].to_numpy())


def parity(folder: Path) -> tuple[Floats, Floats]:
    table = pd.read_csv(folder / "parity.csv")
    return table.iloc[:, :-1].to_numpy(float), table["expected_score"].to_numpy(float)


def refusal(ranker: Ranker, engine: str, path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        crowdrank.export(ranker, engine, path)
    assert not path.exists(), "nothing is written"
    return caught.value


def simple_data() -> tuple[Floats, Floats, Integers]:
    X = np.random.default_rng(1).normal(size=(80, 3))
    return X, np.asarray(np.round(np.clip(X[:, 0] + 1, 0, 2)), float), np.zeros(80, np.int64)


def simple_forest(X: Any = None, **more: Any) -> PointwiseGBDT:
    features, y, query = simple_data()
    return PointwiseGBDT(n_estimators=3, num_leaves=4, **more).fit(features if X is None else X, y, query=query)


def kinds(caught: pytest.WarningsRecorder) -> list[str]:
    return [one.message.kind for one in caught if isinstance(one.message, CrowdrankWarning)]


@pytest.mark.parametrize("engine", EXPORTERS)
@pytest.mark.parametrize("name", RANKERS)
def test_every_exporter_exports_or_refuses_every_ranker(name: str, engine: str, tmp_path: Path) -> None:
    ranker, exporter = fitted(name), get_exporter(engine)
    if name in REFUSED:
        error = refusal(ranker, engine, tmp_path / "out")
        assert error.kind == "not-exportable"
        fixes = " ".join(fix.text for fix in error.fixes)
        assert ("tree_features=0" if name == "tree-features" else "deployable") in fixes
        return
    if name in LINEAR and not exporter.supports_linear:
        assert refusal(ranker, engine, tmp_path / "out").kind == "no-linear-models"
        return
    folder = crowdrank.export(ranker, engine, tmp_path / "out")
    rows, expected = parity(folder)
    assert len(rows) == 20
    found = EVALUATORS[engine](folder, rows.astype(np.float32), list(ranker.features_))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    features = pd.read_csv(folder / "features.csv")
    assert features["name"].tolist() == list(ranker.features_)
    assert features["number"].tolist() == list(range(1, len(features) + 1))
    assert ranker.feature_statistics_ is not None
    np.testing.assert_allclose(features["maximum"], ranker.feature_statistics_.maximum)
    assert 8 <= len((folder / "README.md").read_text().splitlines()) <= 20


def test_every_exporter_is_registered_once() -> None:
    made = [type(get_exporter(name)) for name in EXPORTERS]
    assert len(set(made)) == len(made)
    subclasses: list[type[Any]] = [Exporter]
    for cls in subclasses:  # grows while it is read
        subclasses += cls.__subclasses__()
    assert set(made) == {cls for cls in subclasses if not isabstract(cls)}
    assert set(EXPORTERS) == set(EVALUATORS)


def test_an_export_has_the_iterations_that_the_ranker_uses(tmp_path: Path) -> None:
    X, y, query = simple_data()
    rng = np.random.default_rng(2)
    ranker = LambdaMART(n_estimators=30, num_leaves=4, min_child_samples=3, patience=5)
    ranker.fit(X, y, query=query, eval_set=(X, rng.permutation(y), query))
    assert ranker.best_iteration_ < ranker.booster_.current_iteration()
    folder = crowdrank.export(ranker, "vespa", tmp_path / "out")
    assert len(json.loads((folder / "model.json").read_text())["tree_info"]) == ranker.best_iteration_


def test_parity_rows_have_missing_values_where_the_engine_has_them(tmp_path: Path) -> None:
    ranker = simple_forest()
    for engine in EXPORTERS:
        rows, _ = parity(crowdrank.export(ranker, engine, tmp_path / engine))
        assert np.isnan(rows).any() == get_exporter(engine).reads_missing
        assert np.isnan(rows[-1]).all() == get_exporter(engine).reads_missing
        assert not np.isnan(rows[:14]).any()


def test_a_ranker_without_statistics_is_exported(tmp_path: Path) -> None:
    ranker = simple_forest()
    ranker.feature_statistics_ = None
    folder = crowdrank.export(ranker, "solr", tmp_path / "out")
    assert pd.read_csv(folder / "features.csv")["minimum"].isna().all()
    assert len(parity(folder)[0]) == 20


# Trees that an engine cannot evaluate.


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"zero_as_missing": True}, "zero-as-missing"),
        ({"linear_tree": True}, "linear-leaves"),
        ({"categorical_feature": [0], "max_cat_to_onehot": 1, "min_data_per_group": 1}, "categorical-splits"),
    ],
)
def test_trees_that_only_lightgbm_evaluates_are_refused(settings: dict[str, Any], kind: str, tmp_path: Path) -> None:
    X, y, _ = simple_data()
    X[:, 0] = np.round(np.abs(X[:, 0]) * 3)
    of_data = {"categorical_feature": settings.pop("categorical_feature", "auto")}
    parameters = {"objective": "regression", "verbosity": -1, "num_threads": 1, **settings}
    data = lightgbm.Dataset(X, X[:, 0] % 2 + y, params=parameters, **of_data)
    ranker = simple_forest()
    ranker._set_trees(lightgbm.train(parameters, data, 3), 3, [])
    for engine in EXPORTERS:
        if engine == "lightgbm":
            folder = crowdrank.export(ranker, engine, tmp_path / engine)
            rows, expected = parity(folder)
            found = EVALUATORS[engine](folder, rows.astype(np.float32), list(ranker.features_))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        else:
            error = refusal(ranker, engine, tmp_path / engine)
            assert error.kind == kind
            assert any(fix.parameter == "to" and fix.value == "lightgbm" for fix in error.fixes)


def test_trees_that_are_too_deep_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = simple_forest()
    depth = max(tree.depth.max() for tree in read_forest(ranker).trees)
    monkeypatch.setattr("crowdrank.rankers.export.exportable_models.MAX_DEPTH", depth)
    crowdrank.export(ranker, "solr", tmp_path / "solr")
    monkeypatch.setattr("crowdrank.rankers.export.exportable_models.MAX_DEPTH", depth - 1)
    assert refusal(ranker, "solr", tmp_path / "out").kind == "deep-trees"
    crowdrank.export(ranker, "lightgbm", tmp_path / "lightgbm")


# Names of features.


@pytest.mark.parametrize(
    ("name", "refused_by"),
    [
        ("bm25", set()),
        ("title length", {"solr", "vespa", "lightgbm"}),
        ("bm25(title)", set()),
        ("fieldMatch(title).completeness", set()),
        ("title-length", {"vespa"}),
        ("a=b", {"solr", "vespa"}),
        ("Größe", {"vespa"}),
        ('say "x"', {"solr", "vespa", "lightgbm"}),
        ("a:b", {"solr", "vespa", "lightgbm"}),
    ],
)
def test_names_that_an_engine_cannot_hold_are_refused(name: str, refused_by: set[str], tmp_path: Path) -> None:
    X, *_ = simple_data()
    ranker = simple_forest(pd.DataFrame(X, columns=[name, "b", "c"]))
    for engine in EXPORTERS:
        if engine in refused_by:
            error = refusal(ranker, engine, tmp_path / engine)
            assert error.kind == "feature-names"
            assert error.fix is not None
        else:
            folder = crowdrank.export(ranker, engine, tmp_path / engine)
            rows, expected = parity(folder)
            found = EVALUATORS[engine](folder, rows.astype(np.float32), [name, "b", "c"])
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# Warnings.


def test_ranklib_warns_of_trees_that_treat_missing_values_unlike_zero(tmp_path: Path) -> None:
    X, y, query = simple_data()
    X[::3, 0] = np.nan
    y[::3] = 2
    ranker = PointwiseGBDT(n_estimators=3, num_leaves=4).fit(X, y, query=query)
    with pytest.warns(CrowdrankWarning) as caught:
        crowdrank.export(ranker, "ranklib", tmp_path / "out")
    assert kinds(caught) == ["missing-as-zero"]
    assert "Warning" in (tmp_path / "out" / "README.md").read_text()


def test_linear_models_warn_of_missing_values(tmp_path: Path) -> None:
    X, y, query = simple_data()
    X[::3, 0] = np.nan
    with pytest.warns(CrowdrankWarning):
        ranker = GLS().fit(X, y, query=query)
    for engine in ("elasticsearch-ltr", "solr", "ranklib"):
        with pytest.warns(CrowdrankWarning) as caught:
            folder = crowdrank.export(ranker, engine, tmp_path / engine)
        assert kinds(caught) == ["missing-as-zero"]
        features = pd.read_csv(folder / "features.csv")
        np.testing.assert_allclose(features["value_if_missing"], ranker.standardizer_.mean)


def test_solr_defines_the_value_that_stands_for_missing_ones(tmp_path: Path) -> None:
    X, y, query = simple_data()
    X[::3, 0] = np.nan
    with pytest.warns(CrowdrankWarning):
        linear = GLS().fit(X, y, query=query)
    with pytest.warns(CrowdrankWarning):
        folder = crowdrank.export(linear, "solr", tmp_path / "linear")
    store = [one["params"] for one in json.loads((folder / "feature_store.json").read_text())]
    filled = np.where(np.isnan(X), float(store[0]["defaultValue"]), X).astype(np.float32)
    expected = linear.predict(X) - find_exportable(linear).intercept  # type: ignore[union-attr]
    np.testing.assert_allclose(EVALUATORS["solr"](folder, filled, list(linear.features_)), expected, atol=1e-5)
    assert "defaultValue" not in store[1]
    forest = PointwiseGBDT(n_estimators=3, num_leaves=4).fit(X, y, query=query)
    folder = crowdrank.export(forest, "solr", tmp_path / "forest")
    assert json.loads((folder / "feature_store.json").read_text())[0]["params"]["defaultValue"] == "NaN"


def test_solr_warns_of_features_that_are_too_small_for_it(tmp_path: Path) -> None:
    X, *_ = simple_data()
    with pytest.warns(CrowdrankWarning) as caught:
        crowdrank.export(simple_forest(X * [1e-12, 1, 1]), "solr", tmp_path / "tiny")
    assert kinds(caught) == ["tiny-features"]
    crowdrank.export(simple_forest(np.where(X > 0, X, 0)), "solr", tmp_path / "zeros")  # thresholds of 1e-35


# Input and output.


def test_the_folder_of_an_export_is_replaced_unless_the_user_wrote_in_it(tmp_path: Path) -> None:
    ranker = simple_forest()
    crowdrank.export(ranker, "solr", tmp_path / "out")
    crowdrank.export(ranker, "vespa", tmp_path / "out")
    assert not (tmp_path / "out" / "feature_store.json").exists()
    profile = tmp_path / "out" / "rank-profile.sd"
    profile.write_text(profile.read_text().replace("REPLACE_ME", "bm25(title)", 1))
    for change in (lambda: None, lambda: (tmp_path / "out" / "mine.txt").write_text("keep")):
        change()
        before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        with pytest.raises(OutputError) as caught:
            crowdrank.export(ranker, "vespa", tmp_path / "out")
        assert caught.value.kind in ("edited-file", "foreign-files")
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    with pytest.raises(OutputError) as caught:
        crowdrank.export(ranker, "vespa", tmp_path / "nowhere" / "out")
    assert caught.value.kind == "no-parent-folder"


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    ranker = simple_forest()
    assert refusal(ranker, "elasticsearch_ltr", tmp_path / "out").kind == "unknown-name"
    for name in ("", "a/b", "A", "x y", "../x"):
        with pytest.raises(UsageError) as caught:
            crowdrank.export(ranker, "solr", tmp_path / "out", name=name)
        assert caught.value.parameter == "name"
    with pytest.raises(NotFittedError):
        crowdrank.export(LambdaMART(), "solr", tmp_path / "out")


def test_the_export_to_onnx_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    error = refusal(simple_forest(), "onnx", tmp_path / "out")
    assert error.kind == "no-onnx"
    assert error.fix is not None


# The command.


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rankers")
    for name in ("lambdamart", "ensemble", "single-feature"):
        fitted(name).save(folder / name)
    return folder


def test_the_command_writes_an_export(saved: Path, tmp_path: Path) -> None:
    done = command(
        "export", saved / "lambdamart", "--to", "solr", "-o", "out", "--name", "shop", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["ranker"] == "LambdaMART"
    assert set(printed["files"]) >= {"model.json", "features.csv", "parity.csv", "README.md", "upload.sh"}
    assert json.loads((tmp_path / "out" / "model.json").read_text())["name"] == "shop"
    again = command("export", saved / "lambdamart", "--to", "solr", "-o", "out", cwd=tmp_path)
    assert again.returncode == 0
    assert "out/README.md" in again.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("lambdamart", "--to", "slor"), "did you mean 'solr'?"),
        (("ensemble", "--to", "solr"), "deployable"),
        (("single-feature", "--to", "vespa"), "--to solr"),
        (("nowhere", "--to", "solr"), "nowhere"),
        (("lambdamart", "--to", "solr", "--name", "A B"), "--name"),
    ],
)
def test_the_command_refuses_bad_input(saved: Path, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    done = command("export", saved / words[0], *words[1:], "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_command_refuses_folders_that_are_not_rankers(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "lambdamart", tmp_path / "damaged")
    (tmp_path / "damaged" / "trees.txt").write_text("tree")
    for folder in ("damaged", "."):
        done = command("export", folder, "--to", "solr", "-o", "out", cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    with pytest.raises(InputError):
        Ranker.load(tmp_path / "damaged")
