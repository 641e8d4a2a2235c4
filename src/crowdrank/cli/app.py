"""Command-line application; each command has its own module, which is imported only to run it or to list all."""

from __future__ import annotations

import atexit
import gc
import importlib
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import crowdrank
from crowdrank._progress import set_quiet
from crowdrank._text import escape_invisible
from crowdrank.cli.console import help_for, prepare_streams, print_error, print_status, render
from crowdrank.cli.from_settings import add_command, command_group
from crowdrank.errors import CrowdrankError, CrowdrankWarning, find_interrupt

INTERRUPTED_EXIT_CODE, TERMINATED_EXIT_CODE = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes after Ctrl-C and after SIGTERM, as in shells."""


OBJECTS_PER_COLLECTION = 100_000
"""Number of new objects between garbage collections; with Python's 700, imports cause a hundred of them."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that it is handled like Ctrl-C: checkpoints are written, temporary files removed."""


@contextmanager
def _prepare_problems() -> Iterator[None]:
    """Escape control characters in usage errors, which quote file names; turn an interrupt into a line and an exit."""
    try:
        yield
    except (KeyboardInterrupt, SystemError) as problem:
        if (interrupt := find_interrupt(problem)) is None:
            raise
        raise typer.Exit(_print_interrupt(interrupt)) from None
    except Exception as problem:
        if hasattr(problem, "format_message") and hasattr(problem, "message"):  # typer shows these itself
            problem.message = escape_invisible(problem.message)
        raise


class Commands(TyperGroup):
    """Group of all commands; it escapes usage errors and sets the exit code after an interrupt."""

    def make_context(self, *words: Any, **more: Any) -> Any:
        """Parse the command line."""
        with _prepare_problems():
            return super().make_context(*words, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _prepare_problems():
            return super().invoke(ctx)


APP_HELP = "Turn noisy relevance judgments of crowds, experts and LLM judges into labels, rankers and comparisons."
COMMANDS_BY_PANEL = {
    "Start here": {"run": "run_commands", "report": "run_commands", "demo": "demo_commands"},
    "Judgments": {
        "validate": "validate_command",
        "aggregate": "aggregate_command",
        "assessors": "assessor_commands",
        "check": "assessor_commands",
        "trace": "assessor_commands",
    },
    "Rankers": {
        "train": "ranker_commands",
        "rank": "ranker_commands",
        "distill": "ranker_commands",
        "export": "ranker_commands",
    },
    "Evaluation": {
        "evaluate": "evaluate_commands",
        "compare": "evaluate_commands",
        "estimate": "estimate_command",
        "gate": "gate_command",
        "plan": "plan_command",
    },
    "Judging service": dict.fromkeys(("serve", "new-project", "backup", "restore"), "serve_commands"),
    "Data": {"simulate": "demo_commands", "datasets": "demo_commands"},
}
"""Commands with their modules, by the title of their help panel, in the order of the help."""
GROUPS_BY_PANEL = {
    "Judgments": {"collect": "collect_commands", "judge": "judge_commands"},
    "Rankers": {"remap": "remap_commands"},
}
"""Groups of commands with their modules, by the title of their help panel."""


@cache
def build_app(only: str | None = None) -> typer.Typer:
    """Return the application with all commands, or with one of them."""
    app = command_group("crowdrank", APP_HELP, cls=Commands)
    app.callback(help=APP_HELP)(options)
    for panel, modules in COMMANDS_BY_PANEL.items():
        for name, module in modules.items():
            if only in (None, name):
                add_command(app, _load_command(name, module), panel)
    for panel, modules in GROUPS_BY_PANEL.items():
        for name, module in modules.items():
            if only in (None, name):
                app.add_typer(_load_command(name, module), rich_help_panel=panel)
    return app


def _load_command(name: str, module: str) -> Any:
    """Return the function of a command, or a group of commands."""
    return getattr(importlib.import_module(f"crowdrank.cli.{module}"), name.replace("-", "_"))


def __getattr__(name: str) -> Any:
    if name == "app":  # with all commands
        return build_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def requested_command(words: Sequence[str]) -> str | None:
    """Return the command that the words of a command line name, or None if that is not certain.

    >>> requested_command(["-q", "aggregate", "labels.csv"]), requested_command(["--help"])
    ('aggregate', None)
    """
    word = next((word for word in words if word not in ("-q", "--quiet")), None)
    known = {name for panel in (*COMMANDS_BY_PANEL.values(), *GROUPS_BY_PANEL.values()) for name in panel}
    return word if word in known else None


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"crowdrank {crowdrank.__version__}")
        raise typer.Exit


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
    exec("")  # a KeyboardInterrupt inside of exec, as in dataclasses, would make Python end by the signal
    return TERMINATED_EXIT_CODE if isinstance(interrupt, Terminated) else INTERRUPTED_EXIT_CODE


def _raise_terminated(signal_number: int, frame: Any) -> None:
    raise Terminated


def main() -> None:
    """Run the command `crowdrank`."""
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    atexit.register(gc.freeze)  # Python would search all objects for garbage before it ends
    sys.argv[1:] = with_quiet_first(sys.argv[1:])
    run_app(lambda: build_app(requested_command(sys.argv[1:])))


def with_quiet_first(words: Sequence[str]) -> list[str]:
    """Return a command line with `--quiet` before the command, which may have it anywhere.

    >>> with_quiet_first(["aggregate", "labels.csv", "-q"]), with_quiet_first(["aggregate", "--", "-q"])
    (['-q', 'aggregate', 'labels.csv'], ['aggregate', '--', '-q'])
    """
    end = list(words).index("--") if "--" in words else len(words)
    is_quiet = [place < end and word in ("-q", "--quiet") for place, word in enumerate(words)]
    rest = [word for word, quiet in zip(words, is_quiet, strict=True) if not quiet]
    return ["-q", *rest] if any(is_quiet) else rest


def run_app(build: Callable[[], typer.Typer]) -> None:
    """Build and run an application; for an error that the user caused, print one line and exit with code 2."""
    prepare_streams()
    warnings.showwarning = _print_warning
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        build()()
    except KeyboardInterrupt as problem:  # outside of a command
        sys.exit(_print_interrupt(problem))
    except CrowdrankError as problem:
        print_error(f"Error: {render(problem.message)}")
        if sys.stderr.isatty():  # programs get one line
            print_error(f"Help: {help_for(problem, sys.argv[1:])}")
        sys.exit(2)
    except OSError as problem:
        print_error(f"Error: {problem.strerror or problem}: {problem.filename or 'the output'} cannot be used.")
        sys.exit(2)
