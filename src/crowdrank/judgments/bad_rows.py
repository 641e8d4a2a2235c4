"""Count the rows that are not used, by reason, with what is wrong with the first row of each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from crowdrank._base import require_one_of
from crowdrank._typing import Booleans
from crowdrank.errors import Fix, InputError, Message

MALFORMED = "malformed line"
CHECKS = (
    "no query",
    "no document",
    "no assessor",
    "another family",
    "no grade",
    "grade off the scale",
    "time not a date",
    "duration not a number",
    "cost not a number",
    "honeypot off the scale",
)
"""Reasons in the order of the checks: of several bad rows, the error is about the first reason and its first row."""
SKIP = Fix("use {}", "on_bad_rows", "skip")


@dataclass
class BadRows:
    """Counts of the rows that are not used, by reason.

    A bad row is an error unless `on_bad_rows` is 'skip'; the error is raised by :meth:`raise_first`, after all rows
    were checked, so that it does not depend on how the rows are split into parts. A row that its format marks as not
    to be used, such as a rejected assignment, is never an error; such reasons have no example.

    >>> bad = BadRows("skip")
    >>> keep = np.ones(3, dtype=bool)
    >>> bad.check(np.array([False, True, False]), keep, "no grade", lambda row: ((0, row), InputError("...")))
    >>> keep.tolist(), dict(bad.skipped)
    ([True, False, True], {'no grade': 1})
    """

    on_bad_rows: str = "error"
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Message] = field(default_factory=dict)  # by reason: what is wrong with the first row
    first: dict[str, tuple[int, int]] = field(default_factory=dict)  # by reason: part and row of the example
    before_table: int = 0  # number of counted rows that are not in the table that a source returned

    def __post_init__(self) -> None:
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    @property
    def skip(self) -> bool:
        """Whether bad rows are left out rather than refused."""
        return self.on_bad_rows == "skip"

    def check(
        self,
        bad: Booleans,
        keep: Booleans,
        reason: str,
        describe: Callable[[int], tuple[tuple[int, int], InputError]],
    ) -> None:
        """Count the `bad` rows and remove them from `keep`.

        Args:
            bad: rows that fail the check.
            keep: rows that are used so far; changed in place.
            reason: one of CHECKS.
            describe: returns (number of the part, row in its source) and the error of a row.

        """
        bad = bad & keep
        if bad.any():
            self.skipped[reason] += int(bad.sum())
            self.add_example(reason, *describe(int(np.argmax(bad))))
            keep &= ~bad

    def add_example(self, reason: str, where: tuple[int, int], error: InputError) -> None:
        """Set the error of a row as the example of a reason, if there is no earlier row."""
        if reason not in self.first or where < self.first[reason]:
            self.examples[reason], self.first[reason] = error.message, where

    def raise_first(self) -> None:
        """Raise the error of the first failed check, unless bad rows are skipped."""
        failed = [reason for reason in CHECKS if reason in self.first]
        if failed and not self.skip:
            raise InputError(self.examples[failed[0]])

    def malformed(self, error: InputError, count: int = 1) -> None:
        """Count lines that cannot be split into cells, or raise the error of the first."""
        if not self.skip:
            raise error
        self.examples.setdefault(MALFORMED, error.message)
        self.leave_out(MALFORMED, count)

    def leave_out(self, reason: str, count: int) -> None:
        """Count rows that a source leaves out of its table.

        >>> counts = BadRows()
        >>> counts.leave_out("assignment rejected", 2)
        >>> dict(counts.skipped), counts.before_table
        ({'assignment rejected': 2}, 2)
        """
        if count:
            self.skipped[reason] += count
            self.before_table += count

    def add(self, others: Iterable[BadRows]) -> None:
        """Add the counts of other parts."""
        for other in others:
            self.before_table += other.before_table
            self.skipped.update(other.skipped)
            for reason, example in other.examples.items():
                if reason in other.first:
                    self.add_example(reason, other.first[reason], InputError(example))
                else:
                    self.examples.setdefault(reason, example)

    def no_rows_left(self, source: str, *, excluded: bool) -> InputError:
        """Return the error for a source of which no row can be used."""
        order = {reason: number for number, reason in enumerate(CHECKS)}
        reasons = sorted(self.skipped, key=lambda reason: order.get(reason, -1))
        listed = [f"{reason}: {self.skipped[reason]}" for reason in reasons]
        listed += ["assessors excluded"] if excluded else []
        fix = f"every row was left out ({', '.join(listed)})"
        return InputError("no row can be used", kind="no-rows-left", source=source, fix=fix)
