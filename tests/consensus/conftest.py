"""Data that the consensus tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdrank import Judgments
from crowdrank.judgments.datasets import dataset


@pytest.fixture(scope="session")
def rf10(data_folder: Path) -> Judgments:
    """TREC RF10's crowd judgments."""
    assert data_folder.is_dir()
    return dataset("trec-rf10").read_judgments()
