"""The commands `crowdrank backup` and `crowdrank restore`: copy the database of a judging service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import print_line

Output = Annotated[Path, o.output_option("File for the copy; a file that exists is replaced.")]


def backup(
    database: Annotated[Path, typer.Argument(help="SQLite file of a judging service.", show_default=False)],
    output: Output,
) -> None:
    """Copy the database of a judging service, also while the service runs.

    Examples:
        crowdrank backup judging.db -o monday.db
    """
    from crowdrank.service.backup import back_up

    back_up(database, output)
    print_line(f"{database} copied to {output} ({output.stat().st_size:,} bytes).")


def restore(
    backup: Annotated[Path, typer.Argument(help="Copy that `crowdrank backup` wrote.", show_default=False)],
    output: Annotated[Path, o.output_option("SQLite file to restore; no service may use it.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a database that exists. Its answers are lost.")
    ] = False,
) -> None:
    """Restore the database of a judging service from a copy.

    Examples:
        crowdrank restore monday.db -o judging.db --replace
    """
    from crowdrank.service.backup import restore as restore_database

    restore_database(backup, output, replace=replace)
    print_line(f"{output} restored from {backup}.")
