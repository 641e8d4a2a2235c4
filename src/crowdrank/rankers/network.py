"""LambdaRank with a small feed-forward network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from crowdrank._folders import Fields, require, require_floats
from crowdrank._progress import Report
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, Number, SequenceOf
from crowdrank.engine.passes import single_blas_thread
from crowdrank.evaluation.measures import Measure
from crowdrank.rankers.lambdamart import LAMBDA_CONSTRAINTS, lambda_objective
from crowdrank.rankers.lambdas import LambdaObjective
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Ranker, SavedState, divide_by_sum
from crowdrank.rankers.training_data import RankingData, Standardizer

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

Layers = list[tuple[Floats, Floats]]
"""Weights (n_in, n_out) and biases (n_out,) of each layer."""


class LambdaRankNet(Ranker):
    """Feed-forward network on standardized features, trained with the gradients of `LambdaMART`.

    Weights are learned with AdamW (Loshchilov and Hutter, ICLR 2019). Missing values are replaced by the mean, with a
    warning.

    Args:
        hidden: sizes of the hidden layers.
        measure, gains, pair_weights, pair_targets, sigmoid, truncation, norm: as in `LambdaMART`.
        epochs: number of passes over all queries.
        batch: number of queries per step.
        learning_rate, weight_decay: parameters of AdamW.
        dropout: dropout rate of the hidden layers.
        validate_by: measure for early stopping on the validation queries.
        patience: number of epochs without improvement after which training stops.
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
    }

    layers_: Layers
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
        self.random_state = random_state

    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        objective = lambda_objective(self, data, 1)
        self.standardizer_ = Standardizer.fit(data.features, data.weights)
        with single_blas_thread():
            self._train(data, objective, validation, report)
            self.feature_importances_ = self._importances(data.features)

    def _train(
        self, data: RankingData, objective: LambdaObjective, validation: Validation | None, report: Report
    ) -> None:
        """Run AdamW with early stopping; set `layers_`, `best_iteration_` and `history_`."""
        rng = np.random.default_rng(self.random_state)
        inputs = self.standardizer_(data.features)
        self.layers_ = [_initial_layer(rng, *sizes) for sizes in _layer_sizes(inputs.shape[1], self.hidden)]
        optimizer = _AdamW(list(chain(*self.layers_)), self.learning_rate, self.weight_decay)
        n_queries, best = len(data.offsets) - 1, 0
        best_layers: Layers = []
        for epoch in range(self.epochs):
            order = rng.permutation(n_queries)
            for first in range(0, n_queries, self.batch):
                queries = order[first : first + self.batch]
                activations = _forward(inputs[data.rows_of(queries)], self.layers_, self.dropout, rng)
                gradient = objective.gradient_of(queries, activations[-1][:, 0]) / self.batch
                optimizer.step(_backward(activations, self.layers_, gradient, self.dropout))
            if validation is not None:
                self.history_.append(validation(self._score(validation.data.features)))
            if validation is None or not epoch or self.history_[-1] > self.history_[best]:
                best, best_layers = epoch, [(weight.copy(), bias.copy()) for weight, bias in self.layers_]
            report(epoch + 1, self.epochs, self.history_[-1] if self.history_ else float("nan"))
            if validation is not None and epoch - best >= self.patience:
                break
        self.layers_, self.best_iteration_ = best_layers, best + 1

    def _score(self, features: Floats, query: Any = None) -> Floats:
        return np.asarray(_forward(self.standardizer_(features), self.layers_)[-1][:, 0])

    def _importances(self, features: Floats) -> Floats:
        """Return the mean absolute derivative of the score in each standardized feature over the rows."""
        activations = _forward(self.standardizer_(features), self.layers_)
        derivative = np.ones((len(features), 1))
        for (weight, _), inputs in zip(self.layers_[:0:-1], activations[-2:0:-1], strict=True):
            derivative = (derivative @ weight.T) * (inputs > 0)
        derivative = derivative @ self.layers_[0][0].T
        return divide_by_sum(np.abs(derivative).mean(axis=0) * (self.standardizer_.scale > 0))

    def _state(self) -> SavedState:
        arrays = dict(self.standardizer_.arrays)
        for number, (weight, bias) in enumerate(self.layers_):
            arrays |= {f"weight-{number}": weight, f"bias-{number}": bias}
        return SavedState({"layers": len(self.layers_), "best_iteration": self.best_iteration_}, arrays)

    def _restore(self, state: SavedState) -> None:
        arrays, values = state.arrays, Fields(state.values)
        sizes = _layer_sizes(self.n_features_in_, self.hidden)
        require(values.integer("layers") == len(sizes), "the number of layers does not fit 'hidden'")
        for number, (n_in, n_out) in enumerate(sizes):
            require_floats(arrays, [f"weight-{number}"], (n_in, n_out))
            require_floats(arrays, [f"bias-{number}"], (n_out,))
        self.layers_ = [(arrays[f"weight-{n}"], arrays[f"bias-{n}"]) for n in range(len(sizes))]
        self.standardizer_ = Standardizer.from_arrays(arrays, self.n_features_in_)
        self.best_iteration_ = values.integer("best_iteration", 1)


def _layer_sizes(n_features: int, hidden: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([n_features, *map(int, hidden), 1]))


def _initial_layer(rng: np.random.Generator, n_in: int, n_out: int) -> tuple[Floats, Floats]:
    """Return random weights (He initialization) and zero biases."""
    return rng.normal(size=(n_in, n_out)) * np.sqrt(2 / n_in), np.zeros(n_out)


def _forward(
    inputs: Floats, layers: Layers, dropout: float = 0.0, rng: np.random.Generator | None = None
) -> list[Floats]:
    """Return the inputs of each layer and the scores (n, 1); hidden layers have rectifiers and, with `rng`, dropout."""
    activations = [inputs]
    for number, (weight, bias) in enumerate(layers):
        outputs = activations[-1] @ weight + bias
        if number + 1 < len(layers):
            np.maximum(outputs, 0.0, out=outputs)
            if rng is not None and dropout > 0:
                outputs *= (rng.random(outputs.shape) >= dropout) / (1 - dropout)
        activations.append(outputs)
    return activations


def _backward(activations: Sequence[Floats], layers: Layers, gradient: Floats, dropout: float) -> list[Floats]:
    """Return the gradients of weights and biases, in the order of the layers, for the gradient (n,) in the scores.

    A unit passes the gradient on if its activation is above 0: neither rectifier nor dropout has set it to 0.
    """
    found: list[Floats] = []
    slope = gradient[:, None]
    for number in range(len(layers) - 1, -1, -1):
        inputs = activations[number]
        found = [inputs.T @ slope, slope.sum(axis=0), *found]
        if number > 0:
            slope = (slope @ layers[number][0].T) * (inputs > 0) / (1 - dropout)
    return found


class _AdamW:
    """AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2); changes the arrays in place."""

    DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, arrays: Sequence[Floats], learning_rate: float, weight_decay: float) -> None:
        self.arrays, self.learning_rate, self.weight_decay = arrays, learning_rate, weight_decay
        self.means, self.squares = ([np.zeros_like(array) for array in arrays] for _ in range(2))
        self.n_steps = 0

    def step(self, gradients: Sequence[Floats]) -> None:
        """Change the arrays by one step, given the gradient of each."""
        self.n_steps += 1
        bias, square_bias = 1 - self.DECAY**self.n_steps, 1 - self.SQUARE_DECAY**self.n_steps
        for array, gradient, mean, square in zip(self.arrays, gradients, self.means, self.squares, strict=True):
            mean += (1 - self.DECAY) * (gradient - mean)
            square += (1 - self.SQUARE_DECAY) * (gradient**2 - square)
            array *= 1 - self.learning_rate * self.weight_decay
            array -= self.learning_rate * (mean / bias) / (np.sqrt(square / square_bias) + self.EPSILON)
