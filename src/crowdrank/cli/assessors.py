"""`crowdrank assessors`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import note_unjudged, say, say_json, show_table
from crowdrank.consensus import get_aggregator

if TYPE_CHECKING:
    from crowdrank.assessors.agreement import Alpha
    from crowdrank.assessors.report import AssessorReport

SHOWN = ["assessor", "judgments", "informativeness", "slope", "bias", "honeypots", "flag"]
"""The columns that the terminal shows of a report."""


@o.reads_judgments()
def assessors(
    judgments: o.JudgmentsFile,
    method: o.Method = "gda",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The report: .csv, .tsv, .parquet or .jsonl.", rich_help_panel=o.OUTPUT),
    ] = None,
    gold: o.MaybeGoldFile = None,
    threads: o.Threads = None,
    engine: o.EngineName = "local",
    dashboard: o.Dashboard = False,
    reading: o.Reading = o.TOLD,
    unjudgeable_as: o.UnjudgeableAs = "lowest",
    gold_format: o.GoldFormat = None,
    gold_columns: o.GoldColumns = None,
    gold_grades: o.GoldGrades = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Say who is reliable: informativeness, slope, bias, honeypots, and flags with their evidence."""
    from crowdrank.assessors.agreement import krippendorff_alpha
    from crowdrank.assessors.report import assess
    from crowdrank.judgments.read import read_gold, read_judgments
    from crowdrank.judgments.write import check_outputs, write_table

    model = get_aggregator(method, unjudgeable_as=unjudgeable_as)
    check_outputs({"-o": output}, [judgments, gold, reading["exclude"], reading["scales"]])
    table = read_judgments(judgments, **reading)
    known = read_gold(gold, **o.gold_options(gold_format, gold_columns, gold_grades, None, "lowest")) if gold else None
    with o.engine(engine, threads, dashboard) as running:
        report = assess(model.fit(table, gold=known, engine=running, progress=True))
    alpha = krippendorff_alpha(table)
    unjudged = 0 if known is None else known.n_unjudged(table)
    note_unjudged(unjudged)
    if output is not None:
        write_table(report.table, output, csv_safe=csv_safe)
    if json:
        counts = {"rows": table.report.rows, "skipped": dict(table.report.skipped), "gold_unjudged": unjudged}
        say_json({**_summary(method, report, alpha, output), **counts})
        return
    show_table(_shown(report))
    _say_summary(method, report, alpha, output)


def _shown(report: AssessorReport) -> Any:
    """The columns for the terminal, honeypots as right/answered."""
    import pyarrow as pa

    counts = zip(*(report.table[name].to_pylist() for name in ("honeypots_right", "honeypots")), strict=True)
    shares = pa.array([f"{right}/{asked}" if asked else "" for right, asked in counts], pa.string())
    place = report.table.column_names.index("honeypots")
    return report.table.set_column(place, "honeypots", shares).select(SHOWN)


def _summary(method: str, report: AssessorReport, alpha: Alpha, output: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    agreement = {name: None if value != value else value for name, value in asdict(alpha).items()}  # JSON has no NaN
    return {
        "method": method,
        "informativeness": "modeled" if report.modeled else "measured",
        "flags": {name or "none": number for name, number in report.flags.items()},
        "alpha": agreement,
        "assessors": report.table.to_pylist(),
        "output": None if output is None else str(output),
    }


def _say_summary(method: str, report: AssessorReport, alpha: Alpha, output: Path | None) -> None:
    if not report.modeled:
        say(f"{method} has no model of assessors: informativeness is measured against the votes of the others.")
    flags = ", ".join(f"{number:,} {name or 'without a flag'}" for name, number in report.flags.items())
    written = "" if output is None else f"; written to {output}"
    say(f"{len(report.table):,} assessors: {flags}{written}.")
    say(f"{alpha}.")
