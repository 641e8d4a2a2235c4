"""`crowdrank collect`: choose what to label next, round by round, with files."""

from __future__ import annotations

import typer

from crowdrank.cli import (
    collect_add,
    collect_cost,
    collect_disagreements,
    collect_next,
    collect_simulate,
    collect_status,
)
from crowdrank.cli.from_settings import add_command

collect = typer.Typer(
    name="collect",
    help="Choose what to label next, add the answers, and follow the progress.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_command(collect, collect_next.collect_next, command_name="next")
add_command(collect, collect_add.collect_add, command_name="add")
add_command(collect, collect_status.collect_status, command_name="status")
add_command(collect, collect_disagreements.collect_disagreements, command_name="disagreements")
add_command(collect, collect_cost.collect_cost, command_name="cost")
add_command(collect, collect_simulate.collect_simulate, command_name="simulate")
