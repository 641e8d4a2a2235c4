"""Estimate which system is better, and how sure, from many labels and few expert grades."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from crowdrank._estimator import require_one_of
from crowdrank._text import counted, heading, html_table, panel, paragraph
from crowdrank._typing import Floats
from crowdrank.errors import DataWarning, Fix, InputError, Message, UsageError
from crowdrank.estimation.by_document import estimate_by_document
from crowdrank.estimation.by_query import N_DRAWS_OF_MEANS, ByQueryEstimator, ContrastEstimate, draw_means
from crowdrank.estimation.joined_runs import JoinedRuns, as_sample, experts_made_the_labels, join_runs
from crowdrank.evaluation.comparison import choose_baseline, holm, without_nan
from crowdrank.evaluation.evaluate import as_run, used_features
from crowdrank.evaluation.measures import Measure, parse_measure
from crowdrank.judgments.columns import FEATURES_USED
from crowdrank.judgments.frames import frame_library, from_arrow
from crowdrank.judgments.gold import Gold
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
MIN_EXPERT_JUDGED = 0.5
"""Minimum share of the first documents of expert queries that experts graded, for estimates by query."""
_ESTIMATOR_SENTENCES = {
    "query": "Estimates are prediction-powered by query: the labels of all queries, corrected by the queries that "
    "experts graded",
    "document": "Estimates are by document: the labels of all documents, corrected by the documents that experts "
    "graded, each weighted by 1 / probability of being drawn",
    "none": f"Estimates are from the labels alone: {N_DRAWS_OF_MEANS} draws of all grades from their probabilities, "
    "each with a bootstrap sample of the queries",
}
_CORRECTED_BIAS_PHRASE = "would favor rankers that use the same features, but the expert grades correct this bias"


class ContrastEstimator(Protocol):
    """Estimates linear combinations of the means of runs."""

    def estimate(self, contrast: Floats, level: float) -> ContrastEstimate:
        """Return the estimate of a linear combination of the means of the runs, with weights (n_runs,)."""


@dataclass(frozen=True)
class Estimate:
    """Estimated quality of search systems.

    Attributes:
        rows: `table` as an Arrow table.
        measure: the measure.
        baseline: name of the run that the others are compared with.
        level: level of the intervals.
        unit: 'query', 'document', or 'none' (without experts).
        n_queries: number of queries with labels.
        n_expert_queries: number of queries with expert grades.
        n_expert_grades: number of expert grades.
        warnings: what to check; kinds are `bias-unknown`, `features-used`, `few-expert-queries`, `unlabeled-documents`,
            `ungraded-documents`, `expert-grades-unused` and `sample-incomplete`.
        backend: library of `table`.
        labels_used_features: whether the labels are a consensus that used features of the documents.

    """

    rows: pa.Table
    measure: Measure
    baseline: str
    level: float
    unit: str
    n_queries: int
    n_expert_queries: int
    n_expert_grades: int
    warnings: tuple[Message, ...]
    backend: str = "pandas"
    labels_used_features: bool = False

    @property
    def table(self) -> Any:
        """One row per run.

        Columns: run, estimate with lower and upper; difference (to the baseline) with difference_lower and
        difference_upper, p, p_holm (adjusted over the runs); labels_only and experts_only, the values from one source
        alone, labels_difference and experts_difference likewise; bias (of the labels: labels_only - estimate); weight
        (lambda of the labels) and difference_weight; worth and difference_worth (number of further expert grades that
        experts alone would need for the same precision); judged (share of the first k documents that have a label) and
        graded (share of those of the expert queries that experts graded).
        """
        return from_arrow(self.rows, self.backend)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as a dictionary that JSON can represent; NaN becomes None."""
        rows = [without_nan(row) for row in self.rows.to_pylist()]
        return {
            "measure": str(self.measure),
            "baseline": self.baseline,
            "level": self.level,
            "unit": self.unit,
            "queries": self.n_queries,
            "expert_queries": self.n_expert_queries,
            "expert_grades": self.n_expert_grades,
            "runs": rows,
            "warnings": [{"kind": warning.kind, "problem": warning.problem} for warning in self.warnings],
            "protocol": self.protocol(),
        }

    def protocol(self) -> list[str]:
        """Describe in sentences how the estimates were made."""
        experts = f"{counted(self.n_expert_grades, 'expert grade')} of {counted(self.n_expert_queries, 'query')}"
        intervals = f"Intervals have the level {self.level:g}; p_holm is adjusted by Holm's method over the runs."
        sentences = [
            f"{self.measure} of {counted(len(self.rows), 'run')} on {counted(self.n_queries, 'query')} with labels"
            f"{f' and {experts}' if self.unit != 'none' else ''}; differences are to '{self.baseline}'.",
            f"{_ESTIMATOR_SENTENCES[self.unit]}.",
            intervals,
            "Documents without a label count as grade 0; a query without a relevant document counts 0.",
        ]
        if self.unit == "query":
            sentences.append("The weight of the labels for a query is fitted on the other expert queries.")
        if self.unit == "document" and self.measure.name == "nDCG":
            sentences.append("nDCG divides by the DCG of the best order by the labels, which experts do not change.")
        if self.labels_used_features:
            effect = "favors rankers that use the same features" if self.unit == "none" else _CORRECTED_BIAS_PHRASE
            sentences.append(f"The labels are a consensus that used features of the documents: it {effect}.")
        return sentences

    def _repr_html_(self) -> str:
        names = ["run", "estimate", "lower", "upper", "difference", "difference_lower", "difference_upper", "p_holm"]
        names += ["labels_only", "experts_only", "judged"]
        rows = [{name: row[name] for name in names} for row in self.rows.to_pylist()]
        texts = (*map(str, self.warnings), *self.protocol())
        return panel(heading(f"Estimate of {self.measure}"), html_table(rows, names), *map(paragraph, texts))


def estimate(
    runs: Mapping[str, Any],
    labels: Any,
    expert: Any = None,
    *,
    measure: str | Measure = "nDCG@10",
    baseline: str | None = None,
    level: float = 0.95,
    unit: Unit = "auto",
    random_state: int = 0,
    allow_feature_labels: bool = False,
) -> Estimate:
    """Estimate the quality of search systems, and their differences to a baseline, with intervals.

    Labels of crowds or LLM judges exist for all queries and may be biased; experts graded a few. By `query`, experts
    graded the first documents of all runs for a random part of the queries. By `document`, they graded documents that
    were drawn with known probabilities, as the policy `compare` of `collect next` does. Both estimates are unbiased.
    Issues a :class:`crowdrank.errors.DataWarning` for each entry of `Estimate.warnings`.

    Args:
        runs: rankings by name: DataFrames with query, document and score, paths, or consensuses.
        labels: labels of the documents: a consensus, a DataFrame or a path with query, document and grade. Columns p0,
            p1, ... are the probabilities of the grades. The consensus must not know the expert grades. From a database
            of the judging service, the labels at the first draw of the policy `compare` are used.
        expert: expert grades: DataFrame, path or `Gold` with query, document and grade; `probability` is the one with
            which the document was drawn, and `draw` numbers the draws; rows without a probability are left
            out. A database of the judging service has the answers to the pairs that were drawn. None: no expert graded
            anything, and the bias of the labels stays unknown.
        measure: DCG, nDCG, P, RR, AP or ERR; by document DCG, nDCG or P.
        baseline: name of a run, by default the first.
        level: level of the intervals.
        unit: 'query', 'document', or 'auto': by document if the expert grades have probabilities.
        random_state: random seed of draws and cross-fitting.
        allow_feature_labels: whether labels that used features of the documents may be used without expert grades. They
            favor runs that use the same features.

    Returns:
        Estimates, intervals and p-values beside those of labels and experts alone.

    Raises:
        InputError: the inputs cannot be used, such as runs with different queries.
        UsageError: an argument has an invalid value.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, random_state=1)
    >>> labels = crowdrank.MajorityVote().fit(world.judgments).consensus_
    >>> good, bad = world.gold.assign(score=world.gold.grade), world.gold.assign(score=-world.gold.grade)
    >>> expert = world.gold[world.gold["query"].isin(world.gold["query"].unique()[:10])]
    >>> result = crowdrank.estimate({"bad": bad, "good": good}, labels, expert, measure="nDCG@5")
    >>> result.unit, result.n_expert_queries, bool(result.table["difference"][1] > 0)
    ('query', 10, True)

    """
    baseline = check_arguments(runs, baseline, level, unit)
    prepared = prepare_estimate(runs, labels, expert, measure, unit, random_state, allow_feature_labels)
    result = summarize(prepared, baseline, level)
    for message in result.warnings:
        warnings.warn(DataWarning(message), stacklevel=2)
    return result


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

    def difference(self, run: str, baseline: str, level: float) -> ContrastEstimate:
        """Return the estimated difference of a run to the baseline, within the range of the measure."""
        names, limit = list(self.joined.alignments), self.limit
        contrast = np.eye(len(names))[names.index(run)] - np.eye(len(names))[names.index(baseline)]
        return self.estimator.estimate(contrast, level).clipped(-limit, limit)

    @property
    def limit(self) -> float:
        """Largest possible value of the measure."""
        return float("inf") if self.measure.name == "DCG" else 1.0


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
    chosen = _choose_unit(joined, unit)
    _check_measure(parsed, chosen)
    messages = (*feature_messages, *_sample_warnings(expert), *joined.warnings, *_check_experts(joined, parsed, chosen))
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


def summarize(prepared: PreparedEstimate, baseline: str, level: float) -> Estimate:
    """Return the estimates of all runs and of their differences to the baseline."""
    joined = prepared.joined
    graded = dict.fromkeys(joined.alignments, float("nan"))
    if joined.sample is not None:
        graded = joined.graded(prepared.measure)
    rows = [
        {**row, "judged": prepared.judged[row["run"]], "graded": graded[row["run"]]}
        for row in _result_rows(prepared, baseline, level)
    ]
    return Estimate(
        rows=pa.Table.from_pylist(rows),
        measure=prepared.measure,
        baseline=baseline,
        level=float(level),
        unit=prepared.unit,
        n_queries=len(joined.queries),
        n_expert_queries=int(joined.is_expert_query.sum()),
        n_expert_grades=prepared.n_expert_grades,
        warnings=prepared.warnings,
        backend=prepared.backend,
        labels_used_features=prepared.labels_used_features,
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


def _result_rows(prepared: PreparedEstimate, baseline: str, level: float) -> list[dict[str, Any]]:
    names, n_grades = list(prepared.joined.alignments), prepared.n_expert_grades
    means = {
        name: prepared.estimator.estimate(vector, level).clipped(0.0, prepared.limit)
        for name, vector in zip(names, np.eye(len(names)), strict=True)
    }
    differences = {name: prepared.difference(name, baseline, level) for name in names}
    p = np.array([float("nan") if name == baseline else differences[name].p for name in names])
    rows = []
    for name, own_p, adjusted in zip(names, p, holm(p), strict=True):
        mean, difference = means[name], differences[name]
        is_baseline = name == baseline
        rows.append(
            {
                "run": name,
                "estimate": mean.value,
                "lower": mean.lower,
                "upper": mean.upper,
                "difference": difference.value,
                "difference_lower": float("nan") if is_baseline else difference.lower,
                "difference_upper": float("nan") if is_baseline else difference.upper,
                "p": float(own_p),
                "p_holm": float(adjusted),
                "labels_only": mean.labels,
                "experts_only": mean.experts,
                "bias": mean.labels - mean.value if n_grades else float("nan"),
                "labels_difference": difference.labels,
                "experts_difference": difference.experts,
                "weight": mean.weight,
                "difference_weight": float("nan") if is_baseline else difference.weight,
                "worth": (mean.worth - 1) * n_grades,
                "difference_worth": float("nan") if is_baseline else (difference.worth - 1) * n_grades,
            }
        )
    return rows


def check_arguments(runs: Mapping[str, Any], baseline: str | None, level: float, unit: str) -> str:
    """Return the name of the baseline; raise UsageError if an argument is invalid."""
    baseline = choose_baseline(runs, baseline)
    require_one_of("unit", unit, ("auto", "query", "document"))
    if not 0 < level < 1:
        raise UsageError(f"must be between 0 and 1, such as 0.95, not {level}", parameter="level")
    return baseline


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


def _check_experts(joined: JoinedRuns, measure: Measure, unit: str) -> list[Message]:
    """Return warnings about the expert grades; raise InputError if the estimate would be wrong."""
    if joined.sample is None:
        problem = "there are no expert grades, so the bias of the labels is unknown and not in the intervals"
        fix = Fix("let experts grade a sample and give it with {}", "expert")
        return [Message(problem, "bias-unknown", "warning", fixes=(fix,))]
    if experts_made_the_labels(joined):
        problem = "every expert grade is a certain label, so the consensus was fitted with these expert grades"
        fixes = ["fit the consensus without expert grades", "cross-fit it: label each query without its expert grades"]
        raise InputError(problem, source="the labels", kind="experts-made-labels", fix=fixes)
    if unit == "document":
        return []
    n_queries = int(joined.is_expert_query.sum())
    if n_queries < 2:
        problem = f"they are of {counted(n_queries, 'query')}, and an estimate by query needs at least 2"
        more = "let experts grade more queries"
        raise InputError(problem, source="the expert grades", kind="few-expert-queries", fix=more)
    shares = joined.graded(measure)
    lowest = min(shares, key=lambda name: shares[name])
    messages = []
    if shares[lowest] < MIN_EXPERT_JUDGED:
        problem = (
            f"experts graded {shares[lowest]:.0%} of the first documents of their queries in run '{lowest}', and there "
            "is no column 'probability', so it is not known how they were drawn"
        )
        fixes = ["let experts grade the first documents of all runs", "draw documents with the policy compare"]
        raise InputError(problem, source="the expert grades", kind="unknown-probabilities", fix=fixes)
    if shares[lowest] < 1:
        listed = ", ".join(f"{run} {share:.1%}" for run, share in shares.items())
        problem = f"experts did not grade all first documents of their queries; the others count as grade 0 ({listed})"
        messages.append(Message(problem, "ungraded-documents", "warning"))
    if n_queries < MIN_EXPERT_QUERIES:
        problem = f"experts graded {n_queries} queries; below {MIN_EXPERT_QUERIES}, intervals are wide and unreliable"
        messages.append(Message(problem, "few-expert-queries", "warning", fixes=(Fix("let experts grade more"),)))
    return messages


def _check_labels(judged: Mapping[str, float]) -> list[Message]:
    if min(judged.values()) == 1:
        return []
    listed = ", ".join(f"{run} {share:.1%}" for run, share in judged.items())
    problem = f"not all first documents have labels; the others count as grade 0 ({listed})"
    return [Message(problem, "unlabeled-documents", "warning", fixes=(Fix("label the first documents of all runs"),))]
