"""What the command line says of rows, limits and addresses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from terminal import Run, crowdrank, crowdrank_process

ROWS = "query,document,assessor,grade\nq,a,x,0\nq,b,y,1\nq,a,y,1\nq,b,x,1\n"
MTURK = (
    "HITId,WorkerId,AssignmentStatus,Input.query,Input.document,Answer.grade\n"
    "H1,W1,Approved,jam,d1,1\nH1,W2,Approved,jam,d1,0\nH2,W3,Rejected,jam,d2,0\nH2,,Approved,jam,d2,0\n"
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "gold.qrels").write_text("q 0 a 1\nq 0 c 1\nq 0 d 0\n")
    (tmp_path / "batch.csv").write_text(MTURK)
    return lambda *words, **more: crowdrank(*words, cwd=tmp_path, **more)


@pytest.mark.parametrize("verb", ["aggregate", "assessors"])
def test_expert_grades_that_match_no_judgment_are_counted(verb: str, run: Run) -> None:
    done = run(verb, "a.csv", "--expert", "gold.qrels", "-m", "dawid-skene", "--json")
    assert json.loads(done.stdout)["gold_unjudged"] == 2
    assert "Note: 2 expert grades are for documents without judgments." in done.stderr
    assert json.loads(run(verb, "a.csv", "-m", "dawid-skene", "--json").stdout)["gold_unjudged"] == 0


def test_unused_rows_are_shown(run: Run) -> None:
    summary = json.loads(run("aggregate", "batch.csv", "-m", "majority", "--json").stdout)
    assert summary["skipped"] == {"assignment rejected": 1, "no worker": 1}
    assert summary["rows"] == summary["judgments"] + 2
    assert "1 row skipped (assignment rejected)" in run("aggregate", "batch.csv", "-m", "majority").stdout
    looked = run("validate", "batch.csv")
    assert looked.returncode == 0
    assert "Note: 1 row left out (no worker)." in looked.stdout


def test_unused_rows_of_a_batch_are_noted(run: Run) -> None:
    done = run("collect", "add", "so-far.csv", "batch.csv", "--json")
    notes = json.loads(done.stdout)["notes"]
    assert notes == ["batch.csv: 1 row left out (assignment rejected).", "batch.csv: 1 row left out (no worker)."]


@pytest.mark.parametrize(
    "words",
    [["validate"], ["aggregate"], ["assessors"], ["check"], ["trace", "--document", "a"], ["collect", "status"]],
)
def test_a_file_above_the_limit_is_refused(words: list[str], run: Run) -> None:
    done = run(*words, "a.csv", "--max-bytes", "50")
    assert done.returncode == 2
    assert "takes more than 50 bytes" in done.stderr


def test_addresses_of_this_machine(run: Run, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/a.csv"
    assert run("validate", address).returncode == 0
    overwriting = run("aggregate", address, "-m", "majority", "-o", "a.csv")
    assert overwriting.returncode == 2
    assert (tmp_path / "a.csv").read_text() == ROWS
    for wrong in ("reference://x", "nothing://x", f"file://{tmp_path}/none.csv"):
        done = run("validate", wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_a_file_name_that_the_terminal_cannot_show(run: Run, tmp_path: Path) -> None:
    run("--version")  # makes the files
    name = os.fsdecode(b"\xff.csv")
    (tmp_path / name).write_text(ROWS)
    done = crowdrank_process("validate", name, cwd=tmp_path, PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 0, done.stderr
    assert "\\udcff.csv" in done.stdout


BATCH = "query,document,assessor,grade\nq,a,ann,1\nq,b,ann,0\nq,a,bob,1\nq,b,bob,bad\n"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "labels.csv"],
        ["trace", "labels.csv", "--document", "a"],
        ["collect", "status", "labels.csv"],
        ["collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "1", "--policy", "single"],
        ["collect", "disagreements", "labels.csv"],
    ],
)
def test_rows_left_out_are_shown_by_every_command(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(BATCH)
    (tmp_path / "pool.csv").write_text("query,document\nq,a\nq,b\nq,c\n")
    done = crowdrank(*words, "--on-bad-rows", "skip", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 row left out" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["collect", "add", "labels.csv", "new.csv"],
        ["evaluate", "new.csv", "--expert", "new.csv"],
        ["compare", "new.csv", "new2.csv", "--expert", "new.csv"],
        ["train", "-f", "new.csv", "-o", "model"],
        ["rank", "-m", "model", "-f", "new.csv"],
    ],
)
def test_the_size_of_files_is_limited_by_every_command(words: list[str], tmp_path: Path) -> None:
    done = crowdrank(*words, "--max-bytes", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "--max-bytes" in done.stderr
    assert "No such option" not in done.stderr


NAMED = "query,document,assessor,grade\n" + "".join(
    f"q{query},d{document},{assessor},{('Bad', 'Fair', 'Good')[(document + shift) % 3]}\n"
    for query in (1, 2)
    for document in range(6)
    for assessor, shift in (("ann", 0), ("bob", 0), ("cat", query - 1))
)


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz", "jsonl", "parquet"])
def test_the_order_of_named_grades_is_read_from_files_of_crowdrank(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(NAMED)
    graded = (f"q{q},d{d},{('Bad', 'Fair', 'Good')[d % 3]}\n" for q in (1, 2) for d in range(6))
    (tmp_path / "experts.csv").write_text("query,document,grade\n" + "".join(graded))
    features = "query,document,x\n" + "".join(f"q{q},d{d},{d % 3}\n" for q in (1, 2) for d in range(6))
    (tmp_path / "features.csv").write_text(features)
    named = f"consensus.{suffix}"

    def run(*words: object) -> str:
        done = crowdrank(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    grades = ("--grades", "Bad,Fair,Good")
    run("aggregate", "labels.csv", *grades, "-m", "dawid-skene", "-o", named)
    scores = json.loads(run("evaluate", named, "--expert", "experts.csv", "--measures", "GradeAccuracy", "--json"))
    assert scores["means"]["GradeAccuracy"] == 1.0
    compared = json.loads(
        run("compare", f"a={named}", f"b={named}", "--expert", named, "--measures", "GradeAccuracy", "--json")
    )
    assert compared["means"]["b"] == {"GradeAccuracy": 1.0}
    runs = (f"a={named}", f"b={named}")
    estimated = json.loads(run("estimate", *runs, "--labels", named, "--expert", "experts.csv", "--json"))
    assert estimated["runs"][0]["estimate"] > 0.9
    run("train", "-r", "gls", "-f", "features.csv", "--labels", named, "--target", "grade", "-o", "ranker")
    run("collect", "add", f"kept.{suffix}", "labels.csv", *grades)
    for words in (
        ["aggregate", "-m", "majority"],
        ["assessors"],
        ["collect", "status"],
        ["trace", "--query", "q1", "--document", "d0"],
    ):
        run(*words, f"kept.{suffix}")
    run("collect", "add", f"kept.{suffix}", f"kept.{suffix}", "-o", "again.csv")
    again = json.loads(run("aggregate", "again.csv", "-m", "majority", "--json"))
    assert again["judgments"] == 36
    run("aggregate", "labels.csv", *grades, "--save", "model")
    run("aggregate", f"kept.{suffix}", "--update", "model")


def test_commands_warn_of_unknown_ids_absent_answers_and_swapped_columns(tmp_path: Path) -> None:
    rows = [f"d{document},q,w{worker},{(document + worker) % 3}" for document in range(6) for worker in range(3)]
    (tmp_path / "swapped.csv").write_text("\n".join(["query,document,assessor,grade", *rows]) + "\n")
    (tmp_path / "excluded.txt").write_text("nobody\n")
    options = ("--exclude", "excluded.txt", "--unjudgeable", "7")
    for words in (
        ("aggregate", "swapped.csv", *options),
        ("validate", "swapped.csv", *options),
        ("run", "-j", "swapped.csv", "-o", "out", *options),
    ):
        done = crowdrank(*words, cwd=tmp_path)
        printed = " ".join((done.stdout + done.stderr).split())
        assert "the id to exclude is not an assessor: 'nobody'" in printed, words
        assert "no answer is '7'" in printed, words
        assert "each of the 6 queries has one document" in printed, words
        assert done.returncode == 0
    (tmp_path / "short.csv").write_text("url,worker,rating\nu1,a,1\nu2,a,0\nu1,b,1\nu2,b,0\n")
    assert "none is the query" in crowdrank("aggregate", "short.csv", cwd=tmp_path).stderr


def test_an_error_about_the_order_of_grades_lists_them_and_the_order_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("document,assessor,grade\na,x,Good\nb,x,Bad\nc,x,Fair\n")
    (tmp_path / "experts.csv").write_text("document,grade\na,Good\nb,Bad\n")
    error = crowdrank("aggregate", "labels.csv", cwd=tmp_path).stderr
    assert "the names are 'Good', 'Bad', 'Fair'" in error
    for command in ("validate", "aggregate", "assessors"):
        words = (command, "labels.csv", "--grades", "Bad,Fair,Good", "--expert", "experts.csv")
        assert crowdrank(*words, cwd=tmp_path).returncode == 0
