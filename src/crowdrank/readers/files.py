"""Open files here or in a store (s3://, gs://, ...): decompress, decode, limit the size, and explain failures.

FileHead.read(path)          -> first bytes, compression and encoding of a file, from which readers recognize it
open_decompressed(head)    -> stream of decompressed bytes, as UTF-8
arrow_file(head)           -> the same for Arrow
open_address(address)      -> stream of a local or remote file
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank._text import counted
from crowdrank.errors import Fix, InputError, UsageError, near, shown
from crowdrank.readers.sources import Source, no_rows_error

T = TypeVar("T")

MAX_BYTES = 16 << 30
"""Default maximum number of decompressed bytes that are read from one file: 16 GiB."""
MAX_LINE_BYTES = 1 << 26
"""Maximum number of bytes of one line of text: 64 MiB. A longer line usually has a quote that is never closed."""
MAX_GZIP_RATIO = 1032
"""Maximum compression ratio that gzip can reach."""
BYTES_PER_FLOAT = 8
"""Number of bytes of a float64."""
CHUNK_BYTES = 1 << 20
"""Number of bytes that are decompressed at a time to measure a file."""
BYTES_PER_UNIT = {"": 1} | {
    f"{prefix}{unit}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for unit, base in (("B", 1000), ("IB", 1024))
}
"""Number of bytes of each unit of size, in upper case."""

_default_max_bytes: ContextVar[int] = ContextVar("max_bytes", default=MAX_BYTES)
HEAD_BYTES = 1 << 20
"""Number of bytes at the start of a file that are read to recognize it."""
SQLITE_SIGNATURE = b"SQLite format 3\0"
"""First bytes of an SQLite file."""
COMPRESSIONS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zip": re.compile(rb"PK(\x03\x04|\x05\x06)"),
}
"""Regular expression for the first bytes of each kind of compressed file."""
WORKBOOK_PARTS = ("[Content_Types].xml", "mimetype")
"""Names of files in ZIP archives that are workbooks; these are read as they are."""
READ_ERRORS = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, csv.Error, UnicodeDecodeError, MemoryError),
    *(pa.ArrowException, RuntimeError),  # RuntimeError: a ZIP archive with a password
)
"""Errors of opening, decompressing and parsing a file."""
PARQUET_SUFFIXES = (".parquet", ".pq")
"""File suffixes of Parquet files, in lower case."""
MAX_LISTED_FILES = 3
"""Maximum number of file names that a message lists."""


@dataclass(eq=False)
class FileHead:
    """First bytes of a local file, from which its format, encoding, header and platform are detected.

    Attributes:
        path: the file.
        size: number of bytes on disk.
        compression: gzip, bz2, xz or zip, by the first bytes; None if the file is not compressed.
        uncompressed_name: name of the file without its folder and the suffix of its compression; of a ZIP archive, that
            of its file.
        content: the first HEAD_BYTES bytes when decompressed, as they are in the file.
        is_whole: whether `content` is all of the file; then nothing opens the file again.
        encoding: the encoding of a UTF-16 text; None for other files.

    """

    path: Path
    size: int
    compression: str | None
    uncompressed_name: str
    content: bytes
    is_whole: bool
    encoding: str | None

    @classmethod
    def read(cls, file: str | Path | FileHead) -> FileHead:
        """Read the head of a file, unless it is given; raise InputError if the file cannot be read."""
        if isinstance(file, FileHead):
            return file
        path = local_path(file)
        with explain_errors(path), _open_raw(path) as raw:
            size, kind = os.fstat(raw.fileno()).st_size, _detect_compression(raw)
            with _decompress(raw, kind, path) as stream:
                is_archive = kind == "zip" and path.suffix.lower() == ".zip"
                name = Path(stream.name).name if is_archive else uncompressed_name(path)
                content = stream.read(HEAD_BYTES)
        return cls(path, size, kind, name, content, len(content) < HEAD_BYTES, utf16_encoding(content))

    @cached_property
    def text(self) -> str:
        """The content as text; raise InputError if it is neither UTF-8 nor UTF-16."""
        decoder = codecs.getincrementaldecoder(self.encoding or "utf-8")()
        with explain_errors(self.path):
            return decoder.decode(self.content).removeprefix("\ufeff")

    def first_lines(self) -> BinaryIO:
        """Return a stream of the whole lines at the start of the file, as UTF-8."""
        content = self.content if self.encoding is None else self.text.encode()
        if not self.is_whole:
            content = content[: content.rfind(b"\n") + 1]
        return io.BytesIO(content)

    def drop_content(self) -> None:
        """Release the memory of the content; the file is opened again to be read."""
        self.content, self.is_whole = b"", False
        self.__dict__.pop("text", None)


class FileSource(Source):
    """A file."""

    def __init__(self, file: str | Path | FileHead) -> None:
        self.head = FileHead.read(file)
        self.path, self.name = self.head.path, str(self.head.path)

    @property
    def stem(self) -> str:
        """Name of the file without its folder and suffixes."""
        return Path(self.head.uncompressed_name).stem


class LineSource(FileSource):
    """A text file without a header, whose lines are rows; it has no column for the assessor."""

    has_assessor_column = False

    def __init__(self, file: str | Path | FileHead, names: Sequence[str]) -> None:
        super().__init__(file)
        self.names = list(names)
        self._lines: list[int] = []  # line number of each row

    def locate_row(self, row: int) -> str:
        """Return the location of a row for errors: its line in the file."""
        return f"line {self._lines[row]}"


@contextmanager
def default_max_bytes(max_bytes: str | int | None) -> Iterator[None]:
    """Set the default of `max_bytes` for all readers inside a `with` block; None leaves it unchanged."""
    token = _default_max_bytes.set(parse_bytes(max_bytes))
    try:
        yield
    finally:
        _default_max_bytes.reset(token)


def parse_bytes(size: str | int | None) -> int:
    """Parse a size such as 500MB, 2GiB or 4096 into a number of bytes; None returns the default of `max_bytes`.

    >>> parse_bytes("500MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (500000000, 1610612736, 4096)
    """
    if size is None:
        return _default_max_bytes.get()
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", str(size), re.ASCII)
    unit = match[2].upper() if match else ""
    n_bytes = int(Decimal(match[1]) * BYTES_PER_UNIT[unit]) if match and unit in BYTES_PER_UNIT else 0
    if n_bytes < 1:
        problem = f"must be a positive size such as 500MB, 2GB or 4096, not {shown(size)}"
        raise UsageError(problem, parameter="max_bytes")
    return n_bytes


def too_large_error(source: str, subject: str, max_bytes: int) -> InputError:
    """Return the error for a `subject` (file, cells, table) that takes more than `max_bytes` bytes."""
    fix = Fix("if it is the right file, raise the limit with {}", "max_bytes", "32GB")
    return InputError(f"{subject} takes more than {max_bytes:,} bytes", source=source, kind="too-large", fix=fix)


def numbered_lines(stream: BinaryIO, source: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) without a byte order mark; raise InputError if a line is too long."""
    for line_number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES), b""), start=1):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise line_too_long_error(source, f"line {line_number}")
        yield line_number, line.removeprefix(b"\xef\xbb\xbf") if line_number == 1 else line


def batched(rows: Iterable[T], batch_size: int) -> Iterator[list[T]]:
    """Yield lists of `batch_size` rows; the last may be shorter.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    remaining = iter(rows)
    while batch := list(islice(remaining, batch_size)):
        yield batch


def line_too_long_error(source: str, location: str) -> InputError:
    """Return the error for a line of more than MAX_LINE_BYTES bytes."""
    problem = f"the line is longer than {MAX_LINE_BYTES >> 20} MiB"
    return InputError(problem, source=source, place=location, fix="check that it is a text file in the right format")


def check_size(file: str | Path | FileHead, max_bytes: int = MAX_BYTES) -> None:
    """Raise InputError if a file has more than `max_bytes` bytes when decompressed."""
    head = FileHead.read(file)
    size = len(head.content) if head.is_whole else head.size
    if head.compression is not None and not head.is_whole:
        if head.compression == "gzip" and size * MAX_GZIP_RATIO <= max_bytes:
            return
        size = 0
        with open_decompressed(head, text=False) as stream:
            while size <= max_bytes and (piece := stream.read(CHUNK_BYTES)):
                size += len(piece)
    if size > max_bytes:
        raise too_large_error(str(head.path), "it" if head.compression is None else "decompressed, it", max_bytes)


@contextmanager
def open_decompressed(file: str | Path | FileHead, *, text: bool = True) -> Iterator[BinaryIO]:
    """Open a file as a stream of decompressed bytes; raise InputError if it cannot be opened, or read in the block.

    Args:
        file: the path of the file, or its head.
        text: whether it is a text file, which is converted from UTF-16 to UTF-8.

    """
    path = file.path if isinstance(file, FileHead) else local_path(file)
    with explain_errors(path, text):
        if isinstance(file, FileHead) and file.is_whole:
            encoding = file.encoding if text else None
            yield io.BytesIO(file.content if encoding is None else file.content.decode(encoding).encode())
            return
        with _open_raw(path) as raw, _decompress(raw, _detect_compression(raw), path) as stream:
            encoding = utf16_encoding(stream.peek(4)) if text else None
            yield stream if encoding is None else io.BytesIO(stream.read().decode(encoding).encode())


@contextmanager
def arrow_file(file: str | Path | FileHead, *, text: bool = True) -> Iterator[Callable[[], pa.NativeFile]]:
    """Open a file for Arrow; yield a function that returns it from its start, each time it is called.

    It is no Python file object, because Arrow's threads may outlive the interpreter.
    """
    head = FileHead.read(file)
    with explain_errors(head.path, text):
        if head.is_whole or head.compression in ("xz", "zip") or (text and head.encoding is not None):
            with open_decompressed(head, text=text) as stream:
                buffer = pa.py_buffer(stream.read())
            yield lambda: pa.BufferReader(buffer)
            return
        with pa.OSFile(os.fsencode(head.path)) as raw:
            streams: list[pa.NativeFile] = []  # a stream that is released closes the file

            def rewind() -> pa.NativeFile:
                raw.seek(0)
                streams.append(raw if head.compression is None else pa.CompressedInputStream(raw, head.compression))
                return streams[-1]

            yield rewind


@contextmanager
def explain_errors(path: Path, text: bool = True) -> Iterator[None]:
    """Raise errors of opening, decompressing and parsing a file as InputError."""
    try:
        yield
    except InputError:
        raise
    except READ_ERRORS as problem:
        raise _unreadable_error(path, problem, text) from problem


def _unreadable_error(path: Path, error: Exception, text: bool) -> InputError:
    """Return the error for a file that cannot be opened or parsed."""
    reason = str(getattr(error, "strerror", None) or error).split("\n")[0].rstrip(".")[:160]
    match error:
        case FileNotFoundError() | NotADirectoryError():
            problem = f"there is no such file{near(path.name, _list_sibling_names(path))}"
            return InputError(problem, source=str(path), kind="no-file", fix="check the path")
        case IsADirectoryError():
            return InputError("this is a folder", source=str(path), kind="folder", fix="give a file in it")
        case PermissionError():
            return InputError("it may not be read", source=str(path), fix="check its permissions")
        case UnicodeDecodeError() if error.encoding.startswith("utf-16"):
            return InputError("the text is not valid UTF-16", source=str(path), kind="encoding", fix="save it as UTF-8")
        case UnicodeDecodeError():
            return encoding_error(path, first_undecodable_line(path) if text else "")
        case pa.ArrowInvalid() if "UTF8" in reason:
            return encoding_error(path, first_undecodable_line(path) if text else "")
        case pa.ArrowInvalid() if "Empty CSV" in reason:
            return no_rows_error(str(path))
        case MemoryError():
            advice = "use a machine with more memory, or download it again if it is damaged"
            return InputError("there is not enough memory to read it", source=str(path), fix=advice)
    advice = "it may be truncated, damaged or in another format"
    return InputError(f"it cannot be read ({reason})", source=str(path), kind="damaged", fix=advice)


def _list_sibling_names(path: Path) -> list[str]:
    """Return the names in the folder of a path, none if it cannot be listed."""
    try:
        return [other.name for other in path.parent.iterdir()]
    except OSError:
        return []


def encoding_error(path: Path, location: str) -> InputError:
    """Return the error for a text file that is neither UTF-8 nor UTF-16."""
    problem = "the text is neither UTF-8 nor UTF-16"
    return InputError(problem, source=str(path), place=location, kind="encoding", fix="save it as UTF-8")


def first_undecodable_line(path: Path) -> str:
    """Return the location of the first line that is not UTF-8, or nothing."""
    with open_decompressed(path) as stream:
        for line_number, line in numbered_lines(stream, str(path)):
            if line.decode(errors="replace").encode() != line:
                return f"line {line_number}"
    return ""


def utf16_encoding(first_bytes: bytes) -> str | None:
    """Return the encoding of a UTF-16 text, detected from its first four bytes, or None if it is not UTF-16.

    The bytes begin with a byte order mark, or every second one is zero.

    >>> [utf16_encoding("a,b".encode(encoding)) for encoding in ("utf-16", "utf-16-be", "utf-8")]
    ['utf-16', 'utf-16-be', None]
    """
    if first_bytes.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [byte == 0 for byte in first_bytes[:4]]
    patterns = {"utf-16-le": [False, True, False, True], "utf-16-be": [True, False, True, False]}
    return next((encoding for encoding, pattern in patterns.items() if zeros == pattern), None)


def uncompressed_name(path: str | Path) -> str:
    """Return the name of a file without its folder and the suffix of its compression.

    >>> uncompressed_name("labels/ann.csv.gz"), uncompressed_name("ann.csv")
    ('ann.csv', 'ann.csv')
    """
    path = local_path(path)
    return path.name[: -len(path.suffix)] if path.suffix.lower() in (".gz", ".bz2", ".xz", ".zip") else path.name


def _open_raw(path: Path) -> BinaryIO:
    """Open a file as it is stored; raise InputError if it is no regular file."""
    try:
        is_valid = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise InputError("there is no such file", source=repr(str(path)), kind="no-file", fix="check the path")
    if path.exists() and not path.is_file() and not path.is_dir():
        problem = "this is a pipe or a device, which cannot be read twice"
        raise InputError(problem, source=str(path), fix="save its content as a file first")
    return path.open("rb")


def _detect_compression(stream: BinaryIO) -> str | None:
    """Return how an open file is compressed (gzip, bz2, xz or zip) by its first bytes; None if it is not."""
    start = stream.read(10)
    stream.seek(0)
    kind = next((kind for kind, signature in COMPRESSIONS.items() if signature.match(start)), None)
    if kind != "zip":
        return kind
    with zipfile.ZipFile(stream) as archive:
        is_workbook = bool(set(WORKBOOK_PARTS).intersection(archive.namelist()))
    stream.seek(0)
    return None if is_workbook else kind


def _decompress(stream: BinaryIO, compression: str | None, path: Path) -> Any:
    """Return a buffered stream of the decompressed bytes of an open file."""
    match compression:
        case "gzip":
            return gzip.open(stream)
        case "bz2":
            return bz2.open(stream)
        case "xz":
            return lzma.open(stream)
        case "zip":
            archive = zipfile.ZipFile(stream)
            return archive.open(_single_zip_member(path, archive))
    return stream


def _single_zip_member(path: Path, archive: zipfile.ZipFile) -> str:
    """Return the name of the only file in a ZIP archive; raise InputError if there are none or several."""
    names = [name for name in archive.namelist() if not name.startswith("__MACOSX/") and not name.endswith("/")]
    if len(names) != 1:
        listed = f": {', '.join(map(shown, names[:5]))}{', ...' if len(names) > 5 else ''}" if names else ""
        problem = f"it is a ZIP archive of {len(names)} files{listed}"
        fix = "unpack it and give the files or their folder"
        raise InputError(problem, source=str(path), kind="archive", fix=fix)
    return names[0]


# Addresses and folders.


def local_path(path: str | Path) -> Path:
    """Return the path in a `file:` address; other paths are returned unchanged.

    >>> str(local_path("file:///data/a.csv")), str(local_path(Path("file:///data/a.csv"))), str(local_path("a.csv"))
    ('/data/a.csv', '/data/a.csv', 'a.csv')
    """
    text = str(path)
    if not text.startswith("file:/"):
        return Path(path)
    return Path("/" + text.removeprefix("file:").removeprefix("//localhost/").lstrip("/"))


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


def is_within(path: str | Path, folder: str | Path) -> bool:
    """Return whether a path is a local folder or inside it; output in a folder of judgments would be read as input.

    >>> is_within("labels/out", "labels"), is_within("out", "labels"), is_within("out", "s3://labels")
    (True, False, False)
    """
    return not is_remote(folder) and Path(path).resolve().is_relative_to(Path(folder).resolve())


def is_parquet_folder(path: str | Path) -> bool:
    """Return whether a path is remote or a local folder with Parquet files; its judgments are not read into memory."""
    if is_remote(to_address(path)):
        return not is_database_url(path)
    folder = local_path(path)
    return folder.is_dir() and any(name.lower().endswith(PARQUET_SUFFIXES) for name in visible_files(folder))


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
    return sorted(name for name in names if name not in hidden and Path(name).name != MANIFEST_FILE_NAME)


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
        raise _unreadable_address_error(address, problem) from problem
    if not names:
        raise InputError("there is no such folder", source=address, kind="no-file", fix="check the address")
    return names


def describe_unread_files(paths: Sequence[str]) -> str:
    """Return text for a message: the number of files, and the names of the first few.

    >>> describe_unread_files(["in/a.csv", "in/b.csv", "in/c.csv", "in/d.csv"]), describe_unread_files(["in/a.csv"])
    ('4 other files (a.csv, b.csv, c.csv, ...)', '1 other file (a.csv)')
    """
    names = ", ".join(file.rsplit("/", 1)[-1] for file in paths[:MAX_LISTED_FILES])
    more = ", ..." if len(paths) > MAX_LISTED_FILES else ""
    return f"{counted(len(paths), 'other file')} ({names}{more})"


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
        raise _unreadable_address_error(address, problem) from problem


def file_version(address: str) -> tuple[Any, ...]:
    """Return values that change when a file changes: its size, and its modification time or ETag."""
    if not is_remote(address):
        about = Path(address).stat()
        return about.st_size, about.st_mtime_ns
    system, path = _file_system(address)
    try:
        info = system.info(path)
    except Exception as problem:  # each store has its own errors
        raise _unreadable_address_error(address, problem) from problem
    return tuple(str(info.get(name)) for name in ("size", "ETag", "etag", "mtime", "LastModified", "created"))


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


def _unreadable_address_error(address: str, error: Exception) -> InputError:
    reason = _first_line(error)
    return InputError(f"it cannot be read ({reason})", source=address, fix="check the address and your permissions")


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")[:160] or type(error).__name__
