"""Report on the assessors of fitted judgments: reliability, flags and the evidence for them.

Many assessors are tested at once, so that some 95% intervals exclude the truth by chance. Every flag therefore needs an
interval and a margin: the estimate must be far from normal, and the interval must exclude what is normal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtri

from crowdrank._text import MAX_TABLE_ROWS, counted, heading, html_table, panel
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.assessors.agreement import accuracy, copy_groups, copy_names, honeypot_accuracy
from crowdrank.assessors.reference import (
    INTERVAL_LEVEL,
    UNRELIABLE_SLOPE,
    AssessorComparison,
    ExpertOffset,
    States,
    compare_with_experts,
    compare_with_others,
    corrected_information,
    count_pairs,
    crowd_curve,
    expert_grades_on_scale,
    expert_offset,
    information_sd,
    interval,
    kendall_tau,
    leave_one_out_consensus,
    nearest_expert_grades,
)
from crowdrank.assessors.severity import Severity, fit_severity
from crowdrank.consensus.families import effective_assessors
from crowdrank.consensus.fit_data import as_gold, as_judgments
from crowdrank.consensus.latent import information
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.errors import InputError, NotFittedError, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.gold import ItemGold
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_HONEYPOT, Judgments

FLAGS = ("careful", "", "copy", "lenient", "strict", "careless", "random", "reversed", "few")
UNRELIABLE_FLAGS = ("random", "reversed")
"""Flags of assessors whose answers are independent of relevance, or decrease with it."""

MIN_JUDGMENTS = 10
"""Minimum number of judgments for any other flag than `few`: standard errors of fewer are unreliable."""
MIN_VARIED_JUDGMENTS = 10
"""Minimum number of judgments of documents with another reference grade than the most frequent one, from which answers
of typical probability can be `random`."""
REVERSED = -0.2
"""Maximum slope of a `reversed` assessor; the upper end of the interval must be below half of it."""
MAX_RANDOM_SLOPE, MAX_RANDOM_INFORMATION = 0.1, 0.1
"""Maximum lower ends of the intervals of a `random` assessor: of the slope, as a share of the typical slope, and of the
information, as a share of the median information."""
BIAS_MARGIN = 1 / 8
"""Minimum bias of a `strict` or `lenient` assessor as a share of the scale's range (half a grade on 0-4); the interval
must exclude half of it."""
CARELESS, CAREFUL = 2 / 3, 4 / 3
"""Shares of the median informativeness below and above which assessors are `careless` and `careful`."""


@dataclass(frozen=True, eq=False)
class AssessorEvidence:
    """Statistics per assessor that the flags are based on.

    Attributes:
        comparison: comparison with the reference grades.
        by_experts: whether the reference grades are those of experts, otherwise of the other assessors.
        severity: bias of the assessors, which may be relative to another reference.
        informativeness: information about relevance in one answer, in nats, (n_assessors,).
        information_error: standard error of the informativeness.
        n_grades: number of grades of the scale.

    """

    comparison: AssessorComparison
    by_experts: Booleans
    severity: Severity
    informativeness: Floats
    information_error: Floats
    n_grades: int

    @property
    def few(self) -> Booleans:
        """Whether there are too few judgments to tell a random assessor from a typical one, or too similar documents.

        Equal answers to documents that nearly all have the same grade are those of a typical assessor too.
        """
        return (self.comparison.n < MIN_JUDGMENTS) | ~_decides(self.comparison)

    @property
    def bias_margin(self) -> float:
        """Minimum bias of a strict or lenient assessor, in grades."""
        return BIAS_MARGIN * (self.n_grades - 1)

    @property
    def bias_interval(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of the interval of the bias; NaN if unknown."""
        return interval(self.severity.bias, self.severity.error)

    @property
    def bias(self) -> Floats:
        """Bias in grades; NaN if its interval is too wide to tell a strict assessor from a lenient one."""
        lower, upper = self.bias_interval
        return np.where(upper - lower <= 2 * self.bias_margin, self.severity.bias, np.nan)

    @property
    def bias_reference(self) -> list[str]:
        """Reference of each bias: experts, others, or thin (an interval too wide for a flag)."""
        names = np.where(self.severity.by_experts, "experts", "others")
        return [str(name) for name in np.where(np.isnan(self.bias), "thin", names)]

    @property
    def compared_with(self) -> list[str]:
        """Reference of each slope: experts or others."""
        return ["experts" if by_experts else "others" for by_experts in self.by_experts]

    @property
    def median(self) -> float:
        """Median informativeness of the assessors with enough judgments, or of all if there are none."""
        enough = ~self.few
        return float(np.median(self.informativeness[enough] if enough.any() else self.informativeness))


def _is_near_zero(compared: AssessorComparison) -> Booleans:
    """Return whether the interval of the slope lies within +-`UNRELIABLE_SLOPE` times the typical slope."""
    lower, upper = compared.slope_interval
    return np.asarray((lower > -UNRELIABLE_SLOPE) & (upper < UNRELIABLE_SLOPE))


def _is_independent(compared: AssessorComparison) -> Booleans:
    """Return whether answers may be independent of the reference: slope and information can be about 0."""
    information_lower = interval(compared.information, compared.information_error)[0]
    is_flat = _is_near_zero(compared) & (compared.slope_interval[0] <= MAX_RANDOM_SLOPE)
    return np.asarray(is_flat & (information_lower <= MAX_RANDOM_INFORMATION))


def _is_random(compared: AssessorComparison) -> Booleans:
    """Return whether answers are independent of the reference, and either improbable or to varied documents.

    A constant answer can be the most probable one to every document: it is random if enough documents need another.
    """
    # Significantly less probable than typical answers to the same documents.
    is_improbable = compared.typical_z < -float(ndtri((1 + INTERVAL_LEVEL) / 2))
    has_evidence = is_improbable | (compared.n_varied >= MIN_VARIED_JUDGMENTS)
    return np.asarray(_is_independent(compared) & has_evidence)


def _is_reversed(compared: AssessorComparison) -> Booleans:
    return np.asarray((compared.slope_interval[1] < REVERSED / 2) & (compared.slope <= REVERSED))


def _decides(compared: AssessorComparison) -> Booleans:
    """Return whether a comparison tells whether an assessor is random, reversed or neither."""
    lower, upper = compared.slope_interval
    excludes_slopes = (lower > 0) | (upper < 0) | _is_near_zero(compared)  # 0, or large ones
    is_undecided = _is_independent(compared) & ~_is_random(compared)
    return np.asarray(excludes_slopes & ~is_undecided)


def flag(evidence: AssessorEvidence) -> NDArray[np.object_]:
    """Return one flag per assessor, or an empty text; of several flags the first in this function applies.

    >>> n = np.array([200, 200, 5])
    >>> comparison = AssessorComparison(n, np.array([1.0, 0.0, 0.9]), np.array([0.05, 0.05, 0.6]),
    ...                         np.array([1.0, 0.0, 0.8]), np.full(3, 0.1), np.array([0.0, -5.0, 0.0]), n // 2)
    >>> severity = Severity(np.zeros(3), np.full(3, 0.1), np.zeros(3, bool), np.zeros(3, int))
    >>> nats = np.array([0.5, 0.0, 0.4])
    >>> flag(AssessorEvidence(comparison, np.zeros(3, bool), severity, nats, np.full(3, 0.02), 5)).tolist()
    ['careful', 'random', 'few']
    """
    compared = evidence.comparison
    bias, (bias_lower, bias_upper) = evidence.bias, evidence.bias_interval
    information_lower, information_upper = interval(evidence.informativeness, evidence.information_error)
    margin = evidence.bias_margin
    conditions = {
        "few": evidence.few,
        "reversed": _is_reversed(compared),
        "random": _is_random(compared),
        "careless": information_upper < CARELESS * evidence.median,
        "strict": (bias_upper < -margin / 2) & (bias <= -margin),
        "lenient": (bias_lower > margin / 2) & (bias >= margin),
        "careful": information_lower > CAREFUL * evidence.median,
    }
    return np.select(list(conditions.values()), list(conditions), "").astype(object)


def evidence_sentences(evidence: AssessorEvidence) -> list[str]:
    """Return a sentence per assessor with the numbers behind its flag.

    >>> comparison = AssessorComparison(*map(np.array, ([200], [0.02], [0.05], [0.0], [0.1], [-5.0], [80])))
    >>> severity = Severity(np.array([-0.4]), np.array([0.1]), np.array([True]), np.array([0]))
    >>> nats, error = np.array([0.01]), np.array([0.02])
    >>> evidence = AssessorEvidence(comparison, np.array([False]), severity, nats, error, 5)
    >>> for part in evidence_sentences(evidence)[0].split("; "): print(part)
    slope v. others 0.02 (95% interval -0.08 to 0.12, 200 judgments)
    bias v. experts -0.40 grades (95% interval -0.60 to -0.20)
    informativeness 0.010 nats (median 0.010).
    """
    compared, median = evidence.comparison, evidence.median
    counts = [f", {counted(n, 'judgment')}" for n in compared.n.tolist()]
    slope = _with_interval(compared.slope, *compared.slope_interval, unit="", counts=counts)
    has_interval = np.isfinite(evidence.severity.error)
    bias = _with_interval(np.where(has_interval, evidence.severity.bias, np.nan), *evidence.bias_interval, " grades")
    references = [BIAS_TEXTS[name] for name in evidence.bias_reference]
    is_similar = evidence.few & (compared.n >= MIN_JUDGMENTS) & (compared.n_varied < MIN_VARIED_JUDGMENTS)
    similar = [
        f"; only {n_varied:,} of them on documents of another grade than the most frequent" if few else ""
        for few, n_varied in zip(is_similar, compared.n_varied.tolist(), strict=True)
    ]
    rows = zip(evidence.compared_with, slope, similar, references, bias, evidence.informativeness, strict=True)
    return [
        f"slope v. {name} {slope_text}{similar_text}; bias {reference} {bias_text}; informativeness {nats:.3f} nats "
        f"(median {median:.3f})."
        for name, slope_text, similar_text, reference, bias_text, nats in rows
    ]


BIAS_TEXTS = {"experts": "v. experts", "others": "v. others", "thin": "too uncertain:"}
"""Text for each value of `bias_reference` in the evidence of a flag."""


def _with_interval(
    estimate: Floats, lower: Floats, upper: Floats, unit: str, counts: Sequence[str] | None = None
) -> list[str]:
    """Return each estimate with its interval and count as text, such as `0.02 (95% interval -0.08 to 0.12)`."""
    texts = ["unknown" if np.isnan(value) else f"{value:z.2f}{unit}" for value in estimate]
    counts = [""] * len(texts) if counts is None else counts
    return [
        text + (f" ({count.removeprefix(', ')})" if count else "")
        if np.isnan(low)
        else f"{text} ({INTERVAL_LEVEL:.0%} interval {low:z.2f} to {high:z.2f}{count})"
        for text, low, high, count in zip(texts, lower, upper, counts, strict=True)
    ]


MIN_EXPERT_JUDGMENTS = 20
"""Minimum number of judgments on expert-graded documents to compare an assessor with experts instead of others. In the
informativeness, this many judgments have the same weight as the model."""

Columns = dict[str, Any]


@dataclass(frozen=True, eq=False)
class AssessorReport:
    """Reliability of each assessor. Grades on several scales are mapped to the longest scale; biases are in its grades.

    Columns of the table:
        assessor, judgments: id, and number of judgments. family: family of the assessor, if families are known.
        kind: human, llm or expert, if the judgments have kinds.
        informativeness: information about relevance in one answer, in nats; info_0, info_1, ...: its part by answer.
            With expert grades, it is a weighted mean of the information measured against them and the model's.
        slope, slope_lower, slope_upper: increase of the answers with the reference `compared_with`, with its 95%
            interval: 1 is typical, 0 random, negative reversed; blank for fewer than three answers. model_direction:
            increase of the expected answer with the crowd's by the model's curves; negative if the model reads the
            answers backwards.
        bias, bias_lower, bias_upper: bias of the assessor in a joint fit of assessors and documents, in grades, with
            its 95% interval. bias_reference: experts, others (the mean of the connected assessors), or thin: the
            interval is too wide for a flag; the bias is then blank.
        agreement: share of answers equal to the consensus grade.
        repeats, repeats_equal, self_agreement: repeated judgments of a document, number and share of equal answers;
            only if there are any.
        honeypots, honeypots_right, honeypot_share, honeypot_lower, honeypot_upper: accuracy, with Wilson's interval.
        gold_judgments, gold_right, gold_accuracy, gold_lower, gold_upper: the same for expert grades, if there are any.
            If an expert grade stands for several grades, the nearest counts; without a map of the scales, the accuracy
            is unknown.
        gold_tau: Kendall's tau-b of answers and expert grades.
        duration: median, if known.
        compared_with: reference of the slope: experts (from 20 judgments on expert-graded documents, unless they leave
            open what the others decide) or others.
        flag: careful, lenient, strict, careless, random, reversed, copy (same answers as another assessor of another
            family), few (too few judgments), or blank.
        evidence: the numbers behind the flag.

    Attributes:
        method: class of the model.
        table: the report.
        scale: scale of the grades.
        modeled: whether informativeness comes from a model of assessors, otherwise it is measured against votes.
        expert_offset: mean difference between the assessors and the experts, if there are expert grades.
        n_eff: effective number of independent assessors, if the model uses families.
        backend: library of `frame`.

    """

    method: str
    table: pa.Table
    scale: Scale
    modeled: bool
    expert_offset: ExpertOffset | None = None
    n_eff: float | None = None
    backend: str = "pandas"

    def __repr__(self) -> str:
        flags = ", ".join(f"{number} {name}" for name, number in self.flags.items() if name)
        return f"<AssessorReport by {self.method}: {counted(len(self.table), 'assessor')}; flags: {flags or 'none'}>"

    def _repr_html_(self) -> str:
        shown = ["assessor", "judgments", "informativeness", "flag", "evidence"]
        rows = best_and_worst(self.table.select(shown), MAX_TABLE_ROWS).to_pylist()
        return panel(heading(repr(self).strip("<>")), html_table(rows, shown, len(self.table)))

    @cached_property
    def frame(self) -> Any:
        """The report as a DataFrame of the library that the judgments came in."""
        return frames.from_arrow(self.table, self.backend)

    @property
    def flags(self) -> dict[str, int]:
        """Number of assessors by flag."""
        counts = Counter(self.table["flag"].to_pylist())
        return {name: counts[name] for name in FLAGS if counts[name]}


RANDOM_FOUND = {10: 0.0, 30: 0.0, 100: 0.7, 300: 0.98}
"""Share of random assessors who are flagged, by number of judgments, in simulated crowds with 3 labels per document
(`python -m experiments robustness --only flags`)."""


def describe_few(n_few: int, n_assessors: int) -> str:
    """Return a sentence about assessors with the flag `few`, and how many judgments other flags need; empty for none.

    >>> describe_few(0, 5)
    ''
    """
    if not n_few:
        return ""
    found = [f"{share:.0%} with {n}" for n, share in RANDOM_FOUND.items()]
    return (
        f"{n_few:,} of {counted(n_assessors, 'assessor')} cannot have another flag: too few judgments, or too similar "
        f"documents. In simulated crowds with 3 labels per document, random assessors are found in {found[0]} "
        f"judgments, {', '.join(found[1:-1])} and {found[-1]}."
    )


def describe_thin(bias_references: Sequence[str], *, has_experts: bool = False) -> str:
    """Return a sentence about assessors whose bias is too uncertain for a flag; empty for none.

    Args:
        bias_references: column `bias_reference` of the report.
        has_experts: whether expert grades were given.

    >>> describe_thin(["others", "thin"]).partition(":")[0]
    '1 of 2 assessors cannot be flagged strict or lenient'
    """
    n_thin = sum(name == "thin" for name in bias_references)
    if not n_thin:
        return ""
    more = "" if has_experts else ", or give expert grades"
    return (
        f"{n_thin:,} of {counted(len(bias_references), 'assessor')} cannot be flagged strict or lenient: the interval "
        "of the bias is too wide. More judgments of documents that others judge, too, make it narrower"
        f"{more}."
    )


def best_and_worst(table: pa.Table, max_rows: int) -> pa.Table:
    """Return the first and the last rows of a table that is sorted by quality, `max_rows` in all.

    >>> best_and_worst(pa.table({"x": [1, 2, 3, 4, 5]}), 3)["x"].to_pylist()
    [1, 2, 5]
    """
    n_last = max_rows // 2
    if len(table) <= max_rows:
        return table
    return pa.concat_tables([table.slice(0, max_rows - n_last), table.slice(len(table) - n_last)])


def assess(model: Aggregator, judgments: Any = None, gold: Any = None) -> AssessorReport:
    """Report on the reliability of assessors, by a fitted model.

    Args:
        model: a fitted model. If it has no model of assessors (votes, GLAD), informativeness is measured against the
            votes of the other assessors.
        judgments: `Judgments`, a path or a DataFrame; by default those of the fit.
        gold: expert grades; by default those of the fit. Assessors with at least 20 judgments on expert-graded
            documents are ordered and flagged by them.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, documents=10, assessors=8, spammers=0.25, random_state=3)
    >>> report = assess(crowdrank.GDA().fit(world.judgments))
    >>> world.assessors.query("kind.str.endswith('spammer')")["assessor"].tolist()
    ['worker-2', 'worker-6']
    >>> sorted(report.frame.loc[report.frame["flag"] == "random", "assessor"])
    ['worker-2', 'worker-6']
    """
    if not hasattr(model, "consensus_"):
        raise NotFittedError(f"This {type(model).__name__} is not fitted yet; call fit first.")
    if judgments is None:
        model.consensus_.require_grades()
    source = model.judgments_ if judgments is None else as_judgments(judgments, model.judgments_)
    answers, states = source.to_main_scale(), _states_on_main_scale(source, _states_of(model, source))
    table = answers.with_unjudgeable(model.unjudgeable_as)
    if table.scale != model.consensus_.scale:
        raise InputError(f"the grades {table.scale} are not those fitted ({model.consensus_.scale})")
    if states is not None and len(table.assessors) < len(answers.assessors):
        states = states[0], states[1][ids.match(answers.assessors, table.assessors)]
    expert_grades = model.gold_ if gold is None else as_gold(gold, source)
    experts = None if expert_grades is None else expert_grades.for_items(table)
    quality = _quality_columns(table, states, experts)
    conclusions = {name: quality.pop(name) for name in ("compared_with", "flag", "evidence")}
    honeypots = _honeypot_columns(answers, table.assessors)
    conclusions["evidence"] = add_honeypots(conclusions["evidence"], honeypots)
    _mark_copies(table, conclusions)
    columns: Columns = {
        "assessor": table.assessors,
        **_family_columns(table),
        **({"kind": table.assessor_kind} if any(table.assessor_kind) else {}),
        "judgments": np.bincount(table.assessor, minlength=table.n_assessors),
        **quality,
        "agreement": _agreement(table, model.consensus_),
        **_repeat_columns(table),
        **honeypots,
        **({} if experts is None else _gold_columns(table, experts)),
        **({"duration": _median_durations(table)} if "duration" in table.extras else {}),
        **conclusions,
    }
    rows = pa.table({name: _to_arrow(column) for name, column in columns.items()})
    rows = rows.sort_by([("informativeness", "descending"), ("assessor", "ascending")])
    offset = (
        None
        if experts is None
        else expert_offset(table, experts, np.isin(conclusions["flag"].astype(str), UNRELIABLE_FLAGS))
    )
    return AssessorReport(
        type(model).__name__, rows, table.scale, states is not None, offset, effective_assessors(model), table.backend
    )


def _mark_copies(table: Judgments, conclusions: Columns) -> None:
    """Flag copies that have no fault of their own, in place, and name the others of their group in the evidence."""
    code = {str(name): number for number, name in enumerate(table.assessors.to_pylist())}
    for group in copy_groups(table):
        names = copy_names(group)
        for name in names:
            others = [other for other in names if other != name]
            more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            row = code[name]
            text = conclusions["evidence"][row].removesuffix(".")
            conclusions["evidence"][row] = f"{text}; same answers as {shown(others[0])}{more}."
            if conclusions["flag"][row] in ("careful", ""):
                conclusions["flag"][row] = "copy"


def _to_arrow(column: Any) -> pa.Array:
    """Return a column with null instead of NaN."""
    return column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)


def _states_of(model: Aggregator, table: Judgments) -> States | None:
    """Return P(state) of documents and P(answer | state) of the assessors of a table.

    Assessors who were not in the fit get the mean of those who were, weighted by judgments.
    """
    states = model.answer_states()
    if states is None:
        return None
    prior, likelihood = states
    fitted = model.consensus_.assessor_table
    position = ids.match(fitted["assessor"].combine_chunks(), table.assessors)
    rows = likelihood[np.maximum(position, 0)]
    n_judgments = fitted["judgments"].to_numpy()
    rows[position < 0] = np.tensordot(n_judgments / n_judgments.sum(), likelihood, axes=1)
    return prior, rows


def _states_on_main_scale(table: Judgments, states: States | None) -> States | None:
    """Return P(state) and P(answer | state) with the answers of all scales mapped to the main scale."""
    if states is None or table.maps_to_one_scale:
        return states
    prior, likelihood = states
    n_grades, code_table = len(table.main_scale), table.main_scale_codes
    mapped = likelihood.copy()  # 'cannot judge' follows the grades of all scales and stays there
    mapped[:, :n_grades] = 0.0
    for number, scale in enumerate(table.scales):
        assessors = np.flatnonzero(table.assessor_scale == number)
        mapped[np.ix_(assessors, code_table[number, : len(scale)])] = likelihood[assessors, : len(scale)]
    return prior, mapped


def _quality_columns(table: Judgments, states: States | None, gold: ItemGold | None) -> Columns:
    """Return the columns of the report on informativeness, slope, bias, flag and evidence."""
    consensus = leave_one_out_consensus(table, states)
    comparison = others = compare_with_others(table, consensus)
    if states is None:
        informativeness, parts, error = corrected_information(count_pairs(table, consensus.grade))
    else:
        informativeness, parts = information(*states)
        n_judgments = np.bincount(table.assessor, minlength=table.n_assessors)
        error = information_sd(states[1] * states[0]) / np.sqrt(n_judgments)
    by_experts = np.zeros(table.n_assessors, bool)
    expert_grade, expert_bias_error = None, BIAS_MARGIN * (len(table.scale) - 1) / 4
    if gold is not None:
        experts, expert_grade = compare_with_experts(table, gold), expert_grades_on_scale(table, gold)
        # A few expert grades that decide nothing do not replace a comparison with the others that does.
        by_experts = (experts.n >= MIN_EXPERT_JUDGMENTS) & (_decides(experts) | ~_decides(others))
        comparison = others.replace_where(by_experts, experts)
        measured, _, measured_error = corrected_information(_gold_counts(table, gold))
        # The model's values are rescaled to the mean of the measured ones: both are then in the same unit.
        scale = experts.n @ measured / max(float(experts.n @ informativeness), 1e-300) if experts.n.any() else 1.0
        weight = experts.n / (experts.n + MIN_EXPERT_JUDGMENTS)
        informativeness = weight * measured + (1 - weight) * scale * informativeness
        error = weight * measured_error + (1 - weight) * scale * error
    unreliable = _is_random(comparison) | _is_reversed(comparison)
    severity = fit_severity(table, expert_grade, unreliable, expert_bias_error)
    evidence = AssessorEvidence(comparison, by_experts, severity, informativeness, error, len(table.scale))
    return {
        "informativeness": informativeness,
        **{f"info_{int(value)}": parts[:, code] for code, value in enumerate(table.scale.values)},
        "slope": comparison.slope,
        **dict(zip(("slope_lower", "slope_upper"), comparison.slope_interval, strict=True)),
        "model_direction": others.slope if states is None else model_directions(table, states),
        "bias": evidence.bias,
        **dict(zip(("bias_lower", "bias_upper"), evidence.bias_interval, strict=True)),
        "bias_reference": evidence.bias_reference,
        "compared_with": evidence.compared_with,
        "flag": flag(evidence),
        "evidence": evidence_sentences(evidence),
    }


def model_directions(table: Judgments, states: States) -> Floats:
    """Return the regression slope of each assessor's expected answer on the crowd's, over the states of a model.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]}))
    >>> curves = np.stack([np.eye(2), np.full((2, 2), 0.5)])
    >>> model_directions(table, (np.array([0.5, 0.5]), curves)).tolist()
    [2.0, 0.0]
    """
    prior, likelihood = states
    grades = np.arange(len(table.scale))
    n_judgments = np.bincount(table.assessor, minlength=table.n_assessors)
    crowd = grades @ crowd_curve(likelihood, n_judgments, len(grades))
    own = likelihood[:, : len(grades)]
    expected = np.einsum("g,ags->as", grades, own) / np.maximum(own.sum(axis=1), 1e-300)
    deviation = prior * (crowd - prior @ crowd / prior.sum())
    variance = float(deviation @ crowd)
    if variance < 1e-12:
        return np.zeros(len(likelihood))  # a crowd with constant answers has no direction
    return np.asarray(expected @ deviation / variance)


def _agreement(table: Judgments, consensus: Consensus) -> Floats:
    """Return the share of each assessor's answers that equal the consensus grade; NaN if there is none."""
    documents = consensus.document_table
    position = table.positions(documents["query"].combine_chunks(), documents["document"].combine_chunks())
    codes = pc.index_in(documents["grade"].combine_chunks(), pa.array(consensus.labels)).to_numpy(zero_copy_only=False)
    item_codes = np.full(table.n_items, NO_HONEYPOT, np.int8)
    item_codes[position[position >= 0]] = codes[position >= 0]
    return accuracy(table, table.by_row(item_codes))["share"].astype(np.float64)


def _family_columns(table: Judgments) -> Columns:
    """Return the family of each assessor, blank without one; nothing if there are no families."""
    if table.families is None or table.assessor_family is None:
        return {}
    names = [str(name) for name in table.families.to_pylist()]
    return {"family": [names[code] if code >= 0 else "" for code in table.assessor_family.tolist()]}


def _repeat_columns(table: Judgments) -> Columns:
    """Return the columns of self-agreement: number of repeated judgments, and number and share of equal ones."""
    counted_repeats = table.report.repeats_by_assessor
    if not counted_repeats:
        return {}
    repeats, equal = np.array([counted_repeats.get(str(name), (0, 0)) for name in table.assessors.to_pylist()]).T
    share = np.divide(equal, repeats, out=np.full(len(repeats), np.nan), where=repeats > 0)
    return {"repeats": repeats, "repeats_equal": equal, "self_agreement": share}


def _honeypot_columns(answers: Judgments, assessors: pa.Array) -> Columns:
    """Return the columns of accuracy on honeypots; 'cannot judge' is correct if it is the true answer."""
    position = ids.match(answers.assessors, assessors)
    counts = {name: column[position] for name, column in honeypot_accuracy(answers).items()}
    return {
        "honeypots": counts["asked"],
        "honeypots_right": counts["right"],
        **{f"honeypot_{name}": counts[name] for name in ("share", "lower", "upper")},
    }


def add_honeypots(sentences: Sequence[str], honeypots: Columns) -> list[str]:
    """Return sentences of evidence with the number of right honeypots of each assessor who judged some.

    >>> counts = {"honeypots": np.array([9, 0]), "honeypots_right": np.array([8, 0])}
    >>> wilson_ends = {"honeypot_lower": np.array([0.565, 0.0]), "honeypot_upper": np.array([0.98, 1.0])}
    >>> add_honeypots(["slope v. others 0.02.", "slope v. others 1."], counts | wilson_ends)
    ['slope v. others 0.02; 8 of 9 honeypots right (95% interval 0.56 to 0.98).', 'slope v. others 1.']
    """
    columns = ("honeypots", "honeypots_right", "honeypot_lower", "honeypot_upper")
    rows = zip(sentences, *(honeypots[name] for name in columns), strict=True)
    return [
        f"{text.removesuffix('.')}; {right:,} of {counted(n, 'honeypot')} right "
        f"({INTERVAL_LEVEL:.0%} interval {lower:.2f} to {upper:.2f})."
        if n
        else text
        for text, n, right, lower, upper in rows
    ]


def _gold_counts(table: Judgments, gold: ItemGold) -> Integers:
    """Return how often each assessor gave each answer to documents of each expert grade.

    The shape is (n_assessors, n_answers, n_expert_grades).
    """
    return count_pairs(table, table.by_row(gold.code), gold.n_expert_grades)


def _gold_columns(table: Judgments, gold: ItemGold) -> Columns:
    """Return the columns of accuracy and Kendall's tau against expert grades."""
    nearest = nearest_expert_grades(table.grade, table.by_row(gold.code), gold.sets)
    counts = accuracy(table, np.nan_to_num(nearest, nan=NO_HONEYPOT).astype(np.int8))
    return {
        "gold_judgments": _gold_counts(table, gold).sum(axis=(1, 2)),
        "gold_right": counts["right"],
        "gold_accuracy": counts["share"],
        "gold_lower": counts["lower"],
        "gold_upper": counts["upper"],
        "gold_tau": kendall_tau(_gold_counts(table, gold)),
    }


def _median_durations(table: Judgments) -> Floats:
    """Return the median duration of each assessor's judgments; NaN if none is known."""
    medians = pd.Series(table.extras["duration"].astype(np.float64)).groupby(table.assessor).median()
    return medians.reindex(range(table.n_assessors)).to_numpy().astype(np.float64)
