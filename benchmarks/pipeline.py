"""Time, memory and progress reports of `crowdrank run`, also on data of the size of the REMAP paper."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from benchmarks.measure import Result, at_most, in_own_process, peak_bytes

DOCUMENTS, LIST, FEATURES, LABELS = 132_000, 14, 300, 3
"""Number of documents, documents per query, features, and labels per document in the REMAP paper: 396,000 labels."""
EXPERT_QUERIES = 60
GIGABYTES = 4.0
MAX_RATIO = 1.6
"""Goal of the CPU time of a run, relative to that of its trees alone."""
TIMED_TREES = 10
"""Number of trees from which the time of a tree is measured."""
GIGA = 2**30


def _remap_data(share: float) -> tuple[Any, Any, Any]:
    """Return judgments, features and expert grades of a share of the size of the REMAP paper."""
    import crowdrank

    world = crowdrank.simulate(
        queries=round(share * DOCUMENTS / LIST) + EXPERT_QUERIES,
        documents=LIST,
        features=FEATURES,
        labels=LABELS,
        label_grades=2,
        gold_queries=EXPERT_QUERIES,
        random_state=0,
    )
    # As in the paper, experts and the crowd judge different queries.
    judgments = world.judgments[~world.judgments["query"].isin(world.gold["query"].unique())]
    return judgments, world.features, world.gold


def _sizes(share: float) -> dict[str, Any]:
    """Measure a run on a share of the data: time, memory, the longest time without a progress report, and its trees."""
    import crowdrank
    from crowdrank._progress import ProgressBar

    judgments, features, gold = _remap_data(share)
    report_times, n_rows_by_tree = [time.monotonic()], []
    report, update = ProgressBar.__call__, lightgbm.Booster.update

    def timed_report(self: ProgressBar, iteration: int, n_iterations: int, objective: float) -> None:
        report_times.append(time.monotonic())
        report(self, iteration, n_iterations, objective)

    def counted_update(self: lightgbm.Booster, *arguments: Any, **options: Any) -> bool:
        if self.train_set.num_feature() == FEATURES:  # not a remapper's trees
            n_rows_by_tree.append(self.train_set.num_data())
        return bool(update(self, *arguments, **options))

    ProgressBar.__call__ = timed_report  # type: ignore[method-assign]  # this process runs nothing else
    lightgbm.Booster.update = counted_update
    before = peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        result = crowdrank.run(
            judgments, features, gold, output=Path(folder) / "out", progress=True, n_jobs=os.cpu_count()
        )
    report_times.append(time.monotonic())
    lightgbm.Booster.update = update
    return {
        "labels": len(judgments),
        "documents": len(judgments[["query", "document"]].drop_duplicates()),
        "seconds": result.profile.seconds,
        "cpu": result.profile.cpu_seconds,
        "silence": max(later - sooner for sooner, later in pairwise(report_times)),
        "before": before / GIGA,
        "peak": peak_bytes() / GIGA,
        "chosen": result.chosen,
        "trees": len(n_rows_by_tree),
        "floor": _tree_seconds(features, n_rows_by_tree),
        "stages": _longest_stages(result.profile),
    }


def _tree_seconds(features: Any, n_rows_by_tree: list[int]) -> float:
    """Return the CPU time that LightGBM needs to bin the rows of each fit once, and to fit its trees."""
    X = features.drop(columns=["query", "document"]).to_numpy()
    return sum(_time_trees(X, n_rows, n_trees) for n_rows, n_trees in Counter(n_rows_by_tree).items())


def _time_trees(X: Any, n_rows: int, n_trees: int) -> float:
    """Return the CPU time of binning some rows and of a number of trees, from a few of them."""
    rows, settings = X[np.arange(n_rows) % len(X)], {"num_threads": 1, "force_col_wise": True, "verbosity": -1}
    target = rows[:, 0] + np.random.default_rng(0).normal(size=n_rows)
    start = time.process_time()
    data = lightgbm.Dataset(rows, label=target, params=settings).construct()
    binning = time.process_time() - start
    booster = lightgbm.Booster({**settings, "objective": "regression", "learning_rate": 0.1, "num_leaves": 31}, data)
    booster.update()
    start = time.process_time()
    for _ in range(TIMED_TREES):
        booster.update()
    return binning + n_trees * (time.process_time() - start) / TIMED_TREES


def _longest_stages(profile: Any, n: int = 5) -> str:
    """Return the stages with most CPU time and their shares."""
    totals: dict[str, float] = {}
    for stage in profile.stages:
        totals[stage.stage] = totals.get(stage.stage, 0.0) + stage.cpu_seconds / profile.cpu_seconds
    longest = sorted(totals, key=lambda name: -totals[name])[:n]
    return ", ".join(f"{name} {totals[name]:.0%}" for name in longest)


def remap_size(share: float = 1.0) -> list[Result]:
    """Measure the peak memory of a run on data of the size of the REMAP paper, and its time over that of its trees."""
    sizes = in_own_process(_sizes, share)
    name = f"`run` on {sizes.pop('labels'):,} labels, {sizes.pop('documents'):,} documents x {FEATURES}"
    memory = {key: sizes.pop(key) for key in ("peak", "before")}
    ratio = sizes["cpu"] / sizes["floor"]
    return [
        at_most(f"gigabytes of {name}", memory["peak"], GIGABYTES, before=memory["before"]),
        at_most(f"CPU time of {name} / LightGBM's for the same trees", ratio, MAX_RATIO, **sizes),
    ]


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
        at_most(
            "CPU time of `run`, 10k labels / crowd-kit's Dawid-Skene and four LightGBM fits",
            ratio,
            8,
            run=times["cpu"],
            script=script,
        ),
        at_most("time of `run`, 10k labels: estimated / measured, or the inverse if it is larger", error, 1.5, **times),
    ]
