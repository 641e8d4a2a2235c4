"""Run `python -m experiments NAME`."""

from __future__ import annotations

import typer

from crowdrank.cli.app import run_app
from experiments.command import experiment

app = typer.Typer(pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
app.command()(experiment)

if __name__ == "__main__":
    run_app(lambda: app)
