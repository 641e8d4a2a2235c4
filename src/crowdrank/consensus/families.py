"""Models in which families of assessors with correlated errors count less than independent assessors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Arrays, Codes, Floats
from crowdrank.consensus.family_weights import correlation_increments, effective_number, nested_weights
from crowdrank.consensus.find_families import FoundFamilies, find_families
from crowdrank.consensus.model import EMAggregator, Table
from crowdrank.constraints import Constraints, Number, OneOf, SequenceOf
from crowdrank.engine.shards import Shard
from crowdrank.errors import DataWarning, Fix, shown
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments

FOUND_SEPARATOR = "/"
"""Separator of the levels in the names of families that were found."""
SHOWN_GROUPS = 3
"""Maximum number of groups that a warning names."""


class FamilyAggregator(EMAggregator):
    """Base of models in which the judgments of a family count less than independent ones.

    The weights of the judgments of a document are R^-1 1, R being the correlation matrix of their errors; with one
    level of families, n judgments of a family have the total weight n / (1 + (n - 1) family_correlation).

    Attributes:
        found_families_: families found in the answers, if `families` is `auto` or `found`.

    """

    _parameter_constraints: ClassVar[Constraints] = {
        "families": [OneOf("column", "auto", "found", "none")],
        "family_correlation": [Number(0, 1), SequenceOf(Number(0, 1))],
    }

    families: str
    family_correlation: float | tuple[float, ...]
    found_families_: FoundFamilies | None = None

    def _annotate(self, table: Table, gold: Gold | None) -> tuple[Table, list[DataWarning]]:
        """Find families if asked to, use them if `families` is `found`, and warn about them."""
        self.found_families_ = None
        if self.families not in ("auto", "found"):
            return table, []
        # Judgments on disk: a sample of whole queries.
        sample = table.sample() if isinstance(table, ShardedJudgments) else table
        prepared = super()._prepare(sample)
        codes = None if gold is None else gold.for_items(prepared).code
        expert = None if codes is None else np.where(codes < 0, np.nan, codes.astype(np.float64))
        found = find_families(prepared, expert)
        self.found_families_ = found
        if self.families == "found":
            return _assign_families(table, prepared.assessors, found), _warnings(found, prepared, applied=True)
        return table, _warnings(found, prepared, applied=False)

    def _prepare(self, table: Table) -> Table:
        """Return the judgments with the families of the column, those found in the fit, or none."""
        prepared = super()._prepare(table)
        if self.families == "none":
            return prepared.with_families(None, None)
        if self.families == "found" and hasattr(self, "judgments_"):
            fitted = self.judgments_
            row = ids.match(fitted.assessors, prepared.assessors)
            codes = np.full(len(row), -1) if fitted.assessor_family is None else fitted.assessor_family[row]
            family = np.where(row < 0, -1, codes).astype(np.int32)
            names, separator = fitted.families, fitted.family_separator
            return prepared.with_families(names, family, separator, fitted.family_correlations)
        return prepared

    def _increments(self, levels: Codes, estimated: Floats | None) -> Floats:
        return correlation_increments(self.family_correlation, levels, estimated)

    def _weights(self, judgments: Shard | Judgments, estimated: Floats | None) -> Floats | None:
        """Return the weight of each judgment, (n,), or None if no two assessors are of one family."""
        levels = judgments.family_levels
        increments = self._increments(levels, estimated)
        if int(levels[0].max(initial=0)) + 1 == levels.shape[1] or not increments.any():
            return None
        weights: Floats = nested_weights(judgments.offsets, judgments.assessor, levels, increments)
        return weights

    def _shard_weights(self, shard: Shard) -> Arrays:
        """Return local state with the `weight` of each judgment; it is empty if all are 1."""
        weight = self._weights(shard, shard.correlations)
        return {} if weight is None else {"weight": weight}

    def _judgment_weights(self, prepared: Judgments) -> Floats | None:
        """Return the weight of each judgment, (n,), or None if all are 1."""
        return self._weights(prepared, prepared.estimated_correlations)

    def _effective_sizes(self, shard: Shard) -> Arrays:
        """Return the rows with the number of independent judgments that those of a document are worth, `n_eff`."""
        weight = self._weights(shard, shard.correlations)
        if weight is None:
            return {}
        return {"n_eff": np.add.reduceat(np.append(weight, 0.0), shard.offsets[:-1]) * (np.diff(shard.offsets) > 0)}

    @property
    def n_eff_(self) -> float:
        """Number of independent assessors that the assessors of the fit are worth, if all judge a document."""
        self._require_fitted()
        prepared = self._prepare(self.judgments_)
        levels = prepared.family_levels
        return effective_number(levels, self._increments(levels, prepared.estimated_correlations))


def assessor_weights(shard: Shard, weight: Floats | None) -> Arrays:
    """Return the statistic `assessor_weight`: sum of the weights of an assessor's judgments, (n_assessors,), if any."""
    if weight is None:
        return {}
    return {"assessor_weight": np.bincount(shard.assessor, weight, minlength=shard.n_assessors)}


def prior_weights(statistics: Arrays, judgments: Floats) -> Floats | None:
    """Return the weight of each assessor in a prior learned from all assessors, or None if all are 1.

    It is the mean weight of the assessor's judgments, so that copies in a family do not change the prior.
    """
    if "assessor_weight" not in statistics:
        return None
    return np.asarray(statistics["assessor_weight"] / np.maximum(judgments, 1e-300))


def _assign_families(table: Table, assessors: pa.Array, found: FoundFamilies) -> Table:
    """Return judgments with the found families; other assessors and single members have none."""
    row = ids.match(assessors, table.assessors)
    names, correlations = [""] * len(assessors), {}
    for number, group in enumerate(found.groups, start=1):
        finer = np.unique(found.finer[group])
        for place, code in enumerate(finer, start=1):
            members = group[found.finer[group] == code]
            name = f"family {number}"
            correlations[name] = float(found.correlation[members[0]])
            if len(finer) > 1:
                name = f"{name}{FOUND_SEPARATOR}{place}"
                correlations[name] = float(found.finer_correlation[members[0]])
            for member in members:
                names[member] = name
    if not correlations:
        return table.with_families(None, None)
    known = list(dict.fromkeys(name for name in names if name))
    code_of = {"": -1, **{name: code for code, name in enumerate(known)}}
    codes = np.append(np.array([code_of[name] for name in names], np.int32), np.int32(-1))
    return table.with_families(pa.array(known, pa.string()), codes[row], FOUND_SEPARATOR, correlations)


def _warnings(found: FoundFamilies, judgments: Judgments, *, applied: bool) -> list[DataWarning]:
    """Return warnings about what was found, what is ambiguous, and what cannot be tested."""
    if found.untestable:
        problem = "Families of assessors cannot be found: too few documents were judged by the same assessors"
        return [DataWarning(problem, kind="families-untestable", fix="name the families in a column family")]
    names = judgments.assessors.to_pylist()
    groups = [group for group in found.groups if applied or len(np.unique(judgments.family_of[group])) > 1]
    if not groups:
        return []
    count = f"{counted(len(names), 'assessor')} count as {found.n_eff:.1f}"
    some = "; ".join(_members([names[one] for one in group]) for group in groups[:SHOWN_GROUPS])
    problem = f"{counted(len(groups), 'group')} of assessors err together ({some}): {count}"
    declare = "name the families in a column family, if you know them"
    if applied:
        result = [DataWarning(f"{problem}; their judgments have less weight", kind="families-applied", fix=declare)]
    else:
        fix: list[Any] = [declare, Fix("use the found ones with {}", "families", "found")]
        result = [DataWarning(f"{problem}; all count in full", kind="families-found", fix=fix)]
    if found.ambiguous:
        problem = "The answers do not tell which of the groups of assessors is right and which errs together"
        fix = [declare, "add expert grades of some documents"]
        result.append(DataWarning(problem, kind="families-ambiguous", fix=fix))
    return result


def _members(names: list[Any]) -> str:
    """Return the number of members and the first ones."""
    more = ", ..." if len(names) > SHOWN_GROUPS else ""
    return f"{len(names)}: {', '.join(shown(name) for name in names[:SHOWN_GROUPS])}{more}"
