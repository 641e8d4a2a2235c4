"""`crowdrank evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import say, say_json, show_cells


@o.limits_size
def evaluate(
    run: Annotated[
        Path,
        typer.Argument(help="A consensus, a table of scores, or a TREC run file (.trec, .run).", show_default=False),
    ],
    gold: o.GoldFile,
    measures: o.Measures = "nDCG@10,nDCG,AP,Tau",
    gains: o.Gains = "exponential",
    ties: o.Ties = "expected",
    unjudged: o.Unjudged = "skip",
    no_relevant: o.NoRelevant = "skip",
    format: Annotated[str | None, typer.Option(help="The format of the run; `run` for TREC run files.")] = None,
    columns: Annotated[str | None, typer.Option(help="Which column of the run is what.")] = None,
    gold_format: o.GoldFormat = None,
    gold_columns: o.GoldColumns = None,
    gold_grades: o.GoldGrades = None,
    gold_unjudgeable: o.GoldUnjudgeable = None,
    unjudgeable_as: o.GoldUnjudgeableAs = "lowest",
    per_query: o.PerQuery = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score a ranking against expert grades."""
    from crowdrank.evaluation.evaluate import evaluate as score
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.judgments.read import read_gold, read_run
    from crowdrank.judgments.write import check_outputs, write_table

    asked = parse_measures(measures)
    check_outputs({"--per-query": per_query}, [gold, run])
    experts = read_gold(
        gold, **o.gold_options(gold_format, gold_columns, gold_grades, gold_unjudgeable, unjudgeable_as)
    )
    scored = score(
        read_run(run, format=format, columns=columns, scale=experts.scale),  # type: ignore[arg-type]
        experts.frame,
        asked,
        gains=gains,
        ties=ties,
        unjudged=unjudged,
        no_relevant=no_relevant,
    )
    if per_query is not None:
        write_table(scored.per_query, per_query, csv_safe=csv_safe)
    if json:
        say_json({"run": str(run), "means": scored.means, "notes": scored.notes()})
        return
    show_cells(["measure", "mean"], [[name, f"{mean:.4f}"] for name, mean in scored.means.items()], [True, False])
    for note in scored.notes():
        say(note)
