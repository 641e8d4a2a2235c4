"""The command `crowdrank report`: write the HTML report of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_status

if TYPE_CHECKING:
    from crowdrank.pipeline.result import RunResult

REPORT_NAME = "report.html"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder that `crowdrank run` wrote.", show_default=False)],
    output: Annotated[Path | None, o.output_option("HTML file.", show_default="report.html in the folder")] = None,
    json: o.AsJson = False,
) -> None:
    """Write the report of a run: one HTML file that opens offline.

    Examples:
        crowdrank report out
        crowdrank report out -o shared/report.html
    """
    path = write_run_report(folder, output)
    if json:
        print_json({"report": str(path), "bytes": path.stat().st_size})
        return
    print_line(f"Report: {path}")


def write_run_report(source: Path | RunResult, html_path: Path | None = None, *, folder: Path | str = "") -> Path:
    """Write the report of a run; print a note if it has no charts."""
    from crowdrank.reports.embedded_charts import can_draw
    from crowdrank.reports.page import write_report

    path = write_report(source, html_path, folder=folder)
    if not can_draw():
        print_status("The report has tables but no charts; for charts: pip install 'crowdrank[report]'")
    return path


def report_writer(folder: Path) -> Callable[[RunResult, Path], object]:
    """Return a function that writes the report of a result into a draft of a folder."""
    return lambda result, draft: write_run_report(result, draft / REPORT_NAME, folder=folder)
