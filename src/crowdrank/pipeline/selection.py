"""Selection of a candidate: each is cross-validated on expert-graded queries, and one is selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError, UsageError
from crowdrank.label_learning.remapped_labels import RemappedLabels
from crowdrank.label_learning.remapper import Remapper
from crowdrank.pipeline.candidates import Candidate
from crowdrank.pipeline.ensembles import CROWD, ENSEMBLES, WEIGHTED, build_ensembles, graded_validation, weight_search
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.pipeline.training_view import RemapperKind, TrainingView
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.ranker import Ranker

MIN_SELECTION_QUERIES = 5
"""Minimum number of expert-graded queries for a selection."""
MIN_LEAD_STANDARD_ERRORS = 2.0
"""Number of standard errors by which a candidate must lead the safe one to be selected."""
PREFERRED_FOREST = "gda"
"""Single forest that is selected if nothing can be measured."""


@dataclass(frozen=True, eq=False)
class ExpertSplit:
    """Expert-graded queries, split into folds for the selection and queries for the test."""

    folds: tuple[Integers, ...]
    test: Integers

    @property
    def development(self) -> Integers:
        """Queries for the selection, those of all folds."""
        return np.sort(np.concatenate(self.folds)) if self.folds else np.empty(0, np.int64)

    def without(self, *numbers: int) -> tuple[Integers, Integers]:
        """Return the queries of some folds and of the test, and those of the other folds.

        >>> hidden, others = ExpertSplit((np.array([0, 1]), np.array([2, 3])), np.array([4])).without(1)
        >>> hidden.tolist(), others.tolist()
        ([2, 3, 4], [0, 1])
        """
        hidden = [self.folds[number] for number in numbers]
        others = [fold for number, fold in enumerate(self.folds) if number not in numbers]
        none = self.test[:0]
        return np.concatenate([*hidden, self.test]), np.sort(np.concatenate([none, *others]))

    def fold_of(self, query: Integers) -> Integers:
        """Return the number of the fold that each query is in, -1 for queries in no fold."""
        fold = np.full(len(query), -1)
        for number, queries in enumerate(self.folds):
            fold[np.isin(query, queries)] = number
        return fold


def split_expert_queries(queries: Integers, settings: RunSettings) -> ExpertSplit:
    """Split expert-graded queries at random into test queries and folds; if they are few, all are for the test.

    >>> split = split_expert_queries(np.arange(20), RunSettings(test=0.25, folds=3))
    >>> len(split.test), [len(fold) for fold in split.folds]
    (5, [5, 5, 5])
    """
    order = np.random.default_rng(settings.random_state).permutation(queries)
    n_test = round(settings.test * len(order))
    if settings.test and len(order) - n_test < MIN_SELECTION_QUERIES:
        return ExpertSplit((), np.sort(order))
    if len(order) < MIN_SELECTION_QUERIES:
        return ExpertSplit((), order[:0])
    return split_into_folds(order[n_test:], order[:n_test], settings.folds)


def split_queries(data: RunData, settings: RunSettings) -> ExpertSplit:
    """Split the expert-graded queries of a run; without a test if it would leave no judged query to train on."""
    split = split_expert_queries(data.graded_queries, settings)
    judged = data.query[data.item >= 0]
    if len(split.test) and np.isin(judged, split.test).all():
        return split_expert_queries(data.graded_queries, replace(settings, test=0.0))
    return split


def split_into_folds(development: Integers, test: Integers, folds: int) -> ExpertSplit:
    """Split queries in turn into folds of at least two queries."""
    n = min(folds, len(development) // 2)
    return ExpertSplit(tuple(np.sort(development[number::n]) for number in range(n)), np.sort(test))


class ExpertScorer:
    """Measure rankings on expert-graded queries."""

    def __init__(self, data: RunData, queries: Integers, settings: RunSettings) -> None:
        self.rows = data.graded_rows(queries)
        query, grade = data.query[self.rows], data.expert[self.rows]
        self.validation = graded_validation(query, grade, settings.measure, settings.gains)

    def values(self, score: Floats) -> Floats:
        """Return the measure of each query, from the scores of all rows."""
        return self.validation.per_query(score[self.rows])


class SelectedCandidate(NamedTuple):
    """Name of a selected candidate, and the reason for its selection."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """Result of a selection.

    Attributes:
        split: split of the expert-graded queries.
        candidates: candidates that could be trained.
        scores: scores of each candidate, (n_rows,): of development queries by models that did not see the query, of
            test queries by the final model; NaN elsewhere.
        values: measure of each candidate on each development query.
        weights: weights of the members of each ensemble.
        fold_weights: weights (n_folds, n_members) by which each ensemble ranks the folds of the selection.
        rankers: final model of each candidate that is not an ensemble.
        final_view: view that the final models are trained on.
        failed: reason for each candidate that could not be trained.
        choice: the selected candidate.
        unrestricted: name of the candidate that would be selected among all, not among single forests only.

    """

    split: ExpertSplit
    candidates: list[Candidate]
    scores: dict[str, Floats]
    values: dict[str, Floats]
    weights: dict[str, dict[str, float]]
    fold_weights: dict[str, Floats]
    rankers: dict[str, Ranker]
    final_view: TrainingView
    failed: dict[str, str]
    unrestricted: str
    choice: SelectedCandidate

    @property
    def chosen(self) -> str:
        """Name of the selected candidate."""
        return self.choice.name

    @property
    def reason(self) -> str:
        """Reason for the selection."""
        return self.choice.reason

    @cached_property
    def remapped(self) -> dict[str, RemappedLabels]:
        """Targets and weights of the labels by each remapper of the final models."""
        return {name: view.remap(kind, **parameters) for name, view, kind, parameters in self._used_remappers()}

    @property
    def remappers(self) -> dict[str, Remapper]:
        """Remappers of the final models, by name."""
        return {name: view.remapper(kind, **parameters) for name, view, kind, parameters in self._used_remappers()}

    def _used_remappers(self) -> Iterator[tuple[str, TrainingView, RemapperKind, Mapping[str, Any]]]:
        """Return name, view, kind and parameters of each remapper of the final models."""
        by_name = {candidate.remapper_name: candidate for candidate in self.candidates}
        for name, candidate in by_name.items():
            if name is not None and candidate.remapper is not None:
                yield name, self.final_view, candidate.remapper, candidate.remapper_parameters

    def ranker(self, name: str, rankers: Mapping[str, Ranker] | None = None) -> Ranker:
        """Return the ranker of a candidate; an ensemble is made of the final models, or of other `rankers`."""
        models = self.rankers if rankers is None else rankers
        if name not in self.weights:
            return models[name]
        weights = self.weights[name]
        return Ensemble.from_weights([models[member] for member in weights], list(weights.values()))

    def members(self, name: str) -> list[Candidate]:
        """Return the candidates that must be trained for a candidate or an ensemble."""
        names = self.weights.get(name, {name: 1.0})
        return [candidate for candidate in self.candidates if candidate.name in names]


def train_and_select(
    training: CandidateTraining,
    candidates: Sequence[Candidate],
    split: ExpertSplit,
    report: Report | None = None,
    runs: Mapping[str, Floats] | None = None,
) -> SelectionResult:
    """Train candidates on folds of the expert-graded queries, build ensembles and select a candidate.

    Args:
        training: training on parts of the data of the run.
        candidates: candidates to train.
        split: expert-graded queries for selection and test.
        report: progress callback of the training.
        runs: scores of the rows, (n_rows,), by rankings that are only compared with the candidates.

    """
    data, settings, runs = training.data, training.settings, runs or {}
    trained = training.cross_validate(candidates, split, report)
    if not only_crowd(trained.candidates):
        name, reason = next(iter(trained.failed.items()))
        raise InputError(f"no ranker could be trained on the crowd labels ({name}: {reason})", kind="no-ranker")
    rows = trained.rows
    with training.cache.profiler.stage("ensembles"):
        query, members = data.query[rows], [one for one in trained.candidates if not one.is_control]
        search = weight_search(query, data.expert[rows], settings.measure, settings.gains, settings.random_state)
        standardized = {one.name: trained.scores[one.name].standardized(query) for one in members}
        crowd = [one.name for one in only_crowd(members)]
        ensembles = build_ensembles(standardized, crowd, trained.fold, search)
    scores = {name: one.score for name, one in trained.scores.items()}
    scores |= {name: score[rows] for name, score in runs.items()}
    scores |= {name: one.score for name, one in ensembles.items()}
    by_row = {name: np.full(len(data.query), np.nan) for name in scores}
    for name, score in scores.items():
        by_row[name][rows] = score
    values = {}
    if split.folds:
        scorer = ExpertScorer(data, split.development, settings)
        values = {name: scorer.values(score) for name, score in by_row.items()}
    controls = [candidate.name for candidate in trained.candidates if candidate.is_control]
    forests = [name for name, one in trained.rankers.items() if isinstance(one, BoostedTrees) and name not in controls]
    n_graded = len(data.graded_queries)
    choice = select_or_default({name: one for name, one in values.items() if name not in runs}, n_graded)
    return SelectionResult(
        split=split,
        candidates=trained.candidates,
        scores=by_row,
        values=values,
        weights={name: dict(one.weights) for name, one in ensembles.items()},
        fold_weights={name: one.fold_weights for name, one in ensembles.items()},
        rankers=trained.rankers,
        final_view=trained.view,
        failed=trained.failed,
        unrestricted=choice.name,
        choice=choose_forest(forests, values, choice) if settings.deployable else choice,
    )


def refit(training: CandidateTraining, outcome: SelectionResult, name: str, report: Report | None = None) -> Ranker:
    """Train a candidate again on all crowd labels and expert grades."""
    rankers = training.fit_all(outcome.members(name), training.full_view, report)
    training.data.release_matrices()
    return outcome.ranker(name, rankers)


# Selection by the measure of each candidate on each query.


def select_or_default(values: Mapping[str, Floats], n_graded: int) -> SelectedCandidate:
    """Select a candidate by its values, or a default if there are none.

    Args:
        values: measure of each candidate on each selection query; empty if there is no selection.
        n_graded: number of expert-graded queries.

    """
    if values:
        return select_candidate(values, WEIGHTED if WEIGHTED in values else CROWD)
    few = f"{counted(n_graded, 'expert-graded query')} {'is' if n_graded == 1 else 'are'} too few for a selection"
    reason = few if n_graded else "there are no expert grades to select by"
    return SelectedCandidate(CROWD, f"{reason}: {ENSEMBLES[CROWD]}")


def choose_forest(forests: Sequence[str], values: Mapping[str, Floats], choice: SelectedCandidate) -> SelectedCandidate:
    """Select the best single forest, or a preferred one if nothing can be measured.

    Args:
        forests: names of the candidates that are single forests.
        values: measure of each candidate on each selection query; empty if there is no selection.
        choice: selection among all candidates.

    """
    if not forests:
        fix = "add a candidate such as gda"
        raise UsageError("none of the candidates is a single forest", parameter="deployable", fix=fix)
    if values:
        best = max(forests, key=lambda name: float(values[name].mean()))
        return SelectedCandidate(best, "it is the best single forest on the selection queries")
    preferred = PREFERRED_FOREST if PREFERRED_FOREST in forests else forests[0]
    return SelectedCandidate(preferred, choice.reason.partition(":")[0])


def select_candidate(values: Mapping[str, Floats], safe: str = WEIGHTED) -> SelectedCandidate:
    """Select a candidate that is clearly better than the safe one, otherwise the safe one.

    The candidate with the highest mean is selected if it leads the safe one by more than `MIN_LEAD_STANDARD_ERRORS`:
    among a dozen candidates one leads by a standard error by chance, and an ensemble of all is hard to beat.

    Args:
        values: measure of each candidate on each query.
        safe: candidate that is selected otherwise.

    >>> even, odd = np.array([0.4, 0.5, 0.6, 0.5]), np.array([0.9, 0.2, 0.9, 0.1])
    >>> [select_candidate({WEIGHTED: even, "other": other}).name for other in (odd, even + 0.1)]
    ['ensemble-weighted', 'other']
    """
    best = max(values, key=lambda name: float(values[name].mean()))
    if best == safe:
        return SelectedCandidate(safe, "it is the best on the selection queries")
    difference = values[best] - values[safe]
    lead = float(difference.mean())
    standard_error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else np.inf
    if lead > MIN_LEAD_STANDARD_ERRORS * standard_error:
        reason = (
            f"it leads {safe} by {lead:.4f} on the selection queries, "
            f"more than {MIN_LEAD_STANDARD_ERRORS:g} standard errors"
        )
        return SelectedCandidate(best, reason)
    reason = (
        f"it is the default, and {best} leads it by only {lead:.4f} on them, "
        f"less than {MIN_LEAD_STANDARD_ERRORS:g} standard errors"
    )
    return SelectedCandidate(safe, reason)


def without_experts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that are not trained on expert grades."""
    return [candidate for candidate in candidates if not candidate.experts]


def only_crowd(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that are trained on crowd labels alone."""
    return [candidate for candidate in candidates if candidate.only_crowd]
