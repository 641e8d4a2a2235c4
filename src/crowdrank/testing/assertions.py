"""Assertions that checks share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from crowdrank.errors import CrowdrankError


class Caught:
    """Error that :func:`raises` caught."""

    error: CrowdrankError


@contextmanager
def raises(
    expected: type[CrowdrankError] | tuple[type[CrowdrankError], ...],
    situation: str,
    *,
    kind: str | None = None,
    parameter: str | None = None,
) -> Iterator[Caught]:
    """Raise AssertionError unless the block raises an error of this class, kind and parameter.

    Args:
        expected: class of the error.
        situation: what the block does, for the message.
        kind: expected `kind` of the error.
        parameter: expected `parameter` of the error.

    """
    caught = Caught()
    names = " or ".join(one.__name__ for one in (expected if isinstance(expected, tuple) else (expected,)))
    try:
        yield caught
    except CrowdrankError as raised:
        caught.error = error = raised
    else:
        raise AssertionError(f"{situation} must raise {names}")
    assert isinstance(error, expected), f"{situation} must raise {names}, not {type(error).__name__}: {error}"
    assert kind in (None, error.kind), f"{situation} must raise an error of kind {kind}, not {error.kind}: {error}"
    assert parameter in (None, error.parameter), f"{situation} must raise an error about {parameter}: {error}"


@contextmanager
def recorded_warnings() -> Iterator[list[Any]]:
    """Collect the warnings of a block as a list of warning objects."""
    found: list[Any] = []
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        yield found
    found += [record.message for record in records]


def assert_frames_close(one: pd.DataFrame, other: pd.DataFrame, tolerance: float, situation: str) -> None:
    """Raise AssertionError unless two frames are equal up to a tolerance."""
    try:
        pd.testing.assert_frame_equal(one, other, check_exact=False, rtol=tolerance, atol=tolerance)
    except AssertionError as difference:
        raise AssertionError(f"{situation} must give the same table: {difference}") from difference


def assert_same(one: Any, other: Any, situation: str) -> None:
    """Raise AssertionError unless two arrays have the same values."""
    assert np.array_equal(one, other), f"{situation} must give the same values"
