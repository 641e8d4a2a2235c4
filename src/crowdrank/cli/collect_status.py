"""The command `crowdrank collect status`: show the progress of a collection."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_read_report
from crowdrank.cli.from_settings import FieldsOf

if TYPE_CHECKING:
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.request_ledger import OutstandingRequests


def collect_status(
    judgments: c.JudgmentFile,
    pairs: Annotated[
        Path | None, o.path_option("Pool of query-document pairs.", show_default="the judged documents")
    ] = None,
    labels: Annotated[
        Path | None,
        o.path_option(
            "File for the estimated grades: .qrels, .json (judgment list for OpenSearch), or a table. If no document "
            "was judged twice, they are the answers themselves.",
            help_panel=o.OUTPUT,
        ),
    ] = None,
    price: Annotated[float, typer.Option(help="Price of a label, if the judgments have no costs.")] = 1.0,
    *,
    model: c.Model,
    parameters: Annotated[c.PolicyOptions, FieldsOf(c.PolicyOptions, only=("settled",))],
    reading: o.Reading,
    json: o.AsJson = False,
) -> None:
    """Show how many documents are settled, what was spent, and what the rest may cost.

    Examples:
        crowdrank collect status labels.csv --pairs pool.csv
        crowdrank collect status labels.csv --labels grades.qrels
    """
    from crowdrank.collection.grades import grades_of
    from crowdrank.collection.merge_batch import read_round
    from crowdrank.collection.platforms import check_labels, write_labels
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.request_ledger import OutstandingRequests, ledger_of
    from crowdrank.collection.status import status
    from crowdrank.judgments.write import check_distinct

    estimator = model.build()
    if labels is not None:
        check_labels(labels)
        check_distinct({"--labels": labels}, o.input_files([judgments], reading, ledger_of(judgments), pairs))
    pool = None if pairs is None else Pool.read(pairs)
    so_far = read_round(judgments, **asdict(reading))
    listed = OutstandingRequests.read(ledger_of(judgments))
    outstanding = listed.where(listed.out(so_far))
    if so_far is None:
        _print_without_judgments(judgments, pool, outstanding, as_json=json)
        return
    print_read_report(so_far.report, [judgments])
    estimator.fit(so_far, progress=True)
    result = status(pool or Pool.of(so_far), so_far, estimator, level=parameters.settled, price=price)
    grades = None if labels is None else grades_of(so_far, estimator)
    if grades is not None and labels is not None:
        write_labels(grades.consensus, labels)
    if json:
        out = {
            "out": len(outstanding),
            "out_cost": float(outstanding.price.sum()),
            "out_by_kind": dict(outstanding.by_kind()),
        }
        written = {} if grades is None else {"from_one_answer": grades.single, "other_than_it": grades.doubted}
        files = {"labels_output": None if labels is None else str(labels), "columns": dict(so_far.report.columns)}
        print_json({**asdict(result), **out, **written, **files})
        return
    for sentence in result.told():
        print_line(sentence)
    _print_outstanding(outstanding)
    if grades is not None and labels is not None:
        print_line(grades.told(labels))


def _print_without_judgments(
    judgment_path: Path, pool: Pool | None, outstanding: OutstandingRequests, *, as_json: bool
) -> None:
    n_documents = 0 if pool is None else len(pool)
    if as_json:
        print_json({"documents": n_documents, "judged": 0, "labels": 0, "out": len(outstanding)})
        return
    unjudged = f" {counted(n_documents, 'document')} of the pool without a judgment." if pool is not None else ""
    print_line(f"There are no judgments in {judgment_path} yet.{unjudged}")
    _print_outstanding(outstanding)


def _print_outstanding(outstanding: OutstandingRequests) -> None:
    if len(outstanding):
        kinds = ", ".join(f"{number:,} by {kind}" for kind, number in outstanding.by_kind().items())
        print_line(f"Outstanding requests: {outstanding.told()}, {kinds}.")
