"""Ids of any type as int32 codes, in order of first appearance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def encode(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes (n,) with -1 for a missing id, and the ids that the codes stand for.

    >>> codes, ids = encode(pa.chunked_array([["b", "a", None, "b"]]))
    >>> codes.tolist(), ids.to_pylist()
    ([0, 1, -1, 0], ['b', 'a'])
    """
    column = _as_ids(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunk = column.unify_dictionaries().combine_chunks()
    chunk = chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
    ids = chunk.dictionary
    if not pa.types.is_integer(ids.type):
        ids = ids.cast(pa.string())
    codes = np.asarray(chunk.indices.fill_null(-1) if chunk.indices.null_count else chunk.indices).astype(np.int32)
    return _without_unused(codes, ids, blank_positions(ids))


def blank_positions(ids: pa.Array) -> NDArray[np.bool_]:
    """Which ids are missing: null, or text with nothing in it."""
    blank = pc.is_null(ids, nan_is_null=True)
    if pa.types.is_string(ids.type):
        blank = pc.or_(blank, pc.equal(pc.fill_null(pc.utf8_trim_whitespace(ids), ""), ""))
    return np.asarray(blank)


def _as_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers held as floats (pandas does that beside a missing value) become integers again."""
    if pa.types.is_floating(column.type):
        whole = pc.all(pc.equal(column, pc.floor(column)))
        return column.cast(pa.int64() if whole.as_py() is not False else pa.string(), safe=False)
    ready = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_dictionary)
    return column if any(is_ready(column.type) for is_ready in ready) else column.cast(pa.string())


def _without_unused(
    codes: NDArray[np.int32], ids: pa.Array, blank: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], pa.Array]:
    """Drop ids that no row has (a dictionary may hold more) and those that are blank."""
    used = np.zeros(len(ids) + 1, bool)
    used[codes] = True  # the last entry collects the -1s
    used = used[:-1] & ~blank
    if used.all():
        return codes, ids
    renumbered = np.append(np.cumsum(used) - 1, -1).astype(np.int32)
    renumbered[:-1][~used] = -1
    return renumbered[codes], ids.filter(pa.array(used))


def match(ids: pa.Array, wanted: pa.Array) -> NDArray[np.int64]:
    """For each of `wanted` its position in `ids`, or -1; text and numbers meet as text.

    >>> match(pa.array([10, 20]), pa.array(["20", "30"])).tolist()
    [1, -1]
    """
    if ids.type != wanted.type:
        ids, wanted = ids.cast(pa.string()), wanted.cast(pa.string())
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=ids), -1)).astype(np.int64)
