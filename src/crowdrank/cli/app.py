"""Command-line application; each command has its own module."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import crowdrank
from crowdrank._progress import set_quiet
from crowdrank._text import visible
from crowdrank.cli import (
    aggregate,
    assessors,
    backup,
    check,
    collect,
    compare,
    datasets,
    demo,
    distill,
    estimate,
    evaluate,
    export,
    judge,
    new_project,
    rank,
    remap,
    report,
    run,
    serve,
    simulate,
    trace,
    train,
    validate,
)
from crowdrank.cli.console import escape_unencodable, print_error, print_status
from crowdrank.cli.from_settings import add_command, command_group
from crowdrank.cli.help_links import help_for
from crowdrank.cli.messages import render
from crowdrank.errors import CrowdrankError, CrowdrankWarning, find_interrupt

INTERRUPTED_EXIT_CODE, TERMINATED_EXIT_CODE = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes after Ctrl-C and after SIGTERM, as in shells."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that it is handled like Ctrl-C: checkpoints are written, temporary files removed."""


@contextmanager
def _escape_usage_errors() -> Iterator[None]:
    """Escape control characters in usage errors, which quote file names."""
    try:
        yield
    except Exception as problem:
        if hasattr(problem, "format_message") and hasattr(problem, "message"):  # typer shows these itself
            problem.message = visible(problem.message)
        raise


class Commands(TyperGroup):
    """Group of all commands; it escapes usage errors and sets the exit code after an interrupt."""

    def make_context(self, *words: Any, **more: Any) -> Any:
        """Parse the command line."""
        with _escape_usage_errors():
            return super().make_context(*words, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; after an interrupt, print one line on standard error and exit with a special code."""
        try:
            with _escape_usage_errors():
                return super().invoke(ctx)
        except (KeyboardInterrupt, SystemError) as problem:
            if (interrupt := find_interrupt(problem)) is None:
                raise
            raise typer.Exit(_print_interrupt(interrupt)) from None


APP_HELP = "Turn noisy relevance judgments of crowds, experts and LLM judges into labels, rankers and comparisons."
app = command_group("crowdrank", APP_HELP, cls=Commands)


COMMANDS_BY_PANEL = {
    "Start here": (run.run, report.report, demo.demo),
    "Judgments": (validate.validate, aggregate.aggregate, assessors.assessors, check.check, trace.trace),
    "Rankers": (train.train, rank.rank, distill.distill, export.export),
    "Evaluation": (evaluate.evaluate, compare.compare, estimate.estimate),
    "Judging service": (serve.serve, new_project.new_project, backup.backup, backup.restore),
    "Data": (simulate.simulate, datasets.datasets),
}
"""Commands by the title of their help panel, in the order of the help."""
for panel, functions in COMMANDS_BY_PANEL.items():
    for function in functions:
        add_command(app, function, panel)
app.add_typer(collect.collect, rich_help_panel="Judgments")
app.add_typer(judge.judge, rich_help_panel="Judgments")
app.add_typer(remap.remap, rich_help_panel="Rankers")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"crowdrank {crowdrank.__version__}")
        raise typer.Exit


@app.callback(help=APP_HELP)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False,
) -> None:
    """Apply the options that all commands share."""
    set_quiet(quiet)


def _print_warning(message: Warning | str, *place: Any, **more: Any) -> None:
    text = render(message.message) if isinstance(message, CrowdrankWarning) else str(message)
    print_status(f"Warning: {' '.join(text.splitlines())}")  # a warning of another package may have several lines


def _print_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Print that the command was interrupted, with the notes of the exception; return the exit code."""
    print_error(" ".join(["Interrupted.", *getattr(interrupt, "__notes__", [])]))
    return TERMINATED_EXIT_CODE if isinstance(interrupt, Terminated) else INTERRUPTED_EXIT_CODE


def _raise_terminated(signal_number: int, frame: Any) -> None:
    raise Terminated


def main() -> None:
    """Run the command `crowdrank`."""
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Run an application; for an error that the user caused, print one line and exit with code 2."""
    escape_unencodable()
    warnings.showwarning = _print_warning
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        app()
    except KeyboardInterrupt as problem:  # outside of a command
        sys.exit(_print_interrupt(problem))
    except CrowdrankError as problem:
        print_error(f"Error: {render(problem.message)}")
        if sys.stderr.isatty():  # programs get one line
            print_error(f"Help: {help_for(problem, sys.argv[1:])}")
        sys.exit(2)
    except BrokenPipeError:  # the reader of the output has closed it
        sys.stdout = None
        sys.exit(0)
    except OSError as problem:
        print_error(f"Error: {problem.strerror or problem}: {problem.filename or 'the output'} cannot be used.")
        sys.exit(2)
