"""Find and open files on this machine or in a store that fsspec supports (s3://, gs://, memory://, ...)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from crowdrank._files import MANIFEST
from crowdrank._text import counted
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments.files import local_path, open_decompressed

PARQUET_SUFFIXES = (".parquet", ".pq")
"""File suffixes of Parquet files, in lower case."""
MAX_LISTED_FILES = 3
"""Maximum number of file names that a message lists."""


def is_remote(address: str | Path) -> bool:
    """Return whether an address has a protocol such as s3://, so that fsspec opens it.

    >>> is_remote("s3://bucket/labels"), is_remote("labels")
    (True, False)
    """
    return "://" in str(address)


def to_address(path: str | Path) -> str:
    """Return the address of a path: `s3:/bucket` becomes `s3://bucket`, and `file:///data` becomes `/data`.

    >>> to_address(Path("s3://bucket/labels")), to_address(Path("file:///data/labels"))
    ('s3://bucket/labels', '/data/labels')
    """
    path = local_path(path)
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]+):/(?=[^/])", r"\1://", str(path))


def is_database_url(address: str | Path) -> bool:
    """Return whether an address is a URL of PostgreSQL, with or without the slashes that `pathlib` removes.

    >>> is_database_url("postgresql://host/judging"), is_database_url(Path("postgresql://host/judging"))
    (True, True)
    """
    return re.match(r"postgres(ql(\+psycopg)?)?:/", str(address)) is not None


def is_parquet_folder(path: str | Path) -> bool:
    """Return whether a path is remote or a local folder with Parquet files; its judgments are not read into memory."""
    if is_remote(to_address(path)):
        return not is_database_url(path)
    folder = local_path(path)
    return folder.is_dir() and any(name.lower().endswith(PARQUET_SUFFIXES) for name in visible_files(folder))


def is_within(path: str | Path, folder: str | Path) -> bool:
    """Return whether a path is a local folder or inside it; output in a folder of judgments would be read as input.

    >>> is_within("labels/out", "labels"), is_within("out", "labels"), is_within("out", "s3://labels")
    (True, False, False)
    """
    return not is_remote(folder) and Path(path).resolve().is_relative_to(Path(folder).resolve())


def split_parquet_files(address: str | Path) -> tuple[list[str], list[str]]:
    """Return two lists of paths: the Parquet files of a folder and its subfolders, and the other visible files.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.parquet", "a.parquet", "_a.parquet", "c.csv"):
    ...     (folder / name).touch()
    >>> [[Path(name).name for name in names] for names in split_parquet_files(folder)]
    [['a.parquet', 'b.parquet'], ['c.csv']]
    """
    names = visible_files(address)
    files = [name for name in names if name.lower().endswith(PARQUET_SUFFIXES)]
    others = [name for name in names if not name.lower().endswith(PARQUET_SUFFIXES)]
    if not files:
        listed = f", only {describe_unread_files(others)}" if others else ""
        fixes = ["read them in memory with read_judgments", "write them as Parquet"]
        fixes = fixes if others else ["give a folder of .parquet files"]
        problem = f"there is no Parquet file in it{listed}"
        raise InputError(problem, source=str(address), kind="no-file", fix=fixes)
    return files, others


def visible_files(address: str | Path) -> list[str]:
    """Return the sorted paths of the files in a folder and its subfolders, except hidden files and the manifest."""
    names = _remote_files(str(address)) if is_remote(address) else _local_files(Path(address))
    top = "" if str(address) == "." else str(address).rstrip("/")
    parts = {name: [part for part in name.removeprefix(top).split("/") if part] for name in names}
    hidden = {name for name in names if any(part.startswith((".", "_")) for part in parts[name])}
    return sorted(name for name in names if name not in hidden and Path(name).name != MANIFEST)


def describe_unread_files(paths: Sequence[str]) -> str:
    """Return text for a message: the number of files, and the names of the first few.

    >>> describe_unread_files(["in/a.csv", "in/b.csv", "in/c.csv", "in/d.csv"]), describe_unread_files(["in/a.csv"])
    ('4 other files (a.csv, b.csv, c.csv, ...)', '1 other file (a.csv)')
    """
    names = ", ".join(file.rsplit("/", 1)[-1] for file in paths[:MAX_LISTED_FILES])
    more = ", ..." if len(paths) > MAX_LISTED_FILES else ""
    return f"{counted(len(paths), 'other file')} ({names}{more})"


def _local_files(folder: Path) -> list[str]:
    if folder.is_file():
        return [str(folder)]
    if not folder.is_dir():
        raise InputError("there is no such folder", source=str(folder), kind="no-file", fix="check the path")
    return [str(path) for path in folder.rglob("*") if path.is_file()]


def _remote_files(address: str) -> list[str]:
    system, path = _file_system(address)
    try:
        names = [system.unstrip_protocol(name) for name in system.find(path)]
    except Exception as problem:  # each store has its own errors
        raise _unreadable_error(address, problem) from problem
    if not names:
        raise InputError("there is no such folder", source=address, kind="no-file", fix="check the address")
    return names


def _file_system(address: str) -> tuple[Any, str]:
    """Return the fsspec file system of an address, and the path of the address in it."""
    try:
        import fsspec
    except ImportError as problem:
        text = f"Reading {address} needs fsspec, which is not installed: pip install 'crowdrank[dask]'."
        raise UsageError(text, kind="missing-package") from problem
    try:
        system_and_path: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except Exception as problem:  # unknown protocol, missing package, or missing settings
        reason = _first_line(problem)
        raise InputError(f"it cannot be reached ({reason})", source=address, fix="check the address") from problem
    return system_and_path


def _unreadable_error(address: str, error: Exception) -> InputError:
    reason = _first_line(error)
    return InputError(f"it cannot be read ({reason})", source=address, fix="check the address and your permissions")


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")[:160] or type(error).__name__


@contextmanager
def open_address(address: str) -> Iterator[BinaryIO]:
    """Open a local or remote file for reading bytes; raise InputError if it cannot be read."""
    if not is_remote(address):
        with open_decompressed(address, text=False) as stream:
            yield stream
        return
    system, path = _file_system(address)
    try:
        with system.open(path, "rb") as stream:
            yield stream
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as problem:
        raise _unreadable_error(address, problem) from problem


def file_version(address: str) -> tuple[Any, ...]:
    """Return values that change when a file changes: its size, and its modification time or ETag."""
    if not is_remote(address):
        about = Path(address).stat()
        return about.st_size, about.st_mtime_ns
    system, path = _file_system(address)
    try:
        info = system.info(path)
    except Exception as problem:  # each store has its own errors
        raise _unreadable_error(address, problem) from problem
    return tuple(str(info.get(name)) for name in ("size", "ETag", "etag", "mtime", "LastModified", "created"))
