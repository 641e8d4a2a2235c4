"""Speed, growth and memory of GDA and pairwise GDA."""

from __future__ import annotations

import gc
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import data
from benchmarks.measure import Result, at_most, best, cpu_seconds, in_own_process
from crowdrank.readers.datasets import dataset

PARTNERS = 20
ITERATIONS = 5
DOCUMENTS = 200
"""Number of documents per query; with five judgments each, a query is about as large as one of RF10."""


def _model(name: str, **options: Any) -> Any:
    import crowdrank

    return getattr(crowdrank, name)(**options)


def _seconds_on_rf10(*names: str) -> list[float]:
    """Return the CPU seconds of fits to convergence on RF10, in turns, without the first fit, which compiles."""
    warnings.simplefilter("ignore")
    crowd = dataset("trec-rf10").read_judgments()
    models = [_model(name, **({"partners": PARTNERS} if name == "GDAPairwise" else {})) for name in names]
    for model in models:
        model.fit(crowd)
    turns = [[cpu_seconds(partial(model.fit, crowd)) for model in models] for _ in range(5)]
    return [median(seconds) for seconds in zip(*turns, strict=True)]


def gda_over_dawid_skene() -> Result:
    """Divide the time of GDA to convergence on RF10 by that of Dawid-Skene."""
    gda, dawid_skene = in_own_process(_seconds_on_rf10, "GDA", "DawidSkene")
    return at_most(
        "GDA / Dawid-Skene, both to convergence, RF10", gda / dawid_skene, 15, gda=gda, dawid_skene=dawid_skene
    )


def pairwise_over_gda() -> Result:
    """Divide the time of pairwise GDA with 20 partners to convergence on RF10 by that of GDA."""
    pairwise, gda = in_own_process(_seconds_on_rf10, "GDAPairwise", "GDA")
    return at_most(
        "GDA by pairs with 20 partners / GDA, both to convergence, RF10", pairwise / gda, 5, pairwise=pairwise, gda=gda
    )


def _judgments(n: int) -> Any:
    """Read random labels in queries of a thousand."""
    from crowdrank import read_judgments

    frame = data.random_labels(n, items=n // 5, assessors=1_300)
    frame = frame.rename(columns={"task": "document", "worker": "assessor", "label": "grade"})
    return read_judgments(frame.assign(query=frame["document"] // DOCUMENTS))


def _fit_seconds(name: str, n: int) -> float:
    warnings.simplefilter("ignore")
    judgments = _judgments(n)
    _model(name, n_iter=1, tol=0.0).fit(judgments)
    return best(lambda: _model(name, n_iter=ITERATIONS, tol=0.0).fit(judgments), 2)


def _growth(name: str, n: int) -> Result:
    small, large = in_own_process(_fit_seconds, name, n), in_own_process(_fit_seconds, name, 10 * n)
    what = f"{name}, {ITERATIONS} iterations, time: {10 * n:,} labels / {n:,}"
    return at_most(what, large / small, 12, small=small, large=large)


def growth() -> list[Result]:
    """Divide the time for ten times the labels by that for the labels, with the same assessors and iterations."""
    return [_growth("GDA", 1_000_000), _growth("GDAPairwise", 100_000)]


def _memory_now(field: str) -> int:
    """Return the bytes of memory of this process: now (VmRSS) or at most so far (VmHWM)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


def _bytes_per_label(name: str, n: int) -> float:
    """Return the peak memory of a fit per label, without the judgments and the loaded libraries."""
    warnings.simplefilter("ignore")
    _model(name, n_iter=1, tol=0.0).fit(_judgments(5_000))
    judgments = _judgments(n)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak: reading takes more than a fit
    before = _memory_now("VmRSS")
    _model(name, n_iter=2, tol=0.0).fit(judgments)
    return (_memory_now("VmHWM") - before) / len(judgments)


def memory() -> list[Result]:
    """Measure the peak memory of a fit per label."""
    results = []
    for name in ("GDA", "GDAPairwise"):
        per_label = in_own_process(_bytes_per_label, name, 2_000_000)
        results.append(at_most(f"{name}, peak bytes a label at 2M labels", per_label, 200))
    return results
