"""Passes on a real cluster of two processes: the same answers, whatever becomes of the workers."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import crowdrank
from benchmarks.scale_dask import count_messages
from crowdrank import (
    GLS,
    Aggregator,
    BoostedRemapper,
    DaskEngine,
    Judgments,
    LambdaMART,
    LinearRemapper,
    LocalEngine,
    read_judgments,
    read_partitions,
    simulate,
)
from crowdrank.cli.app import app
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.checkpoints import Checkpoint
from crowdrank.engine import dask as dask_module
from crowdrank.engine.registry import get_engine
from crowdrank.engine.tree_reduce import joined, parts, subtrees, tree_sum
from crowdrank.errors import ClusterError, InputError, UsageError
from crowdrank.label_learning import optimizer
from crowdrank.rankers import linear

SIZE = 40
"""Judgments in a shard: so few that the small world has many."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskEngine]:
    with DaskEngine(workers=2, shard_size=SIZE) as engine:
        yield engine


@pytest.fixture(scope="module")
def labels() -> Judgments:
    return read_judgments(simulate(queries=12, documents=8, random_state=3).judgments)


def fitted(method: str, labels: Any, engine: Any, **options: Any) -> Aggregator:
    model = get_aggregator(method)
    if "n_iter" in model.get_params():
        model.set_params(n_iter=3, tol=0.0)
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


def interrupt(iteration: int, most: int, objective: float) -> None:
    if iteration == 2:
        raise KeyboardInterrupt


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
    there = fitted(method, labels, cluster)
    assert_same(there, fitted(method, labels, LocalEngine(shard_size=SIZE)))
    for mine, theirs in zip(tables(there), tables(fitted(method, labels, LocalEngine())), strict=True):
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-8, atol=1e-8)  # of other shards: but for rounding


def test_experts_and_other_threads_too(cluster: DaskEngine) -> None:
    world = simulate(queries=12, documents=8, gold_queries=6, random_state=3)
    for method in ("gda", "gda-pairwise"):
        here = fitted(method, world.judgments, LocalEngine(2, SIZE), gold=world.gold)
        assert_same(fitted(method, world.judgments, cluster, gold=world.gold), here)


def test_a_checkpoint_of_one_engine_goes_on_on_the_other(cluster: DaskEngine, labels: Judgments, tmp_path: Any) -> None:
    for method in ("glad", "dawid-skene"):
        whole = fitted(method, labels, LocalEngine(shard_size=SIZE))
        for first, second in ((cluster, LocalEngine(shard_size=SIZE)), (LocalEngine(shard_size=SIZE), cluster)):
            with pytest.raises(KeyboardInterrupt):
                fitted(method, labels, first, checkpoint=tmp_path / "kept", progress=interrupt)
            assert_same(fitted(method, labels, second, checkpoint=tmp_path / "kept"), whole)


# Judgments on disk.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world of `labels` in five files."""
    place = tmp_path_factory.mktemp("partitions")
    frame = simulate(queries=12, documents=8, random_state=3).judgments[["query", "document", "assessor", "grade"]]
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), 5)):
        frame.iloc[rows].to_parquet(place / f"{number}.parquet")
    return place


@pytest.mark.filterwarnings("ignore:The query")
@pytest.mark.parametrize("method", ["dawid-skene", "gda-pairwise"])
def test_workers_read_deal_and_write(method: str, cluster: DaskEngine, folder: Path, tmp_path: Path) -> None:
    here = read_partitions(folder, work=tmp_path / "here", shard_size=SIZE)
    there = read_partitions(folder, work=tmp_path / "there", shard_size=SIZE, engine=cluster)
    assert here.fingerprint() == there.fingerprint()
    one = fitted(method, there, cluster, output=tmp_path / "consensus", checkpoint=tmp_path / "kept")
    assert_same(one, fitted(method, here, LocalEngine(shard_size=SIZE)))
    assert len(list((tmp_path / "consensus" / "documents").glob("*.parquet"))) == len(there.shards) > 2


@pytest.mark.filterwarnings("ignore:The query")
def test_a_checkpoint_on_disk_goes_on_on_the_cluster(cluster: DaskEngine, folder: Path, tmp_path: Path) -> None:
    stored = read_partitions(folder, work=tmp_path / "work", shard_size=SIZE)
    for method in ("glad", "dawid-skene"):
        with pytest.raises(KeyboardInterrupt):
            fitted(method, stored, LocalEngine(), checkpoint=tmp_path / "kept", progress=interrupt)
        there = fitted(method, stored, cluster, checkpoint=tmp_path / "kept")
        assert_same(there, fitted(method, stored, LocalEngine()))


def test_what_passes_the_client_does_not_grow_with_the_judgments(
    cluster: DaskEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times the documents, judged by the same assessors: no larger message to or from this process."""
    crossed = bytes_crossed(monkeypatch)
    seen = []
    for times in (1, 20):
        rng = np.random.default_rng(0)
        n = 2000 * times
        columns = {"query": np.arange(n) // 50, "document": np.arange(n) // 5, "assessor": np.arange(n) % 37}
        frame = pd.DataFrame({**columns, "grade": rng.integers(0, 3, n)})
        place = tmp_path / str(times)
        place.mkdir()
        for part in range(4):
            frame.iloc[part::4].to_parquet(place / f"{part}.parquet")
        crossed[:] = [0]
        stored = read_partitions(place, work=tmp_path / f"work-{times}", shard_size=n // 4, engine=cluster)
        fitted("dawid-skene", stored, cluster, output=tmp_path / f"out-{times}")
        seen.append(max(crossed))
    # The codes of a shard alone are 50,000 bytes; queries are numbered by where they appear, eight bytes each.
    assert seen[1] < seen[0] + 10_000


def bytes_crossed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the messages that this process sends and gets, until the test ends."""
    from distributed.comm import tcp

    for name in ("to_frames", "from_frames"):
        monkeypatch.setattr(tcp, name, getattr(tcp, name))  # as it is, so that it is put back
    return count_messages()


# What goes wrong.


@pytest.mark.parametrize("method", ["dawid-skene", "glad"])
def test_a_killed_worker_costs_time_and_nothing_else(
    method: str, cluster: DaskEngine, labels: Judgments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_module, "COPY_EVERY", 2)
    whole = fitted(method, labels, LocalEngine(shard_size=SIZE))
    killed = []

    def dies_in_its_next_pass() -> int:
        import os
        import signal

        from crowdrank.engine.local import LocalPasses

        def accumulate(self: LocalPasses, theta: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        LocalPasses.accumulate = accumulate  # type: ignore[method-assign, assignment]
        return os.getpid()

    def kill(iteration: int, most: int, objective: float) -> None:
        if iteration == 2:
            victim = max(cluster.client.nthreads())
            killed.extend(cluster.client.run(dies_in_its_next_pass, workers=[victim]).values())

    assert_same(fitted(method, labels, cluster, progress=kill), whole)
    assert len(killed) == 1
    assert killed[0] not in cluster.client.run(os.getpid).values()


def test_workers_leave_interrupts_to_the_process_that_leads(cluster: DaskEngine) -> None:
    heard = cluster.client.run(signal.getsignal, signal.SIGINT)
    assert set(heard.values()) == {signal.SIG_IGN}


@pytest.fixture(scope="module")
def far() -> Iterator[str]:
    """The address of a cluster that another process has, without TLS."""
    with subprocess.Popen(
        [sys.executable, "-c", FAR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def test_nobody_without_its_certificate_reaches_a_cluster_started_here(cluster: DaskEngine) -> None:
    from distributed import Client, Security

    address = cluster.scheduler
    workers = list(cluster.client.nthreads())
    assert {urlsplit(one).scheme for one in (address, *workers)} == {"tls"}
    assert {urlsplit(one).hostname for one in (address, *workers)} == {"127.0.0.1"}
    plain = address.replace("tls://", "tcp://")
    own = Security.temporary()  # type: ignore[no-untyped-call]
    for at, security in ((plain, None), (address, own)):
        with pytest.raises(OSError):  # noqa: PT011  # whichever end closes the connection first
            Client(at, security=security, timeout=3, set_as_default=False)  # type: ignore[no-untyped-call]


def test_a_dashboard_is_served_only_where_it_is_asked_for(cluster: DaskEngine) -> None:
    def port_here(dask_scheduler: Any) -> int:
        return int(dask_scheduler.http_server.port)

    def port_there(dask_worker: Any) -> int:
        return int(dask_worker.http_server.port)

    ports = [cluster.client.run_on_scheduler(port_here), *cluster.client.run(port_there).values()]
    for port, page in itertools.product(ports, ("status", "metrics", "info/main/workers.html", "sysmon")):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/{page}", timeout=30)
    assert "http" not in cluster.about
    with get_engine("dask", 1, dashboard=True) as engine:
        assert isinstance(engine, DaskEngine)
        link = urlsplit(engine.client.dashboard_link)
        assert link.hostname == "127.0.0.1"
        assert link.geturl() in engine.about
        with urlopen(link.geturl(), timeout=30) as page:
            assert page.status == 200
    for name in ("local", "dask=tcp://10.0.0.1:8786"):
        with pytest.raises(UsageError, match="--dashboard"):
            get_engine(name, dashboard=True)


def test_what_the_scheduler_remembers_does_not_grow(cluster: DaskEngine, labels: Judgments) -> None:
    seen = []

    def count(iteration: int, most: int, objective: float) -> None:
        seen.append(cluster.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    fitted("dawid-skene", labels, cluster, progress=count)
    fitted("glad", labels, cluster, progress=count)
    assert max(seen) <= min(seen) + 12


def test_another_version_is_refused(
    cluster: DaskEngine, far: str, monkeypatch: pytest.MonkeyPatch, labels: Judgments
) -> None:
    assert cluster.client is not None  # its workers have been asked for their version by now
    known = crowdrank.__version__
    monkeypatch.setattr(crowdrank, "__version__", "99.0")
    with pytest.raises(ClusterError, match=f"tcp://.* runs crowdrank {known}, and this is 99.0; install the same"):
        fitted("majority", labels, DaskEngine(far))
    with pytest.raises(ClusterError, match=r"and this is 99\.0"):  # a worker that came later
        fitted("majority", labels, cluster)


def test_no_scheduler_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_module, "PATIENCE", 2.0)
    with pytest.raises(ClusterError, match=r"No Dask scheduler answers at tcp://127.0.0.1:1 .*start one"):
        _ = DaskEngine("tcp://127.0.0.1:1").client


FAR = """
import sys
from distributed import LocalCluster
with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=None) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


def test_a_scheduler_that_goes_is_one_sentence(labels: Judgments, tmp_path: Path) -> None:
    """Another process has the cluster; it is killed in the middle of a fit."""
    run = [sys.executable, "-c", FAR]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as far:
        assert far.stdout is not None
        keeper = Checkpoint(tmp_path / "kept", every=0.0)

        def kill(iteration: int, most: int, objective: float) -> None:
            if iteration == 2:
                far.kill()
                far.wait()

        engine = DaskEngine(far.stdout.readline().strip(), shard_size=SIZE)
        with (
            engine,
            pytest.raises(ClusterError, match=r"scheduler at tcp://.* is gone; .*fit with checkpoint="),
        ):
            fitted("dawid-skene", labels, engine, checkpoint=keeper, progress=kill)
    whole = fitted("dawid-skene", labels, LocalEngine(shard_size=SIZE))
    assert_same(fitted("dawid-skene", labels, LocalEngine(shard_size=SIZE), checkpoint=tmp_path / "kept"), whole)


def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'crowdrank\[dask\]'"):
        get_engine("dask")


@pytest.mark.parametrize("name", ["dusk", "dask=", "dask=10.0.0.1"])
def test_no_such_engine(name: str) -> None:
    with pytest.raises(UsageError, match="dask=tcp://"):
        get_engine(name)


def test_no_workers_and_no_threads_are_refused() -> None:
    with pytest.raises(UsageError, match="workers is a number from 1 up, not 0"):
        DaskEngine(workers=0)
    with pytest.raises(UsageError, match="those of tcp://a:1 are what they are"):
        DaskEngine("tcp://a:1", workers=2)


def test_sentences_of_errors_survive_the_way_here() -> None:
    problem = InputError("it is bad", source="a.csv", fix="mend it")
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem) == "a.csv: it is bad; mend it."


def test_the_command_line_runs_on_a_cluster(far: str, folder: Path, tmp_path: Path) -> None:
    work, out = str(tmp_path / "work"), str(tmp_path / "out")
    told = ["aggregate", str(folder), "--engine", f"dask={far}", "-s", "n_iter=3", "-o", out]
    refused = CliRunner().invoke(app, told)
    assert "with --work" in str(refused.exception)
    done = CliRunner().invoke(app, [*told, "--work", work, "--json"])
    assert done.exit_code == 0, done.output
    assert "Dask: 1 worker at tcp://127.0.0.1:" in done.stderr
    assert json.loads(done.stdout)["iterations"] == 3


# Rankers and remappers.


@pytest.mark.parametrize("cls", [LinearRemapper, BoostedRemapper])
def test_remappers_learn_the_same(cls: Any, cluster: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer.blocks, "__defaults__", (60,))
    world = simulate(queries=24, documents=6, label_grades=2, gold_queries=16, random_state=1)
    known = crowdrank.label_features(world.judgments, kind="mgbdt")
    here, there = (
        cls(n_iter=2, ridge=0.1).fit(known, world.features, world.gold, engine=engine)
        for engine in (LocalEngine(), cluster)
    )
    np.testing.assert_array_equal(there.targets_, here.targets_)
    np.testing.assert_array_equal(there.weights_, here.weights_)


@pytest.mark.filterwarnings("ignore:1 feature")
def test_least_squares_are_the_same(cluster: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, query = rng.normal(size=(300, 4)), np.repeat(np.arange(30), 10)
    X[::17, 1] = np.nan
    y = np.nan_to_num(X[:, 0]) + rng.normal(size=300)
    whole = GLS().fit(X, y, query=query)
    monkeypatch.setattr(linear, "ROWS_PER_BLOCK", 40)
    there, blocks = (GLS().fit(X, y, query=query, engine=engine) for engine in (cluster, LocalEngine()))
    np.testing.assert_array_equal(there.coef_, blocks.coef_)
    np.testing.assert_allclose(there.coef_, whole.coef_, rtol=1e-8)


def test_lambdamart_on_the_cluster_ranks_as_well(cluster: DaskEngine, tmp_path: Path) -> None:
    world = simulate(queries=60, documents=10, gold_queries=60, random_state=4)
    X, gold = world.features.drop(columns=["query", "document"]), world.gold
    fit: dict[str, Any] = {"X": X, "y": gold["grade"], "query": gold["query"]}
    settings: dict[str, Any] = {"n_estimators": 10, "num_leaves": 7}
    found = []
    for engine in (None, cluster):
        ranker = LambdaMART(**settings).fit(**fit, engine=engine)
        run = gold[["query", "document"]].assign(score=ranker.predict(X))
        found.append(crowdrank.evaluate(run, gold, "nDCG@5").means["nDCG@5"])
    assert found[1] == pytest.approx(found[0], abs=0.03)
    assert found[1] > 0.85
    with pytest.raises(UsageError, match="measure='ERR' needs ours, which runs on one machine"):
        LambdaMART("ERR", **settings).fit(**fit, engine=cluster)


def test_a_run_on_the_cluster_comes_to_the_same(cluster: DaskEngine) -> None:
    world = simulate(queries=30, documents=6, gold_queries=12, random_state=1)
    told: dict[str, Any] = {"candidates": ["majority", "average"], "method": "dawid-skene", "folds": 2}
    given = (world.judgments, world.features, world.gold)
    here, there = (crowdrank.run(*given, **told, engine=engine) for engine in (None, cluster))
    pd.testing.assert_frame_equal(there.consensus.documents, here.consensus.documents, rtol=1e-8, atol=1e-8)
    pd.testing.assert_frame_equal(there.comparison, here.comparison)
