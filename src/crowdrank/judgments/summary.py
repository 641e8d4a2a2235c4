"""A look at judgments before anything is done with them: what is in them, what is wrong, what to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments

MANY = 20
"""From this many judgments on, one single answer is a habit."""


@dataclass(frozen=True)
class Inspection:
    """Facts, problems (rows that cannot be used) and remarks (things to know)."""

    facts: dict[str, str]
    problems: list[str]
    remarks: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Tally:
    """What is counted of judgments; of shards, it adds up."""

    sizes: NDArray[np.int64]  # (most + 1,) how many items have 0, 1, 2, ... judgments
    answers: NDArray[np.int64]  # (n_assessors, n_grades + 1) how often each gave each code, 'cannot judge' first

    @classmethod
    def of(cls, judgments: Judgments) -> Tally:
        """The counts of judgments in memory."""
        n_answers = max(len(scale) for scale in judgments.scales) + 1
        use = judgments.assessor.astype(np.int64) * n_answers + (judgments.grade - UNJUDGEABLE)
        answers = np.bincount(use, minlength=judgments.n_assessors * n_answers).reshape(-1, n_answers)
        return cls(np.bincount(np.diff(judgments.offsets)), answers)

    def __add__(self, other: Tally) -> Tally:
        sizes = np.zeros(max(len(self.sizes), len(other.sizes)), np.int64)
        sizes[: len(self.sizes)] += self.sizes
        sizes[: len(other.sizes)] += other.sizes
        return Tally(sizes, self.answers + other.answers)


def inspect(judgments: Judgments | ShardedJudgments) -> Inspection:
    """Look over judgments that were read with `on_bad_rows="skip"`; those on disk, a shard at a time.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> inspect(read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))).facts["documents"]
    '1'
    """
    if isinstance(judgments, Judgments):
        tally, extras = Tally.of(judgments), {n: _extra(n, one, judgments) for n, one in judgments.extras.items()}
    else:
        shards = (Tally.of(judgments.load(place, ids=False)) for place in range(len(judgments.shards)))
        tally, extras = reduce(add, shards), {}
    return Inspection({**_facts(judgments, tally), **extras}, _problems(judgments), _remarks(judgments, tally))


def _facts(judgments: Judgments | ShardedJudgments, tally: Tally) -> dict[str, str]:
    per_assessor = np.bincount(tally.answers.sum(axis=1))
    facts = {
        "rows": f"{judgments.report.rows:,}",
        "judgments": f"{len(judgments):,}",
        "queries": f"{judgments.n_queries:,}",
        "documents": f"{judgments.n_items:,}",
        "assessors": f"{judgments.n_assessors:,}",
        "judgments per document": _spread(tally.sizes),
        "judgments per assessor": _spread(per_assessor),
    }
    for number, scale in enumerate(judgments.scales):
        counts = _grade_counts(judgments, tally, number)
        shares = counts / max(counts.sum(), 1)
        listed = ", ".join(f"{name}: {share:.1%}" for name, share in zip(scale.names, shares, strict=True))
        facts["grades" if len(judgments.scales) == 1 else f"grades, scale {scale}"] = listed
    if judgments.n_unjudgeable:
        facts["cannot judge"] = f"{judgments.n_unjudgeable:,} ({judgments.n_unjudgeable / len(judgments):.1%})"
    if judgments.families is not None:
        facts["families"] = f"{len(judgments.families):,}"
    return facts


def _grade_counts(judgments: Judgments | ShardedJudgments, tally: Tally, scale: int) -> NDArray[np.int64]:
    """How often each grade of a scale was given."""
    mine = tally.answers[judgments.assessor_scale == scale].sum(axis=0)
    counts: NDArray[np.int64] = mine[1 : len(judgments.scales[scale]) + 1]
    return counts


def _spread(how_many: NDArray[np.int64]) -> str:
    """The least, the most and the median, where `how_many` have 0, 1, 2, ..."""
    below = np.cumsum(how_many)
    low, middle, high = (int(np.searchsorted(below, round(q * (below[-1] - 1)), "right")) for q in (0, 0.5, 1))
    return f"{low} to {high:,}, median {middle}"


def _extra(name: str, column: NDArray[Any], judgments: Judgments) -> str:
    if name == "honeypot":
        planted = column != NO_HONEYPOT
        right = judgments.grade[planted] == column[planted]
        return f"{counted(int(planted.sum()), 'judgment')}, {right.mean():.1%} right" if planted.any() else "none"
    missing = np.isnat(column) if name == "time" else np.isnan(column)
    known = column[~missing]
    if not len(known):
        return "none"
    if name == "time":
        return f"{known.min().astype('datetime64[s]')} to {known.max().astype('datetime64[s]')}"
    return f"total {known.sum():,.2f}, median {np.median(known):,.2f}"


def _problems(judgments: Judgments | ShardedJudgments) -> list[str]:
    """Describe the bad rows; rows that the format marks as not to be used are remarks instead."""
    report = judgments.report
    return [
        f"{counted(n, 'row')} ({reason}), the first: {report.examples[reason]}"
        for reason, n in report.skipped.items()
        if reason in report.examples
    ]


def _remarks(judgments: Judgments | ShardedJudgments, tally: Tally) -> list[str]:
    report = judgments.report
    remarks = [
        f"{counted(n, 'row')} left out ({reason})."
        for reason, n in report.skipped.items()
        if reason not in report.examples
    ]
    if report.repeats:
        remarks.append(
            f"{counted(report.repeats, 'repeated judgment')} of an assessor on the same document; the last one holds "
            f"(--repeats)."
        )
    if report.excluded:
        remarks.append(f"{counted(report.excluded, 'judgment')} of excluded assessors left out.")
    alone = int(tally.sizes[1])
    if alone:
        remarks.append(f"{counted(alone, 'document')} of {judgments.n_items:,} with a single judgment.")
    remarks += _remarks_on_assessors(tally)
    if len(judgments.scales) == 1:
        remarks += _remarks_on_scale(judgments.scales[0], _grade_counts(judgments, tally, 0), not report.guessed)
    if len(judgments.scales) > 1 and not judgments.maps_to_one_scale:
        remarks.append("the scales differ and have no map to one scale: votes and Dawid-Skene will refuse them.")
    return remarks


def _remarks_on_scale(scale: Scale, counts: NDArray[np.int64], told: bool) -> list[str]:
    """Grades that nobody gave, or hardly anyone."""
    seen = [name for name, count in zip(scale.names, counts, strict=True) if count]
    never = [name for name, count in zip(scale.names, counts, strict=True) if not count]
    rare = [name for name, count in zip(scale.names, counts, strict=True) if 0 < count < 0.001 * counts.sum()]
    remarks = []
    if never and told:
        remarks.append(f"nobody gave {', '.join(never)}, of the scale {scale}.")
    elif never and seen:
        remarks.append(guessed_scale(scale, seen, never))
    if rare:
        remarks.append(
            f"fewer than 0.1% of the judgments are {', '.join(rare)}; if the scale does not hold them, give it with "
            f"--grades."
        )
    return remarks


def guessed_scale(scale: Scale, seen: Sequence[str], never: Sequence[str]) -> str:
    """What is said of a scale that was read off grades which leave it open.

    >>> guessed_scale(Scale.parse("1-2"), ["2"], ["1"])
    'the only grade is 2: the scale is not known and taken as 1,2; give it, as in --grades 0-2.'
    """
    if len(seen) > 1:
        return (
            f"nobody gave {', '.join(never)}: the scale is taken as {scale}, up to the highest grade given; if it is "
            f"another, give it with --grades."
        )
    told = f"--grades 0-{max(int(scale.values[-1]), 1)}"
    return f"the only grade is {seen[0]}: the scale is not known and taken as {scale}; give it, as in {told}."


def scale_in_doubt(judgments: Judgments) -> str | None:
    """What is said of a scale that was read off the grades, where some of its grades were never given: 7 may be a slip.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> scale_in_doubt(read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]})))
    'the only grade is 1: the scale is not known and taken as 1,2; give it, as in --grades 0-2.'
    """
    if len(judgments.scales) > 1 or not judgments.report.guessed:
        return None
    scale, given = judgments.scale, np.bincount(judgments.grade - UNJUDGEABLE, minlength=len(judgments.scale) + 1)[1:]
    names = np.array(scale.names, object)
    seen, never = names[given > 0].tolist(), names[given == 0].tolist()
    return guessed_scale(scale, seen, never) if never and seen else None


def _remarks_on_assessors(tally: Tally) -> list[str]:
    per_grade = tally.answers
    total = per_grade.sum(axis=1)
    stuck = int(((per_grade.max(axis=1) == total) & (total >= MANY)).sum())
    once = int((total == 1).sum())
    remarks = []
    if once:
        remarks.append(f"{counted(once, 'assessor')} with a single judgment.")
    if stuck:
        remarks.append(f"{counted(stuck, 'assessor')} with {MANY} judgments or more and one single answer.")
    return remarks
