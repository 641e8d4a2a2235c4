"""The plain report of a run: what was found, who is reliable, what next, and how it was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdrank._text import counted, markdown_text
from crowdrank.assessors.report import best_and_worst
from crowdrank.evaluation.significance import format_p
from crowdrank.pipeline.tables import comparison_table

if TYPE_CHECKING:
    from crowdrank.pipeline.run import Run

SHOWN = 10


def markdown(done: Run) -> str:
    """Return the report as Markdown; ids and notes are escaped, so that they render as plain text.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=8, random_state=1)
    >>> done = crowdrank.run(world.judgments, world.features, candidates=["majority", "average"])
    >>> print(markdown(done).splitlines()[0])
    # A ranker from 1,245 judgments
    """
    sizes = done.sizes()
    lines = [
        f"# A ranker from {counted(sizes['judgments'], 'judgment')}",
        "",
        markdown_text(done.paragraph),
        "",
        "## Candidates",
        "",
        *_table(_candidates(done)),
        "",
        "## Assessors",
        "",
        _assessors(done),
        "",
        *_table(_best_and_worst_assessors(done)),
        "",
        "## What to label next",
        "",
        f"The documents whose relevance is least certain (all of them: next.csv). {_scale(done)}",
        "",
        *_table(done.next.head(SHOWN).to_dict("records")),
        "",
        "## How it was done",
        "",
        *(f"- {markdown_text(sentence)}" for sentence in (*done.verdict.protocol, *done.notes)),
        f"- Made by crowdrank {done.about()['crowdrank']} with seed {done.settings.random_state}; "
        "run.json has all settings.",
    ]
    return "\n".join(lines) + "\n"


def _candidates(done: Run) -> list[dict[str, Any]]:
    measure = done.settings.measure
    shown = {
        "choice_mean": f"{measure}, choice",
        f"{measure} mean": f"{measure}, test",
        f"{measure} difference": f"over {done.verdict.baseline}",
        f"{measure} lower": "from",
        f"{measure} upper": "to",
        f"{measure} p_holm": "p (Holm)",
        "note": "note",
    }
    rows = []
    for row in comparison_table(done.outcome, done.verdict).to_pylist():
        name = f"{row['candidate']} (chosen)" if row["chosen"] else row["candidate"]
        figures = {new: _figure(new, row.get(old)) for old, new in shown.items()}
        rows.append({"candidate": name, "what": row["about"]} | figures)
    return rows


def _figure(head: str, value: Any) -> Any:
    """A p-value is never 0, and a difference has its sign."""
    if not isinstance(value, float) or value != value:
        return value
    if head == "p (Holm)":
        return format_p(value)
    return f"{value:+.4f}" if head in ("from", "to") or head.startswith("over ") else value


def _scale(done: Run) -> str:
    if not done.fits.model(done.settings.method).in_grades:
        return "Relevance is in standard deviations: 0 is the mean document; grade is the consensus grade."
    return "Relevance is in grades."


def _assessors(done: Run) -> str:
    report = done.assessor_report
    flags = ", ".join(f"{n:,} {f'flagged {name}' if name else 'not flagged'}" for name, n in report.flags.items())
    offset = "" if report.expert_offset is None else f" {report.expert_offset}."
    which = "All" if len(report.table) <= SHOWN else "The best and the worst"
    return (
        f"{counted(len(report.table), 'assessor')}: {flags}.{offset} {which}, the most informative first "
        "(assessors.csv has all of them, pairs.csv the agreement of pairs)."
    )


def _best_and_worst_assessors(done: Run) -> list[dict[str, Any]]:
    table = best_and_worst(done.assessor_report.table, SHOWN)
    return list(table.select(["assessor", "judgments", "informativeness", "flag", "evidence"]).to_pylist())


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as the lines of a Markdown table."""
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
