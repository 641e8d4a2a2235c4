"""Read one table from one or several files: expand folders and patterns, find the columns of roles, join the rows."""

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
from crowdrank.judgments.columns import ALIASES, listed, parse_map, resolve
from crowdrank.judgments.formats import Layout, detect_format, open_source
from crowdrank.judgments.frames import is_frame
from crowdrank.judgments.sources import FrameSource, Source, local_path

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

TableLike: TypeAlias = "str | Path | Sequence[str | Path] | IntoFrame"
"""A path, a folder, a glob pattern, a list of them, or a DataFrame."""

Columns = dict[str, pa.ChunkedArray]
ID_ROLES = ("query", "document", "assessor", "family")


class JoinedSource(Source):
    """The rows of several files, in the order of the files."""

    def __init__(self, parts: Sequence[Source], sizes: Sequence[int]) -> None:
        self.parts, self._ends = parts, np.cumsum(sizes)
        self.name = counted(len(parts), "file")
        self.names = list(dict.fromkeys(name for part in parts for name in part.names))
        self.units = {role: unit for part in reversed(parts) for role, unit in part.units.items()}

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Raise an error: the parts are read one by one."""
        raise NotImplementedError

    def place(self, row: int) -> str:
        """Return the file of a row and its place there."""
        part = int(np.searchsorted(self._ends, row, "right"))
        start = int(self._ends[part - 1]) if part else 0
        return f"{self.parts[part].name}, {self.parts[part].place(row - start)}"


@dataclass(frozen=True, eq=False)
class Input:
    """Files or a frame, opened.

    Attributes:
        sources: one per file.
        layout: columns and answers that the format defines.
        notes: files that are not read.

    """

    sources: list[Source]
    layout: Layout
    notes: list[Message] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class RoleTable:
    """The columns of a table by role.

    Attributes:
        source: the place of each row, for messages.
        columns: name of the column for each role; if it differs between files, all names.
        cells: the columns by role.
        notes: assumptions that were made.

    """

    source: Source
    columns: dict[str, str]
    cells: Columns
    notes: tuple[Message, ...] = ()


def open_input(
    source: TableLike,
    format: str | None = None,
    separator: str | None = None,
    max_bytes: int | str | None = None,
    *,
    books: bool = True,
) -> Input:
    """Open a file, a folder, a glob pattern, a list of them, or a DataFrame."""
    if is_frame(source):
        opened, layout = open_source(source, format, separator, max_bytes)
        return Input([opened], layout)
    notes: list[Message] = []
    paths = list(_expanded(source, format, notes))
    pairs = [open_source(path, format, separator, max_bytes, books=books) for path in paths]
    if not pairs:
        raise UsageError("An empty list of files was given; give at least one file.")
    return Input([opened for opened, _ in pairs], pairs[0][1], notes)


def _expanded(source: Any, format: str | None, notes: list[Message]) -> Iterator[Any]:
    """Yield the files of a path, folder, glob pattern, or list of them, in order; folders by name."""
    if not isinstance(source, str | Path):
        if not isinstance(source, list | tuple):
            raise UsageError(f"A path, a list of paths or a DataFrame is required, not {type(source).__name__}.")
        for one in source:
            yield from _expanded(one, format, notes)
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
    """Return the files of a folder whose format is known; add a note about the others."""
    files = [Path(name) for name in visible_files(folder)]
    known = [file for file in files if format is not None or _has_known_format(file)]
    others = [file.name for file in files if file not in known]
    if not known:
        problem = f"there is no file of a known format in it{f', only {listed(others)}' if others else ''}"
        raise InputError(problem, source=str(folder), kind="no-file", fix="give a folder with files of judgments")
    if others:
        problem = f"{counted(len(others), 'file')} of unknown format not read: {listed(others)}"
        notes.append(Message(problem, "files-not-read", "note", Location(str(folder))))
    return known


def _has_known_format(file: Path) -> bool:
    try:
        return detect_format(file) is not None
    except InputError as error:
        if error.kind == "encoding":
            return False
        raise


def read_roles(
    files: Input,
    bad_rows: BadRows,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    columns: str | Mapping[str, str] | None = None,
    layout_columns: Mapping[str, str] | None = None,
    aliases: Mapping[str, tuple[str, ...]] = ALIASES,
    assessor_name: str | None = None,
    needs_assessor: bool = False,
) -> RoleTable:
    """Read the columns of roles from all files, and join them.

    Args:
        files: the files or the frame.
        bad_rows: counts of rows that are not used.
        required: roles that every file needs a column for.
        optional: roles that a file may lack.
        columns: columns given by the user, by role.
        layout_columns: columns that the format defines, by role.
        aliases: other names for each role.
        assessor_name: assessor of files without a column for it; by default, the name of the file.
        needs_assessor: whether an assessor is required.

    Returns:
        The joined columns. A role that some files lack is null there.

    """
    mapped = {**(layout_columns or {}), **parse_map(columns)}
    columns_of_files, parts, notes = [], [], list(files.notes)
    for source in files.sources:
        names_assessor = assessor_name is not None or not isinstance(source, FrameSource)
        assessor = ["assessor"] if needs_assessor else []
        roles = resolve(
            source.names,
            source=source.name,
            required=[*required, *([] if names_assessor else assessor)],
            optional=[*optional, *(assessor if names_assessor else [])],
            mapped=mapped,
            aliases=aliases,
        )
        table = source.read(list(dict.fromkeys(roles.values())), bad_rows)
        cells = {role: table[name] for role, name in roles.items()}
        if needs_assessor and "assessor" not in cells:
            cells["assessor"] = constant_column(assessor_name or file_stem(source.name), len(table))
            if assessor_name is None:
                notes.append(_assessor_note(source, cells))
        columns_of_files.append(roles)
        parts.append(cells)
    if assessor_name is not None and all("assessor" in roles for roles in columns_of_files):
        problem = f"is given, but the assessor is in the column {columns_of_files[0]['assessor']!r}; leave it out"
        raise UsageError(problem, parameter="assessor_name")
    order = [role for role in ALIASES if any(role in cells for cells in parts)]
    names = {role: dict.fromkeys(roles[role] for roles in columns_of_files if role in roles) for role in order}
    by_role = {role: " or ".join(used) for role, used in names.items() if used}
    return RoleTable(join_sources(files.sources, parts), by_role, join_columns(parts, order), tuple(notes))


def join_sources(sources: Sequence[Source], parts: Sequence[Mapping[str, pa.ChunkedArray]]) -> Source:
    """Return a source with the places of the rows of all parts."""
    if len(sources) == 1:
        return sources[0]
    return JoinedSource(sources, [len(next(iter(cells.values()))) for cells in parts])


def join_columns(parts: Sequence[Columns], names: Sequence[str]) -> Columns:
    """Return the rows of all parts, in order; a column that a part lacks is null there."""
    if len(parts) == 1:
        return {name: parts[0][name] for name in names}
    sizes = [len(next(iter(cells.values()))) for cells in parts]
    return {name: _joined([cells.get(name) for cells in parts], sizes, name) for name in names}


def _joined(columns: Sequence[pa.ChunkedArray | None], sizes: Sequence[int], name: str) -> pa.ChunkedArray:
    kinds = {column.type for column in columns if column is not None}
    kind = kinds.pop() if len(kinds) == 1 else pa.string()
    chunks: list[pa.Array] = []
    for column, size in zip(columns, sizes, strict=True):
        if column is None:
            chunks.append(pa.nulls(size, kind))
        else:
            chunks.extend((column if column.type == kind else _as_text(column, name in ID_ROLES)).chunks)
    return pa.chunked_array(chunks, kind)


def _as_text(column: pa.ChunkedArray, is_id: bool) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return (ids.numbers_or_text(column) if is_id else column).cast(pa.string())


def constant_column(value: str, n: int) -> pa.ChunkedArray:
    """Return a column of `n` equal cells, as dictionary codes."""
    codes = pa.array(np.zeros(n, np.int32))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array([value]))])


def file_stem(name: str) -> str:
    """Return the name of a file without its suffix.

    >>> file_stem("labels/ann.v2.jsonl.gz")
    'ann.v2'
    """
    file = Path(name).name
    return Path(file[:-3] if file.lower().endswith(".gz") else file).stem


def _assessor_note(source: Source, cells: Columns) -> Message:
    """Return a note that the file name is the assessor; raise InputError if a document occurs twice in a table."""
    if source.has_assessor_column and _has_repeated_pairs(cells):
        raise InputError(
            "there is no column for the assessor, and documents occur several times; "
            f"the columns are: {listed(source.names)}",
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


def _has_repeated_pairs(cells: Columns) -> bool:
    codes = np.stack([ids.encode(cells[role])[0] for role in ("query", "document") if role in cells])
    pairs = codes[:, (codes >= 0).all(axis=0)]
    return bool(np.unique(pairs, axis=1).shape[1] < pairs.shape[1])
