"""`crowdrank trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import note_left_out, say, say_json, show_table
from crowdrank.consensus import get_aggregator


@o.reads_judgments()
def trace(
    judgments: o.JudgmentsFile,
    document: Annotated[str, typer.Option(help="The id of the document.", show_default=False)],
    query: Annotated[str | None, typer.Option(help="The id of its query, where it stands under several.")] = None,
    method: o.Method = "gda",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the steps here.")] = None,
    reading: o.Reading = o.TOLD,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Replay a document's judgments one by one: what is known after each, and how surely."""
    from crowdrank._text import counted
    from crowdrank.consensus.replay import trace as replay
    from crowdrank.judgments.read import read_judgments
    from crowdrank.judgments.write import check_outputs, write_table

    model = get_aggregator(method)
    check_outputs({"-o": output}, [judgments, reading["exclude"], reading["scales"]])
    table = read_judgments(judgments, **reading)
    note_left_out(table)
    steps = replay(model.fit(table, progress=True), table, document, query)
    if output is not None:
        write_table(steps, output, csv_safe=csv_safe)
    if json:
        say_json(steps.to_pylist())
        return
    show_table(steps, first=50)
    last = steps.slice(len(steps) - 1).to_pylist()[0]
    say(
        f"After {counted(len(steps), 'judgment')}: relevance {last['relevance']:.3f} "
        f"[{last['lower']:.3f}, {last['upper']:.3f}], grade {last['grade']} ({method})."
    )
