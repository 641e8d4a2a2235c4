"""Options that several verbs share, said once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from crowdrank.consensus import METHODS

JUDGED = "Judgments"
SCORED = "Scoring"
OUTPUT = "Output"


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What the shell offers for the beginning of a name.

    >>> among(["gda", "glad", "rasch"])("g")
    ['gda', 'glad']
    """
    known = list(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def local_file(path: Path | None) -> Path | None:
    """Return the path of a `file:` address, so that it is compared with other paths; others stay as they are."""
    if path is None or not str(path).startswith("file:/"):
        return path
    from crowdrank.judgments.sources import local_path

    return local_path(path)


JudgmentsFile = Annotated[
    Path,
    typer.Argument(
        callback=local_file,
        help="The judgments: CSV, TSV, Parquet, JSON Lines, Excel, qrels, or gzip of each; exports of doccano, "
        "Label Studio, Toloka, MTurk, Quepid, OpenSearch; or a folder or pattern of such files.",
        show_default=False,
    ),
]
JudgmentsFileOrFolder = Annotated[
    Path,
    typer.Argument(
        callback=local_file,
        help="The judgments: CSV, TSV, Parquet, JSON Lines, Excel, qrels, or gzip of each; exports of doccano, "
        "Label Studio, Toloka, MTurk, Quepid, OpenSearch; or a folder or pattern of such files. A folder of Parquet "
        "files (any address that fsspec reaches) stays on disk.",
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        help="The format, if neither suffix nor content shows it: csv, tsv, parquet, jsonl, json, xlsx, qrels, letor, "
        "trec-rf10, crowd-kit, doccano, label-studio, toloka, mturk, quepid, opensearch.",
        rich_help_panel=JUDGED,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Which column is what, as in query=topicID,document=docID,assessor=workerID,grade=label.",
        rich_help_panel=JUDGED,
    ),
]
Separator = Annotated[str | None, typer.Option(help="What separates the cells of a text file.", rich_help_panel=JUDGED)]
Grades = Annotated[
    str | None,
    typer.Option(help="The scale: 0-4, or names from least to most relevant: Bad,Fair,Good.", rich_help_panel=JUDGED),
]
Scales = Annotated[
    Path | None,
    typer.Option(
        help="A CSV file with a scale per assessor or family (columns assessor, grades, maps_to).",
        rich_help_panel=JUDGED,
    ),
]
Unjudgeable = Annotated[
    str | None, typer.Option(help="Answers that mean 'cannot judge', as in -2.", rich_help_panel=JUDGED)
]
Method = Annotated[
    str,
    typer.Option("--method", "-m", help=f"One of: {', '.join(METHODS)}.", autocompletion=among(METHODS)),
]
UnjudgeableAs = Annotated[
    str,
    typer.Option(
        help="Use 'cannot judge' answers as the lowest grade (lowest), not at all (drop), or as an answer of its own "
        "(model, where a method can: gda).",
        rich_help_panel=JUDGED,
    ),
]
Repeats = Annotated[
    str,
    typer.Option(
        help="Of several judgments of one assessor on one document: last, first, keep all, or error.",
        rich_help_panel=JUDGED,
    ),
]
Exclude = Annotated[
    Path | None, typer.Option(help="A file with the ids of assessors to leave out, one a line.", rich_help_panel=JUDGED)
]
FamilyPattern = Annotated[
    str | None,
    typer.Option(
        help="Where the id tells an assessor's family: a regular expression whose first group is it, as in '(.*)_p'.",
        rich_help_panel=JUDGED,
    ),
]
AssessorName = Annotated[
    str | None,
    typer.Option(
        help="Assessor of files without a column for it; by default the name of each such file.",
        rich_help_panel=JUDGED,
    ),
]
OnBadRows = Annotated[
    str,
    typer.Option(help="error, or skip: leave rows out that cannot be used, and count them.", rich_help_panel=JUDGED),
]
MaxBytes = Annotated[
    str,
    typer.Option(help="The largest file to read, in bytes when unpacked: 500MB, 2GB, 4096.", rich_help_panel=JUDGED),
]
READING: dict[str, tuple[Any, Any]] = {
    "format": (Format, None),
    "columns": (Columns, None),
    "separator": (Separator, None),
    "grades": (Grades, None),
    "scales": (Scales, None),
    "unjudgeable": (Unjudgeable, None),
    "repeats": (Repeats, "last"),
    "exclude": (Exclude, None),
    "family_pattern": (FamilyPattern, None),
    "assessor_name": (AssessorName, None),
    "on_bad_rows": (OnBadRows, "error"),
    "max_bytes": (MaxBytes, "16GiB"),
}
"""How judgments are read: the options of `read_judgments`, with their defaults."""


def reads_judgments(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options of reading judgments; it gets them together, as `reading`.

    So every verb that reads judgments reads them alike, and an option more is one line.
    """
    names = [name for name in READING if name not in without]

    def given(verb: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(verb, include_extras=True)
        told = [one.replace(annotation=hints[one.name]) for one in inspect.signature(verb).parameters.values()]
        place = [one.name for one in told].index("reading")
        options = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=READING[name][1], annotation=READING[name][0]
            )
            for name in names
        ]
        parameters = [*told[:place], *options, *told[place + 1 :]]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]

        @functools.wraps(verb)
        def with_options(**words: Any) -> None:
            verb(reading={name: words.pop(name) for name in names}, **words)

        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
        return with_options

    return given


def limits_size(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--max-bytes` for all files that it reads."""
    hints = get_type_hints(verb, include_extras=True)
    parameters = [one.replace(annotation=hints[one.name]) for one in inspect.signature(verb).parameters.values()]
    option = inspect.Parameter(
        "max_bytes", inspect.Parameter.KEYWORD_ONLY, default=READING["max_bytes"][1], annotation=MaxBytes
    )
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*parameters, option)]

    @functools.wraps(verb)
    def with_limit(max_bytes: str, **words: Any) -> None:
        from crowdrank.judgments.limits import default_limit

        with default_limit(max_bytes):
            verb(**words)

    with_limit.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_limit.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return with_limit


Reading = dict[str, Any]
"""Options of `read_judgments`, as `reads_judgments` gathers them."""
TOLD: Reading = {}
"""Stands in a verb's signature where those options come."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.", rich_help_panel=OUTPUT)]
CsvSafe = Annotated[
    bool,
    typer.Option(
        "--csv-safe",
        help="In CSV and TSV files, put ' before text that a spreadsheet would run as a formula (first character =, +, "
        "- or @). It changes ids: for files that people open, not for files that programs read.",
        rich_help_panel=OUTPUT,
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="How many threads to use, or processes with --engine dask.", show_default="1")
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where it runs: here (local), on a Dask cluster of processes here (dask), or on another "
        "(dask=tcp://host:port).",
    ),
]


Dashboard = Annotated[
    bool,
    typer.Option(
        "--dashboard/--no-dashboard",
        help="With --engine dask: serve Dask's dashboard on this machine. Other users of the machine can look at it.",
    ),
]


@contextmanager
def engine(name: str, threads: int | None, dashboard: bool = False) -> Iterator[Any]:
    """Open the engine of that name for a block; of a cluster, say where it is."""
    from crowdrank.cli.console import complain
    from crowdrank.engine.registry import get_engine

    with get_engine(name, threads, dashboard) as running:
        if running.description:
            complain(running.description)
        yield running


GoldFile = Annotated[
    Path,
    typer.Option(
        "--gold", help="Expert grades: qrels, LETOR, CSV, Parquet, ...", show_default=False, callback=local_file
    ),
]
MaybeGoldFile = Annotated[
    Path | None,
    typer.Option(
        "--gold", help="Expert grades; their documents are held at them.", show_default=False, callback=local_file
    ),
]
GoldFormat = Annotated[
    str | None, typer.Option(help="The format of the expert grades.", rich_help_panel="Expert grades")
]
GoldColumns = Annotated[
    str | None, typer.Option(help="Which column of the expert grades is what.", rich_help_panel="Expert grades")
]
GoldGrades = Annotated[str | None, typer.Option(help="Their scale, as --grades.", rich_help_panel="Expert grades")]
GoldUnjudgeable = Annotated[
    str | None,
    typer.Option(help="Expert answers that mean 'cannot judge', as in -1.", rich_help_panel="Expert grades"),
]
GoldUnjudgeableAs = Annotated[
    str,
    typer.Option(
        help="Documents that the experts could not judge: lowest grade (lowest) or left out (drop).",
        rich_help_panel="Expert grades",
    ),
]
Measures = Annotated[
    str,
    typer.Option(
        help="Measures, named as in ir_measures: nDCG@10, AP(rel=2), ERR@20, P@5, RR, DCG@10, Tau, TauB, "
        "Spearman, GradeAccuracy, GradeMAE."
    ),
]
Gains = Annotated[
    str, typer.Option(help="What a grade gains: exponential, linear, or a table: 0,1,3,7,15.", rich_help_panel=SCORED)
]
Ties = Annotated[
    str,
    typer.Option(
        help="Equal scores: expected (over random orders), document (as trec_eval), given.", rich_help_panel=SCORED
    ),
]
Unjudged = Annotated[
    str,
    typer.Option(
        help="Documents without an expert grade: skip, or nonrelevant (as trec_eval).", rich_help_panel=SCORED
    ),
]
NoRelevant = Annotated[
    str, typer.Option(help="Queries without a relevant document: skip, zero, one.", rich_help_panel=SCORED)
]
PerQuery = Annotated[
    Path | None, typer.Option(help="Write the value of every query here.", rich_help_panel=OUTPUT, show_default=False)
]


def gold_options(
    format: str | None, columns: str | None, grades: str | None, unjudgeable: str | None, unjudgeable_as: str
) -> dict[str, Any]:
    """Options of `read_gold`."""
    return {
        "format": format,
        "columns": columns,
        "grades": grades,
        "unjudgeable": unjudgeable,
        "unjudgeable_as": unjudgeable_as,
    }
