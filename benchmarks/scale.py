"""`python -m benchmarks.scale [--small] [--sizes 1e7,1e8] [--threads N] [--only cluster]`: `make bench-scale`.

Draws worlds of 10M and 100M labels with the same 100,000 assessors as partitioned Parquet, deals them into shards, and
fits Dawid-Skene (10 iterations) and GDA (3 rounds) to them, each step in a process of its own whose peak memory is the
most that it ever held. Prints a table, and writes `build/scale/`: scale.json and a picture.

Seconds are of the clock; processor seconds beside them tell what of it was work, on a machine that others use too.
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

OUT = Path("build/scale")
LABELS_PER_ITEM = 5
MOST_BYTES_PER_LABEL = 80
MOST_GROWTH = 1.15
MOST_MEMORY = 12e9
ITERATIONS = {"DawidSkene": 10, "GDA": 3}


@dataclass(frozen=True)
class Scale:
    """What is measured."""

    sizes: tuple[int, ...] = (10_000_000, 100_000_000)
    assessors: int = 100_000
    threads: int = 1
    shard_size: int = 1 << 21
    rows_per_file: int = 1_000_000


SMALL = Scale(sizes=(20_000, 40_000), assessors=200, shard_size=5_000, rows_per_file=10_000)
"""To see that it works, in seconds."""


@dataclass
class Measured:
    """One step on one size."""

    step: str
    labels: int
    seconds: float
    processor_seconds: float
    peak_bytes: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ns_per_label(self) -> float:
        """Nanoseconds of the clock."""
        return self.seconds / self.labels * 1e9

    @property
    def processor_ns_per_label(self) -> float:
        """Nanoseconds of work."""
        return self.processor_seconds / self.labels * 1e9

    @property
    def bytes_per_label(self) -> float:
        """The peak, Python and all, by the labels."""
        return self.peak_bytes / self.labels


def timed(step: str, labels: int, work: Callable[[], dict[str, Any]]) -> Measured:
    """Run `work`, which returns details; for a process of its own."""
    began, worked = time.perf_counter(), time.process_time()
    details = work()
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    return Measured(step, labels, seconds, processor, peak_bytes(), details)


def draw(folder: Path, labels: int, scale: Scale) -> Measured:
    """A world on disk."""
    from crowdrank.simulation.large import simulate_partitions

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

    return timed("draw", labels, work)


def read(folder: Path, work_folder: Path, labels: int, scale: Scale) -> Measured:
    """The world's judgments in shards."""
    from crowdrank import read_partitions

    def work() -> dict[str, Any]:
        made = read_partitions(folder, work=work_folder, shard_size=scale.shard_size, n_jobs=scale.threads)
        size = sum(file.stat().st_size for file in work_folder.iterdir())
        return {"shards": len(made.shards), "bytes_on_disk": size}

    return timed("read and shuffle", labels, work)


def fit(name: str, work_folder: Path, output: Path, labels: int, scale: Scale) -> Measured:
    """A model fitted to the shards, its consensus written."""
    import warnings

    import crowdrank
    from crowdrank.judgments.sharded import load_sharded

    warnings.simplefilter("ignore")
    judgments = load_sharded(work_folder)
    marks: list[tuple[float, float]] = []

    def note(iteration: int, most: int, objective: float) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    def work() -> dict[str, Any]:
        model = getattr(crowdrank, name)(ITERATIONS[name], 0.0)
        engine = crowdrank.LocalEngine(scale.threads)
        model.fit(judgments, engine=engine, progress=note, output=output)
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

    return timed(name, labels, work)


def one_machine(folder: Path, scale: Scale) -> list[Measured]:
    """Every step on every size; what is not needed any more is removed at once."""
    found = []
    for labels in scale.sizes:
        world, shards, output = folder / "world", folder / "shards", folder / "consensus"
        steps: list[tuple[Callable[..., Measured], tuple[Any, ...]]] = [
            (draw, (world, labels, scale)),
            (read, (world, shards, labels, scale)),
            *((fit, (name, shards, output, labels, scale)) for name in ITERATIONS),
        ]
        for step, arguments in steps:
            measured = in_own_process(step, *arguments)
            found.append(measured)
            print(line(measured), flush=True)  # noqa: T201 - a program that prints
            if step is read:
                shutil.rmtree(world)
        shutil.rmtree(shards)
        shutil.rmtree(output)
    return found


def cluster(folder: Path, scale: Scale) -> list[Measured]:
    """Dawid-Skene on Dask, on the smallest size: one process, then two."""
    labels, world = scale.sizes[0], folder / "world"
    in_own_process(draw, world, labels, scale)
    found = []
    for workers in scale_dask.PROCESSES:
        measured = in_own_process(on_cluster, world, folder / "shards", labels, workers)
        found.append(measured)
        print(line(measured), flush=True)  # noqa: T201
    for place in ("world", "shards", "consensus"):
        shutil.rmtree(folder / place)
    return found


def on_cluster(world: Path, work: Path, labels: int, workers: int) -> Measured:
    """One row; its peak memory is that of the process that leads."""
    return timed(f"{CLUSTER}{workers}", labels, lambda: scale_dask.fit_on_cluster(world, work, labels, workers))


CLUSTER = "Dask processes: "
SECTIONS: dict[str, Callable[[Path, Scale], list[Measured]]] = {"one machine": one_machine, "cluster": cluster}
"""What is measured, in order."""


def line(measured: Measured) -> str:
    """One line for a person."""
    details = ", ".join(f"{name} {_short(value)}" for name, value in measured.details.items())
    return (
        f"{measured.step:17} {measured.labels:>12,} labels {measured.seconds:9.1f} s {measured.ns_per_label:8.0f} ns "
        f"({measured.processor_ns_per_label:6.0f} ns of work) {measured.peak_bytes / 1e6:8.0f} MB "
        f"{measured.bytes_per_label:7.1f} bytes a label | {details}"
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def verdicts(found: list[Measured]) -> list[Result]:
    """The goals: growth of time, memory a label, memory in all."""
    results = []
    by_step = {step: [one for one in found if one.step == step] for step in ("read and shuffle", *ITERATIONS)}
    for step, sizes in by_step.items():
        if len(sizes) < 2:
            continue
        small, large = sizes[0], sizes[-1]
        growth = large.processor_ns_per_label / small.processor_ns_per_label
        grown = large.ns_per_label / small.ns_per_label
        name = f"{step}, work a label, {large.labels:,} over {small.labels:,}"
        results.append(at_most(name, growth, MOST_GROWTH, by_the_clock=grown))
        memory = large.bytes_per_label / small.bytes_per_label
        results.append(at_most(f"{step}, peak bytes a label, likewise", memory, MOST_GROWTH))
    for one in by_step["DawidSkene"]:
        reading = max(other.peak_bytes for other in by_step["read and shuffle"] if other.labels == one.labels)
        peak = max(one.peak_bytes, reading) / one.labels
        name = f"Dawid-Skene from files to consensus, {one.labels:,} labels, peak bytes a label"
        results.append(at_most(name, peak, MOST_BYTES_PER_LABEL))
    for step, sizes in by_step.items():
        if sizes:
            peak = max(one.peak_bytes for one in sizes)
            results.append(at_most(f"{step}, peak memory in GB", peak / 1e9, MOST_MEMORY / 1e9))
    on_dask = [one for one in found if one.step.startswith(CLUSTER)]
    if on_dask:
        by_workers = {n: [one.details for one in on_dask if one.step == f"{CLUSTER}{n}"] for n in (1, 2)}
        results.append(scale_dask.verdict(by_workers, on_dask[0].labels))
    return results


def picture(found: list[Measured], path: Path) -> None:
    """Time and memory of every step by the number of labels, both axes in powers of ten."""
    import altair as alt

    rows = [
        {"step": one.step, "labels": one.labels, "what": what, "value": value}
        for one in found
        for what, value in (("seconds of work", one.processor_seconds), ("peak memory, MB", one.peak_bytes / 1e6))
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=320, height=260)
        .mark_line(point=True)
        .encode(
            x=alt.X("labels:Q", scale=alt.Scale(type="log"), title="labels"),
            y=alt.Y("value:Q", scale=alt.Scale(type="log"), title=None),
            color=alt.Color("step:N", title=None),
        )
        .facet(column=alt.Column("what:N", title=None))
        .resolve_scale(y="independent")
    )
    chart.save(path)


def main(arguments: list[str] | None = None) -> list[Measured]:
    """Measure, print, and write JSON and a picture."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale")
    parser.add_argument("--small", action="store_true", help="tiny worlds, to see that it works")
    parser.add_argument("--sizes", help="numbers of labels, as in 1e6,1e7")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the worlds are drawn; by default a temporary folder")
    parser.add_argument("--only", choices=SECTIONS, help="one part of it")
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args(arguments)
    scale = SMALL if told.small else Scale(threads=told.n_jobs)
    if told.sizes:
        sizes = tuple(int(float(size)) for size in told.sizes.split(","))
        scale = replace(scale, sizes=sizes)
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(dir=told.folder) as folder:
        for name, section in SECTIONS.items():
            if told.only in (None, name):
                found += section(Path(folder), scale)
    results = verdicts(found)
    for result in results:
        print(result.line())  # noqa: T201
    told.out.mkdir(parents=True, exist_ok=True)
    written = {
        "scale": asdict(scale),
        "measured": [asdict(one) for one in found],
        "verdicts": [asdict(one) for one in results],
    }
    (told.out / "scale.json").write_text(json.dumps(written, indent=2))
    picture(found, told.out / "scale.svg")
    picture(found, told.out / "scale.png")
    return found


if __name__ == "__main__":
    main()
