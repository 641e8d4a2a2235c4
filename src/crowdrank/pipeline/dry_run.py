"""Plan of a run and an estimate of its time, without running it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from crowdrank._text import counted
from crowdrank.consensus import get_aggregator
from crowdrank.pipeline.candidates import Candidate, TrainingView, choose_candidates, lambdamart
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData, build_run_data
from crowdrank.pipeline.selection import (
    MIN_SELECTION_QUERIES,
    CandidateSelection,
    ExpertSplit,
    only_crowd,
    split_expert_queries,
)
from crowdrank.pipeline.settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.lambdamart import LambdaMART

TIMED_ROUNDS = 3
"""Number of boosting rounds that are timed."""
ITERATIONS = 60
"""Typical number of passes over the judgments in a fit of a consensus model."""
RELATIVE_TIMES: dict[str, float] = {"majority": 0, "average": 0, "family-mean": 0, "gda-pairwise": 10, "auto": 20}
"""Time of a consensus model as a multiple of `ITERATIONS` passes of Dawid-Skene, by default 1."""


def plan(judgments: Any, features: Any, expert: Any = None, honeypots: Any = None, **settings: Any) -> list[str]:
    """Return what `run` would do with the same arguments, and an estimate of its time, in sentences.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, gold_queries=15, random_state=1)
    >>> for line in plan(world.judgments, world.features, world.gold)[:2]:
    ...     print(line)
    Judgments of 419 documents by 58 assessors, 441 documents with features in 40 queries.
    Of 14 expert-graded queries 5 are for the test, 9 for the selection in 4 folds.
    """
    run_settings = RunSettings.of(settings)
    data = build_run_data(judgments, features, expert, honeypots, unjudgeable_as=run_settings.unjudgeable_as)
    candidates, skipped = choose_candidates(data, run_settings.candidates)
    split = split_expert_queries(data.graded_queries, run_settings)
    if not split.folds:
        candidates = only_crowd(candidates)
    methods = list(dict.fromkeys([run_settings.method, *(method for one in candidates for method in one.methods)]))
    lines = [
        f"Judgments of {counted(data.labels.n_items, 'document')} by "
        f"{counted(data.labels.n_assessors, 'assessor')}, {counted(len(data.query), 'document')} with features "
        f"in {counted(len(data.query_ids), 'query')}.",
        _describe_split(data, split),
        f"Consensus by {', '.join(methods)}.",
        f"Candidates: {', '.join(candidate.name for candidate in candidates)}, and ensembles of them.",
        *(f"Left out: {name}, because {reason}." for name, reason in skipped.items()),
        *map(str, data.notes),
    ]
    seconds = estimate_seconds(data, run_settings, candidates, split, methods)
    return [*lines, f"Roughly {_format_duration(seconds)} on this machine."]


def _describe_split(data: RunData, split: ExpertSplit) -> str:
    n = len(data.graded_queries)
    if not n:
        return "No expert grades: no selection and no test."
    if not split.folds:
        return (
            f"{counted(n, 'expert-graded query')} {'is' if n == 1 else 'are'} too few for a selection (at least "
            f"{MIN_SELECTION_QUERIES} besides those for the test): all are for the test."
        )
    return (
        f"Of {counted(n, 'expert-graded query')} {len(split.test)} are for the test, {len(split.development)} for the "
        f"selection in {counted(len(split.folds), 'fold')}."
    )


def estimate_seconds(
    data: RunData, settings: RunSettings, candidates: list[Candidate], split: ExpertSplit, methods: list[str]
) -> float:
    """Return the estimated time of a run, from a few boosting rounds and passes that are timed now."""
    parameters = {settings.method: settings.method_settings}
    fits = ConsensusFits(data, StageCache(None), settings.n_jobs, parameters=parameters)
    selection = CandidateSelection(data, fits, settings, candidates, split, StageCache(None))
    view = selection.view(split.test, split.development)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_seconds = _time_ranker(view)
        model = get_aggregator("dawid-skene", n_iter=2)
        pass_seconds = _time_second_call(lambda: model.fit(data.labels)) / 2
    consensus = sum(RELATIVE_TIMES.get(method, 1) for method in methods) * ITERATIONS * pass_seconds
    folds_hide_labels = bool((data.item[data.rows_of(split.development)] >= 0).any())
    n_fits = sum(_count_fits(one, split, folds_hide_labels, settings) * one.cost for one in candidates)
    n_parallel = (settings.n_jobs or default_threads()) if selection.runs_in_parallel else 1
    return consensus + n_fits * fit_seconds / n_parallel


def _count_fits(candidate: Candidate, split: ExpertSplit, folds_hide_labels: bool, settings: RunSettings) -> int:
    """Return how often a candidate is trained: for the test, on all data, and on folds that hide data from it."""
    folds = len(split.folds) if candidate.experts or folds_hide_labels else 0
    return 1 + folds + (1 if settings.refit and len(split.test) else 0)


def _time_ranker(view: TrainingView) -> float:
    """Return the estimated time of LambdaMART on average labels, from a few rounds."""
    n_rounds = 0

    def make(view: TrainingView, n_rows: int, has_validation: bool) -> Ranker:
        nonlocal n_rounds
        ranker = lambdamart(view, n_rows, has_validation)
        n_rounds = ranker.n_estimators
        return LambdaMART(**{**ranker.get_params(deep=False), "n_estimators": TIMED_ROUNDS})

    return _time_second_call(lambda: view.fit(make, *view.labels("average", "relevance"))) / TIMED_ROUNDS * n_rounds


def _time_second_call(work: Callable[[], Any]) -> float:
    """Return the time of the second call; the first may compile."""
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
