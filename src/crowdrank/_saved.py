"""Read and validate files that crowdrank saved; a damaged or altered file raises one InputError.

with loading(folder, "it is not a saved model"):     # any failure inside becomes an InputError
about = Fields.read(folder / "model.json")       # typed JSON values
table = read_parquet(folder / "documents.parquet")
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._folders import reason
from crowdrank.errors import InputError, shown

DAMAGE = (
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
LARGEST = 1e12
"""Largest absolute value of a saved number."""
POSITIVE = (1e-300, LARGEST)
"""Range of a positive number."""
PROBABILITY = (0.0, 1.0 + 1e-6)
"""Range of a probability, with a margin for rounding."""
LARGEST_WHOLE = 2**53
"""Largest saved whole number."""


@contextmanager
def loading(path: str | Path, problem: str, fix: str = "name a folder written by save") -> Iterator[None]:
    """Convert every failure to read saved files into an InputError about their folder.

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
    except DAMAGE as failure:
        why = reason(failure, path) if isinstance(failure, Exception) else ""
        text = f"{problem} ({why or type(failure).__name__})"
        raise InputError(text, source=str(path), kind="damaged", fix=fix) from failure


def require(condition: object, problem: str) -> None:
    """Raise ValueError with this problem unless the condition holds."""
    if not condition:
        raise ValueError(problem)


class Fields:
    """Values of a JSON object, read with their types; a missing or wrong value raises ValueError.

    >>> Fields({"shards": -1}).whole("shards")
    Traceback (most recent call last):
    ValueError: shards is not a whole number from 0 up: -1
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    @classmethod
    def read(cls, path: Path) -> Fields:
        """Read a JSON file with one object."""
        return cls.parse(path.read_text(encoding="utf-8"), path.name)

    @classmethod
    def parse(cls, text: str | bytes, name: str) -> Fields:
        """Parse a JSON object."""
        values = json.loads(text)
        require(isinstance(values, dict), f"{name} is not an object")
        return cls(values)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        """Return a string."""
        return str(self._value(name, is_text, "a text"))

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        return bool(self._value(name, lambda value: isinstance(value, bool), "true or false"))

    def whole(self, name: str, low: int = 0, high: int = LARGEST_WHOLE) -> int:
        """Return a whole number in a range."""
        wanted = f"a whole number from {low} {'up' if high == LARGEST_WHOLE else f'to {high}'}"
        return int(self._value(name, lambda value: is_whole(value) and low <= value <= high, wanted))

    def number(self, name: str) -> float:
        """Return a finite number."""
        return float(self._value(name, is_finite, "a number"))

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object."""
        return dict(self._value(name, lambda value: isinstance(value, dict), "an object"))

    def sequence(self, name: str, accept: Callable[[Any], bool] = lambda value: True, of: str = "values") -> list[Any]:
        """Return a list of values for which `accept` returns True."""
        return list(
            self._value(name, lambda value: isinstance(value, list) and all(map(accept, value)), f"a list of {of}")
        )

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        return self.sequence(name, is_text, "texts")

    def numbers(self, name: str) -> list[float]:
        """Return a list of numbers, which may be NaN or infinite."""
        return self.sequence(name, is_number, "numbers")

    def _value(self, name: str, accept: Callable[[Any], bool], wanted: str) -> Any:
        require(name in self.values, f"there is no {name}")
        require(accept(self.values[name]), f"{name} is not {wanted}: {shown(self.values[name])}")
        return self.values[name]


def is_text(value: object) -> bool:
    """Return whether a JSON value is a string that can be encoded as UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)


def is_whole(value: object) -> bool:
    """Return whether a JSON value is an integer of at most `LARGEST_WHOLE` in absolute value."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, float) or is_whole(value)


def is_finite(value: object) -> bool:
    """Return whether a JSON value is a finite number."""
    return is_number(value) and bool(np.isfinite(value))  # type: ignore[call-overload]


def is_scalar(value: object) -> bool:
    """Return whether a JSON value is a string, a number, a boolean or null."""
    return value is None or isinstance(value, bool) or is_text(value) or is_number(value)


def read_parquet(path: str | Path | pa.NativeFile) -> pa.Table:
    """Read a Parquet file and check its offsets, dictionary indices and UTF-8."""
    with pq.ParquetFile(path) as file:
        table = file.read()
    return _checked_table(table)


def _checked_table(table: pa.Table) -> pa.Table:
    table.validate(full=True)
    require(len(set(table.column_names)) == table.num_columns, "a column occurs twice")
    return table


def read_ipc(path: Path) -> pa.Table:
    """Read an Arrow IPC file and check its offsets, dictionary indices and UTF-8."""
    with pa.OSFile(str(path)) as file:
        return _checked_table(pa.ipc.open_file(file).read_all())


_HEADER = re.compile(rb"\{'descr': '([<|]i[1248])', 'fortran_order': False, 'shape': \((\d{1,15}),\), \} *\n")
_MAGIC = b"\x93NUMPY\x01\x00"


def read_array(stream: BinaryIO, name: str, dtype: Any, length: int | None = None) -> NDArray[Any]:
    """Read a one-dimensional integer array with this type and length from an .npy file.

    The header is checked before memory is allocated for the values.
    """
    start = stream.read(len(_MAGIC) + 2)
    require(start.startswith(_MAGIC) and len(start) == len(_MAGIC) + 2, f"{name} is incomplete")
    header = _HEADER.fullmatch(stream.read(int.from_bytes(start[-2:], "little")))
    require(header is not None and np.dtype(header[1].decode()) == np.dtype(dtype), f"{name} has another type")
    assert header is not None
    n = int(header[2])
    require(length is None or n == length, f"{name} has {n} values instead of {length}")
    remaining = os.fstat(stream.fileno()).st_size - stream.tell()
    require(n * np.dtype(dtype).itemsize <= remaining, f"{name} is incomplete")
    values: NDArray[Any] = np.fromfile(stream, dtype, n)
    require(len(values) == n, f"{name} is incomplete")
    return values


def require_array(name: str, array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has this type and shape."""
    expected = np.dtype(dtype)
    require(array.dtype == expected, f"{name} has type {array.dtype} instead of {expected}")
    require(array.shape == shape, f"{name} has shape {array.shape} instead of {shape}")


def require_floats(
    arrays: Mapping[str, NDArray[Any]], names: Iterable[str], shape: tuple[int, ...], low: float = -LARGEST
) -> None:
    """Raise ValueError unless all named arrays exist and are float64, of this shape, finite and at least `low`."""
    for name in names:
        require(name in arrays, f"there is no array {name}")
        require_array(name, arrays[name], np.float64, shape)
        require_range(name, arrays[name], low, LARGEST)


def require_range(name: str, array: NDArray[Any], low: float, high: float) -> None:
    """Raise ValueError unless all values are between two bounds; NaN is not."""
    if array.size:
        smallest, largest = array.min(), array.max()
        require(low <= smallest and largest <= high, f"{name} has values outside of {low:g} to {high:g}")
