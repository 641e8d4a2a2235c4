"""Dawid-Skene for ordered grades: confusions depend on the thresholds between grades (Zhou et al., ICML 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._saved import PROBABILITY
from crowdrank._typing import Arrays
from crowdrank.consensus.curves import blocks, learn_prior
from crowdrank.consensus.dawid_skene import FLOOR, SMALLEST, DawidSkene
from crowdrank.consensus.families import FamilyAggregator
from crowdrank.consensus.latent import softmax
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.local import map_in_order

INITIAL_LOG_ODDS = 1.0
"""Initial prior mean of the log odds of a right answer at a threshold."""
INITIAL_SD = 0.7
"""Initial prior standard deviation of the coefficients."""
MAX_HALVINGS = 8
"""Maximum number of times that a Newton step is halved."""


class ThresholdDawidSkene(FamilyAggregator, DawidSkene):
    """Dawid-Skene whose confusions depend on the thresholds between grades (ordinal minimax conditional entropy).

    The log odds of answering s rather than s - 1 have one of two values per assessor, by whether the true grade is at
    least s: P(g | c) = softmax_g(sum over s <= g of sigma[s, c >= s]). These are 2 (G - 1) coefficients per assessor
    instead of the G (G - 1) probabilities of :class:`DawidSkene`. (Zhou et al. write four coefficients per threshold;
    only their differences matter.) The coefficients have a normal prior.

    Args:
        n_iter: maximum number of iterations.
        tol: smallest change of the mean log posterior per judgment; iterations end below it.
        prior: normal prior of the coefficients. `learned` learns its mean and covariance from the assessors (empirical
            Bayes). A number gamma is the fixed penalty of Zhou et al., gamma G^2 / 2 times the squares of their
            coefficients, which shrinks an assessor with few judgments to uninformative answers.
        grade_prior: prior probabilities of the true grades: `uniform` as in the paper, or `learned`.
        families: assessors who err together: from the family `column` of the judgments, detected from correlations of
            the answers (`auto`), or `none`.
        family_correlation: correlation rho of the errors within a family: the n judgments of a family on a document
            count as n / (1 + (n - 1) rho).
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: level of the interval from `lower` to `upper`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [2, 2, 1, 0, 0, 1]})
    >>> ThresholdDawidSkene().fit_predict(votes).to_dict()
    {'a': 2, 'b': 0}

    """

    shrinks: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("likelihood", "coefficients")
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"shares": PROBABILITY, "likelihood": PROBABILITY}
    _parameter_constraints: ClassVar[Constraints] = {
        "prior": [OneOf("learned"), Number(0, above=True)],
        "grade_prior": [OneOf("uniform", "learned")],
    }

    def __init__(
        self,
        n_iter: int = 100,
        tol: float = 1e-5,
        *,
        prior: str | float = "learned",
        grade_prior: str = "uniform",
        families: str = "column",
        family_correlation: float = 1.0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        super().__init__(n_iter, tol, prior=prior, unjudgeable_as=unjudgeable_as, interval=interval)
        self.grade_prior = grade_prior
        self.families = families
        self.family_correlation = family_correlation

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Update coefficients by a Newton step, then the prior and the shares of grades."""
        counts = statistics["counts"]
        n_assessors, n_grades, _ = counts.shape
        initial_mean, initial_variance = self._initial_prior(n_grades)
        if theta is None:
            theta = {
                "coefficients": np.tile(initial_mean, (n_assessors, 1)),
                "mean": initial_mean,
                "covariance": np.diag(initial_variance),
            }
        mean, covariance = theta["mean"], theta["covariance"]
        coefficients, spread = newton_step(counts, theta["coefficients"], mean, np.linalg.inv(covariance), n_jobs)
        if self.prior == "learned":
            mean, covariance = learn_prior(coefficients, spread[None], initial_mean, initial_variance)
        classes = statistics["classes"] if self.grade_prior == "learned" else np.ones(n_grades)
        return {
            "shares": np.maximum(classes / classes.sum(), FLOOR),
            "likelihood": answer_probabilities(coefficients, n_grades),
            "coefficients": coefficients,
            "mean": mean,
            "covariance": covariance,
        }

    def _initial_prior(self, n_grades: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and variance of the coefficients, (2 (n_grades - 1),) each."""
        n_thresholds = n_grades - 1
        if self.prior == "learned":
            mean = np.tile([-INITIAL_LOG_ODDS, INITIAL_LOG_ODDS], n_thresholds)
            return mean, np.full(2 * n_thresholds, INITIAL_SD**2)
        assert not isinstance(self.prior, str | tuple)
        # Zhou et al. penalize each of two coefficients, whose difference is ours, by penalty / 2 times its square.
        return np.zeros(2 * n_thresholds), np.full(2 * n_thresholds, 2 / (self.prior * n_grades**2))

    def _log_prior(self, theta: Arrays) -> float:
        if self.prior == "learned":
            return 0.0
        return float(-0.5 * (theta["coefficients"] ** 2 / np.diag(theta["covariance"])).sum())

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Check also that the covariance is positive definite."""
        super()._check_theta(theta, example, n_assessors)
        np.linalg.cholesky(theta["covariance"])  # raises LinAlgError

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[Any]:
        """Return the prior mean of the coefficients and its probabilities."""
        coefficients = np.repeat(theta["mean"][None], len(scale_of), axis=0)
        return coefficients if name == "coefficients" else answer_probabilities(coefficients, len(theta["shares"]))


def threshold_features(n_grades: int) -> NDArray[np.float64]:
    """Return the features of each answer and true grade, (n_grades, n_grades, 2 (n_grades - 1)).

    Each threshold s has two: [answer >= s][grade < s] and [answer >= s][grade >= s].

    >>> threshold_features(2)[:, 0].tolist(), threshold_features(2)[:, 1].tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]])
    """
    grade, threshold = np.arange(n_grades), np.arange(1, n_grades)
    reaches = grade[:, None] >= threshold  # (n_grades, n_thresholds)
    truth = np.stack([~reaches, reaches], axis=2)
    features = reaches[:, None, :, None] & truth[None]
    return features.reshape(n_grades, n_grades, 2 * (n_grades - 1)).astype(np.float64)


def answer_probabilities(coefficients: NDArray[np.float64], n_grades: int) -> NDArray[np.float64]:
    """Return P(answer | true grade) as [assessor, answer, true grade]."""
    scores = coefficients @ threshold_features(n_grades).reshape(n_grades**2, -1).T
    return softmax(scores.reshape(-1, n_grades, n_grades), axis=1)


def newton_step(
    counts: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
    n_jobs: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Update the penalized multinomial regressions of all assessors by one Newton step.

    Args:
        counts: number of answers, (n_assessors, n_answers, n_true).
        coefficients: (n_assessors, n_features).
        mean: prior mean, (n_features,).
        precision: inverse prior covariance, (n_features, n_features).
        n_jobs: number of threads.

    Returns:
        The coefficients, and the sum over assessors of their Laplace covariances.

    """

    def step(part: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _newton_step(counts[part], coefficients[part], mean, precision)

    steps = list(map_in_order(step, blocks(len(counts)), n_jobs))
    return np.concatenate([moved for moved, _ in steps]), np.sum([spread for _, spread in steps], axis=0)


def _newton_step(
    counts: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n_assessors, n_grades, _ = counts.shape
    features = threshold_features(n_grades)
    n_features = features.shape[2]
    flat = features.reshape(n_grades**2, n_features)
    probabilities = answer_probabilities(coefficients, n_grades)
    total = counts.sum(axis=1)
    expected = total[:, None, :] * probabilities
    gradient = (counts - expected).reshape(n_assessors, -1) @ flat - (coefficients - mean) @ precision
    products = (flat[:, :, None] * flat[:, None, :]).reshape(n_grades**2, n_features**2)
    squares = (expected.reshape(n_assessors, -1) @ products).reshape(n_assessors, n_features, n_features)
    means = np.einsum("agc,gck->ack", probabilities, features)
    hessian = squares - (means * total[:, :, None]).transpose(0, 2, 1) @ means + precision
    covariance = np.linalg.inv(hessian)
    step = (covariance @ gradient[:, :, None])[:, :, 0]

    def log_posterior(trial: NDArray[np.float64]) -> NDArray[np.float64]:
        fit = counts * np.log(np.maximum(answer_probabilities(trial, n_grades), SMALLEST))
        deviation = trial - mean
        posterior: NDArray[np.float64] = fit.sum(axis=(1, 2)) - 0.5 * (deviation @ precision * deviation).sum(axis=1)
        return posterior

    before, size = log_posterior(coefficients), np.ones((n_assessors, 1))
    for _ in range(MAX_HALVINGS):
        worse = log_posterior(coefficients + size * step) < before - 1e-9
        if not worse.any():
            break
        size[worse] /= 2
    return coefficients + size * step, covariance.sum(axis=0)
