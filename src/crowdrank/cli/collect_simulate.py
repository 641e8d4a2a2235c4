"""The command `crowdrank collect simulate`: compare policies on simulated or recorded judgments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line, print_status
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.read_options import GoldReadOptions, ReadOptions

if TYPE_CHECKING:
    from crowdrank.judgments.table import Judgments

DEFAULT_POLICIES = ["random", "if-good-3", "ndcg@10"]
"""Policies to compare by default."""


def collect_simulate(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help=f"Policy to compare: {c.POLICY_HELP}. Repeatable.",
            metavar="POLICY",
            show_default=", ".join(DEFAULT_POLICIES),
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Budget of all rounds together.", show_default="half of all labels")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 10,
    source: Annotated[
        Path | None, o.path_option("Judgments to replay.", "--from", show_default="a simulated crowd")
    ] = None,
    gold: Annotated[
        Path | None, o.path_option("Expert grades to score against, with --from.", help_panel=o.GOLD)
    ] = None,
    queries: Annotated[int, typer.Option(help="Number of queries of the simulated crowd.")] = 60,
    labels: Annotated[int, typer.Option(help="Number of available labels per document of the simulated crowd.")] = 9,
    measures: Annotated[str, typer.Option(help="Measures to score with.")] = "nDCG@10,Tau",
    aggregate: Annotated[
        str,
        typer.Option(
            help="How to score labeling schemes: by the labels that each makes (scheme: majority vote, highest grade, "
            "mean of all labels), or by the consensus model (model).",
            metavar="[scheme|model]",
        ),
    ] = "scheme",
    good: Annotated[float | None, typer.Option(help="Lowest grade of a good label.", show_default="2")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    *,
    model: c.Model,
    reading: o.Reading,
    gold_reading: o.GoldReading,
    json: o.AsJson = False,
) -> None:
    """Compare labeling policies on a crowd whose answers are known: quality against cost.

    Examples:
        crowdrank collect simulate -p if-good-3 -p ndcg@10 --rounds 5
        crowdrank collect simulate --from labels.csv --gold experts.qrels --budget 500
    """
    from crowdrank.collection.replay import Crowd, replay

    model.build()  # raises an error before files are read
    parameters = {"good": good, "random_state": seed}
    policies = {name: c.build_policy(name, parameters) for name in policy or DEFAULT_POLICIES}
    require_one_of("aggregate", aggregate, ("scheme", "model"))
    if budget is not None and not budget > 0:
        raise UsageError(f"must be a number above 0, not {budget:g}", parameter="budget")
    table, grades = (
        _simulate_crowd(queries, labels, seed) if source is None else _read_files(source, gold, reading, gold_reading)
    )
    money = len(table) / 2 if budget is None else budget
    names = [name.strip() for name in measures.split(",") if name.strip()]
    rows, notes = [], []
    for name, one in policies.items():
        print_status(f"{name}: {counted(rounds, 'round')}")
        curve = replay(
            one,
            Crowd.of(table),
            grades,
            names,
            budget=money,
            rounds=rounds,
            model=model.build,
            scheme_labels=aggregate == "scheme",
        )
        rows += [{"policy": name, "documents": table.n_items, **point} for point in curve.table()]
        if len(curve.points) < rounds:
            notes.append(_early_end_note(name, len(curve.points), rounds, money - curve.points[-1].money))
    if json:
        about = {"simulated": source is None, "judgments": len(table), "budget": money}
        print_json({**about, "curve": rows, "notes": notes, "columns": dict(table.report.columns)})
        return
    _print_curve(rows, names)
    for note in notes:
        print_line(note)
    origin = "Simulated crowd" if source is None else f"Replayed from {source}"
    print_line(f"{origin}: {repr(table).strip('<>').removeprefix('Judgments: ')}.")


def _simulate_crowd(n_queries: int, labels_per_document: int, seed: int) -> tuple[Judgments, Any]:
    """Simulate judgments and expert grades."""
    from crowdrank.judgments.read import read_judgments
    from crowdrank.simulation.world import simulate

    world = simulate(queries=n_queries, labels=labels_per_document, random_state=seed)
    return read_judgments(world.judgments), world.gold


def _read_files(
    judgment_path: Path, gold_path: Path | None, reading: ReadOptions, gold_reading: GoldReadOptions
) -> tuple[Judgments, Any]:
    """Read judgments and expert grades from files."""
    if gold_path is None:
        problem = "needs expert grades to score against"
        raise UsageError(problem, parameter="source", fix=Fix("name them with {}", "gold"))
    return o.read_judgment_files([judgment_path], reading), o.read_gold_file(gold_path, gold_reading).frame


def _early_end_note(policy_name: str, n_finished_rounds: int, n_rounds: int, unspent_budget: float) -> str:
    """Return a note that explains why a policy stopped before the last round."""
    reason = "it requested nothing more" if unspent_budget >= 1 else "their share of the budget bought no label"
    unspent = f"; {unspent_budget:,.0f} of the budget was not spent" if unspent_budget >= 1 else ""
    return f"{policy_name} has {n_finished_rounds} of {n_rounds} rounds: in the others {reason}{unspent}."


def _print_curve(rows: list[dict[str, Any]], measures: list[str]) -> None:
    names = ["policy", "labels", "per document", *measures]
    cells = [
        [
            row["policy"],
            f"{row['labels']:,}",
            f"{row['labels'] / row['documents']:.2f}",
            *(f"{row[name]:.4f}" for name in measures),
        ]
        for row in rows
    ]
    print_cells(names, cells, [True] + [False] * (len(names) - 1), "Quality by number of labels bought")
