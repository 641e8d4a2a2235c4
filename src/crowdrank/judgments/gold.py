"""Expert grades of documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Grades, Integers
from crowdrank.errors import Fix, InputError
from crowdrank.judgments import frames, ids, kernels
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments, JudgmentsLike, ReadReport


@dataclass(frozen=True, eq=False)
class Gold:
    """Expert (gold) grades, one per query-document pair; read them with :func:`crowdrank.read_gold`."""

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    code: Grades  # (n,) position on the scale
    scale: Scale
    backend: str = "pandas"
    report: ReadReport = field(default_factory=ReadReport)  # counts of the rows that were read

    @classmethod
    def of(cls, judgments: Judgments) -> Gold:
        """Return expert grades from judgments with one judgment per item (query-document pair)."""
        return cls(
            judgments.queries.take(pa.array(judgments.item_query)),
            judgments.documents.take(pa.array(judgments.item_document)),
            judgments.grade[judgments.offsets[:-1]],
            judgments.scale,
            judgments.backend,
            judgments.report,
        )

    def __len__(self) -> int:
        return len(self.code)

    def __repr__(self) -> str:
        queries = counted(len(self.query.unique()), "query")
        return f"<Gold: {counted(len(self), 'document')} in {queries}, grades {self.scale}>"

    @property
    def frame(self) -> Any:
        """DataFrame with the columns query, document and grade; the grade is its numeric value."""
        values = np.array(self.scale.values)[self.code]
        grade = pa.array(values.astype(np.int64))
        return frames.from_arrow(
            pa.table({"query": self.query, "document": self.document, "grade": grade}), self.backend
        )

    def as_judgments(self) -> Judgments:
        """Return the grades as judgments of one assessor with the id 'gold'."""
        query, queries = ids.encode(pa.chunked_array([self.query]))
        document, documents = ids.encode(pa.chunked_array([self.document]))
        order, offsets = kernels.group_rows(
            query, document, np.arange(len(self), dtype=np.int32), len(queries), len(documents)
        )
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

    def for_items(self, judgments: Judgments) -> Grades:
        """Return the expert grade of each item of the judgments as a code on their scale, or -1 for items without one.

        >>> import pandas as pd
        >>> from crowdrank import read_gold, read_judgments
        >>> judgments = read_judgments(pd.DataFrame(
        ...     {"document": ["a", "b"], "assessor": ["w", "w"], "grade": [0, 2]}))
        >>> read_gold(pd.DataFrame({"document": ["b"], "grade": [1]})).for_items(judgments).tolist()
        [-1, 1]
        """
        known = [judgments.main_scale.code(name) for name in self.scale.names]
        codes = np.array([-1 if code is None else code for code in known], dtype=np.int8)[self.code]
        position = judgments.positions(self.query, self.document)
        off = (codes < 0) & (position >= 0)
        if off.any():
            name = self.scale.names[self.code[int(np.argmax(off))]]
            raise InputError(
                f"the expert grade {name} is not on the judgments' scale {judgments.main_scale}",
                kind="scales-differ",
                fix=Fix("give both the same scale with {}", "grades"),
            )
        gold = np.full(judgments.n_items, -1, np.int8)
        gold[position[position >= 0]] = codes[position >= 0]
        return gold

    def n_unjudged(self, judgments: JudgmentsLike) -> int:
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

    def for_shards(self, judgments: ShardedJudgments) -> ShardGold:
        """Return the expert grades of the items of each shard."""
        known = []
        for shard in judgments.iterate():
            codes = self.for_items(shard)
            items = np.flatnonzero(codes >= 0)
            known.append((items, codes[items]))
        return ShardGold(tuple(known))


@dataclass(frozen=True, eq=False)
class ShardGold:
    """Expert (gold) grades of judgments on disk, by shard."""

    graded_items: tuple[tuple[Integers, Grades], ...]  # per shard: items with an expert grade, and the grade codes

    def __len__(self) -> int:
        return sum(len(items) for items, _ in self.graded_items)

    def shard_grades(self, shard_number: int, n_items: int) -> Grades:
        """Return the expert grade code of each item of a shard (n_items,), -1 for items without one."""
        gold = np.full(n_items, -1, np.int8)
        items, codes = self.graded_items[shard_number]
        gold[items] = codes
        return gold
