"""Read and validate files that crowdrank saved; a damaged or altered file raises an InputError.

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
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._folders import failure_reason
from crowdrank.errors import InputError, shown

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
LARGEST = 1e12
"""Maximum absolute value of a saved floating-point number."""
POSITIVE = (1e-300, LARGEST)
"""Minimum and maximum of a saved positive number."""
PROBABILITY = (0.0, 1.0 + 1e-6)
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
    arrays: Mapping[str, NDArray[Any]], array_names: Iterable[str], shape: tuple[int, ...], minimum: float = -LARGEST
) -> None:
    """Raise ValueError unless all named arrays exist, are finite float64 of this shape, and at least `minimum`."""
    for name in array_names:
        require(name in arrays, f"there is no array {name}")
        require_array(name, arrays[name], np.float64, shape)
        require_range(name, arrays[name], minimum, LARGEST)


def require_range(array_name: str, array: NDArray[Any], minimum: float, maximum: float) -> None:
    """Raise ValueError unless all values of an array are between `minimum` and `maximum`; NaN is not."""
    if array.size:
        smallest, largest = array.min(), array.max()
        require(
            minimum <= smallest and largest <= maximum, f"{array_name} has values outside of {minimum:g} to {maximum:g}"
        )
