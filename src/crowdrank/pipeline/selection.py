"""The trial of the candidates: each ranks queries that it did not learn from, and one is chosen by experts' grades."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import CrowdrankError, InputError
from crowdrank.label_learning.remapped_labels import Remapped
from crowdrank.pipeline.candidates import Candidate, TrainingView
from crowdrank.pipeline.consensus_fits import Opinions
from crowdrank.pipeline.run_data import Material
from crowdrank.pipeline.settings import Settings
from crowdrank.pipeline.stage_cache import Stages, code, digest
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.ensemble import Ensemble, shrunk_weights, standardize_within_query
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.validation import Validation

LEAST_CHOICE = 5
"""With fewer expert-graded queries nothing is chosen by them."""
SIDE_BY_SIDE = 50_000
"""Up to so many rows, fits run side by side in one thread each; beyond it one after the other in all threads."""
CROWD = "ensemble-crowd"
ALL = "ensemble-all"
SAFE = "ensemble-weighted"
REMAPPERS = ("linear", "boosted")
"""Candidates that learn from remapped labels begin with one of these."""
LEAD = 2.0
"""A candidate is chosen over the safe one if it leads by more than so many standard errors of the difference."""
NO_MATTER = ("method", "candidates", "baseline", "test", "folds", "refit", "n_jobs")
"""Settings that change no single fit."""
FINE = 1000
"""Progress is told in so many parts of a fit."""
STEPS = 10
"""Weights of ensembles are cut into so many parts."""
ENSEMBLES: Mapping[str, str] = {
    SAFE: "all rankers, in parts found on other expert queries and drawn towards equal ones",
    ALL: "the mean of all rankers",
    CROWD: "the mean of all rankers that learn from the crowd alone",
    "ensemble-expert": "ensemble-crowd and expert-only, in parts found on other expert queries",
}


@dataclass(frozen=True, eq=False)
class ExpertSplit:
    """Which expert-graded queries are for the choice, fold by fold, and which for the test."""

    folds: tuple[Integers, ...]
    test: Integers

    @property
    def development(self) -> Integers:
        """The queries that the choice is made by."""
        return np.sort(np.concatenate(self.folds)) if self.folds else np.empty(0, np.int64)


def parted(queries: Integers, settings: Settings) -> ExpertSplit:
    """Deal expert-graded queries: the test's share, and folds for the choice; all to the test where they are few.

    >>> parts = parted(np.arange(20), Settings(test=0.25, folds=3))
    >>> len(parts.test), [len(fold) for fold in parts.folds]
    (5, [5, 5, 5])
    """
    order = np.random.default_rng(settings.random_state).permutation(queries)
    n_test = round(settings.test * len(order))
    if settings.test and len(order) - n_test < LEAST_CHOICE:
        return ExpertSplit((), np.sort(order))
    if len(order) < LEAST_CHOICE:
        return ExpertSplit((), order[:0])
    return dealt(order[n_test:], order[:n_test], settings.folds)


def dealt(development: Integers, test: Integers, folds: int) -> ExpertSplit:
    """Queries for the choice, dealt in turn into folds of two queries or more, and those for the test."""
    n = min(folds, len(development) // 2)
    return ExpertSplit(tuple(np.sort(development[number::n]) for number in range(n)), np.sort(test))


class ExpertScorer:
    """How good scores are on some expert-graded queries."""

    def __init__(self, material: Material, queries: Integers, settings: Settings) -> None:
        rows = np.flatnonzero(np.isin(material.query, queries) & ~np.isnan(material.expert))
        self.rows = rows[np.argsort(material.query[rows], kind="stable")]
        query = material.query[self.rows]
        starts = np.flatnonzero(np.diff(query, prepend=-1))
        lists = RankingData(
            np.empty((len(rows), 0)),
            material.expert[self.rows],
            None,
            np.append(starts, len(rows)),
            None,
            self.rows,
            (),
        )
        self.validation = Validation(lists, settings.measure, settings.gains)

    def values(self, score: Floats) -> Floats:
        """The measure of every query, from the scores of all rows."""
        return self.validation.per_query(score[self.rows])


@dataclass(eq=False)
class Outcome:
    """What the trial found.

    Attributes:
        parts: which queries were for what.
        scores: of every candidate (n_rows,): of queries for the choice by what learned from others, of test queries by
            the final fit; NaN elsewhere.
        values: of every candidate, the measure of each query for the choice.
        weights: of ensembles: how much each member counts.
        rankers: those of the final fit, of candidates that are no ensembles.
        final: what the final fit may see.
        failed: why candidates are not there.
        chosen, why: the choice, and a sentence.

    """

    parts: ExpertSplit
    scores: dict[str, Floats] = field(default_factory=dict)
    values: dict[str, Floats] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    rankers: dict[str, Ranker] = field(default_factory=dict)
    final: TrainingView | None = None
    failed: dict[str, str] = field(default_factory=dict)
    chosen: str = ""
    why: str = ""

    @cached_property
    def remapped(self) -> dict[str, Remapped]:
        """What the remappers of the final fit make of the labels, by kind."""
        if self.final is None:
            return {}
        tried = [kind for kind in REMAPPERS if any(name.startswith(f"{kind}-") for name in self.rankers)]
        return {kind: self.final.remapped(kind) for kind in tried}

    def ranker(self, name: str, rankers: Mapping[str, Ranker] | None = None) -> Ranker:
        """The ranker behind a candidate's name; an ensemble is put together."""
        made = self.rankers if rankers is None else rankers
        if name not in self.weights:
            return made[name]
        parts = self.weights[name]
        return Ensemble.from_weights([made[member] for member in parts], list(parts.values()))

    def members(self, name: str) -> list[str]:
        """The candidates that must be fitted for this one."""
        return list(self.weights[name]) if name in self.weights else [name]


class CandidateSelection:
    """Candidates on their way through the folds."""

    def __init__(
        self,
        material: Material,
        opinions: Opinions,
        settings: Settings,
        candidates: Sequence[Candidate],
        parts: ExpertSplit,
        stages: Stages,
        report: Report | None = None,
    ) -> None:
        self.material, self.opinions, self.settings, self.stages = material, opinions, settings, stages
        self.candidates = list(candidates)
        self.parts = parts
        self.report = report
        self.outcome = Outcome(parts)
        self.evaluated = material.rows_of(np.concatenate([parts.development, parts.test]))
        about = {name: value for name, value in settings.to_dict().items() if name not in NO_MATTER}
        self._key = digest(code(), opinions.key, material.features, about)
        self._rankers: dict[str, Ranker] = {}
        self._lessons: dict[str, TrainingView] = {}
        self._done, self._most = 0, 0

    # Lessons.

    def lesson(self, held_out: Integers, experts: Integers) -> TrainingView:
        """What may be seen when the crowd labels of some queries may not, and the expert grades of some may."""
        hidden = np.isin(self.material.query, held_out)
        crowd = np.flatnonzero((self.material.judged > 0) & ~hidden)
        graded = ~np.isnan(self.material.expert)
        expert = np.flatnonzero(graded & np.isin(self.material.query, experts))
        key = digest(self._key, crowd, expert, self.material.expert[expert])
        if key not in self._lessons:
            n_jobs = 1 if self.side_by_side else self.settings.n_jobs
            told = (self.material, self.opinions, self.settings, crowd, expert, self.stages, key)
            self._lessons[key] = TrainingView(*told, n_jobs=n_jobs, report=self._within)
        return self._lessons[key]

    @property
    def side_by_side(self) -> bool:
        """Whether several fits run at once."""
        return len(self.material.query) <= SIDE_BY_SIDE

    def key(self, candidate: Candidate, lesson: TrainingView) -> str:
        """The name of a fit by what goes into it: experts do not change who does not listen to them."""
        crowd = lesson.crowd if candidate.crowd else None
        expert = [lesson.expert, self.material.expert[lesson.expert]] if candidate.expert else []
        return digest(self._key, candidate.name, crowd, *expert)

    # Fits.

    def fitted(self, candidate: Candidate, lesson: TrainingView) -> Ranker:
        """The ranker of a candidate, kept."""
        key = self.key(candidate, lesson)
        if key not in self._rankers:
            self._rankers[key] = self.stages.kept(
                f"ranker-{candidate.name}",
                key,
                lambda: candidate.learn(lesson),
                lambda ranker, place: ranker.save(place),
                Ranker.load,
            )
        return self._rankers[key]

    def scored(self, candidate: Candidate, lesson: TrainingView) -> Floats:
        """The scores of all rows of expert-graded queries; only they are kept of a fold."""
        key = self.key(candidate, lesson)

        def make() -> dict[str, Any]:
            ranker = self._rankers.get(key) or candidate.learn(lesson)
            known = self.material.taken(self.evaluated)
            return {"score": ranker.predict(known, known.query)}

        return np.asarray(self.stages.arrays(f"scores-{candidate.name}", digest(key, self.evaluated), make)["score"])

    def run(self) -> Outcome:
        """Fit everything, put ensembles together, choose."""
        final = self.lesson(self.parts.test, self.parts.development)
        folds = [
            self.lesson(
                np.concatenate([fold, self.parts.test]), np.setdiff1d(self.parts.development, fold, assume_unique=True)
            )
            for fold in self.parts.folds
        ]
        self._most = len(self.candidates) * (1 + len(folds))
        with self._workers() as workers:
            # Final fits come first: where no fold hides a crowd label from a candidate, its folds are the final fit.
            list(workers.map(lambda candidate: self._final(candidate, final), self.candidates))
            jobs = [(candidate, number) for number in range(len(folds)) for candidate in self.candidates]
            list(workers.map(lambda job: self._fold(job[0], folds[job[1]], job[1]), jobs))
        self.outcome.final = final
        self.candidates = [c for c in self.candidates if c.name not in self.outcome.failed]
        # In their order, whichever was ready first.
        self.outcome.rankers = {c.name: self.outcome.rankers[c.name] for c in self.candidates}
        self.outcome.scores = {c.name: self.outcome.scores[c.name] for c in self.candidates}
        self._require_some()
        self._ensembles()
        self._choose()
        return self.outcome

    def _final(self, candidate: Candidate, lesson: TrainingView) -> None:
        with self._failing(candidate):
            ranker = self.fitted(candidate, lesson)
            score = np.full(len(self.material.query), np.nan)
            rows = self.material.rows_of(self.parts.test)
            if len(rows):
                known = self.material.taken(rows)
                score[rows] = ranker.predict(known, known.query)
            self.outcome.rankers[candidate.name], self.outcome.scores[candidate.name] = ranker, score

    def _fold(self, candidate: Candidate, lesson: TrainingView, number: int) -> None:
        if candidate.name in self.outcome.failed:
            self._count_fit()
            return
        with self._failing(candidate):
            found = np.full(len(self.material.query), np.nan)
            found[self.evaluated] = self.scored(candidate, lesson)
            rows = self.material.rows_of(self.parts.folds[number])
            self.outcome.scores[candidate.name][rows] = found[rows]

    @contextmanager
    def _failing(self, candidate: Candidate) -> Iterator[None]:
        """A candidate that cannot be fitted here is out of the trial; why is told."""
        try:
            yield
        except CrowdrankError as problem:
            self.outcome.failed.setdefault(candidate.name, str(problem).rstrip("."))
        self._count_fit()

    def _count_fit(self) -> None:
        """Count a fit that is finished or not needed, and report the progress."""
        self._done += 1
        self._tell(0.0)

    def _within(self, step: int, most: int, measure: float) -> None:
        """How far the fit is that is under way; of several side by side only their ends are told."""
        if not self.side_by_side:
            self._tell(step / max(most, 1))

    def _tell(self, part: float) -> None:
        if self.report is not None:
            self.report(round(FINE * (self._done + part)), FINE * self._most, float("nan"))

    @contextmanager
    def _workers(self) -> Iterator[ThreadPoolExecutor]:
        n = (self.settings.n_jobs or default_threads()) if self.side_by_side else 1
        # Products of matrices within fits that run side by side would otherwise ask for all cores each.
        with warnings.catch_warnings(), threadpool_limits(1 if n > 1 else None, user_api="blas"):
            # Said once for the files, not once for every fit.
            warnings.simplefilter("ignore", UserWarning)
            pool = ThreadPoolExecutor(n)
            try:
                yield pool
            finally:
                pool.shutdown(cancel_futures=True)  # an interrupt waits for running fits, not for all

    def _require_some(self) -> None:
        if not any(candidate.crowd and not candidate.expert for candidate in self.candidates):
            name, why = next(iter(self.outcome.failed.items()))
            raise InputError(f"no ranker could be trained on the crowd's labels ({name}: {why})")

    # Ensembles.

    def _ensembles(self) -> None:
        base = {candidate.name: candidate for candidate in self.candidates}
        crowd = [name for name, candidate in base.items() if candidate.crowd and not candidate.expert]
        self._add(CROWD, {name: 1 / len(crowd) for name in crowd})
        if not self.parts.folds:
            return
        if len(crowd) < len(base):
            self._add(ALL, {name: 1 / len(base) for name in base})
        if "expert-only" in base:
            self._stack("ensemble-expert", [CROWD, "expert-only"])
        if len(base) > 1:
            self._stack(SAFE, list(base))

    def _stack(self, name: str, members: list[str]) -> None:
        """An ensemble whose parts are found on the queries for the choice; a fold's own ones by the other folds."""
        votes = np.stack([self._votes(member) for member in members])
        score = np.full(len(self.material.query), np.nan)
        development = self.parts.development
        for fold in self.parts.folds:
            weights = self._best(votes, np.setdiff1d(development, fold, assume_unique=True))
            rows = self.material.rows_of(fold)
            score[rows] = weights @ votes[:, rows]
        weights = self._best(votes, development)
        rows = self.material.rows_of(self.parts.test)
        score[rows] = weights @ votes[:, rows]
        flat: dict[str, float] = {}
        for member, weight in zip(members, weights, strict=True):
            for part, share in self.outcome.weights.get(member, {member: 1.0}).items():
                flat[part] = flat.get(part, 0.0) + float(weight) * share
        self.outcome.weights[name] = {part: share for part, share in flat.items() if share > 0}
        self.outcome.scores[name] = score

    def _best(self, votes: Floats, queries: Integers) -> Floats:
        judge = ExpertScorer(self.material, queries, self.settings)
        return shrunk_weights(votes[:, judge.rows], judge.validation, STEPS, self.settings.random_state)

    def _add(self, name: str, weights: dict[str, float]) -> None:
        self.outcome.weights[name] = weights
        self.outcome.scores[name] = np.asarray(sum(share * self._votes(part) for part, share in weights.items()))

    def _votes(self, name: str) -> Floats:
        """A candidate's scores, standardized within the query; those of an ensemble are means of such."""
        score = self.outcome.scores[name]
        if name in self.outcome.weights:
            return score
        known = np.flatnonzero(~np.isnan(score))
        votes = np.full(len(score), np.nan)
        votes[known] = standardize_within_query(score[known], self.material.query[known])
        return votes

    # The choice.

    def _choose(self) -> None:
        outcome = self.outcome
        if not self.parts.folds:
            outcome.chosen = CROWD
            n = len(self.material.graded_queries)
            few = f"{counted(n, 'expert-graded query')} {'is' if n == 1 else 'are'} too few to choose by" if n else ""
            outcome.why = f"{few or 'without expert grades nothing can be chosen by them'}: {ENSEMBLES[CROWD]} is taken"
            return
        judge = ExpertScorer(self.material, self.parts.development, self.settings)
        outcome.values = {name: judge.values(score) for name, score in outcome.scores.items()}
        outcome.chosen, outcome.why = chosen(outcome.values, SAFE if SAFE in outcome.values else CROWD)

    # Once more, from everything.

    def refit(self, name: str, report: Report | None = None) -> Ranker:
        """The candidate's ranker, learned from every label and every expert grade; with a progress of its own."""
        lesson = self.lesson(np.empty(0, np.int64), self.material.graded_queries)
        members = [candidate for candidate in self.candidates if candidate.name in self.outcome.members(name)]
        self.report, self._done, self._most = report, 0, len(members)

        def learned(candidate: Candidate) -> Ranker:
            ranker = self.fitted(candidate, lesson)
            self._done += 1
            self._tell(0.0)
            return ranker

        with self._workers() as workers:
            made = list(workers.map(learned, members))
        rankers = {candidate.name: ranker for candidate, ranker in zip(members, made, strict=True)}
        return self.outcome.ranker(name, rankers)


def chosen(values: Mapping[str, Floats], safe: str = SAFE) -> tuple[str, str]:
    """The best by mean, if it leads the safe one by more than so many standard errors; else the safe one.

    Of a dozen candidates one leads by a standard error by chance alone, and all of them together are hard to beat.

    >>> even, odd = np.array([0.4, 0.5, 0.6, 0.5]), np.array([0.9, 0.2, 0.9, 0.1])
    >>> chosen({SAFE: even, "other": odd})[0], chosen({SAFE: even, "other": even + 0.1})[0]
    ('ensemble-weighted', 'other')
    """
    best = max(values, key=lambda name: float(values[name].mean()))
    if best == safe:
        return safe, "it is best on the expert queries for the choice"
    off = values[best] - values[safe]
    error = float(off.std(ddof=1) / np.sqrt(len(off))) if len(off) > 1 else np.inf
    if off.mean() > LEAD * error:
        return best, f"it leads {safe} by {off.mean():.4f} on the expert queries for the choice, more than chance alone"
    return safe, f"{best} leads it by {off.mean():.4f} on the expert queries for the choice, which may be chance"


def only_crowd(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that need no experts."""
    return [candidate for candidate in candidates if candidate.crowd and not candidate.expert]
