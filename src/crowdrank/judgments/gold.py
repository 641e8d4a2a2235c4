"""Expert grades of documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Grades, Integers
from crowdrank.errors import Fix, InputError
from crowdrank.judgments import frames, ids
from crowdrank.judgments.scale import GradeMap, Scale
from crowdrank.judgments.table import AnyJudgments, Judgments, ReadReport


@dataclass(frozen=True, eq=False)
class Gold:
    """Expert (gold) grades, one per query-document pair; read them with :func:`crowdrank.read_gold`."""

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    code: Grades  # (n,) position on the scale
    scale: Scale
    backend: str = "pandas"
    report: ReadReport = field(default_factory=ReadReport)  # counts of the rows that were read
    grade_map: GradeMap | None = None  # grades of the judgments that each expert grade stands for
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # further columns by name, (n,); see `frame`

    @classmethod
    def from_judgments(cls, judgments: Judgments) -> Gold:
        """Return expert grades from judgments with one judgment per item (query-document pair)."""
        codes = judgments.grade[judgments.offsets[:-1]]
        return cls(*judgments.item_ids(), codes, judgments.scale, judgments.backend, judgments.report)

    @property
    def used_features(self) -> bool:
        """Whether the grades are those of a consensus that used features of the documents."""
        return self.report.used_features

    def __len__(self) -> int:
        return len(self.code)

    def __repr__(self) -> str:
        queries = counted(len(self.query.unique()), "query")
        return f"<Gold: {counted(len(self), 'document')} in {queries}, grades {self.scale}>"

    @property
    def frame(self) -> Any:
        """DataFrame with query, document, grade (its value), and further columns.

        Those are the probabilities p0, p1, ... of the grades of a consensus, and the columns of a sample.
        """
        values = np.array(self.scale.values)[self.code]
        columns = {"query": self.query, "document": self.document, "grade": pa.array(values.astype(np.int64))}
        return frames.from_arrow(pa.table({**columns, **self.extras}), self.backend)

    def take(self, rows: Integers) -> Gold:
        """Return the grades in these rows."""
        place = pa.array(rows)
        extras = {name: column[rows] for name, column in self.extras.items()}
        ids = {"query": self.query.take(place), "document": self.document.take(place)}
        return replace(self, **ids, code=self.code[rows], extras=extras)

    def as_judgments(self) -> Judgments:
        """Return the grades as judgments of one assessor with the id 'gold'."""
        query, queries = ids.encode(pa.chunked_array([self.query]))
        document, documents = ids.encode(pa.chunked_array([self.document]))
        order, offsets = ids.group_rows(query, document, len(queries), len(documents))
        return Judgments(
            queries=queries,
            documents=documents,
            assessors=pa.array(["gold"]),
            item_query=query[order],
            item_document=document[order],
            offsets=offsets,
            assessor=np.zeros(len(self), np.int32),
            grade=self.code[order],
            scales=(self.scale,),
            assessor_scale=np.zeros(1, np.int8),
            backend=self.backend,
        )

    def for_items(self, judgments: Judgments) -> ItemGold:
        """Return the expert grade of each item of the judgments.

        >>> import pandas as pd
        >>> from crowdrank import read_gold, read_judgments
        >>> judgments = read_judgments(pd.DataFrame(
        ...     {"document": ["a", "b"], "assessor": ["w", "w"], "grade": [0, 2]}))
        >>> read_gold(pd.DataFrame({"document": ["b"], "grade": [2]}), grades="0-2").for_items(judgments).code.tolist()
        [-1, 2]
        """
        code = self._codes_by_item(judgments, self.code)
        return ItemGold(code, len(self.scale), self.grade_sets(judgments.main_scale))

    def _codes_by_item(self, judgments: Judgments, codes: Grades) -> Grades:
        """Return the code of each item of the judgments, -1 without one, given a code per expert grade (n,)."""
        position = judgments.positions(self.query, self.document)
        by_item = np.full(judgments.n_items, -1, np.int8)
        by_item[position[position >= 0]] = codes[position >= 0]
        return by_item

    def codes_by_name(self, judgments: Judgments) -> Grades:
        """Return the grade of each item as a code on the judgments' scale, or -1 for items without one.

        For grades that are answers of the assessors' own scale, such as the right answers of honeypots.

        Raises:
            InputError: a grade of a judged item is not on the judgments' scale.

        """
        known = [judgments.main_scale.code(name) for name in self.scale.names]
        codes = np.array([-1 if code is None else code for code in known], dtype=np.int8)[self.code]
        position = judgments.positions(self.query, self.document)
        off = (codes < 0) & (position >= 0)
        if off.any():
            name = self.scale.names[self.code[int(np.argmax(off))]]
            problem = f"the grade {name} is not on the judgments' scale {judgments.main_scale}"
            raise InputError(problem, kind="scales-differ", fix=Fix("give both the same scale with {}", "grades"))
        return self._codes_by_item(judgments, codes)

    def grade_sets(self, scale: Scale) -> Booleans | None:
        """Return which grades of a scale each expert grade stands for, (n_expert_grades, n_grades).

        Without a map, grades of scales of equal length correspond by position. None if the lengths differ.
        """
        if self.grade_map is not None:
            return self.grade_map.sets(self.scale, scale)
        return np.eye(len(scale), dtype=np.bool_) if len(scale) == len(self.scale) else None

    def n_unjudged(self, judgments: AnyJudgments) -> int:
        """Return the number of expert grades whose query-document pair has no judgment.

        >>> import pandas as pd
        >>> from crowdrank import read_gold, read_judgments
        >>> judgments = read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["w"], "grade": [1]}))
        >>> read_gold(pd.DataFrame({"document": ["a", "b"], "grade": [1, 0]})).n_unjudged(judgments)
        1
        """
        return len(self) - sum(
            int((one.positions(self.query, self.document) >= 0).sum()) for one in judgments.iterate()
        )

    def for_shards(self, judgments: AnyJudgments) -> ShardGold:
        """Return the expert grades of the items of each shard."""
        known = []
        for shard in judgments.iterate():
            code = self.for_items(shard).code
            items = np.flatnonzero(code >= 0)
            known.append((items, code[items]))
        return ShardGold(tuple(known), len(self.scale), self.grade_sets(judgments.main_scale))


@dataclass(frozen=True, eq=False)
class ItemGold:
    """Expert (gold) grades of the items of judgments in memory."""

    code: Grades  # (n_items,) position on the experts' scale; -1 without an expert grade
    n_expert_grades: int
    sets: Booleans | None  # (n_expert_grades, n_grades) grades that an expert grade stands for; None if unknown

    def __len__(self) -> int:
        return int((self.code >= 0).sum())


@dataclass(frozen=True, eq=False)
class ShardGold:
    """Expert (gold) grades of judgments on disk, by shard."""

    graded_items: tuple[tuple[Integers, Grades], ...]  # per shard: items with an expert grade, and the grade codes
    n_expert_grades: int
    sets: Booleans | None  # as in ItemGold

    def __len__(self) -> int:
        return sum(len(items) for items, _ in self.graded_items)

    def shard(self, shard_number: int, n_items: int) -> ItemGold:
        """Return the expert grades of the items of a shard."""
        code = np.full(n_items, -1, np.int8)
        items, codes = self.graded_items[shard_number]
        code[items] = codes
        return ItemGold(code, self.n_expert_grades, self.sets)
