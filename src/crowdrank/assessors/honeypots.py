"""Accuracy of assessors on documents with a known grade, such as honeypots, with intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from crowdrank._typing import Floats, Grades
from crowdrank.constraints import Number, check_parameter
from crowdrank.judgments.table import NO_HONEYPOT, Judgments

LEVEL_CONSTRAINTS = [Number(0, 1, above=True, below=True)]
"""Valid values of the parameter `level` of intervals."""


def wilson(successes: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the ends of Wilson's intervals of proportions; NaN without a trial.

    >>> low, high = wilson([8, 0], [10, 0])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.49, nan], [0.943, nan])
    """
    check_parameter("level", level, LEVEL_CONSTRAINTS)
    hits, trials = np.asarray(successes, np.float64), np.asarray(n, np.float64)
    z2 = float(ndtri((1 + level) / 2)) ** 2
    n_trials = np.where(trials > 0, trials, np.nan)
    share = hits / n_trials
    center = (share + z2 / (2 * n_trials)) / (1 + z2 / n_trials)
    margin = np.sqrt(z2 * (share * (1 - share) / n_trials + z2 / (4 * n_trials**2))) / (1 + z2 / n_trials)
    lower, upper = np.maximum(center - margin, 0.0), np.minimum(center + margin, 1.0)
    return np.where(hits == 0, np.minimum(lower, 0.0), lower), np.where(hits == trials, np.maximum(upper, 1.0), upper)


def accuracy(judgments: Judgments, true_grade: Grades, level: float = 0.95) -> dict[str, NDArray[np.generic]]:
    """Return per assessor the accuracy on documents with a known grade.

    Args:
        judgments: judgments on one scale.
        true_grade: (n,) code of the true grade of each judgment's document; NO_HONEYPOT if it is not known.
        level: level of the intervals.

    Returns:
        Arrays (n_assessors,): `asked` (number of judgments with a known grade), `right` (number of correct ones),
        `share`, and the ends of its Wilson interval `lower` and `upper`.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 2]}))
    >>> accuracy(table, np.array([0, NO_HONEYPOT], np.int8))["share"].tolist()
    [1.0]
    """
    known = true_grade != NO_HONEYPOT
    correct = known & (judgments.grade == true_grade)
    asked, right = (np.bincount(judgments.assessor[rows], minlength=judgments.n_assessors) for rows in (known, correct))
    share = np.divide(right, asked, out=np.full(len(asked), np.nan), where=asked > 0)
    lower, upper = wilson(right, asked, level)
    return {"asked": asked, "right": right, "share": share, "lower": lower, "upper": upper}


def honeypot_accuracy(judgments: Judgments, level: float = 0.95) -> dict[str, NDArray[np.generic]]:
    """Return the accuracy of each assessor on honeypots, as :func:`accuracy` does.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"],
    ...                                      "grade": [2, 0, 1], "honeypot": [2, 2, None]}))
    >>> counts = honeypot_accuracy(table)
    >>> counts["asked"].tolist(), counts["right"].tolist()
    ([1, 1], [1, 0])
    """
    no_honeypots = np.full(len(judgments), NO_HONEYPOT, np.int8)
    return accuracy(judgments, judgments.extras.get("honeypot", no_honeypots), level)
