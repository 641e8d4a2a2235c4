"""The command `crowdrank evaluate`: score a ranking on expert grades."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_columns, print_json, print_line, print_message
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.judgments.read_options import RunReadOptions


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            help="Ranking: a consensus, a table of scores, or a TREC run (.trec, .run).", show_default=False
        ),
    ],
    gold: o.GoldFile,
    scoring: o.Scoring,
    reading: Annotated[RunReadOptions, FieldsOf(RunReadOptions, "Reading the ranking")],
    gold_reading: o.GoldReading,
    size_limit: o.SizeLimit,
    per_query: o.PerQuery = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score a ranking against expert grades.

    Examples:
        crowdrank evaluate run.trec --gold experts.qrels --measures nDCG@10,AP
        crowdrank evaluate consensus.csv --gold sample.qrels --unjudged skip
    """
    from crowdrank.evaluation.evaluate import evaluate as score
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.judgments.inputs import input_scale, open_input
    from crowdrank.judgments.runs import read_run_table
    from crowdrank.judgments.write import check_outputs

    measures = parse_measures(scoring.measures)
    check_outputs({"per_query": per_query}, [gold, run])
    inputs = open_input(run, reading.format, allow_books=False)
    grades = o.read_gold_file(gold, gold_reading, input_scale(inputs))
    ranking = read_run_table(inputs, reading.columns, grades.scale)
    print_columns(ranking.columns, [run])
    for message in ranking.notes:
        print_message(message)
    scores = score(ranking.frame, grades, measures, **scoring.conventions)
    o.write_tables([(per_query, scores.per_query)], csv_safe=csv_safe)
    if json:
        roles = {"gold": dict(grades.report.columns), "run": dict(ranking.columns)}
        result = {"run": run, "means": scores.means, "judged": scores.judged, "notes": scores.notes()}
        used_features = {"gold": grades.used_features, "run": bool(ranking.notes)}
        print_json({**result, "columns": roles, "used_features": used_features})
        return
    means = {**scores.means, **scores.judged}
    print_cells(["measure", "mean"], [[name, f"{mean:.4f}"] for name, mean in means.items()])
    for note in scores.notes():
        print_line(note)
