"""Read damaged inputs and count what happens: `python -m tools.fuzz` or `make fuzz`.

The inputs come from `tools.fuzz_readers` (files of judgments, features and grades) and `tools.fuzz_saved` (folders that
crowdrank wrote). Each has a function `run(count, seconds, seed)` that makes `count` inputs, returns how many of them
ended how, and raises AssertionError if one was neither read nor refused with one message. Chunks of inputs run in their
own processes, so that a crash of the interpreter is noticed and its seed is known.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

MODULES = {"tools.fuzz_readers": 0.7, "tools.fuzz_saved": 0.3}
"""Modules that make inputs, with their shares of all inputs."""
CHUNK = 1000
"""Number of inputs per process."""
PROCESSES = 2
"""Number of processes at a time."""
GRACE_SECONDS = 120.0
"""Time after its limit at which a process counts as hanging."""
SHOWN = 10
"""Maximum number of violations that are printed in full."""
CHILD = """
import importlib, json, resource, sys
name, count, seconds, seed = sys.argv[1:]
if name == "tools.fuzz_readers":  # a small input must not take gigabytes; charts, of saved runs, reserve more
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
counts = importlib.import_module(name).run(int(count), float(seconds), int(seed))
sys.stdout.write("\\n" + json.dumps(counts))
"""


@dataclass(frozen=True)
class Chunk:
    """Inputs that one process makes and reads."""

    module: str
    count: int
    seed: int

    def command(self, seconds: float) -> list[str]:
        """Return the command that runs this chunk."""
        return [sys.executable, "-c", CHILD, self.module, str(self.count), f"{seconds:.1f}", str(self.seed)]

    def __str__(self) -> str:
        name = self.module.removeprefix("tools.")
        return f"python -c 'from tools import {name}; {name}.run({self.count}, 600, {self.seed})'"


@dataclass
class Tally:
    """Counts of all chunks that have ended."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, chunk: Chunk, done: subprocess.CompletedProcess[str] | None) -> None:
        """Count how a process ended; None means that it hung."""
        if done is not None and done.returncode == 0:
            ours = self.counts.setdefault(chunk.module, Counter())
            ours.update(json.loads(done.stdout.rsplit("\n", 1)[-1]))
            return
        kind, text = classify(done)
        self.failures[kind] += 1
        self.violations.append(f"{kind}: {chunk}\n{text}")
        if len(self.violations) <= SHOWN:
            sys.stderr.write(f"\n{self.violations[-1]}\n")


def classify(done: subprocess.CompletedProcess[str] | None) -> tuple[str, str]:
    r"""Return the kind of a violation and what describes it.

    >>> classify(subprocess.CompletedProcess([], -11, "", ""))
    ('crashes', 'The process died of SIGSEGV.')
    >>> classify(subprocess.CompletedProcess([], 1, "", "Traceback ...\nAssertionError: a.csv: 3 rows are lost"))
    ('assertions', 'AssertionError: a.csv: 3 rows are lost')
    """
    if done is None:
        return "hangs", "The process did not end."
    if done.returncode < 0:
        return "crashes", f"The process died of {signal.Signals(-done.returncode).name}."
    lines = done.stderr.strip().splitlines() or ["The process said nothing."]
    place = next((n for n, line in enumerate(lines) if line.startswith("AssertionError")), None)
    if place is not None:
        kind = "crashes" if "ended by signal" in lines[place] else "assertions"
        kind = "tracebacks" if "ended by an exception" in lines[place] else kind
        return kind, "\n".join(lines[place:])
    return "tracebacks", "\n".join(lines[-12:])


def chunks(count: int, seed: int) -> Iterator[Chunk]:
    """Yield the chunks of both modules in turns, each with its own seed.

    >>> [(chunk.module[-6:], chunk.count, chunk.seed) for chunk in chunks(3000, 5)]
    [('eaders', 1000, 5000000), ('_saved', 900, 5000001), ('eaders', 1000, 5000002), ('eaders', 100, 5000003)]
    """
    left = {module: round(count * share) for module, share in MODULES.items()}
    number = 0
    while any(left.values()):
        for module in (one for one in MODULES if left[one]):
            size = min(CHUNK, left[module])
            left[module] -= size
            yield Chunk(module, size, seed * 1_000_000 + number)
            number += 1


def run_chunk(chunk: Chunk, deadline: float) -> subprocess.CompletedProcess[str] | None:
    """Run a chunk in a process; return None if it hangs."""
    seconds = max(1.0, deadline - time.monotonic())
    try:
        return subprocess.run(chunk.command(seconds), capture_output=True, text=True, timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def run_all(count: int, seconds: float, seed: int) -> tuple[Tally, int]:
    """Run all chunks, two at a time; return the counts and how many chunks were skipped because time was up."""
    tally, deadline, skipped = Tally(), time.monotonic() + seconds, 0
    todo = list(chunks(count, seed))

    def work(chunk: Chunk) -> tuple[bool, subprocess.CompletedProcess[str] | None]:
        return (False, None) if time.monotonic() > deadline else (True, run_chunk(chunk, deadline))

    with ThreadPoolExecutor(PROCESSES) as pool:
        running = {pool.submit(work, chunk): chunk for chunk in todo}
        for number, ended in enumerate(as_completed(running), 1):
            began, done = ended.result()
            skipped += not began
            if began:
                tally.add(running[ended], done)
            sys.stderr.write(f"\r{number:,} of {len(todo):,} chunks, {len(tally.violations):,} violations")
    sys.stderr.write("\n")
    return tally, skipped


def table(tally: Tally) -> str:
    """Return the counts as a table, one column per module."""
    names = list(dict.fromkeys(name for counts in tally.counts.values() for name in counts))
    columns = [module.removeprefix("tools.") for module in tally.counts]
    rows = [["", *columns], *([name, *(f"{one[name]:,}" for one in tally.counts.values())] for name in names)]
    rows += [[kind, f"{tally.failures[kind]:,}"] for kind in ("assertions", "tracebacks", "crashes", "hangs")]
    return "\n".join("".join(cell.ljust(28) if not n else cell.rjust(16) for n, cell in enumerate(row)) for row in rows)


def main() -> None:
    """Run all inputs and print the counts; exit with 1 if any was neither read nor refused with one message."""
    parser = argparse.ArgumentParser(description="Read damaged inputs and count what happens.")
    parser.add_argument("--count", type=int, default=100_000, help="number of inputs")
    parser.add_argument("--seconds", type=float, default=1500.0, help="maximum time; inputs that remain are skipped")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    chosen = parser.parse_args()
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"There is no module {' and no '.join(missing)}: nothing was read.")
    tally, skipped = run_all(chosen.count, chosen.seconds, chosen.seed)
    sys.stdout.write(f"{table(tally)}\n")
    if skipped:
        sys.stdout.write(f"{skipped:,} chunks were skipped because time was up.\n")
    if tally.violations or not tally.counts:
        sys.exit(1)


if __name__ == "__main__":
    main()
