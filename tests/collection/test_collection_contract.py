"""Every policy keeps its contract; the classes are found by introspection."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import crowdrank
from crowdrank import Policy, get_policy
from crowdrank.collection import POLICIES
from crowdrank.collection.pool import ANYONE, Pool
from crowdrank.collection.requests import Budget
from crowdrank.collection.schemes import Scheme
from crowdrank.errors import UsageError
from crowdrank.testing import Check, yield_checks
from crowdrank.testing.policy_checks import example_judgments


def policy_classes() -> set[type[Policy]]:
    for module in pkgutil.iter_modules(crowdrank.collection.__path__):
        importlib.import_module(f"crowdrank.collection.{module.name}")
    found: list[type[Any]] = [Policy]
    for cls in found:  # grows in the loop
        found += cls.__subclasses__()
    return {cls for cls in found if not inspect.isabstract(cls) and cls.__module__.startswith("crowdrank.")}


EVERY = {name: get_policy(name[:-1] + "3" if name.endswith("k") else name) for name in POLICIES}
CHECKS = [pytest.param(check, id=f"{name}-{check}") for name, policy in EVERY.items() for check in yield_checks(policy)]


@pytest.mark.parametrize("check", CHECKS)
def test_policies_keep_their_contract(check: Check) -> None:
    check()


def test_every_name_makes_a_policy_and_every_policy_has_a_name() -> None:
    assert {type(policy) for policy in EVERY.values()} == policy_classes()
    with pytest.raises(UsageError) as caught:
        get_policy("overlap-0")
    assert caught.value.parameter == "k"


def test_requests_for_anyone_have_the_price_of_their_kind() -> None:
    judgments = example_judgments()
    budget = Budget(10, prices={"expert": 2.5}, kind="expert")
    asked = Scheme("overlap", 6).next(Pool.of(judgments), judgments, None, budget)
    assert len(asked) == 4
    assert asked.by_kind() == {"expert": (4, 10.0)}
    assert set(asked.assessor.tolist()) == {ANYONE}


def test_bad_terms_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"most": 0}, {"honeypots": 1.0}, {"honeypots": -0.1}, {"kind": "robot"}]
    for options in (*wrong, {"prices": {"robot": 1}}):
        with pytest.raises(UsageError):
            Budget(5, **options)
