"""The command `crowdrank collect disagreements`: list documents that assessors disagree on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_table


def collect_disagreements(
    judgments: o.JudgmentFiles,
    top: Annotated[int, typer.Option(help="Number of documents to show.")] = 10,
    output: Annotated[Path | None, o.output_option("File for all such documents.")] = None,
    *,
    model: c.Model,
    reading: o.Reading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """List the documents whose assessors disagree most, and the grades that they confuse.

    Examples:
        crowdrank collect disagreements labels.csv --top 20 -o disagreements.csv
    """
    from crowdrank.collection.disagreements import confusions, disagreements
    from crowdrank.judgments.write import check_outputs

    estimator = model.build()
    check_outputs({"output": output}, o.input_files(judgments, reading))
    table = o.read_judgment_files(judgments, reading)
    documents, confused = disagreements(table, estimator.fit(table, progress=True)), confusions(table)
    o.write_tables([(output, documents)], csv_safe=csv_safe)
    if json:
        listed = {"documents": documents.slice(0, top).to_pylist(), "disagreeing": len(documents)}
        print_json({**listed, "confusions": confused, "columns": dict(table.report.columns)})
        return
    if not len(documents):
        print_line("No two assessors of a document disagree.")
        return
    print_table(documents, max_rows=top)
    pairs = ", ".join(f"{row['grades']} ({row['share']:.0%})" for row in confused[:5])
    print_line(f"{counted(len(documents), 'document')} with different grades. Most often confused: {pairs}.")
    if output is not None:
        print_line(f"Written to {output}.")
