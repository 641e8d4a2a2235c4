"""Convert between NumPy and Arrow arrays without importing pandas, and return unused memory to the system.

`pa.array`, `pa.scalar` and `Array.to_numpy` import pandas if it is installed, which takes longer than a small fit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_STATM = Path("/proc/self/statm")
"""File in which Linux states the memory of a process in pages: total, resident, ..."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Return the resident memory of this process; the maximum so far where it is not known, as on macOS.

    >>> 0 <= resident_bytes() < 2**50
    True
    """
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    """Return the maximum resident memory of this process so far; 0 on Windows, which does not state it."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def trim_heap() -> None:
    """Return freed memory to the system; glibc keeps that of arrays of less than 32 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


MIN_ROWS_TO_RELEASE = 1 << 20
"""Minimum number of rows of a table whose memory is returned to the system at once."""


def release_unused_memory(n_rows: int) -> None:
    """Return the memory of freed columns of a large table to the system; Arrow and the C library would keep it."""
    if n_rows >= MIN_ROWS_TO_RELEASE:
        pa.default_memory_pool().release_unused()
        trim_heap()


def to_numpy(array: pa.Array) -> NDArray[Any]:
    """Return a view of an array of numbers, or the values of an array of booleans; those of nulls are undefined.

    >>> array = from_numpy(np.array([True, False, True])).slice(1)
    >>> to_numpy(array).tolist()
    [False, True]
    """
    data, start, stop = array.buffers()[1], array.offset, array.offset + len(array)
    if not len(array):
        return np.empty(0, array.type.to_pandas_dtype())
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=stop, bitorder="little")
        return bits[start:].astype(np.bool_)
    return np.frombuffer(data, array.type.to_pandas_dtype(), stop)[start:]


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Return an array of numbers or booleans as an Arrow array; NaN stays NaN.

    >>> from_numpy(np.array([1, 2], np.int32)).type
    DataType(int32)
    """
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])


def to_array(values: NDArray[Any] | Sequence[Any]) -> pa.Array:
    """Return numbers of an array, or a few integers or texts of a sequence, as an Arrow array.

    >>> to_array([1, 2]).type, to_array(("bad", "good")).type
    (DataType(int64), DataType(string))
    """
    if isinstance(values, np.ndarray):
        return from_numpy(values)
    if all(type(value) is str for value in values):
        return texts_to_arrow(values)
    return from_numpy(np.array(values, np.int64)) if all(type(value) is int for value in values) else pa.array(values)


def to_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of NumPy and Arrow columns."""
    return pa.table(
        {name: from_numpy(column) if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    )


def texts_to_arrow(texts: Sequence[str]) -> pa.Array:
    """Return a few texts as an Arrow array.

    >>> texts_to_arrow(["a", "bc"]).to_pylist()
    ['a', 'bc']
    """
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )
