"""Base of the models that weight the judgments of assessors who err together."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.consensus._base import Aggregator, Table
from crowdrank.consensus.families import family_weights, find_families
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.shards import Shard
from crowdrank.judgments import ids
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments


class FamilyModel(Aggregator):
    """Aggregator with weights for families: n judgments of a family on a document count as n / (1 + (n - 1) rho)."""

    _parameter_constraints: ClassVar[Constraints] = {
        "families": [OneOf("column", "auto", "none")],
        "family_correlation": [Number(0, 1)],
    }

    families: str
    family_correlation: float

    def _fit(self, table: Any, *arguments: Any, **options: Any) -> Self:
        if self.families == "auto":
            # On disk, families are detected in a sample of whole queries.
            sample = table.sample() if isinstance(table, ShardedJudgments) else table
            family = find_families(self._prepare(sample.with_families(None, None)))
            table = assign_families(table, sample.assessors, family)
        return super()._fit(table, *arguments, **options)

    def _prepare(self, table: Table) -> Table:
        """Return the judgments as the model uses them, with the families of the parameter `families`."""
        prepared = super()._prepare(table)
        if self.families == "none":
            return prepared.with_families(None, None)
        if self.families == "auto" and prepared.families is None and hasattr(self, "judgments_"):
            return assign_families(prepared, self.judgments_.assessors, self.judgments_.family_of)
        return prepared

    def _judgment_weights(self, prepared: Judgments) -> NDArray[np.float64] | None:
        return self._weights(prepared.offsets, prepared.assessor, prepared.family_of)

    def _shard_weights(self, shard: Shard) -> dict[str, NDArray[np.float64]]:
        """Return local state with the weight of each judgment, or without it if all are 1."""
        weight = self._weights(shard.offsets, shard.assessor, shard.family)
        return {} if weight is None else {"weight": weight}

    def _weights(
        self, offsets: NDArray[np.int64], assessor: NDArray[np.int32], family: NDArray[np.int32]
    ) -> NDArray[np.float64] | None:
        every_family_has_one_member = int(family.max(initial=0)) + 1 == len(family)
        if self.family_correlation == 0 or every_family_has_one_member:
            return None
        weights: NDArray[np.float64] = family_weights(offsets, assessor, family, self.family_correlation)
        return weights


def assign_families(table: Table, assessors: pa.Array, family: NDArray[np.int32]) -> Table:
    """Return the judgments with the families of `assessors`, (n_assessors,); families of one member are left out."""
    place = ids.match(assessors, table.assessors)
    has_others = np.bincount(family) > 1
    number = np.where(has_others[family], np.cumsum(has_others)[family] - 1, -1)
    family_of = np.where(place < 0, -1, number[np.maximum(place, 0)]).astype(np.int32)
    names = pa.array([f"family {one + 1}" for one in range(int(has_others.sum()))], pa.string())
    return table.with_families(names, family_of)
