"""`crowdrank validate`."""

from __future__ import annotations

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import say, say_json, show_cells
from crowdrank.cli.partitioned import read_folder


@o.reads_judgments(without=("on_bad_rows",))
def validate(
    judgments: o.JudgmentsFileOrFolder,
    reading: o.Reading = o.TOLD,
    json: o.AsJson = False,
) -> None:
    """Say what is in a file or folder of judgments, and what is wrong with it (exit code 2 if rows cannot be used)."""
    from crowdrank.engine.local import LocalEngine
    from crowdrank.judgments.addresses import is_folder
    from crowdrank.judgments.read import read_judgments
    from crowdrank.judgments.summary import inspect

    options = {**reading, "on_bad_rows": "skip"}
    found = inspect(
        read_folder(judgments, None, LocalEngine(), options)
        if is_folder(judgments)
        else read_judgments(judgments, **options)
    )
    if json:
        say_json(found.to_dict())
    else:
        show_cells(
            ["what", "value"], [[name, value] for name, value in found.facts.items()], [True, True], str(judgments)
        )
        for problem in found.problems:
            say(f"Wrong: {problem}")
        for remark in found.remarks:
            say(f"Note: {remark}")
        say(
            "Nothing is wrong."
            if not found.problems
            else "Mend these rows, or leave them out with aggregate --on-bad-rows skip."
        )
    if found.problems:
        raise typer.Exit(2)
