"""Summarize judgments: counts, rows that cannot be used, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._assessor_kinds import KIND_PLURALS, KINDS
from crowdrank._text import counted
from crowdrank.errors import Fix, Message, shown
from crowdrank.judgments.columns import ROLE_NAMES
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, AnyJudgments, Judgments, ReadReport

MIN_JUDGMENTS_TO_NOTE_CONSTANT = 20
"""Minimum number of judgments of an assessor with only one answer for which a note is made."""
MAX_LISTED_GRADES = 8
"""Maximum number of grades that a message lists."""
MAX_GRADES_WITHOUT_WARNING = 11
"""Maximum number of grades of an inferred scale that needs no warning: 0 to 10."""
BLANK_WORDS = ("na", "n/a", "nan", "null", "none", "-")
"""Ids in lower case that may stand for a blank cell."""
RARE_GRADE_SHARE = 0.001
"""Share of judgments below which a grade is reported as rare."""
SKIP_ROWS_FIX = Fix("leave other rows out with {}", "on_bad_rows", "skip")
"""Advice to leave out rows whose grade is not on the scale."""


@dataclass(frozen=True)
class Inspection:
    """Facts about an input, and messages about its problems."""

    facts: dict[str, str]  # text by name, such as "queries": "1,200"
    messages: tuple[Message, ...] = ()

    @property
    def problems(self) -> list[Message]:
        """Messages about data that cannot be used."""
        return [message for message in self.messages if message.severity == "error"]


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of judgments; the counts of several shards can be added.

    Attributes:
        items_by_size: number of items (query, document) with 0, 1, 2, ... judgments.
        answers_by_assessor: how often each assessor gave each answer (n_assessors, n_grades + 1); the first column is
            for 'cannot judge'.

    """

    items_by_size: NDArray[np.int64]
    answers_by_assessor: NDArray[np.int64]

    @classmethod
    def from_judgments(cls, judgments: Judgments) -> Tally:
        """Count judgments in memory."""
        n_answers = max(len(scale) for scale in judgments.scales) + 1
        answer_index = judgments.assessor.astype(np.int64) * n_answers + (judgments.grade - UNJUDGEABLE)
        answers = np.bincount(answer_index, minlength=judgments.n_assessors * n_answers)
        return cls(np.bincount(np.diff(judgments.offsets)), answers.reshape(-1, n_answers))

    def __add__(self, other: Tally) -> Tally:
        items_by_size = np.zeros(max(len(self.items_by_size), len(other.items_by_size)), np.int64)
        items_by_size[: len(self.items_by_size)] += self.items_by_size
        items_by_size[: len(other.items_by_size)] += other.items_by_size
        return Tally(items_by_size, self.answers_by_assessor + other.answers_by_assessor)


def inspect(judgments: AnyJudgments) -> Inspection:
    """Return facts and messages about judgments that were read with `on_bad_rows="skip"`.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> inspect(read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))).facts["documents"]
    '1'
    """
    tally = reduce(add, map(Tally.from_judgments, judgments.iterate(ids=False)))
    extras = _extra_facts(judgments) if isinstance(judgments, Judgments) else {}
    messages = (*bad_row_messages(judgments.report), *_judgment_notes(judgments, tally), *judgments.report.notes)
    return Inspection({**_summary_facts(judgments, tally), **extras}, messages)


def _summary_facts(judgments: AnyJudgments, tally: Tally) -> dict[str, str]:
    assessors_by_size = np.bincount(tally.answers_by_assessor.sum(axis=1))
    facts = {
        "rows": f"{judgments.report.rows:,}",
        "judgments": f"{len(judgments):,}",
        "queries": f"{judgments.n_queries:,}",
        "documents": f"{judgments.n_items:,}",
        "assessors": f"{judgments.n_assessors:,}",
        "judgments per document": _describe_range(tally.items_by_size),
        "judgments per assessor": _describe_range(assessors_by_size),
    }
    if isinstance(judgments, Judgments) and judgments.n_queries > 1:
        facts |= _query_facts(judgments)
    if judgments.report.columns:
        facts["columns"] = describe_columns(judgments.report.columns)
    for scale_index, scale in enumerate(judgments.scales):
        name = "grades" if len(judgments.scales) == 1 else f"grades, scale {scale}"
        facts[name] = describe_grade_shares(scale, _grade_counts(judgments, tally, scale_index))
    if judgments.n_unjudgeable:
        facts["cannot judge"] = f"{judgments.n_unjudgeable:,} ({judgments.n_unjudgeable / len(judgments):.1%})"
    if judgments.families is not None:
        facts["families"] = f"{len(judgments.families):,}"
    return facts


def describe_columns(columns: Mapping[str, str]) -> str:
    """Return a text with the column of each role.

    >>> describe_columns({"query": "qid", "grade": "label"})
    'query = qid, grade = label'
    """
    return ", ".join(f"{role} = {columns[role]}" for role in ROLE_NAMES if role in columns)


def describe_grade_shares(scale: Scale, counts: NDArray[np.int64]) -> str:
    """Return a text with the share of each grade.

    >>> describe_grade_shares(Scale.parse("0-2"), np.array([2, 1, 1]))
    '0: 50.0%, 1: 25.0%, 2: 25.0%'
    """
    shares = counts / max(counts.sum(), 1)
    return ", ".join(f"{name}: {share:.1%}" for name, share in zip(scale.names, shares, strict=True))


def _grade_counts(judgments: AnyJudgments, tally: Tally, scale_index: int) -> NDArray[np.int64]:
    """Return the number of judgments with each grade of a scale."""
    answers = tally.answers_by_assessor[judgments.assessor_scale == scale_index].sum(axis=0)
    return np.asarray(answers[1 : len(judgments.scales[scale_index]) + 1])


def _describe_range(counts: NDArray[np.int64]) -> str:
    """Return a text with the range, mean and median of integers; `counts` has the frequency of 0, 1, 2, ..."""
    below = np.cumsum(counts)
    low, middle, high = (int(np.searchsorted(below, round(q * (below[-1] - 1)), "right")) for q in (0, 0.5, 1))
    mean = float(np.arange(len(counts)) @ counts) / below[-1]
    return f"{low} to {high:,}, mean {mean:,.1f}, median {middle}"


def _query_facts(judgments: Judgments) -> dict[str, str]:
    """Return texts about the sizes of queries, and about what assessors judge of them; only of judgments in memory."""
    query = judgments.by_row(judgments.item_query).astype(np.int64)
    pair, n_judgments = np.unique(judgments.assessor * np.int64(judgments.n_queries) + query, return_counts=True)
    sizes = {
        "documents per query": np.bincount(judgments.item_query),
        "queries per assessor": np.bincount(pair // judgments.n_queries),
        "judgments per assessor and query": n_judgments,
    }
    return {name: _describe_range(np.bincount(size[size > 0])) for name, size in sizes.items()}


def _extra_facts(judgments: Judgments) -> dict[str, str]:
    """Return a text per extra column, and the number of soft labels if there are any."""
    hard = judgments.with_hard_labels()
    facts = {name: _describe_extra_column(name, column, judgments) for name, column in hard.extras.items()}
    if (shares := judgments.shares()) is not None:
        facts["soft labels"] = counted(int((~np.isnan(shares).all(axis=1)).sum()), "judgment")
    return facts


def _describe_extra_column(name: str, column: NDArray[Any], judgments: Judgments) -> str:
    """Return a text that summarizes an extra column: time, duration, cost, honeypot or kind."""
    if name == "honeypot":
        is_honeypot = column != NO_HONEYPOT
        is_right = judgments.grade[is_honeypot] == column[is_honeypot]
        return f"{counted(len(is_right), 'judgment')}, {is_right.mean():.1%} right" if len(is_right) else "none"
    if name == "kind":
        counts = Counter(kind for kind in judgments.assessor_kind if kind)
        return ", ".join(f"{counts[kind]:,} {KIND_PLURALS[kind]}" for kind in KINDS if counts[kind]) or "none"
    missing = np.isnat(column) if name == "time" else np.isnan(column)
    known = column[~missing]
    if not len(known):
        return "none"
    if name == "time":
        return f"{known.min().astype('datetime64[s]')} to {known.max().astype('datetime64[s]')}"
    return f"total {known.sum():,.2f}, median {np.median(known):,.2f}"


def bad_row_messages(report: ReadReport) -> Iterator[Message]:
    """Yield a message per reason why rows are not used.

    It is an error for rows that cannot be used, and a note for rows that the platform marks as not to be used.
    """
    for reason, n in report.skipped.items():
        if reason in report.examples:
            example = report.examples[reason]
            problem = f"{counted(n, 'row')} cannot be used ({reason}), the first: {example.location}: {example.problem}"
            yield Message(problem, "bad-rows", fixes=example.fixes)
        else:
            yield _make_note("rows-left-out", f"{counted(n, 'row')} left out ({reason})")


def _make_note(kind: str, problem: str, fix: Fix | None = None) -> Message:
    return Message(problem, kind, "note", fixes=() if fix is None else (fix,))


def _judgment_notes(judgments: AnyJudgments, tally: Tally) -> Iterator[Message]:
    report = judgments.report
    yield from unused_judgment_notes(report)
    if judgments.n_assessors == 1:
        problem = "there is only one assessor, so that nothing shows how reliable the judgments are"
        yield Message(problem, "one-assessor", "warning", fixes=(Fix("let others judge some of the documents"),))
    elif tally.items_by_size[1] == judgments.n_items:
        problem = "no document was judged by two assessors, so that nothing shows how reliable they are"
        yield Message(problem, "no-overlap", "warning", fixes=(Fix("let some documents be judged twice"),))
    elif tally.items_by_size[1]:
        single = counted(int(tally.items_by_size[1]), "document")
        yield _make_note("single-judgments", f"{single} of {judgments.n_items:,} with a single judgment")
    yield from one_document_warnings(judgments)
    yield from _assessor_notes(tally)
    yield from _id_messages(judgments)
    if len(judgments.scales) == 1:
        yield from _scale_notes(judgments.scales[0], _grade_counts(judgments, tally, 0), report.guessed)
    elif not judgments.maps_to_one_scale:
        problem = "the scales differ and have no map to one scale, so votes and Dawid-Skene cannot use them"
        yield _make_note("scales-differ", problem, Fix("add the column maps_to to the scales file"))


def unused_judgment_notes(report: ReadReport) -> Iterator[Message]:
    """Yield notes about repeated judgments and judgments of excluded assessors.

    >>> [note.kind for note in unused_judgment_notes(ReadReport(repeats=3))]
    ['repeats']
    """
    if report.repeats:
        problem = f"{counted(report.repeats, 'repeated judgment')} of an assessor on the same document"
        yield _make_note("repeats", problem, Fix("the last one is used, unless you choose with {}", "repeats", "first"))
    if report.excluded:
        yield _make_note("excluded", f"{counted(report.excluded, 'judgment')} of excluded assessors left out")


def one_document_warnings(judgments: AnyJudgments) -> Iterator[Message]:
    """Yield a warning if no query has two documents, often because the two columns are swapped."""
    if not judgments.n_queries == judgments.n_items > 1:
        return
    problem = f"each of the {judgments.n_queries:,} queries has one document, so that there is nothing to rank"
    names = [judgments.report.columns.get(role, role) for role in ("document", "query")]
    swapped = Fix("if the columns are swapped, give {}", "columns", "query={},document={}".format(*names))
    yield Message(problem, "one-document-per-query", "warning", fixes=(swapped,))


def _id_messages(judgments: AnyJudgments) -> Iterator[Message]:
    """Yield messages about ids that are words for a blank cell, and about roles that may be swapped."""
    tables = {"assessor": judgments.assessors}
    if isinstance(judgments, Judgments):
        tables |= {"query": judgments.queries, "document": judgments.documents}
    for role, names in tables.items():
        lowered = pc.utf8_lower(names.cast(pa.string()))
        found = names.filter(pc.is_in(lowered, pa.array(BLANK_WORDS))).to_pylist()
        if found:
            problem = f"the {role} {shown(found[0])} may be a blank cell, which other programs write so"
            fixes = (Fix("if it is, leave the cell empty"),)
            yield Message(problem, "blank-like-ids", "warning", fixes=fixes)
    if isinstance(judgments, Judgments) and len(judgments.documents) < judgments.n_assessors:
        assessors = counted(judgments.n_assessors, "assessor")
        problem = f"there are {assessors} and only {counted(len(judgments.documents), 'document')}"
        columns = judgments.report.columns
        swapped = f"document={columns.get('assessor', 'assessor')},assessor={columns.get('document', 'document')}"
        yield _make_note("few-documents", problem, Fix("if the columns are swapped, give {}", "columns", swapped))


def _scale_notes(scale: Scale, counts: NDArray[np.int64], inferred: bool) -> Iterator[Message]:
    """Yield notes about grades that are rare or do not occur."""
    names = np.array(scale.names, object)
    unused = names[counts == 0].tolist()
    rare = names[(counts > 0) & (counts < RARE_GRADE_SHARE * counts.sum())].tolist()
    if inferred and len(names) - len(unused) > MAX_GRADES_WITHOUT_WARNING:
        problem = f"there are {len(names) - len(unused)} different grades, which may be scores or shares"
        rounded, given = Fix("if they are, round them"), Fix("if they are grades, give {}", "grades", str(scale))
        yield Message(problem, "many-grades", "warning", fixes=(rounded, given))
    if unused and not inferred:
        yield _make_note("unused-grades", f"the grades {_list_first_names(unused)} of the scale {scale} do not occur")
    elif unused and counts.any():
        yield inferred_scale_note(scale, counts)
    if rare:
        problem = f"fewer than {RARE_GRADE_SHARE:.1%} of the judgments are {', '.join(rare)}"
        fixes = (
            Fix("if they are not on the scale, give it with {}", "grades", _common_range(scale, counts), SKIP_ROWS_FIX),
        )
        yield Message(problem, "rare-grades", "warning" if inferred else "note", fixes=fixes)


def _common_range(scale: Scale, counts: NDArray[np.int64]) -> str | None:
    """Return the scale from the lowest to the highest grade that is not rare; None without numbers or a second grade.

    >>> _common_range(Scale.parse("0-5"), np.array([5000, 0, 5000, 0, 0, 1]))
    '0-2'
    """
    common = np.flatnonzero(counts >= RARE_GRADE_SHARE * counts.sum())
    if not scale.numeric or len(common) < 2:
        return None
    return f"{int(scale.values[common[0]])}-{int(scale.values[common[-1]])}"


def _list_first_names(names: list[str]) -> str:
    """Return the first names, and the number of the others.

    >>> _list_first_names(["0", "1"]), _list_first_names([*"abcdefghijkl"])
    ('0, 1', 'a, b, c, d, e, f, g, h and 4 more')
    """
    more = f" and {len(names) - MAX_LISTED_GRADES} more" if len(names) > MAX_LISTED_GRADES else ""
    return ", ".join(names[:MAX_LISTED_GRADES]) + more


def inferred_scale_note(scale: Scale, counts: NDArray[np.int64]) -> Message:
    """Return the note that a scale was inferred although not all of its grades occur.

    Args:
        scale: the inferred scale.
        counts: number of judgments with each grade (n_grades,).

    >>> print(inferred_scale_note(Scale.parse("1-2"), np.array([0, 7])))
    the only grade is 2, so the scale is not known and 1,2 is assumed; give it with grades='0-2'.
    """
    names = np.array(scale.names, object)
    used, unused = names[counts > 0].tolist(), names[counts == 0].tolist()
    if len(used) == 1:
        problem = f"the only grade is {used[0]}, so the scale is not known and {scale} is assumed"
        return _make_note(
            "inferred-scale", problem, Fix("give it with {}", "grades", f"0-{max(int(scale.values[-1]), 1)}")
        )
    problem = (
        f"the grades {_list_first_names(unused)} do not occur; the scale {scale} is assumed, up to the highest grade"
    )
    return _make_note("inferred-scale", problem, Fix("if it is another, give it with {}", "grades"))


def uncertain_scale_note(judgments: Judgments) -> Message | None:
    """Return the message that the scale was inferred although grades are rare or do not occur, None if it is certain.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> print(uncertain_scale_note(read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))))
    the only grade is 1, so the scale is not known and 1,2 is assumed; give it with grades='0-2'.
    """
    if len(judgments.scales) > 1 or not judgments.report.guessed:
        return None
    counts = np.bincount(judgments.grade - UNJUDGEABLE, minlength=len(judgments.scale) + 1)[1:]
    messages = _scale_notes(judgments.scale, counts, inferred=True)
    return min(messages, key=lambda message: message.severity != "warning", default=None)


def _assessor_notes(tally: Tally) -> Iterator[Message]:
    n_judgments = tally.answers_by_assessor.sum(axis=1)
    n_single = int((n_judgments == 1).sum())
    is_constant = tally.answers_by_assessor.max(axis=1) == n_judgments
    n_constant = int((is_constant & (n_judgments >= MIN_JUDGMENTS_TO_NOTE_CONSTANT)).sum())
    if n_single:
        yield _make_note("assessors-with-one-judgment", f"{counted(n_single, 'assessor')} with a single judgment")
    if n_constant:
        least = MIN_JUDGMENTS_TO_NOTE_CONSTANT
        problem = f"{counted(n_constant, 'assessor')} with {least} judgments or more and only one answer"
        yield _make_note("constant-assessors", problem)
