"""Draw documents with known probabilities, more often those that tell systems apart."""

from __future__ import annotations

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.estimation.by_document import document_gains, document_weights, expected_gains
from crowdrank.evaluation.alignment import NO_GOLD, Alignment
from crowdrank.evaluation.measures import Measure


def comparison_sizes(alignments: list[Alignment], measure: Measure) -> Floats:
    """Return how much an error in the grade of each row of the gold changes a comparison of runs, (n_gold,).

    It is |w| sqrt(E (G - G^)^2): the weight of the document in the difference of a run to the mean of the runs (root
    of the sum of squares over the runs), times the standard deviation of its gain by the probabilities of its grades.
    Labels are often too sure, so that the mean variance of all documents counts as much as that of the document.

    Args:
        alignments: the runs, joined with the same gold: the labels.
        measure: DCG, nDCG or P.

    """
    n_rows = len(alignments[0].grades.grades)
    weights = []
    for aligned in alignments:
        ranking, weight = aligned.ranking, document_weights(aligned, measure)
        is_known = ranking.row != NO_GOLD
        weights.append(np.bincount(ranking.row[is_known], weight[is_known], n_rows))
    differences = np.array(weights)
    if len(weights) > 1:
        differences -= differences.mean(axis=0)
    return np.asarray(np.sqrt((differences**2).sum(axis=0) * gain_variances(alignments[0], measure)))


def gain_variances(aligned: Alignment, measure: Measure) -> Floats:
    """Return the variance of the gain of each row of the gold, plus the mean variance; 1 if all grades are certain."""
    mean = expected_gains(aligned, measure)[:-1]
    square = aligned.grades.expected(lambda grade: document_gains(grade, measure) ** 2)[:-1]
    variance = np.maximum(square - mean**2, 0.0)
    return variance + variance.mean() if variance.any() else np.ones(len(variance))


def draw_probabilities(sizes: Floats, n_drawn: int, floor: float) -> Floats:
    """Return probabilities with the sum `n_drawn` that are proportional to the sizes, at most 1, and above a floor.

    Args:
        sizes: (n,) sizes of at least 0.
        n_drawn: number of documents to draw.
        floor: share of the draws that is spread evenly over all documents.

    >>> draw_probabilities(np.array([1.0, 1.0, 6.0, 0.0]), 2, 0.2)
    array([0.42857143, 0.42857143, 1.        , 0.14285714])

    """
    n = len(sizes)
    if n_drawn >= n:
        return np.ones(n)
    share = np.full(n, 1 / n)
    if sizes.sum() > 0:
        share = floor / n + (1 - floor) * sizes / sizes.sum()
    probability = np.zeros(n)
    is_certain = np.zeros(n, np.bool_)
    while True:
        rest = n_drawn - int(is_certain.sum())
        probability[is_certain] = 1.0
        probability[~is_certain] = rest * share[~is_certain] / share[~is_certain].sum()
        above = (probability > 1) & ~is_certain
        if not above.any():
            return probability
        is_certain |= above


def draw(probability: Floats, rng: np.random.Generator) -> Integers:
    """Draw documents with given probabilities of inclusion; return their indices, as many as the probabilities sum to.

    Systematic sampling of the documents in random order (Madow 1949).

    >>> draw(np.array([1.0, 0.5, 0.5]), np.random.default_rng(0)).tolist()
    [0, 1]
    """
    order = rng.permutation(len(probability))
    bounds = np.append(0.0, np.cumsum(probability[order]))
    bounds[-1] = np.round(bounds[-1])  # without rounding errors, the number of documents is always the same
    return np.sort(order[np.diff(np.floor(bounds + rng.random())) > 0])
