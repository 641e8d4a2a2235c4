"""Quiet, colors, completion, and where errors point to; in this process, as nothing is lost by it."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdrank import _progress, errors
from crowdrank.cli import app as command_line
from crowdrank.cli import console
from crowdrank.cli.console import PAGE_BY_ERROR, page_for, print_cells, print_error, print_status

REPOSITORY = Path(__file__).parent.parent.parent
COLOR = re.compile(r"\x1b\[[0-9;]*3[0-7]")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The command line changes how this process warns and whether it is quiet."""
    with warnings.catch_warnings():
        yield
    _progress.set_quiet(False)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    path.write_text("query,document,assessor,grade\nq,a,ann,1\nq,b,ann,0\nq,a,bob,1\nq,b,bob,2\n")
    return path


def run(monkeypatch: pytest.MonkeyPatch, *words: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["crowdrank", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    return int(end.value.code or 0)


def test_quiet_leaves_results(
    labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("aggregate", labels, "-m", "dawid-skene", "-s", "n_iter=1")
    assert run(monkeypatch, *words) == 0
    loud = capsys.readouterr()
    assert "Warning: DawidSkene stopped" in loud.err
    assert run(monkeypatch, "--quiet", *words) == 0
    still = capsys.readouterr()
    assert (still.err, still.out) == ("", loud.out)


def test_quiet_leaves_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "-q", "validate", "nothing.csv") == 2
    assert capsys.readouterr().err.startswith("Error: ")


def test_quiet_shows_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    _progress.set_quiet(True)
    with _progress.ProgressBar("fitting", after=0) as report:
        report(1, 2, 0.5)
    print_status("a note")
    print_error("an error")
    assert capsys.readouterr().err == "an error\n"


def test_no_color(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_cells(["a"], [["b"]], [True], "a title")
    monkeypatch.setenv("NO_COLOR", "1")
    capsys.readouterr()
    print_cells(["a"], [["b"]], [True], "a title")
    assert run(monkeypatch, "--help") == 0
    assert not COLOR.search(capsys.readouterr().out)


def test_the_shell_completes_methods() -> None:
    asked = {"COMP_WORDS": "crowdrank aggregate -m gda", "COMP_CWORD": "3", "_CROWDRANK_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv = ['crowdrank']; from crowdrank.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **asked}
    )
    assert sorted(done.stdout.split()) == ["gda", "gda-pairwise"]


@pytest.mark.parametrize("person", [True, False])
def test_errors_point_to_a_page_where_a_person_reads(
    person: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: person)
    assert run(monkeypatch, "aggregate", "labels.csv", "-m", "nonsense") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Error: There is no method 'nonsense'")
    page = "the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's repository)"
    assert lines[1:] == ([f"Help: crowdrank aggregate --help; {page}"] if person else [])


def test_every_error_has_a_page_that_is_there() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        if issubclass(kind, errors.CrowdrankError):
            page = page_for(kind("problem"))
            text = (REPOSITORY / page.file).read_text(encoding="utf-8")
            assert text.startswith(f"# {page.title}\n")
            assert not page.section or f"\n## {page.section}\n" in text
    assert set(PAGE_BY_ERROR) <= set(kinds)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("agregate", "labels.csv"), "aggregate"),
        (("collect", "nxt", "labels.csv"), "next"),
        (("aggregate", "labels.csv", "-m", "gad-pairwise"), "gda-pairwise"),
        (("aggregate", "labels.csv", "-m", "majority", "-s", "intervall=0.9"), "interval"),
        (("aggregate", "labels.csv", "--repeats", "lst"), "last"),
        (("aggregate", "labels.csv", "--engine", "task"), "dask"),
        (("aggregate", "labels.csv", "--columns", "asessor=who"), "assessor"),
        (("collect", "next", "labels.csv", "--pairs", "labels.csv", "--budget", "5", "-p", "entrpy"), "entropy"),
        (("collect", "next", "labels.csv", "--pairs", "labels.csv", "--budget", "5", "--kind", "exprt"), "expert"),
        (("evaluate", "labels.csv", "--expert", "labels.csv", "--measures", "nDGC@10"), "nDCG"),
        (("run", "-j", "labels.csv", "-f", "labels.csv", "-o", "out", "-m", "gdaa"), "gda"),
        (("train", "-f", "labels.csv", "-r", "lambda-mart", "-o", "out"), "lambdamart"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(
    words: tuple[str, ...],
    meant: str,
    labels: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(labels.parent)
    assert run(monkeypatch, *words) == 2
    assert f"id you mean '{meant}'" in capsys.readouterr().err


def test_a_folder_without_a_model_is_said_in_words(
    labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(labels.parent)
    Path("out", "model").mkdir(parents=True)

    def said(folder: str) -> str:
        assert run(monkeypatch, "rank", "-m", folder, "-f", "labels.csv") == 2
        return capsys.readouterr().err

    begin = "it is not a saved ranker"
    assert said("out") == f"Error: out: {begin} (there is no crowdrank.json in it); name a folder written by save.\n"
    assert said("none") == "Error: none: there is no such folder; name a folder written by save.\n"
    assert "it is a file, not a folder" in said("labels.csv")
    Path("out", "model", "ranker.json").write_text("{}")
    assert "out/model" in said("out")
    assert "there is no crowdrank.json in it" in said("out/model")


@pytest.mark.parametrize("seed", range(20))
def test_a_table_in_a_pipe_is_that_of_rich(
    seed: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    words = ["", "a", "0.123", "-1", "two words", "a  b", "[bold]x[/]", ":smile:", "http://a.b", "x" * 80, "x" * 81]
    words += [" a", "a ", "é", "文書", "a\x1bb", "-", "'q'"] if seed % 2 else []
    n_columns = rng.randint(1, 6)
    names, *rows = ([rng.choice(words) for _ in range(n_columns)] for _ in range(rng.randint(1, 9)))
    aligned = [rng.random() < 0.5 for _ in names]
    print_cells(names, rows, aligned)
    plain = capsys.readouterr().out
    monkeypatch.setattr(console, "_is_plain", lambda rows: False)
    print_cells(names, rows, aligned)
    assert plain == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "closed", "code", "unbuffered"),
    [
        (("aggregate", "labels.csv", "-o", "out.csv"), "stdout", 0, ""),
        (("aggregate", "labels.csv", "-o", "out.csv"), "stdout", 0, "1"),
        (("--help",), "stdout", 0, ""),
        (("aggregate", "nothing.csv"), "stderr", 2, ""),
        (("nonsense",), "stderr", 2, ""),
    ],
)
def test_a_closed_pipe_does_not_stop_a_command(
    words: tuple[str, ...], closed: str, code: int, unbuffered: str, labels: Path
) -> None:
    """Run a command whose output nobody reads, as `crowdrank ... | head` does when head has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "crowdrank", *words],
        cwd=labels.parent,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer if closed == "stdout" else subprocess.PIPE,
        stderr=writer if closed == "stderr" else subprocess.PIPE,
    )
    os.close(writer)
    assert done.returncode == code
    open_stream = done.stderr if closed == "stdout" else done.stdout
    assert b"Traceback" not in open_stream
    assert b"Broken" not in open_stream
    if "out.csv" in words:
        assert len((labels.parent / "out.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("descriptor", [1, 2])
def test_output_may_be_closed_from_the_start(descriptor: int, labels: Path) -> None:
    line = [sys.executable, "-m", "crowdrank", "aggregate", "labels.csv", "-o", "out.csv"]
    done = subprocess.run(line, cwd=labels.parent, preexec_fn=lambda: os.close(descriptor), capture_output=True)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert (labels.parent / "out.csv").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("report", "none/out"),
        ("aggregate", "--update", "none/model", "labels.csv"),
        ("rank", "-m", "none/model", "-f", "labels.csv"),
    ],
)
def test_an_input_folder_that_is_not_there_is_not_to_be_created(
    words: tuple[str, ...], labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(labels.parent)
    assert run(monkeypatch, *words) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert not Path("none").exists()


def test_quiet_may_be_anywhere(tmp_path: Path) -> None:
    from terminal import crowdrank

    (tmp_path / "labels.csv").write_text("document,assessor,grade\na,x,1\nb,x,0\na,y,1\nb,y,0\n")
    for words in (("-q", "aggregate", "labels.csv"), ("aggregate", "labels.csv", "--quiet")):
        done = crowdrank(*words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
