"""Options for turning rows into judgments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
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
from crowdrank.judgments.scale import Scale, ScaleRules
from crowdrank.judgments.table import UNJUDGEABLE

REPEAT_POLICIES = ("last", "first", "error", "keep")
"""Ways to treat several judgments of one document by one assessor (option `repeats`)."""
MISSING_GRADE, OFF_SCALE_GRADE = -100, -101
"""Codes for a blank grade and for an answer that is not on the scale."""


@dataclass(frozen=True)
class EncodeOptions:
    """Options for turning rows into judgments, the same for all parts; the fields are options of `read_judgments`."""

    scale: Scale | None = None
    scale_rules: ScaleRules | None = None
    unjudgeable: tuple[str, ...] = ()
    repeats: str = "last"
    exclude: tuple[str, ...] = ()
    family_pattern: re.Pattern[str] | None = None
    on_bad_rows: str = "error"

    def __post_init__(self) -> None:
        require_one_of("repeats", self.repeats, REPEAT_POLICIES)
        require_one_of("on_bad_rows", self.on_bad_rows, ("error", "skip"))

    @classmethod
    def parse(
        cls,
        *,
        grades: str | Sequence[object] | None = None,
        scales: str | Path | None = None,
        unjudgeable: object = None,
        default_unjudgeable: Iterable[str] = (),
        repeats: str = "last",
        exclude: str | Path | Collection[object] | None = None,
        family_pattern: str | None = None,
        on_bad_rows: str = "error",
    ) -> EncodeOptions:
        """Return the options of `read_judgments` as objects; `default_unjudgeable` is for `unjudgeable=None`."""
        return cls(
            scale=None if grades is None else Scale.parse(grades),
            scale_rules=None if scales is None else ScaleRules.read(scales),
            unjudgeable=tuple(sorted(default_unjudgeable if unjudgeable is None else parse_unjudgeable(unjudgeable))),
            repeats=repeats,
            exclude=tuple(excluded_ids(exclude)),
            family_pattern=None if family_pattern is None else _compile_family_pattern(family_pattern),
            on_bad_rows=on_bad_rows,
        )

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


def parse_unjudgeable(unjudgeable: object) -> set[str]:
    """Return the answers that mean 'cannot judge', normalized for comparison.

    Args:
        unjudgeable: an answer, several, or several as text separated by commas.

    >>> sorted(parse_unjudgeable("-2, Broken Link")), parse_unjudgeable(-1)
    (['-2', 'broken link'], {'-1'})

    """
    if isinstance(unjudgeable, str):
        return set(map(normalize_answer, unjudgeable.split(",")))
    return set(map(normalize_answer, unjudgeable if isinstance(unjudgeable, Iterable) else [unjudgeable]))


def _compile_family_pattern(pattern: str) -> re.Pattern[str]:
    """Compile the regular expression for families in assessor ids."""
    try:
        return re.compile(pattern)
    except re.error as problem:
        problem_text = f"is {shown(pattern)}, which is not a regular expression ({problem})"
        raise UsageError(problem_text, parameter="family_pattern") from problem


def excluded_ids(exclude: str | Path | Collection[object] | None) -> Collection[str]:
    """Return the ids of the assessors to exclude.

    Args:
        exclude: the ids, or a file with one id per line.

    """
    if isinstance(exclude, str | Path):
        check_size(exclude)
        with open_decompressed(exclude) as stream:
            lines = [line.decode().rstrip("\r\n") for _, line in numbered_lines(stream, str(exclude))]
        return [line for line in lines if line]
    return [str(name) for name in exclude or ()]
