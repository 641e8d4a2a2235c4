"""Ensembles of candidates: functions of the scores of their members, the folds, and a search for weights.

Rows are those of the development and test queries. The scores of a member are standardized within each query. A matrix
of nested scores says how a member ranks the other folds without having seen a fold: the weights of the fold are chosen
on them, so that they do not depend on the expert grades of the fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.rankers.ensemble import shrunk_weights, standardize_within_query
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.training_data import RankingData

CROWD = "ensemble-crowd"
ALL = "ensemble-all"
EXPERT = "ensemble-expert"
WEIGHTED = "ensemble-weighted"
"""Ensemble that is selected unless another candidate is clearly better."""
ENSEMBLES: Mapping[str, str] = {
    WEIGHTED: "weighted average of all rankers, with cross-fitted weights shrunk towards uniform",
    ALL: "average of all rankers",
    CROWD: "average of all rankers that are trained on crowd labels alone",
    EXPERT: "weighted average of ensemble-crowd and expert-only, with cross-fitted weights",
}
WEIGHT_STEPS = 10
"""Number of steps between 0 and 1 in the search for ensemble weights."""
MAX_FOLD_DISTANCE = 2
"""Maximum distance of two folds on a ring for which members are trained without both: all pairs of up to 5 folds."""

WeightSearch = Callable[[Floats, Booleans], Floats]
"""Function (scores (n_members, n_rows), rows to choose on (n_rows,)) that returns weights (n_members,)."""


@dataclass(frozen=True, eq=False)
class MemberScores:
    """Scores of a member of an ensemble.

    Attributes:
        score: (n_rows,) scores: of a fold by a model that has not seen the fold, of test queries by the final model.
        nested: (n_folds, n_rows) scores by models that have seen neither the row's fold nor that of the first index;
            NaN if there is no such model. The scores of a member that sees no expert grades are those in `score`.

    """

    score: Floats
    nested: Floats

    def standardized(self, query: Integers) -> MemberScores:
        """Return the scores standardized within each query; `query` holds the query code of each row."""
        nested = np.stack([_standardized(one, query) for one in self.nested]) if len(self.nested) else self.nested
        return MemberScores(_standardized(self.score, query), nested)


@dataclass(frozen=True, eq=False)
class EnsembleScores:
    """Scores and weights of an ensemble.

    Attributes:
        score: (n_rows,) scores.
        weights: weights of the candidates in the final ensemble.
        fold_weights: (n_folds, n_members) weights that rank the rows of each fold.

    """

    score: Floats
    weights: Mapping[str, float]
    fold_weights: Floats


def fold_pairs(n_folds: int) -> Iterator[tuple[int, int]]:
    """Return the pairs of folds without both of which members are trained.

    The weights of a fold are chosen on its neighbors on a ring, so that the number of fits is linear in that of folds.

    >>> list(fold_pairs(3)), len(list(fold_pairs(5))), len(list(fold_pairs(10)))
    ([(0, 1), (0, 2), (1, 2)], 10, 20)
    """
    for first in range(n_folds):
        for second in range(first + 1, n_folds):
            if min(second - first, n_folds - second + first) <= MAX_FOLD_DISTANCE:
                yield first, second


def build_ensembles(
    members: Mapping[str, MemberScores], crowd: Sequence[str], fold: Integers, search: WeightSearch
) -> dict[str, EnsembleScores]:
    """Return the ensembles of some candidates.

    Args:
        members: standardized scores of the candidates.
        crowd: names of those that are trained on crowd labels alone.
        fold: (n_rows,) fold of each row, -1 for rows of test queries. Without folds no weights are chosen.
        search: search for weights.

    """
    names = list(members)
    ensembles = {CROWD: average_ensemble(members, crowd)}
    if not (fold >= 0).any():
        return ensembles
    if len(crowd) < len(names):
        ensembles[ALL] = average_ensemble(members, names)
    if "expert-only" in members:
        average = MemberScores(
            *(np.mean([part[name] for name in crowd], axis=0) for part in _scores_by_member(members))
        )
        pair = {CROWD: average, "expert-only": members["expert-only"]}
        ensembles[EXPERT] = weighted_ensemble(pair, fold, search, {CROWD: ensembles[CROWD].weights})
    if len(names) > 1:
        ensembles[WEIGHTED] = weighted_ensemble(members, fold, search)
    return ensembles


def average_ensemble(members: Mapping[str, MemberScores], names: Sequence[str]) -> EnsembleScores:
    """Return the ensemble of some members with equal weights."""
    score = np.mean([members[name].score for name in names], axis=0)
    n_folds = len(members[names[0]].nested)
    return EnsembleScores(score, dict.fromkeys(names, 1 / len(names)), np.full((n_folds, len(names)), 1 / len(names)))


def weighted_ensemble(
    members: Mapping[str, MemberScores],
    fold: Integers,
    search: WeightSearch,
    parts: Mapping[str, Mapping[str, float]] | None = None,
) -> EnsembleScores:
    """Return the ensemble whose weights are chosen on the rows of all folds, those of a fold on the other folds.

    The weights of a fold are equal if no models rank other folds without having seen the fold.

    Args:
        members: standardized scores of the members.
        fold: (n_rows,) fold of each row, -1 for rows of test queries.
        search: search for weights.
        parts: weights of the candidates in members that are ensembles.

    """
    scores, nested = (np.stack(list(part.values())) for part in _scores_by_member(members))
    score = np.empty(scores.shape[1])
    by_fold = np.full((nested.shape[1], len(scores)), 1 / len(scores))
    for number, weights in enumerate(by_fold):
        others = (fold >= 0) & (fold != number) & ~np.isnan(nested[:, number]).any(axis=0)
        if others.any():
            weights[:] = search(nested[:, number], others)
        rows = fold == number
        score[rows] = weights @ scores[:, rows]
    final = search(scores, fold >= 0)
    rows = fold < 0
    score[rows] = final @ scores[:, rows]
    by_candidate: dict[str, float] = {}
    for member, weight in zip(members, final, strict=True):
        for part, share in (parts or {}).get(member, {member: 1.0}).items():
            by_candidate[part] = by_candidate.get(part, 0.0) + float(weight) * share
    return EnsembleScores(score, {part: share for part, share in by_candidate.items() if share > 0}, by_fold)


def weight_search(query: Integers, grade: Floats, measure: str, gains: str, random_state: int) -> WeightSearch:
    """Return a search for weights that maximize a measure of the rows with grades.

    Args:
        query: (n_rows,) query code of each row, in ascending order.
        grade: (n_rows,) expert grades, NaN without one.
        measure, gains: measure and gains of grades.
        random_state: random seed.

    """

    def search(scores: Floats, usable: Booleans) -> Floats:
        rows = np.flatnonzero(usable & ~np.isnan(grade))
        validation = graded_validation(query[rows], grade[rows], measure, gains)
        return shrunk_weights(scores[:, rows], validation, WEIGHT_STEPS, random_state)

    return search


def graded_validation(query: Integers, grade: Floats, measure: str, gains: str) -> Validation:
    """Return the measure of rankings of rows with grades; rows of a query are adjacent."""
    n = len(query)
    offsets = np.append(np.flatnonzero(np.diff(query, prepend=-1)), n)
    lists = RankingData(np.empty((n, 0)), grade, None, offsets, None, np.arange(n), ())
    return Validation(lists, measure, gains)


def _scores_by_member(members: Mapping[str, MemberScores]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return scores and nested scores by member."""
    return {name: one.score for name, one in members.items()}, {name: one.nested for name, one in members.items()}


def _standardized(score: Floats, query: Integers) -> Floats:
    """Return scores standardized within each query; scores that are NaN remain NaN."""
    rows = np.flatnonzero(~np.isnan(score))
    result = np.full(len(score), np.nan)
    result[rows] = standardize_within_query(score[rows], query[rows])
    return result
