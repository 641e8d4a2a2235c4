"""`crowdrank report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import complain, say, say_json


def report(
    folder: Annotated[Path, typer.Argument(help="The folder that 'crowdrank run' wrote into.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file; report.html in the folder unless given.", rich_help_panel=o.OUTPUT
        ),
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Make the report of a run: one HTML file that opens offline, to look at and to pass on."""
    place = written(folder, output)
    if json:
        say_json({"report": str(place), "bytes": place.stat().st_size})
        return
    say(f"The report: {place}")


def written(folder: Path, output: Path | None = None, *, shown_as: Path | None = None) -> Path:
    """Write the report of a run, with a note if it has no charts."""
    from crowdrank.reports.embedded_charts import can_draw
    from crowdrank.reports.page import write_report

    place = write_report(folder, output, shown_as=shown_as)
    if not can_draw():
        complain("The report has tables but no charts; for charts: pip install 'crowdrank[report]'")
    return place
