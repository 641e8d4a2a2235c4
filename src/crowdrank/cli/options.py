"""Options that several commands share, and functions that read their files."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._estimator import require_integer
from crowdrank._options import option
from crowdrank.cli.console import print_message, print_read_report, print_status
from crowdrank.cli.from_settings import FieldsOf, complete_from
from crowdrank.consensus import DEFAULT_METHOD, METHODS, get_aggregator
from crowdrank.consensus.calibration import CALIBRATE_HELP
from crowdrank.errors import Fix, UsageError, parameter_prefix, shown
from crowdrank.readers.read_options import (
    EXPERT_FLAGS,
    FeatureReadOptions,
    GoldReadOptions,
    PreferenceReadOptions,
    ReadOptions,
)

if TYPE_CHECKING:
    from crowdrank.consensus.model import Aggregator
    from crowdrank.engine.passes import Engine
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.preferences import Preferences
    from crowdrank.judgments.scale import Scale
    from crowdrank.judgments.table import AnyJudgments, Judgments
    from crowdrank.on_disk.sharded import ShardedJudgments
    from crowdrank.readers.features import Features


def parse_settings(assignments: Iterable[str], model: object) -> dict[str, Any]:
    """Parse `name=value` texts into parameters of a model, with the types that its constructor declares.

    >>> from crowdrank import GDA
    >>> parse_settings(["n_iter=10", "families=auto", "ordinal=true"], GDA())
    {'n_iter': 10, 'families': 'auto', 'ordinal': True}
    """
    parameters = inspect.signature(type(model)).parameters
    settings = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            fix = Fix("write name=value, such as {}", "n_iter", 10)
            raise UsageError(f"cannot read {shown(text)}", parameter="setting", fix=fix)
        settings[name] = parse_value(value, str(parameters[name].annotation) if name in parameters else "")
    return settings


def parse_value(text: str, annotation: str) -> Any:
    """Parse a text as a number, boolean, None or tuple if the annotation allows that type; otherwise return the text.

    >>> parse_value("7", "str"), parse_value("7", "str | int"), parse_value("[1, 2]", "tuple[float, float]")
    ('7', 7, (1, 2))
    >>> parse_value("gda,glad", "tuple[str, ...] | None"), parse_value("None", "float | None")
    (('gda', 'glad'), None)
    >>> parse_value("0.4,0.9", "float | tuple[float, ...]")
    (0.4, 0.9)
    """
    listed = f"[{text}]" if "tuple[float" in annotation and "," in text and not text.startswith("[") else text
    try:
        value = json.loads({"True": "true", "False": "false", "None": "null"}.get(listed, listed))
    except ValueError:
        return tuple(text.split(",")) if annotation.startswith("tuple[str") else text
    if isinstance(value, list):
        return tuple(value)
    kinds = set(re.findall(r"\w+", annotation))
    fits = type(value).__name__ in kinds or (isinstance(value, int) and "float" in kinds) or value is None
    return text if "str" in kinds and not fits else value


OUTPUT = "Output"
MODEL = "Model"
PRIOR = "Prior from features"
COMPUTATION = "Computation"
READING = "Reading judgments"
GOLD = "Expert grades"
PREFERENCES = "Reading preferences"
SCORING = "Scoring"

MAX_COPY_DOCUMENTS = 100_000
"""Maximum number of documents on which assessors are compared to find copies."""
MAX_LISTED_QUERIES = 10
"""Maximum number of validation queries that are printed."""
FORMATS_HELP = (
    "CSV, TSV, Parquet, JSON Lines, Excel or qrels, also with .gz; exports of doccano, Label Studio, Toloka, MTurk, "
    "Quepid and OpenSearch; patterns and folders of such files; databases of the judging service"
)


def local_files(paths: Any) -> Any:
    """Return the local path of a `file:` URL, or of each in a list; other paths, URLs and None are unchanged."""
    if isinstance(paths, list):
        return [local_files(path) for path in paths]
    if not str(paths).startswith("file:/"):
        return paths
    from crowdrank.readers.files import local_path

    return local_path(paths)


def path_argument(help: str) -> Any:
    """Return a typer argument for one or more files or URLs of judgments."""
    return typer.Argument(callback=local_files, metavar="JUDGMENTS...", help=help, show_default=False)


def path_option(help: str, *flags: str, help_panel: str = "Options", **more: Any) -> Any:
    """Return a typer option for a file or folder."""
    return typer.Option(*flags, help=help, rich_help_panel=help_panel, **{"show_default": False, **more})


def output_option(help: str, **more: Any) -> Any:
    """Return the typer option `--output` (`-o`)."""
    return path_option(help, "--output", "-o", help_panel=OUTPUT, **more)


def expert_option(help: str, help_panel: str = GOLD) -> Any:
    """Return the typer option `--expert` (`-e`) for a file of expert grades."""
    return path_option(help, *EXPERT_FLAGS, help_panel=help_panel, callback=local_files)


ON_DISK_HELP = f"Judgments: {FORMATS_HELP}. A folder of Parquet files (any fsspec address) is processed on disk."
CSV_SAFE_HELP = (
    "In CSV and TSV files, put ' before text that a spreadsheet would run as a formula. It changes ids: use it for "
    "files that people open, not for files that programs read."
)
JudgmentFiles = Annotated[list[Path], path_argument(f"Judgments: {FORMATS_HELP}.")]
MaybeJudgmentFiles = Annotated[list[Path] | None, path_argument(f"Judgments: {FORMATS_HELP}.")]
MaybeJudgmentFilesOrFolder = Annotated[list[Path] | None, path_argument(ON_DISK_HELP)]
PREFERENCES_HELP = "Preferences between two documents, besides judgments or alone (GDA only). Repeatable."
PreferenceFiles = Annotated[list[Path] | None, path_option(PREFERENCES_HELP, metavar="<path>")]
GoldFile = Annotated[Path, expert_option("Expert grades: qrels, LETOR, CSV, Parquet, ...", help_panel="Options")]
MaybeGoldFile = Annotated[Path | None, expert_option("Expert grades; the model takes them as known.")]
Calibrate = Annotated[bool, typer.Option("--calibrate/--no-calibrate", help=CALIBRATE_HELP, rich_help_panel=GOLD)]
FeatureFiles = Annotated[
    list[Path],
    path_option("Features of documents: LETOR, CSV, Parquet, ... Repeatable.", "--features", "-f", metavar="<path>"),
]
RankerFeatureFiles = Annotated[
    list[Path] | None,
    path_option(
        "Features of documents, which saved rankers or remappers in place of rankings rank. Repeatable.",
        "--features",
        "-f",
        metavar="<path>",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=OUTPUT)]
CsvSafe = Annotated[bool, typer.Option("--csv-safe", help=CSV_SAFE_HELP, rich_help_panel=OUTPUT)]
PerQuery = Annotated[Path | None, path_option("File for the values of every query.", help_panel=OUTPUT)]
FeatureReading = Annotated[FeatureReadOptions, FieldsOf(FeatureReadOptions, "Reading features")]
PrefixedFeatureReading = Annotated[
    FeatureReadOptions, FieldsOf(FeatureReadOptions, "Reading features", prefix="features_")
]
Reading = Annotated[ReadOptions, FieldsOf(ReadOptions, READING)]
GoldReading = Annotated[GoldReadOptions, FieldsOf(GoldReadOptions, GOLD, prefix="expert_", without=("map",))]
PreferenceReading = Annotated[
    PreferenceReadOptions, FieldsOf(PreferenceReadOptions, PREFERENCES, prefix="preferences_")
]
MappedGoldReading = Annotated[GoldReadOptions, FieldsOf(GoldReadOptions, GOLD, prefix="expert_")]
SizeLimit = Annotated[ReadOptions, FieldsOf(ReadOptions, "Limits", only=("max_bytes",))]
"""Limit of the decompressed size of each input file: the option `--max-bytes` of commands that read no judgments.

:class:`crowdrank.cli.console.Command` applies it.
"""


def method_option(default: str, extra_help: str = "") -> Any:
    """Return the dataclass field of the option `--method`, which names a consensus model."""
    about = f"Consensus model: {', '.join(METHODS)}.{extra_help}"
    return option(default, about, "-m", metavar="METHOD", autocompletion=complete_from(METHODS))


def setting_option(model_description: str, example: str) -> Any:
    """Return the dataclass field of the option `--set`, which sets parameters of a model."""
    return option(
        [], f"Parameter of the {model_description}, such as {example}. Repeatable.", "--set", "-s", metavar="NAME=VALUE"
    )


def signal_option(source: str) -> Any:
    """Return the dataclass field of the option `--signal`, a column of the features or of another source."""
    about = f"Column to use as the only feature, such as a retrieval score: of the features, or of the {source}."
    return option(None, about, metavar="COLUMN")


@dataclass(frozen=True)
class ModelOptions:
    """Options for a consensus model and its parameters."""

    method: str = method_option(DEFAULT_METHOD)
    setting: list[str] = setting_option("consensus model", "-s n_iter=10")
    unjudgeable_as: Literal["lowest", "drop", "model"] = option(
        "lowest", "Use 'cannot judge' answers as the lowest grade, drop them, or let the method model them."
    )

    def build(self) -> Aggregator:
        """Return the unfitted model; raise UsageError if a parameter is invalid."""
        model = get_aggregator(self.method)
        model.set_params(unjudgeable_as=self.unjudgeable_as, **parse_settings(self.setting, model))._check_parameters()
        return model


@dataclass(frozen=True)
class EngineOptions:
    """Options for the engine that fits a model."""

    engine: str = option(
        "local", "Where to compute: local, dask (processes on this machine) or dask=tcp://host:port (a cluster)."
    )
    n_jobs: int | None = option(None, "Number of threads, or of processes of dask.", show_default="1")
    dashboard: bool = option(False, "Serve the dashboard of dask. Other users of this machine can see it.")

    def __post_init__(self) -> None:
        if self.n_jobs is not None:
            require_integer("n_jobs", self.n_jobs, 1)

    def set_arrow_threads(self) -> None:
        """Let Arrow read and write files with the given number of threads; by default it uses all cores."""
        import pyarrow as pa

        if self.n_jobs is not None and self.engine == "local":
            pa.set_cpu_count(self.n_jobs)

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Open the engine; if it is a cluster, print its address."""
        from crowdrank.engine.passes import get_engine

        with get_engine(self.engine, self.n_jobs, self.dashboard) as engine:
            if engine.description:
                print_status(engine.description)
            yield engine


@dataclass(frozen=True)
class PriorOptions:
    """Options for the prior of relevance from features."""

    features: list[Path] = option(
        [],
        "Features of documents (LETOR, CSV, Parquet, ...) that set the prior of relevance; documents without judgments "
        "get a prediction. Do not compare rankers that use these features on such labels. Repeatable.",
        "-f",
        metavar="<path>",
    )
    signal: str | None = signal_option("judgments")

    def __bool__(self) -> bool:
        """Return whether there is a prior from features."""
        return bool(self.features) or self.signal is not None

    def read(self, files: Sequence[Path], reading: ReadOptions | None = None) -> Features | None:
        """Return the features, if there are any; without files of features, the signal is a column of other files."""
        from crowdrank.readers.features import read_features, read_signal

        if self.signal is None:
            return read_features(self.features) if self.features else None
        if self.features:
            return read_signal(self.features, self.signal)
        names = () if reading is None else ("format", "columns", "separator")
        return read_signal(list(files), self.signal, **{name: getattr(reading, name) for name in names})


Prior = Annotated[PriorOptions, FieldsOf(PriorOptions, PRIOR)]
Model = Annotated[ModelOptions, FieldsOf(ModelOptions, MODEL)]
Computation = Annotated[EngineOptions, FieldsOf(EngineOptions, COMPUTATION)]


@dataclass(frozen=True)
class ScoringOptions:
    """Options for scoring rankings against expert grades."""

    measures: str = option(
        "nDCG@10,nDCG,AP,Tau",
        "Measures: nDCG@10, nDCG(dcg='log2')@10 (linear gains), AP(rel=2), ERR@20, P@5, RR, DCG@10, Judged@10, Tau, "
        "TauB, Spearman, GradeAccuracy, GradeMAE.",
    )
    ties: Literal["expected", "document", "given"] = option(
        "expected", "Equal scores: expected value over random orders, by document id (as trec_eval), or as given."
    )
    unjudged: Literal["nonrelevant", "skip"] = option(
        "nonrelevant", "Documents without an expert grade: count them as not relevant (as trec_eval), or skip them."
    )
    no_relevant: Literal["skip", "zero", "one"] = option(
        "skip", "Queries without a relevant document: skip them, or score them 0 or 1."
    )

    @property
    def conventions(self) -> dict[str, Any]:
        """Keyword arguments of `evaluate` and `compare`, without the measures."""
        return {name: value for name, value in asdict(self).items() if name != "measures"}


Scoring = Annotated[ScoringOptions, FieldsOf(ScoringOptions, SCORING)]


def input_files(
    judgment_files: Sequence[Path], read_options: ReadOptions, *other_files: Path | None
) -> list[Path | None]:
    """Return all input files of a command, which its outputs must not replace."""
    return [*judgment_files, read_options.exclude, read_options.scales, *other_files]


def validation_queries_text(query_ids: Sequence[object]) -> str:
    """Return a sentence with the first validation queries, which must not be used to test the model."""
    listed = ", ".join(map(str, query_ids[:MAX_LISTED_QUERIES]))
    more = f", ... ({len(query_ids):,} in all; ranker.json has them)" if len(query_ids) > MAX_LISTED_QUERIES else ""
    return f"Validation queries: {listed}{more}."


def write_tables(tables: Sequence[tuple[Path | None, Any]], *, csv_safe: bool) -> list[Path]:
    """Write each table whose path is given; return the paths that were written."""
    from crowdrank.readers.write import write_table

    written = [(path, table) for path, table in tables if path is not None]
    for path, table in written:
        write_table(table, path, csv_safe=csv_safe)
    return [path for path, _ in written]


def read_judgment_files(
    paths: Sequence[Path], read_options: ReadOptions, preferences: Preferences | None = None
) -> Judgments:
    """Read judgments from files; print which columns were read, notes and skipped rows.

    Ids to exclude that occur in neither the judgments nor the preferences are a warning.
    """
    from crowdrank.judgments.summary import one_document_warnings, uncertain_scale_note
    from crowdrank.readers.read import read_judgments

    source = paths[0] if len(paths) == 1 else list(paths)
    table = read_judgments(source, **asdict(read_options))
    print_judgment_report(table, preferences, read_options, paths)
    if (note := uncertain_scale_note(table)) is not None:
        print_message(note)
    for warning in one_document_warnings(table):
        print_message(warning)
    return table


def print_judgment_report(
    judgments: AnyJudgments, preferences: Preferences | None, read_options: ReadOptions, paths: Sequence[Path]
) -> None:
    """Print which columns of judgments were read, notes, skipped rows, and ids to exclude that nothing has."""
    from crowdrank.readers.read_options import excluded_ids, share_excluded

    report = judgments.report
    if preferences is not None:
        report, _ = share_excluded(judgments, preferences, excluded_ids(read_options.exclude))
    print_read_report(report, paths)


def print_copies(judgments: Judgments | ShardedJudgments) -> None:
    """Print a warning about assessors who gave the same answers, if the judgments are in memory.

    Of many documents the first are compared.
    """
    from crowdrank.assessors.agreement import copies_warning
    from crowdrank.judgments.table import Judgments

    if not isinstance(judgments, Judgments):
        return
    if judgments.n_items > MAX_COPY_DOCUMENTS:
        judgments = judgments.keep_rows(judgments.item < MAX_COPY_DOCUMENTS)
    if (warning := copies_warning(judgments)) is not None:
        print_message(warning)


def read_preference_files(
    paths: Sequence[Path], read_options: PreferenceReadOptions, other_options: ReadOptions, *, alone: bool = True
) -> Preferences:
    """Read preferences from files; print which columns were read, notes and skipped rows.

    Args:
        paths: the files.
        read_options: options of the reader.
        other_options: options for judgments, of which preferences have the excluded assessors and the size limit.
        alone: whether no judgments are read, so that ids to exclude which no assessor has are a warning.

    """
    from crowdrank.readers.preference_files import read_preferences
    from crowdrank.readers.read_options import UNKNOWN_EXCLUDED

    shared: dict[str, Any] = {"exclude": other_options.exclude, "max_bytes": other_options.max_bytes}
    with parameter_prefix("preferences_"):
        table = read_preferences(list(paths), **(asdict(read_options) | shared))
    notes = tuple(note for note in table.report.notes if alone or note.kind != UNKNOWN_EXCLUDED)
    print_read_report(replace(table.report, notes=notes), paths)
    return table


def require_preference_options(
    judgments: Sequence[Path] | None,
    preferences: Sequence[Path] | None,
    model: Aggregator,
    **unavailable: object,
) -> None:
    """Raise UsageError if there are no inputs, or if the model or an option cannot be used with preferences.

    Args:
        judgments: files of judgments, if any.
        preferences: files of preferences, if any.
        model: the unfitted model.
        unavailable: values of options that cannot be used with preferences, None if they are not given.

    """
    if not preferences:
        if not judgments:
            fixes = [Fix("give {}", "judgments"), Fix("give {}", "preferences")]
            raise UsageError("there are no judgments", kind="no-input", fix=fixes)
        return
    model._check_preferences()
    for name, value in unavailable.items():
        if value is not None:
            problem = "cannot be used together with preferences"
            raise UsageError(problem, parameter=name, kind="with-preferences", fix="leave it out")


def read_maybe_gold_file(path: Path | None, read_options: GoldReadOptions, judgments: Judgments | None) -> Gold | None:
    """Read expert grades if a file is given; raise UsageError if there is only a map for them.

    Warnings say whether the grades fit the judgments, if these are in memory.
    """
    if path is not None and judgments is not None:
        from crowdrank.readers.validation import check_expert_grades

        gold = read_gold_file(path, read_options, judgments.main_scale)
        for message in check_expert_grades(gold, judgments) if gold.grade_map is None else []:
            if message.severity == "warning":
                print_message(message)
        return gold
    if path is not None:
        return read_gold_file(path, read_options)
    if read_options.map is not None:
        raise UsageError("needs expert grades", parameter="gold_map", fix=Fix("give them with {}", "gold"))
    return None


def read_gold_file(path: Path, read_options: GoldReadOptions, scale: Scale | None = None) -> Gold:
    """Read expert grades from a file; print which columns were read, notes and skipped rows.

    Args:
        path: the file.
        read_options: options of the reader.
        scale: the scale of named grades, if the file does not state it.

    """
    from crowdrank.readers.read import read_gold

    with parameter_prefix("gold_"):
        grades = read_gold(path, **asdict(read_options), scale=scale)
    print_read_report(grades.report, [path])
    return grades


NON_PARQUET_OPTIONS = ("format", "separator", "assessor_name", "assessor_kind")
"""Names of read options that do not apply to Parquet files."""


def require_unset(**options: object) -> None:
    """Raise UsageError if one of these options is set; they need judgments in memory."""
    for name, value in options.items():
        if value is not None:
            problem = "is not available for a folder of judgments, which is processed on disk"
            raise UsageError(problem, parameter=name, fix="leave it out")


def read_folder(
    judgment_folder: Path, work_folder: Path | None, engine: Engine, read_options: ReadOptions
) -> ShardedJudgments:
    """Read the judgments of a folder into shards on disk, with a progress bar."""
    from crowdrank.on_disk.partitions import read_partitions
    from crowdrank.readers.files import to_address

    if work_folder is None and engine.is_remote:
        problem = "the workers of another cluster need a folder for the shards that all of them see"
        raise UsageError(problem, fix=Fix("name it with {}", "work"))
    options = {name: value for name, value in asdict(read_options).items() if name not in NON_PARQUET_OPTIONS}
    return read_partitions(to_address(judgment_folder), work=work_folder, engine=engine, progress=True, **options)
