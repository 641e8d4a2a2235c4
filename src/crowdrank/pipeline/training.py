"""Training of candidates on parts of the data: fitted rankers and cross-validated scores, in parallel and cached."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from crowdrank._disk import source_digest
from crowdrank._numba import available_threads
from crowdrank._progress import Report
from crowdrank._typing import Floats, Integers
from crowdrank.errors import CrowdrankError
from crowdrank.pipeline.candidates import Candidate
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.ensembles import MemberScores, fold_pairs
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache, digest
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.ranker import Ranker

if TYPE_CHECKING:
    from crowdrank.pipeline.selection import ExpertSplit

MAX_PARALLEL_CELLS = 100_000_000
"""Maximum number of cells (rows times features) with which fits run in parallel; above it, one uses all threads."""
FIT_SETTINGS = ("gains", "measure", "random_state", "trees")
"""Settings that every fit depends on."""
PROGRESS_STEPS = 1000
"""Number of progress steps per fit."""


class FitProgress:
    """Progress of several fits in parallel threads; it never decreases, although a fit may consist of several parts.

    Args:
        report: progress function of all fits.
        n_fits: number of fits.

    """

    def __init__(self, report: Report | None = None, n_fits: int = 0) -> None:
        self._report, self._n_fits = report, n_fits
        self._n_done = self._n_steps = 0
        self._shares: dict[int, float] = {}  # of the running fit, by thread
        self._lock = threading.Lock()

    def count_fit(self) -> None:
        """Count a finished fit."""
        with self._lock:
            self._n_done += 1
            self._shares.pop(threading.get_ident(), None)
            self._update()

    def report_fit(self, iteration: int, n_iterations: int) -> None:
        """Report the progress within the fit of this thread."""
        with self._lock:
            self._shares[threading.get_ident()] = iteration / max(n_iterations, 1)
            self._update()

    def _update(self) -> None:
        if self._report is not None:
            done = round(PROGRESS_STEPS * (self._n_done + sum(self._shares.values())))
            self._n_steps = max(self._n_steps, done)
            self._report(self._n_steps, PROGRESS_STEPS * self._n_fits, float("nan"))


Job = tuple[Candidate, tuple[int, ...]]
"""Candidate to train, and numbers of the folds that it may not see."""


@dataclass(frozen=True, eq=False)
class TrainedCandidates:
    """Rankers and scores of candidates.

    Attributes:
        rows: (n,) rows of the development and test queries.
        fold: (n,) fold of each of these rows, -1 for test queries.
        view: view that the final models are trained on.
        candidates: candidates that could be trained.
        rankers: final model of each candidate.
        scores: scores of these rows by each candidate.
        failed: reason for each candidate that could not be trained.

    """

    rows: Integers
    fold: Integers
    view: TrainingView
    candidates: list[Candidate]
    rankers: dict[str, Ranker]
    scores: dict[str, MemberScores]
    failed: dict[str, str]


class CandidateTraining:
    """Trains candidates on parts of the data of a run.

    Args:
        data: data of the run.
        fits: consensus models.
        settings: settings of the run.
        cache: cache of the fits.

    """

    def __init__(self, data: RunData, fits: ConsensusFits, settings: RunSettings, cache: StageCache) -> None:
        self.data, self.fits, self.settings, self.cache = data, fits, settings, cache
        self.progress = FitProgress()
        fit_settings = {name: getattr(settings, name) for name in FIT_SETTINGS}
        self._base_key = digest(source_digest(), data.digests["features"], fit_settings)

    # Views and their keys.

    def view(self, held_out: Integers, experts: Integers) -> TrainingView:
        """Return the view without the crowd labels of `held_out` queries and with the grades of `experts` queries."""
        is_held_out = np.zeros(len(self.data.query_ids), bool)
        is_held_out[held_out] = True
        crowd = np.flatnonzero((self.data.item >= 0) & ~is_held_out[self.data.query])
        graded = self.data.graded_rows(experts)
        inputs: list[Any] = [self.data.digests["judgments"], dict(self.fits.parameters)]
        inputs += [crowd, graded, self.data.expert[graded]]
        if self.data.preferences is not None:
            inputs.append(self.data.digests["preferences"])
        return TrainingView(
            self.data,
            self.fits,
            self.settings,
            crowd,
            graded,
            self.cache,
            digest(self._base_key, *inputs),
            1 if self.runs_in_parallel else self.settings.n_jobs,
            lambda iteration, n_iterations, _: self.progress.report_fit(iteration, n_iterations),
        )

    @property
    def full_view(self) -> TrainingView:
        """View with all crowd labels and expert grades."""
        return self.view(np.empty(0, np.int64), self.data.graded_queries)

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
        """Return the ranker of a candidate trained on a view; it is stored."""
        return self.cache.get(
            f"ranker-{candidate.name}",
            self.key(candidate, view),
            lambda: candidate.fit(view),
            lambda ranker, path: ranker.save(path),
            Ranker.load,
        )

    def scored(self, candidate: Candidate, view: TrainingView, rows: Integers) -> Floats:
        """Return the scores of some rows; they are stored, the ranker is kept in memory only."""
        name, key = candidate.name, self.key(candidate, view)

        def make() -> dict[str, Floats]:
            ranker = self.cache.remember(f"ranker-{name}", key, lambda: candidate.fit(view))
            return {"score": self._predict(ranker, rows)}

        return np.asarray(self.cache.arrays(f"scores-{name}", digest(key, rows), make)["score"])

    def _predict(self, ranker: Ranker, rows: Integers) -> Floats:
        return ranker.predict(self.data.matrix(rows), self.data.query[rows])

    def fit_all(
        self, candidates: Sequence[Candidate], view: TrainingView, report: Report | None = None
    ) -> dict[str, Ranker]:
        """Return the rankers of some candidates trained on a view."""
        self.progress = FitProgress(report, len(candidates))

        def fit(candidate: Candidate) -> Ranker:
            ranker = self.fitted(candidate, view)
            self.progress.count_fit()
            return ranker

        with self.workers() as workers:
            rankers = list(workers.map(fit, candidates))
        return {candidate.name: ranker for candidate, ranker in zip(candidates, rankers, strict=True)}

    def cross_validate(
        self, candidates: Sequence[Candidate], split: ExpertSplit, report: Report | None = None
    ) -> TrainedCandidates:
        """Train candidates on all folds, and without each fold and some pairs of folds, and score the folds.

        A model without two folds ranks each of them in the choice of the weights for the other one. Only members of
        ensembles that are trained on expert grades need such models.
        """
        members = [candidate for candidate in candidates if not candidate.is_control]
        nested = [candidate for candidate in members if candidate.experts] if len(members) > 1 else []
        final: list[Job] = [(candidate, ()) for candidate in candidates]
        parts: list[Job] = [(candidate, (number,)) for number in range(len(split.folds)) for candidate in candidates]
        parts += [(candidate, pair) for pair in fold_pairs(len(split.folds)) for candidate in nested]
        rows = self.data.rows_of(np.concatenate([split.development, split.test]))
        fold, failed = split.fold_of(self.data.query[rows]), dict[str, str]()
        views = {numbers: self.view(*split.without(*numbers)) for _, numbers in (((), ()), *parts)}
        self.progress = FitProgress(report, len(final) + len(parts))

        def score(job: Job) -> Floats | None:
            candidate, numbers = job
            # A candidate that fails only without two folds remains; their weights are chosen without its scores.
            with self._catch_failure(candidate, failed if len(numbers) < 2 else {}):
                if numbers:
                    return None if candidate.name in failed else self.scored(candidate, views[numbers], rows)
                ranker, tested = self.fitted(candidate, views[()]), rows[fold < 0]
                return self._predict(ranker, tested) if len(tested) else np.empty(0)
            return None

        with self.workers() as workers:
            # The final models are trained first: a fold that hides nothing from a candidate reuses its final model.
            jobs = [*zip(final, workers.map(score, final), strict=True)]
            jobs += [*zip(parts, workers.map(score, parts), strict=True)]
        found = {(candidate.name, numbers): one for (candidate, numbers), one in jobs if one is not None}
        trained = [candidate for candidate in candidates if candidate.name not in failed]
        return TrainedCandidates(
            rows,
            fold,
            views[()],
            trained,
            {candidate.name: self.fitted(candidate, views[()]) for candidate in trained},
            {candidate.name: _member_scores(candidate, found, fold, len(split.folds)) for candidate in trained},
            failed,
        )

    @contextmanager
    def _catch_failure(self, candidate: Candidate, failed: dict[str, str]) -> Iterator[None]:
        """Record the reason if a candidate cannot be trained, and count the fit."""
        try:
            yield
        except CrowdrankError as problem:
            failed.setdefault(candidate.name, str(problem).rstrip("."))
        self.progress.count_fit()

    @contextmanager
    def workers(self) -> Iterator[ThreadPoolExecutor]:
        """Yield the threads in which models are fitted, each model in one thread; one if a fit uses all threads."""
        n = (self.settings.n_jobs or available_threads()) if self.runs_in_parallel else 1
        # Matrix products would otherwise use all cores: those of parallel fits, and those of a run in few threads.
        with warnings.catch_warnings(), threadpool_limits(1 if n > 1 else self.settings.n_jobs, user_api="blas"):
            # The features are checked once for the run, not once per fit.
            warnings.simplefilter("ignore", UserWarning)
            pool = ThreadPoolExecutor(n, initializer=self.cache.profiler.use_thread_clock if n > 1 else None)
            try:
                yield pool
            finally:
                pool.shutdown(cancel_futures=True)  # an interrupt waits for running fits only


def _member_scores(
    candidate: Candidate, found: Mapping[tuple[str, tuple[int, ...]], Floats], fold: Integers, n_folds: int
) -> MemberScores:
    """Return the scores of a candidate by models that have not seen the row, from the scores by each model.

    Args:
        candidate: the candidate.
        found: scores by name of the candidate and numbers of the folds that the model has not seen; without such
            numbers those of the test queries, otherwise those of all rows.
        fold: (n_rows,) fold of each row, -1 for test queries.
        n_folds: number of folds.

    """
    score = np.empty(len(fold))
    score[fold < 0] = found[candidate.name, ()]
    for number in range(n_folds):
        score[fold == number] = found[candidate.name, (number,)][fold == number]
    if not candidate.experts:
        return MemberScores(score, np.broadcast_to(score, (n_folds, len(fold))))
    nested = np.full((n_folds, len(fold)), np.nan)
    for pair in fold_pairs(n_folds):
        for hidden, ranked in (pair, pair[::-1]):
            if (candidate.name, pair) in found:
                nested[hidden, fold == ranked] = found[candidate.name, pair][fold == ranked]
    return MemberScores(score, nested)
