"""`crowdrank collect simulate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import complain, say, say_json, show_cells
from crowdrank.errors import UsageError


def collect_simulate(
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", help="What to compare, as in -p if-good-3 -p ndcg@10; several may be given."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="For all rounds together; half of all labels unless told.", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option(help="In how many rounds it is spent.")] = 10,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Judgments to replay; a simulated crowd unless told.", metavar="<path>", show_default=False
        ),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", help="Expert grades to score against, with --from.", show_default=False)
    ] = None,
    queries: Annotated[int, typer.Option(help="Of a simulated crowd: how many queries.")] = 60,
    labels: Annotated[int, typer.Option(help="Of a simulated crowd: how many could judge each document.")] = 9,
    method: c.Method = "gda",
    measures: o.Measures = "nDCG@10,Tau",
    good: c.Good = None,
    seed: Annotated[int, typer.Option(help="Of the crowd and of the order of equals.")] = 0,
    format: o.Format = None,
    columns: o.Columns = None,
    grades: o.Grades = None,
    unjudgeable: o.Unjudgeable = None,
    gold_format: o.GoldFormat = None,
    gold_columns: o.GoldColumns = None,
    gold_grades: o.GoldGrades = None,
    json: o.AsJson = False,
) -> None:
    """Ask a crowd whose answers are known as a policy would: quality against cost, round by round."""
    from crowdrank.collection.replay import Crowd, replay
    from crowdrank.consensus import get_aggregator
    from crowdrank.judgments.read import read_gold, read_judgments
    from crowdrank.simulation.world import simulate

    policies = {name: c.policy_of(name, good=good, seed=seed) for name in policy or ["random", "if-good-3", "ndcg@10"]}
    if budget is not None and not budget > 0:
        raise UsageError(f"The budget is {budget:g}; give a number above 0.")
    known: Any
    if source is None:
        world = simulate(queries=queries, labels=labels, random_state=seed)
        full, known = read_judgments(world.judgments), world.gold
    else:
        if gold is None:
            raise UsageError("--from needs expert grades to score against; name them with --gold.")
        full = read_judgments(
            source,
            format=format,  # type: ignore[arg-type]
            columns=columns,
            grades=grades,
            unjudgeable=unjudgeable,
        )
        known = read_gold(gold, **o.gold_options(gold_format, gold_columns, gold_grades, None, "lowest")).frame
    money = len(full) / 2 if budget is None else budget
    asked = [one.strip() for one in measures.split(",") if one.strip()]
    rows, early = [], []
    for name, one in policies.items():
        complain(f"{name}: {rounds} rounds")
        make = partial(get_aggregator, method)
        curve = replay(one, Crowd.of(full), known, asked, budget=money, rounds=rounds, model=make)
        rows += [{"policy": name, "documents": full.n_items, **point} for point in curve.table()]
        if len(curve.points) < rounds:
            early.append(_early(name, len(curve.points), rounds, money - curve.points[-1].money))
    if json:
        say_json({"simulated": source is None, "judgments": len(full), "budget": money, "curve": rows, "notes": early})
        return
    _show(rows, asked)
    for note in early:
        say(note)
    what = "A simulated crowd, of which could be bought" if source is None else f"Replayed from {source}"
    say(f"{what}: {repr(full).strip('<>').removeprefix('Judgments: ')}.")


def _early(name: str, points: int, rounds: int, left: float) -> str:
    """Why a policy has fewer rows than there were rounds."""
    reason = "it asked for nothing more" if left >= 1 else "their share of the budget bought no label"
    unspent = f"; {left:,.0f} of the budget was left" if left >= 1 else ""
    return f"{name} has {points} of {rounds} rounds: in the others {reason}{unspent}."


def _show(rows: list[dict[str, Any]], measures: list[str]) -> None:
    names = ["policy", "labels", "a document", *measures]
    cells = [
        [
            row["policy"],
            f"{row['labels']:,}",
            f"{row['labels'] / row['documents']:.2f}",
            *(f"{row[name]:.4f}" for name in measures),
        ]
        for row in rows
    ]
    show_cells(names, cells, [True] + [False] * (len(names) - 1), "Quality against labels bought")
