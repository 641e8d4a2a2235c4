"""Save and load named arrays as a Parquet table, without pickle."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._saved import MAX_SAVED_INTEGER, read_parquet, require
from crowdrank._typing import Arrays

SAVED_DTYPES = ("<f8", "<f4", "<i8", "<i4", "|i1", "|b1")
"""NumPy dtypes that saved arrays can have."""
MAX_DIMENSIONS = 8
"""Maximum number of dimensions of a saved array."""


def arrays_to_table(arrays: Arrays) -> pa.Table:
    """Return a table with one row per array: name, dtype, shape and bytes.

    >>> arrays_from_table(arrays_to_table({"a": np.arange(4.0).reshape(2, 2)}))["a"].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    return pa.table(
        {
            "name": list(arrays),
            "dtype": [array.dtype.str for array in arrays.values()],
            "shape": pa.array([list(array.shape) for array in arrays.values()], pa.list_(pa.int64())),
            "bytes": pa.array([array.tobytes() for array in arrays.values()], pa.large_binary()),
        }
    )


def read_arrays(path: Path) -> Arrays:
    """Read arrays from a Parquet file that holds a table made by :func:`arrays_to_table`."""
    return arrays_from_table(read_parquet(path))


def arrays_from_table(table: pa.Table) -> Arrays:
    """Return the arrays by name; raise ValueError if dtype, shape and number of bytes of one are inconsistent."""
    require(table.column_names == ["name", "dtype", "shape", "bytes"], "it is not a table of arrays")
    arrays: Arrays = {}
    for name, dtype, shape, data in zip(*(column.to_pylist() for column in table.columns), strict=True):
        require(isinstance(name, str) and name not in arrays, "the name of an array is missing or occurs twice")
        require(dtype in SAVED_DTYPES, f"the array {name} has another type")
        require(isinstance(data, bytes) and isinstance(shape, list), f"the array {name} is incomplete")
        sizes = [size for size in shape if isinstance(size, int) and 0 <= size <= MAX_SAVED_INTEGER]
        expected = math.prod(sizes) * np.dtype(dtype).itemsize
        require(
            len(sizes) == len(shape) <= MAX_DIMENSIONS and expected == len(data), f"the array {name} has another shape"
        )
        arrays[name] = np.frombuffer(data, dtype).reshape(sizes).copy()
    return arrays
