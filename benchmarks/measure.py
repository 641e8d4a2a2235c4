"""How things are measured: the best of several runs, each benchmark in a process of its own, one thread unless said."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

# Before NumPy is imported anywhere: a peer must not win or lose by a hidden thread pool.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass
class Result:
    """A ratio, the goal it has, and what it was made of."""

    name: str
    ratio: float
    goal: str
    met: bool
    details: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """One line for a person."""
        made_of = ", ".join(f"{name} {value}" for name, value in self.details.items())
        return f"{'ok  ' if self.met else 'MISS'} {self.name}: {self.ratio:.2f} (goal: {self.goal}) | {made_of}"


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Seconds of the fastest of several runs; noise only ever adds."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def at_least(name: str, ratio: float, goal: float, **details: Any) -> Result:
    """A ratio that should be large."""
    return Result(name, ratio, f"at least {goal:g}", ratio >= goal, _rounded(details))


def at_most(name: str, ratio: float, goal: float, **details: Any) -> Result:
    """A ratio that should be small."""
    return Result(name, ratio, f"at most {goal:g}", ratio <= goal, _rounded(details))


def _rounded(details: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in details.items()}


def in_own_process(work: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
    """The result of `work` in a fresh process, or None where it takes longer than `seconds`."""
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
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def to_json(results: list[Result]) -> str:
    """The results as JSON."""
    return json.dumps([asdict(result) for result in results], indent=2)
