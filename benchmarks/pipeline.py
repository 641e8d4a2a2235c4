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


def _medium_data() -> tuple[Any, Any, Any]:
    """Return judgments, features and expert grades: 9,000 documents with 61 features, 10,000 labels."""
    import crowdrank

    world = crowdrank.simulate(queries=45, documents=200, features=61, labels=2, gold_queries=43, random_state=0)
    pairs = world.judgments[["query", "document"]].drop_duplicates()
    labeled = pairs.sample(frac=10_000 / len(world.judgments), random_state=0)
    return world.judgments.merge(labeled, on=["query", "document"]), world.features, world.gold


def _time_run() -> dict[str, float]:
    """Return the CPU seconds and the seconds of a run with default settings in one thread, and their estimate."""
    import crowdrank
    from crowdrank.pipeline.dry_run import plan_seconds

    judgments, features, gold = _medium_data()
    estimate = plan_seconds(judgments, features, gold, n_jobs=1)
    start, cpu = time.perf_counter(), time.process_time()
    crowdrank.run(judgments, features, gold, n_jobs=1)
    return {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "estimate": estimate}


def _time_script() -> float:
    """Return the CPU seconds of crowd-kit's Dawid-Skene and four LightGBM rankers, default settings, one thread."""
    import lightgbm
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    judgments, features, gold = _medium_data()
    start = time.process_time()
    task = judgments["query"].astype(str) + "|" + judgments["document"].astype(str)
    labels = pd.DataFrame({"task": task, "worker": judgments["assessor"], "label": judgments["grade"]})
    consensus = DawidSkene(n_iter=100).fit_predict(labels)
    task = features["query"].astype(str) + "|" + features["document"].astype(str)
    names = [name for name in features.columns if name not in ("query", "document")]
    crowd = features.assign(grade=task.map(consensus)).dropna(subset="grade").sort_values("query")
    expert = features.merge(gold, on=["query", "document"]).sort_values("query")
    for rows in (crowd, expert):
        held_out = rows["query"].isin(rows["query"].unique()[::3])
        for part in (rows[~held_out], rows):  # to evaluate, and to deploy
            ranker = lightgbm.LGBMRanker(n_jobs=1, verbose=-1)
            ranker.fit(part[names], part["grade"].astype(int), group=part.groupby("query").size())
            ranker.predict(rows.loc[held_out, names])
    return time.process_time() - start


def run_over_script() -> list[Result]:
    """Compare the time of a run with that of a script, and with its own estimate."""
    script, times = in_own_process(_time_script), in_own_process(_time_run)
    ratio, estimate = times["cpu"] / script, times["estimate"] / times["seconds"]
    error = max(estimate, 1 / estimate)
    return [
        at_most("CPU time of `run` over Dawid-Skene and four LightGBM fits", ratio, 8, run=times["cpu"], script=script),
        at_most("error of the estimated time of `run`, as a factor", error, 1.5, **times),
    ]
