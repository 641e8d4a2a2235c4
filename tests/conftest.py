"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from crowdrank import Judgments

# The first call of a kernel compiles it, so examples have no deadline. Every run draws other examples.
settings.register_profile("few examples", deadline=None, max_examples=40)
settings.load_profile("few examples")

SKIPPED = "crowdrank/skipped"
"""Name of the list of skipped tests in pytest's cache."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-rest`."""
    text = "Run only the tests that the last run skipped; a test that is skipped again fails."
    parser.addoption("--skipped-before", action="store_true", help=text)


def pytest_configure() -> None:
    """Set what libraries and child processes read from the environment when they start.

    One thread for OpenMP and BLAS: test processes on few cores would wait for each other's threads. Bytecode is cached,
    since hundreds of child processes would compile the same sources. This module must not import NumPy before.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark and skip the tests that need public data; with --skipped-before, select what was skipped."""
    for item in items:
        if "data_folder" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)
        if item.get_closest_marker("data") is not None and not os.environ.get("CROWDRANK_DATA"):
            item.add_marker(pytest.mark.skip(reason="CROWDRANK_DATA is not set: tests on public data are skipped"))
    if config.getoption("--skipped-before"):
        before = set(config.cache.get(SKIPPED, []))
        is_selected = [item.nodeid in before or item.nodeid.partition("::")[0] in before for item in items]
        config.hook.pytest_deselected(items=[item for item, keep in zip(items, is_selected, strict=True) if not keep])
        items[:] = [item for item, keep in zip(items, is_selected, strict=True) if keep]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skipped test fail with --skipped-before."""
    report = yield
    if report.skipped and item.config.getoption("--skipped-before"):
        report.outcome, report.longrepr = "failed", f"skipped again: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Store which tests were skipped, for --skipped-before."""
    skipped = {report.nodeid for report in terminalreporter.stats.get("skipped", [])}
    if config.pluginmanager.has_plugin("cacheprovider") and not config.getoption("--skipped-before"):
        config.cache.set(SKIPPED, sorted(skipped))


def pytest_collection_finish() -> None:
    """Exempt what was imported from garbage collection: these objects stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def small_distilled_forests() -> Iterator[None]:
    """Let the forest of a run have few trees and imitate the selected ranker on few rows: most tests ignore it."""
    from crowdrank.rankers import distillation

    assert distillation.distill.__kwdefaults__ is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distillation, "MIN_DISTILLATION_CELLS", 20_000)
        patch.setitem(distillation.distill.__kwdefaults__, "n_trees", 50)
        yield


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write reports without charts, which take longer to draw than most runs; tests/reports tests them."""
    from crowdrank.reports import page

    monkeypatch.setattr(page, "draw_figures", lambda data: {name: [] for name in page.SECTIONS})


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of public data sets; tests that use it are marked `data`."""
    folder = Path(os.environ["CROWDRANK_DATA"])
    if not folder.is_dir():
        pytest.fail(f"CROWDRANK_DATA names {folder}, which is not a folder", pytrace=False)
    return folder


@pytest.fixture(scope="session")
def rf10(data_folder: Path) -> Judgments:
    """Return the crowd judgments of TREC RF10."""
    from crowdrank.readers.datasets import dataset

    assert data_folder.is_dir()
    return dataset("trec-rf10").read_judgments()
