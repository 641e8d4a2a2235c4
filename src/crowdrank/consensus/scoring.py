"""Score a consensus by how well it predicts held-out judgments, in the same way for every kind of model.

Votes have no likelihood, and the likelihood of a model on its own training data is too high. Therefore two small models
predict held-out judgments from any consensus: one predicts which of two documents gets the higher grade, the other the
grade itself. Neither corrects the consensus: a reversed ranking or grades that are one step too high score badly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdrank.judgments.table import Judgments

BINS = 10
"""Number of equal bins of a query's ranking."""
KAPPA = 5.0
"""Weight of the prior that an assessor answers like all assessors, in judgments."""
STEEP = (0.5, 1.0, 1.5, 2.0, 3.0, 6.0)
"""Candidate decay rates: an answer d steps from the grade has a probability proportional to exp(-rate d)."""
TIED = 9
"""Number of decimals of relevance that count; documents that are equal in them are tied."""
PASSES = 30
"""Number of EM iterations, more than are needed for convergence."""

Codes = NDArray[np.integer]
Numbers = NDArray[np.float64]


def folds(judgments: Judgments, most: int) -> NDArray[np.int64]:
    """Return the fold of each judgment; all judgments of a family (or of an assessor without one) share a fold.

    Families are assigned by size, so that the at most `most` folds have similar sizes. Neither the order of rows nor
    ids matter: families of equal size are ordered by their judgments.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = {"document": ["a", "a", "a", "b"], "assessor": ["x", "y", "z", "z"], "grade": [0, 1, 2, 2]}
    >>> folds(read_judgments(pd.DataFrame(votes)), 2).tolist()
    [1, 1, 0, 0]
    """
    # -> (n,)
    family = judgments.family_of[judgments.assessor]
    grade = judgments.grade.astype(float)
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    size, total = np.diff(judgments.offsets)[item], np.bincount(item, weights=grade)[item]
    traits = [np.bincount(family, weights=trait) for trait in (grade * total, total, size, grade**2, grade)]
    order = np.lexsort([*traits, -np.bincount(family)])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    there_and_back = place % (2 * most)
    fold = place if len(order) <= most else np.minimum(there_and_back, 2 * most - 1 - there_and_back)
    return fold[family]


def rank_shares(relevance: Numbers, query: Codes, n_bins: int = BINS) -> Numbers:
    """Return the share of each item in each bin of its query's ranking; tied items share their ranks.

    >>> rank_shares(np.array([0.1, 0.9, 0.5, 0.5]), np.zeros(4, int), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
    """
    # (n_items,), (n_items,) ascending -> (n_items, n_bins)
    n = len(relevance)
    rounded = np.round(relevance, TIED)
    order = np.lexsort((rounded, query))
    new_query = np.append(True, np.diff(query[order]) != 0)
    new_place = new_query | np.append(True, np.diff(rounded[order]) != 0)
    first, last = np.flatnonzero(new_place), np.append(np.flatnonzero(new_place)[1:], n)
    block, of_query = np.cumsum(new_place) - 1, np.cumsum(new_query) - 1
    begin, size = np.flatnonzero(new_query), np.diff(np.append(np.flatnonzero(new_query), n))
    low, high = np.empty(n), np.empty(n)
    low[order] = (first[block] - begin[of_query]) / size[of_query] * n_bins
    high[order] = (last[block] - begin[of_query]) / size[of_query] * n_bins
    part = np.arange(n_bins)
    inside = np.clip(np.minimum(high[:, None], part + 1) - np.maximum(low[:, None], part), 0.0, None)
    shares: Numbers = inside / inside.sum(axis=1, keepdims=True)
    return shares


def pair_counts(group: Codes, item: Codes, answer: Codes, shares: Numbers, n_answers: int) -> Numbers:
    """Count pairs of different answers per group by the number of bins between the two documents.

    Columns go from -(n_bins - 1), the higher answer is ranked lowest, to n_bins - 1, it is ranked highest. The
    documents of a pair are different, and every judgment has the same weight, whatever the size of its group.

    >>> shares = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> pair_counts(np.array([0, 0]), np.array([5, 6]), np.array([2, 0]), shares, 3).tolist()
    [[0.0, 0.0, 1.0]]
    """
    # (n,), (n,), (n,), (n, n_bins) -> (n_groups, 2 n_bins - 1)
    pairs = _pairs(group, answer, shares, n_answers)
    cell = group.astype(np.int64) * (int(item.max()) + 1) + item
    _, first, cell = np.unique(cell, return_index=True, return_inverse=True)
    if len(first) < len(cell):  # several judgments of one document are not of two
        np.subtract.at(pairs, group[first], _pairs(cell, answer, shares, n_answers))
    counted: Numbers = np.maximum(pairs, 0.0) / np.maximum(np.bincount(group) - 1, 1)[:, None]
    return counted


def _pairs(group: Codes, answer: Codes, shares: Numbers, n_answers: int) -> Numbers:
    # (n,), (n,), (n, n_bins) -> (n_groups, 2 n_bins - 1)
    n_groups, n_bins = int(group.max()) + 1, shares.shape[1]
    cell = group.astype(np.int64) * n_answers + answer
    there = np.stack(
        [np.bincount(cell, weights=share, minlength=n_groups * n_answers) for share in shares.T], axis=1
    ).reshape(n_groups, n_answers, n_bins)
    lower = np.cumsum(there, axis=1) - there
    pairs = np.zeros((n_groups, 2 * n_bins - 1))
    for high in range(n_bins):
        for low in range(n_bins):
            pairs[:, high - low + n_bins - 1] += (there[:, :, high] * lower[:, :, low]).sum(axis=1)
    return pairs


def score_pairs(pairs: Numbers, fold: Codes, weight: Numbers) -> float:
    """Return the mean log probability that the document with the higher answer is ranked above the other.

    Its probability by the distance in bins is estimated on the other folds and at least one half; it is one half within
    a bin.

    >>> right, wrong = np.array([[0.0, 0.0, 9.0]] * 2), np.array([[9.0, 0.0, 0.0]] * 2)
    >>> fold, weight = np.array([0, 1]), np.ones(2)
    >>> round(score_pairs(right, fold, weight), 3), round(score_pairs(wrong, fold, weight), 3)
    (-0.051, -0.693)
    """
    # (n_groups, 2 n_bins - 1), (n_groups,), (n_groups,)
    n_bins = pairs.shape[1] // 2 + 1
    by_fold = np.zeros((int(fold.max()) + 1, pairs.shape[1]))
    np.add.at(by_fold, fold, pairs * weight[:, None])
    others = by_fold.sum(axis=0) - by_fold
    above, below = np.maximum(others[:, n_bins:], 0.0), np.maximum(others[:, n_bins - 2 :: -1], 0.0)
    right = np.maximum((above + 0.5) / (above + below + 1.0), 0.5)
    gained = by_fold[:, n_bins:] * np.log(right) + by_fold[:, n_bins - 2 :: -1] * np.log(1 - right)
    return float((gained.sum() + by_fold[:, n_bins - 1].sum() * np.log(0.5)) / by_fold.sum())


def answer_counts(assessor: Codes, answer: Codes, grade: Codes, n_assessors: int, n_answers: int) -> Numbers:
    """Count how often each assessor gave each answer to documents of each grade.

    >>> answer_counts(np.array([0, 0]), np.array([1, 1]), np.array([0, 0]), 1, 2).tolist()
    [[[0.0, 0.0], [2.0, 0.0]]]
    """
    # (n,), (n,), (n,) -> (n_assessors, n_answers, n_grades)
    cell = (assessor.astype(np.int64) * n_answers + answer) * n_answers + grade
    counts = np.bincount(cell, minlength=n_assessors * n_answers**2).astype(float)
    return counts.reshape(n_assessors, n_answers, n_answers)


def score_grades(counts: Numbers, weight: Numbers) -> float:
    """Return the mean leave-one-out log probability of an answer, given the grade of the document.

    The model is a mixture: with a probability of their own, assessors know the document and give its grade or a near
    one; otherwise they answer as often as they use each grade. The decay rate is the same for all, and the best one.

    >>> right, wrong = np.eye(2)[None] * 9, np.eye(2)[None, ::-1] * 9
    >>> score_grades(right, np.ones(1)) > score_grades(wrong, np.ones(1))
    True
    """
    # (n_assessors, n_answers, n_grades), (n_assessors,)
    n_answers = counts.shape[1]
    judged, given = counts.sum(axis=(1, 2))[:, None, None], counts.sum(axis=2, keepdims=True)
    everyone = given.sum(axis=0) / given.sum()
    used = np.maximum(given - 1 + KAPPA * everyone, 1e-300) / (judged - 1 + KAPPA)
    away = np.abs(np.arange(n_answers)[:, None] - np.arange(n_answers))
    weights, found = counts * weight[:, None, None], []
    for steep in STEEP:
        near = np.exp(-steep * away)
        knowing = near / near.sum(axis=0)  # (n_answers, n_grades)
        knows = _share_of_knowing(counts, judged, knowing, used)
        found.append(float((weights * np.log(knows * knowing + (1 - knows) * used)).sum() / weights.sum()))
    return max(found)


def _share_of_knowing(counts: Numbers, judged: Numbers, knowing: Numbers, used: Numbers) -> Numbers:
    """Return the probability that an assessor knows a document, from the other answers; shrunk towards that of all."""
    # (n_assessors, n_answers, n_grades), (n_assessors, 1, 1), (n_answers, n_grades), (n_assessors, n_answers, 1)
    common = 0.5
    for _ in range(PASSES):
        knew = common * knowing / (common * knowing + (1 - common) * used)
        common = float((counts * knew).sum() / counts.sum())
    knows = np.full(judged.shape, common)
    for _ in range(PASSES):
        knew = knows * knowing / (knows * knowing + (1 - knows) * used)
        known = (counts * knew).sum(axis=(1, 2), keepdims=True)
        knows = (known + KAPPA * common) / (judged + KAPPA)
    left_out: Numbers = np.clip((known - knew + KAPPA * common) / (judged - 1 + KAPPA), 0.0, 1.0)
    return left_out
