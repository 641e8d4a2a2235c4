"""The commands `train` and `rank`, from simulated data to a scored run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from crowdrank.rankers import RANKERS, InstanceKind
from crowdrank.readers.features import read_features
from terminal import Run, crowdrank, without_columns


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 40 simulated queries, a consensus by Dawid-Skene and a saved GDAPairwise."""
    folder = tmp_path_factory.mktemp("worlds")
    for words in (
        ("simulate", "-o", "world", "--queries", 40, "--documents", 8, "--seed", 3),
        ("aggregate", "world/judgments.csv", "-m", "dawid-skene", "-o", "world/consensus.parquet"),
        ("aggregate", "world/judgments.csv", "-m", "gda-pairwise", "--save", "world/pairwise"),
    ):
        done = crowdrank(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "world"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *words: crowdrank(*words, cwd=tmp_path)


def scored(run: Run, world: Path, name: str = "run.trec") -> float:
    done = run("evaluate", name, "--expert", world / "gold.qrels", "--measures", "nDCG@5", "--json")
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["means"]["nDCG@5"])


SETTINGS: dict[str, list[Any]] = {
    "lambdamart": ["-s", "n_estimators=20"],
    "gda-pairwise-mart": ["-s", "n_estimators=20"],
    "tree-features": ["-s", "n_trees=30"],
    "pointwise-gbdt": ["-s", "n_estimators=20"],
}


@pytest.mark.parametrize("ranker", RANKERS)
def test_from_a_consensus_to_a_scored_run(world: Path, run: Run, tmp_path: Path, ranker: str) -> None:
    done = run(
        "train", "--features", world / "features.letor", "--labels", world / "consensus.parquet", "-r", ranker,
        "-o", "model", "--validation", 0.25, *SETTINGS.get(ranker, []),
        *(["--consensus", world / "pairwise"] if ranker.startswith("gda") else []),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split() == ["feature", "importance"]
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"{ranker} on ")
    assert " in 30 queries, 20 features; " in last
    assert " on 10 validation queries; written to model." in last
    done = run("rank", "--model", "model", "--features", world / "features.letor", "-o", "run.trec")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert all(len(line) == 6 and line[1] == "Q0" and line[5] == "crowdrank" for line in lines)
    frame = pd.DataFrame(lines, columns=["query", "q0", "document", "rank", "score", "tag"]).astype(
        {"score": float, "rank": int}
    )
    assert (frame.groupby("query")["score"].diff().dropna() <= 0).all()
    assert (frame.groupby("query").cumcount() + 1 == frame["rank"]).all()
    assert scored(run, world) > (0.6 if ranker == "single-feature" else 0.65)  # chance has 0.45


def test_expert_grades_grades_in_features_and_tables_are_labels(world: Path, run: Run, tmp_path: Path) -> None:
    gold = pd.read_csv(world / "gold.qrels", sep=" ", names=["query", "iteration", "document", "grade"])
    gold.rename(columns={"grade": "relevance"})[["query", "document", "relevance"]].to_csv(tmp_path / "table.csv")
    seen = set()
    for labels in (["--labels", world / "gold.qrels"], [], ["--labels", "table.csv"]):
        done = run("train", "-f", world / "features.letor", *labels, "-r", "gls", "-o", "model", "--json")
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert summary["rows"] == len(gold)
        assert run("rank", "-m", "model", "-f", world / "features.letor", "-o", "run.csv").returncode == 0
        seen.add((tmp_path / "run.csv").read_text())
    assert len(seen) == 1


def test_weights_from_a_table_and_from_certainty(world: Path, run: Run, tmp_path: Path) -> None:
    consensus = pd.read_parquet(world / "consensus.parquet")
    consensus[["query", "document"]].assign(weight=1.5).to_csv(tmp_path / "even.csv", index=False)
    consensus[["query", "document"]].assign(weight=range(len(consensus))).to_csv(tmp_path / "steep.csv", index=False)
    runs = {}
    for name, weights in (("none", []), ("even", ["even.csv"]), ("steep", ["steep.csv"]), ("certainty", ["certainty"])):
        options = ["--weights", *weights] if weights else []
        words = ("train", "-f", world / "features.letor", "--labels", world / "consensus.parquet", *options)
        done = run(*words, "-r", "gls", "-s", "mu=0", "-o", "model")
        assert done.returncode == 0, done.stderr
        assert run("rank", "-m", "model", "-f", world / "features.letor", "-o", f"{name}.csv").returncode == 0
        runs[name] = pd.read_csv(tmp_path / f"{name}.csv").set_index(["query", "document"])["score"].sort_index()
    assert (runs["none"] - runs["even"]).abs().max() < 1e-9
    assert (runs["none"] - runs["steep"]).abs().max() > 1e-3
    assert (runs["none"] - runs["certainty"]).abs().max() > 1e-3
    consensus[["query", "document"]][1:].assign(weight=1).to_csv(tmp_path / "few.csv", index=False)
    words = ("train", "-f", world / "features.letor", "--labels", world / "consensus.parquet", "-o", "m")
    assert "few.csv: 1 label has no weight (the first: " in run(*words, "--weights", "few.csv").stderr
    assert "there is no column 'weight'" in run(*words, "--weights", world / "judgments.csv").stderr


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("-0.5", "w.csv, row 3 (line 4), column 'weight': the weight -0.5 is below 0; write a number of at least 0."),
        ("much", "w.csv, row 3 (line 4), column 'weight': 'much' is not a finite number; write a number."),
        ("", "w.csv, row 3 (line 4), column 'weight': the cell is empty; write a number."),
        ("inf", "w.csv, row 3 (line 4), column 'weight': 'inf' is not a finite number; write a number."),
        ("nan", "w.csv, row 3 (line 4), column 'weight': "),
        (None, "w.csv, column 'weight': every weight is 0; give some documents a weight above 0."),
    ],
)
def test_an_invalid_weight_is_located(world: Path, run: Run, tmp_path: Path, cell: str | None, said: str) -> None:
    consensus = pd.read_parquet(world / "consensus.parquet")
    weights = consensus[["query", "document"]].assign(weight="0" if cell is None else "1")
    if cell is not None:
        weights.loc[2, "weight"] = cell
    weights.to_csv(tmp_path / "w.csv", index=False)
    done = run(
        "train", "-f", world / "features.letor", "--labels", world / "consensus.parquet", "--weights", "w.csv",
        "-o", "model",
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert len(without_columns(done.stderr).strip().splitlines()) == 1
    assert not (tmp_path / "model").exists()


def test_validation_queries_are_printed_and_saved(world: Path, run: Run, tmp_path: Path) -> None:
    words = ("train", "-f", world / "features.letor", "-r", "gls", "-o", "model", "--validation")
    done = run(*words, 0.25)
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "model" / "ranker.json").read_text())["validation_queries"]
    assert len(saved) == 10
    assert f"Validation queries: {', '.join(saved)}." in done.stdout.splitlines()
    assert json.loads(run(*words, 0.25, "--json").stdout)["validation_query_ids"] == saved
    done = run(*words, 0.5)
    saved = json.loads((tmp_path / "model" / "ranker.json").read_text())["validation_queries"]
    said = f"Validation queries: {', '.join(saved[:10])}, ... (20 in all; ranker.json has them)."
    assert said in done.stdout.splitlines()
    assert run(*words[:-1]).returncode == 0
    assert json.loads((tmp_path / "model" / "ranker.json").read_text())["validation_queries"] == []


def test_threads_are_passed_to_the_ranker(world: Path, run: Run, tmp_path: Path) -> None:
    words = ("train", "-f", world / "features.letor", "-o", "model")
    texts = []
    for number in (1, 2):
        done = run(*words, "-s", "n_estimators=10", "--threads", number)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "model" / "ranker.json").read_text())["parameters"]["n_jobs"] == number
        trees = (tmp_path / "model" / "trees.txt").read_text().partition("parameters:")[0]
        texts.append(trees.partition("Tree=0")[2])
    assert texts[0] == texts[1] != ""
    done = run(*words, "-r", "rd", "--threads", 2)
    assert "--threads has no effect on this ranker." in done.stdout.splitlines()
    done = run(*words, "--threads", 0)
    assert (done.returncode, done.stderr) == (2, "Error: --threads must be a whole number of at least 1, not 0.\n")


def test_validation_queries_from_other_files(world: Path, run: Run, tmp_path: Path) -> None:
    lines = (world / "features.letor").read_text().splitlines()
    queries = list(dict.fromkeys(line.split()[1] for line in lines))
    for name, chosen in (("train", queries[:30]), ("later", queries[30:])):
        kept = [line for line in lines if line.split()[1] in chosen]
        (tmp_path / f"{name}.letor").write_text("\n".join(kept) + "\n")
    words = ("train", "-f", "train.letor", "-s", "n_estimators=10", "-o", "model")
    done = run(*words, "--validation-features", "later.letor", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["validation_queries"] == 10
    same = run(*words, "--validation", "later.letor", "--json")
    assert same.returncode == 0, same.stderr
    assert json.loads(same.stdout)["validation"] == json.loads(done.stdout)["validation"]
    done = run(*words, "--validation-features", "train.letor")
    assert done.returncode == 2
    assert "30 queries of the validation labels are also trained on; remove them from one of the two." in done.stderr
    # Two files are one set; one that names fewer features has zeros there.
    (tmp_path / "short.letor").write_text("1 qid:new 1:0.5 2:1 # docid = a\n0 qid:new 1:0.1 # docid = b\n")
    done = run("train", "-f", "train.letor", "-f", "short.letor", "-s", "n_estimators=10", "-o", "model", "--json")
    assert json.loads(done.stdout)["queries"] == 31
    assert json.loads(done.stdout)["features"] == 20
    done = run("rank", "-m", "model", "-f", "short.letor", "--tag", "mine", "-o", "run.trec")
    assert done.returncode == 0, done.stderr
    assert {line.split()[5] for line in (tmp_path / "run.trec").read_text().splitlines()} == {"mine"}


def test_validation_that_stops_in_the_first_iterations_is_noted(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, sign in (("train", 1), ("later", -1)):  # the validation queries contradict the training queries
        rows = [(query, document, rng.normal()) for query in range(20) for document in range(10)]
        lines = [f"{int(sign * x > 0)} qid:{name}{query} 1:{x:.4f} # docid = {d}" for query, d, x in rows]
        (tmp_path / f"{name}.letor").write_text("\n".join(lines) + "\n")
    done = run("train", "-f", "train.letor", "--validation", "later.letor", "-o", "model", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["iterations"] <= 5
    assert any("no better on the validation queries" in note for note in summary["notes"])
    done = run("train", "-f", "train.letor", "--validation", 0.3, "-o", "model", "--json", "-s", "n_estimators=20")
    assert not any("no better" in note for note in json.loads(done.stdout)["notes"])


def test_documents_without_features_or_labels_are_counted(world: Path, run: Run, tmp_path: Path) -> None:
    gold = (world / "gold.qrels").read_text().splitlines()
    (tmp_path / "some.qrels").write_text("\n".join([*gold[5:], "1 0 unknown 2"]) + "\n")
    words = ("train", "-f", world / "features.letor", "--labels", "some.qrels", "-r", "gls", "-o", "model")
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "1 document with a label but without features ('unknown' of query '1') was left out." in done.stdout
    assert "5 documents with features but without a label (" in done.stdout
    done = run(*words, "--missing", "error")
    assert done.returncode == 2
    assert (
        "1 document with a label but without features ('unknown' of query '1'); add their features, or leave them out "
        in done.stderr
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-r", "svm"], "There is no ranker 'svm'"),
        (["-r", "gda-pairwise-mart"], "gda-pairwise-mart needs a model of the judgments; name it with --consensus."),
        (["--consensus", "nowhere"], "nowhere: there is no such folder"),
        (["-s", "depth=3"], "LambdaMART has no parameter 'depth'"),
        (["-s", "n_estimators"], "--set cannot read 'n_estimators'; write name=value"),
        (["-s", "measure=Tau"], "-s measure must be one of nDCG, DCG, ERR, AP"),
        (["--labels", "nowhere.qrels"], "nowhere.qrels"),
        (["--validation", "1.5"], "--validation must be a share between 0 and 1 or a file of labels, not 1.5."),
        (["--validation", "0.0001"], "leaves one part of 40 queries empty"),
        (["--target", "stars"], "--target must be one of probabilities, expected-grade, grade, relevance, not 'stars'"),
        (["--missing", "never"], "--missing must be one of skip, error, not 'never'"),
        (["--weights", "certainty"], "--weights 'certainty' needs labels with the probabilities of grades"),
        (
            ["-s", "pair_targets=posterior"],
            "soft pair targets need labels that are probabilities of grades; set -s pair_targets=grade",
        ),
        (
            ["-r", "gls", "-s", "tree_features=auto"],
            "-s tree_features has several values; give --validation, on which one is chosen, or give one value",
        ),
        (["--judgments", "j.csv", "--labels", "l.csv"], "--judgments are used instead of labels; leave out --labels"),
        (
            ["--judgments", "j.csv", "--instances", "votes"],
            "--instances must be one of single, overlap, per-judge-lists",
        ),
    ],
)
def test_an_error_is_one_sentence(world: Path, run: Run, tmp_path: Path, words: list[str], said: str) -> None:
    done = run("train", "-f", world / "features.letor", "-o", "model", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(without_columns(done.stderr).strip().splitlines()) == 1
    assert not (tmp_path / "model").exists()


def test_rows_that_are_not_adjacent_are_sorted_with_a_warning(world: Path, run: Run, tmp_path: Path) -> None:
    lines = (world / "features.letor").read_text().splitlines()
    (tmp_path / "mixed.letor").write_text("\n".join([*lines[1::2], *lines[::2]]) + "\n")
    done = run("train", "-f", "mixed.letor", "-r", "gls", "-o", "model")
    assert done.returncode == 0
    said = "Warning: The rows of a query are not adjacent in the features; they were sorted by query."
    assert without_columns(done.stderr).splitlines() == [said]
    done = run("train", "-f", world / "features.letor", "-r", "gls", "-o", "model")
    assert (done.returncode, without_columns(done.stderr)) == (0, "")


def test_a_label_without_a_gain_is_named_by_its_document(world: Path, run: Run, tmp_path: Path) -> None:
    gold = (world / "gold.qrels").read_text().splitlines()
    (tmp_path / "high.qrels").write_text("\n".join(["1 0 1-01 40", *gold[1:]]) + "\n")
    words = ("train", "-f", world / "features.letor", "-o", "model")
    done = run(*words, "--labels", "high.qrels")
    assert done.returncode == 2
    assert "the label 40 of document '1-01' of query '1' is above 30, the highest grade that has a gain" in done.stderr
    table = pd.read_csv(world / "gold.qrels", sep=" ", names=["query", "i", "document", "relevance"])
    table.assign(relevance=table["relevance"] - 1.5).to_csv(tmp_path / "low.csv", index=False)
    done = run(*words, "--labels", "low.csv")
    assert done.returncode == 2
    assert "the label -1.5 of document '1-01' of query '1' is below 0" in done.stderr
    assert not (tmp_path / "model").exists()
    # Rankers that need no gains accept any numbers.
    for other in (
        ["-r", "gls"],
        ["-r", "rd"],
        ["-r", "pointwise-gbdt"],
        ["-s", "measure=null", "-s", "n_estimators=3"],
    ):
        done = run(*words, "--labels", "low.csv", *other)
        assert done.returncode == 0, done.stderr


def test_features_without_grades_need_labels(world: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("query,document,x\n1,a,0.5\n1,b,0.1\n")
    done = run("train", "-f", "f.csv", "-o", "model")
    assert (done.returncode, without_columns(done.stderr)) == (
        2,
        "Error: The features have no grades; name a file of labels with --labels.\n",
    )


def test_rank_refuses_invalid_input(world: Path, run: Run, tmp_path: Path) -> None:
    assert run("train", "-f", world / "features.letor", "-r", "gls", "-o", "model").returncode == 0
    features = ("-f", world / "features.letor")
    for words, said in (
        (("-m", world, *features), "it is not a saved ranker"),
        (("-m", world / "pairwise", *features), "it is not a saved ranker"),
        (("-m", "model", "-f", "f.csv"), "the ranker needs 20 features that are missing ('f1', 'f2', 'f3', "),
        (
            ("-m", "model", *features, "-o", "run.doc"),
            "the format is unknown; end its name with one of .trec, .run, .csv",
        ),
        (("-m", "model", *features, "-o", "no/run.trec"), "the folder no does not exist"),
        (("-m", "model", *features, "-o", "run.trec", "--tag", "a b"), "the tag 'a b' has a space"),
        (("-m", "model", "-f", "f.csv", "-o", "f.csv"), "--output is f.csv, which is read"),
    ):
        (tmp_path / "f.csv").write_text("query,document,x\n1,a,0.5\n1,b,0.1\n")
        done = run("rank", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(without_columns(done.stderr).strip().splitlines()) == 1
    for name in ("ranker.json", "arrays.parquet"):
        content = (tmp_path / "model" / name).read_bytes()
        (tmp_path / "model" / name).write_bytes(content[:40])
        done = run("rank", "-m", "model", *features)
        assert done.returncode == 2
        assert "model: " in done.stderr
        assert len(without_columns(done.stderr).strip().splitlines()) == 1


def test_a_folder_with_other_files_is_not_overwritten(world: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    done = run("train", "-f", world / "features.letor", "-o", "mine")
    assert done.returncode == 2
    assert "it contains thesis.txt" in done.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"


@pytest.mark.parametrize("instances", get_args(InstanceKind))
def test_train_on_judgments(world: Path, run: Run, tmp_path: Path, instances: str) -> None:
    train = (
        "train",
        "-f",
        world / "features.letor",
        "--judgments",
        world / "judgments.csv",
        "-r",
        "gls",
        "-o",
        "model",
    )
    done = run(*train, "--instances", instances, "--json")
    assert done.returncode == 0, done.stderr
    judgments = pd.read_csv(world / "judgments.csv")
    n_documents = len(judgments.drop_duplicates(["query", "document"]))
    one_row_each = instances in ("single", "majority", "highest", "average")
    assert json.loads(done.stdout)["rows"] == (n_documents if one_row_each else len(judgments))
    assert run("rank", "-m", "model", "-f", world / "features.letor", "-o", "run.trec").returncode == 0
    assert scored(run, world) > 0.65


def test_instances_change_the_ranker(world: Path, run: Run, tmp_path: Path) -> None:
    train = ("train", "-f", world / "features.letor", "--judgments", world / "judgments.csv", "-o", "model")
    scores = {}
    for options in ("overlap", "per-judge-lists", "weighted", "overlap --k 1", "weighted --good-weight 9 --good 1"):
        done = run(*train, "-s", "n_estimators=10", "--instances", *options.split())
        assert done.returncode == 0, done.stderr
        assert run("rank", "-m", "model", "-f", world / "features.letor", "-o", "run.csv").returncode == 0
        scores[options] = (tmp_path / "run.csv").read_text()
    assert len(set(scores.values())) == len(scores)


def test_judgments_are_read_with_their_own_options(world: Path, run: Run, tmp_path: Path) -> None:
    renamed = pd.read_csv(world / "judgments.csv").rename(columns={"grade": "stars", "assessor": "who"})
    renamed.to_csv(tmp_path / "renamed.csv", index=False)
    train = ("train", "-f", world / "features.letor", "--judgments", "renamed.csv", "-r", "gls", "-o", "model")
    done = run(*train)
    assert done.returncode == 2
    assert "--judgments-columns" in done.stderr
    done = run(*train, "--judgments-columns", "grade=stars,assessor=who")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "options",
    [
        "-r lambdamart -s pair_targets=posterior -s n_estimators=20",
        "-r rd -s estimator=pointwise-gbdt -s estimator__n_estimators=20",
        "-r rd -s estimator=gls -s estimator__tree_features=20 -s delta=0.7",
        "-r gls -s mu=[1,10] -s tree_features=auto",
        "-r gls -s mu=auto",
    ],
)
def test_options_of_rankers(world: Path, run: Run, options: str) -> None:
    gold = (world / "gold.qrels").read_text().splitlines()
    (world / "later.qrels").write_text("\n".join(gold[-60:]) + "\n")
    consensus = pd.read_parquet(world / "consensus.parquet")
    used = {line.split()[0] for line in gold[-60:]}
    consensus[~consensus["query"].astype(str).isin(used)].to_parquet(world / "earlier.parquet")
    labels = ("--labels", world / "earlier.parquet", "--validation", world / "later.qrels")
    done = run("train", "-f", world / "features.letor", *labels, *options.split(), "-o", "model")
    assert done.returncode == 0, done.stderr
    assert run("rank", "-m", "model", "-f", world / "features.letor", "-o", "run.trec").returncode == 0
    assert scored(run, world) > 0.65


def test_rank_compares_features_with_the_training(world: Path, run: Run, tmp_path: Path) -> None:
    assert run("train", "-f", world / "features.letor", "-r", "gls", "-o", "model").returncode == 0
    rank = ("rank", "-m", "model", "-o", "run.csv", "--check")
    done = run(*rank, "-f", world / "features.letor", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["messages"], found["check"]) == (0, [], [])
    assert "No feature differs" in run(*rank, "-f", world / "features.letor").stdout
    features = read_features(world / "features.letor")
    frame = pd.DataFrame(features.matrix, columns=list(features.names)).assign(f1=np.nan, f2=3.5, notes="new")
    frame.insert(0, "document", features.document.to_pylist())
    frame.insert(0, "query", features.query.to_pylist())
    frame.to_csv(tmp_path / "today.csv", index=False)
    done = run(*rank, "-f", "today.csv", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    kinds = [(message["kind"], message["severity"]) for message in found["messages"]]
    assert kinds == [("extra-columns", "note"), ("always-missing", "warning"), ("constant", "warning")]
    assert [(row["feature"], row["problem"]) for row in found["check"]] == [
        ("f1", "always-missing"),
        ("f2", "constant"),
    ]
    assert found["check"][1]["minimum"] == 3.5
    assert len(without_columns(done.stderr).splitlines()) == 3
    assert "always-missing" in run(*rank, "-f", "today.csv").stdout
    assert len(pd.read_csv(tmp_path / "run.csv")) == len(frame)
