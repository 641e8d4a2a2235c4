"""What a run would do, and roughly how long it takes, without doing it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from crowdrank._text import counted
from crowdrank.consensus import get_aggregator
from crowdrank.pipeline.candidates import Candidate, TrainingView, sensible
from crowdrank.pipeline.consensus_fits import Opinions
from crowdrank.pipeline.run_data import Material, gather
from crowdrank.pipeline.selection import LEAST_CHOICE, CandidateSelection, ExpertSplit, parted
from crowdrank.pipeline.settings import Settings
from crowdrank.pipeline.stage_cache import Stages
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.lambdamart import LambdaMART

ROUNDS = 3
"""So many rounds of boosting are timed."""
ITERATIONS = 60
"""About so many passes over the judgments a consensus takes."""
PASSES: dict[str, float] = {"majority": 0, "average": 0, "family-mean": 0, "gda-pairwise": 10, "auto": 20}
"""Of methods whose fit is not one of about that many passes: how many such fits it is worth."""


def plan(judgments: Any, features: Any, expert: Any = None, honeypots: Any = None, **settings: Any) -> list[str]:
    """What `run` would do with the same arguments, in sentences, and roughly how long it would take.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, gold_queries=15, random_state=1)
    >>> for line in plan(world.judgments, world.features, world.gold)[:2]:
    ...     print(line)
    Judgments of 419 documents by 58 assessors, 441 documents with features in 40 queries.
    Of 14 expert-graded queries 5 are for the test, 9 for the choice in 4 folds.
    """
    told = Settings.of(settings)
    material = gather(judgments, features, expert, honeypots, unjudgeable_as=told.unjudgeable_as)
    candidates, out = sensible(material, told.candidates)
    parts = parted(material.graded_queries, told)
    if not parts.folds:
        candidates = [candidate for candidate in candidates if not candidate.expert]
    methods = list(dict.fromkeys([told.method, *(method for one in candidates for method in one.needs)]))
    lines = [
        f"Judgments of {counted(material.labels.n_items, 'document')} by "
        f"{counted(material.labels.n_assessors, 'assessor')}, {counted(len(material.query), 'document')} with features "
        f"in {counted(len(material.query_ids), 'query')}.",
        _parts_told(material, parts),
        f"Consensus by {', '.join(methods)}.",
        f"Candidates: {', '.join(candidate.name for candidate in candidates)}, and ensembles of them.",
        *(f"Left out: {name}, as {why}." for name, why in out.items()),
        *material.notes,
    ]
    return [*lines, f"Roughly {_about(seconds(material, told, candidates, parts, methods))} on this machine."]


def _parts_told(material: Material, parts: ExpertSplit) -> str:
    n = len(material.graded_queries)
    if not n:
        return "No expert grades: nothing is chosen or tested by them."
    if not parts.folds:
        return (
            f"{counted(n, 'expert-graded query')} {'is' if n == 1 else 'are'} too few to choose by (at least "
            f"{LEAST_CHOICE} besides those for the test): all are for the test."
        )
    folds = counted(len(parts.folds), "fold")
    return (
        f"Of {counted(n, 'expert-graded query')} {len(parts.test)} are for the test, {len(parts.development)} for the "
        f"choice in {folds}."
    )


def seconds(
    material: Material, settings: Settings, candidates: list[Candidate], parts: ExpertSplit, methods: list[str]
) -> float:
    """How long a run takes, from a few rounds and passes that are timed now."""
    parameters = {settings.method: settings.method_settings}
    opinions = Opinions(material, Stages(None), settings.n_jobs, parameters=parameters)
    trial = CandidateSelection(material, opinions, settings, candidates, parts, Stages(None))
    lesson = trial.lesson(parts.test, parts.development)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = _fit_seconds(lesson)
        model = get_aggregator("dawid-skene", n_iter=2)
        one_pass = _timed_again(lambda: model.fit(material.labels)) / 2
    consensus = sum(PASSES.get(method, 1) for method in methods) * ITERATIONS * one_pass
    hidden = np.isin(material.query[material.judged > 0], parts.development).any()
    fits = sum(_fits(candidate, parts, bool(hidden), settings) * candidate.cost for candidate in candidates)
    at_once = (settings.n_jobs or default_threads()) if trial.side_by_side else 1
    return consensus + fits * fit / at_once


def _fits(candidate: Candidate, parts: ExpertSplit, hidden: bool, settings: Settings) -> int:
    """How often a candidate is fitted: once, once more with everything, and in folds that hide something from it."""
    folds = len(parts.folds) if candidate.expert or hidden else 0
    return 1 + folds + (1 if settings.refit and len(parts.test) else 0)


def _fit_seconds(lesson: TrainingView) -> float:
    """The time of one LambdaMART, from a few of its rounds on labels that cost nothing."""
    rows, y = lesson.labels("average", "relevance")
    rounds: list[int] = []

    def few(n: int, stops: bool) -> Ranker:
        ranker = lesson.boosted(n, stops)
        rounds.append(ranker.n_estimators)
        return LambdaMART(**{**ranker.get_params(deep=False), "n_estimators": ROUNDS})

    return _timed_again(lambda: lesson.taught(few, rows, y)) / ROUNDS * rounds[0]


def _timed_again(work: Callable[[], Any]) -> float:
    """The time of doing it a second time: the first may compile, which is over soon and would count many times."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _about(number: float) -> str:
    if number < 90:
        return f"{max(10, round(number, -1)):.0f} seconds"
    return f"{number / 60:.0f} minutes" if number < 5400 else f"{number / 3600:.1f} hours"
