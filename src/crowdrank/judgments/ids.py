"""Ids as int32 codes in order of first appearance.

Ids are compared exactly, as text: `1`, `01`, `1.0`, `A` and `a` are different ids, and so are composed and decomposed
letters or ids with and without a trailing space. Only the type of a column is not part of an id: whole numbers, also
in a column of floats, are the same ids as the text of these numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Integers
from crowdrank.errors import Location, Message
from crowdrank.judgments import kernels

LONG = 10_000
"""Number of rows from which the hash table is faster than Arrow's dictionary encoding."""
MAX_TEXT = 2**31 - 2**20
"""Maximum number of bytes of text in one Arrow array with 32-bit offsets, with a margin."""
MAX_UNUSUAL = 10_000
"""Maximum number of ids with spaces, leading zeros and so on that are compared with the other ids."""


def encode(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """Return codes (n,) with -1 for a missing id, and the ids that the codes index: int64 or text.

    >>> codes, ids = encode(pa.chunked_array([["b", "a", None, "b"]]))
    >>> codes.tolist(), ids.to_pylist()
    ([0, 1, -1, 0], ['b', 'a'])
    """
    if pa.types.is_dictionary(column.type):
        return _encode_dictionary(column)
    codes, names = _encode_array(in_one_piece(numbers_or_text(column)))
    # Cast only now: a column of long text may be too large for 32-bit offsets, its distinct ids are not.
    names = names if pa.types.is_integer(names.type) else names.cast(pa.string())
    names.validate(full=True)  # a damaged file may hold text that is not UTF-8
    blank = _is_blank(names)
    if not blank.any():
        return codes, names
    return _recode(codes, np.where(blank, -1, np.cumsum(~blank) - 1)), names.filter(pa.array(~blank))


def _encode_array(array: pa.Array) -> tuple[Codes, pa.Array]:
    """Return codes in order of first appearance as Arrow's dictionary encoding does, at twice its speed.

    Arrow compares the text of an earlier row for every row that it looks up. Here the hashes are numbered first; one
    pass over the text afterwards verifies that no two texts have the same hash.
    """
    if len(array) < LONG or array.null_count:
        return _encode_with_arrow(array)
    codes, first = np.empty(len(array), np.int32), np.empty(len(array), np.int32)
    text, hashes = None if pa.types.is_integer(array.type) else _text_buffers(array), hash_ids(array)
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
            return _encode_with_arrow(array)
    return codes, array.take(pa.array(first))


def _encode_with_arrow(array: pa.Array) -> tuple[Codes, pa.Array]:
    chunk = array.dictionary_encode()
    return codes_of(chunk), chunk.dictionary


def hash_ids(array: pa.Array) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each id, the same on every machine; no id may be null.

    >>> hash_ids(pa.array(["a", "b"])).tolist() == hash_ids(pa.array(["a", "b"], pa.large_string())).tolist()
    True
    """
    hashes = np.empty(len(array), np.uint64)
    if pa.types.is_integer(array.type):
        kernels.hash_numbers(np.asarray(array), hashes)
    else:
        kernels.hash_text(*_text_buffers(array), hashes)
    return hashes


def _text_buffers(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.uint64]]:
    """Return the offsets and bytes of a text array, and the 8-byte word at every byte, without copies."""
    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    if len(raw) < 8:
        return bounds, raw, np.empty(0, np.uint64)
    return bounds, raw, np.ndarray((len(raw) - 7,), np.uint64, buffer=data, strides=(1,))


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array: encoding it chunk by chunk and merging the dictionaries is many times slower."""
    if pa.types.is_string(column.type) and column.nbytes >= MAX_TEXT:
        column = column.cast(pa.large_string())
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def codes_of(array: pa.DictionaryArray) -> Codes:
    """Return the codes of a dictionary array, -1 for null."""
    indices = array.indices.fill_null(-1) if array.indices.null_count else array.indices
    return np.asarray(indices).astype(np.int32, copy=False)


def _encode_dictionary(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """Encode a column of dictionary arrays, whose dictionaries may hold unused, blank or repeated ids in any order."""
    entries = pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)
    entry, names = encode(entries)
    codes, start = [np.empty(0, np.int32)], 0
    for chunk in column.chunks:
        end = start + len(chunk.dictionary)
        codes.append(_recode(np.asarray(chunk.indices.cast(pa.int64()).fill_null(-1)), entry[start:end]))
        start = end
    return _by_first_appearance(np.concatenate(codes), names)


def take(column: tuple[Codes, pa.Array], rows: Codes) -> tuple[Codes, pa.Array]:
    """Return some rows of a column of ids, with codes in order of first appearance among them.

    >>> codes, ids = take((np.array([0, 1, 2, 1]), pa.array(["a", "b", "c"])), np.array([2, 3]))
    >>> codes.tolist(), ids.to_pylist()
    ([0, 1], ['c', 'b'])
    """
    return _by_first_appearance(column[0][rows], column[1])


def _by_first_appearance(codes: Codes, names: pa.Array) -> tuple[Codes, pa.Array]:
    first = np.asarray(pc.unique(pa.array(codes)))
    first = first[first >= 0]
    renumbered = np.full(len(names), -1)
    renumbered[first] = np.arange(len(first))
    return _recode(codes, renumbered), names.take(pa.array(first))


def _recode(codes: NDArray[Any], new_codes: NDArray[Any]) -> Codes:
    """Replace codes; -1 stays -1."""
    recoded: Codes = np.append(new_codes, -1).astype(np.int32)[codes]
    return recoded


def merge(tables: Sequence[pa.Array]) -> tuple[list[Codes], pa.Array]:
    """Merge tables of ids; numbers beside text become text.

    Returns:
        For each table the codes of its ids among the merged ids, and the merged ids; those of the first table keep
        their codes.

    >>> codes, ids = merge([pa.array([7, 8]), pa.array(["8", "9"])])
    >>> [one.tolist() for one in codes], ids.to_pylist()
    ([[0, 1], [1, 2]], ['7', '8', '9'])

    """
    if len(tables) == 1:
        return [np.arange(len(tables[0]), dtype=np.int32)], tables[0]
    filled = [table for table in tables if len(table)] or tables[:1]
    kind = filled[0].type if all(table.type == filled[0].type for table in filled) else pa.string()
    codes, names = encode(pa.chunked_array([table.cast(kind) for table in tables]))
    return np.split(codes, np.cumsum([len(table) for table in tables])[:-1]), names


def concat(columns: Sequence[tuple[Codes, pa.Array]]) -> tuple[Codes, pa.Array]:
    """Concatenate columns of ids; the ids of the first column keep their codes."""
    if len(columns) == 1:
        return columns[0]
    new_codes, names = merge([names for _, names in columns])
    return np.concatenate([new[codes] for new, (codes, _) in zip(new_codes, columns, strict=True)]), names


def _is_blank(ids: pa.Array) -> Booleans:
    """Return which ids are null or white space."""
    blank = pc.is_null(ids, nan_is_null=True)
    if pa.types.is_string(ids.type):
        blank = pc.or_(blank, pc.equal(pc.fill_null(pc.utf8_trim_whitespace(ids), ""), ""))
    return np.asarray(blank)


def numbers_or_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of any type as int64 or text."""
    kind = column.type
    if pa.types.is_floating(kind):
        return _from_floats(column.cast(pa.float64()))
    if pa.types.is_uint64(kind) and pc.any(pc.greater(column, pa.scalar(2**63 - 1, kind))).as_py():
        return column.cast(pa.string())
    if pa.types.is_large_string(kind):
        return column
    return column.cast(pa.int64() if pa.types.is_integer(kind) else pa.string())


def _from_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats that are whole numbers as integers; pandas stores integers beside a missing value as floats.

    An infinite number is a missing id: several numbers of a file may be too large for a float.
    """
    column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, pa.float64()))
    whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**63))
    return column.cast(pa.string() if pc.all(whole).as_py() is False else pa.int64())


def match(ids: pa.Array, wanted: pa.Array) -> Integers:
    """Return the position of each `wanted` id in `ids`, or -1; numbers are compared with text as text.

    >>> match(pa.array([10, 20]), pa.array(["20", "30"])).tolist()
    [1, -1]
    """
    if ids.type != wanted.type:
        ids, wanted = ids.cast(pa.string()), wanted.cast(pa.string())
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=ids), -1)).astype(np.int64)


# Ids that look alike.

_NUMBER = r"^(-?)0*([0-9]+)(\.0+)?$"


def unusual_forms(ids: pa.Array) -> dict[str, str]:
    """Return the usual form of ids with surrounding spaces, leading zeros, decimal zeros or decomposed letters.

    >>> unusual_forms(pa.array(["1", "01", "2.0", "d3 "]))
    {'01': '1', '2.0': '2', 'd3 ': 'd3'}
    """
    if not pa.types.is_string(ids.type) or not len(ids):
        return {}
    suspects = kernels.maybe_unusual(*_text_buffers(ids), MAX_UNUSUAL)
    text = ids.take(pa.array(suspects))
    usual = pc.replace_substring_regex(pc.utf8_trim_whitespace(pc.utf8_normalize(text, "NFC")), _NUMBER, r"\1\2")
    pairs = zip(text.to_pylist(), usual.to_pylist(), strict=True)
    return {form: plain for form, plain in pairs if form != plain}


def look_alikes(unusual: dict[str, str], tables: Iterable[pa.Array]) -> list[tuple[str, str]]:
    """Return pairs of different ids with the same usual form, sorted.

    Args:
        unusual: usual form by id, of the ids that have another form.
        tables: tables of all ids.

    >>> look_alikes({"01": "1", "001": "1", "2.0": "2"}, [pa.array(["001", "01", "2.0"])])
    [('001', '01')]

    """
    if not unusual:
        return []
    groups: dict[str, set[str]] = defaultdict(set)
    for form, plain in unusual.items():
        groups[plain].add(form)
    usual = pa.array(list(groups), pa.string())
    for table in tables:
        for form in table.filter(pc.is_in(table, value_set=usual)).to_pylist():
            if form not in unusual:
                groups[form].add(form)
    return sorted((group[0], other) for group in map(sorted, groups.values()) for other in group[1:])


def look_alike_note(role: str, pairs: Sequence[tuple[str, str]], location: Location) -> Message:
    """Return a note about ids that differ only in their form."""
    first, second = (text if text.isascii() else text.encode("unicode_escape").decode() for text in pairs[0])
    found = counted(len(pairs), f"{role} id")
    alike = f"{found} looks like another" if len(pairs) == 1 else f"{found} look like others"
    problem = f"{alike}, such as '{first}' and '{second}'; ids are compared exactly, so these are different"
    return Message(problem, "ids-look-alike", "note", location)
