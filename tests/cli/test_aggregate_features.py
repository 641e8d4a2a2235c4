"""`crowdrank aggregate --features` and `--signal`: a prior of relevance from features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import Aggregator, compare, evaluate, read_gold, simulate
from crowdrank.errors import InputError
from crowdrank.evaluation.evaluate import GOLD_USED_FEATURES_NOTE
from crowdrank.pipeline.run_data import build_run_data
from terminal import crowdrank


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with judgments, with a score, of all but one document, and features of all."""
    folder = tmp_path_factory.mktemp("features")
    world = simulate(queries=12, documents=8, assessors=10, labels=2, honeypots=0, random_state=1)
    ids = ["query", "document"]
    features = world.features.assign(
        bm25=world.documents["grade"] + np.random.default_rng(0).normal(size=len(world.features))
    )
    judgments = world.judgments[[*ids, "assessor", "grade"]].merge(features[[*ids, "bm25"]], on=ids)
    hidden = tuple(features[ids].iloc[3])
    judgments = judgments[~((judgments["query"] == hidden[0]) & (judgments["document"] == hidden[1]))]
    features.to_csv(folder / "features.csv", index=False)
    judgments.to_csv(folder / "labels.csv", index=False)
    (folder / "parts").mkdir()
    judgments.drop(columns="bm25").to_parquet(folder / "parts" / "0.parquet")
    return folder


def aggregate(folder: Path, *words: object, code: int = 0) -> Any:
    """Return the JSON result of the command, or its error."""
    done = crowdrank("aggregate", *words, "--json", cwd=folder)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_documents_without_judgments_are_predicted(folder: Path) -> None:
    summary = aggregate(folder, "labels.csv", "--features", "features.csv", "-o", "out.csv", "--save", "model")
    features, table = pd.read_csv(folder / "features.csv"), pd.read_csv(folder / "out.csv")
    assert summary["features_used"] == list(features.columns.drop(["query", "document"]))
    assert summary["predicted"] == 1
    assert summary["documents"] == len(table) == len(features)
    assert table["judgments"].tolist().count(0) == 1
    assert table["judgments"].iloc[-1] == 0
    assert table["sd"].iloc[-1] > table["sd"].iloc[:-1].median()
    assert list(Aggregator.load(folder / "model").consensus_.features_used) == summary["features_used"]


def test_a_signal_is_the_only_feature(folder: Path) -> None:
    of_features = aggregate(folder, "labels.csv", "-f", "features.csv", "--signal", "bm25", "-o", "signal.csv")
    of_judgments = aggregate(folder, "labels.csv", "--signal", "bm25", "-o", "own.csv")
    assert of_features["features_used"] == of_judgments["features_used"] == ["bm25"]
    assert (of_features["predicted"], of_judgments["predicted"]) == (1, 0)
    both = [pd.read_csv(folder / name) for name in ("signal.csv", "own.csv")]
    assert np.corrcoef(both[1]["relevance"], both[0]["relevance"][:-1])[0, 1] > 0.99


def test_judgments_on_disk_take_features_too(folder: Path) -> None:
    summary = aggregate(folder, "parts", "-f", "features.csv", "-o", "consensus")
    in_memory = aggregate(folder, "labels.csv", "-f", "features.csv", "-o", "memory.csv")
    assert summary["features_used"] == in_memory["features_used"]
    assert (summary["predicted"], summary["documents"]) == (1, in_memory["documents"])
    parts = pd.concat(pd.read_parquet(path) for path in sorted((folder / "consensus" / "documents").iterdir()))
    ids = ["query", "document"]
    one, other = (table.astype(dict.fromkeys(ids, str)) for table in (parts, pd.read_csv(folder / "memory.csv")))
    merged = one.merge(other, on=ids, suffixes=("", "_memory"))
    assert len(merged) == summary["documents"]
    assert merged["relevance"].to_numpy() == pytest.approx(merged["relevance_memory"].to_numpy(), abs=1e-6)


def test_a_qrels_file_comes_with_a_note(folder: Path) -> None:
    done = crowdrank("aggregate", "labels.csv", "-f", "features.csv", "-o", "out.qrels", cwd=folder)
    assert done.returncode == 0
    assert "features" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("labels.csv", "--signal", "bm52"),
        ("labels.csv", "-f", "features.csv", "-m", "majority"),
        ("labels.csv", "-f", "features.csv", "--update", "model"),
        ("parts", "--signal", "bm25", "-o", "new"),
        ("labels.csv", "-f", "features.csv", "-o", "features.csv"),
        ("labels.csv", "-f", "labels.csv"),
    ],
)
def test_bad_options_are_refused(folder: Path, words: tuple[str, ...]) -> None:
    before = (folder / "features.csv").read_bytes()
    assert "Traceback" not in aggregate(folder, *words, code=2)
    assert (folder / "features.csv").read_bytes() == before
    assert not (folder / "new").exists()


def test_other_commands_note_labels_that_used_features(folder: Path) -> None:
    aggregate(folder, "labels.csv", "-f", "features.csv", "-o", "with.csv")
    aggregate(folder, "labels.csv", "-o", "without.csv")

    def used(*words: str) -> Any:
        done = crowdrank(*words, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["used_features"], "used features" in done.stderr

    assert used("evaluate", "without.csv", "--expert", "with.csv") == ({"gold": True, "run": False}, True)
    assert used("evaluate", "with.csv", "--expert", "without.csv") == ({"gold": False, "run": True}, True)
    assert used("evaluate", "without.csv", "--expert", "without.csv") == ({"gold": False, "run": False}, False)
    found = used("compare", "with.csv", "without.csv", "--expert", "with.csv")
    assert found == ({"gold": True, "runs": ["with"]}, True)
    run = ("run", "labels.csv", "-f", "features.csv", "--expert", "with.csv", "-o", "result")
    done = crowdrank(*run, cwd=folder)
    assert done.returncode == 2
    assert not (folder / "result").exists()


def test_python_notes_gold_that_used_features(folder: Path) -> None:
    aggregate(folder, "labels.csv", "-f", "features.csv", "-o", "gold.csv")
    frame = pd.read_csv(folder / "gold.csv")
    for gold in (folder / "gold.csv", read_gold(folder / "gold.csv"), frame):
        assert evaluate(frame, gold, "nDCG@10").gold_used_features
        assert GOLD_USED_FEATURES_NOTE in compare({"one": frame}, gold, "nDCG@10").protocol()
    plain = frame[["query", "document", "grade"]]
    assert GOLD_USED_FEATURES_NOTE not in evaluate(frame, plain, "nDCG@10").notes()
    with pytest.raises(InputError) as error:
        build_run_data(folder / "labels.csv", folder / "features.csv", frame)
    assert error.value.kind == "features-used"
