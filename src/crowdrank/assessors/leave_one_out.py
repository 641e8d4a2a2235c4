"""What the other assessors say of each judged document: an assessor is held against a consensus without itself.

A consensus that counts an assessor's own answers agrees with them by construction; with five judgments a document even
one who answers at random would look as if it told something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crowdrank._typing import Floats
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

States = tuple[Floats, Floats]  # prior (n_states,), likelihood (n_assessors, n_answers, n_states)

_BLOCK = 100_000  # judgments held at a time, each with a number per state


@dataclass(frozen=True, eq=False)
class LeaveOneOutConsensus:
    """Per judgment: the grade that the crowd is expected to give by the other answers, and the likeliest grade."""

    expected: Floats  # (n,) a position on the scale; NaN where nobody else judged the document
    grade: NDArray[np.int8]  # (n,) a code, or UNJUDGEABLE where nobody else judged

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether anyone else judged the document.

        >>> LeaveOneOutConsensus(np.array([0.5, np.nan]), np.array([0, -1], np.int8)).known.tolist()
        [True, False]
        """
        known: NDArray[np.bool_] = self.grade != UNJUDGEABLE
        return known


def crowd_curve(likelihood: Floats, judgments: NDArray[np.int64], n_grades: int) -> Floats:
    """P(grade | state) of a judgment drawn from the crowd, (n_grades, n_states); other answers are left out.

    >>> crowd_curve(np.stack([np.eye(2), np.full((2, 2), 0.5)]), np.array([3, 1]), 2).tolist()
    [[0.875, 0.125], [0.125, 0.875]]
    """
    mean = np.tensordot(judgments / judgments.sum(), likelihood, axes=1)[:n_grades]
    curve: Floats = mean / mean.sum(axis=0)
    return curve


def leave_one_out_consensus(judgments: Judgments, states: States | None = None) -> LeaveOneOutConsensus:
    """The consensus of each document without the assessor of the judgment: by a model's states, or by plain votes.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a", "a", "b"], "assessor": ["x", "y", "z", "x"],
    ...                                      "grade": [0, 1, 1, 1]}))
    >>> leave_one_out_consensus(table).expected.tolist()
    [1.0, 0.5, 0.5, nan]
    """
    n_grades = len(judgments.scale)
    expected, grade = np.full(len(judgments), np.nan), np.full(len(judgments), UNJUDGEABLE, np.int8)
    if states is None:
        evidence, weight, typical = np.eye(n_grades)[None], None, np.eye(n_grades)
    else:
        counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
        typical = crowd_curve(states[1], counts, n_grades)
        evidence = np.log(np.maximum(states[1], 1e-300))
        weight = np.log(np.maximum(states[0], 1e-300))
    for first, last in _blocks(judgments.offsets):
        rows = slice(judgments.offsets[first], judgments.offsets[last])
        total, count = _sums_of_others(judgments, first, last, evidence)
        beliefs = _normalized(total) if weight is None else _softmax(weight + total)
        shares = beliefs @ typical.T
        alone = count == 0
        expected[rows] = np.where(alone, np.nan, shares @ np.arange(n_grades))
        grade[rows] = np.where(alone, UNJUDGEABLE, choose_grades(shares, "mode"))
    return LeaveOneOutConsensus(expected, grade)


def _blocks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    cuts = np.unique(np.append(np.searchsorted(offsets, np.arange(0, offsets[-1], _BLOCK)), len(offsets) - 1))
    return zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def _sums_of_others(judgments: Judgments, first: int, last: int, evidence: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """For each judgment of a block of items, the summed evidence of the others and how many answers that is."""
    # evidence (n_assessors or 1, n_answers, n_states)
    start, end = judgments.offsets[first], judgments.offsets[last]
    assessor, answer = judgments.assessor[start:end].astype(np.int64), judgments.grade[start:end]
    item = np.repeat(np.arange(last - first), np.diff(judgments.offsets[first : last + 1]))
    judged = answer != UNJUDGEABLE
    told = evidence[assessor if len(evidence) > 1 else 0, answer] * judged[:, None]
    starts = judgments.offsets[first:last] - start
    # Someone may have judged a document more than once: all of their answers are their own.
    pairs, pair = np.unique(item * judgments.n_assessors + assessor, return_inverse=True)
    own, own_count = np.zeros((len(pairs), told.shape[1])), np.bincount(pair[judged], minlength=len(pairs))
    np.add.at(own, pair, told)
    count = np.add.reduceat(judged.astype(np.int64), starts)
    return np.add.reduceat(told, starts, axis=0)[item] - own[pair], count[item] - own_count[pair]


def _normalized(votes: Floats) -> Floats:
    shares: Floats = votes / np.maximum(votes.sum(axis=1, keepdims=True), 1.0)
    return shares


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = raised / raised.sum(axis=1, keepdims=True)
    return shares
