"""Probabilities of the grades of assessors in GDA-PW, for one document and for two."""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Arrays, Floats
from crowdrank.consensus.information import pair_information
from crowdrank.consensus.latent import NODES, PRIOR, softmax

ASSESSORS_PER_BLOCK = 4096
"""Number of assessors for which pairwise informativeness is computed at once."""
QUADRATURE = np.polynomial.hermite_e.hermegauss(7)
"""Nodes and weights of Gauss-Hermite quadrature."""


def answer_curves(theta: Arrays) -> Floats:
    """Return P(grade | node) of assessors, averaged over partners, (n_assessors, n_grades, n_nodes)."""
    mu, log_alpha, log_width = np.split(theta["params"], 3, axis=1)
    mean, variance, log_factor = theta["residuals"]
    offset, precision = log_alpha - 0.25 * log_width, np.exp(log_factor - 0.5 * log_width)
    total = np.zeros((*mu.shape, len(NODES)))
    nodes, weights = QUADRATURE
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        off = theta["unit"][0] * NODES - mean - node * np.sqrt(variance) - mu[:, :, None]
        total += weight * softmax(offset[:, :, None] - 0.5 * precision[:, :, None] * off**2, axis=1)
    return total


def pairwise_informativeness(params: Floats) -> Floats:
    """Return the information of two grades of an assessor about the difference of documents, per judgment (eq. 11)."""
    blocks = [params[start : start + ASSESSORS_PER_BLOCK] for start in range(0, len(params), ASSESSORS_PER_BLOCK)]
    return np.concatenate([pair_information(PRIOR, pair_curves(block))[0] for block in blocks])


def pair_curves(params: Floats) -> Floats:
    """Return p(g | g', difference) of assessors who judge both documents; the difference is N(0, 2) on the nodes."""
    # (n_assessors, 3 n_grades) -> (n_assessors, n_grades, n_grades, n_nodes) by g, g'
    mu, log_alpha, log_width = np.split(params, 3, axis=1)
    precision = np.exp(-0.5 * (log_width[:, :, None] + log_width[:, None, :]))[..., None]
    off = np.sqrt(2.0) * NODES - (mu[:, :, None] - mu[:, None, :])[..., None]
    return softmax((log_alpha - 0.25 * log_width)[:, :, None, None] - 0.5 * off**2 * precision, axis=1)
