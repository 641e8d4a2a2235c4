"""Limits hold before memory is used up, and ids are kept exactly as they are written."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crowdrank
from crowdrank import read_features, read_gold, read_judgments, read_run
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments.scale import Scale
from crowdrank.on_disk.partitions import read_partitions
from crowdrank.rankers.rank_files import join_features, pad_letor
from crowdrank.readers.files import CHUNK_BYTES, is_parquet_folder, parse_bytes, to_address
from crowdrank.readers.read_options import excluded_ids
from crowdrank.simulation.simulated_documents import read_source

HEADER = "query,document,assessor,grade\n"
FRAME = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "y"], "grade": [0, 1]})


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") and not isinstance(content, bytes) else data)
    return path


# Size.


def test_sizes_are_read_with_their_units() -> None:
    sizes: dict[str | int, int] = {
        "500MB": 5 * 10**8,
        "2GB": 2 * 10**9,
        "1GiB": 2**30,
        "7": 7,
        7: 7,
        " 1.5 kb ": 1500,
        str(2**60): 2**60,
    }
    assert {size: parse_bytes(size) for size in sizes} == sizes
    for size in ("", "0", "-1", "MB", "5XB", "nan", "1e9", 0):
        with pytest.raises(UsageError, match="max_bytes must be a positive size"):
            parse_bytes(size)


READERS: list[tuple[str, str, Callable[..., Any]]] = [
    ("a.csv", HEADER + "q,d,x,1\n" * 50, read_judgments),
    ("a.jsonl", '{"document": "d", "assessor": "x", "grade": 1}\n' * 50, read_judgments),
    ("a.json", json.dumps([{"document": "d", "assessor": "x", "grade": 1}] * 50), read_judgments),
    ("a.qrels", "q 0 d 1\n" * 50, read_gold),
    ("a.letor", "1 qid:1 1:2\n" * 50, read_features),
    ("a.run", "q Q0 d 1 0.5 tag\n" * 50, read_run),
    ("a.data", "1 qid:1 1:2\n" * 50, read_features),
]


@pytest.mark.parametrize(("name", "content", "read"), READERS, ids=[name for name, *_ in READERS])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_above_the_limit_is_refused(
    name: str, content: str, read: Callable[..., Any], suffix: str, tmp_path: Path
) -> None:
    path = put(tmp_path, name + suffix, content)
    read(path, max_bytes=len(content))
    with pytest.raises(InputError, match=rf"takes more than {len(content) - 1:,} bytes; .*max_bytes='32GB'"):
        read(path, max_bytes=len(content) - 1)


def test_a_gzip_bomb_is_not_unpacked_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    bomb = b"".join([*(packer.compress(zeros) for _ in range(256)), packer.flush()])
    path = put(tmp_path, "a.csv.gz", bomb)
    largest: list[int] = []
    original = gzip.GzipFile.read

    def counting(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        largest.append(-1 if size is None else size)
        return original(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", counting)
    with pytest.raises(InputError, match="decompressed, it takes more than 8,000,000 bytes"):
        read_judgments(path, max_bytes="8MB")
    assert 0 < len(largest) < 12
    assert 0 < min(largest) <= max(largest) <= CHUNK_BYTES


def test_malformed_rows_are_counted_without_being_kept(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", HEADER + "q,d,x,1\n" + "x\n" * 1000)
    assert read_judgments(path, on_bad_rows="skip").report.skipped == {"malformed line": 1000}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.qrels", "a.letor"])
def test_a_line_that_is_too_long_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crowdrank.readers.files.MAX_LINE_BYTES", 100)
    monkeypatch.setattr("crowdrank.readers.delimited.MAX_LINE_BYTES", 100)
    with pytest.raises(InputError, match="the line is longer than"):
        read_gold(put(tmp_path, name, "x" * 101))


@pytest.mark.parametrize("value", ["[" * 100_000, '{"a":' * 100_000, "[" * 300 + "]" * 300, "[" * 900 + "]" * 900])
def test_deep_nesting_is_refused(value: str, tmp_path: Path) -> None:
    row = f'{{"document": {value}, "assessor": "x", "grade": 1}}'
    task = f'[{{"data": {{"query": 1, "document": 1}}, "annotations": [{value}]}}]'
    texts = {"a.json": value, "b.json": f"[{row}]", "c.json": task, "a.jsonl": row + "\n"}
    for name, content in texts.items():
        with pytest.raises(InputError):
            read_judgments(put(tmp_path, name, content))


def test_a_parquet_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"document": ["d"] * 10_000, "assessor": ["x"] * 10_000, "grade": [1] * 10_000})
    pq.write_table(rows, tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    with pytest.raises(InputError, match="takes more than"):
        read_judgments(tmp_path / "a.parquet", max_bytes=size + 1)
    with pytest.raises(InputError, match="takes more than"):
        read_partitions(tmp_path, max_bytes=size + 1)
    assert len(read_judgments(tmp_path / "a.parquet", max_bytes="1MB", repeats="keep")) == 10_000


def test_patterns_and_messages_are_bounded(tmp_path: Path) -> None:
    many = put(tmp_path, "many.csv", f"assessor,grades\n{'[' * 20_000},0-2\n")
    with pytest.raises(InputError, match="more than 100 wildcards"):
        read_judgments(FRAME, scales=many)
    long = put(tmp_path, "long.csv", f"assessor,grades,maps_to\n*,0|{'9' * 5000},0\n")
    with pytest.raises(InputError) as refused:
        read_judgments(FRAME, scales=long)
    assert len(str(refused.value)) < 1000


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(InputError, match="pipe or a device"):
        read_judgments(tmp_path / "a.csv")


# LETOR.


def test_only_the_positions_that_are_named_have_a_column(tmp_path: Path) -> None:
    path = put(tmp_path, "a.letor", "1 qid:1 3:0.5 1000000:2\n0 qid:1 7:1\n")
    features = read_features(path)
    assert features.names == ("f3", "f7", "f1000000")
    assert features.matrix.tolist() == [[0.5, 0, 2], [0, 1, 0]]
    with pytest.raises(InputError, match="is not a feature"):
        read_features(put(tmp_path, "b.letor", f"1 qid:1 {2**31}:1\n"))
    with pytest.raises(InputError, match="is not a feature"):
        read_features(put(tmp_path, "c.letor", "1 qid:1 1_0:1\n"))


def test_a_feature_table_above_the_limit_is_refused(tmp_path: Path) -> None:
    lines = [f"1 qid:1 {number + 1}:1" for number in range(100)]
    path = put(tmp_path, "a.letor", "\n".join(lines))
    with pytest.raises(InputError, match="a table of 100 documents and 100 features takes more than"):
        read_features(path, max_bytes=79_999)
    assert read_features(path, max_bytes=80_000).matrix.shape == (100, 100)
    assert len(read_gold(path, max_bytes=2_000)) == 100, "expert grades need no table of features"


def test_features_of_several_letor_files_meet_by_position(tmp_path: Path) -> None:
    first = put(tmp_path, "a.letor", "1 qid:1 1:1 9:9\n0 qid:1 1:2\n")
    second = put(tmp_path, "b.letor", "1 qid:2 9:3 12:1\n0 qid:2 1:4\n")
    joined = join_features([first, second])
    assert joined.names == ("f1", "f9", "f12")
    assert joined.matrix.tolist() == [[1, 9, 0], [2, 0, 0], [0, 3, 1], [4, 0, 0]]
    assert pad_letor(read_features(second), ("f1", "f2")).matrix.tolist() == [[0, 0], [4, 0]]
    graded = read_source([str(first), str(second)])
    assert graded.names == tuple(f"f{number}" for number in range(1, 13))
    assert graded.features[2].tolist() == [0] * 8 + [3, 0, 0, 1]


def test_a_ranker_scores_letor_features_by_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{value > 0.5:d} qid:{row // 10} 2:{value} 5:{rng.random()}" for row, value in enumerate(rng.random(60))]
    train = read_features(put(tmp_path, "train.letor", "\n".join(lines)))
    ranker = crowdrank.GLS().fit(train, train.grade)
    test = put(tmp_path, "test.letor", "1 qid:1 3:7 9:1\n0 qid:1 5:0.5\n")  # no line names feature 2
    dense = np.array([[0, 0], [0, 0.5]])
    assert ranker.predict(read_features(test)).tolist() == ranker.predict(dense).tolist()
    with pytest.raises(InputError, match="the ranker needs 1 feature"):
        ranker.predict(read_features(put(tmp_path, "other.letor", "1 qid:1 2:1\n0 qid:1 2:0\n")))


# What used to end in a traceback.


def test_a_family_pattern_where_no_row_is_left(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", HEADER + "q,d,,1\n")
    with pytest.raises(InputError, match="no row can be used"):
        read_judgments(path, family_pattern="(.*)_p", on_bad_rows="skip")
    pq.write_table(pa.table({"document": ["d"], "assessor": [""], "grade": [1]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").unlink()
    with pytest.raises(InputError, match="no row can be used"):
        read_partitions(tmp_path, family_pattern="(.*)_p", on_bad_rows="skip")


SURROGATES: dict[str, str | bytes] = {
    "key.jsonl": '{"document": "a", "assessor": "x", "grade": 1, "\\ud800": 1}\n',
    "value.jsonl": '{"document": "\\udfff", "assessor": "x", "grade": 1}\n',
    "key.json": '[{"document": "a", "assessor": "x", "grade": 1, "\\ud800": 1}]',
    "value.json": '[{"document": "\\ud800", "assessor": "x", "grade": 1}]',
    "task.json": '[{"data": {"query": "\\ud800", "document": 1}, "annotations": [{"completed_by": 1, "result": '
    '[{"value": {"rating": 1}}]}]}]',
    "header.csv": b"document,assessor,grade,\xed\xa0\x80\na,x,1,1\n",
    "cell.csv": b"document,assessor,grade\n\xed\xa0\x80,x,1\n",
}


@pytest.mark.parametrize("name", SURROGATES)
def test_lone_surrogates_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read_judgments(put(tmp_path, name, SURROGATES[name]))
    str(refused.value).encode()
    whole = read_judgments(put(tmp_path, "a.jsonl", '{"document": "\\ud83d\\ude00", "assessor": "x", "grade": 1}\n'))
    assert whole.documents.to_pylist() == ["\U0001f600"]


def with_rows(content: bytes, old: int, new: int) -> bytes:
    """Return a Parquet file whose footer announces other numbers of rows (as zigzag numbers of one byte)."""
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    return content[: -8 - size] + footer.replace(bytes([0x16, 2 * old]), bytes([0x16, 2 * new])) + content[-8:]


@pytest.mark.parametrize("announced", [4, 5, 60])
def test_a_parquet_file_whose_row_groups_lie_is_refused(announced: int, tmp_path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"document": ["a", "b", "c"], "assessor": ["x"] * 3, "grade": [1, 0, 1]}), sink)
    path = put(tmp_path, "a.parquet", with_rows(sink.getvalue(), 3, announced))
    assert pq.ParquetFile(path).metadata.num_rows == announced
    for read in (read_judgments, lambda path: read_partitions(path.parent)):
        with pytest.raises(InputError):
            read(path)


@pytest.mark.parametrize("address", ["reference://x", "nothing://x", "github://x", "dir://x", "filecache://x"])
def test_addresses_that_cannot_be_reached_are_refused(address: str) -> None:
    with pytest.raises(InputError, match="it cannot be reached"):
        read_partitions(address)


def test_file_addresses_name_files_and_folders(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    for made in (str, Path):  # a Path leaves one slash
        assert len(read_judgments(made(f"file://{tmp_path}/a.csv"))) == 2
        assert len(read_gold(made(f"file://{tmp_path}/a.csv"))) == 2
        assert is_parquet_folder(made(f"file://{tmp_path}"))
        assert not is_parquet_folder(made(f"file://{tmp_path}/a.csv"))
        assert to_address(made(f"file://{tmp_path}")) == str(tmp_path)
    (tmp_path / "a.csv").unlink()
    assert len(read_partitions(f"file://{tmp_path}")) == 2


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))
    FRAME.to_csv(path, index=False)
    assert len(read_judgments(path)) == 2


@pytest.mark.parametrize("name", ["a\0b.csv", "\ud800.csv"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(InputError, match="there is no such file") as refused:
        read_judgments(name)
    str(refused.value).encode()


def test_cells_of_an_odd_type_are_refused() -> None:
    for role in ("document", "assessor", "query", "family"):
        columns = {"document": ["a"], "assessor": ["x"], "grade": [1]}
        with pytest.raises(InputError, match="its cells are of type"):
            read_judgments(pa.table({**columns, role: pa.nulls(1, pa.month_day_nano_interval())}))


# Ids.


def test_a_number_without_a_value_is_a_missing_id(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the document is missing"):
        read_judgments(put(tmp_path, "a.jsonl", '{"document": NaN, "assessor": "x", "grade": 1}'))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_json_that_would_be_changed_is_refused(name: str, tmp_path: Path) -> None:
    good = '{"document": 9007199254740992.0, "assessor": "x", "grade": 1}'
    joined = "[%s,\n%s]" if name == "a.json" else "%s\n%s\n"
    exact = read_judgments(put(tmp_path, name, joined % (good, good.replace("92.0", "93.0"))))
    assert exact.documents.to_pylist() == ["9007199254740992.0", "9007199254740993.0"]
    for bad in (good.replace("9007199254740992.0", "1e400"), good.replace("{", '{"document": 2, ')):
        with pytest.raises(InputError) as caught:
            read_judgments(put(tmp_path, name, joined % (good, bad)))
        assert caught.value.location.source.endswith(name)
        assert caught.value.location.place == ("line 2" if name == "a.jsonl" else "")


def test_large_ids_as_floating_point_numbers_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"document": [2.0**53, 2.0**53 + 2], "assessor": "x", "grade": 1})
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (frame, tmp_path / "a.parquet"):
        for read in (read_judgments, read_gold):
            with pytest.raises(InputError) as caught:
                read(source)
            assert (caught.value.kind, caught.value.location.column) == ("inexact-id", "document")
    exact = read_judgments(frame.assign(document=[2.0**53 - 1, 2.0]))
    assert exact.documents.to_pylist() == [2**53 - 1, 2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", [{"document": 1, "assessor": "x", "grade": 1}, {"document": "1", "assessor": "x", "grade": 1}]),
        ("a.json", [{"document": "1", "assessor": "x", "grade": 1}, {"document": 1.0, "assessor": "x", "grade": 1}]),
        (
            "a.json",
            [
                {"data": {"document": 1}, "annotations": [{"completed_by": who, "result": [{"value": {"rating": 1}}]}]}
                for who in (7, "7")
            ],
        ),
        (
            "a.json",
            {"judgmentRatings": [{"query": q, "ratings": [{"docId": 1, "rating": 1}]} for q in (1, "1")]},
        ),
    ],
)
def test_a_number_and_the_same_text_are_not_merged(name: str, content: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="as a number and as text"):
        read_judgments(put(tmp_path, name, json.dumps(content)))


def test_a_number_and_another_text_are_kept_apart(tmp_path: Path) -> None:
    rows = [{"document": 1, "assessor": 1.5, "grade": 1}, {"document": "a", "assessor": "x", "grade": 0}]
    assert read_judgments(put(tmp_path, "a.json", json.dumps(rows))).documents.to_pylist() == ["1", "a"]


def test_whole_numbers_that_a_float_cannot_hold_are_not_merged(tmp_path: Path) -> None:
    rows = [{"document": value, "assessor": "x", "grade": 1} for value in (2**53, 2**53 + 1, 0.5)]
    with pytest.raises(InputError, match=r"9007199254740993 cannot be stored exactly"):
        read_judgments(put(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows))))
    exact = read_judgments(put(tmp_path, "b.jsonl", "\n".join(map(json.dumps, rows[:2]))))
    assert exact.documents.to_pylist() == [2**53, 2**53 + 1]
    with pytest.raises(InputError):
        read_judgments(pd.DataFrame({"document": pd.Series([2**53 + 1, 0.5], dtype=object), "assessor": 1, "grade": 1}))


IDS = ["d9", " d9", "d9 ", "D9", "d\u00a09", "\u00e9", "e\u0301", "\ufeffd9", "d9\u200b"]


def test_ids_are_exact_in_every_reader(tmp_path: Path) -> None:
    rows = pd.DataFrame({"query": IDS, "document": IDS, "assessor": IDS, "grade": [0, 1] * 4 + [0]})
    rows.to_csv(tmp_path / "a.csv", index=False)
    rows.to_parquet(tmp_path / "a.parquet")
    rows.to_json(tmp_path / "a.jsonl", orient="records", lines=True, force_ascii=False)
    rows.to_json(tmp_path / "a.json", orient="records", force_ascii=False)
    for name in ("a.csv", "a.parquet", "a.jsonl", "a.json"):
        judgments = read_judgments(tmp_path / name)
        assert judgments.documents.to_pylist() == IDS
        assert judgments.assessors.to_pylist() == IDS
        gold = read_gold(tmp_path / name)
        assert gold.n_unjudged(judgments) == 0
        assert len(gold) == len(IDS)
    rows[["query", "document", "grade"]].assign(f1=1.0).to_csv(tmp_path / "f.csv", index=False)
    assert read_features(tmp_path / "f.csv").document.to_pylist() == IDS
    (tmp_path / "out.txt").write_bytes("\r\n".join(IDS[1:]).encode())
    assert list(excluded_ids(tmp_path / "out.txt")) == IDS[1:]
    kept = read_judgments(tmp_path / "a.csv", exclude=tmp_path / "out.txt")
    assert kept.assessors.to_pylist() == ["d9"]
    words = [name for name in IDS if " " not in name]
    (tmp_path / "a.qrels").write_text("".join(f"{name} 0 {name} 1\n" for name in words), encoding="utf-8")
    assert read_gold(tmp_path / "a.qrels").document.to_pylist() == words
    letor = "".join(f"1 qid:{name} 1:1 # docid = {name}\n" for name in words)
    (tmp_path / "a.letor").write_text(letor, encoding="utf-8")
    assert read_features(tmp_path / "a.letor").document.to_pylist() == words
    assert read_features(tmp_path / "a.letor").query.to_pylist() == words


def test_a_scales_file_names_assessors_exactly(tmp_path: Path) -> None:
    frame = pd.DataFrame({"document": ["a", "a"], "assessor": ["ann", " ann"], "grade": [0, 3]})
    path = put(tmp_path, "scales.csv", "assessor,grades\nann,0-1\n ann,0-3\n")
    scales = read_judgments(frame, scales=path)
    assert [str(scales.scales[code]) for code in scales.assessor_scale] == ["0,1", "0-3"]


def test_a_huge_grade_makes_no_huge_scale(tmp_path: Path) -> None:
    (tmp_path / "scales.csv").write_text("assessor,grades,maps_to\n*,0-2,9007199254740993|1|2\n")
    frame = pd.DataFrame({"document": ["a"], "assessor": ["ann"], "grade": [1]})
    with pytest.raises(InputError, match="are not a scale"):
        read_judgments(frame, scales=tmp_path / "scales.csv")
    with pytest.raises(UsageError, match="grades"):
        Scale.spanning([0, 10**17])
