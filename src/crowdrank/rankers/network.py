"""LambdaRank with a small network: the same forces, followed by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from crowdrank._progress import Report
from crowdrank._saved import Fields, require, require_floats
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Flag, Number, OneOf, Parsed, SequenceOf
from crowdrank.engine.base import Engine
from crowdrank.errors import UsageError
from crowdrank.evaluation.measures import Measure, parse_gains
from crowdrank.rankers.base import N_JOBS, Ranker, require_differences
from crowdrank.rankers.lambdamart import shares
from crowdrank.rankers.lambdas import WEIGHTINGS, LambdaObjective, check_measure
from crowdrank.rankers.linear import Standard
from crowdrank.rankers.ranking_data import Lists
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation


class LambdaRankNet(Ranker):
    """A feed-forward network over standardized features that follows the forces of `LambdaMART`.

    It learns with PyTorch (`pip install 'crowdrank[neural]'`); what it learned scores without. Blank features count as
    the mean, which is said once.

    Args:
        hidden: the sizes of the hidden layers.
        measure, gains, pair_weights, sigmoid, truncation, norm: as in `LambdaMART`.
        epochs: passes over all queries.
        batch: how many queries a step looks at.
        learning_rate, weight_decay, dropout: of Adam (AdamW), and of the hidden layers while learning.
        validate_by, patience: stop after so many epochs in which this measure of the validation queries did not rise.
        n_jobs: of PyTorch; as many as it takes by itself, unless said.
        random_state: of the first weights, the order of queries and dropout.

    Attributes:
        layers_: weights and biases of each layer.
        best_iteration_: the epoch whose weights were kept.

    >>> LambdaRankNet((16,), epochs=5)
    LambdaRankNet(hidden=(16,), epochs=5)
    """

    takes_blanks = False
    _parameter_constraints: ClassVar[Constraints] = {
        "hidden": [SequenceOf(Number(1, integer=True), empty=True)],
        "measure": [Parsed(check_measure)],
        "pair_weights": [OneOf(*WEIGHTINGS)],
        "sigmoid": [Number(0, above=True)],
        "norm": [Flag()],
        "truncation": [Number(1, integer=True)],
        "epochs": [Number(1, integer=True)],
        "batch": [Number(1, integer=True)],
        "patience": [Number(1, integer=True)],
        "learning_rate": [Number(0, above=True)],
        "weight_decay": [Number(0)],
        "dropout": [Number(0, 1, below=True)],
        **N_JOBS,
    }

    layers_: list[tuple[Floats, Floats]]
    standard_: Standard
    best_iteration_: int

    def __init__(
        self,
        hidden: Sequence[int] = (64, 32),
        *,
        measure: str | Measure | None = "nDCG",
        gains: str | Sequence[float] = "exponential",
        pair_weights: str = "product",
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

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        query: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any, Any] | None = None,
        progress: bool | Report = False,
        pair_targets: Any = None,
        engine: Engine | None = None,
    ) -> Self:
        """Learn to rank; arguments as in `LambdaMART.fit`."""
        return self._fit(X, y, query, sample_weight, eval_set, progress, engine, pair_targets=pair_targets)

    def _learn(
        self,
        lists: Lists,
        validation: Validation | None,
        report: Report,
        engine: Engine | None,
        pair_targets: Any = None,
    ) -> None:
        torch = _torch()
        objective = LambdaObjective(
            lists,
            measure=self.measure,
            gains=parse_gains(self.gains),
            weighting=self.pair_weights,
            pair_targets=pair_targets,
            sigmoid=self.sigmoid,
            truncation=self.truncation,
            norm=self.norm,
        )
        require_differences(objective.gain, lists)
        self.standard_ = Standard.of(lists.X, np.ones(len(lists.y)) if lists.weight is None else lists.weight)
        with _threads(torch, self.n_jobs):
            self._descend(torch, lists, objective, validation, report)
        self.importances_ = self._importances(lists)

    def _descend(
        self, torch: Any, lists: Lists, objective: LambdaObjective, validation: Validation | None, report: Report
    ) -> None:
        rng = np.random.default_rng(self.random_state)
        generator = torch.Generator().manual_seed(self.random_state)
        inputs = torch.from_numpy(self.standard_(lists.X).astype(np.float32))
        layers = [_layer(torch, rng, a, b) for a, b in _sizes(lists.X.shape[1], self.hidden)]
        flat = [part for layer in layers for part in layer]
        adam = torch.optim.AdamW(flat, lr=self.learning_rate, weight_decay=self.weight_decay)
        # The forces at all scores are one pass; a step follows those of its queries.
        n_queries, best = len(lists.offsets) - 1, 0
        kept: list[tuple[Any, Any]] = []
        for epoch in range(self.epochs):
            order = rng.permutation(n_queries)
            for first in range(0, n_queries, self.batch):
                rows = _rows(lists.offsets, order[first : first + self.batch])
                scores = _forward(torch, inputs[rows], layers, self.dropout, generator)
                found = scores.detach().numpy().astype(np.float64)
                force = objective.of_queries(order[first : first + self.batch], found)
                adam.zero_grad()
                scores.backward(torch.from_numpy(force.astype(np.float32) / self.batch))
                adam.step()
            self.layers_ = [(weight.detach().numpy() * 1.0, bias.detach().numpy() * 1.0) for weight, bias in layers]
            if validation is not None:
                self.history_.append(validation(self._score(validation.lists.X)))
            if validation is None or not epoch or self.history_[-1] > self.history_[best]:
                best, kept = epoch, self.layers_
            report(epoch + 1, self.epochs, self.history_[-1] if self.history_ else float("nan"))
            if validation is not None and epoch - best >= self.patience:
                break
        self.layers_ = [(weight.astype(np.float64), bias.astype(np.float64)) for weight, bias in kept]
        self.best_iteration_ = best + 1

    def _score(self, X: Floats, query: Any = None) -> Floats:
        hidden = self.standard_(X)
        for number, (weight, bias) in enumerate(self.layers_):
            hidden = hidden @ weight + bias
            if number + 1 < len(self.layers_):
                hidden = np.maximum(hidden, 0.0)
        return np.asarray(hidden[:, 0])

    def _importances(self, lists: Lists) -> Floats:
        """The mean size of the score's slope in each standardized feature, over the training rows."""
        hidden, gates = self.standard_(lists.X), []
        for weight, bias in self.layers_[:-1]:
            hidden = hidden @ weight + bias
            gates.append(hidden > 0)
            hidden = np.maximum(hidden, 0.0)
        back = np.broadcast_to(self.layers_[-1][0][:, 0], (len(lists.y), len(self.layers_[-1][0])))
        for (weight, _), gate in zip(self.layers_[-2::-1], gates[::-1], strict=True):
            back = (back * gate) @ weight.T
        return shares(np.abs(back).mean(axis=0) * (self.standard_.scale > 0))

    def _state(self) -> State:
        arrays = {f"weight-{n}": weight for n, (weight, _) in enumerate(self.layers_)}
        arrays |= {f"bias-{n}": bias for n, (_, bias) in enumerate(self.layers_)}
        arrays |= {"mean": self.standard_.mean, "scale": self.standard_.scale, "importances": self.importances_}
        return State({"layers": len(self.layers_), "best_iteration": self.best_iteration_}, arrays)

    def _restore(self, state: State) -> None:
        arrays, values = state.arrays, Fields(state.values)
        sizes = _sizes(self.n_features_in_, self.hidden)
        require(values.integer("layers") == len(sizes), "there are more or fewer layers than 'hidden' says")
        for number, (n_in, n_out) in enumerate(sizes):
            require_floats(arrays, [f"weight-{number}"], (n_in, n_out))
            require_floats(arrays, [f"bias-{number}"], (n_out,))
        self.layers_ = [(arrays[f"weight-{n}"], arrays[f"bias-{n}"]) for n in range(len(sizes))]
        self.standard_ = Standard.of_arrays(arrays, self.n_features_in_)
        self.best_iteration_ = values.integer("best_iteration", 1)


def _torch() -> Any:
    try:
        import torch
    except ImportError as problem:
        raise UsageError(
            "LambdaRankNet learns with PyTorch; install it with: pip install 'crowdrank[neural]'."
        ) from problem
    return torch


class _threads:  # noqa: N801 - reads as a word in `with _threads(...)`
    """PyTorch's number of threads is one for the whole process: set, then put back."""

    def __init__(self, torch: Any, n_jobs: int | None) -> None:
        self.torch, self.n_jobs, self.before = torch, n_jobs, torch.get_num_threads()

    def __enter__(self) -> None:
        if self.n_jobs is not None:
            self.torch.set_num_threads(self.n_jobs)

    def __exit__(self, *problem: Any) -> None:
        self.torch.set_num_threads(self.before)


def _sizes(n_features: int, hidden: Sequence[int]) -> list[tuple[int, int]]:
    sizes = [n_features, *map(int, hidden), 1]
    return list(pairwise(sizes))


def _layer(torch: Any, rng: np.random.Generator, n_in: int, n_out: int) -> tuple[Any, Any]:
    """Weights as He et al. draw them, from a generator of our own."""
    weight = torch.from_numpy((rng.normal(size=(n_in, n_out)) * np.sqrt(2 / n_in)).astype(np.float32))
    return weight.requires_grad_(), torch.zeros(n_out, requires_grad=True)


def _forward(torch: Any, hidden: Any, layers: list[tuple[Any, Any]], dropout: float, generator: Any) -> Any:
    for number, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight + bias
        if number + 1 < len(layers):
            hidden = torch.relu(hidden)
            if dropout > 0:
                kept = torch.rand(hidden.shape, generator=generator) >= dropout
                hidden = hidden * kept / (1 - dropout)
    return hidden[:, 0]


def _rows(offsets: Integers, queries: Integers) -> Integers:
    return np.concatenate([np.arange(offsets[query], offsets[query + 1]) for query in queries])
