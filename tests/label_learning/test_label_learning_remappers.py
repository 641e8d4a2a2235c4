"""Learned targets and weights: REMAP's simulated experiments, reuse, storage, leaks, bad input."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from label_learning_reference import solve_unfolded
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
    TreeFeatures,
    label_features,
    read_features,
    read_judgments,
)
from crowdrank._folders import write_manifest
from crowdrank.errors import CrowdrankWarning, DataWarning, InputError, NotFittedError, UsageError
from crowdrank.label_learning import gradient_ascent, tree_selection
from crowdrank.label_learning import remapper as remapper_module
from crowdrank.label_learning.boosted_remapper import GrowingTrees, LearnedTrees, TreeSum, binned_dataset
from crowdrank.label_learning.expert_folds import ExpertFold, ExpertSet, split_experts
from crowdrank.label_learning.gradient_ascent import MODES, GridLimits, coordinate_search, gain_bound
from crowdrank.label_learning.linear_remapper import LinearCoefficients, StandardizedInputs
from crowdrank.label_learning.objectives import ObjectiveSpec
from crowdrank.rankers.linear import AUTO_TREES
from crowdrank.rankers.ranker import REMAPPER, MissingValueWarning
from crowdrank.rankers.training_data import RankingData, Standardizer

REMAPPERS: list[Any] = [LinearRemapper, BoostedRemapper]
Few = dict[str, Any]
few: Few = {
    "n_iter": 6,
    "ridge": 0.1,
    "learning_rate": 0.03,
    "patience": 6,
    "standard_errors": 0.0,
    "tree_features": 0,
}
few_trees: Few = {**few, "depth": 3}


def settings_of(cls: Any) -> Few:
    return few_trees if cls is BoostedRemapper else few


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
            found[f"{cls.__name__} {mode}"] = cls(mode, **settings_of(cls)).fit(labels, world.features, world.gold)
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
    remapper = cls("W", ridge=0.1, learning_rate=0.03, standard_errors=0.0).fit(label_table, features, gold)
    means = [remapper.weights_[quality == level].mean() for level in levels]
    assert means[0] < means[1] < means[2]
    assert means[0] < 0.75 * means[2]
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
    remapper = cls("T", ridge=0.1, learning_rate=0.03, standard_errors=0.0).fit(label_table, features, gold)
    means = [remapper.targets_[positive & (rigor == level)].mean() for level in levels]
    assert means[0] < means[1] < min(means[2:])  # the most rigorous say 1 of one document in twenty: too few to tell
    assert min(means[2:]) > means[0] + 0.1
    assert remapper.validation_ > remapper.history_[0]["validation"]
    assert (remapper.weights_ == 0.5).all()


def test_spam_weighs_less_by_what_a_crowd_tells_of_itself() -> None:
    world = crowdrank.simulate(
        queries=150, documents=12, label_grades=2, labels=3, spammers=0.4, adversaries=0, noise=0.5, random_state=1
    )
    remapper = LinearRemapper("W", ridge=0.01, learning_rate=0.03).fit(world.judgments, world.features, world.gold)
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
    learned = cls("W+T", objective="squared").fit(label_table, rows, (X[:300], y[:300]), eval_set=(X[300:], y[300:]))
    errors = [((remapper.predict(X[300:]) - y[300:]) ** 2).mean() for remapper in (plain, learned)]
    assert errors[1] < 0.9 * errors[0]  # in grades again
    careful = quality == 1
    assert learned.weights_[careful].mean() > learned.weights_[~careful].mean()


@pytest.mark.parametrize("cls", REMAPPERS)
def test_the_logistic_loss_classifies(cls: Any) -> None:
    """Its predictions are logits, and it classifies about as well as the squared loss."""
    table, features, gold, quality = crowd(quality=[0.5, 1.0])
    labels = LabelFeatures.of(table, {"careful": quality == 1, "label": table.grade == 1})
    rows = read_features(features)
    X, y = rows.matrix[1000:], (gold["grade"].to_numpy() >= 2).astype(float)
    accuracy, losses = {}, {}
    for objective, threshold in (("squared", 0.5), ("logistic", 0.0)):
        remapper = cls("W+T", objective=objective, ridge=0.01, learning_rate=0.1, n_iter=100)
        remapper.fit(labels, rows, (X[:400], y[:400]), eval_set=(X[400:700], y[400:700]))
        score = remapper.predict(X[700:])
        accuracy[objective] = np.mean((score > threshold) == (y[700:] == 1))
        probability = expit(score) if objective == "logistic" else np.clip(score, 0.01, 0.99)
        losses[objective] = -np.log(np.where(y[700:] == 1, probability, 1 - probability)).mean()
    assert accuracy["logistic"] > max(0.85, accuracy["squared"] - 0.02)
    assert losses["logistic"] < losses["squared"]


@pytest.mark.parametrize("cls", REMAPPERS)
def test_softrank_learns_like_lambdarank(cls: Any) -> None:
    levels = [0.5, 1.0]
    table, features, gold, quality = crowd(quality=levels)
    labels = LabelFeatures.of(table, {f"quality_{level}": quality == level for level in levels})
    remapper = cls("W", measure="softrank", ridge=0.1, learning_rate=0.03, n_iter=60).fit(labels, features, gold)
    assert remapper.weights_[quality == 1.0].mean() > 1.5 * remapper.weights_[quality == 0.5].mean()
    assert remapper.validation_ > remapper.history_[0]["validation"]


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
        target, weight = remapper.learned_.importances(len(labels.names))
        assert (remapper.weights_ == 0.5).all() == ("W" not in mode or remapper.best_iteration_ == 0)
        assert target.sum() == 0 or "T" in mode
        assert weight.sum() == 0 or "W" in mode
    assert (fitted[f"{cls.__name__} W"].targets_ == labels.start).all()


def test_the_ridge_is_relative_to_the_sum_of_weights_at_the_start(
    fitted: dict[str, Remapper], labels: LabelFeatures
) -> None:
    for remapper in fitted.values():
        assert remapper.mu_ == pytest.approx(few["ridge"] * 0.5 * len(labels))


@pytest.mark.parametrize("name", [f"{cls.__name__} {mode}" for cls in REMAPPERS for mode in MODES])
def test_what_was_learned_is_what_the_steps_reached(fitted: dict[str, Remapper], name: str, world: Any) -> None:
    """Targets and weights made anew from the learned functions give the ranker that was kept."""
    remapper = fitted[name]
    rows = remapper.instances(rescale=False)
    X = remapper.ranker_.standardizer_(rows.features.matrix)
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


def test_labels_on_another_scale_are_refused(fitted: dict[str, Remapper]) -> None:
    new = crowdrank.simulate(queries=10, documents=5, label_grades=5, random_state=77)
    with pytest.raises(InputError) as caught:
        fitted["LinearRemapper T"].transform(new.judgments)
    assert caught.value.kind == "other-scale"
    assert caught.value.fix is not None
    assert (caught.value.fix.parameter, caught.value.fix.value) == ("grades", "0,1")


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
    ranker = Ranker.load(tmp_path / "remapper")
    assert np.array_equal(ranker.predict(rows), remapper.predict(rows))
    assert set(remapper.validation_queries_) == set(ranker.validation_queries_)
    assert len(ranker.validation_queries_) == 40
    with pytest.raises(NotFittedError, match="labels are not saved"):
        _ = again.targets_
    assert len(again.dependence("ability", labels=labels)) > 1


def test_other_folders_are_refused(fitted: dict[str, Remapper], tmp_path: Path) -> None:
    fitted["LinearRemapper T"].save(tmp_path / "linear")
    with pytest.raises(InputError, match="it holds a LinearRemapper, not a BoostedRemapper"):
        BoostedRemapper.load(tmp_path / "linear")
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

    remapper = cls("T", objective=mine, **settings_of(cls)).fit(labels, world.features, world.gold)
    remapper.save(tmp_path / "remapper")
    assert np.array_equal(cls.load(tmp_path / "remapper").transform(labels).target, remapper.targets_)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_the_same_seed_gives_the_same_functions(cls: Any, world: Any, labels: LabelFeatures) -> None:
    one, two = (cls(**settings_of(cls)).fit(labels, world.features, world.gold) for _ in range(2))
    assert np.array_equal(one.targets_, two.targets_)
    assert np.array_equal(one.weights_, two.weights_)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_parameters_are_tuned_on_the_validation_queries(cls: Any, world: Any, labels: LabelFeatures) -> None:
    fixed = {**settings_of(cls), "n_iter": 5}
    tuned = cls("T", **{**fixed, "ridge": (0.01, 1.0, 1000.0)}).fit(labels, world.features, world.gold)
    ridges = sorted({step["ridge"] for step in tuned.history_})
    assert set(ridges) >= {0.01, 1.0, 1000.0}
    single = [cls("T", **{**fixed, "ridge": ridge}).fit(labels, world.features, world.gold) for ridge in ridges]
    assert tuned.validation_ == max(remapper.validation_ for remapper in single)
    (alone,) = [remapper for remapper in single if remapper.best_params_ == tuned.best_params_]
    assert tuned.validation_ == alone.validation_
    assert np.allclose(tuned.targets_, alone.targets_)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_no_grid_ends_at_the_best_value(cls: Any, world: Any, labels: LabelFeatures) -> None:
    remapper = cls("W+T", n_iter=3, ridge=(1e-3, 1e-2), learning_rate=(1e-3, 2e-3), tree_features=0)
    remapper.fit(labels, world.features, world.gold)
    assert remapper.best_params_.keys() >= {"ridge", "learning_rate", "tree_features"}
    for name, limits in remapper._grid_limits.items():
        grid = sorted({step[name] for step in remapper.history_})
        best = remapper.best_params_[name]
        assert grid[0] < best < grid[-1] or limits.next_value_outside(grid, best) is None


def test_neighboring_settings_are_no_better() -> None:
    """The joint optimum of ridge and step size is found though each alone has another one."""

    def measure(settings: dict[str, float]) -> float:
        x, y = np.log10(settings["x"]) - 3, np.log10(settings["y"]) + 2
        return -float(x**2 + y**2 + 0.5 * x * y)

    limits = {name: GridLimits(1e-6, 1e6) for name in "xy"}
    assert coordinate_search({"x": (1.0, 10.0), "y": (1.0, 10.0)}, limits, measure) == {"x": 1000.0, "y": 0.01}


def test_a_grid_stops_at_its_limits() -> None:
    evaluated = []

    def measure(settings: dict[str, float]) -> float:
        evaluated.append(settings["depth"])
        return settings["depth"]

    limits = {"depth": GridLimits(1, 8, geometric=False)}
    assert coordinate_search({"depth": (2, 3)}, limits, measure) == {"depth": 8}
    assert sorted(evaluated) == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("n_grades", [2, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cls", REMAPPERS)
def test_step_zero_is_least_squares_on_the_labels(cls: Any, mode: str, n_grades: int) -> None:
    world = crowdrank.simulate(
        queries=20, documents=8, label_grades=n_grades, labels=3, gold_queries=10, honeypots=0, random_state=3
    )
    more = {"depth": 3} if cls is BoostedRemapper else {}
    remapper = cls(mode, n_iter=0, start="label", ridge=0.1, learning_rate=0.1, tree_features=0, **more)
    remapper.fit(label_features(world.judgments, kind="mgbdt"), world.features, world.gold)
    assert np.allclose(remapper.targets_, remapper.label_features_.start, atol=1e-12)
    rows = read_features(world.features)
    labels = world.judgments.groupby(["query", "document"])["grade"].agg(["mean", "size"]).reset_index()
    labels = labels.merge(world.features, on=["query", "document"])
    plain = GLS(remapper.mu_ / 0.5).fit(
        labels[list(rows.names)], labels["mean"] / (n_grades - 1), query=labels["query"], sample_weight=labels["size"]
    )
    assert np.allclose(remapper.predict(rows), plain.predict(rows.matrix), atol=1e-8)


@pytest.mark.parametrize("cls", REMAPPERS)
def test_trees_extend_the_features(cls: Any, world: Any, labels: LabelFeatures, tmp_path: Path) -> None:
    plain, extended = (
        cls("T", **{**settings_of(cls), "tree_features": n}).fit(labels, world.features, world.gold) for n in (0, 5)
    )
    rows = extended.instances(rescale=False).features
    n = len(rows.names)
    assert len(extended.ranker_.coef_) == n + 5
    assert np.abs(extended.ranker_.coef_[n:]).max() > 0
    assert extended.ranker_.features_ == plain.ranker_.features_
    # The ranker is least squares on the learned targets, over features and trees.
    trees = extended.ranker_.tree_features_
    assert trees is not None
    X = extended.ranker_.standardizer_(np.hstack([rows.matrix, trees.transform(rows)]))
    folded_target, folded_weight = extended.remapped_.by_document()
    place = extended.label_features_.judgments.positions(rows.query, rows.document)
    document = np.arange(len(X))
    expected = solve_unfolded(X, document, folded_target[place], folded_weight[place], extended.mu_)
    assert np.allclose(extended.predict(rows), X @ expected[:-1] + expected[-1])
    extended.save(tmp_path / "remapper")
    assert np.array_equal(Remapper.load(tmp_path / "remapper").predict(rows), extended.predict(rows))


def test_the_number_of_trees_is_chosen_before_learning(world: Any, labels: LabelFeatures, tmp_path: Path) -> None:
    settings = {**few, "n_iter": 2, "tree_features": "auto"}
    remapper = LinearRemapper("T", **settings).fit(labels, world.features, world.gold)
    measures = remapper.tree_measures_
    assert tuple(measures) == AUTO_TREES
    chosen = remapper.best_params_["tree_features"]
    assert measures[int(chosen)] == max(measures.values())
    assert {step["tree_features"] for step in remapper.history_} == {chosen}
    remapper.save(tmp_path / "remapper")
    assert Remapper.load(tmp_path / "remapper").tree_measures_ == measures
    fixed = remapper.set_params(tree_features=5).fit(labels, world.features, world.gold)
    assert fixed.tree_measures_ == {}


def test_the_measures_of_numbers_of_trees_are_those_of_least_squares_without_the_labels_of_a_fold(
    world: Any, labels: LabelFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_selection, "AUTO_TREES", (0, 5))
    monkeypatch.setattr(remapper_module, "AUTO_TREES", (0, 5))
    settings = {**few, "n_iter": 0, "ridge": 1.0, "objective": "nDCG@10", "tree_features": "auto", "start": "label"}
    gold = world.gold[world.gold.groupby("query")["grade"].transform("max") > 0]
    remapper = LinearRemapper("T", **settings).fit(labels, world.features, gold)
    graded = np.array(sorted(gold["query"].astype(str).unique()), dtype=object)
    order = np.random.default_rng(0).permutation(graded)
    answers = world.judgments[world.judgments["honeypot"].isna()]
    table = answers.groupby(["query", "document"])["grade"].agg(["mean", "size"]).reset_index()
    table = table.merge(world.features, on=["query", "document"])
    names = [name for name in world.features if name.startswith("f")]
    scores: dict[tuple[int, float], list[Any]] = {}
    for held_out in (order[number::5] for number in range(5)):
        kept = table[~table["query"].astype(str).isin(held_out)]
        rows = world.features[world.features["query"].astype(str).isin(held_out)]
        data = kept[names].to_numpy(), kept["mean"].to_numpy(), kept["query"].to_numpy(), kept["size"].to_numpy()
        trees = TreeFeatures(5).fit(*data)
        for count, ridge in itertools.product((0, 5), (0.1, 1.0, 10.0)):
            X, V = (np.hstack([one, trees.transform(one)[:, :count]]) for one in (data[0], rows[names].to_numpy()))
            ranker = GLS(ridge * data[3].sum()).fit(X, data[1], query=data[2], sample_weight=data[3])
            scores.setdefault((count, ridge), []).append(rows[["query", "document"]].assign(score=ranker.predict(V)))
    means = {
        choice: crowdrank.evaluate(pd.concat(parts), gold, ["nDCG@10"], unjudged="skip").means["nDCG@10"]
        for choice, parts in scores.items()
    }
    expected = {count: max(mean for (n, _), mean in means.items() if n == count) for count in (0, 5)}
    assert remapper.tree_measures_ == pytest.approx(expected, abs=1e-6)


def test_trees_that_only_remember_labels_are_not_chosen() -> None:
    """Features are noise, and experts agree with the crowd, so that trees rank the documents that they saw well."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"query": np.repeat(np.arange(40), 10), "document": np.arange(400)})
    features = rows.assign(**{f"f{number}": rng.normal(size=400) for number in range(8)})
    grade = rng.integers(0, 2, 400)
    crowd = pd.concat([rows.assign(assessor=name, grade=grade) for name in "abc"])
    remapper = LinearRemapper("T", **{**few, "n_iter": 1, "objective": "nDCG@10", "tree_features": "auto"})
    remapper.fit(crowd, features, rows.assign(grade=grade))
    seen = LinearRemapper("T", **{**few, "n_iter": 1, "objective": "nDCG@10", "tree_features": 100})
    seen.fit(crowd, features, rows.assign(grade=grade))
    assert seen.validation_ > remapper.tree_measures_[100] + 0.2
    assert np.ptp(list(remapper.tree_measures_.values())) < 0.1


@pytest.mark.parametrize("documents", [39, 40])
def test_few_documents_have_no_trees(world: Any, labels: LabelFeatures, documents: int) -> None:
    """Experts graded other queries than the crowd, so that all documents are in one fit."""
    graded = np.isin(np.array(labels.judgments.queries.to_pylist(), str), world.gold["query"].unique().astype(str))
    others = labels.where(~graded[labels.judgments.item_query][labels.item])
    few_documents = others.where(others.item < documents)
    remapper = LinearRemapper("T", **{**few, "n_iter": 1, "tree_features": "auto"})
    remapper.fit(few_documents, world.features, world.gold)
    assert bool(remapper.tree_measures_) == (documents >= 40)
    assert remapper.best_params_["tree_features"] == 0 or documents >= 40
    no_split = world.features.copy()
    names = [name for name in no_split if name.startswith("f")]
    no_split[names] = np.random.default_rng(0).random((len(no_split), len(names))) < 0.02
    assert remapper.fit(few_documents, no_split, world.gold).best_params_["tree_features"] == 0


def test_one_fit_serves_expert_queries_without_labels(
    world: Any, labels: LabelFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []

    def counted(labels: LabelFeatures, X: Any, trees: TreeFeatures) -> TreeFeatures:
        fits.append(len(labels))
        return gradient_ascent.fit_average_trees(labels, X, trees)

    monkeypatch.setattr(tree_selection, "fit_average_trees", counted)
    monkeypatch.setattr(tree_selection, "AUTO_TREES", (0, 5))
    monkeypatch.setattr(remapper_module, "AUTO_TREES", (0, 5))
    graded = world.gold["query"].unique().astype(str)
    of_graded = np.isin(np.array(labels.judgments.queries.to_pylist(), dtype=str), graded)
    others = labels.where(~of_graded[labels.judgments.item_query][labels.item])
    settings = {**few, "n_iter": 0, "tree_features": "auto"}
    LinearRemapper("T", **settings).fit(others, world.features, world.gold)
    assert fits == [len(others)]
    fits.clear()
    LinearRemapper("T", **settings).fit(labels, world.features, world.gold)
    assert len(fits) == 5
    assert max(fits) < len(labels)


def test_it_stops_when_validation_does_not_rise(world: Any, labels: LabelFeatures) -> None:
    remapper = LinearRemapper("T", ridge=0.1, learning_rate=3.0, patience=3, n_iter=500, tree_features=0)
    remapper.fit(labels, world.features, world.gold)
    assert len(remapper.history_) == remapper.best_iteration_ + 4


def test_progress_is_reported(world: Any, labels: LabelFeatures) -> None:
    reports: list[tuple[int, int, float]] = []
    LinearRemapper(**{**few, "n_iter": 3}).fit(
        labels, world.features, world.gold, progress=lambda *step: reports.append(step)
    )
    assert [step[:2] for step in reports] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def counting(name: str, function: Any, calls: list[Any]) -> Any:
    """Return the function, made to append its name to the calls."""

    def call(*arguments: Any) -> Any:
        calls.append(name)
        return function(*arguments)

    return call


def test_least_squares_is_factored_once_per_ridge_if_only_targets_are_learned(
    world: Any, labels: LabelFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("normal_equations", "cholesky"):
        monkeypatch.setattr(gradient_ascent, name, counting(name, getattr(gradient_ascent, name), calls))
    LinearRemapper("T", **{**few, "learning_rate": (0.01, 0.1)}).fit(labels, world.features, world.gold)
    assert sorted(calls) == ["cholesky", "normal_equations"]


# Folds.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cls", REMAPPERS)
def test_the_measure_on_the_steering_queries_rises_with_the_steps(cls: Any, mode: str) -> None:
    crowd: Few = {"labels": 3, "spammers": 0.4, "adversaries": 0, "noise": 0.5}
    world = crowdrank.simulate(queries=150, documents=12, label_grades=2, gold_queries=60, random_state=1, **crowd)
    depth = {"depth": 3} if cls is BoostedRemapper else {}
    remapper = cls(mode, ridge=0.1, learning_rate=0.01, n_iter=40, patience=40, kind="mgbdt", **depth)
    remapper.fit(world.judgments, world.features, world.gold)
    rising = [step["training"] for step in remapper.history_]
    assert np.corrcoef(np.arange(41), rising)[0, 1] > 0.6
    assert np.mean(rising[-10:]) > np.mean(rising[10:20]) > rising[0]


def test_every_query_is_measured_by_functions_that_it_does_not_steer() -> None:
    rng = np.random.default_rng(0)
    query, grade = np.repeat(np.arange(14), 5), rng.integers(0, 3, 70)
    grade[query >= 9] = 1  # these steer nothing
    experts = ExpertSet(RankingData.from_ids(rng.normal(size=(70, 2)), grade, query), tuple(map(str, range(14))))
    found, queries = split_experts(
        experts, None, ObjectiveSpec("DCG@3"), n_folds=3, random_state=0, used_queries=["of others"]
    )
    assert queries == experts.queries
    assert sorted(np.concatenate([fold.held_out for fold in found.folds])) == list(range(70))
    for fold in found.folds:
        assert sorted([*fold.steering, *fold.held_out]) == list(range(70))
        assert not set(query[fold.steering]) & set(query[fold.held_out])
        assert len({one for one in query[fold.held_out] if one < 9}) == 3


def test_grades_of_a_fold_do_not_steer_what_measures_it(world: Any) -> None:
    experts = ExpertSet.of(world.gold, read_features(world.features), ranks=True, parameter="expert")
    score, gradients = np.random.default_rng(0).normal(size=len(experts.data.grade)), []
    held_out = _two_folds(experts).held_out
    for grade in (experts.data.grade, 4 - experts.data.grade):
        data = replace(experts.data, grade=experts.data.grade.copy())
        data.grade[held_out] = grade[held_out]
        fold = _two_folds(replace(experts, data=data))
        gradients.append(fold.objective.gradient(score[fold.steering]))
    assert np.array_equal(gradients[0], gradients[1])


def _two_folds(experts: ExpertSet) -> ExpertFold:
    rows, _ = split_experts(experts, None, ObjectiveSpec("DCG@10"), n_folds=2, random_state=0, used_queries=())
    return rows.folds[0]


@pytest.mark.parametrize("cls", REMAPPERS)
def test_few_experts_that_say_nothing_leave_the_consensus(cls: Any) -> None:
    """Grades of eight queries in random order rarely move the functions, and then by a few steps."""
    world = crowdrank.simulate(queries=80, documents=10, label_grades=2, gold_queries=8, random_state=5)
    known, steps = label_features(world.judgments, kind="mgbdt"), []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        shuffled = world.gold.assign(grade=world.gold.groupby("query")["grade"].transform(rng.permutation))
        depth = {"depth": 2} if cls is BoostedRemapper else {}
        remapper = cls(ridge=0.1, learning_rate=0.03, patience=5, **depth).fit(known, world.features, shuffled)
        steps.append(remapper.best_iteration_)
        start = known.expected if remapper.best_iteration_ == 0 else remapper.targets_
        assert np.allclose(remapper.targets_, start)
    assert np.mean(np.array(steps) == 0) >= 0.5


def test_a_gain_must_exceed_standard_errors(world: Any, labels: LabelFeatures) -> None:
    gain = np.array([0.3, -0.1, 0.2, 0.0])
    assert gain_bound(gain, 1.0) == pytest.approx(gain.mean() - gain.std(ddof=1) / 2)
    assert gain_bound(np.array([0.5])) < 0
    settings: Few = {"ridge": 0.1, "learning_rate": 0.1, "n_iter": 30}
    always, never, usual = (
        LinearRemapper("T", **settings, **more).fit(labels, world.features, world.gold)
        for more in ({"standard_errors": 0.0}, {"standard_errors": 100.0}, Few())
    )
    best = max(always.history_, key=lambda step: step["validation"])
    assert always.best_iteration_ == best["iteration"] > 0
    assert never.best_iteration_ == 0
    assert np.allclose(never.targets_, labels.expected)
    best = max(usual.history_, key=lambda step: step["validation"])
    assert usual.best_iteration_ == (best["iteration"] if best["lower_bound"] > 0 else 0)


def test_the_learned_functions_are_the_mean_over_folds(labels: LabelFeatures) -> None:
    inputs = StandardizedInputs(Standardizer.fit(labels.matrix, np.ones(len(labels))), labels.matrix)
    rng = np.random.default_rng(0)
    alpha, beta = rng.normal(size=(2, 3, inputs.n_coefficients))
    parts = [LinearCoefficients(inputs.standard, *one, True) for one in zip(alpha, beta, strict=True)]
    mean = LinearCoefficients.mean(parts)
    assert np.allclose(mean.alpha, alpha.mean(axis=0))
    assert np.allclose(mean.beta, beta.mean(axis=0))
    learned = []
    for number in range(3):
        trees = GrowingTrees(binned_dataset(labels.matrix, 16), 2, 5)
        for _ in range(number):  # one of them has no tree
            trees.add(rng.normal(size=len(labels)), 0.1)
        learned.append(LearnedTrees((trees.snapshot(),), (TreeSum(None, 0),)))
    found = LearnedTrees.mean(learned)
    target, weight = found.apply(labels.matrix, labels.start)
    each = [one.apply(labels.matrix, labels.start)[0] for one in learned]
    assert np.allclose(target, np.mean(each, axis=0))
    assert (weight == 0.5).all()
    assert found.importances(len(labels.names))[0].sum() == pytest.approx(1)


# Leaks.


def test_grades_of_validation_and_test_queries_reach_no_feature_and_no_gradient(world: Any) -> None:
    """Changing them changes neither the features nor a single step."""
    gold = world.gold
    queries = gold["query"].unique()
    training, held_out = gold[gold["query"].isin(queries[:20])], gold[gold["query"].isin(queries[20:])]
    changed = held_out.assign(grade=4 - held_out["grade"])
    found = []
    for validation in (held_out, changed):
        remapper = BoostedRemapper(**few_trees, kind="all")
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
    with pytest.raises(InputError) as caught:
        LinearRemapper(**few).fit(labels, world.features, training, eval_set=held_out)
    assert caught.value.kind == "validation-leak"
    assert "5 validation queries" in caught.value.problem
    seen = label_features(world.judgments, kind="mgbdt", gold=gold.assign(grade=(gold["grade"] > 1).astype(int)))
    with pytest.raises(InputError) as caught:
        LinearRemapper(**few).fit(seen, world.features, gold)
    assert caught.value.kind == "validation-leak"
    assert "label features" in caught.value.problem


def test_experts_come_in_several_forms(world: Any, labels: LabelFeatures) -> None:
    features = read_features(world.features)
    rows = Instances.from_labels(world.gold, features, missing="skip")
    label_table = [world.gold, rows, (rows.features, rows.y, rows.features.query), crowdrank.read_gold(world.gold)]
    found = [LinearRemapper(**few).fit(labels, features, expert).targets_ for expert in label_table]
    for other in found[1:]:
        assert np.allclose(other, found[0])


# Bad input.


def test_experts_documents_without_features_are_left_out_and_said(world: Any, labels: LabelFeatures) -> None:
    more = pd.concat([world.gold, pd.DataFrame({"query": ["1"], "document": ["unheard-of"], "grade": [4]})])
    with pytest.warns(CrowdrankWarning, match="1 document with a label but without features"):
        remapper = LinearRemapper(**few).fit(labels, world.features, more)
    assert np.allclose(remapper.targets_, LinearRemapper(**few).fit(labels, world.features, world.gold).targets_)
    with pytest.raises(InputError, match="no labeled document has features"):
        LinearRemapper(**few).fit(labels, world.features, more.iloc[-1:])


def test_judged_documents_without_features_are_left_out_and_said(world: Any, labels: LabelFeatures) -> None:
    lost = world.features[world.features["query"] != "55"]
    with pytest.warns(DataWarning, match="judged documents without features are skipped"):
        remapper = LinearRemapper(**few).fit(labels, lost, world.gold)
    assert "55" not in set(remapper.remapped_.frame["query"])
    with pytest.raises(InputError) as caught:
        LinearRemapper(**few).fit(labels, lost.assign(query="elsewhere"), world.gold)
    assert caught.value.kind == "no-features"


@pytest.mark.parametrize("cls", REMAPPERS)
def test_one_assessor_works(cls: Any, world: Any) -> None:
    first = world.judgments.groupby("document").head(1).assign(assessor="ann")
    remapper = cls(**settings_of(cls)).fit(first, world.features, world.gold)
    assert np.isfinite(remapper.targets_).all()


@pytest.mark.parametrize("cls", REMAPPERS)
def test_equal_labels_are_said_or_work(cls: Any, world: Any) -> None:
    same = world.judgments.assign(grade=1).drop(columns="honeypot")
    with pytest.raises(InputError) as caught:
        cls("W", **settings_of(cls)).fit(same, world.features, world.gold)
    assert caught.value.kind == "equal-labels"
    assert caught.value.fix is not None
    assert (caught.value.fix.parameter, caught.value.fix.value) == ("mode", "T")
    remapper = cls("T", **settings_of(cls)).fit(label_features(same, kind="all"), world.features, world.gold)
    assert np.isfinite(remapper.targets_).all()
    bare = LabelFeatures.of(read_judgments(same), {"label": np.ones(len(same))})
    with pytest.raises(InputError) as caught:
        cls("T", **settings_of(cls)).fit(bare, world.features, world.gold)
    assert caught.value.kind == "constant-label-features"


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"mode": "TW"}, "mode"),
        ({"ridge": 0}, "ridge"),
        ({"ridge": ()}, "ridge"),
        ({"n_iter": -1}, "n_iter"),
        ({"learning_rate": (0.1, 0)}, "learning_rate"),
        ({"objective": "P@3"}, "objective"),
        ({"objective": 3}, "objective"),
        ({"measure": "rank"}, "measure"),
        ({"measure": "softrank", "objective": "AP"}, "measure"),
        ({"tree_features": -1}, "tree_features"),
        ({"tree_features": "some"}, "tree_features"),
        ({"kind": "some"}, "kind"),
        ({"depth": 9}, "depth"),
        ({"start": "end"}, "start"),
        ({"mode": "W", "start": "zero"}, "start"),
        ({"folds": 1}, "folds"),
        ({"standard_errors": -1}, "standard_errors"),
    ],
)
def test_invalid_parameters_are_refused(
    settings: dict[str, Any], parameter: str, world: Any, labels: LabelFeatures
) -> None:
    with pytest.raises(UsageError) as caught:
        BoostedRemapper(**settings).fit(labels, world.features, world.gold)
    assert caught.value.parameter == parameter


def test_too_few_experts_are_said(world: Any, labels: LabelFeatures) -> None:
    one = world.gold[world.gold["query"] == world.gold["query"].iloc[0]]
    with pytest.raises(InputError) as caught:
        LinearRemapper(**few).fit(labels, world.features, one)
    assert caught.value.kind == "too-few-expert-queries"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "eval_set"
    with pytest.raises(UsageError) as refused:
        LinearRemapper(**few).fit(labels, world.features, (np.eye(3), [1, 2, 3]))
    assert refused.value.parameter == "expert"
    flat = world.gold.assign(grade=1)
    with pytest.raises(InputError) as caught:
        LinearRemapper(**few).fit(labels, world.features, flat)
    assert caught.value.kind == "equal-expert-grades"


def test_unfitted_ones_say_so() -> None:
    with pytest.raises(NotFittedError, match="LinearRemapper is not fitted"):
        LinearRemapper().predict(np.eye(2))
    assert repr(BoostedRemapper("T", depth=2)) == "BoostedRemapper(mode='T', depth=2)"


# What it says of itself.


def test_dependence_and_importances(fitted: dict[str, Remapper], labels: LabelFeatures) -> None:
    remapper = fitted["BoostedRemapper W+T"]
    label_table = remapper.importances_
    assert set(label_table["feature"]) == set(labels.names)
    sums = label_table[["target", "weight"]].sum()
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
            remapper = cls(**settings_of(cls), kind="all").fit(judgments, features, world.gold)
        assert np.isfinite(remapper.targets_).all()
        assert np.isfinite(remapper.predict(features.drop(columns=["query", "document"]))).all()
        assert remapper.dependence("duration")["labels"].sum() == len(remapper.targets_)


@pytest.mark.parametrize("mode", ["T", "W+T"])
def test_targets_may_start_from_nothing(mode: str, world: Any, labels: LabelFeatures) -> None:
    """As in MGBDT: all scores are equal at first, and which document of equal ones stands first is chance."""
    remapper = BoostedRemapper(mode, start="zero", ridge=0.1, learning_rate=0.02, depth=3, n_iter=20).fit(
        labels, world.features, world.gold
    )
    assert remapper.best_iteration_ > 0
    assert remapper.validation_ > 1.2 * remapper.history_[0]["validation"]
    assert np.ptp(remapper.targets_) > 0


def test_the_order_of_rows_breaks_no_ties(world: Any, labels: LabelFeatures, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file sorted by grade must not tell which of equal scores stands first."""
    rows = Instances.from_labels(world.gold, world.features, missing="skip")
    order = np.lexsort((-rows.y, rows.lists))
    expert = (rows.features.matrix[order], rows.y[order], rows.lists[order])
    made: list[RankingData] = []
    build_objective = ObjectiveSpec.build_objective

    def record(spec: ObjectiveSpec, data: RankingData) -> Any:
        made.append(data)
        return build_objective(spec, data)

    monkeypatch.setattr(ObjectiveSpec, "build_objective", record)
    LinearRemapper(**{**few, "n_iter": 0}).fit(labels, world.features, expert)
    known = {(*row, grade) for row, grade in zip(expert[0].tolist(), expert[1], strict=True)}
    for lists in made:
        assert np.mean(np.diff(lists.grade)[np.diff(lists.query) == 0] <= 0) < 0.9
        assert {(*row, grade) for row, grade in zip(lists.features.tolist(), lists.grade, strict=True)} <= known
