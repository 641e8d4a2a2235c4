"""The contract of every ranker. The classes are found by introspection: a new ranker is tested by existing."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import shutil
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import crowdrank
from crowdrank import Features, GDAPairwise, LambdaRankNet, evaluate, read_features
from crowdrank.errors import InputError, NotFittedError, OutputError, UsageError
from crowdrank.rankers import RANKERS, get_ranker
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.lambdamart import FEW_CELLS, usual_threads
from crowdrank.simulation.world import World, simulate


def every_ranker() -> list[type[Ranker]]:
    for module in pkgutil.iter_modules(crowdrank.rankers.__path__):
        importlib.import_module(f"crowdrank.rankers.{module.name}")
    found, waiting = [], [Ranker]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("crowdrank.") and not inspect.isabstract(cls) and "__init__" in vars(cls):
            found.append(cls)
    return sorted(found, key=lambda cls: cls.__name__)


EVERY = every_ranker()
NO_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (crowdrank[neural])")
each = pytest.mark.parametrize(
    "cls", [pytest.param(cls, marks=NO_TORCH) if cls is LambdaRankNet else cls for cls in EVERY]
)
SMALL = {"n_estimators": 15, "num_leaves": 8, "min_child_samples": 5, "folds": 2, "n_jobs": 1, "epochs": 25}
"""Settings that keep a test short, where a ranker has them."""


@pytest.fixture(scope="module")
def world() -> World:
    return simulate(queries=40, documents=8, labels=3, random_state=4)


@pytest.fixture(scope="module")
def features(world: World) -> Features:
    return read_features(world.features)


@cache
def model_of(world: World) -> GDAPairwise:
    return GDAPairwise().fit(world.judgments)


def small(cls: type[Ranker], world: World) -> Ranker:
    """A ranker of the class that is quick to fit on the world."""
    given = {**SMALL, **({"model": model_of(world)} if "model" in cls._parameter_names() else {})}
    return cls().set_params(**{name: value for name, value in given.items() if name in cls._parameter_names()})


def told(world: World, ranker: Ranker, rows: Any = slice(None)) -> dict[str, Any]:
    """What `fit` is told of the world's rows, besides the features."""
    gold = world.gold.iloc[rows]
    ids = {"document": gold["document"].to_numpy()} if "document" in inspect.signature(ranker.fit).parameters else {}
    return {"y": gold["grade"].to_numpy(), "query": gold["query"].to_numpy(), **ids}


def matrix(world: World) -> np.ndarray[Any, np.dtype[np.float64]]:
    found: np.ndarray[Any, np.dtype[np.float64]] = world.features.drop(columns=["query", "document"]).to_numpy()
    return found


def fitted(cls: type[Ranker], world: World, X: Any = None, **more: Any) -> Ranker:
    ranker = small(cls, world)
    return ranker.fit(matrix(world) if X is None else X, **told(world, ranker), **more)


def test_the_command_line_knows_every_ranker() -> None:
    assert {ranker_class(name) for name in RANKERS} == set(EVERY)
    with pytest.raises(UsageError, match="There is no ranker 'svm'; the rankers are: lambdamart, "):
        ranker_class("svm")


@each
def test_the_signatures_are_the_contract(cls: type[Ranker]) -> None:
    fit = inspect.signature(cls.fit).parameters
    assert list(fit)[:3] == ["self", "X", "y"]
    for name, default in {"sample_weight": None, "eval_set": None, "progress": False}.items():
        assert (fit[name].kind, fit[name].default) == (inspect.Parameter.KEYWORD_ONLY, default)
    assert fit["query"].kind == inspect.Parameter.KEYWORD_ONLY
    assert list(inspect.signature(cls.predict).parameters) == ["self", "X", "query"]
    assert "random_state" in cls._parameter_names()


@each
def test_the_constructor_only_stores(cls: type[Ranker]) -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    ranker = cls(**defaults)
    assert vars(ranker) == defaults
    assert ranker.get_params() == defaults
    assert repr(ranker) == f"{cls.__name__}()"
    assert repr(cls().set_params(random_state=3)) == f"{cls.__name__}(random_state=3)"
    assert clone(cls().set_params(random_state=3)).get_params() == {**defaults, "random_state": 3}
    with pytest.raises(UsageError, match=f"{cls.__name__} has no parameter 'depth'.*; it has: "):
        ranker.set_params(depth=3)


@each
def test_it_learns_to_rank(cls: type[Ranker], world: World) -> None:
    ranker = small(cls, world)
    assert ranker.fit(matrix(world), **told(world, ranker)) is ranker
    scores = ranker.predict(matrix(world), query=world.gold["query"])
    assert scores.shape == (len(world.gold),)
    assert np.isfinite(scores).all()
    run = world.gold[["query", "document"]].assign(score=scores)
    chance = run.assign(score=0.0)
    assert (
        evaluate(run, world.gold, "nDCG@5").means["nDCG@5"]
        > evaluate(chance, world.gold, "nDCG@5").means["nDCG@5"] + 0.15
    )
    assert ranker.importances_.shape == (matrix(world).shape[1],)
    assert (ranker.importances_ >= 0).all()
    assert ranker.importances_.sum() == pytest.approx(1)


@each
def test_an_unfitted_ranker_says_so(cls: type[Ranker], tmp_path: Path) -> None:
    for ask in (lambda: cls().predict(np.eye(2), query=[1, 1]), lambda: cls().save(tmp_path / "r")):
        with pytest.raises(NotFittedError, match="not fitted yet; call fit first"):
            ask()


@each
def test_the_same_seed_gives_the_same_scores(cls: type[Ranker], world: World) -> None:
    one, two = (fitted(cls, world).predict(matrix(world), world.gold["query"]) for _ in range(2))
    assert np.array_equal(one, two)


@each
def test_a_saved_ranker_scores_the_same(cls: type[Ranker], world: World, tmp_path: Path) -> None:
    ranker = fitted(cls, world, world.features.drop(columns=["query", "document"]))
    for _ in range(2):  # the second takes the place of the first
        ranker.save(tmp_path / "ranker")
    assert not [entry for entry in tmp_path.rglob("*") if entry.suffix in (".pkl", ".pickle", ".npy")]
    for loader in (cls, Ranker):
        loaded = loader.load(tmp_path / "ranker")
        assert type(loaded) is cls
        assert loaded.feature_names_in_ == ranker.feature_names_in_
        assert np.array_equal(loaded.importances_, ranker.importances_)
        query = world.gold["query"]
        assert np.array_equal(loaded.predict(matrix(world), query), ranker.predict(matrix(world), query))
        loaded.save(tmp_path / "again")


@each
def test_a_damaged_ranker_is_refused(cls: type[Ranker], world: World, tmp_path: Path) -> None:
    ranker = fitted(cls, world)
    ranker.save(tmp_path / "whole")
    files = [entry.relative_to(tmp_path / "whole") for entry in (tmp_path / "whole").rglob("*") if entry.is_file()]
    assert len(files) > 1
    for name in files:
        shutil.rmtree(tmp_path / "part", ignore_errors=True)
        ranker.save(tmp_path / "part")
        content = (tmp_path / "part" / name).read_bytes()
        (tmp_path / "part" / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match=r"part.*(not a saved ranker|was changed after)"):
            cls.load(tmp_path / "part")
        (tmp_path / "part" / name).unlink()
        with pytest.raises(InputError, match=r"part.*there is no"):
            cls.load(tmp_path / "part")


@each
def test_a_ranker_of_another_version_is_refused(cls: type[Ranker], world: World, tmp_path: Path) -> None:
    fitted(cls, world).save(tmp_path / "ranker")
    about = json.loads((tmp_path / "ranker" / "crowdrank.json").read_text())
    (tmp_path / "ranker" / "crowdrank.json").write_text(json.dumps({**about, "format": 7, "crowdrank": "9.1"}))
    with pytest.raises(InputError, match=r"written by crowdrank 9\.1 in format 7"):
        cls.load(tmp_path / "ranker")


def test_other_folders_are_spared_and_refused(world: World, tmp_path: Path) -> None:
    ranker = fitted(ranker_class("gls"), world)
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(OutputError, match=r"it contains mine\.txt"):
        ranker.save(tmp_path)
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "mine.txt"):
        with pytest.raises(InputError, match="name a folder written by save"):
            Ranker.load(folder)
    ranker.save(tmp_path / "gls")
    with pytest.raises(InputError, match="it holds a GLS, not a LambdaMART"):
        ranker_class("lambdamart").load(tmp_path / "gls")


@each
def test_any_frame_is_the_same(cls: type[Ranker], world: World, features: Features) -> None:
    frame = world.features.drop(columns=["query", "document"])
    query = world.gold["query"]
    expected = fitted(cls, world).predict(matrix(world), query)
    for X in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), features):
        ranker = fitted(cls, world, X)
        assert ranker.feature_names_in_ == tuple(frame.columns)
        assert np.array_equal(ranker.predict(X, query), expected)
        assert np.array_equal(ranker.predict(frame[frame.columns[::-1]], query), expected)
        with pytest.raises(InputError, match="needs 2 features that are not there \\('f1', 'f2'\\)"):
            ranker.predict(frame.drop(columns=["f1", "f2"]), query)
        with pytest.raises(InputError, match="there are 3 features, but the ranker learned from 20"):
            ranker.predict(matrix(world)[:, :3], query)


@each
def test_a_frame_tells_queries_and_documents(cls: type[Ranker], world: World) -> None:
    expected = fitted(cls, world).predict(matrix(world), world.gold["query"])
    query = world.gold["query"].to_numpy()
    later = np.isin(query, np.unique(query)[-10:])
    for library in (lambda frame: frame, pl.from_pandas, pa.Table.from_pandas):
        frame = library(world.features)
        ranker = small(cls, world).fit(frame, world.gold["grade"].to_numpy())
        assert ranker.feature_names_in_ == tuple(world.features.columns.drop(["query", "document"]))
        assert np.array_equal(ranker.predict(frame), expected)
        assert ranker.validation_queries_ == ()
    held_out = (world.features[later], world.gold["grade"][later], None)
    ranker = small(cls, world).fit(world.features[~later], world.gold["grade"][~later].to_numpy(), eval_set=held_out)
    assert ranker.validation_queries_ == tuple(dict.fromkeys(query[later].tolist()))


@each
def test_a_column_that_is_missing_is_named(cls: type[Ranker], world: World) -> None:
    ranker = fitted(cls, world, world.features)
    for frame in (world.features, world.features.drop(columns=["query", "document"])):
        with pytest.raises(InputError, match=r"the ranker needs 1 feature that is not there \('f7'\); give"):
            ranker.predict(frame.drop(columns="f7"), world.gold["query"])


@each
def test_labels_that_tell_nothing_apart_are_refused(cls: type[Ranker], world: World) -> None:
    ranker = small(cls, world)
    known = told(world, ranker)
    said = "no query has two documents of different labels; a ranker learns from differences within a query"
    of_query = np.unique(known["query"], return_inverse=True)[1] % 3
    for y in (np.full(len(world.gold), 2), of_query, np.tile([0.5, 0.25, 0.25], (len(world.gold), 1))):
        with pytest.raises(InputError, match=said):
            ranker.fit(matrix(world), **{**known, "y": y})
    alone = world.features.groupby("query").head(1).index  # one document for each query
    with pytest.raises(InputError, match=said):
        ranker.fit(matrix(world)[alone], **told(world, ranker, alone))


@each
def test_validation_queries_are_kept_with_the_ranker(cls: type[Ranker], world: World, tmp_path: Path) -> None:
    train, later = crowdrank.Instances.from_labels(world.gold, world.features, missing="skip").split(
        0.25, random_state=1
    )
    ranker = small(cls, world).fit(**train.arguments, eval_set=later.eval_set)
    names = tuple(later.features.query.unique().to_pylist())
    assert ranker.validation_queries_ == names
    ranker.save(tmp_path / "ranker")
    assert json.loads((tmp_path / "ranker" / "ranker.json").read_text())["validation_queries"] == list(names)
    assert Ranker.load(tmp_path / "ranker").validation_queries_ == names
    for about in (tmp_path / "ranker").glob("*/ranker.json"):  # what it is made of saw the same queries
        assert json.loads(about.read_text())["validation_queries"] in (list(names), [])
    assert ranker.fit(**train.arguments).validation_queries_ == ()


@each
def test_queries_apart_are_sorted_and_said(cls: type[Ranker], world: World) -> None:
    n = len(world.gold)
    # The queries come in the same order, their rows in turns.
    mixed = np.argsort(world.gold.groupby("query").cumcount().to_numpy(), kind="stable")
    ranker = small(cls, world)
    with pytest.warns(UserWarning, match="The rows of a query are not together; they were sorted by query") as said:
        ranker.fit(matrix(world)[mixed], **told(world, ranker, mixed))
    assert len(said) == 1
    query = world.gold["query"].to_numpy()
    together = fitted(cls, world).predict(matrix(world), query)
    assert np.array_equal(ranker.predict(matrix(world), query), together)
    apart = ranker.predict(matrix(world)[mixed], query[mixed])
    assert np.allclose(apart, together[mixed], rtol=1e-12, atol=1e-12)
    assert len(apart) == n


@each
def test_validation_queries_are_looked_at(cls: type[Ranker], world: World) -> None:
    query = world.gold["query"].to_numpy()
    later = np.isin(query, np.unique(query)[-10:])
    ranker = small(cls, world)
    held = told(world, ranker, later)
    seen: list[tuple[int, int, float]] = []
    ranker.fit(
        matrix(world)[~later],
        **told(world, ranker, ~later),
        eval_set=(matrix(world)[later], held["y"], held["query"]),
        progress=lambda *news: seen.append(news),
    )
    assert ranker.history_
    assert all(0 < value <= 1 for value in ranker.history_)


@each
def test_certain_probabilities_are_grades(cls: type[Ranker], world: World) -> None:
    ranker, other = small(cls, world), small(cls, world)
    known = told(world, ranker)
    query = world.gold["query"]
    ranker.fit(matrix(world), **known)
    other.fit(matrix(world), **{**known, "y": np.eye(5)[np.asarray(known["y"])]})
    assert np.allclose(ranker.predict(matrix(world), query), other.predict(matrix(world), query), atol=1e-9)


@each
def test_blank_and_constant_features(cls: type[Ranker], world: World) -> None:
    X = matrix(world).copy()
    X[:, 0] = 7.0
    X[::3, 1] = np.nan
    X[:, 2] = np.nan
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ranker = fitted(cls, world, X)
    texts = [str(one.message) for one in said]
    flat = "1 feature (f1) is the same in every row, so that nothing is learned from it."
    blank = "1 feature (f3) is blank in every row, so that nothing is learned from it."
    assert texts.count(flat) == texts.count(blank) == 1  # once, also where one ranker teaches others
    others = [text for text in texts if text not in (flat, blank)]
    assert all(text.startswith("1 feature (f2) has blanks, which") for text in others)
    scores = ranker.predict(X, world.gold["query"])
    assert np.isfinite(scores).all()
    assert ranker.importances_[0] == ranker.importances_[2] == 0
    with pytest.raises(InputError, match="no feature differs between two rows"):
        fitted(cls, world, np.full_like(X, 3.0))
    X[4, 3] = np.inf
    with pytest.raises(InputError, match="row 5, column 'f4': a feature is infinite"):
        fitted(cls, world, X)


@each
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": None}, "give .*query.* each row"),
        ({"query": [1, 2]}, "but 2 query ids"),
        ({"sample_weight": -1.0}, "row 1: the weight -1 is not one; weights are 0 or more"),
        ({"sample_weight": np.nan}, "the weight nan is not one"),
        ({"sample_weight": ["much"]}, "the weights are not all numbers"),
        ({"sample_weight": [1.0, 2.0]}, r"the weights have the shape \(2,\), but there are"),
        ({"sample_weight": 0.0}, "every weight is 0"),
        ({"eval_set": ("X", "y")}, r"eval_set is \(X, y, query\)"),
    ],
)
def test_what_cannot_be_learned_from_is_said(
    cls: type[Ranker], change: dict[str, Any], said: str, world: World
) -> None:
    ranker = small(cls, world)
    known = {**told(world, ranker), **change}
    if isinstance(known.get("sample_weight"), float):
        known["sample_weight"] = np.full(len(world.gold), known["sample_weight"])
    with pytest.raises((InputError, UsageError), match=said):
        ranker.fit(matrix(world), **known)


@each
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("blank", "row 1: the label is missing or infinite; leave such rows out"),
        ("few", r"the labels have the shape \(1,\)"),
        ("shares", "row 1: the probabilities of the grades do not sum to 1"),
        ("words", "the labels are not all numbers"),
    ],
)
def test_labels_that_are_none(cls: type[Ranker], labels: str, said: str, world: World) -> None:
    ranker = small(cls, world)
    n = len(world.gold)
    y = {"blank": np.full(n, np.nan), "few": [1], "shares": np.ones((n, 2)), "words": ["good"] * n}[labels]
    with pytest.raises(InputError, match=said):
        ranker.fit(matrix(world), **{**told(world, ranker), "y": y})


@each
def test_settings_are_checked(cls: type[Ranker], world: World) -> None:
    ranker = small(cls, world).set_params(random_state=-1)
    with pytest.raises(UsageError, match="random_state must be a whole number of at least 0, not -1"):
        ranker.fit(matrix(world), **told(world, ranker))


def test_features_that_are_no_matrix(world: World) -> None:
    gls = get_ranker("gls")
    for X, said in (
        (pd.DataFrame({"a": ["x", "y"]}), "column 'a': it is not all numbers"),
        ([["a"], ["b"]], "the features are not all numbers"),
        ([1.0, 2.0], "the features have 1 axis, not two"),
        (np.empty((0, 3)), "there are no rows or no features"),
    ):
        with pytest.raises(InputError, match=said):
            gls.fit(X, [0, 1], query=[1, 1])


def test_a_frame_may_have_more_columns_than_the_features() -> None:
    world = crowdrank.simulate(queries=20, documents=8, random_state=1)
    rows = crowdrank.Instances.from_labels(world.gold, world.features, missing="skip")
    ranker = crowdrank.GLS().fit(**rows.arguments)
    bare = world.features.drop(columns=["query", "document"])
    assert np.array_equal(ranker.predict(world.features), ranker.predict(bare))


def test_few_rows_are_refused_in_one_sentence() -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(InputError, match="30 rows cannot be parted into leaves of 20"):
        crowdrank.LambdaMART().fit(X, np.arange(30) % 3, query=np.repeat([1, 2, 3], 10))


def test_falling_gains_are_refused() -> None:
    with pytest.raises(UsageError, match="fall from one grade"):
        crowdrank.LambdaMART(gains=(15, 7, 3, 1, 0)).fit(np.eye(3), [0, 1, 2], query=[1, 1, 1])


def test_a_frame_tells_an_ensemble_its_queries() -> None:
    world = crowdrank.simulate(queries=20, documents=8, random_state=1)
    rows = crowdrank.Instances.from_labels(world.gold, world.features, missing="skip")
    ranker = crowdrank.Ensemble([crowdrank.GLS(), crowdrank.GLS(mu=10.0)]).fit(**rows.arguments)
    bare = world.features.drop(columns=["query", "document"])
    assert np.array_equal(ranker.predict(world.features), ranker.predict(bare, query=world.features["query"]))


def test_small_data_takes_one_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [usual_threads(cells) for cells in (1, FEW_CELLS - 1, FEW_CELLS)] == [1, 1, 3]
    ranker = crowdrank.LambdaMART(n_estimators=2).fit(world.features, world.gold["grade"])
    assert ranker.booster_.params["num_threads"] == 1
    ranker = crowdrank.LambdaMART(n_estimators=2, n_jobs=2).fit(world.features, world.gold["grade"])
    assert ranker.booster_.params["num_threads"] == 2
    few = slice(60)  # rows that make a hundred trees cheap
    for whole in (crowdrank.Ensemble(n_jobs=2), crowdrank.TreeFeatures(folds=0, n_jobs=2)):
        whole.fit(world.features[few], world.gold["grade"][few])
        part = whole.members_[0] if isinstance(whole, crowdrank.Ensemble) else whole.trees_
        assert part.get_params()["n_jobs"] == 2


def test_features_keep_their_names_where_one_ranker_teaches_others(world: World) -> None:
    frame = world.features.rename(columns={"f1": "bm25"})
    frame.loc[:3, "bm25"] = np.nan
    for ranker in (small(crowdrank.Ensemble, world), small(crowdrank.TreeFeatures, world)):
        with pytest.warns(UserWarning, match=r"1 feature \(bm25\) has blanks, which GLS takes as the mean"):
            ranker.fit(frame, world.gold["grade"].to_numpy())
