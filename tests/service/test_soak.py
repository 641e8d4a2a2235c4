"""The soak of the judging service, short and in this process: its checks, and that they can fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from benchmarks.soak import (
    PROJECT,
    Checkpoint,
    Judge,
    Soak,
    SoakedService,
    check_leases,
    check_memory,
    check_model,
    check_size,
    create_soak_project,
)
from crowdrank.service.model.refits import Refits
from crowdrank.service.store import schema
from tools.local_service import START, open_service

HOURS = 0.6


@pytest.fixture
def soaked(tmp_path: Path) -> Iterator[Soak]:
    """Return a soak after some simulated work of three judges."""
    clock = SimpleNamespace(value=START)
    with ExitStack() as stack:
        service = stack.enter_context(open_service(tmp_path / "judging.db", lambda: int(clock.value)))
        tokens = create_soak_project(service.database, 3, n_queries=2)
        judges = [Judge(stack.enter_context(service.client(token, PROJECT)), 0.8) for token in tokens]
        soaked = Soak(SoakedService(service.url, os.getpid(), clock), service.database, judges, 0)
        soaked.run(HOURS)
        yield soaked


def test_no_lease_is_lost_and_checks_see_it_if_one_is(soaked: Soak) -> None:
    assert all(result.met for result in check_leases(soaked))
    assert soaked.counts["answers: grade"] > 20
    assert soaked.checkpoints[-1].events > 20
    soaked.judges[0].held.clear()
    lost, _, _ = check_leases(soaked)
    assert lost.ratio == 0  # the judge asked again, and has its lease back
    taken = update(schema.quota).values(taken=schema.quota.c.taken + 1)
    soaked.database.write(lambda connection: connection.execute(taken))
    lease = soaked.judges[0].held.popitem()
    soaked.judges[1].held |= {"unknown": lease[1]}
    lost, expired, violations = check_leases(soaked)
    assert (lost.ratio, expired.ratio, violations.ratio) == (1, 0, 1)
    assert not lost.met


def test_the_model_must_be_fitted_in_the_background(soaked: Soak) -> None:
    assert not check_model(soaked).met
    Refits(soaked.database).run_due()
    assert check_model(soaked).ratio == 0
    soaked.service.clock.value += 2 * 3_600_000
    assert check_model(soaked).ratio == 2
    assert not check_model(soaked).met


def checkpoints(memory: list[float], size: list[float]) -> list[Checkpoint]:
    numbered = enumerate(zip(memory, size, strict=True), start=1)
    return [Checkpoint(hour, 100 * hour, round(1000 * one), round(1000 * other)) for hour, (other, one) in numbered]


def test_memory_is_compared_with_that_after_a_quarter_of_the_time() -> None:
    found = check_memory(checkpoints([200, 100, 105, 106, 107, 108, 109, 109], [1] * 8))
    assert found.ratio == pytest.approx(1.09)
    assert found.met
    assert not check_memory(checkpoints([100, 100, 105, 120], [1] * 4)).met


def test_the_size_of_the_database_must_be_linear_in_events() -> None:
    assert check_size(checkpoints([1] * 5, [1, 2, 3, 4, 5]), {}).ratio == pytest.approx(0, abs=1e-9)
    assert check_size(checkpoints([1] * 5, [1, 2, 3, 4, 5]), {}).details["bytes_per_event"] == pytest.approx(10)
    assert not check_size(checkpoints([1] * 5, [1, 2, 4, 8, 16]), {}).met
