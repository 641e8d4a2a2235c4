"""Watch a comparison while expert grades arrive: what each look may conclude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.estimation.by_query import ContrastEstimate
from crowdrank.estimation.forecast import Forecast
from crowdrank.estimation.group_sequential import (
    lan_demets_bounds,
    obrien_fleming_bounds,
    repeated_p_value,
    spending_p_value,
)

Kind = Literal["different", "not-different", "go-on"]
MAX_LOOKS = 100
"""Maximum number of planned looks."""


@dataclass(frozen=True)
class Look:
    """A look at a comparison.

    Attributes:
        number: number of the look, from 1.
        n_looks: planned number of looks; None if they are not planned (Lan-DeMets).
        bounds: (n,) bounds of |Z| at the looks: all planned ones, or those so far.
        fractions: (n,) share of the planned information at the looks.
        alpha: probability that any look finds a difference if there is none.

    """

    number: int
    n_looks: int | None
    bounds: Floats
    fractions: Floats
    alpha: float

    @property
    def bound(self) -> float:
        """Bound of |Z| at this look."""
        return float(self.bounds[self.number - 1])

    @property
    def interval_level(self) -> float:
        """Level of the intervals of this look, with which those of all looks hold together."""
        return float(1 - 2 * ndtr(-self.bound))

    def later_looks(self) -> list[tuple[float, float]]:
        """Return the information, in units of the present one, and the interval level of each later look."""
        if self.n_looks is not None:
            bounds, fractions = self.bounds, self.fractions
        else:
            fractions = np.unique(np.append(self.fractions, 1.0))
            bounds = lan_demets_bounds(fractions, self.alpha)
        now = float(fractions[self.number - 1])
        later = zip(fractions[self.number :], bounds[self.number :], strict=True)
        return [(float(fraction) / now, float(1 - 2 * ndtr(-bound))) for fraction, bound in later]

    @property
    def is_last(self) -> bool:
        """Whether no further look is planned."""
        return self.number == self.n_looks or bool(self.fractions[self.number - 1] >= 1)

    def adjust(self, p: float) -> float:
        """Return the p-value that holds at every look, from that of a single test."""
        if p >= 1 or p != p:
            return p
        z = float(-ndtri(max(p, 1e-300) / 2))
        if self.n_looks is None:
            return max(p, spending_p_value(z, self.fractions))
        return max(p, repeated_p_value(z, self.number, self.bounds, self.fractions))

    def sentence(self) -> str:
        """Describe the look in a sentence."""
        if self.n_looks is None:
            share = f"{self.fractions[-1]:.0%} of the planned grades"
            return (
                f"Look {self.number}, at {share}, with the bound {self.bound:.2f} by the spending function of Lan and "
                "DeMets; intervals and p-values hold at every look."
            )
        return (
            f"Look {self.number} of {self.n_looks} with the bound {self.bound:.2f} by O'Brien and Fleming; intervals "
            "and p-values hold at every look."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the look as a dictionary that JSON can represent."""
        fraction = float(self.fractions[self.number - 1])
        return {"look": self.number, "looks": self.n_looks, "bound": self.bound, "information": fraction}


@dataclass(frozen=True)
class LookConclusion:
    """What a look concludes about the difference of a run to the baseline.

    Attributes:
        run: name of the run.
        kind: 'different', 'not-different' (by more than the margin), or 'go-on'.
        difference: the difference with its interval.
        forecast: for 'go-on', what is expected to suffice.
        more_grades: for 'go-on', number of expert grades that are still expected; None if no number suffices.
        is_last: whether no further look is planned.
        planned_grades: for 'go-on', number of expert grades at the last look, if the next draws are like those so far.

    """

    run: str
    kind: Kind
    difference: ContrastEstimate
    forecast: Forecast | None = None
    more_grades: int | None = None
    is_last: bool = False
    planned_grades: int | None = None

    def sentence(self, baseline: str, margin: float | None, n_grades: int, n_queries: int) -> str:
        """Return the answer in a sentence."""
        one = self.difference
        found = f"{one.value:+.4f}, interval {one.lower:+.4f} to {one.upper:+.4f}"
        if self.kind == "different":
            is_small = margin is not None and -margin < one.lower and one.upper < margin
            but = f", but not by more than {margin:g}" if is_small else ""
            return f"'{self.run}' and '{baseline}' are different{but} ({found})."
        if self.kind == "not-different":
            return f"'{self.run}' and '{baseline}' do not differ by more than {margin:g} ({found})."
        if self.is_last:
            return f"'{self.run}' and '{baseline}': no answer, and this was the last planned look ({found})."
        assert self.forecast is not None
        expected = self.forecast.sentence(n_grades, n_queries)
        if self.planned_grades is not None and (self.forecast.grades or np.inf) > self.planned_grades:
            expected += (
                f". The planned looks end at about {counted(self.planned_grades, 'expert grade')}, so that an answer "
                "is not likely"
            )
        return f"'{self.run}' and '{baseline}': go on ({found}); expected: {expected}."

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dictionary that JSON can represent."""
        forecast = None if self.forecast is None else self.forecast.to_dict()
        return {"run": self.run, "answer": self.kind, "forecast": forecast, "more_grades": self.more_grades}


def answer(
    run: str, difference: ContrastEstimate, p: float, *, alpha: float, margin: float | None, is_last: bool
) -> LookConclusion:
    """Return what a look concludes; the forecast is missing.

    Args:
        run: name of the run.
        difference: the difference with its interval of this look.
        p: p-value, adjusted for looks and runs.
        alpha: 1 - level.
        margin: largest difference that does not matter; None: none.
        is_last: whether no further look is planned.

    """
    if p <= alpha and (difference.lower > 0 or difference.upper < 0):
        return LookConclusion(run, "different", difference, is_last=is_last)
    if margin is not None and -margin < difference.lower and difference.upper < margin:
        return LookConclusion(run, "not-different", difference, is_last=is_last)
    return LookConclusion(run, "go-on", difference, is_last=is_last)


def half_width_to_decide(difference: ContrastEstimate, margin: float | None) -> float:
    """Return the half width of the interval at which the present difference gives an answer.

    >>> half_width_to_decide(ContrastEstimate(0.002, 0.0, 0.0, 1.0, 0.0), 0.01)
    0.008
    """
    size = abs(difference.value)
    return max(size, 0.0 if margin is None else margin - size, 1e-6)


def plan_look(
    *,
    looks: int | None,
    look: int | None,
    planned_grades: int | None,
    draw_sizes: Floats | None,
    n_grades: int,
    alpha: float,
) -> Look:
    """Return the present look with its bounds.

    Args:
        looks: planned number of looks at equal steps (O'Brien-Fleming); None: unplanned looks (Lan-DeMets).
        look: number of the present look; None: the number of draws.
        planned_grades: number of grades planned in all, for unplanned looks.
        draw_sizes: (n_draws,) number of grades of each draw; None if the grades were not drawn in several draws.
        n_grades: present number of grades.
        alpha: probability that any look finds a difference if there is none.

    Raises:
        UsageError: the looks are out of order, or it is not known which look this is.

    """
    number_of_looks, positive = Number(1, MAX_LOOKS, integer=True), Number(1, integer=True)
    for name, value, valid in (
        ("looks", looks, number_of_looks),
        ("look", look, number_of_looks),
        ("planned_grades", planned_grades, positive),
    ):
        if value is not None:
            check_parameter(name, value, [valid])
    if looks is not None and planned_grades is not None:
        problem = "is for looks that are not planned"
        raise UsageError(problem, parameter="planned_grades", fix=[Fix("leave it out"), Fix("leave out {}", "looks")])
    n_draws = None if draw_sizes is None else len(draw_sizes)
    if look is not None and n_draws is not None and look != n_draws:
        problem = f"is {look}, but the expert grades have {counted(n_draws, 'draw')}"
        raise UsageError(
            problem, parameter="look", kind="looks-out-of-order", fix="give the grades of all draws so far"
        )
    number = look if look is not None else n_draws
    if number is None:
        if looks != 1:
            problem = "is not known, because the expert grades have no draws"
            raise UsageError(problem, parameter="look", kind="look-unknown", fix=Fix("give it with {}", "look", 1))
        number = 1
    if looks is not None:
        if number > looks:
            problem = f"is {looks}, but this is look {number}; a look that was not planned finds differences too often"
            fixes = [f"keep the answer of look {looks}", "start a new comparison with expert grades of a new file"]
            raise UsageError(problem, parameter="looks", kind="looks-out-of-order", fix=fixes)
        return Look(number, looks, obrien_fleming_bounds(looks, alpha), np.arange(1, looks + 1) / looks, alpha)
    assert planned_grades is not None
    seen = np.arange(1, number + 1) * (n_grades / number) if draw_sizes is None else np.cumsum(draw_sizes)
    if number > 1 and seen[-2] >= planned_grades:
        problem = f"is {planned_grades:,}, but the look before had {seen[-2]:,.0f} grades, so that no look is left"
        raise UsageError(problem, parameter="planned_grades", kind="looks-out-of-order", fix="draw a new sample")
    fractions = np.minimum(seen / planned_grades, 1.0)
    return Look(number, None, lan_demets_bounds(fractions, alpha), fractions, alpha)


def check_draws(numbers: Floats, sizes: Floats) -> None:
    """Raise InputError if a draw is missing, so that the number of the look is not known."""
    problem = missing_draw(numbers, sizes)
    if problem is not None:
        raise InputError(problem, source="the expert grades", kind="looks-out-of-order", fix=MISSING_DRAW_FIXES)


MISSING_DRAW_FIXES = ("give the grades of all draws so far", "draw with a file without other judgments")
"""Advice if a draw is missing."""


def missing_draw(numbers: Floats, sizes: Floats) -> str | None:
    """Describe which draw is missing, the first or one between others; None if none is.

    Documents of a missing draw, and those that were judged before the first one, were not drawn again, so that their
    labels keep their bias.

    The judging service numbers draws 1, 2, 3. The number of a draw of `collect next` is that of the documents judged
    or requested before it, plus 1, so that it grows by at least the size of the draw before. It may grow by more if
    some documents were left ungraded, but by less than a further draw.

    Args:
        numbers: (n_draws,) ascending numbers of the draws.
        sizes: (n_draws,) number of grades of each draw.

    """
    if numbers[0] > 1:
        return f"the first draw is number {numbers[0]:.0f}: draws are missing, or documents were judged before it"
    steps = np.diff(numbers)
    missing = steps - np.where(steps < sizes[:-1], 1, sizes[:-1]) >= np.where(steps < sizes[:-1], 1, sizes.min())
    if not missing.any():
        return None
    place = int(np.argmax(missing))
    return f"draw {numbers[place + 1]:.0f} does not follow draw {numbers[place]:.0f}: a draw between is missing"
