"""The command `crowdrank gate`: whether a new ranking may replace the live one."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._options import option
from crowdrank._text import escape_invisible
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, render
from crowdrank.cli.estimate_command import (
    EstimateOptions,
    LabelFile,
    SampleFile,
    SampleReading,
    read_labels_and_sample,
)
from crowdrank.cli.evaluate_commands import read_run_tables
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.constraints import Number

if TYPE_CHECKING:
    from crowdrank.estimation.gate import GateResult
    from crowdrank.readers.texts import Texts


@dataclass(frozen=True)
class GateOptions:
    """Options for the decision."""

    margin: float = option(0.005, "Largest loss that is acceptable, in units of the measure", valid=Number(0))
    n_changed: int = option(
        10, "Number of queries that changed most to list", "--changed", valid=Number(0, integer=True)
    )


def gate(
    new: Annotated[Path, typer.Argument(help="The new ranking.", show_default=False)],
    against: Annotated[Path, o.path_option("The live ranking.")],
    labels: LabelFile,
    expert: SampleFile = None,
    *,
    deciding: Annotated[GateOptions, FieldsOf(GateOptions)],
    settings: Annotated[EstimateOptions, FieldsOf(EstimateOptions, without=("baseline",))],
    reading: SampleReading,
    size_limit: o.SizeLimit,
    texts: Annotated[
        list[Path] | None,
        typer.Option(help="Texts of queries and documents to show. Repeatable.", show_default=False),
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Decide whether a new ranking may replace the live one, and print why, in Markdown.

    The exit code is 0 if the new ranking is not worse by more than the margin, 1 if it is worse, 3 if the evidence is
    not enough, and 2 if something cannot be used.

    Examples:
        crowdrank gate new.trec --against live.trec --labels consensus.parquet --expert sample.csv
        crowdrank gate new.trec --against live.trec --labels consensus.parquet --margin 0.01 --texts documents.jsonl
    """
    from crowdrank.estimation.gate import LIVE, NEW
    from crowdrank.estimation.gate import gate as decide

    known, sample = read_labels_and_sample(labels, expert, reading)
    tables = read_run_tables({NEW: str(new), LIVE: str(against)})
    chosen = {name: value for name, value in asdict(settings).items() if name != "baseline"}
    result = decide(tables[NEW].frame, tables[LIVE].frame, known, sample, **asdict(deciding), **chosen)
    shown = None if not texts or not result.changed else _read_texts(texts, result)
    if json:
        print_json(result.to_dict(shown))
    else:
        sys.stdout.write(escape_invisible(result.markdown(shown, render), keep_characters="\n"))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _read_texts(files: list[Path], result: GateResult) -> Texts:
    """Read the texts of the queries that are listed and of their documents."""
    import pyarrow as pa

    from crowdrank.readers.texts import read_texts

    documents = {document for one in result.changed for document in (*one.entered, *one.left)}
    return read_texts(files, pa.array([one.query for one in result.changed]), pa.array(sorted(documents), pa.string()))
