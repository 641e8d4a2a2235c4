"""The command `crowdrank report`: write the HTML report of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_status

if TYPE_CHECKING:
    from crowdrank.judgments.texts import Texts
    from crowdrank.pipeline.result import RunResult

REPORT_NAME = "report.html"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder that `crowdrank run` wrote.", show_default=False)],
    output: Annotated[Path | None, o.output_option("HTML file.", show_default="report.html in the folder")] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts of queries and documents to show: JSON Lines, CSV or Parquet with the columns document, query, "
            "text, title, url, query_text. Repeatable.",
            show_default=False,
        ),
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Write the report of a run: one HTML file that opens offline.

    Examples:
        crowdrank report out
        crowdrank report out --texts documents.jsonl
        crowdrank report out -o shared/report.html
    """
    from crowdrank.reports.page import write_report

    path = write_report(folder, output, texts=texts or None)
    _note_missing_charts()
    if json:
        print_json({"report": path, "bytes": path.stat().st_size})
        return
    print_line(f"Report: {path}")


def report_writer(texts: Texts | None = None) -> Callable[[RunResult, Path], object]:
    """Return a function that writes the report of a result, and the texts in it, into the folder of its run."""

    def write(result: RunResult, folder: Path) -> None:
        from crowdrank.reports.page import add_report

        add_report(result, folder, texts)
        _note_missing_charts()

    return write


def _note_missing_charts() -> None:
    """Print a note if the report has no charts."""
    from crowdrank.reports.svg_images import can_draw

    if not can_draw():
        print_status("The report has tables but no charts; for charts: pip install 'crowdrank[report]'")
