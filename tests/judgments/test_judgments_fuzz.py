"""Whatever bytes or cells come in: judgments, or one sentence; never another error."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_judgments_platforms as platforms
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judgments_twins import check

from crowdrank import read_features, read_gold, read_judgments, read_run
from crowdrank.errors import CrowdrankError

CSV = (
    "query,document,assessor,grade,family,time,duration,cost,honeypot\n"
    'q1,d1,ann,2,x,2024-05-31T10:15:00,1.5,0.1,2\nq1,"d,2",bob,0,,,,,\n"q\n2",d1,ann,1,x,1717150500,2,,\n'
)
JSONL = (
    '{"query": "q1", "document": 1, "assessor": "ann", "grade": 2, "honeypot": 2}\n'
    '{"query": "q1", "document": 2, "assessor": "bob", "grade": 0, "cost": 0.5}\n'
)
RF10 = "topicID\tworkerID\tdocID\tgold\tlabel\n1\tw1\td1\t-1\t0\n1\tw2\td1\t2\t-2\n2\tw1\td2\t-2\t-2\n"
QRELS = "1 0 d1 2\n1 0 d2 0\n2 0 d1 1\n"
LETOR = "2 qid:10 1:0.5 2:3 # docid = GX-1\n0 qid:10 1:0.1 46:1e-3\n1 qid:11 2:7\n"
RUN = "1 Q0 d1 1 9.5 tag\n1 Q0 d2 2 8.5 tag\n"


def as_parquet(**options: Any) -> bytes:
    frame = pd.read_csv(io.StringIO(CSV))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), sink, **options)
    return sink.getvalue()


READERS: dict[str, tuple[str, bytes, list[Callable[[Path], Any]]]] = {
    "csv": ("a.csv", CSV.encode(), [read_judgments, read_gold, read_features, read_run]),
    "tsv": ("a.tsv", CSV.replace(",", "\t").encode(), [read_judgments]),
    "jsonl": ("a.jsonl", JSONL.encode(), [read_judgments, read_run]),
    "parquet": ("a.parquet", as_parquet(compression="none"), [read_judgments]),
    "csv.gz": ("a.csv.gz", gzip.compress(CSV.encode()), [read_judgments]),
    "parquet.gz": ("a.parquet.gz", gzip.compress(as_parquet()), [read_judgments]),
    "qrels": ("a.qrels", QRELS.encode(), [read_judgments, read_gold]),
    "run": ("a.run", RUN.encode(), [read_run]),
    "letor": ("a.letor", LETOR.encode(), [read_features, read_gold, read_judgments]),
    "trec-rf10": (
        "a.txt",
        RF10.encode(),
        [lambda path: read_judgments(path, format="trec-rf10"), lambda path: read_gold(path, format="trec-rf10")],
    ),
    "toloka": ("a.tsv", platforms.TOLOKA.encode(), [read_judgments]),
    "mturk": ("a.csv", platforms.MTURK.encode(), [read_judgments]),
    "mturk radio": ("a.csv", platforms.RADIO.encode(), [read_judgments]),
    "quepid": ("a.csv", platforms.QUEPID.encode(), [read_judgments, read_gold]),
    "opensearch": ("a.json", json.dumps(platforms.OPENSEARCH).encode(), [read_judgments, read_gold]),
    "label-studio": ("a.json", json.dumps(platforms.LABEL_STUDIO).encode(), [read_judgments, read_gold]),
    "looked into": ("a.txt", LETOR.encode(), [read_features, read_gold, read_judgments]),
    "scales": (
        "scales.csv",
        b"assessor,grades,maps_to\nann,0-2,0|1|2\n*,0-2,\n",
        [lambda path: read_judgments(io_frame(), scales=path).on_one_scale()],
    ),
    "exclude": ("names.txt", b"ann\n", [lambda path: read_judgments(io_frame(), exclude=path)]),
}
TOKENS = [
    b",",
    b"\t",
    b'"',
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"#",
    b":",
    b"-2",
    b"1e999",
    b"nan",
    b"\xff\xfe",
    b"{",
    b"qid:",
    b"9" * 30,
]
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def io_frame() -> pd.DataFrame:
    return pd.DataFrame({"document": ["a", "b"], "assessor": ["ann", "bob"], "grade": [0, 1]})


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


def mutated(data: st.DataObject, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed)))
        match data.draw(st.sampled_from(["byte", "token", "cut", "drop", "double"])):
            case "byte":
                changed[place : place + 1] = bytes([data.draw(st.integers(0, 255))])
            case "token":
                changed[place:place] = data.draw(st.sampled_from(TOKENS))
            case "cut":
                del changed[place:]
            case "drop":
                del changed[place : place + data.draw(st.integers(1, 9))]
            case _:
                changed[place:place] = changed[place : place + data.draw(st.integers(1, 40))]
    return bytes(changed)


@pytest.mark.parametrize("format", READERS)
@FUZZ
@given(data=st.data(), skip=st.booleans())
def test_files_with_a_few_changes(format: str, data: st.DataObject, skip: bool, tmp_path: Path) -> None:
    name, content, reads = READERS[format]
    path = tmp_path / name
    path.write_bytes(mutated(data, content))
    for read in reads:
        try_to_read(read, path)
    if skip and read_judgments in reads:
        try_to_read(read_judgments, path, on_bad_rows="skip")


@pytest.mark.parametrize("format", READERS)
@FUZZ
@given(content=st.binary(max_size=200))
def test_files_of_random_bytes(format: str, content: bytes, tmp_path: Path) -> None:
    name, _, reads = READERS[format]
    path = tmp_path / name
    packed = name.endswith(".gz") and len(content) % 2 == 0
    path.write_bytes(gzip.compress(content) if packed else content)
    for read in reads:
        try_to_read(read, path)


@pytest.mark.parametrize("format", ["parquet", "csv.gz", "parquet.gz"])
def test_files_cut_off_anywhere(format: str, tmp_path: Path) -> None:
    name, content, reads = READERS[format]
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
