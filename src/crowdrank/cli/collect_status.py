"""`crowdrank collect status`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import note_left_out, say, say_json

if TYPE_CHECKING:
    from crowdrank.collection.request_ledger import OutstandingRequests


@o.reads_judgments()
def collect_status(
    judgments: c.JudgmentsFile,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="The pool; the judged documents unless told.", show_default=False)
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="Write the grades as they are known: .qrels, .json (a judgment list for OpenSearch), or a table. "
            "Where no document was judged twice, they are the answers themselves.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    price: Annotated[float, typer.Option(help="Of a label, where the judgments have no cost of their own.")] = 1.0,
    method: c.Method = "gda",
    settled: c.Settled = 0.95,
    reading: o.Reading = o.TOLD,
    unjudgeable_as: o.UnjudgeableAs = "lowest",
    json: o.AsJson = False,
) -> None:
    """Say how many documents are settled, what was spent, and what the rest may cost."""
    from crowdrank.collection.grades import grades_of
    from crowdrank.collection.merge_batch import read_round
    from crowdrank.collection.platforms import check_labels, write_labels
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.request_ledger import OutstandingRequests, ledger_of
    from crowdrank.collection.status import status
    from crowdrank.judgments.write import check_distinct

    if labels is not None:
        check_labels(labels)
        check_distinct(
            {"--labels": labels}, [judgments, ledger_of(judgments), pairs, reading["exclude"], reading["scales"]]
        )
    pool = None if pairs is None else Pool.read(pairs)
    so_far = read_round(judgments, **reading)
    note_left_out(so_far)
    listed = OutstandingRequests.read(ledger_of(judgments))
    waiting = listed.where(listed.out(so_far))
    if so_far is None:
        first = "" if pool is None else f" {len(pool):,} documents wait for their first."
        if json:
            say_json({"documents": 0 if pool is None else len(pool), "judged": 0, "labels": 0, "out": len(waiting)})
        else:
            say(f"There are no judgments yet in {judgments}.{first}")
            _say_out(waiting)
        return
    model = c.fitted(method, so_far, unjudgeable_as)
    found = status(pool or Pool.of(so_far), so_far, model, level=settled, price=price)
    grades = None
    if labels is not None:
        grades = grades_of(so_far, model)
        write_labels(grades.consensus, labels)
    if json:
        out = {"out": len(waiting), "out_cost": float(waiting.price.sum()), "out_by_kind": dict(waiting.by_kind())}
        written = {} if grades is None else {"from_one_answer": grades.single, "other_than_it": grades.doubted}
        say_json({**asdict(found), **out, "labels_output": None if labels is None else str(labels), **written})
        return
    for sentence in found.told():
        say(sentence)
    _say_out(waiting)
    if grades is not None and labels is not None:
        say(grades.told(labels))


def _say_out(waiting: OutstandingRequests) -> None:
    if len(waiting):
        told = ", ".join(f"{number:,} by {kind}" for kind, number in waiting.by_kind().items())
        say(f"Asked for and not come back: {waiting.told()}, {told}.")
