"""Recognize the format of a file and open it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._base import require_one_of
from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.judgments import frames
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import ALIASES
from crowdrank.judgments.excel import ExcelSource
from crowdrank.judgments.letor import LetorSource
from crowdrank.judgments.limits import parse_bytes
from crowdrank.judgments.platforms import MTURK_COLUMN, TABLE_EXPORTS, TOLOKA_COLUMN, JsonSource, detect_platform
from crowdrank.judgments.read_options import Format
from crowdrank.judgments.sources import (
    EXPORT_AS_CSV_ADVICE,
    SEPARATORS,
    DelimitedSource,
    FrameSource,
    JsonLinesSource,
    ParquetSource,
    Source,
    WhitespaceSource,
    check_size,
    local_path,
    no_rows_error,
    open_decompressed,
)

FORMATS: tuple[str, ...] = get_args(Format)
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".qrels": "qrels",
    ".trec": "run",
    ".run": "run",
    ".letor": "letor",
    ".svm": "letor",
    ".svmlight": "letor",
}
QRELS = ("query", "iteration", "document", "grade")
RUN = ("query", "q0", "document", "rank", "score", "tag")
ZIP = b"PK\x03\x04"
UNREADABLE = {
    b"%PDF": ("a PDF file", EXPORT_AS_CSV_ADVICE),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook (.xls)", "save it as .xlsx or as CSV"),
    b"\x1f\x8b": ("compressed with gzip, but its name does not end in .gz", "rename it"),
    b"\x89PNG": ("an image", EXPORT_AS_CSV_ADVICE),
    b"\xff\xd8\xff": ("an image", EXPORT_AS_CSV_ADVICE),
}
"""Descriptions of formats that are not read, and fixes, by the first bytes of a file."""
HEAD_BYTES = 1 << 20
"""Number of bytes in which the first lines of a file are looked for."""


@dataclass(frozen=True)
class Layout:
    """Columns and answers that a named format defines."""

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


class TrecRF10Source(DelimitedSource):
    """The crowd judgments of the TREC 2010 Relevance Feedback track, as published.

    The column `gold` is -1 where NIST did not judge, and -2 for planted broken links, which are honeypots: the right
    answer is 'broken link'.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "\t")
        if "gold" not in self.names:
            raise InputError("there is no column 'gold'", source=self.name, fix="use the file as it is published")
        self.names = [*self.names, "planted"]
        self._rows_with_gold = np.empty(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; with `gold`, rows without a NIST grade are left out and counted."""
        in_file = [name for name in names if name != "planted"]
        table = super().read([*dict.fromkeys((*in_file, "gold"))], bad_rows)
        gold = pc.utf8_trim_whitespace(table["gold"])
        if "planted" in names:
            planted = pc.if_else(pc.equal(gold, "-2"), gold, None)
            return table.append_column("planted", planted).select(list(names))
        if "gold" not in names:
            return table.select(in_file)
        self._rows_with_gold = np.flatnonzero(np.asarray(pc.not_equal(gold, "-1")))
        bad_rows.leave_out("no gold grade", len(table) - len(self._rows_with_gold))
        return table.take(pa.array(self._rows_with_gold))

    def place(self, row: int) -> str:
        """Return the number of a row and its line in the file."""
        return super().place(int(self._rows_with_gold[row]) if len(self._rows_with_gold) else row)


def format_by_suffix(path: str | Path) -> str | None:
    """Return the format of a file by its suffix, or None if the suffix is unknown.

    >>> format_by_suffix("labels.tsv.gz"), format_by_suffix("labels.txt")
    ('tsv', None)
    """
    return SUFFIXES.get(Path(Path(path).name.lower().removesuffix(".gz")).suffix)


def detect_format(path: str | Path) -> str | None:
    """Return the format of a file by its suffix and content, or None if neither shows it."""
    suffix = format_by_suffix(path)
    with open_decompressed(path, text=False) as stream:
        head = stream.read(4)
    if head == ZIP:
        return "xlsx"
    if suffix in ("parquet", "xlsx", "jsonl") or (suffix is None and head == b"PAR1"):
        return suffix or "parquet"
    content = _format_by_content(path)
    # Files of qrels and runs have many suffixes: qrels.train.tsv, dl19.txt, bm25.trec.
    decisive = ("jsonl",) if suffix == "json" else ("qrels", "run", "letor")
    return content if suffix is None or content in decisive else suffix


def _format_by_content(path: str | Path) -> str | None:
    """Return the format of a text file by its first lines with content."""
    with open_decompressed(path) as stream:
        head = codecs.getincrementaldecoder("utf-8-sig")().decode(stream.read(HEAD_BYTES))
    first, second, *_ = [*filter(None, map(str.strip, head.split("\n"))), "", ""]
    words = first.split()
    if len(words) > 1 and words[1].startswith("qid:"):
        return "letor"
    if first.startswith(("[", "{")):
        return "jsonl" if first.endswith("}") and second.startswith("{") else "json"
    if len(words) == 4 and _is_iteration(words[1]) and _is_whole(words[3]) and "," not in first:
        return "qrels"
    if len(words) == 6 and _is_iteration(words[1]) and _is_whole(words[3]) and "," not in first:
        return "run"
    return _table_format(first)


def _table_format(header: str) -> str | None:
    """Return the format of a table by its header, if at least two columns have known names."""
    if header.split("\t") == ["topicID", "workerID", "docID", "gold", "label"]:
        return "trec-rf10"
    known = {name for role, aliases in ALIASES.items() for name in (role, *aliases)}
    cells = [cell.strip(' "').casefold() for cell in re.split(f"[{''.join(SEPARATORS)}]", header)]
    if len(known.intersection(cells)) < 2 and not any(marker in header for marker in (TOLOKA_COLUMN, MTURK_COLUMN)):
        return None
    return "tsv" if "\t" in header else "csv"


def _is_iteration(word: str) -> bool:
    """Return whether a word is the unused second column of qrels and runs."""
    return word.upper() == "Q0" or _is_whole(word)


def _is_whole(word: str) -> bool:
    return word.removeprefix("-").isdecimal()


def open_source(
    what: Any,
    format: str | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
    *,
    books: bool = True,
) -> tuple[Source, Layout]:
    """Open a file or a DataFrame.

    Args:
        what: a path or a DataFrame.
        format: name of the format; by default it is detected.
        separator: separator of a text file.
        max_bytes: maximum size of the decompressed file.
        books: whether a table can be a book of Quepid, whose header a table of features or scores can have too.

    Returns:
        The source and the layout of its format.

    Raises:
        InputError: the file cannot be read.
        UsageError: a parameter is invalid.

    """
    if format is not None:
        require_one_of("format", format, FORMATS)
    if not isinstance(what, str | Path):
        if not frames.is_frame(what):
            raise UsageError(f"A path or a DataFrame is required, not {type(what).__name__}.")
        if format not in (None, "crowd-kit"):
            raise UsageError("is for files; leave it out for a DataFrame", parameter="format")
        return FrameSource(what), LAYOUTS.get(format or "", Layout())
    limit = parse_bytes(max_bytes)
    path = local_path(what)
    check_size(path, limit)  # first, because it reports a missing file
    _refuse_unreadable(path, format)
    detected = detect_format(path) if format in (None, "crowd-kit") else format
    if detected is None:
        raise InputError(
            "neither its name nor its content shows the format",
            source=str(path),
            kind="unknown-format",
            fix=Fix(f"give the format ({', '.join(FORMATS)}) with {{}}", "format", "csv"),
        )
    source = _file_source(path, detected, _checked_separator(separator), limit, books)
    return source, LAYOUTS.get(format or detected, Layout())


def _refuse_unreadable(path: Path, format: str | None) -> None:
    """Raise InputError if a file is empty or its first bytes are those of an unsupported or of another format."""
    with open_decompressed(path, text=False) as stream:
        head = stream.read(4)
    if not head:
        raise no_rows_error(str(path))
    for signature, (description, fix) in UNREADABLE.items():
        if head.startswith(signature):
            raise InputError(f"it is {description}", source=str(path), kind="other-format", fix=fix)
    if head == ZIP and format not in (None, "xlsx"):
        problem, fixes = "it is an Excel workbook or another ZIP archive", Fix("give {}", "format", "xlsx")
        raise InputError(problem, source=str(path), kind="other-format", fix=fixes)


def _checked_separator(separator: str | None) -> str | None:
    separator = "\t" if separator == "\\t" else separator  # shells pass a tab this way
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0'):
        problem = f"must be one character such as ; or \\t, not {shown(separator)}"
        raise UsageError(problem, parameter="separator")
    return separator


def _delimited_source(path: Path, format: str, separator: str | None, books: bool) -> Source:
    """Open separated text; exports of platforms are recognized by their header."""
    table = DelimitedSource(path, separator, "\t" if format in ("tsv", "toloka") else ",")
    platform = detect_platform(table)
    if format in TABLE_EXPORTS and platform != format:
        raise InputError(
            f"it is not an export of {format}: its columns differ",
            source=table.name,
            kind="other-format",
            fix=Fix("leave the format out, or give {}", "format", "csv"),
        )
    if platform is None or (platform == "quepid" and not books):
        return table
    return TABLE_EXPORTS[platform](path, table.separator)


def _file_source(path: Path, format: str, separator: str | None, max_bytes: int, books: bool) -> Source:
    match format:
        case "csv" | "tsv" | "quepid" | "mturk" | "toloka":
            return _delimited_source(path, format, separator, books)
        case "doccano":
            return JsonSource(path) if _format_by_content(path) == "json" else JsonLinesSource(path)
        case "json" | "label-studio" | "opensearch":
            return JsonSource(path)
        case "parquet":
            return ParquetSource(path, max_bytes)
        case "xlsx":
            return ExcelSource(path, max_bytes)
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
