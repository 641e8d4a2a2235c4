"""LambdaRank with a network: what is peculiar to it; the contract is tested elsewhere."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from crowdrank import LambdaRankNet
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.ranking_data import gather
from crowdrank.simulation.world import simulate

Set = tuple[Floats, Floats, Any]


def world(seed: int = 0, queries: int = 40) -> Set:
    made = simulate(queries=queries, documents=10, random_state=seed)
    X = made.features.drop(columns=["query", "document"]).to_numpy()
    return X, made.gold["grade"].to_numpy(dtype=float), made.gold["query"].to_numpy()


def test_without_pytorch_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"learns with PyTorch; install it with: pip install 'crowdrank\[neural\]'"):
        LambdaRankNet().fit([[1.0], [2.0]], [0, 1], query=[1, 1])


def test_forces_of_some_queries_are_those_of_all() -> None:
    lists = gather(*world(queries=8))
    score = np.random.default_rng(0).normal(size=len(lists.y))
    objective = LambdaObjective(lists)
    some = np.array([5, 0, 3])
    rows = np.concatenate([np.arange(lists.offsets[q], lists.offsets[q + 1]) for q in some])
    assert np.array_equal(objective.of_queries(some, score[rows]), objective(score)[0][rows])


class TestWithTorch:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="PyTorch is not installed (crowdrank[neural])")

    def test_it_keeps_the_best_epoch(self) -> None:
        X, y, query = world()
        held_out = world(seed=9)
        ranker = LambdaRankNet(epochs=60, patience=5).fit(X, y, query=query, eval_set=held_out)
        assert ranker.best_iteration_ == int(np.argmax(ranker.history_)) + 1
        assert len(ranker.history_) <= min(ranker.best_iteration_ + 5, 60)
        again = LambdaRankNet(epochs=ranker.best_iteration_).fit(X, y, query=query)
        assert np.array_equal(again.predict(X), ranker.predict(X))

    def test_its_own_forward_is_pytorchs(self, torch: Any) -> None:
        X, y, query = world()
        ranker = LambdaRankNet((5, 4), epochs=2).fit(X, y, query=query)
        layers: list[Any] = []
        for weight, bias in ranker.layers_:
            linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
            linear.weight.data, linear.bias.data = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias)
            layers += [linear, torch.nn.ReLU()]
        inputs = torch.from_numpy(ranker.standard_(X)).requires_grad_()
        scores = torch.nn.Sequential(*layers[:-1])(inputs)[:, 0]
        assert np.allclose(scores.detach().numpy(), ranker.predict(X))
        scores.sum().backward()
        slopes = inputs.grad.abs().mean(axis=0).numpy()
        assert np.allclose(ranker.importances_, slopes / slopes.sum())

    def test_it_leaves_global_state_alone(self, torch: Any) -> None:
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
    def test_settings_that_mean_nothing(self, settings: dict[str, Any], said: str) -> None:
        with pytest.raises(UsageError, match=said):
            LambdaRankNet(**settings).fit([[1.0], [2.0]], [0, 1], query=[1, 1])

    def test_labels_that_do_not_differ(self) -> None:
        with pytest.raises(InputError, match="no query has two documents of different labels"):
            LambdaRankNet().fit([[1.0], [2.0]], [1, 1], query=[1, 1])
