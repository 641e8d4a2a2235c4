"""The commands `collect simulate` and `collect cost`: compare policies before labels are bought."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import note_text, print_cells, print_json, print_line, print_status
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.collection import SCHEMES
from crowdrank.errors import Fix, UsageError
from crowdrank.readers.read_options import GoldReadOptions, ReadOptions

if TYPE_CHECKING:
    from crowdrank.collection.requests import Unspent
    from crowdrank.collection.schemes import SchemeCost
    from crowdrank.judgments.table import Judgments
    from crowdrank.readers.features import Features

DEFAULT_POLICIES = ["random", "if-good-3", "ndcg@10"]
"""Policies to compare by default."""


@dataclass(frozen=True)
class ReplayOptions:
    """Options for the policies to compare, the crowd that answers, and the scores."""

    policy: list[str] = option(
        [],
        f"Policy to compare: {c.POLICY_HELP}. Repeatable.",
        "-p",
        metavar="POLICY",
        show_default=", ".join(DEFAULT_POLICIES),
    )
    budget: float | None = option(None, "Budget of all rounds together.", show_default="half of all labels")
    rounds: int = option(10, "Number of rounds.")
    source: Path | None = option(None, "Judgments to replay.", "--from", show_default="a simulated crowd")
    queries: int = option(60, "Number of queries of the simulated crowd.")
    labels: int = option(9, "Number of available labels per document of the simulated crowd.")
    measures: str = option("nDCG@10,Tau", "Measures to score with.")
    aggregate: Literal["scheme", "model"] = option(
        "scheme",
        "How to score labeling schemes: by the labels that each makes (scheme: majority vote, highest grade, mean of "
        "all labels), or by the consensus model (model).",
    )
    good: float | None = c.good_option()
    random_state: int = option(0, "Random seed.")


def collect_simulate(
    options: Annotated[ReplayOptions, FieldsOf(ReplayOptions)],
    expert: Annotated[Path | None, o.expert_option("Expert grades to score against, with --from.")] = None,
    *,
    model: c.Model,
    prior: o.Prior,
    reading: o.Reading,
    gold_reading: o.GoldReading,
    json: o.AsJson = False,
) -> None:
    """Compare labeling policies on a crowd whose answers are known: quality against cost.

    Examples:
        crowdrank collect simulate -p if-good-3 -p ndcg@10 --rounds 5
        crowdrank collect simulate --from labels.csv --expert experts.qrels --budget 500
        crowdrank collect simulate --from labels.csv --expert experts.qrels --features features.csv
    """
    from crowdrank.collection.replay import Crowd, replay

    estimator = model.build()  # raises an error before files are read
    if prior:
        estimator._check_features()
    parameters = {"good": options.good, "random_state": options.random_state}
    policies = {name: c.build_policy(name, parameters) for name in options.policy or DEFAULT_POLICIES}
    if options.budget is not None and not options.budget > 0:
        raise UsageError(f"must be a number above 0, not {options.budget:g}", parameter="budget")
    table, grades = (
        _simulate_crowd(options)
        if options.source is None
        else _read_files(options.source, expert, reading, gold_reading)
    )
    features = _read_features(options, prior, reading)
    money, rounds = len(table) / 2 if options.budget is None else options.budget, options.rounds
    names = [name.strip() for name in options.measures.split(",") if name.strip()]
    rows, notes, unspent = [], [], dict[str, list[dict[str, Any]]]()
    for name, one in policies.items():
        print_status(f"{name}: {counted(rounds, 'round')}")
        by_scheme = options.aggregate == "scheme"
        crowd = Crowd.of(table)
        curve = replay(
            one,
            crowd,
            grades,
            names,
            budget=money,
            rounds=rounds,
            model=model.build,
            features=features,
            scheme_labels=by_scheme,
        )
        rows += [{"policy": name, "documents": table.n_items, **point} for point in curve.table()]
        if len(curve.points) < rounds:
            left = [replace(part, money=money - curve.points[-1].money) for part in curve.unspent]
            unspent[name] = [asdict(part) for part in left]
            notes.append(_early_end_note(name, len(curve.points), rounds, left[0] if left else None))
    if json:
        about = {"simulated": options.source is None, "judgments": len(table), "budget": money}
        print_json({**about, "curve": rows, "notes": notes, "unspent": unspent, "columns": dict(table.report.columns)})
        return
    _print_curve(rows, names)
    for note in notes:
        print_line(note)
    origin = "Simulated crowd" if options.source is None else f"Replayed from {options.source}"
    print_line(f"{origin}: {repr(table).strip('<>').removeprefix('Judgments: ')}.")


def _simulate_crowd(options: ReplayOptions) -> tuple[Judgments, Any]:
    """Simulate judgments and expert grades."""
    from crowdrank.readers.read import read_judgments
    from crowdrank.simulation.world import simulate

    world = simulate(queries=options.queries, labels=options.labels, random_state=options.random_state)
    return read_judgments(world.judgments), world.gold


def _read_files(
    judgment_path: Path, gold_path: Path | None, reading: ReadOptions, gold_reading: GoldReadOptions
) -> tuple[Judgments, Any]:
    """Read judgments and expert grades from files."""
    if gold_path is None:
        problem = "needs expert grades to score against"
        raise UsageError(problem, parameter="source", fix=Fix("name them with {}", "expert"))
    table = o.read_judgment_files([judgment_path], reading)
    return table, o.read_gold_file(gold_path, gold_reading, table.main_scale).frame


def _read_features(options: ReplayOptions, prior: o.PriorOptions, reading: ReadOptions) -> Features | None:
    """Read the features of the documents whose judgments are replayed, if there are any."""
    if not prior:
        return None
    if options.source is None:
        parameter = "features" if prior.features else "signal"
        fix = Fix("name the judgments to replay with {}", "source")
        raise UsageError("cannot be used for a simulated crowd", parameter=parameter, fix=fix)
    return prior.read([options.source], reading)


def _early_end_note(policy_name: str, n_finished_rounds: int, n_rounds: int, unspent: Unspent | None) -> str:
    """Return a note that explains why a policy stopped before the last round."""
    reason = "their share of the budget bought no label." if unspent is None else note_text(unspent.message())
    return f"{policy_name} has {n_finished_rounds} of {n_rounds} rounds. In the others, {reason}"


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
    print_cells(names, cells, title="Quality by number of labels bought")


COLUMNS = ("scheme", "labels", "labeling", "formula", "training", "rest:good", "money", "basis")


@dataclass(frozen=True)
class CostOptions:
    """Options for labeling schemes, and for rates and prices that replace those of the judgments."""

    policy: list[str] = option(
        [],
        f"Labeling scheme: {', '.join(SCHEMES)}; k is a number, such as if-good-3. Repeatable.",
        "-p",
        metavar="SCHEME",
        show_default="the schemes of the paper",
    )
    documents: int | None = option(None, "Number of documents to label.", show_default="the judged documents")
    good_share: float | None = option(None, "Share of good labels among first labels.", show_default="as in JUDGMENTS")
    repeat_agreement: float | None = option(
        None,
        "Share of good labels among further labels of documents whose first label is good.",
        show_default="as in JUDGMENTS",
    )
    good: float = option(2.0, "Lowest grade of a good label.")
    price: float | None = option(None, "Price of a label.", show_default="the costs in JUDGMENTS, or 1")


def collect_cost(
    rates: Annotated[CostOptions, FieldsOf(CostOptions)],
    judgments: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Judgments, such as those of a pilot. Without them, give --documents and --good-share.",
            metavar="[JUDGMENTS]...",
            show_default=False,
        ),
    ] = None,
    *,
    reading: o.Reading,
    json: o.AsJson = False,
) -> None:
    """Show what each labeling scheme costs: labels, training instances, ratio of other to good labels, money.

    Schemes whose labels are all in JUDGMENTS are counted; others are estimated from the rates of good labels.

    Examples:
        crowdrank collect cost pilot.csv
        crowdrank collect cost pilot.csv --documents 100000 --price 0.05
        crowdrank collect cost --documents 39268 --good-share 0.212 --repeat-agreement 0.53
    """
    from crowdrank.collection.schemes import DEFAULT_SCHEMES, scheme_costs

    table = o.read_judgment_files(judgments, reading) if judgments else None
    arguments = asdict(rates)
    costs = scheme_costs(table, arguments.pop("policy") or DEFAULT_SCHEMES, **arguments)
    if json:
        rows = [{"labels": cost.labels, **asdict(cost)} for cost in costs]
        print_json({"costs": rows, "columns": dict(table.report.columns) if table else {}})
        return
    n_documents = costs[0].documents
    print_cells(COLUMNS, [_cells(cost) for cost in costs], [True, *[False] * 6, True], f"{n_documents:,} documents")
    print_line(
        "labeling: labels per document; formula: the same by the formula (for good-till-bad an upper bound); training: "
        "weight of training instances per document; rest:good: ratio of other to good labels among them."
    )


def _cells(cost: SchemeCost) -> list[str]:
    ratios = (cost.labeling_overhead, cost.formula, cost.training_overhead, cost.rest_to_good)
    labels, money = (f"{number:,.{digits}f}" for number, digits in ((cost.labels, 0), (cost.money, 2)))
    cells = [labels, *(f"{number:.2f}" for number in ratios), money]
    return [cost.scheme, *("?" if "nan" in cell else cell for cell in cells), "counted" if cost.counted else "rates"]
