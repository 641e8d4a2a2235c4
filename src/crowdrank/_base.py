"""Estimator parameters: read, set and checked by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, Self

from crowdrank.errors import UsageError, near, shown

OPTION_NAMES = {"random_state": "seed", "n_jobs": "threads"}
"""Names on the command line and in TOML files of parameters that have another name in Python."""


class Parametrized:
    """Something whose constructor only stores its arguments under their names.

    >>> class Sum(Parametrized):
    ...     def __init__(self, start=0, step=1):
    ...         self.start, self.step = start, step
    >>> Sum(step=2), Sum().set_params(start=5).get_params()
    (Sum(step=2), {'start': 5, 'step': 1})
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change constructor arguments."""
        for name, value in parameters.items():
            if name not in self._parameter_names():
                meant, listed = near(name, self._parameter_names()), ", ".join(self._parameter_names())
                raise UsageError(f"{type(self).__name__} has no parameter '{name}'{meant}; it has: {listed}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        # By their words: arrays and models among the arguments have no plain equality.
        usual = {name: repr(one.default) for name, one in inspect.signature(type(self).__init__).parameters.items()}
        told = [f"{name}={value!r}" for name, value in self.get_params().items() if repr(value) != usual[name]]
        return f"{type(self).__name__}({', '.join(told)})"


def require_whole(name: str, value: object, low: int) -> None:
    """Raise UsageError unless the value is a whole number of at least `low`."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < low:  # type: ignore[operator]
        raise UsageError(f"must be a whole number of at least {low}, not {shown(value)}", parameter=name)


def require_number(name: str, value: object, low: float, *, above: bool = False) -> None:
    """Raise UsageError unless the value is a finite number of at least `low` (or above `low`)."""
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < low or (above and value == low):  # type: ignore[operator]
        bound = f"above {low:g}" if above else f"of at least {low:g}"
        raise UsageError(f"must be a number {bound}, not {shown(value)}", parameter=name)


def require_one_of(name: str, value: object, known: Iterable[object]) -> None:
    """Raise UsageError unless the value is one of the known values."""
    known = tuple(known)
    if value not in known:
        listed = ", ".join(map(str, known))
        raise UsageError(f"must be one of {listed}, not {shown(value)}{near(value, known)}", parameter=name)
