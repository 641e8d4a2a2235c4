"""Leave-one-out consensus: what the other assessors say about each judged document.

A consensus that includes an assessor's own answers agrees with them by construction: with five judgments per document
even random answers would look informative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from crowdrank._typing import Booleans, Floats, Grades, Integers
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

States = tuple[Floats, Floats]
"""Prior of the states (n_states,) and likelihood of answers (n_assessors, n_answers, n_states)."""
_BLOCK = 100_000
"""Number of judgments processed at a time; each needs one number per state."""


@dataclass(frozen=True, eq=False)
class LeaveOneOutConsensus:
    """Consensus of the other assessors about the document of each judgment.

    Attributes:
        expected: (n,) expected answer, as a position on the scale; NaN if nobody else judged the document.
        grade: (n,) most probable answer, as a code; UNJUDGEABLE if nobody else judged the document.

    """

    expected: Floats
    grade: Grades

    @property
    def known(self) -> Booleans:
        """Whether another assessor judged the document (n,).

        >>> LeaveOneOutConsensus(np.array([0.5, np.nan]), np.array([0, -1], np.int8)).known.tolist()
        [True, False]
        """
        return np.asarray(self.grade != UNJUDGEABLE)


def crowd_curve(likelihood: Floats, n_judgments: Integers, n_grades: int) -> Floats:
    """Return P(grade | state) of a random judgment of the crowd (n_grades, n_states), without other answers.

    >>> crowd_curve(np.stack([np.eye(2), np.full((2, 2), 0.5)]), np.array([3, 1]), 2).tolist()
    [[0.875, 0.125], [0.125, 0.875]]
    """
    mean = np.tensordot(n_judgments / n_judgments.sum(), likelihood, axes=1)[:n_grades]
    return np.asarray(mean / mean.sum(axis=0))


def leave_one_out_consensus(judgments: Judgments, states: States | None = None) -> LeaveOneOutConsensus:
    """Return the consensus of each document without the assessor of the judgment.

    Args:
        judgments: judgments on one scale.
        states: states of a model; by default the consensus is the share of votes.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a", "a", "b"], "assessor": ["x", "y", "z", "x"],
    ...                                      "grade": [0, 1, 1, 1]}))
    >>> leave_one_out_consensus(table).expected.tolist()
    [1.0, 0.5, 0.5, nan]
    """
    n_grades = len(judgments.scale)
    expected, grade = np.full(len(judgments), np.nan), np.full(len(judgments), UNJUDGEABLE, np.int8)
    if states is not None:
        n_judgments = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
        typical = crowd_curve(states[1], n_judgments, n_grades)
        log_prior, log_likelihood = (np.log(np.maximum(probability, 1e-300)) for probability in states)
    for first, last in _blocks(judgments.offsets):
        rows = slice(judgments.offsets[first], judgments.offsets[last])
        if states is None:
            votes, n_others = _sum_of_others(judgments, first, last, np.eye(n_grades)[None])
            shares = votes / np.maximum(n_others, 1)[:, None]
        else:
            evidence, n_others = _sum_of_others(judgments, first, last, log_likelihood)
            shares = softmax(log_prior + evidence, axis=1) @ typical.T
        expected[rows] = np.where(n_others > 0, shares @ np.arange(n_grades), np.nan)
        grade[rows] = np.where(n_others > 0, choose_grades(shares, "mode"), UNJUDGEABLE)
    return LeaveOneOutConsensus(expected, grade)


def _blocks(offsets: Integers) -> Iterator[tuple[int, int]]:
    """Yield ranges of items with about `_BLOCK` judgments each."""
    cuts = np.unique(np.append(np.searchsorted(offsets, np.arange(0, offsets[-1], _BLOCK)), len(offsets) - 1))
    return zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def _sum_of_others(judgments: Judgments, first: int, last: int, evidence: Floats) -> tuple[Floats, Integers]:
    """Return for each judgment of a range of items the summed evidence of the others, and their number of answers.

    Args:
        judgments: judgments on one scale.
        first: first item.
        last: item after the last one.
        evidence: (n_assessors or 1, n_answers, n_states) evidence of each answer.

    """
    start, end = judgments.offsets[first], judgments.offsets[last]
    assessor, answer = judgments.assessor[start:end].astype(np.int64), judgments.grade[start:end]
    item = np.repeat(np.arange(last - first), np.diff(judgments.offsets[first : last + 1]))
    judged = answer != UNJUDGEABLE
    of_row = evidence[assessor if len(evidence) > 1 else 0, answer] * judged[:, None]
    item_starts = judgments.offsets[first:last] - start
    # All answers of an assessor on a document are left out, also repeated ones.
    pairs, pair = np.unique(item * judgments.n_assessors + assessor, return_inverse=True)
    own, n_own = np.zeros((len(pairs), of_row.shape[1])), np.bincount(pair[judged], minlength=len(pairs))
    np.add.at(own, pair, of_row)
    n_answers = np.add.reduceat(judged.astype(np.int64), item_starts)
    return np.add.reduceat(of_row, item_starts, axis=0)[item] - own[pair], n_answers[item] - n_own[pair]
