"""Quantiles of the standard normal distribution, without importing scipy for a few of them."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from crowdrank._typing import Floats

MAX_WITHOUT_SCIPY = 1 << 16
"""Maximum number of quantiles that are computed one by one; importing scipy.special takes longer."""


def normal_quantiles(probabilities: Floats) -> Floats:
    """Return the quantile of each probability; those of 0 and 1 are infinite.

    >>> normal_quantiles(np.array([0.0, 0.5, 1.0])).tolist()
    [-inf, 0.0, inf]
    """
    if probabilities.size > MAX_WITHOUT_SCIPY:
        from scipy.special import ndtri

        return np.asarray(ndtri(probabilities))
    inside = (probabilities > 0.0) & (probabilities < 1.0)
    quantiles = np.where(probabilities < 0.5, -np.inf, np.inf)
    quantiles[inside] = list(map(NormalDist().inv_cdf, probabilities[inside].tolist()))
    return quantiles


def normal_quantile(probability: float) -> float:
    """Return the quantile of one probability between 0 and 1."""
    return NormalDist().inv_cdf(probability)
