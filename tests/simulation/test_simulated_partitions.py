"""Simulated judgments that are drawn one file at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import kernels
from benchmarks.simulated_partitions import numbered_ids, simulate_partitions
from crowdrank.errors import UsageError


def test_every_item_is_judged_as_often_as_requested_by_different_assessors(tmp_path: Path) -> None:
    drawn = simulate_partitions(tmp_path / "a", items=503, labels=4, assessors=23, documents=10, rows_per_file=300)
    files = sorted((tmp_path / "a").glob("*.parquet"))
    frame = pd.concat([pd.read_parquet(file).assign(file=file.name) for file in files])
    assert drawn == len(frame) == 503 * 4
    assert (frame.groupby(["query", "document"])["assessor"].nunique() == 4).all()
    assert frame["document"].nunique() == 503
    assert set(frame["grade"]) == set(range(5))
    assert frame["assessor"].nunique() == 23
    assert len(files) == 7
    assert (frame.groupby("query")["file"].nunique() > 1).all()  # a query is spread over files
    simulate_partitions(tmp_path / "b", items=503, labels=4, assessors=23, documents=10, rows_per_file=300)
    again = pd.concat([pd.read_parquet(file) for file in sorted((tmp_path / "b").glob("*.parquet"))])
    pd.testing.assert_frame_equal(frame.drop(columns="file"), again)


def test_assessors_are_mostly_right_and_differ() -> None:
    item, turn = np.repeat(np.arange(4000), 5), np.tile(np.arange(5), 4000)
    who, grade = np.empty(len(item), np.int32), np.empty(len(item), np.int8)
    kernels.draw_labels(item, turn, 5, 40, 5, 1, who, grade)
    majority = pd.Series(grade).groupby(item).agg(lambda grades: grades.mode()[0])
    right = pd.Series(grade == majority.to_numpy()[item]).groupby(who).mean()
    assert len(right) == 40
    assert right.min() > 0.4
    assert right.max() - right.min() > 0.2
    # Any part of a world is drawn as in the whole.
    some = np.arange(7, len(item), 11)
    part, its = np.empty(len(some), np.int32), np.empty(len(some), np.int8)
    kernels.draw_labels(item[some], turn[some], 5, 40, 5, 1, part, its)
    assert (part == who[some]).all()
    assert (its == grade[some]).all()


def test_numbers_become_text_of_one_width() -> None:
    numbers = np.array([0, 7, 12345])
    assert numbered_ids("d", numbers, 8).to_pylist() == [f"d{number:07d}" for number in numbers]


def test_more_labels_than_assessors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        simulate_partitions(tmp_path / "a", items=3, labels=4, assessors=3)
    assert refused.value.parameter == "labels"
