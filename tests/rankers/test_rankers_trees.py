"""LambdaMART compared with LightGBM, early stopping, pointwise trees, importances and ensembles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from crowdrank import GLS, Ensemble, LambdaMART, PointwiseGBDT, read_features
from crowdrank._typing import Floats
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.rankers.ensemble import search_weights, standardize_within_query
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Ranker, divide_by_sum
from crowdrank.rankers.training_data import RankingData
from crowdrank.simulation.world import simulate

Set = tuple[Floats, Floats, Any]


def world(seed: int = 0, queries: int = 60, **more: Any) -> Set:
    made = simulate(queries=queries, documents=12, random_state=seed, **more)
    X = made.features.drop(columns=["query", "document"]).to_numpy()
    return X, made.gold["grade"].to_numpy(dtype=float), made.gold["query"].to_numpy()


def ndcg(score: Floats, known: Set, measure: str = "nDCG@10") -> float:
    return Validation(RankingData.from_ids(*known), measure)(score)


def test_unweighted_integer_grades_give_the_trees_of_lightgbm() -> None:
    X, y, query = world()
    ours = LambdaMART(n_estimators=5, n_jobs=1).fit(X, y, query=query)
    _, sizes = np.unique(RankingData.from_ids(X, y, query).query, return_counts=True)
    settings = {"objective": "lambdarank", "verbosity": -1, "deterministic": True, "force_col_wise": True}
    theirs = lgb.train(settings, lgb.Dataset(X, y, group=sizes), 5)
    # Rounding can decide between equally good splits, so a few scores may differ.
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
        sizes = np.diff(RankingData.from_ids(*train).offsets)
        theirs = lgb.train(settings, lgb.Dataset(train[0], train[1], group=sizes), 60)
        means.append([ndcg(ours.predict(test[0]), test), ndcg(np.asarray(theirs.predict(test[0])), test)])
    ours_mean, theirs_mean = np.mean(means, axis=0)
    assert ours_mean > 0.6
    assert abs(ours_mean - theirs_mean) < 0.01


def test_early_stopping_keeps_the_best_iteration() -> None:
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
def test_low_weights_reduce_the_effect_of_wrong_labels(pair_weights: str) -> None:
    X, y, query = world(queries=80)
    rng = np.random.default_rng(0)
    wrong = rng.random(len(y)) < 0.5
    noisy = np.where(wrong, rng.integers(0, 5, len(y)), y)
    test = world(seed=3)
    scores = {}
    for name, weight in (("unweighted", None), ("weighted", np.where(wrong, 0.02, 1.0))):
        ranker = LambdaMART(pair_weights=pair_weights, n_estimators=30).fit(X, noisy, query=query, sample_weight=weight)
        scores[name] = ndcg(ranker.predict(test[0]), test)
    assert scores["weighted"] > scores["unweighted"]


def test_expected_gains_and_soft_pair_targets_beat_a_random_label() -> None:
    X, y, query = world(queries=80)
    rng = np.random.default_rng(1)
    # The label of a document is a distribution around its noisy grade.
    shares = np.exp(-0.5 * (np.arange(5) - y[:, None] - rng.normal(0, 0.7, (len(y), 1))) ** 2)
    shares /= shares.sum(axis=1, keepdims=True)
    drawn = (shares.cumsum(axis=1) > rng.random((len(y), 1))).argmax(axis=1)
    test = world(seed=3)
    few = LambdaMART(n_estimators=30)
    by_label = few.fit(X, drawn, query=query).predict(test[0])
    by_gain = few.fit(X, shares, query=query).predict(test[0])
    soft = few.set_params(pair_targets="posterior").fit(X, shares, query=query).predict(test[0])
    assert min(ndcg(by_gain, test), ndcg(soft, test)) > ndcg(by_label, test)


@pytest.mark.parametrize(
    ("y", "query", "kind"),
    [
        ([0, 1, 2], [1, 2, 3], "no-differences"),
        ([1, 1, 1], [1, 1, 1], "no-differences"),
        ([0, 1, -1], [1, 1, 1], "no-gain"),
        ([0, 1, 31], [1, 1, 1], "no-gain"),
    ],
)
def test_unusable_labels_are_refused(y: list[int], query: list[int], kind: str) -> None:
    with pytest.raises(InputError) as caught:
        LambdaMART().fit([[1.0], [2.0], [3.0]], y, query=query)
    assert caught.value.kind == kind


def test_without_a_measure_labels_can_be_any_numbers() -> None:
    X, y, query = world(queries=20)
    one, other = (LambdaMART(None, n_estimators=5).fit(X, labels, query=query).predict(X) for labels in (y, y / 2 - 1))
    assert np.array_equal(one, other)


def test_labels_outside_a_table_of_gains() -> None:
    with pytest.raises(InputError, match="the label 3 is above 2, the highest grade that has a gain"):
        LambdaMART(gains=(0, 1, 3)).fit([[1.0], [2.0]], [0, 3], query=[1, 1])
    with pytest.raises(InputError) as caught:
        LambdaMART("ERR").fit([[1.0], [2.0]], [0, 5], query=[1, 1])
    assert caught.value.fix == Fix("set {}", "measure", "ERR(max_grade=5)")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"measure": "Tau"}, "measure must be one of nDCG, DCG, ERR, AP .* not Tau"),
        ({"measure": "nDGC"}, "there is no measure 'nDGC'"),
        ({"pair_weights": "right"}, "pair_weights must be one of product, left, post, not 'right'"),
        ({"pair_targets": "likely"}, "pair_targets must be one of grade, posterior, not 'likely'"),
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
def test_invalid_parameters_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        LambdaMART(**settings).fit([[1.0], [2.0]], [0, 1], query=[1, 1])


def test_a_query_with_one_document_has_no_gradient() -> None:
    X, y, query = world(queries=5)
    lone = np.concatenate([X[:1], X]), np.append(3.0, y), np.append("lone", query)
    score = np.random.default_rng(0).normal(size=len(y) + 1)
    gradient, hessian = LambdaObjective(RankingData.from_ids(*lone))(score)
    assert gradient[0] == hessian[0] == 0
    assert np.array_equal(gradient[1:], LambdaObjective(RankingData.from_ids(X, y, query))(score[1:])[0])
    ranker = LambdaMART(n_estimators=3).fit(lone[0], lone[1], query=lone[2])
    assert np.isfinite(ranker.predict(lone[0])).all()


def test_scores_do_not_depend_on_the_number_of_threads() -> None:
    X, y, query = world()
    one, two = (LambdaMART(n_estimators=10, n_jobs=n).fit(X, y, query=query).predict(X) for n in (1, 2))
    assert np.array_equal(one, two)


def test_soft_pair_targets_need_probabilities() -> None:
    X, y, query = world(queries=10)
    with pytest.raises(InputError) as caught:
        LambdaMART(pair_targets="posterior").fit(X, y, query=query)
    assert caught.value.kind == "no-posterior"


# Pointwise trees and importances.


def test_pointwise_trees_are_those_of_lightgbms_regression() -> None:
    X, y, query = world()
    weight = np.random.default_rng(0).uniform(0.1, 2, len(y))
    ours = PointwiseGBDT(n_estimators=20).fit(X, y, query=query, sample_weight=weight)
    settings = {"objective": "regression", "verbosity": -1, "deterministic": True, "force_col_wise": True}
    theirs = lgb.train(settings, lgb.Dataset(X, y, weight=weight), 20)
    assert np.allclose(ours.predict(X), theirs.predict(X))


def test_pointwise_trees_fit_expected_grades_and_gains() -> None:
    X, y, query = world()
    probabilities = np.full((len(y), 5), 0.05)
    probabilities[np.arange(len(y)), y.astype(int)] += 0.75
    few = PointwiseGBDT(n_estimators=10)
    soft = few.fit(X, probabilities, query=query).predict(X)
    assert np.array_equal(soft, few.fit(X, probabilities @ np.arange(5), query=query).predict(X))
    gains = few.set_params(target="gain").fit(X, y, query=query).predict(X)
    assert np.array_equal(gains, few.set_params(target="grade").fit(X, 2**y - 1, query=query).predict(X))


@pytest.mark.parametrize("settings", [{"linear_tree": True}, {"max_bin": 3}])
def test_parameters_of_lightgbms_data_are_used(settings: dict[str, Any]) -> None:
    X, _, query = world(queries=10)
    y = X[:, 0] - X[:, 1]
    ranker = PointwiseGBDT(n_estimators=3, lightgbm=settings).fit(X, y, query=query)
    parameters = {"objective": "regression", "num_leaves": 31, "deterministic": True, "verbosity": -1, **settings}
    theirs = lgb.train(parameters, lgb.Dataset(X, y), 3).predict(X)
    np.testing.assert_allclose(ranker.predict(X), np.asarray(theirs), rtol=1e-10)
    assert not np.allclose(ranker.predict(X), PointwiseGBDT(n_estimators=3).fit(X, y, query=query).predict(X))


def test_fitted_trees_do_not_keep_the_training_data() -> None:
    X, y, query = world(queries=10)
    assert not hasattr(LambdaMART(n_estimators=2).fit(X, y, query=query).booster_, "train_set")


def test_importances_are_normalized_in_each_tree() -> None:
    X, y, query = world()
    ranker = PointwiseGBDT(n_estimators=7).fit(X, y, query=query)
    table = ranker.booster_.trees_to_dataframe().dropna(subset=["split_feature"])
    per_tree = table.pivot_table("split_gain", "tree_index", "split_feature", "sum", fill_value=0.0)
    shares = per_tree.div(per_tree.sum(axis=1), axis=0).mean()
    expected = np.array([shares.get(name, 0.0) for name in ranker.features_])
    assert np.allclose(ranker.feature_importances_, expected, atol=1e-4)
    total = divide_by_sum(ranker.booster_.feature_importance("gain"))
    assert not np.allclose(total, expected, atol=1e-3)  # the first trees have the largest gains


def test_model_files_have_the_names_of_features(tmp_path: Path) -> None:
    X, y, query = world(queries=20)
    names = ["bm25", "title length", "title:length", "größe", *(f"x{n}" for n in range(X.shape[1] - 4))]
    frame = pd.DataFrame(X, columns=names)
    ranker = LambdaMART(n_estimators=3).fit(frame, y, query=query)
    ranker.save(tmp_path / "ranker")
    line = next(one for one in (tmp_path / "ranker" / "trees.txt").read_text().splitlines() if "feature_names" in one)
    assert line.startswith("feature_names=bm25 title_length title_length_3 größe x0 ")
    assert np.array_equal(Ranker.load(tmp_path / "ranker").predict(frame), ranker.predict(frame))


# Ensembles.


def test_scores_are_standardized_within_each_query() -> None:
    query = np.array([0, 1, 0, 1, 2, 0])
    score = np.array([1.0, 5.0, 2.0, 9.0, 4.0, 6.0])
    found = standardize_within_query(score, query)
    for q in (0, 1):
        assert found[query == q].mean() == pytest.approx(0)
        assert found[query == q].std() == pytest.approx(1)
    assert found[4] == 0


def test_search_weights_stays_on_the_simplex() -> None:
    X, y, query = world(queries=20)
    validation = Validation(RankingData.from_ids(X, y, query))
    rng = np.random.default_rng(0)
    codes = validation.query
    scores = np.stack(
        [standardize_within_query(one, codes) for one in (y + rng.normal(0, 0.5, len(y)), rng.normal(size=len(y)), -y)]
    )
    weights, best = search_weights(scores, validation, 20)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert weights[0] > 0.8
    assert weights[2] == 0
    grid = [np.array([a, b, 20 - a - b]) / 20 for a in range(21) for b in range(21 - a)]
    assert best >= max(validation(w @ scores) for w in grid) - 0.01


def test_an_ensemble_without_validation_is_the_mean_of_its_members() -> None:
    X, y, query = world()
    pair = Ensemble([LambdaMART(n_estimators=10), GLS()]).fit(X, y, query=query)
    codes = RankingData.from_ids(X, y, query).query
    by_hand = [
        standardize_within_query(m.fit(X, y, query=query).predict(X), codes)
        for m in (LambdaMART(n_estimators=10), GLS())
    ]
    assert np.allclose(pair.predict(X, query), np.mean(by_hand, axis=0))
    with pytest.raises(UsageError) as caught:
        pair.predict(X)
    assert caught.value.parameter == "query"


def test_prefit_members_are_not_fitted_again() -> None:
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


def test_missing_openmp_is_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    plain = builtins.__import__

    def failing(name: str, *more: Any, **options: Any) -> Any:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")
        return plain(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(UsageError) as caught:
        LambdaMART().fit([[1.0], [2.0]], [0, 1], query=[1, 1])
    assert caught.value.kind == "no-openmp"
