"""Check that no feature holds the expert grades or the answers of assessors.

The thresholds follow from a rate of false alarms: Fisher's z of the statistics of honest features is taken as normal,
with the mean and standard deviation of the scores of retrieval systems for TREC DL20. Of the public sets of features,
these agree best with expert grades and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import tanh
from statistics import NormalDist
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import Fix, InputError, Location, Message, shown
from crowdrank.judgments.table import Judgments

FALSE_ALARM_RATE = 1e-4
"""Probability of a warning about an honest feature that is as good as the scores of retrieval systems for DL20."""
HONEST_AGREEMENT = (0.510, 0.152)
"""Mean and standard deviation of Fisher's z of the agreement of honest features with expert grades."""
HONEST_ANSWERS = (0.684, 0.200)
"""Mean and standard deviation of Fisher's z of the multiple correlation of honest features with answers."""
MIN_GRADED_QUERIES = 10
"""Minimum number of queries, each with at least two different expert grades, to look for leaks."""
MIN_LEAK_AGREEMENT = 0.99
"""Minimum mean nDCG@10, rank correlation or squared multiple correlation of a feature that surely is a leak."""
MIN_BLANKS_MATCH = 0.99
"""Minimum share of blanks among documents without an expert grade, and of values among those with one."""
MIN_BLANKS = 20
"""Minimum number of documents with and without an expert grade, to compare blanks."""
MIN_DEGREES_OF_FREEDOM = 30
"""Minimum number of documents beyond the number of groups, for a multiple correlation."""
MIN_OTHER_VALUES = 10
"""Minimum number of documents that do not have the most frequent value of a feature, for a multiple correlation."""
MAX_ANSWERED_ROWS = 50_000
"""Maximum number of documents with answers that are compared with the features; others are left out at random."""
MEAN_GROUPS = 50
"""Number of groups of documents by their mean answer."""

LeakKind = Literal["grades", "blanks", "agreement", "answers"]
"""A feature ranks as the grades or tells them apart, is blank where grades are missing, agrees too well with the
grades, or is a function of answers."""


def honest_threshold(honest: tuple[float, float], rate: float = FALSE_ALARM_RATE) -> float:
    """Return the correlation above which an honest feature lies with a given probability.

    Args:
        honest: mean and standard deviation of Fisher's z of honest features.
        rate: the probability.

    >>> round(honest_threshold((0.0, 0.1), 0.025), 3)
    0.194

    """
    mean, sd = honest
    return tanh(mean + NormalDist().inv_cdf(1 - rate) * sd)


@dataclass(frozen=True)
class Leak:
    """Feature that holds the expert grades or the answers of assessors.

    Attributes:
        feature: name of the feature.
        kind: what it does.
        ndcg: mean nDCG@10 of the ranking by the feature in the direction that agrees with the grades; NaN without
            expert grades.
        correlation: mean rank correlation of this ranking with the expert grades within queries.
        agreement: the same, but 1 if documents of equal grades are ordered by anything else.
        is_reversed: whether the lowest values of the feature are the best ones.
        explained: share of the variance of the feature that the grades, or the answers, explain.
        assessor: assessor whose answers the feature has, if it has those of one.
        is_certain: whether no honest feature does this; otherwise one of 1 / `FALSE_ALARM_RATE` does.

    """

    feature: str
    kind: LeakKind
    ndcg: float = float("nan")
    correlation: float = float("nan")
    agreement: float = float("nan")
    is_reversed: bool = False
    explained: float = float("nan")
    assessor: str | None = None
    is_certain: bool = True

    def message(self) -> Message:
        """Return the warning about the leak."""
        location = Location("the features", column=self.feature)
        if not self.is_certain:
            fix = Fix("find out how it is made, and leave it out if it is not known for new documents")
            return Message(self._problem(), "leak-suspected", "warning", location, (fix,))
        fixes = (Fix("leave it out"), Fix("if it is a real feature, use it with {}", "allow_leak", True))
        return Message(self._problem(), "leak", "warning", location, fixes)

    def _problem(self) -> str:
        lowest = ", lowest values first" if self.is_reversed else ""
        figures = f"nDCG@10 {self.ndcg:.3f}, rank correlation {self.correlation:.3f}{lowest}"
        usual = f"as at most 1 of {1 / FALSE_ALARM_RATE:,.0f} honest features does"
        if self.assessor is not None:
            return f"its values are a function of the answers of the assessor {shown(self.assessor)}"
        if self.kind == "answers":
            part = f"the answers of the assessors explain {self.explained:.1%} of its variance"
            return f"{part}, so it seems to be computed from them" if self.is_certain else f"{part}, {usual}"
        if self.kind == "blanks":
            return f"it is blank where expert grades are missing, and agrees with them elsewhere ({figures})"
        if self.kind == "agreement":
            return f"it ranks documents almost as the expert grades do ({figures}), {usual}"
        if max(self.ndcg, self.correlation) < MIN_LEAK_AGREEMENT:
            return f"its values tell the expert grades apart ({figures}), so it seems to hold these grades"
        return f"it alone ranks documents as the expert grades do ({figures}), so it seems to hold these grades"


def find_leaks(
    names: Sequence[str],
    X: Floats,
    grades: Floats,
    query: Integers,
    judgments: Judgments | None = None,
    item: Integers | None = None,
) -> list[Leak]:
    """Return the features that hold the expert grades or the answers, in the order of the features.

    Expert grades are compared if `MIN_GRADED_QUERIES` queries have different ones.

    Args:
        names: names of the features.
        X: (n, n_features) features; NaN is below all other values.
        grades: (n,) expert grades, counted from 0; NaN for documents without one.
        query: (n,) query of each document, as a number.
        judgments: answers of the assessors, or None.
        item: (n,) index of each document among the items of the judgments, or -1.

    """
    found = {leak.feature: leak for leak in _answer_leaks(names, X, judgments, item)}
    found |= {leak.feature: leak for leak in _grade_leaks(names, X, grades, query) if _replaces(leak, found)}
    return [found[name] for name in names if name in found]


def _replaces(leak: Leak, found: dict[str, Leak]) -> bool:
    return leak.is_certain or leak.feature not in found


def check_leaks(leaks: Sequence[Leak], *, allow_leaks: bool) -> list[Message]:
    """Return a warning for each leak; raise InputError for the first one that is certain, unless these are allowed."""
    certain = [leak for leak in leaks if leak.is_certain]
    if certain and not allow_leaks:
        raise InputError(replace(certain[0].message(), severity="error"))
    return [leak.message() for leak in leaks]


# Expert grades.


def _grade_leaks(names: Sequence[str], X: Floats, grades: Floats, query: Integers) -> list[Leak]:
    """Return the features that hold the expert grades."""
    is_graded = ~np.isnan(grades)
    known, known_grades, known_query = X[is_graded], grades[is_graded], query[is_graded]
    frame = pd.Series(known_grades).groupby(known_query)
    varies = (frame.transform("max") > frame.transform("min")).to_numpy()
    if not varies.any():
        return []
    known, known_grades = known[varies], known_grades[varies]
    known_query = np.unique(known_query[varies], return_inverse=True)[1]
    is_flat = _mean_ndcg(np.zeros(len(known_grades)), known_grades, known_query) >= MIN_LEAK_AGREEMENT
    if known_query.max() + 1 < MIN_GRADED_QUERIES or is_flat:  # if it is flat, every ranking is as good
        return []
    is_blank_alike = _has_blanks_of_grades(X, is_graded, query)
    upward, downward = (_rank_agreement(sign * known, known_grades, known_query) for sign in (1, -1))
    code = np.unique(known_grades, return_inverse=True)[1]
    leaks, threshold = [], honest_threshold(HONEST_AGREEMENT)
    for number, name in enumerate(names):
        column = known[:, number]
        ndcg = [_mean_ndcg(np.nan_to_num(sign * column, nan=-np.inf), known_grades, known_query) for sign in (1, -1)]
        figures = [(one[1][number], ndcg[sign], one[0][number]) for sign, one in enumerate((upward, downward))]
        is_reversed = bool(figures[1] > figures[0])
        agreement, best_ndcg, correlation = figures[is_reversed]
        explained = max(explained_variance(column, code), _explained_grade(column, known_grades))
        kind: LeakKind = "grades"
        is_certain = max(best_ndcg, correlation, explained) >= MIN_LEAK_AGREEMENT
        if not is_certain:
            if agreement < threshold:
                continue
            is_certain = bool(is_blank_alike[number])
            kind = "blanks" if is_certain else "agreement"
        values = (best_ndcg, float(correlation), float(agreement), is_reversed, explained)
        leaks.append(Leak(name, kind, *values, is_certain=is_certain))
    return leaks


def _has_blanks_of_grades(X: Floats, is_graded: Booleans, query: Integers) -> Booleans:
    """Return whether each feature is blank where documents of graded queries have no grade, and only there."""
    of_query = np.isin(query, query[is_graded])
    is_blank, has_grade = np.isnan(X[of_query]), is_graded[of_query]
    if min(has_grade.sum(), (~has_grade).sum()) < MIN_BLANKS:
        return np.zeros(X.shape[1], bool)
    matches = np.minimum(is_blank[~has_grade].mean(axis=0), 1 - is_blank[has_grade].mean(axis=0))
    return np.asarray(matches >= MIN_BLANKS_MATCH)


def _explained_grade(column: Floats, grades: Floats) -> float:
    """Return the share of the variance of the grades that the values of a feature explain, if it has few values."""
    value, code = np.unique(column, return_inverse=True)
    return explained_variance(grades, code) if len(value) * 10 <= len(column) else 0.0


# Answers of assessors.


def _answer_leaks(names: Sequence[str], X: Floats, judgments: Judgments | None, item: Integers | None) -> list[Leak]:
    """Return the features that are functions of the answers."""
    if judgments is None or item is None:
        return []
    rows = np.flatnonzero(item >= 0)
    if len(rows) > MAX_ANSWERED_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_ANSWERED_ROWS, replace=False))
    table = judgments.to_main_scale().with_unjudgeable("lowest")
    groups = [one[item[rows]] for one in _answer_groups(table)]
    row_of_item = np.full(table.n_items, -1)
    row_of_item[item[rows]] = rows
    leaks, threshold = [], honest_threshold(HONEST_ANSWERS) ** 2
    for number, name in enumerate(names):
        column = X[:, number]
        explained = max(explained_variance(one, group) for group in groups for one in _with_ranks(column[rows]))
        is_certain = explained >= MIN_LEAK_AGREEMENT
        assessor = None if is_certain else _assessor_of(column, table, row_of_item)
        if assessor is not None or explained >= threshold:
            certain = is_certain or assessor is not None
            leaks.append(Leak(name, "answers", explained=explained, assessor=assessor, is_certain=certain))
    return leaks


def _with_ranks(values: Floats) -> tuple[Floats, Floats]:
    ranks = np.asarray(pd.Series(values).rank(), np.float64)
    return values, ranks


def _answer_groups(table: Judgments) -> tuple[Integers, Integers]:
    """Return two groupings of the items: by the number of answers of each grade, and by the mean answer."""
    votes = table.vote_counts()
    alike = pd.DataFrame(votes).groupby(list(range(votes.shape[1])), sort=False).ngroup().to_numpy()
    mean = votes @ np.arange(votes.shape[1]) / np.maximum(votes.sum(axis=1), 1)
    rank = np.asarray(pd.Series(mean).rank(pct=True), np.float64)
    by_mean = np.minimum(rank * MEAN_GROUPS, MEAN_GROUPS - 1)
    return np.asarray(alike, np.int64), np.asarray(by_mean, np.int64)


def _assessor_of(column: Floats, table: Judgments, row_of_item: Integers) -> str | None:
    """Return the assessor of whose answers a feature is a function, or None."""
    row = np.repeat(row_of_item, np.diff(table.offsets))
    values = np.where(row >= 0, column[np.maximum(row, 0)], np.nan)
    is_known = ~np.isnan(values)
    values, assessor = values[is_known], table.assessor[is_known].astype(np.int64)
    group = assessor * len(table.scale) + table.grade[is_known]
    counts, n_groups = np.bincount(assessor, minlength=table.n_assessors), table.n_assessors * len(table.scale)
    within = _squares_within(values, group, n_groups).reshape(table.n_assessors, -1).sum(axis=1)
    total = _squares_within(values, assessor, table.n_assessors)
    is_many = counts >= MIN_DEGREES_OF_FREEDOM + len(table.scale)
    for one in np.flatnonzero(is_many & (total > 0) & (within <= (1 - MIN_LEAK_AGREEMENT) * total)).tolist():
        own = assessor == one
        if explained_variance(values[own], group[own] - one * len(table.scale)) >= MIN_LEAK_AGREEMENT:
            return str(table.assessors[one].as_py())
    return None


def _squares_within(values: Floats, group: Integers, n_groups: int) -> Floats:
    """Return the sum of squared deviations from the mean of each group, (n_groups,)."""
    counts = np.maximum(np.bincount(group, minlength=n_groups), 1)
    deviation = values - (np.bincount(group, values, n_groups) / counts)[group]
    return np.asarray(np.bincount(group, deviation**2, n_groups), np.float64)


def explained_variance(values: Floats, group: Integers) -> float:
    """Return the share of the variance of values that groups explain, adjusted for their number; 0 if it is not known.

    >>> explained_variance(np.tile([1.0, 5.0, 2.0], 30), np.tile([0, 1, 2], 30))
    1.0
    """
    is_known = ~np.isnan(values)
    values, group = values[is_known], np.unique(group[is_known], return_inverse=True)[1]
    n, n_groups = len(values), int(group.max(initial=-1)) + 1
    if n - n_groups < MIN_DEGREES_OF_FREEDOM or n - _largest_count(values) < MIN_OTHER_VALUES:
        return 0.0
    total = _squares_within(values, np.zeros(n, np.int64), 1)[0]
    within = _squares_within(values, group, n_groups).sum()
    return max(1.0 - float(within / (n - n_groups) / (total / (n - 1))), 0.0) if total > 0 else 0.0


def _largest_count(values: NDArray[np.float64]) -> int:
    return int(np.unique(values, return_counts=True)[1].max(initial=0))


# Rankings.


def _mean_ndcg(score: Floats, grades: Floats, query: Integers) -> float:
    """Return the mean nDCG@10 with exponential gains; ties count as their expectation."""
    own, ideal = (_dcg(one, 2**grades - 1, query) for one in (score, grades))
    return float((own / ideal).mean())


def _dcg(score: Floats, gains: Floats, query: Integers) -> Floats:
    """Return the DCG@10 of each query, (n_queries,)."""
    order = np.lexsort((-score, query))
    score, query = score[order], query[order]
    is_first = np.diff(query, prepend=-1) > 0
    position = np.arange(len(query)) - np.flatnonzero(is_first)[query]
    discount = np.where(position < 10, 1 / np.log2(position + 2), 0.0)
    tie = np.cumsum(is_first | np.append(True, score[1:] != score[:-1])) - 1
    return np.asarray(
        np.bincount(query, gains[order] * (np.bincount(tie, discount) / np.bincount(tie))[tie]), np.float64
    )


def _rank_agreement(X: Floats, grades: Floats, query: Integers) -> tuple[Floats, Floats]:
    """Return two means over queries of the agreement of each feature with the grades, (n_features,) each.

    The first is Spearman's correlation. The second is the slope of the ranks by the feature on the ranks by the grades:
    for two grades, twice the area under the ROC curve minus 1. Missing values are below all others.
    """
    ranks = pd.DataFrame(np.column_stack([grades, X])).groupby(query).rank(na_option="top")
    centered = ranks - ranks.groupby(query).transform("mean")
    products = centered.mul(centered[0], axis=0).groupby(query).sum().to_numpy()
    squares = (centered**2).groupby(query).sum().to_numpy()
    norms = np.sqrt(squares * squares[:, :1])
    correlations = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    slopes = products / squares[:, :1]
    return np.asarray(correlations[:, 1:].mean(axis=0)), np.asarray(slopes[:, 1:].mean(axis=0))
