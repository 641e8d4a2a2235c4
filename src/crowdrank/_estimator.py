"""Base class of estimators: access to parameters by name, and compatibility with scikit-learn."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from crowdrank.constraints import Constraint, Constraints, Number, OneOf, check_parameter
from crowdrank.errors import NotFittedError, UsageError, near, shown

OPTION_NAMES = {
    "random_state": "seed",
    "n_jobs": "threads",
    "eval_set": "validation",
    "trusted_proxies": "trusted_proxy",
}
"""Option name (command line and TOML files) of each Python parameter whose option has a different name."""


def require_integer(name: str, value: object, minimum: int) -> None:
    """Raise UsageError unless a parameter's value is an integer of at least `minimum`."""
    check_parameter(name, value, [Number(minimum, integer=True)])


def require_number(name: str, value: object, minimum: float, *, exclusive: bool = False) -> None:
    """Raise UsageError unless a parameter's value is finite and at least (if `exclusive`: above) `minimum`."""
    check_parameter(name, value, [Number(minimum, above=exclusive)])


def require_one_of(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise UsageError unless a parameter's value is one of the choices."""
    check_parameter(name, value, [OneOf(*choices)])


class Estimator:
    """Base class of all estimators; compatible with scikit-learn, which need not be installed.

    A subclass stores the arguments of its constructor under their names and does nothing else there. It declares the
    valid values in `_parameter_constraints`; constraints of base classes apply too. Attributes that a fit sets end
    with an underscore.

    >>> class Ridge(Estimator):
    ...     _parameter_constraints = {"mu": [Number(0)], "solver": [OneOf("cholesky", "svd")]}
    ...
    ...     def __init__(self, mu=1.0, solver="cholesky"):
    ...         self.mu, self.solver = mu, solver
    >>> Ridge(mu=2), Ridge().set_params(solver="svd").get_params()
    (Ridge(mu=2), {'mu': 1.0, 'solver': 'svd'})
    >>> Ridge(mu=-1)._check_parameters()
    Traceback (most recent call last):
    crowdrank.errors.UsageError: mu must be a number of at least 0, not -1.
    """

    _parameter_constraints: ClassVar[Constraints] = {}
    _metadata_request: dict[str, dict[str, bool | str | None]]
    """Metadata routing requests of scikit-learn by method, as set by `set_fit_request` and its siblings."""

    # Parameters.

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor.

        Args:
            deep: include the parameters of nested estimators, as `ranker__n_estimators`, or `members__0__mu`
                for estimators in a list.

        """
        parameters = {name: getattr(self, name) for name in self._parameter_names()}
        if deep:
            for name, value in list(parameters.items()):
                for path, estimator in _nested_estimators(name, value):
                    parameters |= {f"{path}__{inner}": one for inner, one in estimator.get_params().items()}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of the constructor; if a name is unknown, change nothing.

        Raises:
            UsageError: there is no parameter of that name.

        """
        for estimator, name, value in list(self._assignments(parameters)):
            setattr(estimator, name, value)
        return self

    def _assignments(self, parameters: Mapping[str, Any]) -> Iterator[tuple[Estimator, str, Any]]:
        """Yield the estimator, name and value of every parameter to set; raise UsageError for an unknown name."""
        nested_parameters: dict[str, dict[str, Any]] = {}
        for path, value in parameters.items():
            name, _, rest = path.partition("__")
            if name not in self._parameter_names():
                raise self._unknown_parameter(name)
            if rest:
                nested_parameters.setdefault(name, {})[rest] = value
            else:
                yield self, name, value
        for name, nested in nested_parameters.items():
            for path, estimator in _nested_estimators(name, parameters.get(name, getattr(self, name))):
                prefix = path[len(name) + 2 :] + "__" if path != name else ""
                own = [one for one in nested if one.startswith(prefix)]
                yield from estimator._assignments({one.removeprefix(prefix): nested.pop(one) for one in own})
            if nested:
                raise UsageError(f"has no parameter {shown(min(nested))}", parameter=name, kind="unknown-parameter")

    def _unknown_parameter(self, name: str) -> UsageError:
        known = self._parameter_names()
        return UsageError(
            f"{type(self).__name__} has no parameter '{name}'{near(name, known)}; it has: {', '.join(known)}",
            kind="unknown-parameter",
        )

    def _check_parameters(self) -> None:
        """Raise UsageError unless every parameter has a valid value; a subclass may add checks of combinations."""
        names = set(self._parameter_names())
        constraints: dict[str, Sequence[Constraint | None]] = {}
        for cls in reversed(type(self).__mro__):
            constraints |= vars(cls).get("_parameter_constraints", {})
        for name, alternatives in constraints.items():
            if name in names:
                check_parameter(name, getattr(self, name), alternatives)

    def __repr__(self) -> str:
        # Compared as text: arrays and models among the values have no simple equality.
        defaults = {name: repr(one.default) for name, one in inspect.signature(type(self).__init__).parameters.items()}
        parameters = self.get_params(deep=False)
        changed = [f"{name}={value!r}" for name, value in parameters.items() if repr(value) != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    # scikit-learn.

    def unfitted(self) -> Self:
        """Return an unfitted copy with the same parameters; nested estimators are copied unfitted too."""
        kept = self._fitted_parameters()
        parameters = self.get_params(deep=False)
        made = type(self)(**{name: one if name in kept else _unfitted_copy(one) for name, one in parameters.items()})
        if "_metadata_request" in vars(self):
            made._metadata_request = copy.deepcopy(self._metadata_request)
        return made

    def _fitted_parameters(self) -> tuple[str, ...]:
        """Return the names of parameters that hold a fitted estimator, which `unfitted` shares instead of copying."""
        return ()

    def __sklearn_clone__(self) -> Self:
        return self.unfitted()

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the estimator is fitted: it has a public attribute that ends with an underscore."""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")


def _nested_estimators(name: str, value: object) -> Iterator[tuple[str, Estimator]]:
    """Yield each estimator in a parameter's value (itself or a list item) with the prefix of its parameter names."""
    if isinstance(value, Estimator):
        yield name, value
    elif isinstance(value, list | tuple):
        yield from ((f"{name}__{place}", one) for place, one in enumerate(value) if isinstance(one, Estimator))


def _unfitted_copy(value: Any) -> Any:
    if isinstance(value, Estimator):
        return value.unfitted()
    if isinstance(value, list | tuple):
        return type(value)(map(_unfitted_copy, value))
    return copy.deepcopy(value)


def load_estimator_class(package: str, class_path: str) -> Any:
    """Import and return a class of a crowdrank package by its path in the package, such as `gda.GDA`.

    >>> load_estimator_class("consensus", "votes.Average").__name__
    'Average'
    """
    module, name = class_path.split(".")
    return getattr(importlib.import_module(f"crowdrank.{package}.{module}"), name)


def unknown_name_error(category: str, name: str, known_names: Iterable[str]) -> UsageError:
    """Return the error for an unknown name of a category such as "ranker"; it lists the known names."""
    known_names = list(known_names)
    return UsageError(
        f"There is no {category} {shown(name)}{near(name, known_names)}; take one of: {', '.join(known_names)}",
        kind="unknown-name",
    )
