"""Everything a user can get wrong, said in one sentence.

Every class here is a :class:`CrowdrankError`; the command line prints its text and exits with 2.
A traceback on bad input is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST_PROBLEM = 500
"""Maximum number of characters of a problem in a message."""


class CrowdrankError(Exception):
    """Base of every error that a user can cause; its text is one sentence with the remedy."""


class InputError(CrowdrankError, ValueError):
    """A file or frame cannot be used as it is.

    >>> print(InputError("'abc' is not a grade", source="labels.csv", place="row 3 (line 4)", column="grade",
    ...                  remedy="use whole numbers, or name the grades with --grades"))
    labels.csv, row 3 (line 4), column 'grade': 'abc' is not a grade; use whole numbers, or name the grades with
    --grades.
    """

    def __init__(self, problem: str, *, source: str = "", place: str = "", column: str = "", remedy: str = "") -> None:
        where = ", ".join(part for part in (source, place, f"column {shown(column)}" if column else "") if part)
        if len(problem) > LONGEST_PROBLEM:  # a file can hold names and scales of any length
            problem = problem[: LONGEST_PROBLEM - 3] + "..."
        super().__init__(f"{where}{': ' if where else ''}{problem}{'; ' if remedy else ''}{remedy}.")

    def __reduce__(self) -> tuple[Any, ...]:  # it may come from another process: the sentence is made once
        return Exception.__new__, (type(self), str(self)), self.__dict__


class UsageError(CrowdrankError, ValueError):
    """An option or argument has a value that means nothing."""


class OutputError(CrowdrankError, OSError):
    """A result cannot be written; what stood there before still stands."""


class NotFittedError(CrowdrankError, AttributeError):
    """A result was asked of a model that has not been fitted."""


class ClusterError(CrowdrankError, RuntimeError):
    """The cluster that the passes run on cannot be used, or is gone."""


class OnDiskError(CrowdrankError, AttributeError):
    """Something was asked of judgments on disk that only judgments in memory have."""


class ConvergenceWarning(UserWarning):
    """A model stopped at its largest number of iterations; its estimates may still move."""


class DataWarning(UserWarning):
    """The judgments leave open what a model had to assume; its estimates are to be read with that in mind."""


def near(name: object, known: Iterable[object]) -> str:
    """The name that was probably meant, to stand behind the one that is not known; nothing where none is like it.

    >>> near("Dawid_Skene", ["gda", "dawid-skene"]), near("dawid", ["dawid-skene"]), near("depth", ["delta"])
    (" (did you mean 'dawid-skene'?)", " (did you mean 'dawid-skene'?)", '')
    """
    names, asked = {str(one).casefold(): one for one in known}, str(name).casefold()
    found = difflib.get_close_matches(asked, names, n=1, cutoff=0.7)
    found = found or [one for one in names if len(asked) > 2 and one.startswith(asked)]
    return f" (did you mean '{names[found[0]]}'?)" if found else ""


def shown(value: object, most: int = 60) -> str:
    """A value as a sentence quotes it: on one line, and cut where it is long.

    >>> shown("d1"), shown(7), shown("x" * 100, most=10)
    ("'d1'", '7', "'xxxxxx...")
    """
    try:
        text = repr(value).replace("\n", " ")
    except RecursionError:
        text = "a value that is nested very deeply"
    return text if len(text) <= most else text[: most - 3] + "..."


def interrupt_in(problem: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that an exception stands for, if any.

    An interrupt inside of a function compiled by Numba arrives as the cause of a SystemError, or of a chain of them.
    """
    found: BaseException | None = problem
    while isinstance(found, SystemError):
        found = found.__cause__
    return found if isinstance(found, KeyboardInterrupt) else None
