"""Whatever bytes or cells come in: judgments, or one sentence; never another error."""

from __future__ import annotations

import datetime
import decimal
import gzip
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdrank import Judgments, read_features, read_gold, read_judgments, read_run
from crowdrank.errors import CrowdrankError
from judgments_reference import check
from tools.fuzz_readers import SAMPLES, Case, cases, run
from tools.fuzz_readers import check as check_case

FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def try_to_read(read: Callable[..., Any], source: Any, **options: Any) -> None:
    try:
        result = read(source, **options)
    except CrowdrankError as error:
        sentence = str(error)
        assert sentence.endswith("."), sentence
        assert "\n" not in sentence.replace(str(source), ""), sentence
        assert len(sentence) < 1500, sentence
    else:
        if hasattr(result, "offsets"):
            check(result)


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_are_refused_or_read_with_every_row_counted(seed: int, tmp_path: Path) -> None:
    counts = run(count=660, seconds=600, seed=seed, folder=tmp_path)
    assert counts["inputs"] == 660 == counts["read"] + counts["refused"]
    assert counts["read"] > 60
    assert counts["refused"] > 60


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again, other = (list(islice(cases(seed), 50)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert {case.format for case in first} == set(SAMPLES)


def test_an_uncounted_row_is_a_violation(tmp_path: Path) -> None:
    def read(path: Path) -> Judgments:
        judgments = read_judgments(path)
        return replace(judgments, report=replace(judgments.report, rows=judgments.report.rows + 1))

    name, content, _ = SAMPLES["csv"]
    with pytest.raises(AssertionError, match="1 rows are neither used nor counted"):
        check_case(Case("csv", name, content, read), tmp_path)
    assert (tmp_path / name).read_bytes() == content
    with pytest.raises(AssertionError, match="raised KeyError"):
        check_case(Case("csv", name, content, lambda path: {}[path]), tmp_path)


@pytest.mark.parametrize("format", SAMPLES)
@FUZZ
@given(content=st.binary(max_size=200))
def test_files_of_random_bytes(format: str, content: bytes, tmp_path: Path) -> None:
    name, _, reads = SAMPLES[format]
    path = tmp_path / name
    packed = name.endswith(".gz") and len(content) % 2 == 0
    path.write_bytes(gzip.compress(content) if packed else content)
    for read in reads:
        try_to_read(read, path)


@pytest.mark.parametrize("format", ["parquet", "csv.gz", "parquet.gz"])
def test_files_cut_off_anywhere(format: str, tmp_path: Path) -> None:
    name, content, reads = SAMPLES[format]
    for size in range(0, len(content), max(len(content) // 80, 1)):
        (tmp_path / name).write_bytes(content[:size])
        with pytest.raises(CrowdrankError):
            reads[0](tmp_path / name)


CELLS: list[Any] = [
    None,
    0,
    1,
    -2,
    2**40,
    2**70,
    1.0,
    0.5,
    float("nan"),
    float("inf"),
    True,
    "",
    " ",
    "a",
    "1",
    "nan",
    "\ud800",
    "a\nb",
    b"a",
    b"\xff",
    1j,
    [1],
    {"a": 1},
    datetime.date(2024, 5, 31),
    datetime.datetime(2024, 5, 31, 10),
    datetime.time(1),
    datetime.timedelta(1),
    decimal.Decimal("1.5"),
    pd.NaT,
    pd.NA,
    pd.Timestamp("2024-05-31", tz="Europe/Paris"),
    object(),
]
ROLES = ["query", "document", "assessor", "grade", "family", "time", "duration", "cost", "honeypot", "score"]
COLUMN = st.one_of(
    st.lists(st.sampled_from(CELLS), min_size=3, max_size=3),
    st.sampled_from(CELLS).map(lambda cell: [cell, cell, None]),
)
KINDS = ["category", "string", "Int64", "float32", "boolean", "int8", "datetime64[ns]", "timedelta64[s]", "period[D]"]


@FUZZ
@given(
    columns=st.dictionaries(st.sampled_from(ROLES), COLUMN, min_size=1),
    kind=st.sampled_from([None, *KINDS]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "on_bad_rows": st.just("skip"),
            "grades": st.sampled_from(["0-3", "a,b", [0, 1]]),
            "unjudgeable": st.sampled_from([-2, "a", ["1", 2.0], ""]),
            "repeats": st.sampled_from(["keep", "first", "error"]),
            "exclude": st.sampled_from([["a"], [1], []]),
        },
    ),
)
def test_frames_of_random_cells(columns: dict[str, list[Any]], kind: str | None, options: dict[str, Any]) -> None:
    sound = {"document": ["a", "b", "c"], "assessor": ["x", "y", "x"], "grade": [0, 1, 2], "score": [1, 2, 3]}
    cells = {**sound, **columns}
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in cells.items()})
    typed = frame.copy()
    for name in columns if kind else ():
        try:
            typed[name] = frame[name].astype(kind)  # type: ignore[call-overload]
        except Exception:
            continue  # what pandas cannot make, nobody can hand in
    others: list[Any] = [frame, typed]
    for make in (lambda: pl.DataFrame(cells, strict=False), lambda: pa.table(cells)):
        try:
            others.append(make())
        except Exception:
            continue
    for other in others:
        try_to_read(read_judgments, other, **options)
        for read in (read_gold, read_features, read_run):
            try_to_read(read, other)
