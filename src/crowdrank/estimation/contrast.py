"""Estimates of a mean or of a difference of means, with an interval and a p-value."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from crowdrank._typing import Floats

ROUNDING = 1e-12
"""Standard errors up to this share of the mean are rounding errors of equal values."""


@dataclass(frozen=True)
class ContrastEstimate:
    """Estimate of the mean of a run, or of a difference of two runs, beside what labels or experts alone give.

    Attributes:
        value: the estimate.
        lower: lower end of its interval.
        upper: upper end of its interval.
        p: two-sided p-value of the value 0.
        labels: value from the labels alone.
        experts: value from the expert grades alone; NaN if there are none.
        weight: weight of the labels (lambda); NaN without experts.
        worth: ratio of the variance of experts alone to that of the estimate; NaN without experts.

    """

    value: float
    lower: float
    upper: float
    p: float
    labels: float
    experts: float = float("nan")
    weight: float = float("nan")
    worth: float = float("nan")


@dataclass(frozen=True)
class MeanError:
    """A mean with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: int

    def contrast(self, level: float, labels: float, alone: MeanError, weight: float) -> ContrastEstimate:
        """Return the estimate with its interval of Student's t, given that of experts alone."""
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        worth = (alone.error / self.error) ** 2 if self.error > 0 else float("nan")
        estimate = ContrastEstimate(self.value, self.value - half, self.value + half, self.p, labels, alone.value)
        return replace(estimate, weight=weight, worth=worth)

    @property
    def p(self) -> float:
        """Two-sided p-value of the mean 0; by the sign test if all values are equal, which have no standard error."""
        if self.error <= ROUNDING * abs(self.value):
            return 1.0 if self.value == 0 else 2.0**-self.freedom
        return float(2 * stdtr(self.freedom, -abs(self.value / self.error)))


def sample_mean(values: Floats) -> MeanError:
    """Return the mean of independent values with its standard error.

    >>> sample_mean(np.array([1.0, 2.0, 3.0])).error
    0.5773502691896258
    """
    return MeanError(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values) - 1)
