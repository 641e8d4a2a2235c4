"""Linear functions from label features to targets and weights (REMAP Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.special import expit, logit

from crowdrank._folders import require_floats
from crowdrank._typing import Floats
from crowdrank.label_learning.gradient_ascent import LabelFunctions, LearnedFunctions, Settings, sigmoid
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.remapper import Remapper
from crowdrank.rankers.ranker import SavedState, divide_by_sum
from crowdrank.rankers.training_data import Standardizer

MAX_DEVIATION = 20.0
"""Maximum distance of a label feature from its mean, in standard deviations.

A feature that is 1 for one label in 400 and 0 otherwise lies 20 out; a smaller limit would slow its coefficient down.
"""
TARGET_LOW = 0.5
"""Sigmoid of the lowest label (0), REMAP's target of this label before the first step."""
TARGET_SPAN = float(expit(1.0)) - 0.5
"""Sigmoid of the highest label (1) minus that of the lowest."""


class LinearRemapper(Remapper):
    """Targets and weights that are sigmoids of linear functions of label features (REMAP Algorithm 1).

    Weights are sigma(alpha . y) and start at 1/2. Targets are sigma(offset + beta . y), rescaled so that with beta = 0
    they equal `start`; `label` is REMAP's start for labels of two grades. Label features y are standardized, with an
    intercept; a step has length `learning_rate` along the gradient of each coefficient vector.

    REMAP: Ustinovskiy, Fedorova, Gusev, Serdyukov 2016: An Optimization Framework for Remapping and Reweighting Noisy
    Relevance Labels (SIGIR).

    Args:
        mode: what to learn: weights (`W`, for targets that are the labels), targets (`T`), or both (`W+T`).
        objective: what to maximize on the expert queries: a ranking measure (`DCG@10`, `nDCG@5`, `ERR`, `AP`); the
            negative loss `squared` or `logistic` of scores against grades scaled to [0, 1]; or a loss function
            (scores, grades) -> (losses, derivatives), (n,) each.
        measure: smooth surrogate of a ranking measure that gives the gradient: `lambdarank`, or `softrank` (DCG and
            nDCG only).
        gains: gain of each expert grade.
        ridge: ridge of the least squares, relative to the sum of weights at the start. A sequence is tuned on the
            validation queries, together with `learning_rate`; see :mod:`crowdrank.label_learning.gradient_ascent`.
        n_iter: maximum number of steps.
        learning_rate: length of a step, or several to tune.
        patience: number of steps without a higher measure on the held-out queries after which to stop.
        folds: number of folds of the expert queries, if `fit` gets no `eval_set`: each is ranked by what the others
            steer.
        standard_errors: number of standard errors over the held-out queries that the gain over the start must exceed,
            or the functions stay as they start; 0 takes the best step, as in the papers.
        tree_features: number of trees whose outputs extend the features of documents (REMAP 5.2), or `auto`: 0, 100,
            200 or 300, whichever ranks the expert queries best before learning, by trees and least squares without the
            labels of these queries. The trees are those of a regression on the average labels.
        kind: kind of label features, if `fit` gets judgments.
        start: targets before the first step: the `label` (from 0 to 1; the default if only weights are learned), the
            expected grade under Dawid-Skene (`consensus`; the default otherwise), or 0 (`zero`; not for mode `W`).
        n_jobs: number of threads for the trees among the features.
        random_state: seed of the folds and of the order of tied scores.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, label_grades=2, gold_queries=20, random_state=1)
    >>> remapper = LinearRemapper("T", n_iter=5, tree_features=0).fit(world.judgments, world.features, world.gold)
    >>> remapper.remapped_.frame.columns.tolist()
    ['query', 'document', 'assessor', 'grade', 'target', 'weight']
    >>> bool((remapper.weights_ == 0.5).all())
    True
    """

    learned_: LinearCoefficients

    def _prepare(self, labels: LabelFeatures) -> StandardizedInputs:
        return StandardizedInputs(Standardizer.fit(labels.matrix, np.ones(len(labels))), labels.matrix)

    def _initial_functions(
        self, labels: LabelFeatures, inputs: StandardizedInputs, weight: Floats, settings: Settings
    ) -> LinearFunctions:
        return LinearFunctions(inputs, self._start(labels), weight, self.mode)

    def _restore(self, state: SavedState) -> LinearCoefficients:
        n = len(self.feature_names_in_)
        require_floats(state.arrays, ["alpha", "beta"], (n + 1,))
        standard = Standardizer.from_arrays(state.arrays, n)
        return LinearCoefficients(standard, state.arrays["alpha"], state.arrays["beta"], "T" in self.mode)


class StandardizedInputs:
    """Standardized label features and a column of ones, stored as sparse deviations from a standardized 0.

    A feature that exists once per grade is 0 for labels of all other grades, so most values are 0.

    >>> matrix = np.array([[1.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> inputs = StandardizedInputs(Standardizer.fit(matrix, np.ones(3)), matrix)
    >>> inputs.deviations.nnz, inputs.products(np.array([[0.0], [0.0], [7.0]])).ravel().tolist()
    (3, [7.0, 7.0, 7.0])
    """

    def __init__(self, standard: Standardizer, matrix: Floats) -> None:
        self.standard = standard
        self.deviations = sparse.csr_matrix(matrix)
        value, column = self.deviations.data, self.deviations.indices
        with np.errstate(divide="ignore", invalid="ignore"):
            value = (value - standard.mean[column]) / standard.scale[column]
        value = np.where(np.isnan(value) | (standard.scale[column] == 0), 0.0, value)
        self.base = np.clip(standard(np.zeros((1, matrix.shape[1])))[0], -MAX_DEVIATION, MAX_DEVIATION)
        self.deviations.data = np.clip(value, -MAX_DEVIATION, MAX_DEVIATION) - self.base[column]

    def __len__(self) -> int:
        return int(self.deviations.shape[0])

    @property
    def n_coefficients(self) -> int:
        """Number of coefficients: one per feature and the intercept."""
        return len(self.base) + 1

    def products(self, coefficients: Floats) -> Floats:
        """Return the product with coefficient vectors, (n_coefficients, m) -> (n, m)."""
        return np.asarray(self.deviations @ coefficients[:-1] + (self.base @ coefficients[:-1] + coefficients[-1]))

    def transposed_products(self, values: Floats) -> Floats:
        """Return the product of the transpose with vectors of rows, (n, m) -> (n_coefficients, m)."""
        sums = values.sum(axis=0)
        return np.vstack([self.deviations.T @ values + np.outer(self.base, sums), sums])


class LinearFunctions(LabelFunctions):
    """Coefficients of label features while they are learned.

    Args:
        inputs: standardized label features.
        start: (n_labels,) labels from 0 to 1.
        weight: (n_labels,) weights at the start.
        mode: what is learned.

    """

    def __init__(self, inputs: StandardizedInputs, start: Floats, weight: Floats, mode: str) -> None:
        self.inputs, self.mode = inputs, mode
        self.alpha, self.beta = np.zeros(inputs.n_coefficients), np.zeros(inputs.n_coefficients)
        self.offset, self.target, self.weight = target_offset(start), start, weight

    def gradient(self, target_gradient: Floats, weight_gradient: Floats | None) -> tuple[Floats, Floats]:
        """Return dM/dbeta and dM/dalpha from dM/dt and dM/dw of every label; zeros for what is not learned."""
        probability = TARGET_LOW + TARGET_SPAN * self.target
        slopes = np.zeros((len(self.inputs), 2))
        if "T" in self.mode:
            slopes[:, 0] = target_gradient * probability * (1 - probability) / TARGET_SPAN
        if weight_gradient is not None:
            slopes[:, 1] = weight_gradient * self.weight * (1 - self.weight)
        beta, alpha = self.inputs.transposed_products(slopes).T
        return beta, alpha

    def step(self, target_gradient: Floats, weight_gradient: Floats | None, learning_rate: float) -> None:
        """Move both coefficient vectors by `learning_rate` along their gradients."""
        beta, alpha = self.gradient(target_gradient, weight_gradient)
        self.beta = self.beta + learning_rate * _unit_vector(beta)
        self.alpha = self.alpha + learning_rate * _unit_vector(alpha)
        raw = self.inputs.products(np.column_stack([self.beta, self.alpha]))
        if "T" in self.mode:
            self.target = rescaled_target(self.offset + raw[:, 0])
        if "W" in self.mode:  # otherwise the array stays the same, and least squares is not factored again
            self.weight = sigmoid(raw[:, 1])

    def snapshot(self) -> LinearCoefficients:
        """Return the functions as they are now."""
        return LinearCoefficients(self.inputs.standard, self.alpha, self.beta, "T" in self.mode)


@dataclass(frozen=True)
class LinearCoefficients(LearnedFunctions):
    """Coefficients of standardized label features, the intercept last."""

    standard: Standardizer
    alpha: Floats
    beta: Floats
    learns_target: bool

    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Return targets and weights."""
        raw = StandardizedInputs(self.standard, matrix).products(np.column_stack([self.beta, self.alpha]))
        target = rescaled_target(target_offset(start) + raw[:, 0]) if self.learns_target else start
        return target, sigmoid(raw[:, 1])

    @classmethod
    def mean(cls, functions: Sequence[LinearCoefficients]) -> LinearCoefficients:
        """Return the mean coefficients of functions of the same label features."""
        alpha, beta = (np.mean([getattr(one, name) for one in functions], axis=0) for name in ("alpha", "beta"))
        return replace(functions[0], alpha=alpha, beta=beta)

    def importances(self, n_features: int) -> tuple[Floats, Floats]:
        """Return the absolute coefficients of standardized features, each vector normalized to sum 1."""
        return divide_by_sum(np.abs(self.beta[:-1])), divide_by_sum(np.abs(self.alpha[:-1]))

    def state(self) -> SavedState:
        """Return the coefficients and the standardization."""
        arrays = {**self.standard.arrays, "alpha": self.alpha, "beta": self.beta}
        return SavedState(arrays=arrays)


def target_offset(label: Floats) -> Floats:
    """Return the argument of the sigmoid at which the target equals the label (from 0 to 1).

    >>> target_offset(np.array([0.0, 0.5, 1.0])).round(3).tolist()
    [0.0, 0.471, 1.0]
    """
    return np.asarray(logit(TARGET_LOW + TARGET_SPAN * label))


def rescaled_target(argument: Floats) -> Floats:
    """Return the sigmoid, rescaled such that its values at 0 and 1 are 0 and 1.

    >>> rescaled_target(np.array([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    return (sigmoid(argument) - TARGET_LOW) / TARGET_SPAN


def _unit_vector(vector: Floats) -> Floats:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
