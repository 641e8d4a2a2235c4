"""Find the row of a (query, document) pair, and pairs that occur in several rows."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._arrow import from_numpy
from crowdrank._typing import Integers
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.ids import CodedIds


class PairIndex:
    """Index of the (query, document) pairs of a table.

    Args:
        query: query of each row, as codes and distinct ids; none may be missing.
        document: document of each row.

    Attributes:
        query: as given.

    >>> index = PairIndex.from_ids(pa.array(["q", "q", "r", "q"]), pa.array(["a", "b", "a", "a"]))
    >>> index.positions(pa.array(["r", "q", "s"]), pa.array(["a", "a", "a"])).tolist()
    [2, 0, -1]
    >>> index.pair.tolist(), index.first_rows.tolist(), index.repeated_row
    ([0, 1, 2, 0], [0, 1, 2], 3)

    """

    def __init__(self, query: CodedIds, document: CodedIds) -> None:
        self.query = query
        (query_codes, self._queries), (document_codes, self._documents) = query, document
        keys = pa.chunked_array([from_numpy(self._pair_keys(query_codes, document_codes))])
        codes, self._distinct_keys = ids.encode(keys)
        self.pair: Integers = codes.astype(np.int64)
        """Number of the pair of each row (n,), in order of first appearance."""

    @classmethod
    def from_ids(cls, query: pa.Array, document: pa.Array) -> PairIndex:
        """Return the index of the pairs of ids of each row."""
        return cls(ids.encode(pa.chunked_array([query])), ids.encode(pa.chunked_array([document])))

    @classmethod
    def from_unique_ids(cls, query: pa.Array, document: pa.Array, source: str) -> PairIndex:
        """Return the index of pairs of ids; raise InputError if a pair occurs twice in the table `source`."""
        index = cls.from_ids(query, document)
        if index.repeated_row is not None:
            row = index.repeated_row
            problem = f"the document {shown(document[row].as_py())} of query {shown(query[row].as_py())} occurs twice"
            fix = "leave one row for each document of a query"
            raise InputError(problem, source=source, kind="repeated-document", fix=fix)
        return index

    @cached_property
    def first_rows(self) -> Integers:
        """First row of each pair, (n_pairs,)."""
        first = np.empty(len(self._distinct_keys), np.int64)
        first[self.pair[::-1]] = np.arange(len(self.pair))[::-1]
        return first

    @property
    def repeated_row(self) -> int | None:
        """First row whose pair occurs in an earlier row, or None."""
        if len(self._distinct_keys) == len(self.pair):
            return None
        return int(np.argmax(self.first_rows[self.pair] != np.arange(len(self.pair))))

    def positions(self, query: pa.Array | CodedIds, document: pa.Array | CodedIds) -> Integers:
        """Return the first row of each wanted pair, or -1 if there is none.

        Args:
            query: query of each wanted pair: ids, or codes and distinct ids.
            document: document of each wanted pair.

        """
        wanted = self._pair_keys(_match_ids(self._queries, query), _match_ids(self._documents, document))
        pair = ids.match(self._distinct_keys, from_numpy(wanted))
        return np.where(wanted >= 0, np.append(self.first_rows, -1)[pair], -1)

    def _pair_keys(self, query: NDArray[np.integer], document: NDArray[np.integer]) -> Integers:
        """Return an integer per pair of codes, which is the same only for the same pair; -1 if a code is -1."""
        keys = query.astype(np.int64) * len(self._documents) + document
        return np.where((query >= 0) & (document >= 0), keys, -1)


def _match_ids(distinct_ids: pa.Array, wanted_ids: pa.Array | CodedIds) -> Integers:
    """Return the index of each wanted id among distinct ids, or -1 if it is not among them."""
    if not isinstance(wanted_ids, tuple):
        return ids.match(distinct_ids, wanted_ids)
    codes, names = wanted_ids
    return codes.astype(np.int64) if names is distinct_ids else np.append(ids.match(distinct_ids, names), -1)[codes]
