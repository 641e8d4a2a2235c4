"""`crowdrank collect disagreements`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import note_left_out, say, say_json, show_table


@o.reads_judgments()
def collect_disagreements(
    judgments: o.JudgmentsFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write all of them here.", rich_help_panel=o.OUTPUT, show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(help="How many are shown.")] = 10,
    method: c.Method = "gda",
    reading: o.Reading = o.TOLD,
    unjudgeable_as: o.UnjudgeableAs = "lowest",
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """List the documents that their judges disagree on, and which grades they mix up: for a talk about guidelines."""
    from crowdrank._text import counted
    from crowdrank.collection.disagreements import confusions, disagreements
    from crowdrank.judgments.read import read_judgments
    from crowdrank.judgments.write import check_outputs, write_table

    check_outputs({"-o": output}, [judgments, reading["exclude"], reading["scales"]])
    table = read_judgments(judgments, **reading)
    note_left_out(table)
    found = disagreements(table, c.fitted(method, table, unjudgeable_as))
    mixed = confusions(table)
    if output is not None:
        write_table(found, output, csv_safe=csv_safe)
    if json:
        say_json({"documents": found.slice(0, top).to_pylist(), "disagreeing": len(found), "confusions": mixed})
        return
    if not len(found):
        say("No two judges of a document disagree.")
        return
    show_table(found, first=top)
    told = ", ".join(f"{row['grades']} ({row['share']:.0%})" for row in mixed[:5])
    say(f"{counted(len(found), 'document')} with different grades; of pairs of judges, most often mixed up: {told}.")
    if output is not None:
        say(f"Written to {output}.")
