"""Which format a file is in, by its suffix or by name, and the layouts of data sets as they are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._base import require_one_of
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.letor import LetorSource
from crowdrank.judgments.limits import parse_bytes
from crowdrank.judgments.platforms import JsonSource, MTurkSource, QuepidSource, TolokaSource, looks_like, platform_of
from crowdrank.judgments.sources import (
    DelimitedSource,
    FrameSource,
    JsonLinesSource,
    ParquetSource,
    Source,
    WhitespaceSource,
    check_size,
    local_path,
)

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
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
PLATFORMS = ("label-studio", "toloka", "mturk", "quepid", "opensearch")
FORMATS = (*dict.fromkeys(SUFFIXES.values()), *LAYOUTS, *PLATFORMS)


class TrecRF10Source(DelimitedSource):
    """The crowd judgments of the TREC 2010 Relevance Feedback track, as published.

    Its `gold` is -1 where NIST did not judge, and -2 for planted broken links, which are honeypots: the right
    answer is 'broken link'.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "\t")
        if "gold" not in self.names:
            raise InputError("there is no column 'gold'", source=self.name, fix="use the file as it is published")
        self.names = [*self.names, "planted"]
        self._with_gold = np.empty(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns named; with `gold`, rows without a NIST grade are left out and counted."""
        in_file = [name for name in names if name != "planted"]
        table = super().read([*dict.fromkeys((*in_file, "gold"))], bad_rows)
        gold = pc.utf8_trim_whitespace(table["gold"])
        if "planted" in names:
            planted = pc.if_else(pc.equal(gold, "-2"), gold, None)
            return table.append_column("planted", planted).select(list(names))
        if "gold" not in names:
            return table.select(in_file)
        self._with_gold = np.flatnonzero(np.asarray(pc.not_equal(gold, "-1")))
        bad_rows.leave_out("no gold grade", len(table) - len(self._with_gold))
        return table.take(pa.array(self._with_gold))

    def place(self, row: int) -> str:
        """The row and its line in the file, where only rows with gold were read too."""
        return super().place(int(self._with_gold[row]) if len(self._with_gold) else row)


def format_of(path: str | Path) -> str:
    """The format that a file's name promises.

    >>> format_of("labels.tsv.gz")
    'tsv'
    """
    suffix = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise UsageError(
            f"Cannot tell the format of {path} by its name; say --format with one of: {', '.join(FORMATS)}."
        )
    return SUFFIXES[suffix]


def open_source(
    what: Any, format: str | None = None, separator: str | None = None, max_bytes: int | str | None = None
) -> tuple[Source, Layout]:
    """Open a path or a DataFrame; return the source and what its format knows of it.

    A file of more than `max_bytes` bytes, when unpacked, is refused before it is parsed.
    """
    if format is not None:
        require_one_of("format", format, FORMATS)
    layout = LAYOUTS.get(format or "", Layout())
    if not isinstance(what, str | Path):
        if not frames.is_frame(what):
            raise UsageError(f"A path or a DataFrame was expected, not {type(what).__name__}.")
        if format not in (None, "crowd-kit"):
            raise UsageError(f"--format {format} says how to read a file; leave it out for a DataFrame.")
        return FrameSource(what), layout
    limit = parse_bytes(max_bytes)
    path = local_path(what)
    check_size(path, limit)  # before its format is looked for: what is not there has none, and a folder has none either
    if format in (None, "crowd-kit"):
        format = _format_told(path)
    return _file_source(path, format, _one_character(separator), limit), layout


def _format_told(path: str | Path) -> str:
    """The format by the file's name, or, where that does not tell, by what is in it."""
    try:
        return format_of(path)
    except UsageError:
        found = looks_like(path)
        if found is None:
            raise
        return found


def _one_character(separator: str | None) -> str | None:
    separator = "\t" if separator == "\\t" else separator  # as a shell hands it over
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0'):
        raise UsageError(f"--separator takes one character such as ; or \\t, not {separator!r}.")
    return separator


def _delimited(path: Path, format: str, separator: str) -> Source:
    """Separated text; the export of a platform is known by its header."""
    plain = DelimitedSource(path, separator)
    kinds = {"toloka": TolokaSource, "mturk": MTurkSource, "quepid": QuepidSource}
    platform = platform_of(plain)
    if format in kinds and platform != format:
        raise InputError(
            f"it is not an export of {format}: its columns are others",
            source=plain.name,
            fix="leave --format out, or say --format csv",
        )
    return plain if platform is None else kinds[platform](path, separator)


def _file_source(path: Path, format: str, separator: str | None, max_bytes: int) -> Source:
    match format:
        case "csv" | "tsv" | "quepid" | "mturk" | "toloka":
            return _delimited(path, format, separator or ("\t" if format in ("tsv", "toloka") else ","))
        case "json" | "label-studio" | "opensearch":
            return JsonSource(path)
        case "parquet":
            return ParquetSource(path, max_bytes)
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
