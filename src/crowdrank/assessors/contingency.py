"""Statistics of each assessor's answers against reference grades of the same documents, from tables of counts."""

from __future__ import annotations

import numpy as np
from scipy.special import chdtrc

from crowdrank._typing import Floats, Grades, Integers
from crowdrank.consensus.information import entropy
from crowdrank.judgments.table import Judgments


def count_pairs(judgments: Judgments, reference: Grades, n_references: int | None = None) -> Integers:
    """Return how often each assessor gave each answer to documents of each reference grade.

    Args:
        judgments: judgments on one scale.
        reference: (n,) reference grade of each judgment's document, as a code; negative if there is none.
        n_references: number of reference grades; by default that of the judgments' scale.

    Returns:
        Counts (n_assessors, n_answers, n_references).

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]}))
    >>> count_pairs(table, np.array([1, 0], np.int8)).tolist()
    [[[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    """
    n_answers = len(judgments.scale)
    n_references = n_answers if n_references is None else n_references
    used = (reference >= 0) & (judgments.grade >= 0)
    answer = judgments.assessor[used].astype(np.int64) * n_answers + judgments.grade[used]
    shape = (judgments.n_assessors, n_answers, n_references)
    cells = np.bincount(answer * n_references + reference[used], minlength=int(np.prod(shape)))
    return np.asarray(cells.reshape(shape))


def _degrees_of_freedom(counts: Integers) -> Integers:
    n_answers, n_references = (counts.any(axis=axis).sum(axis=1) for axis in (2, 1))
    return np.asarray(np.maximum(n_answers - 1, 0) * np.maximum(n_references - 1, 0))


def independence_p_values(counts: Integers) -> Floats:
    """Return per assessor the p-value of the G test that answers are independent of the reference grades.

    >>> independence_p_values(np.array([[[20, 0], [0, 20]], [[10, 10], [10, 10]]])).round(3).tolist()
    [0.0, 1.0]
    """
    g_statistic = 2 * counts.sum(axis=(1, 2)) * mutual_information(counts)[0]
    freedom = _degrees_of_freedom(counts)
    return np.asarray(np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), g_statistic), 1.0))


def mutual_information(counts: Integers) -> tuple[Floats, Floats]:
    """Return the mutual information of answers and reference grades in nats, and its part for each answer.

    The part of an answer is the reduction of the entropy of the reference grades; NaN for answers never given.

    >>> total, parts = mutual_information(np.array([[[5, 0], [0, 5]]]))
    >>> total.round(3).tolist(), parts.round(3).tolist()
    ([0.693], [[0.693, 0.693]])
    """
    n_answer = counts.sum(axis=2)
    n = np.maximum(n_answer.sum(axis=1), 1)
    prior_entropy = entropy(counts.sum(axis=1) / n[:, None])
    posterior_entropy = entropy(counts / np.maximum(n_answer, 1)[:, :, None])
    parts = np.where(n_answer > 0, prior_entropy[:, None] - posterior_entropy, np.nan)
    total = (n_answer * np.nan_to_num(parts)).sum(axis=1) / n
    return np.maximum(total, 0.0), parts


def corrected_information(counts: Integers) -> tuple[Floats, Floats, Floats]:
    """Return the mutual information without its bias in small samples (Miller and Madow), its parts and its error."""
    total, parts = mutual_information(counts)
    n = np.maximum(counts.sum(axis=(1, 2)), 1)
    error = information_sd(counts / n[:, None, None]) / np.sqrt(n)
    return np.maximum(total - _degrees_of_freedom(counts) / (2 * n), 0.0), parts, error


def information_sd(joint: Floats) -> Floats:
    """Return per assessor the standard deviation of log p(answer, state) / (p(answer) p(state)).

    Divided by the square root of the number of judgments it is the standard error of the mutual information.

    Args:
        joint: (n_assessors, n_answers, n_states) joint probabilities.

    >>> information_sd(np.array([[[0.5, 0.0], [0.0, 0.5]], [[0.4, 0.1], [0.1, 0.4]]])).round(2).tolist()
    [0.0, 0.55]
    """
    independent = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    log_ratio = np.log(np.maximum(joint, 1e-300)) - np.log(np.maximum(independent, 1e-300))
    mean = (joint * log_ratio).sum(axis=(1, 2))
    return np.asarray(np.sqrt(np.maximum((joint * log_ratio**2).sum(axis=(1, 2)) - mean**2, 0.0)))


def kendall_tau(counts: Integers) -> Floats:
    """Return Kendall's tau-b of answers and reference grades per assessor; NaN if one of them never varies.

    >>> kendall_tau(np.array([[[5, 0], [0, 5]], [[0, 5], [5, 0]], [[5, 5], [0, 0]]])).tolist()
    [1.0, -1.0, nan]
    """
    table = counts.astype(np.float64)
    higher_answer = table[:, ::-1].cumsum(axis=1)[:, ::-1] - table
    above = higher_answer[:, :, ::-1].cumsum(axis=2)[:, :, ::-1] - higher_answer  # higher answer, higher reference
    below = higher_answer.cumsum(axis=2) - higher_answer  # higher answer, lower reference
    n_pairs = _count_untied(table.sum(axis=2)) * _count_untied(table.sum(axis=1))
    difference = (table * (above - below)).sum(axis=(1, 2))
    return np.asarray(np.divide(difference, np.sqrt(n_pairs), out=np.full(len(table), np.nan), where=n_pairs > 0))


def _count_untied(n_by_grade: Floats) -> Floats:
    """Return the number of pairs of documents with different grades."""
    return np.asarray((n_by_grade.sum(axis=1) ** 2 - (n_by_grade**2).sum(axis=1)) / 2)
