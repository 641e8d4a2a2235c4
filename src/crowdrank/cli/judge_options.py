"""Options that the commands of `judge` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._base import require_one_of
from crowdrank._options import option
from crowdrank.cli import options as o
from crowdrank.cli.console import print_line, print_note, print_table
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, JudgeError, Message

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
        judges = read_judges(judges_path, split_names(self.only))
        task = read_task(requests, texts, judges, scale, ids_as_queries=self.ids_as_queries)
        for note in (*task.notes, scale_note(judges, scale), truncation_note(task)):
            if note is not None:
                print_note(note)
        return judges, task


@dataclass(frozen=True)
class SpendingOptions:
    """Options for the budget of calls, and which are repeated."""

    budget: float | None = option(None, "Maximum money for all calls of the ledger; needed if judges have prices.")
    retry: str = option(
        "",
        "Ask calls with these outcomes again: failed, unreadable, refused, separated by commas.",
        show_default="none",
    )

    def __post_init__(self) -> None:
        check_parameter("budget", self.budget, [Number(0, above=True), None])
        for status in self.retried:
            require_one_of("retry", status, ("failed", "unreadable", "refused"))

    @property
    def retried(self) -> list[str]:
        """Outcomes of calls that are asked again."""
        return split_names(self.retry)


Task = Annotated[TaskOptions, FieldsOf(TaskOptions, "Requests")]


def print_labels(labels: JudgeLabels, output: Path, failures: Path) -> None:
    """Print the number of calls by status and their cost, and where labels and failures were written."""
    if len(labels.counts):
        summary = labels.summary()
        costs = [f"{cost:.4g}" for cost in summary["cost"].to_pylist()]  # often far below 0.001
        print_table(summary.set_column(summary.num_columns - 1, "cost", [costs]), max_rows=50)
    print_line(f"{len(labels.labels):,} labels written to {output}; {len(labels.failures):,} failures to {failures}.")


def split_names(names: str | None) -> list[str]:
    """Return names that are separated by commas."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def raise_if_stopped(stopped: Mapping[str, str]) -> None:
    """Raise JudgeError if the service of a judge refused or failed its calls; print a note if the budget is spent."""
    from crowdrank.llm_judges.caller import BUDGET_SPENT

    for name, reason in stopped.items():
        if reason == BUDGET_SPENT:
            fix = Fix("raise it with {}", "budget")
            print_note(Message(f"the judge {name} was stopped: {reason}", "budget-spent", "note", fixes=(fix,)))
    failed = {name: reason for name, reason in stopped.items() if reason != BUDGET_SPENT}
    if failed:
        name, reason = next(iter(failed.items()))
        advice = "its answers so far are stored; correct the cause and run the command again"
        raise JudgeError(f"The judge {name} was stopped: {reason}", kind="judge-stopped", fix=advice)
