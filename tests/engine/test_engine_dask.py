"""Passes on a real cluster of two processes: the same answers, whatever becomes of the workers."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank import Aggregator, DaskEngine, Judgments, LocalEngine, read_judgments, simulate
from crowdrank.consensus import METHODS, model_class
from crowdrank.engine import dask as dask_module
from crowdrank.engine.sums import joined, parts, subtrees, tree_sum

SIZE = 40
"""Judgments in a shard: so few that the small world has many."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskEngine]:
    with DaskEngine(workers=2, shard_size=SIZE, dashboard=False) as engine:
        yield engine


@pytest.fixture(scope="module")
def labels() -> Judgments:
    return read_judgments(simulate(queries=12, documents=8, seed=3).judgments)


def fitted(method: str, labels: Judgments, engine: Any, **options: Any) -> Aggregator:
    model = model_class(method)()
    if "n_iter" in model.get_params():
        model.set_params(n_iter=4, tol=0.0)
    if method == "auto":
        model.set_params(candidates=("average", "majority"), folds=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(labels, engine=engine, **options)


def tables(model: Aggregator) -> list[pd.DataFrame]:
    return [model.consensus_.document_table.to_pandas(), model.consensus_.assessor_table.to_pandas()]


def assert_same(one: Aggregator, other: Aggregator) -> None:
    for mine, theirs in zip(tables(one), tables(other), strict=True):
        pd.testing.assert_frame_equal(mine, theirs, check_exact=True)
    assert one.history_ == other.history_ or np.isnan(one.history_).all()


# The tree of sums.


@given(n=st.integers(1, 200), among=st.integers(1, 20))
def test_any_parts_add_up_in_the_same_tree(n: int, among: int) -> None:
    runs = parts(n, among)
    assert [run[0] for run in runs] + [n] == [0, *(run[1] for run in runs)]
    assert len(runs) <= among
    values = np.random.default_rng(n).normal(size=n) * 10.0 ** np.arange(-100, 100)[:n]
    whole = tree_sum(({"x": values[i : i + 1].copy()} for i in range(n)), n)["x"]
    sums = {}
    for run in runs:
        for first, last in subtrees(n, run):
            held = ({"x": values[i : i + 1].copy()} for i in range(first, last))
            sums[first, last] = tree_sum(held, last - first)["x"]
    assert joined(sums, (0, n), np.add) == whole


@given(n=st.integers(64, 5000), among=st.integers(1, 8))
def test_parts_are_of_one_size_and_few_subtrees(n: int, among: int) -> None:
    runs = parts(n, among)
    sizes = [last - first for first, last in runs]
    assert max(sizes) <= 1.2 * n / among + 2
    assert max(len(subtrees(n, run)) for run in runs) <= 2 * (among.bit_length() + 3)


# The same answers.


@pytest.mark.parametrize("method", METHODS)
def test_the_same_shards_give_the_same_bytes(method: str, cluster: DaskEngine, labels: Judgments) -> None:
    assert_same(fitted(method, labels, cluster), fitted(method, labels, LocalEngine(shard_size=SIZE)))


@pytest.mark.parametrize("method", METHODS)
def test_other_shards_give_the_same_to_rounding(method: str, cluster: DaskEngine, labels: Judgments) -> None:
    there, here = fitted(method, labels, cluster), fitted(method, labels, LocalEngine())
    for mine, theirs in zip(tables(there), tables(here), strict=True):
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-8, atol=1e-8)


def test_experts_and_other_threads_too(cluster: DaskEngine) -> None:
    world = simulate(queries=12, documents=8, gold_queries=6, seed=3)
    for method in ("gda", "gda-pairwise"):
        here = fitted(method, world.judgments, LocalEngine(2, SIZE), gold=world.gold)
        assert_same(fitted(method, world.judgments, cluster, gold=world.gold), here)


def test_a_checkpoint_of_one_engine_goes_on_on_the_other(cluster: DaskEngine, labels: Judgments, tmp_path: Any) -> None:
    def interrupted(iteration: int, most: int, objective: float) -> None:
        if iteration == 2:
            raise KeyboardInterrupt

    for method in ("glad", "dawid-skene"):
        whole = fitted(method, labels, LocalEngine(shard_size=SIZE))
        for first, second in ((cluster, LocalEngine(shard_size=SIZE)), (LocalEngine(shard_size=SIZE), cluster)):
            with pytest.raises(KeyboardInterrupt):
                fitted(method, labels, first, checkpoint=tmp_path / "kept", progress=interrupted)
            assert_same(fitted(method, labels, second, checkpoint=tmp_path / "kept"), whole)


# What goes wrong.


@pytest.mark.parametrize("method", ["dawid-skene", "glad"])
def test_a_killed_worker_costs_time_and_nothing_else(
    method: str, cluster: DaskEngine, labels: Judgments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_module, "COPY_EVERY", 2)
    whole = fitted(method, labels, LocalEngine(shard_size=SIZE))
    killed = []

    def kill(iteration: int, most: int, objective: float) -> None:
        if iteration == 3:
            victim = cluster.client.run(os.getpid)
            killed.append(victim[max(victim)])
            os.kill(killed[-1], signal.SIGKILL)

    assert_same(fitted(method, labels, cluster, progress=kill), whole)
    assert killed
    assert killed[0] not in cluster.client.run(os.getpid).values()


def test_what_the_scheduler_remembers_does_not_grow(cluster: DaskEngine, labels: Judgments) -> None:
    seen = []

    def count(iteration: int, most: int, objective: float) -> None:
        seen.append(cluster.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    fitted("dawid-skene", labels, cluster, progress=count)
    fitted("glad", labels, cluster, progress=count)
    assert max(seen) <= min(seen) + 12
