"""Options that the commands of `judge` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._options import option
from crowdrank.cli import options as o
from crowdrank.cli.console import print_line, print_note, print_table
from crowdrank.cli.from_settings import FieldsOf

if TYPE_CHECKING:
    from crowdrank.llm_judges.judges import Judge
    from crowdrank.llm_judges.judging_task import JudgingTask
    from crowdrank.llm_judges.labels import JudgeLabels

DEFAULT_GRADES = "0-3"
"""Default scale of the answers."""
GRADES_HELP = "Scale of the answers: a range such as 0-4, or names from least to most relevant such as Bad,Fair,Good."
TEXTS_HELP = (
    "Texts of queries and documents (JSON Lines, CSV, ...) with the columns document, text, title, query, query_text, "
    "need. Repeatable."
)
RequestFile = Annotated[
    Path,
    typer.Argument(
        help="Pairs of query and document, such as `collect next` writes. A request whose assessor is a judge goes to "
        "it, one that names nobody goes to all judges.",
        metavar="REQUESTS",
        show_default=False,
    ),
]
TextFiles = Annotated[list[Path], o.path_option(TEXTS_HELP)]
JudgesFile = Annotated[Path, o.path_option("File that describes the judges (TOML).")]


@dataclass(frozen=True)
class TaskOptions:
    """Options for the calls of judges."""

    only: str | None = option(None, "Names of the judges to ask, separated by commas.", show_default="all")
    grades: str = option(DEFAULT_GRADES, GRADES_HELP)
    ids_as_queries: bool = option(False, "Use the id of a query without a text as its text.", "--ids-as-queries")

    def read(self, requests: Path, texts: Sequence[Path], judges_path: Path) -> tuple[list[Judge], JudgingTask]:
        """Read judges, requests and texts, and print notes about them."""
        from crowdrank.judgments.scale import Scale
        from crowdrank.llm_judges.judges import read_judges
        from crowdrank.llm_judges.judging_task import read_task, scale_note, truncation_note

        scale = Scale.parse(self.grades)
        names = [name.strip() for name in (self.only or "").split(",") if name.strip()]
        judges = read_judges(judges_path, names)
        task = read_task(requests, texts, judges, scale, ids_as_queries=self.ids_as_queries)
        for note in (*task.notes, scale_note(judges, scale), truncation_note(task)):
            if note is not None:
                print_note(note)
        return judges, task


Task = Annotated[TaskOptions, FieldsOf(TaskOptions, "Requests")]


def print_labels(labels: JudgeLabels, output: Path, failures: Path) -> None:
    """Print the number of calls by status and their cost, and where labels and failures were written."""
    if len(labels.counts):
        summary = labels.summary()
        costs = [f"{cost:.4g}" for cost in summary["cost"].to_pylist()]  # often far below 0.001
        print_table(summary.set_column(summary.num_columns - 1, "cost", [costs]), max_rows=50)
    print_line(f"{len(labels.labels):,} labels written to {output}; {len(labels.failures):,} failures to {failures}.")
