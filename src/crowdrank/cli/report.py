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
    path = write_run_report(folder, output, texts=texts or None)
    if json:
        print_json({"report": path, "bytes": path.stat().st_size})
        return
    print_line(f"Report: {path}")


def write_run_report(
    source: Path | RunResult,
    html_path: Path | None = None,
    *,
    folder: Path | str = "",
    texts: list[Path] | None = None,
) -> Path:
    """Write the report of a run; print a note if it has no charts."""
    from crowdrank.reports.page import write_report
    from crowdrank.reports.svg_images import can_draw

    path = write_report(source, html_path, folder=folder, texts=texts)
    if not can_draw():
        print_status("The report has tables but no charts; for charts: pip install 'crowdrank[report]'")
    return path


def report_writer(folder: Path, texts: Texts | None = None) -> Callable[[RunResult, Path], object]:
    """Return a function that writes the report of a result, and the texts in it, into a draft of a folder."""

    def write(result: RunResult, draft: Path) -> None:
        from crowdrank.judgments.write import write_table
        from crowdrank.pipeline.result import TABLE_FILES
        from crowdrank.reports.page import add_texts

        result = add_texts(result, texts)
        if texts is not None:
            write_table(result.tables["texts"], draft / TABLE_FILES["texts"])
        write_run_report(result, draft / REPORT_NAME, folder=folder)

    return write
