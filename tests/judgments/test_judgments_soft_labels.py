"""Soft labels: probabilities of the grades of a judgment, in the columns p0, p1, ... beside its label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from crowdrank import read_judgments, read_partitions
from crowdrank.collection.add_batch import JudgmentFile, merge_batch, write_new_file
from crowdrank.errors import InputError
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk import storage
from crowdrank.readers.combine import combine

ROWS = pd.DataFrame(
    {
        "query": "q",
        "document": ["a", "a", "b", "b"],
        "assessor": ["ann", "gpt", "ann", "gpt"],
        "grade": [2, 1, 0, 1],
        "p0": [np.nan, 0.125, np.nan, 0.25],
        "p1": [np.nan, 0.625, np.nan, 0.75],
        "p3": [np.nan, 0.25, np.nan, np.nan],
    }
)
SHARES = np.array([[np.nan] * 4, [0.125, 0.625, 0.0, 0.25], [np.nan] * 4, [0.25, 0.75, 0.0, 0.0]])


def shares(judgments: Judgments) -> Any:
    found = judgments.shares()
    assert found is not None
    return found


def written(folder: Path, suffix: str) -> Path:
    path = folder / f"labels.{suffix}"
    if suffix == "parquet":
        ROWS.to_parquet(path)
    elif suffix == "jsonl":
        ROWS.to_json(path, orient="records", lines=True)
    else:
        ROWS.to_csv(path, sep="\t" if suffix == "tsv" else ",", index=False)
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "jsonl"])
def test_all_files_of_tables_have_soft_labels(tmp_path: Path, suffix: str) -> None:
    judgments = read_judgments(written(tmp_path, suffix))
    np.testing.assert_array_equal(shares(judgments), SHARES)
    assert str(judgments.scale) == "0-3"  # also from the columns of probabilities


@pytest.mark.parametrize("make", [lambda rows: rows, pl.from_pandas, pa.Table.from_pandas])
def test_all_frames_have_soft_labels(make: Any) -> None:
    judgments = read_judgments(make(ROWS))
    np.testing.assert_array_equal(shares(judgments), SHARES)
    read_again = read_judgments(judgments.frame)
    np.testing.assert_array_equal(shares(read_again), SHARES)


def test_one_column_is_not_a_distribution() -> None:
    judgments = read_judgments(ROWS.drop(columns=["p0", "p3"]).fillna({"p1": 7.0}))
    assert not judgments.has_soft_labels
    assert judgments.shares() is None


@pytest.mark.parametrize(
    ("changes", "grades", "column", "kind"),
    [
        ({"p0": 1.5}, None, "p0", "not-a-share"),
        ({"p1": -0.1}, None, "p1", "not-a-share"),
        ({"p1": np.inf}, None, "p1", "not-a-share"),
        ({"p0": 0.2}, None, "p0", "not-a-share"),
        ({"p0": 0.0, "p1": 0.0, "p3": 0.0}, None, "p0", "not-a-share"),
        ({}, "0-2", "p3", "grade-off-scale"),
    ],
)
def test_unusable_probabilities_are_refused(
    changes: dict[str, float], grades: str | None, column: str, kind: str
) -> None:
    rows = ROWS.copy()
    for name, value in changes.items():
        rows.loc[1, name] = value
    with pytest.raises(InputError) as problem:
        read_judgments(rows, grades=grades)
    location = problem.value.message.location
    assert location is not None
    assert (problem.value.kind, location.place, location.column) == (kind, "row 2", column)
    kept = read_judgments(rows, grades=grades, on_bad_rows="skip")
    assert (len(kept), sum(kept.report.skipped.values())) == (3, 1)


def test_text_in_a_column_of_probabilities_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("document,assessor,grade,p0,p1\na,x,1,,\na,y,1,much,0.5\n")
    with pytest.raises(InputError) as problem:
        read_judgments(path)
    location = problem.value.message.location
    assert location is not None
    assert (location.place, location.column) == ("row 2 (line 3)", "p0")


def test_rounded_probabilities_are_normalized() -> None:
    rows = pd.DataFrame({"document": ["a"], "assessor": "x", "grade": 1, "p0": 0.333, "p1": 0.333, "p2": 0.333})
    np.testing.assert_allclose(shares(read_judgments(rows)), 1 / 3)


def test_cannot_judge_has_no_probabilities() -> None:
    judgments = read_judgments(ROWS.assign(grade=[2, -1, 0, 1]), unjudgeable=-1)
    assert np.isnan(shares(judgments)[1]).all()
    assert np.isnan(shares(judgments.with_unjudgeable("lowest"))[1]).all()
    np.testing.assert_array_equal(shares(judgments.with_unjudgeable("drop")), SHARES[[0, 2, 3]])


def test_grades_may_be_names() -> None:
    rows = pd.DataFrame({"document": ["a"], "assessor": "x", "grade": "Good", "p0": 0.25, "p1": 0.25, "p2": 0.5})
    np.testing.assert_array_equal(shares(read_judgments(rows, grades="Bad,Fair,Good")), [[0.25, 0.25, 0.5]])


def test_probabilities_are_mapped_with_the_grades(tmp_path: Path) -> None:
    scales = tmp_path / "scales.csv"
    scales.write_text("assessor,grades,maps_to\ngpt,0-3,0|0|1|1\nann,0-2,0|1|1\n")
    judgments = read_judgments(ROWS, scales=scales, grades="0,1").to_one_scale()
    expected = [[np.nan, np.nan], [0.75, 0.25], [np.nan, np.nan], [1.0, 0.0]]
    np.testing.assert_array_equal(shares(judgments), expected)
    np.testing.assert_array_equal(judgments.grade, [1, 0, 0, 0])


def test_selection_combination_and_storage_keep_probabilities(tmp_path: Path) -> None:
    judgments = read_judgments(ROWS)
    gpt = judgments.where(judgments.assessor == 1)
    np.testing.assert_array_equal(shares(gpt), SHARES[[1, 3]])
    people = read_judgments(ROWS[["query", "document", "assessor", "grade"]].iloc[[0, 2]])
    both = combine(people, gpt)
    np.testing.assert_array_equal(shares(both), SHARES)
    storage.save(both, tmp_path / "judgments.parquet")
    np.testing.assert_array_equal(shares(storage.load(tmp_path / "judgments.parquet")), SHARES)


@pytest.mark.parametrize("column", [[0.5, 0.5, np.nan, 0.25], [np.nan, 7.0, np.nan, 0.25]])
def test_altered_probabilities_are_not_loaded(tmp_path: Path, column: list[float]) -> None:
    judgments = read_judgments(ROWS)
    altered = {**judgments.extras, "p0": np.array(column)}
    object.__setattr__(judgments, "extras", altered)
    storage.save(judgments, tmp_path / "judgments.parquet")
    with pytest.raises(InputError):
        storage.load(tmp_path / "judgments.parquet")


def test_shards_on_disk_have_probabilities(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for number, rows in enumerate((ROWS.iloc[:1], ROWS.iloc[1:])):
        rows.to_parquet(tmp_path / "parts" / f"{number}.parquet")
    sharded = read_partitions(tmp_path / "parts", work=tmp_path / "shards", by="document", shard_size=2)
    assert sharded.has_soft_labels
    again = read_partitions(tmp_path / "parts", work=tmp_path / "shards", by="document", shard_size=2)
    found: dict[Any, Any] = {}
    for shard in again.iterate():
        table = shard.to_arrow().to_pylist()
        keys = [(row["document"], row["assessor"]) for row in table]
        found |= dict(zip(keys, shares(shard), strict=True))
    ids = zip(ROWS["document"], ROWS["assessor"], strict=True)
    for key, expected in zip(ids, SHARES, strict=True):
        np.testing.assert_array_equal(found[key], expected)
    assert not sharded.with_hard_labels().load(0).has_soft_labels


def test_partitions_refuse_unusable_probabilities(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    ROWS.assign(p0=[np.nan, 0.5, np.nan, 0.25]).to_parquet(tmp_path / "parts" / "0.parquet")
    with pytest.raises(InputError) as problem:
        read_partitions(tmp_path / "parts")
    location = problem.value.message.location
    assert location is not None
    assert (problem.value.kind, location.place, location.column) == ("not-a-share", "row 2", "p0")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "jsonl"])
def test_judgments_are_added_with_their_probabilities(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"labels.{suffix}"
    everything = read_judgments(ROWS)
    write_new_file(path, everything.where(np.arange(4) < 3))
    file = JudgmentFile.open(path)
    assert file.missing_columns(everything) == []
    file.add(everything.where(np.arange(4) == 3))
    np.testing.assert_array_equal(shares(read_judgments(path)), SHARES)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_replaced_label_loses_its_probabilities(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"labels.{suffix}"
    write_new_file(path, read_judgments(ROWS))
    hard = read_judgments(ROWS[["query", "document", "assessor", "grade"]].assign(grade=3).iloc[[1]], grades="0-3")
    JudgmentFile.open(path).add(hard, changed=True)
    judgments = read_judgments(path, grades="0-3")
    row = np.flatnonzero((judgments.item == 0) & (judgments.grade == 3))
    assert len(row) == 1
    assert np.isnan(shares(judgments)[row]).all()


def test_changed_probabilities_are_a_changed_judgment() -> None:
    judgments = read_judgments(ROWS)
    assert merge_batch(judgments, judgments).known == len(judgments)
    other = read_judgments(ROWS.assign(p0=[np.nan, 0.25, np.nan, 0.25], p1=[np.nan, 0.5, np.nan, 0.75]))
    result = merge_batch(judgments, other)
    assert (result.changed, result.known) == (1, 3)
    np.testing.assert_array_equal(shares(result.judgments)[1], [0.25, 0.5, 0.0, 0.25])
    hard = read_judgments(ROWS[["query", "document", "assessor", "grade"]], grades="0-3")
    assert merge_batch(hard, judgments).known == len(judgments)  # a file without the columns stays as it is
