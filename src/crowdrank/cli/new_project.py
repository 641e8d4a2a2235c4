"""The command `crowdrank new-project`: create a project of the judging service from files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.collect_page import read_guidelines
from crowdrank.cli.console import print_json, print_line
from crowdrank.cli.serve import require_service_packages
from crowdrank.errors import UsageError, shown


def new_project(
    database: Annotated[
        str, typer.Argument(help="SQLite file, created if it does not exist, or a PostgreSQL URL.", show_default=False)
    ],
    name: Annotated[str, typer.Argument(help="Name of the project.", show_default=False)],
    pairs: Annotated[Path, o.path_option("Pairs to judge; a column `honeypot` has the correct grade of gold pairs.")],
    grades: Annotated[str, typer.Option(help="Grades from least to most relevant, such as 0-3 or Bad,Good.")] = "0-3",
    texts: Annotated[
        list[Path] | None, typer.Option(help="Texts of queries and documents. Repeatable.", show_default=False)
    ] = None,
    guidelines: Annotated[Path | None, o.path_option("Guidelines in Markdown.")] = None,
    policy: Annotated[
        str, typer.Option(help="Policy by which pairs are handed out, such as random, ndcg@10, entropy or overlap-3.")
    ] = "random",
    labels: Annotated[
        str, typer.Option(help="Labels per pair from people: at least and at most.", metavar="MIN-MAX")
    ] = "2-3",
    settled: Annotated[
        float | None,
        typer.Option(help="Probability of the most probable grade from which a pair gets no more labels."),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Money for answers.")] = None,
    json: o.AsJson = False,
) -> None:
    """Create a project of the judging service from files.

    While the service runs on an SQLite file, create projects in the browser or by the API.

    Examples:
        crowdrank new-project judging.db jam --pairs pairs.csv --texts texts.jsonl --grades Bad,Fair,Good
        crowdrank new-project judging.db jam --pairs pairs.csv --guidelines rules.md
        crowdrank new-project judging.db jam --pairs pairs.csv --policy ndcg@10 --labels 1-5 --settled 0.95
    """
    require_service_packages()
    from crowdrank.judgments.scale import Scale
    from crowdrank.service.pair_files import create_project_with_pairs, read_pair_files
    from crowdrank.service.projects import ProjectSettings, check_settings
    from crowdrank.service.server import open_database

    rules = "" if guidelines is None else read_guidelines(guidelines)
    settings: ProjectSettings = {
        "guidelines": rules,
        "policy": policy,
        "quotas": {"human": _parse_labels(labels)},
        "settled": settled,
        "budget": budget,
    }
    Scale.parse(grades)  # before the database is created
    check_settings(settings)
    rows = read_pair_files(pairs, texts or [])
    with open_database(database) as opened:
        added = create_project_with_pairs(opened, name, grades, rows, settings)
    if json:
        print_json({"project": name, "pairs": added.pairs_added, "documents": added.documents_added})
        return
    print_line(
        f"The project {name} has {counted(added.pairs_added, 'pair')}. Start the service: crowdrank serve {database}"
    )


def _parse_labels(text: str) -> tuple[int, int]:
    """Return the numbers of labels per pair, at least and at most."""
    parts = text.split("-")
    numbers = [int(part) for part in parts if part.strip().isdecimal()]
    if not len(parts) == len(numbers) <= 2 or numbers != sorted(numbers):
        problem = f"must be two numbers such as 2-3, or one, not {shown(text)}"
        raise UsageError(problem, parameter="labels", kind="bad-labels")
    return numbers[0], numbers[-1]
