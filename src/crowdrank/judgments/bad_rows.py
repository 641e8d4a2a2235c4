"""Count the rows of the input that are not used, by reason, and keep one example error per reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from crowdrank._base import require_one_of
from crowdrank._typing import Booleans
from crowdrank.errors import Fix, InputError, Message

MALFORMED_LINE = "malformed line"
"""Reason for a line that cannot be split into cells."""
BAD_SHARES = "unusable probabilities"
"""Reason for a row whose columns p0, p1, ... are no probabilities of its grades."""
BAD_ROW_REASONS = (
    "no query", "no document", "no assessor", "another family", "no grade", "grade off the scale",
    "time not a date", "duration not a number", "cost not a number", "honeypot off the scale",
    BAD_SHARES,
)  # fmt: skip
"""Reasons why a row is bad, in the order of the checks; the error is about the first reason that occurs."""
SKIP_BAD_ROWS = Fix("leave such rows out with {}", "on_bad_rows", "skip")
"""Advice to leave out bad rows."""


def no_rows_error(source_name: str) -> InputError:
    """Return the error for a file or frame without rows."""
    return InputError("there are no rows", source=source_name, kind="no-rows", fix="check that it is the right one")


@dataclass
class BadRows:
    """Counts of the rows that are not used, by reason.

    A bad row is an error unless `on_bad_rows` is 'skip'. The error is raised by :meth:`raise_first_error` after all
    rows were checked, so that it does not depend on how the rows are split into parts. A row that its format marks as
    not to be used, such as a rejected assignment, is never an error; such reasons have no example.

    >>> bad_rows = BadRows("skip")
    >>> row_mask = np.ones(3, dtype=bool)
    >>> bad_rows.count_bad(np.array([False, True, False]), row_mask, "no grade",
    ...                    lambda row: ((0, row), InputError("...")))
    >>> row_mask.tolist(), dict(bad_rows.skipped)
    ([True, False, True], {'no grade': 1})
    """

    on_bad_rows: str = "error"
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Message] = field(default_factory=dict)  # by reason: the error of the first bad row
    first_places: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # by reason: part number and row of the example
    n_left_out: int = 0  # number of rows that the source did not return in its table

    def __post_init__(self) -> None:
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    @property
    def skip(self) -> bool:
        """Whether bad rows are skipped instead of raising an error."""
        return self.on_bad_rows == "skip"

    def count_bad(
        self,
        is_bad: Booleans,
        row_mask: Booleans,
        reason: str,
        row_error: Callable[[int], tuple[tuple[int, int], InputError]],
    ) -> None:
        """Count the bad rows and set them to False in `row_mask`.

        Args:
            is_bad: whether each row fails the check.
            row_mask: whether each row is used so far; changed in place.
            reason: one of BAD_ROW_REASONS.
            row_error: function of a row that returns (part number, row in the source) and the error.

        """
        is_bad = is_bad & row_mask
        if is_bad.any():
            self.skipped[reason] += int(is_bad.sum())
            self.add_example(reason, *row_error(int(np.argmax(is_bad))))
            row_mask &= ~is_bad

    def add_example(self, reason: str, part_and_row: tuple[int, int], error: InputError) -> None:
        """Store the error of a row as the example of a reason, unless the stored example is of an earlier row."""
        if reason not in self.first_places or part_and_row < self.first_places[reason]:
            self.examples[reason], self.first_places[reason] = error.message, part_and_row

    def raise_first_error(self) -> None:
        """Raise the example error of the first reason that occurred, unless bad rows are skipped."""
        failed = [reason for reason in BAD_ROW_REASONS if reason in self.first_places]
        if failed and not self.skip:
            raise InputError(self.examples[failed[0]])

    def count_malformed(self, error: InputError, n_lines: int = 1) -> None:
        """Count lines that cannot be split into cells; raise the error unless bad rows are skipped."""
        if not self.skip:
            raise error
        self.examples.setdefault(MALFORMED_LINE, error.message)
        self.count_left_out(MALFORMED_LINE, n_lines)

    def count_left_out(self, reason: str, n_rows: int) -> None:
        """Count rows that a source does not return, because its format marks them as not to be used.

        >>> counts = BadRows()
        >>> counts.count_left_out("assignment rejected", 2)
        >>> dict(counts.skipped), counts.n_left_out
        ({'assignment rejected': 2}, 2)
        """
        if n_rows:
            self.skipped[reason] += n_rows
            self.n_left_out += n_rows

    def merge(self, others: Iterable[BadRows]) -> None:
        """Add the counts and examples of other parts of the input."""
        for other in others:
            self.n_left_out += other.n_left_out
            self.skipped.update(other.skipped)
            for reason, example in other.examples.items():
                if reason in other.first_places:
                    self.add_example(reason, other.first_places[reason], InputError(example))
                else:
                    self.examples.setdefault(reason, example)

    def no_rows_left_error(self, source: str, *, assessors_excluded: bool) -> InputError:
        """Return the error for a source without any usable row; it lists the reasons and their counts."""
        order = {reason: number for number, reason in enumerate(BAD_ROW_REASONS)}
        reasons = sorted(self.skipped, key=lambda reason: order.get(reason, -1))
        listed = [f"{reason}: {self.skipped[reason]}" for reason in reasons]
        listed += ["assessors excluded"] if assessors_excluded else []
        problem = f"no row can be used ({', '.join(listed)})"
        example = next((self.examples[reason] for reason in reasons if reason in self.examples), None)
        if example is None:
            return InputError(problem, kind="no-rows-left", source=source, fix="check that it is the right file")
        fixes = [fix for fix in example.fixes if fix != SKIP_BAD_ROWS]
        problem = f"{problem}, the first: {example.location}: {example.problem}"
        return InputError(problem, kind="no-rows-left", source=source, fix=fixes)
