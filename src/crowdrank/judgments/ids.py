"""Encode ids as int32 codes, numbered in order of first appearance, and sort rows by codes in linear time.

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

from crowdrank._arrow import from_numpy, texts_to_arrow, to_numpy
from crowdrank._numba import njit
from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Grades, Integers
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

    table, codes = np.full(highest - lowest + 1, -1, np.int32), np.empty(len(column), np.int32)
    distinct, n_codes, start = np.empty(min(len(table), len(codes)), np.int64), 0, 0
    for chunk in chunks:
        part = codes[start : start + len(chunk)]
        n_codes, start = encode_numbers(chunk, lowest, n_codes, table, part, distinct), start + len(chunk)
    return codes, from_numpy(distinct[:n_codes].copy())


def _encode_array(array: pa.Array) -> CodedIds:
    """Encode an array like Arrow's dictionary encoding, but about twice as fast.

    Codes are numbered in order of first appearance. Arrow compares the text of every row with that of an earlier row.
    Here only hashes are compared, and one pass over the text afterwards verifies that no two texts have the same hash.
    """
    if len(array) < MIN_ROWS_FOR_HASH_TABLE or array.null_count:
        return _encode_with_arrow(array)

    codes, first_row = np.empty(len(array), np.int32), np.empty(len(array), np.int32)
    text, hashes = None if pa.types.is_integer(array.type) else _text_buffers(array), hash_ids(array)
    n_coded, n_codes, size = 0, 0, 1 << 14
    while n_coded < len(array):
        keys, values = np.empty(size, np.uint64), np.full(size, -1, np.int32)
        fill_hash_table(hashes, first_row, n_codes, keys, values)
        n_coded, n_codes = encode_hashes(hashes, n_coded, n_codes, keys, values, codes, first_row)
        size *= 4
    first_row = first_row[:n_codes]
    if text is not None:
        starts = text[0][first_row]
        if not match_code_texts(*text, codes, starts, text[0][first_row + 1] - starts):
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
    hashes = np.empty(len(array), np.uint64)
    if pa.types.is_integer(array.type):
        hash_numbers(to_numpy(array), hashes)
    else:
        hash_text(*_text_buffers(array), hashes)
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


def _floats_to_ids(floats: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert floats to int64 if all are integers, else to text; pandas stores integers with missing values as floats.

    An infinite float becomes null (a missing id), because several large numbers of a file can become infinite.
    """
    floats = pc.if_else(pc.is_finite(floats), floats, pa.scalar(None, pa.float64()))
    is_integer = pc.and_(pc.equal(floats, pc.floor(floats)), pc.less(pc.abs(floats), 2.0**63))
    return floats.cast(pa.string() if pc.all(is_integer).as_py() is False else pa.int64())


def match(ids: pa.Array, wanted_ids: pa.Array) -> Integers:
    """Return the index in `ids` of each of the wanted ids, or -1; numbers and text are compared as text.

    >>> match(pa.array([10, 20]), pa.array(["20", "30"])).tolist()
    [1, -1]
    """
    if ids.type != wanted_ids.type:
        ids, wanted_ids = ids.cast(pa.string()), wanted_ids.cast(pa.string())
    if len(ids) + len(wanted_ids) >= MIN_ROWS_FOR_HASH_TABLE:
        codes, _ = encode(pa.chunked_array([ids, wanted_ids]))
        if (codes[: len(ids)] == np.arange(len(ids))).all():  # the ids are distinct, and none is blank
            wanted = codes[len(ids) :].astype(np.int64)
            return np.where(wanted < len(ids), wanted, -1)
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

    offsets, text_bytes, _ = _text_buffers(ids)
    is_ascii = bool(text_bytes.max(initial=0) < 128)
    suspects = find_unusual_texts(offsets, text_bytes, is_ascii, MAX_UNUSUAL_IDS)
    texts = ids.take(from_numpy(suspects)).to_pylist()
    # Not by Arrow, whose NFC was decomposed up to version 19.
    composed = texts_to_arrow([unicodedata.normalize("NFC", text) for text in texts])
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


Bytes = NDArray[np.uint8]
"""Type of the UTF-8 bytes of all texts of an Arrow array, one after the other."""
Words = NDArray[np.uint64]
"""Unsigned 64-bit integers: hashes, or the 8-byte word that starts at each byte of a text buffer."""


def _group_rows(query_codes: Codes, document_codes: Codes, n_queries: int, n_documents: int) -> tuple[Codes, Integers]:
    cell = query_codes.astype(np.int64) * n_documents + document_codes
    by_cell = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.append(True, cell[by_cell[1:]] != cell[by_cell[:-1]])[: len(cell)])
    sizes, first = np.diff(np.append(starts, len(cell))), by_cell[starts]
    in_order = np.lexsort((first, query_codes[first]))
    offsets = np.concatenate([[0], np.cumsum(sizes[in_order])])
    position = np.arange(len(cell)) + np.repeat(starts[in_order] - offsets[:-1], sizes[in_order])
    return by_cell[position].astype(np.int32), offsets


@njit(nogil=True, numpy=_group_rows)
def group_rows(query_codes: Codes, document_codes: Codes, n_queries: int, n_documents: int) -> tuple[Codes, Integers]:
    """Group rows by item (query-document pair); return the row order and the offset of each item in it.

    Queries are in order of their codes, the documents of a query in order of first appearance. It is a counting sort
    by query, then by document within each query, so that the data of a query stay in the CPU cache.
    """
    # query_codes, document_codes (n,); returns (n,) and (n_items + 1,)
    n = len(query_codes)
    ends = np.zeros(n_queries + 1, np.int64)
    for row in range(n):
        ends[query_codes[row] + 1] += 1
    for code in range(n_queries):
        ends[code + 1] += ends[code]
    by_query, document_by_query = np.empty(n, np.int32), np.empty(n, np.int32)
    for row in range(n):
        position = ends[query_codes[row]]
        by_query[position], document_by_query[position] = row, document_codes[row]
        ends[query_codes[row]] += 1
    order, item = np.empty(n, np.int32), np.empty(n, np.int32)
    offsets = np.zeros(n + 1, np.int64)
    latest_item = np.full(n_documents, -1, np.int32)  # latest item of each document
    n_items, start = 0, 0
    for code in range(n_queries):
        first_item, stop = n_items, ends[code]
        for position in range(start, stop):
            d = document_by_query[position]
            if latest_item[d] < first_item:  # that item is of another query
                latest_item[d] = n_items
                n_items += 1
            item[position] = latest_item[d]
            offsets[item[position] + 1] += 1
        for item_code in range(first_item, n_items):
            offsets[item_code + 1] += offsets[item_code]
        # offsets[item_code] is used as the next free position of the item, and restored afterwards.
        for position in range(start, stop):
            order[offsets[item[position]]] = by_query[position]
            offsets[item[position]] += 1
        for item_code in range(n_items - 1, first_item - 1, -1):
            offsets[item_code + 1] = offsets[item_code]
        if n_items > first_item:
            offsets[first_item] = start
        start = stop
    return order, offsets[: n_items + 1].copy()


def _find_repeats(
    offsets: Integers, assessor: Codes, grade: Grades, n_assessors: int, keep_last: bool
) -> tuple[Booleans, Integers]:
    cell = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * n_assessors + assessor
    order = np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order[1:]] == cell[order[:-1]])
    previous, repeated = order[again], order[again + 1]
    is_repeat = np.zeros(len(assessor), np.bool_)
    is_repeat[previous if keep_last else repeated] = True
    equal = repeated[grade[previous] == grade[repeated]]
    counts = [np.bincount(assessor[rows], minlength=n_assessors) for rows in (repeated, equal)]
    return is_repeat, np.stack(counts, axis=1)


@njit(nogil=True)
def group_by_code(codes: Codes, order: Codes, ends: Integers) -> bool:
    """Write a stable order of rows by code and the end of the rows of each code, by a counting sort.

    Returns:
        Whether all codes occur and are numbered in order of first appearance; if not, nothing is sorted.

    """
    # codes, order (n,); ends (n_codes + 1,) zeros
    n_seen = 0
    for row in range(len(codes)):
        code = codes[row]
        if code > n_seen:
            return False
        n_seen += code == n_seen
        ends[code + 1] += 1
    if n_seen < len(ends) - 1:
        return False
    for code in range(n_seen):
        ends[code + 1] += ends[code]
    for row in range(len(codes)):
        code = codes[row]
        order[ends[code]] = row
        ends[code] += 1
    return True


@njit(nogil=True, numpy=_find_repeats)
def find_repeats(
    offsets: Integers, assessor: Codes, grade: Grades, n_assessors: int, keep_last: bool
) -> tuple[Booleans, Integers]:
    """Find judgments to drop where an assessor judged an item (query-document pair) several times.

    Returns:
        Whether to drop each judgment (n,): all but the first, or with `keep_last` all but the last; and by assessor the
        number of repeated judgments, and of those equal to the previous one.

    """
    # offsets (n_items + 1,); assessor, grade (n,) in the order of the items
    is_repeat, counts = np.zeros(len(assessor), np.bool_), np.zeros((n_assessors, 2), np.int64)
    seen_position = np.full(n_assessors, -1, np.int64)
    for item in range(len(offsets) - 1):
        for position in range(offsets[item], offsets[item + 1]):
            a = assessor[position]
            previous = seen_position[a]
            if previous >= offsets[item]:
                is_repeat[previous if keep_last else position] = True
                counts[a, 0] += 1
                counts[a, 1] += grade[previous] == grade[position]
            seen_position[a] = position
    return is_repeat, counts


def _first_rows(codes: Codes, n_codes: int) -> Integers:
    first = np.full(n_codes + 1, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several values for one place the last stays
    return first


@njit(nogil=True, numpy=_first_rows)
def first_rows(codes: Codes, n_codes: int) -> Integers:
    """Return the first row with each code, or -1 if there is none; the last entry is for code -1."""
    # codes (n,); returns (n_codes + 1,)
    first = np.full(n_codes + 1, -1, np.int64)
    for row in range(len(codes)):
        if first[codes[row]] < 0:
            first[codes[row]] = row
    return first


def _find_unusual_texts(offsets: Integers, text_bytes: Bytes, is_ascii: bool, max_rows: int) -> Integers:
    rows = np.flatnonzero(np.diff(offsets))
    start, last = offsets[rows].astype(np.int64), offsets[rows + 1].astype(np.int64) - 1
    if not len(rows):
        return rows
    # the last byte up to each byte that is not a zero
    point = np.maximum.accumulate(np.where(text_bytes != 48, np.arange(len(text_bytes)), 0))[last]
    begin, end = text_bytes[start], text_bytes[last]
    unusual = (begin <= 32) | (begin == 45) | ((begin == 48) & (last > start)) | (end <= 32)
    unusual |= (point >= start) & (point < last) & (text_bytes[point] == 46)
    if not is_ascii:
        n_before = np.concatenate([[0], np.cumsum(text_bytes >= 128)])
        unusual |= n_before[last + 1] > n_before[start]
    found: Integers = rows[unusual][:max_rows]
    return found


@njit(nogil=True, numpy=_find_unusual_texts)
def find_unusual_texts(offsets: Integers, text_bytes: Bytes, is_ascii: bool, max_rows: int) -> Integers:
    """Return the first `max_rows` rows whose text may differ from its usual form (see `ids.unusual_forms`).

    Such text begins with a space, a zero or a minus, ends in a space or in a point and zeros, or is not ASCII;
    `is_ascii` tells that all bytes are.
    """
    rows, n = np.empty(max_rows, np.int64), 0
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        if start == stop:
            continue
        begin, last = text_bytes[start], stop - 1
        while last > start and text_bytes[last] == 48:
            last -= 1
        unusual = begin <= 32 or begin == 45 or (begin == 48 and stop - start > 1)
        unusual |= text_bytes[stop - 1] <= 32 or (text_bytes[last] == 46 and last < stop - 1)
        if not is_ascii:
            for at in range(start, stop):
                unusual |= text_bytes[at] >= 128
        if unusual and n < max_rows:
            rows[n] = row
            n += 1
    return rows[:n].copy()


@njit(nogil=True)
def hash_text(offsets: Integers, text_bytes: Bytes, words: Words, hashes: Words) -> None:
    """Write a 64-bit hash of each text to `hashes`."""
    # offsets (n + 1,) int32 or int64 into text_bytes; words (len(text_bytes) - 7,): the 8-byte word at every byte;
    # hashes (n,) is written
    n_words = np.uint64(len(words))
    for row in range(len(offsets) - 1):
        at, stop = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        h = (stop - at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        while at + np.uint64(8) <= stop:
            h = (h ^ words[at]) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
            at += np.uint64(8)
        if at < stop:
            rest = np.uint64(0)
            if at < n_words:
                rest = words[at] & ((np.uint64(1) << (np.uint64(8) * (stop - at))) - np.uint64(1))
            else:  # too near the end of the buffer for a whole word
                shift = np.uint64(0)
                while at < stop:
                    rest |= np.uint64(text_bytes[at]) << shift
                    shift += np.uint64(8)
                    at += np.uint64(1)
            h = (h ^ rest) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> np.uint64(29))


@njit(nogil=True)
def hash_numbers(numbers: Integers, hashes: Words) -> None:
    """Write a 64-bit hash of each number to `hashes`; different numbers have different hashes."""
    for row in range(len(numbers)):
        h = np.uint64(numbers[row]) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        hashes[row] = h ^ (h >> np.uint64(29))


@njit(nogil=True)
def encode_numbers(
    numbers: Integers, lowest_number: int, n_codes: int, code_table: Codes, codes: Codes, distinct_numbers: Integers
) -> int:
    """Assign codes to numbers in order of first appearance, with a table of all numbers in their range.

    Returns:
        The number of codes.

    """
    # table (highest - lowest + 1,) has the codes so far, or -1; codes (n,) and distinct (n_codes or more,) are written
    for row in range(len(numbers)):
        place = numbers[row] - lowest_number
        code = code_table[place]
        if code < 0:
            code = np.int32(n_codes)
            code_table[place] = code
            distinct_numbers[n_codes] = numbers[row]
            n_codes += 1
        codes[row] = code
    return n_codes


@njit(nogil=True)
def fill_hash_table(hashes: Words, first_row: Codes, n_codes: int, table_hashes: Words, table_codes: Codes) -> None:
    """Insert all codes assigned so far into an empty hash table."""
    # table_hashes, table_codes (size,): size is a power of two; table_codes are -1 in empty slots
    mask = np.uint64(len(table_hashes) - 1)
    for code in range(n_codes):
        slot = hashes[first_row[code]] & mask
        while table_codes[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table_hashes[slot], table_codes[slot] = hashes[first_row[code]], code


@njit(nogil=True)
def encode_hashes(
    hashes: Words, start_row: int, n_codes: int, table_hashes: Words, table_codes: Codes, codes: Codes, first_row: Codes
) -> tuple[int, int]:
    """Assign codes to hashes in order of first appearance, and stop when the hash table is half full.

    Returns:
        The first row without a code (`len(hashes)` if all rows have one), and the number of codes.

    """
    # codes (n,) and first_row (n,), the first row of each code, are written
    mask, max_codes = np.uint64(len(table_hashes) - 1), len(table_hashes) // 2
    for row in range(start_row, len(hashes)):
        h = hashes[row]
        slot = h & mask
        code = table_codes[slot]
        while code >= 0 and table_hashes[slot] != h:
            slot = (slot + np.uint64(1)) & mask
            code = table_codes[slot]
        if code < 0:
            if n_codes == max_codes:
                return row, n_codes
            table_hashes[slot], table_codes[slot], first_row[n_codes] = h, n_codes, row
            code = n_codes
            n_codes += 1
        codes[row] = code
    return len(hashes), n_codes


@njit(nogil=True)
def match_code_texts(
    offsets: Integers, text_bytes: Bytes, words: Words, codes: Codes, code_starts: Integers, code_sizes: Integers
) -> bool:
    """Return whether every text equals the first text with its code, so that no two texts share a hash."""
    # codes (n,); code_starts, code_sizes (n_codes,): position in text_bytes and length of the first text of each code
    n_words = np.uint64(len(words))
    for row in range(len(offsets) - 1):
        at, there = np.uint64(offsets[row]), np.uint64(code_starts[codes[row]])
        stop = np.uint64(offsets[row + 1])
        if np.uint64(code_sizes[codes[row]]) != stop - at:
            return False
        while at + np.uint64(8) <= stop:
            if words[at] != words[there]:
                return False
            at += np.uint64(8)
            there += np.uint64(8)
        if at < stop and at < n_words and there < n_words:
            if (words[at] ^ words[there]) & ((np.uint64(1) << (np.uint64(8) * (stop - at))) - np.uint64(1)):
                return False
            at = stop
        while at < stop:
            if text_bytes[at] != text_bytes[there]:
                return False
            at += np.uint64(1)
            there += np.uint64(1)
    return True
