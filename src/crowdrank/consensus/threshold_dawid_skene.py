"""Dawid-Skene for ordered grades: confusions depend on the thresholds between grades (Zhou et al., ICML 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._folders import PROBABILITY_RANGE
from crowdrank._numba import map_in_order
from crowdrank._typing import Arrays, Booleans, Floats, Grades
from crowdrank.consensus.curves import (
    PRIOR_ASSESSORS,
    RELATIVE_SHAPE_VARIANCE,
    assessor_blocks,
    learn_covariance,
    long_task_weights,
)
from crowdrank.consensus.dawid_skene import MIN_PROBABILITY, DawidSkene
from crowdrank.consensus.e_step import SMALLEST
from crowdrank.consensus.families import prior_weights
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.latent import softmax
from crowdrank.consensus.model import ThetaArray
from crowdrank.constraints import Constraints, Number, OneOf

INITIAL_LOG_ODDS = 1.0
"""Initial prior mean of the log odds of a right answer at a threshold."""
INITIAL_SD = 0.7
"""Initial prior standard deviation of the coefficients."""
MAX_HALVINGS = 8
"""Maximum number of times that a Newton step is halved."""
FIRST_STEPS = 20
"""Number of Newton steps in the first M-step, which starts far from its maximum; later M-steps have one."""


class ThresholdDawidSkene(DawidSkene):
    """Dawid-Skene whose confusions depend on the thresholds between grades (ordinal minimax conditional entropy).

    The log odds of answering s rather than s - 1 have one of two values per assessor, by whether the true grade is at
    least s: P(g | c) = softmax_g(sum over s <= g of sigma[s, c >= s]). These are 2 (G - 1) coefficients per assessor
    instead of the G (G - 1) probabilities of :class:`DawidSkene`. (Zhou et al. write four coefficients per threshold;
    only their differences matter.) The coefficients have a normal prior. Answers that nobody gave are left out, with
    one threshold between two neighboring answers of the rest.

    Args:
        n_iter: maximum number of iterations.
        tol: smallest change of the mean log posterior per judgment; iterations end below it.
        prior: normal prior of the coefficients. `learned` learns its mean and covariance from the assessors (empirical
            Bayes). A number gamma is the fixed penalty of Zhou et al., gamma G^2 / 2 times the squares of their
            coefficients, which shrinks an assessor with few judgments to uninformative answers.
        grade_prior: prior probabilities of the true grades: `learned`, or `uniform` as in the paper, which gives
            documents grades that nobody uses.
        families: assessors who err together: from the family `column` of the judgments, or `none`; `auto` uses the
            column and warns of groups found in the answers, `found` uses these groups.
        family_correlation: correlation rho of the errors within a family: the n judgments of a family on a document
            count as n / (1 + (n - 1) rho). With levels of families, one number per level, coarsest first.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`), left out (`drop`), or as one more answer
            (`model`). With `model`, a document has a grade or cannot be judged; then it counts as the lowest grade, and
            assessors who do not notice answer as they do for the lowest grade.
        interval: level of the interval from `lower` to `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(true grade).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [2, 2, 1, 0, 0, 1]})
    >>> ThresholdDawidSkene().fit_predict(votes).to_dict()
    {'a': 2, 'b': 0}

    """

    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "likelihood": ThetaArray(by_assessor=True, bounds=PROBABILITY_RANGE),
        "coefficients": ThetaArray(by_assessor=True),
        "shares": ThetaArray(bounds=PROBABILITY_RANGE),
        "frequencies": ThetaArray(bounds=PROBABILITY_RANGE),
        "feature_shares": ThetaArray(bounds=PROBABILITY_RANGE),
        "typical": ThetaArray(bounds=PROBABILITY_RANGE),
    }
    _parameter_constraints: ClassVar[Constraints] = {
        "prior": [OneOf("learned"), Number(0, above=True)],
        "grade_prior": [OneOf("uniform", "learned")],
        "unjudgeable_as": [OneOf("lowest", "drop", "model")],
    }

    def __init__(
        self,
        n_iter: int = 300,
        tol: float = 1e-5,
        *,
        prior: str | float = "learned",
        grade_prior: str = "learned",
        families: str = "column",
        family_correlation: float | tuple[float, ...] = 1.0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        super().__init__(
            n_iter,
            tol,
            prior=prior,
            families=families,
            family_correlation=family_correlation,
            unjudgeable_as=unjudgeable_as,
            interval=interval,
            grade_by=grade_by,
        )
        self.grade_prior = grade_prior

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Update coefficients by a Newton step, then the prior and the shares of grades.

        The first M-step runs to its maximum. One step leaves answers between two used grades likely, and the E-step
        could then exchange these grades.
        """
        counts, before = statistics["counts"], theta
        n_assessors, n_states, _ = counts.shape
        initial_mean, initial_sd = self._initial_prior(n_states)
        if theta is None:
            theta = {
                "coefficients": np.tile(initial_mean, (n_assessors, 1)),
                "mean": initial_mean,
                "covariance": np.diag(initial_sd**2),
            }
        mean, covariance = theta["mean"], theta["covariance"]
        is_used = counts.sum(axis=(0, 2)) > 0
        features = used_features(is_used, self._models_unjudgeable)
        precision = np.linalg.inv(covariance)
        n_labels = counts.sum(axis=(1, 2))
        own = prior_weights(statistics, n_labels)
        own = np.ones(n_assessors) if own is None else own
        n_parameters = int(features.any(axis=(0, 1)).sum())
        weights = np.stack([own, long_task_weights(n_labels, n_parameters, own)])
        coefficients = theta["coefficients"]
        for _ in range(FIRST_STEPS if before is None else 1):
            coefficients, spread = newton_step(
                counts[:, is_used], coefficients, features, mean, precision, n_jobs, weights
            )
        if self.prior == "learned":
            n_ordered = len(mean) - 2 * self._models_unjudgeable
            mean, covariance = learn_prior(coefficients, spread, weights, initial_mean, initial_sd, n_ordered)
        likelihood = np.full(counts.shape, MIN_PROBABILITY)
        likelihood[:, is_used] = answer_probabilities(coefficients, features)
        return {
            "shares": self._shares(statistics["state_counts"]),
            "frequencies": statistics["state_counts"] / statistics["state_counts"].sum(),
            "likelihood": likelihood,
            "coefficients": coefficients,
            "mean": mean,
            "covariance": covariance,
            **self._learn_features(before, statistics),
        }

    def _shares(self, classes: Floats) -> Floats:
        """Return the prior probabilities of the states from the expected number of documents in each."""
        shares = classes / classes.sum()
        if self.grade_prior == "uniform":
            n_grades = len(classes) - self._models_unjudgeable
            shares[:n_grades] = shares[:n_grades].mean()
        return np.asarray(np.maximum(shares, MIN_PROBABILITY))

    def _initial_prior(self, n_states: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the coefficients, (2 (n_states - 1),) each."""
        n = n_states - 1
        if self.prior == "learned":
            return np.tile([-INITIAL_LOG_ODDS, INITIAL_LOG_ODDS], n), np.full(2 * n, INITIAL_SD)
        assert not isinstance(self.prior, str | tuple)
        # Zhou et al. penalize each of two coefficients, whose difference is ours, by penalty / 2 times its square.
        n_grades = n_states - self._models_unjudgeable
        return np.zeros(2 * n), np.full(2 * n, np.sqrt(2 / self.prior) / n_grades)

    def _log_prior(self, theta: Arrays) -> float:
        if self.prior == "learned":
            return 0.0
        return float(-0.5 * (theta["coefficients"] ** 2 / np.diag(theta["covariance"])).sum())

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Raise an error unless parameters are valid and the covariance is positive definite."""
        super()._check_theta(theta, example, n_assessors)
        np.linalg.cholesky(theta["covariance"])  # raises LinAlgError

    def _new_assessors(self, theta: Arrays, name: str, scale_of: Grades) -> NDArray[Any]:
        """Return rows of theta[name] for new assessors, at the prior mean of the coefficients."""
        coefficients = np.repeat(theta["mean"][None], len(scale_of), axis=0)
        if name == "coefficients":
            return coefficients
        likelihood = theta["likelihood"][:1].repeat(len(scale_of), axis=0)
        is_used = theta["likelihood"].max(axis=(0, 2)) > MIN_PROBABILITY
        features = used_features(is_used, self._models_unjudgeable)
        likelihood[:, is_used] = answer_probabilities(coefficients, features)
        return likelihood


def threshold_features(n_states: int, unjudgeable: bool = False) -> Floats:
    """Return the 0-1 features of each answer and state, (n_states, n_states, 2 (n_states - 1)).

    Each threshold s has two: [answer >= s][grade < s] and [answer >= s][grade >= s]. If the last state is
    `unjudgeable`, it has two features in place of a threshold: [answer is last][state is not] and [both are]. Other
    answers are as likely in it as for the lowest grade.

    >>> threshold_features(2)[:, 0].tolist(), threshold_features(2)[:, 1].tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]])
    """
    reaches = np.tri(n_states, n_states - 1, -1, dtype=bool)  # [grade, threshold]
    if unjudgeable:
        reaches[-1, :-1] = False
    by_state = np.stack([~reaches, reaches], axis=2)
    features = reaches[:, None, :, None] & by_state[None]
    return np.asarray(features.reshape(n_states, n_states, 2 * (n_states - 1)), np.float64)


def used_features(is_used: Booleans, unjudgeable: bool = False) -> Floats:
    """Return the rows of `threshold_features` for the used answers, with one threshold between two of them.

    >>> used_features(np.array([True, False, True]))[:, 0].tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    """
    features = threshold_features(len(is_used), unjudgeable)
    return np.asarray((features * np.repeat(is_used[1:], 2))[is_used])


def answer_probabilities(coefficients: Floats, features: Floats) -> Floats:
    """Return P(answer | state) as [assessor, answer, state]; the features may be those of some answers only."""
    n_answers, n_states, n_features = features.shape
    scores = coefficients @ features.reshape(-1, n_features).T
    return softmax(scores.reshape(-1, n_answers, n_states), axis=1)


def newton_step(
    counts: Floats,
    coefficients: Floats,
    features: Floats,
    mean: Floats,
    precision: Floats,
    n_jobs: int = 1,
    weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the coefficients of all assessors after one Newton step of their penalized multinomial regressions.

    Args:
        counts: number of answers, (n_assessors, n_answers, n_states).
        coefficients: (n_assessors, n_features).
        features: features of each answer and state, (n_answers, n_states, n_features).
        mean: prior mean, (n_features,).
        precision: inverse prior covariance, (n_features, n_features).
        n_jobs: number of threads.
        weights: weights of the assessors in sums of their covariances, (n_sums, n_assessors); None: one plain sum.

    Returns:
        The coefficients, and sums over assessors of their Laplace covariances, (n_sums, n_features, n_features).

    """
    sums = np.ones((1, len(counts))) if weights is None else weights

    def step(part: slice) -> tuple[Floats, Floats]:
        return _newton_step(counts[part], coefficients[part], features, mean, precision, sums[:, part])

    steps = list(map_in_order(step, assessor_blocks(len(counts)), n_jobs))
    return np.concatenate([updated for updated, _ in steps]), np.sum([spread for _, spread in steps], axis=0)


def _newton_step(
    counts: Floats,
    coefficients: Floats,
    features: Floats,
    mean: Floats,
    precision: Floats,
    sums: Floats,
) -> tuple[Floats, Floats]:
    n_assessors, n_features = coefficients.shape
    flat = features.reshape(-1, n_features)
    probabilities = answer_probabilities(coefficients, features)
    total = counts.sum(axis=1)
    expected = total[:, None, :] * probabilities
    gradient = (counts - expected).reshape(n_assessors, -1) @ flat - (coefficients - mean) @ precision
    products = (flat[:, :, None] * flat[:, None, :]).reshape(len(flat), -1)
    squares = (expected.reshape(n_assessors, -1) @ products).reshape(n_assessors, n_features, n_features)
    means = np.einsum("agc,gck->ack", probabilities, features)
    hessian = squares - (means * total[:, :, None]).transpose(0, 2, 1) @ means + precision
    covariance = np.linalg.inv(hessian)
    step = (covariance @ gradient[:, :, None])[:, :, 0]

    def log_posterior(trial: Floats) -> Floats:
        fit = counts * np.log(np.maximum(answer_probabilities(trial, features), SMALLEST))
        deviation = trial - mean
        posterior: Floats = fit.sum(axis=(1, 2)) - 0.5 * (deviation @ precision * deviation).sum(axis=1)
        return posterior

    before, size = log_posterior(coefficients), np.ones((n_assessors, 1))
    for _ in range(MAX_HALVINGS):
        worse = log_posterior(coefficients + size * step) < before - 1e-9
        if not worse.any():
            break
        size[worse] /= 2
    return coefficients + size * step, np.tensordot(sums, covariance, 1)


def learn_prior(
    coefficients: Floats, spread: Floats, weights: Floats, initial_mean: Floats, initial_sd: Floats, n_ordered: int
) -> tuple[Floats, Floats]:
    """Return the mean and covariance of the coefficients over assessors (empirical Bayes).

    How strict and how sharp assessors are is learned from all of them: a constant that is added to the log odds at all
    thresholds, and a factor of them. So is how they use 'cannot judge'. Other differences are learned from assessors
    with many labels, as in GDA.

    Args:
        coefficients: (n_assessors, n_features).
        spread: sums of posterior covariances with these weights, (2, n_features, n_features).
        weights: weights of assessors: their own, and those of `long_task_weights`, (2, n_assessors).
        initial_mean: initial prior mean, (n_features,).
        initial_sd: initial prior standard deviation, (n_features,).
        n_ordered: number of features of thresholds between grades; those after them are of 'cannot judge'.

    """
    own, n = weights[0], len(initial_mean)
    mean = (own @ coefficients + PRIOR_ASSESSORS * initial_mean) / (own.sum() + PRIOR_ASSESSORS)
    away, unit = (coefficients - mean) / initial_sd, np.outer(initial_sd, initial_sd)
    squares, long_squares = ((away.T * w) @ away + part / unit for w, part in zip(weights, spread, strict=True))
    is_ordered = np.arange(n) < n_ordered
    directions = np.vstack([is_ordered / initial_sd, is_ordered * mean / initial_sd, np.eye(n)[n_ordered:]])
    shape = np.full((n, 1), RELATIVE_SHAPE_VARIANCE)
    covariance = learn_covariance(
        squares, own.sum(), long_squares, float(weights[1].sum()), directions, np.eye(n), shape
    )
    return mean, (covariance + covariance.T) / 2 * unit
