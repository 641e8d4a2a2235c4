"""`crowdrank judge`: let LLM judges answer, through batch files or by calling an endpoint."""

from __future__ import annotations

from crowdrank.cli import judge_prepare, judge_read, judge_run, judge_service
from crowdrank.cli.from_settings import add_command, command_group

judge = command_group("judge", "Let LLM judges answer: write batch files and read their results, or call an endpoint.")
add_command(judge, judge_prepare.judge_prepare, command_name="prepare")
add_command(judge, judge_read.judge_read, command_name="read")
add_command(judge, judge_run.judge_run, command_name="run")
add_command(judge, judge_service.judge_service, command_name="service")
