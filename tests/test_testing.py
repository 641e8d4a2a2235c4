"""The public contract checks: models on the page for authors pass, models that break a rule fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdrank import GLS, MajorityVote
from crowdrank.collection.schemes import Scheme
from crowdrank.testing import check_aggregator, check_policy, check_ranker, yield_checks

PAGE = Path(__file__).parent.parent / "docs" / "own-models.md"


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """Return the classes that the page defines."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "own_models"}
    for block in blocks:
        if "\nclass " in block:
            exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_models_on_the_page_keep_their_contract(models: dict[str, Any]) -> None:
    check_aggregator(models["WeightedMean"])
    check_ranker(models["Correlation"])
    check_policy(models["FewestLabels"])


class StoresMore(GLS):
    def __init__(self, mu: float = 1.0, *, random_state: int = 0) -> None:
        super().__init__(mu, random_state=random_state)


class IgnoresLabels(GLS):
    def _score(self, X: Any, query: Any = None) -> Any:
        return np.zeros(len(X))


class ForgetsState(GLS):
    def _restore(self, state: Any) -> None:
        super()._restore(state)
        self.coef_ = self.coef_ * 2


@pytest.mark.parametrize(
    ("cls", "check", "message"),
    [
        (StoresMore, "check_constructor_stores_parameters", "must store its arguments"),
        (IgnoresLabels, "check_learns_to_rank", "for constant scores"),
        (ForgetsState, "check_save_and_load", "load must give the same values"),
    ],
)
def test_a_ranker_that_breaks_a_rule_fails_its_check(cls: type[GLS], check: str, message: str) -> None:
    with pytest.raises(AssertionError, match=f"{cls.__name__}-{check} failed: .*{message}"):
        check_ranker(cls)


class DependsOnOrder(MajorityVote):
    def _relevance(self, votes: Any, values: Any) -> Any:
        return super()._relevance(votes, values) + np.linspace(0, 0.1, len(votes))


class AsksAgain(Scheme):
    def n_missing(self, n_labels: Any, first_is_good: Any, all_are_good: Any) -> Any:
        return np.ones(len(n_labels), np.int64)


def test_other_models_that_break_a_rule_fail_their_checks() -> None:
    with pytest.raises(AssertionError, match="DependsOnOrder-"):
        check_aggregator(DependsOnOrder)
    asks_again = next(check for check in yield_checks(AsksAgain) if check.function.__name__ == "check_first_labels")
    asks_again()  # its first round is that of every policy
    with pytest.raises(AssertionError, match="is not a subclass of Policy"):
        check_policy(GLS)
    with pytest.raises(TypeError, match="neither an Aggregator"):
        next(yield_checks(object))
