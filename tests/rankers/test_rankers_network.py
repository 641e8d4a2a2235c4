"""LambdaRank with a network, besides the contract of rankers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from crowdrank import LambdaRankNet
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.simulation.world import simulate

Set = tuple[Floats, Floats, Any]


def world(seed: int = 0, queries: int = 40) -> Set:
    made = simulate(queries=queries, documents=10, random_state=seed)
    X = made.features.drop(columns=["query", "document"]).to_numpy()
    return X, made.gold["grade"].to_numpy(dtype=float), made.gold["query"].to_numpy()


def test_missing_pytorch_is_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError) as caught:
        LambdaRankNet().fit([[1.0], [2.0]], [0, 1], query=[1, 1])
    assert caught.value.kind == "no-torch"


def test_gradients_of_some_queries_equal_those_of_all() -> None:
    data = RankingData.from_ids(*world(queries=8))
    score = np.random.default_rng(0).normal(size=len(data.grade))
    objective = LambdaObjective(data)
    some = np.array([5, 0, 3])
    rows = np.concatenate([np.arange(data.offsets[q], data.offsets[q + 1]) for q in some])
    assert np.array_equal(objective.gradient_of(some, score[rows]), objective(score)[0][rows])


class TestWithTorch:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="PyTorch is not installed (crowdrank[neural])")

    def test_the_best_epoch_is_kept(self) -> None:
        X, y, query = world()
        held_out = world(seed=9)
        ranker = LambdaRankNet(epochs=60, patience=5).fit(X, y, query=query, eval_set=held_out)
        assert ranker.best_iteration_ == int(np.argmax(ranker.history_)) + 1
        assert len(ranker.history_) <= min(ranker.best_iteration_ + 5, 60)
        again = LambdaRankNet(epochs=ranker.best_iteration_).fit(X, y, query=query)
        assert np.array_equal(again.predict(X), ranker.predict(X))

    def test_prediction_equals_that_of_pytorch(self, torch: Any) -> None:
        X, y, query = world()
        ranker = LambdaRankNet((5, 4), epochs=2).fit(X, y, query=query)
        layers: list[Any] = []
        for weight, bias in ranker.layers_:
            linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
            linear.weight.data, linear.bias.data = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias)
            layers += [linear, torch.nn.ReLU()]
        inputs = torch.from_numpy(ranker.standardizer_(X)).requires_grad_()
        scores = torch.nn.Sequential(*layers[:-1])(inputs)[:, 0]
        assert np.allclose(scores.detach().numpy(), ranker.predict(X))
        scores.sum().backward()
        slopes = inputs.grad.abs().mean(axis=0).numpy()
        assert np.allclose(ranker.feature_importances_, slopes / slopes.sum())

    def test_global_state_of_pytorch_is_restored(self, torch: Any) -> None:
        X, y, query = world(queries=5)
        before, threads = torch.random.get_rng_state(), torch.get_num_threads()
        LambdaRankNet(epochs=2, n_jobs=1).fit(X, y, query=query)
        assert torch.equal(before, torch.random.get_rng_state())
        assert torch.get_num_threads() == threads

    def test_no_hidden_layer_is_linear(self) -> None:
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
    def test_invalid_parameters_are_refused(self, settings: dict[str, Any], said: str) -> None:
        with pytest.raises(UsageError, match=said):
            LambdaRankNet(**settings).fit([[1.0], [2.0]], [0, 1], query=[1, 1])

    def test_equal_labels_are_refused(self) -> None:
        with pytest.raises(InputError, match="no query has two documents of different labels"):
            LambdaRankNet().fit([[1.0], [2.0]], [1, 1], query=[1, 1])
