"""Labels of worlds too large to hold: each a function of its number, so that any part can be drawn on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from crowdrank._numba import njit


@njit(cache=True, nogil=True)
def mixed(number: Any) -> Any:
    """A number's bits well mixed (splitmix64)."""
    h = uint64(number) + uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> uint64(27))) * uint64(0x94D049BB133111EB)
    return h ^ (h >> uint64(31))


@njit(cache=True, nogil=True)
def draw_labels(
    item: NDArray[np.int64],
    turn: NDArray[np.int64],
    n_turns: int,
    n_assessors: int,
    n_grades: int,
    seed: int,
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
) -> None:
    """Who judges each item in each turn, and how; nobody judges an item twice.

    An item's true grade, an assessor's chance of being right (a half to nearly one) and every answer come from their
    numbers alone; who is wrong is mostly a step off.
    """
    # item, turn, assessor, grade (n,); turn < n_turns <= n_assessors; the last two are written
    base, share = mixed(seed), 1.0 / 2.0**53
    for row in range(len(item)):
        of_item = mixed(uint64(item[row]) ^ base)
        # From a place of the item's own on, the assessors are cut into as many stretches as turns: one of each.
        stride = uint64(n_assessors // n_turns)
        place = (of_item % uint64(n_assessors) + uint64(turn[row]) * stride) % uint64(n_assessors)
        place = (place + mixed(of_item + uint64(7 + turn[row])) % stride) % uint64(n_assessors)
        assessor[row] = place
        truth = np.int64(mixed(of_item + uint64(1)) % uint64(n_grades))
        skill = 0.5 + 0.45 * (mixed(place ^ base) >> uint64(11)) * share
        drawn = mixed(of_item ^ (uint64(turn[row] + 1) << uint64(40)))
        if (drawn >> uint64(11)) * share < skill:
            grade[row] = truth
            continue
        wrong = mixed(drawn)
        off = np.int64(1) if wrong & uint64(1) else np.int64(-1)
        if truth + off < 0 or truth + off >= n_grades:
            off = -off
        near = wrong & uint64(6)
        grade[row] = truth + off if near else np.int64((wrong >> uint64(8)) % uint64(n_grades))


@njit(cache=True, nogil=True)
def write_digits(numbers: NDArray[np.int64], prefix: int, text: NDArray[np.uint8]) -> None:
    """The text of each number: a letter and as many digits as there is room for."""
    # numbers (n,); text (n, width) is written
    width = text.shape[1]
    for row in range(len(numbers)):
        text[row, 0] = prefix
        rest = numbers[row]
        for place in range(width - 1, 0, -1):
            text[row, place] = 48 + rest % 10
            rest //= 10
