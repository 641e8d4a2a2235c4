"""Rankers of a run: training, selection, test, the final ranker and its forest for search engines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._progress import ProgressBar, reporting
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import Fix, Message, attempt
from crowdrank.estimation.estimate import Estimate
from crowdrank.pipeline.baseline import add_baseline, check_baseline, check_validation_queries
from crowdrank.pipeline.baseline_estimate import describe_estimate, estimate_baseline
from crowdrank.pipeline.candidates import Candidate, choose_candidates, consensus_methods, remapper_label_features
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.deployment import describe_deployable, make_deployable
from crowdrank.pipeline.ranker_test import RankerTest, describe_protocol, summarize
from crowdrank.pipeline.result_tables import (
    comparison_table,
    feature_table,
    per_query_table,
    remapping_table,
    training_table,
)
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_result import Deployable, RankerResults, RunResult
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.selection import ExpertSplit, refit, split_queries, train_and_select, without_experts
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.single_feature import SingleFeature

MIN_GRADED_DOCUMENTS = 10
"""Number of graded documents of a test query below which the comparison of candidates says little."""
HELD_OUT_SHARE = 0.2
"""Share of the judged queries that are held out if there are no expert grades."""
MIN_QUERIES_TO_HOLD_OUT = 10
"""Minimum number of judged queries; with fewer, none are held out."""


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """Candidates to train, reasons why others are left out, and the scores of a baseline that is a file or folder."""

    candidates: list[Candidate]
    left_out: dict[str, str]
    baseline_run: dict[str, Floats]

    @classmethod
    def choose(cls, data: RunData, settings: RunSettings) -> TrainingPlan:
        """Return the plan for these data; raise an error if candidates or the baseline are unknown."""
        candidates, left_out = choose_candidates(data, settings.candidates, thorough=settings.thorough)
        candidates, baseline_run = add_baseline(data, settings.baseline, candidates)
        return cls(candidates, left_out, baseline_run)


@dataclass(frozen=True, eq=False)
class RankerStages:
    """Stages of a run that follow the consensus if there are features.

    Attributes:
        data: data of the run.
        fits: consensus models.
        settings: settings of the run.
        plan: candidates to train.
        cache: cache of the fits.
        progress: whether to show progress bars.

    """

    data: RunData
    fits: ConsensusFits
    settings: RunSettings
    plan: TrainingPlan
    cache: StageCache
    progress: bool

    def run(self, labels: RunResult) -> RunResult:
        """Train, select and test rankers; return the result with them."""
        candidates, left_out = self.plan.candidates, dict(self.plan.left_out)
        candidates = self._fit_methods(candidates, left_out)
        test = self._select(candidates, left_out)
        outcome = test.outcome
        with self.cache.profiler.stage("comparison"):
            first, *others = summarize(test)
            if test.comparison is not None:
                test.test_controls()
            found, estimate_notes = attempt("The estimate", lambda: self._estimate(test, labels.model))
            estimate, reasons = found or (None, [])
        ranker, alternative = self._final_ranker(test, outcome.chosen), None
        if test.preferred is not None and test.preferred in outcome.rankers:
            alternative = self._final_ranker(test, test.preferred)
            if isinstance(alternative, SingleFeature):
                alternative = alternative.without_other_features()
        deployable, deployable_notes = attempt(
            "The forest for search engines", lambda: self._make_deployable_ranker(test, ranker)
        )
        tables = {
            "comparison": comparison_table(test),
            "per_query": per_query_table(test),
            "training": training_table(self.data, self.fits, outcome),
            "remapping": remapping_table(outcome),
            "features": feature_table(self.data, ranker),
            "estimate": None if estimate is None else estimate.rows,
        }
        split = outcome.split
        rankers = RankerResults(
            chosen=outcome.chosen,
            reason=outcome.reason,
            baseline=test.baseline,
            ranker=ranker,
            deployable=deployable,
            remappers=outcome.remappers,
            weights=outcome.weights,
            left_out=outcome.failed,
            selection_queries=_query_ids(self.data, split.development),
            test_queries=_query_ids(self.data, split.test) if test.has_experts else (),
            contrasts=tuple(test.contrasts.values()) if test.comparison is not None else (),
            verdict=test.verdict,
            alternative=alternative,
        )
        return replace(
            labels,
            rankers=rankers,
            tables={**labels.tables, **{name: table for name, table in tables.items() if table is not None}},
            estimate=estimate,
            summary=(
                first,
                *([] if estimate is None else [describe_estimate(estimate)]),
                *others,
                *([] if deployable is None else [describe_deployable(deployable, self.settings.measure)]),
                *labels.summary,
            ),
            protocol=describe_protocol(test),
            notes=(
                *self.data.notes,
                *self.fits.notes,
                *check_baseline(self.settings, test.baseline, outcome.failed),
                *check_validation_queries(test.baseline, self.data.query_ids.take(pa.array(split.test))),
                *_fold_notes(split, self.settings),
                *_few_grades_notes(test),
                *reasons,
                *estimate_notes,
                *deployable_notes,
            ),
        )

    def _estimate(self, test: RankerTest, model: Aggregator) -> tuple[Estimate | None, list[Message]]:
        """Return the estimate of the selected ranker and of a baseline that is a file or folder, if it was tested."""
        if test.comparison is None or test.baseline not in self.plan.baseline_run or test.chosen == test.baseline:
            return None, []
        return estimate_baseline(test, model.consensus_)

    def _fit_methods(self, candidates: list[Candidate], left_out: dict[str, str]) -> list[Candidate]:
        """Fit the consensus methods that candidates need; leave out candidates whose method cannot be fitted."""
        for method in consensus_methods(self.settings, candidates):
            with reporting(self.progress, f"consensus by {method}") as report:
                self.fits.fit(method, report)
        kept = []
        for candidate in candidates:
            missing = [method for method in candidate.methods if method in self.fits.failed]
            if missing:
                left_out[candidate.name] = f"{missing[0]}: {self.fits.failed[missing[0]]}"
            else:
                kept.append(candidate)
        with self.cache.profiler.stage("features"):
            for kind in remapper_label_features(kept):
                self.fits.label_features(kind)
        return kept

    def _select(self, candidates: list[Candidate], left_out: dict[str, str]) -> RankerTest:
        """Train the candidates and select one; return the test of the candidates."""
        data, split = self.data, split_queries(self.data, self.settings)
        has_experts = len(data.graded_queries) > 0
        if not has_experts:
            data, split = _consensus_as_experts(data, self.fits, self.settings)
        if not split.folds:
            if has_experts:
                reason = "there are too few expert-graded queries to train and select with"
                left_out |= {candidate.name: reason for candidate in candidates if candidate.experts}
            candidates = without_experts(candidates)
        with ProgressBar("training candidates") as bar:
            report = bar if self.progress else None
            training = CandidateTraining(data, self.fits, self.settings, self.cache)
            outcome = train_and_select(training, candidates, split, report, self.plan.baseline_run)
        outcome = replace(outcome, failed={**outcome.failed, **left_out})
        return RankerTest(training, outcome, self.settings, has_experts)

    def _final_ranker(self, test: RankerTest, name: str) -> Ranker:
        """Return a candidate trained on all data, or without the test queries if the settings say so."""
        if not self.settings.refit:
            return test.outcome.ranker(name)
        with ProgressBar("training on all data") as bar:
            return refit(test.training, test.outcome, name, bar if self.progress else None)

    def _make_deployable_ranker(self, test: RankerTest, ranker: Ranker) -> Deployable:
        """Return one forest for search engines."""
        with ProgressBar("forest for search engines") as bar:
            return make_deployable(test, ranker, bar if self.progress else None)


def _consensus_as_experts(data: RunData, fits: ConsensusFits, settings: RunSettings) -> tuple[RunData, ExpertSplit]:
    """Return data with consensus grades in place of expert grades, and some judged queries to compare rankers on."""
    grade = np.round(fits.labels(settings.method, "expected-grade"))
    judged = replace(data, expert=grade)
    queries, none = judged.graded_queries, np.empty(0, np.int64)
    if len(queries) < MIN_QUERIES_TO_HOLD_OUT:
        return replace(data, expert=np.full(len(grade), np.nan)), ExpertSplit((), none)
    n_held_out = max(2, round(HELD_OUT_SHARE * len(queries)))
    held_out = np.random.default_rng(settings.random_state).permutation(queries)[:n_held_out]
    return judged, ExpertSplit((), np.sort(held_out))


def _fold_notes(split: ExpertSplit, settings: RunSettings) -> tuple[Message, ...]:
    """Return a warning if there are fewer folds than the settings say."""
    n = len(split.development)
    if not split.folds or len(split.folds) == settings.folds:
        return ()
    problem = (
        f"The {n} expert-graded queries for the selection make {counted(len(split.folds), 'fold')}, not "
        f"{settings.folds}, because a fold has at least two queries; the selection between rankers is uncertain"
    )
    return (Message(problem, "few-folds", "warning", fixes=(Fix("have more queries graded by experts"),)),)


def _few_grades_notes(test: RankerTest) -> tuple[Message, ...]:
    """Return a warning if half of the test queries have few expert grades, though more documents."""
    data, queries = test.training.data, test.split.test
    if test.comparison is None:
        return ()
    n_graded, n_documents = (
        int(np.median(np.bincount(data.query[rows], minlength=len(data.query_ids))[queries]))
        for rows in (data.graded_rows(queries), data.rows_of(queries))
    )
    if n_graded >= MIN_GRADED_DOCUMENTS or n_graded == n_documents:
        return ()
    problem = (
        f"half of the {counted(len(queries), 'test query')} have at most {n_graded:,} graded documents (of "
        f"{n_documents:,}); candidates are compared by the order of these alone, so that their figures are high and "
        "differ little"
    )
    fix = Fix("have more documents of each query graded by experts")
    return (Message(problem, "few-graded-documents", "warning", fixes=(fix,)),)


def _query_ids(data: RunData, queries: Any) -> tuple[str, ...]:
    return tuple(map(str, data.query_ids.take(pa.array(queries)).to_pylist()))
