"""A run that is killed at any moment loses no reply that it received, and never spends more than the budget."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from .fake_endpoint import FakeEndpoint, Reply, serve
from .judging_project import Project

N_PAIRS, CONCURRENCY = 24, 3
PRICES = {"input": 1.0, "output": 2.0}


def start(project: Project, budget: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "crowdrank", "judge", "run", *project.words, "-o", "labels.csv"]
    return subprocess.Popen(
        [*words, "--budget", str(budget), "--json"],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_requests(served: FakeEndpoint, number: int, process: subprocess.Popen[str]) -> None:
    """Wait until the endpoint has received a number of requests, or the process ended."""
    while len(served.bodies) < number and process.poll() is None:
        time.sleep(0.005)


@pytest.fixture
def prepared(project: Project) -> Project:
    project.write_pairs(N_PAIRS)
    return project


def write_judge(project: Project, url: str) -> None:
    judge = {"name": "j", "endpoint": url, "model": "m", "concurrency": CONCURRENCY, "prices": PRICES}
    project.write_judges(judge)


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_a_killed_run_goes_on_without_losing_replies_or_overspending(prepared: Project) -> None:
    with serve(lambda number, body: Reply("2", seconds=0.03)) as served:
        write_judge(prepared, served.url)
        for number in (5, 13):
            process = start(prepared, budget=1.0)
            wait_for_requests(served, number, process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert not (prepared.folder / "labels.csv").exists()
        process = start(prepared, budget=1.0)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        asked = len(served.bodies)
        table = pd.read_csv("labels.csv")
        assert len(table) == N_PAIRS
        assert N_PAIRS <= asked <= N_PAIRS + 2 * CONCURRENCY, "only calls under way were asked again"
        assert served.cost(1.0, 2.0) <= table["cost"].sum() <= 1.0


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_kills_do_not_exceed_a_small_budget(prepared: Project) -> None:
    budget = 0.02
    with serve(lambda number, body: Reply("1", seconds=0.02)) as served:
        write_judge(prepared, served.url)
        for number in (2, 6):
            process = start(prepared, budget)
            wait_for_requests(served, number, process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        last = start(prepared, budget)
        output, _ = last.communicate()
        assert last.returncode == 3, "the budget is spent"
        assert served.cost(1.0, 2.0) <= budget
        charged = float(output.split('"charged": ')[1].split(",")[0])
        assert served.cost(1.0, 2.0) <= charged <= budget


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_an_interrupt_names_the_ledger(prepared: Project) -> None:
    with serve(lambda number, body: Reply("1", seconds=0.05)) as served:
        write_judge(prepared, served.url)
        process = start(prepared, 1.0)
        wait_for_requests(served, 4, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "labels.ledger.sqlite" in errors
    assert errors.count("\n") == 1
    assert Path("labels.ledger.sqlite").exists()


def test_a_second_process_is_refused(prepared: Project) -> None:
    with serve(lambda number, body: Reply("1")) as served:
        write_judge(prepared, served.url)
        served.gate.clear()
        first = start(prepared, 1.0)
        wait_for_requests(served, 1, first)
        second = start(prepared, 1.0)
        _, errors = second.communicate()
        served.gate.set()
        first.communicate()
    assert (first.returncode, second.returncode) == (0, 2)
    assert errors.count("\n") == 1
    assert len(served.bodies) == N_PAIRS
