"""Errors, warnings and notes as objects: what is wrong, where, and how to fix it.

Every error that a user can cause is a :class:`CrowdrankError`. Its text names Python parameters; the command line
renders the same object with its options and exits with 2. Code reads the fields of a message, never its text.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from shlex import quote
from typing import Any, Literal, TypeVar

MAX_PROBLEM_LENGTH = 500
"""Maximum number of characters of the description of a problem; a longer one is truncated."""

MAX_REASON_LENGTH = 200
"""Maximum number of characters of the reason why a part could not be made."""

T = TypeVar("T")
Severity = Literal["error", "warning", "note"]
ParameterText = Callable[[str, object], str | None]
"""Function (name, value) that returns a parameter as text for the user, or None if the user cannot set it."""


def python_parameter(name: str, value: object = None) -> str:
    """Return a parameter as Python code: its name, with its value if that is not None.

    >>> python_parameter("grades", "Bad,Fair,Good"), python_parameter("n_iter")
    ("grades='Bad,Fair,Good'", 'n_iter')
    """
    return name if value is None else f"{name}={value!r}"


def option_parameter(name: str, value: object = None) -> str:
    """Return a parameter as an option of the command line.

    >>> option_parameter("on_bad_rows", "skip"), option_parameter("grades")
    ('--on-bad-rows skip', '--grades')
    """
    flag = f"--{name.replace('_', '-')}"
    return flag if value is None else f"{flag} {quote(str(value))}"


@dataclass(frozen=True)
class Fix:
    """A way to fix a problem, possibly by a parameter.

    Attributes:
        text: what to do; the first `{}` stands for the parameter.
        parameter: name of the parameter in Python.
        value: an example value of the parameter.
        also: what to do as well.

    >>> Fix("name the grades with {}", "grades", "Bad,Good").render()
    "name the grades with grades='Bad,Good'"

    """

    text: str
    parameter: str | None = None
    value: object = None
    also: Fix | None = None

    def render(self, write_parameter: ParameterText = python_parameter) -> str | None:
        """Return the text, or None if the user cannot set the parameter."""
        text: str | None = self.text
        if self.parameter is not None:
            written = write_parameter(self.parameter, self.value)
            text = None if written is None else self.text.replace("{}", written, 1)
        also = None if self.also is None else self.also.render(write_parameter)
        return text if text is None or also is None else f"{text} and {also}"

    def with_prefix(self, prefix: str) -> Fix:
        """Return the fix with a prefix added to the names of its parameters."""
        parameter = None if self.parameter is None else prefix + self.parameter
        return replace(self, parameter=parameter, also=None if self.also is None else self.also.with_prefix(prefix))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Fix:
        """Create a fix from its fields as a dictionary.

        >>> Fix.from_dict({"text": "set {}", "parameter": "grades", "also": {"text": "skip other rows"}}).render()
        'set grades and skip other rows'
        """
        also = fields.get("also")
        return cls(**{**fields, "also": None if also is None else cls.from_dict(also)})


@dataclass(frozen=True)
class Location:
    """Location of a problem: file or object, row or line, and column.

    >>> str(Location("labels.csv", "row 3 (line 4)", "grade"))
    "labels.csv, row 3 (line 4), column 'grade'"
    """

    source: str = ""
    place: str = ""
    column: str = ""

    def __str__(self) -> str:
        column = f"column {shown(self.column)}" if self.column else ""
        return ", ".join(part for part in (self.source, self.place, column) if part)


@dataclass(frozen=True)
class Message:
    """An error, warning or note.

    Attributes:
        problem: what is wrong, without a final period.
        kind: identifier of the kind of problem, such as `no-rows`; code decides by it.
        severity: `error`, `warning` (check the result) or `note` (nothing to do).
        location: where the problem is.
        fixes: ways to fix it, each sufficient.
        parameter: name of the parameter that the problem is about; the problem continues it.

    >>> print(Message("is 1.5; give a share below 1", parameter="test"))
    test is 1.5; give a share below 1.

    """

    problem: str
    kind: str = "other"
    severity: Severity = "error"
    location: Location = field(default_factory=Location)
    fixes: tuple[Fix, ...] = ()
    parameter: str | None = None

    @property
    def fix(self) -> Fix | None:
        """The first fix, if there is one."""
        return self.fixes[0] if self.fixes else None

    def render(self, write_parameter: ParameterText = python_parameter) -> str:
        """Return the message as text; fixes by parameters that the user cannot set are left out."""
        where, problem = str(self.location), self.problem
        if len(problem) > MAX_PROBLEM_LENGTH:  # a file can hold names and scales of any length
            problem = problem[: MAX_PROBLEM_LENGTH - 3] + "..."
        if self.parameter is not None:
            problem = f"{write_parameter(self.parameter, None) or self.parameter} {problem}"
        fixes = ", or ".join(text for fix in self.fixes if (text := fix.render(write_parameter)) is not None)
        text = f"{where}: {problem}" if where else problem
        return f"{text.removesuffix('.')}{'; ' if fixes else ''}{fixes.removesuffix('.')}."

    def __str__(self) -> str:
        return self.render()

    def with_prefix(self, prefix: str) -> Message:
        """Return the message with a prefix added to the names of its parameters."""
        fixes = tuple(fix.with_prefix(prefix) for fix in self.fixes)
        return replace(self, fixes=fixes, parameter=None if self.parameter is None else prefix + self.parameter)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary that JSON can represent."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Message:
        """Create a message from the dictionary that :meth:`to_dict` returned.

        >>> note = Message("2 rows have no grade", "rows-skipped", "note", fixes=(Fix("set {}", "grades"),))
        >>> Message.from_dict(note.to_dict()) == note
        True
        """
        location, fixes = Location(**fields["location"]), tuple(map(Fix.from_dict, fields["fixes"]))
        return cls(**{**fields, "location": location, "fixes": fixes})


class _MessageCarrier(Exception):  # noqa: N818
    """Base class of exceptions and warnings that carry a :class:`Message`.

    Args:
        problem: what is wrong, or a complete message.
        kind: identifier of the kind of problem; each class has a default.
        source: file or object that has the problem.
        place: row or line in the source, such as "row 3 (line 4)".
        column: column of a table.
        fix: one or more ways to fix the problem, each sufficient.
        parameter: name of the parameter that the problem is about.

    """

    default_kind = "other"
    severity: Severity = "error"

    def __init__(
        self,
        problem: str | Message,
        *,
        kind: str | None = None,
        source: str = "",
        place: str = "",
        column: str = "",
        fix: str | Fix | Sequence[str | Fix] = (),
        parameter: str | None = None,
    ) -> None:
        if isinstance(problem, Message):
            self.message = problem
        else:
            listed = [fix] if isinstance(fix, str | Fix) else fix
            fixes = tuple(one if isinstance(one, Fix) else Fix(one) for one in listed if one)
            location = Location(source, place, column)
            self.message = Message(problem, kind or self.default_kind, self.severity, location, fixes, parameter)
        super().__init__(str(self.message))

    def __reduce__(self) -> tuple[Any, ...]:  # an error may come from another process
        return type(self), (self.message,), self.__dict__

    @property
    def problem(self) -> str:
        """Description of what is wrong."""
        return self.message.problem

    @property
    def kind(self) -> str:
        """Identifier of the kind of problem."""
        return self.message.kind

    @property
    def location(self) -> Location:
        """Location of the problem."""
        return self.message.location

    @property
    def fix(self) -> Fix | None:
        """The first fix, if there is one."""
        return self.message.fix

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """Ways to fix it, each sufficient."""
        return self.message.fixes

    @property
    def parameter(self) -> str | None:
        """Name of the parameter that the problem is about."""
        return self.message.parameter


class CrowdrankError(_MessageCarrier):
    """Base of all errors that a user can cause."""


class InputError(CrowdrankError, ValueError):
    """An input file or DataFrame is invalid.

    >>> print(InputError("'abc' is not a grade", source="labels.csv", place="row 3 (line 4)", column="grade",
    ...                  fix=["use whole numbers", Fix("name the grades with {}", "grades", "Bad,Fair,Good")]))
    labels.csv, row 3 (line 4), column 'grade': 'abc' is not a grade; use whole numbers, or name the grades with
    grades='Bad,Fair,Good'.
    """

    default_kind = "input"


class UsageError(CrowdrankError, ValueError):
    """A parameter or option has an invalid value."""

    default_kind = "usage"


class OutputError(CrowdrankError, OSError):
    """A result cannot be written; existing files are unchanged."""

    default_kind = "output"


class NotFittedError(CrowdrankError, ValueError, AttributeError):
    """A result was requested from an estimator that is not fitted.

    While scikit-learn is loaded, the error is also a :class:`sklearn.exceptions.NotFittedError`.
    """

    default_kind = "not-fitted"

    def __new__(cls, *arguments: Any, **fields: Any) -> NotFittedError:
        """Create the error; if scikit-learn is loaded, also as a subclass of its NotFittedError."""
        exceptions = sys.modules.get("sklearn.exceptions")
        if cls is NotFittedError and exceptions is not None:
            cls = type("NotFittedError", (NotFittedError, exceptions.NotFittedError), {"__module__": __name__})
        return super().__new__(cls, *arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return NotFittedError, (self.message,), self.__dict__


class ClusterError(CrowdrankError, RuntimeError):
    """The Dask cluster cannot be reached, or its connection was lost."""

    default_kind = "cluster"


class JudgeError(CrowdrankError, RuntimeError):
    """An LLM judge was stopped because its service refuses or fails all calls; answers so far are stored."""

    default_kind = "judge"


class OnDiskError(CrowdrankError, AttributeError):
    """An attribute was requested that judgments on disk do not have, only judgments in memory."""

    default_kind = "on-disk"


class CrowdrankWarning(_MessageCarrier, UserWarning):
    """Base of all warnings."""

    severity: Severity = "warning"


class ConvergenceWarning(CrowdrankWarning):
    """A model stopped at the maximum number of iterations; its estimates may still change."""

    default_kind = "not-converged"


class DataWarning(CrowdrankWarning):
    """The data do not determine some estimates, so these rest on assumptions of the model."""

    default_kind = "data"


@contextmanager
def parameter_prefix(prefix: str) -> Iterator[None]:
    """Add a prefix to the parameter names of errors raised in the block, for callers whose parameters have it.

    >>> with parameter_prefix("gold_"):
    ...     raise UsageError("is empty", parameter="grades")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: gold_grades is empty.
    """
    try:
        yield
    except CrowdrankError as error:
        error.message = error.message.with_prefix(prefix)
        error.args = (str(error.message),)
        raise


def near(name: object, known_names: Iterable[object]) -> str:
    """Return "(did you mean ...?)" with the known name that is closest to an unknown name, or "" if none is close.

    >>> near("Dawid_Skene", ["gda", "dawid-skene"]), near("dawid", ["dawid-skene"]), near("depth", ["delta"])
    (" (did you mean 'dawid-skene'?)", " (did you mean 'dawid-skene'?)", '')
    """
    names, asked = {str(one).casefold(): one for one in known_names}, str(name).casefold()
    close = difflib.get_close_matches(asked, names, n=1, cutoff=0.7)
    close = close or [one for one in names if len(asked) > 2 and one.startswith(asked)]
    return f" (did you mean '{names[close[0]]}'?)" if close else ""


def shown(value: object, max_length: int = 60) -> str:
    """Return the repr of a value for a message: on one line, truncated if it is long.

    >>> shown("d1"), shown(7), shown("x" * 100, max_length=10)
    ("'d1'", '7', "'xxxxxx...")
    """
    try:
        text = repr(value).replace("\n", " ")
    except RecursionError:
        text = "a value that is nested very deeply"
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def find_interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """Return the KeyboardInterrupt that caused an exception, or None.

    An interrupt inside a function compiled by Numba arrives as the cause of a SystemError, or of a chain of them.
    """
    found: BaseException | None = error
    while isinstance(found, SystemError):
        found = found.__cause__
    return found if isinstance(found, KeyboardInterrupt) else None


def attempt(part_name: str, make_part: Callable[[], T]) -> tuple[T | None, list[Message]]:
    """Call `make_part` and return its result without messages; if it fails, return None and a warning.

    So an optional part of a result, such as a chart, cannot make the whole result fail. Ctrl-C is raised.

    Args:
        part_name: name of the part, for the warning.
        make_part: function that makes the part.

    >>> attempt("The sum", lambda: 1 + 1)
    (2, [])
    >>> nothing, (message,) = attempt("The chart of grades", lambda: [].pop())
    >>> print(message)
    The chart of grades could not be made (IndexError: pop from empty list).
    """
    try:
        return make_part(), []
    except Exception as problem:
        if find_interrupt(problem) is not None:
            raise
        lines = str(problem).splitlines() or [""]
        reason = problem.problem if isinstance(problem, CrowdrankError) else f"{type(problem).__name__}: {lines[0]}"
        return None, [
            Message(f"{part_name} could not be made ({reason[:MAX_REASON_LENGTH]})", "failed-part", "warning")
        ]
