"""The commands `rank`, `distill` and `export`: use a saved ranker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_columns, print_json, print_line, print_message, print_table
from crowdrank.cli.from_settings import FieldsOf, complete_from
from crowdrank.rankers.export import EXPORTERS

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
    from crowdrank.rankers.rank_files import FeatureBatches, check_run, rank_files
    from crowdrank.rankers.ranker import Ranker
    from crowdrank.readers.write import check_distinct_paths

    if output is not None:
        check_run(output)
        check_distinct_paths({"output": output}, features)
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


@dataclass(frozen=True)
class ForestOptions:
    """Options for the forest."""

    n_trees: int = option(500, "Number of trees.", "--trees")
    random_state: int = option(0, "Random seed.")
    n_jobs: int | None = option(None, "Number of threads.", show_default="one per core for large files")


def distill(
    model: Annotated[Path, typer.Argument(help="Folder of a ranker, such as an ensemble.", metavar="<model>")],
    features: o.FeatureFiles,
    output: Annotated[Path, o.output_option("Folder for the forest.")],
    forest_options: Annotated[ForestOptions, FieldsOf(ForestOptions, "Forest")],
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    json: o.AsJson = False,
) -> None:
    """Fit one forest that ranks documents as another ranker does, for search engines.

    No labels are needed: any documents with features serve. `crowdrank run` does this for the ranker that it selects.

    Examples:
        crowdrank distill ranker -f features.letor -o forest
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.rankers.distillation import distill as distill_ranker
    from crowdrank.rankers.distillation import rank_correlation
    from crowdrank.rankers.rank_files import join_features, pad_letor
    from crowdrank.rankers.ranker import RANKER, Ranker

    check_output_folder(output, RANKER)
    ranker = Ranker.load(model)
    table = join_features(features, reading.format, reading.columns)
    print_columns(table.columns, features)
    table = pad_letor(table, ranker.features_)
    forest = distill_ranker(ranker, table, **vars(forest_options), progress=True)
    correlation = rank_correlation(ranker.predict(table), forest.predict(table), table.query)
    forest.save(output)
    if json:
        print_json({"trees": forest.best_iteration_, "rank_correlation": correlation, "output": str(output)})
        return
    print_line(
        f"One forest of {counted(forest.best_iteration_, 'tree')} imitates {type(ranker).__name__} (rank correlation "
        f"{correlation:.3f} on these documents); written to {output}."
    )


def export(
    model: Annotated[Path, typer.Argument(help="Folder of a ranker that `train` or `run` wrote.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help=f"Search engine: {', '.join(EXPORTERS)}.",
            metavar="ENGINE",
            autocompletion=complete_from(EXPORTERS),
            show_default=False,
        ),
    ],
    output: Annotated[Path, o.output_option("Folder for the files.")],
    name: Annotated[
        str, typer.Option(help="Name of the model in the search engine.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    json: o.AsJson = False,
) -> None:
    """Write a ranker as files for a search engine, with an upload command. Nothing is sent anywhere.

    Examples:
        crowdrank export out/deployable --to elasticsearch-ltr -o export
        crowdrank export ranker --to solr --name products -o export
    """
    from crowdrank.rankers.export import get_exporter
    from crowdrank.rankers.export.exporter import export as write_export
    from crowdrank.rankers.ranker import Ranker

    exporter = get_exporter(to)
    ranker = Ranker.load(model)
    folder = write_export(ranker, to, output, name=name)
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    kind = type(ranker).__name__
    if json:
        features = list(ranker.features_)
        print_json({"ranker": kind, "to": to, "features": features, "files": files, "output": str(output)})
        return
    print_line(
        f"{kind} on {counted(ranker.n_features_in_, 'feature')} for {exporter.title}; written to {output}. "
        f"{output / 'README.md'} has the next steps."
    )
