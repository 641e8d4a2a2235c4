"""Grade scales: which answers there are, in order, and what each is worth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from crowdrank.errors import UsageError, near, shown

MOST_GRADES = 101
"""A scale longer than a 0-100 slider is a mistake in the data, not a scale."""


@dataclass(frozen=True)
class Scale:
    """The grades of a scale from least to most relevant.

    >>> Scale.parse("0-3").names
    ('0', '1', '2', '3')
    >>> Scale.parse("Bad,Fair,Good").code("Good")
    2
    >>> Scale.parse("1-5").values
    (1.0, 2.0, 3.0, 4.0, 5.0)
    """

    names: tuple[str, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) <= MOST_GRADES:
            listed = f" ({shown(str(self))[1:-1]})" if self.names else ""
            raise UsageError(f"A scale needs 2 to {MOST_GRADES} grades, not {len(self.names)}{listed}.")
        if len({name.casefold() for name in self.names}) < len(self.names) or len(set(self.values)) < len(self.values):
            raise UsageError(f"The scale {self} names a grade twice; name each grade once.")
        if list(self.values) != sorted(self.values):
            raise UsageError(f"The scale {self} is not in order; give the grades from least to most relevant.")

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        if self.numeric and len(self) > 2 and self.values[-1] - self.values[0] == len(self) - 1 and self.values[0] >= 0:
            return f"{self.names[0]}-{self.names[-1]}"
        return ",".join(self.names)

    @property
    def numeric(self) -> bool:
        """Whether the grades are whole numbers (rather than names)."""
        return whole_number(self.names[0]) is not None

    @classmethod
    def parse(cls, text: str | Iterable[object]) -> Scale:
        """A scale from `0-3`, `1,2,3`, or names from least to most relevant (`Bad,Fair,Good`; `|` separates too)."""
        if isinstance(text, str):
            span = re.fullmatch(r"\s*(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9})\s*", text, re.ASCII)
            if span and int(span[1]) > int(span[2]):
                raise UsageError(
                    f"The scale {text.strip()} is not in order; give the grades from least to most relevant."
                )
            names = (
                [str(grade) for grade in range(int(span[1]), min(int(span[2]), int(span[1]) + 2 * MOST_GRADES) + 1)]
                if span
                else [name.strip() for name in re.split(r"[,|]", text)]
            )
        else:
            names = [str(name).strip() for name in text]
        numbers = [whole_number(name) for name in names]
        if all(number is not None for number in numbers):
            return cls(tuple(names), tuple(float(number) for number in numbers if number is not None))
        if any(number is not None for number in numbers) or any(not name for name in names):
            listed = shown(",".join(names))
            raise UsageError(f"The scale {listed} mixes names, numbers or blanks; use 0-3, 1,2,3 or Bad,Fair,Good.")
        return cls(tuple(names), tuple(float(position) for position in range(len(names))))

    @classmethod
    def spanning(cls, numbers: Iterable[int]) -> Scale:
        """The scale of whole numbers that holds all of `numbers`: from 0, or from 1 where 0 never occurs.

        >>> str(Scale.spanning([3, 0, 2]))
        '0-3'
        """
        seen = set(numbers)
        lowest = 0 if 0 in seen or not seen else 1
        highest = min(max(max(seen, default=1), lowest + 1), lowest + 2 * MOST_GRADES)  # more are refused anyway
        return cls.parse(map(str, range(lowest, highest + 1)))

    def code(self, value: Any) -> int | None:
        """The position of a grade on the scale, or None where it is not on it."""
        number = whole_number(value)
        if self.numeric:
            return self.values.index(number) if number is not None and number in self.values else None
        name = str(value).strip()
        if name in self.names:
            return self.names.index(name)
        folded = [known.casefold() for known in self.names]
        return folded.index(name.casefold()) if name.casefold() in folded else None


def whole_number(value: Any) -> int | None:
    """The whole number that a cell holds (7, 7.0, '7', ' 7.0'), or None.

    >>> [whole_number(value) for value in ("3", 3.0, "-2", "2.5", "x", None)]
    [3, 3, -2, None, None, None]
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([+-]?\d{1,18})(?:\.0*)?\s*", value, re.ASCII)
        return int(match[1]) if match else None
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float | Decimal) and abs(float(value)) < 1e18 and value == int(value):
        return int(value)
    return None


def one_of(values: Sequence[str], value: str, option: str) -> str:
    """`value` where it is one of `values`; else a sentence that lists them."""
    if value not in values:
        raise UsageError(f"{option} does not know '{value}'{near(value, values)}; choose one of: {', '.join(values)}.")
    return value
