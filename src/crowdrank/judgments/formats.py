"""Which format a file is in, by its suffix or by name, and the layouts of data sets as they are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crowdrank.errors import UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.grades import one_of
from crowdrank.judgments.letor import LetorSource
from crowdrank.judgments.sources import (
    DelimitedSource,
    FrameSource,
    JsonLinesSource,
    ParquetSource,
    Source,
    WhitespaceSource,
)

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".qrels": "qrels",
    ".trec": "run",
    ".run": "run",
    ".letor": "letor",
    ".svm": "letor",
    ".svmlight": "letor",
}
QRELS = ("query", "iteration", "document", "grade")
RUN = ("query", "q0", "document", "rank", "score", "tag")


@dataclass(frozen=True)
class Layout:
    """What a named format knows beyond its columns' names."""

    columns: Mapping[str, str] = field(default_factory=dict)
    gold_columns: Mapping[str, str] = field(default_factory=dict)
    unjudgeable: Sequence[str] = ()


LAYOUTS: Mapping[str, Layout] = {
    "trec-rf10": Layout(
        {"query": "topicID", "document": "docID", "assessor": "workerID", "grade": "label", "honeypot": "planted"},
        {"query": "topicID", "document": "docID", "grade": "gold"},
        ("-2",),
    ),
    "crowd-kit": Layout({"document": "task", "assessor": "worker", "grade": "label"}),
}
FORMATS = (*dict.fromkeys(SUFFIXES.values()), *LAYOUTS)


class TrecRF10Source(DelimitedSource):
    """The crowd judgments of the TREC 2010 Relevance Feedback track, as published.

    Its `gold` is -1 where NIST did not judge, and -2 for planted broken links, which are honeypots: the right
    answer is 'broken link'.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "\t")
        self.names = [*self.names, "planted"]

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """The columns named; asked for `gold`, only the rows that have one."""
        in_file = [name for name in names if name != "planted"]
        if "planted" in names:
            table = super().read([*in_file, "gold"], bad_rows)
            planted = pc.equal(table["gold"], "-2")
            return table.append_column("planted", pc.if_else(planted, table["gold"], None)).select(list(names))
        table = super().read(in_file, bad_rows)
        return table.filter(pc.not_equal(table["gold"], "-1")) if "gold" in names else table


def format_of(path: str | Path) -> str:
    """The format that a file's name promises.

    >>> format_of("labels.tsv.gz")
    'tsv'
    """
    name = Path(path).name
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"Cannot tell the format of {path} by its name; say --format with one of: {', '.join(FORMATS)}."
        )
    return SUFFIXES[suffix]


def open_source(what: Any, format: str | None = None, separator: str | None = None) -> tuple[Source, Layout]:
    """The source behind a path or a DataFrame, and what its format knows of it."""
    if format is not None:
        one_of(FORMATS, format, "--format")
    layout = LAYOUTS.get(format or "", Layout())
    if not isinstance(what, str | Path):
        if not frames.is_frame(what):
            raise UsageError(f"A path or a DataFrame was expected, not {type(what).__name__}.")
        return FrameSource(what), layout
    if format == "crowd-kit":
        format = None
    return _file_source(Path(what), format or format_of(what), separator), layout


def _file_source(path: Path, format: str, separator: str | None) -> Source:
    match format:
        case "csv" | "tsv":
            if separator is not None and len(separator) != 1:
                raise UsageError(f"--separator takes one character, not {separator!r}.")
            return DelimitedSource(path, separator or {"csv": ",", "tsv": "\t"}[format])
        case "parquet":
            return ParquetSource(path)
        case "jsonl":
            return JsonLinesSource(path)
        case "trec-rf10":
            return TrecRF10Source(path)
        case "qrels":
            return WhitespaceSource(path, QRELS)
        case "run":
            return WhitespaceSource(path, RUN)
        case _:
            return LetorSource(path)
