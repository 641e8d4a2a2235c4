"""What the terminal shows: first rows of a table, notes, one summary line, JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crowdrank import progress

if TYPE_CHECKING:
    import pyarrow as pa


def complain(text: str) -> None:
    """One line on standard error, unless quiet was asked for (`--quiet`)."""
    if not progress.is_quiet():
        refuse(text)


def note_unjudged(grades: int) -> None:
    """Print how many expert grades match no judgment, if any, on standard error."""
    if grades == 1:
        complain("Note: 1 expert grade is of a document that nobody judged.")
    elif grades:
        complain(f"Note: {grades:,} expert grades are of documents that nobody judged.")


def refuse(text: str) -> None:
    """One line on standard error, whatever was asked for."""
    sys.stderr.write(text + "\n")


def say(text: str) -> None:
    """One line on standard output, as it is: ids may hold anything."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """A value as JSON on standard output."""
    say(json.dumps(_finite(value), indent=2, default=_plain))


def _finite(value: Any) -> Any:
    """The value with null in the place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def show_table(table: pa.Table, title: str = "", first: int = 10, of: int | None = None) -> None:
    """The first rows of a table, which may be the first part of one with `of` rows."""
    cells = [[_cell(row[name]) for name in table.column_names] for row in table.slice(0, first).to_pylist()]
    numbers = ("int", "uint", "float", "double")
    left = [not str(field.type).startswith(numbers) for field in table.schema]
    show_cells(table.column_names, cells, left, title)
    rows = len(table) if of is None else of
    if rows > min(first, len(table)):
        say(f"... and {rows - min(first, len(table)):,} rows more")


def show_cells(names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool], title: str = "") -> None:
    """Rows of text in columns; a cell may be a rich Text."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_left in zip(names, left, strict=True):
        shown.add_column(name, justify="left" if is_left else "right", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    # A pipe has no width: long rows must not be folded there.
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 10_000).print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
