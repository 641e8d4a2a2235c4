"""LambdaRank with a small feed-forward network, trained with PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from crowdrank._progress import Report
from crowdrank._saved import Fields, require, require_floats
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, Number, SequenceOf
from crowdrank.errors import UsageError
from crowdrank.evaluation.measures import Measure
from crowdrank.rankers.base import N_JOBS, Ranker, normalized
from crowdrank.rankers.lambdamart import LAMBDA_CONSTRAINTS, lambda_objective
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.standardize import Standardizer
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation

if TYPE_CHECKING:
    from crowdrank.engine.base import Engine


class LambdaRankNet(Ranker):
    """Feed-forward network on standardized features, trained with the gradients of `LambdaMART`.

    Training needs PyTorch (`pip install 'crowdrank[neural]'`), prediction does not. Missing values are replaced by the
    mean, with a warning.

    Args:
        hidden: sizes of the hidden layers.
        measure, gains, pair_weights, pair_targets, sigmoid, truncation, norm: as in `LambdaMART`.
        epochs: number of passes over all queries.
        batch: number of queries per step.
        learning_rate, weight_decay: parameters of AdamW.
        dropout: dropout rate of the hidden layers.
        validate_by: measure for early stopping on the validation queries.
        patience: number of epochs without improvement after which training stops.
        n_jobs: number of threads of PyTorch; by default PyTorch's own.
        random_state: random seed of the initial weights, the order of queries and dropout.

    Attributes:
        layers_: weights and biases of each layer.
        best_iteration_: epoch whose weights were kept.

    >>> LambdaRankNet((16,), epochs=5)
    LambdaRankNet(hidden=(16,), epochs=5)

    """

    handles_missing = False
    _parameter_constraints: ClassVar[Constraints] = {
        "hidden": [SequenceOf(Number(1, integer=True), empty=True)],
        **LAMBDA_CONSTRAINTS,
        "epochs": [Number(1, integer=True)],
        "batch": [Number(1, integer=True)],
        "patience": [Number(1, integer=True)],
        "learning_rate": [Number(0, above=True)],
        "weight_decay": [Number(0)],
        "dropout": [Number(0, 1, below=True)],
        **N_JOBS,
    }

    layers_: list[tuple[Floats, Floats]]
    standardizer_: Standardizer
    best_iteration_: int

    def __init__(
        self,
        hidden: Sequence[int] = (64, 32),
        *,
        measure: str | Measure | None = "nDCG",
        gains: str | Sequence[float] = "exponential",
        pair_weights: str = "product",
        pair_targets: str = "grade",
        sigmoid: float = 1.0,
        truncation: int = 30,
        norm: bool = True,
        epochs: int = 60,
        batch: int = 16,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.1,
        validate_by: str = "nDCG@10",
        patience: int = 15,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.measure = measure
        self.gains = gains
        self.pair_weights = pair_weights
        self.pair_targets = pair_targets
        self.sigmoid = sigmoid
        self.truncation = truncation
        self.norm = norm
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.validate_by = validate_by
        self.patience = patience
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        torch = _import_torch()
        objective = lambda_objective(self, data, 1)
        self.standardizer_ = Standardizer.fit(data.features, data.weights)
        with _torch_threads(torch, self.n_jobs):
            self._train(torch, data, objective, validation, report)
        self.feature_importances_ = self._importances(data.features)

    def _train(
        self, torch: Any, data: RankingData, objective: LambdaObjective, validation: Validation | None, report: Report
    ) -> None:
        """Run AdamW with early stopping; set `layers_`, `best_iteration_` and `history_`."""
        rng = np.random.default_rng(self.random_state)
        generator = torch.Generator().manual_seed(self.random_state)
        inputs = torch.from_numpy(self.standardizer_(data.features).astype(np.float32))
        layers = [_initial_layer(torch, rng, *sizes) for sizes in _layer_sizes(data.features.shape[1], self.hidden)]
        parameters = [array for layer in layers for array in layer]
        optimizer = torch.optim.AdamW(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        n_queries, best = len(data.offsets) - 1, 0
        best_layers: list[tuple[Any, Any]] = []
        for epoch in range(self.epochs):
            order = rng.permutation(n_queries)
            for first in range(0, n_queries, self.batch):
                queries = order[first : first + self.batch]
                scores = _forward(torch, inputs[data.rows_of(queries)], layers, self.dropout, generator)
                gradient = objective.gradient_of(queries, scores.detach().numpy().astype(np.float64))
                optimizer.zero_grad()
                scores.backward(torch.from_numpy(gradient.astype(np.float32) / self.batch))
                optimizer.step()
            self.layers_ = [(weight.detach().numpy() * 1.0, bias.detach().numpy() * 1.0) for weight, bias in layers]
            if validation is not None:
                self.history_.append(validation(self._score(validation.data.features)))
            if validation is None or not epoch or self.history_[-1] > self.history_[best]:
                best, best_layers = epoch, self.layers_
            report(epoch + 1, self.epochs, self.history_[-1] if self.history_ else float("nan"))
            if validation is not None and epoch - best >= self.patience:
                break
        self.layers_ = [(weight.astype(np.float64), bias.astype(np.float64)) for weight, bias in best_layers]
        self.best_iteration_ = best + 1

    def _score(self, features: Floats, query: Any = None) -> Floats:
        return np.asarray(self._forward_pass(features)[-1][:, 0])

    def _forward_pass(self, features: Floats) -> list[Floats]:
        """Return the output of each layer; those of hidden layers before the activation."""
        outputs: list[Floats] = []
        inputs = self.standardizer_(features)
        for weight, bias in self.layers_:
            outputs.append(inputs @ weight + bias)
            inputs = np.maximum(outputs[-1], 0.0)
        return outputs

    def _importances(self, features: Floats) -> Floats:
        """Return the mean absolute derivative of the score in each standardized feature over the rows."""
        outputs, last = self._forward_pass(features), self.layers_[-1][0]
        derivative = np.broadcast_to(last[:, 0], (len(features), len(last)))
        for (weight, _), output in zip(self.layers_[-2::-1], outputs[-2::-1], strict=True):
            derivative = (derivative * (output > 0)) @ weight.T
        return normalized(np.abs(derivative).mean(axis=0) * (self.standardizer_.scale > 0))

    def _state(self) -> State:
        arrays = dict(self.standardizer_.arrays)
        for number, (weight, bias) in enumerate(self.layers_):
            arrays |= {f"weight-{number}": weight, f"bias-{number}": bias}
        return State({"layers": len(self.layers_), "best_iteration": self.best_iteration_}, arrays)

    def _restore(self, state: State) -> None:
        arrays, values = state.arrays, Fields(state.values)
        sizes = _layer_sizes(self.n_features_in_, self.hidden)
        require(values.integer("layers") == len(sizes), "the number of layers does not fit 'hidden'")
        for number, (n_in, n_out) in enumerate(sizes):
            require_floats(arrays, [f"weight-{number}"], (n_in, n_out))
            require_floats(arrays, [f"bias-{number}"], (n_out,))
        self.layers_ = [(arrays[f"weight-{n}"], arrays[f"bias-{n}"]) for n in range(len(sizes))]
        self.standardizer_ = Standardizer.from_arrays(arrays, self.n_features_in_)
        self.best_iteration_ = values.integer("best_iteration", 1)


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as problem:
        fix = "install it with: pip install 'crowdrank[neural]'"
        raise UsageError("LambdaRankNet needs PyTorch for training", kind="no-torch", fix=fix) from problem
    return torch


@contextmanager
def _torch_threads(torch: Any, n_jobs: int | None) -> Iterator[None]:
    """Set PyTorch's number of threads, which is global, and restore it."""
    before = torch.get_num_threads()
    if n_jobs is not None:
        torch.set_num_threads(n_jobs)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _layer_sizes(n_features: int, hidden: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([n_features, *map(int, hidden), 1]))


def _initial_layer(torch: Any, rng: np.random.Generator, n_in: int, n_out: int) -> tuple[Any, Any]:
    """Return random weights (He initialization) and zero biases."""
    weight = torch.from_numpy((rng.normal(size=(n_in, n_out)) * np.sqrt(2 / n_in)).astype(np.float32))
    return weight.requires_grad_(), torch.zeros(n_out, requires_grad=True)


def _forward(torch: Any, hidden: Any, layers: list[tuple[Any, Any]], dropout: float, generator: Any) -> Any:
    """Return the scores of standardized rows, with dropout."""
    for number, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight + bias
        if number + 1 < len(layers):
            hidden = torch.relu(hidden)
            if dropout > 0:
                mask = torch.rand(hidden.shape, generator=generator) >= dropout
                hidden = hidden * mask / (1 - dropout)
    return hidden[:, 0]
