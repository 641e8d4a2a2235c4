"""What tests of every room share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


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
