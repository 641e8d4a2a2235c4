"""Fields of an answer as a client sends it, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from crowdrank.errors import shown
from crowdrank.judgments.columns import PROBABILITY_SUM_TOLERANCE
from crowdrank.service.domain.projects import Project
from crowdrank.service.service_errors import Invalid

AnswerKind = Literal["grade", "cannot-judge", "later"]
"""Kind of an answer; `later` puts the pair off."""
ANSWER_KINDS: tuple[str, ...] = get_args(AnswerKind)


@dataclass(frozen=True)
class Answer:
    """An answer of an assessor.

    The pair is given by the token of a lease, by its id, or by the ids of query and document in the user's files. The
    sides of a preference are those of the lease or of `document` and `other`, or, with an id, those of the pair.

    Attributes:
        client_id: made by the client, so that a repeated request is recognized.
        kind: `grade`, `cannot-judge` or `later`.
        grade: name or number of the grade on the scale of the project, for the kind `grade`.
        lease: token of the lease.
        other: id of the right document, for a preference; `document` is the left one.
        comment: remark of the assessor.
        spans: marked passages of the document.
        active_ms: time on the pair, in milliseconds.
        away_ms: time with the page in the background, in milliseconds.
        probabilities: probability of each grade of the scale, for the kind `grade`; None if there are none.
        swapped_grade: preference of an LLM judge with the two documents on the other sides; None if it was not asked.

    """

    client_id: str
    kind: AnswerKind = "grade"
    grade: str | int | None = None
    lease: str | None = None
    pair_id: int | None = None
    query: str | None = None
    document: str | None = None
    other: str | None = None
    comment: str | None = None
    spans: Sequence[Mapping[str, Any]] | None = None
    active_ms: int | None = None
    away_ms: int | None = None
    probabilities: Sequence[float] | None = None
    swapped_grade: str | int | None = None


def check_grade(answer: Answer, project: Project, location: str) -> int | None:
    """Return the position of the grade on the scale, None for other kinds; raise Invalid for an invalid answer."""
    if not answer.client_id:
        fix = "use a new client_id for each answer"
        raise Invalid("client_id must not be empty", place=location, kind="no-client-id", fix=fix)
    if answer.kind not in ANSWER_KINDS:
        problem, fix = f"{shown(answer.kind)} is not a kind of answer", f"use {' or '.join(ANSWER_KINDS)}"
        raise Invalid(problem, place=location, kind="unknown-answer-kind", fix=fix)
    if answer.kind != "grade":
        if answer.grade is not None:
            problem = f"an answer of the kind {answer.kind!r} has no grade"
            raise Invalid(problem, place=location, kind="unknown-grade", fix="leave the grade out")
        return None
    if answer.grade is None:
        fix = f"send one of {project.listed_grades}"
        raise Invalid("the grade is missing", place=location, kind="unknown-grade", fix=fix)
    return project.grade_code(answer.grade, place=location)


def check_swapped_grade(answer: Answer, project: Project, kind: str, location: str) -> int | None:
    """Return the position of the second preference, None if there is none; raise Invalid unless it may be given.

    Args:
        answer: the answer.
        project: the project.
        kind: kind of the assessor.
        location: location of the answer, for messages.

    """
    if answer.swapped_grade is None:
        return None
    if kind != "llm" or not project.asks_preferences or answer.kind != "grade":
        problem = "swapped_grade is only for preferences of LLM judges, beside a grade"
        raise Invalid(problem, place=location, kind="one-order", fix="leave it out")
    return project.grade_code(answer.swapped_grade, place=location)


def check_probabilities(answer: Answer, project: Project, location: str) -> list[float] | None:
    """Return the probabilities of the grades; raise Invalid unless there is one per grade and they sum to 1."""
    if answer.probabilities is None:
        return None
    shares, n_grades = list(answer.probabilities), len(project.grades)
    is_valid = len(shares) == n_grades and all(0 <= share <= 1 for share in shares)
    if answer.kind != "grade" or not is_valid or abs(sum(shares) - 1) > PROBABILITY_SUM_TOLERANCE:
        problem = f"probabilities must be {n_grades} numbers from 0 to 1 that sum to 1, beside a grade"
        raise Invalid(problem, place=location, kind="not-a-share", fix="send one per grade, or none")
    return shares
