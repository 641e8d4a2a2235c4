"""The command `crowdrank simulate`: simulate documents and judgments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import Fix, UsageError


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
    from crowdrank.simulation.world import WORLD
    from crowdrank.simulation.world import simulate as simulate_world

    check_output_folder(output, WORLD)
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
