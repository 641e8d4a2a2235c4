"""Options for turning rows into judgments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._base import require_one_of
from crowdrank._typing import Grades
from crowdrank.errors import UsageError, shown
from crowdrank.judgments.cells import is_blank, normalize_answer
from crowdrank.judgments.files import check_size, open_decompressed
from crowdrank.judgments.limits import numbered_lines
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.scale_rules import ScaleRules
from crowdrank.judgments.table import UNJUDGEABLE

REPEAT_POLICIES = ("last", "first", "error", "keep")
"""Ways to treat several judgments of one document by one assessor (option `repeats`)."""
MISSING_GRADE, OFF_SCALE_GRADE = -100, -101
"""Codes for a blank grade and for an answer that is not on the scale."""


@dataclass(frozen=True)
class EncodeOptions:
    """Options for turning rows into judgments, the same for all parts; the fields are options of `read_judgments`."""

    scale: Scale | None = None
    named_scale: Scale | None = None  # scale of answers that are names on it, if `scale` is None
    scale_rules: ScaleRules | None = None
    unjudgeable: tuple[str, ...] = ()
    repeats: str = "last"
    exclude: tuple[str, ...] = ()
    family_pattern: re.Pattern[str] | None = None
    on_bad_rows: str = "error"

    def __post_init__(self) -> None:
        require_one_of("repeats", self.repeats, REPEAT_POLICIES)
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    def is_unjudgeable(self, answer: object) -> bool:
        """Return whether an answer means that the assessor could not judge the document."""
        return normalize_answer(answer) in self.unjudgeable

    def grade_codes(self, answers: list[Any], scales: tuple[Scale, ...]) -> Grades:
        """Return an array (n_scales, n_answers + 1) of grade codes; the last column is for blank cells."""
        table = np.full((len(scales), len(answers) + 1), MISSING_GRADE, np.int8)
        for row, scale in enumerate(scales):
            table[row, :-1] = [self._grade_code(value, scale) for value in answers]
        return table

    def _grade_code(self, answer: Any, scale: Scale) -> int:
        """Return the code of an answer on a scale, or the code for unjudgeable, missing or off the scale."""
        if self.is_unjudgeable(answer):
            return UNJUDGEABLE
        code = scale.code(answer)  # before the check for blanks: a scale may have a grade called None
        if code is not None:
            return code
        return MISSING_GRADE if is_blank(answer) else OFF_SCALE_GRADE


def parse_unjudgeable(unjudgeable: object, default: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the answers that mean 'cannot judge', normalized for comparison.

    Args:
        unjudgeable: an answer, several, or several as text separated by commas; None for the default.
        default: normalized answers.

    >>> parse_unjudgeable("-2, Broken Link"), parse_unjudgeable(-1), parse_unjudgeable(None, ["-2"])
    (('-2', 'broken link'), ('-1',), ('-2',))

    """
    if unjudgeable is None:
        return tuple(default)
    answers = unjudgeable.split(",") if isinstance(unjudgeable, str) else unjudgeable
    return tuple(sorted({*map(normalize_answer, answers if isinstance(answers, Iterable) else [answers])}))


def compile_family_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Compile the regular expression for families in assessor ids; None without one."""
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        problem = f"is {shown(pattern)}, which is not a regular expression ({error})"
        raise UsageError(problem, parameter="family_pattern") from error


def excluded_ids(exclude: str | Path | Collection[object] | None) -> tuple[str, ...]:
    """Return the ids of the assessors to exclude.

    Args:
        exclude: the ids, or a file with one id per line.

    """
    if isinstance(exclude, str | Path):
        check_size(exclude)
        with open_decompressed(exclude) as stream:
            lines = [line.decode().rstrip("\r\n") for _, line in numbered_lines(stream, str(exclude))]
        return tuple(filter(None, lines))
    return tuple(map(str, exclude or ()))
