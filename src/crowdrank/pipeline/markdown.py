"""The report of a run in Markdown."""

from __future__ import annotations

from typing import Any

from crowdrank._text import counted, markdown_text
from crowdrank.assessors.report import best_and_worst
from crowdrank.estimation.estimate import Estimate
from crowdrank.evaluation.significance import format_p
from crowdrank.pipeline.estimate_results import EXPLANATION, QUESTION, estimate_rows
from crowdrank.pipeline.feature_labels import NOT_FOR_RANKERS, FeatureLabels
from crowdrank.pipeline.result import RunResult
from crowdrank.pipeline.tables import describe_next

N_ROWS = 10
"""Maximum number of rows of a table."""


def markdown(result: RunResult) -> str:
    """Return the report in Markdown; ids and notes are escaped, so that they render as plain text.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=8, random_state=1)
    >>> result = crowdrank.run(world.judgments, world.features, candidates=["majority", "average"])
    >>> print(markdown(result).splitlines()[0])
    # A ranker from 1,245 judgments
    """
    title = "A ranker" if result.rankers is not None else "Labels"
    lines = [
        f"# {title} from {counted(result.sizes['judgments'], 'judgment')}",
        "",
        *(f"- {markdown_text(text)}" for text in result.summary),
        *([] if result.rankers is None else ["", "## Candidates", "", *_table(_candidates(result))]),
        *([] if result.estimate is None else _estimate(result.estimate)),
        *([] if result.feature_labels is None else _feature_labels(result, result.feature_labels)),
        "",
        "## Assessors",
        "",
        _assessors(result),
        "",
        *_table(_best_and_worst_assessors(result)),
        "",
        "## What to label next",
        "",
        f"{describe_next(result.tables['next'])} next.csv has all of them. {_relevance_unit(result)}",
        "",
        *_table(result.tables["next"].slice(0, N_ROWS).to_pylist()),
        "",
        "## Protocol",
        "",
        *(f"- {markdown_text(str(text))}" for text in (*result.protocol, *result.changes, *result.notes)),
        f"- crowdrank {result.versions['crowdrank']}, seed {result.settings.random_state}; all settings: run.json.",
    ]
    return "\n".join(lines) + "\n"


def _estimate(estimate: Estimate) -> list[str]:
    """Return the part on the selected ranker and the current ranking."""
    warnings = (f"- {markdown_text(str(message))}" for message in estimate.warnings)
    return [*("", f"## {QUESTION}", "", EXPLANATION, "", *_table(estimate_rows(estimate)), ""), *warnings]


def _feature_labels(result: RunResult, labels: FeatureLabels) -> list[str]:
    """Return the part on labels that used features."""
    return [
        *("", "## Labels with features", "", f"{NOT_FOR_RANKERS} consensus_with_features.parquet has them."),
        *("", *_table(labels.rows())),
        *("", "What to label next by these labels; next_with_features.csv has all documents:"),
        *("", *_table(result.tables["next_with_features"].slice(0, N_ROWS).to_pylist())),
    ]


def _candidates(result: RunResult) -> list[dict[str, Any]]:
    assert result.rankers is not None
    measure = result.settings.measure
    columns = {
        "selection_mean": f"{measure}, selection",
        f"{measure} mean": f"{measure}, test",
        f"{measure} difference": f"over {result.rankers.baseline}",
        f"{measure} lower": "lower",
        f"{measure} upper": "upper",
        f"{measure} p_holm": "p (Holm)",
        "note": "note",
    }
    rows = []
    for row in result.tables["comparison"].to_pylist():
        name = f"{row['candidate']} (selected)" if row["chosen"] else row["candidate"]
        figures = {new: _figure(new, row.get(old)) for old, new in columns.items()}
        rows.append({"candidate": name, "description": row["about"]} | figures)
    return rows


def _figure(title: str, value: Any) -> Any:
    """Return a cell: p-values are never 0, and differences have a sign."""
    if not isinstance(value, float) or value != value:
        return value
    if title == "p (Holm)":
        return format_p(value)
    return f"{value:+.4f}" if title in ("lower", "upper") or title.startswith("over ") else value


def _relevance_unit(result: RunResult) -> str:
    if not result.model.in_grades:
        return "Relevance is in standard deviations, 0 is the mean; grade is the consensus grade."
    return "Relevance is in grades."


def _assessors(result: RunResult) -> str:
    table = result.tables["assessors"]
    counts = table["flag"].value_counts().to_pylist()
    flags = ", ".join(
        f"{one['counts']:,} {'flagged ' + one['values'] if one['values'] else 'not flagged'}"
        for one in sorted(counts, key=lambda one: -one["counts"])
    )
    offset = "" if result.expert_offset is None else f" {result.expert_offset}."
    which = "All" if len(table) <= N_ROWS else "The best and the worst"
    return (
        f"{counted(len(table), 'assessor')}: {flags}.{offset} {which}, the most informative first "
        "(assessors.csv has all of them, pairs.csv the agreement of pairs)."
    )


def _best_and_worst_assessors(result: RunResult) -> list[dict[str, Any]]:
    table = best_and_worst(result.tables["assessors"], N_ROWS)
    return list(table.select(["assessor", "judgments", "informativeness", "flag", "evidence"]).to_pylist())


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    body = ([_cell(row[name]) for name in names] for row in rows)
    lines = [[_cell(name) for name in names], ["---"] * len(names), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else markdown_text(str(value))
