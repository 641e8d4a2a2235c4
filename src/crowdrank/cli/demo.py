"""The command `crowdrank demo`: run everything on simulated data."""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import print_line, print_paragraph, print_status
from crowdrank.cli.report import report_writer
from crowdrank.cli.run import command_options, print_run
from crowdrank.errors import OutputError

DEFAULT_QUERIES = 150
MAX_EXPERT_QUERIES = 60


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the data and the results.", rich_help_panel=o.OUTPUT)
    ] = Path("crowdrank-demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    queries: Annotated[
        int, typer.Option(help="Number of queries that the crowd judges; experts grade at most 60 of them.")
    ] = DEFAULT_QUERIES,
    json: o.AsJson = False,
) -> None:
    """Simulate a crowd, train a ranker on its judgments, and report the result.

    Examples:
        crowdrank demo
        crowdrank demo --queries 40 -o small-demo
    """
    from crowdrank._files import MANIFEST
    from crowdrank.pipeline.provenance import Provenance
    from crowdrank.pipeline.run import run
    from crowdrank.simulation.world import simulate

    _check_output(output)
    world = simulate(queries=queries, gold_queries=min(MAX_EXPERT_QUERIES, queries), random_state=seed)
    output.mkdir(exist_ok=True)
    world.write(output / "world")
    if not json:
        print_paragraph(
            f"Simulated {len(world.judgments):,} judgments of {len(world.documents):,} documents by "
            f"{len(world.assessors)} assessors of known kinds (careful, careless, spammers, ...), and expert grades "
            f"of {world.gold['query'].nunique()} of {queries} queries (seed {seed})."
        )
        print_line(f"Data: {output / 'world'}")
    place = output / "run"
    if not (place / MANIFEST).exists():
        print_status("Training all candidates. The first run compiles some code, which takes half a minute.")
    provenance = Provenance(demo_command(output, seed, queries), units={"duration": "seconds", "cost": "simulated"})
    done = run(
        world.judgments,
        world.features,
        world.gold,
        output=place,
        progress=True,
        provenance=provenance,
        report=report_writer(),
        random_state=seed,
    )
    print_run(done, place, json=json)


def _check_output(output_folder: Path) -> None:
    """Raise OutputError if the folder cannot be written or contains anything but an earlier demo."""
    from crowdrank._files import check_output_file
    from crowdrank._folders import check_output_folder
    from crowdrank.pipeline.result import RUN
    from crowdrank.simulation.world import WORLD

    if not output_folder.is_dir():
        check_output_file(output_folder)
        if output_folder.exists():
            raise OutputError(f"Cannot write {output_folder}: it is a file, not a folder", fix="choose another name")
        return
    other = next((entry.name for entry in output_folder.iterdir() if entry.name not in ("world", "run")), None)
    if other is not None:
        raise OutputError(
            f"Cannot write {output_folder}: it contains {other}, which no demo wrote", fix="name a new folder"
        )
    check_output_folder(output_folder / "world", WORLD)
    check_output_folder(output_folder / "run", RUN)


def demo_command(output: Path, seed: int, n_queries: int) -> str:
    """Return the command that repeats a demo.

    >>> demo_command(Path("crowdrank-demo"), 0, 20)
    'crowdrank demo --queries 20 --output crowdrank-demo'
    """
    options = {"seed": seed or None, "queries": None if n_queries == DEFAULT_QUERIES else n_queries, "output": output}
    return join(["crowdrank", "demo", *command_options(options)])
