"""`crowdrank check`."""

from __future__ import annotations

from crowdrank.cli import options as o
from crowdrank.cli.console import note_left_out, say, say_json, show_table
from crowdrank.consensus import get_aggregator


@o.reads_judgments()
def check(
    judgments: o.JudgmentsFile,
    method: o.Method = "gda",
    reading: o.Reading = o.TOLD,
    json: o.AsJson = False,
) -> None:
    """Hold a model against the judgments: what it expects, what is there, and what it cannot explain."""
    from crowdrank.consensus.posterior_check import check as compare_with_model
    from crowdrank.judgments.read import read_judgments

    model = get_aggregator(method)
    table = read_judgments(judgments, **reading)
    note_left_out(table)
    found = compare_with_model(model.fit(table, progress=True), table)
    if json:
        say_json(found.to_dict())
        return
    show_table(found.agreement, "agreement of two judgments on one document")
    show_table(found.assessors, "assessors whose use of a grade surprises most")
    for sentence in found.sentences:
        say(sentence)
