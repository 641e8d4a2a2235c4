"""Checks of parameters, which apply to every estimator."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

from crowdrank._base import Estimator
from crowdrank._model_io import FittedEstimator
from crowdrank.errors import NotFittedError, UsageError
from crowdrank.testing.assertions import raises


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
