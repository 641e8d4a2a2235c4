"""LambdaRank with a network, besides the contract of rankers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from crowdrank import LambdaRankNet
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.network import _AdamW, _backward, _forward
from crowdrank.rankers.training_data import RankingData
from crowdrank.simulation.world import simulate
from experiments.documents import mq2008

Set = tuple[Floats, Floats, Any]


def world(seed: int = 0, queries: int = 40) -> Set:
    made = simulate(queries=queries, documents=10, random_state=seed)
    X = made.features.drop(columns=["query", "document"]).to_numpy()
    return X, made.gold["grade"].to_numpy(dtype=float), made.gold["query"].to_numpy()


def test_gradients_of_some_queries_equal_those_of_all() -> None:
    data = RankingData.from_ids(*world(queries=8))
    score = np.random.default_rng(0).normal(size=len(data.grade))
    objective = LambdaObjective(data)
    some = np.array([5, 0, 3])
    rows = np.concatenate([np.arange(data.offsets[q], data.offsets[q + 1]) for q in some])
    assert np.array_equal(objective.gradient_of(some, score[rows]), objective(score)[0][rows])


def random_layers(rng: np.random.Generator, *sizes: int) -> list[tuple[Floats, Floats]]:
    return [(rng.normal(size=(n_in, n_out)), rng.normal(size=n_out)) for n_in, n_out in pairwise(sizes)]


@pytest.mark.parametrize("hidden", [(), (4,), (5, 4), (3, 4, 2)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_backward_pass_equals_finite_differences(hidden: tuple[int, ...], dropout: float) -> None:
    rng = np.random.default_rng(7)
    layers, X, slope = random_layers(rng, 3, *hidden, 1), rng.normal(size=(6, 3)), rng.normal(size=6)

    def loss() -> float:
        return float(_forward(X, layers, dropout, np.random.default_rng(1))[-1][:, 0] @ slope)

    activations = _forward(X, layers, dropout, np.random.default_rng(1))
    gradients = _backward(activations, layers, slope, dropout)
    arrays = [array for layer in layers for array in layer]
    assert [one.shape for one in gradients] == [array.shape for array in arrays]
    for array, gradient in zip(arrays, gradients, strict=True):
        for place in np.ndindex(array.shape):
            before, differences = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = before + step
                differences.append(loss())
            array[place] = before
            assert gradient[place] == pytest.approx((differences[0] - differences[1]) / 2e-6, rel=1e-4, abs=1e-6)


def test_dropout_keeps_the_expected_activation() -> None:
    layers = [(np.eye(2), np.ones(2)), (np.ones((2, 1)), np.zeros(1))]
    hidden = _forward(np.zeros((20_000, 2)), layers, 0.25, np.random.default_rng(0))[1]
    assert np.allclose(np.unique(hidden), [0, 1 / 0.75])
    assert (hidden == 0).mean() == pytest.approx(0.25, abs=0.01)


def test_steps_of_adamw_equal_its_definition() -> None:
    rng = np.random.default_rng(3)
    start, gradients = rng.normal(size=4), rng.normal(size=(5, 4))
    array = start.copy()
    optimizer = _AdamW([array], 0.1, 0.02)
    for gradient in gradients:
        optimizer.step([gradient])
    expected, m, v = start.copy(), np.zeros(4), np.zeros(4)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        expected = expected - 0.1 * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.02 * expected)
    assert np.allclose(array, expected, rtol=1e-12)


def test_the_best_epoch_is_kept() -> None:
    X, y, query = world()
    held_out = world(seed=9)
    ranker = LambdaRankNet(epochs=60, patience=5).fit(X, y, query=query, eval_set=held_out)
    assert ranker.best_iteration_ == int(np.argmax(ranker.history_)) + 1
    assert len(ranker.history_) <= min(ranker.best_iteration_ + 5, 60)
    again = LambdaRankNet(epochs=ranker.best_iteration_).fit(X, y, query=query)
    assert np.array_equal(again.predict(X), ranker.predict(X))


def test_importances_are_mean_absolute_slopes_of_the_score() -> None:
    X, y, query = world()
    X = np.where(np.arange(X.shape[1]) == 1, 5.0, X)  # constant: no slope
    ranker = LambdaRankNet((5, 4), epochs=2).fit(X, y, query=query)
    sd = X.std(axis=0)
    slopes = np.zeros(X.shape[1])
    for feature in np.flatnonzero(sd):
        up, down = X.copy(), X.copy()
        up[:, feature] += 1e-6 * sd[feature]
        down[:, feature] -= 1e-6 * sd[feature]
        slopes[feature] = np.abs(ranker.predict(up) - ranker.predict(down)).mean()
    assert np.allclose(ranker.feature_importances_, slopes / slopes.sum(), rtol=1e-3, atol=1e-6)


def test_training_raises_ndcg_of_unseen_queries() -> None:
    X, y, query = world(queries=80)
    unseen = world(seed=9)
    few, many = (LambdaRankNet(epochs=epochs).fit(X, y, query=query) for epochs in (1, 20))
    ideal = LambdaRankNet.score
    assert ideal(many, *unseen[:2], query=unseen[2]) > ideal(few, *unseen[:2], query=unseen[2]) + 0.01


@pytest.mark.data
def test_ndcg_on_mq2008_is_that_of_other_rankers() -> None:
    features, part = mq2008()
    assert features.grade is not None
    X, y, query = features.matrix, features.grade, np.asarray(features.query.to_pylist())
    train, held_out, test = np.isin(part, (0, 1, 2)), part == 3, part == 4
    ranker = LambdaRankNet().fit(
        X[train], y[train], query=query[train], eval_set=(X[held_out], y[held_out], query[held_out])
    )
    assert ranker.score(X[test], y[test], query=query[test]) > 0.67  # trees: .69, least squares: .70, random order: .46


def test_no_hidden_layer_is_linear() -> None:
    X, y, query = world()
    ranker = LambdaRankNet((), epochs=5).fit(X, y, query=query)
    middle = ranker.predict((X[:1] + X[1:2]) / 2)
    assert middle == pytest.approx(ranker.predict(X[:2]).mean())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden": (0,)}, "hidden must be a sequence of values, each a whole number of at least 1"),
        ({"hidden": 64}, r"hidden must be a sequence of values"),
        ({"dropout": 1.0}, "dropout must be a number of at least 0 and below 1"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"learning_rate": -1}, "learning_rate must be a number above 0"),
    ],
)
def test_invalid_parameters_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        LambdaRankNet(**settings).fit([[1.0], [2.0]], [0, 1], query=[1, 1])


def test_equal_labels_are_refused() -> None:
    with pytest.raises(InputError, match="no query has two documents of different labels"):
        LambdaRankNet().fit([[1.0], [2.0]], [1, 1], query=[1, 1])
