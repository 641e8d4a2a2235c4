"""The command `crowdrank rank`: rank documents with a saved ranker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_columns, print_json, print_line, print_status, print_table


def rank(
    model: Annotated[Path, o.path_option("Folder of a ranker that `train` wrote.", "--model", "-m")],
    features: o.FeatureFiles,
    output: Annotated[
        Path | None, o.output_option("File for the ranking: .trec, .run, .csv, .tsv, .parquet or .jsonl.")
    ] = None,
    tag: Annotated[
        str, typer.Option(help="Name of the ranking in a TREC run.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    *,
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score and sort the documents of each query with a trained ranker.

    Examples:
        crowdrank rank -m ranker -f features.letor -o run.trec
    """
    from crowdrank.judgments.write import check_distinct
    from crowdrank.rankers.base import Ranker
    from crowdrank.rankers.trec_run import check_run, join_features, pad_letor, rank_documents, write_run

    if output is not None:
        check_run(output)
        check_distinct({"output": output}, features)
    ranker = Ranker.load(model)
    table = join_features(features, reading.format, reading.columns)
    print_columns(table.columns, features)
    padded_table = pad_letor(table, ranker.features_)
    absent = [name for name in ranker.features_ if name not in set(table.names)]
    if absent and padded_table is not table:
        names = f"{', '.join(absent[:3])}{', ...' if len(absent) > 3 else ''}"
        total = len(ranker.features_)
        print_status(
            f"Warning: {len(absent)} of {counted(total, 'feature')} occur in no row ({names}); they are set to 0."
        )
    run = rank_documents(ranker, padded_table)
    if output is not None:
        write_run(run, output, tag, csv_safe=csv_safe)
    name, queries = type(ranker).__name__, len(table.query.unique())
    if json:
        written = None if output is None else str(output)
        print_json({"ranker": name, "documents": len(run), "queries": queries, "output": written})
        return
    print_table(run)
    written = "" if output is None else f"; written to {output}"
    print_line(f"{name} on {counted(len(run), 'document')} in {counted(queries, 'query')}{written}.")
