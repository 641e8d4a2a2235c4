"""`crowdrank validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import refuse, say, say_json, show_cells
from crowdrank.cli.messages import render
from crowdrank.cli.partitioned import read_folder
from crowdrank.errors import UsageError

if TYPE_CHECKING:
    from crowdrank.errors import Message
    from crowdrank.judgments.validation import ValidationReport

SEVERITIES = {"error": "Error", "warning": "Warning", "note": "Note"}


@o.reads_judgments(without=("on_bad_rows",))
def validate(
    judgments: Annotated[
        list[Path] | None,
        typer.Argument(help="Judgments: files, patterns or folders of any format.", show_default=False),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Option("--judgments", "-j", help="Judgments, as the argument.", show_default=False)
    ] = None,
    gold: Annotated[list[Path] | None, typer.Option(help="Expert grades.", show_default=False)] = None,
    features: Annotated[
        list[Path] | None, typer.Option("--features", "-f", help="Features of documents.", show_default=False)
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(help="A run or a table of scores.", show_default=False)] = None,
    reading: o.Reading = o.TOLD,
    gold_format: o.GoldFormat = None,
    gold_columns: o.GoldColumns = None,
    gold_grades: o.GoldGrades = None,
    gold_unjudgeable: o.GoldUnjudgeable = None,
    json: o.AsJson = False,
) -> None:
    """Check judgments, expert grades, features and runs, and whether they fit each other.

    The exit code is 2 if something cannot be used.
    """
    from crowdrank.engine.local import LocalEngine
    from crowdrank.judgments.addresses import is_folder
    from crowdrank.judgments.limits import default_limit
    from crowdrank.judgments.sources import local_path
    from crowdrank.judgments.validation import validate

    files = [local_path(path) for path in (*(judgments or []), *(more or []))]
    if not (files or gold or features or run):
        raise UsageError("There is nothing to validate; give judgments, --gold, --features or --run.")
    source: Any = files or None
    if len(files) == 1 and is_folder(files[0]):
        source = read_folder(files[0], None, LocalEngine(), {**reading, "on_bad_rows": "skip"})
    with default_limit(reading["max_bytes"]):
        report = validate(
            source,
            gold=gold or None,
            features=features or None,
            runs=run or (),
            read_options=reading,
            gold_options=o.gold_options(gold_format, gold_columns, gold_grades, gold_unjudgeable, "lowest"),
        )
    if json:
        say_json(report.to_dict())
    else:
        _show(report, {"judgments": files, "gold": gold, "features": features, "run": run})
    if not report.is_valid:
        raise typer.Exit(2)


def _show(report: ValidationReport, files: dict[str, list[Path] | None]) -> None:
    for name, inspection in report.inputs.items():
        if not inspection.facts:  # the input could not be read
            refuse(f"Error: {render(inspection.messages[0])}")
            continue
        rows = [[fact, value] for fact, value in inspection.facts.items()]
        show_cells([name, ""], rows, [True, True], ", ".join(map(str, files.get(name) or ())))
        for message in inspection.messages:
            _say(message)
    if report.fit:
        say("How they fit each other")
        for message in report.fit:
            _say(message)
    if report.is_valid:
        say("Nothing is wrong.")


def _say(message: Message) -> None:
    say(f"{SEVERITIES[message.severity]}: {render(message)}")
