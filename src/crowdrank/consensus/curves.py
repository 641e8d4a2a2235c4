"""Curves of assessors: P(answer | relevance, difficulty) from one Gaussian per answer (GDA, eq. 1).

The log density of answer g at relevance r and difficulty eps is, up to a constant that all answers share,

    log alpha_g - log(w_g) / 2 - (r - mu_g)^2 / (2 w_g eps) = b_g + (a_g r - w_g a_g^2 / 2 - r^2 / (2 w_g)) / eps

with the slope a_g = mu_g / w_g and the offset b_g = log alpha_g - log(w_g) / 2. It is linear in the features r / eps, 1,
1 / eps and r^2 / eps, so P(answer | state) is a multinomial regression on features of the state.

- With difficulty the parameters of an assessor are slopes, offsets and log widths (one, or one per answer); they
  determine the coefficients of 1 / eps and of r^2 / eps.
- At eps = 1 the data do not identify the widths. The parameters are then the coefficients themselves: of r, of 1 (which
  includes that of 1 / eps) and, with one width per answer, of r^2. The regression is concave in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.information import information
from crowdrank.consensus.latent import NODES, PRIOR, softmax

PRIOR_ASSESSORS = 5.0
"""Number of pseudo-assessors with the initial prior when the prior is learned."""
SLOPE_SD, OFFSET_SD, LOG_WIDTH_SD, BEND_SD = 0.5, 0.7, 0.5, 0.25
"""Initial prior standard deviations of slopes, offsets, log widths and coefficients of squared relevance."""
INITIAL_WIDTH = 0.7
"""Initial prior median of the widths."""
ORDERED_WITHIN = 3.0
"""Range of relevance, to both sides of 0, in which grades with their own widths are in order."""
MAX_SWEEPS = 1_000
"""Maximum number of sweeps of Hildreth's method."""
BLOCK = 1_024
"""Number of assessors per Newton step, so that their intermediate arrays stay in the CPU cache."""


@dataclass(frozen=True, eq=False)
class GaussianCurves:
    """Parametrization of the curves of assessors.

    Args:
        difficulties: grid of document difficulties, (n_difficulties,), whose middle is 1.
        tied_variance: one width per assessor instead of one per answer.
        nodes: grid of relevance, (n_nodes,).

    A state is a pair of difficulty and node, all nodes of the first difficulty first. Parameters have the shape
    (n_assessors, n_parameters), in blocks of n_answers: slopes, offsets, and log widths or coefficients of r^2; a
    common log width is a single column.

    >>> GaussianCurves(np.ones(1), True, NODES).features.shape
    (21, 2)
    """

    difficulties: Floats
    tied_variance: bool
    nodes: Floats

    @property
    def has_difficulty(self) -> bool:
        """Whether documents differ in difficulty."""
        return len(self.difficulties) > 1

    @cached_property
    def features(self) -> Floats:
        """Features of every state, (n_states, n_features)."""
        relevance = np.tile(self.nodes, len(self.difficulties))
        inverse = np.repeat(1 / self.difficulties, len(self.nodes))
        columns = [relevance * inverse, np.ones(len(inverse))]
        columns += [inverse] * self.has_difficulty + [relevance**2 * inverse] * (not self.tied_variance)
        return np.stack(columns, axis=1)

    def n_answers(self, params: Floats) -> int:
        """Return the number of answers that parameters are for."""
        return params.shape[-1] // (2 if self.tied_variance else 3)

    def first_sd(self, n_answers: int) -> Floats:
        """Return the initial prior standard deviation of every parameter."""
        sds = [SLOPE_SD] * n_answers + [OFFSET_SD] * n_answers
        if self.has_difficulty:
            sds += [LOG_WIDTH_SD] * (1 if self.tied_variance else n_answers)
        elif not self.tied_variance:
            sds += [BEND_SD] * n_answers
        return np.array(sds)

    def first_mean(self, used: Floats, slopes: Floats) -> Floats:
        """Return the initial prior mean of every parameter.

        Args:
            used: how often each answer was given, (n_answers,); NaN if the scale has no such answer.
            slopes: initial slopes, (n_answers,), in grade order, so that the ranking does not come out reversed.

        """
        offsets = np.log(used + 1.0)
        first = np.zeros(len(self.first_sd(len(used))))
        if self.has_difficulty:
            offsets += 0.5 * INITIAL_WIDTH * slopes**2
            first[2 * len(used) :] = np.log(INITIAL_WIDTH)
        first[: len(used)] = slopes
        first[len(used) : 2 * len(used)] = np.nan_to_num(offsets - np.nanmean(offsets))
        return first

    def coefficients(self, params: Floats) -> Floats:
        """Return the coefficients of the features, (n_assessors, n_features, n_answers)."""
        n = self.n_answers(params)
        if not self.has_difficulty:
            return params.reshape(len(params), -1, n)
        slopes, offsets, widths = params[:, :n], params[:, n : 2 * n], np.exp(params[:, 2 * n :])
        blocks = [slopes, offsets, -0.5 * widths * slopes**2]
        return np.stack(blocks if self.tied_variance else [*blocks, -0.5 / widths], axis=1)

    def _jacobian(self, params: Floats) -> Floats:
        """Return the derivatives of the coefficients, (n_assessors, n_features * n_answers, n_parameters)."""
        n, n_params = self.n_answers(params), params.shape[1]
        slopes, widths = params[:, :n], np.exp(params[:, 2 * n :])
        answer = np.arange(n)
        width_column = 2 * n + (0 * answer if self.tied_variance else answer)
        jacobian = np.zeros((len(params), self.features.shape[1], n, n_params))
        jacobian[:, 0, answer, answer] = 1.0
        jacobian[:, 1, answer, n + answer] = 1.0
        jacobian[:, 2, answer, answer] = -widths * slopes
        jacobian[:, 2, answer, width_column] = -0.5 * widths * slopes**2
        if not self.tied_variance:
            jacobian[:, 3, answer, width_column] = 0.5 / widths
        return jacobian.reshape(len(params), -1, n_params)

    def probabilities(self, params: Floats, missing: Booleans | None = None, plain: bool = False) -> Floats:
        """Return P(answer | state), (n_assessors, n_answers, n_states); 0 for `missing` answers.

        Args:
            params: the parameters of assessors.
            missing: answers that the scale of an assessor does not have, (n_assessors, n_answers).
            plain: only states of difficulty 1, (n_assessors, n_answers, n_nodes).

        """
        middle = len(self.difficulties) // 2 * len(self.nodes)
        features = self.features[middle : middle + len(self.nodes)] if plain else self.features
        scores = self.coefficients(params).transpose(0, 2, 1) @ features.T
        if missing is not None:
            scores[missing] = -np.inf
        return np.ascontiguousarray(softmax(scores, axis=1))

    def step(
        self,
        counts: Floats,
        params: Floats,
        mean: Floats,
        precision: Floats,
        missing: Booleans | None = None,
        n_ordered: Integers | None = None,
    ) -> tuple[Floats, Floats]:
        """Return parameters after one step of Fisher scoring (Newton's step where the problem is concave).

        Args:
            counts: expected number of answers by state, (n_assessors, n_answers, n_states).
            params: current parameters, (n_assessors, n_parameters).
            mean: prior mean of the parameters, (n_assessors, n_parameters).
            precision: prior precision, (n_assessors, n_parameters, n_parameters).
            missing: answers that the scale of an assessor does not have, (n_assessors, n_answers).
            n_ordered: number of answers, from the lowest on, that must be in order, (n_assessors,); None: none.

        Returns:
            The new parameters and their covariances by the Laplace approximation.

        """
        arrays = (counts, params, mean, precision, missing, n_ordered)
        parts = [
            self._step(*(None if array is None else array[block] for array in arrays))  # type: ignore[arg-type]
            for block in blocks(len(params))
        ]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _step(
        self,
        counts: Floats,
        params: Floats,
        mean: Floats,
        precision: Floats,
        missing: Booleans | None,
        n_ordered: Integers | None,
    ) -> tuple[Floats, Floats]:
        probabilities = self.probabilities(params, missing)
        gradient, fisher = _derivatives(counts, probabilities, self.features)
        if self.has_difficulty:
            jacobian = self._jacobian(params)
            gradient = (gradient[:, None, :] @ jacobian)[:, 0, :]
            fisher = jacobian.transpose(0, 2, 1) @ fisher @ jacobian
        gradient -= (precision @ (params - mean)[:, :, None])[:, :, 0]
        covariance = np.asarray(np.linalg.inv(fisher + precision), np.float64)
        step = (covariance @ gradient[:, :, None])[:, :, 0]
        if n_ordered is not None:
            step = self.in_grade_order(params + step, covariance, n_ordered) - params

        def objective(tried: Floats, probabilities: Floats) -> Floats:
            away = (tried - mean)[:, :, None]
            penalty: Floats = 0.5 * (away.transpose(0, 2, 1) @ precision @ away)[:, 0, 0]
            gain: Floats = (counts * np.log(np.maximum(probabilities, 1e-300))).sum(axis=(1, 2))
            return gain - penalty

        before, length = objective(params, probabilities), np.ones((len(params), 1))
        for _ in range(8):
            tried = params + length * step
            worse = objective(tried, self.probabilities(tried, missing)) < before - 1e-9
            if not worse.any():
                break
            length[worse] /= 2
        return params + length * step, covariance

    def in_grade_order(self, params: Floats, covariance: Floats, n_ordered: Integers) -> Floats:
        """Return the nearest parameters, in the metric of their covariance, whose answers are in order.

        Answers are in order if the slope of log P(g + 1) / P(g) over relevance is not negative. With one width this
        means mu_g <= mu_(g + 1). With a width per answer the slope depends on relevance; it is then not negative
        within +-ORDERED_WITHIN, which implies the order of all means in this range.

        >>> curves = GaussianCurves(np.ones(1), True, NODES)
        >>> curves.in_grade_order(np.array([[0.5, -0.5, 0.0, 0.0]]), np.eye(4)[None], np.array([2])).tolist()
        [[0.0, 0.0, 0.0, 0.0]]
        """
        n = self.n_answers(params)
        rises = np.diff(np.eye(params.shape[1]), axis=0)[: n - 1]  # slope of g + 1 minus slope of g
        if self.tied_variance:
            return project(params, covariance, rises, np.arange(n - 1) < n_ordered[:, None] - 1)
        # The slope of a score at relevance r is a_g + 2 r c_g with c_g = -1 / (2 w_g).
        bends = 2 * ORDERED_WITHIN * np.roll(rises, 2 * n, axis=1)
        rows, active = np.vstack([rises - bends, rises + bends]), np.arange(n - 1) < n_ordered[:, None] - 1
        active = np.hstack([active, active])
        if not self.has_difficulty:
            return project(params, covariance, rows, active)
        scale = np.ones(params.shape)
        scale[:, 2 * n :] = 0.5 * np.exp(-params[:, 2 * n :])  # dc_g / dlog w_g
        linear = np.hstack([params[:, : 2 * n], -scale[:, 2 * n :]])
        linear = project(linear, scale[:, :, None] * covariance * scale[:, None, :], rows, active)
        log_widths = -np.log(np.maximum(-2 * linear[:, 2 * n :], 1e-3))
        return np.hstack([linear[:, : 2 * n], log_widths])

    def gaussians(self, params: Floats, missing: Booleans) -> tuple[Floats, Floats, Floats]:
        """Return mu, w and alpha, (n_assessors, n_answers) each; NaN for `missing` answers.

        With difficulty these are parameters of the model. At eps = 1 several Gaussians give the same probabilities;
        of these, the mixture sum_g alpha_g N(mu_g, w_g) with mean 0 and variance 1 is returned.
        """
        n = self.n_answers(params)
        slopes, offsets = params[:, :n], np.where(missing, -np.inf, params[:, n : 2 * n])
        if self.has_difficulty:
            precision = np.broadcast_to(np.exp(-params[:, 2 * n :]), slopes.shape)
        else:
            bends = params[:, 2 * n :] if not self.tied_variance else np.zeros(slopes.shape)
            slopes, precision = _standardized(slopes, offsets, np.where(missing, -np.inf, bends))
            offsets = offsets + 0.5 * slopes**2 / precision
        if not self.tied_variance:
            offsets = offsets - 0.5 * np.log(precision)
        mu, width, alpha = slopes / precision, 1 / precision, softmax(offsets, axis=1)
        return np.where(missing, np.nan, mu), np.where(missing, np.nan, width), np.where(missing, np.nan, alpha)


def _standardized(slopes: Floats, offsets: Floats, bends: Floats) -> tuple[Floats, Floats]:
    """Return mu_g / w_g and 1 / w_g of Gaussians whose mixture has mean 0 and variance 1.

    Adding a constant to all slopes or to all precisions does not change P(answer | r). For each precision the mean of
    the mixture rises with the constant of the slopes; its variance falls from infinity to 0 as the precision rises.
    """
    relative = -2 * bends
    relative = np.where(np.isinf(relative), 0.0, relative - relative.min(axis=1, keepdims=True))

    def mixture(log_precision: Floats, shift: Floats) -> tuple[Floats, Floats]:
        precision = relative + np.exp(log_precision)
        mu = (slopes + shift) / precision
        alpha = softmax(offsets - 0.5 * np.log(precision) + 0.5 * precision * mu**2, axis=1)
        mean = (alpha * mu).sum(axis=1, keepdims=True)
        return mean, (alpha * (1 / precision + mu**2)).sum(axis=1, keepdims=True)

    def best_shift(log_precision: Floats) -> Floats:
        reach = np.abs(slopes).max(axis=1, keepdims=True)
        return bisect(lambda shift: mixture(log_precision, shift)[0], -reach, reach)

    ones = np.ones((len(slopes), 1))
    at = bisect(lambda tried: 1.0 - mixture(tried, best_shift(tried))[1], -10.0 * ones, 10.0 * ones)
    return slopes + best_shift(at), relative + np.exp(at)


def bisect(function: Callable[[Floats], Floats], lower: Floats, upper: Floats) -> Floats:
    """Return the roots of rising functions between bounds, elementwise.

    >>> bisect(lambda x: x - 1.0, np.array([0.0]), np.array([4.0])).round(6).tolist()
    [1.0]
    """
    for _ in range(50):
        middle = (lower + upper) / 2
        below = function(middle) < 0
        lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
    return (lower + upper) / 2


def blocks(n: int) -> list[slice]:
    """Return slices of up to `BLOCK` assessors out of `n`.

    >>> len(blocks(1_025))
    2
    """
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]


def _derivatives(counts: Floats, probabilities: Floats, features: Floats) -> tuple[Floats, Floats]:
    """Return gradient and Fisher information of the expected log likelihood in the coefficients of each assessor."""
    n_assessors, n_answers, _ = counts.shape
    n_features = features.shape[1]
    total = counts.sum(axis=1)  # (n_assessors, n_states)
    residual = counts - total[:, None, :] * probabilities
    gradient = (residual @ features).transpose(0, 2, 1).reshape(n_assessors, -1)
    weighted = probabilities * total[:, None, :]
    fisher = np.empty((n_assessors, n_features, n_answers, n_features, n_answers))
    answer = np.arange(n_answers)
    for i in range(n_features):
        for j in range(i + 1):
            product = weighted * (features[:, i] * features[:, j])
            block = -(product @ probabilities.transpose(0, 2, 1))
            block[:, answer, answer] += product.sum(axis=2)
            fisher[:, i, :, j, :] = block
            fisher[:, j, :, i, :] = block  # symmetric in the answers too
    size = n_features * n_answers
    return gradient, fisher.reshape(n_assessors, size, size)


def project(points: Floats, covariance: Floats, rows: Floats, active: Booleans) -> Floats:
    """Return the nearest points x with rows @ x >= 0, in the metric of their covariances (Hildreth 1957).

    Args:
        points: (n_points, size).
        covariance: (n_points, size, size).
        rows: one constraint per row, (n_constraints, size).
        active: constraints that hold for each point, (n_points, n_constraints).

    """
    moves = covariance @ rows.T  # (n_points, size, n_constraints): change of a point per unit of each multiplier
    curvature = np.maximum(np.einsum("ck,akc->ac", rows, moves), 1e-300)
    projected, multiplier = points.copy(), np.zeros(active.shape)
    for _ in range(MAX_SWEEPS):
        largest = 0.0
        for number, row in enumerate(rows):
            needed = multiplier[:, number] - projected @ row / curvature[:, number]
            change = np.where(active[:, number], np.maximum(needed, 0.0), 0.0) - multiplier[:, number]
            projected += moves[:, :, number] * change[:, None]
            multiplier[:, number] += change
            largest = max(largest, float(np.abs(change * curvature[:, number]).max()))
        if largest < 1e-9:
            break
    return projected


def learn_prior(
    params: Floats, covariance: Floats, first_mean: Floats, first_variance: Floats
) -> tuple[Floats, Floats]:
    """Return the mean and covariance of the parameters over assessors (empirical Bayes).

    `PRIOR_ASSESSORS` pseudo-assessors with the initial prior are added, because a small crowd determines little.

    Args:
        params: (n_assessors, n_parameters).
        covariance: covariances of the parameters of each assessor, (n_assessors, n_parameters, n_parameters).
        first_mean: initial prior mean, (n_parameters,).
        first_variance: initial prior variance, (n_parameters,).

    """
    n = len(params) + PRIOR_ASSESSORS
    mean = (params.sum(axis=0) + PRIOR_ASSESSORS * first_mean) / n
    away = params - mean
    total = away.T @ away + covariance.sum(axis=0) + PRIOR_ASSESSORS * np.diag(first_variance)
    return mean, total / n


def careful_curves(judgments: Floats, likelihood: Floats) -> Floats:
    """Return P(answer | node) of a typical careful assessor, (n_answers, n_nodes).

    This is the mean over assessors, weighted by judgments and squared informativeness: a crowd may be mostly careless.

    Args:
        judgments: number of judgments, (n_assessors,).
        likelihood: P(answer | node), (n_assessors, n_answers, n_nodes).

    """
    informativeness = np.concatenate([information(PRIOR, likelihood[block])[0] for block in blocks(len(likelihood))])
    weights = judgments * (informativeness**2 + 1e-9)
    curves: Floats = np.einsum("a,agm->gm", weights / weights.sum(), likelihood)
    return curves
