"""`crowdrank validate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.cli.partitioned import read_folder
from crowdrank.judgments.read_options import ReadOptions


def validate(
    judgments: o.JudgmentFilesOrFolder,
    reading: Annotated[ReadOptions, FieldsOf(ReadOptions, o.READING, without=("on_bad_rows",))],
    json: o.AsJson = False,
) -> None:
    """Check judgments; exit with 2 if rows cannot be used.

    Examples:
        crowdrank validate labels.csv
    """
    from crowdrank.engine.local import LocalEngine
    from crowdrank.judgments.addresses import is_folder
    from crowdrank.judgments.summary import inspect

    options = replace(reading, on_bad_rows="skip")
    found = inspect(
        read_folder(judgments[0], None, LocalEngine(), options)
        if len(judgments) == 1 and is_folder(judgments[0])
        else o.read_judgment_files(judgments, options)
    )
    if json:
        print_json(found.to_dict())
    else:
        print_cells(
            ["what", "value"], [[name, value] for name, value in found.facts.items()], [True, True], str(judgments[0])
        )
        for problem in found.problems:
            print_line(f"Wrong: {problem}")
        for remark in found.remarks:
            print_line(f"Note: {remark}")
        print_line(
            "Nothing is wrong."
            if not found.problems
            else "Fix these rows, or leave them out with aggregate --on-bad-rows skip."
        )
    if found.problems:
        raise typer.Exit(2)
