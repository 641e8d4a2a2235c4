"""Selection of a candidate: each is cross-validated on expert-graded queries, and one is selected."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.label_learning.remapped_labels import RemappedLabels
from crowdrank.label_learning.remapper import Remapper
from crowdrank.pipeline.candidates import Candidate
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache, code, digest
from crowdrank.pipeline.training_view import RankerMemo, RemapperKind, TrainingView
from crowdrank.rankers.boosting import BoostedTrees, default_threads
from crowdrank.rankers.ensemble import Ensemble, shrunk_weights, standardize_within_query
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import RankingData

MIN_SELECTION_QUERIES = 5
"""Minimum number of expert-graded queries for a selection."""
MAX_PARALLEL_CELLS = 100_000_000
"""Maximum number of cells (rows times features) with which fits run in parallel; above it, one uses all threads."""
CROWD = "ensemble-crowd"
ALL = "ensemble-all"
SAFE = "ensemble-weighted"
"""Ensemble that is selected unless another candidate is clearly better."""
LEAD = 2.0
"""Number of standard errors by which a candidate must lead the safe one to be selected."""
FIT_SETTINGS = ("gains", "measure", "random_state", "trees")
"""Settings that every fit depends on."""
PREFERRED_FOREST = "gda"
"""Single forest that is selected if nothing can be measured."""
PROGRESS_STEPS = 1000
"""Number of progress steps per fit."""
WEIGHT_STEPS = 10
"""Number of steps between 0 and 1 in the search for ensemble weights."""
ENSEMBLES: Mapping[str, str] = {
    SAFE: "weighted average of all rankers, with cross-fitted weights shrunk towards uniform",
    ALL: "average of all rankers",
    CROWD: "average of all rankers that are trained on crowd labels alone",
    "ensemble-expert": "weighted average of ensemble-crowd and expert-only, with cross-fitted weights",
}


@dataclass(frozen=True, eq=False)
class ExpertSplit:
    """Expert-graded queries, split into folds for the selection and queries for the test."""

    folds: tuple[Integers, ...]
    test: Integers

    @property
    def development(self) -> Integers:
        """Queries for the selection, those of all folds."""
        return np.sort(np.concatenate(self.folds)) if self.folds else np.empty(0, np.int64)


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
        starts = np.flatnonzero(np.diff(data.query[self.rows], prepend=-1))
        n = len(self.rows)
        offsets = np.append(starts, n)
        lists = RankingData(np.empty((n, 0)), data.expert[self.rows], None, offsets, None, np.arange(n), ())
        self.validation = Validation(lists, settings.measure, settings.gains)

    def values(self, score: Floats) -> Floats:
        """Return the measure of each query, from the scores of all rows."""
        return self.validation.per_query(score[self.rows])


@dataclass(eq=False)
class SelectionResult:
    """Result of a selection.

    Attributes:
        split: split of the expert-graded queries.
        candidates: candidates that could be trained.
        scores: scores of each candidate, (n_rows,): of development queries by models that did not see the query, of
            test queries by the final model; NaN elsewhere.
        values: measure of each candidate on each development query.
        weights: weights of the members of each ensemble.
        rankers: final model of each candidate that is not an ensemble.
        final_view: view that the final models are trained on.
        failed: reason for each candidate that could not be trained.
        chosen: name of the selected candidate.
        unrestricted: name of the candidate that would be selected among all, not among single forests only.
        reason: reason for the selection.

    """

    split: ExpertSplit
    candidates: list[Candidate] = field(default_factory=list)
    scores: dict[str, Floats] = field(default_factory=dict)
    values: dict[str, Floats] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    rankers: dict[str, Ranker] = field(default_factory=dict)
    final_view: TrainingView | None = None
    failed: dict[str, str] = field(default_factory=dict)
    chosen: str = ""
    unrestricted: str = ""
    reason: str = ""

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
            if name is not None and candidate.remapper is not None and self.final_view is not None:
                yield name, self.final_view, candidate.remapper, candidate.remapper_parameters

    def ranker(self, name: str, rankers: Mapping[str, Ranker] | None = None) -> Ranker:
        """Return the ranker of a candidate; an ensemble is made of the final models, or of other `rankers`."""
        models = self.rankers if rankers is None else rankers
        if name not in self.weights:
            return models[name]
        weights = self.weights[name]
        return Ensemble.from_weights([models[member] for member in weights], list(weights.values()))

    def members(self, name: str) -> list[str]:
        """Return the names of the candidates that must be trained for a candidate."""
        return list(self.weights[name]) if name in self.weights else [name]


class CandidateSelection:
    """Train candidates on folds of the expert-graded queries, build ensembles and select a candidate.

    Args:
        data: data of the run.
        fits: consensus models.
        settings: settings of the run.
        candidates: candidates to train.
        split: expert-graded queries for selection and test.
        cache: cache of the fits.
        report: progress function.
        runs: scores of the rows, (n_rows,), by rankings that are only compared with the candidates.

    Attributes:
        evaluated: rows of the development and test queries.
        outcome: result of the selection.

    """

    def __init__(
        self,
        data: RunData,
        fits: ConsensusFits,
        settings: RunSettings,
        candidates: Sequence[Candidate],
        split: ExpertSplit,
        cache: StageCache,
        report: Report | None = None,
        runs: Mapping[str, Floats] | None = None,
    ) -> None:
        self.data, self.fits, self.settings, self.cache = data, fits, settings, cache
        self.candidates = list(candidates)
        self.split = split
        self.report, self.runs = report, dict(runs or {})
        self.outcome = SelectionResult(split)
        self.evaluated = data.rows_of(np.concatenate([split.development, split.test]))
        fit_settings = {name: getattr(settings, name) for name in FIT_SETTINGS}
        self._base_key = digest(code(), data.digests["features"], fit_settings)
        self._rankers: dict[str, Ranker] = {}
        self._views: dict[str, TrainingView] = {}
        self._memo = RankerMemo()
        self._n_done, self._n_fits, self._n_steps = 0, 0, 0
        self._shares_of_fits: dict[int, float] = {}  # by thread
        self._progress_lock = threading.Lock()

    # Views and their keys.

    def view(self, held_out: Integers, experts: Integers) -> TrainingView:
        """Return the view without the crowd labels of `held_out` queries and with the grades of `experts` queries."""
        is_held_out = np.zeros(len(self.data.query_ids), bool)
        is_held_out[held_out] = True
        crowd = np.flatnonzero((self.data.item >= 0) & ~is_held_out[self.data.query])
        graded = self.data.graded_rows(experts)
        inputs = (self.data.digests["judgments"], dict(self.fits.parameters), crowd, graded, self.data.expert[graded])
        key = digest(self._base_key, *inputs)
        if key not in self._views:
            n_jobs = 1 if self.runs_in_parallel else self.settings.n_jobs
            self._views[key] = TrainingView(
                self.data,
                self.fits,
                self.settings,
                crowd,
                graded,
                self.cache,
                key,
                n_jobs,
                self._report_fit,
                memo=self._memo,
            )
        return self._views[key]

    @property
    def runs_in_parallel(self) -> bool:
        """Whether candidates are fitted in parallel, each in one thread."""
        return self.data.features.matrix.size <= MAX_PARALLEL_CELLS

    def key(self, candidate: Candidate, view: TrainingView) -> str:
        """Return the cache key of a fit, which depends only on what the candidate uses."""
        if candidate.remapper is not None:
            return digest(view.key, candidate.name, getattr(self.settings, candidate.remapper))
        consensus = [self.fits.key(method) for method in candidate.methods]
        crowd = [view.crowd, consensus] if candidate.crowd else []
        experts = [view.experts, self.data.expert[view.experts]] if candidate.experts else []
        return digest(self._base_key, candidate.name, *crowd, *experts)

    # Fits.

    def fitted(self, candidate: Candidate, view: TrainingView) -> Ranker:
        """Return the ranker of a candidate trained on a view; it is cached."""
        key = self.key(candidate, view)
        if key not in self._rankers:
            self._rankers[key] = self.cache.get(
                f"ranker-{candidate.name}",
                key,
                lambda: candidate.fit(view),
                lambda ranker, path: ranker.save(path),
                Ranker.load,
            )
        return self._rankers[key]

    def scored(self, candidate: Candidate, view: TrainingView) -> Floats:
        """Return the scores of the `evaluated` rows; they are cached, the ranker is not."""
        key = self.key(candidate, view)

        def make() -> dict[str, Floats]:
            return {"score": self._predict(self._rankers.get(key) or candidate.fit(view), self.evaluated)}

        return np.asarray(self.cache.arrays(f"scores-{candidate.name}", digest(key, self.evaluated), make)["score"])

    def _predict(self, ranker: Ranker, rows: Integers) -> Floats:
        return ranker.predict(self.data.matrix(rows), self.data.query[rows])

    def run(self) -> SelectionResult:
        """Train the candidates, build ensembles and select a candidate."""
        test, development = self.split.test, self.split.development
        final = self.view(test, development)
        folds = [
            self.view(np.concatenate([fold, test]), np.setdiff1d(development, fold, assume_unique=True))
            for fold in self.split.folds
        ]
        self._n_fits = len(self.candidates) * (1 + len(folds))
        with self.workers() as workers:
            # The final models are trained first: a fold that hides nothing from a candidate reuses its final model.
            list(workers.map(lambda candidate: self._fit_final(candidate, final), self.candidates))
            jobs = [(candidate, number) for number in range(len(folds)) for candidate in self.candidates]
            list(workers.map(lambda job: self._fit_fold(job[0], folds[job[1]], job[1]), jobs))
        self.candidates = [c for c in self.candidates if c.name not in self.outcome.failed]
        self.outcome.final_view, self.outcome.candidates = final, self.candidates
        # Threads finish in any order.
        self.outcome.rankers = {c.name: self.outcome.rankers[c.name] for c in self.candidates}
        self.outcome.scores = {c.name: self.outcome.scores[c.name] for c in self.candidates}
        is_evaluated = np.zeros(len(self.data.query), bool)
        is_evaluated[self.evaluated] = True
        self.outcome.scores |= {name: np.where(is_evaluated, score, np.nan) for name, score in self.runs.items()}
        self._require_crowd_candidate()
        with self.cache.profiler.stage("ensembles"):
            self._build_ensembles()
        self._select()
        return self.outcome

    def _fit_final(self, candidate: Candidate, view: TrainingView) -> None:
        with self._catch_failure(candidate):
            ranker = self.fitted(candidate, view)
            score = np.full(len(self.data.query), np.nan)
            rows = self.data.rows_of(self.split.test)
            if len(rows):
                score[rows] = self._predict(ranker, rows)
            self.outcome.rankers[candidate.name], self.outcome.scores[candidate.name] = ranker, score

    def _fit_fold(self, candidate: Candidate, view: TrainingView, number: int) -> None:
        if candidate.name in self.outcome.failed:
            self._count_fit()
            return
        with self._catch_failure(candidate):
            score = np.full(len(self.data.query), np.nan)
            score[self.evaluated] = self.scored(candidate, view)
            rows = self.data.rows_of(self.split.folds[number])
            self.outcome.scores[candidate.name][rows] = score[rows]

    @contextmanager
    def _catch_failure(self, candidate: Candidate) -> Iterator[None]:
        """Record the reason if a candidate cannot be trained, and count the fit."""
        try:
            yield
        except CrowdrankError as problem:
            self.outcome.failed.setdefault(candidate.name, str(problem).rstrip("."))
        self._count_fit()

    def _count_fit(self) -> None:
        with self._progress_lock:
            self._n_done += 1
            self._shares_of_fits.pop(threading.get_ident(), None)
            self._report_progress()

    def _report_fit(self, iteration: int, n_iterations: int, measure: float) -> None:
        """Report the progress within a fit; each thread has at most one."""
        with self._progress_lock:
            self._shares_of_fits[threading.get_ident()] = iteration / max(n_iterations, 1)
            self._report_progress()

    def _report_progress(self) -> None:
        """Report the progress of all fits; it never decreases, although a fit may consist of several parts."""
        if self.report is not None:
            done = round(PROGRESS_STEPS * (self._n_done + sum(self._shares_of_fits.values())))
            self._n_steps = max(self._n_steps, done)
            self.report(self._n_steps, PROGRESS_STEPS * self._n_fits, float("nan"))

    @contextmanager
    def workers(self) -> Iterator[ThreadPoolExecutor]:
        """Yield the threads in which models are fitted, each model in one thread; one if a fit uses all threads."""
        n = (self.settings.n_jobs or default_threads()) if self.runs_in_parallel else 1
        # Matrix products of parallel fits would otherwise use all cores each.
        with warnings.catch_warnings(), threadpool_limits(1 if n > 1 else None, user_api="blas"):
            # The features are checked once for the run, not once per fit.
            warnings.simplefilter("ignore", UserWarning)
            pool = ThreadPoolExecutor(n, initializer=self.cache.profiler.use_thread_clock if n > 1 else None)
            try:
                yield pool
            finally:
                pool.shutdown(cancel_futures=True)  # an interrupt waits for running fits only

    def _require_crowd_candidate(self) -> None:
        if not any(candidate.only_crowd for candidate in self.candidates):
            name, reason = next(iter(self.outcome.failed.items()))
            raise InputError(f"no ranker could be trained on the crowd labels ({name}: {reason})", kind="no-ranker")

    # Ensembles.

    def _build_ensembles(self) -> None:
        members = [candidate for candidate in self.candidates if not candidate.is_control]
        names, crowd = [one.name for one in members], [one.name for one in only_crowd(members)]
        self._add_average(CROWD, crowd)
        if not self.split.folds:
            return
        if len(crowd) < len(names):
            self._add_average(ALL, names)
        if "expert-only" in names:
            self._add_weighted("ensemble-expert", [CROWD, "expert-only"])
        if len(names) > 1:
            self._add_weighted(SAFE, names)

    def _add_average(self, name: str, members: list[str]) -> None:
        self.outcome.weights[name] = dict.fromkeys(members, 1 / len(members))
        self.outcome.scores[name] = np.mean([self._standardized(member) for member in members], axis=0)

    def _add_weighted(self, name: str, members: list[str]) -> None:
        """Add an ensemble whose weights are chosen on the selection queries, those of a fold on the other folds.

        Members that are trained on expert grades rank the other folds by models that have seen the grades of the fold.
        """
        scores = np.stack([self._standardized(member) for member in members])
        ensemble = np.full(len(self.data.query), np.nan)
        development = self.split.development
        for fold in self.split.folds:
            rows = self.data.rows_of(fold)
            others = np.setdiff1d(development, fold, assume_unique=True)
            ensemble[rows] = self._best_weights(scores, others) @ scores[:, rows]
        weights = self._best_weights(scores, development)
        rows = self.data.rows_of(self.split.test)
        ensemble[rows] = weights @ scores[:, rows]
        by_candidate: dict[str, float] = {}
        for member, weight in zip(members, weights, strict=True):
            for part, share in self.outcome.weights.get(member, {member: 1.0}).items():
                by_candidate[part] = by_candidate.get(part, 0.0) + float(weight) * share
        self.outcome.weights[name] = {part: share for part, share in by_candidate.items() if share > 0}
        self.outcome.scores[name] = ensemble

    def _best_weights(self, scores: Floats, queries: Integers) -> Floats:
        scorer = ExpertScorer(self.data, queries, self.settings)
        return shrunk_weights(scores[:, scorer.rows], scorer.validation, WEIGHT_STEPS, self.settings.random_state)

    def _standardized(self, name: str) -> Floats:
        """Return a candidate's scores standardized within the query; those of an ensemble are averages of such."""
        score = self.outcome.scores[name]
        if name in self.outcome.weights:
            return score
        rows = np.flatnonzero(~np.isnan(score))
        result = np.full(len(score), np.nan)
        result[rows] = standardize_within_query(score[rows], self.data.query[rows])
        return result

    # Selection and final model.

    def _select(self) -> None:
        outcome = self.outcome
        if self.split.folds:
            scorer = ExpertScorer(self.data, self.split.development, self.settings)
            outcome.values = {name: scorer.values(score) for name, score in outcome.scores.items()}
            choices = {name: values for name, values in outcome.values.items() if name not in self.runs}
            outcome.unrestricted, outcome.reason = select_candidate(choices, SAFE if SAFE in choices else CROWD)
        else:
            n = len(self.data.graded_queries)
            few = f"{counted(n, 'expert-graded query')} {'is' if n == 1 else 'are'} too few for a selection"
            outcome.unrestricted = CROWD
            outcome.reason = f"{few if n else 'there are no expert grades to select by'}: {ENSEMBLES[CROWD]}"
        outcome.chosen = outcome.unrestricted
        if self.settings.deployable:
            self._select_forest()

    def _select_forest(self) -> None:
        """Select the best candidate that is a single forest, or the first one if nothing can be measured."""
        outcome = self.outcome
        controls = {candidate.name for candidate in self.candidates if candidate.is_control}
        forests = [
            name for name, one in outcome.rankers.items() if isinstance(one, BoostedTrees) and name not in controls
        ]
        if not forests:
            fix = "add a candidate such as gda"
            raise UsageError("none of the candidates is a single forest", parameter="deployable", fix=fix)
        if outcome.values:
            outcome.chosen = max(forests, key=lambda name: float(outcome.values[name].mean()))
            outcome.reason = "it is the best single forest on the selection queries"
        else:
            outcome.chosen = PREFERRED_FOREST if PREFERRED_FOREST in forests else forests[0]
            outcome.reason = outcome.reason.partition(":")[0]

    @property
    def full_view(self) -> TrainingView:
        """View with all crowd labels and expert grades."""
        return self.view(np.empty(0, np.int64), self.data.graded_queries)

    def ensemble_key(self, name: str, view: TrainingView) -> str:
        """Return the cache key of a candidate or an ensemble whose members are trained on a view."""
        members = set(self.outcome.members(name))
        keys = [self.key(candidate, view) for candidate in self.candidates if candidate.name in members]
        return digest(name, self.outcome.weights.get(name, {}), keys)

    def refit(self, name: str, report: Report | None = None) -> Ranker:
        """Train a candidate again on all crowd labels and expert grades."""
        view = self.full_view
        members = [candidate for candidate in self.candidates if candidate.name in self.outcome.members(name)]
        self.report, self._n_done, self._n_fits, self._n_steps = report, 0, len(members), 0

        def fit(candidate: Candidate) -> Ranker:
            ranker = self.fitted(candidate, view)
            self._count_fit()
            return ranker

        with self.workers() as workers:
            rankers = list(workers.map(fit, members))
        self.data.release_matrices()
        return self.outcome.ranker(name, {c.name: ranker for c, ranker in zip(members, rankers, strict=True)})


def select_candidate(values: Mapping[str, Floats], safe: str = SAFE) -> tuple[str, str]:
    """Return the selected candidate and the reason.

    The candidate with the highest mean is selected if it leads the safe one by more than `LEAD` standard errors:
    among a dozen candidates one leads by a standard error by chance, and an ensemble of all is hard to beat.

    Args:
        values: measure of each candidate on each query.
        safe: candidate that is selected otherwise.

    >>> even, odd = np.array([0.4, 0.5, 0.6, 0.5]), np.array([0.9, 0.2, 0.9, 0.1])
    >>> select_candidate({SAFE: even, "other": odd})[0], select_candidate({SAFE: even, "other": even + 0.1})[0]
    ('ensemble-weighted', 'other')
    """
    best = max(values, key=lambda name: float(values[name].mean()))
    if best == safe:
        return safe, "it is the best on the selection queries"
    difference = values[best] - values[safe]
    lead = float(difference.mean())
    standard_error = float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else np.inf
    if lead > LEAD * standard_error:
        return best, f"it leads {safe} by {lead:.4f} on the selection queries, more than {LEAD:g} standard errors"
    reason = f"it is the default, and {best} leads it by only {lead:.4f} on them, less than {LEAD:g} standard errors"
    return safe, reason


def without_experts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that are not trained on expert grades."""
    return [candidate for candidate in candidates if not candidate.experts]


def only_crowd(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that are trained on crowd labels alone."""
    return [candidate for candidate in candidates if candidate.only_crowd]
