"""`crowdrank validate` and qrels of `aggregate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdrank import read_gold
from crowdrank.judgments.summary import inspect
from crowdrank.readers.datasets import dataset
from terminal import Run, crowdrank

LABELS = "query;document;assessor;grade\nq;a;x;0\nq;b;x;4\nq;a;y;1\nq;b;y;4\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "labels.csv").write_text(LABELS)
    (tmp_path / "gold.txt").write_text("q 0 a 1\nq 0 b 5\n")
    (tmp_path / "f.csv").write_text("query_id,query,docid,bm25,target\nq,how to,a,1.5,1\nq,how to,b,0.5,0\n")
    (tmp_path / "bm25.trec").write_text("q 0 a 1 2.5 bm25\nq 0 b 2 1.5 bm25\n")
    return lambda *words, **more: crowdrank(*words, cwd=tmp_path, **more)


def test_validate_reads_all_inputs(run: Run) -> None:
    words = ("--expert", "gold.txt", "--features", "f.csv", "--run", "bm25.trec", "--run", "bm25.trec")
    done = run("validate", "labels.csv", *words)
    assert done.returncode == 0, done.stderr
    assert "query = query, document = document, assessor = assessor, grade = grade" in done.stdout
    assert "Warning: f.csv: not used as features, because their names are those of grades: 'target'" in done.stdout
    assert "Warning: the expert grades are on the scale 1-5 and the judgments on 0-4" in done.stdout
    assert "--grades 1-5" in done.stdout
    report = json.loads(run("validate", "-j", "labels.csv", *words, "--json").stdout)
    assert list(report["inputs"]) == ["judgments", "gold", "features", "run 1", "run 2"]
    assert [message["kind"] for message in report["fit"]] == ["scales-differ"]


def test_validate_counts_queries_documents_and_judgments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("query,document,assessor,grade\nq,a,x,0\nq,b,x,1\nq,a,y,1\np,a,x,1\n")
    facts = json.loads(run("validate", "two.csv", "--json").stdout)["inputs"]["judgments"]["facts"]
    assert facts["judgments per document"] == "1 to 2, mean 1.3, median 1"
    assert facts["judgments per assessor"] == "1 to 3, mean 2.0, median 1"
    assert facts["documents per query"] == "1 to 2, mean 1.5, median 1"
    assert facts["queries per assessor"] == "1 to 2, mean 1.5, median 1"
    assert facts["judgments per assessor and query"] == "1 to 2, mean 1.3, median 1"
    assert "documents per query" not in run("validate", "labels.csv").stdout  # there is one query


@pytest.mark.data
def test_validate_has_the_statistics_of_the_paper_on_rf10(data_folder: Path) -> None:
    """Metrikov, Pavlu and Aslam (2015), Table 1, RF10."""
    facts = inspect(dataset("trec-rf10").read_judgments()).facts
    means = {name: float(text.split("mean ")[1].split(",")[0]) for name, text in facts.items() if "mean " in text}
    expected = {
        "documents per query": 200,
        "judgments per assessor": 129,
        "judgments per assessor and query": 16,
        "judgments per document": 4.9,
        "queries per assessor": 7.9,
    }
    assert means == pytest.approx(expected, rel=0.06)


def test_validate_fails_if_something_cannot_be_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.qrels").write_text("q 0 A 1\n")
    done = run("validate", "labels.csv", "--expert", "other.qrels")
    assert done.returncode == 2
    assert "Error: no document of the expert grades occurs in the judgments" in done.stdout
    assert "'A' and 'a'" in done.stdout
    missing = run("validate", "labels.csv", "--features", "none.csv")
    assert missing.returncode == 2
    assert missing.stderr == "Error: none.csv: there is no such file; check the path.\n"
    assert run("validate").returncode == 2


def test_validate_goes_on_without_rows_that_cannot_be_used(run: Run) -> None:
    words = ("validate", "labels.csv", "--expert", "gold.txt", "--grades", "0-3", "--json")
    assert run(*words).returncode == 2
    done = run(*words, "--on-bad-rows", "skip")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["inputs"]["judgments"]["facts"]["judgments"] == "2"


def test_the_assessor_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ann.csv").write_text("query,docid,label\nq,a,1\nq,b,0\n")
    done = run("validate", "ann.csv")
    assert "the name of the file, 'ann', is used; give another with --assessor-name" in done.stdout
    assert "--assessor-name" not in run("validate", "ann.csv", "--assessor-name", "bob").stdout
    both = run("validate", "ann.csv", "labels.csv", "--json")
    assert json.loads(both.stdout)["inputs"]["judgments"]["facts"]["assessors"] == "3"


def test_aggregate_writes_qrels(run: Run, tmp_path: Path) -> None:
    done = run("aggregate", "labels.csv", "-m", "majority", "-o", "out.qrels.gz")
    assert done.returncode == 0, done.stderr
    assert read_gold(tmp_path / "out.qrels.gz").frame["grade"].tolist() == [1, 4]
    (tmp_path / "names.csv").write_text(LABELS.replace(";0", ";bad").replace(";1", ";bad").replace(";4", ";good"))
    named = run("aggregate", "names.csv", "--grades", "bad,good", "-m", "majority", "-o", "named.qrels")
    assert (named.returncode, "whole numbers as grades" in named.stderr) == (2, True)
    (tmp_path / "spaces.csv").write_text(LABELS.replace(";a;", ";a b;"))
    spaces = run("aggregate", "spaces.csv", "-m", "majority", "-o", "spaces.qrels")
    assert (spaces.returncode, "the document 'a b', which has white space" in spaces.stderr) == (2, True)
    assessors = run("aggregate", "labels.csv", "-m", "majority", "--assessors", "who.qrels")
    assert assessors.returncode == 2
    assert not list(tmp_path.glob("[nsw]*.qrels"))


def test_warnings_are_counted_at_the_end(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("document,assessor,grade\na,ann,1\na,bob,1\nb,ann,0\nb,bob,0\n")
    assert run("validate", "two.csv").stdout.splitlines()[-1] == "Nothing is wrong."
    (tmp_path / "one.csv").write_text("document,assessor,grade\na,ann,1\nb,ann,0\n")
    done = run("validate", "one.csv")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("1 warning")
    assert json.loads(run("validate", "one.csv", "--json").stdout)["warnings"] == 1


def test_aggregate_warns_of_expert_grades_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("document,assessor,grade\na,ann,1\na,bob,1\nb,ann,0\nb,bob,0\n")
    (tmp_path / "other.csv").write_text("document,grade\na,2\nb,1\n")
    done = run("aggregate", "two.csv", "-m", "dawid-skene", "--expert", "other.csv")
    assert done.returncode == 0
    assert "Warning: the expert grades are on the scale 1,2 and the judgments on 0,1" in done.stderr
