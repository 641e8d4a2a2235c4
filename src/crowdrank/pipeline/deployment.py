"""One forest in place of the selected ranker, for search engines that evaluate no ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crowdrank._numba import available_threads
from crowdrank._progress import Report, split_progress
from crowdrank._typing import Floats, Integers
from crowdrank.pipeline.contrasts import Contrast, interval_text
from crowdrank.pipeline.ranker_test import RankerTest
from crowdrank.pipeline.run_result import DEPLOYABLE, Deployable
from crowdrank.pipeline.stage_cache import digest
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.distillation import distill, rank_correlation
from crowdrank.rankers.ranker import Ranker

MIN_FOREST_THREADS = 4
"""Number of threads from which on a forest uses all of them; with fewer, forests are fitted in one thread each."""


def make_deployable(test: RankerTest, ranker: Ranker, report: Report | None = None) -> Deployable:
    """Return the forest of a run: the selected ranker if it is one forest, otherwise one that imitates it.

    Args:
        test: test of the candidates.
        ranker: the final ranker.
        report: progress function.

    """
    if not isinstance(ranker, BoostedTrees):
        return _Distillation(test, report).run(ranker)
    selected, other = test.chosen, test.outcome.unrestricted
    if other == selected:
        return Deployable(ranker, ranker.best_iteration_)
    contrast = None if test.comparison is None else test.contrast(selected, other)
    correlation = _correlation(test, test.outcome.scores[selected], other)
    return Deployable(ranker, ranker.best_iteration_, "", contrast, correlation)


class DistillationJob(NamedTuple):
    """Ranker to imitate, the view that it was trained on, and the rows to imitate it on."""

    ranker: Ranker
    view: TrainingView
    rows: Integers


@dataclass(frozen=True, eq=False)
class _Distillation:
    """Distillation of the selected ranker: for good, and without the test queries for the test."""

    test: RankerTest
    report: Report | None

    def run(self, ranker: Ranker) -> Deployable:
        test, training, outcome = self.test, self.test.training, self.test.outcome
        data, chosen = training.data, test.chosen
        is_test, rows = np.isin(data.query, test.split.test), np.arange(len(data.query))
        view = training.full_view if test.settings.refit else outcome.final_view
        jobs = [DistillationJob(ranker, view, rows)]
        if is_test.any():
            jobs.append(DistillationJob(outcome.ranker(chosen), outcome.final_view, rows[~is_test]))
        final, *tested = self._distill_all(jobs)
        score = np.full(len(data.query), np.nan)
        for forest in tested:
            score[is_test] = forest.predict(data.matrix(rows[is_test]))
        contrast = None if test.comparison is None else test.contrast_scores(DEPLOYABLE, score, chosen)
        return Deployable(final, final.best_iteration_, chosen, contrast, _correlation(test, score, chosen))

    def _distill_all(self, jobs: list[DistillationJob]) -> list[BoostedTrees]:
        """Return a forest for each ranker, in parallel unless a forest has enough threads of its own."""
        training, reports = self.test.training, split_progress(self.report, len(jobs))
        n_jobs = forest_threads(training)
        if n_jobs > 1:
            return [self._distill(job, n_jobs, report) for job, report in zip(jobs, reports, strict=True)]
        with training.workers() as workers:
            return list(workers.map(lambda job, report: self._distill(job, 1, report), jobs, reports))

    def _distill(self, job: DistillationJob, n_jobs: int, report: Report) -> BoostedTrees:
        """Return a forest that imitates the selected ranker; it is cached."""
        training, outcome, settings = self.test.training, self.test.outcome, self.test.settings
        parameters = {"random_state": settings.random_state, **settings.forest}

        def make() -> BoostedTrees:
            X, query = training.data.matrix(job.rows), training.data.query[job.rows]
            return distill(job.ranker, X, query, n_jobs=n_jobs, progress=report, **parameters)

        keys = [training.key(candidate, job.view) for candidate in outcome.members(outcome.chosen)]
        key = digest(outcome.chosen, outcome.weights.get(outcome.chosen, {}), keys, job.rows, parameters)
        return training.cache.get("deployable", key, make, lambda forest, path: forest.save(path), _load_forest)


def forest_threads(training: CandidateTraining) -> int:
    """Return the number of threads of a forest; with one thread each, forests are fitted in parallel."""
    n_jobs = training.settings.n_jobs or available_threads()
    return 1 if training.runs_in_parallel and n_jobs < MIN_FOREST_THREADS else n_jobs


def _load_forest(path: Path) -> BoostedTrees:
    forest = Ranker.load(path)
    if not isinstance(forest, BoostedTrees):
        raise ValueError("it is not a forest")
    return forest


def _correlation(test: RankerTest, score: Floats, other: str) -> float | None:
    """Return the rank correlation of scores with those of a candidate on the test queries; None if it is undefined."""
    data = test.training.data
    rows = data.rows_of(test.split.test)
    value = rank_correlation(score[rows], test.outcome.scores[other][rows], data.query[rows]) if len(rows) else np.nan
    return None if np.isnan(value) else float(value)


def describe_deployable(deployable: Deployable, measure: str) -> str:
    """Return what the forest costs, in a sentence.

    >>> contrast = Contrast("deployable", "ensemble-all", 0.599, 0.6, -0.001, -0.004, 0.002, 0.5, 8, 9, 3)
    >>> describe_deployable(Deployable(None, 500, "ensemble-all", contrast, 0.91), "nDCG@10")
    'For search engines, one forest of 500 trees (deployable) imitates the selected ranker: its nDCG@10 is 0.5990, that
    of ensemble-all 0.6000 (-0.0010, 95% interval -0.0040 to +0.0020), rank correlation 0.91.'
    """
    contrast, trees = deployable.contrast, f"{deployable.n_trees} trees"
    correlation = deployable.rank_correlation
    similar = "" if correlation is None else f"rank correlation {correlation:.2f}"
    cost = "" if contrast is None else _cost(contrast, measure)
    figures = ", ".join(text for text in (cost, similar) if text)
    if deployable.imitates:
        text = f"For search engines, one forest of {trees} (deployable) imitates the selected ranker"
        return f"{text}: {figures}." if figures else f"{text}."
    text = f"The selected ranker is one forest of {trees}, which search engines can evaluate"
    if contrast is None:
        return f"{text}."
    return f"{text}: {figures}. Without this restriction, {contrast.other} would have been selected."


def _cost(contrast: Contrast, measure: str) -> str:
    return (
        f"its {measure} is {contrast.mean:.4f}, that of {contrast.other} {contrast.other_mean:.4f} "
        f"({interval_text(contrast)})"
    )
