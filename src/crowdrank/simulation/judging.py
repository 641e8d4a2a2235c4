"""A crowd at work on documents: who judges what, how it is graded, and when."""

from __future__ import annotations

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.simulation.assessors import Assessors
from crowdrank.simulation.documents import Documents, Ints

CHUNK = 4_000_000  # random keys held at once while assessors are chosen
START = np.datetime64("2026-01-05T08:00:00", "s")
ARRIVAL = 3 * 24 * 3600  # seconds within which everyone has begun
PAUSE = 5.0  # mean seconds between two tasks of one assessor


def judge(rng: np.random.Generator, documents: Documents, assessors: Assessors, *, labels: int) -> pd.DataFrame:
    """The judgments in order of time: `labels` of every document, by assessors drawn by their activity.

    >>> from crowdrank.simulation.assessors import draw_assessors
    >>> from crowdrank.simulation.documents import draw_documents
    >>> documents = draw_documents(np.random.default_rng(0), queries=2, documents=2)
    >>> crowd = draw_assessors(np.random.default_rng(0), 9)
    >>> judgments = judge(np.random.default_rng(0), documents, crowd, labels=3)
    >>> judgments.columns.tolist()
    ['query', 'document', 'assessor', 'grade', 'time', 'duration', 'cost', 'honeypot']
    >>> len(judgments)
    12
    """
    choosing, seeing, working, sharing = rng.spawn(4)
    labels = min(labels, len(assessors))
    item = np.repeat(np.arange(len(documents)), labels)
    chosen = choose_assessors(choosing, assessors.activity, len(documents), labels)
    who = chosen.ravel()
    difficulty = documents.difficulty[item]
    shared = assessors.shared_errors(sharing, documents.difficulty)[assessors.family[who], item]
    grade = assessors.label(seeing, who, documents.relevance[item] + shared, difficulty)
    if assessors.is_copy.any():
        grade = repeat_originals(grade.reshape(chosen.shape), chosen, assessors.original).ravel()
    duration = _durations(working, assessors, who, difficulty)
    time = _times(working, who, duration, len(assessors))
    order = np.argsort(time, kind="stable")
    item, who = item[order], who[order]
    family = {"family": assessors.family_name[who]} if assessors.families else {}
    return pd.DataFrame(
        {
            "query": documents.query[item],
            "document": documents.document[item],
            "assessor": assessors.assessor[who],
            **family,
            "grade": grade[order],
            "time": np.datetime_as_string(START + time[order], timezone="UTC").astype(object),
            "duration": duration[order],
            "cost": assessors.price[who],
            "honeypot": _right_grades(documents, assessors.label_grades).take(item).reset_index(drop=True),
        }
    )


def choose_assessors(rng: np.random.Generator, activity: Floats, documents: int, labels: int) -> Ints:
    """Different assessors for every document, (documents, labels), drawn one after another by activity.

    The smallest of exponential waiting times: the same draw as the largest of Gumbel keys, without logarithms.

    >>> sorted(choose_assessors(np.random.default_rng(0), np.array([0.5, 0.3, 0.2]), 1, 3)[0].tolist())
    [0, 1, 2]
    """
    rate = activity.astype(np.float32)
    chosen = np.empty((documents, labels), dtype=np.int64)
    rows = max(1, CHUNK // len(rate))
    for first in range(0, documents, rows):
        part = chosen[first : first + rows]
        waiting = rng.standard_exponential((len(part), len(rate)), dtype=np.float32)
        waiting /= rate
        part[:] = np.argpartition(waiting, labels - 1, axis=1)[:, :labels]
    return chosen


def repeat_originals(grade: Ints, chosen: Ints, original: Ints) -> Ints:
    """The grades (documents, labels), a copy's replaced by its original's on every document that both judged.

    >>> grade, chosen = np.array([[0, 4, 1], [0, 4, 1]]), np.array([[0, 1, 2], [3, 1, 2]])
    >>> repeat_originals(grade, chosen, original=np.array([0, 0, 2, 3])).tolist()
    [[0, 0, 1], [0, 4, 1]]
    """
    repeated = grade.copy()
    answering = original[chosen]
    for column in range(chosen.shape[1]):
        both = answering == chosen[:, [column]]
        repeated = np.where(both, grade[:, [column]], repeated)
    return repeated


def _durations(rng: np.random.Generator, assessors: Assessors, who: Ints, difficulty: Floats) -> Floats:
    """Seconds per task; what is hard takes longer, except for those who do not look."""
    care = np.where(assessors.looks[who], np.sqrt(difficulty), 1.0)
    return np.maximum(1.0, assessors.seconds[who] * care * rng.lognormal(0, 0.5, len(who))).round(1)


def _times(rng: np.random.Generator, who: Ints, duration: Floats, assessors: int) -> Ints:
    """When each answer came, in whole seconds from the start; an assessor does one task after another."""
    begun = rng.uniform(0, ARRIVAL, assessors)
    spent = duration + rng.exponential(PAUSE, len(who))
    order = np.lexsort((rng.random(len(who)), who))
    ordered = who[order]
    finished = np.cumsum(spent[order])
    first = np.searchsorted(ordered, ordered)
    before = finished[first] - spent[order][first]
    time = np.empty(len(who), dtype=np.int64)
    time[order] = (finished - before + begun[ordered]).astype(np.int64)
    return time


def _right_grades(documents: Documents, label_grades: int) -> pd.Series[int]:
    """The answer to each honeypot on the crowd's scale, blank for other documents."""
    right = np.where(documents.grade > 0, label_grades - 1, 0)
    return pd.Series(right, dtype="Int64").where(documents.honeypot)
