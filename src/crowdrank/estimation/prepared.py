"""Read, join and check the inputs of an estimate, and choose how to estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.errors import Fix, InputError, Message, UsageError
from crowdrank.estimation.by_document import Sample, estimate_by_document
from crowdrank.estimation.by_query import ByQueryEstimator, ContrastEstimate, draw_means
from crowdrank.estimation.draw_pools import check_drawn_for
from crowdrank.estimation.forecast import Forecast, forecast_grades
from crowdrank.estimation.joined_runs import JoinedRuns, as_sample, experts_made_the_labels, join_runs
from crowdrank.estimation.watching import MISSING_DRAW_FIXES, missing_draw
from crowdrank.evaluation.evaluate import as_run, used_features
from crowdrank.evaluation.measures import Measure, parse_measure
from crowdrank.judgments.columns import FEATURES_USED
from crowdrank.judgments.frames import frame_library
from crowdrank.judgments.gold import Gold
from crowdrank.readers.cells import DRAWN_FOR_COLUMN
from crowdrank.readers.read import read_labels

Unit = Literal["auto", "query", "document"]

MEASURES_BY_UNIT = {
    "query": ("DCG", "nDCG", "P", "RR", "AP", "ERR"),
    "document": ("DCG", "nDCG", "P"),
    "none": ("DCG", "nDCG", "P", "RR", "AP", "ERR"),
}
"""Measures that can be estimated, by unit of the expert grades; `none` is without expert grades."""
MIN_EXPERT_QUERIES = 8
"""Number of expert queries below which a warning is issued."""
MIN_EXPERT_GRADES = 20
"""Number of expert grades of drawn documents below which a warning is issued."""
MIN_EXPERT_JUDGED = 0.5
"""Minimum share of the first documents of expert queries that experts graded, for estimates by query."""


MEASURES_OF_ALL_DOCUMENTS = {"nDCG": "the ideal DCG", "AP": "the number of relevant documents"}
"""Measures that depend on documents below the first ones, and what does."""


class ContrastEstimator(Protocol):
    """Estimates linear combinations of the means of runs."""

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""


@dataclass(frozen=True)
class PreparedEstimate:
    """Runs joined with labels and expert grades, and an estimator of their means.

    Attributes:
        joined: the runs, labels and expert grades.
        estimator: estimates linear combinations of the means of the runs.
        measure: the measure.
        unit: 'query', 'document', or 'none' (without experts).
        judged: share of the first k documents of each run that have a label.
        warnings: what to check.
        backend: library of the tables.
        labels_used_features: whether the labels are a consensus that used features of the documents.

    """

    joined: JoinedRuns
    estimator: ContrastEstimator
    measure: Measure
    unit: str
    judged: Mapping[str, float]
    warnings: tuple[Message, ...]
    backend: str
    labels_used_features: bool

    @property
    def n_expert_grades(self) -> int:
        """Number of expert grades."""
        return 0 if self.joined.sample is None else len(self.joined.sample)

    def mean(self, run: str, level: float) -> ContrastEstimate:
        """Return the estimate of the mean of a run, within the range of the measure."""
        return _move(self.unlimited_mean(run, level), self.offset, self.limit)

    def unlimited_mean(self, run: str, level: float) -> ContrastEstimate:
        """Return the estimate of the mean of a run, which can be outside the range of the measure."""
        return self.estimator.estimate(self._indicator(run), level)

    @cached_property
    def offset(self) -> float:
        """Amount by which the estimates of all runs are moved into the range of the measure."""
        values = [self.unlimited_mean(name, 0.95).value for name in self.joined.alignments]
        return offset_into_range(values, self.limit)

    def difference(self, run: str, baseline: str, level: float) -> ContrastEstimate:
        """Return the estimated difference of a run to the baseline, within the range of the measure."""
        estimate = self.estimator.estimate(self._indicator(run) - self._indicator(baseline), level)
        return difference_of_means(estimate, self.mean(run, level), self.mean(baseline, level), self.limit)

    def _indicator(self, run: str) -> Floats:
        names = list(self.joined.alignments)
        return np.asarray(np.eye(len(names))[names.index(run)])

    def forecast(self, difference: ContrastEstimate, half_width: float) -> Forecast:
        """Return what makes the interval of a difference as narrow as wanted."""
        n_grades, n_queries = self.n_expert_grades, len(self.joined.queries)
        if self.joined.sample is None:
            return Forecast(None)
        n_possible = self.joined.n_first_documents(self.measure)
        if self.unit == "query":
            n_possible = round(n_grades * n_queries / int(self.joined.is_expert_query.sum()))
        return forecast_grades(difference, half_width, n_grades=n_grades, n_possible=n_possible, n_queries=n_queries)

    @property
    def limit(self) -> float:
        """Largest possible value of the measure."""
        return float("inf") if self.measure.name == "DCG" else 1.0


def move_into_range(means: Sequence[ContrastEstimate], limit: float) -> list[ContrastEstimate]:
    """Return estimates of means from 0 to a limit; all are moved by the same amount, so that differences stay.

    What is still outside is limited. Intervals keep their place within the range and have the moved estimate.

    >>> means = [ContrastEstimate(value, value - 0.2, value + 0.2, 0.5, 0.1) for value in (0.9, 1.25)]
    >>> [round(one.value, 2) for one in move_into_range(means, 1.0)]
    [0.65, 1.0]
    """
    offset = offset_into_range([one.value for one in means], limit)
    return [_move(one, offset, limit) for one in means]


def _move(mean: ContrastEstimate, offset: float, limit: float) -> ContrastEstimate:
    value, within = float(np.clip(mean.value + offset, 0.0, limit)), mean.clipped(0.0, limit)
    return replace(within, value=value, lower=min(within.lower, value), upper=max(within.upper, value))


def offset_into_range(values: Sequence[float], limit: float) -> float:
    """Return the amount that moves values into the range from 0 to a limit, the largest one first."""
    return limit - max(values) if max(values) > limit else max(-min(values), 0.0)


def difference_of_means(
    difference: ContrastEstimate, mean: ContrastEstimate, baseline_mean: ContrastEstimate, limit: float
) -> ContrastEstimate:
    """Return a difference within the range of the measure whose value is the difference of two estimates in range."""
    difference, value = difference.clipped(-limit, limit), mean.value - baseline_mean.value
    return replace(difference, value=value, lower=min(difference.lower, value), upper=max(difference.upper, value))


def prepare_estimate(
    runs: Mapping[str, Any],
    labels: Any,
    expert: Any,
    measure: str | Measure,
    unit: Unit,
    random_state: int,
    allow_feature_labels: bool,
) -> PreparedEstimate:
    """Read, join and check the inputs of :func:`estimate`; the arguments are the same."""
    parsed = parse_measure(measure)
    labels = read_labels(labels) if isinstance(labels, str | Path) else labels
    expert = None if expert is None else as_sample(expert, labels.scale if isinstance(labels, Gold) else None)
    by_features = used_features(labels)
    feature_messages = _check_features(by_features, expert, allow_feature_labels=allow_feature_labels)
    joined = join_runs({str(name): run for name, run in runs.items()}, labels, expert)
    _check_queries(len(joined.queries))
    chosen = _choose_unit(joined, unit)
    _check_measure(parsed, chosen)
    if chosen == "document" and joined.sample is not None:
        texts = expert.extras.get(DRAWN_FOR_COLUMN, np.empty(0))
        check_drawn_for(filter(None, texts.tolist()), runs, parsed, labels)
    messages = (*feature_messages, *_sample_warnings(expert), *joined.warnings, *_check_scales(joined))
    messages = (*messages, *_check_experts(joined, parsed, chosen))
    judged = joined.judged(parsed, joined.is_labeled, joined.queries)
    return PreparedEstimate(
        joined,
        _make_estimator(joined, parsed, chosen, np.random.default_rng(random_state)),
        parsed,
        chosen,
        judged,
        (*messages, *_check_labels(judged)),
        frame_library(as_run(next(iter(runs.values())))),
        by_features,
    )


def _make_estimator(joined: JoinedRuns, measure: Measure, unit: str, rng: np.random.Generator) -> ContrastEstimator:
    runs = list(joined.alignments.values())
    if joined.sample is None:
        return draw_means(runs, joined.queries, joined.label_values(measure), measure, rng)
    is_equal = joined.equal_rankings(measure)
    if unit == "document":
        return estimate_by_document(runs, joined.queries, joined.is_labeled, joined.sample, measure, rng, is_equal)
    is_expert = joined.is_expert_query[joined.queries]
    return ByQueryEstimator(joined.label_values(measure), joined.expert_values(measure), is_expert, is_equal)


def _choose_unit(joined: JoinedRuns, unit: str) -> str:
    if joined.sample is None:
        return "none"
    if unit == "document" and not joined.has_probabilities:
        problem = "there is no column 'probability', so it is not known how the documents were drawn"
        fixes = [Fix("draw documents with the policy compare"), Fix("use {}", "unit", "query")]
        raise InputError(problem, source="the expert grades", kind="unknown-probabilities", fix=fixes)
    if unit != "auto":
        return unit
    return "document" if joined.has_probabilities else "query"


def _check_measure(measure: Measure, unit: str) -> None:
    known = MEASURES_BY_UNIT[unit]
    if measure.name not in known:
        how = {"query": "by query", "document": "by document", "none": "without experts"}[unit]
        problem = f"must be one of {', '.join(known)} {how}, not {measure}"
        raise UsageError(problem, kind="measure-not-estimated", parameter="measure")


def _sample_warnings(expert: Gold | None) -> list[Message]:
    """Return what was found when the expert grades were read, such as drawn documents without an answer."""
    return [] if expert is None else [note for note in expert.report.notes if note.severity == "warning"]


def _check_features(labels_used_features: bool, expert: Gold | None, *, allow_feature_labels: bool) -> list[Message]:
    """Return a warning about labels that used features; raise an error if nothing corrects their bias."""
    if expert is not None and expert.used_features:
        problem = "they are a consensus that used features of the documents, so they cannot correct the labels"
        raise InputError(problem, source="the expert grades", kind=FEATURES_USED, fix="give grades of experts")
    if expert is not None or not labels_used_features:
        return []
    problem = "used features of the documents, so that they favor runs that use the same features"
    fixes = (Fix("give labels without features"), Fix("correct them by expert grades with {}", "expert"))
    if not allow_feature_labels:
        fix = Fix("if no run uses these features, allow it with {}", "allow_feature_labels", True)
        raise UsageError(problem, kind=FEATURES_USED, parameter="labels", fix=(*fixes, fix))
    return [Message(f"the labels {problem}", FEATURES_USED, "warning", fixes=fixes)]


def _check_queries(n_queries: int) -> None:
    """Raise InputError if there are too few queries for an interval."""
    if n_queries < 2:
        problem = f"they have {counted(n_queries, 'query')} with labels, and an interval needs at least 2"
        raise InputError(problem, source="the runs", kind="few-queries", fix="give runs and labels of more queries")


def _check_scales(joined: JoinedRuns) -> list[Message]:
    """Return a warning if experts gave grades beyond those of the labels, as if on another scale.

    Labels with a single grade say nothing of their scale.
    """
    if joined.sample is None:
        return []
    grades, given = joined.first.grades, joined.sample.grade
    values = grades.grades[joined.is_labeled] if grades.values is None else grades.values
    n_beyond = int(((given < values.min()) | (given > values.max())).sum())
    if not n_beyond or values.min() == values.max():
        return []
    problem = (
        f"{n_beyond:,} of {counted(len(given), 'expert grade')} are beyond the grades of the labels ({values.min():g} "
        f"to {values.max():g}); with another scale, the estimate is one of other gains"
    )
    fixes = (Fix("convert the expert grades to the scale of the labels"), Fix("compare both with validate"))
    return [Message(problem, "scales-differ", "warning", fixes=fixes)]


def _check_experts(joined: JoinedRuns, measure: Measure, unit: str) -> list[Message]:
    """Return warnings about the expert grades; raise InputError if the estimate would be wrong."""
    if joined.sample is None:
        problem = "there are no expert grades, so the bias of the labels is unknown and not in the intervals"
        fix = Fix("let experts grade a sample and give it with {}", "expert")
        return [Message(problem, "bias-unknown", "warning", fixes=(fix,))]
    if experts_made_the_labels(joined):
        problem = "every expert grade equals its label, so the consensus was fitted with these expert grades"
        fixes = ["fit the consensus without expert grades", "cross-fit it: label each query without its expert grades"]
        raise InputError(problem, source="the labels", kind="experts-made-labels", fix=fixes)
    if unit == "document":
        return _check_draws(joined.sample)
    n_queries = int(joined.is_expert_query.sum())
    if n_queries < 2:
        problem = f"they are of {counted(n_queries, 'query')}, and an estimate by query needs at least 2"
        more = "let experts grade more queries"
        raise InputError(problem, source="the expert grades", kind="few-expert-queries", fix=more)
    shares = joined.graded(measure)
    lowest = min(shares, key=lambda name: shares[name])
    messages = []
    if shares[lowest] < MIN_EXPERT_JUDGED:
        problem = f"experts graded {shares[lowest]:.0%} of the first documents of their queries in run '{lowest}'"
        advice = [Fix("let experts grade the first documents of all runs")]
        if joined.has_probabilities:
            advice.insert(0, Fix("use the probabilities of the documents with {}", "unit", "document"))
        else:
            problem += ", and there is no column 'probability', so it is not known how they were drawn"
            advice.append(Fix("draw documents with the policy compare"))
        raise InputError(problem, source="the expert grades", kind="unknown-probabilities", fix=advice)
    if shares[lowest] < 1:
        listed = ", ".join(f"{run} {share:.1%}" for run, share in shares.items())
        problem = (
            f"experts did not grade all first documents of their queries ({listed}); the others count as experts grade "
            "documents with such labels, or as grade 0 without a label"
        )
        messages.append(Message(problem, "ungraded-documents", "warning"))
    if measure.name in MEASURES_OF_ALL_DOCUMENTS and joined.is_ungraded.any():
        n_labeled = int((joined.is_labeled & joined.is_expert_query[joined.query_of_row]).sum())
        what = MEASURES_OF_ALL_DOCUMENTS[measure.name]
        problem = (
            f"experts graded {n_labeled - int(joined.is_ungraded.sum()):,} of {n_labeled:,} labeled documents of their "
            f"queries; {what} takes the others from the labels, and what is wrong there is not in the intervals"
        )
        ways = (Fix("let experts grade all labeled documents of some queries"), Fix("use DCG or P"))
        messages.append(Message(problem, "ideal-from-labels", "warning", fixes=ways))
    if n_queries < MIN_EXPERT_QUERIES:
        problem = f"experts graded {n_queries} queries; below {MIN_EXPERT_QUERIES}, intervals are wide and unreliable"
        messages.append(Message(problem, "few-expert-queries", "warning", fixes=(Fix("let experts grade more"),)))
    return messages


def _check_draws(sample: Sample) -> list[Message]:
    """Return warnings about drawn documents: a missing draw, few grades."""
    messages, (numbers, sizes) = [], np.unique(sample.draw, return_counts=True)
    missing = missing_draw(numbers, sizes.astype(np.float64))
    if missing is not None:
        problem = f"{missing}; labels of these documents keep their bias"
        messages.append(Message(problem, "draw-missing", "warning", fixes=tuple(map(Fix, MISSING_DRAW_FIXES))))
    if len(sample) < MIN_EXPERT_GRADES:
        graded = f"experts graded {counted(len(sample), 'drawn document')}"
        problem = f"{graded}; below {MIN_EXPERT_GRADES}, intervals are wide and unreliable"
        messages.append(Message(problem, "few-expert-grades", "warning", fixes=(Fix("let experts grade more"),)))
    return messages


def _check_labels(judged: Mapping[str, float]) -> list[Message]:
    if min(judged.values()) == 1:
        return []
    listed = ", ".join(f"{run} {share:.1%}" for run, share in judged.items())
    problem = f"not all first documents have labels; the others count as grade 0 ({listed})"
    return [Message(problem, "unlabeled-documents", "warning", fixes=(Fix("label the first documents of all runs"),))]
