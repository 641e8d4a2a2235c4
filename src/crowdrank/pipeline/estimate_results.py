"""The estimate of the selected ranker and of the current ranking: as text, and in the files of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._text import counted
from crowdrank.errors import Message
from crowdrank.estimation.estimate import Estimate
from crowdrank.evaluation.evaluate import JUDGED_CUTOFF
from crowdrank.evaluation.measures import parse_measure
from crowdrank.evaluation.significance import format_p
from crowdrank.pipeline.contrasts import ALPHA

QUESTION = "Is the new ranker better than your current ranking?"
EXPLANATION = (
    "Both rankings with all their documents, on the test queries only. Documents without a grade count as grade 0; the "
    "comparison of candidates leaves them out, so its figures differ. Labels of other queries would flatter the new "
    "ranker, which was trained or selected on them, so they are not used: the estimate is that of the experts, and the "
    "labels of the same queries show the bias of labels alone."
)
ESTIMATE_NUMBERS = (
    *("estimate", "lower", "upper", "difference", "difference_lower", "difference_upper", "p", "p_holm"),
    *("labels_only", "experts_only", "bias", "labels_difference", "experts_difference", "weight", "difference_weight"),
    *("worth", "difference_worth", "judged", "graded"),
)
"""Columns of numbers of the table of an estimate."""


def estimate_to_dict(result: Estimate) -> dict[str, Any]:
    """Return everything of an estimate but its table, ready for JSON."""
    return {
        "measure": str(result.measure),
        "baseline": result.baseline,
        "level": result.level,
        "unit": result.unit,
        "queries": result.n_queries,
        "expert_queries": result.n_expert_queries,
        "expert_grades": result.n_expert_grades,
        "warnings": [message.to_dict() for message in result.warnings],
    }


def load_estimate(fields: Mapping[str, Any], table: pa.Table) -> Estimate:
    """Return the estimate of the dictionary that :func:`estimate_to_dict` returned, with its table."""
    columns = {name: table[name] if name == "run" else pc.fill_null(table[name], np.nan) for name in table.column_names}
    return Estimate(
        rows=pa.table(columns),
        measure=parse_measure(fields["measure"]),
        baseline=fields["baseline"],
        level=fields["level"],
        unit=fields["unit"],
        n_queries=fields["queries"],
        n_expert_queries=fields["expert_queries"],
        n_expert_grades=fields["expert_grades"],
        warnings=tuple(Message.from_dict(one) for one in fields["warnings"]),
    )


def estimate_rows(result: Estimate) -> list[dict[str, str]]:
    """Return the figures of both rankings side by side, as text."""
    base, ours = _base_and_other(result)
    cutoff = result.measure.cutoff or JUDGED_CUTOFF
    bias = ours["labels_difference"] - ours["difference"]
    figures = [
        (
            f"{result.measure} by experts",
            *(f"{row['estimate']:.4f}" for row in (base, ours)),
            f"{ours['difference']:+.4f}",
            _interval(ours),
            format_p(ours["p"]),
        ),
        (
            f"{result.measure} by labels alone",
            *(f"{row['labels_only']:.4f}" for row in (base, ours)),
            *(f"{ours['labels_difference']:+.4f}", "", ""),
        ),
        ("bias of the labels", *(f"{row['bias']:+.4f}" for row in (base, ours)), f"{bias:+.4f}", "", ""),
        (f"graded by experts@{cutoff}", *(f"{row['graded']:.1%}" for row in (base, ours)), "", "", ""),
        (f"labeled@{cutoff}", *(f"{row['judged']:.1%}" for row in (base, ours)), "", "", ""),
    ]
    names = ("figure", f"{base['run']} (current)", f"{ours['run']} (new)", "difference", "95% interval", "p")
    return [dict(zip(names, row, strict=True)) for row in figures]


def _base_and_other(result: Estimate) -> list[dict[str, Any]]:
    return sorted(result.rows.to_pylist(), key=lambda row: row["run"] != result.baseline)


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['difference_lower']:+.4f} to {row['difference_upper']:+.4f}"


def describe_estimate(result: Estimate) -> str:
    """Return the difference between the selected ranker and the current ranking, in a sentence or two."""
    base, ours = _base_and_other(result)
    difference = f"{ours['difference']:+.4f}, 95% interval {_interval(ours)}, p {format_p(ours['p'])}"
    significance = "" if ours["p"] <= ALPHA else ", not significant"
    return (
        f"With all documents of both rankings on {counted(result.n_queries, 'test query')}, {result.measure} is "
        f"{ours['estimate']:.4f} instead of {base['estimate']:.4f} of {result.baseline} ({difference}"
        f"{significance}). Labels alone show a difference of {ours['labels_difference']:+.4f}."
    )
