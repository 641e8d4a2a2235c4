"""The same passes on Dask: one process against two, and what an iteration sends.

Two processes and the one that leads them share this machine's cores; what the leading one does between passes (the
M-step, the sums of two) is what does not shrink. It is measured apart: `leading_seconds`.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, at_least

ITERATIONS = 8
PROCESSES = (1, 2, 1, 2)
"""In turn, so that a machine that others use too is as busy for either; the best of each counts."""
LEAST_GAIN = 1.6
SHARDS = 16
"""As many for each of two processes, and few enough that their sums are little beside the passes."""


def fit_on_cluster(world: Path, work: Path, labels: int, workers: int) -> dict[str, Any]:
    """Dawid-Skene on a cluster of `workers` processes here: seconds an iteration, messages and bytes."""
    import warnings

    from crowdrank import DaskEngine, DawidSkene, read_partitions

    warnings.simplefilter("ignore")
    sizes = count_messages()
    marks: list[tuple[float, int, int]] = []
    leading = _timed_maximize()

    def note(iteration: int, most: int, objective: float) -> None:
        marks.append((time.perf_counter(), len(sizes), sum(sizes)))

    with DaskEngine(workers=workers) as engine:
        began = time.perf_counter()
        stored = read_partitions(world, work=work, shard_size=-(-labels // SHARDS), engine=engine)
        reading = time.perf_counter() - began
        DawidSkene(ITERATIONS, 0.0).fit(stored, engine=engine, progress=note, output=work.parent / "consensus")
        between = engine.client.run(_incoming)
    steps = [tuple(b - a for a, b in zip(one, after, strict=True)) for one, after in itertools.pairwise(marks)]
    n = len(steps)
    return {
        "reading_seconds": reading,  # the second time the shards are there
        "iteration_seconds": min(step[0] for step in steps),
        "leading_seconds": min(leading),
        "messages": sum(step[1] for step in steps) / n,
        "bytes_through_client": sum(step[2] for step in steps) / n,
        "bytes_between_workers": sum(between.values()) / (n + 2),
        "shards": len(stored.shards),
    }


def _timed_maximize() -> list[float]:
    """Seconds of every M-step from now on, which the leading process makes alone."""
    from crowdrank import DawidSkene

    seconds: list[float] = []
    maximize = DawidSkene._maximize

    def timed(self: Any, theta: Any, statistics: Any, n_jobs: int = 1) -> Any:
        began = time.perf_counter()
        new = maximize(self, theta, statistics, n_jobs)
        seconds.append(time.perf_counter() - began)
        return new

    DawidSkene._maximize = timed  # type: ignore[method-assign]
    return seconds


def _incoming(dask_worker: Any) -> int:
    """Bytes that a worker got from others."""
    return int(sum(one["total"] for one in dask_worker.transfer_incoming_log))


def count_messages() -> list[int]:
    """The sizes of all messages that this process, with client and scheduler in it, sends and gets from now on."""
    from distributed.comm import tcp as module
    from distributed.utils import nbytes as untyped

    tcp: Any = module
    nbytes: Any = untyped
    sizes: list[int] = []
    packed, unpacked = tcp.to_frames, tcp.from_frames

    async def to_frames(*message: Any, **options: Any) -> Any:
        frames = await packed(*message, **options)
        sizes.append(sum(map(nbytes, frames)))
        return frames

    async def from_frames(frames: Any, **options: Any) -> Any:
        sizes.append(sum(map(nbytes, frames)))
        return await unpacked(frames, **options)

    tcp.to_frames, tcp.from_frames = to_frames, from_frames
    return sizes


def verdict(found: dict[int, list[dict[str, Any]]], labels: int) -> Result:
    """The goal: two processes over one, the best of each; by the number of processes."""
    one, two = (min(found[workers], key=lambda details: details["iteration_seconds"]) for workers in (1, 2))
    gain = one["iteration_seconds"] / two["iteration_seconds"]
    name = f"Dawid-Skene, {labels:,} labels, an iteration on 1 Dask process over 2"
    seconds = {f"on_{n}": details["iteration_seconds"] for n, details in ((1, one), (2, two))}
    leading = {f"m_step_on_{n}": details["leading_seconds"] for n, details in ((1, one), (2, two))}
    return at_least(name, gain, LEAST_GAIN, **seconds, **leading)
