"""The command line. Verbs stand in the order of the work; each file is one verb and does nothing but talk."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated, Any

import typer

import crowdrank
from crowdrank.cli import (
    aggregate,
    assessors,
    check,
    collect,
    compare,
    datasets,
    demo,
    evaluate,
    rank,
    report,
    run,
    simulate,
    study,
    trace,
    train,
    validate,
)
from crowdrank.cli.pointers import help_for
from crowdrank.cli.screen import complain, refuse
from crowdrank.errors import CrowdrankError
from crowdrank.progress import be_quiet

app = typer.Typer(
    name="crowdrank",
    help="From noisy relevance judgments of crowds, experts and LLM judges to a search ranker.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


VERBS = (
    run.run,
    report.report,
    simulate.simulate,
    validate.validate,
    aggregate.aggregate,
    assessors.assessors,
    check.check,
    trace.trace,
    train.train,
    rank.rank,
    evaluate.evaluate,
    compare.compare,
    study.study,
    datasets.datasets,
    demo.demo,
)
for verb in VERBS:
    app.command()(verb)
app.add_typer(collect.collect)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"crowdrank {crowdrank.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only results and errors: no progress, notes or warnings.")
    ] = False,
) -> None:
    """From noisy relevance judgments of crowds, experts and LLM judges to a search ranker."""
    be_quiet(quiet)


def _warn(message: Warning | str, *place: Any, **more: Any) -> None:
    complain(f"Warning: {message}")


def main() -> None:
    """Run the command line; what a user got wrong is one sentence and exit code 2."""
    warnings.showwarning = _warn
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name or an id may not fit the terminal's encoding
    try:
        app()
    except CrowdrankError as problem:
        refuse(f"Error: {problem}")
        if sys.stderr.isatty():  # a person; programs get the one line
            refuse(f"Help: {help_for(problem, sys.argv[1:])}")
        sys.exit(2)
    except BrokenPipeError:  # whoever read our output has enough
        sys.stdout = None
        sys.exit(0)
    except OSError as problem:
        refuse(f"Error: {problem.strerror or problem}: {problem.filename or 'the output'} cannot be used.")
        sys.exit(2)
