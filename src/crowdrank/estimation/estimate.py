"""Estimate which system is better, and how sure, from many labels and few expert grades."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._estimator import require_one_of
from crowdrank._text import counted, heading, html_table, panel, paragraph
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import DataWarning, Fix, Message, UsageError
from crowdrank.estimation.by_query import MIN_INFORMATIVE_QUERIES, N_DRAWS_OF_MEANS, ROUNDING_TOLERANCE
from crowdrank.estimation.forecast import Forecast
from crowdrank.estimation.prepared import PreparedEstimate, Unit, prepare_estimate
from crowdrank.estimation.watching import Look, LookConclusion, answer, check_draws, half_width_to_decide, plan_look
from crowdrank.evaluation.comparison import choose_baseline, holm, without_nan
from crowdrank.evaluation.measures import Measure
from crowdrank.judgments.frames import from_arrow
from crowdrank.readers.judging_database import read_comparison_plan

_ESTIMATOR_SENTENCES = {
    "query": "Estimates are prediction-powered by query: the labels of all queries, corrected by the queries that "
    "experts graded",
    "document": "Estimates are by document: the labels of all documents, corrected by the documents that experts "
    "graded, each weighted by 1 / probability of being drawn",
    "none": "Estimates are from the labels alone, whose values are usually too high",
}
_CORRECTED_BIAS_PHRASE = "would favor rankers that use the same features, but the expert grades correct this bias"


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
        warnings: what to check; kinds are `bias-unknown`, `features-used`, `few-expert-queries`,
            `few-expert-grades`, `unlabeled-documents`, `ungraded-documents`, `ideal-from-labels`, `scales-differ`,
            `draw-missing`, `expert-grades-unused` and `sample-incomplete`.
        backend: library of `table`.
        labels_used_features: whether the labels are a consensus that used features of the documents.
        look: which of several looks this is; None if the comparison is looked at once.
        answers: what the look concludes about each run but the baseline.
        margin: largest difference that does not matter; None if there is none.
        notes: sentences about single rows, such as values outside of the range of the measure.

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
    look: Look | None = None
    answers: tuple[LookConclusion, ...] = ()
    margin: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> Any:
        """One row per run.

        Columns: run, estimate with lower and upper; difference (to the baseline) with difference_lower and
        difference_upper, p, p_holm (adjusted over the runs); labels_only and experts_only, the values from one source
        alone, labels_difference and experts_difference likewise; bias (of the labels: labels_only - estimate before it
        is moved into the range of the measure); weight (lambda of the labels) and difference_weight; worth and
        difference_worth (number of further expert grades that experts alone would need for the same precision; NaN if
        too few queries show a difference); judged (share of the first k documents that have a label) and
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
            **({} if self.look is None else {"watching": self._watching(self.look)}),
        }

    def _watching(self, look: Look) -> dict[str, Any]:
        answers = [one.to_dict() for one in self.answers]
        return {**look.to_dict(), "margin": self.margin, "answers": answers, "sentences": self.answer_sentences()}

    def answer_sentences(self) -> list[str]:
        """Return what the look concludes about each run, in a sentence each."""
        counts = self.n_expert_grades, self.n_queries
        return [one.sentence(self.baseline, self.margin, *counts) for one in self.answers]

    def protocol(self) -> list[str]:
        """Describe in sentences how the estimates were made."""
        experts = f"{counted(self.n_expert_grades, 'expert grade')} of {counted(self.n_expert_queries, 'query')}"
        level = f"{self.level:g}" + ("" if self.look is None or self.look.n_looks == 1 else " over all looks")
        holm_note = "; p_holm is adjusted by Holm's method over the runs" if len(self.rows) > 2 else ""
        intervals = f"Intervals have the level {level}{holm_note}."
        sentences = [
            f"{self.measure} of {counted(len(self.rows), 'run')} on {counted(self.n_queries, 'query')} with labels"
            f"{f' and {experts}' if self.unit != 'none' else ''}; differences are to '{self.baseline}'.",
            f"{_ESTIMATOR_SENTENCES[self.unit]}.",
            intervals,
            "Documents without a label count as grade 0; a query without a relevant document counts 0.",
        ]
        if self.look is not None and self.look.n_looks != 1:
            sentences.append(self.look.sentence())
        sentences.extend(self.notes)
        if self.unit == "query":
            sentences.append(
                "The weight of the labels for a query is fitted on the other expert queries."
                if self.n_expert_queries < self.n_queries
                else "Experts graded all queries, so that the labels have no weight."
            )
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
    looks: int | None = None,
    look: int | None = None,
    planned_grades: int | None = None,
    margin: float | None = None,
) -> Estimate:
    """Estimate the quality of search systems, and their differences to a baseline, with intervals.

    Labels of crowds or LLM judges exist for all queries and may be biased; experts graded a few. By `query`, experts
    graded the first documents of all runs for a random part of the queries. By `document`, they graded documents that
    were drawn with known probabilities, as the policy `compare` of `collect next` does. Both estimates are unbiased; by
    query, nDCG and AP are if experts graded all labeled documents of these queries.
    Issues a :class:`crowdrank.errors.DataWarning` for each entry of `Estimate.warnings`.

    Args:
        runs: rankings by name: DataFrames with query, document and score, paths, or consensuses.
        labels: labels of the documents: a consensus, a DataFrame or a path with query, document and grade. Columns p0,
            p1, ... are the probabilities of the grades. The consensus must not know the expert grades. From a database
            of the judging service, the labels at the first draw of the policy `compare` are used.
        expert: expert grades: DataFrame, path or `Gold` with query, document and grade; `probability` is the one with
            which the document was drawn, and `draw` numbers the draws; rows without a probability are left
            out. A database of the judging service has the answers to the pairs that were drawn, and the planned looks
            and the margin of its project, unless you give others. None: no expert graded anything, and the bias of the
            labels stays unknown.
        measure: DCG, nDCG, P, RR, AP or ERR; by document DCG, nDCG or P.
        baseline: name of a run, by default the first.
        level: level of the intervals.
        unit: 'query', 'document', or 'auto': by document if the expert grades have probabilities.
        random_state: random seed of draws and cross-fitting.
        allow_feature_labels: whether labels that used features of the documents may be used without expert grades. They
            favor runs that use the same features.
        looks: number of times that you plan to look at the comparison, at equal steps, while grades arrive. Intervals
            and p-values then hold at every look (bounds of O'Brien and Fleming), and `Estimate.answers` has what the
            look concludes: 'different', 'not-different' (by more than `margin`) or 'go-on'.
        look: number of the present look; by default the number of draws in the expert grades.
        planned_grades: number of expert grades planned in all, for looks that are not planned (spending function of Lan
            and DeMets) in place of `looks`.
        margin: largest difference that does not matter, for the answer 'not-different'.

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
    plan = read_comparison_plan(expert)
    looks = plan.looks if looks is None and planned_grades is None else looks
    margin = plan.margin if margin is None else margin
    prepared = prepare_estimate(runs, labels, expert, measure, unit, random_state, allow_feature_labels)
    present = _present_look(prepared, level, looks=looks, look=look, planned_grades=planned_grades, margin=margin)
    result = summarize(prepared, baseline, level, present, margin)
    for message in result.warnings:
        warnings.warn(DataWarning(message), stacklevel=2)
    return result


def _present_look(
    prepared: PreparedEstimate,
    level: float,
    *,
    looks: int | None,
    look: int | None,
    planned_grades: int | None,
    margin: float | None,
) -> Look | None:
    """Return the present interim analysis (look) of a group-sequential comparison; None without interim analyses."""
    if margin is not None:
        check_parameter("margin", margin, [Number(0, above=True)])
    sample = prepared.joined.sample
    if looks is None and planned_grades is None:
        if look is None and margin is None:
            return None
        if look is not None:
            fix = Fix("give the planned number of looks with {}", "looks", max(look, 5))
            raise UsageError("needs the planned number of looks", parameter="look", kind="looks-unknown", fix=fix)
        looks = 1
        look = 1
    if sample is None:
        problem = "needs expert grades, which arrive while you look"
        name = "planned_grades" if looks is None else "margin" if margin is not None and looks == 1 else "looks"
        raise UsageError(problem, parameter=name, kind="no-expert-grades", fix=Fix("give them with {}", "expert"))
    numbers, counts = np.unique(sample.draw, return_counts=True)
    sizes = counts.astype(np.float64)
    has_draws = looks != 1 and (prepared.unit == "document" or len(sizes) > 1)
    if has_draws:
        check_draws(numbers, sizes)
    return plan_look(
        looks=looks,
        look=look,
        planned_grades=planned_grades,
        draw_sizes=sizes if has_draws else None,
        n_grades=len(sample),
        alpha=1 - level,
    )


def summarize(
    prepared: PreparedEstimate, baseline: str, level: float, look: Look | None = None, margin: float | None = None
) -> Estimate:
    """Return the estimates of all runs and of their differences to the baseline."""
    joined = prepared.joined
    graded = dict.fromkeys(joined.alignments, float("nan"))
    if joined.sample is not None:
        graded = joined.graded(prepared.measure)
    rows = [
        {**row, "judged": prepared.judged[row["run"]], "graded": graded[row["run"]]}
        for row in _result_rows(prepared, baseline, level, look)
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
        look=look,
        answers=() if look is None else _answers(prepared, rows, baseline, level, look, margin),
        margin=margin,
        notes=_row_notes(prepared, baseline, level),
    )


def _row_notes(prepared: PreparedEstimate, baseline: str, level: float) -> tuple[str, ...]:
    """Return sentences about values outside of the range, and about intervals that are bounds."""
    notes = _range_notes(prepared, level)
    if prepared.joined.sample is None:
        draws = f"{N_DRAWS_OF_MEANS} draws of all grades from their probabilities, each with a bootstrap sample of the"
        if prepared.joined.first.grades.shares is None:
            draws = f"{N_DRAWS_OF_MEANS} bootstrap samples of the"
            notes.append("Labels without probabilities count as certain, so that the intervals are too narrow.")
        notes.append(f"Intervals are from {draws} queries.")
    for name in prepared.joined.alignments:
        if name != baseline and prepared.joined.sample is not None:
            difference = prepared.difference(name, baseline, level)
            if difference.is_bound:
                notes.append(
                    f"'{name}' and '{baseline}': too few queries show a clear difference (fewer than "
                    f"{MIN_INFORMATIVE_QUERIES}, or all the same), so that the interval holds the largest difference "
                    "that rare queries can hide; what the labels are worth is not known."
                )
    return tuple(notes)


def _range_notes(prepared: PreparedEstimate, level: float) -> list[str]:
    """Return sentences about estimates outside of the range of the measure, by which all are moved."""
    raw = {name: prepared.unlimited_mean(name, level).value for name in prepared.joined.alignments}
    offset, limit = prepared.offset, prepared.limit
    if abs(offset) <= ROUNDING_TOLERANCE:
        return []
    listed = ", ".join(f"'{name}' {value:.4f}" for name, value in raw.items() if not 0 <= value <= limit)
    notes = [
        f"Estimates outside of the range of {prepared.measure} ({listed}): all are moved by {offset:+.4f}, so that "
        "differences within the range stay; the bias of the labels is that before."
    ]
    if prepared.unit == "document" and prepared.measure.name == "nDCG" and offset < 0:
        notes.append(
            "nDCG by document exceeds 1 if experts give higher grades than the labels expect, or by the chance of few "
            "grades; DCG has no such limit."
        )
    return notes


def _answers(
    prepared: PreparedEstimate,
    rows: list[dict[str, Any]],
    baseline: str,
    level: float,
    look: Look,
    margin: float | None,
) -> tuple[LookConclusion, ...]:
    """Return what a look concludes about each run but the baseline."""
    answers = []
    for row in rows:
        if row["run"] == baseline:
            continue
        difference = prepared.difference(row["run"], baseline, look.interval_level)
        found = answer(row["run"], difference, row["p_holm"], alpha=1 - level, margin=margin, is_last=look.is_last)
        if found.kind == "go-on" and not look.is_last:
            forecast = _forecast_answer(prepared, row["run"], baseline, look, half_width_to_decide(difference, margin))
            more = None if forecast.grades is None else forecast.grades - prepared.n_expert_grades
            planned = round(max(times for times, _ in look.later_looks()) * prepared.n_expert_grades)
            found = replace(found, forecast=forecast, more_grades=more, planned_grades=planned)
        answers.append(found)
    return tuple(answers)


def _forecast_answer(prepared: PreparedEstimate, run: str, baseline: str, look: Look, half_width: float) -> Forecast:
    """Return the number of grades at the first later look that is expected to give an answer.

    If none is, it is the number of grades at which the bound of the last look would do.
    """
    forecast = Forecast(None)
    for times, level in look.later_looks():
        forecast = prepared.forecast(prepared.difference(run, baseline, level), half_width)
        n_then = round(times * prepared.n_expert_grades)
        if forecast.grades is not None and forecast.grades <= n_then:
            return Forecast(n_then)
    return forecast


def _result_rows(prepared: PreparedEstimate, baseline: str, level: float, look: Look | None) -> list[dict[str, Any]]:
    level = level if look is None else look.interval_level
    names, n_grades = list(prepared.joined.alignments), prepared.n_expert_grades
    means = {name: prepared.mean(name, level) for name in names}
    differences = {name: prepared.difference(name, baseline, level) for name in names}
    p = np.array([float("nan") if name == baseline else differences[name].p for name in names])
    if look is not None:
        p = np.array([look.adjust(float(one)) for one in p])
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
                "bias": mean.labels - prepared.unlimited_mean(name, level).value if n_grades else float("nan"),
                "labels_difference": difference.labels,
                "experts_difference": difference.experts,
                "weight": mean.weight,
                "difference_weight": float("nan") if is_baseline else difference.weight,
                "worth": (mean.worth - 1) * n_grades,
                "difference_worth": float("nan")
                if is_baseline or difference.is_bound
                else (difference.worth - 1) * n_grades,
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
