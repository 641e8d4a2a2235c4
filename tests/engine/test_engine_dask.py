"""Fits on a real cluster of two processes give the bytes of the local engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import crowdrank
from benchmarks.scale_dask import count_messages
from crowdrank import (
    GLS,
    BoostedRemapper,
    DaskEngine,
    Judgments,
    LambdaMART,
    LinearRemapper,
    LocalEngine,
    read_partitions,
    simulate,
)
from crowdrank.cli.app import app
from crowdrank.consensus import METHODS
from crowdrank.errors import UsageError
from crowdrank.label_learning import gradient_ascent
from crowdrank.rankers import linear

from .fits import SHARD_SIZE, assert_same, fit, interrupt, tables

# Judgments in memory.


@pytest.mark.parametrize("method", METHODS)
def test_the_same_shards_give_the_same_bytes(
    method: str, cluster: DaskEngine, local: LocalEngine, labels: Judgments
) -> None:
    model = fit(method, labels, cluster)
    assert_same(model, fit(method, labels, local))
    for left, right in zip(tables(model), tables(fit(method, labels, LocalEngine())), strict=True):
        pd.testing.assert_frame_equal(left, right, rtol=1e-8, atol=1e-8)  # other shards: equal except for rounding


def test_expert_grades_and_threads_do_not_change_that(cluster: DaskEngine) -> None:
    world = simulate(queries=12, documents=8, gold_queries=6, random_state=3)
    for method in ("gda", "gda-pairwise"):
        expected = fit(method, world.judgments, LocalEngine(2, SHARD_SIZE), gold=world.gold)
        assert_same(fit(method, world.judgments, cluster, gold=world.gold), expected)


@pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")
@pytest.mark.parametrize("method", ["gda", "dawid-skene", "gda-pairwise"])
def test_features_give_the_same_bytes(method: str, cluster: DaskEngine, local: LocalEngine, labels: Judgments) -> None:
    documents = simulate(queries=12, documents=8, random_state=3).documents
    features = documents[["query", "document"]].assign(signal=documents["relevance"])
    model = fit(method, labels, cluster, features=features)
    assert model.consensus_.features_used
    assert_same(model, fit(method, labels, local, features=features))


def preferences_between(labels: Judgments) -> Any:
    """Return preferences between neighboring documents of each query, with the answers of two assessors."""
    items = labels.frame[["query", "document"]].drop_duplicates()
    items["right"] = items.groupby("query")["document"].shift(-1)
    pairs = items.dropna().rename(columns={"document": "left"})
    answers = np.arange(2 * len(pairs)) % 3 - 1
    return pd.concat([pairs.assign(assessor=one) for one in ("p1", "p2")]).assign(preference=answers)


def test_preferences_give_the_same_bytes(
    cluster: DaskEngine, local: LocalEngine, labels: Judgments, tmp_path: Path
) -> None:
    rows = preferences_between(labels)
    for judgments in (labels, None):
        expected = fit("gda", judgments, local, preferences=rows)
        assert_same(fit("gda", judgments, cluster, preferences=rows), expected)
    labels.frame.to_parquet(tmp_path / "labels.parquet")
    on_disk = read_partitions(tmp_path, shard_size=SHARD_SIZE)
    expected = fit("gda", on_disk, local, preferences=rows)
    assert_same(fit("gda", on_disk, cluster, preferences=rows), expected)


@pytest.mark.filterwarnings("ignore:The query")
@pytest.mark.parametrize("method", ["gda", "dawid-skene"])
def test_soft_labels_give_the_same_bytes(method: str, cluster: DaskEngine, local: LocalEngine, tmp_path: Path) -> None:
    rows = simulate(queries=12, documents=8, random_state=3).judgments[["query", "document", "assessor", "grade"]]
    shares = 0.1 + 0.5 * np.eye(5)[rows["grade"]]
    soft = rows.assign(**{f"p{grade}": shares[:, grade] for grade in range(5)})
    assert_same(fit(method, soft, cluster), fit(method, soft, local))
    (tmp_path / "parts").mkdir()
    soft.to_parquet(tmp_path / "parts" / "0.parquet")
    on_disk = read_partitions(tmp_path / "parts", shard_size=SHARD_SIZE, engine=cluster, work=tmp_path / "shards")
    assert_same(fit(method, on_disk, cluster), fit(method, on_disk, local))


def test_each_engine_continues_from_checkpoints_of_the_other(
    cluster: DaskEngine, local: LocalEngine, labels: Judgments, tmp_path: Path
) -> None:
    engines: list[tuple[Any, Any]] = [(cluster, local), (local, cluster)]
    for method in ("glad", "dawid-skene"):
        expected = fit(method, labels, local)
        for first, second in engines:
            with pytest.raises(KeyboardInterrupt):
                fit(method, labels, first, checkpoint=tmp_path / "state", progress=interrupt)
            assert_same(fit(method, labels, second, checkpoint=tmp_path / "state"), expected)


# Judgments on disk.


@pytest.mark.filterwarnings("ignore:The query")
@pytest.mark.parametrize("method", ["dawid-skene", "gda-pairwise"])
def test_workers_read_partitions_and_write_the_consensus(
    method: str, cluster: DaskEngine, local: LocalEngine, partitions: Path, tmp_path: Path
) -> None:
    expected = read_partitions(partitions, work=tmp_path / "local", shard_size=SHARD_SIZE)
    judgments = read_partitions(partitions, work=tmp_path / "cluster", shard_size=SHARD_SIZE, engine=cluster)
    assert judgments.fingerprint() == expected.fingerprint()
    model = fit(method, judgments, cluster, output=tmp_path / "consensus", checkpoint=tmp_path / "state")
    assert_same(model, fit(method, expected, local))
    assert len(list((tmp_path / "consensus" / "documents").glob("*.parquet"))) == len(judgments.shards) > 2


@pytest.mark.filterwarnings("ignore:The query")
def test_the_cluster_continues_from_a_checkpoint_on_disk(cluster: DaskEngine, partitions: Path, tmp_path: Path) -> None:
    judgments = read_partitions(partitions, work=tmp_path / "work", shard_size=SHARD_SIZE)
    for method in ("glad", "dawid-skene"):
        with pytest.raises(KeyboardInterrupt):
            fit(method, judgments, LocalEngine(), checkpoint=tmp_path / "state", progress=interrupt)
        model = fit(method, judgments, cluster, checkpoint=tmp_path / "state")
        assert_same(model, fit(method, judgments, LocalEngine()))


def test_messages_of_the_client_do_not_grow_with_the_judgments(
    cluster: DaskEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest message of the client is as large for twenty times the documents of the same assessors."""
    sizes = message_sizes(monkeypatch)
    largest = []
    for times in (1, 20):
        rng = np.random.default_rng(0)
        n = 2000 * times
        columns = {"query": np.arange(n) // 50, "document": np.arange(n) // 5, "assessor": np.arange(n) % 37}
        frame = pd.DataFrame({**columns, "grade": rng.integers(0, 3, n)})
        folder = tmp_path / str(times)
        folder.mkdir()
        for part in range(4):
            frame.iloc[part::4].to_parquet(folder / f"{part}.parquet")
        sizes[:] = [0]
        judgments = read_partitions(folder, work=tmp_path / f"work-{times}", shard_size=n // 4, engine=cluster)
        fit("dawid-skene", judgments, cluster, output=tmp_path / f"out-{times}")
        largest.append(max(sizes))
    # The codes of a shard are 50,000 bytes; the numbers of queries are eight bytes each.
    assert largest[1] < largest[0] + 10_000


def message_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the sizes of this process's messages are appended until the test ends."""
    from distributed.comm import tcp

    for name in ("to_frames", "from_frames"):
        monkeypatch.setattr(tcp, name, getattr(tcp, name))  # restored after the test
    return count_messages()


def test_the_scheduler_forgets_finished_passes(cluster: DaskEngine, labels: Judgments) -> None:
    n_tasks = []

    def count(iteration: int, n_iter: int, objective: float) -> None:
        n_tasks.append(cluster.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    fit("dawid-skene", labels, cluster, progress=count)
    fit("glad", labels, cluster, progress=count)
    assert max(n_tasks) <= min(n_tasks) + 12


def test_the_command_line_runs_on_a_cluster(other_cluster: tuple[str, Any], partitions: Path, tmp_path: Path) -> None:
    address, _ = other_cluster
    work, out = str(tmp_path / "work"), str(tmp_path / "out")
    command = ["aggregate", str(partitions), "--engine", f"dask={address}", "-s", "n_iter=3", "-o", out]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, UsageError)
    done = CliRunner().invoke(app, [*command, "--work", work, "--json"])
    assert done.exit_code == 0, done.output
    assert "Dask: 1 worker at tcp://127.0.0.1:" in done.stderr
    assert json.loads(done.stdout)["iterations"] == 3


# Rankers and remappers.


@pytest.mark.parametrize("cls", [LinearRemapper, BoostedRemapper])
def test_remappers_learn_the_same(cls: Any, cluster: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_ascent, "DOCUMENTS_PER_SHARD", 20)
    world = simulate(queries=24, documents=6, label_grades=2, gold_queries=16, random_state=1)
    features = crowdrank.label_features(world.judgments, kind="mgbdt")
    engines: list[Any] = [LocalEngine(), cluster]
    expected, remapper = (
        cls(n_iter=2, ridge=0.1, learning_rate=0.03).fit(features, world.features, world.gold, engine=engine)
        for engine in engines
    )
    np.testing.assert_array_equal(remapper.targets_, expected.targets_)
    np.testing.assert_array_equal(remapper.weights_, expected.weights_)


@pytest.mark.filterwarnings("ignore:1 feature")
def test_least_squares_are_the_same(cluster: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, query = rng.normal(size=(300, 4)), np.repeat(np.arange(30), 10)
    X[::17, 1] = np.nan
    y = np.nan_to_num(X[:, 0]) + rng.normal(size=300)
    one_block = GLS().fit(X, y, query=query)
    monkeypatch.setattr(linear, "ROWS_PER_BLOCK", 40)
    engines: list[Any] = [cluster, LocalEngine()]
    ranker, expected = (GLS().fit(X, y, query=query, engine=engine) for engine in engines)
    np.testing.assert_array_equal(ranker.coef_, expected.coef_)
    np.testing.assert_allclose(ranker.coef_, one_block.coef_, rtol=1e-8)


def test_lambdamart_on_the_cluster_ranks_as_well(cluster: DaskEngine) -> None:
    world = simulate(queries=60, documents=10, gold_queries=60, random_state=4)
    X, gold = world.features.drop(columns=["query", "document"]), world.gold
    data: dict[str, Any] = {"X": X, "y": gold["grade"], "query": gold["query"]}
    settings: dict[str, Any] = {"n_estimators": 10, "num_leaves": 7}
    scores = []
    for engine in (None, cluster):
        ranker = LambdaMART(**settings).fit(**data, engine=engine)
        run = gold[["query", "document"]].assign(score=ranker.predict(X))
        scores.append(crowdrank.evaluate(run, gold, "nDCG@5").means["nDCG@5"])
    assert scores[1] == pytest.approx(scores[0], abs=0.03)
    assert scores[1] > 0.85
    with pytest.raises(UsageError):
        LambdaMART("ERR", **settings).fit(**data, engine=cluster)


def test_a_run_on_the_cluster_has_the_same_result(cluster: DaskEngine) -> None:
    world = simulate(queries=30, documents=6, gold_queries=12, random_state=1)
    settings: dict[str, Any] = {"candidates": ["majority", "average"], "method": "dawid-skene", "folds": 2}
    data = (world.judgments, world.features, world.gold)
    expected, result = (crowdrank.run(*data, **settings, engine=engine) for engine in (None, cluster))
    pd.testing.assert_frame_equal(result.documents, expected.documents, rtol=1e-8, atol=1e-8)
    pd.testing.assert_frame_equal(result.comparison, expected.comparison)
