"""Ids of any type as int32 codes, in order of first appearance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank.judgments import kernels

LONG = 10_000
"""Rows from which on Arrow's way of coding is the slower one."""
MOST_TEXT = 2**31 - 2**20
"""Bytes of text that one Arrow array of plain text can hold, with room to spare."""


def encode(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes (n,) with -1 for a missing id, and the ids that the codes stand for: int64 or text.

    >>> codes, ids = encode(pa.chunked_array([["b", "a", None, "b"]]))
    >>> codes.tolist(), ids.to_pylist()
    ([0, 1, -1, 0], ['b', 'a'])
    """
    if pa.types.is_dictionary(column.type):
        return _encode_dictionary(column)
    codes, names = _coded(in_one_piece(plain(column)))
    # Cast only now: a column of long text may be too large for Arrow's plain text, its distinct ids are not.
    names = names if pa.types.is_integer(names.type) else names.cast(pa.string())
    names.validate(full=True)  # a damaged file may hold text that is none
    blank = blank_positions(names)
    if not blank.any():
        return codes, names
    return _recoded(codes, np.where(blank, -1, np.cumsum(~blank) - 1)), names.filter(pa.array(~blank))


def _coded(array: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes in order of first appearance, as Arrow's dictionary encoding has them, for long columns at twice its speed.

    Arrow looks at the text of an earlier row for every row it probes; here the hashes are numbered first, and one
    look at the text afterwards makes sure that no two texts had the same.
    """
    if len(array) < LONG or array.null_count:
        chunk = array.dictionary_encode()
        return codes_of(chunk), chunk.dictionary
    codes, first = np.empty(len(array), np.int32), np.empty(len(array), np.int32)
    text, hashes = None if pa.types.is_integer(array.type) else text_of(array), hashed(array)
    done, n_codes, size = 0, 0, 1 << 14
    while done < len(array):
        keys, values = np.empty(size, np.uint64), np.full(size, -1, np.int32)
        kernels.fill_table(hashes, first, n_codes, keys, values)
        done, n_codes = kernels.code_hashes(hashes, done, n_codes, keys, values, codes, first)
        size *= 4
    first = first[:n_codes]
    if text is not None:
        starts = text[0][first]
        if not kernels.same_texts(*text, codes, starts, text[0][first + 1] - starts):
            chunk = array.dictionary_encode()
            return codes_of(chunk), chunk.dictionary
    return codes, array.take(pa.array(first))


def hashed(array: pa.Array) -> NDArray[np.uint64]:
    """A 64-bit hash of each id, the same wherever and whenever it is made; none may be null.

    >>> hashed(pa.array(["a", "b"])).tolist() == hashed(pa.array(["a", "b"], pa.large_string())).tolist()
    True
    """
    hashes = np.empty(len(array), np.uint64)
    if pa.types.is_integer(array.type):
        kernels.hash_numbers(np.asarray(array), hashes)
    else:
        kernels.hash_text(*text_of(array), hashes)
    return hashes


def text_of(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.uint64]]:
    """The offsets and bytes of a text column, and the eight bytes that start at every byte; no copies."""
    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    if len(raw) < 8:
        return bounds, raw, np.empty(0, np.uint64)
    return bounds, raw, np.ndarray((len(raw) - 7,), np.uint64, buffer=data, strides=(1,))


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array: coding it piece by piece and joining the dictionaries costs many times as much."""
    if pa.types.is_string(column.type) and column.nbytes >= MOST_TEXT:
        column = column.cast(pa.large_string())
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def codes_of(array: pa.DictionaryArray) -> NDArray[np.int32]:
    """The codes of a dictionary array, -1 for null."""
    indices = array.indices.fill_null(-1) if array.indices.null_count else array.indices
    return np.asarray(indices).astype(np.int32, copy=False)


def _encode_dictionary(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.Array]:
    """The codes of a column that is coded already, in orders of its own and perhaps with ids that no row has."""
    # A dictionary may hold an id twice, or one that is blank: the entries of all are coded like any column.
    entries = pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)
    entry, names = encode(entries)
    codes, start = [np.empty(0, np.int32)], 0
    for chunk in column.chunks:
        end = start + len(chunk.dictionary)
        codes.append(_recoded(np.asarray(chunk.indices.cast(pa.int64()).fill_null(-1)), entry[start:end]))
        start = end
    return _by_first_appearance(np.concatenate(codes), names)


def _by_first_appearance(codes: NDArray[np.int32], names: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    first = np.asarray(pc.unique(pa.array(codes)))
    first = first[first >= 0]
    renumbered = np.full(len(names), -1)
    renumbered[first] = np.arange(len(first))
    return _recoded(codes, renumbered), names.take(pa.array(first))


def _recoded(codes: NDArray[Any], onto: NDArray[Any]) -> NDArray[np.int32]:
    """New codes for old ones; -1 stays -1."""
    recoded: NDArray[np.int32] = np.append(onto, -1).astype(np.int32)[codes]
    return recoded


def blank_positions(ids: pa.Array) -> NDArray[np.bool_]:
    """Which ids are missing: null, or text with nothing in it."""
    blank = pc.is_null(ids, nan_is_null=True)
    if pa.types.is_string(ids.type):
        blank = pc.or_(blank, pc.equal(pc.fill_null(pc.utf8_trim_whitespace(ids), ""), ""))
    return np.asarray(blank)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as int64 or text, so that ids of one kind have one type wherever they come from."""
    kind = column.type
    if pa.types.is_floating(kind):
        return _from_floats(column.cast(pa.float64()))
    if pa.types.is_uint64(kind) and pc.any(pc.greater(column, pa.scalar(2**63 - 1, kind))).as_py():
        return column.cast(pa.string())
    if pa.types.is_large_string(kind):
        return column
    return column.cast(pa.int64() if pa.types.is_integer(kind) else pa.string())


def _from_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Make floats that hold whole numbers integers again; pandas has floats beside a missing value.

    An infinite number is a missing id: in a file, several numbers are too large for a float.
    """
    column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, pa.float64()))
    whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**63))
    return column.cast(pa.string() if pc.all(whole).as_py() is False else pa.int64())


def match(ids: pa.Array, wanted: pa.Array) -> NDArray[np.int64]:
    """For each of `wanted` its position in `ids`, or -1; text and numbers meet as text.

    >>> match(pa.array([10, 20]), pa.array(["20", "30"])).tolist()
    [1, -1]
    """
    if ids.type != wanted.type:
        ids, wanted = ids.cast(pa.string()), wanted.cast(pa.string())
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=ids), -1)).astype(np.int64)
