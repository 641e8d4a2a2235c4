"""What stands on the pages runs: files are written, Python and shell blocks executed in order, in a folder apart.

A block with a title is a file. Lines of `bash` blocks are commands of crowdrank; `console` blocks (make, pip) are for
people. Worlds are made smaller, and `run` tries two candidates: it is the pages that are tested here, not the methods.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.cli.demo_commands import DEFAULT_N_QUERIES, MAX_EXPERT_QUERIES
from crowdrank.pipeline.run_settings import RunSettings

REPOSITORY = Path(__file__).parent.parent.parent
README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("papers/*.md"))]
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SMALLER = (
    (re.compile(r"(--expert-queries )\d+"), r"\g<1>12"),
    (re.compile(r"(--queries )\d+"), r"\g<1>20"),
    (re.compile(r"(\bqueries=)\d+"), r"\g<1>20"),
    (re.compile(r"^(crowdrank run (?!.*--candidates).*)$"), r"\1 --candidates majority,gls"),
)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Kind, title and text of each block."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(one["kind"], one["title"] or "", one["text"]) for one in found]


def smaller(text: str) -> str:
    for pattern, by in SMALLER:
        text = pattern.sub(by, text)
    return text


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block, each as its words."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(smaller(line), comments=True))]


def run_shell(text: str) -> None:
    for words in commands(text):
        assert words[0] == "crowdrank", f"{words[0]} cannot be tested: put it into a console block"
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{shlex.join(words)}: {done.output} {done.exception!r}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_what_stands_on_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page != README:  # a report with charts is drawn once
        request.getfixturevalue("no_charts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # crowdrank itself
    names: dict[str, object] = {"__name__": page.stem}
    for kind, title, text in blocks(page):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif kind == "python":
            for peer in re.findall(r"^(?:from|import) (sklearn|crowdkit|ir_measures)\b", text, re.MULTILINE):
                pytest.importorskip(peer)
            exec(compile(smaller(text), str(page), "exec"), names)
        elif kind == "bash":
            run_shell(text)


def test_blocks_are_of_kinds_that_are_known() -> None:
    kinds = {kind for page in PAGES for kind, title, _ in blocks(page) if not title}
    assert {"python", "bash"} <= kinds <= {"python", "bash", "console", "text"}
    assert len([page for page in PAGES if any(kind == "python" for kind, *_ in blocks(page))]) >= 5


def test_pages_that_are_read_in_one_folder_make_the_same_world() -> None:
    """Another world in the place of one that is there would be refused."""
    lines = [line for page in PAGES for kind, _, text in blocks(page) if kind == "bash" for line in text.splitlines()]
    made = [line for line in lines if line.startswith("crowdrank simulate -o world ")]
    assert len(made) >= 4
    assert len(set(made)) == 1, made


def test_the_quick_start_and_the_picture_are_of_the_same_world() -> None:
    (made,) = {
        line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("crowdrank simulate")
    }
    assert f"--queries {DEFAULT_N_QUERIES} --expert-queries {MAX_EXPERT_QUERIES}" in made
    first, *_ = (REPOSITORY / "docs" / "assets" / "report.txt").read_text(encoding="utf-8").splitlines()
    n_test = round(RunSettings.test * MAX_EXPERT_QUERIES)
    assert first.startswith(f"On {n_test} test queries")
    for page in (README, REPOSITORY / "docs" / "start.md"):
        text = page.read_text(encoding="utf-8")
        assert ('"Not shown"' in text) == ("not shown to be better" in first), f"{page} promises another answer"
        assert f"{n_test} " in text


def test_a_wrong_command_on_a_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"nothing\.csv"):
        run_shell("crowdrank validate nothing.csv\n")
