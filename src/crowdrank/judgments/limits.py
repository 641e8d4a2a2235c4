"""Limits on the size of files, so that a damaged or hostile file cannot exhaust the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import BinaryIO

from crowdrank.errors import Fix, InputError, UsageError, shown

MAX_BYTES = 16 << 30
"""Default maximum number of decompressed bytes that are read from one file: 16 GiB."""
LONGEST_ROW = 1 << 26
"""Maximum length of one row of text: 64 MiB. A longer row usually has a quote that is never closed."""
LARGEST_RATIO = 1032
"""Maximum compression ratio of gzip (a limit of the format)."""
BYTES_PER_NUMBER = 8
CHUNK = 1 << 20
UNITS = {
    "": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


_default: ContextVar[int] = ContextVar("max_bytes", default=MAX_BYTES)


@contextmanager
def default_limit(size: str | int | None) -> Iterator[None]:
    """Set the default limit of all readers in the block; None leaves it unchanged."""
    token = _default.set(parse_bytes(size))
    try:
        yield
    finally:
        _default.reset(token)


def parse_bytes(size: str | int | None) -> int:
    """Return a number of bytes, written as a number or as in 500MB, 2GB or 2GiB; None returns the default limit.

    >>> parse_bytes("500MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (500000000, 1610612736, 4096)
    """
    if size is None:
        return _default.get()
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", str(size), re.ASCII)
    unit = match[2].upper() if match else ""
    n_bytes = int(Decimal(match[1]) * UNITS[unit]) if match and unit in UNITS else 0
    if n_bytes < 1:
        problem = f"must be a positive size such as 500MB, 2GB or 4096, not {shown(size)}"
        raise UsageError(problem, parameter="max_bytes")
    return n_bytes


def require_size(stream: BinaryIO, size: int, packed: bool, max_bytes: int, source: str) -> None:
    """Raise InputError if a file has more than `max_bytes` bytes; a compressed one is decompressed in small chunks.

    Args:
        stream: the decompressed bytes of the file.
        size: the size of the file on disk.
        packed: whether the file is compressed with gzip.
        max_bytes: the limit.
        source: the name of the file, for the message.
    """
    if packed and size * LARGEST_RATIO > max_bytes:
        size = 0
        while size <= max_bytes and (piece := stream.read(CHUNK)):
            size += len(piece)
    elif packed:
        return
    if size > max_bytes:
        raise too_large(source, f"{'decompressed, ' if packed else ''}it", max_bytes)


def too_large(source: str, what: str, max_bytes: int) -> InputError:
    """Return the error for data that would take more than `max_bytes` bytes."""
    fix = Fix("if it is the right file, raise the limit with {}", "max_bytes", "32GB")
    return InputError(f"{what} takes more than {max_bytes:,} bytes", source=source, kind="too-large", fix=fix)


def lines_of(stream: BinaryIO, source: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line, without a byte order mark; raise InputError at an overlong line."""
    for number, line in enumerate(iter(partial(stream.readline, LONGEST_ROW), b""), start=1):
        if len(line) == LONGEST_ROW and not line.endswith(b"\n"):
            raise too_long(source, f"line {number}")
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def too_long(source: str, place: str) -> InputError:
    """Return the error for a line that exceeds the maximum length."""
    problem = f"the line is longer than {LONGEST_ROW >> 20} MiB"
    return InputError(problem, source=source, place=place, fix="check that it is a text file in the right format")
