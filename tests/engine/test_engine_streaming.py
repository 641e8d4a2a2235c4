"""The local engine over shards on disk: order, bounds, and what is carried from pass to pass."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdrank._numba import map_in_order
from crowdrank.engine.passes import FileStates, LocalPasses, report_progress, tree_sum


class Shards:
    """Shards that are numbers; counts how many are held at a time."""

    def __init__(self, n: int, first: int = 0) -> None:
        self.n, self.first, self.loaded = n, first, 0

    def __len__(self) -> int:
        return self.n

    def load(self, shard_index: int) -> Any:
        self.loaded += 1
        return SimpleNamespace(place=self.first + shard_index)

    def subset(self, start: int, stop: int) -> Shards:
        return Shards(stop - start, self.first + start)


class Counting:
    """A model whose state counts its passes; it may stop in the middle of one."""

    locality = "item"

    def __init__(self, carries: tuple[str, ...] | None) -> None:
        self.carries = carries
        self.stops_at: int | None = None

    def _start(self, shard: Any) -> dict[str, Any]:
        return {"passes": np.zeros(1), "constant": np.array([10 * shard.place])}

    def _restart(self, shard: Any) -> dict[str, Any]:
        return self._start(shard)

    def _accumulate(self, shard: Any, local: dict[str, Any], theta: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if shard.place == self.stops_at:
            raise KeyboardInterrupt
        passes = local["passes"] + 1
        return {**local, "passes": passes}, {"passes": passes.copy(), "constant": local["constant"].copy()}

    def _finish(self, shard: Any, local: dict[str, Any], theta: Any) -> dict[str, Any]:
        return {"passes": local["passes"], "constant": local["constant"]}


def streamed(model: Counting, shards: Shards, folder: Path, n_jobs: int = 1) -> LocalPasses[Any]:
    return LocalPasses(model, shards, n_jobs, FileStates(len(shards), model.carries, folder))


@pytest.mark.parametrize("carries", [None, ("passes",)])
@pytest.mark.parametrize("threads", [1, 2])
def test_state_goes_from_pass_to_pass_and_an_interrupted_one_leaves_it(
    carries: tuple[str, ...] | None, threads: int, tmp_path: Path
) -> None:
    model = Counting(carries)
    passes = streamed(model, Shards(4), tmp_path, threads)
    assert passes.accumulate(None)["passes"].tolist() == [4.0]
    assert passes.accumulate(None) == {"passes": np.array([8.0]), "constant": np.array([60])}
    model.stops_at = 2
    with pytest.raises(KeyboardInterrupt):
        passes.accumulate(None)
    model.stops_at = None
    assert [local["passes"].tolist() for local in passes.local_state()] == [[2.0]] * 4
    assert passes.accumulate(None)["passes"].tolist() == [12.0]
    kept = list(passes.local_state())
    other = streamed(model, Shards(4), tmp_path)
    other.restore(kept)
    assert other.accumulate(None)["passes"].tolist() == [16.0]
    assert isinstance(passes.states, FileStates)
    folder = passes.states.folder
    assert len(list(folder.iterdir())) == 4  # of the last whole pass alone
    del passes
    assert not folder.exists()


def test_what_is_not_carried_is_made_again_and_needs_no_file(tmp_path: Path) -> None:
    passes = streamed(Counting(()), Shards(3), tmp_path)
    for _ in range(3):
        assert passes.accumulate(None)["passes"].tolist() == [3.0]
    assert isinstance(passes.states, FileStates)
    assert not list(passes.states.folder.iterdir())
    assert passes.finish({}, lambda place, rows: rows, 3)["passes"].tolist() == [1.0, 1.0, 1.0]
    assert [rows["constant"][0] for rows in passes.finish_into({}, lambda place, rows: rows)] == [0, 10, 20]


@pytest.mark.parametrize("threads", [1, 3])
def test_local_state_in_memory_is_freed_as_shards_finish(threads: int) -> None:
    passes, alive = LocalPasses(Counting(None), Shards(20), threads), []
    passes.accumulate(None)
    states = [weakref.ref(passes.states.load(place)["constant"]) for place in range(20)]

    def sink(place: int, rows: Any) -> Any:
        alive.append(sum(state() is not None for state in states))
        return {"constant": rows.pop("constant").copy()}

    assert passes.finish({}, sink, 20)["constant"].tolist() == list(range(0, 200, 10))
    assert alive[-1] <= threads
    assert all(state() is None for state in states)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_few_wait(threads: int) -> None:
    running, most, lock = 0, 0, threading.Lock()
    taken = 0

    def work(place: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running - taken)
        return place

    found = []
    for place in map_in_order(work, range(50), threads):
        found.append(place)
        with lock:
            taken += 1
    assert found == list(range(50))
    assert most <= 2 * threads + 2


def test_a_pass_tells_how_far_it_is() -> None:
    calls: list[float] = []
    assert list(report_progress(iter("abcd"), 4, calls.append)) == list("abcd")
    assert calls == [0.25, 0.5, 0.75]
    assert tree_sum(iter([{"n": np.ones(1)}, {"n": np.ones(1)}]), 2)["n"].tolist() == [2.0]


def test_carried_state_is_empty_before_the_first_pass(tmp_path: Path) -> None:
    passes = streamed(Counting(None), Shards(2), tmp_path)
    assert list(passes.local_state()) == [{}, {}]
