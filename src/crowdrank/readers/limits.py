"""Limits on the size of files, so that a damaged or hostile file cannot exhaust the memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import BinaryIO, TypeVar

from crowdrank.errors import Fix, InputError, UsageError, shown

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


def line_too_long_error(source: str, place: str) -> InputError:
    """Return the error for a line of more than MAX_LINE_BYTES bytes."""
    problem = f"the line is longer than {MAX_LINE_BYTES >> 20} MiB"
    return InputError(problem, source=source, place=place, fix="check that it is a text file in the right format")
