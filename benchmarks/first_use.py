"""CPU time of `crowdrank aggregate` from the start of the process to the written file, compared with crowd-kit.

The first use is that of a new copy of the package: no compiled kernels, and no byte code of crowdrank's modules. The
second use is the same command again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import crowdrank
from benchmarks import data
from benchmarks.measure import ONE_THREAD, Result, at_most

LABELS, ITEMS, ASSESSORS = 15_000, 3_000, 100
REPETITIONS = 5
GOALS = {"majority": (0.6, 0.3), "dawid-skene": (0.6, 0.3), "gda": (1.2, 0.3)}
"""Goals of the ratios of the first and of the second use, by method."""
CROWD_KIT = """
import sys
import pandas as pd
from crowdkit.aggregation import DawidSkene
DawidSkene(n_iter=100, tol=1e-5).fit_predict_proba(pd.read_csv(sys.argv[1])).to_csv(sys.argv[2])
"""


def _cpu_seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Run a command and return the CPU seconds of its process."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def _repetition(folder: Path, labels: Path) -> dict[str, float]:
    """Return the CPU seconds of crowd-kit, and of the first and second use of each method."""
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(folder / "lib")}
    for name in ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
        environment.pop(name, None)
    command = [sys.executable, "-c", CROWD_KIT, str(labels), "crowd-kit.csv"]
    seconds = {"crowd-kit": _cpu_seconds(command, folder, environment)}
    for method in GOALS:
        shutil.rmtree(folder / "lib", ignore_errors=True)
        package = Path(crowdrank.__file__).parent
        shutil.copytree(package, folder / "lib" / "crowdrank", ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "crowdrank", "-q", "aggregate", str(labels), "-m", method, "-o", "out.csv"]
        for use in ("first", "second"):
            seconds[f"{method} {use}"] = _cpu_seconds(command, folder, environment)
    return seconds


def aggregate() -> list[Result]:
    """Divide our CPU time for reading a CSV file, fitting and writing by that of crowd-kit's Dawid-Skene."""
    with tempfile.TemporaryDirectory() as name:
        folder, labels = Path(name), Path(name) / "labels.csv"
        data.random_labels(LABELS, items=ITEMS, assessors=ASSESSORS).to_csv(labels, index=False)
        runs = [_repetition(folder, labels) for _ in range(REPETITIONS)]
    results = []
    for method, goals in GOALS.items():
        for use, goal in zip(("first", "second"), goals, strict=True):
            ours, theirs = (median(run[who] for run in runs) for who in (f"{method} {use}", "crowd-kit"))
            ratio = median(run[f"{method} {use}"] / run["crowd-kit"] for run in runs)
            what = f"{method}, {use} use, 15k labels: CPU time of crowdrank / crowd-kit"
            results.append(at_most(what, ratio, goal, ours=ours, crowd_kit=theirs))
    return results
