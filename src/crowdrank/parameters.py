"""Manners of scikit-learn, without its weight: the constructor's arguments, read and changed by name."""

from __future__ import annotations

import inspect
from typing import Any, Self

from crowdrank.errors import UsageError, near


class Parametrised:
    """Something whose constructor only stores its arguments under their names.

    >>> class Sum(Parametrised):
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
