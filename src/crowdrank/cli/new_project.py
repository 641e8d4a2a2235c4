"""The command `crowdrank new-project`: create a project of the judging service from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.collect_page import read_guidelines
from crowdrank.cli.console import print_json, print_line, print_message
from crowdrank.cli.serve import require_service_packages
from crowdrank.errors import Fix, Message, UsageError, shown

if TYPE_CHECKING:
    import pyarrow as pa


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
        str, typer.Option(help="Policy by which pairs are handed out, such as random, ndcg@10, overlap-3 or compare.")
    ] = "random",
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels per pair: at least and at most.", metavar="MIN-MAX", show_default="2-3; 1 with compare"
        ),
    ] = None,
    labels_from: Annotated[
        Literal["human", "llm", "expert"], typer.Option(help="Kind of assessors who give these labels.")
    ] = "human",
    settled: Annotated[
        float | None,
        typer.Option(help="Probability of the most probable grade from which a pair gets no more labels."),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Money for answers.")] = None,
    runs: Annotated[
        str | None, typer.Option(help="Policy compare: rankings, separated by commas, as FILE or NAME=FILE.")
    ] = None,
    measure: Annotated[str, typer.Option(help="Policy compare: measure DCG@k, nDCG@k or P@k.")] = "nDCG@10",
    pairs_per_round: Annotated[int, typer.Option(help="Policy compare: number of pairs to draw at a time.")] = 100,
    min_information: Annotated[
        float | None,
        typer.Option(help="Ask only assessors with this share (0 to 1) of the average information per price."),
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Create a project of the judging service from files.

    While the service runs on an SQLite file, create projects in the browser or by the API.

    Examples:
        crowdrank new-project judging.db jam --pairs pairs.csv --texts texts.jsonl --grades Bad,Fair,Good
        crowdrank new-project judging.db jam --pairs pairs.csv --guidelines rules.md
        crowdrank new-project judging.db jam --pairs pairs.csv --policy ndcg@10 --labels 1-5 --settled 0.95
        crowdrank new-project judging.db jam --pairs p.csv --policy compare --runs a.trec,b.trec --labels-from expert
        crowdrank new-project judging.db jam --pairs pairs.csv --policy ndcg@10 --labels 1-5 --min-information 0.5
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
        "quotas": {labels_from: _parse_labels(labels or ("1" if runs else "2-3"))},
        "settled": settled,
        "budget": budget,
        "measure": measure,
        "pairs_per_round": pairs_per_round,
        "min_information": min_information,
    }
    Scale.parse(grades)  # before the database is created
    check_settings(settings)
    rankings = _read_rankings(runs, policy)
    rows = read_pair_files(pairs, texts or [])
    with open_database(database) as opened:
        created = create_project_with_pairs(opened, name, grades, rows, settings, rankings)
    for note in created.notes:
        print_message(note)
    added = created.pairs
    if created.n_without_text:
        print_message(_no_text_warning(created.n_without_text, added.pairs_added))
    if json:
        numbers = {
            "pairs": added.pairs_added,
            "documents": added.documents_added,
            "without_text": created.n_without_text,
        }
        print_json({"project": name, **numbers, **({"drawn": created.n_drawn} if rankings else {})})
        return
    drawn = f", of which {created.n_drawn:,} are drawn to be judged" if rankings else ""
    line = f"The project {name} has {counted(added.pairs_added, 'pair')}{drawn}."
    print_line(f"{line} Start the service: crowdrank serve {database}")


def _no_text_warning(n_without_text: int, n_pairs: int) -> Message:
    problem = f"{n_without_text:,} of {counted(n_pairs, 'pair')} have neither title, text nor link"
    fixes = (Fix("give the texts of these documents, with the same ids, with {}", "texts", "texts.jsonl"),)
    return Message(f"{problem}; judges see only the ids", "no-text", "warning", fixes=fixes)


def _read_rankings(runs: str | None, policy: str) -> dict[str, pa.Table]:
    """Return the rankings by name; raise UsageError if they are missing, too few, or for another policy."""
    from crowdrank.cli.compare import parse_run_names, read_rankings
    from crowdrank.service.projects import COMPARE
    from crowdrank.service.rankings import ranking_table

    is_compared = policy.strip().lower() == COMPARE
    if runs is not None and not is_compared:
        raise UsageError(f"needs the policy {COMPARE}", parameter="runs", fix=Fix("use {}", "policy", COMPARE))
    files = parse_run_names([run for run in (runs or "").split(",") if run])
    if is_compared and len(files) < 2:
        fix = Fix("give the rankings to compare with {}", "runs", "live.trec,new.trec")
        raise UsageError(f"{COMPARE} needs at least two rankings", parameter="policy", kind="few-rankings", fix=fix)
    return {name: ranking_table(run, name) for name, run in read_rankings(files).items()}


def _parse_labels(text: str) -> tuple[int, int]:
    """Return the numbers of labels per pair, at least and at most."""
    parts = text.split("-")
    numbers = [int(part) for part in parts if part.strip().isdecimal()]
    if not len(parts) == len(numbers) <= 2 or numbers != sorted(numbers):
        problem = f"must be two numbers such as 2-3, or one, not {shown(text)}"
        raise UsageError(problem, parameter="labels", kind="bad-labels")
    return numbers[0], numbers[-1]
