"""Dead workers, lost schedulers, interrupts, other versions, and who can use a cluster."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import crowdrank
from crowdrank import GLAD, DaskEngine, DawidSkene, Judgments, LocalEngine
from crowdrank.consensus.saved_models import Checkpoint
from crowdrank.engine import dask as dask_module
from crowdrank.engine.passes import LocalPasses, get_engine
from crowdrank.errors import ClusterError, DataWarning, InputError
from terminal import without_columns

from .fits import SHARD_SIZE, assert_same, fit


def die_in_next_pass() -> Callable[[], int]:
    """Return a function that makes a worker kill itself in its next pass and returns the worker's process id."""

    def prepare() -> int:  # nested, so that it is sent by value: workers cannot import this module
        def subtree_sums(*arguments: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        LocalPasses.subtree_sums = subtree_sums  # type: ignore[method-assign, assignment]
        return os.getpid()

    return prepare


# Without a snapshot, from a snapshot and the passes since; one worker, all workers.
@pytest.mark.parametrize(("method", "n_killed", "restart_timeout"), [("dawid-skene", 1, "60s"), ("glad", 2, "0.1s")])
def test_dead_workers_cost_only_time(
    method: str,
    n_killed: int,
    restart_timeout: str,
    cluster: DaskEngine,
    local: LocalEngine,
    labels: Judgments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import dask

    monkeypatch.setattr(dask_module, "PASSES_PER_SNAPSHOT", 2)
    expected = fit(method, labels, local)
    client = cluster.client  # the cluster starts before its configuration changes
    killed = []

    def kill(iteration: int, n_iter: int, objective: float) -> None:
        if iteration == 2:
            victims = sorted(client.nthreads())[-n_killed:]
            killed.extend(client.run(die_in_next_pass(), workers=victims).values())

    # Dask abandons workers that restart slowly, as on a busy machine; with glad, all.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": restart_timeout}):
        assert_same(fit(method, labels, cluster, progress=kill), expected)
    assert len(killed) == n_killed
    assert not set(killed) & set(client.run(os.getpid).values())


def test_workers_that_die_repeatedly_are_reported(
    cluster: DaskEngine, labels: Judgments, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed.comm.core import CommClosedError

    def die(*arguments: object) -> None:
        raise CommClosedError("no connection")

    monkeypatch.setattr(dask_module, "MAX_PASS_ATTEMPTS", 2)
    monkeypatch.setattr(dask_module.DaskPasses, "_run_pass", die)
    with pytest.raises(ClusterError) as lost:
        fit("majority", labels, cluster)
    assert lost.value.kind == "workers-died"


def test_a_lost_scheduler_is_reported_and_the_fit_continues_from_its_checkpoint(
    other_cluster: tuple[str, subprocess.Popen[str]], local: LocalEngine, labels: Judgments, tmp_path: Path
) -> None:
    address, process = other_cluster
    checkpoint = Checkpoint(tmp_path / "state", every=0.0)

    def kill(iteration: int, n_iter: int, objective: float) -> None:
        if iteration == 2:
            process.kill()
            process.wait()

    engine = DaskEngine(address, shard_size=SHARD_SIZE)
    with engine, pytest.raises(ClusterError, match=r"scheduler at tcp://.* is gone; continue the fit with") as lost:
        fit("dawid-skene", labels, engine, checkpoint=checkpoint, progress=kill)
    assert lost.value.kind == "scheduler-lost"
    assert lost.value.fix is not None
    assert (lost.value.fix.parameter, lost.value.fix.value) == ("checkpoint", str(tmp_path / "state"))
    assert_same(fit("dawid-skene", labels, local, checkpoint=tmp_path / "state"), fit("dawid-skene", labels, local))


def pause_at(share: float) -> Callable[[Any], None]:
    """Return a function that makes a worker pause if it uses more than a share of its memory limit."""

    def prepare(dask_worker: Any) -> None:  # nested, so that it is sent by value: workers cannot import this module
        dask_worker.memory_manager.memory_pause_fraction = share

    return prepare


def wait_for_running(engine: DaskEngine, n_workers: int) -> None:
    deadline = time.monotonic() + 60
    while len(engine.running_workers()) != n_workers and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(engine.running_workers()) == n_workers


@pytest.fixture
def pause(cluster: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Return a function that pauses a number of workers of the cluster; they run again after the test."""
    monkeypatch.setattr(dask_module, "SECONDS_BETWEEN_STATE_CHECKS", 0.2)
    monkeypatch.setattr(dask_module, "PAUSE_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(dask_module, "SEND_TIMEOUT_SECONDS", 0.2)
    n_workers = len(cluster.client.nthreads())

    def pause_workers(n_paused: int) -> None:
        cluster.client.run(pause_at(1e-6), workers=sorted(cluster.client.nthreads())[:n_paused])
        wait_for_running(cluster, n_workers - n_paused)

    yield pause_workers
    cluster.client.run(pause_at(0.8))
    wait_for_running(cluster, n_workers)


@pytest.mark.parametrize("first_paused_iteration", [0, 2])
def test_paused_workers_are_reported(
    first_paused_iteration: int, pause: Callable[[int], None], cluster: DaskEngine, labels: Judgments
) -> None:
    if not first_paused_iteration:
        pause(2)

    def pause_later(iteration: int, n_iter: int, objective: float) -> None:
        if iteration == first_paused_iteration:
            pause(2)

    with pytest.warns(DataWarning) as warned, pytest.raises(ClusterError) as stopped:
        DawidSkene(n_iter=4, tol=0.0).fit(labels, engine=cluster, progress=pause_later)
    assert [str(getattr(one.message, "kind", "")) for one in warned] == ["workers-paused"]
    assert stopped.value.kind == "workers-paused"
    limits = cluster.client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit).values()
    assert f"{min(limits) / 1024**3:.3g} GiB" in stopped.value.problem


def test_calls_on_paused_workers_are_reported(pause: Callable[[int], None], cluster: DaskEngine) -> None:
    pause(2)
    with pytest.warns(DataWarning), pytest.raises(ClusterError) as stopped:
        list(cluster.each(abs, [-1, -2]))
    assert stopped.value.kind == "workers-paused"


@pytest.mark.parametrize("first_paused_iteration", [0, 2])
def test_other_workers_take_the_part_of_a_paused_worker(
    first_paused_iteration: int,
    pause: Callable[[int], None],
    cluster: DaskEngine,
    local: LocalEngine,
    labels: Judgments,
) -> None:
    if not first_paused_iteration:
        pause(1)

    def pause_later(iteration: int, n_iter: int, objective: float) -> None:
        if iteration == first_paused_iteration:
            pause(1)

    assert_same(fit("dawid-skene", labels, cluster, progress=pause_later), fit("dawid-skene", labels, local))
    assert len(cluster.running_workers()) == 1


def test_a_fit_continues_when_workers_run_again(
    pause: Callable[[int], None],
    cluster: DaskEngine,
    local: LocalEngine,
    labels: Judgments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let the workers run again at the warning, and pause them again later: the time limit starts anew."""
    monkeypatch.setattr(dask_module, "PAUSE_TIMEOUT_SECONDS", 60.0)
    warned = []

    def run_again(message: Warning | str, *place: Any, **more: Any) -> None:
        warned.append(message)
        cluster.client.run(pause_at(0.8))

    def pause_later(iteration: int, n_iter: int, objective: float) -> None:
        pause(2)

    with warnings.catch_warnings(action="always"):
        monkeypatch.setattr(warnings, "showwarning", run_again)
        model = DawidSkene(n_iter=3, tol=0.0).fit(labels, engine=cluster, progress=pause_later)
    kinds = [one.kind for one in warned if isinstance(one, DataWarning)]
    assert kinds == ["workers-paused"] * len(kinds)
    assert len(kinds) >= 2
    assert_same(model, fit("dawid-skene", labels, local))


def test_dask_logs_nothing_while_an_engine_is_open(
    other_cluster: tuple[str, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("distributed.client")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    with DaskEngine(other_cluster[0]) as engine:
        assert engine.client.status == "running"
        assert logger.level == logging.CRITICAL
    assert logger.level == logging.WARNING


def test_a_missing_scheduler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_module, "CLUSTER_TIMEOUT_SECONDS", 2.0)
    logger = logging.getLogger("distributed.client")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    with pytest.raises(ClusterError) as missing:
        _ = DaskEngine("tcp://127.0.0.1:1").client
    assert missing.value.kind == "no-scheduler"
    assert logger.level == logging.WARNING


def test_other_versions_are_refused(
    cluster: DaskEngine, other_cluster: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, labels: Judgments
) -> None:
    installed = crowdrank.__version__
    assert cluster.client is not None  # connected before the version changes: the check of later workers
    monkeypatch.setattr(crowdrank, "__version__", "99.0")
    for engine in (DaskEngine(other_cluster[0]), cluster):
        with pytest.raises(ClusterError, match=f"runs crowdrank {installed}, the client runs 99.0") as refused:
            fit("majority", labels, engine)
        assert refused.value.kind == "version-mismatch"


# The command line, which writes a file after the first iteration of a fit.
DRIVER = """
from pathlib import Path
from crowdrank.consensus import model
has_converged = model.has_converged
def noted(history, tol):
    Path("iterating").touch()
    return has_converged(history, tol)
model.has_converged = noted
if __name__ == "__main__":
    from crowdrank.cli.app import main
    main()
"""


def test_an_interrupt_ends_the_cluster_and_writes_a_checkpoint(tmp_path: Path) -> None:
    crowdrank.simulate(queries=12, documents=8, random_state=3).judgments.to_csv(tmp_path / "labels.csv", index=False)
    settings = ["-m", "glad", "-s", "n_iter=5000", "-s", "tol=0", "--engine", "dask", "--threads", "1"]
    settings += ["--checkpoint", "state", "-o", "o.csv"]
    command = [
        sys.executable,
        "-c",
        DRIVER,
        "aggregate",
        "labels.csv",
        *settings,
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (tmp_path / "iterating").exists() and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    first, second = without_columns(errors).splitlines()
    assert first.startswith("Dask: 1 worker at tls://127.0.0.1:")
    assert second.startswith("Interrupted.")
    assert (tmp_path / "state" / "checkpoint.json").exists()
    assert not (tmp_path / "o.csv").exists()


def test_workers_ignore_interrupts(cluster: DaskEngine) -> None:
    handlers = cluster.client.run(signal.getsignal, signal.SIGINT)
    assert set(handlers.values()) == {signal.SIG_IGN}


def test_only_clients_with_the_certificate_can_use_a_cluster_started_here(cluster: DaskEngine) -> None:
    from distributed import Client, Security

    address = cluster.scheduler_address
    workers = list(cluster.client.nthreads())
    assert {urlsplit(one).scheme for one in (address, *workers)} == {"tls"}
    assert {urlsplit(one).hostname for one in (address, *workers)} == {"127.0.0.1"}
    plain = address.replace("tls://", "tcp://")
    other = Security.temporary()  # type: ignore[no-untyped-call]
    for target, security in ((plain, None), (address, other)):
        with pytest.raises(OSError):  # noqa: PT011  # whichever end closes the connection first
            Client(target, security=security, timeout=3, set_as_default=False)  # type: ignore[no-untyped-call]


def test_a_dashboard_is_served_only_on_request(cluster: DaskEngine) -> None:
    def scheduler_port(dask_scheduler: Any) -> int:
        return int(dask_scheduler.http_server.port)

    def worker_port(dask_worker: Any) -> int:
        return int(dask_worker.http_server.port)

    ports = [cluster.client.run_on_scheduler(scheduler_port), *cluster.client.run(worker_port).values()]
    for port, page in itertools.product(ports, ("status", "metrics", "info/main/workers.html", "sysmon")):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/{page}", timeout=30)
    assert "http" not in cluster.description
    with get_engine("dask", 1, dashboard=True) as engine:
        assert isinstance(engine, DaskEngine)
        link = urlsplit(engine.client.dashboard_link)
        assert link.hostname == "127.0.0.1"
        assert link.geturl() in engine.description
        with urlopen(link.geturl(), timeout=30) as page:
            assert page.status == 200


def test_results_of_an_earlier_fit_are_not_sent(cluster: DaskEngine, labels: Judgments) -> None:
    model = fit("glad", labels, LocalEngine())
    sent = cluster.open(model.assessor_estimator_, labels).model
    assert isinstance(sent, GLAD)
    assert {name for name in vars(sent) if name.endswith("_")} == set()
    assert sent.get_params() == model.get_params()


def test_errors_survive_pickling() -> None:
    problem = InputError("it is bad", source="a.csv", fix="change it")
    assert pickle.loads(pickle.dumps(problem)).message == problem.message
