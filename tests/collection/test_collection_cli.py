"""The loop by files, as a person runs it: words, exit codes, and what stands in the files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from typer.testing import CliRunner

from crowdrank import GDA, Budget, MajorityVote, get_policy, read_judgments
from crowdrank.cli.app import app
from crowdrank.cli.collect_next_command import BudgetOptions
from crowdrank.cli.collect_options import PolicyOptions
from crowdrank.errors import CrowdrankError, DataWarning, InputError, UsageError
from crowdrank.simulation.world import World, simulate
from terminal import crowdrank

Run = Callable[..., str]


@pytest.fixture(scope="module")
def world() -> World:
    return simulate(queries=5, documents=6, labels=3, assessors=10, random_state=3)


@pytest.fixture
def files(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool, and two batches of the same judgments' worth."""
    monkeypatch.chdir(tmp_path)
    kept = ["query", "document", "assessor", "grade"]
    world.documents[["query", "document"]].to_csv("pool.csv", index=False)
    world.judgments[kept].iloc[:30].to_csv("one.csv", index=False)
    world.judgments[kept].iloc[30:].to_csv("two.csv", index=False)
    return tmp_path


@pytest.fixture
def run() -> Run:
    def invoke(*words: object) -> str:
        done = CliRunner().invoke(app, ["collect", *map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return invoke


def refusal(*words: object) -> CrowdrankError:
    """Return the error of a command; `main` prints it and exits with 2."""
    with pytest.raises(CrowdrankError) as problem:
        CliRunner().invoke(app, ["collect", *map(str, words)], catch_exceptions=False)
    assert "\n" not in str(problem.value)
    return problem.value


def refused(*words: object) -> str:
    return str(refusal(*words))


def test_the_whole_loop(files: Path, run: Run, world: World) -> None:
    run("next", "labels.csv", "--pairs", "pool.csv", "--budget", 1000, "-o", "requests.csv")
    asked = pd.read_csv("requests.csv")
    assert len(asked) == len(world.documents)
    assert set(asked["reason"]) == {"no label so far"}
    assert "30 judgments added, 0 changed, 0 unchanged; 30 judgments in total." in run("add", "labels.csv", "one.csv")
    assert f"{len(world.judgments)} judgments in total" in run("add", "labels.csv", "two.csv")
    assert len(read_judgments("labels.csv")) == len(world.judgments)
    said = run("status", "labels.csv", "--pairs", "pool.csv", "--labels", "labels.qrels")
    assert f"{len(world.documents)} documents in the pool: {len(world.documents)} judged" in said
    assert len((files / "labels.qrels").read_text().splitlines()) == len(world.documents)
    for policy in ("if-good-4", "entropy", "ndcg@5", "widest-interval", "random"):
        out = run("next", "labels.csv", "--pairs", "pool.csv", "--policy", policy, "--budget", 7, "--json")
        assert json.loads(out)["requests"] <= 7
    assert "Most often confused" in run("disagreements", "labels.csv", "-o", "talk.csv")
    assert {"spread", "grades", "grade"} <= set(pd.read_csv("talk.csv").columns)


def test_the_same_batch_twice_changes_nothing(files: Path, run: Run) -> None:
    run("add", "labels.csv", "one.csv", "two.csv")
    before = (files / "labels.csv").read_bytes()
    said = run("add", "labels.csv", "two.csv", "one.csv")
    assert "0 judgments added, 0 changed" in said
    assert "labels.csv is unchanged." in said
    assert (files / "labels.csv").read_bytes() == before


def test_batches_in_any_order_hold_the_same(files: Path, run: Run) -> None:
    run("add", "a.csv", "one.csv", "two.csv")
    run("add", "b.csv", "two.csv", "one.csv")
    one, other = (pd.read_csv(name).sort_values(["query", "document", "assessor"]) for name in ("a.csv", "b.csv"))
    assert one.to_numpy().tolist() == other.to_numpy().tolist()


def test_a_judgment_given_anew_replaces_the_old_one_and_an_older_one_does_not(files: Path, run: Run) -> None:
    row = "query,document,assessor,grade,time\nq,d,ann,{},2024-01-0{}\n"
    for name, grade, day in (("old.csv", 0, 1), ("new.csv", 2, 2)):
        (files / name).write_text(row.format(grade, day))
    run("add", "labels.csv", "old.csv", "--grades", "0-2")
    assert "0 judgments added, 1 changed" in run("add", "labels.csv", "new.csv", "--grades", "0-2")
    assert "1 left out (older than existing ones)" in run("add", "labels.csv", "old.csv", "--grades", "0-2")
    assert read_judgments("labels.csv", grades="0-2").grade.tolist() == [2]


def test_answers_that_mean_cannot_judge_survive(files: Path, run: Run) -> None:
    (files / "a.csv").write_text("document,assessor,grade\nd,ann,-2\ne,ann,2\n")
    run("add", "labels.csv", "a.csv", "--unjudgeable", "-2")
    assert read_judgments("labels.csv", unjudgeable=-2).n_unjudgeable == 1
    assert "is unchanged" in run("add", "labels.csv", "a.csv", "--unjudgeable", "-2")


def test_a_new_file_is_read_with_the_option_that_the_note_names(files: Path) -> None:
    lines = ("topicID\tworkerID\tdocID\tgold\tlabel", "1\tann\ta\t-1\t-2", "1\tann\tb\t-1\t2", "1\tann\tc\t-1\t0")
    (files / "rf10.txt").write_text("\n".join(lines) + "\n")
    note = "read the file with --unjudgeable -2"
    assert note in crowdrank("collect", "add", "all.csv", "rf10.txt", cwd=files).stderr
    assert note not in crowdrank("collect", "add", "b.csv", "rf10.txt", "--unjudgeable", "-2", cwd=files).stderr
    with pytest.raises(InputError):
        read_judgments("all.csv")
    assert read_judgments("all.csv", unjudgeable="-2").n_unjudgeable == 1


def test_platforms_in_and_out(files: Path, run: Run) -> None:
    tasks = [
        {
            "id": 1,
            "data": {"query": "1", "document": "1-1"},
            "annotations": [{"completed_by": 3, "result": [{"value": {"rating": 2}}]}],
        }
    ]
    (files / "ls.json").write_text(json.dumps(tasks))
    assert "1 judgment added" in run("add", "labels.csv", "ls.json")
    for platform, name in (("label-studio", "r.json"), ("toloka", "r.tsv"), ("mturk", "r.csv"), ("quepid", "q.csv")):
        run(
            "next",
            "labels.csv",
            "--pairs",
            "pool.csv",
            "--policy",
            "single",
            "--budget",
            3,
            "-o",
            name,
            "--to",
            platform,
        )
    assert len(json.loads((files / "r.json").read_text())) == 3
    assert list(pd.read_csv("r.tsv", sep="\t").columns) == ["INPUT:query", "INPUT:document"]
    assert list(pd.read_csv("r.csv").columns) == ["query", "document", "assignments"]
    assert list(pd.read_csv("q.csv").columns) == ["query", "docid"]
    assert '<Choice value="2"/>' in (files / "r.xml").read_text()
    run("add", "labels.csv", "one.csv", "two.csv", "--grades", "0-4")
    run("status", "labels.csv", "--labels", "list.json")
    assert json.loads((files / "list.json").read_text())["type"] == "IMPORT_JUDGMENT"


def test_a_roster_prices_and_honeypots(files: Path, run: Run, world: World) -> None:
    run("add", "labels.csv", "one.csv", "two.csv")
    who = world.assessors["assessor"].tolist()
    kinds = ["expert" if number < 2 else "llm" for number in range(len(who))]
    pd.DataFrame({"assessor": who, "kind": kinds}).to_csv("who.csv", index=False)
    pool = pd.read_csv("pool.csv").assign(honeypot=["3", *[""] * (len(world.documents) - 1)])
    pool.to_csv("planted.csv", index=False)
    out = run(
        "next", "labels.csv", "--pairs", "planted.csv", "--policy", "entropy", "--budget", 30, "--assessors", "who.csv",
        "--prices", "llm=1,expert=5", "--most", 30, "--honeypots", 0.1, "--settled", 0.99, "-o", "r.csv", "--json",
    )  # fmt: skip
    output = json.loads(out)
    asked = pd.read_csv("r.csv")
    assert output["cost"] == asked["price"].sum() <= 30
    assert (asked["reason"] == "honeypot").sum() >= 1
    assert set(asked["assessor"]) <= set(who)
    (files / "out.txt").write_text(who[2] + "\n")
    run("next", "labels.csv", "--pairs", "pool.csv", "--budget", 30, "--policy", "overlap-6", "--assessors", "who.csv",
        "--exclude", "out.txt", "-o", "r2.csv")  # fmt: skip
    assert who[2] not in set(pd.read_csv("r2.csv")["assessor"])


def test_budgets_that_are_not_spent_have_a_reason(files: Path, run: Run) -> None:
    run("add", "labels.csv", "one.csv", "two.csv")
    command = ("next", "labels.csv", "--pairs", "pool.csv", "--policy", "overlap-4", "--prices", "human=3")
    output = json.loads(run(*command, "--budget", 10, "--json"))
    [unspent] = output["unspent"]
    assert (unspent["money"], unspent["reason"], unspent["price"], unspent["pairs"]) == (1, "price", 3, {})
    assert output["cost"] == 9
    command = ("next", "labels.csv", "--pairs", "pool.csv", "--policy", "ndcg@10", "--settled", "0.6")
    output = json.loads(run(*command, "--budget", 10_000, "--json"))
    [unspent] = output["unspent"]
    assert unspent["money"] == 10_000 - output["cost"]
    assert unspent["reason"] == "nothing-wanted"
    assert unspent["pairs"]["settled"] > 0
    assert unspent["pairs"]["requested"] == output["requests"]
    assert sum(unspent["pairs"].values()) == len(pd.read_csv("pool.csv"))
    assert "of the budget are not spent: of " in run(*command, "--budget", 10_000)


def test_simulate_and_replay(files: Path, run: Run, world: World) -> None:
    out = run("simulate", "--queries", 6, "--labels", 4, "--rounds", 3, "-p", "random", "-p", "ndcg@5", "--json")
    output = json.loads(out)
    assert ({row["policy"] for row in output["curve"]}, output["simulated"]) == ({"random", "ndcg@5"}, True)
    short = ("simulate", "--queries", 3, "--labels", 3, "--rounds", 3, "-p", "single")
    said, ended = run(*short), json.loads(run(*short, "--json"))
    [unspent] = ended["unspent"]["single"]
    assert (unspent["reason"], list(unspent["pairs"])) == ("nothing-wanted", ["complete"])
    assert unspent["money"] == pytest.approx(ended["budget"] - ended["curve"][-1]["money"])
    assert re.search(r"^single has 2 of 3 rounds\. In the others, .* of the budget are not spent: ", said, re.M)
    assert "Simulated crowd: " in said
    assert "Replayed" not in said
    run("add", "labels.csv", "one.csv", "two.csv")
    world.gold.to_csv("gold.csv", index=False)
    said = run(
        "simulate", "--from", "labels.csv", "--expert", "gold.csv", "-p", "if-good-3", "--budget", 60, "--rounds", 3
    )
    assert "if-good-3" in said
    assert "Replayed from labels.csv: 81 judgments" in said
    assert "needs expert grades" in refused("simulate", "--from", "labels.csv")
    assert refusal("simulate", "--budget", -1).parameter == "budget"
    assert refusal("simulate", "--aggregate", "x").parameter == "aggregate"


@pytest.mark.parametrize("budget", [0, -3, "nan", "inf"])
def test_a_budget_that_is_none(files: Path, run: Run, budget: object) -> None:
    assert refusal("next", "labels.csv", "--pairs", "pool.csv", "--budget", budget).parameter == "budget"


def test_labels_of_documents_that_were_judged_once(files: Path, run: Run) -> None:
    once = "query,document,assessor,grade\nq,a,ann,2\nq,b,ann,0\nq,c,bob,0\nr,d,ann,1\nr,e,bob,3\n"
    Path("once.csv").write_text(once)
    with pytest.warns(DataWarning, match="let some documents be judged twice"):
        said = run("status", "once.csv", "--labels", "once.qrels")
    assert "Grades of 5 documents written to once.qrels: the only answer of each" in said
    assert [line.split()[3] for line in Path("once.qrels").read_text().splitlines()] == ["2", "0", "0", "1", "3"]
    Path("once-pool.csv").write_text("query,document\nq,a\nq,b\n")
    assert "2 labels requested" in run("next", "once.csv", "--pairs", "once-pool.csv", "-p", "overlap-2", "--budget", 5)
    # What the warnings of a fit advise is taken.
    for method in ("average", "majority"):
        said = run("status", "once.csv", "-m", method)
        assert "5 documents in the pool: 5 judged.\n" in said
        assert "need a model of assessors: -m gda, rasch, dawid-skene, one-coin." in said


def test_labels_say_how_many_answers_they_rest_on(files: Path, run: Run) -> None:
    run("add", "labels.csv", "one.csv", "two.csv")
    Path("more.csv").write_text("query,document,assessor,grade\nnew,a,ann,4\nnew,b,ann,0\n")
    run("add", "labels.csv", "more.csv")
    output = json.loads(run("status", "labels.csv", "--labels", "labels.json", "--json"))
    model, votes = (make().fit(pd.read_csv("labels.csv")).consensus_.documents for make in (GDA, MajorityVote))
    assert output["from_one_answer"] == 2
    assert output["other_than_it"] == sum((model["grade"] != votes["grade"]) & (model["judgments"] == 1))
    assert "; 2 of 29 documents by a single answer" in json.loads(Path("labels.json").read_text())["description"]
    assert "; 2 rest on a single answer" in run("status", "labels.csv", "--labels", "labels.qrels")


def test_bad_input_is_one_sentence(files: Path, run: Run, world: World) -> None:
    run("add", "labels.csv", "one.csv", "two.csv")
    next_ = ("next", "labels.csv", "--pairs", "pool.csv", "--budget", 5)
    # Nobody left who may judge a pair.
    (files / "nobody.csv").write_text("assessor\n" + world.judgments["assessor"].iloc[0] + "\n")
    said = refused(*next_, "--policy", "overlap-9", "--assessors", "nobody.csv", "--most", 1)
    assert "no assessor is left who may judge any of" in said
    # Judgments for unknown documents, or by excluded assessors.
    (files / "odd.csv").write_text("query,document,assessor,grade\n1,nowhere,ann,2\n1,1-1,eve,2\n")
    (files / "out.txt").write_text("eve\n")
    said = refused("add", "labels.csv", "odd.csv", "--pairs", "pool.csv")
    assert said.startswith("odd.csv: the document 'nowhere' of query '1' is not in the pool (1 such judgment);")
    said = refused("add", "labels.csv", "odd.csv", "--exclude", "out.txt")
    assert "was judged by the excluded assessor 'eve' (1 such judgment)" in said
    both = ("add", "labels.csv", "odd.csv", "--pairs", "pool.csv", "--exclude", "out.txt", "--on-bad-rows", "skip")
    assert "1 left out (documents not in the pool), 1 left out (excluded assessors)" in run(*both)
    # A scale that changed between rounds.
    (files / "wide.csv").write_text("query,document,assessor,grade\n1,1-1,ann,9\n")
    assert refusal("add", "labels.csv", "wide.csv").kind == "scale-changed"
    (files / "names.csv").write_text("query,document,assessor,grade\n1,1-1,ann,Good\n")
    assert "'Good' is the name of a grade, and the order of the grades is not known; name the grades from" in refused(
        "add", "labels.csv", "names.csv"
    )
    assert "1 judgment added" in run("add", "labels.csv", "wide.csv", "--grades", "0-9", "-o", "wider.csv")
    # Options.
    assert "There is no policy 'if-bad-3'" in refused(*next_, "--policy", "if-bad-3")
    assert "to must be one of csv" in refused(*next_, "-o", "r.csv", "--to", "excel")
    assert refusal(*next_, "-o", "r.csv", "--to", "label-studio").kind == "wrong-suffix"
    assert refusal(*next_, "--prices", "human=x").parameter == "prices"
    assert "kind must be one of human, llm, expert, not 'robot'" in refused(*next_, "--kind", "robot")
    assert "settled must be a number above 0 and below 1" in refused(*next_, "--policy", "entropy", "--settled", 2)
    assert "there is no such file" in refused("next", "labels.csv", "--pairs", "nowhere.csv", "--budget", 5)
    assert refusal(*next_, "--policy", "entropy", "-m", "average").kind == "no-answer-model"


def test_what_stands_in_a_file_stays_as_it_is(files: Path, run: Run) -> None:
    mine = 'query,document,assessor,grade,remark\r\n1,1-1,ann,2,"nice, \r\nin two lines"\r\n1,1-2,ann,3,'
    (files / "mine.csv").write_text(mine, newline="")
    run("add", "mine.csv", "one.csv", "--grades", "0-4")
    kept = (files / "mine.csv").read_bytes().decode()
    assert kept.startswith(mine + "\r\n")
    assert len(pd.read_csv("mine.csv")) == 32
    (files / "later.csv").write_text("query,document,assessor,grade\n1,1-1,ann,4\n1,1-2,bea,0\n")
    assert "1 judgment added, 1 changed" in run("add", "mine.csv", "later.csv", "--grades", "0-4")
    changed_text = (files / "mine.csv").read_bytes().decode()
    assert changed_text == kept.replace("ann,2,", "ann,4,", 1) + "1,1-2,bea,0,\r\n"
    run("add", "mine.csv", "one.csv", "--grades", "0-4", "-o", "joined.csv")
    assert (files / "mine.csv").read_bytes().decode() == changed_text
    assert len(read_judgments("joined.csv", grades="0-4")) == 33


def test_times_keep_their_mark_and_what_has_no_column_is_said(files: Path, run: Run) -> None:
    (files / "zoned.csv").write_text("document,assessor,grade,time\nd,ann,1,2024-05-31T12:15:00+02:00\ne,ann,0,\n")
    run("add", "labels.csv", "zoned.csv")
    assert "d,ann,1,2024-05-31T10:15:00Z" in (files / "labels.csv").read_text()
    (files / "more.csv").write_text("document,assessor,grade,time,seconds\nf,ann,1,2024-06-01 10:00,7\n")
    done = CliRunner().invoke(app, ["collect", "add", "labels.csv", "more.csv"], catch_exceptions=False)
    assert "labels.csv has no column for duration" in done.output
    assert (files / "labels.csv").read_text().endswith(",f,ann,1,2024-06-01T10:00:00Z\n")


def test_a_stray_grade_is_said(files: Path, run: Run) -> None:
    (files / "stray.csv").write_text("document,assessor,grade\nd,ann,0\ne,ann,1\nf,ann,7\n")
    done = CliRunner().invoke(app, ["collect", "add", "labels.csv", "stray.csv"], catch_exceptions=False)
    assert "0-7" in done.output
    assert "--grades" in done.output
    (files / "low.csv").write_text("document,assessor,grade\nd,bea,0\n")
    (files / "high.csv").write_text("document,assessor,grade\nd,eve,4\n")
    for batch, said in (
        ("low.csv", "1 judgment added"),
        ("high.csv", "high.csv has the grade 4, higher than all before (up to 0)"),
    ):
        done = CliRunner().invoke(app, ["collect", "add", "b.csv", batch, "--grades", "0-4"], catch_exceptions=False)
        assert said in done.output


def test_what_is_out_is_not_asked_again(files: Path, run: Run, world: World) -> None:
    run("add", "labels.csv", "one.csv")
    words = ("--pairs", "pool.csv", "--policy", "overlap-4", "--budget", 10)
    run("next", "labels.csv", *words)  # shown, not sent
    assert not (files / "labels.requests.csv").exists()
    run("next", "labels.csv", *words, "-o", "r1.csv")
    output = json.loads(run("next", "labels.csv", *words, "-o", "r2.csv", "--json"))
    assert output["out"] == 10
    first, second = (pd.read_csv(name) for name in ("r1.csv", "r2.csv"))
    left = pd.concat([first, second])[["query", "document"]].value_counts()
    have = pd.read_csv("one.csv")[["query", "document"]].value_counts()
    assert left.add(have, fill_value=0).max() <= 4
    assert "20 requests outstanding since" in run("status", "labels.csv", "--pairs", "pool.csv")
    first.assign(assessor="new", grade=1)[["query", "document", "assessor", "grade"]].drop_duplicates().to_csv(
        "back.csv", index=False
    )
    back = len(pd.read_csv("back.csv"))
    assert f"{back} requests answered, {20 - back} outstanding." in run("add", "labels.csv", "back.csv")
    assert f"{20 - back} requests outstanding" in run("status", "labels.csv")
    output = json.loads(run("next", "labels.csv", *words, "--again", "-o", "r3.csv", "--json"))
    assert output["out"] == 0
    assert len(pd.read_csv("labels.requests.csv")) == back + 10
    assert "which is read" in refused("next", "labels.csv", *words, "-o", "labels.requests.csv")
    (files / "labels.requests.csv").write_text("query,document\n")
    assert "there is no column 'assessor'" in refused("next", "labels.csv", *words)


def test_no_judgments_yet(files: Path, run: Run) -> None:
    (files / "empty.csv").write_text("query,document,assessor,grade\n")
    with pytest.warns(UserWarning, match="There are no judgments yet"):
        run("next", "empty.csv", "--pairs", "pool.csv", "--policy", "entropy", "--budget", 3)
    assert "There are no judgments in empty.csv yet" in run("status", "empty.csv", "--pairs", "pool.csv")
    assert "30 judgments added" in run("add", "empty.csv", "one.csv")


def test_nothing_more_is_wanted(files: Path, run: Run) -> None:
    run("add", "labels.csv", "one.csv", "two.csv")
    assert "No requests" in run("next", "labels.csv", "--pairs", "pool.csv", "-p", "single", "--budget", 3)


def test_a_problem_is_one_sentence_and_exit_code_2(files: Path) -> None:
    words = ["collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "0"]
    done = subprocess.run([sys.executable, "-m", "crowdrank", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "Error: --budget must be a number above 0, not 0.0.\n"


@pytest.mark.parametrize("name", ["exact.csv", "exact.jsonl", "exact.parquet", "exact.csv.gz"])
def test_ids_that_differ_by_spaces_are_different(name: str, files: Path, run: Run) -> None:
    ids = ["d9", "d9 ", " d9"]
    rows = [{"query": "q", "document": one, "assessor": who, "grade": 0} for one in ids for who in ("ann", "ann ")]
    pd.DataFrame(rows).to_csv("batch.csv", index=False)
    run("add", name, "batch.csv")
    assert "6 unchanged" in run("add", name, "batch.csv")
    pd.DataFrame(rows[2:3]).assign(grade=1).to_csv("batch.csv", index=False)
    assert "1 changed" in run("add", name, "batch.csv")
    found = read_judgments(name).frame
    assert sorted(found["document"].tolist()) == sorted(ids * 2)
    assert found.loc[found["grade"] == 1, ["document", "assessor"]].values.tolist() == [["d9 ", "ann"]]


@pytest.mark.parametrize(
    "words",
    [
        ["collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "3", "-o", "labels.csv"],
        ["collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "3", "-o", "pool.csv"],
        ["collect", "status", "labels.csv", "--labels", "labels.csv"],
        ["collect", "add", "labels.csv", "one.csv", "-o", "labels.csv"],
        ["collect", "add", "labels.csv", "one.csv", "-o", "one.csv"],
        ["assessors", "labels.csv", "-o", "labels.csv"],
        ["trace", "labels.csv", "--document", "d", "-o", "labels.csv"],
        ["aggregate", "labels.csv", "-o", "x.csv", "--exclude", "x.csv"],
    ],
)
def test_an_output_never_replaces_an_input(words: list[str], files: Path) -> None:
    (files / "labels.csv").write_text((files / "one.csv").read_text())
    (files / "x.csv").write_text("nobody\n")
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError)
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def test_tasks_have_the_texts_of_the_pool(files: Path, run: Run) -> None:
    pool = {"query_id": ["q1"], "query": ["jam"], "docid": ["d1"], "page url": ["https://a.example/?x=1&y=2"]}
    pd.DataFrame({**pool, "grade": [3]}).to_csv("texts.csv", index=False)
    words = ("next", "new.csv", "--pairs", "texts.csv", "--budget", 9, "-p", "overlap-2")
    out = run(*words, "--to", "label-studio", "-o", "t.json", "--grades", "Bad,<Good>")
    assert "Template of the labeling interface written to t.xml." in out
    [task] = json.loads(Path("t.json").read_text())
    ids = {"query_id": "q1", "document": "d1", "labels": 2}
    assert task["data"] == {**ids, "query": "jam", "page_url": pool["page url"][0]}  # and not the grade
    config = ElementTree.parse("t.xml").getroot()
    assert [one.get("value") for one in config.iter("Choice")] == ["Bad", "<Good>"]
    assert config.find("Text").get("value") == "$query"  # type: ignore[union-attr]
    assert 'href="$page_url"' in config.find("HyperText").get("value")  # type: ignore[operator,union-attr]
    annotation = {"completed_by": 3, "result": [{"value": {"choices": ["<Good>"]}}]}
    Path("back.json").write_text(json.dumps([{**task, "annotations": [annotation]}]))
    run("add", "new.csv", "back.json", "--grades", "Bad,<Good>")
    assert pd.read_csv("new.csv")[["query", "document", "grade"]].to_numpy().tolist() == [["q1", "d1", "<Good>"]]


@pytest.mark.parametrize(
    ("platform", "tasks", "placeholder"), [("toloka", "t.tsv", "{{title}}"), ("mturk", "t.csv", "${title}")]
)
def test_templates_are_written_once(files: Path, run: Run, platform: str, tasks: str, placeholder: str) -> None:
    pd.DataFrame({"query": ["jam"], "docid": ["d1"], "title": ["Jam"]}).to_csv("texts.csv", index=False)
    words = ("next", "new.csv", "--pairs", "texts.csv", "--budget", 9, "--to", platform, "-o", tasks, "--again")
    assert "Template" not in run(*words)
    assert not Path("t.html").exists()  # the grades are not known
    assert json.loads(run(*words, "--grades", "0-2", "--json"))["template"] == "t.html"
    template = Path("t.html").read_text()
    assert placeholder in template
    assert template.count('type="radio"') == 3
    Path("t.html").write_text("mine")
    assert "Template" not in run(*words, "--grades", "0-2")
    assert Path("t.html").read_text() == "mine"
    assert "Jam" in Path(tasks).read_text()


def test_a_column_with_a_name_of_the_tasks_is_refused(files: Path) -> None:
    pd.DataFrame({"docid": ["d1"], "assessors": ["?"]}).to_csv("texts.csv", index=False)
    words = ("next", "new.csv", "--pairs", "texts.csv", "--budget", 9, "--to", "mturk", "-o", "t.csv")
    assert "'assessors'" in refused(*words)
    assert not Path("t.csv").exists()


def test_costs_of_schemes(files: Path, run: Run) -> None:
    out = run("cost", "--documents", 39268, "--good-share", 0.212, "--repeat-agreement", 0.53)
    assert re.search(r"if-good-3 +55,918 +1\.42 +1\.42 +1\.42 +2\.26 +55,917\.63 +rates", out)
    costs = json.loads(run("cost", "one.csv", "two.csv", "-p", "single", "-p", "overlap-9", "--json"))["costs"]
    assert [cost["counted"] for cost in costs] == [True, False]
    assert re.search(r"good-till-bad +\? +\? +1", run("cost", "--documents", 5, "--good-share", 0.01))
    assert refusal("cost", "--good-share", 0.5).kind == "no-rates"
    assert refusal("cost", "--documents", 5, "--good-share", 0.5, "-p", "random").kind == "not-a-scheme"


def test_options_have_the_defaults_of_the_policies() -> None:
    assert PolicyOptions().settled == get_policy("ndcg@10").get_params()["settled"]
    assert BudgetOptions().kind == Budget(1).kind
    good = next(one for one in fields(PolicyOptions) if one.name == "good").metadata["more"]["show_default"]
    assert float(good) == get_policy("if-good-3").get_params()["good"]


def test_expert_grades_that_were_bought_are_not_requested_again(tmp_path: Path) -> None:
    pairs = [("q1", f"d{d}") for d in range(6)]
    (tmp_path / "pool.csv").write_text("query,document\n" + "".join(f"{q},{d}\n" for q, d in pairs))
    rows = [f"{q},{d},{who},{place % 3}\n" for place, (q, d) in enumerate(pairs) for who in "ab"]
    (tmp_path / "labels.csv").write_text("query,document,assessor,grade\n" + "".join(rows))
    (tmp_path / "experts.csv").write_text("query,document,grade\nq1,d0,2\nq1,d5,0\n")
    words = ("collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", 50, "--kind", "expert", "-o", "r.csv")
    for policy in ("overlap-4", "entropy"):
        (tmp_path / "labels.requests.csv").unlink(missing_ok=True)
        done = crowdrank(*words, "-p", policy, "--expert", "experts.csv", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        requested = set(pd.read_csv(tmp_path / "r.csv")["document"])
        assert requested == {"d1", "d2", "d3", "d4"}
        assert "They are also listed in labels.requests.csv" in done.stdout
