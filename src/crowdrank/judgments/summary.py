"""Summarize judgments: facts, rows that cannot be used, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank.errors import Fix, Message
from crowdrank.judgments.columns import COLUMN_ALIASES
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments

MIN_JUDGMENTS = 20
"""Minimum number of judgments of an assessor who is reported for giving one answer only."""
RARE = 0.001
"""Share of judgments below which a grade is reported as rare."""


@dataclass(frozen=True)
class Inspection:
    """Facts about an input, and messages about its problems."""

    facts: dict[str, str]
    messages: tuple[Message, ...] = ()

    @property
    def problems(self) -> list[Message]:
        """Messages about data that cannot be used."""
        return [message for message in self.messages if message.severity == "error"]

    @property
    def remarks(self) -> list[Message]:
        """Warnings and notes."""
        return [message for message in self.messages if message.severity != "error"]


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of judgments; those of shards can be added.

    Attributes:
        sizes: number of items with 0, 1, 2, ... judgments.
        answers: number of answers of each assessor (n_assessors, n_grades + 1), 'cannot judge' first.

    """

    sizes: NDArray[np.int64]
    answers: NDArray[np.int64]

    @classmethod
    def of(cls, judgments: Judgments) -> Tally:
        """Return the counts of judgments in memory."""
        n_answers = max(len(scale) for scale in judgments.scales) + 1
        cell = judgments.assessor.astype(np.int64) * n_answers + (judgments.grade - UNJUDGEABLE)
        answers = np.bincount(cell, minlength=judgments.n_assessors * n_answers).reshape(-1, n_answers)
        return cls(np.bincount(np.diff(judgments.offsets)), answers)

    def __add__(self, other: Tally) -> Tally:
        sizes = np.zeros(max(len(self.sizes), len(other.sizes)), np.int64)
        sizes[: len(self.sizes)] += self.sizes
        sizes[: len(other.sizes)] += other.sizes
        return Tally(sizes, self.answers + other.answers)


def inspect(judgments: Judgments | ShardedJudgments) -> Inspection:
    """Return facts and messages about judgments that were read with `on_bad_rows="skip"`.

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
    messages = (*_bad_rows(judgments), *_notes(judgments, tally), *judgments.report.notes)
    return Inspection({**_facts(judgments, tally), **extras}, messages)


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
    if judgments.report.columns:
        facts["columns"] = column_text(judgments.report.columns)
    for number, scale in enumerate(judgments.scales):
        name = "grades" if len(judgments.scales) == 1 else f"grades, scale {scale}"
        facts[name] = grade_shares(scale, _grade_counts(judgments, tally, number))
    if judgments.n_unjudgeable:
        facts["cannot judge"] = f"{judgments.n_unjudgeable:,} ({judgments.n_unjudgeable / len(judgments):.1%})"
    if judgments.families is not None:
        facts["families"] = f"{len(judgments.families):,}"
    return facts


def column_text(columns: Mapping[str, str]) -> str:
    """Return the column of each role as text.

    >>> column_text({"query": "qid", "grade": "label"})
    'query = qid, grade = label'
    """
    return ", ".join(f"{role} = {columns[role]}" for role in COLUMN_ALIASES if role in columns)


def grade_shares(scale: Scale, counts: NDArray[np.int64]) -> str:
    """Return the share of each grade as text.

    >>> grade_shares(Scale.parse("0-2"), np.array([2, 1, 1]))
    '0: 50.0%, 1: 25.0%, 2: 25.0%'
    """
    shares = counts / max(counts.sum(), 1)
    return ", ".join(f"{name}: {share:.1%}" for name, share in zip(scale.names, shares, strict=True))


def _grade_counts(judgments: Judgments | ShardedJudgments, tally: Tally, scale: int) -> NDArray[np.int64]:
    """Return the number of judgments with each grade of a scale."""
    answers = tally.answers[judgments.assessor_scale == scale].sum(axis=0)
    counts: NDArray[np.int64] = answers[1 : len(judgments.scales[scale]) + 1]
    return counts


def _spread(counts: NDArray[np.int64]) -> str:
    """Return minimum, maximum and median of values; `counts` are the numbers of values 0, 1, 2, ..."""
    below = np.cumsum(counts)
    low, middle, high = (int(np.searchsorted(below, round(q * (below[-1] - 1)), "right")) for q in (0, 0.5, 1))
    return f"{low} to {high:,}, median {middle}"


def _extra(name: str, column: NDArray[Any], judgments: Judgments) -> str:
    if name == "honeypot":
        is_honeypot = column != NO_HONEYPOT
        right = judgments.grade[is_honeypot] == column[is_honeypot]
        return f"{counted(len(right), 'judgment')}, {right.mean():.1%} right" if len(right) else "none"
    missing = np.isnat(column) if name == "time" else np.isnan(column)
    known = column[~missing]
    if not len(known):
        return "none"
    if name == "time":
        return f"{known.min().astype('datetime64[s]')} to {known.max().astype('datetime64[s]')}"
    return f"total {known.sum():,.2f}, median {np.median(known):,.2f}"


def _bad_rows(judgments: Judgments | ShardedJudgments) -> Iterator[Message]:
    """Yield a message for each reason: an error for bad rows, a note for rows that the format marks as unused."""
    report = judgments.report
    for reason, n in report.skipped.items():
        if reason in report.examples:
            example = str(report.examples[reason]).removesuffix(".")
            yield Message(f"{counted(n, 'row')} cannot be used ({reason}), the first: {example}", "bad-rows")
        else:
            yield _note("rows-left-out", f"{counted(n, 'row')} left out ({reason})")


def _note(kind: str, problem: str, fix: Fix | None = None) -> Message:
    return Message(problem, kind, "note", fixes=() if fix is None else (fix,))


def _notes(judgments: Judgments | ShardedJudgments, tally: Tally) -> Iterator[Message]:
    report = judgments.report
    if report.repeats:
        problem = f"{counted(report.repeats, 'repeated judgment')} of an assessor on the same document"
        yield _note("repeats", problem, Fix("choose which one is used with {}", "repeats", "last"))
    if report.excluded:
        yield _note("excluded", f"{counted(report.excluded, 'judgment')} of excluded assessors left out")
    if tally.sizes[1]:
        single = counted(int(tally.sizes[1]), "document")
        yield _note("single-judgments", f"{single} of {judgments.n_items:,} with a single judgment")
    yield from _assessor_notes(tally)
    if len(judgments.scales) == 1:
        yield from _scale_notes(judgments.scales[0], _grade_counts(judgments, tally, 0), report.guessed)
    elif not judgments.maps_to_one_scale:
        problem = "the scales differ and have no map to one scale, so votes and Dawid-Skene cannot use them"
        yield _note("scales-differ", problem, Fix("add the column maps_to to the scales file"))


def _scale_notes(scale: Scale, counts: NDArray[np.int64], inferred: bool) -> Iterator[Message]:
    """Yield notes about grades that do not or hardly occur."""
    names = np.array(scale.names, object)
    unused, rare = names[counts == 0].tolist(), names[(counts > 0) & (counts < RARE * counts.sum())].tolist()
    if unused and not inferred:
        yield _note("unused-grades", f"the grades {', '.join(unused)} of the scale {scale} do not occur")
    elif unused and counts.any():
        yield inferred_scale(scale, counts)
    if rare:
        problem = f"fewer than {RARE:.1%} of the judgments are {', '.join(rare)}"
        yield _note("rare-grades", problem, Fix("if they are not on the scale, give it with {}", "grades"))


def inferred_scale(scale: Scale, counts: NDArray[np.int64]) -> Message:
    """Return the note about a scale that was inferred from grades which do not cover it.

    >>> print(inferred_scale(Scale.parse("1-2"), np.array([0, 7])))
    the only grade is 2, so the scale is not known and 1,2 is assumed; give it with grades='0-2'.
    """
    names = np.array(scale.names, object)
    used, unused = names[counts > 0].tolist(), names[counts == 0].tolist()
    if len(used) == 1:
        problem = f"the only grade is {used[0]}, so the scale is not known and {scale} is assumed"
        return _note("inferred-scale", problem, Fix("give it with {}", "grades", f"0-{max(int(scale.values[-1]), 1)}"))
    problem = f"the grades {', '.join(unused)} do not occur; the scale {scale} is assumed, up to the highest grade"
    return _note("inferred-scale", problem, Fix("if it is another, give it with {}", "grades"))


def scale_in_doubt(judgments: Judgments) -> Message | None:
    """Return the note about a scale that was inferred from grades which do not cover it, if there is one.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> print(scale_in_doubt(read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))))
    the only grade is 1, so the scale is not known and 1,2 is assumed; give it with grades='0-2'.
    """
    if len(judgments.scales) > 1 or not judgments.report.guessed:
        return None
    counts = np.bincount(judgments.grade - UNJUDGEABLE, minlength=len(judgments.scale) + 1)[1:]
    return inferred_scale(judgments.scale, counts) if counts.any() and not counts.all() else None


def _assessor_notes(tally: Tally) -> Iterator[Message]:
    total = tally.answers.sum(axis=1)
    once = int((total == 1).sum())
    constant = int(((tally.answers.max(axis=1) == total) & (total >= MIN_JUDGMENTS)).sum())
    if once:
        yield _note("assessors-with-one-judgment", f"{counted(once, 'assessor')} with a single judgment")
    if constant:
        problem = f"{counted(constant, 'assessor')} with {MIN_JUDGMENTS} judgments or more and only one answer"
        yield _note("constant-assessors", problem)
