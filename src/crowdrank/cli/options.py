"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._options import check_choices, option
from crowdrank.cli.console import complain, show_reading
from crowdrank.cli.from_settings import FieldsOf, among
from crowdrank.cli.model_settings import parse_settings
from crowdrank.consensus import METHODS, model_class
from crowdrank.errors import parameter_prefix
from crowdrank.judgments.read_options import FormatName, GoldReadOptions, ReadOptions

if TYPE_CHECKING:
    from crowdrank.consensus.base import Aggregator
    from crowdrank.engine.base import Engine
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.table import Judgments

OUTPUT = "Output"
MODEL = "Model"
COMPUTATION = "Computation"
READING = "Reading judgments"
GOLD = "Expert grades"
SCORING = "Scoring"

FORMATS_HELP = (
    "CSV, TSV, Parquet, JSON Lines or qrels, also with .gz; exports of Label Studio, Toloka, MTurk, Quepid and "
    "OpenSearch"
)


def local_file(path: Path) -> Path:
    """Return the path that a `file:` address means; other paths and addresses are returned unchanged."""
    if not str(path).startswith("file:/"):
        return path
    from crowdrank.judgments.sources import local_path

    return Path(local_path(path))


def _local_files(paths: list[Path]) -> list[Path]:
    return [local_file(path) for path in paths]


def _maybe_local_file(path: Path | None) -> Path | None:
    return None if path is None else local_file(path)


JudgmentFiles = Annotated[
    list[Path],
    typer.Argument(
        callback=_local_files, metavar="JUDGMENTS...", help=f"Judgments: {FORMATS_HELP}.", show_default=False
    ),
]
JudgmentFilesOrFolder = Annotated[
    list[Path],
    typer.Argument(
        callback=_local_files,
        metavar="JUDGMENTS...",
        help=f"Judgments: {FORMATS_HELP}. A folder of Parquet files (any fsspec address) is processed on disk.",
        show_default=False,
    ),
]
GoldFile = Annotated[
    Path,
    typer.Option(
        "--gold", help="Expert grades: qrels, LETOR, CSV, Parquet, ...", show_default=False, callback=local_file
    ),
]
MaybeGoldFile = Annotated[
    Path | None,
    typer.Option(
        "--gold",
        help="Expert grades; the model takes them as known.",
        rich_help_panel=GOLD,
        show_default=False,
        callback=_maybe_local_file,
    ),
]
FeatureFiles = Annotated[
    list[Path],
    typer.Option(
        "--features",
        "-f",
        help="Features of documents: LETOR, CSV, Parquet, ... Repeatable.",
        metavar="PATH",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=OUTPUT)]
CsvSafe = Annotated[
    bool,
    typer.Option(
        "--csv-safe",
        help="In CSV and TSV files, put ' before text that a spreadsheet would run as a formula. It changes ids: use "
        "it for files that people open, not for files that programs read.",
        rich_help_panel=OUTPUT,
    ),
]
PerQuery = Annotated[
    Path | None,
    typer.Option(help="File for the values of every query.", rich_help_panel=OUTPUT, show_default=False),
]


@dataclass(frozen=True)
class FeatureReadOptions:
    """How features are read."""

    format: FormatName | None = option(None, "Format of the features; by default detected from the file name.")
    columns: str | None = option(None, "Columns of query and document, such as query=qid,document=docid.")

    def __post_init__(self) -> None:
        check_choices(self)


FeatureReading = Annotated[FeatureReadOptions, FieldsOf(FeatureReadOptions, "Reading features")]
Reading = Annotated[ReadOptions, FieldsOf(ReadOptions, READING)]
GoldReading = Annotated[GoldReadOptions, FieldsOf(GoldReadOptions, GOLD, prefix="gold_")]
SizeLimit = Annotated[ReadOptions, FieldsOf(ReadOptions, "Limits", only=("max_bytes",))]
"""The option `--max-bytes` of commands that read no judgments; :class:`crowdrank.cli.messages.Command` applies it."""


def method_option(default: str) -> Any:
    """Return the option for the name of a consensus model."""
    about = f"Consensus model: {', '.join(METHODS)}."
    return option(default, about, "--method", "-m", metavar="METHOD", autocompletion=among(METHODS))


@dataclass(frozen=True)
class ModelOptions:
    """A consensus model and its parameters."""

    method: str = method_option("gda")
    setting: list[str] = option(
        [],
        "Parameter of the consensus model, such as -s n_iter=10. Repeatable.",
        "--set",
        "-s",
        metavar="NAME=VALUE",
    )
    unjudgeable_as: Literal["lowest", "drop", "model"] = option(
        "lowest",
        "Use 'cannot judge' answers as the lowest grade, drop them, or model them as an answer of its own (gda only).",
    )

    def __post_init__(self) -> None:
        check_choices(self)

    def build(self) -> Aggregator:
        """Return the model, not fitted."""
        kind = model_class(self.method)
        return kind().set_params(unjudgeable_as=self.unjudgeable_as, **parse_settings(self.setting, kind))


@dataclass(frozen=True)
class EngineOptions:
    """Where a model is fitted."""

    engine: str = option(
        "local",
        "Where to compute: local, dask (processes on this machine) or dask=tcp://host:port (a cluster).",
        autocompletion=among(["local", "dask"]),
        metavar="ENGINE",
    )
    n_jobs: int | None = option(None, "Number of threads, or of processes of dask.", show_default="1")
    dashboard: bool = option(False, "Serve the dashboard of dask. Other users of this machine can see it.")

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Open the engine; print where a cluster is."""
        from crowdrank.engine.registry import engine_named

        with engine_named(self.engine, self.n_jobs, self.dashboard) as engine:
            if engine.about:
                complain(engine.about)
            yield engine


Model = Annotated[ModelOptions, FieldsOf(ModelOptions, MODEL)]
Computation = Annotated[EngineOptions, FieldsOf(EngineOptions, COMPUTATION)]


@dataclass(frozen=True)
class ScoringOptions:
    """How rankings are scored against expert grades."""

    measures: str = option(
        "nDCG@10,nDCG,AP,Tau",
        "Measures as in ir_measures: nDCG@10, AP(rel=2), ERR@20, P@5, RR, DCG@10, Tau, TauB, Spearman, GradeAccuracy, "
        "GradeMAE.",
    )
    gains: str = option("exponential", "Gain of each grade: exponential, linear, or a list such as 0,1,3,7,15.")
    ties: Literal["expected", "document", "given"] = option(
        "expected",
        "Order of equal scores: expected value over random orders, document id (as trec_eval), or as given.",
    )
    unjudged: Literal["skip", "nonrelevant"] = option(
        "skip", "Documents without an expert grade: skip them, or count them as not relevant (as trec_eval)."
    )
    no_relevant: Literal["skip", "zero", "one"] = option(
        "skip", "Queries without a relevant document: skip them, or score them 0 or 1."
    )

    def __post_init__(self) -> None:
        check_choices(self)

    @property
    def conventions(self) -> dict[str, Any]:
        """Arguments of `evaluate` and `compare` other than the measures."""
        return {name: value for name, value in asdict(self).items() if name != "measures"}


Scoring = Annotated[ScoringOptions, FieldsOf(ScoringOptions, SCORING)]


def input_files(judgments: Sequence[Path], reading: ReadOptions, *others: Path | None) -> list[Path | None]:
    """Return the files that a command reads, which no output may replace."""
    return [*judgments, reading.exclude, reading.scales, *others]


def read_judgment_files(judgments: Sequence[Path], reading: ReadOptions) -> Judgments:
    """Read judgments from one or several files; print how they were understood."""
    from crowdrank.judgments.read import read_judgments

    source = judgments[0] if len(judgments) == 1 else list(judgments)
    table = read_judgments(source, **asdict(reading))
    show_reading(table.report, judgments)
    return table


def read_gold_file(gold: Path, reading: GoldReadOptions) -> Gold:
    """Read expert grades; print how they were understood."""
    from crowdrank.judgments.read import read_gold

    with parameter_prefix("gold_"):
        grades = read_gold(gold, **asdict(reading))
    show_reading(grades.report, [gold])
    return grades
