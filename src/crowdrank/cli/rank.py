"""`crowdrank rank`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import complain, say, say_json, show_table


@o.limits_size
def rank(
    model: Annotated[Path, typer.Option("--model", "-m", help="A folder that `train` wrote.", show_default=False)],
    features: Annotated[
        list[Path],
        typer.Option(
            "--features", "-f", help="Features: LETOR, CSV, Parquet, ... May be given several times.", metavar="<path>"
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The run: .trec, .run, .csv, .tsv, .parquet or .jsonl.", rich_help_panel=o.OUTPUT
        ),
    ] = None,
    tag: Annotated[
        str, typer.Option(help="The name of the run in TREC's format.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    format: Annotated[
        str | None, typer.Option(help="The format of the features, where the suffix does not tell it.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Which column of the features is query and document.")] = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score documents with a trained ranker and put the best of each query first."""
    from crowdrank._text import counted
    from crowdrank.judgments.write import check_distinct
    from crowdrank.rankers.base import Ranker
    from crowdrank.rankers.trec_run import check_run, join_features, padded, rank_documents, write_run

    if output is not None:
        check_run(output)
        check_distinct({"-o": output}, features)
    ranker = Ranker.load(model)
    told = join_features(features, format, columns)
    known = padded(told, ranker.features_)
    absent = [] if known is told else [name for name in ranker.features_ if name not in set(told.names)]
    if absent:
        named = f"{', '.join(absent[:3])}{', ...' if len(absent) > 3 else ''}"
        complain(f"Warning: {len(absent)} of {len(ranker.features_)} features are in no row ({named}): taken as 0.")
    run = rank_documents(ranker, known)
    if output is not None:
        write_run(run, output, tag, csv_safe=csv_safe)
    queries = len(known.query.unique())
    if json:
        say_json(
            {
                "ranker": type(ranker).__name__,
                "documents": len(run),
                "queries": queries,
                "output": output and str(output),
            }
        )
        return
    show_table(run)
    written = "" if output is None else f"; written to {output}"
    say(f"{type(ranker).__name__} on {counted(len(run), 'document')} in {counted(queries, 'query')}{written}.")
