"""The command `python -m experiments NAME`."""

from __future__ import annotations

import json as json_format
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import crowdrank
from crowdrank._files import check_output_file, write_file
from crowdrank._progress import SECONDS_BEFORE_BAR
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line, print_status
from crowdrank.cli.from_settings import complete_from
from crowdrank.errors import OutputError, UsageError
from experiments import EXPERIMENTS, KEEPING, PARTS, PRICED, QUICK, get_experiment

if TYPE_CHECKING:
    from crowdrank.evaluation.comparison import Comparison
    from experiments.base import Experiment, Row, Table


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help="; ".join(f"{name}: {about}" for name, about in EXPERIMENTS.items()) + ".",
            show_default=False,
            autocompletion=complete_from(EXPERIMENTS),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for NAME.json; created if it is missing.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Only these methods, such as majority,dawid-skene,gda. In experiments with rankers, only these runs, "
            "such as lambdamart,lightgbm."
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help=f"Only these data sets or tables, such as mq2008,generated; for {', '.join(PARTS)}."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Folder for fits, answers or figures, so that an interrupted experiment can resume; for "
            f"{', '.join(KEEPING)}.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"A smaller form with fewer cells and replicates; for {', '.join(QUICK)}.")
    ] = False,
    price: Annotated[
        float | None, typer.Option(help=f"Price of a preference; a label costs 1. For {', '.join(PRICED)}.")
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Run an experiment on public data and print its tables, paired tests and protocol."""
    run, commit = get_experiment(name), source_commit()
    if output is not None:
        make_folder(output)
    parts: dict[str, Any] = {} if only is None else {"only": words(only)}
    if parts and name not in PARTS:
        raise UsageError(f"The experiment {name} runs as a whole; --only is for {', '.join(PARTS)}.")
    if quick:
        if name not in QUICK:
            raise UsageError(f"The experiment {name} has one form; --quick is for {', '.join(QUICK)}.")
        parts["quick"] = True
    if price is not None:
        if name not in PRICED:
            raise UsageError(f"The experiment {name} buys no preferences; --price is for {', '.join(PRICED)}.")
        parts["price"] = price
    if keep is not None:
        if name not in KEEPING:
            raise UsageError(f"The experiment {name} keeps nothing; --keep is for {', '.join(KEEPING)}.")
        make_folder(keep)
        parts["keep"] = keep
    done = run(None if methods is None else words(methods), tell=teller(name), **parts)
    origin = {"command": _command(name, methods, only, price, quick=quick), "version": crowdrank.__version__}
    record = {**done.to_dict(), **origin, **({} if commit is None else {"commit": commit})}
    if output is not None:
        with write_file(output / f"{name}.json") as draft:
            draft.write_text(json_format.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    if json:
        print_json(record)
        return
    show_experiment(done)


def _command(name: str, methods: str | None, only: str | None, price: float | None, *, quick: bool) -> str:
    """Return the command that gives the same results."""
    options = {"--methods": methods, "--only": only, "--price": None if price is None else f"{price:g}"}
    chosen = [f"{option} {text}" for option, text in options.items() if text]
    return " ".join(["python -m experiments", name, *chosen, *(["--quick"] if quick else [])])


def source_commit() -> str | None:
    """Return the commit of the code, with a plus sign if files differ from it; None outside of a git repository."""
    folders = ("src", "experiments")

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *folders)
        return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def words(listed: str) -> list[str]:
    """Split a text at commas.

    >>> words("gda, average,")
    ['gda', 'average']
    """
    return [word.strip() for word in listed.split(",") if word.strip()]


def make_folder(folder: Path) -> None:
    """Make a folder unless it exists; raise OutputError if that is not possible."""
    check_output_file(folder / "results.json" if folder.is_dir() else folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as problem:
        raise OutputError(f"Cannot make the folder {folder}: {problem.strerror or problem}.") from problem


def teller(name: str) -> Callable[[str], None]:
    """Return a progress function that prints to standard error after the first seconds."""
    began = time.monotonic()

    def tell(doing: str) -> None:
        if time.monotonic() - began > SECONDS_BEFORE_BAR:
            print_status(f"{name}: {doing}")

    return tell


def show_experiment(done: Experiment) -> None:
    """Print every table with its tests and notes, then the protocol."""
    for table in done.tables:
        show_figures(table)
        if table.comparison is not None and len(table.comparison.evaluations) > 1:
            show_tests(table.comparison)
        print_line(" ".join(table.notes))
        print_line("")
    print_line(f"Protocol. {' '.join(done.protocol)}")


def show_figures(table: Table) -> None:
    """Print the rows; the best value is bold, and a dagger marks a significant difference to the baseline."""
    names = list(table.rows[0]) if table.rows else ["run"]
    details = _details(table.comparison)
    cells = [[_cell(row, name, details) for name in names] for row in table.rows]
    left = [all(isinstance(row[name], str) for row in table.rows) for name in names]
    print_cells(names, cells, left, table.title)


def show_tests(comparison: Comparison) -> None:
    """Print differences to the baseline with intervals and p-values by Holm's method."""
    measures = [str(measure) for measure in comparison.measures]
    details = _details(comparison)
    runs = [run for run in comparison.evaluations if run != comparison.baseline]
    rows = [[run, *(_tested(details[run, measure]) for measure in measures)] for run in runs]
    title = f"Difference to {comparison.baseline} [{1 - comparison.alpha:.0%} interval], p by Holm"
    print_cells(["run", *measures], rows, [True] + [False] * len(measures), title)


def _details(comparison: Comparison | None) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [] if comparison is None else comparison.to_dict()["details"]
    return {(row["run"], row["measure"]): row for row in rows}


def _cell(row: Row, name: str, details: dict[tuple[str, str], dict[str, Any]]) -> Any:
    from rich.text import Text

    value = row[name]
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if value != value:
        return ""
    if name.endswith("%"):
        return f"{value:+.2f}"
    tested = details.get((row["run"], name))
    dagger = "" if tested is None else "†" if tested["significant"] else " "
    return Text(f"{value:.4f}{dagger}", style="bold" if tested is not None and tested["best"] else "")


def _tested(row: dict[str, Any]) -> str:
    if row["lower"] is None:
        return ""
    return f"{row['difference']:+.4f} [{row['lower']:+.4f}, {row['upper']:+.4f}] {row['p_holm']:.4f}"
