"""What may be said of an assessor, and on what evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from crowdrank._typing import Floats
from crowdrank.assessors.trend import Trend

FLAGS = ("careful", "", "careless", "random", "reversed", "few")

LEVEL = 0.95
"""The level of the intervals behind flags. Many assessors are tested at once, so an end of an interval alone accuses
nobody: every flag asks for a margin besides, and honest assessors lie far outside of it."""
NEAR_ZERO = 0.5
"""The interval of a random assessor's rise holds 0 and reaches less than half of the crowd's to either side. One that
holds 0 and reaches further tells nobody from anybody: the judgments are too few, or on documents too much alike."""
FEWEST = 10
"""Of fewer judgments nothing is said: a standard error from a handful is itself a guess."""
REVERSED = -0.2
"""A reversed assessor's rise is at least this steep, and by its interval surely half as steep: an interval that only
just ends below 0 is what chance makes of some who do not look."""
CHANCE = 0.01
"""Answers and documents count as related where chance makes them look so less often than this."""
CARELESS, CAREFUL = 2 / 3, 4 / 3
"""Shares of the median informativeness: half of any crowd is below its median, which is no fault yet."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Per assessor, what flags rest on."""

    trend: Trend
    chance: Floats  # of answers so related to the documents if there were no relation
    informativeness: Floats  # nats
    information_error: Floats  # its standard error

    @property
    def rise_interval(self) -> tuple[Floats, Floats]:
        """The interval of the rise at LEVEL; NaN where nothing is known."""
        rise, reach = self.trend.rise, _reach(self.trend.error)
        known = np.isfinite(reach)
        return np.where(known, rise - reach, np.nan), np.where(known, rise + reach, np.nan)

    @property
    def near_zero(self) -> NDArray[np.bool_]:
        """Whether the rise is surely less than half of the crowd's, in either direction."""
        lower, upper = self.rise_interval
        return (lower > -NEAR_ZERO) & (upper < NEAR_ZERO)

    @property
    def few(self) -> NDArray[np.bool_]:
        """Whether the judgments leave it open if the rise is that of chance or of the crowd."""
        lower, upper = self.rise_interval
        return (self.trend.n < FEWEST) | ~((lower > 0) | (upper < 0) | self.near_zero)

    @property
    def median(self) -> float:
        """The median informativeness of the assessors of whom enough is known, or else of all."""
        enough = ~self.few
        return float(np.median(self.informativeness[enough] if enough.any() else self.informativeness))


def _reach(error: Floats) -> Floats:
    reach: Floats = float(ndtri((1 + LEVEL) / 2)) * error
    return reach


def flag(evidence: Evidence) -> NDArray[np.object_]:
    """One flag per assessor: few, reversed, random, careless, careful, or nothing; the first that holds.

    >>> trend = Trend(np.array([200, 200, 5]), np.zeros(3), np.array([1.0, 0.0, 0.9]), np.array([0.05, 0.05, 0.6]))
    >>> flag(Evidence(trend, np.array([0.0, 0.6, 0.2]), np.array([0.5, 0.0, 0.4]), np.full(3, 0.02))).tolist()
    ['careful', 'random', 'few']
    """
    rise, (lower, upper) = evidence.trend.rise, evidence.rise_interval
    reach, information = _reach(evidence.information_error), evidence.informativeness
    reversed_ = (upper < REVERSED / 2) & (rise <= REVERSED)
    random = (lower <= 0) & evidence.near_zero & (evidence.chance > CHANCE)
    careless = information + reach < CARELESS * evidence.median
    careful = information - reach > CAREFUL * evidence.median
    names = ["few", "reversed", "random", "careless", "careful"]
    found = np.select([evidence.few, reversed_, random, careless, careful], names, "")
    return found.astype(object)


def sentences(evidence: Evidence) -> list[str]:
    """The numbers behind each flag, in a sentence.

    >>> trend = Trend(np.array([200]), np.zeros(1), np.array([0.02]), np.array([0.05]))
    >>> print(sentences(Evidence(trend, np.array([0.6]), np.array([0.01]), np.array([0.02])))[0])
    Answers rise 0.02 (-0.08 to 0.12) per grade of the others' over 200 judgments; 0.010 nats, the crowd's median 0.010.
    """
    lower, upper = evidence.rise_interval
    numbers = np.column_stack([evidence.trend.rise, lower, upper, evidence.informativeness]).tolist()
    middle = evidence.median
    return [_sentence(int(n), row, middle) for n, row in zip(evidence.trend.n, numbers, strict=True)]


def _sentence(n: int, numbers: list[float], median: float) -> str:
    rise, lower, upper, information = numbers
    judgments = f"{n:,} judgment{'' if n == 1 else 's'}"
    nats = f"{information:.3f} nats, the crowd's median {median:.3f}."
    if np.isnan(lower):
        return f"Too little to compare with others ({judgments} on documents that others judged too); {nats}"
    told = f"{_two(rise)} ({_two(lower)} to {_two(upper)})"
    return f"Answers rise {told} per grade of the others' over {judgments}; {nats}"


def _two(value: float) -> str:
    """Two digits; nothing has no sign.

    >>> _two(-0.001), _two(-0.25)
    ('0.00', '-0.25')
    """
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text
