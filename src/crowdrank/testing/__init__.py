"""Checks that an aggregator, ranker or policy satisfies its contract; for your own models, too.

    from crowdrank.testing import check_ranker

    def test_my_ranker():
        check_ranker(MyRanker)

Each check is a small function that raises AssertionError with a message. To see every check as a test of its own:

    @pytest.mark.parametrize("check", yield_checks(MyRanker), ids=str)
    def test_contract(check):
        check()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from crowdrank._estimator import Estimator
from crowdrank.collection.policy import Policy
from crowdrank.consensus.model import Aggregator
from crowdrank.rankers.ranker import Ranker
from crowdrank.testing import (
    aggregator_checks,
    estimator_checks,
    policy_checks,
    preference_checks,
    ranker_checks,
    robustness_checks,
)
from crowdrank.testing.ranker_checks import example_world

__all__ = ["Check", "check_aggregator", "check_policy", "check_ranker", "example_world", "yield_checks"]

CHECK_MODULES: dict[type[Estimator], tuple[ModuleType, ...]] = {
    Aggregator: (aggregator_checks, preference_checks, robustness_checks),
    Ranker: (ranker_checks,),
    Policy: (policy_checks,),
}
"""Modules with the checks of each base class; the checks of `estimator_checks` apply to all classes."""


@dataclass(frozen=True)
class Check:
    """A check together with the estimator to check; call it to run the check."""

    function: Callable[[Any], None]
    estimator: Estimator

    def __call__(self) -> None:
        """Run the check on an unfitted copy of the estimator; raise AssertionError if it fails."""
        self.function(self.estimator.unfitted())

    def __str__(self) -> str:
        return f"{type(self.estimator).__name__}-{self.function.__name__}"


def yield_checks(estimator: Any) -> Iterator[Check]:
    """Yield the checks that apply to an aggregator, ranker or policy.

    Args:
        estimator: a class whose constructor needs no arguments, or an instance; its parameters are used in all checks.

    Raises:
        TypeError: it is neither an aggregator nor a ranker nor a policy.

    >>> import crowdrank
    >>> str(next(yield_checks(crowdrank.GLS)))
    'GLS-check_constructor_stores_parameters'

    """
    instance = estimator() if isinstance(estimator, type) else estimator
    modules = [module for base, group in CHECK_MODULES.items() if isinstance(instance, base) for module in group]
    if not modules:
        raise TypeError(f"{estimator!r} is neither an Aggregator nor a Ranker nor a Policy")
    for module in (estimator_checks, *modules):
        functions = [function for name, function in vars(module).items() if name.startswith("check_")]
        yield from (Check(function, instance) for function in functions)


def check_aggregator(estimator: Any) -> None:
    """Raise AssertionError if an aggregator violates its contract.

    Args:
        estimator: a subclass of :class:`crowdrank.Aggregator`, or an instance.

    """
    _run_checks(estimator, Aggregator)


def check_ranker(estimator: Any) -> None:
    """Raise AssertionError if a ranker violates its contract.

    Args:
        estimator: a subclass of :class:`crowdrank.Ranker`, or an instance. The checks fit it many times to
            :func:`example_world`; give an instance with few trees or epochs to save time.

    """
    _run_checks(estimator, Ranker)


def check_policy(estimator: Any) -> None:
    """Raise AssertionError if a policy violates its contract.

    Args:
        estimator: a subclass of :class:`crowdrank.Policy`, or an instance.

    """
    _run_checks(estimator, Policy)


def _run_checks(estimator: Any, base_class: type[Estimator]) -> None:
    cls = estimator if isinstance(estimator, type) else type(estimator)
    assert issubclass(cls, base_class), f"{cls.__name__} is not a subclass of {base_class.__name__}"
    for check in yield_checks(estimator):
        try:
            check()
        except AssertionError as failure:
            raise AssertionError(f"{check} failed: {failure}") from failure
