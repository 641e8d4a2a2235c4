"""Convert judgments and expert grades from any accepted form to the form that models use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank.consensus import crowdkit
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments.gold import Gold, ShardGold
from crowdrank.judgments.read import read_gold, read_judgments
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments


def as_judgments(judgments: Any, known: Judgments | None = None) -> Judgments:
    """Return judgments as `Judgments`; read a path or a DataFrame, on the scale of the `known` judgments if given."""
    if isinstance(judgments, Judgments):
        return judgments
    if isinstance(judgments, ShardedJudgments):
        problem = "These judgments are on disk, and this needs judgments in memory"
        raise UsageError(problem, fix="read them with read_judgments", kind="on-disk")
    if crowdkit.is_task_frame(judgments):
        return crowdkit.read_tasks(judgments, known)
    return read_judgments(judgments, **({} if known is None else scale_options(known)))


def scale_options(known: Judgments) -> dict[str, Any]:
    """Return options of `read_judgments` for further judgments on the scale of known ones.

    Named grades keep their order; a scale of whole numbers may grow.
    """
    if len(known.scales) > 1:
        return {}
    return {"grades": None if known.scale.numeric else known.scale.names, "unjudgeable": known.unjudgeable or None}


def as_gold(gold: Any, judgments: Judgments) -> Gold | None:
    """Return expert grades as `Gold`; read a path, a DataFrame or a Series of labels indexed by task."""
    if gold is None or isinstance(gold, Gold):
        return gold
    if hasattr(gold, "index") and hasattr(gold, "to_frame"):
        return crowdkit.read_true_labels(gold, judgments)
    return read_gold(gold)


def gold_of(gold: Gold, judgments: Judgments | ShardedJudgments) -> NDArray[np.int8] | ShardGold:
    """Return the codes of the expert grades of the judgments' items; raise InputError if there are none."""
    found: NDArray[np.int8] | ShardGold
    if isinstance(judgments, ShardedJudgments):
        found = gold.for_shards(judgments)
        none = len(found) == 0
    else:
        found = gold.for_items(judgments)
        none = bool((found < 0).all())
    if none:
        raise InputError(
            "no judged document has an expert grade",
            fix="check that both use the same ids of queries and documents",
            kind="no-expert-grades",
        )
    return found
