"""Checks that an aggregator, ranker or policy keeps its contract, for authors of models outside of crowdrank too.

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
from typing import Any

from crowdrank._base import Estimator
from crowdrank.collection.base import Policy
from crowdrank.consensus.base import Aggregator
from crowdrank.rankers.base import Ranker
from crowdrank.testing import aggregator_checks, estimator_checks, policy_checks, ranker_checks
from crowdrank.testing.ranker_checks import example_world

__all__ = ["Check", "check_aggregator", "check_policy", "check_ranker", "example_world", "yield_checks"]

CHECKS: dict[type[Estimator], tuple[Callable[[Any], None], ...]] = {
    Aggregator: aggregator_checks.CHECKS,
    Ranker: ranker_checks.CHECKS,
    Policy: policy_checks.CHECKS,
}
"""Checks by the base class of what they check; those of `estimator_checks` apply to all."""


@dataclass(frozen=True)
class Check:
    """A check of one estimator; calling it raises AssertionError if the estimator fails it."""

    function: Callable[[Any], None]
    estimator: Estimator

    def __call__(self) -> None:
        """Run the check on an unfitted copy of the estimator."""
        self.function(self.estimator.unfitted())

    def __str__(self) -> str:
        return f"{type(self.estimator).__name__}-{self.function.__name__}"


def yield_checks(estimator: Any) -> Iterator[Check]:
    """Yield the checks that apply to an aggregator, ranker or policy.

    Args:
        estimator: a class that needs no arguments, or an instance, whose parameters the checks use.

    Raises:
        TypeError: it is neither an aggregator nor a ranker nor a policy.

    >>> import crowdrank
    >>> str(next(yield_checks(crowdrank.GLS)))
    'GLS-check_constructor_stores_parameters'

    """
    instance = estimator() if isinstance(estimator, type) else estimator
    own = [checks for base, checks in CHECKS.items() if isinstance(instance, base)]
    if not own:
        raise TypeError(f"{estimator!r} is neither an Aggregator nor a Ranker nor a Policy")
    for function in (*estimator_checks.CHECKS, *own[0]):
        yield Check(function, instance)


def check_aggregator(estimator: Any) -> None:
    """Raise AssertionError unless an aggregator keeps its contract.

    Args:
        estimator: a subclass of :class:`crowdrank.Aggregator`, or an instance.

    """
    _run_checks(estimator, Aggregator)


def check_ranker(estimator: Any) -> None:
    """Raise AssertionError unless a ranker keeps its contract.

    Args:
        estimator: a subclass of :class:`crowdrank.Ranker`, or an instance. The checks fit it many times to
            :func:`example_world`; give an instance with few trees or epochs to save time.

    """
    _run_checks(estimator, Ranker)


def check_policy(estimator: Any) -> None:
    """Raise AssertionError unless a policy keeps its contract.

    Args:
        estimator: a subclass of :class:`crowdrank.Policy`, or an instance.

    """
    _run_checks(estimator, Policy)


def _run_checks(estimator: Any, base: type[Estimator]) -> None:
    cls = estimator if isinstance(estimator, type) else type(estimator)
    assert issubclass(cls, base), f"{cls.__name__} is not a subclass of {base.__name__}"
    for check in yield_checks(estimator):
        try:
            check()
        except AssertionError as failure:
            raise AssertionError(f"{check} failed: {failure}") from failure
