"""Time, memory and progress reports of `crowdrank run` on data of the size of the REMAP paper."""

from __future__ import annotations

import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, at_most, in_own_process, peak_bytes

DOCUMENTS, LIST, FEATURES, LABELS = 132_000, 14, 300, 3
"""Number of documents, documents per query, features, and labels per document in the REMAP paper: 396,000 labels."""
EXPERT_QUERIES = 60
GIGABYTES = 24
GIGA = 2**30


def _sizes(share: float) -> dict[str, Any]:
    """Measure a run on a share of the data: seconds, gigabytes, and the longest time without a progress report."""
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
    # As in the paper, experts and the crowd judge different queries.
    judgments = world.judgments[~world.judgments["query"].isin(world.gold["query"].unique())]
    report_times = [time.monotonic()]
    report = ProgressBar.__call__

    def timed_report(self: ProgressBar, iteration: int, n_iterations: int, objective: float) -> None:
        report_times.append(time.monotonic())
        report(self, iteration, n_iterations, objective)

    ProgressBar.__call__ = timed_report  # type: ignore[method-assign]  # this process runs nothing else
    start, before = time.monotonic(), peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        result = crowdrank.run(
            judgments,
            world.features,
            world.gold,
            output=Path(folder) / "out",
            progress=True,
            n_jobs=os.cpu_count(),
        )
    report_times.append(time.monotonic())
    return {
        "labels": len(judgments),
        "documents": len(judgments[["query", "document"]].drop_duplicates()),
        "seconds": report_times[-1] - start,
        "silence": max(later - sooner for sooner, later in pairwise(report_times)),
        "before": before / GIGA,
        "peak": peak_bytes() / GIGA,
        "chosen": result.chosen,
    }


def remap_size(share: float = 1.0) -> Result:
    """Measure the peak memory in gigabytes of a run on data of the size of the REMAP paper."""
    sizes = in_own_process(_sizes, share)
    name = f"gigabytes of `run` on {sizes.pop('labels'):,} labels, {sizes.pop('documents'):,} documents x {FEATURES}"
    return at_most(name, sizes.pop("peak"), GIGABYTES, **sizes)
