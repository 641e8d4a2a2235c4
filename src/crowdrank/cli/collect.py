"""`crowdrank collect`: what to label next, round by round, by files. One file for each of its verbs."""

from __future__ import annotations

import typer

from crowdrank.cli import collect_add, collect_disagreements, collect_next, collect_simulate, collect_status
from crowdrank.cli.messages import Command

collect = typer.Typer(
    name="collect",
    help="What to label next, by whom, at what price: the loop with any judging platform, by files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
collect.command("next", cls=Command)(collect_next.collect_next)
collect.command("add", cls=Command)(collect_add.collect_add)
collect.command("status", cls=Command)(collect_status.collect_status)
collect.command("disagreements", cls=Command)(collect_disagreements.collect_disagreements)
collect.command("simulate", cls=Command)(collect_simulate.collect_simulate)
