"""Bounds for looking at a comparison several times while grades arrive (group-sequential tests).

Each look tests the difference so far. With the usual bound 1.96 at each of five looks, 14% of equal systems would be
called different. The bounds here keep the probability that any look does so at alpha.

At information fractions t_1 < ... < t_K the statistics are Z_k = B(t_k) / sqrt(t_k) for a Brownian motion B.
O'Brien and Fleming (1979): |Z_k| >= C / sqrt(t_k), hardly ever early, and close to a single test at the end. Lan and
DeMets (1983): looks at any fractions; each side spends 2 - 2 Phi(z / sqrt(t)) up to t, where z is the quantile of
alpha / 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from crowdrank._typing import Floats
from crowdrank.errors import UsageError

N_GRID = 401
"""Number of points of the grid on which the density of B is computed at each look."""
MAX_BOUND = 8.0
"""Bound that stands for infinity: a normal variable exceeds it with a probability of about 1e-15."""


def obrien_fleming_bounds(n_looks: int, alpha: float = 0.05) -> Floats:
    """Return the bounds of |Z| at each of n equally spaced looks, (n_looks,).

    >>> obrien_fleming_bounds(5).round(2).tolist()
    [4.56, 3.23, 2.63, 2.28, 2.04]
    """
    fractions = np.arange(1, n_looks + 1) / n_looks

    def excess(constant: float) -> float:
        return crossing_probability(constant / np.sqrt(fractions), fractions) - alpha

    constant = float(brentq(excess, float(-ndtri(alpha / 2)) - 1e-6, MAX_BOUND, xtol=1e-10))
    return np.asarray(constant / np.sqrt(fractions))


def lan_demets_bounds(fractions: Sequence[float] | Floats, alpha: float = 0.05) -> Floats:
    """Return the bounds of |Z| at looks at any information fractions, (n_looks,).

    The bound of a look depends on the looks before it only, so that looks need not be planned.

    Args:
        fractions: (n_looks,) ascending fractions of the planned information, above 0; from 1 on, all of alpha is spent.
        alpha: probability that any look exceeds its bound if there is no difference.

    >>> lan_demets_bounds([0.2, 0.4, 0.6, 0.8, 1.0]).round(2).tolist()
    [4.88, 3.36, 2.68, 2.29, 2.03]

    """
    times = np.asarray(fractions, dtype=np.float64)
    if not len(times) or times[0] <= 0 or (np.diff(times) <= 0).any():
        raise UsageError("must be ascending and above 0", parameter="fractions", kind="looks-out-of-order")
    spent, bounds = spent_alpha(times, alpha), list[float]()
    for look in range(len(times)):
        target, seen = float(spent[look]), times[: look + 1]

        def excess(bound: float, target: float = target, seen: Floats = seen) -> float:
            return crossing_probability(np.array([*bounds, bound]), seen) - target

        bounds.append(MAX_BOUND if excess(MAX_BOUND) >= 0 else float(brentq(excess, 0.0, MAX_BOUND, xtol=1e-10)))
    return np.array(bounds)


def spent_alpha(fractions: Floats, alpha: float) -> Floats:
    """Return the probability that may be spent up to each fraction of the information, (n_looks,).

    >>> spent_alpha(np.array([0.5, 1.0]), 0.05).round(4).tolist()
    [0.0031, 0.05]
    """
    return np.asarray(4 * ndtr(ndtri(alpha / 4) / np.sqrt(np.minimum(fractions, 1.0))))


def repeated_p_value(z: float, look: int, bounds: Floats, fractions: Floats) -> float:
    """Return the p-value of a look: the smallest alpha at which a bound of O'Brien and Fleming is reached.

    It is valid at every look (Jennison and Turnbull 1984).

    Args:
        z: statistic of the look.
        look: number of the look, from 1.
        bounds: (n_looks,) bounds of all planned looks, in any multiple.
        fractions: (n_looks,) information fractions.

    >>> bounds = obrien_fleming_bounds(5)
    >>> round(repeated_p_value(bounds[2], 3, bounds, np.arange(1, 6) / 5), 4)
    0.05

    """
    return crossing_probability(bounds * (abs(z) / bounds[look - 1]), fractions)


def spending_p_value(z: float, fractions: Floats) -> float:
    """Return the p-value of the last look: the smallest alpha at which the bound of Lan and DeMets is reached.

    Args:
        z: statistic of the last look.
        fractions: (n_looks,) information fractions of the looks so far.

    >>> round(spending_p_value(lan_demets_bounds([0.3, 0.7])[1], np.array([0.3, 0.7])), 3)
    0.05

    """

    def excess(log_alpha: float) -> float:
        return float(lan_demets_bounds(fractions, float(np.exp(log_alpha)))[-1]) - abs(z)

    low, high = np.log(1e-9), np.log(0.999)
    if excess(high) >= 0:
        return 1.0
    return 0.0 if excess(low) <= 0 else float(np.exp(brentq(excess, low, high, xtol=1e-4)))


def crossing_probability(bounds: Floats, fractions: Floats) -> float:
    """Return the probability that |Z_k| >= bounds[k] at any look, if there is no difference.

    The density of B on the continuation region is integrated from look to look (Armitage, McPherson and Rowe 1969).

    Args:
        bounds: (n_looks,) bounds of |Z|.
        fractions: (n_looks,) ascending information fractions.

    >>> round(crossing_probability(np.full(5, 1.959964), np.arange(1, 6) / 5), 3)
    0.142

    """
    limits = np.minimum(bounds, MAX_BOUND) * np.sqrt(fractions)
    grid, density, crossed, before = np.zeros(1), np.ones(1), 0.0, 0.0
    for limit, time in zip(limits, fractions, strict=True):
        scale = np.sqrt(time - before)
        outside = ndtr((-limit - grid) / scale) + ndtr((grid - limit) / scale)
        crossed += float(density @ outside)
        points = np.linspace(-limit, limit, N_GRID)
        steps = (points[:, None] - grid) / scale
        values = np.exp(-(steps**2) / 2) @ density / (scale * np.sqrt(2 * np.pi))
        grid, density, before = points, values * _simpson_weights(N_GRID, points[1] - points[0]), float(time)
    return min(crossed, 1.0)


def _simpson_weights(n_points: int, step: float) -> Floats:
    weights = np.full(n_points, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return weights * step / 3
