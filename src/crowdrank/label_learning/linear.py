"""Linear functions from label features to targets and weights (REMAP's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdrank._saved import require_floats
from crowdrank._typing import Floats
from crowdrank.engine.base import Engine
from crowdrank.label_learning import kernels
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.objectives import Loss
from crowdrank.label_learning.optimizer import LinearSteps, blocks, chance
from crowdrank.label_learning.remapper import Functions, Learned, Remapper
from crowdrank.rankers.base import normalized
from crowdrank.rankers.standardize import Standardizer

FARTHEST = 20.0
"""Label features further than so many standard deviations from their mean count as so many.

What is true of one label in 400 lies 20 of them out: it must not be cut. Cut at 5, as it once was, the coefficient of
what is true of one label in 125 moved at a fifth of its pace, and steps ended before it was where it belongs.
"""


class LinearRemapper(Remapper):
    """Targets sigma(beta . y) and weights sigma(alpha . y) of label features y (REMAP's Algorithm 1).

    Targets start as sigma(label), weights at 1/2. Features are standardized, with an intercept; a step goes
    `learning_rate` far along the gradient of each vector of coefficients.

    Args:
        mode: learn weights (`W`, from targets that are the labels), targets (`T`), or both (`W+T`).
        objective: what to raise on the experts' queries: `DCG@10`, `nDCG@5`, `ERR`, `AP`, by their LambdaRank
            gradients; `squared` or `logistic`, minus the loss of scores against grades scaled from 0 to 1; or a
            function (scores, grades) -> (losses, slopes), (n,) each.
        gains: of the experts' grades.
        ridge: of the least squares, as a part of what a standardized feature weighs at the start; several are tried,
            each with all its steps.
        n_iter, learning_rate: how many steps at most, and how long they are.
        patience: stop after so many steps in which the validation measure did not rise.
        validation: the share of expert queries set aside for it where no `eval_set` is given.
        kind: of label features, where judgments are given.
        random_state: of what is set aside, and of the order of equal scores.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, label_grades=2, gold_queries=20, random_state=1)
    >>> remapper = LinearRemapper("T", n_iter=5).fit(world.judgments, world.features, world.gold)
    >>> remapper.remapped_.frame.columns.tolist()
    ['query', 'document', 'assessor', 'grade', 'target', 'weight']
    >>> bool((remapper.weights_ == 0.5).all())
    True
    """

    learned_: LinearLearnt

    def __init__(
        self,
        mode: str = "W+T",
        *,
        objective: str | Loss = "DCG@10",
        gains: str | Sequence[float] = "exponential",
        ridge: float | Sequence[float] = (0.01, 0.1, 1.0),
        n_iter: int = 200,
        learning_rate: float = 0.03,
        patience: int = 30,
        validation: float = 0.3,
        kind: str = "remap",
        random_state: int = 0,
    ) -> None:
        self.mode = mode
        self.objective = objective
        self.gains = gains
        self.ridge = ridge
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation = validation
        self.kind = kind
        self.random_state = random_state

    def _prepare(self, labels: LabelFeatures) -> tuple[Standardizer, Inputs]:
        standard = Standardizer.fit(labels.matrix, np.ones(len(labels)))
        return standard, Inputs(standard, labels.matrix)

    def _begin(self, labels: LabelFeatures, prepared: tuple[Standardizer, Inputs]) -> LinearFunctions:
        label = labels.names.index("label") if "label" in labels.names else None
        return LinearFunctions(*prepared, labels.start, label, self.mode)

    def _on_engine(
        self, functions: LinearFunctions, prepared: Any, labels: LabelFeatures, X: Floats, engine: Engine
    ) -> LinearSteps:
        cut = blocks(labels.judgments.offsets, {"X": X}, {"Y": prepared[1].dense, "start": labels.start})
        return LinearSteps(functions, cut, engine)

    def _restore(self, arrays: dict[str, Any]) -> LinearLearnt:
        n = len(self.feature_names_in_)
        require_floats(arrays, ["alpha", "beta"], (n + 1,))
        standard = Standardizer.from_arrays(arrays, n)
        return LinearLearnt(standard, arrays["alpha"], arrays["beta"], "T" in self.mode)


class Inputs:
    """Standardized label features, none too far out, and a column of ones, to be multiplied with from both sides.

    A feature that is told for each grade apart is 0 for labels of all others, and most features are. Only what is not
    0 is kept, as its distance from what a 0 is when standardized; both products cost as much as is kept.

    >>> matrix = np.array([[1.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> known = Inputs(Standardizer.fit(matrix, np.ones(3)), matrix)
    >>> len(known.value), known.dense[:, 2].tolist()
    (3, [1.0, 1.0, 1.0])
    >>> bool(np.allclose(known.sums(np.arange(3.0), np.ones(3))[0], known.dense @ np.arange(3)))
    True
    """

    def __init__(self, standard: Standardizer, matrix: Floats) -> None:
        # matrix (n, k); offsets (n + 1,); column, value: of what is not 0, row by row; base (k,)
        matrix = np.ascontiguousarray(matrix)
        self.base = np.clip(standard(np.zeros((1, matrix.shape[1])))[0], -FARTHEST, FARTHEST)
        self.offsets = np.append(0, np.cumsum(np.count_nonzero(matrix, axis=1)))
        self.column, self.value = np.empty(self.offsets[-1], np.int32), np.empty(self.offsets[-1])
        told = (standard.mean, standard.scale, FARTHEST, self.base)
        kernels.fill_sparse(matrix, *told, self.offsets, self.column, self.value)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def width(self) -> int:
        """The number of coefficients, the last of the ones."""
        return len(self.base) + 1

    @property
    def dense(self) -> Floats:
        """(n, width), written out."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        found = np.tile(np.append(self.base, 1.0), (len(self), 1))
        found[rows, self.column] += self.value
        return found

    def sums(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """The products with two vectors of coefficients (width,), in one reading."""
        found = (
            np.full(len(self), first[:-1] @ self.base + first[-1]),
            np.full(len(self), second[:-1] @ self.base + second[-1]),
        )
        kernels.add_sparse_sums(self.offsets, self.column, self.value, first, second, *found)
        return found

    def moments(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """The products from the left with two vectors of rows (n,), in one reading."""
        found = tuple(np.append(self.base, 1.0) * part.sum() for part in (first, second))
        kernels.add_sparse_moments(self.offsets, self.column, self.value, first, second, *found)
        return found[0], found[1]


class LinearFunctions(Functions):
    """Coefficients of label features while they are being learned.

    Args:
        standard: of the label features.
        Y: what is known of the labels.
        start: (n_labels,) the targets where they are not learned.
        label: the place of the label among the features: targets start as sigma of it, or at 1/2 where it is none.
        mode: what is learned.

    """

    def __init__(self, standard: Standardizer, Y: Inputs, start: Floats, label: int | None, mode: str) -> None:
        self.standard, self.Y, self.mode = standard, Y, mode
        self.alpha, self.beta = np.zeros(Y.width), np.zeros(Y.width)
        if label is not None:
            # On standardized features these are a 1 for the label as it is, and nothing for the others.
            self.beta[label], self.beta[-1] = standard.scale[label], standard.mean[label]
        target, self.weight = self._chances()
        self.target = target if "T" in mode else start

    def _chances(self) -> tuple[Floats, Floats]:
        target, weight = self.Y.sums(self.beta, self.alpha)
        return chance(target), chance(weight)

    def gradient(self, of_target: Floats, of_weight: Floats | None) -> tuple[Floats | None, Floats | None]:
        """dM/dbeta and dM/dalpha from dM/dt and dM/dw of every label; None of what is not learned."""
        nothing = np.zeros(len(self.Y))
        beta, alpha = self.Y.moments(
            of_target * self.target * (1 - self.target) if "T" in self.mode else nothing,
            nothing if of_weight is None else of_weight * self.weight * (1 - self.weight),
        )
        return (beta if "T" in self.mode else None), (None if of_weight is None else alpha)

    def step(self, of_target: Floats, of_weight: Floats | None, rate: float) -> None:
        """Go `rate` far along each gradient."""
        self.move(*self.gradient(of_target, of_weight), rate)

    def move(self, beta: Floats | None, alpha: Floats | None, rate: float) -> None:
        """Go `rate` far along dM/dbeta and dM/dalpha."""
        if beta is not None:
            self.beta = self.beta + rate * _direction(beta)
        if alpha is not None:
            self.alpha = self.alpha + rate * _direction(alpha)
        target, weight = self._chances()
        if beta is not None:
            self.target = target
        if alpha is not None:  # else the same array: least squares knows by it that nothing has changed
            self.weight = weight

    def kept(self) -> tuple[Floats, Floats]:
        """The coefficients."""
        return self.alpha, self.beta

    def learned(self, kept: tuple[Floats, Floats]) -> LinearLearnt:
        """The functions of these coefficients."""
        return LinearLearnt(self.standard, *kept, "T" in self.mode)


@dataclass(frozen=True)
class LinearLearnt(Learned):
    """Coefficients of standardized label features, the intercept last."""

    standard: Standardizer
    alpha: Floats
    beta: Floats
    learns_target: bool

    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Sigma of the linear functions."""
        target, weight = np.full(len(matrix), self.beta[-1]), np.full(len(matrix), self.alpha[-1])
        told = (self.standard.mean, self.standard.scale, FARTHEST, self.beta, self.alpha)
        kernels.add_standard_sums(np.ascontiguousarray(matrix), *told, target, weight)
        return (chance(target) if self.learns_target else start), chance(weight)

    def importances(self) -> tuple[Floats, Floats]:
        """The sizes of coefficients of standardized features."""
        target = np.abs(self.beta[:-1]) if self.learns_target else np.zeros(len(self.beta) - 1)
        return normalized(target), normalized(np.abs(self.alpha[:-1]))

    def arrays(self) -> dict[str, Any]:
        """All there is."""
        return {
            "mean": self.standard.mean,
            "scale": self.standard.scale,
            "alpha": self.alpha,
            "beta": self.beta,
        }


def _direction(gradient: Floats) -> Floats:
    length = float(np.linalg.norm(gradient))
    return gradient / length if length > 0 else gradient
