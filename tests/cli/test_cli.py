"""Every verb as a person uses it, by its words and exit codes."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from crowdrank._text import minus_signs
from crowdrank.cli.app import COMMANDS_BY_PANEL
from crowdrank.consensus import METHODS
from terminal import Run, crowdrank, crowdrank_process, without_columns

pytestmark = pytest.mark.usefixtures("no_charts")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    done = crowdrank("simulate", "-o", "world", "--queries", 12, "--documents", 8, "--seed", 3, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "world"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *words, **more: crowdrank(*words, cwd=tmp_path, **more)


def test_a_process_of_its_own_says_the_same(world: Path, run: Run, tmp_path: Path) -> None:
    wrong = ("evaluate", world / "gold.qrels", "--expert", "nowhere.qrels")
    for words in (("--version",), ("validate", world / "judgments.csv"), wrong):
        alone, here = crowdrank_process(*words, cwd=tmp_path), run(*words)
        assert (alone.returncode, alone.stdout, alone.stderr) == (here.returncode, here.stdout, here.stderr)
    assert alone.returncode == 2


def test_run_prints_its_profile_if_asked(world: Path, run: Run, tmp_path: Path) -> None:
    words = ("run", "-j", world / "judgments.csv", "-o", "out")
    assert "consensus gda" not in run(*words).stdout
    shown = run(*words, "--profile").stdout
    stages = [line.split()[0] for line in shown[shown.index("CPU") :].splitlines() if line.strip()]
    assert {"read", "consensus", "report", "run"} <= set(stages)
    assert max(map(len, shown.splitlines())) <= 80
    profile = json.loads(run(*words, "--json").stdout)["profile"]
    stored = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert set(profile) == set(stored)
    assert [one["stage"] for one in profile["stages"]] == [one["stage"] for one in stored["stages"]]


def test_help_lists_the_commands_by_task(run: Run) -> None:
    shown = run("--help").stdout
    for panel, names in COMMANDS_BY_PANEL.items():
        lines = shown[shown.index(f"─ {panel} ─") :].split("╰")[0]
        assert all(f"│ {name}" in lines for name in names)
    assert "│ collect" in shown


def test_simulate_writes_a_world_that_every_reader_reads(world: Path, run: Run) -> None:
    names = {path.name for path in world.iterdir()}
    assert {"judgments.csv", "gold.qrels", "features.letor", "assessors.csv", "world.json"} <= names
    assert run("validate", world / "judgments.csv").returncode == 0


# Every method to CSV; one method is enough for the other formats.
CASES = [*((method, "csv") for method in METHODS), *(("average", suffix) for suffix in ("parquet", "jsonl", "csv.gz"))]


@pytest.mark.parametrize(("method", "suffix"), CASES)
def test_aggregate_then_evaluate(world: Path, run: Run, tmp_path: Path, method: str, suffix: str) -> None:
    done = run("aggregate", world / "judgments.csv", "-m", method, "-o", f"out.{suffix}", "--assessors", "who.csv")
    assert done.returncode == 0, done.stderr
    assert "relevance" in done.stdout.splitlines()[1]
    assert done.stdout.strip().splitlines()[-1].endswith(f"written to who.csv, out.{suffix}.")
    assert {"assessor", "judgments"} <= set(pd.read_csv(tmp_path / "who.csv").columns)
    scored = run(
        "evaluate", f"out.{suffix}", "--expert", world / "gold.qrels", "--measures", "nDCG@5,GradeMAE", "--json"
    )
    assert scored.returncode == 0, scored.stderr
    means = json.loads(scored.stdout)["means"]
    assert 0.5 < means["nDCG@5"] <= 1
    assert 0 <= means["GradeMAE"] < 4


def test_aggregate_speaks_json(world: Path, run: Run) -> None:
    done = run("aggregate", world / "judgments.csv", "--json", "-s", "n_iter=3")
    summary = json.loads(done.stdout)
    assert summary["method"] == "gda"
    assert summary["iterations"] == 3
    assert not summary["converged"]
    assert without_columns(done.stderr).startswith("Warning: GDA stopped after 3 iterations")


def test_aggregate_saves_a_model_and_takes_gold(world: Path, run: Run, tmp_path: Path) -> None:
    done = run(
        "aggregate",
        world / "judgments.csv",
        "--expert",
        world / "gold.qrels",
        "--save",
        "model",
        "--assessors",
        "who.csv",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "model.json").exists()
    assert "gold_accuracy" in pd.read_csv(tmp_path / "who.csv")


def test_compare_marks_the_best_and_writes_every_query(world: Path, run: Run, tmp_path: Path) -> None:
    for method in ("majority", "average"):
        assert run("aggregate", world / "judgments.csv", "-m", method, "-o", f"{method}.csv").returncode == 0
    done = run(
        "compare", "majority.csv", "mean=average.csv", "--expert", world / "gold.qrels", "--per-query", "queries.csv"
    )
    assert done.returncode == 0, done.stderr
    assert "▲ ▼: significantly above or below majority" in done.stdout
    assert "p (Holm)" in done.stdout
    values = pd.read_csv(tmp_path / "queries.csv")
    assert set(values["run"]) == {"majority", "mean"}
    assert len(values) == 2 * 12


def test_compare_reads_trec_runs(world: Path, run: Run, tmp_path: Path) -> None:
    gold = pd.read_csv(world / "gold.qrels", sep=" ", names=["query", "iteration", "document", "grade"])
    for name, sign in (("good", 1), ("bad", -1)):
        rows = zip(gold["query"], gold["document"], sign * gold["grade"], strict=True)
        lines = [f"{query} Q0 {document} 1 {score} {name}" for query, document, score in rows]
        (tmp_path / f"{name}.trec").write_text("\n".join(lines))
    done = run("compare", "good.trec", "bad.trec", "--expert", world / "gold.qrels", "--measures", "nDCG", "--json")
    means = json.loads(done.stdout)["means"]
    assert means["good"]["nDCG"] == pytest.approx(1)
    assert means["bad"]["nDCG"] < 0.9


def test_compare_and_evaluate_show_the_share_of_judged_documents(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("document,grade\na,1\nb,0\n")
    (tmp_path / "old.csv").write_text("document,score\na,2\nb,1\n")
    (tmp_path / "new.csv").write_text("document,score\nx,3\na,2\nb,1\ny,0\n")
    done = run("compare", "old.csv", "new.csv", "--expert", "gold.csv", "--measures", "nDCG@10")
    assert "Judged@10" in done.stdout
    assert "Warning: the runs differ in the share of their first documents that have gold" in done.stderr
    assert "--unjudged skip" in done.stderr
    compared = json.loads(run("compare", "old.csv", "new.csv", "--expert", "gold.csv", "--json").stdout)
    assert compared["judged"] == {"old": {"Judged@10": 1.0}, "new": {"Judged@10": 0.5}}
    assert [warning["kind"] for warning in compared["warnings"]] == ["judged-differs"]
    assert "Judged@10" in run("evaluate", "new.csv", "--expert", "gold.csv").stdout


@pytest.mark.parametrize(
    "words",
    [["validate"], ["aggregate"], ["assessors"], ["check"], ["trace"], ["collect", "next"], ["collect", "status"]],
)
def test_every_verb_reads_judgments_alike(run: Run, words: list[str]) -> None:
    shown = run(*words, "--help", COLUMNS="200").stdout
    for name in ("format", "columns", "separator", "grades", "scales", "unjudgeable", "repeats", "exclude"):
        assert f"--{name}" in shown
    assert "--family-pattern" in shown
    assert "--reading" not in shown


def test_datasets_says_what_is_found(run: Run, tmp_path: Path) -> None:
    (tmp_path / "web-5grade").mkdir()
    for name in ("label.csv", "truth.csv"):
        (tmp_path / "web-5grade" / name).write_text("x")
    known = json.loads(run("datasets", "--json", CROWDRANK_DATA=str(tmp_path)).stdout)
    assert {entry["name"]: entry["found"] for entry in known} == {
        "trec-rf10": False,
        "web-5grade": True,
        "trec-dl20": False,
        "llmjudge-dl23": False,
        "adult-content-2": False,
        "dl19-people": False,
        "mq2008": False,
        "mslr-5k": False,
    }
    assert "CROWDRANK_DATA" in run("datasets").stdout


def test_demo_prints_the_answer_and_the_report(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--queries", 15)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Report: {Path('crowdrank-demo') / 'run' / 'report.html'}"
    again = json.loads(run("demo", "--queries", 15, "--json").stdout)
    assert again["sizes"]["queries"] == 15
    assert again["report"] == str(Path("crowdrank-demo") / "run" / "report.html")
    page = unescape((tmp_path / again["report"]).read_text())
    assert all(minus_signs(part) in page for part in again["summary"])
    text = " ".join(done.stdout.split())
    places = [text.index(f"- {part}") for part in again["summary"]]
    assert 0 < text.index("Is my ranker better?") < places[0]
    assert places == sorted(places)
    assert places[-1] < text.index("of the candidates")
    assert '<pre id="again">crowdrank demo --queries 15 --output crowdrank-demo</pre>' in page
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_run_and_report_show_texts(run: Run, world: Path, tmp_path: Path) -> None:
    judgments = pd.read_csv(world / "judgments.csv", dtype=str)
    pairs = judgments[["query", "document"]].drop_duplicates()
    pairs.assign(text="a page about cats").to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    files = ["-j", world / "judgments.csv", "-o", "out"]
    done = run("run", *files, "--texts", "texts.jsonl")
    assert done.returncode == 0, done.stderr
    assert "a page about cats" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "texts.parquet").exists()
    pairs.assign(text="a page about dogs").to_parquet(tmp_path / "texts.parquet")
    assert run("report", "out", "--texts", "texts.parquet").returncode == 0
    assert run("report", "out", "-o", "again.html").returncode == 0
    assert "a page about dogs" in (tmp_path / "again.html").read_text()
    pairs.assign(document="unknown", text="x").to_csv(tmp_path / "other.csv", index=False)
    for command in (["run", "-j", world / "judgments.csv", "-o", "new"], ["report", "out"]):
        wrong = run(*command, "--texts", "other.csv")
        assert wrong.returncode == 2
        assert "use the ids of the judgments" in wrong.stderr
    assert not (tmp_path / "new").exists()


def test_report_is_made_again_from_the_folder_of_a_run(run: Run, world: Path, tmp_path: Path) -> None:
    files = ["--judgments", world / "judgments.csv", "--features", world / "features.letor"]
    done = run("run", *files, "--candidates", "gls", "-o", "out")
    assert done.stdout.splitlines()[-1] == f"Report: {Path('out') / 'report.html'}"
    page = (tmp_path / "out" / "report.html").read_text()
    match = re.search(r'<pre id="again">(.*?)</pre>', page, re.DOTALL)
    assert match
    words = ["crowdrank", "run", *map(str, files), "--output", "out", "--candidates", "gls"]
    assert shlex.split(unescape(match.group(1))) == words
    again = run("report", "out", "-o", "again.html")
    assert again.stdout == "Report: again.html\n"
    profile = re.compile(r'<details class="more" id="profile">.*?</details>', re.DOTALL)  # the first has no report yet
    assert profile.sub("", (tmp_path / "again.html").read_text()) == profile.sub("", page)
    printed = json.loads(run("report", "out", "--json").stdout)
    written = (tmp_path / "out" / "report.html").read_bytes()
    assert printed == {"report": str(Path("out") / "report.html"), "bytes": len(written)}
    wrong = run("report", world)
    assert wrong.returncode == 2
    assert "it is not a run" in wrong.stderr


def test_run_reads_options_from_toml_and_from_the_line(run: Run, world: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        f'judgments = "{world}/judgments.csv"\nfeatures = ["{world}/features.letor"]\nexpert = "{world}/gold.qrels"\n'
        'candidates = "majority, average"\noutput = "out"\nseed = 3\n[trees]\nn_estimators = 5\n'
    )
    done = run("run", "run.toml", "--test", 0.4, "--json")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["settings"]["test"] == 0.4
    assert output["provenance"]["command"] == "crowdrank run run.toml --test 0.4"
    assert output["settings"]["trees"] == {"n_estimators": 5}
    assert (tmp_path / "out" / "model").is_dir()
    ranked = run("rank", "-m", "out/model", "-f", world / "features.letor", "-o", "run.trec")
    assert ranked.returncode == 0, ranked.stderr


def test_run_only_plans_when_asked(run: Run, world: Path, tmp_path: Path) -> None:
    files = ["-j", world / "judgments.csv", "-f", world / "features.letor", "-e", world / "gold.qrels"]
    done = run("run", *files, "--candidates", "majority,average", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Roughly ")
    assert list(tmp_path.iterdir()) == []


def test_plan_names_options_and_not_parameters(run: Run, world: Path, tmp_path: Path) -> None:
    grades = pd.read_csv(world / "gold.qrels", sep=" ", header=None)
    grades[3] += 1
    grades.to_csv(tmp_path / "other.qrels", sep=" ", header=False, index=False)
    files = ["-j", world / "judgments.csv", "-f", world / "features.letor", "-e", "other.qrels"]
    done = run("run", *files, "--candidates", "majority", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "--expert-map" in done.stdout
    assert "expert_map" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "A run needs judgments"),
        (["-j", "judgments.csv"], "A run needs a folder for its results"),
        (["-j", "judgments.csv", "-f", "features.letor"], "A run needs a folder for its results"),
        (
            ["-j", "judgments.csv", "-f", "features.letor", "-o", "o", "--candidates", "x"],
            "--candidates must be names of candidates",
        ),
        (["-j", "judgments.csv", "-f", "features.letor", "-o", "no/o"], "does not exist"),
        (["none.toml"], "it cannot be read"),
        (["bad.toml"], "it is not TOML"),
        (["judgments.csv", "-o", "o"], "--judgments judgments.csv"),
        (["odd.toml"], "a run has no table 'tree'"),
        (["strange.toml"], "strange.toml: a run has no option 'colour'"),
    ],
)
def test_run_says_what_is_wrong(run: Run, world: Path, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "bad.toml").write_text("judgments = ")
    (tmp_path / "odd.toml").write_text("[tree]\nx = 1\n")
    (tmp_path / "strange.toml").write_text('judgments = "a"\nfeatures = "b"\ncolour = 1\n')
    for name in ("judgments.csv", "features.letor"):
        (tmp_path / name).write_text((world / name).read_text())
    done = run("run", *words)
    assert done.returncode == 2
    errors = without_columns(done.stderr)
    assert said in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_validate_finds_everything_that_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("query,document,assessor,grade\nq,a,w,1\nq,b,,2\nq,c,w\nq,d,w,x\nq,a,w,0\n")
    done = run("validate", "bad.csv")
    assert done.returncode == 2
    unusable = "Error: 1 row cannot be used"
    assert f"{unusable} (no assessor), the first: bad.csv, row 2 (line 3), column 'assessor'" in done.stdout
    assert f"{unusable} (malformed line), the first: bad.csv, row 3 (line 4)" in done.stdout
    assert "'x' is not a grade" in done.stdout
    assert "Note: 1 repeated judgment" in done.stdout


def test_a_scale_that_nobody_told_is_said_to_be_a_guess(run: Run, tmp_path: Path) -> None:
    twos = tmp_path / "twos.csv"
    twos.write_text("query,document,assessor,grade\nq,a,x,2\nq,b,x,2\nq,b,y,2\n")
    guess = "Note: the only grade is 2, so the scale is not known and 1,2 is assumed; give it with --grades 0-2.\n"
    assert guess in run("validate", twos).stdout
    assert without_columns(run("aggregate", twos, "-m", "majority").stderr) == guess
    assert "Note: the grades 0, 1 of the scale 0-2 do not occur.\n" in run("validate", twos, "--grades", "0-2").stdout
    assert without_columns(run("aggregate", twos, "-m", "majority", "--grades", "0-2").stderr) == ""
    twos.write_text("query,document,assessor,grade\nq,a,x,2\nq,b,x,4\nq,b,y,2\n")
    guess = "Note: the grades 1, 3 do not occur; the scale 1-4 is assumed, up to the highest grade"
    assert guess in run("validate", twos).stdout
    assert guess in run("aggregate", twos, "-m", "majority").stderr


def test_rows_can_be_skipped_and_are_counted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("query,document,assessor,grade\nq,a,w,1\nq,b,w,x\nq,c,w,0\n")
    done = run("aggregate", "bad.csv", "-m", "average", "--on-bad-rows", "skip", "-o", "out.csv")
    assert done.returncode == 0
    assert "1 row skipped (grade off the scale)" in done.stdout
    assert len(pd.read_csv(tmp_path / "out.csv")) == 2


BAD_CALLS = [
    (["aggregate", "none.csv"], "none.csv: there is no such file"),
    (["aggregate", "empty.csv"], "empty.csv: there are no rows"),
    (["aggregate", "good.csv", "-m", "gpt"], "There is no method 'gpt'; take one of: majority, average"),
    (["aggregate", "good.csv", "-o", "none/out.csv"], "the folder none does not exist; create the folder first"),
    (["aggregate", "good.csv", "-o", "out.xlsx"], "ends in none of .csv, .tsv, .parquet, .jsonl"),
    (["aggregate", "good.csv", "--columns", "grade=stars"], "no column 'stars' for grade; the columns are: 'query'"),
    (["aggregate", "good.csv", "--columns", "star=grade"], "--columns has the unknown role 'star'"),
    (
        ["aggregate", "good.csv", "--grades", "0-1"],
        "good.csv, row 2 (line 3), column 'grade': the grade 2 is off the scale 0,1",
    ),
    (["aggregate", "good.csv", "--threads", "0"], "--threads must be a whole number of at least 1, not 0"),
    (["aggregate", "good.csv", "-s", "depth=2"], "GDA has no parameter 'depth'"),
    (["aggregate", "semicolon.csv", "--separator", ","], "it looks separated by semicolon: use --separator ';'"),
    (["aggregate", "good.dat"], "neither its name nor its content shows the format"),
    (["aggregate", "cut.csv.gz"], "cut.csv.gz: it cannot be read"),
    (["validate", "good.csv", "--format", "xml"], "--format must be one of csv"),
    (["evaluate", "good.csv", "--expert", "good.csv"], "there is no column for score"),
    (["evaluate", "scores.csv", "--expert", "good.csv", "--measures", "nDGC"], "there is no measure 'nDGC'"),
    (["evaluate", "scores.csv", "--expert", "gold.csv", "--ties", "any"], "any"),
    (["compare", "scores.csv", "scores.csv", "--expert", "gold.csv"], "Two rankings are called 'scores'"),
    (["simulate", "-o", "w", "--spammers", "2"], "spammers"),
    (["simulate", "-o", "none/w"], "the folder none does not exist"),
    (["aggregate", "good.csv", "-o", "good.csv"], "--output is good.csv, which is read; choose another name"),
    (
        ["aggregate", "good.csv", "-o", "a.csv", "--assessors", "a.csv"],
        "--assessors is a.csv, which another output is too",
    ),
    (
        ["aggregate", "good.csv", "-o", "a.csv", "--save", "full"],
        "full: cannot be written: it contains thesis.txt",
    ),
    (["aggregate", "good.csv", "-o", "a.csv", "--save", "."], "it is or contains the current folder"),
    (["aggregate", "good.csv", "-s", "n_iter=abc"], "n_iter must be a whole number of at least 1, not 'abc'"),
    (["aggregate", "good.csv", "-s", "tol=x"], "tol must be a number of at least 0, not 'x'"),
    (["aggregate", "good.csv", "--columns", "query=query,document=query"], "gives the column 'query' two roles"),
    (["evaluate", "scores.csv", "--expert", "minus.qrels"], "set --expert-unjudgeable -1"),
    (["evaluate", "scores.csv", "--expert", "gold.csv", "--per-query", "scores.csv"], "--per-query is scores.csv"),
]


@pytest.mark.parametrize(
    ("words", "sentence"), BAD_CALLS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    run: Run, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "good.csv").write_text("query,document,assessor,grade\nq,a,w,1\nq,b,w,2\n")
    (tmp_path / "gold.csv").write_text("query,document,grade\nq,a,1\nq,b,2\n")
    (tmp_path / "scores.csv").write_text("query,document,score\nq,a,1\nq,b,2\n")
    (tmp_path / "good.dat").write_text("one,two,three\nq,a,1\n")
    (tmp_path / "semicolon.csv").write_text("query;document;assessor;grade\nq;a;w;1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "minus.qrels").write_text("q 0 a 1\nq 0 b -1\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "cut.csv.gz").write_bytes(
        gzip.compress(b"query,document,assessor,grade\n" + os.urandom(4000).hex().encode())[:2000]
    )
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run(*words)
    assert done.returncode == 2, done
    errors = without_columns(done.stderr)
    assert errors.startswith("Error: ")
    assert sentence in errors
    assert len(errors.strip().splitlines()) == 1
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_full_disk_leaves_the_old_file(world: Path, run: Run, tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    (tmp_path / "out.csv").write_text("old")
    limited = f"ulimit -f 1; exec {sys.executable} -m crowdrank aggregate {world}/judgments.csv -m average -o out.csv"
    # SIGXFSZ would end the process where a full disk only makes the write fail.
    done = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; {limited}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert "out.csv: cannot be written: File too large (nothing was changed)." in done.stderr
    assert (tmp_path / "out.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.data
def test_rf10_as_published(data_folder: Path, run: Run, tmp_path: Path) -> None:
    data = data_folder / "trec-rf10" / "trec-rf10-data.txt.gz"
    done = run("aggregate", data, "--format", "trec-rf10", "-m", "dawid-skene", "-o", "out.parquet")
    assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 20_232
    assert "1,570 repeated judgments" in done.stdout
    gold = ("--expert", data, "--expert-format", "trec-rf10", "--unjudged", "skip")
    scored = run("evaluate", "out.parquet", *gold, "--measures", "AP,nDCG,Tau", "--json")
    means = json.loads(scored.stdout)["means"]
    assert list(means.values()) == pytest.approx([0.785, 0.830, 0.648], abs=0.01)


def test_named_grades_are_scored_by_their_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("document,assessor,grade\na,x,Good\na,y,Good\nb,x,Bad\nb,y,Fair\nc,x,Cannot\n")
    (tmp_path / "gold.csv").write_text("document,grade\na,Good\nb,Bad\n")
    names = "Bad,Fair,Good"
    made = run(
        "aggregate", "labels.csv", "-m", "majority", "--grades", names, "--unjudgeable", "Cannot", "-o", "out.csv"
    )
    assert "1 'cannot judge' answer counted as the lowest grade" in made.stdout
    done = run(
        "evaluate", "out.csv", "--expert", "gold.csv", "--expert-grades", names, "--measures", "GradeAccuracy", "--json"
    )
    assert json.loads(done.stdout)["means"]["GradeAccuracy"] == 0.5


def test_what_is_not_a_number_is_null_in_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("query,document,grade\nq,a,1\nq,b,2\n")
    (tmp_path / "scores.csv").write_text("query,document,score\nq,a,1\nq,b,2\n")
    done = run("evaluate", "scores.csv", "--expert", "gold.csv", "--measures", "AP(rel=9)", "--json")
    assert json.loads(done.stdout)["means"] == {"AP(rel=9)": None}


def test_assessors_writes_gaussians(world: Path, run: Run, tmp_path: Path) -> None:
    done = run("assessors", world / "judgments.csv", "-m", "gda", "--gaussians", "gaussians.csv")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "gaussians.csv")
    assert table.columns.tolist() == ["assessor", "grade", "mu", "width", "alpha"]
    assert table.groupby("assessor")["alpha"].sum().to_numpy() == pytest.approx(1)
    refused = run("assessors", world / "judgments.csv", "-m", "average", "-o", "who.csv", "--gaussians", "other.csv")
    assert refused.returncode == 2
    assert not (tmp_path / "who.csv").exists()


def test_aggregate_writes_the_whole_posterior(world: Path, run: Run, tmp_path: Path) -> None:
    done = run("aggregate", world / "judgments.csv", "-m", "gda", "--posterior", "posterior.csv")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "posterior.csv")
    assert table.columns[2:].astype(float).is_monotonic_increasing
    assert table.iloc[:, 2:].sum(axis=1).to_numpy() == pytest.approx(1)


def test_scales_of_their_own_serve_assessors_check_and_trace(run: Run, tmp_path: Path) -> None:
    rows = [f"q,d{d},{a},{(d + n) % (2 if n % 2 else 5)}" for d in range(8) for n, a in enumerate("wxyz")]
    (tmp_path / "labels.csv").write_text("query,document,assessor,grade\n" + "\n".join(rows) + "\n")
    (tmp_path / "scales.csv").write_text("assessor,grades\nw,0-4\nx,0-1\ny,0-4\nz,0-1\n")
    for verb in (["assessors"], ["check"], ["trace", "--document", "d1"]):
        done = run(verb[0], "labels.csv", "--scales", "scales.csv", "-m", "gda", *verb[1:])
        assert done.returncode == 0, done.stderr


def test_families_that_were_looked_for_are_told(world: Path, run: Run) -> None:
    done = run("aggregate", world / "judgments.csv", "-m", "gda", "-s", "families=auto")
    assert "families untestable" in done.stdout


def test_a_world_is_not_written_over_unless_told(run: Run, tmp_path: Path) -> None:
    words = ("simulate", "-o", "world", "--queries", 2, "--documents", 3)
    assert "Wrote 30 judgments" in run(*words).stdout
    assert "world has this world already: 30 judgments" in run(*words).stdout
    assert run(*words, "--seed", 1).returncode == 2
    mine = tmp_path / "world" / "judgments.csv"
    mine.write_text("mine")
    done = run(*words)
    assert done.returncode == 2
    assert "There is another world in world already; name another folder, or replace it with --overwrite" in done.stderr
    assert mine.read_text() == "mine"
    assert run(*words, "--overwrite").returncode == 0
    assert mine.read_text() != "mine"


def test_run_counts_every_row(tmp_path: Path, run: Run) -> None:
    rows = [(f"d{number}", who, (number + (who == "y")) % 3) for number in range(12) for who in "xyz"]
    lines = [f"q,{document},{assessor},{grade}" for document, assessor, grade in (*rows, *rows[:4])]
    (tmp_path / "labels.csv").write_text("\n".join(["query,document,assessor,grade", *lines, "q,d1,x,bad"]) + "\n")
    words = ("run", "-j", "labels.csv", "-m", "average", "-o", "out", "--on-bad-rows", "skip")
    found = json.loads(run(*words, "--json").stdout)
    assert (found["rows"], found["repeats"], found["excluded"]) == (41, 4, 0)
    assert sum(found["skipped"].values()) == 1
    assert {"repeats", "rows-skipped"} <= {note["kind"] for note in found["notes"]}
    assert "4 repeated judgments" in run(*words).stdout


def test_aggregate_states_the_calibration(run: Run, world: Path) -> None:
    command = ("aggregate", world / "judgments.csv", "--expert", world / "gold.qrels", "-m", "majority", "--json")
    calibration = json.loads(run(*command).stdout)["calibration"]
    assert calibration["outcome"] == "no-gain"
    assert calibration["temperature"] == 1
    assert calibration["n_expert_grades"] >= 20
    assert 0 < calibration["before"]["calibration_error"] < 1
    assert "calibration" not in json.loads(run(*command, "--no-calibrate").stdout)


def test_a_consensus_is_scored_without_the_expert_grades_that_it_used(world: Path, run: Run, tmp_path: Path) -> None:
    judgments, gold = world / "judgments.csv", pd.read_csv(world / "gold.qrels", sep=" ", header=None)
    gold.columns = ["query", "run", "document", "grade"]
    gold.iloc[::2].to_csv(tmp_path / "used.csv", index=False)
    gold.to_csv(tmp_path / "truth.csv", index=False)
    assert run("aggregate", judgments, "--expert", "used.csv", "-o", "c.csv").returncode == 0
    consensus = pd.read_csv(tmp_path / "c.csv")
    assert consensus.expert_graded.sum() == len(gold.iloc[::2])
    scored = json.loads(
        run("evaluate", "c.csv", "--expert", "truth.csv", "--measures", "GradeAccuracy", "--json").stdout
    )
    rest = consensus.merge(gold.iloc[1::2], on=["query", "document"], suffixes=("", "_expert"))
    by_query = (rest.grade == rest.grade_expert).groupby(rest["query"]).mean()
    assert scored["means"]["GradeAccuracy"] == pytest.approx(by_query.mean())
    assert scored["n_gold_used"] == len(gold.iloc[::2])
    assert run("evaluate", "c.csv", "--expert", "used.csv").returncode == 2
    assert run("aggregate", judgments, "-o", "blind.csv").returncode == 0
    assert "expert_graded" not in pd.read_csv(tmp_path / "blind.csv")
    noted = run("aggregate", judgments, "--expert", "used.csv", "-o", "c.qrels").stderr
    assert "cannot record which documents had an expert grade" in noted
