"""Read one table from one or several files: expand folders and glob patterns, find the columns, join the rows."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank.errors import Fix, InputError, Location, Message, UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.addresses import visible_files
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import COLUMN_ALIASES, parse_column_map, quote_names, resolve_columns
from crowdrank.judgments.formats import FormatLayout, detect_format, open_source
from crowdrank.judgments.frames import is_frame
from crowdrank.judgments.sources import FrameSource, Source, local_path

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

TableLike: TypeAlias = "str | Path | Sequence[str | Path] | IntoFrame"
"""A file, a folder, a glob pattern, a list of them, or a DataFrame."""

ColumnsByRole = dict[str, pa.ChunkedArray]
"""Columns of a table by role: query, document, assessor, grade, ..."""
ID_ROLES = ("query", "document", "assessor", "family")
"""Roles whose columns hold ids."""


class JoinedSource(Source):
    """The concatenated rows of several files; it only locates rows for messages."""

    def __init__(self, sources: Sequence[Source], source_sizes: Sequence[int]) -> None:
        self.sources, self._ends = sources, np.cumsum(source_sizes)
        self.name = counted(len(sources), "file")
        self.names = list(dict.fromkeys(name for source in sources for name in source.names))
        self.units = {role: unit for source in reversed(sources) for role, unit in source.units.items()}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Raise NotImplementedError, because the files are read one by one."""
        raise NotImplementedError

    def place(self, row: int) -> str:
        """Return text that locates a row: its file, and its place in the file."""
        part = int(np.searchsorted(self._ends, row, "right"))
        start = int(self._ends[part - 1]) if part else 0
        return f"{self.sources[part].name}, {self.sources[part].place(row - start)}"


@dataclass(frozen=True, eq=False)
class OpenInput:
    """Opened files, or an opened DataFrame.

    Attributes:
        sources: one source per file.
        layout: column names and answers that the format defines.
        notes: notes about files of a folder that are not read.

    """

    sources: list[Source]
    layout: FormatLayout
    notes: list[Message] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class RoleTable:
    """A table whose columns are found by role.

    Attributes:
        source: source of the rows, which locates them in messages.
        columns: name of the column for each role; if files use several names, these joined by "or".
        cells: the columns by role.
        notes: notes about assumptions and about files that are not read.

    """

    source: Source
    columns: dict[str, str]
    cells: ColumnsByRole
    notes: tuple[Message, ...] = ()


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
    paths = list(_expand_paths(source, format, notes))
    pairs = [open_source(path, format, separator, max_bytes, allow_books=allow_books) for path in paths]
    if not pairs:
        raise UsageError("An empty list of files was given; give at least one file.")
    return OpenInput([opened for opened, _ in pairs], pairs[0][1], notes)


def _expand_paths(source: Any, format: str | None, notes: list[Message]) -> Iterator[Any]:
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
    elif glob.has_magic(str(path)) and not os.path.lexists(path):
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (the pattern may be absolute)
        if not matches:
            raise InputError("no file matches the pattern", source=str(path), kind="no-file", fix="check the pattern")
        for match in matches:
            yield from _folder_files(Path(match), format, notes) if Path(match).is_dir() else [Path(match)]
    else:
        yield path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # not a valid path
        return False


def _folder_files(folder: Path, format: str | None, notes: list[Message]) -> list[Path]:
    """Return the files of a folder whose format is recognized; add a note about the others to `notes`."""
    files = [Path(name) for name in visible_files(folder)]
    known = [file for file in files if format is not None or _has_known_format(file)]
    others = [file.name for file in files if file not in known]
    if not known:
        problem = f"there is no file of a known format in it{f', only {quote_names(others)}' if others else ''}"
        raise InputError(problem, source=str(folder), kind="no-file", fix="give a folder with files of judgments")
    if others:
        problem = f"{counted(len(others), 'file')} of unknown format not read: {quote_names(others)}"
        notes.append(Message(problem, "files-not-read", "note", Location(str(folder))))
    return known


def _has_known_format(path: Path) -> bool:
    try:
        return detect_format(path) is not None
    except InputError as error:
        if error.kind == "encoding":
            return False
        raise


def read_roles(
    inputs: OpenInput,
    bad_rows: BadRows,
    *,
    required_roles: Sequence[str],
    optional_roles: Sequence[str] = (),
    columns: str | Mapping[str, str] | None = None,
    layout_columns: Mapping[str, str] | None = None,
    aliases: Mapping[str, tuple[str, ...]] = COLUMN_ALIASES,
    assessor_name: str | None = None,
    needs_assessor: bool = False,
) -> RoleTable:
    """Find the columns for the roles in each file, read them, and concatenate the rows of all files.

    Args:
        inputs: the opened files or DataFrame.
        bad_rows: counts of rows that are not used.
        required_roles: roles that must have a column in every file.
        optional_roles: roles that may have a column.
        columns: column names by role that the user gave.
        layout_columns: column names by role that the format defines.
        aliases: other column names for each role, in lower case.
        assessor_name: assessor of all rows of files without an assessor column; by default, the name of the file.
        needs_assessor: whether every row must have an assessor.

    Returns:
        The concatenated columns; if a file has no column for a role, its rows are null.

    """
    column_map = {**(layout_columns or {}), **parse_column_map(columns)}
    roles_of_files, cells_of_files, notes = [], [], list(inputs.notes)
    for source in inputs.sources:
        names_assessor = assessor_name is not None or not isinstance(source, FrameSource)
        assessor = ["assessor"] if needs_assessor else []
        roles = resolve_columns(
            source.names,
            source=source.name,
            required_roles=[*required_roles, *([] if names_assessor else assessor)],
            optional_roles=[*optional_roles, *(assessor if names_assessor else [])],
            column_map=column_map,
            aliases=aliases,
        )
        table = source.read(list(dict.fromkeys(roles.values())), bad_rows)
        cells = {role: table[name] for role, name in roles.items()}
        if needs_assessor and "assessor" not in cells:
            cells["assessor"] = constant_column(assessor_name or file_stem(source.name), len(table))
            if assessor_name is None:
                notes.append(_assessor_note(source, cells))
        roles_of_files.append(roles)
        cells_of_files.append(cells)
    if assessor_name is not None and all("assessor" in roles for roles in roles_of_files):
        problem = f"is given, but the assessor is in the column {roles_of_files[0]['assessor']!r}; leave it out"
        raise UsageError(problem, parameter="assessor_name")
    order = [role for role in COLUMN_ALIASES if any(role in cells for cells in cells_of_files)]
    names = {role: dict.fromkeys(roles[role] for roles in roles_of_files if role in roles) for role in order}
    by_role = {role: " or ".join(used) for role, used in names.items() if used}
    return RoleTable(
        join_sources(inputs.sources, cells_of_files), by_role, concat_tables(cells_of_files, order), tuple(notes)
    )


def join_sources(sources: Sequence[Source], cells_of_sources: Sequence[Mapping[str, pa.ChunkedArray]]) -> Source:
    """Return a source that locates the rows of several sources, given the columns that were read from each."""
    if len(sources) == 1:
        return sources[0]
    return JoinedSource(sources, [len(next(iter(cells.values()))) for cells in cells_of_sources])


def concat_tables(tables: Sequence[ColumnsByRole], column_names: Sequence[str]) -> ColumnsByRole:
    """Concatenate the rows of several tables; if a table lacks a column, its rows are null."""
    if len(tables) == 1:
        return {name: tables[0][name] for name in column_names}
    sizes = [len(next(iter(cells.values()))) for cells in tables]
    return {name: _join_column([cells.get(name) for cells in tables], sizes, name) for name in column_names}


def _join_column(
    columns: Sequence[pa.ChunkedArray | None], table_sizes: Sequence[int], column_name: str
) -> pa.ChunkedArray:
    """Concatenate the columns of several tables; columns of different types become text, and missing ones null."""
    types = {column.type for column in columns if column is not None}
    common_type = types.pop() if len(types) == 1 else pa.string()
    chunks: list[pa.Array] = []
    for column, n in zip(columns, table_sizes, strict=True):
        if column is None:
            chunks.append(pa.nulls(n, common_type))
        else:
            chunks.extend((column if column.type == common_type else _to_text(column, column_name in ID_ROLES)).chunks)
    return pa.chunked_array(chunks, common_type)


def _to_text(column: pa.ChunkedArray, is_id: bool) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return (ids.to_integers_or_text(column) if is_id else column).cast(pa.string())


def constant_column(value: str, n_rows: int) -> pa.ChunkedArray:
    """Return a dictionary-encoded column of `n_rows` equal cells."""
    codes = pa.array(np.zeros(n_rows, np.int32))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array([value]))])


def file_stem(file_name: str) -> str:
    """Return the name of a file without its folder and suffix.

    >>> file_stem("labels/ann.v2.jsonl.gz")
    'ann.v2'
    """
    base_name = Path(file_name).name
    return Path(base_name[:-3] if base_name.lower().endswith(".gz") else base_name).stem


def _assessor_note(source: Source, cells: ColumnsByRole) -> Message:
    """Return a note that the file name is the assessor; raise InputError if the table has repeated documents."""
    if source.has_assessor_column and _has_repeated_pairs(cells):
        raise InputError(
            "there is no column for the assessor, and documents occur several times; "
            f"the columns are: {quote_names(source.names)}",
            source=source.name,
            kind="no-column",
            fix=[
                Fix("name it with {}", "columns", "assessor=NAME"),
                Fix("if one assessor judged them all, give {}", "assessor_name", file_stem(source.name)),
            ],
        )
    problem = f"it has no column for the assessor, so the name of the file, {file_stem(source.name)!r}, is used"
    fix = Fix("give another with {}", "assessor_name")
    return Message(problem, "assessor-from-file-name", "note", Location(source.name), (fix,))


def _has_repeated_pairs(cells: ColumnsByRole) -> bool:
    """Return whether a query-document pair occurs in several rows."""
    codes = np.stack([ids.encode(cells[role])[0] for role in ("query", "document") if role in cells])
    pairs = codes[:, (codes >= 0).all(axis=0)]
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])
