"""Measure time and memory: the best of several runs, each benchmark in a new process, one thread by default."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of new processes, set before NumPy is imported: no library may use a thread pool."""


@dataclass
class Result:
    """Measured ratio, its goal, and the measurements behind it."""

    name: str
    ratio: float
    goal: str
    met: bool
    details: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the result as one line of text."""
        details = ", ".join(f"{name} {value}" for name, value in self.details.items())
        return f"{'ok  ' if self.met else 'MISS'} {self.name}: {self.ratio:.2f} (goal: {self.goal}) | {details}"


def best(work: Callable[[], object], runs: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of the fastest of several runs, by a clock: wall-clock time, or `time.process_time`."""
    seconds = []
    for _ in range(runs):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process for one call; the load of the machine hardly changes them."""
    start = time.process_time()
    work()
    return time.process_time() - start


def at_least(name: str, ratio: float, goal: float, **details: Any) -> Result:
    """Return the result of a ratio that must be at least a goal."""
    return Result(name, ratio, f"at least {goal:g}", ratio >= goal, _rounded(details))


def at_most(name: str, ratio: float, goal: float, **details: Any) -> Result:
    """Return the result of a ratio that must be at most a goal."""
    return Result(name, ratio, f"at most {goal:g}", ratio <= goal, _rounded(details))


def _rounded(details: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in details.items()}


def in_own_process(work: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
    """Call `work` in a new process; return its result, or None if it takes longer than `seconds`."""
    os.environ.update(ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work, arguments))
    process.start()
    sender.close()
    if not receiver.poll(seconds):
        process.terminate()
        process.join()
        return None
    value = receiver.recv()
    process.join()
    return value


def _send(sender: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    sender.send(work(*arguments))


def peak_bytes() -> int:
    """Return the maximum memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
