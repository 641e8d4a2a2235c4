"""What models are given: judgments and experts' grades in any form that is taken."""

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
    """`Judgments` as they are; a path or a DataFrame is read, its labels as those `known` before."""
    if isinstance(judgments, Judgments):
        return judgments
    if isinstance(judgments, ShardedJudgments):
        raise UsageError("These judgments are on disk, in shards; this needs judgments in memory: see read_judgments.")
    if crowdkit.is_task_frame(judgments):
        return crowdkit.read_tasks(judgments, known)
    if known is None or len(known.scales) > 1:
        return read_judgments(judgments)
    # Names have no order of their own; whole numbers may grow the scale.
    grades = None if known.scale.numeric else known.scale.names
    return read_judgments(judgments, grades=grades, unjudgeable=known.unjudgeable or None)


def as_gold(gold: Any, judgments: Judgments) -> Gold | None:
    """`Gold` as it is; a path, a DataFrame or a Series of labels indexed by task is read."""
    if gold is None or isinstance(gold, Gold):
        return gold
    if hasattr(gold, "index") and hasattr(gold, "to_frame"):
        return crowdkit.read_true_labels(gold, judgments)
    return read_gold(gold)


def gold_of(gold: Gold, judgments: Judgments | ShardedJudgments) -> NDArray[np.int8] | ShardGold:
    """The expert grades of the judgments' items, as codes; there must be one."""
    found: NDArray[np.int8] | ShardGold
    if isinstance(judgments, ShardedJudgments):
        found = gold.for_shards(judgments)
        none = len(found) == 0
    else:
        found = gold.for_items(judgments)
        none = bool((found < 0).all())
    if none:
        raise InputError(
            "no expert grade is of a judged document", fix="check that both name queries and documents alike"
        )
    return found
