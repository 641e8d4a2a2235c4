"""Labels of data sets larger than memory: each label is a function of its number, so that parts can be drawn alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._numba import njit


@njit(nogil=True)
def mix_bits(number: Any) -> Any:
    """Return a 64-bit hash of a number (splitmix64)."""
    h = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@njit(nogil=True)
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
    """Write the assessor and the grade of each item in each turn; no assessor judges an item twice.

    True grades, the accuracy of assessors (0.5 to 0.95) and labels are functions of item, turn and seed. Most wrong
    labels are one grade off.
    """
    # item, turn, assessor, grade (n,); turn < n_turns <= n_assessors; the last two are outputs
    base, share = mix_bits(seed), 1.0 / 2.0**53
    for row in range(len(item)):
        of_item = mix_bits(np.uint64(item[row]) ^ base)
        # Beginning at a position that depends on the item, each turn takes one assessor from its own range.
        stride = np.uint64(n_assessors // n_turns)
        place = (of_item % np.uint64(n_assessors) + np.uint64(turn[row]) * stride) % np.uint64(n_assessors)
        place = (place + mix_bits(of_item + np.uint64(7 + turn[row])) % stride) % np.uint64(n_assessors)
        assessor[row] = place
        truth = np.int64(mix_bits(of_item + np.uint64(1)) % np.uint64(n_grades))
        skill = 0.5 + 0.45 * (mix_bits(place ^ base) >> np.uint64(11)) * share
        drawn = mix_bits(of_item ^ (np.uint64(turn[row] + 1) << np.uint64(40)))
        if (drawn >> np.uint64(11)) * share < skill:
            grade[row] = truth
            continue
        wrong = mix_bits(drawn)
        off = np.int64(1) if wrong & np.uint64(1) else np.int64(-1)
        if truth + off < 0 or truth + off >= n_grades:
            off = -off
        near = wrong & np.uint64(6)
        grade[row] = truth + off if near else np.int64((wrong >> np.uint64(8)) % np.uint64(n_grades))


@njit(nogil=True)
def write_digits(numbers: NDArray[np.int64], prefix: int, text: NDArray[np.uint8]) -> None:
    """Write each number as text: a letter and digits with leading zeros."""
    # numbers (n,); text (n, width) is the output
    width = text.shape[1]
    for row in range(len(numbers)):
        text[row, 0] = prefix
        rest = numbers[row]
        for place in range(width - 1, 0, -1):
            text[row, place] = 48 + rest % 10
            rest //= 10
