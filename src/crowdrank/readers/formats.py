"""Recognize the format of a file and open it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._estimator import require_one_of
from crowdrank.errors import Fix, InputError, UsageError, shown
from crowdrank.judgments import frames
from crowdrank.judgments.columns import count_known_columns
from crowdrank.readers.delimited import EXPORT_AS_CSV_ADVICE, SEPARATORS, DelimitedSource, WhitespaceSource
from crowdrank.readers.files import SQLITE_SIGNATURE, FileHead, check_size, is_database_url, parse_bytes
from crowdrank.readers.platforms import MTURK_COLUMN, SOURCE_BY_PLATFORM, TOLOKA_COLUMN, detect_platform
from crowdrank.readers.read_options import CANNOT_JUDGE, Format
from crowdrank.readers.sources import BadRows, FrameSource, Source, no_rows_error

if TYPE_CHECKING:
    from crowdrank.readers.judging_database import DatabaseAddress

FORMATS: tuple[str, ...] = get_args(Format)
"""Names of all formats."""
FORMAT_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "json", ".xlsx": "xlsx", ".xlsm": "xlsx", ".xlsb": "xlsx", ".xls": "xlsx", ".ods": "xlsx",
    ".qrels": "qrels", ".trec": "run", ".run": "run", ".letor": "letor", ".svm": "letor", ".svmlight": "letor",
}  # fmt: skip
"""Name of the format for each file suffix, in lower case."""
QRELS_COLUMNS = ("query", "iteration", "document", "grade")
"""Columns of a TREC qrels file."""
RUN_COLUMNS = ("query", "q0", "document", "rank", "score", "tag")
"""Columns of a TREC run file."""
SPREADSHEET_SIGNATURES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of a ZIP archive, as .xlsx and .ods files are, and of an .xls file."""
UNSUPPORTED_SIGNATURES = {
    b"%PDF": ("a PDF file", EXPORT_AS_CSV_ADVICE),
    b"\x89PNG": ("an image", EXPORT_AS_CSV_ADVICE),
    b"\xff\xd8\xff": ("an image", EXPORT_AS_CSV_ADVICE),
}
"""Description and advice for each unsupported format, by the first bytes of a file."""
MAX_CHECKED_QRELS_LINES = 10_000
"""Maximum number of lines whose second column is checked to recognize TREC qrels."""


@dataclass(frozen=True)
class FormatLayout:
    """Column names and answers that a format defines.

    Attributes:
        columns: column names of judgments by role.
        gold_columns: column names of expert grades by role.
        unjudgeable: answers that mean that the assessor could not judge the document.
        grades: names of the grades, from least to most relevant, if the source states them.

    """

    columns: Mapping[str, str] = field(default_factory=dict)
    gold_columns: Mapping[str, str] = field(default_factory=dict)
    unjudgeable: Sequence[str] = ()
    grades: Sequence[str] = ()


LAYOUT_BY_FORMAT: Mapping[str, FormatLayout] = {
    "trec-rf10": FormatLayout(
        {"query": "topicID", "document": "docID", "assessor": "workerID", "grade": "label", "honeypot": "planted"},
        {"query": "topicID", "document": "docID", "grade": "gold"},
        ("-2",),
    ),
    "crowd-kit": FormatLayout({"document": "task", "assessor": "worker", "grade": "label"}),
}


class TrecRF10Source(DelimitedSource):
    """The crowd judgments of the TREC 2010 Relevance Feedback track, as published.

    The column `gold` is -1 where NIST did not judge. It is -2 for broken links that were planted as honeypots, whose
    correct answer is 'broken link'.
    """

    has_user_columns = False

    def __init__(self, file: FileHead) -> None:
        super().__init__(file, "\t")
        if "gold" not in self.names:
            raise InputError("there is no column 'gold'", source=self.name, fix="use the file as it is published")
        self.names = [*self.names, "planted"]

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`; if `gold` is one of them, leave out and count rows without a NIST grade."""
        in_file = [name for name in names if name != "planted"]
        table = super().read([*dict.fromkeys((*in_file, "gold"))], bad_rows)
        gold = pc.utf8_trim_whitespace(table["gold"])
        if "planted" in names:
            planted = pc.if_else(pc.equal(gold, "-2"), gold, None)
            return table.append_column("planted", planted).select(list(names))
        if "gold" not in names:
            return table.select(in_file)
        rows = np.flatnonzero(np.asarray(pc.not_equal(gold, "-1")))
        bad_rows.count_left_out("no gold grade", len(table) - len(rows))
        return self._take_rows(table, rows)


def format_by_suffix(uncompressed_name: str) -> str | None:
    """Return the format of a file by its name without the suffix of a compression, or None if it is unknown.

    >>> format_by_suffix("labels.tsv"), format_by_suffix("labels.txt")
    ('tsv', None)
    """
    return FORMAT_BY_SUFFIX.get(Path(uncompressed_name.lower()).suffix)


def detect_format(head: FileHead) -> str | None:
    """Return the format of a file by its suffix and content, or None if it is not recognized."""
    suffix, signature = format_by_suffix(head.uncompressed_name), head.content[:4]
    if signature in SPREADSHEET_SIGNATURES:
        return "xlsx"
    if suffix == "parquet" and signature != b"PAR1":
        try:
            return _format_by_content(head, suffix) or suffix
        except InputError as error:
            if error.kind != "encoding":
                raise
            return suffix  # no text: the reader of Parquet files says what is wrong
    if suffix in ("parquet", "xlsx", "jsonl") or (suffix is None and signature == b"PAR1"):
        return suffix or "parquet"
    content = _format_by_content(head, suffix)
    # Files of qrels and runs have many suffixes: qrels.train.tsv, dl19.txt, bm25.trec.
    decisive = ("jsonl",) if suffix == "json" else ("qrels", "run", "letor")
    return content if suffix is None or content in decisive else suffix


def _format_by_content(head: FileHead, suffix: str | None) -> str | None:
    """Return the format of a text file by its first lines that are not blank, or None if it is not recognized."""
    lines = head.text.split("\n")
    first, second, *_ = [*islice(filter(None, map(str.strip, lines)), 2), "", ""]
    words = first.split()
    if len(words) > 1 and words[1].startswith("qid:"):
        return "letor"
    if first.startswith(("[", "{")):
        return "jsonl" if first.endswith("}") and second.startswith("{") else "json"
    if len(words) in (4, 6) and _is_iteration(words[1]) and _is_integer(words[3]) and "," not in first:
        if suffix not in ("qrels", "run"):
            _require_constant_iteration(head.path, lines[:MAX_CHECKED_QRELS_LINES], words[1])
        return "qrels" if len(words) == 4 else "run"
    has_three = len(words) == len(second.split()) == 3 and _is_integer(words[2]) and "," not in first
    if has_three and suffix != "qrels":
        problem = "it has no header, and three words per line, where qrels have four"
        fixes = ["write 0 as the second word", "add a header such as query, document, grade"]
        raise InputError(problem, source=str(head.path), place="line 1", kind="no-header", fix=fixes)
    return _format_by_header(first)


def _require_constant_iteration(path: Path, lines: Sequence[str], iteration: str) -> None:
    """Raise InputError if the second column of a table without header has several values, which may be assessors."""
    rows = map(str.split, lines)
    other = next((words[1] for words in rows if len(words) in (4, 6) and words[1].upper() != iteration.upper()), None)
    if other is None:
        return
    values = f"{shown(iteration)} and {shown(other)}"
    problem = f"it has no header, and its second column has different values ({values}), unlike qrels and runs"
    by_format = Fix("if the second column does not matter, give {}", "format", "qrels")
    fixes: list[str | Fix] = ["add a header such as query, document, assessor, grade", by_format]
    raise InputError(problem, source=str(path), place="line 1", kind="no-header", fix=fixes)


def _format_by_header(header: str) -> str | None:
    """Return the format (csv or tsv) of a table by its header, or None if fewer than two column names are known."""
    if header.split("\t") == ["topicID", "workerID", "docID", "gold", "label"]:
        return "trec-rf10"
    is_export = TOLOKA_COLUMN in header or MTURK_COLUMN in header
    if count_known_columns(header, "".join(SEPARATORS)) < 2 and not is_export:
        return None
    return "tsv" if "\t" in header else "csv"


def _is_iteration(word: str) -> bool:
    """Return whether a word can be in the second column of qrels and runs, which is ignored."""
    return word.upper() == "Q0" or _is_integer(word)


def _is_integer(word: str) -> bool:
    return word.removeprefix("-").isdecimal()


def open_source(
    source: Any,
    format: str | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
    *,
    allow_books: bool = True,
) -> tuple[Source, FormatLayout]:
    """Open a file, a database of the judging service, or a DataFrame.

    Args:
        source: a path, the head of a file, the URL of a database, or a DataFrame.
        format: name of the format; by default it is detected.
        separator: character between the cells of a text file; by default it is detected.
        max_bytes: maximum size of the decompressed file.
        allow_books: whether to recognize exports of Quepid books; a table of features can have the same header.

    Returns:
        The source and the layout of its format.

    Raises:
        InputError: the file cannot be read.
        UsageError: a parameter is invalid.

    """
    if format is not None:
        require_one_of("format", format, FORMATS)
    if not isinstance(source, FileHead) and frames.is_frame(source):
        if format not in (None, "crowd-kit"):
            raise UsageError("is for files; leave it out for a DataFrame", parameter="format")
        return FrameSource(source), LAYOUT_BY_FORMAT.get(format or "", FormatLayout())
    limit = parse_bytes(max_bytes)
    head = open_path(source) if isinstance(source, str | Path) else source
    if not isinstance(head, FileHead):
        return _open_database(head, format, limit)
    check_size(head, limit)
    _refuse_unsupported(head, format)
    detected = detect_format(head) if format in (None, "crowd-kit") else format
    if detected is None:
        problem = "neither its name nor its content shows the format"
        fix = Fix(f"give the format ({', '.join(FORMATS)}) with {{}}", "format", "csv")
        raise InputError(problem, source=str(head.path), kind="unknown-format", fix=fix)
    allow_books = allow_books and format not in ("csv", "tsv")
    source = _open_file(head, detected, _parse_separator(separator), limit, allow_books)
    return source, LAYOUT_BY_FORMAT.get(format or detected, FormatLayout())


def open_path(source: str | Path) -> FileHead | DatabaseAddress:
    """Read the head of a file, or return the address of a database; raise InputError if there is neither."""
    if is_database_url(source) or "?project=" in str(source):
        from crowdrank.readers.judging_database import find_database

        address = find_database(source)
        if address is not None:
            return address
    head = FileHead.read(source)
    if not head.content.startswith(SQLITE_SIGNATURE):
        return head
    from crowdrank.readers.judging_database import DatabaseAddress

    return DatabaseAddress(str(head.path))


def _open_database(address: Any, format: str | None, max_bytes: int) -> tuple[Source, FormatLayout]:
    from crowdrank.readers.judging_database import DatabaseAddress, JudgingDatabase

    if not isinstance(address, DatabaseAddress):
        raise UsageError(f"A path or a DataFrame is required, not {type(address).__name__}.")
    if format is not None:
        raise UsageError("is for files; leave it out for a database", parameter="format")
    if address.is_file:
        check_size(address.target, max_bytes)
    database = JudgingDatabase(address)
    return database, FormatLayout(unjudgeable=(CANNOT_JUDGE,), grades=database.grades)


def _refuse_unsupported(head: FileHead, format: str | None) -> None:
    """Raise InputError if a file is empty, or if its first bytes show an unsupported format or not the one given."""
    name, start = str(head.path), head.content[:100]
    if not start:
        raise no_rows_error(name)
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html|head|body)\b", start, re.IGNORECASE):
        advice = "download the file itself; the page may ask you to sign in"
        raise InputError("it is an HTML page", source=name, kind="other-format", fix=advice)
    for signature, (description, fix) in UNSUPPORTED_SIGNATURES.items():
        if start.startswith(signature):
            raise InputError(f"it is {description}", source=name, kind="other-format", fix=fix)
    if start[:4] in SPREADSHEET_SIGNATURES and format not in (None, "xlsx"):
        problem, fixes = "it is a spreadsheet or another archive", Fix("give {}", "format", "xlsx")
        raise InputError(problem, source=name, kind="other-format", fix=fixes)


def _parse_separator(separator: str | None) -> str | None:
    """Return the separator as one character; raise UsageError if it is invalid."""
    separator = "\t" if separator == "\\t" else separator  # shells pass a tab this way
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0'):
        problem = f"must be one character such as ; or \\t, not {shown(separator)}"
        raise UsageError(problem, parameter="separator")
    return separator


def _open_delimited(head: FileHead, format: str, separator: str | None, allow_books: bool) -> Source:
    """Open a CSV or TSV file; exports of labeling platforms are recognized by their header."""
    table = DelimitedSource(head, separator, "\t" if format in ("tsv", "toloka") else ",")
    is_book = format == "quepid" and table.names[:2] == ["query", "docid"] and len(table.names) > 2
    platform = "quepid" if is_book else detect_platform(table)
    if format in SOURCE_BY_PLATFORM and platform != format:
        problem = f"it is not an export of {format}: its columns differ"
        fix = Fix("leave the format out, or give {}", "format", "csv")
        raise InputError(problem, source=table.name, kind="other-format", fix=fix)
    if platform is None or (platform == "quepid" and not allow_books):
        return table
    return SOURCE_BY_PLATFORM[platform](head, table.separator)


def _open_file(head: FileHead, format: str, separator: str | None, max_bytes: int, allow_books: bool) -> Source:
    """Open a file as the source class of its format; formats other than text tables are imported when needed."""
    if format in ("csv", "tsv", *SOURCE_BY_PLATFORM):
        return _open_delimited(head, format, separator, allow_books)
    if format in ("qrels", "run"):
        return WhitespaceSource(head, QRELS_COLUMNS if format == "qrels" else RUN_COLUMNS)
    if format == "trec-rf10":
        return TrecRF10Source(head)
    if format == "parquet":
        from crowdrank.readers.parquet import ParquetSource

        return ParquetSource(head, max_bytes)
    if format == "xlsx":
        from crowdrank.readers.excel import ExcelSource

        return ExcelSource(head, max_bytes)
    if format == "letor":
        from crowdrank.readers.letor import LetorSource

        return LetorSource(head)
    from crowdrank.readers.json_files import JsonLinesSource, JsonSource

    has_lines = format == "jsonl" or (format == "doccano" and _format_by_content(head, None) != "json")
    return JsonLinesSource(head) if has_lines else JsonSource(head)
