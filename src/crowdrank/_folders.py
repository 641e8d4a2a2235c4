"""Write complete folders, replace only those that crowdrank wrote, and read saved files, each of them checked.

Each folder contains a manifest, `crowdrank.json`: the kind of folder, the version of its layout and the SHA-256 digest
of every file. A folder is replaced only if it is empty or if its manifest lists everything in it, and loaded only if
every listed file exists and matches its digest.

Usage:

    with loading(folder, "it is not a saved model"):  # any failure in the block becomes an InputError
        about = Fields.read(folder / "model.json")  # typed JSON values
        table = read_parquet(folder / "documents.parquet")
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import crowdrank
from crowdrank._disk import (
    SCRATCH_NAME_PATTERN,
    file_digest,
    flush_tree,
    new_draft_path,
    read_json,
    remove,
    resolve_links,
    temporary_path,
    write_error,
)
from crowdrank._files import (
    CACHE_FOLDER_NAME,
    DRAFT_NAME_PATTERN,
    MANIFEST_FILE_NAME,
    Rename,
    check_parent_folder,
    current_step,
    is_inside_draft,
    locked,
    mark_private_draft,
    recover,
    write_file,
    write_together,
)
from crowdrank.errors import InputError, shown

SYSTEM_FILE_NAMES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Names of files that operating systems create in folders; they are not user data."""


@dataclass(frozen=True)
class FolderKind:
    """Kind of folder that crowdrank writes.

    Attributes:
        name: identifier of the kind in the manifest.
        format: version of the layout; folders with another version are refused.
        title: what messages call such a folder.
        written_by: command or method that writes it, for messages.
        cache_names: pattern of the names of files in the cache subfolder, which the manifest omits; "" if none.
        optional: prefixes of the names of files that the user may delete.

    """

    name: str
    format: int
    title: str
    written_by: str
    cache_names: str = ""
    optional: tuple[str, ...] = ()


@contextmanager
def write_folder(path: str | Path, folder_kind: FolderKind) -> Iterator[Path]:
    """Yield an empty draft folder; when the block succeeds, it replaces the folder `path`.

    Raises:
        OutputError: `path` contains files that crowdrank did not write, or cannot be written.

    """
    target = resolve_links(path)
    if is_inside_draft(target):  # put in place with its parent folder
        target.mkdir()
        yield target
        write_manifest(target, folder_kind)
        return
    check_output_folder(path, folder_kind)
    with current_step(path) as step:
        draft = step.new_draft(target)
        _check_owned(path, target, folder_kind)
        draft.mkdir()
        with mark_private_draft(draft):
            yield draft
        write_manifest(draft, folder_kind)
        flush_tree(draft)
        step.renames.append(Rename(draft, target, file_digest(draft / MANIFEST_FILE_NAME)))


def check_output_folder(path: str | Path, folder_kind: FolderKind) -> None:
    """Raise OutputError if a folder of this kind cannot be written at `path`; call it before long work begins."""
    target = resolve_links(path)
    check_parent_folder(path, target)
    here = Path.cwd()
    if target == here or target in here.parents:
        raise write_error(path, "it is or contains the current folder", kind="current-folder", fix="name a new folder")
    if target.exists() and not target.is_dir():
        raise write_error(path, "it is a file, not a folder", kind="not-a-folder", fix="choose another name")
    if os.path.ismount(target):
        fix = f"name a folder in it: {Path(path) / folder_kind.name}"
        raise write_error(path, "a mount point cannot be replaced", kind="mount-point", fix=fix)
    _check_owned(path, target, folder_kind)


def _check_owned(path: str | Path, resolved_path: Path, folder_kind: FolderKind) -> None:
    """Raise OutputError unless a folder is empty or crowdrank wrote everything in it as this kind of folder."""
    if not resolved_path.is_dir() or not any(_user_entries(resolved_path)):
        return
    try:
        manifest = Manifest.read(resolved_path)
    except (OSError, ValueError) as problem:
        other = min(_user_entries(resolved_path))
        why = (
            "its crowdrank.json cannot be read"
            if (resolved_path / MANIFEST_FILE_NAME).exists()
            else f"it contains {other}"
        )
        reason = f"{why}; crowdrank did not write this folder"
        raise write_error(path, reason, kind="foreign-folder", fix="name a new folder") from problem
    if manifest.kind != folder_kind.name:
        reason = f"it is a folder of another kind ({manifest.kind})"
        raise write_error(path, reason, kind="other-kind", fix="name a new folder")
    foreign = next(_foreign_entries(resolved_path, manifest, folder_kind), None)
    if foreign is not None:
        reason, fixes = f"it contains {foreign}, which crowdrank did not write", ("move that file", "name a new folder")
        raise write_error(path, reason, kind="foreign-files", fix=fixes)


def _user_entries(folder: Path) -> Iterator[str]:
    return (entry.name for entry in folder.iterdir() if not _is_ignored(entry.name))


def _is_ignored(entry_name: str) -> bool:
    """Return whether an entry is a temporary file or a file of the operating system."""
    return (
        entry_name in (*SYSTEM_FILE_NAMES, f".{MANIFEST_FILE_NAME}.journal")
        or DRAFT_NAME_PATTERN.fullmatch(entry_name) is not None
        or SCRATCH_NAME_PATTERN.fullmatch(entry_name) is not None
    )


def _foreign_entries(folder: Path, manifest: Manifest, folder_kind: FolderKind) -> Iterator[str]:
    """Yield the relative paths of files that crowdrank did not write: neither in the manifest nor in the cache."""
    cached = re.compile(rf"{folder_kind.cache_names}|\.(?:{folder_kind.cache_names})\.lock")
    for name in _list_relative_paths(folder, only_direct_cache_entries=bool(folder_kind.cache_names)):
        place, _, within = name.partition("/")
        if within and place == CACHE_FOLDER_NAME and folder_kind.cache_names:
            if not cached.fullmatch(within):
                yield name
        elif name not in manifest.entries and name != MANIFEST_FILE_NAME:
            yield name


def _list_relative_paths(folder: Path, *, only_direct_cache_entries: bool = False) -> Iterator[str]:
    """Yield the relative paths of all files, links and empty folders (`name/`) below a folder.

    Temporary and system files are omitted. `only_direct_cache_entries` does not descend into folders of the cache.
    """
    for root, folders, files in os.walk(folder):
        relative_root = Path(root).relative_to(folder)
        unvisited = [name for name in folders if (Path(root) / name).is_symlink()]
        if only_direct_cache_entries and relative_root == Path(CACHE_FOLDER_NAME):
            unvisited = list(folders)
        if not folders and not files and relative_root not in (Path(), Path(CACHE_FOLDER_NAME)):
            yield f"{relative_root.as_posix()}/"
        folders[:] = [name for name in folders if name not in unvisited and not _is_ignored(name)]
        yield from ((relative_root / name).as_posix() for name in (*files, *unvisited) if not _is_ignored(name))


@dataclass(frozen=True)
class Manifest:
    """Contents of `crowdrank.json`: kind and layout version of a folder, crowdrank version and digests of its files."""

    kind: str
    format: int
    version: str
    entries: Mapping[str, str]  # SHA-256 by relative path with forward slashes

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder; raise OSError or ValueError if it is missing or invalid."""
        about = read_json(folder / MANIFEST_FILE_NAME)
        if not isinstance(about, dict):
            raise ValueError(f"{MANIFEST_FILE_NAME} is not an object")
        values = [about.get(name) for name in ("kind", "format", "crowdrank", "entries")]
        for value, wanted in zip(values, (str, int, str, dict), strict=True):
            if not isinstance(value, wanted):
                raise ValueError(f"{MANIFEST_FILE_NAME} is incomplete")
        entries = {str(name): str(digest) for name, digest in about["entries"].items()}
        unsafe = next((name for name in entries if not _is_inside_folder(name)), None)
        if unsafe is not None:
            raise ValueError(f"{MANIFEST_FILE_NAME} lists {unsafe!r}, which is outside of the folder")
        return cls(about["kind"], about["format"], about["crowdrank"], entries)

    def write(self, path: Path) -> None:
        """Write the manifest to a file."""
        about = {"crowdrank": self.version, "kind": self.kind, "format": self.format, "entries": dict(self.entries)}
        path.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _is_inside_folder(relative_path: str) -> bool:
    r"""Return whether a relative path stays inside its folder.

    >>> [_is_inside_folder(path) for path in ("a.csv", "model/trees.txt", "../a", "/etc", "a/../../b", "C:\\x", "")]
    [True, True, False, False, False, False, False]
    """
    parts = PurePosixPath(relative_path).parts
    return (
        bool(parts)
        and not relative_path.startswith("/")
        and not any(one == ".." or set(one) & set("\\:\0") for one in parts)
    )


def write_manifest(folder: Path, folder_kind: FolderKind) -> None:
    """Write a manifest that lists all files of a folder with their digests."""
    names = [
        name for name in sorted(_list_relative_paths(folder)) if name != MANIFEST_FILE_NAME and not name.endswith("/")
    ]
    entries = {name: file_digest(folder / name) for name in names}
    Manifest(folder_kind.name, folder_kind.format, crowdrank.__version__, entries).write(folder / MANIFEST_FILE_NAME)


def open_folder(path: str | Path, folder_kind: FolderKind) -> Manifest:
    """Check that a folder is of this kind and unchanged since crowdrank wrote it; return its manifest.

    Raises:
        InputError: there is no such folder, it is of another kind or version, or a file in it is missing or changed.

    """
    folder, fix = Path(path), f"name a folder written by {folder_kind.written_by}"
    if not folder.exists() and folder.parent.is_dir():
        recover(folder)
    if not folder.exists():
        raise InputError("there is no such folder", source=str(path), kind="no-folder", fix=fix)
    if not folder.is_dir():
        raise InputError("it is a file, not a folder", source=str(path), kind="not-a-folder", fix=fix)
    if temporary_path(folder / MANIFEST_FILE_NAME, "journal").exists():
        with locked(folder):
            pass  # completes the interrupted update
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError) as problem:
        why = (
            f"there is no {MANIFEST_FILE_NAME} in it"
            if isinstance(problem, FileNotFoundError)
            else str(problem).split("\n")[0]
        )
        text = f"it is not a {folder_kind.title} ({why})"
        raise InputError(text, source=str(path), kind="no-manifest", fix=fix) from problem
    if manifest.kind != folder_kind.name:
        text = f"it is not a {folder_kind.title} but a folder of kind '{manifest.kind}'"
        raise InputError(text, source=str(path), kind="other-kind", fix=fix)
    if manifest.format != folder_kind.format:
        raise InputError(
            f"it was written by crowdrank {manifest.version} in format {manifest.format}, and this is crowdrank "
            f"{crowdrank.__version__} with format {folder_kind.format}",
            source=str(path),
            kind="other-version",
            fix="create it again with this version",
        )
    _check_entries(path, manifest, folder_kind)
    return manifest


def _check_entries(path: str | Path, manifest: Manifest, folder_kind: FolderKind) -> None:
    """Raise InputError unless all files that the manifest lists exist and match their digests."""
    for name, digest in manifest.entries.items():
        file = Path(path) / name
        if not file.exists() and name.startswith(folder_kind.optional):
            continue
        if not file.is_file():
            text = f"there is no {name} in it"
            raise InputError(text, source=str(path), kind="missing-file", fix="create it again")
        if file_digest(file) != digest:
            text = f"{name} was changed after crowdrank wrote it"
            raise InputError(text, source=str(path), kind="changed-file", fix="create it again")


@contextmanager
def update_folder(path: str | Path, manifest: Manifest, file_name: str) -> Iterator[Path]:
    """Yield a draft path; after the block, put the draft into a folder as `file_name` and list it in the manifest."""
    folder = resolve_links(path)
    with locked(folder):
        if Manifest.read(folder) != manifest:
            reason = f"another process has changed {path}"
            raise write_error(file_name, reason, kind="changed", fix="run the command again")
        with write_together(folder / MANIFEST_FILE_NAME):
            with write_file(folder / file_name) as draft:
                yield draft
                digest = file_digest(draft)
            with write_file(folder / MANIFEST_FILE_NAME) as draft:
                replace(manifest, entries={**manifest.entries, file_name: digest}).write(draft)


def remove_folder(path: str | Path, folder_kind: FolderKind) -> None:
    """Delete a folder that crowdrank wrote, if it exists; raise OutputError if it contains files of others."""
    target = resolve_links(path)
    with locked(target):
        if not target.exists():
            return
        _check_owned(path, target, folder_kind)
        draft = new_draft_path(target)
        target.rename(draft)
        remove(draft)


def failure_reason(error: Exception, folder: str | Path) -> str:
    """Return the reason why a folder cannot be read, for a message.

    >>> failure_reason(FileNotFoundError(2, "No such file or directory", "./ranker.json"), ".")
    'there is no ranker.json in it'
    >>> failure_reason(KeyError("format"), "."), failure_reason(ValueError("It is odd."), ".")
    ("'format' is missing", 'It is odd')
    """
    if isinstance(error, OSError) and not Path(folder).exists():
        return "there is no such folder"
    if isinstance(error, NotADirectoryError):
        return "it is a file, not a folder"
    name = Path(os.fsdecode(error.filename)).name if isinstance(error, OSError) and error.filename else ""
    if isinstance(error, FileNotFoundError) and name:
        return f"there is no {name} in it"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}" if name else error.strerror
    return f"{error} is missing" if isinstance(error, KeyError) else str(error).split("\n")[0].rstrip(".")


READ_FAILURES = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    BufferError,
    MemoryError,
    RecursionError,
    pa.ArrowException,
)
"""Exceptions that reading a damaged file can raise."""
MAX_SAVED_FLOAT = 1e12
"""Maximum absolute value of a saved floating-point number."""
POSITIVE_RANGE = (1e-300, MAX_SAVED_FLOAT)
"""Minimum and maximum of saved numbers that must be positive."""
PROBABILITY_RANGE = (0.0, 1.0 + 1e-6)
"""Minimum and maximum of a saved probability, with a margin for rounding."""
MAX_SAVED_INTEGER = 2**53
"""Maximum absolute value of a saved integer."""


@contextmanager
def loading(path: str | Path, problem: str, fix: str = "name a folder written by save") -> Iterator[None]:
    """Convert any exception that reading a damaged file raises in the block into an InputError about its folder.

    >>> with loading("model", "it is not a saved model"):
    ...     raise ValueError("the history is not a list")
    Traceback (most recent call last):
    crowdrank.errors.InputError: model: it is not a saved model (the history is not a list); name a folder written by
    save.
    """
    try:
        yield
    except InputError:
        raise
    except READ_FAILURES as failure:
        if isinstance(failure.__context__, KeyboardInterrupt):  # numpy.load raises ValueError for it
            raise failure.__context__ from None
        why = failure_reason(failure, path) if isinstance(failure, Exception) else ""
        text = f"{problem} ({why or type(failure).__name__})"
        raise InputError(text, source=str(path), kind="damaged", fix=fix) from failure


def require(condition: object, problem: str) -> None:
    """Raise ValueError with the text `problem` unless the condition is true."""
    if not condition:
        raise ValueError(problem)


class Fields:
    """Type-checked access to the values of a JSON object; a missing or invalid value raises ValueError.

    >>> Fields({"shards": -1}).integer("shards")
    Traceback (most recent call last):
    ValueError: shards is not a whole number from 0 up: -1
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    @classmethod
    def read(cls, path: Path) -> Fields:
        """Read a JSON file that contains one object."""
        return cls.parse(path.read_text(encoding="utf-8"), path.name)

    @classmethod
    def parse(cls, text: str | bytes, name: str) -> Fields:
        """Parse the text of a JSON object; `name` is its name in messages."""
        values = json.loads(text)
        require(isinstance(values, dict), f"{name} is not an object")
        return cls(values)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        """Return the value of a key, which must be a string."""
        return str(self._value(name, is_text, "a text"))

    def flag(self, name: str) -> bool:
        """Return the value of a key, which must be a boolean."""
        return bool(self._value(name, lambda value: isinstance(value, bool), "true or false"))

    def integer(self, name: str, minimum: int = 0, maximum: int = MAX_SAVED_INTEGER) -> int:
        """Return the value of a key, which must be an integer in a range."""
        wanted = f"a whole number from {minimum} {'up' if maximum == MAX_SAVED_INTEGER else f'to {maximum}'}"
        return int(self._value(name, lambda value: is_integer(value) and minimum <= value <= maximum, wanted))

    def number(self, name: str) -> float:
        """Return the value of a key, which must be a finite number."""
        return float(self._value(name, is_finite, "a number"))

    def object(self, name: str) -> dict[str, Any]:
        """Return the value of a key, which must be a JSON object."""
        return dict(self._value(name, lambda value: isinstance(value, dict), "an object"))

    def sequence(
        self, name: str, is_valid: Callable[[Any], bool] = lambda value: True, description: str = "values"
    ) -> list[Any]:
        """Return the value of a key, which must be a list of values that `is_valid` accepts."""
        return list(
            self._value(
                name, lambda value: isinstance(value, list) and all(map(is_valid, value)), f"a list of {description}"
            )
        )

    def texts(self, name: str) -> list[str]:
        """Return the value of a key, which must be a list of strings."""
        return self.sequence(name, is_text, "texts")

    def numbers(self, name: str) -> list[float]:
        """Return the value of a key, which must be a list of numbers; NaN and infinity are valid."""
        return self.sequence(name, is_number, "numbers")

    def _value(self, name: str, is_valid: Callable[[Any], bool], expected: str) -> Any:
        require(name in self.values, f"there is no {name}")
        require(is_valid(self.values[name]), f"{name} is not {expected}: {shown(self.values[name])}")
        return self.values[name]


def is_text(value: object) -> bool:
    """Return whether a JSON value is a string that can be encoded as UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)


def is_integer(value: object) -> bool:
    """Return whether a JSON value is an integer of at most 2**53 in absolute value."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SAVED_INTEGER


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number; NaN and infinity are numbers."""
    return isinstance(value, float) or is_integer(value)


def is_finite(value: object) -> bool:
    """Return whether a JSON value is a finite number."""
    return is_number(value) and bool(np.isfinite(value))  # type: ignore[call-overload]


def is_scalar(value: object) -> bool:
    """Return whether a JSON value is a string, a number, a boolean or null."""
    return value is None or isinstance(value, bool) or is_text(value) or is_number(value)


def read_parquet(path: str | Path | pa.NativeFile) -> pa.Table:
    """Read a Parquet file and check its offsets, dictionary indices and UTF-8."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        table = file.read()
    return _validate_table(table)


def _validate_table(table: pa.Table) -> pa.Table:
    table.validate(full=True)
    require(len(set(table.column_names)) == table.num_columns, "a column occurs twice")
    return table


def read_ipc(path: Path) -> pa.Table:
    """Read an Arrow IPC file and check its offsets, dictionary indices and UTF-8."""
    with pa.OSFile(str(path)) as file:
        return _validate_table(pa.ipc.open_file(file).read_all())


_NPY_HEADER_PATTERN = re.compile(
    rb"\{'descr': '([<|]i[1248]|<f8)', 'fortran_order': False, 'shape': \((\d{1,15}),\), \} *\n"
)
_NPY_MAGIC = b"\x93NUMPY\x01\x00"


def read_array(stream: BinaryIO, array_name: str, dtype: Any, length: int | None = None) -> NDArray[Any]:
    """Read a one-dimensional array of integers or floats of the given dtype and length from an .npy file.

    The header is checked before memory is allocated for the values.
    """
    start = stream.read(len(_NPY_MAGIC) + 2)
    require(start.startswith(_NPY_MAGIC) and len(start) == len(_NPY_MAGIC) + 2, f"{array_name} is incomplete")
    header = _NPY_HEADER_PATTERN.fullmatch(stream.read(int.from_bytes(start[-2:], "little")))
    require(header is not None and np.dtype(header[1].decode()) == np.dtype(dtype), f"{array_name} has another type")
    assert header is not None
    n = int(header[2])
    require(length is None or n == length, f"{array_name} has {n} values instead of {length}")
    remaining = os.fstat(stream.fileno()).st_size - stream.tell()
    require(n * np.dtype(dtype).itemsize <= remaining, f"{array_name} is incomplete")
    values: NDArray[Any] = np.fromfile(stream, dtype, n)
    require(len(values) == n, f"{array_name} is incomplete")
    return values


def require_array(array_name: str, array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has the given dtype and shape."""
    expected = np.dtype(dtype)
    require(array.dtype == expected, f"{array_name} has type {array.dtype} instead of {expected}")
    require(array.shape == shape, f"{array_name} has shape {array.shape} instead of {shape}")


def require_floats(
    arrays: Mapping[str, NDArray[Any]],
    array_names: Iterable[str],
    shape: tuple[int, ...],
    minimum: float = -MAX_SAVED_FLOAT,
) -> None:
    """Raise ValueError unless all named arrays exist, are finite float64 of this shape, and at least `minimum`."""
    for name in array_names:
        require(name in arrays, f"there is no array {name}")
        require_array(name, arrays[name], np.float64, shape)
        require_range(name, arrays[name], minimum, MAX_SAVED_FLOAT)


def require_range(array_name: str, array: NDArray[Any], minimum: float, maximum: float) -> None:
    """Raise ValueError unless all values of an array are between `minimum` and `maximum`; NaN is not."""
    if array.size:
        smallest, largest = array.min(), array.max()
        require(
            minimum <= smallest and largest <= maximum, f"{array_name} has values outside of {minimum:g} to {maximum:g}"
        )
