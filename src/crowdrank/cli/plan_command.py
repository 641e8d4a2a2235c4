"""The command `crowdrank plan`: how many queries, labels and expert grades a comparison of two rankings needs."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from crowdrank._options import option
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line
from crowdrank.cli.estimate_command import SampleFile, SampleReading, read_labels_and_sample
from crowdrank.cli.evaluate_commands import parse_run_names, read_run_tables
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.constraints import Number
from crowdrank.errors import UsageError


@dataclass(frozen=True)
class PlanOptions:
    """Options for the plan."""

    half_width: float | None = option(None, "Largest half width of the interval of the difference.")
    difference: float | None = option(None, "Difference that is to be found.")
    power: float = option(0.8, "Probability to find it.")
    budget: float | None = option(None, "Largest cost; as the only wish, the narrowest interval for it is planned.")
    queries: int | None = option(None, "Largest number of queries.", show_default="those of the pilot")
    expert_price: float = option(1.0, "Price of an expert grade", valid=Number(0))
    label_price: float = option(0.0, "Price of a label of the crowd or an LLM judge; 0 if you have them.")
    labels_per_document: str | None = option(
        None,
        "Numbers of labels per document to compare, such as 1,3; the first is that of the pilot.",
        show_default="1 with labels, else 1,3,10",
    )
    measure: str = option("nDCG@10", "Measure: DCG@k, nDCG@k, P@k, RR, AP, ERR@k; by document DCG, nDCG and P.")
    level: float = option(0.95, "Level of the interval.")
    unit: Literal["auto", "query", "document"] = option(
        "auto", "What the pilot drew for the experts; auto: documents if the expert grades have probabilities."
    )
    random_state: int = option(0, "Random seed.")


def plan(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Two rankings of a pilot, as FILE or NAME=FILE.", show_default=False),
    ] = None,
    labels: Annotated[
        Path | None, o.path_option("Labels of a pilot, as in `estimate`.", callback=o.local_files)
    ] = None,
    expert: SampleFile = None,
    *,
    settings: Annotated[PlanOptions, FieldsOf(PlanOptions)],
    reading: SampleReading,
    size_limit: o.SizeLimit,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    json: o.AsJson = False,
) -> None:
    """Plan how many queries, labels and expert grades a comparison of two rankings needs, and what they cost.

    State at least one of --half-width, --difference and --budget. With two rankings, labels and expert grades, the
    variances are those of this pilot; otherwise they are typical ones.

    Examples:
        crowdrank plan --difference 0.03 --queries 500 --expert-price 2 --label-price 0.005
        crowdrank plan live.trec new.trec --labels consensus.parquet --expert pilot.qrels --half-width 0.02
        crowdrank plan live.trec new.trec --labels consensus.parquet --expert pilot.qrels --budget 300
    """
    from crowdrank.estimation.plan import plan as plan_grades

    chosen = {**asdict(settings), "labels_per_document": _parse_numbers(settings.labels_per_document)}
    known, sample, rankings = None, None, None
    if runs:
        rankings = {name: table.frame for name, table in read_run_tables(parse_run_names(runs)).items()}
    if labels is not None:
        known, sample = read_labels_and_sample(labels, expert, reading)
    result = plan_grades(rankings, known, sample if labels is not None else expert, **chosen)
    if json:
        print_json(result.to_dict())
    elif markdown:
        sys.stdout.write(result.markdown())
    else:
        rows = result.rows()
        names = list(rows[0])
        print_cells(names, [list(row.values()) for row in rows], [place < 2 for place in range(len(names))])
        for sentence in (result.reason(), *result.protocol()):
            print_line(sentence)


def _parse_numbers(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a list such as `1,3`."""
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        problem = f"must be whole numbers such as 1,3, not {text!r}"
        raise UsageError(problem, parameter="labels_per_document") from None
