"""Judgments and expert grades of a fit, from any accepted form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crowdrank.consensus import crowdkit
from crowdrank.errors import Fix, InputError, UsageError, parameter_prefix, shown
from crowdrank.judgments.gold import Gold, ItemGold, ShardGold
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.scale import GradeMap, GradeMapLike, Scale
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments
from crowdrank.readers.preference_files import read_preferences
from crowdrank.readers.read import read_gold, read_judgments


def as_judgments(judgments: Any, known: Judgments | None = None) -> Judgments:
    """Return judgments from `Judgments`, a path or a DataFrame, with the labels of `known` judgments if given."""
    if isinstance(judgments, Judgments):
        return judgments
    if isinstance(judgments, ShardedJudgments):
        problem = "These judgments are on disk, and this needs judgments in memory"
        raise UsageError(problem, fix="read them with read_judgments", kind="on-disk")
    if crowdkit.is_task_frame(judgments):
        return crowdkit.read_tasks(judgments, known)
    return read_judgments(judgments, **({} if known is None else scale_options(known)))


def as_preferences(preferences: Any) -> Preferences:
    """Return preferences from `Preferences`, a path or a DataFrame."""
    return preferences if isinstance(preferences, Preferences) else read_preferences(preferences)


def scale_options(known: Judgments) -> dict[str, Any]:
    """Return options of `read_judgments` for further judgments on the scale of known ones.

    Named grades keep their order; a scale of whole numbers may grow.
    """
    if len(known.scales) > 1:
        return {}
    return {"grades": None if known.scale.numeric else known.scale.names, "unjudgeable": known.unjudgeable or None}


def as_gold(gold: Any, judgments: Judgments, gold_map: GradeMapLike | None = None) -> Gold | None:
    """Return expert grades from `Gold`, a path, a DataFrame, or a Series of labels indexed by task."""
    if gold is None:
        if gold_map is not None:
            raise UsageError("needs expert grades", parameter="gold_map", fix=Fix("give them with {}", "gold"))
        return None
    if hasattr(gold, "index") and hasattr(gold, "to_frame"):
        gold = crowdkit.read_true_labels(gold, judgments)
    scale = judgments.main_scale if len(judgments) else None
    known = gold if isinstance(gold, Gold) else read_gold(gold, scale=scale)
    if gold_map is None:
        return known
    with parameter_prefix("gold_"):
        return replace(known, grade_map=GradeMap.parse(gold_map))


def match_gold(gold: Gold, judgments: Judgments | ShardedJudgments, own_scale: bool) -> ItemGold | ShardGold:
    """Return the expert grades of the judgments' items.

    Args:
        gold: expert grades.
        judgments: judgments as the model uses them.
        own_scale: whether the model takes experts with a scale of their own.

    Raises:
        InputError: no judged document has an expert grade, or the scales differ and a map is missing.

    """
    known = gold.for_shards(judgments) if isinstance(judgments, ShardedJudgments) else gold.for_items(judgments)
    if not len(known):
        first = next(iter(judgments.iterate()))
        pairs = (gold.query[0], gold.document[0]), (column[0] for column in first.item_ids())
        texts = [f"{shown(document.as_py())} of query {shown(query.as_py())}" for query, document in pairs]
        raise InputError(
            f"no judged document has an expert grade (experts graded {texts[0]}, assessors {texts[1]})",
            fix="check that both use the same ids of queries and documents",
            kind="no-expert-grades",
        )
    if known.sets is None and not own_scale:
        raise scales_differ(gold.scale, judgments.main_scale)
    return known


def scales_differ(expert: Scale, scale: Scale) -> InputError:
    """Return the error for expert grades that the model cannot place on the scale of the judgments."""
    return InputError(
        f"the experts' scale {expert} is not the judgments' scale {scale}",
        kind="scales-differ",
        fix=[
            Fix("say which grades each expert grade stands for with {}", "gold_map", example_map(expert, scale)),
            "read both with the same scale if the experts use it",
        ],
    )


def example_map(expert: Scale, scale: Scale) -> str:
    """Return a map that divides a scale evenly among the expert grades.

    >>> example_map(Scale.parse("0,1"), Scale.parse("0-4"))
    '0=0-1,1=2-4'
    """
    cuts = (np.arange(len(scale)) * len(expert) + len(expert) - 1) // len(scale)
    if len(expert) > len(scale):
        return ",".join(f"{name}={scale.names[i * len(scale) // len(expert)]}" for i, name in enumerate(expert.names))
    sets = [[name for name, cut in zip(scale.names, cuts, strict=True) if cut == i] for i in range(len(expert))]
    return str(GradeMap({name: tuple(grades) for name, grades in zip(expert.names, sets, strict=True)}))
