"""The same rows in one part, in several parts and in shards on disk are the same judgments, reports and errors."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdrank import Judgments, read_judgments, read_partitions
from crowdrank.errors import InputError, Message
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import ReadReport
from crowdrank.on_disk.sharded import concat_shards
from crowdrank.readers.encode import Part, encode_part
from crowdrank.readers.merge import merge_parts
from crowdrank.readers.read_options import EncodeOptions
from crowdrank.readers.sources import BadRows, FrameSource, Origin
from judgments_reference import check

ID = st.sampled_from(["a", "b", "c", "01", "1", "d ", "d"])
ROW = st.tuples(ID, ID, ID, st.integers(0, 3).map(str), st.none())
FAULTY_ID = st.one_of(ID, st.sampled_from([None, " "]))
FAULTY_GRADE = st.one_of(st.integers(-1, 3).map(str), st.sampled_from([None, "x", "999", "-7"]))
FAULTY_FAMILY = st.sampled_from([None, "f", "g"])
FAULTY_ROW = st.tuples(FAULTY_ID, FAULTY_ID, FAULTY_ID, FAULTY_GRADE, FAULTY_FAMILY)
ROWS = st.one_of(st.lists(ROW, min_size=1, max_size=25), st.lists(FAULTY_ROW, min_size=1, max_size=25))
OPTIONS = st.fixed_dictionaries(
    {
        "repeats": st.sampled_from(["last", "first", "keep", "error"]),
        "on_bad_rows": st.sampled_from(["error", "skip"]),
        "exclude": st.sampled_from([(), ("a",), ("b", "c")]),
        "grades": st.sampled_from([None, "0-3"]),
        "unjudgeable": st.sampled_from([None, "-1"]),
    }
)
NAMES = ["query", "document", "assessor", "grade", "family"]


def table_of(rows: list[Any]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(NAMES, columns, strict=True)})


def split(table: pa.Table, n_parts: int) -> list[tuple[int, pa.Table]]:
    """Return the first row and the rows of each part."""
    bounds = sorted({round(share * len(table)) for share in np.linspace(0, 1, n_parts + 1)})
    return [(start, table.slice(start, stop - start)) for start, stop in pairwise(bounds)]


def read_in_parts(table: pa.Table, n_parts: int, options: dict[str, Any]) -> Judgments:
    how = EncodeOptions(
        scale=None if options["grades"] is None else Scale.parse(options["grades"]),
        unjudgeable=() if options["unjudgeable"] is None else (options["unjudgeable"],),
        checks_unjudgeable=options["unjudgeable"] is not None,
        **{name: options[name] for name in ("repeats", "exclude", "on_bad_rows")},
    )
    parts: list[Part] = []
    for number, (start, rows) in enumerate(split(table, n_parts)):
        source = FrameSource(rows)
        source.locate_row = lambda row, start=start: f"row {start + row + 1}"  # type: ignore[method-assign, misc]
        cells = {name: rows[name] for name in NAMES}
        origin = Origin(source, {name: name for name in NAMES}, number)
        parts.append(encode_part(cells, origin, how, BadRows(options["on_bad_rows"])))
    return merge_parts(parts, how)


def read_on_disk(table: pa.Table, n_parts: int, options: dict[str, Any], folder: Path, size: int = 10**6) -> Any:
    folder.mkdir()
    for number, (_, rows) in enumerate(split(table, n_parts)):
        pq.write_table(rows, folder / f"{number}.parquet", row_group_size=4)
    return read_partitions(folder, shard_size=size, **options)


def outcome(read: Any, table: pa.Table, n_parts: int) -> Any:
    """Return the judgments, or what identifies an error wherever the rows come from."""
    try:
        return read()
    except InputError as error:
        return error_fields(error.message, table, n_parts)


def error_fields(message: Message, table: pa.Table, n_parts: int) -> tuple[Any, ...]:
    place, name = message.location.place, Path(message.location.source).stem
    if place and name.isdecimal():
        place = f"row {split(table, n_parts)[int(name)][0] + int(place.split()[1])}"
    fixes = [(fix.parameter, fix.value) for fix in message.fixes]
    problem = "" if message.kind == "repeated-judgment" else message.problem
    if message.kind == "no-rows-left":  # the example names the file
        problem = problem.partition(", the first:")[0]
    return message.kind, place, message.location.column, problem, fixes


def report_fields(report: ReadReport, table: pa.Table, n_parts: int) -> dict[str, Any]:
    examples = {reason: error_fields(message, table, n_parts) for reason, message in report.examples.items()}
    # Whether files have different scales depends on how rows are split into files.
    kept = [note for note in report.notes if note.kind != "shifted-scales"]
    notes = [(note.kind, note.severity, note.problem, note.location.column) for note in kept]
    return {**asdict(report), "examples": examples, "notes": notes}


def assert_same(one: Judgments, other: Judgments) -> None:
    for name in ("offsets", "assessor", "grade", "item_query", "item_document", "assessor_scale", "assessor_family"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in ("queries", "documents", "assessors"):
        assert getattr(one, name).equals(getattr(other, name)), name
    assert (one.families is None) == (other.families is None)
    assert one.families is None or one.families.equals(other.families)
    assert (one.scales, one.unjudgeable) == (other.scales, other.unjudgeable)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, n_parts=st.integers(1, 4), options=OPTIONS)
def test_parts_and_shards_give_the_judgments_of_one_table(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], n_parts: int, options: dict[str, Any]
) -> None:
    table, folder = table_of(rows), tmp_path_factory.mktemp("parts")
    whole = outcome(lambda: read_judgments(table, **options), table, n_parts)
    in_parts = outcome(lambda: read_in_parts(table, n_parts, options), table, n_parts)
    on_disk = outcome(lambda: read_on_disk(table, n_parts, options, folder / "in"), table, n_parts)
    if not isinstance(whole, Judgments):
        assert in_parts == whole
        assert on_disk == whole
        return
    check(whole)
    expected = report_fields(whole.report, table, n_parts)
    for other in (in_parts, on_disk.load(0)):
        assert_same(whole, other)
        assert report_fields(other.report, table, n_parts) == expected
    assert on_disk.query_indexes(0).tolist() == list(range(whole.n_queries))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, n_parts=st.integers(1, 4), by=st.sampled_from(["query", "document"]), options=OPTIONS)
def test_the_number_of_shards_changes_neither_rows_nor_reports_nor_errors(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], n_parts: int, by: str, options: dict[str, Any]
) -> None:
    table, folder, options = table_of(rows), tmp_path_factory.mktemp("shards"), {**options, "by": by}
    one = outcome(lambda: read_on_disk(table, n_parts, options, folder / "one"), table, n_parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crowdrank.on_disk.partitions._warn_if_query_is_large", lambda *_: None)
        many = outcome(lambda: read_on_disk(table, n_parts, options, folder / "many", size=5), table, n_parts)
    if isinstance(one, tuple):
        assert many == one
        return
    reports = [report_fields(judgments.report, table, n_parts) for judgments in (one, many)]
    assert reports[0] == reports[1]
    frames = []
    for judgments in (one, many):
        shards = [judgments.load(place) for place in range(len(judgments.shards))]
        frame: pd.DataFrame = concat_shards(shards).to_arrow().to_pandas().astype(str)
        frames.append(frame.sort_values(list(frame.columns)).reset_index(drop=True))
    pd.testing.assert_frame_equal(frames[0], frames[1])
    assert one.assessors.equals(many.assessors)


def test_files_with_other_columns_and_types_are_merged_as_text() -> None:
    frames = [
        pd.DataFrame({"document": [1, 2], "assessor": ["x", "y"], "grade": [0, 1], "cost": [0.5, 1.0]}),
        pd.DataFrame({"query": ["q"], "document": ["2"], "assessor": ["x"], "grade": [1], "honeypot": [1]}),
    ]
    options = EncodeOptions()
    parts = []
    for number, frame in enumerate(frames):
        source = FrameSource(frame)
        table = source.read(source.names, BadRows())
        names = list(map(str, frame))
        origin = Origin(source, {name: name for name in names}, number)
        parts.append(encode_part({name: table[name] for name in names}, origin, options, BadRows()))
    judgments = merge_parts(parts, options)
    check(judgments)
    assert judgments.queries.to_pylist() == ["all", "q"]
    assert judgments.documents.to_pylist() == ["1", "2"]
    assert judgments.extras["honeypot"].tolist() == [-2, -2, 1]
    np.testing.assert_array_equal(judgments.extras["cost"], [0.5, 1.0, np.nan])
