"""Measure Dawid-Skene on Dask with one process and with two, and the size of its messages.

The worker processes and the client share the cores of this machine. The client's work between passes (the M-step)
does not get faster with more workers; it is measured as `leading_seconds`.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, at_least

ITERATIONS = 8
PROCESSES = (1, 2, 1, 2)
"""Numbers of worker processes, in turns, so that other load of the machine affects both; the best of each counts."""
MIN_SPEEDUP = 1.8
"""Goal of the time of an iteration with one process divided by that with two."""
SHARDS_FOLDER = 16
"""Number of shards: even, so that two processes get as many each, and small, so that adding sums takes little time."""


def fit_on_cluster(world: Path, work: Path, labels: int, workers: int) -> dict[str, Any]:
    """Fit Dawid-Skene on a local cluster; measure seconds, messages and bytes per iteration."""
    import warnings

    from crowdrank import DaskEngine, DawidSkene, read_partitions

    warnings.simplefilter("ignore")
    sizes = count_messages()
    marks: list[tuple[float, int, int]] = []
    client_seconds = _time_maximize()

    def record(iteration: int, total: int, objective: float) -> None:
        marks.append((time.perf_counter(), len(sizes), sum(sizes)))

    with DaskEngine(workers=workers) as engine:
        start = time.perf_counter()
        stored = read_partitions(world, work=work, shard_size=-(-labels // SHARDS_FOLDER), engine=engine)
        reading = time.perf_counter() - start
        DawidSkene(ITERATIONS, 0.0).fit(stored, engine=engine, progress=record, output=work.parent / "consensus")
        between = engine.client.run(_received_bytes)
    steps = [tuple(b - a for a, b in zip(one, after, strict=True)) for one, after in itertools.pairwise(marks)]
    n = len(steps)
    return {
        "reading_seconds": reading,  # the shards exist already if this is not the first fit
        "iteration_seconds": min(step[0] for step in steps),
        "leading_seconds": min(client_seconds),
        "messages": sum(step[1] for step in steps) / n,
        "bytes_through_client": sum(step[2] for step in steps) / n,
        "bytes_between_workers": sum(between.values()) / (n + 2),
        "shards": len(stored.shards),
    }


def _time_maximize() -> list[float]:
    """Measure every M-step from now on; return the growing list of seconds."""
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


def _received_bytes(dask_worker: Any) -> int:
    """Return the number of bytes that a worker received from others."""
    return int(sum(one["total"] for one in dask_worker.transfer_incoming_log))


def count_messages() -> list[int]:
    """Record the messages of this process (client and scheduler) from now on; return the growing list of sizes."""
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


def compare_with_goal(details: dict[int, list[dict[str, Any]]], labels: int) -> Result:
    """Divide the best time of an iteration with one process by that with two; details are by number of processes."""
    one, two = (min(details[workers], key=lambda one: one["iteration_seconds"]) for workers in (1, 2))
    speedup = one["iteration_seconds"] / two["iteration_seconds"]
    name = f"Dawid-Skene, {labels:,} labels, time of an iteration: 1 Dask process / 2"
    seconds = {f"on_{n}": best["iteration_seconds"] for n, best in ((1, one), (2, two))}
    m_step = {f"m_step_on_{n}": best["leading_seconds"] for n, best in ((1, one), (2, two))}
    return at_least(name, speedup, MIN_SPEEDUP, **seconds, **m_step)
