"""Find features that are functions of the answers, such as the mean grade of a document.

Such features repeat the labels: a prior from them counts each answer twice, and intervals become too narrow. A genuine
feature x tells about relevance r alone. Given r, it is independent of the answers, so that an answer differs from its
expectation given x and the answers of the others in a way that x cannot predict. With the curves of assessors of
:class:`~crowdrank.consensus.gda.GDA` and x | r ~ N(f(r), s^2), f a cubic polynomial, both are estimated by EM without
the tested answer. The statistic is the partial correlation of the answer's residual with x - E[x | other answers].
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.latent import node_prior, softmax
from crowdrank.engine.shards import items_of
from crowdrank.errors import Fix, InputError
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus.feature_scores import UsableFeatures

TEST_LEVEL = 0.01
"""Nominal level of all tests of a fit together (Bonferroni)."""
MIN_CORRELATION = 0.1
"""Minimum partial correlation over all answers of a feature that is refused.

Genuine features have small ones, because curves are estimated: up to 0.08 if a feature is relevance itself.
"""
MIN_OWN_CORRELATION = 0.4
"""Minimum partial correlation with the answers of one assessor.

An assessor may share the errors of a genuine feature, as judges that are language models do: up to 0.31 with retrieval
systems of TREC DL20.
"""
MAX_EXCESS = 0.1
"""Maximum excess of an assessor's correlation with a genuine feature over that with relevance, by estimated curves."""
MIN_TESTED_ANSWERS = 30
"""Minimum number of tested answers, of all assessors and of one."""
MAX_CELLS = 1_000_000
"""Maximum number of answers times nodes; more documents are sampled."""
DEGREE = 3
"""Degree of the polynomial in relevance r that is the expectation of a feature x, E[x | r]."""
MIN_VARIANCE = 0.05
"""Minimum variance of a feature x given relevance r, in variances of x; without it, EM would make x the relevance."""
N_EM_ITERATIONS = 20


@dataclass(frozen=True, eq=False)
class AnswerModel:
    """Answers with P(answer | relevance) on nodes.

    Attributes:
        nodes: (n_nodes,).
        item: item of each answer, (n,).
        assessor: assessor of each answer, (n,).
        answer: code of each answer, (n,).
        log_likelihood: log P(answer | node), (n, n_nodes).
        mean: expected code of an answer of an assessor, (n_assessors, n_nodes).
        square: expected squared code, (n_assessors, n_nodes).
        rows: item in all judgments of each item, (n_items,).

    """

    nodes: Floats
    item: Integers
    assessor: Integers
    answer: Integers
    log_likelihood: Floats
    mean: Floats
    square: Floats
    rows: Integers

    @classmethod
    def fit(cls, judgments: Judgments, seed: int = 0) -> AnswerModel:
        """Fit GDA, and return its probabilities of the answers to documents with several answers."""
        from crowdrank.consensus.gda import GDA

        judgments = judgments.with_unjudgeable("lowest").to_one_scale()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit of the model warns
            theta = GDA().fit(judgments).theta_
        nodes, likelihood = theta["nodes"], np.maximum(theta["likelihood"], 1e-12)
        order = np.random.default_rng(seed).permutation(judgments.n_items)
        size = np.diff(judgments.offsets)[order]
        sampled = np.cumsum(size * (size > 1)) * len(nodes) <= MAX_CELLS
        rows = np.sort(order[sampled & (size > 1)])
        new = np.full(judgments.n_items, -1)
        new[rows] = np.arange(len(rows))
        item = new[items_of(judgments.offsets)]
        kept = item >= 0
        assessor, answer = judgments.assessor[kept].astype(np.int64), judgments.grade[kept].astype(np.int64)
        codes = np.arange(likelihood.shape[1])
        log_likelihood = np.log(likelihood[assessor, answer])
        mean, square = (np.einsum("g,agn->an", codes**power, likelihood) for power in (1, 2))
        return cls(nodes, item[kept], assessor, answer, log_likelihood, mean, square, rows)

    @cached_property
    def log_posterior(self) -> Floats:
        """Log posterior of each item given all of its answers, up to a constant, (n_items, n_nodes)."""
        total = np.tile(np.log(node_prior(len(self.nodes))), (len(self.rows), 1))
        np.add.at(total, self.item, self.log_likelihood)
        return total

    @cached_property
    def log_others(self) -> Floats:
        """Log posterior of the item of each answer given the answers of the others, up to a constant, (n, n_nodes)."""
        return np.asarray(self.log_posterior[self.item] - self.log_likelihood)

    def n_tests(self, n_features: int) -> int:
        """Return the number of tests for `n_features` features.

        Each is tested with all answers, and twice with those of each assessor who has `MIN_TESTED_ANSWERS`.
        """
        return n_features * (1 + 2 * int((np.bincount(self.assessor) >= MIN_TESTED_ANSWERS).sum()))

    def correlations(self, feature: Floats) -> Correlations:
        """Return the partial correlations of a feature with the answers.

        Args:
            feature: value of each item, (n_items,); NaN is unknown.

        """
        known = np.isfinite(feature)
        tested = np.flatnonzero(known[self.item])
        if len(tested) < MIN_TESTED_ANSWERS or np.nanstd(feature) == 0:
            return Correlations(0.0, 0.0, 0.0, 0.0)
        value = np.where(known, (feature - feature[known].mean()) / feature[known].std(), 0.0)
        expected, variance = self._regress(value, known)
        posterior = softmax(self.log_posterior[known], axis=1) @ self.nodes
        sign = 1.0 if posterior @ value[known] >= 0 else -1.0
        item, assessor = self.item[tested], self.assessor[tested]
        others = softmax(self.log_others[tested], axis=1)
        distance = (value[item][:, None] - expected) ** 2
        both = softmax(self.log_others[tested] - 0.5 * distance / variance, axis=1)
        mean, square = self.mean[assessor], self.square[assessor]
        predicted = (both * mean).sum(axis=1)
        spread = (both * square).sum(axis=1) - predicted**2
        residual = (self.answer[tested] - predicted) / np.sqrt(np.maximum(spread, 0.0) + 0.01)
        news = sign * (value[item] - others @ expected)
        news /= np.sqrt(variance + np.maximum(others @ expected**2 - (others @ expected) ** 2, 0.0))
        relevance = both @ self.nodes
        correlation, z = _partial_correlation(residual, news, relevance, item)
        own: list[tuple[float, float]] = [(0.0, 0.0)]
        for one in np.flatnonzero(np.bincount(assessor) >= MIN_TESTED_ANSWERS):
            rows = assessor == one
            own.append(_partial_correlation(residual[rows], news[rows], relevance[rows], item[rows]))
            largest = _largest_correlation(others[rows], mean[rows], square[rows])
            consensus = others[rows] @ self.nodes
            own.append(_excess_correlation(self.answer[tested][rows], value[item][rows], consensus, largest))
        own_correlation, own_z = max(own, key=lambda found: found[1] * (found[0] >= MIN_OWN_CORRELATION))
        return Correlations(correlation, z, own_correlation, own_z)

    def _regress(self, value: Floats, known: Booleans) -> tuple[Floats, float]:
        """Return E[x | node], (n_nodes,), and the variance of x given the node, estimated by EM."""
        basis = np.vander(self.nodes, DEGREE + 1, increasing=True)
        logs, x = self.log_posterior[known], value[known]
        expected, variance = np.zeros(len(self.nodes)), 1.0
        for _ in range(N_EM_ITERATIONS):
            posterior = softmax(logs - 0.5 * (x[:, None] - expected) ** 2 / variance, axis=1)
            weighted = basis.T * posterior.sum(axis=0)
            coefficients = np.linalg.solve(weighted @ basis + 1e-6 * np.eye(DEGREE + 1), basis.T @ (posterior.T @ x))
            expected = basis @ coefficients
            variance = max(float((posterior * (x[:, None] - expected) ** 2).sum()) / len(x), MIN_VARIANCE)
        return expected, variance


class Correlations(NamedTuple):
    """Partial correlation of a feature with all answers, and the most significant one with those of one assessor."""

    all: float
    z: float
    own: float
    own_z: float

    def are_large(self, n_tests: int) -> bool:
        """Return whether `all` or `own` is large and significant, with Bonferroni's correction for `n_tests` tests."""
        limit = NormalDist().inv_cdf(1 - TEST_LEVEL / n_tests)
        return (self.all >= MIN_CORRELATION and self.z > limit) or (
            self.own >= MIN_OWN_CORRELATION and self.own_z > limit
        )


def _partial_correlation(residual: Floats, news: Floats, relevance: Floats, item: Integers) -> tuple[float, float]:
    """Return the correlation of two variables given a quadratic function of relevance, and its z-score.

    Answers to one item are not taken as independent.
    """
    controls = np.column_stack([np.ones(len(relevance)), relevance, relevance**2])
    first, second = (_residuals(values, controls) for values in (residual, news))
    product = first * second
    norm = float(np.sqrt((first @ first) * (second @ second)))
    by_item = np.bincount(np.unique(item, return_inverse=True)[1], product)
    squares = float(by_item @ by_item)
    return float(product.sum() / max(norm, 1e-12)), float(product.sum() / np.sqrt(max(squares, 1e-12)))


def _largest_correlation(others: Floats, mean: Floats, square: Floats) -> float:
    """Return the correlation of an assessor's answers with relevance itself, given the answers of the others."""
    explained = (others * mean**2).sum(axis=1) - (others * mean).sum(axis=1) ** 2
    total = (others * square).sum(axis=1) - (others * mean).sum(axis=1) ** 2
    return float(np.sqrt(np.clip(explained.sum() / max(total.sum(), 1e-12), 0.0, 1.0)))


def _excess_correlation(answer: Integers, value: Floats, consensus: Floats, largest: float) -> tuple[float, float]:
    """Return the correlation of answers and feature given the consensus of the others, and the z-score of its excess.

    A genuine feature, whatever its relation to relevance, has at most about the `largest` correlation (Fisher's z).
    """
    controls = np.column_stack([np.ones(len(consensus)), consensus, consensus**2])
    first, second = (_residuals(values, controls) for values in (answer.astype(np.float64), value))
    norm = float(np.sqrt((first @ first) * (second @ second)))
    correlation = abs(float(first @ second) / max(norm, 1e-12)) if norm > 1e-6 else 0.0
    excess = np.arctanh(min(correlation, 0.999)) - np.arctanh(min(largest + MAX_EXCESS, 0.999))
    return correlation, float(excess * np.sqrt(len(answer) - 5))


def _residuals(values: Floats, controls: Floats) -> Floats:
    """Return the residuals of a least-squares regression on controls."""
    residual: Floats = values - controls @ np.linalg.lstsq(controls, values, rcond=None)[0]
    return residual


def find_answer_features(features: UsableFeatures, judgments: Judgments) -> list[str]:
    """Return the names of the features that are functions of the answers."""
    model = AnswerModel.fit(judgments)
    if len(model.rows) == 0:
        return []
    feature_row = np.concatenate(features.rows_of(judgments))[model.rows]
    forms = (features.matrix, features.features.matrix)  # scaled within queries, and as they are
    n_tests = model.n_tests(len(forms) * features.matrix.shape[1])
    return [
        name
        for number, name in enumerate(features.features.names)
        if any(
            model.correlations(np.where(feature_row >= 0, form[feature_row, number], np.nan)).are_large(n_tests)
            for form in forms
        )
    ]


def answer_features_error(names: list[str]) -> InputError:
    """Return the exception to raise for features that are functions of the answers."""
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    copies = "is a function" if len(names) == 1 else "are functions"
    return InputError(
        f"{counted(len(names), 'feature')} ({listed}) {copies} of the judgments, so that answers would count twice",
        source="the features",
        kind="leaking-features",
        fix=[
            Fix(f"leave out {'it' if len(names) == 1 else 'them'}"),
            Fix("compute the features without these judgments"),
        ],
    )
