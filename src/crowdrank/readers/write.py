"""Write tables to files; the suffix of a file gives its format. A file is written completely or not at all."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from crowdrank._arrow import release_unused_memory
from crowdrank._files import check_output_file, write_file
from crowdrank.errors import UsageError, shown
from crowdrank.judgments.scale import parse_integer

if TYPE_CHECKING:
    from crowdrank.judgments.table import Judgments

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")
"""Suffixes of the formats for any table."""
QRELS_SUFFIX = ".qrels"
QRELS_TABLE_COLUMNS = ("query", "document", "grade")
FORMULA_START_PATTERN = "[=+\\-@\t\r\n＝＋－＠]"
"""Regular expression for the first character of a spreadsheet formula (OWASP, CSV Injection)."""
WHITE_SPACE_PATTERN = r"[ \t\n\v\f\r]"


def check_output(path: str | Path, *, allow_qrels: bool = False) -> None:
    """Raise an error if a table cannot be written to a path; call this before long computations.

    >>> check_output("out.xlsx")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: Cannot write out.xlsx: its name ends in none of .csv, .tsv, .parquet, .jsonl (or these
    with .gz).
    """
    suffixes = (*TABLE_SUFFIXES, *([QRELS_SUFFIX] if allow_qrels else []))
    if _format_suffix(path) not in suffixes:
        raise UsageError(f"Cannot write {path}: its name ends in none of {', '.join(suffixes)} (or these with .gz).")
    check_output_file(path)


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = (), *, qrels_parameters: Collection[str] = ()
) -> None:
    """Raise an error if tables cannot be written, or would replace an input or each other.

    Args:
        outputs: paths by the names of their parameters.
        inputs: paths that are read.
        qrels_parameters: parameters in `outputs` whose files can be qrels.

    """
    for parameter, path in outputs.items():
        if path is not None:
            check_output(path, allow_qrels=parameter in qrels_parameters)
    check_distinct_paths(outputs, inputs)


def check_distinct_paths(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raise an error if outputs would replace an input or each other.

    >>> check_distinct_paths({"output": Path("a.csv")}, [Path("a.csv")])
    Traceback (most recent call last):
    crowdrank.errors.UsageError: output is a.csv, which is read; choose another name.
    """
    read = {path.resolve() for path in inputs if path is not None}
    first: dict[Path, str] = {}
    for parameter, path in outputs.items():
        if path is None:
            continue
        if path.resolve() in read:
            problem = f"is {path}, which is read"
            raise UsageError(problem, kind="output-is-input", parameter=parameter, fix="choose another name")
        if path.resolve() in first:
            problem = f"is {path}, which another output is too"
            raise UsageError(problem, kind="same-output", parameter=parameter, fix="choose another name")
        first[path.resolve()] = parameter


def _format_suffix(path: str | Path) -> str:
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def is_qrels(path: str | Path | None) -> bool:
    """Return whether a path has the suffix of qrels.

    >>> is_qrels("labels.qrels.gz"), is_qrels("labels.csv"), is_qrels(None)
    (True, False, False)
    """
    return path is not None and _format_suffix(path) == QRELS_SUFFIX


def write_table(table: pa.Table, path: str | Path, *, csv_safe: bool = False) -> None:
    r"""Write a table as CSV, TSV, Parquet, JSON Lines or qrels, compressed if the name ends in .gz.

    Args:
        table: the table. Qrels need the columns query, document and grade.
        path: the file; its suffix gives the format.
        csv_safe: in CSV and TSV, put `'` before text that a spreadsheet program would run as a formula. This changes
            ids, so leave it out for files that programs read.

    Raises:
        UsageError: the suffix is unknown, or the table cannot be written as qrels.
        OutputError: the file cannot be written.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> write_table(pa.table({"a": [1]}), out)
    >>> out.read_text()
    '{"a": 1}\n'

    """
    check_output(path, allow_qrels=set(QRELS_TABLE_COLUMNS) <= set(table.column_names))
    release_unused_memory(len(table))
    if is_qrels(path):
        lines = qrels_lines(table)
        with output_stream(path) as stream:
            stream.writelines(lines)
        return
    with table_writer(path, csv_safe=csv_safe) as write:
        write(table)


@contextmanager
def table_writer(path: str | Path, *, csv_safe: bool = False) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends a table to a file; the file is put in place when the block succeeds.

    All tables must have the same columns. Arguments and formats are those of :func:`write_table`, without qrels.
    """
    check_output(path)
    with output_stream(path) as stream, ExitStack() as closing:
        match _format_suffix(path):
            case ".parquet":
                yield _parquet_appender(stream, closing)
            case ".jsonl":
                yield partial(_append_json_lines, stream)
            case suffix:
                yield _csv_appender(stream, "\t" if suffix == ".tsv" else ",", csv_safe)


@contextmanager
def output_stream(path: str | Path) -> Iterator[IO[Any]]:
    """Open a temporary file that replaces the output on success, as bytes; compressed if the name ends in .gz."""
    with write_file(path) as draft, _open_output(draft, compress=Path(path).suffix.lower() == ".gz") as stream:
        yield stream


def _parquet_appender(stream: IO[Any], exit_stack: ExitStack) -> Callable[[pa.Table], None]:
    import pyarrow.parquet as pq

    writers: list[pq.ParquetWriter] = []

    def append(table: pa.Table) -> None:
        if not writers:
            writers.append(exit_stack.enter_context(pq.ParquetWriter(stream, table.schema)))
        writers[0].write_table(table)

    return append


def _csv_appender(stream: IO[Any], delimiter: str, csv_safe: bool) -> Callable[[pa.Table], None]:
    is_first = True

    def append(table: pa.Table) -> None:
        nonlocal is_first
        options = pyarrow.csv.WriteOptions(include_header=is_first, delimiter=delimiter, quoting_style="needed")
        # Old versions of Arrow write the header again after an empty chunk.
        chunks = [batch for batch in table.to_batches() if len(batch)]
        decoded = _decode_dictionaries(pa.Table.from_batches(chunks, table.schema))
        pyarrow.csv.write_csv(_escape_formulas(decoded) if csv_safe else decoded, stream, options)
        is_first = False

    return append


def _append_json_lines(stream: IO[Any], table: pa.Table) -> None:
    for batch in _nan_as_null(table).to_batches(max_chunksize=10_000):
        stream.writelines(json.dumps(row, default=str).encode() + b"\n" for row in batch.to_pylist())


def qrels_lines(table: pa.Table) -> list[bytes]:
    r"""Return the lines of qrels; rows without a grade are left out.

    Args:
        table: the columns query, document and grade.

    Raises:
        UsageError: a grade is not a whole number, or an id holds white space.

    >>> qrels_lines(pa.table({"query": ["q"], "document": ["d"], "grade": [2.0]}))
    [b'q 0 d 2\n']

    """
    table = table.filter(pc.is_valid(table["grade"]))
    ids = [_qrels_ids(table[name], name) for name in ("query", "document")]
    grades = [parse_integer(grade) for grade in table["grade"].to_pylist()]
    if None in grades:
        grade = shown(table["grade"][grades.index(None)].as_py())
        fix = "write .csv, or give the judgments grades that are numbers"
        raise UsageError(f"Qrels need whole numbers as grades, not {grade}; {fix}.", kind="not-qrels")
    return [f"{query} 0 {document} {grade}\n".encode() for query, document, grade in zip(*ids, grades, strict=True)]


def check_qrels(judgments: Judgments) -> None:
    """Raise UsageError if a consensus of judgments cannot be written as qrels."""
    for name, column in (("query", judgments.queries), ("document", judgments.documents)):
        _qrels_ids(pa.chunked_array([column]), name)
    labels = judgments.labels or judgments.main_scale.names
    qrels_lines(pa.table({"query": ["q"] * len(labels), "document": ["d"] * len(labels), "grade": list(labels)}))


def _qrels_ids(column: pa.ChunkedArray, role: str) -> list[str]:
    texts = pc.cast(column, pa.string())
    has_space = np.asarray(pc.match_substring_regex(texts, WHITE_SPACE_PATTERN))
    if has_space.any():
        text = shown(texts[int(np.argmax(has_space))].as_py())
        raise UsageError(f"Qrels cannot hold the {role} {text}, which has white space; write .csv.", kind="not-qrels")
    ids: list[str] = texts.to_pylist()
    return ids


def _convert_columns(
    table: pa.Table, selects_type: Callable[[pa.DataType], bool], convert: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> pa.Table:
    """Return the table with the columns of a type converted."""
    for position, field in enumerate(table.schema):
        if selects_type(field.type):
            table = table.set_column(position, field.name, convert(table.column(position)))
    return table


def _decode_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with dictionary-encoded columns as plain columns, because CSV cannot hold dictionaries."""
    return _convert_columns(table, pa.types.is_dictionary, lambda column: column.cast(column.type.value_type))


def _escape_formulas(table: pa.Table) -> pa.Table:
    """Return the table with `'` before every text and column name that begins like a formula."""
    pattern = rf"\A({FORMULA_START_PATTERN})"
    for is_text in (pa.types.is_string, pa.types.is_large_string):
        table = _convert_columns(table, is_text, lambda text: pc.replace_substring_regex(text, pattern, r"'\1"))
    return table.rename_columns(
        [f"'{name}" if re.match(FORMULA_START_PATTERN, name) else name for name in table.column_names]
    )


def _nan_as_null(table: pa.Table) -> pa.Table:
    """Return the table with null for NaN and infinity, because JSON has neither."""

    def convert(column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))

    return _convert_columns(table, pa.types.is_floating, convert)


@contextmanager
def _open_output(path: Path, *, compress: bool) -> Iterator[IO[Any]]:
    with path.open("wb") as stream:
        if not compress:
            yield stream
            return
        # Without time and name in the file, the same table gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as compressed:
            yield compressed  # type: ignore[misc]
