"""Plan of a run and an estimate of its time, without running it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crowdrank._numba import available_threads
from crowdrank._text import counted
from crowdrank._typing import Integers
from crowdrank.errors import CrowdrankError, Message
from crowdrank.pipeline.baseline import add_baseline
from crowdrank.pipeline.candidates import Candidate, choose_candidates, consensus_methods, remapper_label_features
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.deployment import forest_threads
from crowdrank.pipeline.ensembles import WEIGHT_STEPS, fold_pairs
from crowdrank.pipeline.run import prepare_data
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.selection import (
    MIN_SELECTION_QUERIES,
    ExpertScorer,
    ExpertSplit,
    split_queries,
    without_experts,
)
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.pipeline.training_view import FIT, TrainingView
from crowdrank.rankers.distillation import MIN_DISTILLATION_CELLS, N_TREES, distill
from crowdrank.rankers.ensemble import shrunk_weights
from crowdrank.rankers.linear import GLS

MAX_SAMPLE_ROWS = 10_000
"""Maximum number of rows on which candidates are trained once to time them."""
MIN_SAMPLE_QUERIES = 20
"""Minimum number of queries in this sample, of the expert-graded queries and of the others."""

FEW_TREES = (5, 25)
"""Numbers of trees from which the time of a forest is estimated."""


def plan(
    judgments: Any,
    features: Any,
    expert: Any = None,
    honeypots: Any = None,
    *,
    preferences: Any = None,
    note_text: Callable[[Message], str] = str,
    **settings: Any,
) -> list[str]:
    """Return what `run` would do with the same arguments, and an estimate of its time, in sentences.

    `note_text` returns the text of a note.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, gold_queries=15, random_state=1)
    >>> for line in plan(world.judgments, world.features, world.gold, candidates="majority,gls")[:2]:
    ...     print(line)
    Judgments of 419 documents by 58 assessors, 441 documents with features in 40 queries.
    Of 14 expert-graded queries 5 are for the test, 9 for the selection in 4 folds.
    """
    inputs = (judgments, features, expert, honeypots)
    data, run_settings, candidates, skipped, split = _prepare(*inputs, settings, preferences)
    methods = [*consensus_methods(run_settings, candidates)]
    methods += [f"{run_settings.method} with features"] if run_settings.feature_labels else []
    with_features = f", {counted(len(data.query), 'document')} with features" if data.has_features else ""
    lines = [
        f"Judgments of {counted(data.labels.n_items, 'document')} by "
        f"{counted(data.labels.n_assessors, 'assessor')}{with_features} in {counted(len(data.query_ids), 'query')}.",
        _describe_split(data, split),
        f"Consensus by {', '.join(methods)}.",
        f"Candidates: {', '.join(candidate.name for candidate in candidates)}, and ensembles of them."
        if candidates
        else "No ranker is trained.",
        *(f"Left out: {name}, because {reason}." for name, reason in skipped.items()),
        *map(note_text, data.notes),
    ]
    seconds = estimate_seconds(data, run_settings, candidates, split)
    return [*lines, f"Roughly {_format_duration(seconds)} on this machine."]


def plan_seconds(
    judgments: Any,
    features: Any,
    expert: Any = None,
    honeypots: Any = None,
    *,
    preferences: Any = None,
    **settings: Any,
) -> float:
    """Return the estimated time in seconds of `run` with the same arguments."""
    inputs = (judgments, features, expert, honeypots)
    data, run_settings, candidates, _, split = _prepare(*inputs, settings, preferences)
    return estimate_seconds(data, run_settings, candidates, split)


def _prepare(
    judgments: Any, features: Any, expert: Any, honeypots: Any, settings: Mapping[str, Any], preferences: Any = None
) -> tuple[RunData, RunSettings, list[Candidate], dict[str, str], ExpertSplit]:
    """Return data, settings, candidates, reasons for skipped candidates, and the split of a run."""
    run_settings = RunSettings.of(settings)
    data, _ = prepare_data(judgments, features, expert, honeypots, run_settings, preferences=preferences)
    split = split_queries(data, run_settings)
    if not data.has_features:
        return data, run_settings, [], {}, split
    candidates, skipped = choose_candidates(data, run_settings.candidates, thorough=run_settings.thorough)
    candidates, _ = add_baseline(data, run_settings.baseline, candidates)
    return data, run_settings, candidates if split.folds else without_experts(candidates), skipped, split


def _describe_split(data: RunData, split: ExpertSplit) -> str:
    n = len(data.graded_queries)
    if not n:
        return "No expert grades: no selection and no test."
    if not split.folds:
        use = "all are for the test" if len(split.test) else "there is no test either"
        return (
            f"{counted(n, 'expert-graded query')} {'is' if n == 1 else 'are'} too few for a selection (at least "
            f"{MIN_SELECTION_QUERIES} besides those for the test): {use}."
        )
    return (
        f"Of {counted(n, 'expert-graded query')} {len(split.test)} are for the test, {len(split.development)} for the "
        f"selection in {counted(len(split.folds), 'fold')}."
    )


def estimate_seconds(data: RunData, settings: RunSettings, candidates: list[Candidate], split: ExpertSplit) -> float:
    """Return the estimated time of a run: each consensus model and candidate is fitted once to a sample and timed."""
    queries = _sample_queries(data, split, settings.random_state)
    sample = data.restrict_judgments(data.rows_of(queries))
    fits = ConsensusFits(sample, StageCache(None), settings.n_jobs, parameters=settings.consensus_parameters)
    training, sampled = (CandidateTraining(one, fits, settings, StageCache(None)) for one in (data, sample))
    whole = training.view(split.test, split.development)
    view = sampled.view(split.test, np.intersect1d(split.development, queries))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        consensus = _time_methods(fits, settings, candidates) * len(data.labels) / len(sample.labels)
        folds_hide_labels = bool((data.item[data.rows_of(split.development)] >= 0).any())
        fitting = 0.0
        for candidate, seconds in _time_candidates(candidates, view):
            n_fits = count_fits(candidate, split, folds_hide_labels, settings)
            fitting += n_fits * seconds * _n_rows(candidate, whole) / max(1, _n_rows(candidate, view))
        ensembles = _time_ensembles(data, settings, candidates, split)
        forests = _time_forests(training, split, queries) if candidates and not settings.deployable else 0.0
    n_parallel = (settings.n_jobs or available_threads()) if training.runs_in_parallel else 1
    return consensus + fitting / n_parallel + ensembles + forests


def _sample_queries(data: RunData, split: ExpertSplit, random_state: int) -> Integers:
    """Return queries with up to about `MAX_SAMPLE_ROWS` rows, in the same proportion with and without expert grades."""
    share, rng = min(1.0, MAX_SAMPLE_ROWS / len(data.query)), np.random.default_rng(random_state)
    others = np.setdiff1d(np.arange(len(data.query_ids)), split.development)
    parts = [rng.permutation(queries) for queries in (split.development, others)]
    return np.sort(np.concatenate([part[: max(MIN_SAMPLE_QUERIES, round(share * len(part)))] for part in parts]))


def _time_methods(fits: ConsensusFits, settings: RunSettings, candidates: list[Candidate]) -> float:
    """Return the time of the consensus models and label features of a run."""
    start = time.perf_counter()
    for method in consensus_methods(settings, candidates):
        fits.fit(method)
    if settings.feature_labels and fits.data.has_features:
        fits.fit_with_features(settings.method, fits.data.features)
    for kind in remapper_label_features(candidates):
        fits.label_features(kind)
    return time.perf_counter() - start


def _time_candidates(candidates: list[Candidate], view: TrainingView) -> list[tuple[Candidate, float]]:
    """Return the time of one fit of each candidate that can be trained."""
    times = []
    for candidate in (*candidates[:1], *candidates):  # the first fit of all loads libraries
        view.cache.forget(FIT)  # equal fits of several candidates are timed too
        start = time.perf_counter()
        try:
            candidate.fit(view)
        except CrowdrankError:  # a consensus model failed, or the sample is too small
            continue
        times.append((candidate, time.perf_counter() - start))
    return times[1:]


def _time_ensembles(data: RunData, settings: RunSettings, candidates: list[Candidate], split: ExpertSplit) -> float:
    """Return the time of choosing the weights of the ensembles, from one choice for random scores."""
    members = [candidate for candidate in candidates if not candidate.is_control]
    if not split.folds or len(members) < 2:
        return 0.0
    scorer = ExpertScorer(data, split.development, settings)
    scores = np.random.default_rng(0).normal(size=(len(members), len(scorer.rows)))
    start = time.perf_counter()
    shrunk_weights(scores, scorer.validation, WEIGHT_STEPS)
    return (1 + len(split.folds)) * (time.perf_counter() - start)


def _time_forests(training: CandidateTraining, split: ExpertSplit, queries: Integers) -> float:
    """Return the time of the forests that imitate the selected ranker, from a few trees that imitate another."""
    data, settings, n_jobs = training.data, training.settings, forest_threads(training)
    n_forests = 2 if len(split.test) else 1
    n_parallel = min(n_forests, settings.n_jobs or available_threads()) if n_jobs == 1 else 1
    rows = data.rows_of(queries)
    X, query = data.matrix(rows), data.query[rows]
    ranker = GLS().fit(X, np.random.default_rng(0).normal(size=len(rows)), query=query)
    seconds = []
    for n_trees in FEW_TREES:
        start = time.perf_counter()
        distill(ranker, X, query, n_trees=n_trees, n_jobs=n_jobs)
        seconds.append(time.perf_counter() - start)
    per_tree = max(0.0, float(np.diff(seconds)[0])) / (FEW_TREES[1] - FEW_TREES[0])
    n_trees = int(settings.forest.get("n_trees", N_TREES))
    whole, sampled = (max(MIN_DISTILLATION_CELLS, n * len(X.names)) for n in (len(data.query), len(rows)))
    return n_forests / n_parallel * (seconds[0] + per_tree * (n_trees - FEW_TREES[0])) * whole / sampled


def _n_rows(candidate: Candidate, view: TrainingView) -> int:
    """Return the number of rows that a candidate is trained on."""
    return (len(view.crowd) if candidate.crowd else 0) + (len(view.experts) if candidate.experts else 0)


def count_fits(candidate: Candidate, split: ExpertSplit, folds_hide_labels: bool, settings: RunSettings) -> int:
    """Return how often a candidate is trained: for the test, on all data, and without folds that it would see."""
    folds = len(split.folds) if candidate.experts or folds_hide_labels else 0
    pairs = len(list(fold_pairs(len(split.folds)))) if candidate.experts and not candidate.is_control else 0
    return 1 + folds + pairs + (1 if settings.refit and len(split.test) and not candidate.is_control else 0)


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
