"""Named arrays in a Parquet table, so that nothing is pickled."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from crowdrank.engine.base import Arrays


def arrays_to_table(arrays: Arrays) -> pa.Table:
    """One row per array: its name, dtype, shape and bytes.

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


def arrays_from_table(table: pa.Table) -> Arrays:
    """The arrays that :func:`arrays_to_table` put there."""
    return {
        row["name"]: np.frombuffer(row["bytes"], dtype=row["dtype"]).reshape(row["shape"]).copy()
        for row in table.to_pylist()
    }
