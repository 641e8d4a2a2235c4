"""Count the rows that are not used, by reason; a bad row is refused unless `on_bad_rows` is 'skip'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank.errors import InputError

MALFORMED = "malformed line"


@dataclass
class BadRows:
    """Counts of the rows that are not used, by reason.

    A bad row is an error unless `on_bad_rows` is 'skip'. A row that its format marks as not to be used, such as a
    rejected assignment, is never an error; such reasons have no example.

    >>> bad = BadRows("skip")
    >>> keep = np.ones(3, dtype=bool)
    >>> bad.check(np.array([False, True, False]), keep, "no grade", lambda row: InputError("..."))
    >>> keep.tolist(), dict(bad.skipped)
    ([True, False, True], {'no grade': 1})
    """

    on_bad_rows: str = "error"
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # the error message of the first bad row, by reason
    before_table: int = 0  # number of counted rows that are not in the table that a source returned

    def __post_init__(self) -> None:
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    @property
    def skip(self) -> bool:
        """Whether bad rows are left out rather than refused."""
        return self.on_bad_rows == "skip"

    def check(
        self, bad: NDArray[np.bool_], keep: NDArray[np.bool_], reason: str, error: Callable[[int], InputError]
    ) -> None:
        """Take the `bad` rows out of `keep`, or raise what `error` says of the first."""
        bad = bad & keep
        if not bad.any():
            return
        if not self.skip:
            raise error(int(np.argmax(bad)))
        self.examples.setdefault(reason, str(error(int(np.argmax(bad)))))
        self.skipped[reason] += int(bad.sum())
        keep &= ~bad

    def malformed(self, error: InputError, count: int = 1) -> None:
        """Count lines that cannot be split into cells, or raise the error of the first."""
        if not self.skip:
            raise error
        self.examples.setdefault(MALFORMED, str(error))
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
