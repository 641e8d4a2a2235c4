"""Paired significance tests, bootstrap intervals and effect sizes over queries.

Values are paired by query; pairs with a NaN (an excluded query) are dropped. All columns of differences share the same
random signs and resamples, so that testing several runs together gives the same result as testing each alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from crowdrank._typing import Floats
from crowdrank.errors import UsageError

_BLOCK = 2**20
"""Maximum number of values in memory at a time."""
_ROUNDING = 1e-12
"""Relative tolerance for rounding errors of sums."""


MIN_P = 0.0005
"""Smallest p-value that is not rounded to 0.000; reports/page.js has the same value."""


def format_p(p: float) -> str:
    """Format a p-value with three decimals, never as 0.

    >>> format_p(0.0312), format_p(0.0001)
    ('0.031', '< 0.001')
    """
    return f"{p:.3f}" if p >= MIN_P else "< 0.001"


def fisher_randomization(a: ArrayLike, b: ArrayLike, *, n: int = 10_000, random_state: int = 0) -> float:
    """Return the two-sided p-value of Fisher's paired randomization test of the difference of means.

    If there are at most `n` sign vectors (queries without a difference do not count), the test is exact; otherwise `n`
    random ones are used and p = (count + 1) / (n + 1).

    Args:
        a: values of one run, (n_queries,).
        b: values of the other run for the same queries, (n_queries,).
        n: maximum number of sign vectors.
        random_state: random seed.

    >>> fisher_randomization([0.9, 0.8, 0.7], [0.5, 0.6, 0.6])
    0.25

    """
    return float(fisher_p_values(_paired(a, b)[:, None], n=n, random_state=random_state)[0])


def paired_t(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of the paired t-test; 1 if all differences are 0 or with fewer than two queries.

    >>> round(paired_t([0.9, 0.8, 0.7], [0.5, 0.6, 0.6]), 4)
    0.1181
    """
    differences = _paired(a, b)
    if differences.size < 2 or not differences.any():
        return 1.0
    mean, spread = _mean_and_spread(differences)
    if spread == 0:
        return 0.0
    t = mean / (spread / np.sqrt(differences.size))
    return float(2 * stdtr(differences.size - 1, -abs(t)))


def bootstrap_interval(
    differences: ArrayLike, level: float = 0.95, n: int = 10_000, random_state: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean difference over queries; NaN if there are no queries.

    >>> low, high = bootstrap_interval([0.1, 0.2, 0.3, 0.2])
    >>> round(low, 3), round(high, 3)
    (0.125, 0.275)
    """
    column = np.asarray(differences, dtype=np.float64)
    low, high = bootstrap_intervals(column[~np.isnan(column)][:, None], level=level, n=n, random_state=random_state)[0]
    return float(low), float(high)


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values adjusted for multiple tests by Holm's method; NaN stays NaN.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.size, np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    steps = p[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def effect_size(a: ArrayLike, b: ArrayLike) -> float:
    """Return the mean difference divided by the standard deviation of the differences; 0 if all differences are 0.

    >>> round(effect_size([0.9, 0.8, 0.7], [0.5, 0.6, 0.6]), 3)
    1.528
    """
    differences = _paired(a, b)
    if not differences.any():
        return 0.0
    if differences.size < 2:
        return float("nan")
    mean, spread = _mean_and_spread(differences)
    return float(mean / spread) if spread > 0 else float(np.copysign(np.inf, mean))


def fisher_p_values(differences: Floats, *, n: int = 10_000, random_state: int = 0) -> Floats:
    """Return the p-value of `fisher_randomization` for each column of differences, (n_queries, n_columns).

    >>> fisher_p_values(np.array([[0.4, 0.0], [0.2, 0.0], [0.1, 0.0]]))
    array([0.25, 1.  ])
    """
    _require_resamples(n)
    p = np.ones(differences.shape[1])
    exact = (differences != 0).sum(axis=0) < n.bit_length()  # 2^k <= n
    for column in np.flatnonzero(exact):
        nonzero = differences[differences[:, column] != 0, column]
        p[column] = _count_as_extreme(nonzero[:, None], _all_signs(nonzero.size))[0] / 2**nonzero.size
    if not exact.all():
        count = _count_as_extreme(differences[:, ~exact], _random_signs(differences.shape[0], n, random_state))
        p[~exact] = (count + 1) / (n + 1)
    return p


def bootstrap_intervals(differences: Floats, *, level: float = 0.95, n: int = 10_000, random_state: int = 0) -> Floats:
    """Return the `bootstrap_interval` of each column of differences (n_queries, n_columns), as (n_columns, 2).

    >>> bootstrap_intervals(np.array([[1.0, 2.0], [1.0, 2.0]]))
    array([[1., 1.], [2., 2.]])
    """
    _require_resamples(n)
    if not 0 < level < 1:
        raise UsageError(f"must be between 0 and 1, such as 0.95, not {level}", parameter="level")
    n_queries, n_columns = differences.shape
    if n_queries == 0:
        return np.full((n_columns, 2), np.nan)
    means = np.concatenate([weights @ differences for weights in _resamples(n_queries, n, random_state)]) / n_queries
    tail = (1 - level) / 2
    return np.asarray(np.quantile(means, [tail, 1 - tail], axis=0).T)


def _paired(a: ArrayLike, b: ArrayLike) -> Floats:
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 1:
        problem = f"values are paired by query, but there are {left.size} and {right.size}"
        raise UsageError(problem, kind="not-paired", fix="give one value of each run per query")
    differences = left - right
    return differences[~np.isnan(differences)]


def _mean_and_spread(differences: Floats) -> tuple[float, float]:
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    return mean, spread if spread > _ROUNDING * abs(mean) else 0.0


def _count_as_extreme(differences: Floats, blocks: Iterator[Floats]) -> NDArray[np.int64]:
    """Count for each column the sign vectors whose sum is at least as far from 0 as the observed sum."""
    observed = np.abs(differences.sum(axis=0)) - _ROUNDING * np.abs(differences).sum(axis=0)
    count = np.zeros(differences.shape[1], dtype=np.int64)
    for signs in blocks:
        count += (np.abs(signs @ differences) >= observed).sum(axis=0)
    return count


def _all_signs(n_queries: int) -> Iterator[Floats]:
    block = max(1, _BLOCK // max(1, n_queries))
    for start in range(0, 2**n_queries, block):
        codes = np.arange(start, min(start + block, 2**n_queries))
        yield _as_signs((codes[:, None] >> np.arange(n_queries)) & 1)


def _random_signs(n_queries: int, n: int, random_state: int) -> Iterator[Floats]:
    rng = np.random.default_rng(random_state)
    block, width = max(1, _BLOCK // n_queries), (n_queries + 7) // 8
    for start in range(0, n, block):
        rows = min(block, n - start)
        packed = np.frombuffer(rng.bytes(rows * width), dtype=np.uint8).reshape(rows, width)
        yield _as_signs(np.unpackbits(packed, axis=1, count=n_queries))


def _as_signs(bits: NDArray[Any]) -> Floats:
    return 2 * bits.astype(np.float64) - 1


def _resamples(n_queries: int, n: int, random_state: int) -> Iterator[Floats]:
    """Yield blocks of bootstrap weights: how often each query is drawn, (n_resamples, n_queries)."""
    rng = np.random.default_rng(random_state)
    block = max(1, _BLOCK // n_queries)
    for start in range(0, n, block):
        rows = min(block, n - start)
        drawn = rng.integers(0, n_queries, size=(rows, n_queries)) + np.arange(rows)[:, None] * n_queries
        times = np.bincount(drawn.ravel(), minlength=rows * n_queries)
        yield times.reshape(rows, n_queries).astype(np.float64)


def _require_resamples(n: int) -> None:
    if n < 1:
        raise UsageError(f"must be at least 1, not {n}", parameter="n")
