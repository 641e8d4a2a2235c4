"""The command `crowdrank rank`: rank documents with a saved ranker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_columns, print_json, print_line, print_message, print_table

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CHECKED = 50
"""Maximum number of features in the table of `--check`."""


def rank(
    model: Annotated[Path, o.path_option("Folder of a ranker that `train` wrote.", "--model", "-m")],
    features: o.FeatureFiles,
    output: Annotated[
        Path | None, o.output_option("File for the ranking: .trec, .run, .csv, .tsv, .parquet or .jsonl.")
    ] = None,
    tag: Annotated[
        str, typer.Option(help="Name of the ranking in a TREC run.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    check: Annotated[
        bool, typer.Option("--check", help="Compare the features with those of the training.", rich_help_panel=o.OUTPUT)
    ] = False,
    *,
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score and sort the documents of each query with a trained ranker.

    Files are read in parts, so that they can be larger than the memory if the rows of each query are adjacent.

    Examples:
        crowdrank rank -m ranker -f features.letor -o run.trec
        crowdrank rank -m ranker -f today.parquet -o run.parquet --check
    """
    from crowdrank.judgments.write import check_distinct
    from crowdrank.rankers.base import Ranker
    from crowdrank.rankers.feature_batches import FeatureBatches
    from crowdrank.rankers.rank_files import rank_files
    from crowdrank.rankers.trec_run import check_run

    if output is not None:
        check_run(output)
        check_distinct({"output": output}, features)
    ranker = Ranker.load(model)
    batches = FeatureBatches(features, ranker.features_, format=reading.format, columns=reading.columns)
    print_columns(batches.columns, features)
    ranked = rank_files(ranker, batches, output, tag=tag, csv_safe=csv_safe, check=check)
    for message in ranked.messages:
        print_message(message)
    name, written = type(ranker).__name__, None if output is None else str(output)
    if json:
        summary = {"ranker": name, "documents": ranked.n_documents, "queries": ranked.n_queries, "output": written}
        summary["messages"] = [message.to_dict() for message in ranked.messages]
        print_json({**summary, "check": ranked.check.to_pylist()} if ranked.check is not None else summary)
        return
    print_table(ranked.first_rows, total_rows=ranked.n_documents)
    if ranked.check is not None:
        _print_check(ranked.check)
    counts = f"{counted(ranked.n_documents, 'document')} in {counted(ranked.n_queries, 'query')}"
    print_line(f"{name} on {counts}{'' if written is None else f'; written to {written}'}.")


def _print_check(check: pa.Table) -> None:
    if len(check):
        print_table(check, "Features that differ from those of the training", max_rows=MAX_CHECKED)
    else:
        print_line("No feature differs from those of the training.")
