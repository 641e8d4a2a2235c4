"""`crowdrank simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli.console import say, say_json
from crowdrank.cli.options import AsJson
from crowdrank.errors import UsageError


def simulate(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to write the world to.", show_default=False)
    ],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="A LETOR file: its queries, documents, features and expert grades are used, and only the crowd is "
            "simulated. May be given several times.",
            metavar="<path>",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="How many queries; 100, or all of --from, by default.", show_default=False)
    ] = None,
    documents: Annotated[
        int | None, typer.Option(help="About how many documents a query has; 20 by default.", show_default=False)
    ] = None,
    labels: Annotated[int, typer.Option(help="How many assessors judge each document.")] = 5,
    assessors: Annotated[int, typer.Option(help="How many assessors there are.")] = 60,
    features: Annotated[
        int | None, typer.Option(help="How many features a document has; 20 by default.", show_default=False)
    ] = None,
    grades: Annotated[
        int | None, typer.Option(help="How many grades the experts use; 5 by default.", show_default=False)
    ] = None,
    label_grades: Annotated[
        int | None, typer.Option(help="How many grades the crowd uses; as the experts' by default.")
    ] = None,
    spammers: Annotated[float, typer.Option(help="Share of assessors who do not look.")] = 0.15,
    adversaries: Annotated[float, typer.Option(help="Share of assessors who answer in reverse.")] = 0.03,
    honeypots: Annotated[float, typer.Option(help="Share of documents with a known answer.")] = 0.05,
    noise: Annotated[float, typer.Option(help="How noisy honest assessors are; 0 is not at all.")] = 1.0,
    families: Annotated[int, typer.Option(help="Into how many families honest assessors fall, who err together.")] = 0,
    family_error: Annotated[
        float, typer.Option(help="How large a family's shared error is; 1 is an ordinary assessor's noise.")
    ] = 1.0,
    copies: Annotated[float, typer.Option(help="Share of assessors who repeat the answers of another.")] = 0.0,
    price: Annotated[float, typer.Option(help="What a label of an ordinary assessor costs.")] = 0.05,
    expert_price: Annotated[float, typer.Option(help="What a label of an expert costs.")] = 1.0,
    gold_queries: Annotated[
        int | None, typer.Option(help="How many queries have expert grades; all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same world.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over a world that is there.")] = False,
    json: AsJson = False,
) -> None:
    """Make a world: queries, documents with features, expert grades, and a crowd that judges them.

    With --from only the crowd is made; all else is real.
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.simulation.world import WORLD
    from crowdrank.simulation.world import simulate as make

    check_output_folder(output, WORLD)
    world = make(
        source=source or None,
        queries=queries,
        documents=documents,
        labels=labels,
        assessors=assessors,
        features=features,
        grades=grades,
        label_grades=label_grades,
        spammers=spammers,
        adversaries=adversaries,
        honeypots=honeypots,
        noise=noise,
        families=families,
        family_error=family_error,
        copies=copies,
        price=price,
        expert_price=expert_price,
        gold_queries=gold_queries,
        random_state=seed,
    )
    there = (output / "world.json").exists() and not overwrite
    if there and not world.is_in(output):
        raise UsageError(
            f"There is another world in {output} already; name another folder, or write over it with --overwrite."
        )
    if not there:
        world.write(output)
    counts = {
        "folder": str(output),
        "judgments": len(world.judgments),
        "documents": len(world.documents),
        "assessors": len(world.assessors),
        "seed": seed,
    }
    if json:
        say_json(counts)
    else:
        said = ", ".join(f"{counts[name]:,} {name}" for name in ("judgments", "documents", "assessors"))
        say(
            f"{output} has this world already: {said} (seed {seed})."
            if there
            else f"Wrote {said} to {output} (seed {seed})."
        )
