"""Draw the judgments of a crowd: assessors, grades, times, durations and costs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from crowdrank._typing import Floats, Integers
from crowdrank.simulation.assessors import Assessors
from crowdrank.simulation.documents import Documents

CHUNK = 4_000_000
"""Maximum number of random numbers in memory while assessors are chosen."""
START = np.datetime64("2026-01-05T08:00:00", "s")
"""Time at which the judging begins."""
ARRIVAL = 3 * 24 * 3600
"""Number of seconds within which all assessors begin."""
PAUSE = 5.0
"""Mean number of seconds between two tasks of an assessor."""


def judge(rng: np.random.Generator, documents: Documents, assessors: Assessors, *, labels: int) -> pd.DataFrame:
    """Draw `labels` judgments of every document, ordered by time; assessors are drawn in proportion to their activity.

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
    for_choice, for_labels, for_times, for_families = rng.spawn(4)
    labels = min(labels, len(assessors))
    item = np.repeat(np.arange(len(documents)), labels)
    chosen = choose_assessors(for_choice, assessors.activity, len(documents), labels)
    assessor = chosen.ravel()
    difficulty = documents.difficulty[item]
    shared_error = assessors.shared_errors(for_families, documents.difficulty)[assessors.family[assessor], item]
    grade = assessors.label(for_labels, assessor, documents.relevance[item] + shared_error, difficulty)
    if assessors.is_copy.any():
        grade = copy_grades(grade.reshape(chosen.shape), chosen, assessors.original).ravel()
    duration = _draw_durations(for_times, assessors, assessor, difficulty)
    time = _draw_times(for_times, assessor, duration, len(assessors))
    order = np.argsort(time, kind="stable")
    item, assessor = item[order], assessor[order]
    family = {"family": assessors.family_name[assessor]} if assessors.families else {}
    return pd.DataFrame(
        {
            "query": documents.query[item],
            "document": documents.document[item],
            "assessor": assessors.assessor[assessor],
            **family,
            "grade": grade[order],
            "time": np.datetime_as_string(START + time[order], timezone="UTC").astype(object),
            "duration": duration[order],
            "cost": assessors.price[assessor],
            "honeypot": _honeypot_grades(documents, assessors.label_grades).take(item).reset_index(drop=True),
        }
    )


def choose_assessors(rng: np.random.Generator, activity: Floats, documents: int, labels: int) -> Integers:
    """Draw distinct assessors for every document in proportion to their activity, (documents, labels).

    The smallest of exponential waiting times are sequential draws without replacement (the Gumbel-top-k method without
    logarithms).

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


def copy_grades(grade: Integers, chosen: Integers, original: Integers) -> Integers:
    """Replace the grades (documents, labels) of copies by those of their originals where both judged a document.

    >>> grade, chosen = np.array([[0, 4, 1], [0, 4, 1]]), np.array([[0, 1, 2], [3, 1, 2]])
    >>> copy_grades(grade, chosen, original=np.array([0, 0, 2, 3])).tolist()
    [[0, 0, 1], [0, 4, 1]]
    """
    copied = grade.copy()
    owner = original[chosen]
    for column in range(chosen.shape[1]):
        same_owner = owner == chosen[:, [column]]
        copied = np.where(same_owner, grade[:, [column]], copied)
    return copied


def _draw_durations(rng: np.random.Generator, assessors: Assessors, assessor: Integers, difficulty: Floats) -> Floats:
    """Draw the seconds of each task; difficult documents take longer, except for spammers."""
    factor = np.where(assessors.reads_documents[assessor], np.sqrt(difficulty), 1.0)
    return np.maximum(1.0, assessors.seconds[assessor] * factor * rng.lognormal(0, 0.5, len(assessor))).round(1)


def _draw_times(rng: np.random.Generator, assessor: Integers, duration: Floats, n_assessors: int) -> Integers:
    """Draw the time of each label in whole seconds from the start; the tasks of an assessor do not overlap."""
    arrival = rng.uniform(0, ARRIVAL, n_assessors)
    spent = duration + rng.exponential(PAUSE, len(assessor))
    order = np.lexsort((rng.random(len(assessor)), assessor))
    ordered = assessor[order]
    finished = np.cumsum(spent[order])
    first = np.searchsorted(ordered, ordered)
    before = finished[first] - spent[order][first]
    time = np.empty(len(assessor), dtype=np.int64)
    time[order] = (finished - before + arrival[ordered]).astype(np.int64)
    return time


def _honeypot_grades(documents: Documents, label_grades: int) -> pd.Series[int]:
    """Return the correct grade of each honeypot on the crowd's scale; missing for other documents."""
    correct = np.where(documents.grade > 0, label_grades - 1, 0)
    return pd.Series(correct, dtype="Int64").where(documents.honeypot)
