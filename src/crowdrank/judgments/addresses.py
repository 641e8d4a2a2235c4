"""Files by their address: a path here, or whatever fsspec reaches (s3://, gs://, memory://, ...)."""

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
from crowdrank.judgments.sources import local_path, opened

SUFFIXES = (".parquet", ".pq")
MOST_NAMED = 3


def is_remote(address: str | Path) -> bool:
    """Whether an address is one for fsspec.

    >>> is_remote("s3://bucket/labels"), is_remote("labels")
    (True, False)
    """
    return "://" in str(address)


def address_of(path: str | Path) -> str:
    """Return a path as an address: give `s3:/bucket` its slash back, and make `file:///data` a plain path.

    >>> address_of(Path("s3://bucket/labels")), address_of(Path("file:///data/labels"))
    ('s3://bucket/labels', '/data/labels')
    """
    path = local_path(path)
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]+):/(?=[^/])", r"\1://", str(path))


def is_folder(path: str | Path) -> bool:
    """Return whether an address is one of partitions: a folder of this machine, or anything elsewhere."""
    return is_remote(address_of(path)) or local_path(path).is_dir()


def is_within(path: str | Path, address: str | Path) -> bool:
    """Whether a path is that of a folder, or of something in it: what is written there would be read the next time.

    >>> is_within("labels/out", "labels"), is_within("out", "labels"), is_within("out", "s3://labels")
    (True, False, False)
    """
    return not is_remote(address) and Path(path).resolve().is_relative_to(Path(address).resolve())


def partition_files(address: str | Path) -> tuple[list[str], list[str]]:
    """The Parquet files of a folder and of the folders in it, and its other files; hidden ones are none.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.parquet", "a.parquet", "_a.parquet", "c.csv"):
    ...     (folder / name).touch()
    >>> [[Path(name).name for name in names] for names in partition_files(folder)]
    [['a.parquet', 'b.parquet'], ['c.csv']]
    """
    found = _remote_files(str(address)) if is_remote(address) else _local_files(Path(address))
    top = str(address).rstrip("/")
    inside = {name: name.removeprefix(top) for name in found}
    seen = sorted(name for name in found if not any(part[:1] in (".", "_") for part in inside[name].split("/") if part))
    files = [name for name in seen if name.lower().endswith(SUFFIXES)]
    others = [name for name in seen if not name.lower().endswith(SUFFIXES) and Path(name).name != MANIFEST]
    if not files and others:
        raise InputError(
            f"a folder is read by its Parquet files, and there is none in it, only {listed(others)}",
            source=str(address),
            fix=f"name one of them itself, as in {others[0]}, or write them as Parquet",
        )
    if not files:
        raise InputError("there is no Parquet file in it", source=str(address), fix="name a folder of .parquet files")
    return files, others


def listed(files: Sequence[str]) -> str:
    """How many files, and the names of the first.

    >>> listed(["in/a.csv", "in/b.csv", "in/c.csv", "in/d.csv"]), listed(["in/a.csv"])
    ('4 other files (a.csv, b.csv, c.csv, ...)', '1 other file (a.csv)')
    """
    names = ", ".join(file.rsplit("/", 1)[-1] for file in files[:MOST_NAMED])
    more = ", ..." if len(files) > MOST_NAMED else ""
    return f"{counted(len(files), 'other file')} ({names}{more})"


def _local_files(folder: Path) -> list[str]:
    if folder.is_file():
        return [str(folder)]
    if not folder.is_dir():
        raise InputError("there is no such folder", source=str(folder), fix="check the path")
    return [str(path) for path in folder.rglob("*") if path.is_file()]


def _remote_files(address: str) -> list[str]:
    system, path = _file_system(address)
    try:
        found = [system.unstrip_protocol(name) for name in system.find(path)]
    except Exception as problem:  # every store has its own
        raise _unreachable(address, problem) from problem
    if not found:
        raise InputError("there is no such folder", source=address, fix="check the address")
    return found


def _file_system(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as problem:
        raise UsageError(
            f"Reading {address} needs fsspec, which is not installed: pip install 'crowdrank[dask]'."
        ) from problem
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except Exception as problem:  # no such protocol, its package is missing, or it needs more than an address
        reason = _first_line(problem)
        raise InputError(f"it cannot be reached ({reason})", source=address, fix="check the address") from problem
    return found


def _unreachable(address: str, problem: Exception) -> InputError:
    reason = _first_line(problem)
    return InputError(f"it cannot be read ({reason})", source=address, fix="check the address and your rights")


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n")[0].rstrip(".")[:160] or type(problem).__name__


@contextmanager
def opened_at(address: str) -> Iterator[BinaryIO]:
    """Open the bytes of a file wherever it is; every problem with it is an `InputError`."""
    if not is_remote(address):
        with opened(address, text=False) as stream:
            yield stream
        return
    system, path = _file_system(address)
    try:
        with system.open(path, "rb") as stream:
            yield stream
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as problem:
        raise _unreachable(address, problem) from problem


def version_of(address: str) -> tuple[Any, ...]:
    """Return what changes where a file does: its size, and when or how it was last written."""
    if not is_remote(address):
        about = Path(address).stat()
        return about.st_size, about.st_mtime_ns
    system, path = _file_system(address)
    try:
        told = system.info(path)
    except Exception as problem:  # every store has its own
        raise _unreachable(address, problem) from problem
    return tuple(str(told.get(name)) for name in ("size", "ETag", "etag", "mtime", "LastModified", "created"))
