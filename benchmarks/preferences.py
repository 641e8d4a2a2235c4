"""Speed and memory of preferences in GDA, compared with Dawid-Skene and with crowd-kit's Bradley-Terry model."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import data
from benchmarks.latent import _memory_now
from benchmarks.measure import Result, at_least, at_most, cpu_seconds, in_own_process

QUERIES, DOCUMENTS, ASSESSORS = 1_000, 100, 200
"""Number of queries, of documents per query, and of assessors of the simulated preferences."""


def simulated_preferences(n: int, queries: int = QUERIES, ties: float = 0.3) -> pd.DataFrame:
    """Draw preferences of assessors whose sharpness and position bias differ."""
    rng = np.random.default_rng(0)
    relevance = rng.normal(size=(queries, DOCUMENTS))
    sharpness, bias = np.exp(rng.normal(0.3, 0.5, ASSESSORS)), rng.normal(0, 0.3, ASSESSORS)
    query, left, assessor = (rng.integers(0, size, n) for size in (queries, DOCUMENTS, ASSESSORS))
    right = (left + rng.integers(1, DOCUMENTS, n)) % DOCUMENTS
    difference = relevance[query, left] - relevance[query, right]
    latent = sharpness[assessor] * difference + bias[assessor] + rng.logistic(size=n)
    answer = np.where(np.abs(latent) < ties, 0, -np.sign(latent)).astype(np.int64)
    return pd.DataFrame({"query": query, "left": left, "right": right, "assessor": assessor, "preference": answer})


def _read(n: int) -> Any:
    from crowdrank import read_preferences

    return read_preferences(simulated_preferences(n), repeats="keep")


def _fit_seconds(n: int) -> tuple[float, float, int, int]:
    """Return the CPU seconds and iterations of fits to convergence: GDA on preferences, Dawid-Skene on labels."""
    from crowdrank import GDA, DawidSkene, read_judgments

    warnings.simplefilter("ignore")
    labels = data.random_labels(n, items=n // 5, assessors=1_300)
    judgments = read_judgments(labels.rename(columns={"task": "document", "worker": "assessor", "label": "grade"}))
    preferences, first, second = _read(n), GDA(), DawidSkene()
    GDA(n_iter=1, tol=0.0).fit(None, preferences=_read(n // 5))  # compiles
    DawidSkene(n_iter=1, tol=0.0).fit(judgments)
    seconds = cpu_seconds(lambda: first.fit(None, preferences=preferences)), cpu_seconds(lambda: second.fit(judgments))
    return *seconds, first.n_iter_, second.n_iter_


def fits() -> Result:
    """Divide the time of GDA on 1M preferences by that of Dawid-Skene on 1M labels, both to convergence."""
    gda, dawid_skene, iterations, others = in_own_process(_fit_seconds, 1_000_000)
    details = {"gda": gda, "dawid_skene": dawid_skene, "gda_iterations": iterations, "dawid_skene_iterations": others}
    what = "GDA on 1M preferences between 100,000 documents / Dawid-Skene on 1M labels, both to convergence, CPU time"
    return at_most(what, gda / dawid_skene, 20, **details)


def _bytes_per_preference(n: int) -> float:
    """Return the peak memory of a fit per preference, without the preferences and the loaded libraries."""
    from crowdrank import GDA

    warnings.simplefilter("ignore")
    GDA(n_iter=1, tol=0.0).fit(None, preferences=_read(n // 5))
    preferences = _read(n)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _memory_now("VmRSS")
    GDA(n_iter=2, tol=0.0).fit(None, preferences=preferences)
    return (_memory_now("VmHWM") - before) / n


def memory() -> Result:
    """Measure the peak memory of a fit per preference."""
    each = in_own_process(_bytes_per_preference, 1_000_000)
    return at_most("GDA, peak bytes a preference at 1M preferences between 100,000 documents", each, 200)


def _bradley_terry_seconds(n: int, queries: int) -> tuple[float, float]:
    """Return the CPU seconds of crowd-kit's NoisyBradleyTerry and of GDA on the same preferences without ties."""
    from crowdkit.aggregation import NoisyBradleyTerry

    from crowdrank import GDA, read_preferences

    warnings.simplefilter("ignore")
    table = simulated_preferences(n, queries, ties=0.0)
    sides = {side: table["query"] * DOCUMENTS + table[side] for side in ("left", "right")}
    label = np.where(table["preference"] < 0, sides["left"], sides["right"])
    frame = pd.DataFrame({"worker": table["assessor"], **sides, "label": label})
    preferences, model = read_preferences(table, repeats="keep"), GDA()
    model.fit(None, preferences=preferences)
    ours = cpu_seconds(lambda: model.fit(None, preferences=preferences))
    return cpu_seconds(lambda: NoisyBradleyTerry().fit_predict(frame)), ours


def bradley_terry() -> Result:
    """Divide the time of crowd-kit's NoisyBradleyTerry by that of GDA, on the same preferences."""
    crowd_kit, ours = in_own_process(_bradley_terry_seconds, 20_000, 20)
    what = "Bradley-Terry with assessors, 20,000 preferences between 2,000 documents: CPU time of crowd-kit / crowdrank"
    return at_least(what, crowd_kit / ours, 1, crowd_kit=crowd_kit, ours=ours)
