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
    from crowdrank.collection.label_export import FinalGrades
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.request_ledger import OutstandingRequests
    from crowdrank.collection.status import Status


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
    from crowdrank.collection.label_export import check_grades_output, final_grades, write_grades
    from crowdrank.collection.merge_batch import read_existing
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.request_ledger import OutstandingRequests, ledger_path
    from crowdrank.collection.status import collection_status
    from crowdrank.judgments.write import check_distinct

    estimator = model.build()
    if labels is not None:
        check_grades_output(labels)
        check_distinct({"labels": labels}, o.input_files([judgments], reading, ledger_path(judgments), pairs))
    pool = None if pairs is None else Pool.read(pairs)
    so_far = read_existing(judgments, **asdict(reading))
    listed = OutstandingRequests.read(ledger_path(judgments))
    outstanding = listed.where(listed.is_outstanding(so_far))
    if so_far is None:
        _print_without_judgments(judgments, pool, outstanding, as_json=json)
        return
    print_read_report(so_far.report, [judgments])
    estimator.fit(so_far, progress=True)
    result = collection_status(pool or Pool.of(so_far), so_far, estimator, settled=parameters.settled, price=price)
    grades = None if labels is None else final_grades(so_far, estimator)
    if grades is not None and labels is not None:
        write_grades(grades.consensus, labels)
    if json:
        out = {
            "out": len(outstanding),
            "out_cost": outstanding.cost,
            "out_by_kind": dict(outstanding.by_kind()),
        }
        written = {} if grades is None else {"from_one_answer": grades.n_single, "other_than_it": grades.n_overruled}
        files = {"labels_output": labels, "columns": dict(so_far.report.columns)}
        print_json({**asdict(result), **out, **written, **files})
        return
    for sentence in _status_sentences(result):
        print_line(sentence)
    _print_outstanding(outstanding)
    if grades is not None and labels is not None:
        print_line(_grades_sentence(grades, labels))


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
        print_line(f"{c.outstanding_text(outstanding)}: {kinds}.")


def _status_sentences(status: Status) -> list[str]:
    from crowdrank.collection.belief import MODELS

    judged = f"{counted(status.documents, 'document')} in the pool: {status.judged:,} judged"
    if status.settled is not None:
        share = status.settled / max(status.documents, 1)
        judged += f", {status.settled:,} settled at {status.level:.0%} ({share:.0%})"
    labels = f"{counted(status.labels, 'label')} by {counted(status.assessors, 'assessor')}"
    price = f"{status.spent:g} spent ({status.spent / max(status.labels, 1):.3g} per label)"
    if status.forecast_labels is None:
        forecast = f"Settled documents and a forecast need a model of assessors: -m {', '.join(MODELS)}."
    elif not status.forecast_labels:
        forecast = "All documents are settled."
    else:
        number = counted(status.forecast_labels, "more label")
        forecast = f"About {number} (about {status.forecast:,.0f}) would settle the others; this is a rough estimate."
    return [f"{judged}.", f"{labels}, {price}.", forecast]


def _grades_sentence(grades: FinalGrades, path: Path) -> str:
    written = f"Grades of {counted(grades.consensus.n_documents, 'document')} written to {path}"
    if grades.are_answers:
        return f"{written}: the only answer of each, because no document was judged twice."
    overruled = ""
    if grades.n_overruled:
        overruled = f" ({grades.n_overruled:,} of these with another grade; -m majority writes the answers)"
    return f"{written}; {grades.n_single:,} rest on a single answer{overruled}."
