"""Planted documents with a known answer: who got them right, and how sure that is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from crowdrank._typing import Floats
from crowdrank.errors import UsageError
from crowdrank.judgments.table import NO_HONEYPOT, Judgments


def wilson(successes: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's interval of a share; it keeps its level for few trials and shares near 0 or 1. NaN without a trial.

    >>> low, high = wilson([8, 0], [10, 0])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.49, nan], [0.943, nan])
    """
    if not 0 < level < 1:
        raise UsageError(f"level is a number between 0 and 1, not {level}.")
    right, trials = np.asarray(successes, np.float64), np.asarray(n, np.float64)
    z2 = float(ndtri((1 + level) / 2)) ** 2
    asked = np.where(trials > 0, trials, np.nan)
    share = right / asked
    center = (share + z2 / (2 * asked)) / (1 + z2 / asked)
    reach = np.sqrt(z2 * (share * (1 - share) / asked + z2 / (4 * asked**2))) / (1 + z2 / asked)
    lower, upper = np.maximum(center - reach, 0.0), np.minimum(center + reach, 1.0)
    return np.where(right == 0, np.minimum(lower, 0.0), lower), np.where(right == trials, np.maximum(upper, 1.0), upper)


def accuracy(
    judgments: Judgments, right_answer: NDArray[np.int8], level: float = 0.95
) -> dict[str, NDArray[np.generic]]:
    """Per assessor: judgments `asked` with a right answer, how many `right`, their `share` with its Wilson interval.

    `right_answer` has one code per judgment, on the scale of the judgments; NO_HONEYPOT where none is known.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 2]}))
    >>> accuracy(table, np.array([0, NO_HONEYPOT], np.int8))["share"].tolist()
    [1.0]
    """
    known = right_answer != NO_HONEYPOT
    asked = np.bincount(judgments.assessor[known], minlength=judgments.n_assessors)
    hit = known & (judgments.grade == right_answer)
    right = np.bincount(judgments.assessor[hit], minlength=judgments.n_assessors)
    share = np.divide(right, asked, out=np.full(len(asked), np.nan), where=asked > 0)
    lower, upper = wilson(right, asked, level)
    return {"asked": asked, "right": right, "share": share, "lower": lower, "upper": upper}


def honeypot_accuracy(judgments: Judgments, level: float = 0.95) -> dict[str, NDArray[np.generic]]:
    """The accuracy of every assessor on honeypots; nobody was asked where the judgments have none.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"],
    ...                                      "grade": [2, 0, 1], "honeypot": [2, 2, None]}))
    >>> found = honeypot_accuracy(table)
    >>> found["asked"].tolist(), found["right"].tolist()
    ([1, 1], [1, 0])
    """
    nothing = np.full(len(judgments), NO_HONEYPOT, np.int8)
    return accuracy(judgments, judgments.extras.get("honeypot", nothing), level)
