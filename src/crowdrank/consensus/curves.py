"""Grade curves of assessors: P(answer | relevance, difficulty) from one Gaussian per answer (GDA, eq. 1).

The log density of answer g at relevance r and difficulty eps is, up to a constant that all answers share,

    log alpha_g - log(w_g) / 2 - (r - mu_g)^2 / (2 w_g eps)
        = log alpha_g - log(w_g) / 2 + (a_g r - w_g a_g^2 / 2 - r^2 / (2 w_g)) / eps

with the slope a_g = mu_g / w_g. It is linear in the features r / eps, 1, 1 / eps and r^2 / eps: P(answer | state) is a
multinomial logistic regression on features of the state, a pair of difficulty and relevance.

- With difficulty the parameters of an assessor are slopes, log alpha and log widths (one, or one per answer); they
  determine all coefficients. How often the crowd uses each grade is the mean of log alpha over assessors, whose prior
  is wide. With a narrow one, difficulty would explain the use of the grades and follow relevance.
- At eps = 1 the data do not identify the widths. The parameters are then the coefficients of r, of 1 and, with a width
  per answer, of r^2. The regression is concave in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crowdrank._numba import njit
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.latent import normal_quantiles, softmax

PRIOR_ASSESSORS = 5.0
"""Number of pseudo-assessors with the initial prior when the prior is learned."""
MIN_LABELS_PER_PARAMETER = 2.0
"""Minimum number of labels per parameter of assessors from whom the prior of the shape of curves is learned."""
RELATIVE_SHAPE_VARIANCE = 0.3
"""Prior variance of the shape of curves as a multiple of the initial variance, if no assessor has enough labels."""
RELATIVE_CURVATURE_VARIANCE = 0.03
"""The same multiple for the coefficients of squared relevance; it is small, because they overfit few labels."""
MEAN_LOG_ALPHA_SD = 2.0
"""Prior standard deviation of the mean of log alpha over assessors; wide enough for rare grades."""
SLOPE_SD = 0.5
"""Initial prior standard deviation of slopes."""
OFFSET_SD = 0.7
"""Initial prior standard deviation of offsets, or of log alpha."""
LOG_WIDTH_SD = 0.5
"""Initial prior standard deviation of log widths."""
CURVATURE_SD = 0.25
"""Initial prior standard deviation of the coefficients of squared relevance."""
INITIAL_HIGHEST_SLOPE = 1.2
"""Initial slope of the highest grade without difficulty; that of the lowest grade is its negative."""
UNJUDGEABLE_SLOPE = -0.5
"""Initial slope of the answer 'cannot judge'."""
INITIAL_WIDTH = 0.7
"""Initial prior median of the widths."""
MAX_LOG_WIDTH_STEP = 1.0
"""Maximum change of a log width in one step."""
ORDERED_RANGE = 3.0
"""Absolute relevance up to which the order of grades is enforced if each grade has its own width."""
MAX_HILDRETH_SWEEPS = 1_000
"""Maximum number of sweeps over the constraints in the projection by Hildreth's method."""
ASSESSORS_PER_BLOCK = 1_024
"""Number of assessors per Newton step, so that their intermediate arrays stay in the CPU cache."""


@dataclass(frozen=True, eq=False)
class GaussianCurves:
    """Parametrization of P(answer | state) of assessors; a state is a difficulty and a relevance of a document.

    Args:
        difficulties: grid of document difficulties, (n_difficulties,), whose middle is 1.
        tied_variance: one width per assessor instead of one per answer.
        nodes: grid of relevance, (n_nodes,).

    A state is a pair of difficulty and node, all nodes of the first difficulty first. Parameters have the shape
    (n_assessors, n_parameters), in blocks of n_answers: slopes; offsets, or log alpha with difficulty; coefficients of
    r^2, or log widths with difficulty. A common log width is a single column.

    >>> GaussianCurves(np.ones(1), tied_variance=True, nodes=np.linspace(-3, 3, 7)).features.shape
    (7, 2)
    """

    difficulties: Floats
    tied_variance: bool
    nodes: Floats

    @property
    def has_difficulty(self) -> bool:
        """Whether the model has a difficulty of documents."""
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
        """Return the number of answers, from the number of columns of the parameters."""
        return int(params.shape[-1]) // (2 if self.tied_variance else 3)

    def initial_sd(self, n_answers: int) -> Floats:
        """Return the initial prior standard deviation of every parameter."""
        n_last = n_answers if not self.tied_variance else int(self.has_difficulty)
        last_sd = LOG_WIDTH_SD if self.has_difficulty else CURVATURE_SD
        return np.repeat([SLOPE_SD, OFFSET_SD, last_sd], [n_answers, n_answers, n_last])

    def initial_mean(self, answer_counts: Floats, n_grades: int) -> Floats:
        """Return the initial prior mean of every parameter.

        Slopes are in grade order, because the data do not determine the sign of relevance.

        Args:
            answer_counts: how often each answer was given, (n_answers,); NaN if the scale has no such answer.
            n_grades: number of answers that are grades; an answer after them means 'cannot judge'.

        """
        n, graded = len(answer_counts), ~np.isnan(answer_counts[:n_grades])
        log_used = np.log(answer_counts + 1.0)
        slopes, offsets = np.full(n, UNJUDGEABLE_SLOPE), np.nan_to_num(log_used - np.nanmean(log_used))
        slopes[:n_grades] = 0.0
        if self.has_difficulty:
            slopes[:n_grades][graded] = grade_means(answer_counts[:n_grades][graded]) / INITIAL_WIDTH
            offsets[:n_grades] = 0.0
        elif graded.sum() > 1:
            slopes[:n_grades][graded] = np.linspace(-INITIAL_HIGHEST_SLOPE, INITIAL_HIGHEST_SLOPE, graded.sum())
        rest = np.full(len(self.initial_sd(n)) - 2 * n, np.log(INITIAL_WIDTH) if self.has_difficulty else 0.0)
        return np.concatenate([slopes, offsets, rest])

    def fixed_variances(self, n_answers: int, n_grades: int) -> Floats:
        """Return the prior variances that are not learned, (n_parameters,); NaN for those that are.

        With difficulty, the data hardly distinguish the spread of log alpha from that of widths and means. The prior of
        the grades' log alpha and of widths then has a fixed variance; its mean is learned as the shape of curves is.
        """
        variances = np.full(len(self.initial_sd(n_answers)), np.nan)
        if self.has_difficulty:
            variances[n_answers : n_answers + n_grades] = RELATIVE_SHAPE_VARIANCE * OFFSET_SD**2
            variances[2 * n_answers :] = LOG_WIDTH_SD**2
        return variances

    def learn_prior(
        self,
        params: Floats,
        covariance: Floats,
        initial_mean: Floats,
        n_labels: Floats,
        missing: Booleans,
        fixed_variances: Floats,
        weights: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the mean and covariance of the parameters over assessors (empirical Bayes).

        A shift of an assessor's curves along relevance (strict or lenient) and a change of their unit (steep or flat)
        can be estimated from a few labels; other changes of shape would overfit them. So the covariance of shift and
        unit is learned from all assessors, and that of the shape only from those with more than
        `MIN_LABELS_PER_PARAMETER` labels per parameter. A constant that is added to the coefficients of all answers
        does not change probabilities; its prior is not learned.

        Args:
            params: (n_assessors, n_parameters).
            covariance: posterior covariance of the parameters of each assessor.
            initial_mean: initial prior mean, (n_parameters,).
            n_labels: number of labels of each assessor, (n_assessors,).
            missing: answers that the scale does not have, (n_answers,).
            fixed_variances: prior variances that are not learned, (n_parameters,); NaN for others.
            weights: weight of each assessor, (n_assessors,); by default 1.

        """
        own = np.ones(len(params)) if weights is None else weights
        sd = self.initial_sd(len(missing))
        constants = self._unidentified_directions(missing)
        identified = np.eye(len(sd)) - constants.T @ constants
        fixed, is_last = ~np.isnan(fixed_variances), np.arange(len(sd)) >= 2 * len(missing)
        wide = np.where(fixed & ~is_last, fixed_variances / MEAN_LOG_ALPHA_SD**2, PRIOR_ASSESSORS)
        long_tasks = long_task_weights(n_labels, len(sd) - len(constants) - fixed.sum(), own)
        of_all, of_long = ((one @ params + wide * initial_mean) / (one.sum() + wide) for one in (own, long_tasks))
        mean = np.where(fixed, of_long, sd * (identified @ (of_all / sd)))
        away = (params - mean) / sd @ identified
        spread = identified @ (covariance / np.outer(sd, sd)) @ identified
        directions = self._location_scale_derivatives(mean) / sd @ identified * ~fixed
        is_curvature = is_last & (not self.has_difficulty)
        relative = np.sqrt(np.where(is_curvature, RELATIVE_CURVATURE_VARIANCE, RELATIVE_SHAPE_VARIANCE))
        squares, long_squares = ((away.T * w) @ away + np.tensordot(w, spread, axes=1) for w in (own, long_tasks))
        learned = learn_covariance(
            squares, own.sum(), long_squares, long_tasks.sum(), directions, identified, relative[:, None] * relative
        )
        learned = (learned + constants.T @ constants) * np.outer(sd, sd)
        learned = np.where(np.logical_or.outer(fixed, fixed), np.diag(np.nan_to_num(fixed_variances)), learned)
        return mean, (learned + learned.T) / 2

    def _unidentified_directions(self, missing: Booleans) -> Floats:
        """Return orthonormal directions, (n, n_parameters), that change no probability: a constant for all answers."""
        n_params = len(self.initial_sd(len(missing)))
        if self.has_difficulty:
            return np.zeros((0, n_params))
        constants = np.kron(np.eye(n_params // len(missing)), ~missing)
        return np.asarray(constants / np.sqrt((~missing).sum()))

    def _location_scale_derivatives(self, params: Floats) -> Floats:
        """Return the derivatives of `standardized` by location and by log scale, (2, n_parameters)."""
        step = 1e-4
        moved = np.stack([self.standardized(params, step, 1.0), self.standardized(params, 0.0, 1.0 + step)])
        return np.asarray((moved - params) / step)

    def coefficients(self, params: Floats) -> Floats:
        """Return the coefficients of the multinomial regression on `features`, (n_assessors, n_features, n_answers)."""
        n = self.n_answers(params)
        if not self.has_difficulty:
            return params.reshape(len(params), self.features.shape[1], n)
        slopes, log_alpha, log_widths = params[:, :n], params[:, n : 2 * n], params[:, 2 * n :]
        widths = np.exp(log_widths)
        by_ease = -0.5 * widths * slopes**2
        if self.tied_variance:
            return np.stack([slopes, log_alpha, by_ease], axis=1)
        return np.stack([slopes, log_alpha - 0.5 * log_widths, by_ease, -0.5 / widths], axis=1)

    def standardized(self, params: Floats, location: float, scale: float) -> Floats:
        """Return the parameters of the same curves as functions of (relevance - location) / scale."""
        n = self.n_answers(params)
        slopes, offsets, last = np.split(params, [n, 2 * n], axis=-1)
        if self.has_difficulty:
            slopes, last = scale * (slopes - location * np.exp(-last)), last - 2 * np.log(scale)
        elif self.tied_variance:
            slopes, offsets = scale * slopes, offsets + location * slopes
        else:
            offsets = offsets + location * (slopes + location * last)
            slopes, last = scale * (slopes + 2 * location * last), scale**2 * last
        return np.concatenate([slopes, offsets, last], axis=-1)

    def standardized_covariance(self, covariance: Floats, params: Floats, location: float, scale: float) -> Floats:
        """Return the covariance of `standardized` parameters, by numerical derivatives at `params` (delta method)."""
        step = 1e-4
        changed = self.standardized(params + step * np.eye(len(params)), location, scale)
        jacobian = (changed - self.standardized(params, location, scale)) / step
        return np.asarray(jacobian.T @ covariance @ jacobian)

    def _jacobian(self, params: Floats) -> Floats:
        """Return the derivatives of `coefficients`, (n_assessors, n_features * n_answers, n_parameters)."""
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
            jacobian[:, 1, answer, width_column] = -0.5
            jacobian[:, 3, answer, width_column] = 0.5 / widths
        return jacobian.reshape(len(params), -1, n_params)

    def probabilities(self, params: Floats, missing: Booleans | None = None, plain: bool = False) -> Floats:
        """Return P(answer | state), (n_assessors, n_answers, n_states); 0 for `missing` answers.

        Args:
            params: parameters, (n_assessors, n_parameters).
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
            for block in assessor_blocks(len(params))
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

        def objective(tried: Floats, probabilities: Floats) -> Floats:
            away = (tried - mean)[:, :, None]
            penalty: Floats = 0.5 * (away.transpose(0, 2, 1) @ precision @ away)[:, 0, 0]
            gain: Floats = (counts * np.log(np.maximum(probabilities, 1e-300))).sum(axis=(1, 2))
            return gain - penalty

        def move(length: Floats) -> Floats:
            if n_ordered is None:
                return params + length * step
            return self.in_grade_order(params, length * step, covariance, n_ordered)

        before, length = objective(params, probabilities), np.ones((len(params), 1))
        if self.has_difficulty:
            widest = np.abs(step[:, 2 * self.n_answers(params) :]).max(axis=1, keepdims=True)
            length /= np.maximum(widest / MAX_LOG_WIDTH_STEP, 1.0)
        for _ in range(8):
            tried = move(length)
            worse = objective(tried, self.probabilities(tried, missing)) < before - 1e-9
            if not worse.any():
                break
            length[worse] /= 2
        else:
            length[worse] = 0.0
        return move(length), covariance

    def in_grade_order(self, params: Floats, step: Floats, covariance: Floats, n_ordered: Integers) -> Floats:
        """Return the point nearest to params + step, in the metric of the covariance, whose answers are in order.

        Answers are in order if the slope of log P(g + 1) / P(g) over relevance is not negative. With one width this
        means mu_g <= mu_(g + 1). With a width per answer the slope depends on relevance; it is then not negative
        within +-ORDERED_RANGE, which implies the order of all means in this range.

        >>> curves = GaussianCurves(np.ones(1), tied_variance=True, nodes=np.zeros(1))
        >>> step = np.array([[0.5, -0.5, 0.0, 0.0]])
        >>> curves.in_grade_order(np.zeros((1, 4)), step, np.eye(4)[None], np.array([2])).tolist()
        [[0.0, 0.0, 0.0, 0.0]]
        """
        n = self.n_answers(params)
        active = np.arange(n - 1) < n_ordered[:, None] - 1
        rises = np.diff(np.eye(params.shape[1]), axis=0)[: n - 1]  # slope of g + 1 minus slope of g
        if self.tied_variance:
            return project_onto_constraints(params + step, covariance, rises, active)
        # The slope of a score at relevance r is a_g + 2 c_g r, with the coefficient c_g of r^2.
        curvatures = 2 * ORDERED_RANGE * np.roll(rises, 2 * n, axis=1)
        rows, active = np.vstack([rises - curvatures, rises + curvatures]), np.hstack([active, active])
        if not self.has_difficulty:
            return project_onto_constraints(params + step, covariance, rows, active)
        scale = np.ones(params.shape)
        scale[:, 2 * n :] = 0.5 * np.exp(-params[:, 2 * n :])  # derivative of c_g = -1 / (2 w_g) in log w_g
        point = np.hstack([params[:, : 2 * n], -scale[:, 2 * n :]]) + scale * step
        point = project_onto_constraints(point, scale[:, :, None] * covariance * scale[:, None, :], rows, active)
        point[:, 2 * n :] = -np.log(2 * np.maximum(-point[:, 2 * n :], 0.1 * scale[:, 2 * n :]))
        return point

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
            curvatures = params[:, 2 * n :] if not self.tied_variance else np.zeros(slopes.shape)
            slopes, precision = _standardized_gaussians(slopes, offsets, np.where(missing, -np.inf, curvatures))
            offsets = offsets + 0.5 * slopes**2 / precision - 0.5 * np.log(precision)
        mu, width, alpha = slopes / precision, 1 / precision, softmax(offsets, axis=1)
        return np.where(missing, np.nan, mu), np.where(missing, np.nan, width), np.where(missing, np.nan, alpha)


def _standardized_gaussians(slopes: Floats, offsets: Floats, curvatures: Floats) -> tuple[Floats, Floats]:
    """Return mu_g / w_g and 1 / w_g of Gaussians whose mixture has mean 0 and variance 1.

    Adding a constant to all slopes or to all precisions does not change P(answer | r). For each precision the mean of
    the mixture rises with the constant of the slopes; its variance falls from infinity to 0 as the precision rises.
    """
    relative = -2 * curvatures
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
    """Return the root of an increasing function between bounds, elementwise, by bisection.

    >>> bisect(lambda x: x - 1.0, np.array([0.0]), np.array([4.0])).round(6).tolist()
    [1.0]
    """
    for _ in range(50):
        middle = (lower + upper) / 2
        below = function(middle) < 0
        lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
    return (lower + upper) / 2


def assessor_blocks(n_assessors: int) -> list[slice]:
    """Return slices of up to `ASSESSORS_PER_BLOCK` assessors out of `n_assessors`.

    >>> len(assessor_blocks(1_025))
    2
    """
    return [slice(start, start + ASSESSORS_PER_BLOCK) for start in range(0, n_assessors, ASSESSORS_PER_BLOCK)]


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


def project_onto_constraints(points: Floats, covariance: Floats, constraints: Floats, active: Booleans) -> Floats:
    """Return the nearest x with constraints @ x >= 0 by the Mahalanobis distance to each point (Hildreth 1957).

    Args:
        points: (n_points, size).
        covariance: (n_points, size, size).
        constraints: one constraint per row, (n_constraints, size).
        active: whether a constraint applies to a point, (n_points, n_constraints).

    """
    moves = constraints @ covariance  # (n_points, n_constraints, size): change of a point per unit of a multiplier
    curvature = np.maximum((moves * constraints).sum(axis=2), 1e-300)
    projected = points.copy()
    _project_in_place(projected, constraints, moves, curvature, active)
    return projected


@njit(nogil=True)
def _project_in_place(
    points: Floats, constraints: Floats, multiplier_steps: Floats, curvature: Floats, active: Booleans
) -> None:
    """Project points in place onto constraints @ point >= 0 by coordinate ascent of the dual (Hildreth 1957)."""
    n_constraints, size = constraints.shape
    for a in range(len(points)):
        multiplier = np.zeros(n_constraints)
        for _ in range(MAX_HILDRETH_SWEEPS):
            largest = 0.0
            for c in range(n_constraints):
                if not active[a, c]:
                    continue
                value = 0.0
                for k in range(size):
                    value += constraints[c, k] * points[a, k]
                change = max(multiplier[c] - value / curvature[a, c], 0.0) - multiplier[c]
                for k in range(size):
                    points[a, k] += change * multiplier_steps[a, c, k]
                multiplier[c] += change
                largest = max(largest, abs(change * curvature[a, c]))
            if largest < 1e-9:
                break


def grade_means(grade_counts: Floats) -> Floats:
    """Return the mean relevance of each grade if N(0, 1) is cut into consecutive grades with these counts.

    >>> grade_means(np.array([49.0, 49.0])).round(2).tolist()
    [-0.8, 0.8]
    """
    share = (grade_counts + 1.0) / (grade_counts + 1.0).sum()
    edges = normal_quantiles(np.concatenate([[0.0], np.minimum(np.cumsum(share)[:-1], 1.0), [1.0]]))
    means: Floats = -np.diff(np.exp(-0.5 * edges**2)) / np.sqrt(2 * np.pi) / share
    return means


def long_task_weights(n_labels: Floats, n_parameters: int, own: Floats) -> Floats:
    """Return the weights of assessors in the prior of the shape of curves, (n_assessors,).

    They are 0 up to `MIN_LABELS_PER_PARAMETER` labels per parameter, and approach `own`, the weights in
    the other parts of the prior, with more.
    """
    return np.asarray(own * np.maximum(0.0, 1.0 - MIN_LABELS_PER_PARAMETER * n_parameters / np.maximum(n_labels, 1e-9)))


def learn_covariance(
    squares: Floats,
    n: float,
    long_squares: Floats,
    n_long: float,
    directions: Floats,
    identified: Floats,
    relative_shape: Floats,
) -> Floats:
    """Return the covariance of parameters over assessors, in units of their initial standard deviations.

    The covariance along a few directions, which few labels determine, is learned from all assessors; the rest is the
    shape, which is learned from assessors with long tasks. The initial prior counts as `PRIOR_ASSESSORS` assessors.

    Args:
        squares: sum over assessors of the squares of their deviations from the mean plus their posterior covariances,
            (n_parameters, n_parameters).
        n: total weight of the assessors in `squares`.
        long_squares: the same sum with the weights of `long_task_weights`.
        n_long: total weight in `long_squares`.
        directions: (n_directions, n_parameters).
        identified: projection onto the parameters that change probabilities, (n_parameters, n_parameters).
        relative_shape: initial variances of the shape as multiples of the initial variances, (n_parameters, 1) or
            (n_parameters, n_parameters).

    """
    orthonormal = np.linalg.qr(directions.T)[0].T * (np.abs(directions).max(axis=1, keepdims=True) > 0)
    of_all = orthonormal @ (squares + PRIOR_ASSESSORS * identified) @ orthonormal.T / (n + PRIOR_ASSESSORS)
    expected = orthonormal.T @ of_all @ orthonormal + relative_shape * (identified - orthonormal.T @ orthonormal)
    return np.asarray((long_squares + PRIOR_ASSESSORS * expected) / (n_long + PRIOR_ASSESSORS))


def learn_prior(
    params: Floats,
    covariance: Floats,
    initial_mean: Floats,
    initial_sd: Floats,
    fixed: Booleans | bool = False,
    weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the mean and covariance of the parameters over assessors (empirical Bayes).

    `PRIOR_ASSESSORS` pseudo-assessors with the initial prior are added, because a small crowd determines little.

    Args:
        params: (n_assessors, n_parameters).
        covariance: posterior covariances of the parameters, which are added up, (n, n_parameters, n_parameters).
        initial_mean: initial prior mean, (n_parameters,).
        initial_sd: initial prior standard deviation, (n_parameters,).
        fixed: which parameters keep their initial prior, (n_parameters,).
        weights: weight of each assessor in the mean and the spread of `params`, (n_assessors,); None: all are 1.

    """
    total, spread = params.sum(axis=0) if weights is None else weights @ params, covariance.sum(axis=0)
    n = (len(params) if weights is None else weights.sum()) + PRIOR_ASSESSORS
    mean = np.where(fixed, initial_mean, (total + PRIOR_ASSESSORS * initial_mean) / n)
    away = params - mean
    squares = away.T @ (away if weights is None else weights[:, None] * away)
    learned = (squares + spread + PRIOR_ASSESSORS * np.diag(initial_sd**2)) / n
    return mean, np.where(np.logical_or.outer(fixed, fixed), np.diag(initial_sd**2), learned)
