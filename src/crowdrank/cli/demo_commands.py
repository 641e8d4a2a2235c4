"""The commands `demo`, `simulate` and `datasets`: data to try crowdrank on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import join
from typing import Annotated

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line, print_paragraph, print_status
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.cli.options import AsJson
from crowdrank.cli.run_commands import command_options, print_run, report_writer
from crowdrank.errors import Fix, OutputError, UsageError


@dataclass(frozen=True)
class DocumentOptions:
    """Options for the queries, documents and expert grades of simulated data; see :func:`crowdrank.simulate`."""

    source: list[Path] = option(
        [], "LETOR file with real documents and expert grades; only the crowd is simulated. Repeatable.", "--from"
    )
    queries: int | None = option(None, "Number of queries.", show_default="100, or all of --from")
    documents: int | None = option(None, "Mean number of documents per query.", show_default="20")
    features: int | None = option(None, "Number of features.", show_default="20")
    grades: int | None = option(None, "Number of grades of the experts.", show_default="5")
    grade_ratio: float | None = option(
        None, "Frequency of each grade relative to the next lower one.", show_default="0.5"
    )
    gold_queries: int | None = option(None, "Number of queries with expert grades.", show_default="all")
    random_state: int = option(0, "Random seed.")


@dataclass(frozen=True)
class CrowdOptions:
    """Options for the assessors of simulated data; see :func:`crowdrank.simulate`."""

    labels: int = option(5, "Number of assessors per document.")
    assessors: int = option(60, "Number of assessors.")
    label_grades: int | None = option(None, "Number of grades of the crowd.", show_default="as the experts")
    spammers: float = option(0.15, "Share of assessors who answer at random.")
    adversaries: float = option(0.03, "Share of assessors who answer in reverse.")
    honeypots: float = option(0.05, "Share of documents with a known answer.")
    noise: float = option(1.0, "Noise of honest assessors; 0 for none.")
    families: int = option(0, "Number of families of honest assessors, whose errors are correlated.")
    family_error: float = option(1.0, "Size of the shared error of a family, relative to the noise of an assessor.")
    copies: float = option(0.0, "Share of assessors who copy the answers of another.")
    price: float = option(0.05, "Price of a label of the crowd.")
    expert_price: float = option(1.0, "Price of a label of an expert.")


def simulate(
    output: Annotated[Path, o.output_option("Folder for the world.")],
    documents: Annotated[DocumentOptions, FieldsOf(DocumentOptions, "Documents")],
    crowd: Annotated[CrowdOptions, FieldsOf(CrowdOptions, "Crowd")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another world in the folder.", rich_help_panel=o.OUTPUT)
    ] = False,
    json: o.AsJson = False,
) -> None:
    """Simulate queries, documents with features, expert grades, and a crowd that judges them.

    Examples:
        crowdrank simulate -o world --queries 50 --seed 1
        crowdrank simulate -o world --from train.letor --assessors 30
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.simulation.world import WORLD_FOLDER
    from crowdrank.simulation.world import simulate as simulate_world

    check_output_folder(output, WORLD_FOLDER)
    arguments = {**asdict(documents), **asdict(crowd), "source": documents.source or None}
    world, seed = simulate_world(**arguments), documents.random_state
    exists = (output / "world.json").exists() and not overwrite
    if exists and not world.is_in(output):
        fixes = (Fix("name another folder"), Fix("replace it with {}", "overwrite"))
        raise UsageError(f"There is another world in {output} already", fix=fixes)
    if not exists:
        world.write(output)
    counts = {
        "judgments": len(world.judgments),
        "documents": len(world.documents),
        "assessors": len(world.assessors),
    }
    if json:
        print_json({"folder": output, **counts, "seed": seed})
        return
    listed = ", ".join(counted(number, name.removesuffix("s")) for name, number in counts.items())
    print_line(
        f"{output} has this world already: {listed} (seed {seed})."
        if exists
        else f"Wrote {listed} to {output} (seed {seed})."
    )


def datasets(json: AsJson = False) -> None:
    """List the public data sets that crowdrank reads, where to get them, and which are installed."""
    from rich.text import Text

    from crowdrank.readers.datasets import DATA_FOLDER_VARIABLE, DATASETS

    entries = [
        {"name": d.name, "found": d.is_complete, "about": d.about, "origin": d.origin, "files": list(d.files)}
        for d in DATASETS.values()
    ]
    if json:
        print_json(entries)
        return
    rows = [[str(d["name"]), "yes" if d["found"] else "no", Text(f"{d['about']}\nfrom {d['origin']}")] for d in entries]
    print_cells(["data set", "found", "description"], rows, [True] * 3)
    print_line(f"Data sets are searched in {DATA_FOLDER_VARIABLE}, each in the folder of its name.")


DEFAULT_N_QUERIES = 150
"""Default number of queries that the crowd judges."""
MAX_EXPERT_QUERIES = 60
"""Maximum number of queries whose documents experts grade."""


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the data and the results.", rich_help_panel=o.OUTPUT)
    ] = Path("crowdrank-demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    queries: Annotated[
        int, typer.Option(help="Number of queries that the crowd judges; experts grade at most 60 of them.")
    ] = DEFAULT_N_QUERIES,
    json: o.AsJson = False,
) -> None:
    """Simulate a crowd, train a ranker on its judgments, and report the result.

    Examples:
        crowdrank demo
        crowdrank demo --queries 40 -o small-demo
    """
    from crowdrank._files import MANIFEST_FILE_NAME
    from crowdrank.pipeline.run import run
    from crowdrank.pipeline.run_result import Provenance
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
    if not (place / MANIFEST_FILE_NAME).exists():
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
    from crowdrank.pipeline.run_result import RUN
    from crowdrank.simulation.world import WORLD_FOLDER

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
    check_output_folder(output_folder / "world", WORLD_FOLDER)
    check_output_folder(output_folder / "run", RUN)


def demo_command(output: Path, seed: int, n_queries: int) -> str:
    """Return the command that repeats a demo.

    >>> demo_command(Path("crowdrank-demo"), 0, 20)
    'crowdrank demo --queries 20 --output crowdrank-demo'
    """
    options = {"seed": seed or None, "queries": None if n_queries == DEFAULT_N_QUERIES else n_queries, "output": output}
    return join(["crowdrank", "demo", *command_options(options)])
