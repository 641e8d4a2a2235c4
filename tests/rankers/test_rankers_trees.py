"""LambdaMART beside LightGBM, early stopping, ensembles, and trees as features (REMAP's Proposition 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GLS, Ensemble, LambdaMART, LocalEngine, TreeFeatures, read_features
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.ensemble import best_weights, standardized
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.linear import Normal
from crowdrank.rankers.ranking_data import gather
from crowdrank.rankers.tree_features import cross_fitted, tree_outputs
from crowdrank.rankers.validation import Validation
from crowdrank.simulation.world import simulate

Set = tuple[Floats, Floats, Any]


def world(seed: int = 0, queries: int = 60, **more: Any) -> Set:
    made = simulate(queries=queries, documents=12, random_state=seed, **more)
    X = made.features.drop(columns=["query", "document"]).to_numpy()
    return X, made.gold["grade"].to_numpy(dtype=float), made.gold["query"].to_numpy()


def ndcg(score: Floats, known: Set, measure: str = "nDCG@10") -> float:
    return Validation(gather(*known), measure)(score)


def test_whole_grades_and_no_weights_give_lightgbms_trees() -> None:
    X, y, query = world()
    ours = LambdaMART(n_estimators=5, n_jobs=1).fit(X, y, query=query)
    _, sizes = np.unique(gather(X, y, query).query, return_counts=True)
    settings = {"objective": "lambdarank", "verbosity": -1, "deterministic": True, "force_col_wise": True}
    theirs = lgb.train(settings, lgb.Dataset(X, y, group=sizes), 5)
    # Rounding may turn a split that is as good as another; nearly all scores are the same.
    assert np.mean(np.abs(ours.predict(X) - theirs.predict(X)) < 1e-3) > 0.95


def test_mq2008_is_ranked_as_well_as_by_lightgbm(data_folder: Path) -> None:
    parts = [read_features(data_folder / "mq2008" / f"S{part}.txt.gz", format="letor") for part in range(1, 6)]

    def rows(chosen: list[int]) -> Set:
        X = np.vstack([parts[p].matrix for p in chosen])
        grades: list[Any] = [parts[p].grade for p in chosen]
        return (
            X,
            np.concatenate(grades),
            np.concatenate([parts[p].query.to_numpy(zero_copy_only=False) for p in chosen]),
        )

    means = []
    for fold in range(2):
        train, test = rows([(fold + k) % 5 for k in range(3)]), rows([(fold + 4) % 5])
        ours = LambdaMART(n_estimators=60, num_leaves=15).fit(train[0], train[1], query=train[2])
        settings = {"objective": "lambdarank", "num_leaves": 15, "verbosity": -1, "deterministic": True}
        sizes = np.diff(gather(*train).offsets)
        theirs = lgb.train(settings, lgb.Dataset(train[0], train[1], group=sizes), 60)
        means.append([ndcg(ours.predict(test[0]), test), ndcg(np.asarray(theirs.predict(test[0])), test)])
    ours_mean, theirs_mean = np.mean(means, axis=0)
    assert ours_mean > 0.6
    assert abs(ours_mean - theirs_mean) < 0.01


def test_early_stopping_keeps_the_best_round() -> None:
    X, y, query = world(queries=30)
    held_out = world(seed=9, queries=30)
    ranker = LambdaMART(n_estimators=300, patience=10).fit(X, y, query=query, eval_set=held_out)
    assert ranker.best_iteration_ == int(np.argmax(ranker.history_)) + 1
    assert len(ranker.history_) == ranker.best_iteration_ + 10 < 300
    assert ndcg(ranker.predict(held_out[0]), held_out) == pytest.approx(max(ranker.history_))


@pytest.mark.parametrize("measure", ["nDCG@5", "DCG", "ERR", "AP(rel=2)", None])
def test_every_measure_trains(measure: str | None) -> None:
    known = world()
    ranker = LambdaMART(measure, n_estimators=20).fit(known[0], known[1], query=known[2])
    assert ndcg(ranker.predict(known[0]), known) > ndcg(np.zeros(len(known[1])), known) + 0.2


@pytest.mark.parametrize("pair_weights", ["product", "left", "post"])
def test_weights_tell_whom_to_trust(pair_weights: str) -> None:
    X, y, query = world(queries=80)
    rng = np.random.default_rng(0)
    wrong = rng.random(len(y)) < 0.5
    noisy = np.where(wrong, rng.integers(0, 5, len(y)), y)
    test = world(seed=3)
    scores = {}
    for name, weight in (("blind", None), ("weighted", np.where(wrong, 0.02, 1.0))):
        ranker = LambdaMART(pair_weights=pair_weights, n_estimators=30).fit(X, noisy, query=query, sample_weight=weight)
        scores[name] = ndcg(ranker.predict(test[0]), test)
    assert scores["weighted"] > scores["blind"]


def test_expected_gains_and_soft_targets_beat_a_drawn_label() -> None:
    X, y, query = world(queries=80)
    rng = np.random.default_rng(1)
    # What is known of a document is a distribution around its grade.
    shares = np.exp(-0.5 * (np.arange(5) - y[:, None] - rng.normal(0, 0.7, (len(y), 1))) ** 2)
    shares /= shares.sum(axis=1, keepdims=True)
    drawn = (shares.cumsum(axis=1) > rng.random((len(y), 1))).argmax(axis=1)
    test = world(seed=3)
    few = LambdaMART(n_estimators=30)
    by_label = few.fit(X, drawn, query=query).predict(test[0])
    by_gain = few.fit(X, shares, query=query).predict(test[0])
    by_chance = few.fit(X, shares, query=query, pair_targets="posterior").predict(test[0])
    assert min(ndcg(by_gain, test), ndcg(by_chance, test)) > ndcg(by_label, test)


@pytest.mark.parametrize(
    ("y", "query", "said"),
    [
        ([0, 1, 2], [1, 2, 3], "no query has two documents of different labels"),
        ([1, 1, 1], [1, 1, 1], "no query has two documents of different labels"),
        ([0, 1, -1], [1, 1, 1], r"the label -1 is below 0; train on grades from 0 up, or on the probabilities"),
        ([0, 1, 31], [1, 1, 1], "the label 31 is above 30, the last that has a gain"),
    ],
)
def test_labels_that_no_tree_learns_from(y: list[int], query: list[int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        LambdaMART().fit([[1.0], [2.0], [3.0]], y, query=query)


def test_without_a_measure_relevance_may_lie_on_any_line() -> None:
    X, y, query = world(queries=20)
    one, other = (LambdaMART(None, n_estimators=5).fit(X, labels, query=query).predict(X) for labels in (y, y / 2 - 1))
    assert np.array_equal(one, other)


def test_labels_outside_a_table_of_gains() -> None:
    with pytest.raises(InputError, match="the label 3 is above 2, the last that has a gain"):
        LambdaMART(gains=(0, 1, 3)).fit([[1.0], [2.0]], [0, 3], query=[1, 1])
    with pytest.raises(InputError, match=r"ERR takes 4 for the highest grade.*write ERR\(max_grade=5\)"):
        LambdaMART("ERR").fit([[1.0], [2.0]], [0, 5], query=[1, 1])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"measure": "Tau"}, "measure is one of nDCG, DCG, ERR, AP .* not Tau"),
        ({"measure": "nDGC"}, "there is no measure 'nDGC'"),
        ({"pair_weights": "right"}, "pair_weights must be one of product, left, post, not 'right'"),
        ({"sigmoid": 0}, "sigmoid must be a number above 0, not 0"),
        ({"truncation": 0}, "truncation must be a whole number of at least 1"),
        ({"n_estimators": 0}, "n_estimators must be a whole number of at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0, not nan"),
        ({"gains": "square"}, "gains must be linear, exponential"),
        ({"lightgbm": {"max_bin": -3}, "min_child_samples": 1}, "LightGBM refused: "),
        ({"lightgbm": 3}, "lightgbm must be a mapping"),
        ({"n_jobs": 0}, "n_jobs must be a whole number of at least 1"),
    ],
)
def test_settings_that_mean_nothing(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        LambdaMART(**settings).fit([[1.0], [2.0]], [0, 1], query=[1, 1])


def test_a_lone_document_gets_no_force_and_gives_none() -> None:
    X, y, query = world(queries=5)
    lone = np.concatenate([X[:1], X]), np.append(3.0, y), np.append("lone", query)
    score = np.random.default_rng(0).normal(size=len(y) + 1)
    slope, curve = LambdaObjective(gather(*lone))(score)
    assert slope[0] == curve[0] == 0
    assert np.array_equal(slope[1:], LambdaObjective(gather(X, y, query))(score[1:])[0])
    ranker = LambdaMART(n_estimators=3).fit(lone[0], lone[1], query=lone[2])
    assert np.isfinite(ranker.predict(lone[0])).all()


def test_threads_change_nothing() -> None:
    X, y, query = world()
    one, two = (LambdaMART(n_estimators=10, n_jobs=n).fit(X, y, query=query).predict(X) for n in (1, 2))
    assert np.array_equal(one, two)


# Ensembles.


def test_scores_are_standardized_within_the_query() -> None:
    query = np.array([0, 1, 0, 1, 2, 0])
    score = np.array([1.0, 5.0, 2.0, 9.0, 4.0, 6.0])
    found = standardized(score, query)
    for q in (0, 1):
        assert found[query == q].mean() == pytest.approx(0)
        assert found[query == q].std() == pytest.approx(1)
    assert found[4] == 0


def test_weights_are_found_on_the_simplex() -> None:
    X, y, query = world(queries=20)
    validation = Validation(gather(X, y, query))
    rng = np.random.default_rng(0)
    codes = validation.query
    votes = np.stack(
        [standardized(vote, codes) for vote in (y + rng.normal(0, 0.5, len(y)), rng.normal(size=len(y)), -y)]
    )
    weights, best = best_weights(votes, validation, 20)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert weights[0] > 0.8
    assert weights[2] == 0
    grid = [np.array([a, b, 20 - a - b]) / 20 for a in range(21) for b in range(21 - a)]
    assert best >= max(validation(w @ votes) for w in grid) - 0.01


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    X, y, query = world()
    pair = Ensemble([LambdaMART(n_estimators=10), GLS()]).fit(X, y, query=query)
    codes = gather(X, y, query).query
    by_hand = [standardized(m.fit(X, y, query=query).predict(X), codes) for m in (LambdaMART(n_estimators=10), GLS())]
    assert np.allclose(pair.predict(X, query), np.mean(by_hand, axis=0))
    with pytest.raises(UsageError, match=r"standardizes scores within each query: give predict\(X, query=...\)"):
        pair.predict(X)


def test_members_that_are_fitted_already_are_only_weighed() -> None:
    X, y, query = world()
    known = world(seed=5, queries=20)
    good = LambdaMART(n_estimators=20).fit(X, y, query=query)
    bad = GLS().fit(X, -y, query=query)
    pair = Ensemble([good, bad], prefit=True).fit(known[0], known[1], query=known[2])
    assert pair.members_ == [good, bad]
    assert pair.weights_[0] > 0.8
    assert pair.history_[0] >= ndcg(good.predict(known[0]), known) - 1e-12
    with pytest.raises(UsageError, match="members must be fitted rankers"):
        Ensemble(prefit=True).fit(X, y, query=query)
    with pytest.raises(UsageError, match="members must be a sequence of values, each a ranker"):
        Ensemble([]).fit(X, y, query=query)


# Trees as features.


def test_the_outputs_of_trees_sum_to_the_score() -> None:
    X, y, query = world()
    ranker = LambdaMART(n_estimators=12).fit(X, y, query=query)
    assert np.allclose(tree_outputs(ranker, X).sum(axis=1), ranker.predict(X))


@settings(max_examples=8)
@given(seed=st.integers(0, 1000))
def test_proposition_1_training_error_is_never_worse(seed: int) -> None:
    X, y, query = world(seed, queries=12)
    weight = np.random.default_rng(seed).uniform(0.1, 2, len(y))
    forest = LambdaMART(n_estimators=15, num_leaves=5, min_child_samples=5)
    extended = TreeFeatures(forest, GLS(mu=0), folds=0).fit(X, y, query=query, sample_weight=weight)
    plain = GLS(mu=0).fit(X, y, query=query, sample_weight=weight)

    def error(score: Floats) -> float:
        return float((weight * (score - y) ** 2).sum())

    trees = extended.trees_.predict(X)
    normal = Normal.over(trees[:, None], y, weight, LocalEngine())
    coef, intercept = normal(0.0)
    # The best linear function of the forest's score is at least as good as the score itself.
    by_trees = normal.standard(trees[:, None]) @ coef + intercept
    assert error(extended.predict(X)) <= min(error(plain.predict(X)), error(by_trees), error(trees)) + 1e-6


def test_cross_fitted_outputs_come_from_trees_that_did_not_see_the_query() -> None:
    """Labels that are noise: in-sample outputs explain them, cross-fitted ones do not."""
    X, y, query = world(queries=40)
    noise = np.random.default_rng(0).permutation(y)
    forest = LambdaMART(n_estimators=30, num_leaves=15, min_child_samples=3)
    fits = {}
    for folds in (0, 4):
        ranker = TreeFeatures(forest, GLS(mu=1), folds=folds).fit(X, noise, query=query)
        fits[folds] = np.corrcoef(ranker.predict(X), noise)[0, 1]
        trees = ranker.ranker_.importances_[X.shape[1] :].sum()
        assert 0 < trees < 1
    outputs = cross_fitted(forest, gather(X, noise, query), 30, folds=4, random_state=0)
    in_sample = tree_outputs(forest.unfitted().fit(X, noise, query=query), X)
    assert np.corrcoef(in_sample.sum(axis=1), noise)[0, 1] > 0.5
    assert abs(np.corrcoef(outputs.sum(axis=1), noise)[0, 1]) < 0.2


def test_trees_as_features_refuse_what_is_none() -> None:
    X, y, query = world(queries=3)
    for ranker, said in (
        (TreeFeatures(folds=1), "folds must be 0 or a whole number of at least 2"),
        (TreeFeatures(GLS()), "trees must be a ranker of boosted trees or None, not GLS"),  # type: ignore[arg-type]
        (TreeFeatures(ranker="gls"), "ranker must be a ranker or None, not 'gls'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match=said):
            ranker.fit(X, y, query=query)
    with pytest.raises(InputError, match=r"fewer queries \(3\) than folds \(5\)"):
        TreeFeatures().fit(X, y, query=query)


def test_trees_as_features_can_be_loaded_and_fitted_again(tmp_path: Path) -> None:
    X, y, query = world(queries=20)
    ranker = TreeFeatures(LambdaMART(n_estimators=5), folds=2).fit(X, y, query=query)
    ranker.save(tmp_path / "r")
    again = Ranker.load(tmp_path / "r").fit(X, y, query=query)
    assert np.array_equal(again.predict(X), ranker.predict(X))


def test_the_ridge_over_trees_is_chosen_by_validation() -> None:
    X, y, query = world(queries=30)
    ranker = TreeFeatures(LambdaMART(n_estimators=10), folds=2)
    assert ranker.fit(X, y, query=query).ranker_.get_params()["mu"] == 1000
    chosen = ranker.fit(X, y, query=query, eval_set=world(seed=4, queries=20)).ranker_
    assert isinstance(chosen, GLS)
    assert chosen.mu_ == chosen.get_params()["mu"][int(np.argmax(ranker.history_))]


def test_a_machine_without_openmp_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    plain = builtins.__import__

    def failing(name: str, *more: Any, **options: Any) -> Any:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")
        return plain(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(UsageError, match=r"LightGBM cannot be loaded \(libgomp.*install libgomp"):
        LambdaMART().fit([[1.0], [2.0]], [0, 1], query=[1, 1])
