"""The command `crowdrank trace`: show how judgments change a document's consensus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_table


def trace(
    judgments: o.JudgmentFiles,
    document: Annotated[str, typer.Option(help="Id of the document.", show_default=False)],
    query: Annotated[
        str | None, typer.Option(help="Id of its query; needed if several queries have the document.")
    ] = None,
    *,
    model: o.Model,
    output: Annotated[Path | None, o.output_option("File for the steps.")] = None,
    computation: o.Computation,
    reading: o.Reading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Show how the estimate of one document changes with each of its judgments.

    Examples:
        crowdrank trace labels.csv --document d17 --query q3
    """
    from crowdrank.consensus.replay import trace as replay
    from crowdrank.judgments.write import check_outputs

    estimator = model.build()
    check_outputs({"output": output}, o.input_files(judgments, reading))
    computation.set_arrow_threads()
    table = o.read_judgment_files(judgments, reading)
    with computation.open() as engine:
        steps = replay(estimator.fit(table, engine=engine, progress=True), table, document, query)
    o.write_tables([(output, steps)], csv_safe=csv_safe)
    if json:
        print_json({"steps": steps.to_pylist(), "columns": dict(table.report.columns)})
        return
    print_table(steps, max_rows=50)
    last = steps.slice(len(steps) - 1).to_pylist()[0]
    print_line(
        f"After {counted(len(steps), 'judgment')}: relevance {last['relevance']:.3f} "
        f"[{last['lower']:.3f}, {last['upper']:.3f}], grade {last['grade']} ({model.method})."
    )
