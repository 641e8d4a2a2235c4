"""What a user has: a terminal in a folder, files, and a browser.

Journeys run on small parts of the public data sets, and on all of it with `CROWDRANK_JOURNEYS=full` (`make journeys`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from service.browser_pages import CHROMIUM, OpenPage, chromium

FULL = os.environ.get("CROWDRANK_JOURNEYS") == "full"
"""Whether journeys use whole data sets."""
LEFTOVERS = (".draft", ".old", ".journal", ".scratch")
"""Endings of temporary names, which no command leaves behind."""


class Terminal:
    """A shell in a folder of its own, in which a user types `crowdrank ...`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, *words: object, code: int | tuple[int, ...] = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed script; fail if the exit code is another one, or if there is a traceback.

        Args:
            words: arguments after `crowdrank`.
            code: expected exit code, or several that are all right.
            environment: further environment variables.

        """
        line = [str(Path(sysconfig.get_path("scripts")) / "crowdrank"), *map(str, words)]
        env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **environment}
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, env=env)
        shown = f"crowdrank {' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr, shown
        assert done.returncode in ((code,) if isinstance(code, int) else code), shown
        left = [path.name for path in self.folder.rglob("*") if path.name.endswith(LEFTOVERS)]
        assert not left, f"{shown}\nleft behind: {left}"
        return done

    def json(self, *words: object, code: int = 0) -> Any:
        """Run a command with --json; return what it prints."""
        return json.loads(self(*words, "--json", code=code).stdout)

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.folder / name

    def write(self, name: str, text: str, encoding: str = "utf-8") -> Path:
        """Write a text file, and the folders above it."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding=encoding)
        return path

    def table(self, name: str) -> pd.DataFrame:
        """Read a CSV or Parquet file that a command wrote; ids are text."""
        path = self.path(name)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        ids = dict.fromkeys(("query", "document", "assessor"), str)
        return pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", dtype=ids, keep_default_na=False)

    def files(self) -> dict[str, bytes]:
        """Return the content of all files, to check later that nothing has changed."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


@pytest.fixture
def crowdrank(tmp_path: Path) -> Terminal:
    """Return a terminal in an empty folder."""
    return Terminal(tmp_path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium; skip the test if it is not installed."""
    if CHROMIUM is None:
        pytest.skip("the tests in a browser need Chromium (Debian: apt-get install chromium)")
    with chromium() as started:
        yield started


class OpenReport(OpenPage):
    """A report that a user has opened."""

    def check(self) -> None:
        """Check what every report needs: no error, nothing requested, and sections and charts that are visible."""
        self.page.wait_for_load_state("networkidle")
        assert not self.messages
        assert [url for url in self.requests if not url.startswith("data:")] == [self.page.url]
        linked = [link.get_attribute("href") for link in self.page.locator("nav a").all()]
        assert linked == [f"#{name}" for name in self.sections()]
        for name in self.sections():
            assert self.text(f"section#{name}").strip(), name
        for image in self.page.locator("figure img").all():
            assert image.evaluate("async one => { await one.decode(); return one.naturalWidth; }") > 150

    def sections(self) -> list[str]:
        """Return the ids of the sections, in order."""
        return [str(section.get_attribute("id")) for section in self.page.locator("main > section").all()]

    def charts(self, section: str) -> int:
        """Return the number of charts of a section."""
        return int(self.page.locator(f"section#{section} figure img").count())

    def tables(self) -> dict[str, int]:
        """Return the number of rows that each table shows."""
        found = self.page.locator("[data-table]").all()
        return {one.get_attribute("data-table"): one.locator("tbody tr:not(.below)").count() for one in found}


@pytest.fixture
def open_report(browser: Any) -> Iterator[Callable[[Path], OpenReport]]:
    """Return a function that opens a report in Chromium and checks what every report needs."""
    opened: list[OpenReport] = []

    def open_path(path: Path) -> OpenReport:
        report = OpenReport(browser.new_page(viewport={"width": 1366, "height": 850}))
        opened.append(report)
        report.listen()
        report.page.goto(path.as_uri())
        report.check()
        return report

    yield open_path
    for report in opened:
        report.page.close()


def take_part(frame: pd.DataFrame, column: str, count: int) -> pd.DataFrame:
    """Return the rows of the first ids of a column, in order of appearance; all rows in the full version."""
    if FULL:
        return frame
    return frame[frame[column].isin(frame[column].drop_duplicates()[:count])].reset_index(drop=True)


def take_rows(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return rows at equal distances, the first one included; all rows in the full version."""
    return frame if FULL or len(frame) <= count else frame.iloc[:: -(-len(frame) // count)].reset_index(drop=True)
