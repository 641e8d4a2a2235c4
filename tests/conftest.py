"""What tests of every room share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from crowdrank import Judgments
from crowdrank.judgments.datasets import dataset

# The first call of a kernel compiles it: no test is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """One thread for trees: several test processes on few cores would wait for each other's threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public data sets; a test that needs it is skipped where there is none."""
    named = os.environ.get("CROWDRANK_DATA")
    if not named:
        pytest.skip("CROWDRANK_DATA is not set: tests on public data are skipped")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"CROWDRANK_DATA names {folder}, which is not a folder", pytrace=False)
    return folder


@pytest.fixture(scope="session")
def rf10(data_folder: Path) -> Judgments:
    """TREC RF10's crowd judgments."""
    assert data_folder.is_dir()
    return dataset("trec-rf10").read_judgments()
