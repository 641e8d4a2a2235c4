"""Base class of models in which families (assessors with correlated errors) count less than independent assessors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Arrays, Floats
from crowdrank.consensus.family_weights import correlation_increments, effective_n_assessors, nested_weights
from crowdrank.consensus.model import Aggregator, EMAggregator, Table
from crowdrank.constraints import Constraints, Number, OneOf, SequenceOf
from crowdrank.engine.shards import Shard
from crowdrank.errors import DataWarning, Fix, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.joined import JoinedJudgments
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.joined_shards import JoinedShards
from crowdrank.on_disk.sharded import ShardedJudgments

if TYPE_CHECKING:
    from crowdrank.consensus.find_families import FoundFamilies

FAMILY_LEVEL_SEPARATOR = "/"
"""Separator of family and finer family in the names of families that were found, such as `family 1/2`."""
MAX_NAMES_IN_WARNING = 3
"""Maximum number of groups, and of members of each, that a warning names."""


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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        correlations = np.atleast_1d(self.family_correlation)
        if (np.diff(correlations) < 0).any():
            fix = (
                "give that of the coarsest families first: members of a finer family are also members of a coarser one"
            )
            problem = (
                f"must not fall from coarse to fine families, as {', '.join(f'{one:g}' for one in correlations)} does"
            )
            raise UsageError(problem, parameter="family_correlation", fix=fix)

    def _annotate(self, table: Table, gold: Gold | None) -> tuple[Table, list[DataWarning]]:
        """Return the judgments and warnings about families found in the answers, if `families` is `auto` or `found`.

        If it is `found`, the judgments get these families in place of their own.
        """
        self.found_families_ = None
        if self.families not in ("auto", "found") or not len(table):  # preferences alone
            return table, []
        from crowdrank.consensus.find_families import find_families

        # Judgments on disk: a sample of whole queries.
        sample = table.sample() if isinstance(table, ShardedJudgments) else table
        prepared = super()._prepare(sample)
        codes = None if gold is None else gold.for_items(prepared).code
        expert = None if codes is None else np.where(codes < 0, np.nan, codes.astype(np.float64))
        found = find_families(prepared, expert)
        self.found_families_ = found
        if self.families == "found":
            return _assign_families(table, prepared.assessors, found), _family_warnings(
                found, prepared, families_used=True
            )
        return table, _family_warnings(found, prepared, families_used=False)

    def _prepare(self, table: Table) -> Table:
        """Return the judgments with the families that the parameter `families` selects: column, found or none."""
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

    def _join(self, prepared: Judgments | ShardedJudgments, preferences: Preferences) -> JoinedJudgments | JoinedShards:
        """Return prepared judgments joined with preferences, whose own families count if `families` uses a column."""
        without = replace(preferences, families=None, assessor_family=None)
        return super()._join(prepared, without if self.families in ("none", "found") else preferences)

    def _family_weights(self, judgments: Shard | Judgments, estimated_correlations: Floats | None) -> Floats | None:
        """Return the weight of each judgment, (n,), or None if all are 1: no two assessors have correlated errors."""
        levels = judgments.family_levels
        increments = correlation_increments(self.family_correlation, levels, estimated_correlations)
        if int(levels[0].max(initial=0)) + 1 == levels.shape[1] or not increments.any():
            return None
        weights: Floats = nested_weights(judgments.offsets, judgments.assessor, levels, increments)
        return weights

    def _shard_weights(self, shard: Shard) -> Arrays:
        """Return the array `weight`, weight of each judgment of a shard, (n,), by its name; nothing if all are 1."""
        weight = self._family_weights(shard, shard.correlations)
        return {} if weight is None else {"weight": weight}

    def _preference_weights(self, shard: Shard) -> Arrays:
        """Return the array `preference_weight`, weight of each preference of a shard, (n,), by its name.

        Preferences of a family between the same two documents count as its judgments of a document.
        """
        if shard.preferences is None:
            return {}
        levels, weight = shard.family_levels, np.ones(len(shard.preferences))
        increments = correlation_increments(self.family_correlation, levels, shard.correlations)
        if int(levels[0].max(initial=0)) + 1 < levels.shape[1] and increments.any() and len(weight):
            order, offsets = shard.preferences.by_pair
            assessor = shard.preferences.assessor[order]
            weight[order] = nested_weights(offsets, assessor, levels, increments)
        return {"preference_weight": weight}

    def _judgment_weights(self, prepared: Judgments) -> Floats | None:
        """Return the weight of each judgment, (n,), or None if all are 1."""
        return self._family_weights(prepared, prepared.estimated_correlations)

    def _effective_sizes(self, shard: Shard) -> Arrays:
        """Return `n_eff`, the effective number of independent judgments of each item; nothing without families."""
        weight = self._family_weights(shard, shard.correlations)
        if weight is None:
            return {}
        return {"n_eff": np.add.reduceat(np.append(weight, 0.0), shard.offsets[:-1]) * (np.diff(shard.offsets) > 0)}

    @property
    def n_eff_(self) -> float:
        """Effective number of independent assessors, if all assessors of the fit judge the same document."""
        self._require_fitted()
        prepared = self._prepare(self.judgments_)
        levels = prepared.family_levels
        increments = correlation_increments(self.family_correlation, levels, prepared.estimated_correlations)
        return effective_n_assessors(levels, increments)


def effective_assessors(model: Aggregator) -> float | None:
    """Return how many independent assessors those of a fit count as, or None if the model uses no families."""
    fitted = model.assessor_estimator_
    if not isinstance(fitted, FamilyAggregator) or fitted.families == "none" or fitted.judgments_.families is None:
        return None
    return fitted.n_eff_


def describe_effective_assessors(n_assessors: int, n_eff: float | None) -> str:
    """Return a sentence with the effective number of assessors; empty if it is None.

    >>> describe_effective_assessors(33, 4.1)
    '33 assessors count as 4.1, because members of a family err together.'
    """
    if n_eff is None:
        return ""
    return f"{counted(n_assessors, 'assessor')} count as {n_eff:.1f}, because members of a family err together."


def assessor_weights(shard: Shard, weight: Floats | None) -> Arrays:
    """Return `assessor_weight`, the sum of the weights of each assessor's judgments.

    Nothing is returned if all weights are 1 and all assessors have judgments.
    """
    if weight is None and shard.preferences is None:
        return {}
    return {"assessor_weight": np.bincount(shard.assessor, weight, minlength=shard.n_assessors).astype(np.float64)}


def prior_weights(statistics: Arrays, n_judgments: Floats) -> Floats | None:
    """Return the weight of each assessor in a prior learned from all assessors, or None if all are 1.

    It is the mean weight of the assessor's judgments, so that copies in a family do not change the prior.
    """
    if "assessor_weight" not in statistics:
        return None
    return np.asarray(statistics["assessor_weight"] / np.maximum(n_judgments, 1e-300))


def _assign_families(table: Table, compared_assessors: pa.Array, found: FoundFamilies) -> Table:
    """Return judgments with the found families; assessors who were not compared or are in no family have none.

    Args:
        table: the judgments.
        compared_assessors: ids of the assessors that `found` refers to.
        found: the families.

    """
    row = ids.match(compared_assessors, table.assessors)
    names, correlations = [""] * len(compared_assessors), {}
    for number, group in enumerate(found.groups, start=1):
        finer = np.unique(found.finer[group])
        for place, code in enumerate(finer, start=1):
            members = group[found.finer[group] == code]
            name = f"family {number}"
            correlations[name] = float(found.correlation[members[0]])
            if len(finer) > 1:
                name = f"{name}{FAMILY_LEVEL_SEPARATOR}{place}"
                correlations[name] = float(found.finer_correlation[members[0]])
            for member in members:
                names[member] = name
    if not correlations:
        return table.with_families(None, None)
    known = list(dict.fromkeys(name for name in names if name))
    code_of = {"": -1, **{name: code for code, name in enumerate(known)}}
    codes = np.append(np.array([code_of[name] for name in names], np.int32), np.int32(-1))
    return table.with_families(pa.array(known, pa.string()), codes[row], FAMILY_LEVEL_SEPARATOR, correlations)


def _family_warnings(found: FoundFamilies, judgments: Judgments, *, families_used: bool) -> list[DataWarning]:
    """Return warnings about families that were found, are ambiguous, or cannot be tested."""
    if found.untestable:
        problem = "Families of assessors cannot be found: too few documents were judged by the same assessors"
        return [DataWarning(problem, kind="families-untestable", fix="name the families in a column family")]
    names = judgments.assessors.to_pylist()
    groups = [group for group in found.groups if families_used or len(np.unique(judgments.family_of[group])) > 1]
    if not groups:
        return []
    count = f"{counted(len(names), 'assessor')} count as {found.n_eff:.1f}"
    some = "; ".join(_describe_group([names[one] for one in group]) for group in groups[:MAX_NAMES_IN_WARNING])
    problem = f"{counted(len(groups), 'group')} of assessors err together ({some}): {count}"
    declare = "name the families in a column family, if you know them"
    if families_used:
        result = [DataWarning(f"{problem}; their judgments have less weight", kind="families-applied", fix=declare)]
    else:
        fix: list[Any] = [declare, Fix("use the found ones with {}", "families", "found")]
        result = [DataWarning(f"{problem}; all count in full", kind="families-found", fix=fix)]
    if found.ambiguous:
        problem = "The answers do not tell which of the groups of assessors is right and which errs together"
        fix = [declare, "add expert grades of some documents"]
        result.append(DataWarning(problem, kind="families-ambiguous", fix=fix))
    return result


def _describe_group(names: list[Any]) -> str:
    """Return the number of members and the first names as text, such as `4: a, b, c, ...`."""
    more = ", ..." if len(names) > MAX_NAMES_IN_WARNING else ""
    return f"{len(names)}: {', '.join(shown(name) for name in names[:MAX_NAMES_IN_WARNING])}{more}"
