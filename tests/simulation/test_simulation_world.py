"""What a world promises whatever its settings: same seed same bytes, whole files, sound judgments, clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank.errors import OutputError, UsageError
from crowdrank.simulation import World, simulate

FILES = {
    "judgments.csv",
    "gold.qrels",
    "features.letor",
    "assessors.csv",
    "documents.csv",
    "world.json",
    "crowdrank.json",
}
SMALL: dict[str, Any] = {"queries": 6, "documents": 5, "labels": 3, "assessors": 9, "features": 7, "honeypots": 0.2}


def written(world: World, folder: Path) -> dict[str, bytes]:
    world.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    first = written(simulate(**SMALL, random_state=3), tmp_path / "first")
    again = written(simulate(**SMALL, random_state=3), tmp_path / "again")
    assert first == again
    assert set(first) == FILES


def test_another_seed_gives_another_world(tmp_path: Path) -> None:
    first = written(simulate(**SMALL, random_state=3), tmp_path / "first")
    other = written(simulate(**SMALL, random_state=4), tmp_path / "other")
    assert all(first[name] != other[name] for name in FILES)


def test_global_random_state_does_not_move() -> None:
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    simulate(**SMALL)
    assert np.random.random() == expected  # noqa: NPY002


def test_the_crowd_does_not_change_the_documents() -> None:
    few = simulate(**SMALL)
    many = simulate(**SMALL | {"labels": 8, "assessors": 30, "spammers": 0.5, "label_grades": 2})
    pd.testing.assert_frame_equal(few.documents, many.documents)
    pd.testing.assert_frame_equal(few.features, many.features)


def test_more_labels_do_not_change_the_assessors() -> None:
    few, many = simulate(**SMALL), simulate(**SMALL | {"labels": 8})
    pd.testing.assert_frame_equal(few.assessors, many.assessors)


def test_honeypots_do_not_change_the_other_documents() -> None:
    with_honeypots = simulate(**SMALL).documents.query("~honeypot")
    without = simulate(**SMALL | {"honeypots": 0}).documents
    assert with_honeypots["relevance"].tolist() == without["relevance"].tolist()


@settings(max_examples=40, deadline=None)
@given(
    queries=st.integers(1, 6),
    documents=st.integers(1, 8),
    labels=st.integers(1, 12),
    assessors=st.integers(1, 14),
    features=st.integers(1, 9),
    grades=st.integers(2, 11),
    label_grades=st.none() | st.integers(2, 11),
    spammers=st.floats(0, 0.5),
    adversaries=st.floats(0, 0.5),
    honeypots=st.floats(0, 0.5),
    noise=st.floats(0, 5),
    families=st.integers(0, 1),
    family_error=st.floats(0, 5),
    copies=st.floats(0, 1),
    price=st.floats(0, 1e6),
    random_state=st.integers(0, 2**40),
)
def test_any_size_is_sound(**sizes: Any) -> None:
    world = simulate(**sizes)
    judgments = world.judgments
    assert judgments["grade"].between(0, (sizes["label_grades"] or sizes["grades"]) - 1).all()
    assert world.documents["grade"].between(0, sizes["grades"] - 1).all()
    assert not judgments.duplicated(["query", "document", "assessor"]).any()
    expected = min(sizes["labels"], sizes["assessors"])
    assert (judgments.groupby("document").size() == expected).all()
    assert judgments["document"].nunique() == len(world.documents) == len(world.features) == len(world.gold)
    assert world.documents["query"].nunique() == sizes["queries"]
    assert len(world.assessors) == sizes["assessors"]
    assert np.isfinite(world.features.filter(regex="^f").to_numpy()).all()
    assert judgments["time"].is_monotonic_increasing
    assert (judgments["duration"] >= 1).all()
    assert (judgments["cost"] >= 0).all()
    assert ("family" in judgments) == bool(sizes["families"])


def test_an_assessor_does_one_task_after_another() -> None:
    judgments = simulate(queries=20).judgments
    end = pd.to_datetime(judgments["time"])
    begin = end - pd.to_timedelta(judgments["duration"], unit="s")
    for rows in judgments.groupby("assessor").groups.values():
        # Ends are whole seconds, so a task may seem to begin up to one second early.
        gap = (begin.loc[rows].iloc[1:].array - end.loc[rows].iloc[:-1].array).total_seconds()
        assert (np.asarray(gap) >= -1).all()


def test_queries_differ_in_size_around_the_setting() -> None:
    sizes = simulate(queries=200, documents=30, honeypots=0, labels=1).documents.groupby("query").size()
    assert 27 < sizes.mean() < 33
    assert sizes.std() > 4


def test_a_few_assessors_do_most_of_the_work() -> None:
    counts = simulate(queries=200, assessors=200).judgments["assessor"].value_counts()
    assert counts.iloc[:40].sum() > 0.5 * counts.sum()


def test_gold_covers_the_queries_asked_for() -> None:
    world = simulate(**SMALL, gold_queries=2)
    assert sorted(world.gold["query"].unique()) == ["1", "2"]
    assert simulate(**SMALL, gold_queries=0).gold.empty


def test_files_agree_with_the_frames(tmp_path: Path) -> None:
    world = simulate(**SMALL)
    world.write(tmp_path)
    text = {"query": str, "document": str}
    judgments = pd.read_csv(tmp_path / "judgments.csv", dtype=text | {"honeypot": "Int64"})
    pd.testing.assert_frame_equal(judgments, world.judgments)
    assert judgments["honeypot"].notna().any()
    assert judgments["honeypot"].isna().any()
    qrels = pd.read_csv(tmp_path / "gold.qrels", sep=" ", names=["query", "0", "document", "grade"], dtype=text)
    pd.testing.assert_frame_equal(qrels.drop(columns="0"), world.gold)
    documents = pd.read_csv(tmp_path / "documents.csv", dtype=text)
    pd.testing.assert_frame_equal(documents, world.documents, rtol=0, atol=0)
    assert json.loads((tmp_path / "world.json").read_text())["assessors"] == SMALL["assessors"]


def test_letor_holds_grades_queries_values_and_documents(tmp_path: Path) -> None:
    world = simulate(**SMALL)
    world.write(tmp_path)
    lines = (tmp_path / "features.letor").read_text().splitlines()
    rows = [line.partition(" # docid = ") for line in lines]
    assert [document for _, _, document in rows] == world.features["document"].tolist()
    parts = [row.split() for row, _, _ in rows]
    assert [int(part[0]) for part in parts] == world.documents["grade"].tolist()
    assert [part[1] for part in parts] == [f"qid:{query}" for query in world.features["query"]]
    values = [[float(pair.partition(":")[2]) for pair in part[2:]] for part in parts]
    assert values == world.features.filter(regex="^f").to_numpy().tolist()
    assert [pair.partition(":")[0] for pair in parts[0][2:]] == [str(n) for n in range(1, SMALL["features"] + 1)]


def test_writing_again_replaces_the_files_and_leaves_others(tmp_path: Path) -> None:
    folder = tmp_path / "world"
    simulate(**SMALL, random_state=1).write(folder)
    simulate(**SMALL, random_state=2).write(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / "world.json").read_text())["seed"] == 2
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        simulate(**SMALL, random_state=3).write(folder)
    assert json.loads((folder / "world.json").read_text())["seed"] == 2


def test_a_write_that_fails_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = written(simulate(**SMALL, random_state=1), tmp_path)

    write_text = Path.write_text

    def full(path: Path, *args: Any, **options: Any) -> int:
        if path.name == "world.json":
            raise OSError(28, "No space left on device")
        return write_text(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputError, match="No space left"):
        simulate(**SMALL, random_state=2).write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    world = simulate(**SMALL)
    with pytest.raises(OutputError, match="does not exist"):
        world.write(tmp_path / "missing" / "world")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="it is a file"):
        world.write(tmp_path / "file")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("queries", 0),
        ("documents", -3),
        ("labels", 2.5),
        ("assessors", True),
        ("features", 0),
        ("grades", 1),
        ("label_grades", 12),
        ("gold_queries", 101),
        ("random_state", -1),
        ("spammers", 1.2),
        ("adversaries", -0.1),
        ("honeypots", 0.6),
        ("noise", float("nan")),
        ("noise", "much"),
        ("families", 61),
        ("families", 1.5),
        ("family_error", -1),
        ("copies", 1.1),
        ("price", -0.01),
        ("expert_price", float("inf")),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(UsageError) as refused:
        simulate(**{setting: value})
    assert (refused.value.parameter, refused.value.kind) == (setting, "invalid-parameter")


def test_more_than_all_assessors_cannot_be_bad() -> None:
    with pytest.raises(UsageError) as refused:
        simulate(spammers=0.7, adversaries=0.4)
    assert refused.value.kind == "shares-above-1"


def test_numpy_numbers_are_numbers(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"random_state": np.int64(5), "noise": np.float32(0.5)}
    simulate(**SMALL, **numbers).write(tmp_path)
    assert json.loads((tmp_path / "world.json").read_text())["noise"] == 0.5
