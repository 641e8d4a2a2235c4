"""The command `crowdrank collect cost`: show what labeling schemes cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._options import option
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.collection import SCHEMES

if TYPE_CHECKING:
    from crowdrank.collection.costs import SchemeCost

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
    from crowdrank.collection.costs import DEFAULT_SCHEMES, scheme_costs

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
