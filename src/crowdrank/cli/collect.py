"""`crowdrank collect`: choose what to label next, round by round, with files."""

from __future__ import annotations

from crowdrank.cli import (
    collect_add,
    collect_cost,
    collect_disagreements,
    collect_next,
    collect_page,
    collect_simulate,
    collect_status,
)
from crowdrank.cli.from_settings import add_command, command_group

collect = command_group("collect", "Choose what to label next, add the answers, and follow the progress.")
add_command(collect, collect_next.collect_next, command_name="next")
add_command(collect, collect_page.collect_page, command_name="page")
add_command(collect, collect_add.collect_add, command_name="add")
add_command(collect, collect_status.collect_status, command_name="status")
add_command(collect, collect_disagreements.collect_disagreements, command_name="disagreements")
add_command(collect, collect_cost.collect_cost, command_name="cost")
add_command(collect, collect_simulate.collect_simulate, command_name="simulate")
