"""Measure time and memory on 1M, 10M and 100M labels: `make bench-scale`.

    python -m benchmarks.scale [--small] [--sizes 1e7,1e8] [--threads N] [--only cluster]

Judgments by 100,000 assessors are simulated as partitioned Parquet, read into shards, and fitted with Dawid-Skene (10
iterations) and GDA (3 iterations), each step in a new process whose peak memory is measured. The results are printed,
stored with those of the other benchmarks, and written to `build/scale/`, with a chart. Wall-clock time and CPU time are
measured, because the machine may have other load.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import scale_dask
from benchmarks.measure import Result, at_most, in_own_process, peak_bytes
from benchmarks.stored_results import store

OUT = Path("build/scale")
LABELS_PER_ITEM = 5
MAX_GROWTH = 1.15
"""Goal of the growth of the time per label from one size to the next."""
MAX_GIGABYTES = 12
"""Goal of the peak memory."""
ITERATIONS = {"DawidSkene": 10, "GDA": 3}


@dataclass(frozen=True)
class Scale:
    """Sizes of the measurements."""

    sizes: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)
    cluster_size: int = 100_000_000
    assessors: int = 100_000
    threads: int = 1
    shard_size: int = 1 << 21
    rows_per_file: int = 1_000_000


SMALL = Scale(sizes=(20_000, 40_000), cluster_size=20_000, assessors=200, shard_size=5_000, rows_per_file=10_000)
"""Sizes of a test of the benchmark itself, which takes seconds."""


@dataclass
class Measured:
    """Measurements of one step on one size."""

    step: str
    labels: int
    seconds: float
    processor_seconds: float
    peak_bytes: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ns_per_label(self) -> float:
        """Wall-clock nanoseconds per label."""
        return self.seconds / self.labels * 1e9

    @property
    def processor_ns_per_label(self) -> float:
        """CPU nanoseconds per label."""
        return self.processor_seconds / self.labels * 1e9

    @property
    def bytes_per_label(self) -> float:
        """Peak memory of the process, including Python, per label."""
        return self.peak_bytes / self.labels


def timed(step: str, labels: int, work: Callable[[], dict[str, Any]]) -> Measured:
    """Measure a call of `work`, which returns details; the peak memory is that of the whole process."""
    start, start_cpu = time.perf_counter(), time.process_time()
    details = work()
    seconds, processor = time.perf_counter() - start, time.process_time() - start_cpu
    return Measured(step, labels, seconds, processor, peak_bytes(), details)


def draw(folder: Path, labels: int, scale: Scale) -> Measured:
    """Simulate judgments and write them to Parquet files."""
    from benchmarks.simulated_partitions import simulate_partitions

    def work() -> dict[str, Any]:
        simulate_partitions(
            folder,
            items=labels // LABELS_PER_ITEM,
            labels=LABELS_PER_ITEM,
            assessors=scale.assessors,
            rows_per_file=scale.rows_per_file,
        )
        files = list(folder.glob("*.parquet"))
        return {"files": len(files), "bytes_on_disk": sum(file.stat().st_size for file in files)}

    return timed("simulate", labels, work)


def read(folder: Path, work_folder: Path, labels: int, scale: Scale) -> Measured:
    """Read the Parquet files into shards."""
    from crowdrank import read_partitions

    def work() -> dict[str, Any]:
        judgments = read_partitions(folder, work=work_folder, shard_size=scale.shard_size, n_jobs=scale.threads)
        size = sum(file.stat().st_size for file in work_folder.iterdir())
        return {"shards": len(judgments.shards), "bytes_on_disk": size}

    return timed("read and shuffle", labels, work)


def fit(name: str, work_folder: Path, output: Path, labels: int, scale: Scale) -> Measured:
    """Fit a model to the shards and write its consensus."""
    import warnings

    import crowdrank
    from crowdrank.on_disk.sharded import load_sharded

    warnings.simplefilter("ignore")
    judgments = load_sharded(work_folder)
    marks: list[tuple[float, float]] = []

    def record(iteration: int, total: int, objective: float) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    def work() -> dict[str, Any]:
        model = getattr(crowdrank, name)(ITERATIONS[name], 0.0)
        engine = crowdrank.LocalEngine(scale.threads)
        model.fit(judgments, engine=engine, progress=record, output=output)
        written = sum(file.stat().st_size for file in output.rglob("*.parquet"))
        steps = [(after[0] - one[0], after[1] - one[1]) for one, after in pairwise(marks)]
        best = min(steps, default=(float("nan"), float("nan")))
        ended = time.perf_counter() - marks[-1][0], time.process_time() - marks[-1][1]
        return {
            "iterations": ITERATIONS[name],
            "iteration_seconds": best[0],
            "iteration_processor_seconds": min((step[1] for step in steps), default=float("nan")),
            "writing_seconds": ended[0],
            "writing_processor_seconds": ended[1],
            "bytes_on_disk": written,
        }

    return timed(step_name(name), labels, work)


def step_name(model: str) -> str:
    """Return the name of a model with its number of iterations.

    >>> step_name("GDA")
    'GDA, 3 iterations'
    """
    return f"{model.replace('DawidSkene', 'Dawid-Skene')}, {ITERATIONS[model]} iterations"


def one_machine(folder: Path, scale: Scale) -> list[Measured]:
    """Measure every step on every size; delete files that are no longer needed."""
    measurements = []
    for labels in scale.sizes:
        world, shards, output = folder / "world", folder / "shards", folder / "consensus"
        steps: list[tuple[Callable[..., Measured], tuple[Any, ...]]] = [
            (draw, (world, labels, scale)),
            (read, (world, shards, labels, scale)),
            *((fit, (name, shards, output, labels, scale)) for name in ITERATIONS),
        ]
        for step, arguments in steps:
            measured = in_own_process(step, *arguments)
            measurements.append(measured)
            print(line(measured), flush=True)  # noqa: T201
            if step is read:
                shutil.rmtree(world)
        shutil.rmtree(shards)
        shutil.rmtree(output)
    return measurements


def cluster(folder: Path, scale: Scale) -> list[Measured]:
    """Measure Dawid-Skene on Dask, with one process and with two."""
    labels, world = scale.cluster_size, folder / "world"
    in_own_process(draw, world, labels, scale)
    measurements = []
    for workers in scale_dask.PROCESSES:
        measured = in_own_process(on_cluster, world, folder / "shards", labels, workers)
        measurements.append(measured)
        print(line(measured), flush=True)  # noqa: T201
    for place in ("world", "shards", "consensus"):
        shutil.rmtree(folder / place)
    return measurements


def on_cluster(world: Path, work: Path, labels: int, workers: int) -> Measured:
    """Measure Dawid-Skene with a number of Dask processes; the peak memory is that of the client process."""
    return timed(f"{CLUSTER}{workers}", labels, lambda: scale_dask.fit_on_cluster(world, work, labels, workers))


CLUSTER = "Dask processes: "


def line(measured: Measured) -> str:
    """Return a measurement as one line of text."""
    details = ", ".join(f"{name} {_format(value)}" for name, value in measured.details.items())
    return (
        f"{measured.step:17} {measured.labels:>12,} labels {measured.seconds:9.1f} s {measured.ns_per_label:8.0f} ns "
        f"({measured.processor_ns_per_label:6.0f} ns CPU) {measured.peak_bytes / 1e6:8.0f} MB "
        f"{measured.bytes_per_label:7.1f} bytes per label | {details}"
    )


def _format(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def compare_growth(measurements: list[Measured]) -> list[Result]:
    """Compare the growth of the time per label and the peak memory with their goals."""
    results = []
    by_step = {
        step: [one for one in measurements if one.step == step]
        for step in ("read and shuffle", *map(step_name, ITERATIONS))
    }
    for step, sizes in by_step.items():
        for small, large in pairwise(sizes):
            growth = large.processor_ns_per_label / small.processor_ns_per_label
            name = f"{step}, CPU time per label: {large.labels:,} labels / {small.labels:,}"
            wall_clock = large.ns_per_label / small.ns_per_label
            results.append(at_most(name, growth, MAX_GROWTH, wall_clock=wall_clock))
        results.append(at_most(f"{step}, peak memory in GB", max(one.peak_bytes for one in sizes) / 1e9, MAX_GIGABYTES))
    return results


def compare_cluster(measurements: list[Measured]) -> list[Result]:
    """Compare the speedup by a second Dask process with its goal."""
    by_workers = {n: [one.details for one in measurements if one.step == f"{CLUSTER}{n}"] for n in (1, 2)}
    return [scale_dask.compare_with_goal(by_workers, measurements[0].labels)]


@dataclass(frozen=True)
class Section:
    """A part of the benchmark: its measurements, and their comparison with goals."""

    measure: Callable[[Path, Scale], list[Measured]]
    compare: Callable[[list[Measured]], list[Result]]


SECTIONS = {"scale": Section(one_machine, compare_growth), "cluster": Section(cluster, compare_cluster)}
"""Parts of the benchmark, in order."""


def plot(measurements: list[Measured], path: Path) -> None:
    """Plot time and memory of every step by the number of labels, on logarithmic axes."""
    import altair as alt

    rows = [
        {"step": one.step, "labels": one.labels, "quantity": quantity, "value": value}
        for one in measurements
        for quantity, value in (("CPU seconds", one.processor_seconds), ("peak memory, MB", one.peak_bytes / 1e6))
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=320, height=260)
        .mark_line(point=True)
        .encode(
            x=alt.X("labels:Q", scale=alt.Scale(type="log"), title="labels"),
            y=alt.Y("value:Q", scale=alt.Scale(type="log"), title=None),
            color=alt.Color("step:N", title=None),
        )
        .facet(column=alt.Column("quantity:N", title=None))
        .resolve_scale(y="independent")
    )
    chart.save(path)


def main(arguments: list[str] | None = None) -> list[Measured]:
    """Run the measurements, print them, and write them as JSON and as a chart."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale")
    parser.add_argument("--small", action="store_true", help="very small sizes, to test the benchmark")
    parser.add_argument("--sizes", help="numbers of labels, as in 1e6,1e7")
    parser.add_argument("--cluster-size", type=float, help="number of labels for Dask, as in 1e7")
    parser.add_argument("--assessors", type=int, help="number of assessors")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="folder for the data; by default a temporary one")
    parser.add_argument("--only", choices=SECTIONS, help="run one part only")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    scale = replace(SMALL if options.small else Scale(), threads=options.threads)
    if options.sizes:
        scale = replace(scale, sizes=tuple(int(float(size)) for size in options.sizes.split(",")))
    if options.assessors:
        scale = replace(scale, assessors=options.assessors)
    if options.cluster_size:
        scale = replace(scale, cluster_size=int(options.cluster_size))
    measurements: list[Measured] = []
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, section in SECTIONS.items():
            if options.only in (None, name):
                measured = section.measure(Path(folder), scale)
                compared = section.compare(measured)
                if not options.small:
                    store(name, compared, steps=[asdict(one) for one in measured])
                measurements += measured
                results += compared
    for result in results:
        print(result.line())  # noqa: T201
    options.out.mkdir(parents=True, exist_ok=True)
    content = {
        "scale": asdict(scale),
        "measured": [asdict(one) for one in measurements],
        "verdicts": [asdict(one) for one in results],
    }
    (options.out / "scale.json").write_text(json.dumps(content, indent=2))
    plot(measurements, options.out / "scale.svg")
    plot(measurements, options.out / "scale.png")
    return measurements


if __name__ == "__main__":
    main()
