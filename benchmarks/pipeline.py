"""`crowdrank run` on as much as REMAP had: time, memory, and whether it says how far it is."""

from __future__ import annotations

import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, at_most, in_own_process, peak_bytes

DOCUMENTS, LIST, FEATURES, LABELS = 132_000, 14, 300, 3
"""REMAP's sizes: 396,000 labels."""
EXPERT_QUERIES = 60
GIGABYTES = 24
GIGA = 2**30


def _sizes(share: float) -> dict[str, Any]:
    """What a run on a part of it took: seconds, gigabytes, and the longest time in which no bar moved."""
    import crowdrank
    from crowdrank._progress import ProgressBar

    queries = round(share * DOCUMENTS / LIST) + EXPERT_QUERIES
    world = crowdrank.simulate(
        queries=queries,
        documents=LIST,
        features=FEATURES,
        labels=LABELS,
        label_grades=2,
        gold_queries=EXPERT_QUERIES,
        random_state=0,
    )
    # As in the paper, experts graded other queries than the crowd.
    judgments = world.judgments[~world.judgments["query"].isin(world.gold["query"].unique())]
    moved = [time.monotonic()]
    shown = ProgressBar.__call__

    def noted(self: ProgressBar, iteration: int, most: int, objective: float) -> None:
        moved.append(time.monotonic())
        shown(self, iteration, most, objective)

    ProgressBar.__call__ = noted  # type: ignore[method-assign]  # this process runs nothing else
    began, before = time.monotonic(), peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        done = crowdrank.run(
            judgments,
            world.features,
            world.gold,
            output=Path(folder) / "out",
            progress=True,
            n_jobs=os.cpu_count(),
        )
    moved.append(time.monotonic())
    return {
        "labels": len(judgments),
        "documents": len(judgments[["query", "document"]].drop_duplicates()),
        "seconds": moved[-1] - began,
        "silence": max(later - sooner for sooner, later in pairwise(moved)),
        "before": before / GIGA,
        "peak": peak_bytes() / GIGA,
        "chosen": done.chosen,
    }


def remap_size(share: float = 1.0) -> Result:
    """The whole command on REMAP's number of labels, documents and features: the peak of memory in gigabytes."""
    found = in_own_process(_sizes, share)
    name = f"gigabytes of `run` on {found.pop('labels'):,} labels, {found.pop('documents'):,} documents x {FEATURES}"
    return at_most(name, found.pop("peak"), GIGABYTES, **found)
