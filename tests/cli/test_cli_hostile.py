"""Ids and file names that would like to be more than text: escape sequences, formulas, other alphabets."""

from __future__ import annotations

import csv
import itertools
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from crowdrank import _progress
from crowdrank._text import escape_invisible
from crowdrank.cli.console import print_cells, print_json
from terminal import Run, crowdrank, crowdrank_process, without_columns

HOSTILE = (
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31mred",
    "back\b\b\bspace",
    "over\rwritten",
    "two\nError: lines",
    "tab\tbed",
    "\u202edesrever\u2066",
    "\x7f",
    ":smile: [bold]bold[/bold] [/]",
    "=1+1",
)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *words, **more: crowdrank(*words, cwd=tmp_path, **more)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Judgments whose queries, documents, assessors and families are hostile."""
    rows = [
        {"query": query, "document": f"{query}{at}", "assessor": who, "family": who, "grade": (at + len(who)) % 3}
        for query, at, who in itertools.product(HOSTILE, range(3), HOSTILE)
    ]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("validate",),
        ("aggregate", "-m", "gda"),
        ("assessors",),
        ("check",),
        ("trace", "--document", f"{HOSTILE[0]}1"),
        ("collect", "status"),
        ("collect", "disagreements"),
    ],
    ids=lambda words: words[1] if words[0] == "collect" else words[0],
)
def test_no_id_steers_the_terminal(labels: Path, run: Run, words: tuple[str, ...]) -> None:
    split = 2 if words[0] == "collect" else 1
    line = (*words[:split], labels, *words[split:])
    done = run(*line)
    assert done.returncode == 0, done.stderr
    assert not OBEYED.search(done.stdout + done.stderr)
    if words[0] != "validate":
        assert not any(line.startswith("Error: lines") for line in done.stdout.splitlines())
    output = run(*line, "--json")
    assert output.stdout.isascii()
    assert not OBEYED.search(output.stdout)
    json.loads(output.stdout)


def test_ids_are_shown_escaped(labels: Path, run: Run) -> None:
    shown = run("trace", labels, "--document", f"{HOSTILE[0]}1").stdout
    for name in HOSTILE:
        assert escape_invisible(name) in shown, "emoji and markup of rich are no exception"


def test_errors_and_warnings_are_inert(tmp_path: Path, run: Run) -> None:
    bad = tmp_path / "bad\x1b[31m.csv"
    bad.write_text("query,document,assessor,grade\x1b\nq,d,a,1\nq,e,a,x\x9b\n")
    lines = [
        ("validate", bad),
        ("validate", bad, "--columns", "grade=grade\x1b"),
        ("aggregate", bad, "--columns", "grade=grade\x1b"),
        ("validate", "nothing\x1b\udcff.csv"),
        ("aggregate", "a.csv", "b\x1b[31m.csv"),
        ("aggregate", "a.csv", "--no\x1b[31m"),
        ("--no\x1b[31m",),
        ("no\x1b[31m",),
        ("aggregate", bad, "-m", "\x1b[31m"),
        ("aggregate", bad, "-o", "\x1b[31m.xls"),
        ("report", "no\x1b[31m\nsuch"),
    ]
    for line in lines:
        done = run(*line, FORCE_COLOR=None, NO_COLOR="1")
        assert done.returncode == 2, line
        assert not OBEYED.search(done.stdout + done.stderr), line


@pytest.mark.parametrize("words", [("aggregate", "häß.csv", "-m", "majority"), ("--help",), ("collect", "-h")])
def test_an_encoding_without_the_characters_is_no_traceback(tmp_path: Path, words: tuple[str, ...]) -> None:
    rows = "query,document,assessor,grade\nq,日本,ann,1\nq,b,ann,0\nq,日本,bob,1\nq,b,bob,0\n"
    (tmp_path / "häß.csv").write_text(rows, encoding="utf-8")
    done = crowdrank_process(*words, cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert (done.returncode, without_columns(done.stderr)) == (0, "")
    assert done.stdout.isascii()
    assert ("\\u65e5\\u672c" in done.stdout) == (words[0] == "aggregate")


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"id": "".join(map(chr, range(0xA0))) + "\u202e\ud800"}
    print_json(value)
    text = capsys.readouterr().out
    assert text.isascii()
    assert not OBEYED.search(text)
    assert json.loads(text) == value


def test_tables_keep_their_own_styles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.text import Text

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_cells(["na\x1bme"], [[Text("first\nsec\x1bond", style="bold")]], [True], "ti\x1btle")
    shown = capsys.readouterr().out
    assert "\x1b[1mfirst" in shown
    assert [name in shown for name in ("na\\x1bme", "sec\\x1bond", "ti\\x1btle")] == [True] * 3


def test_a_bar_shows_its_title_as_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    title = "\x1b]0;x\x07 [/] :smile:"
    for terminal in ("1", "0"):
        monkeypatch.setenv("TTY_COMPATIBLE", terminal)
        with _progress.ProgressBar(title, after=0, every=0) as report:
            report(1, 2, 0.5)
            report.stage(title, 2)
        shown = capsys.readouterr().err
        assert "\\x1b]0;x\\x07 [/] :smile:" in shown
        assert "\x1b]" not in shown


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "plain")
DANGEROUS = {*FORMULAS[:-1], "+x"}


@pytest.fixture
def formulas(tmp_path: Path) -> Path:
    """Judgments whose ids are formulas, with the pool, expert grades, features and a ranker."""
    rows = [
        {"query": query, "document": document, "assessor": who, "grade": (place + number) % 3}
        for query in FORMULAS
        for place, document in enumerate(FORMULAS)
        for number, who in enumerate(FORMULAS)
    ]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = pd.DataFrame(rows).drop_duplicates(["query", "document"])[["query", "document", "grade"]]
    pairs.assign(relevance=pairs["grade"], grade=pairs["grade"].max() - pairs["grade"]).to_parquet(
        tmp_path / "gold.parquet"
    )
    pairs.assign(f=pairs["grade"] + 0.5)[["query", "document", "f"]].to_parquet(tmp_path / "features.parquet")
    return path


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as stream:
        return list(csv.reader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))


COMMANDS = {
    "aggregate": ("aggregate", "labels.jsonl", "-m", "majority", "-o", "OUT"),
    "aggregate --assessors": ("aggregate", "labels.jsonl", "-m", "dawid-skene", "--assessors", "OUT"),
    "aggregate --posterior": ("aggregate", "labels.jsonl", "-m", "dawid-skene", "--posterior", "OUT"),
    "assessors": ("assessors", "labels.jsonl", "-o", "OUT"),
    "trace": ("trace", "labels.jsonl", "--document", "=1+1", "--query", "+1", "-o", "OUT"),
    "evaluate": ("evaluate", "gold.parquet", "--expert", "gold.parquet", "--per-query", "OUT"),
    "compare": ("compare", "+x=gold.parquet", "y=gold.parquet", "--expert", "gold.parquet", "--per-query", "OUT"),
    "rank": ("rank", "--model", "model", "-f", "features.parquet", "-o", "OUT"),
    "disagreements": ("collect", "disagreements", "labels.jsonl", "-o", "OUT"),
    "next": (
        "collect",
        "next",
        "labels.jsonl",
        "--pairs",
        "gold.parquet",
        "--budget",
        5,
        "-p",
        "8-overlap",
        "-o",
        "OUT",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_csv_safe_writes_no_formula(formulas: Path, run: Run, tmp_path: Path, name: str, suffix: str) -> None:
    if name == "rank":
        made = run("train", "-f", "features.parquet", "--labels", "gold.parquet", "--ranker", "gls", "-o", "model")
        assert made.returncode == 0, made.stderr
    exact, safe = tmp_path / f"exact{suffix}", tmp_path / f"safe{suffix}"
    for path, more in ((exact, ()), (safe, ("--csv-safe",))):
        done = run(*(path.name if word == "OUT" else word for word in COMMANDS[name]), *more)
        assert done.returncode == 0, done.stderr
        for ledger in tmp_path.glob("*.requests.csv"):  # what was asked is not asked again
            ledger.unlink()
    header, *rows = rows_of(exact)
    ids = [name in ("query", "document", "assessor", "run") for name in header]
    assert any(cell in DANGEROUS for row in rows for cell in row)
    for row, changed in zip(rows, rows_of(safe)[1:], strict=True):
        for cell, new, is_id in zip(row, changed, ids, strict=True):
            assert new == (f"'{cell}" if is_id and cell in DANGEROUS else cell)


def test_csv_safe_never_touches_what_programs_read(formulas: Path, run: Run, tmp_path: Path) -> None:
    asked = ("collect", "next", formulas.name, "--pairs", "gold.parquet", "--budget", 5, "-p", "8-overlap")
    refused = run(*asked, "--to", "mturk", "-o", "tasks.csv", "--csv-safe")
    assert refused.returncode == 2
    assert not (tmp_path / "tasks.csv").exists()
    assert run(*asked, "-o", "asked.csv", "--csv-safe").returncode == 0
    (ledger,) = tmp_path.glob("*.requests.csv")
    listed = {cell for row in rows_of(ledger) for cell in row}
    assert listed & DANGEROUS
    assert not {cell for cell in listed if cell.startswith("'")}
    assert run(*asked, "-o", "asked.parquet", "--csv-safe", "--again").returncode == 0
    assert set(pd.read_parquet(tmp_path / "asked.parquet")["query"]) <= set(FORMULAS)
