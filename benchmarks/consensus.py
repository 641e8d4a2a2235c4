"""Speed and memory of Dawid-Skene and GLAD, compared with crowd-kit and with lower bounds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.measure import ONE_THREAD, Result, at_least, at_most, best, cpu_seconds, in_own_process

ITERATIONS = 10


def _frame(kind: str) -> Any:
    if kind == "RF10":
        return data.rf10()
    return data.random_labels(1_000_000, items=200_000, assessors=1_300, text=kind == "1M text ids")


def _seconds(kind: str, repetitions: int, fits: int) -> tuple[float, float]:
    """Return the median CPU seconds of our fit and of crowd-kit's, measured in turns."""
    import crowdkit.aggregation

    from crowdrank import DawidSkene

    warnings.simplefilter("ignore")
    frame = _frame(kind)
    # With prior=0, the model and its results (to 1e-9) are those of crowd-kit.
    ours = DawidSkene(ITERATIONS, 0, prior=0)
    theirs = crowdkit.aggregation.DawidSkene(n_iter=ITERATIONS, tol=-1)
    ours.fit_predict_proba(frame)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions):
        seconds[0].extend(cpu_seconds(lambda: ours.fit_predict_proba(frame)) for _ in range(fits))
        seconds[1].append(cpu_seconds(lambda: theirs.fit_predict_proba(frame)))
    return median(seconds[0]), median(seconds[1])


def dawid_skene(kind: str, goal: float) -> Result:
    """Divide crowd-kit's CPU time from a DataFrame to posteriors by ours."""
    ours, theirs = in_own_process(_seconds, kind, 5 if kind == "RF10" else 3, 5)
    what = f"Dawid-Skene, 10 iterations, {kind}: CPU time of crowd-kit / crowdrank"
    return at_least(what, theirs / ours, goal, ours=ours, crowd_kit=theirs)


def _kernel_and_floor() -> tuple[float, float]:
    from numba import njit

    from crowdrank.consensus import e_step_kernels
    from crowdrank.engine.shards import split_into_shards
    from crowdrank.readers.read import read_judgments

    @njit  # type: ignore[untyped-decorator]  # numba ships no types
    def floor(offsets: Any, assessor: Any, grade: Any, posterior: Any, n_grades: int) -> None:
        """Read every code and write every posterior, without computing anything."""
        for item in range(len(offsets) - 1):
            read = 0
            for j in range(offsets[item], offsets[item + 1]):
                read += assessor[j] + grade[j]
            for c in range(n_grades):
                posterior[item * n_grades + c] = read

    frame = data.random_labels(1_000_000, items=200_000, assessors=1_300)
    (shard,) = split_into_shards(read_judgments(frame), shard_size=10**9)
    n_grades, n_assessors = shard.n_grades, shard.n_assessors
    rng = np.random.default_rng(0)
    likelihood = np.ascontiguousarray(rng.dirichlet(np.ones(n_grades), (n_assessors, n_grades)).transpose(0, 2, 1))
    posterior, counts = np.empty(shard.n_items * n_grades), np.zeros(likelihood.size)
    shares, classes = np.full(n_grades, 1 / n_grades), np.zeros(n_grades)
    expect = e_step_kernels.make_e_step_kernel(n_grades)

    def kernel() -> None:
        expect(
            shard.offsets,
            shard.assessor,
            shard.grade,
            shard.gold,
            n_grades,
            shares,
            likelihood.ravel(),
            np.eye(n_grades).ravel(),
            posterior,
            counts,
            classes,
        )

    def bare() -> None:
        floor(shard.offsets, shard.assessor, shard.grade, posterior, n_grades)

    kernel()
    bare()
    return best(kernel, 30), best(bare, 30)


def kernel() -> Result:
    """Divide the time of an E-step by that of reading the codes and writing the posterior."""
    ours, floor = in_own_process(_kernel_and_floor)
    what = "a pass of Dawid-Skene / reading the codes and writing the posteriors"
    return at_most(what, ours / floor, 6, ours=ours, floor=floor)


def _our_glad() -> float:
    from crowdrank import GLAD

    warnings.simplefilter("ignore")
    frame = data.rf10()
    return best(lambda: GLAD().fit_predict_proba(frame), 3)


def _crowd_kit_glad() -> float:
    from crowdkit.aggregation import GLAD

    warnings.simplefilter("ignore")
    frame = data.rf10()
    return best(lambda: GLAD().fit_predict_proba(frame), 1)


def glad(cap: float = 480.0) -> Result:
    """Divide crowd-kit's time of GLAD on RF10 by ours; crowd-kit stops after `cap` seconds, a lower bound."""
    ours = in_own_process(_our_glad)
    theirs = in_own_process(_crowd_kit_glad, seconds=cap)
    bound = "crowd_kit" if theirs is not None else "crowd_kit_stopped_after"
    seconds = theirs if theirs is not None else cap
    return at_least("GLAD, RF10: time of crowd-kit / crowdrank", seconds / ours, 200, ours=ours, **{bound: seconds})


PEAK = """
import atexit, sys
atexit.register(lambda: print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))))
"""
"""Code that prints the peak memory of its process in kilobytes when it ends."""
AGGREGATE = """
sys.stdout, sys.argv = sys.stderr, ["crowdrank", "-q", "aggregate", *sys.argv[1:]]
atexit.register(lambda: setattr(sys, "stdout", sys.__stdout__))
from crowdrank.cli.app import main; main()
"""
CROWD_KIT = """
import pandas as pd
from crowdkit.aggregation import DawidSkene
DawidSkene(n_iter=2, tol=-1).fit_predict_proba(pd.read_parquet(sys.argv[1]))
"""


def _peak_bytes(code: str, *words: str) -> float:
    """Return the peak memory of a new process that runs Python code."""
    command = [sys.executable, "-c", PEAK + code, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
    return 1024.0 * int(done.stdout.split()[-1])


def memory() -> list[Result]:
    """Divide the peak memory of `crowdrank aggregate`, data and libraries included, by labels and by crowd-kit's."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "labels.parquet")
        labels = in_own_process(_write, path)
        words = (path, "-m", "dawid-skene", "-s", "n_iter=2", "-s", "prior=0", "-o", str(Path(folder) / "out.parquet"))
        ours, theirs = _peak_bytes(AGGREGATE, *words), _peak_bytes(CROWD_KIT, path)
    empty = _peak_bytes("import crowdrank.cli.app, crowdrank.consensus.dawid_skene, pyarrow.parquet")
    compiler = _peak_bytes(
        "import crowdrank.cli.app, crowdrank.consensus.dawid_skene, pyarrow.parquet, numba; numba.njit(lambda: 0)()"
    )
    sizes = {"our_MB": ours / 1e6, "imported_MB": empty / 1e6, "imported_with_numba_MB": compiler / 1e6}
    what = "Dawid-Skene, 10M labels from Parquet: bytes per label at the peak"
    return [
        at_most(f"{what}, without those of the imported package", (ours - empty) / labels, 60, **sizes),
        at_most(f"{what}, of the whole process", ours / labels, 85),
        at_most("the same, peak of the process: crowdrank / crowd-kit", ours / theirs, 0.5, crowd_kit_MB=theirs / 1e6),
    ]


def _write(path: str) -> int:
    frame = data.random_labels(10_000_000, items=2_000_000, assessors=1_300)
    frame.to_parquet(path)
    return len(frame)


def _seconds_per_label(n: int, threads: int, clock: Callable[[], float] = time.perf_counter) -> float:
    from crowdrank import DawidSkene, LocalEngine, read_judgments

    warnings.simplefilter("ignore")
    judgments = read_judgments(data.random_labels(n, items=n // 5, assessors=1_300))
    engine = LocalEngine(threads)
    DawidSkene(1, 0, prior=0).fit(judgments, engine=engine)
    return best(lambda: DawidSkene(ITERATIONS, 0, prior=0).fit(judgments, engine=engine), 3, clock) / len(judgments)


def growth() -> Result:
    """Divide the CPU time per label on 10M labels by that on 1M, with the same number of assessors."""
    small, large = (in_own_process(_seconds_per_label, n, 1, time.process_time) for n in (1_000_000, 10_000_000))
    return at_most(
        "Dawid-Skene, CPU time per label: 10M labels / 1M labels",
        large / small,
        1.2,
        ns_per_label_1M=small * 1e9,
        ns_per_label_10M=large * 1e9,
    )


def _command_seconds(path: str, threads: int) -> float:
    """Return the seconds of `crowdrank aggregate` on a file, from the start of its process to its end."""
    words = [path, "-m", "dawid-skene", "--threads", str(threads), "-o", f"{path}.out.parquet"]
    command = [sys.executable, "-m", "crowdrank", "-q", "aggregate", *words]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **ONE_THREAD})
    return time.perf_counter() - start


def threads() -> list[Result]:
    """Divide the time with one thread by that with two, of a fit and of the whole command, on 10M labels."""
    one, two = (in_own_process(_seconds_per_label, 10_000_000, n) for n in (1, 2))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "labels.parquet")
        in_own_process(_write, path)
        _command_seconds(path, 2)  # compile kernels
        turns = [[_command_seconds(path, n) for n in (1, 2)] for _ in range(3)]
    first, second = (min(turn[place] for turn in turns) for place in (0, 1))
    what = "Dawid-Skene, 10M labels"
    fit = {"one_ns_per_label": one * 1e9, "two_ns_per_label": two * 1e9}
    return [
        at_least(f"{what}, fit in memory: time of one thread / two threads", one / two, 1.7, **fit),
        at_least(
            f"{what}, aggregate of a Parquet file: time of one thread / two threads",
            first / second,
            1.7,
            one_seconds=first,
            two_seconds=second,
        ),
    ]
