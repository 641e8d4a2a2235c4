"""The table of judgments: ids as codes, rows sorted by query and document. An item is a (query, document) pair."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._assessor_kinds import KINDS, UNKNOWN_KIND
from crowdrank._estimator import require_one_of
from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Floats, Grades, Integers
from crowdrank.errors import InputError, Message
from crowdrank.judgments import frames
from crowdrank.judgments.columns import FEATURES_USED, PROBABILITY_COLUMN_PATTERN
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.scale import Scale, add_scale_column

UNJUDGEABLE = -1
"""Code of a 'cannot judge' answer."""
NO_HONEYPOT = -2
"""Code in the honeypot column of a judgment whose item is not a honeypot."""
NO_QUERY = "all"
"""Query id of items that were read from a file without queries."""


@dataclass(frozen=True)
class ReadReport:
    """Number of rows that were read and of those not used, and how the file was read."""

    rows: int = 0  # number of rows in the file
    skipped: Mapping[str, int] = field(default_factory=dict)  # number of unused rows by reason
    examples: Mapping[str, Message] = field(default_factory=dict)  # by reason: the error of the first such row
    repeats: int = 0  # number of repeated judgments of an assessor on an item
    # by assessor id: number of repeated judgments, and how many of them equal the assessor's next answer on the item
    repeats_by_assessor: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    contradictions: int = 0  # number of pairs with both outcomes by an assessor, of which repeats left out one
    excluded: int = 0  # number of judgments of excluded assessors
    excluded_ids: tuple[str, ...] = ()  # excluded assessors that occur
    units: Mapping[str, str] = field(default_factory=dict)  # units of durations and costs, if known
    guessed: bool = False  # whether the scale was inferred from the grades
    columns: Mapping[str, str] = field(default_factory=dict)  # name of the column that was read for each role
    notes: tuple[Message, ...] = ()

    @property
    def used_features(self) -> bool:
        """Whether the grades are those of a consensus that used features of the documents."""
        return any(note.kind == FEATURES_USED for note in self.notes)


@dataclass(frozen=True, eq=False, kw_only=True)
class AssessorTable:
    """Assessors with their scales and families, and the read report of their judgments.

    A family is a group of related assessors, such as the prompts of one LLM. With a `family_separator`, families are
    nested: `acme/large` is a family within `acme`.
    """

    assessors: pa.Array  # (n_assessors,) ids
    scales: tuple[Scale, ...]
    assessor_scale: Grades  # (n_assessors,) index in `scales`
    scale_maps: tuple[tuple[int, ...] | None, ...] = ()  # per scale: its grades as codes on the common scale, if mapped
    common_scale: Scale | None = None  # the scale that `scale_maps` map to
    families: pa.Array | None = None  # (n_families,) ids
    assessor_family: Codes | None = None  # (n_assessors,) index in `families`, or -1
    family_separator: str | None = None  # separator of the levels in ids of families; None: one level
    # correlation of the errors of two assessors by the id of the family that both are in, if it was estimated
    family_correlations: Mapping[str, float] = field(default_factory=dict)
    unjudgeable: tuple[str, ...] = ()  # answers that mean 'cannot judge'
    report: ReadReport = field(default_factory=ReadReport)
    backend: str = "pandas"  # DataFrame library of results

    @property
    def n_assessors(self) -> int:
        """Number of assessors."""
        return len(self.assessors)

    @property
    def family_of(self) -> Codes:
        """Index of each assessor's family (n_assessors,); an assessor without a family gets a family of its own."""
        family_index = np.full(self.n_assessors, -1, np.int32) if self.assessor_family is None else self.assessor_family
        is_alone = family_index < 0
        n_families = 0 if self.families is None else len(self.families)
        return np.where(is_alone, n_families + np.cumsum(is_alone) - 1, family_index).astype(np.int32)

    @property
    def family_levels(self) -> Codes:
        """Index of each assessor's family at each level (n_levels, n_assessors), from the coarsest to the finest.

        The last row is `family_of`. An assessor without a family at a level is a family of its own there.
        """
        finest = self.family_of
        paths = self._family_paths()
        levels = [finest]
        for depth in range(max(map(len, paths), default=1) - 1, 0, -1):
            # A family whose id has fewer parts than this level is its own family there.
            coarse = {path[:depth]: code for code, path in reversed(list(enumerate(paths)))}
            parent = np.array([coarse[path[:depth]] for path in paths], np.int32)
            levels.append(np.where(finest < len(paths), np.append(parent, 0)[np.minimum(finest, len(paths))], finest))
        return np.stack(levels[::-1]).astype(np.int32)

    @property
    def estimated_correlations(self) -> Floats | None:
        """Correlation of an assessor's errors with others of the same family at each level (n_levels, n_assessors).

        None if the correlations were not estimated; 0 for an assessor without a family.
        """
        if not self.family_correlations:
            return None
        paths, finest = self._family_paths(), self.family_of
        n_levels = max(map(len, paths), default=1)
        values = np.zeros((n_levels, len(paths) + 1))
        for code, path in enumerate(paths):
            for level in range(n_levels):
                name = (self.family_separator or "").join(path[: level + 1])
                values[level, code] = self.family_correlations.get(name, 0.0)
        return np.asarray(values[:, np.minimum(finest, len(paths))])

    def _family_paths(self) -> list[tuple[str, ...]]:
        """Return the id of each family as a tuple of its levels."""
        names = [] if self.families is None else [str(name) for name in self.families.to_pylist()]
        return [tuple(name.split(self.family_separator)) if self.family_separator else (name,) for name in names]

    @property
    def scale(self) -> Scale:
        """The scale of all assessors; raises InputError if they have several."""
        if len(self.scales) > 1:
            problem = f"the assessors use {len(self.scales)} scales ({' / '.join(map(str, self.scales))})"
            fix = ["map each to one scale in the scales file (column maps_to)", "use a model for several scales"]
            raise InputError(problem, kind="several-scales", fix=fix)
        return self.scales[0]

    @property
    def main_scale(self) -> Scale:
        """The scale with the most grades (the first of several); a consensus of assessors on several scales uses it."""
        return max(self.scales, key=len)

    @property
    def maps_to_one_scale(self) -> bool:
        """Whether there is only one scale, or every scale has a map to the common scale."""
        return len(self.scales) == 1 or (self.common_scale is not None and all(self.scale_maps))

    def with_families(
        self,
        families: pa.Array | None,
        assessor_family: Codes | None,
        separator: str | None = None,
        correlations: Mapping[str, float] | None = None,
    ) -> Self:
        """Return a copy with other families of assessors, or without families."""
        return replace(
            self,
            families=families,
            assessor_family=assessor_family,
            family_separator=separator,
            family_correlations=correlations or {},
        )

    def select_assessors(self, assessor_codes: Integers) -> AssessorTable:
        """Return the table of the assessors with these codes, in this order; unused families are left out."""
        families, assessor_family = self.families, None
        if families is not None and self.assessor_family is not None:
            assessor_family, families = drop_unused_ids(self.assessor_family[assessor_codes], families)
            if not len(families):
                assessor_family = families = None
        return replace(
            self.assessor_table(),
            assessors=self.assessors.take(pa.array(assessor_codes)),
            assessor_scale=self.assessor_scale[assessor_codes],
            families=families,
            assessor_family=assessor_family,
        )

    def assessor_table(self) -> AssessorTable:
        """Return the assessors without their judgments."""
        return AssessorTable(**assessor_fields(self))

    def _fields_on_common_scale(self) -> dict[str, Any]:
        """Return the fields that change when all grades are mapped to the common scale; empty if there is one scale."""
        if len(self.scales) == 1 and not any(self.scale_maps):
            return {}
        if not self.maps_to_one_scale or self.common_scale is None:
            _ = self.scale  # raises InputError if there are several scales
            return {}
        return self._fields_on_scale(self.common_scale)

    def _fields_on_scale(self, scale: Scale) -> dict[str, Any]:
        """Return the fields that change when all assessors use one scale."""
        return {"scales": (scale,), "assessor_scale": np.zeros(self.n_assessors, np.int8), "scale_maps": ()}


def assessor_fields(table: AssessorTable) -> dict[str, Any]:
    """Return the values of the fields of AssessorTable by name."""
    return {table_field.name: getattr(table, table_field.name) for table_field in fields(AssessorTable)}


@dataclass(frozen=True, eq=False, kw_only=True)
class AnyJudgments(AssessorTable, ABC):
    """What judgments in memory (:class:`Judgments`) and on disk (:class:`ShardedJudgments`) have in common."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of judgments."""

    @property
    @abstractmethod
    def n_items(self) -> int:
        """Number of (query, document) pairs with a judgment."""

    @property
    @abstractmethod
    def n_queries(self) -> int:
        """Number of queries with a judgment; on disk, a query that is in several shards is counted in each."""

    @property
    @abstractmethod
    def n_unjudgeable(self) -> int:
        """Number of 'cannot judge' answers."""

    @abstractmethod
    def iterate(self, *, ids: bool = True) -> Iterator[Judgments]:
        """Yield the judgments shard by shard, in memory as a single one; without `ids`, shards on disk have none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgments(AnyJudgments):
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
    item_query: Codes  # (n_items,) index in `queries`, ascending
    item_document: Codes  # (n_items,) index in `documents`
    offsets: Integers  # (n_items + 1,) position of each item's first judgment, and n
    assessor: Codes  # (n,) index in `assessors`
    grade: Grades  # (n,) position on the assessor's scale, or UNJUDGEABLE
    # (n,) each: time, duration, cost, honeypot, kind (of the assessor, index in KINDS); of soft labels also the
    # probability of each grade (p0, p1, ...)
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)
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
        """Index of each query's first item, and the number of items (n_queries + 1,)."""
        return np.searchsorted(self.item_query, np.arange(self.n_queries + 1)).astype(np.int64)

    @property
    def n_unjudgeable(self) -> int:
        """Number of 'cannot judge' answers."""
        return int((self.grade == UNJUDGEABLE).sum())

    @property
    def has_own_labels(self) -> bool:
        """Whether there are original labels that differ from the values of the grades."""
        return self.labels is not None and list(self.labels) != list(self.scale.values)[: len(self.labels)]

    def iterate(self, *, ids: bool = True) -> Iterator[Judgments]:
        """Yield the judgments themselves, as a single shard."""
        yield self

    def by_row(self, item_values: NDArray[Any]) -> NDArray[Any]:
        """Return the value of each judgment's item (n,), given a value per item (n_items,)."""
        return np.repeat(item_values, np.diff(self.offsets))

    @property
    def item(self) -> Integers:
        """Index of the item of each judgment (n,)."""
        return self.by_row(np.arange(self.n_items))

    @property
    def has_soft_labels(self) -> bool:
        """Whether there are columns with the probabilities of grades."""
        return any(name in self.extras for scale in self.scales for name in scale.share_names)

    def with_hard_labels(self) -> Self:
        """Return the judgments without the probabilities of grades."""
        if not self.has_soft_labels:
            return self
        hard = {name: column for name, column in self.extras.items() if not PROBABILITY_COLUMN_PATTERN.fullmatch(name)}
        return replace(self, extras=hard)

    def shares(self) -> Floats | None:
        """Return the probabilities of the grades by position on the assessor's scale, (n, n_grades).

        The row of a judgment without probabilities is NaN. None: no judgment has probabilities.
        """
        if not self.has_soft_labels:
            return None
        shares = np.full((len(self), len(self.main_scale)), np.nan)
        row_scale = self.assessor_scale[self.assessor]
        for scale_index, scale in enumerate(self.scales):
            rows = slice(None) if len(self.scales) == 1 else np.flatnonzero(row_scale == scale_index)
            for code, name in enumerate(scale.share_names):
                if name in self.extras:
                    shares[rows, code] = self.extras[name][rows]
        is_hard = np.isnan(shares).all(axis=1)
        shares = np.nan_to_num(shares, nan=0.0)
        shares[is_hard] = np.nan
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def vote_counts(self) -> Integers:
        """Return how often each item got each grade (n_items, n_grades), for judgments on one scale."""
        n_grades, judged = len(self.scale), self.grade != UNJUDGEABLE
        cells = self.item[judged] * n_grades + self.grade[judged]
        return np.bincount(cells, minlength=self.n_items * n_grades).reshape(-1, n_grades)

    def item_ids(self) -> tuple[pa.Array, pa.Array]:
        """Return the query id and the document id of each item."""
        return self.queries.take(pa.array(self.item_query)), self.documents.take(pa.array(self.item_document))

    def to_one_scale(self) -> Self:
        """Return the judgments with every grade mapped to the common scale."""
        changed_fields = self._fields_on_common_scale()
        if not changed_fields:
            return self
        code_table = np.full((len(self.scales), len(self.main_scale) + 1), UNJUDGEABLE, np.int8)
        for scale_index, codes in enumerate(self.scale_maps):
            code_table[scale_index, : len(codes or ())] = codes or ()
        return self._map_grades(code_table, changed_fields)

    def to_main_scale(self) -> Self:
        """Return the judgments with all grades on one scale.

        If every scale has a map to the common scale (`scale_maps`), it is that scale. Otherwise it is the main scale,
        to which grades of the others are mapped linearly, the lowest to the lowest and the highest to the highest.
        """
        if self.maps_to_one_scale:
            return self.to_one_scale()
        return self._map_grades(self.main_scale_codes, self._fields_on_scale(self.main_scale))

    def _map_grades(self, code_table: Grades, changed_fields: Mapping[str, Any]) -> Self:
        """Return the judgments with mapped grades and honeypots.

        Args:
            code_table: new code for each scale and grade (n_scales, n_grades + 1); the last column is for UNJUDGEABLE.
            changed_fields: other fields to replace.

        """
        scale_index = self.assessor_scale[self.assessor]
        regraded = self.with_honeypots(lambda codes: code_table[scale_index, codes])
        if self.has_soft_labels:
            regraded = regraded._map_probabilities(code_table[scale_index], changed_fields["scales"][0])
        return replace(regraded, grade=code_table[scale_index, self.grade], **changed_fields)

    def _map_probabilities(self, row_codes: Grades, scale: Scale) -> Self:
        """Return the judgments with their probabilities of grades as those of the grades of another scale.

        Args:
            row_codes: code on the new scale for each grade of a judgment's own scale (n, n_grades + 1).
            scale: the new scale.

        """
        shares = self.shares()
        assert shares is not None
        mapped, row = np.zeros((len(self), len(scale))), np.arange(len(self))
        for code in range(shares.shape[1]):
            mapped[row, row_codes[:, code]] += np.where(row_codes[:, code] < 0, 0.0, shares[:, code])
        mapped[np.isnan(shares).any(axis=1)] = np.nan
        by_name = dict(zip(scale.share_names, mapped.T, strict=True))
        return replace(self, extras={**self.with_hard_labels().extras, **by_name})

    @property
    def main_scale_codes(self) -> Grades:
        """Codes on the main scale for the grades of each scale, mapped linearly (n_scales, n_grades + 1)."""
        n_grades = len(self.main_scale)
        code_table = np.full((len(self.scales), n_grades + 1), UNJUDGEABLE, np.int8)  # the last column is UNJUDGEABLE's
        for scale_index, scale in enumerate(self.scales):
            code_table[scale_index, : len(scale)] = np.round(np.linspace(0, n_grades - 1, len(scale)))
        return code_table

    def with_unjudgeable(self, how: str) -> Self:
        """Return the judgments with 'cannot judge' answers replaced or left out.

        Args:
            how: `lowest` (replace them by the lowest grade), `drop` (leave them out) or `model` (leave them as they are
                for the model).

        """
        require_one_of("unjudgeable_as", how, ("lowest", "drop", "model"))
        is_unjudgeable = self.grade == UNJUDGEABLE
        if how == "model":
            return self
        if how == "drop":
            return self.where(~is_unjudgeable) if is_unjudgeable.any() else self
        if not is_unjudgeable.any() and "honeypot" not in self.extras:
            return self
        lowest = self.with_honeypots(lambda codes: np.maximum(codes, 0))
        return replace(lowest, grade=np.maximum(self.grade, 0))

    def with_unjudgeable_answer(self) -> Self:
        """Return the judgments with 'cannot judge' coded as one more answer after the grades of all scales."""
        answer = np.where(self.grade == UNJUDGEABLE, max(map(len, self.scales)), self.grade)
        return replace(self, grade=answer.astype(np.int8))

    def with_honeypots(self, recode: Callable[[Grades], Grades]) -> Self:
        """Return the judgments with the true grades of honeypots replaced.

        Args:
            recode: function from the codes of true grades (n,) to new codes; rows without a honeypot are passed as 0,
                and the result for them is ignored.

        """
        if "honeypot" not in self.extras:
            return self
        codes = self.extras["honeypot"]
        is_honeypot = codes != NO_HONEYPOT
        recoded = np.where(is_honeypot, recode(np.where(is_honeypot, codes, 0)), NO_HONEYPOT).astype(np.int8)
        return replace(self, extras={**self.extras, "honeypot": recoded})

    def where(self, row_mask: Booleans) -> Self:
        """Return the judgments for which `row_mask` (n,) is true; ids without a judgment are left out."""
        if not row_mask.any():
            raise no_judgments_left_error()
        kept = self.keep_rows(row_mask)
        query, queries = drop_unused_ids(kept.item_query, kept.queries)
        document, documents = drop_unused_ids(kept.item_document, kept.documents)
        assessor, _ = drop_unused_ids(kept.assessor, kept.assessors)
        return replace(
            kept,
            queries=queries,
            documents=documents,
            item_query=query,
            item_document=document,
            assessor=assessor,
            **assessor_fields(kept.select_assessors(np.unique(kept.assessor))),
        )

    def keep_rows(self, row_mask: Booleans) -> Self:
        """Return the judgments for which `row_mask` (n,) is true, with all ids and their codes as they are."""
        sizes = np.bincount(self.item[row_mask], minlength=self.n_items)
        has_rows = sizes > 0
        return replace(
            self,
            item_query=self.item_query[has_rows],
            item_document=self.item_document[has_rows],
            offsets=offsets_from_sizes(sizes[has_rows]),
            assessor=self.assessor[row_mask],
            grade=self.grade[row_mask],
            extras={name: column[row_mask] for name, column in self.extras.items()},
        )

    def to_arrow(self) -> pa.Table:
        """Return a table with a row of ids and grade per judgment; a 'cannot judge' answer has a null grade."""
        columns = {
            "query": self.queries.take(pa.array(self.by_row(self.item_query))),
            "document": self.documents.take(pa.array(self.by_row(self.item_document))),
            "assessor": self.assessors.take(pa.array(self.assessor)),
            "grade": self._grade_values(self.grade),
        }
        if self.families is not None and self.assessor_family is not None:
            family = self.assessor_family[self.assessor]
            columns["family"] = self.families.take(pa.array(family, mask=family < 0))
        for name, column in self.extras.items():
            columns[name] = self._extra_values(name, column)
        table = pa.table(columns)
        return add_scale_column(table, self.scale) if len(self.scales) == 1 else table

    def _extra_values(self, name: str, column: NDArray[Any]) -> pa.Array:
        """Return the values of an extra column: grades of honeypots, names of kinds, or numbers and times."""
        if name == "honeypot":
            return self._grade_values(column)
        if name == "kind":
            return pa.array(KINDS, pa.string()).take(pa.array(column, mask=column < 0))
        return pa.array(column, from_pandas=True)

    @property
    def assessor_kind(self) -> list[str]:
        """Kind of each assessor, from the first of their judgments that has one; empty text if unknown."""
        code = np.full(self.n_assessors, UNKNOWN_KIND, np.int8)
        if "kind" in self.extras:
            known = np.flatnonzero(self.extras["kind"] != UNKNOWN_KIND)[::-1]
            code[self.assessor[known]] = self.extras["kind"][known]
        return [KINDS[one] if one != UNKNOWN_KIND else "" for one in code.tolist()]

    def _grade_values(self, codes: Grades) -> pa.Array:
        """Return the grades with these codes as numbers, or as names if any scale has names; negative codes as null."""
        numeric = all(scale.numeric for scale in self.scales)
        value_table = np.empty((len(self.scales), len(self.main_scale)), np.int64 if numeric else object)
        for scale_index, scale in enumerate(self.scales):
            value_table[scale_index, : len(scale)] = np.array(scale.values if numeric else scale.names)
        values = value_table[self.assessor_scale[self.assessor], np.maximum(codes, 0)]
        return pa.array(values, mask=codes < 0)

    @property
    def frame(self) -> Any:
        """The judgments as a DataFrame of the library from which they were read (pandas for files)."""
        return frames.from_arrow(self.to_arrow(), self.backend)

    def positions(self, query: pa.Array, document: pa.Array) -> Integers:
        """Return the index of the item of each (query, document) pair of ids, or -1 if there is none."""
        return self._pair_index.positions(query, document)

    @cached_property
    def _pair_index(self) -> PairIndex:
        """Index of the items."""
        return PairIndex((self.item_query, self.queries), (self.item_document, self.documents))


def offsets_from_sizes(sizes: NDArray[Any]) -> Integers:
    """Return the start of each group, and the end of the last, from the group sizes."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def no_judgments_left_error() -> InputError:
    """Return the error raised when a selection leaves no judgment."""
    return InputError("no judgment is left", kind="no-judgments", fix="leave out less")


def drop_unused_ids(codes: Codes, ids: pa.Array) -> tuple[Codes, pa.Array]:
    """Drop the ids that no code refers to, and return the new codes and the remaining ids; the code -1 stays -1.

    >>> codes, ids = drop_unused_ids(np.array([2, -1, 0]), pa.array(["a", "b", "c"]))
    >>> codes.tolist(), ids.to_pylist()
    ([1, -1, 0], ['a', 'c'])
    """
    used = np.zeros(len(ids) + 1, bool)
    used[codes] = True
    used[-1] = False
    new_codes = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return new_codes[codes], ids.filter(pa.array(used[:-1]))
