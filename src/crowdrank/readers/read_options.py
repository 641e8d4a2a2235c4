"""Options of the readers: as written on the command line and in TOML files, and parsed for encoding rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from crowdrank._assessor_kinds import Kind
from crowdrank._estimator import require_one_of
from crowdrank._options import option
from crowdrank._typing import Grades
from crowdrank.errors import Fix, Message, Severity, UsageError, near, shown
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import UNJUDGEABLE, AnyJudgments, ReadReport
from crowdrank.readers.cells import is_blank, normalize_answer
from crowdrank.readers.files import check_size, numbered_lines, open_decompressed
from crowdrank.readers.scale_rules import ScaleRules

Format = Literal[
    "csv", "tsv", "parquet", "jsonl", "json", "xlsx", "qrels", "run", "letor", "trec-rf10", "crowd-kit",
    "doccano", "label-studio", "toloka", "mturk", "quepid", "opensearch",
]  # fmt: skip
"""File format of an input."""
Repeats = Literal["last", "first", "keep", "error"]
"""Which of several judgments of one assessor on one document to use; `keep` uses all."""
OnBadRows = Literal["error", "skip"]
"""What to do with rows that cannot be used."""
UnjudgeableAs = Literal["lowest", "drop"]
"""Whether 'cannot judge' answers become the lowest grade or are dropped."""
CANNOT_JUDGE = "cannot-judge"
"""Answer of assessors of the judging service who cannot judge a document."""
MISSING_GRADE, OFF_SCALE_GRADE = -100, -101
"""Codes for a blank grade and for an answer that is not on the scale."""

EXPERT_FLAGS = ("--expert", "-e")
"""Flags of the option for a file of expert grades."""

_FORMAT_HELP = "File format; by default detected from the file name and content."
_COLUMNS_HELP = "Column of each role, such as query=topic,assessor=worker."
_SEPARATOR_HELP = "Separator between the cells of a text file."
_GRADES_HELP = "Scale: a range such as 0-4, or names from least to most relevant such as Bad,Fair,Good."
_UNJUDGEABLE_HELP = "Answers that mean 'cannot judge', separated by commas, such as -2."
_ON_BAD_ROWS_HELP = "What to do with rows that cannot be used: stop, or skip and count them."


@dataclass(frozen=True)
class ReadOptions:
    """Options of :func:`crowdrank.read_judgments`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, _COLUMNS_HELP)
    separator: str | None = option(None, _SEPARATOR_HELP)
    grades: str | None = option(None, _GRADES_HELP)
    scales: Path | None = option(None, "CSV file with a scale per assessor, family or file: assessor, grades, maps_to.")
    unjudgeable: str | None = option(None, _UNJUDGEABLE_HELP)
    repeats: Repeats = option("last", "Which of several judgments of one assessor on one document to use.")
    exclude: Path | None = option(
        None, "File with the ids of assessors to exclude from judgments and preferences, one per line."
    )
    family_pattern: str | None = option(
        None,
        "Regular expression for the family in assessor ids, such as '(.*)_p'; the name of a named group is the family "
        "of the ids that it matches, as in '(?P<copies>ann|bob)$'.",
    )
    family_separator: str | None = option(
        None, "Separator of levels in families, such as / in vendor/model; without families, in assessor ids."
    )
    assessor_name: str | None = option(
        None, "Assessor of a file without a column for it; by default, and with {file}, the name of each such file."
    )
    assessor_kind: Kind | None = option(
        None, "Kind of the assessors of files without a column kind; advice depends on it."
    )
    on_bad_rows: OnBadRows = option("error", _ON_BAD_ROWS_HELP)
    max_bytes: str = option("16GiB", "Maximum size of a file, uncompressed, such as 500MB, 2GB or 4096.")


@dataclass(frozen=True)
class GoldReadOptions:
    """Options of :func:`crowdrank.read_gold`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Column of each role, such as query=topic,grade=gold.")
    separator: str | None = option(None, _SEPARATOR_HELP)
    grades: str | None = option(None, _GRADES_HELP)
    unjudgeable: str | None = option(None, _UNJUDGEABLE_HELP)
    unjudgeable_as: UnjudgeableAs = option("lowest", "Use 'cannot judge' answers as the lowest grade, or drop them.")
    map: str | None = option(None, "Grades that each expert grade stands for, such as 0=0-1,1=2-4.")
    on_bad_rows: OnBadRows = option("error", _ON_BAD_ROWS_HELP)


@dataclass(frozen=True)
class PreferenceReadOptions:
    """Options of :func:`crowdrank.read_preferences`, as written on the command line."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Column of each role, such as left=docA,right=docB,preference=answer.")
    separator: str | None = option(None, _SEPARATOR_HELP)
    repeats: Repeats = option("last", "Which of several answers of one assessor on the same two documents to use.")
    family_pattern: str | None = option(None, "Regular expression for the family in assessor ids, such as '(.*)_p'.")
    assessor_name: str | None = option(None, "Assessor of a file without a column for it.")
    on_bad_rows: OnBadRows = option("error", _ON_BAD_ROWS_HELP)


@dataclass(frozen=True)
class FeatureReadOptions:
    """Options of :func:`crowdrank.read_features`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Columns of query and document, such as query=qid,document=docid.")


@dataclass(frozen=True)
class RunReadOptions:
    """Options of :func:`crowdrank.read_run`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Column of each role, such as query=qid,document=docid,score=bm25.")


MAX_LISTED_IDS = 10
"""Maximum number of ids in a message."""
UNKNOWN_EXCLUDED = "unknown-excluded"
"""Kind of the message about ids to exclude that are not assessors."""


@dataclass(frozen=True)
class EncodeOptions:
    """Options for turning rows into judgments, the same for all parts; the fields are options of `read_judgments`."""

    scale: Scale | None = None
    named_scale: Scale | None = None  # scale of answers that are names on it, if `scale` is None
    scale_rules: ScaleRules | None = None
    unjudgeable: tuple[str, ...] = ()
    repeats: str = "last"
    exclude: tuple[str, ...] = ()
    checks_unjudgeable: bool = False  # whether to note answers of `unjudgeable` that do not occur
    family_pattern: re.Pattern[str] | None = None
    family_separator: str | None = None
    on_bad_rows: str = "error"

    def __post_init__(self) -> None:
        require_one_of("repeats", self.repeats, get_args(Repeats))
        if self.family_separator == "":
            raise UsageError("is empty", parameter="family_separator")
        require_one_of("on_bad_rows", self.on_bad_rows, get_args(OnBadRows))

    def is_unjudgeable(self, answer: object) -> bool:
        """Return whether an answer means that the assessor could not judge the document."""
        return normalize_answer(answer) in self.unjudgeable

    def grade_codes(self, answers: list[Any], scales: tuple[Scale, ...]) -> Grades:
        """Return an array (n_scales, n_answers + 1) of grade codes; the last column is for blank cells."""
        table = np.full((len(scales), len(answers) + 1), MISSING_GRADE, np.int8)
        for row, scale in enumerate(scales):
            table[row, :-1] = [self._grade_code(value, scale) for value in answers]
        return table

    def unmatched_notes(
        self, excluded_found: Collection[str], assessors: Iterable[str], answers: Iterable[Any]
    ) -> Iterator[Message]:
        """Yield a warning about ids of `exclude`, and one about answers of `unjudgeable`, that do not occur.

        Args:
            excluded_found: ids of excluded assessors that occur.
            assessors: ids of all other assessors.
            answers: distinct answers.

        """
        yield from unknown_excluded_notes(self.exclude, excluded_found, assessors)
        absent = sorted({*self.unjudgeable} - {normalize_answer(one) for one in answers})
        if self.checks_unjudgeable and absent:
            problem = f"no answer is {' or '.join(map(shown, absent))}, which would mean 'cannot judge'"
            yield Message(problem, "unjudgeable-absent", "warning", fixes=(Fix("correct {}", "unjudgeable"),))

    def _grade_code(self, answer: Any, scale: Scale) -> int:
        """Return the code of an answer on a scale, or the code for unjudgeable, missing or off the scale."""
        if self.is_unjudgeable(answer):
            return UNJUDGEABLE
        code = scale.code(answer)  # before the check for blanks: a scale may have a grade called None
        if code is not None:
            return code
        return MISSING_GRADE if is_blank(answer) else OFF_SCALE_GRADE


def unknown_excluded_notes(
    excluded: Collection[str], found: Collection[str], assessors: Iterable[str]
) -> Iterator[Message]:
    """Yield a warning about ids to exclude that are not assessors.

    Args:
        excluded: ids of assessors to exclude.
        found: those that occur.
        assessors: ids of all other assessors.

    >>> for note in unknown_excluded_notes(("ann", "bobb"), {"ann"}, ["bob"]):
    ...     print(note.problem)
    1 of the 2 ids to exclude is not an assessor: 'bobb' (did you mean 'bob'?)
    """
    unknown = [one for one in excluded if one not in found]
    if not unknown:
        return
    known = list(assessors) if len(unknown) <= MAX_LISTED_IDS else []
    listed = ", ".join(f"{shown(one)}{near(one, known)}" for one in unknown[:MAX_LISTED_IDS])
    more = f" and {len(unknown) - MAX_LISTED_IDS:,} more" if len(unknown) > MAX_LISTED_IDS else ""
    are = "is not an assessor" if len(unknown) == 1 else "are not assessors"
    total = len(excluded)
    which = "the id to exclude" if total == 1 else f"{len(unknown):,} of the {total:,} ids to exclude"
    problem = f"{which} {are}: {listed}{more}"
    # A list for all files may have ids that one of the files lacks.
    is_doubtful = not found or "did you mean" in listed
    severity: Severity = "warning" if is_doubtful else "note"
    yield Message(problem, UNKNOWN_EXCLUDED, severity, fixes=(Fix("correct the ids of {}", "exclude"),))


def share_excluded(
    judgments: AnyJudgments, preferences: Preferences, excluded: Collection[str]
) -> tuple[ReadReport, ReadReport]:
    """Return the reports on judgments and preferences with one warning about ids to exclude that occur in neither."""
    reports = judgments.report, preferences.report
    found = {*reports[0].excluded_ids, *reports[1].excluded_ids}
    assessors = map(str, [*judgments.assessors.to_pylist(), *preferences.assessors.to_pylist()])
    own, other = ([one for one in report.notes if one.kind != UNKNOWN_EXCLUDED] for report in reports)
    is_known = any(len(kept) == len(report.notes) for kept, report in zip((own, other), reports, strict=True))
    both = () if is_known else tuple(unknown_excluded_notes(excluded, found, assessors))
    return replace(reports[0], notes=(*own, *both)), replace(reports[1], notes=tuple(other))


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
