"""The table of judgments: ids as codes, rows sorted by query and document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Grades, Integers
from crowdrank.errors import InputError, Message
from crowdrank.judgments import frames, ids
from crowdrank.judgments.scale import Scale

UNJUDGEABLE = -1
"""Code of a 'cannot judge' answer."""
NO_HONEYPOT = -2
"""Code in the honeypot column of an item that is no honeypot."""
NO_QUERY = "all"
"""Query of items that were read without one."""


@dataclass(frozen=True)
class ReadReport:
    """Counts of rows that were read and not used, and how the file was read."""

    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Message] = field(default_factory=dict)  # by reason: what is wrong with the first row
    repeats: int = 0
    excluded: int = 0
    units: Mapping[str, str] = field(default_factory=dict)  # of durations and costs, if known
    guessed: bool = False  # whether the scale was inferred from the grades
    columns: Mapping[str, str] = field(default_factory=dict)  # the column that was read for each role
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class AssessorTable:
    """Assessors with their scales and families, and how judgments were read."""

    assessors: pa.Array  # (n_assessors,) ids
    scales: tuple[Scale, ...]
    assessor_scale: Grades  # (n_assessors,)
    scale_maps: tuple[tuple[int, ...] | None, ...] = ()  # per scale: codes on the common scale, if it has a map
    common_scale: Scale | None = None
    families: pa.Array | None = None
    assessor_family: Codes | None = None  # (n_assessors,), -1 without a family
    unjudgeable: tuple[str, ...] = ()  # answers that mean 'cannot judge'
    report: ReadReport = field(default_factory=ReadReport)
    backend: str = "pandas"

    @property
    def n_assessors(self) -> int:
        """Number of assessors."""
        return len(self.assessors)

    @property
    def family_of(self) -> Codes:
        """Number of each assessor's family; an assessor without a family is a family of one."""
        family = np.full(self.n_assessors, -1, np.int32) if self.assessor_family is None else self.assessor_family
        alone = family < 0
        first = 0 if self.families is None else len(self.families)
        return np.where(alone, first + np.cumsum(alone) - 1, family).astype(np.int32)

    @property
    def scale(self) -> Scale:
        """The only scale; an InputError if there are several."""
        if len(self.scales) > 1:
            raise InputError(
                f"the assessors use {len(self.scales)} scales ({' / '.join(map(str, self.scales))})",
                kind="several-scales",
                fix=["map each to one scale in the scales file (column maps_to)", "use a model for several scales"],
            )
        return self.scales[0]

    @property
    def main_scale(self) -> Scale:
        """The scale with the most grades, the first of equals; a consensus over several scales is on it."""
        return max(self.scales, key=len)

    @property
    def maps_to_one_scale(self) -> bool:
        """Whether there is one scale, or a map to a common scale for each."""
        return len(self.scales) == 1 or (self.common_scale is not None and all(self.scale_maps))

    def with_families(self, families: pa.Array | None, assessor_family: Codes | None) -> Self:
        """Return the judgments with other families of assessors, or without families."""
        return replace(self, families=families, assessor_family=assessor_family)

    def of_assessors(self, rows: Integers) -> AssessorTable:
        """Return the table of some assessors; families without an assessor are left out."""
        families, family = self.families, None
        if families is not None and self.assessor_family is not None:
            family, families = compact(self.assessor_family[rows], families)
        return replace(
            self.assessor_table(),
            assessors=self.assessors.take(pa.array(rows)),
            assessor_scale=self.assessor_scale[rows],
            families=families,
            assessor_family=family,
        )

    def assessor_table(self) -> AssessorTable:
        """Return the assessors without judgments."""
        return AssessorTable(**assessor_fields(self))

    def _on_common_scale(self) -> dict[str, Any]:
        """Return the fields that change when every grade is mapped to the common scale; none if there is one scale."""
        if len(self.scales) == 1 and not any(self.scale_maps):
            return {}
        if not self.maps_to_one_scale or self.common_scale is None:
            _ = self.scale  # raises InputError if there are several scales
            return {}
        return self._on_scale(self.common_scale)

    def _on_scale(self, scale: Scale) -> dict[str, Any]:
        return {"scales": (scale,), "assessor_scale": np.zeros(self.n_assessors, np.int8), "scale_maps": ()}


def assessor_fields(table: AssessorTable) -> dict[str, Any]:
    """Return the fields of an assessor table by name."""
    return {known.name: getattr(table, known.name) for known in fields(AssessorTable)}


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgmentsLike(AssessorTable, ABC):
    """Judgments in memory (`Judgments`) or on disk (`ShardedJudgments`)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def n_items(self) -> int:
        """Number of (query, document) pairs with a judgment."""

    @property
    @abstractmethod
    def n_queries(self) -> int:
        """Number of queries with a judgment."""

    @property
    @abstractmethod
    def n_unjudgeable(self) -> int:
        """Number of 'cannot judge' answers."""

    @abstractmethod
    def iterate(self) -> Iterator[Judgments]:
        """Yield the judgments in memory, one shard at a time."""

    @abstractmethod
    def on_one_scale(self) -> Self:
        """Return the judgments with every grade mapped to the common scale."""

    @abstractmethod
    def with_unjudgeable(self, how: str) -> Self:
        """Return the judgments with 'cannot judge' answers replaced or left out.

        Args:
            how: `lowest` (the lowest grade), `drop` (left out) or `model` (as they are).

        """

    @abstractmethod
    def with_unjudgeable_answer(self) -> Self:
        """Return the judgments with 'cannot judge' coded as one more answer after the grades of all scales."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgments(JudgmentsLike):
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
    documents: pa.Array  # (n_documents,) ids; a document may occur under several queries
    item_query: Codes  # (n_items,) query of each item, ascending
    item_document: Codes  # (n_items,)
    offsets: Integers  # (n_items + 1,) start of each item's judgments
    assessor: Codes  # (n,)
    grade: Grades  # (n,) position on the assessor's scale, or UNJUDGEABLE
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # (n,) each: time, duration, cost, honeypot
    labels: tuple[Any, ...] | None = None  # original labels of a frame whose labels are not grades

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

    @cached_property
    def query_offsets(self) -> Integers:
        """Start of each query's items: (n_queries + 1,)."""
        return np.searchsorted(self.item_query, np.arange(self.n_queries + 1)).astype(np.int64)

    @property
    def n_unjudgeable(self) -> int:
        """Number of 'cannot judge' answers."""
        return int((self.grade == UNJUDGEABLE).sum())

    @property
    def has_own_labels(self) -> bool:
        """Whether the original labels are not the grades' values."""
        return self.labels is not None and list(self.labels) != list(self.scale.values)[: len(self.labels)]

    def iterate(self) -> Iterator[Judgments]:
        """Yield the judgments."""
        yield self

    def item_column(self, role: str) -> Codes:
        """Return the query or document code of each judgment."""
        codes = self.item_query if role == "query" else self.item_document
        return np.repeat(codes, np.diff(self.offsets))

    def on_one_scale(self) -> Self:
        """Return the judgments with every grade mapped to the common scale."""
        changes = self._on_common_scale()
        if not changes:
            return self
        table = np.full((len(self.scales), len(self.main_scale) + 1), UNJUDGEABLE, np.int8)
        for row, codes in enumerate(self.scale_maps):
            table[row, : len(codes or ())] = codes or ()
        return self._regraded(table, changes)

    def on_main_scale(self) -> Self:
        """Return the judgments on the common scale or, if a scale has no map, stretched to the main scale."""
        return (
            self.on_one_scale()
            if self.maps_to_one_scale
            else self._regraded(self.stretch, self._on_scale(self.main_scale))
        )

    def _regraded(self, table: Grades, changes: Mapping[str, Any]) -> Self:
        """Map grades and honeypots by a table (n_scales, n_grades + 1); its last column is that of UNJUDGEABLE."""
        scale_of = self.assessor_scale[self.assessor]
        regraded = self.with_honeypots(lambda codes: table[scale_of, codes])
        return replace(regraded, grade=table[scale_of, self.grade], **changes)

    @property
    def stretch(self) -> Grades:
        """Code of each scale's grades on the main scale, lowest and highest matched: (n_scales, n_grades + 1)."""
        n_grades = len(self.main_scale)
        table = np.full((len(self.scales), n_grades + 1), UNJUDGEABLE, np.int8)  # the last column is UNJUDGEABLE's
        for row, scale in enumerate(self.scales):
            table[row, : len(scale)] = np.round(np.linspace(0, n_grades - 1, len(scale)))
        return table

    def with_unjudgeable(self, how: str) -> Self:
        """Return the judgments with 'cannot judge' as the lowest grade, left out (`drop`) or as it is (`model`)."""
        require_one_of("unjudgeable_as", how, ("lowest", "drop", "model"))
        unjudgeable = self.grade == UNJUDGEABLE
        if how == "model":
            return self
        if how == "drop":
            return self.where(~unjudgeable) if unjudgeable.any() else self
        lowest = self.with_honeypots(lambda codes: np.maximum(codes, 0))
        return replace(lowest, grade=np.maximum(self.grade, 0))

    def with_unjudgeable_answer(self) -> Self:
        """Return the judgments with 'cannot judge' coded as one more answer after the grades of all scales."""
        answer = np.where(self.grade == UNJUDGEABLE, max(map(len, self.scales)), self.grade)
        return replace(self, grade=answer.astype(np.int8))

    def with_honeypots(self, recode: Callable[[Grades], Grades]) -> Self:
        """Return the judgments with other codes of the honeypots' answers.

        Args:
            recode: maps codes (n,) to codes; rows without a honeypot are passed as 0 and stay without one.

        """
        if "honeypot" not in self.extras:
            return self
        codes = self.extras["honeypot"]
        is_honeypot = codes != NO_HONEYPOT
        recoded = np.where(is_honeypot, recode(np.where(is_honeypot, codes, 0)), NO_HONEYPOT).astype(np.int8)
        return replace(self, extras={**self.extras, "honeypot": recoded})

    def where(self, keep: Booleans) -> Self:
        """Return the judgments that `keep` (n,) selects; ids without a judgment are left out."""
        if not keep.any():
            raise no_judgment_left()
        rows = np.flatnonzero(keep)
        item = np.repeat(np.arange(self.n_items, dtype=np.int32), np.diff(self.offsets))[rows]
        items, counts = np.unique(item, return_counts=True)
        query, queries = compact(self.item_query[items], self.queries)
        document, documents = compact(self.item_document[items], self.documents)
        assessor, _ = compact(self.assessor[rows], self.assessors)
        return replace(
            self,
            queries=queries,
            documents=documents,
            item_query=query,
            item_document=document,
            offsets=np.append(0, np.cumsum(counts)),
            assessor=assessor,
            grade=self.grade[rows],
            extras={name: column[rows] for name, column in self.extras.items()},
            **assessor_fields(self.of_assessors(np.unique(self.assessor[rows]))),
        )

    def to_arrow(self) -> pa.Table:
        """Return the judgments as rows of ids, sorted by query and document; an unjudgeable grade is null."""
        columns = {
            "query": self.queries.take(pa.array(self.item_column("query"))),
            "document": self.documents.take(pa.array(self.item_column("document"))),
            "assessor": self.assessors.take(pa.array(self.assessor)),
            "grade": self._grade_values(self.grade),
        }
        if self.families is not None and self.assessor_family is not None:
            family = self.assessor_family[self.assessor]
            columns["family"] = self.families.take(pa.array(family, mask=family < 0))
        for name, column in self.extras.items():
            columns[name] = self._grade_values(column) if name == "honeypot" else pa.array(column, from_pandas=True)
        return pa.table(columns)

    def _grade_values(self, codes: Grades) -> pa.Array:
        """Return grades as numbers, or as names if any scale has names; null where there is no grade."""
        numeric = all(scale.numeric for scale in self.scales)
        table = np.empty((len(self.scales), len(self.main_scale)), np.int64 if numeric else object)
        for row, scale in enumerate(self.scales):
            table[row, : len(scale)] = np.array(scale.values if numeric else scale.names)
        values = table[self.assessor_scale[self.assessor], np.maximum(codes, 0)]
        return pa.array(values, mask=codes < 0)

    @property
    def frame(self) -> Any:
        """The judgments as a DataFrame of the library they came in (pandas for files)."""
        return frames.from_arrow(self.to_arrow(), self.backend)

    def positions(self, query: pa.Array, document: pa.Array) -> Integers:
        """Return the item number of each (query, document) pair of ids, or -1."""
        q, d = ids.match(self.queries, query), ids.match(self.documents, document)
        keys = self.item_query.astype(np.int64) * len(self.documents) + self.item_document
        wanted = q * len(self.documents) + d
        by_key = np.argsort(keys)
        nearest = by_key[np.minimum(np.searchsorted(keys, wanted, sorter=by_key), self.n_items - 1)]
        return np.where((q >= 0) & (d >= 0) & (keys[nearest] == wanted), nearest, -1)


def no_judgment_left() -> InputError:
    """Return the error for judgments of which none is left."""
    return InputError("no judgment is left", kind="no-judgments", fix="leave out less")


def compact(codes: Codes, names: pa.Array) -> tuple[Codes, pa.Array]:
    """Return codes for only those names that are used, in the same order; -1 stays -1.

    >>> codes, names = compact(np.array([2, -1, 0]), pa.array(["a", "b", "c"]))
    >>> codes.tolist(), names.to_pylist()
    ([1, -1, 0], ['a', 'c'])
    """
    used = np.zeros(len(names) + 1, bool)
    used[codes] = True
    used[-1] = False
    new_codes = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return new_codes[codes], names.filter(pa.array(used[:-1]))
