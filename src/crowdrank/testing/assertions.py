"""Assertions for the contract checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank.errors import CrowdrankError


def frame_converters() -> list[Callable[[pd.DataFrame], Any]]:
    """Return functions that convert a pandas DataFrame to pandas, PyArrow and, if it is installed, Polars."""
    polars = [import_module("polars").from_pandas] if find_spec("polars") is not None else []
    return [lambda frame: frame, pa.Table.from_pandas, *polars]


class CaughtError:
    """Holder of the error that :func:`raises` caught, available after the block."""

    error: CrowdrankError


@contextmanager
def raises(
    error_class: type[CrowdrankError] | tuple[type[CrowdrankError], ...],
    situation: str,
    *,
    kind: str | None = None,
    parameter: str | None = None,
) -> Iterator[CaughtError]:
    """Raise AssertionError if the block does not raise an error of this class, kind and parameter.

    Args:
        error_class: expected class of the error, or several that are allowed.
        situation: what the block does, for the message of the AssertionError.
        kind: expected `kind` of the error.
        parameter: expected `parameter` of the error.

    """
    caught = CaughtError()
    class_names = " or ".join(
        one_class.__name__ for one_class in (error_class if isinstance(error_class, tuple) else (error_class,))
    )
    try:
        yield caught
    except CrowdrankError as raised:
        caught.error = error = raised
    else:
        raise AssertionError(f"{situation} must raise {class_names}")
    assert isinstance(error, error_class), f"{situation} must raise {class_names}, not {type(error).__name__}: {error}"
    assert kind in (None, error.kind), f"{situation} must raise an error of kind {kind}, not {error.kind}: {error}"
    assert parameter in (None, error.parameter), f"{situation} must raise an error about {parameter}: {error}"


@contextmanager
def record_warnings() -> Iterator[list[Any]]:
    """Return a list that holds the warnings raised in the block, once the block has ended."""
    messages: list[Any] = []
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        yield messages
    messages += [record.message for record in records]


def assert_frames_close(first: pd.DataFrame, second: pd.DataFrame, tolerance: float, situation: str) -> None:
    """Raise AssertionError if two DataFrames differ by more than a tolerance."""
    try:
        pd.testing.assert_frame_equal(first, second, check_exact=False, rtol=tolerance, atol=tolerance)
    except AssertionError as difference:
        raise AssertionError(f"{situation} must give the same table: {difference}") from difference


def assert_arrays_equal(first: Any, second: Any, situation: str) -> None:
    """Raise AssertionError if two arrays differ."""
    assert np.array_equal(first, second), f"{situation} must give the same values"
