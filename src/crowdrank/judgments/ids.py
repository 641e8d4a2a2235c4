"""Encode ids as int32 codes, numbered in order of first appearance.

Ids are compared exactly, as text: `1`, `01`, `1.0`, `A` and `a` are different ids, and so are composed and decomposed
letters or ids with and without a trailing space. The type of a column does not matter: the integer 7, the float 7.0
and the text `7` are the same id.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._arrow import from_numpy, from_texts, to_numpy
from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Integers
from crowdrank.errors import InputError, Location, Message

CodedIds = tuple[Codes, pa.Array]
"""A column of ids: the code of each row, and the distinct ids, which the codes index."""
MIN_ROWS_FOR_HASH_TABLE = 1 << 16
"""Minimum number of rows for our hash table; for fewer, loading numba takes longer than Arrow's dictionary encoding."""
MAX_TEXT_BYTES = 2**31 - 2**20
"""Maximum number of bytes of text in an Arrow array with 32-bit offsets, less a margin."""
MAX_UNUSUAL_IDS = 10_000
"""Maximum number of ids with surrounding spaces, leading zeros etc. that are compared with the other ids."""


def encode(column: pa.ChunkedArray) -> CodedIds:
    """Return the code of each row (n,), -1 for a missing id, and the distinct ids (int64 or text) in code order.

    >>> codes, ids = encode(pa.chunked_array([["b", "a", None, "b"]]))
    >>> codes.tolist(), ids.to_pylist()
    ([0, 1, -1, 0], ['b', 'a'])
    """
    if pa.types.is_dictionary(column.type):
        return _encode_dictionary(column)
    if pa.types.is_floating(column.type):
        _refuse_inexact_numbers(column)
    column = to_integers_or_text(column)
    coded = encode_range(column) if pa.types.is_integer(column.type) else None
    codes, names = _encode_array(to_single_array(column)) if coded is None else coded
    # Cast only now: a column of long text may be too large for 32-bit offsets, its distinct ids are not.
    names = names if pa.types.is_integer(names.type) else names.cast(pa.string())
    names.validate(full=True)  # a damaged file may hold text that is not UTF-8
    blank = _is_blank(names)
    if not blank.any():
        return codes, names
    return _recode(codes, np.where(blank, -1, np.cumsum(~blank) - 1)), names.filter(pa.array(~blank))


def _refuse_inexact_numbers(column: pa.ChunkedArray) -> None:
    """Raise InputError if ids are floating-point numbers so large that neighboring integers are equal."""
    largest = pc.max(pc.abs(column)).as_py()
    if largest is not None and 2**53 <= largest < float("inf"):
        problem = f"the id {largest:.0f} is a floating-point number, which does not hold all digits of an id so large"
        raise InputError(problem, kind="inexact-id", fix="write the ids as text or as integers")


def encode_range(column: pa.ChunkedArray) -> CodedIds | None:
    """Encode many numbers with a table of their range; return None if that is too large or a number is missing."""
    if len(column) < MIN_ROWS_FOR_HASH_TABLE or column.null_count:
        return None
    chunks = [to_numpy(chunk) for chunk in column.chunks if len(chunk)]
    lowest, highest = min(int(chunk.min()) for chunk in chunks), max(int(chunk.max()) for chunk in chunks)
    if highest - lowest >= 4 * len(column):
        return None
    from crowdrank.judgments import kernels

    table, codes = np.full(highest - lowest + 1, -1, np.int32), np.empty(len(column), np.int32)
    distinct, n_codes, start = np.empty(min(len(table), len(codes)), np.int64), 0, 0
    for chunk in chunks:
        part = codes[start : start + len(chunk)]
        n_codes, start = kernels.encode_numbers(chunk, lowest, n_codes, table, part, distinct), start + len(chunk)
    return codes, from_numpy(distinct[:n_codes].copy())


def _encode_array(array: pa.Array) -> CodedIds:
    """Encode an array like Arrow's dictionary encoding, but about twice as fast.

    Codes are numbered in order of first appearance. Arrow compares the text of every row with that of an earlier row.
    Here only hashes are compared, and one pass over the text afterwards verifies that no two texts have the same hash.
    """
    if len(array) < MIN_ROWS_FOR_HASH_TABLE or array.null_count:
        return _encode_with_arrow(array)
    from crowdrank.judgments import kernels

    codes, first_row = np.empty(len(array), np.int32), np.empty(len(array), np.int32)
    text, hashes = None if pa.types.is_integer(array.type) else _text_buffers(array), hash_ids(array)
    n_coded, n_codes, size = 0, 0, 1 << 14
    while n_coded < len(array):
        keys, values = np.empty(size, np.uint64), np.full(size, -1, np.int32)
        kernels.fill_hash_table(hashes, first_row, n_codes, keys, values)
        n_coded, n_codes = kernels.encode_hashes(hashes, n_coded, n_codes, keys, values, codes, first_row)
        size *= 4
    first_row = first_row[:n_codes]
    if text is not None:
        starts = text[0][first_row]
        if not kernels.match_code_texts(*text, codes, starts, text[0][first_row + 1] - starts):
            return _encode_with_arrow(array)
    return codes, array.take(from_numpy(first_row))


def _encode_with_arrow(array: pa.Array) -> CodedIds:
    encoded = array.dictionary_encode()
    return dictionary_codes(encoded), encoded.dictionary


def hash_ids(array: pa.Array) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each id, the same on every machine; no id may be null.

    >>> hash_ids(pa.array(["a", "b"])).tolist() == hash_ids(pa.array(["a", "b"], pa.large_string())).tolist()
    True
    """
    from crowdrank.judgments import kernels

    hashes = np.empty(len(array), np.uint64)
    if pa.types.is_integer(array.type):
        kernels.hash_numbers(to_numpy(array), hashes)
    else:
        kernels.hash_text(*_text_buffers(array), hashes)
    return hashes


def _text_buffers(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.uint64]]:
    """Return views of a text array: its offsets, its bytes, and the 64-bit word that starts at each byte."""
    _, offsets, data = array.buffers()
    offset_type = np.int64 if pa.types.is_large_string(array.type) else np.int32
    bounds = np.frombuffer(offsets, offset_type)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    if len(raw) < 8:
        return bounds, raw, np.empty(0, np.uint64)
    return bounds, raw, np.ndarray((len(raw) - 7,), np.uint64, buffer=data, strides=(1,))


def to_single_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a chunked column as one array, because encoding it chunk by chunk is many times slower."""
    if pa.types.is_string(column.type) and column.nbytes >= MAX_TEXT_BYTES:
        column = column.cast(pa.large_string())
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def dictionary_codes(array: pa.DictionaryArray) -> Codes:
    """Return the codes of a dictionary array, -1 for null."""
    indices = array.indices.fill_null(-1) if array.indices.null_count else array.indices
    return to_numpy(indices).astype(np.int32, copy=False)


def _encode_dictionary(column: pa.ChunkedArray) -> CodedIds:
    """Encode a dictionary-encoded column; its dictionaries may hold unused, blank or repeated ids."""
    entries = pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)
    entry, names = encode(entries)
    codes, start = [np.empty(0, np.int32)], 0
    for chunk in column.chunks:
        end = start + len(chunk.dictionary)
        codes.append(_recode(np.asarray(chunk.indices.cast(pa.int64()).fill_null(-1)), entry[start:end]))
        start = end
    return _renumber_by_first_appearance(np.concatenate(codes), names)


def take(coded_ids: CodedIds, row_index: Codes) -> CodedIds:
    """Select rows of a column of coded ids, and renumber the codes in order of first appearance.

    >>> codes, ids = take((np.array([0, 1, 2, 1]), pa.array(["a", "b", "c"])), np.array([2, 3]))
    >>> codes.tolist(), ids.to_pylist()
    ([0, 1], ['c', 'b'])
    """
    return _renumber_by_first_appearance(coded_ids[0][row_index], coded_ids[1])


def _renumber_by_first_appearance(codes: Codes, names: pa.Array) -> CodedIds:
    """Renumber codes in order of first appearance, and remove ids without a row."""
    used_codes = np.asarray(pc.unique(pa.array(codes)))
    used_codes = used_codes[used_codes >= 0]
    renumbered = np.full(len(names), -1)
    renumbered[used_codes] = np.arange(len(used_codes))
    return _recode(codes, renumbered), names.take(pa.array(used_codes))


def _recode(codes: NDArray[Any], new_codes: NDArray[Any]) -> Codes:
    """Replace each code by `new_codes[code]`; -1 stays -1."""
    return np.asarray(np.append(new_codes, -1).astype(np.int32)[codes])


def merge(id_tables: Sequence[pa.Array]) -> tuple[list[Codes], pa.Array]:
    """Merge several arrays of distinct ids into one; if some are numbers and some are text, all become text.

    Returns:
        For each input array, the codes of its ids among the merged ids; and the merged ids. The ids of the first array
        keep their codes.

    >>> codes, ids = merge([pa.array([7, 8]), pa.array(["8", "9"])])
    >>> [one.tolist() for one in codes], ids.to_pylist()
    ([[0, 1], [1, 2]], ['7', '8', '9'])

    """
    if len(id_tables) == 1:
        return [np.arange(len(id_tables[0]), dtype=np.int32)], id_tables[0]
    filled = [table for table in id_tables if len(table)] or id_tables[:1]
    id_type = filled[0].type if all(table.type == filled[0].type for table in filled) else pa.string()
    codes, names = encode(pa.chunked_array([table.cast(id_type) for table in id_tables]))
    return np.split(codes, np.cumsum([len(table) for table in id_tables])[:-1]), names


def concat(coded_columns: Sequence[CodedIds]) -> CodedIds:
    """Concatenate columns of coded ids; the ids of the first column keep their codes."""
    if len(coded_columns) == 1:
        return coded_columns[0]
    new_codes, names = merge([names for _, names in coded_columns])
    return np.concatenate([new[codes] for new, (codes, _) in zip(new_codes, coded_columns, strict=True)]), names


def concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays of ids; if some are numbers and some are text, all become text.

    >>> concat_arrays([pa.array([7]), pa.array(["a"])]).to_pylist()
    ['7', 'a']
    """
    types = {array.type for array in arrays}
    return pa.concat_arrays([array if len(types) == 1 else array.cast(pa.string()) for array in arrays])


def _is_blank(ids: pa.Array) -> Booleans:
    """Return a mask of the ids that are null or only white space."""
    blank = to_numpy(pc.is_null(ids, nan_is_null=True))
    if pa.types.is_string(ids.type):
        blank |= to_numpy(pc.binary_length(pc.utf8_trim_whitespace(ids))) == 0
    return blank


def to_integers_or_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column of ids of any type to int64 or text."""
    column_type = column.type
    if pa.types.is_floating(column_type):
        return _floats_to_ids(column.cast(pa.float64()))
    if pa.types.is_uint64(column_type) and pc.any(pc.greater(column, pa.scalar(2**63 - 1, column_type))).as_py():
        return column.cast(pa.string())
    if pa.types.is_large_string(column_type):
        return column
    return column.cast(pa.int64() if pa.types.is_integer(column_type) else pa.string())


def _floats_to_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert floats to int64 if all are integers, else to text; pandas stores integers with missing values as floats.

    An infinite float becomes null (a missing id), because several large numbers of a file can become infinite.
    """
    column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, pa.float64()))
    is_integer = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**63))
    return column.cast(pa.string() if pc.all(is_integer).as_py() is False else pa.int64())


def match(ids: pa.Array, wanted_ids: pa.Array) -> Integers:
    """Return the index in `ids` of each of the wanted ids, or -1; numbers and text are compared as text.

    >>> match(pa.array([10, 20]), pa.array(["20", "30"])).tolist()
    [1, -1]
    """
    if ids.type != wanted_ids.type:
        ids, wanted_ids = ids.cast(pa.string()), wanted_ids.cast(pa.string())
    return np.asarray(pc.fill_null(pc.index_in(wanted_ids, value_set=ids), -1)).astype(np.int64)


# Different ids that look alike, such as `1` and `01`.

_NUMBER_PATTERN = r"^(-?)0*([0-9]+)(\.0+)?$"


def unusual_forms(ids: pa.Array) -> dict[str, str]:
    """Return the usual form of each id with outer spaces, leading zeros, decimal zeros or decomposed letters.

    >>> unusual_forms(pa.array(["1", "01", "2.0", "d3 "]))
    {'01': '1', '2.0': '2', 'd3 ': 'd3'}
    """
    if not pa.types.is_string(ids.type) or not len(ids):
        return {}
    from crowdrank.judgments import kernels

    offsets, text_bytes, _ = _text_buffers(ids)
    is_ascii = bool(text_bytes.max(initial=0) < 128)
    suspects = kernels.find_unusual_texts(offsets, text_bytes, is_ascii, MAX_UNUSUAL_IDS)
    texts = ids.take(from_numpy(suspects)).to_pylist()
    # Not by Arrow, whose NFC was decomposed up to version 19.
    composed = from_texts([unicodedata.normalize("NFC", text) for text in texts])
    usual = pc.replace_substring_regex(pc.utf8_trim_whitespace(composed), _NUMBER_PATTERN, r"\1\2")
    pairs = zip(texts, usual.to_pylist(), strict=True)
    return {written_form: usual_form for written_form, usual_form in pairs if written_form != usual_form}


def find_look_alikes(usual_forms: dict[str, str], id_tables: Iterable[pa.Array]) -> list[tuple[str, str]]:
    """Return sorted pairs of different ids that have the same usual form.

    Args:
        usual_forms: result of :func:`unusual_forms`.
        id_tables: arrays that together hold all ids.

    >>> find_look_alikes({"01": "1", "001": "1", "2.0": "2"}, [pa.array(["001", "01", "2.0"])])
    [('001', '01')]

    """
    if not usual_forms:
        return []
    groups: dict[str, set[str]] = defaultdict(set)
    for written_form, usual_form in usual_forms.items():
        groups[usual_form].add(written_form)
    usual = pa.array(list(groups), pa.string())
    for table in id_tables:
        for written_form in table.filter(pc.is_in(table, value_set=usual)).to_pylist():
            if written_form not in usual_forms:
                groups[written_form].add(written_form)
    return sorted((group[0], other) for group in map(sorted, groups.values()) for other in group[1:])


def look_alike_note(role: str, pairs: Sequence[tuple[str, str]], location: Location) -> Message:
    """Return a note about pairs of ids that differ only in spaces, zeros or letter encoding."""
    first, second = (text if text.isascii() else text.encode("unicode_escape").decode() for text in pairs[0])
    counted_ids = counted(len(pairs), f"{role} id")
    alike = f"{counted_ids} looks like another" if len(pairs) == 1 else f"{counted_ids} look like others"
    problem = f"{alike}, such as '{first}' and '{second}'; ids are compared exactly, so these are different"
    return Message(problem, "ids-look-alike", "note", location)
