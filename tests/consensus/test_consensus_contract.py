"""Every aggregator keeps its contract; the classes are found by introspection."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank.consensus
from crowdrank import Aggregator, Auto, get_aggregator
from crowdrank.consensus import METHODS
from crowdrank.consensus.votes import _Vote
from crowdrank.errors import UsageError
from crowdrank.testing import Check, yield_checks


def every_aggregator() -> list[type[Aggregator]]:
    for module in pkgutil.iter_modules(crowdrank.consensus.__path__):
        importlib.import_module(f"crowdrank.consensus.{module.name}")
    found: list[type[Any]] = [Aggregator]
    for cls in found:  # grows while it is read
        found += cls.__subclasses__()
    public = {cls for cls in found if not inspect.isabstract(cls) and not cls.__name__.startswith("_")}
    own = [cls for cls in public if cls.__module__.startswith("crowdrank.")]
    return sorted(own, key=lambda cls: cls.__name__)


AGGREGATORS = every_aggregator()
VOTES = [cls for cls in AGGREGATORS if issubclass(cls, _Vote)]
FEW_CANDIDATES = Auto(candidates=("average", "one-coin", "gda"), folds=3)
"""The checks fit each candidate of Auto to all folds, dozens of times."""
CHECKS = [check for cls in AGGREGATORS for check in yield_checks(FEW_CANDIDATES if cls is Auto else cls)]


def test_the_command_line_knows_every_aggregator() -> None:
    assert {type(get_aggregator(name)) for name in METHODS} == set(AGGREGATORS)
    with pytest.raises(UsageError) as caught:
        get_aggregator("dawid")
    assert caught.value.kind == "unknown-name"
    assert "did you mean 'dawid-skene'" in str(caught.value)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_aggregators_keep_their_contract(check: Check) -> None:
    check()


@pytest.mark.parametrize("cls", VOTES)
@settings(max_examples=25, deadline=None)
@given(grade=st.integers(0, 4), voters=st.integers(1, 7))
def test_unanimity_wins(cls: type[Aggregator], grade: int, voters: int) -> None:
    frame = pd.DataFrame({"document": "d", "assessor": [f"w{number}" for number in range(voters)], "grade": grade})
    other = pd.DataFrame({"document": "e", "assessor": ["w0", "w1"], "grade": [0, 4]})
    table = cls().fit(pd.concat([frame, other])).consensus_.document_table.to_pandas().set_index("document")
    row = table.loc["d"]
    assert row["grade"] == grade == row["relevance"]
    assert row["sd"] > 0, "a few votes are not certain"
