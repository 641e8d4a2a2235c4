"""Print lines, tables, JSON and messages on the terminal; messages name options of the current command.

The documentation is not installed with the package, so a page is named by its title and its path in the repository.

Every line and cell passes through `visible`: ids and file names may hold escape sequences, which a terminal would obey.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from io import BufferedWriter, FileIO, TextIOWrapper
from itertools import chain
from pathlib import Path
from shlex import quote
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from crowdrank import _progress
from crowdrank._options import option_name
from crowdrank._text import counted, escape_invisible
from crowdrank.errors import CrowdrankError, InputError, Message, NotFittedError, OutputError, ParameterText, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

    from crowdrank.judgments.table import ReadReport

SETTING_OPTION = "setting"
"""Name of the command option that sets parameters of a model (`-s`)."""

_CURRENT_OPTIONS: ContextVar[Sequence[Any]] = ContextVar("options", default=())
"""Options of the current command."""


class Command(TyperCommand):
    """Command that makes its options known to `render` and applies `--max-bytes` to every file that it reads.

    An option for one file that is given twice is refused: only the last file would be read.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        _CURRENT_OPTIONS.set(self.params)
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for number, one in enumerate(order):
                if one in order[:number] and not one.multiple and _is_file(one):
                    pattern = ["give several files as a pattern in quotes, such as 'graded-*.csv'"]
                    fixes = ["give it once", *(pattern if one.name == "expert" else [])]
                    raise UsageError("is given twice", parameter=one.name, kind="given-twice", fix=fixes)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from crowdrank.readers.files import default_max_bytes

        _CURRENT_OPTIONS.set(self.params)
        with default_max_bytes(ctx.params.get("max_bytes")):
            return super().invoke(ctx)


def _is_file(option: Any) -> bool:
    """Return whether an option or argument is a path; typer 0.29 describes types in another way than before."""
    if hasattr(option, "type_descriptor"):
        return option.type_descriptor.annotation is Path
    return bool(option.type.name == "path")


def render(message: Message) -> str:
    """Return the text of a message, with parameters written as options of the current command."""
    return message.render(option_writer(_CURRENT_OPTIONS.get()))


def option_writer(options: Iterable[Any]) -> ParameterText:
    """Return a function that writes a Python parameter as an option; it returns None if there is no such option.

    Args:
        options: options and arguments of a typer command.

    """
    known = {one.name: one for one in options}

    def write(name: str, value: object) -> str | None:
        option = known.get(option_name(name))
        if option is None:
            return _as_setting(name, value) if SETTING_OPTION in known else None
        if option.param_type_name == "argument":
            name = (option.metavar or option.name.upper()).removesuffix("...")
            return name if value is None else quote(str(value))
        flag = max(option.opts, key=len)
        return flag if value is None or option.is_flag else f"{flag} {quote(str(value))}"

    return write


def _as_setting(name: str, value: object) -> str | None:
    """Return a model parameter as the option `-s name=value`, or None if no model has the parameter."""
    from crowdrank.consensus import METHODS, get_aggregator
    from crowdrank.rankers import RANKERS, get_ranker

    models: Iterator[Any] = chain(map(get_aggregator, METHODS), map(get_ranker, RANKERS))  # loads as few as needed
    if not any(name in model._parameter_names() for model in models):
        return None
    return f"-s {name}" if value is None else f"-s {name}={quote(str(value))}"


ERRORS_PAGE_TITLE = "Errors and warnings"


@dataclass(frozen=True)
class Page:
    """A page of the documentation, or a section of it."""

    title: str
    section: str = ""
    file: str = "docs/refused.md"

    def __str__(self) -> str:
        section = f", section '{self.section}'" if self.section else ""
        return f"the page '{self.title}'{section} ({self.file} in crowdrank's repository)"


PAGE_BY_ERROR: dict[type[CrowdrankError], Page] = {
    InputError: Page(ERRORS_PAGE_TITLE, "Input files"),
    UsageError: Page(ERRORS_PAGE_TITLE, "Options"),
    OutputError: Page(ERRORS_PAGE_TITLE, "Output files and folders"),
    NotFittedError: Page("Five minutes", "The same in Python", "docs/start.md"),
    CrowdrankError: Page(ERRORS_PAGE_TITLE),
}


def page_for(error: CrowdrankError) -> Page:
    """Return the documentation page for the class of an error, or for its nearest base class.

    >>> print(page_for(UsageError("There is no method 'x'.")))
    the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's repository)
    """
    return next(PAGE_BY_ERROR[kind] for kind in type(error).__mro__ if kind in PAGE_BY_ERROR)


def help_for(error: CrowdrankError, command_line: Sequence[str]) -> str:
    """Return where to find help with an error: the help of the command, and a documentation page.

    >>> print(help_for(UsageError("There is no method 'x'."), ["-q", "aggregate", "labels.csv"]))
    crowdrank aggregate --help; the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's
    repository)
    """
    arguments = [word for word in command_line if not word.startswith("-")]
    command = " ".join(arguments[: 2 if arguments[:1] in (["collect"], ["judge"], ["remap"]) else 1])
    return f"crowdrank {command} --help; {page_for(error)}"


PIPE_WIDTH = 10_000
"""Maximum width of tables that are not printed on a terminal."""
MAX_PLAIN_COLUMNS = 100
"""Maximum number of columns of a table that is printed without rich."""
PLAIN_CELL = re.compile("([!-~]([ -~]{0,78}[!-~])?)?")
"""Up to 80 printable ASCII characters without surrounding spaces, as in tables of numbers and ids."""


class PipeOutput(FileIO):
    """Standard output or standard error that discards text after the reader of a pipe has closed it (`| head`)."""

    def write(self, data: Any, /) -> int:
        """Write bytes; if the pipe is closed, connect the descriptor to the null device."""
        try:
            return super().write(data)
        except BrokenPipeError:
            with Path(os.devnull).open("wb") as nothing:
                os.dup2(nothing.fileno(), self.fileno())
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Let standard output and standard error escape characters that their encoding lacks, and survive closed pipes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell: `>&-`
            setattr(sys, name, TextIOWrapper(FileIO(os.devnull, "w"), "utf-8"))
        if not isinstance(stream, TextIOWrapper):
            continue
        stream.reconfigure(errors="backslashreplace")
        if stream is getattr(sys, f"__{name}__") and not stream.isatty():
            output = PipeOutput(stream.fileno(), "w", closefd=False)
            is_unbuffered = isinstance(stream.buffer, FileIO)  # python -u
            wrapper = TextIOWrapper(
                output if is_unbuffered else BufferedWriter(output),
                stream.encoding,
                stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, wrapper)


def print_status(text: str) -> None:
    """Print one line on standard error, unless `--quiet` is given."""
    if not _progress.is_quiet():
        print_error(text)


def print_unjudged_gold(n_grades: int) -> None:
    """Print a note if expert grades belong to documents that have no judgments."""
    if n_grades:
        which = "is for a document" if n_grades == 1 else "are for documents"
        print_status(f"Note: {counted(n_grades, 'expert grade')} {which} without judgments.")


def print_error(text: str) -> None:
    """Print one line on standard error, even with `--quiet`."""
    sys.stderr.write(escape_invisible(text) + "\n")


def note_text(note: Message | str) -> str:
    """Return the text of a note; parameters are named by the options of the current command."""
    return render(note) if isinstance(note, Message) else note


def print_note(note: Message | str) -> None:
    """Print a note on standard error."""
    print_status(f"Note: {note_text(note)}")


def print_message(message: Message) -> None:
    """Print a note or a warning on standard error."""
    print_status(f"{message.severity.capitalize()}: {render(message)}")


def print_columns(columns: Mapping[str, str], files: Sequence[Path]) -> None:
    """Print on standard error which column of the files has which role (query, document, assessor, grade)."""
    if columns:
        listed = ", ".join(f"{role} = {column}" for role, column in columns.items())
        if "document" in columns and "query" not in columns:
            listed += "; none is the query, so that all documents are those of one query"
        print_status(f"Columns of {files[0]}{' and others' if len(files) > 1 else ''}: {listed}.")


def print_read_report(report: ReadReport, files: Sequence[Path]) -> None:
    """Print on standard error which columns were read, notes, and how many rows were left out."""
    print_columns(report.columns, files)
    for note in report.notes:
        print_message(note)
    for reason, number in report.skipped.items():
        print_status(f"Note: {counted(number, 'row')} left out ({reason}).")


def print_line(text: str) -> None:
    """Print one line on standard output."""
    sys.stdout.write(escape_invisible(text) + "\n")


def print_paragraph(text: str, indent: str = "") -> None:
    """Print a text on standard output in lines of at most 80 characters; `indent` is put before all but the first."""
    wrapper = TextWrapper(80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    for line in wrapper.wrap(escape_invisible(text)):
        print_line(line)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output, in ASCII."""
    text = json.dumps(_replace_non_finite(value), indent=2, default=_to_json_value)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")  # the one control character that json leaves as it is


def _replace_non_finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _replace_non_finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_json_value(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def print_table(table: pa.Table, title: str = "", max_rows: int = 10, total_rows: int | None = None) -> None:
    """Print the first rows of a table, and how many of its `total_rows` (default: its length) are not shown."""
    cells = [[_format_cell(row[name]) for name in table.column_names] for row in table.slice(0, max_rows).to_pylist()]
    numbers = ("int", "uint", "float", "double")
    left = [not str(field.type).startswith(numbers) for field in table.schema]
    print_cells(table.column_names, cells, left, title)
    rows = len(table) if total_rows is None else total_rows
    if rows > min(max_rows, len(table)):
        print_line(f"... and {counted(rows - min(max_rows, len(table)), 'more row')}")


def print_cells(
    column_names: Sequence[str],
    cell_rows: Sequence[Sequence[str | Text]],
    left_aligned: Sequence[bool] = (),
    title: str = "",
) -> None:
    """Print a table of cells; a cell with a style or several lines is a rich Text.

    Args:
        column_names: names of the columns.
        cell_rows: cells of each row.
        left_aligned: whether each column is aligned left; by default only the first.
        title: title of the table.

    """
    left_aligned = left_aligned or [place == 0 for place in range(len(column_names))]
    if not title and cell_rows and _is_plain([column_names, *cell_rows]):
        sys.stdout.write(_plain_table(column_names, cell_rows, left_aligned))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=escape_invisible(title) or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_left in zip(column_names, left_aligned, strict=True):
        shown.add_column(escape_invisible(name), justify="left" if is_left else "right", overflow="fold")
    for row in cell_rows:
        shown.add_row(*map(_escape_cell, row))
    # A pipe has no width: long rows must not be folded there.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(highlight=False, markup=False, emoji=False, width=width).print(shown)


def _is_plain(rows: Sequence[Sequence[str | Text]]) -> bool:
    """Return whether rich would print the cells as they are: short ASCII text without styles, not on a terminal."""
    has_styles = sys.stdout.isatty() or "FORCE_COLOR" in os.environ or "TTY_COMPATIBLE" in os.environ
    if has_styles or not (sys.stdout.encoding or "").lower().startswith("utf") or len(rows[0]) > MAX_PLAIN_COLUMNS:
        return False
    return all(isinstance(cell, str) and PLAIN_CELL.fullmatch(cell) for row in rows for cell in row)


def _plain_table(
    column_names: Sequence[str], cell_rows: Sequence[Sequence[str | Text]], left_aligned: Sequence[bool]
) -> str:
    """Return a table as rich prints it in a pipe; importing rich takes a tenth of the time of a small command."""
    rows = [[str(cell) for cell in row] for row in (column_names, *cell_rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "   ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, left_aligned, strict=True)
        )
        for row in rows
    ]
    blank, rule = " " * len(lines[0]), "─" * len(lines[0])
    return "".join(f" {line} \n" for line in (blank, lines[0], rule, *lines[1:], blank))


def _escape_cell(cell: str | Text) -> str | Text:
    if isinstance(cell, str):
        return escape_invisible(cell)
    styled = cell.copy()
    styled.plain = escape_invisible(cell.plain, keep_characters="\n")
    return styled


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
