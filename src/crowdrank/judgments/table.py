"""The table of judgments: codes inside, ids at the door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank.errors import InputError, Message
from crowdrank.judgments import frames, ids
from crowdrank.judgments.scale import Scale

UNJUDGEABLE = -1
"""The code of a 'cannot judge' answer: kept apart from the grades."""

NO_QUERY = "all"
"""The query of items that came without one."""


@dataclass(frozen=True)
class ReadReport:
    """Counts of rows that were read and not used, and how the file was understood."""

    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)  # of each reason to skip, the first row's sentence
    repeats: int = 0
    excluded: int = 0
    units: Mapping[str, str] = field(default_factory=dict)  # of durations and costs, where they are known
    guessed: bool = False  # whether the scale was read off the grades
    columns: Mapping[str, str] = field(default_factory=dict)  # the column that was read for each role
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, eq=False)
class Judgments:
    """Judgments sorted by query and document, with ids as codes. Make one with :func:`crowdrank.read_judgments`.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> judgments = read_judgments(pd.DataFrame({
    ...     "query": ["jam", "jam", "jam"], "document": ["d1", "d1", "d2"],
    ...     "assessor": ["ann", "bob", "ann"], "grade": [2, 1, 0]}))
    >>> judgments
    <Judgments: 3 judgments of 2 documents in 1 query by 2 assessors, grades 0-2>
    >>> judgments.frame
      query document assessor  grade
    0   jam       d1      ann      2
    1   jam       d1      bob      1
    2   jam       d2      ann      0
    """

    queries: pa.Array  # (n_queries,) ids
    documents: pa.Array  # (n_documents,) ids; a document may stand under several queries
    assessors: pa.Array  # (n_assessors,) ids
    item_query: NDArray[np.int32]  # (n_items,) query of each item, ascending
    item_document: NDArray[np.int32]  # (n_items,)
    offsets: NDArray[np.int64]  # (n_items + 1,) where each item's judgments start
    assessor: NDArray[np.int32]  # (n,)
    grade: NDArray[np.int8]  # (n,) position on the assessor's scale, or UNJUDGEABLE
    scales: tuple[Scale, ...]
    assessor_scale: NDArray[np.int8]  # (n_assessors,)
    scale_maps: tuple[tuple[int, ...] | None, ...] = ()  # per scale: codes on the common scale, where a map was given
    common_scale: Scale | None = None
    families: pa.Array | None = None
    assessor_family: NDArray[np.int32] | None = None  # (n_assessors,)
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # (n,) each: time, duration, cost, honeypot
    unjudgeable: tuple[str, ...] = ()  # the answers that were told to mean 'cannot judge'
    labels: tuple[Any, ...] | None = None  # what the grades were called in a frame whose labels are no grades
    report: ReadReport = field(default_factory=ReadReport)
    backend: str = "pandas"

    def __len__(self) -> int:
        return len(self.grade)

    def __repr__(self) -> str:
        counts = [(len(self), "judgment"), (self.n_items, "document"), (self.n_queries, "query")]
        n, items, queries = (counted(number, noun) for number, noun in counts)
        grades = " / ".join(str(scale) for scale in self.scales)
        return f"<Judgments: {n} of {items} in {queries} by {counted(self.n_assessors, 'assessor')}, grades {grades}>"

    @property
    def n_items(self) -> int:
        """Number of (query, document) pairs with a judgment."""
        return len(self.item_query)

    @property
    def n_queries(self) -> int:
        """Number of queries with a judgment."""
        return len(self.queries)

    @property
    def n_assessors(self) -> int:
        """Number of assessors with a judgment."""
        return len(self.assessors)

    @cached_property
    def query_offsets(self) -> NDArray[np.int64]:
        """Where each query's items start: (n_queries + 1,)."""
        return np.searchsorted(self.item_query, np.arange(self.n_queries + 1)).astype(np.int64)

    @property
    def n_unjudgeable(self) -> int:
        """How many answers were 'cannot judge'."""
        return int((self.grade == UNJUDGEABLE).sum())

    @property
    def family_of(self) -> NDArray[np.int32]:
        """The family of each assessor, numbered; an assessor without one is a family of one."""
        family = np.full(self.n_assessors, -1, np.int32) if self.assessor_family is None else self.assessor_family
        alone = family < 0
        first = 0 if self.families is None else len(self.families)
        numbered: NDArray[np.int32] = np.where(alone, first + np.cumsum(alone) - 1, family).astype(np.int32)
        return numbered

    @property
    def has_own_labels(self) -> bool:
        """Whether the grades stand for labels that are not the same whole numbers."""
        return self.labels is not None and list(self.labels) != list(self.scale.values)[: len(self.labels)]

    @property
    def scale(self) -> Scale:
        """The one scale that every assessor uses."""
        if len(self.scales) > 1:
            raise InputError(
                f"the assessors use {len(self.scales)} scales ({' / '.join(map(str, self.scales))})",
                fix="give each a map to one scale in the scales file (column maps_to), or use a model that "
                "takes scales as they are",
            )
        return self.scales[0]

    @property
    def main_scale(self) -> Scale:
        """The scale with the most grades (of equals the first): what a consensus over several is shown on."""
        return max(self.scales, key=len)

    @property
    def maps_to_one_scale(self) -> bool:
        """Whether there is one scale, or a map to one for each."""
        return len(self.scales) == 1 or (self.common_scale is not None and all(self.scale_maps))

    def on_one_scale(self) -> Judgments:
        """The same judgments with every grade on one scale, by the maps given when reading."""
        if len(self.scales) == 1 and not any(self.scale_maps):
            return self
        if not self.maps_to_one_scale or self.common_scale is None:
            _ = self.scale  # says what is missing
            return self
        widest = max(len(scale) for scale in self.scales)
        table = np.full((len(self.scales), widest + 1), UNJUDGEABLE, np.int8)  # the last column is UNJUDGEABLE's
        for row, codes in enumerate(self.scale_maps):
            table[row, : len(codes or ())] = codes or ()
        scale_of = self.assessor_scale[self.assessor]
        return replace(
            self.with_honeypots(lambda codes: table[scale_of, codes]),
            grade=table[scale_of, self.grade],
            scales=(self.common_scale,),
            assessor_scale=np.zeros(self.n_assessors, np.int8),
            scale_maps=(),
        )

    def on_main_scale(self) -> Judgments:
        """As `on_one_scale`; where a scale has no map, it is stretched evenly to the one with the most grades."""
        if self.maps_to_one_scale:
            return self.on_one_scale()
        onto, scale_of = self.stretch, self.assessor_scale[self.assessor]
        return replace(
            self.with_honeypots(lambda codes: onto[scale_of, codes]),
            grade=onto[scale_of, self.grade],
            scales=(self.main_scale,),
            assessor_scale=np.zeros(self.n_assessors, np.int8),
            scale_maps=(),
        )

    @property
    def stretch(self) -> NDArray[np.int8]:
        """The code of each scale's grades on the main scale, the ends of both together: (n_scales, n_grades + 1)."""
        widest = len(self.main_scale)
        onto = np.full((len(self.scales), widest + 1), UNJUDGEABLE, np.int8)  # the last column is UNJUDGEABLE's
        for number, own in enumerate(self.scales):
            onto[number, : len(own)] = np.round(np.linspace(0, widest - 1, len(own)))
        return onto

    def with_unjudgeable(self, how: str) -> Judgments:
        """'Cannot judge' answers as the lowest grade (`lowest`), left out (`drop`), or as they are (`model`)."""
        require_one_of("unjudgeable_as", how, ("lowest", "drop", "model"))
        unjudgeable = self.grade == UNJUDGEABLE
        if how == "model":
            return self
        if how == "drop":
            return self.where(~unjudgeable) if unjudgeable.any() else self
        lowest = self.with_honeypots(lambda codes: np.maximum(codes, 0))
        return replace(lowest, grade=np.maximum(self.grade, 0))

    def with_unjudgeable_answer(self) -> Judgments:
        """'Cannot judge' as an answer of its own, coded after the grades of all scales."""
        answer = np.where(self.grade == UNJUDGEABLE, max(map(len, self.scales)), self.grade)
        return replace(self, grade=answer.astype(np.int8))

    def with_families(self, families: pa.Array | None, assessor_family: NDArray[np.int32] | None) -> Judgments:
        """The same judgments, their assessors in these families (n_assessors,), or in none."""
        return replace(self, families=families, assessor_family=assessor_family)

    def of_assessors(self, rows: NDArray[np.int64]) -> Judgments:
        """Of a table without judgments, the assessors of `rows` alone, in that order; families left empty are gone."""
        families, family = self.families, None
        if families is not None and self.assessor_family is not None:
            family, families = _compacted(self.assessor_family[rows], families)
        assessors = self.assessors.take(pa.array(rows))
        return replace(
            self,
            assessors=assessors,
            assessor_scale=self.assessor_scale[rows],
            families=families,
            assessor_family=family,
        )

    def with_honeypots(self, recode: Callable[[NDArray[np.int8]], NDArray[np.int8]]) -> Judgments:
        """The right answers coded anew, as the grades are; `recode` gets one of every row, blanks stay blank."""
        if "honeypot" not in self.extras:
            return self
        codes = self.extras["honeypot"]
        planted = codes != NO_HONEYPOT
        anew = np.where(planted, recode(np.where(planted, codes, 0)), NO_HONEYPOT).astype(np.int8)
        return replace(self, extras={**self.extras, "honeypot": anew})

    def where(self, keep: NDArray[np.bool_]) -> Judgments:
        """Only the judgments that `keep` (n,) names; queries, documents and assessors left empty are gone."""
        if not keep.any():
            raise InputError("no judgment is left", fix="loosen what is left out")
        rows = np.flatnonzero(keep)
        item = np.repeat(np.arange(self.n_items, dtype=np.int32), np.diff(self.offsets))[rows]
        items, counts = np.unique(item, return_counts=True)
        query, queries = _compacted(self.item_query[items], self.queries)
        document, documents = _compacted(self.item_document[items], self.documents)
        assessor, assessors = _compacted(self.assessor[rows], self.assessors)
        kept = np.unique(self.assessor[rows])
        families, assessor_family = self.families, None
        if families is not None and self.assessor_family is not None:
            assessor_family, families = _compacted(self.assessor_family[kept], families)
        return replace(
            self,
            queries=queries,
            documents=documents,
            assessors=assessors,
            item_query=query,
            item_document=document,
            offsets=np.append(0, np.cumsum(counts)),
            assessor=assessor,
            grade=self.grade[rows],
            assessor_scale=self.assessor_scale[kept],
            families=families,
            assessor_family=assessor_family,
            extras={name: column[rows] for name, column in self.extras.items()},
        )

    def to_arrow(self) -> pa.Table:
        """The judgments as rows of ids, sorted by query and document; an unjudgeable grade is null."""
        item = np.repeat(np.arange(self.n_items), np.diff(self.offsets))
        columns = {
            "query": self.queries.take(pa.array(self.item_query[item])),
            "document": self.documents.take(pa.array(self.item_document[item])),
            "assessor": self.assessors.take(pa.array(self.assessor)),
            "grade": self._grades_out(),
        }
        if self.families is not None and self.assessor_family is not None:
            family = self.assessor_family[self.assessor]
            columns["family"] = self.families.take(pa.array(family, mask=family < 0))
        for name, column in self.extras.items():
            columns[name] = self._honeypots_out(column) if name == "honeypot" else pa.array(column, from_pandas=True)
        return pa.table(columns)

    def _grades_out(self) -> pa.Array:
        """Grades as the user wrote them: numbers, or names where any scale has names."""
        scale_of = self.assessor_scale[self.assessor]
        numeric = all(scale.numeric for scale in self.scales)
        widest = max(len(scale) for scale in self.scales)
        table = np.empty((len(self.scales), widest), np.int64 if numeric else object)
        for row, scale in enumerate(self.scales):
            table[row, : len(scale)] = np.array(scale.values if numeric else scale.names)
        shown = table[scale_of, np.maximum(self.grade, 0)]
        return pa.array(shown, mask=self.grade == UNJUDGEABLE)

    def _honeypots_out(self, codes: NDArray[Any]) -> pa.Array:
        as_grades = replace(self, grade=np.where(codes == NO_HONEYPOT, UNJUDGEABLE, codes).astype(np.int8))
        return as_grades._grades_out()

    @property
    def frame(self) -> Any:
        """The judgments as a DataFrame of the library they came in (pandas for files)."""
        return frames.from_arrow(self.to_arrow(), self.backend)

    def positions(self, query: pa.Array, document: pa.Array) -> NDArray[np.int64]:
        """For each pair of ids the number of its item here, or -1."""
        q, d = ids.match(self.queries, query), ids.match(self.documents, document)
        keys = self.item_query.astype(np.int64) * len(self.documents) + self.item_document
        wanted = q * len(self.documents) + d
        by_key = np.argsort(keys)
        found = by_key[np.minimum(np.searchsorted(keys, wanted, sorter=by_key), self.n_items - 1)]
        return np.where((q >= 0) & (d >= 0) & (keys[found] == wanted), found, -1)


NO_HONEYPOT = -2
"""In the honeypot column: this item is not one."""


def _compacted(codes: NDArray[np.int32], names: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Only the names that are used, in their order, and the codes for them; -1 stays -1."""
    used = np.unique(codes[codes >= 0])
    onto = np.full(len(names) + 1, -1, np.int32)
    onto[used] = np.arange(len(used))
    return onto[codes], names.take(pa.array(used))
