"""Learned targets and weights: REMAP's simulated experiments, reuse, storage, leaks, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import crowdrank
from crowdrank import (
    GLS,
    BoostedRemapper,
    Instances,
    Judgments,
    LabelFeatures,
    LambdaMART,
    LinearRemapper,
    Ranker,
    Remapper,
    label_features,
    read_features,
    read_judgments,
)
from crowdrank._folders import write_manifest
from crowdrank.errors import InputError, NotFittedError, UsageError
from crowdrank.label_learning.objectives import Aim
from crowdrank.label_learning.remapper import MODES
from crowdrank.rankers.base import MissingValueWarning
from crowdrank.rankers.ranking_data import Lists
from crowdrank.rankers.store import REMAPPER

REMAPPERS: list[Any] = [LinearRemapper, BoostedRemapper]
Few = dict[str, Any]
few: Few = {"n_iter": 6, "ridge": 0.1, "patience": 6}


@pytest.fixture(scope="module")
def world() -> Any:
    return crowdrank.simulate(queries=60, documents=10, label_grades=2, labels=3, gold_queries=40, random_state=1)


@pytest.fixture(scope="module")
def labels(world: Any) -> LabelFeatures:
    return label_features(world.judgments, kind="mgbdt")


@pytest.fixture(scope="module")
def fitted(world: Any, labels: LabelFeatures) -> dict[str, Remapper]:
    found: dict[str, Remapper] = {}
    for cls in REMAPPERS:
        for mode in MODES:
            found[f"{cls.__name__} {mode}"] = cls(mode, **few).fit(labels, world.features, world.gold)
    return found


def crowd(quality: Any = None, rigor: Any = None, seed: int = 0) -> tuple[Judgments, Any, Any, Any]:
    """Documents with three binary labels each, and as many others with experts' grades.

    Each assessor is right with the chance that is their quality, or says 1 from a grade above their rigor. Features
    tell grades apart, some the low ones, some the high ones, and some nothing.
    """
    rng = np.random.default_rng(seed)
    n, k, assessors = 1000, 42, 40
    relevance = rng.normal(size=2 * n)
    grade = np.digitize(relevance, [-0.5, 0.3, 1.0, 1.6])
    X = rng.normal(size=(2 * n, k))
    X[:, :12] = 2 * expit(4 * (relevance[:, None] - np.linspace(-1, 2, 12))) + X[:, :12]
    own = rng.permutation(np.resize(np.array(quality if quality is not None else rigor), assessors))
    who = np.array([rng.choice(assessors, 3, replace=False) for _ in range(n)])
    if quality is not None:
        right = rng.random((n, 3)) < own[who]
        label = np.where(right, grade[:n, None] >= 2, grade[:n, None] < 2).astype(int)
    else:
        label = (grade[:n, None] > own[who]).astype(int)
    query, document = np.arange(2 * n) // 10, [f"d{number}" for number in range(2 * n)]
    rows = pd.DataFrame(
        {
            "query": np.repeat(query[:n], 3),
            "document": np.repeat(document[:n], 3),
            "assessor": [f"w{w}" for w in who.ravel()],
            "grade": label.ravel(),
        }
    )
    features = pd.DataFrame(X, columns=[f"x{j}" for j in range(k)]).assign(query=query, document=document)
    gold = pd.DataFrame({"query": query, "document": document, "grade": grade})[n:]
    table = read_judgments(rows)
    names = table.assessors.to_pylist()
    of_assessor = own[[int(name[1:]) for name in names]][table.assessor]
    return table, features, gold, of_assessor


@pytest.mark.parametrize("cls", REMAPPERS)
def test_weights_grow_with_the_quality_of_assessors(cls: Any) -> None:
    """REMAP's second simulated experiment."""
    levels = [0.5, 0.75, 1.0]
    table, features, gold, quality = crowd(quality=levels)
    label_table = LabelFeatures.of(table, {f"quality_{level}": quality == level for level in levels})
    remapper = cls("W", ridge=0.1).fit(label_table, features, gold)
    means = [remapper.weights_[quality == level].mean() for level in levels]
    assert means[0] < means[1] < means[2]
    assert means[0] < 0.5 * means[2]
    assert (remapper.targets_ == label_table.start).all()
    assert remapper.validation_ > remapper.history_[0]["validation"]


@pytest.mark.parametrize("cls", REMAPPERS)
def test_targets_of_positive_labels_grow_with_rigor(cls: Any) -> None:
    """REMAP's first simulated experiment."""
    levels = [0, 1, 2, 3]
    table, features, gold, rigor = crowd(rigor=levels)
    positive = table.grade == 1
    label_table = LabelFeatures.of(
        table, {"label": positive, **{f"rigor_{level}": positive & (rigor == level) for level in levels}}
    )
    remapper = cls("T", ridge=0.1).fit(label_table, features, gold)
    means = [remapper.targets_[positive & (rigor == level)].mean() for level in levels]
    assert means[0] < means[1] < min(means[2:])  # the most rigorous say 1 of one document in twenty: too few to tell
    assert min(means[2:]) > means[0] + 0.1
    assert remapper.validation_ > remapper.history_[0]["validation"]
    assert (remapper.weights_ == 0.5).all()


def test_spam_weighs_less_by_what_a_crowd_tells_of_itself() -> None:
    world = crowdrank.simulate(
        queries=150, documents=12, label_grades=2, labels=3, spammers=0.4, adversaries=0, noise=0.5, random_state=1
    )
    remapper = LinearRemapper("W", ridge=0.01).fit(world.judgments, world.features, world.gold)
    frame = remapper.remapped_.frame
    spam = frame["assessor"].map(world.assessors.set_index("assessor")["kind"]).str.contains("spammer")
    assert frame["weight"][spam].mean() < 0.85 * frame["weight"][~spam].mean()


@pytest.mark.parametrize("cls", REMAPPERS)
def test_the_squared_loss_serves_beyond_ranking(cls: Any) -> None:
    table, features, gold, quality = crowd(quality=[0.5, 1.0])
    label_table = LabelFeatures.of(table, {"careful": quality == 1, "label": table.grade == 1})
    rows = read_features(features)
    names = list(gold["document"])
    place = [rows.document.to_pylist().index(name) for name in names[:600]]
    X, y = rows.matrix[place], gold["grade"].to_numpy()[:600].astype(float)
    plain = cls("W+T", objective="squared", n_iter=0).fit(
        label_table, rows, (X[:300], y[:300]), eval_set=(X[300:], y[300:])
    )
    learned = cls("W+T", objective="squared", ridge=0.01).fit(
        label_table, rows, (X[:300], y[:300]), eval_set=(X[300:], y[300:])
    )
    errors = [((remapper.predict(X[300:]) - y[300:]) ** 2).mean() for remapper in (plain, learned)]
    assert errors[1] < 0.9 * errors[0]  # in grades again
    careful = quality == 1
    assert learned.weights_[careful].mean() > learned.weights_[~careful].mean()


def test_a_loss_of_ones_own_is_what_its_name_was(world: Any, labels: LabelFeatures) -> None:
    def mine(score: Any, y: Any) -> Any:
        return (score - y / 4) ** 2, 2 * (score - y / 4)

    gold = world.gold
    named, own = (
        LinearRemapper("W+T", objective=objective, **few).fit(labels, world.features, gold)
        for objective in ("squared", mine)
    )
    assert gold["grade"].max() == 4
    assert np.allclose(named.targets_, own.targets_)
    assert np.allclose(named.weights_, own.weights_)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_modes_learn_what_they_say(cls: Any, fitted: dict[str, Remapper], labels: LabelFeatures) -> None:
    for mode in MODES:
        remapper = fitted[f"{cls.__name__} {mode}"]
        target, weight = remapper.learned_.importances()
        assert (remapper.weights_ == 0.5).all() == ("W" not in mode or remapper.best_iteration_ == 0)
        assert target.sum() == 0 or "T" in mode
        assert weight.sum() == 0 or "W" in mode
    assert (fitted[f"{cls.__name__} W"].targets_ == labels.start).all()


@pytest.mark.parametrize("name", [f"{cls.__name__} {mode}" for cls in REMAPPERS for mode in MODES])
def test_what_was_learned_is_what_the_steps_reached(fitted: dict[str, Remapper], name: str, world: Any) -> None:
    """Targets and weights computed again from the learned functions give the ranker that was kept."""
    remapper = fitted[name]
    rows = remapper.instances(rescale=False)
    X = remapper.ranker_.standard_(rows.features.matrix)
    weight, target = rows.weight, rows.y
    assert weight is not None
    design = np.column_stack([X, np.ones(len(X))])
    ridge = remapper.mu_ * np.diag([*np.ones(X.shape[1]), 0.0])
    b = np.linalg.solve(design.T @ (weight[:, None] * design) + ridge, design.T @ (weight * target))
    assert np.allclose(remapper.predict(rows.features), design @ b)
    best = max(remapper.history_, key=lambda step: step["validation"])
    assert (best["mu"], best["iteration"], best["validation"]) == (
        remapper.mu_,
        remapper.best_iteration_,
        remapper.validation_,
    )


@pytest.mark.parametrize("cls", REMAPPERS)
def test_learned_functions_serve_new_labels_without_experts(
    cls: Any, fitted: dict[str, Remapper], world: Any, labels: LabelFeatures
) -> None:
    remapper = fitted[f"{cls.__name__} W+T"]
    again = remapper.transform(labels)
    keep = labels.where(np.arange(len(labels)) % 2 == 0)
    assert np.allclose(remapper.transform(keep).target, again.target[::2])
    assert np.allclose(again.weight, remapper.weights_)
    new = crowdrank.simulate(queries=20, documents=10, label_grades=2, random_state=77)
    other = remapper.transform(new.judgments)
    assert len(other.target) == new.judgments["honeypot"].isna().sum()
    assert np.isfinite(other.target).all()
    assert ((other.weight > 0) & (other.weight < 1)).all()
    ranker = LambdaMART(n_estimators=5).fit(**other.instances(new.features).arguments)
    assert len(ranker.predict(new.features.drop(columns=["query", "document"]))) == len(new.features)


def test_any_ranker_takes_the_instances(fitted: dict[str, Remapper]) -> None:
    remapper = fitted["BoostedRemapper W+T"]
    rows = remapper.instances()
    assert isinstance(rows, Instances)
    assert rows.weight is not None
    assert rows.y.min() == 0
    assert rows.y.max() == 1
    assert rows.weight.mean() == pytest.approx(1)
    for ranker in (GLS(), LambdaMART(n_estimators=3)):
        assert np.isfinite(ranker.fit(**rows.arguments).predict(rows.features)).all()
    documents = remapper.remapped_.documents
    labels = remapper.remapped_.frame
    row = documents.iloc[3]
    own = labels[(labels["query"] == row["query"]) & (labels["document"] == row["document"])]
    assert row["weight"] == pytest.approx(own["weight"].sum())
    assert row["target"] == pytest.approx(np.average(own["target"], weights=own["weight"]))
    assert row["labels"] == len(own)


@pytest.mark.parametrize("name", [f"{cls.__name__} {mode}" for cls in REMAPPERS for mode in MODES])
def test_saved_functions_come_back(
    name: str, fitted: dict[str, Remapper], labels: LabelFeatures, tmp_path: Path
) -> None:
    remapper = fitted[name]
    remapper.save(tmp_path / "remapper")
    again = Remapper.load(tmp_path / "remapper")
    assert type(again) is type(remapper)
    assert again.get_params() == remapper.get_params()
    assert np.array_equal(again.transform(labels).target, remapper.targets_)
    assert np.array_equal(again.transform(labels).weight, remapper.weights_)
    assert again.importances_.equals(remapper.importances_)
    assert again.history_ == remapper.history_
    rows = remapper.instances().features
    assert np.array_equal(again.predict(rows), remapper.predict(rows))
    with pytest.raises(NotFittedError, match="labels are not saved"):
        _ = again.targets_
    assert len(again.dependence("ability", labels=labels)) > 1


def test_other_folders_are_refused(fitted: dict[str, Remapper], tmp_path: Path) -> None:
    fitted["LinearRemapper T"].save(tmp_path / "linear")
    with pytest.raises(InputError, match="it holds a LinearRemapper, not a BoostedRemapper"):
        BoostedRemapper.load(tmp_path / "linear")
    with pytest.raises(InputError, match="it is not a saved ranker but a folder of kind 'remapper'"):
        Ranker.load(tmp_path / "linear")
    with pytest.raises(InputError, match="not a saved"):
        Remapper.load(tmp_path)
    about = json.loads((tmp_path / "linear" / "ranker.json").read_text())
    assert about["parameters"]["mode"] == "T"
    del about["values"]["recipe"]
    (tmp_path / "linear" / "ranker.json").write_text(json.dumps(about))
    write_manifest(tmp_path / "linear", REMAPPER)
    with pytest.raises(InputError, match="not a saved"):
        Remapper.load(tmp_path / "linear")


@pytest.mark.parametrize("cls", REMAPPERS)
def test_a_loss_of_ones_own_is_saved_by_name(cls: Any, world: Any, labels: LabelFeatures, tmp_path: Path) -> None:
    def mine(score: Any, y: Any) -> Any:
        return (score - y) ** 2, 2 * (score - y)

    remapper = cls("T", objective=mine, n_iter=2, ridge=0.1).fit(labels, world.features, world.gold)
    remapper.save(tmp_path / "remapper")
    assert np.array_equal(cls.load(tmp_path / "remapper").transform(labels).target, remapper.targets_)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_the_same_seed_gives_the_same_functions(cls: Any, world: Any, labels: LabelFeatures) -> None:
    one, two = (cls(**few).fit(labels, world.features, world.gold) for _ in range(2))
    assert np.array_equal(one.targets_, two.targets_)
    assert np.array_equal(one.weights_, two.weights_)


def test_the_ridge_is_chosen_with_the_steps(world: Any, labels: LabelFeatures) -> None:
    ridges = (0.01, 1.0, 1000.0)
    together = LinearRemapper("T", ridge=ridges, n_iter=5).fit(labels, world.features, world.gold)
    alone = [LinearRemapper("T", ridge=ridge, n_iter=5).fit(labels, world.features, world.gold) for ridge in ridges]
    best = max(alone, key=lambda remapper: remapper.validation_)
    assert together.validation_ == best.validation_
    assert np.array_equal(together.targets_, best.targets_)
    assert len({step["mu"] for step in together.history_}) == 3
    trees = BoostedRemapper("T", ridge=ridges, n_iter=5).fit(labels, world.features, world.gold)
    single = [BoostedRemapper("T", ridge=ridge, n_iter=5).fit(labels, world.features, world.gold) for ridge in ridges]
    winner = max(single, key=lambda remapper: remapper.validation_)
    assert np.allclose(trees.targets_, winner.targets_)


def test_it_stops_when_validation_does_not_rise(world: Any, labels: LabelFeatures) -> None:
    remapper = LinearRemapper("T", ridge=0.1, learning_rate=3.0, patience=3, n_iter=500)
    remapper.fit(labels, world.features, world.gold)
    assert len(remapper.history_) == remapper.best_iteration_ + 4


def test_progress_is_told(world: Any, labels: LabelFeatures) -> None:
    calls: list[tuple[int, int, float]] = []
    LinearRemapper(n_iter=3, ridge=(0.1, 1)).fit(
        labels, world.features, world.gold, progress=lambda *step: calls.append(step)
    )
    assert [step[0] for step in calls] == [0, 1, 2, 3, 3, 4, 5, 6]
    assert {step[1] for step in calls} == {6}


# Leaks.


def test_grades_of_validation_and_test_queries_reach_no_feature_and_no_gradient(world: Any) -> None:
    """Changing them changes neither the features nor a single step."""
    gold = world.gold
    queries = gold["query"].unique()
    training, held_out = gold[gold["query"].isin(queries[:20])], gold[gold["query"].isin(queries[20:])]
    changed = held_out.assign(grade=4 - held_out["grade"])
    found = []
    for validation in (held_out, changed):
        remapper = BoostedRemapper(**few, kind="all")
        remapper.fit(world.judgments, world.features, training, eval_set=validation)
        found.append(remapper)
    one, two = found
    assert np.array_equal(one.label_features_.matrix, two.label_features_.matrix)
    assert [step["training"] for step in one.history_] == [step["training"] for step in two.history_]
    assert [step["validation"] for step in one.history_] != [step["validation"] for step in two.history_]


def test_leaks_are_refused(world: Any, labels: LabelFeatures) -> None:
    gold = world.gold
    queries = gold["query"].unique()
    training, held_out = gold[gold["query"].isin(queries[:20])], gold[gold["query"].isin(queries[15:])]
    with pytest.raises(InputError, match="5 validation queries are among the training experts too"):
        LinearRemapper(**few).fit(labels, world.features, training, eval_set=held_out)
    seen = label_features(world.judgments, kind="mgbdt", gold=gold.assign(grade=(gold["grade"] > 1).astype(int)))
    with pytest.raises(InputError, match="in the label features too"):
        LinearRemapper(**few).fit(seen, world.features, gold)


def test_experts_come_in_several_forms(world: Any, labels: LabelFeatures) -> None:
    features = read_features(world.features)
    rows = Instances.from_labels(world.gold, features, missing="skip")
    experts = [world.gold, rows, (rows.features, rows.y, rows.features.query), crowdrank.read_gold(world.gold)]
    found = [LinearRemapper(**few).fit(labels, features, expert).targets_ for expert in experts]
    for other in found[1:]:
        assert np.allclose(other, found[0])


# Bad input.


def test_experts_documents_without_features_are_left_out_and_said(world: Any, labels: LabelFeatures) -> None:
    more = pd.concat([world.gold, pd.DataFrame({"query": ["1"], "document": ["unheard-of"], "grade": [4]})])
    with pytest.warns(match="1 document with a label but without features was left out"):
        remapper = LinearRemapper(**few).fit(labels, world.features, more)
    assert np.allclose(remapper.targets_, LinearRemapper(**few).fit(labels, world.features, world.gold).targets_)
    with pytest.raises(InputError, match="no labeled document has features"):
        LinearRemapper(**few).fit(labels, world.features, more.iloc[-1:])


def test_judged_documents_without_features_are_left_out_and_said(world: Any, labels: LabelFeatures) -> None:
    lost = world.features[world.features["query"] != "55"]
    with pytest.warns(match="judged documents without features were left out"):
        remapper = LinearRemapper(**few).fit(labels, lost, world.gold)
    assert "55" not in set(remapper.remapped_.frame["query"])
    with pytest.raises(InputError, match="no judged document has features"):
        LinearRemapper(**few).fit(labels, lost.assign(query="elsewhere"), world.gold)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_one_assessor_works(cls: Any, world: Any) -> None:
    first = world.judgments.groupby("document").head(1).assign(assessor="ann")
    remapper = cls(**few).fit(first, world.features, world.gold)
    assert np.isfinite(remapper.targets_).all()


@pytest.mark.parametrize("cls", REMAPPERS)
def test_equal_labels_are_said_or_work(cls: Any, world: Any) -> None:
    same = world.judgments.assign(grade=1).drop(columns="honeypot")
    with pytest.raises(InputError, match="every label says the same"):
        cls("W", **few).fit(same, world.features, world.gold)
    remapper = cls("T", **few).fit(label_features(same, kind="all"), world.features, world.gold)
    assert np.isfinite(remapper.targets_).all()
    bare = LabelFeatures.of(read_judgments(same), {"label": np.ones(len(same))})
    with pytest.raises(InputError, match="no label feature differs"):
        cls("T", **few).fit(bare, world.features, world.gold)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mode": "TW"}, "mode must be one of W, T, W"),
        ({"ridge": 0}, "ridge must be a number above 0"),
        ({"ridge": ()}, "ridge must be a number above 0 or a sequence"),
        ({"n_iter": -1}, "n_iter must be a whole number"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0"),
        ({"objective": "P@3"}, "objective is a measure"),
        ({"objective": 3}, "objective must be the name"),
        ({"kind": "some"}, "kind must be one of"),
        ({"depth": 9}, "depth must be a whole number of at least 1 and at most 8"),
        ({"start": "end"}, "start must be one of"),
        ({"mode": "W", "start": "zero"}, "start must not be 'zero' if mode is 'W'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    settings: dict[str, Any], sentence: str, world: Any, labels: LabelFeatures
) -> None:
    with pytest.raises(UsageError, match=sentence):
        BoostedRemapper(**settings).fit(labels, world.features, world.gold)


def test_too_few_experts_are_said(world: Any, labels: LabelFeatures) -> None:
    one = world.gold[world.gold["query"] == world.gold["query"].iloc[0]]
    with pytest.raises(InputError, match="1 expert-graded query cannot be split"):
        LinearRemapper(**few).fit(labels, world.features, one)
    with pytest.raises(UsageError, match=r"expert is \(X, y, query\)"):
        LinearRemapper(**few).fit(labels, world.features, (np.eye(3), [1, 2, 3]))
    flat = world.gold.assign(grade=1)
    with pytest.raises(InputError, match="no expert-graded query has two documents of different grades"):
        LinearRemapper(**few).fit(labels, world.features, flat)


def test_unfitted_ones_say_so() -> None:
    with pytest.raises(NotFittedError, match="LinearRemapper is not fitted"):
        LinearRemapper().predict(np.eye(2))
    assert repr(BoostedRemapper("T", depth=2)) == "BoostedRemapper(mode='T', depth=2)"


# What it says of itself.


def test_dependence_and_importances(fitted: dict[str, Remapper], labels: LabelFeatures) -> None:
    remapper = fitted["BoostedRemapper W+T"]
    result = remapper.importances_
    assert set(result["feature"]) == set(labels.names)
    sums = result[["target", "weight"]].sum()
    assert sums.tolist() == pytest.approx([1, 1] if remapper.best_iteration_ else [0, 0])
    table = remapper.dependence("good_dawid_skene", points=5)
    assert table["labels"].sum() == len(labels)
    assert np.average(table["target"], weights=table["labels"]) == pytest.approx(remapper.targets_.mean())
    column = labels.column("good_dawid_skene")
    assert table["good_dawid_skene"].is_monotonic_increasing
    moved = labels.matrix.copy()
    moved[:, labels.names.index("good_dawid_skene")] = table["good_dawid_skene"][0]
    alone = remapper.learned_.apply(moved, labels.expected)[0].mean()
    assert table["target_alone"][0] == pytest.approx(alone)
    assert column.min() <= table["good_dawid_skene"].min()
    with pytest.raises(UsageError, match="There is no label feature 'mood'"):
        remapper.dependence("mood")


def test_blanks_among_label_features_and_features_work(world: Any) -> None:
    judgments = world.judgments.assign(duration=world.judgments["duration"].where(world.judgments.index % 3 > 0))
    features = world.features.assign(f1=world.features["f1"].where(world.features.index % 5 > 0))
    for cls in REMAPPERS:
        with pytest.warns(MissingValueWarning):
            remapper = cls(**few, kind="all").fit(judgments, features, world.gold)
        assert np.isfinite(remapper.targets_).all()
        assert np.isfinite(remapper.predict(features.drop(columns=["query", "document"]))).all()
        assert remapper.dependence("duration")["labels"].sum() == len(remapper.targets_)


@pytest.mark.parametrize("mode", ["T", "W+T"])
def test_targets_may_start_from_nothing(mode: str, world: Any, labels: LabelFeatures) -> None:
    """As in MGBDT: all scores are equal at first, and which document of equal ones stands first is chance."""
    remapper = BoostedRemapper(mode, start="zero", ridge=0.1, n_iter=20).fit(labels, world.features, world.gold)
    assert remapper.best_iteration_ > 0
    assert remapper.validation_ > 1.2 * remapper.history_[0]["validation"]
    assert np.ptp(remapper.targets_) > 0


def test_the_order_of_rows_breaks_no_ties(world: Any, labels: LabelFeatures, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file sorted by grade must not tell which of equal scores stands first."""
    rows = Instances.from_labels(world.gold, world.features, missing="skip")
    order = np.lexsort((-rows.y, rows.lists))
    expert = (rows.features.matrix[order], rows.y[order], rows.lists[order])
    made: list[Lists] = []
    of = Aim.of
    monkeypatch.setattr(Aim, "of", lambda aim, lists: made.append(lists) or of(aim, lists))  # type: ignore[func-returns-value]
    LinearRemapper(n_iter=0).fit(labels, world.features, expert)
    steering, stopping = made
    falling = [np.mean(np.diff(lists.y)[np.diff(lists.query) == 0] <= 0) for lists in (steering, stopping)]
    assert falling[0] < 0.9
    assert falling[1] == 1  # the measure itself takes equal scores in all orders
    known = {(*row, grade) for row, grade in zip(expert[0].tolist(), expert[1], strict=True)}
    assert {(*row, grade) for row, grade in zip(steering.X.tolist(), steering.y, strict=True)} <= known
