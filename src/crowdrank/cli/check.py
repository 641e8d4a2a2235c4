"""The command `crowdrank check`: check the fit of a model."""

from __future__ import annotations

from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_table


def check(
    judgments: o.JudgmentFiles,
    model: o.Model,
    computation: o.Computation,
    reading: o.Reading,
    json: o.AsJson = False,
) -> None:
    """Compare what a fitted model predicts with the judgments (posterior predictive check).

    Examples:
        crowdrank check labels.csv -m gda -s difficulty=true
    """
    from crowdrank.consensus.posterior_check import check as check_model

    estimator = model.build()
    computation.set_arrow_threads()
    table = o.read_judgment_files(judgments, reading)
    with computation.open() as engine:
        result = check_model(estimator.fit(table, engine=engine, progress=True), table)
    if json:
        print_json({**result.to_dict(), "columns": dict(table.report.columns)})
        return
    print_table(result.agreement, "Agreement of two judgments of a document")
    print_table(result.assessors, "Assessors whose use of a grade differs most from the expected one")
    for sentence in result.sentences:
        print_line(sentence)
