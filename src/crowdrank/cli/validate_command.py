"""The command `crowdrank validate`: check input files."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._options import option_name
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_error, print_json, print_line, render
from crowdrank.cli.options import read_folder
from crowdrank.errors import Fix, UsageError

if TYPE_CHECKING:
    from crowdrank.errors import Message
    from crowdrank.readers.validation import ValidationReport

SEVERITY_LABELS = {"error": "Error", "warning": "Warning", "note": "Note"}


def validate(
    reading: o.Reading,
    gold_reading: o.GoldReading,
    preference_reading: o.PreferenceReading,
    judgments: Annotated[list[Path] | None, o.path_argument("Judgments: files, patterns or folders.")] = None,
    more_judgments: Annotated[
        list[Path] | None, o.path_option("Judgments, as the argument. Repeatable.", "--judgments", "-j")
    ] = None,
    expert: Annotated[list[Path] | None, o.expert_option("Expert grades. Repeatable.", "Options")] = None,
    features: Annotated[
        list[Path] | None, o.path_option("Features of documents. Repeatable.", "--features", "-f")
    ] = None,
    run: Annotated[list[Path] | None, o.path_option("Run or table of scores. Repeatable.")] = None,
    preferences: Annotated[list[Path] | None, o.path_option("Preferences between two documents. Repeatable.")] = None,
    json: o.AsJson = False,
) -> None:
    """Check judgments, preferences, expert grades, features and runs, and whether they fit each other.

    The exit code is 2 if something cannot be used. With --on-bad-rows skip, rows that cannot be used are notes.

    Examples:
        crowdrank validate labels.csv
        crowdrank validate labels.csv --preferences preferences.csv
        crowdrank validate labels.csv --expert experts.qrels --features features.letor --run bm25.run
    """
    from crowdrank.engine.passes import LocalEngine
    from crowdrank.readers.files import is_parquet_folder
    from crowdrank.readers.validation import validate as validate_inputs

    files: list[Path] = o.local_files([*(judgments or []), *(more_judgments or [])])
    if not (files or expert or features or run or preferences):
        fixes = [Fix("give {}", name) for name in ("judgments", "preferences", "expert", "features", "run")]
        raise UsageError("there is nothing to validate", fix=fixes)
    source: Any = files or None
    if len(files) == 1 and is_parquet_folder(files[0]):
        source = read_folder(files[0], None, LocalEngine(), replace(reading, on_bad_rows="skip"))
    report = validate_inputs(
        source,
        gold=expert or None,
        features=features or None,
        runs=run or (),
        preferences=preferences or None,
        read_options=asdict(reading),
        gold_options=asdict(gold_reading),
        preference_options={**asdict(preference_reading), "exclude": reading.exclude, "max_bytes": reading.max_bytes},
    )
    if json:
        print_json(report.to_dict())
    else:
        sources = {"judgments": files, "preferences": preferences, "gold": expert, "features": features, "run": run}
        _print_report(report, sources)
    if not report.is_valid:
        raise typer.Exit(2)


def _print_report(report: ValidationReport, files_by_input: dict[str, list[Path] | None]) -> None:
    for name, inspection in report.inputs.items():
        if not inspection.facts:  # the input could not be read
            print_error(f"Error: {render(inspection.messages[0])}")
            continue
        rows = [[fact, value] for fact, value in inspection.facts.items()]
        print_cells([option_name(name), ""], rows, [True, True], ", ".join(map(str, files_by_input.get(name) or ())))
        for message in inspection.messages:
            _print_message(message)
    if report.fit or sum(bool(one.facts) for one in report.inputs.values()) > 1:
        print_line("How they fit each other")
        if not report.fit:
            print_line("No problem was found.")
        for message in report.fit:
            _print_message(message)
    if report.warnings:
        print_line(f"{counted(len(report.warnings), 'warning')}: check them before you use these files.")
    elif report.is_valid:
        print_line("Nothing is wrong.")


def _print_message(message: Message) -> None:
    print_line(f"{SEVERITY_LABELS[message.severity]}: {render(message)}")
