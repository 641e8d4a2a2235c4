"""Constraints on parameter values: estimators declare them, `fit` checks them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from crowdrank.errors import UsageError, near, shown

MAX_INTEGER = 2**63 - 1
"""Largest integer that fits into 64 bits."""


class Constraint(ABC):
    """Condition on a parameter value; `str(constraint)` completes the sentence "it must be ..."."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""

    def suggestion(self, value: Any) -> str:
        """Return a suggestion such as "(did you mean 'gda'?)" for an invalid value, or "" without one."""
        return ""


class Number(Constraint):
    """A number in a range; NaN is never valid.

    Args:
        low, high: smallest and largest valid value.
        integer: accept integers only.
        above: `low` itself is not valid.
        below: `high` itself is not valid.
        finite: infinity is not valid.

    >>> [str(one) for one in (Number(1, integer=True), Number(0, 1, above=True, below=True), Number(0, 1))]
    ['a whole number of at least 1', 'a number above 0 and below 1', 'a number of at least 0 and at most 1']

    """

    def __init__(
        self,
        low: float = -math.inf,
        high: float = math.inf,
        *,
        integer: bool = False,
        above: bool = False,
        below: bool = False,
        finite: bool = True,
    ) -> None:
        self.low, self.high, self.integer = low, high, integer
        self.above, self.below, self.finite = above, below, finite

    def accepts(self, value: Any) -> bool:
        """Return whether the value is a number in the range."""
        if not isinstance(value, Integral if self.integer else Real) or isinstance(value, bool):
            return False
        number = int(value) if isinstance(value, Integral) else float(value)
        if isinstance(number, float) and (math.isnan(number) or (self.finite and math.isinf(number))):
            return False
        inside = self.low <= number <= self.high
        return inside and not (self.above and number == self.low) and not (self.below and number == self.high)

    def __str__(self) -> str:
        bounds = []
        if self.low > -math.inf:
            bounds.append(f"{'above' if self.above else 'of at least'} {self.low:g}")
        if self.high < MAX_INTEGER:
            bounds.append(f"{'below' if self.below else 'at most'} {self.high:g}")
        return " ".join(["a whole number" if self.integer else "a number", " and ".join(bounds)]).rstrip()


class OneOf(Constraint):
    """One of several valid values.

    >>> str(OneOf("lowest", "drop")), OneOf("lowest", "drop").suggestion("low")
    ('one of lowest, drop', " (did you mean 'lowest'?)")
    """

    def __init__(self, *values: object) -> None:
        self.values = values

    def accepts(self, value: Any) -> bool:
        """Return whether the value equals one of the valid values; True does not equal 1 here."""
        comparable = (one for one in self.values if isinstance(one, bool) is isinstance(value, bool))
        return isinstance(value, Hashable) and any(value == one for one in comparable)

    def suggestion(self, value: Any) -> str:
        """Return "(did you mean ...?)" with the closest valid value, or "" if none is close."""
        return near(value, self.values)

    def __str__(self) -> str:
        return f"{'one of ' if len(self.values) > 1 else ''}{', '.join(map(str, self.values))}"


class Flag(Constraint):
    """True or False."""

    def accepts(self, value: Any) -> bool:
        """Return whether the value is a bool of Python or NumPy (checked by name, to avoid importing NumPy)."""
        return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")

    def __str__(self) -> str:
        return "True or False"


class InstanceOf(Constraint):
    """An object of a class.

    Args:
        cls: class of valid values.
        description: words for such an object, with its article.

    """

    def __init__(self, cls: Any, description: str) -> None:
        self.cls, self.description = cls, description

    def accepts(self, value: Any) -> bool:
        """Return whether the value is an instance of the class."""
        return isinstance(value, self.cls)

    def __str__(self) -> str:
        return self.description


class SequenceOf(Constraint):
    """A list, tuple or array of values that each satisfy a constraint.

    Args:
        constraint: constraint on every value.
        length: required number of values; by default any number except 0.
        empty: a sequence without values is valid too.

    >>> SequenceOf(Number(1, integer=True)).accepts((64, 32)), str(SequenceOf(Number(0), length=2))
    (True, 'a sequence of 2 values, each a number of at least 0')

    """

    def __init__(self, constraint: Constraint, *, length: int | None = None, empty: bool = False) -> None:
        self.constraint, self.length, self.empty = constraint, length, empty

    def accepts(self, value: Any) -> bool:
        """Return whether the value is a sequence of valid values."""
        is_array = hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1
        if not is_array and (not isinstance(value, Sequence) or isinstance(value, str)):
            return False
        right_length = len(value) == self.length if self.length else self.empty or len(value) > 0
        return right_length and all(map(self.constraint.accepts, value))

    def __str__(self) -> str:
        return f"a sequence of {f'{self.length} ' if self.length else ''}values, each {self.constraint}"


class Parsed(Constraint):
    """A value that a parsing function accepts; the function raises UsageError for invalid values."""

    def __init__(self, parse: Callable[[Any], object]) -> None:
        self.parse = parse

    def accepts(self, value: Any) -> bool:
        """Return whether the function accepts the value; let its UsageError through, which is more precise."""
        try:
            self.parse(value)
        except UsageError:
            raise
        except (AttributeError, TypeError, ValueError):
            return False
        return True

    def __str__(self) -> str:
        return "a valid value"


Constraints = Mapping[str, Sequence[Constraint | None]]
"""Alternative constraints by parameter, of which one must accept the value; None accepts the value None."""


def check_parameter(name: str, value: object, alternatives: Iterable[Constraint | None]) -> None:
    """Raise UsageError unless one of the alternative constraints accepts the value of a parameter.

    >>> check_parameter("n_jobs", 0, [Number(1, integer=True), None])
    Traceback (most recent call last):
    crowdrank.errors.UsageError: n_jobs must be a whole number of at least 1 or None, not 0.
    """
    alternatives = tuple(alternatives)
    if any(value is None if one is None else one.accepts(value) for one in alternatives):
        return
    hint = "".join(one.suggestion(value) for one in alternatives if one is not None)
    wanted = " or ".join(map(str, alternatives))
    raise UsageError(f"must be {wanted}, not {shown(value)}{hint}", parameter=name, kind="invalid-parameter")
