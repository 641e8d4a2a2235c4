"""A Dask cluster of two processes and small judgments, shared by all tests of the engines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crowdrank import DaskEngine, Judgments, LocalEngine, read_judgments, simulate

from .fits import SHARD_SIZE

OTHER_CLUSTER = """
import sys
from distributed import LocalCluster
with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=None) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[DaskEngine]:
    with DaskEngine(workers=2, shard_size=SHARD_SIZE) as engine:
        yield engine


@pytest.fixture(scope="session")
def local() -> LocalEngine:
    """Local engine with the shards of the cluster."""
    return LocalEngine(shard_size=SHARD_SIZE)


@pytest.fixture
def other_cluster() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address of a cluster without TLS in another process, and the process."""
    command = [sys.executable, "-c", OTHER_CLUSTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.kill()


@pytest.fixture(scope="session")
def labels() -> Judgments:
    return read_judgments(simulate(queries=12, documents=8, random_state=3).judgments)


@pytest.fixture(scope="session")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the judgments of `labels` in five files."""
    folder = tmp_path_factory.mktemp("partitions")
    frame = simulate(queries=12, documents=8, random_state=3).judgments[["query", "document", "assessor", "grade"]]
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), 5)):
        frame.iloc[rows].to_parquet(folder / f"{number}.parquet")
    return folder
