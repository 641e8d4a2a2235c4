"""Read tables from files: expand folders and glob patterns, and find the column for each role."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.errors import Fix, InputError, Location, Message, UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.columns import (
    FEATURES_USED,
    PRIOR_RELEVANCE,
    SCALE_COLUMN,
    Roles,
    find_probability_columns,
    parse_column_map,
    quote_names,
)
from crowdrank.judgments.frames import is_frame
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_QUERY
from crowdrank.readers.cells import ColumnsByRole, parse_floats, require_floats
from crowdrank.readers.files import FileHead, FileSource, local_path, open_decompressed, visible_files
from crowdrank.readers.formats import FormatLayout, detect_format, open_path, open_source
from crowdrank.readers.sources import BadRows, Origin, Source, no_rows_error

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

    from crowdrank.readers.judging_database import DatabaseAddress

DOCCANO_LABELS_FILE = "label_config.json"
"""Name of the file with the label names that doccano writes beside its exports; it has no judgments."""
TableLike: TypeAlias = "str | Path | Sequence[str | Path] | IntoFrame"
"""A file, a folder, a glob pattern, a list of them, or a DataFrame."""


@dataclass(frozen=True, eq=False)
class OpenInput:
    """Opened files, or an opened DataFrame.

    Attributes:
        sources: one source per file.
        layout: column names and answers that the format defines.
        notes: notes about files of a folder that are not read.
        label_scale: the labels in a `label_config.json` of doccano beside the files.

    """

    sources: list[Source]
    layout: FormatLayout
    notes: list[Message] = field(default_factory=list)
    label_scale: Scale | None = None

    @property
    def name(self) -> str:
        """Name of the input for messages: that of the only file, or the number of files."""
        return self.sources[0].name if len(self.sources) == 1 else counted(len(self.sources), "file")


@dataclass(frozen=True, eq=False)
class RoleTable:
    """Columns of one file or DataFrame by role.

    Attributes:
        origin: the source and the name of the column for each role.
        cells: the columns by role.
        bad_rows: counts of rows that the source left out.

    """

    origin: Origin
    cells: ColumnsByRole
    bad_rows: BadRows = field(default_factory=BadRows)

    @classmethod
    def from_table(cls, table: pa.Table, source: Source, columns: Mapping[str, str]) -> RoleTable:
        """Return the columns of a table that was read, by role; raise InputError if there are no rows."""
        if not len(table):
            raise no_rows_error(source.name)
        return cls(Origin(source, columns), {role: table[name] for role, name in columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.cells.values())))

    def coded_ids(self, role: str) -> ids.CodedIds:
        """Return the ids of a role, or one id for all rows if it has no column; raise InputError if one is missing."""
        if role not in self.cells:
            return np.zeros(len(self), np.int32), pa.array([NO_QUERY])
        codes, names = ids.encode(self.cells[role])
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise self.origin.cell_error(row, role, f"the {role} is missing", "fill it in", "missing-cell")
        return codes, names

    def row_ids(self, role: str) -> pa.Array:
        """Return the id of each row, as :meth:`coded_ids` does."""
        codes, names = self.coded_ids(role)
        return names.take(pa.array(codes))

    def with_grade_values(self, scale: Scale | None) -> RoleTable:
        """Return the table with the values of named grades on a scale; unchanged if a grade is not on it."""
        if scale is None or "grade" not in self.cells or parse_floats(self.cells["grade"]) is not None:
            return self
        codes = [scale.code(name) for name in self.cells["grade"].to_pylist()]
        if None in codes:
            return self
        values = pa.chunked_array([pa.array([scale.values[code] for code in codes if code is not None])])
        return replace(self, cells={**self.cells, "grade": values})

    def floats(self, role: str, *, allow_blanks: bool = False, fixes: Sequence[str] = ("write a number",)) -> Floats:
        """Return the column of a role as numbers, as :func:`require_floats` does."""
        source, name = self.origin.source, self.origin.column_name(role)
        return require_floats(self.cells[role], source, name, allow_blanks=allow_blanks, fixes=fixes)


def open_input(
    source: TableLike,
    format: str | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
    *,
    allow_books: bool = True,
) -> OpenInput:
    """Open a file, a folder, a glob pattern, a list of them, or a DataFrame; parameters as in `open_source`."""
    if is_frame(source):
        opened, layout = open_source(source, format, separator, max_bytes)
        return OpenInput([opened], layout)
    notes: list[Message] = []
    pairs: list[tuple[Source, FormatLayout]] = []
    configs: list[tuple[FileHead, list[str]]] = []
    open_one = partial(open_source, format=format, separator=separator, max_bytes=max_bytes, allow_books=allow_books)
    for file in _expand_paths(source, format, notes):
        if isinstance(file, FileHead) and file.path.name == DOCCANO_LABELS_FILE:
            labels = _read_doccano_labels(file)
            if labels is not None:
                configs.append((file, labels))
                continue
        pairs.append(open_one(file))
        if len(pairs) > 1:  # the content of many small files could fill the memory
            for opened, _ in (pairs[0], pairs[-1]):
                if isinstance(opened, FileSource):
                    opened.head.drop_content()
    if not pairs and len(configs) == 1:  # the only file is read as judgments
        pairs = [open_one(configs.pop()[0])]
    if not pairs:
        raise UsageError("An empty list of files was given; give at least one file.")
    notes += [note for opened, _ in pairs for note in opened.notes]
    named = next((labels for _, labels in configs if labels), None)
    label_scale = None if named is None else _scale_of_labels(named)
    return OpenInput([opened for opened, _ in pairs], pairs[0][1], notes, label_scale)


def _read_doccano_labels(file: FileHead) -> list[str] | None:
    """Return the labels of a `label_config.json` of doccano, or None if the file is something else."""
    with open_decompressed(file) as stream:
        try:
            return [str(label["text"]) for label in json.load(stream)]
        except (ValueError, TypeError, KeyError):
            return None


def _scale_of_labels(labels: list[str]) -> Scale | None:
    """Return labels as a scale, by the numbers in them or else in their order; None if they are no scale."""
    try:
        return Scale.of_numbered_names(labels) or Scale.parse(labels)
    except UsageError:
        return None


def _expand_paths(source: Any, format: str | None, notes: list[Message]) -> Iterator[FileHead | DatabaseAddress]:
    """Yield the files of a path, a folder, a glob pattern, or a list of them; folders are sorted by file name."""
    if not isinstance(source, str | Path):
        if not isinstance(source, list | tuple):
            raise UsageError(f"A path, a list of paths or a DataFrame is required, not {type(source).__name__}.")
        for path_like in source:
            yield from _expand_paths(path_like, format, notes)
        return
    path = local_path(source)
    if _is_folder(path):
        yield from _folder_files(path, format, notes)
    elif glob.has_magic(str(path)) and not os.path.lexists(path) and not _is_database(source):
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (the pattern may be absolute)
        if not matches:
            raise InputError("no file matches the pattern", source=str(path), kind="no-file", fix="check the pattern")
        for match in matches:
            yield from _folder_files(Path(match), format, notes) if Path(match).is_dir() else [open_path(match)]
    else:
        yield open_path(source)


def _is_database(source: str | Path) -> bool:
    """Return whether a path with characters of glob patterns, such as `judging.db?project=NAME`, is a database."""
    from crowdrank.readers.judging_database import find_database

    return find_database(source) is not None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # not a valid path
        return False


def _folder_files(folder: Path, format: str | None, notes: list[Message]) -> Iterator[FileHead | DatabaseAddress]:
    """Yield the files of a folder whose format is recognized; add a note about the others to `notes`."""
    files, others = visible_files(folder), []
    for name in files:
        file = open_path(name)
        if format is not None or _has_known_format(file):
            yield file
        else:
            others.append(Path(name).name)
    if len(others) == len(files):
        problem = f"there is no file of a known format in it{f', only {quote_names(others)}' if others else ''}"
        raise InputError(
            problem, source=str(folder), kind="no-file", fix="give a folder with CSV, Parquet or other tables"
        )
    if others:
        problem = f"{counted(len(others), 'file')} of unknown format not read: {quote_names(others)}"
        notes.append(Message(problem, "files-not-read", "note", Location(str(folder))))


def _has_known_format(file: FileHead | DatabaseAddress) -> bool:
    try:
        return isinstance(file, FileHead) and detect_format(file) is not None
    except InputError as error:
        if error.kind == "encoding":
            return False
        raise


def read_roles(
    inputs: OpenInput,
    roles: Roles,
    columns: str | Mapping[str, str] | None = None,
    layout_columns: Mapping[str, str] | None = None,
    on_bad_rows: str = "error",
    *,
    soft_labels: bool = False,
) -> list[RoleTable]:
    """Find the columns for the roles in each file, and read them.

    Args:
        inputs: the opened files or DataFrame.
        roles: roles that must and may have a column in each file.
        columns: column names by role that the user gave.
        layout_columns: column names by role that the format defines.
        on_bad_rows: whether rows that cannot be read raise an `error` or are skipped (`skip`).
        soft_labels: whether to read also the columns of probabilities of grades (p0, p1, ...); their names are roles.

    Returns:
        One table per file; if only some files have a column for the query, it is null in the others.

    """
    column_map = {**(layout_columns or {}), **parse_column_map(columns)}
    tables = []
    for number, source in enumerate(inputs.sources):
        found, bad_rows = roles.find_columns(source.names, source.name, column_map), BadRows(on_bad_rows)
        if soft_labels:
            found |= {name: name for name in find_probability_columns(source.names) if name not in found.values()}
        table = source.read(list(dict.fromkeys(found.values())), bad_rows)
        cells = {role: table[name] for role, name in found.items()}
        tables.append(RoleTable(Origin(source, found, number), cells, bad_rows))
    if any("query" in table.cells for table in tables):
        for one in tables:
            one.cells.setdefault("query", pa.chunked_array([pa.nulls(len(one), pa.string())]))
    return tables


def scale_from_column(tables: Sequence[RoleTable]) -> Scale | None:
    """Return the scale that the cells of the column `scale` name, or None if there is no such column.

    Raises:
        InputError: the tables state several scales.

    """
    scales: dict[Scale, str] = {}
    for table in tables:
        cells = table.cells.get(SCALE_COLUMN)
        for cell in [] if cells is None else cells.unique().to_pylist():
            scale = Scale.from_cell(str(cell))
            if scale is not None:
                scales.setdefault(scale, table.origin.source.name)
    if len(scales) > 1:
        listed = " and ".join(map(str, list(scales)[:2]))
        problem, source = f"the column {SCALE_COLUMN!r} states different scales: {listed}", list(scales.values())[1]
        fix = Fix("give the scale with {}", "grades")
        raise InputError(problem, source=source, column=SCALE_COLUMN, kind="scales-differ", fix=fix)
    return next(iter(scales), None)


def read_scale_column(inputs: OpenInput) -> Scale | None:
    """Read the column `scale` of opened files and return the scale that it names, or None."""
    tables = []
    for source in inputs.sources:
        if SCALE_COLUMN in source.names:
            cells = source.read([SCALE_COLUMN], BadRows("skip"))[SCALE_COLUMN]
            tables.append(RoleTable(Origin(source, {}), {SCALE_COLUMN: cells}))
    return scale_from_column(tables)


def constant_column(cell: str, n_rows: int) -> pa.ChunkedArray:
    """Return a dictionary-encoded column of `n_rows` equal cells."""
    codes = pa.array(np.zeros(n_rows, np.int32))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array([cell]))])


def features_used_notes(inputs: OpenInput) -> list[Message]:
    """Return a note for each file that is the consensus of a model that used document features."""
    return [
        Message(
            "its labels used features of the documents, so that they favor rankers that use the same features",
            FEATURES_USED,
            "warning",
            Location(source.name),
            (Fix("compare such rankers on labels without features"),),
        )
        for source in inputs.sources
        if PRIOR_RELEVANCE in source.names
    ]
