"""Add a batch of new judgments to the existing ones, in a file whose other lines keep their bytes.

Existing lines keep their bytes and new judgments follow them; a changed judgment replaces its line, of which cells
without a role are kept.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank._files import write_file
from crowdrank._text import counted
from crowdrank._typing import Booleans, Integers
from crowdrank.collection.pool import Pool
from crowdrank.errors import Fix, InputError, Message, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import PROBABILITY_COLUMN_PATTERN, Roles, find_probability_columns, parse_column_map
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.summary import uncertain_scale_note
from crowdrank.judgments.table import NO_QUERY, UNJUDGEABLE, Judgments
from crowdrank.readers.cells import DRAWN_FOR_COLUMN, SAMPLE_COLUMNS
from crowdrank.readers.combine import combine
from crowdrank.readers.delimited import DelimitedSource
from crowdrank.readers.files import MAX_LINE_BYTES, FileHead, open_decompressed
from crowdrank.readers.formats import open_source
from crowdrank.readers.json_files import JsonLinesSource
from crowdrank.readers.judging_database import find_database
from crowdrank.readers.parquet import ParquetSource
from crowdrank.readers.read import read_draw_columns, read_judgments
from crowdrank.readers.sources import BadRows, Source
from crowdrank.readers.write import write_table

SKIP_ROWS_FIX = Fix("skip such judgments with {}", "on_bad_rows", "skip")


@dataclass(frozen=True)
class MergeResult:
    """Judgments after a batch was merged, and the number of its judgments by what was done with them."""

    judgments: Judgments
    added: int = 0
    changed: int = 0
    known: int = 0  # with the same grade as before
    older: int = 0  # left out because a later judgment of the same assessor exists
    unknown: int = 0  # left out because their documents are not in the pool
    excluded: int = 0  # left out because their assessors are excluded
    new: Judgments | None = None  # added and changed judgments
    notes: tuple[Message, ...] = ()


def merge_batch(
    old: Judgments | None,
    batch: Judgments,
    *,
    source: str = "the batch",
    pool: Pool | None = None,
    exclude: Collection[str] = (),
    on_bad_rows: str = "error",
) -> MergeResult:
    """Merge a batch into existing judgments; merging the same batch again changes nothing.

    Args:
        old: the existing judgments, or None.
        batch: the new judgments.
        source: name of the batch for messages.
        pool: documents that may be judged.
        exclude: ids of assessors whose judgments are invalid.
        on_bad_rows: raise an error for invalid judgments (`error`), or leave them out and count them (`skip`).

    >>> import pandas as pd
    >>> row = {"document": ["d"], "assessor": ["ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": [grade]}), grades="0-2") for grade in (0, 2))
    >>> merge_batch(old, new).changed, merge_batch(new, new).known
    (1, 1)

    """
    is_outside, is_excluded = _is_outside(batch, pool), _is_by_excluded_assessor(batch, exclude)
    is_excluded &= ~is_outside
    if on_bad_rows != "skip":
        _raise_if_any(is_outside, batch, source, "is not in the pool", [Fix("check {}", "pairs"), SKIP_ROWS_FIX])
        _raise_if_any(is_excluded, batch, source, "was judged by the excluded assessor {assessor}", [SKIP_ROWS_FIX])
    is_valid = ~(is_outside | is_excluded)
    counts: dict[str, Any] = {"unknown": int(is_outside.sum()), "excluded": int(is_excluded.sum())}
    if not is_valid.any():
        if old is None:
            fixes = [Fix("check {}", "pairs"), Fix("check {}", "exclude")]
            raise InputError("no judgment is left", source=source, kind="no-judgments", fix=fixes)
        return MergeResult(old, **counts)
    valid = batch if is_valid.all() else batch.where(is_valid)
    if old is None:
        note = uncertain_scale_note(valid)
        return MergeResult(valid, len(valid), **counts, new=valid, notes=() if note is None else (note,))
    require_same_scale(old, valid, source)
    row = _old_rows(old, valid)
    is_older = _is_older(old, valid, row)
    is_known = (row >= 0) & ~is_older & _has_same_grade(old, valid, row) & _has_same_probabilities(old, valid, row)
    is_changed = (row >= 0) & ~is_older & ~is_known
    is_new = (row < 0) | is_changed
    counts |= {"known": int(is_known.sum()), "older": int(is_older.sum())}
    if not is_new.any():
        return MergeResult(old, **counts)
    new = valid.where(is_new)
    counts |= {"added": int((row < 0).sum()), "changed": int(is_changed.sum())}
    return MergeResult(combine(old, new), **counts, new=new, notes=_higher_grade_notes(old, new, source))


def _higher_grade_notes(old: Judgments, new: Judgments, source: str) -> tuple[Message, ...]:
    """Return a note if the new judgments have a grade of the scale above all grades so far."""
    if len(old.scales) > 1 or len(new.scales) > 1:
        return ()
    highest_old, highest_new = (int(table.grade.max(initial=UNJUDGEABLE)) for table in (old, new))
    if UNJUDGEABLE in (highest_old, highest_new):
        return ()
    grade = new.scale.names[highest_new]
    if (old.scale.code(grade) or 0) <= highest_old:
        return ()
    problem = f"{source} has the grade {grade}, higher than all before (up to {old.scale.names[highest_old]})"
    return (Message(f"{problem}, on the scale {old.scale}", "higher-grade", "note"),)


def _is_outside(batch: Judgments, pool: Pool | None) -> Booleans:
    """Return whether the document of each judgment is not in the pool."""
    if pool is None:
        return np.zeros(len(batch), bool)
    is_inside = np.zeros(batch.n_items, bool)
    item = batch.positions(pool.query, pool.document)
    is_inside[item[item >= 0]] = True
    return ~np.repeat(is_inside, np.diff(batch.offsets))


def _is_by_excluded_assessor(batch: Judgments, exclude: Collection[str]) -> Booleans:
    """Return whether the assessor of each judgment is excluded."""
    is_listed: Booleans = ids.match(pa.array([str(one) for one in exclude], pa.string()), batch.assessors) >= 0
    return is_listed[batch.assessor]


def _raise_if_any(is_invalid: Booleans, batch: Judgments, source: str, problem: str, fixes: list[Fix]) -> None:
    if not is_invalid.any():
        return
    row = int(np.argmax(is_invalid))
    item = int(np.searchsorted(batch.offsets, row, side="right")) - 1
    query, document = (shown(column[item].as_py()) for column in batch.item_ids())
    problem = problem.format(assessor=shown(batch.assessors[int(batch.assessor[row])].as_py()))
    number = counted(int(is_invalid.sum()), "such judgment")
    text = f"the document {document} of query {query} {problem} ({number})"
    raise InputError(text, source=source, kind="invalid-judgments", fix=fixes)


def require_same_scale(old: Judgments, new: Judgments, source: str) -> None:
    """Raise InputError if new judgments have grades that are not on the scale of the existing ones.

    >>> import pandas as pd
    >>> row = {"document": ["d", "e"], "assessor": ["ann", "ann"]}
    >>> old, new = (read_judgments(pd.DataFrame({**row, "grade": grade})) for grade in ([0, 2], [0, 4]))
    >>> require_same_scale(old, new, "new.csv")
    Traceback (most recent call last):
    crowdrank.errors.InputError: new.csv: the grade 4 is not on the scale 0-2 of the existing judgments; give the whole
    scale with grades.
    """
    if len(old.scales) > 1 or len(new.scales) > 1:
        return  # combining checks scales per assessor
    names = [new.scale.names[code] for code in np.unique(new.grade) if code != UNJUDGEABLE]
    unknown = [name for name in names if old.scale.code(name) is None]
    if unknown:
        problem = f"the grade {unknown[-1]} is not on the scale {old.scale} of the existing judgments"
        fix = Fix("give the whole scale with {}", "grades")
        raise InputError(problem, source=source, kind="scale-changed", fix=fix)


def _old_rows(old: Judgments, new: Judgments) -> Integers:
    """Return the row of the old judgment of the same assessor and document for each new judgment, or -1."""
    item = old.positions(*new.item_ids())[new.item]
    assessor = ids.match(old.assessors, new.assessors)[new.assessor]
    wanted = np.where((item >= 0) & (assessor >= 0), item * old.n_assessors + assessor, -1)
    return ids.match(pa.array(old.item * old.n_assessors + old.assessor), pa.array(wanted))


def _is_older(old: Judgments, new: Judgments, row: Integers) -> Booleans:
    """Return whether each new judgment is older than the existing one."""
    if "time" not in old.extras or "time" not in new.extras:
        return np.zeros(len(new), bool)
    return np.asarray((row >= 0) & (new.extras["time"] < old.extras["time"][np.maximum(row, 0)]))


def _has_same_grade(old: Judgments, new: Judgments, row: Integers) -> Booleans:
    """Return whether each new judgment has the grade of the existing one."""
    names = [_grade_names(table) for table in (old, new)]
    return np.asarray(names[0][np.maximum(row, 0)] == names[1])


def _has_same_probabilities(old: Judgments, new: Judgments, row: Integers) -> Booleans:
    """Return whether each new judgment equals the existing one in the probabilities of its grades.

    Without such probabilities, each one does.
    """
    is_same = np.ones(len(new), bool)
    if old.has_soft_labels:
        for name in find_probability_columns({**old.extras, **new.extras}):
            before, after = (np.nan_to_num(table.extras.get(name, np.zeros(len(table)))) for table in (old, new))
            is_same &= before[np.maximum(row, 0)] == after
    return is_same


def _grade_names(table: Judgments) -> Any:
    """Return the name of the grade of each judgment, "" for 'cannot judge' answers (n,)."""
    names = np.full((len(table.scales), len(table.main_scale) + 1), "", object)
    for index, scale in enumerate(table.scales):
        names[index, : len(scale)] = [name.casefold() for name in scale.names]
    return names[table.assessor_scale[table.assessor], table.grade]  # the code of 'cannot judge' is -1


def read_existing(path: str | Path | None, **options: Any) -> Judgments | None:
    """Read the existing judgments; return None if there is no file, or only a header."""
    if path is None or not (Path(path).exists() or find_database(path)):
        return None
    try:
        return read_batch(path, **options)
    except InputError as error:
        if error.kind == "no-rows":
            return None
        raise


def read_batch(path: str | Path, **options: Any) -> Judgments:
    """Read judgments as `read_judgments` does, with the columns of a sample as further ones if the file has them."""
    judgments = read_judgments(path, **options)
    open_options = {name: options[name] for name in ("format", "columns", "separator") if name in options}
    draws = read_draw_columns(path, judgments, **open_options)
    return replace(judgments, extras={**judgments.extras, **draws}) if draws else judgments


def batch_scale(old: Judgments | None, grades: str | None) -> Scale | None:
    """Return the scale for reading a batch: `grades`, or that of the existing judgments if its grades are names."""
    if grades is not None:
        return Scale.parse(grades)
    if old is None or len(old.scales) > 1 or old.scale.numeric:
        return None
    return old.scale


ROLES = ("query", "document", "assessor", "grade", "family", "kind", "time", "duration", "cost", "honeypot", "scale")
"""Roles of the columns of a file of judgments; the probabilities of grades (p0, p1, ...) and those of a sample are
further ones."""
JUDGMENT_KEY_ROLES = ("query", "document", "assessor")
"""Roles of the columns that together identify a judgment."""
OTHER_FILE_FIX = Fix("write all judgments to another file with {}", "output")
TIME_ZONE_PATTERN = re.compile(r":\d\d.*(Z|[+-]\d\d:?\d\d)\s*$", re.IGNORECASE)
Key = tuple[str, str, str]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class JudgmentFile:
    r"""A file of judgments to which others can be added.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("docid;worker;label;remark\nd1;ann;0;'tis good\n")
    >>> from crowdrank import read_judgments
    >>> import pandas as pd
    >>> new = read_judgments(pd.DataFrame({"docid": ["d2"], "worker": ["bob"], "label": [1]}))
    >>> JudgmentFile.open(path, separator=";").add(new)
    >>> print(path.read_text(), end="")
    docid;worker;label;remark
    d1;ann;0;'tis good
    d2;bob;1;
    """

    path: Path
    source: Source
    role_of: Mapping[str, str]  # role of each column that has one

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        format: str | None = None,
        columns: str | Mapping[str, str] | None = None,
        separator: str | None = None,
    ) -> JudgmentFile:
        """Open a file; raise UsageError unless it is a table with one judgment per row."""
        source, column_of = _open_columns(path, format, columns, separator, ROLES)
        head = FileHead.read(path)
        if isinstance(source, DelimitedSource | JsonLinesSource) and head.encoding is not None:
            fixes = [Fix("save it as UTF-8"), OTHER_FILE_FIX]
            raise UsageError(f"Judgments cannot be added to {path}, which is UTF-16", kind="utf-16", fix=fixes)
        if head.compression != ("gzip" if Path(path).suffix.lower() == ".gz" else None):
            problem = f"Judgments cannot be added to {path}: only .gz is written compressed"
            raise UsageError(problem, kind="compressed", fix=OTHER_FILE_FIX)
        if type(source) not in (DelimitedSource, JsonLinesSource, ParquetSource):
            problem = f"Judgments cannot be added to {path}, which is not a table with one judgment per row"
            raise UsageError(problem, kind="not-a-table", fix=OTHER_FILE_FIX)
        names = (*SAMPLE_COLUMNS, DRAWN_FOR_COLUMN)
        further = [*find_probability_columns(source.names), *(name for name in names if name in source.names)]
        named = {name: name for name in further if name not in column_of.values()}
        return cls(Path(path), source, {**{name: role for role, name in column_of.items()}, **named})

    def missing_columns(self, new: Judgments) -> list[str]:
        """Return the roles of new judgments for which the file has no column and gets none."""
        if not isinstance(self.source, DelimitedSource):
            return []
        names = [role for role in judgment_table(new).column_names if role not in self.role_of.values()]
        return [role for role in names if not _is_default_query(new, role)]

    @property
    def has_time_zone(self) -> bool | None:
        """Whether the times in the file have a time zone; None if there are no times."""
        name = next((name for name, role in self.role_of.items() if role == "time"), None)
        return None if name is None else has_time_zone(self.source.read([name], BadRows("skip"))[name])

    def add(self, new: Judgments, *, changed: bool = False, utc: bool = False) -> None:
        """Add judgments; the file is changed completely or not at all.

        Args:
            new: judgments to add.
            changed: whether some of them replace existing ones.
            utc: whether to write times with the time zone UTC if the file has no times.

        """
        has_zone = self.has_time_zone
        rows = list(_judgment_rows(new, utc if has_zone is None else has_zone))
        if isinstance(self.source, ParquetSource):
            self._add_to_parquet(new, rows if changed else [])
            return
        with open_decompressed(self.path) as stream:
            raw = stream.read()
        add = _add_to_delimited if isinstance(self.source, DelimitedSource) else _add_to_json_lines
        write_bytes(add(self, raw, {_judgment_key(row): row for row in rows}, changed), self.path)

    def _add_to_parquet(self, new: Judgments, replacing: list[Row]) -> None:
        """Add judgments to a Parquet file, whose columns and types are kept."""
        with open_decompressed(self.path, text=False) as stream:
            old = pq.read_table(pa.py_buffer(stream.read()))
        column_of = {role: name for name, role in self.role_of.items()}
        if replacing:
            names = [column_of.get(role) for role in JUDGMENT_KEY_ROLES]
            cells = [[NO_QUERY] * len(old) if name is None else old[name].to_pylist() for name in names]
            replaced = {_judgment_key(row) for row in replacing}
            old = old.filter(pa.array([tuple(map(str, key)) not in replaced for key in zip(*cells, strict=True)]))
        table = judgment_table(new)
        roles = [role for role in table.column_names if role in column_of or not _is_default_query(new, role)]
        columns = {column_of.get(role, role): table[role] for role in roles}
        try:
            for name, column in columns.items():
                if name in old.column_names:
                    columns[name] = _cast(column, old.schema.field(name).type)
            merged = pa.concat_tables([old, pa.table(columns)], promote_options="default")
        except pa.ArrowException as error:
            problem = f"New judgments do not fit the columns of {self.path} ({str(error).splitlines()[0]})"
            raise UsageError(problem, kind="other-types", fix=OTHER_FILE_FIX) from error
        write_table(merged.replace_schema_metadata(old.schema.metadata), self.path)


def write_new_file(path: str | Path, judgments: Judgments, *, utc: bool = False) -> None:
    """Write judgments to a new file.

    >>> import tempfile
    >>> from crowdrank import read_judgments
    >>> import pandas as pd
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> rows = {"document": ["d"], "assessor": ["ann"], "grade": [0], "time": ["2024-05-31T10:15:00Z"]}
    >>> write_new_file(path, read_judgments(pd.DataFrame(rows)), utc=True)
    >>> print(path.read_text(), end="")
    query,document,assessor,grade,time
    all,d,ann,0,2024-05-31T10:15:00Z
    """
    name = Path(path).name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        write_table(judgment_table(judgments), path)
        return
    rows = list(_judgment_rows(judgments, utc))
    if name.endswith(".jsonl"):
        text = "".join(json_line(_without_blanks(row)) for row in rows)
    else:
        names = judgment_table(judgments).column_names
        lines = [names, *([row[one] for one in names] for row in rows)]
        text = delimited_lines(lines, "\t" if name.endswith(".tsv") else ",", "\n")
    write_bytes(text.encode(), Path(path))


def _add_to_delimited(file: JudgmentFile, raw: bytes, new: dict[Key, Row], changed: bool) -> bytes:
    """Return the bytes of a delimited file with new judgments."""
    assert isinstance(file.source, DelimitedSource)
    separator, roles = file.source.separator, [file.role_of.get(name) for name in file.source.names]
    newline = "\r\n" if b"\r\n" in raw.partition(b"\n")[0] + b"\n" else "\n"
    lines = raw.splitlines(keepends=True)
    records: dict[Key, tuple[int, int, list[str]]] = {}  # of several lines of one judgment, the last is replaced
    for start, stop, cells in _delimited_records(lines, separator) if changed else ():
        key = _judgment_key({role: cell for role, cell in zip(roles, cells, strict=False) if role})
        if key in new:
            records[key] = start, stop, cells
    for key, (start, stop, cells) in records.items():
        row = new.pop(key)
        kept = ["" if _is_share(role) else cell for role, cell in zip(roles, cells, strict=False)]
        replaced = [row.get(role, cell) if role else cell for role, cell in zip(roles, kept, strict=False)]
        end = newline if lines[stop - 1].endswith((b"\n", b"\r")) else ""
        lines[start:stop] = [delimited_lines([replaced], separator, end).encode()] + [b""] * (stop - start - 1)
    added = [[row.get(role, "") if role else "" for role in roles] for row in new.values()]
    return with_last_newline(b"".join(lines), newline) + delimited_lines(added, separator, newline).encode()


def _delimited_records(lines: list[bytes], separator: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first line, the line after the last, and the cells of each record below the header."""
    limit = csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader((line.decode("utf-8-sig", "replace") for line in lines), delimiter=separator)
    start, is_header = 0, True
    try:
        for cells in reader:
            if cells and not is_header:
                yield start, reader.line_num, cells
            is_header = is_header and not cells
            start = reader.line_num
    finally:
        csv.field_size_limit(limit)


def _add_to_json_lines(file: JudgmentFile, raw: bytes, new: dict[Key, Row], changed: bool) -> bytes:
    """Return the bytes of a JSON Lines file with new judgments."""
    column_of = {role: role for role in ROLES} | {role: name for name, role in file.role_of.items()}
    lines = raw.splitlines(keepends=True)
    records: dict[Key, tuple[int, Row]] = {}  # of several lines of one judgment, the last is replaced
    for number, line in enumerate(lines) if changed else ():
        if line.strip():
            cells = json.loads(line.decode("utf-8-sig"))
            key = _judgment_key({role: cells.get(column_of[role], NO_QUERY) for role in JUDGMENT_KEY_ROLES})
            if key in new:
                records[key] = number, cells
    renamed = {
        key: {column_of.get(role, role): value for role, value in _without_blanks(row).items()}
        for key, row in new.items()
    }
    for key, (number, cells) in records.items():
        kept = {name: cell for name, cell in cells.items() if not _is_share(file.role_of.get(name))}
        lines[number] = json_line({**kept, **renamed.pop(key)}).encode()
    return with_last_newline(b"".join(lines), "\n") + "".join(map(json_line, renamed.values())).encode()


def _is_share(role: str | None) -> bool:
    """Return whether a role is the probability of a grade, which belongs to the label that is replaced."""
    return role is not None and PROBABILITY_COLUMN_PATTERN.fullmatch(role) is not None


def judgment_table(judgments: Judgments) -> pa.Table:
    """Return the judgments as a file has them, with 'cannot judge' answers as the assessors gave them."""
    table = judgments.to_arrow()
    if not judgments.n_unjudgeable:
        return table
    answer = judgments.unjudgeable[0] if judgments.unjudgeable else ""
    grade = [answer if cell is None else cell for cell in table["grade"].to_pylist()]
    numeric = all(scale.numeric for scale in judgments.scales) and answer.lstrip("-").isdigit()
    column = pa.array([int(cell) for cell in grade]) if numeric else pa.array([str(cell) for cell in grade])
    return table.set_column(table.column_names.index("grade"), "grade", column)


def has_time_zone(times: pa.ChunkedArray) -> bool | None:
    """Return whether times have a time zone; None if there are no times.

    >>> times = ("2024-05-31T10:15:00Z", "2024-05-31", "1717150500", None)
    >>> [has_time_zone(pa.chunked_array([[time]])) for time in times]
    [True, False, False, None]
    """
    if pa.types.is_timestamp(times.type):
        return times.type.tz is not None
    cells = [str(cell) for cell in times.unique().to_pylist() if cell is not None and str(cell).strip()]
    return any(TIME_ZONE_PATTERN.search(cell) for cell in cells) if cells else None


def batch_has_time_zone(path: str | Path, *, format: str | None = None, columns: str | None = None) -> bool:
    """Return whether the times of a batch have a time zone."""
    source, column_of = _open_columns(path, format, columns, None, ["time"])
    name = column_of.get("time")
    return name is not None and bool(has_time_zone(source.read([name], BadRows("skip"))[name]))


def _open_columns(
    path: str | Path,
    format: str | None,
    columns: str | Mapping[str, str] | None,
    separator: str | None,
    roles: Sequence[str],
) -> tuple[Source, dict[str, str]]:
    """Open a file; return it with the column of each role that has one."""
    source, layout = open_source(path, format, separator)
    column_map = {**layout.columns, **parse_column_map(columns)}
    return source, Roles((), tuple(roles)).find_columns(source.names, source.name, column_map)


def _is_default_query(judgments: Judgments, role: str) -> bool:
    """Return whether a role is the query of documents that were read without one."""
    return role == "query" and judgments.queries.to_pylist() == [NO_QUERY]


def _judgment_rows(judgments: Judgments, utc: bool) -> Iterator[Row]:
    """Yield the judgments as rows of text and numbers; unknown cells are blank."""
    for row in judgment_table(judgments).to_pylist():
        yield {role: _json_or_text_cell(value, utc) for role, value in row.items()}


def _json_or_text_cell(value: Any, utc: bool) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC if utc else None).isoformat().replace("+00:00", "Z")
    if isinstance(value, float):
        return "" if not math.isfinite(value) else int(value) if value.is_integer() else value
    return "" if value is None else value


def _without_blanks(row: Row) -> Row:
    """Return a row for JSON without blank cells, whose type would differ from that of numbers."""
    return {name: value for name, value in row.items() if value != ""}


def _judgment_key(row: Mapping[str, Any]) -> Key:
    query, document, assessor = (str(row.get(role, NO_QUERY)) for role in JUDGMENT_KEY_ROLES)
    return query, document, assessor


def delimited_lines(rows: Iterable[Sequence[Any]], separator: str, newline: str) -> str:
    """Return rows as text with separators."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=newline).writerows(rows)
    return text.getvalue()


def json_line(row: Row) -> str:
    """Return a row as a line of JSON."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def with_last_newline(raw: bytes, newline: str) -> bytes:
    """Return the bytes of a file with a newline at the end, unless it is empty."""
    return raw if not raw or raw.endswith((b"\n", b"\r")) else raw + newline.encode()


def write_bytes(raw: bytes, path: Path) -> None:
    """Write a file, compressed if its name ends in .gz."""
    with write_file(path) as draft:
        draft.write_bytes(gzip.compress(raw, mtime=0) if path.suffix.lower() == ".gz" else raw)


def _cast(column: pa.ChunkedArray, wanted_type: pa.DataType) -> pa.ChunkedArray:
    """Return a column with another type; dictionary codes and time zones are converted."""
    if pa.types.is_dictionary(wanted_type):
        return column.cast(wanted_type.value_type).dictionary_encode().cast(wanted_type)
    if pa.types.is_timestamp(wanted_type) and wanted_type.tz is not None and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(column.type.unit, "UTC")).cast(wanted_type)
    return column.cast(wanted_type)
