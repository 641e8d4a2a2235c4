"""Read tables from files: expand folders and glob patterns, and find the column for each role."""

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
from crowdrank._typing import Floats
from crowdrank.errors import Fix, InputError, Location, Message, UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.addresses import visible_files
from crowdrank.judgments.bad_rows import BadRows, no_rows_error
from crowdrank.judgments.cells import require_floats
from crowdrank.judgments.columns import COLUMN_ALIASES, ColumnsByRole, parse_column_map, quote_names, resolve_columns
from crowdrank.judgments.files import local_path
from crowdrank.judgments.formats import FormatLayout, detect_format, open_source
from crowdrank.judgments.frames import is_frame
from crowdrank.judgments.row_errors import Origin
from crowdrank.judgments.sources import FrameSource, Source
from crowdrank.judgments.table import NO_QUERY

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

TableLike: TypeAlias = "str | Path | Sequence[str | Path] | IntoFrame"
"""A file, a folder, a glob pattern, a list of them, or a DataFrame."""


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
        notes: notes about assumptions.

    """

    origin: Origin
    cells: ColumnsByRole
    bad_rows: BadRows = field(default_factory=BadRows)
    notes: tuple[Message, ...] = ()

    @classmethod
    def of(cls, table: pa.Table, source: Source, columns: Mapping[str, str]) -> RoleTable:
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

    def ids(self, role: str) -> pa.Array:
        """Return the id of each row, as :meth:`coded_ids` does."""
        codes, names = self.coded_ids(role)
        return names.take(pa.array(codes))

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
    on_bad_rows: str = "error",
    *,
    required_roles: Sequence[str],
    optional_roles: Sequence[str] = (),
    columns: str | Mapping[str, str] | None = None,
    layout_columns: Mapping[str, str] | None = None,
    aliases: Mapping[str, tuple[str, ...]] = COLUMN_ALIASES,
    assessor_name: str | None = None,
    needs_assessor: bool = False,
) -> list[RoleTable]:
    """Find the columns for the roles in each file, and read them.

    Args:
        inputs: the opened files or DataFrame.
        on_bad_rows: whether rows that cannot be read raise an `error` or are skipped (`skip`).
        required_roles: roles that must have a column in every file.
        optional_roles: roles that may have a column.
        columns: column names by role that the user gave.
        layout_columns: column names by role that the format defines.
        aliases: other column names for each role, in lower case.
        assessor_name: assessor of all rows of files without an assessor column; by default, the name of the file.
        needs_assessor: whether every row must have an assessor.

    Returns:
        One table per file; if only some files have a column for the query, it is null in the others.

    """
    column_map = {**(layout_columns or {}), **parse_column_map(columns)}
    tables = []
    for number, source in enumerate(inputs.sources):
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
        bad_rows = BadRows(on_bad_rows)
        table = source.read(list(dict.fromkeys(roles.values())), bad_rows)
        cells = {role: table[name] for role, name in roles.items()}
        notes = []
        if needs_assessor and "assessor" not in cells:
            cells["assessor"] = constant_column(assessor_name or file_stem(source.name), len(table))
            notes = [_assessor_note(source, cells)] if assessor_name is None else []
        tables.append(RoleTable(Origin(source, roles, number), cells, bad_rows, tuple(notes)))
    if assessor_name is not None and all("assessor" in table.origin.columns for table in tables):
        column = tables[0].origin.columns["assessor"]
        problem = f"is given, but the assessor is in the column {column!r}; leave it out"
        raise UsageError(problem, parameter="assessor_name")
    if any("query" in table.cells for table in tables):
        for table in tables:
            table.cells.setdefault("query", pa.chunked_array([pa.nulls(len(table), pa.string())]))
    return tables


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
