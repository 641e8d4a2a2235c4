"""Checks of parameters that apply to every estimator, and assertion helpers of all checks."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._estimator import Estimator
from crowdrank._saved_estimators import FittedEstimator
from crowdrank.errors import CrowdrankError, NotFittedError, UsageError


def check_constructor_stores_parameters(estimator: Estimator) -> None:
    """Check that the constructor has a default for every parameter, and only stores the parameters."""
    cls = type(estimator)
    parameters = inspect.signature(cls).parameters
    for name, parameter in parameters.items():
        assert parameter.default is not inspect.Parameter.empty, f"the parameter {name} needs a default"
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    made = cls(**defaults)
    assert vars(made) == defaults, "the constructor must store its arguments under their names, and nothing else"
    assert made.get_params() == defaults, "get_params must return the arguments of the constructor"
    assert repr(made) == f"{cls.__name__}()", "repr must omit parameters that have their defaults"


def check_defaults_are_valid(estimator: Estimator) -> None:
    """Check that the default parameters, and those of this estimator, satisfy their constraints."""
    type(estimator)()._check_parameters()
    estimator._check_parameters()


def check_invalid_parameters_are_refused(estimator: Estimator) -> None:
    """Check that a plain `object()` is refused for every parameter that has a constraint."""
    for cls in type(estimator).__mro__:
        for name in vars(cls).get("_parameter_constraints", {}):
            if name in estimator._parameter_names():
                changed = estimator.unfitted().set_params(**{name: object()})
                with raises(UsageError, f"{name}=object()"):
                    changed._check_parameters()


def check_set_params_is_transactional(estimator: Estimator) -> None:
    """Check that set_params changes nothing if one of several names is unknown, and suggests a similar name."""
    before = estimator.get_params(deep=False)
    if not before:
        return
    longest_name = max(before, key=len)
    with raises(UsageError, "an unknown parameter", kind="unknown-parameter") as caught:
        estimator.set_params(**{longest_name: "changed", f"{longest_name}_": 1})
    assert estimator.get_params(deep=False) == before, "set_params must change all parameters or none"
    assert f"did you mean '{longest_name}'" in str(caught.error), "the error must suggest the closest name"
    with raises(UsageError, "a nested parameter that does not exist", kind="unknown-parameter"):
        estimator.set_params(**{f"{longest_name}__nothing": 1})


def check_unfitted_copy(estimator: Estimator) -> None:
    """Check that copies by `unfitted` and by scikit-learn's `clone` (if installed) have equal parameters."""
    copies: list[Any] = [estimator.unfitted()]
    if find_spec("sklearn") is not None:
        from sklearn.base import clone

        copies.append(clone(estimator))
    for copy in copies:
        assert copy is not estimator, "a copy must be another object"
        assert type(copy) is type(estimator), "a copy must be of the same class"
        assert repr(copy.get_params(deep=False)) == repr(estimator.get_params(deep=False)), "a copy must be equal"


def check_not_fitted_error(estimator: Estimator) -> None:
    """Check that saving before fit raises NotFittedError, and that scikit-learn sees the estimator as not fitted."""
    if not isinstance(estimator, FittedEstimator):
        return
    assert not estimator.__sklearn_is_fitted__(), "a new estimator must not count as fitted"
    with raises(NotFittedError, "saving an estimator that is not fitted", kind="not-fitted"):
        estimator.save("not-written")
    if find_spec("sklearn") is not None:
        import sklearn.exceptions
        from sklearn.utils.validation import check_is_fitted

        try:
            check_is_fitted(estimator)
        except sklearn.exceptions.NotFittedError:
            return
        raise AssertionError("check_is_fitted of scikit-learn must raise its NotFittedError")


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
    """Yield a list that holds the warnings of the `with` block after it has ended."""
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
