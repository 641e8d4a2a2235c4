"""Texts of queries and documents: formats, columns, unknown ids and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from crowdrank.errors import InputError
from crowdrank.readers.texts import MAX_TEXT_LENGTH, read_texts

QUERIES, DOCUMENTS = pa.array([1, 2]), pa.array(["a", "b"])
FRAME = pd.DataFrame(
    {
        "query": [1, 2, 3],
        "document": ["a", "a", "a"],
        "query_text": ["cats", "dogs", "birds"],
        "title": ["A & <b>", None, "C"],
        "text": ["first\nline", "second", "third"],
        "url": ["", "https://example.org/a", ""],
    }
)
WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "texts.csv": lambda frame, path: frame.to_csv(path, index=False),
    "texts.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "texts.parquet": lambda frame, path: frame.to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_formats_give_the_same_texts(name: str, tmp_path: Path) -> None:
    WRITERS[name](FRAME, tmp_path / name)
    texts = read_texts(tmp_path / name, QUERIES, DOCUMENTS)
    assert texts.queries == {"1": "cats", "2": "dogs"}
    assert texts.documents == {
        ("1", "a"): {"title": "A & <b>", "text": "first\nline"},
        ("2", "a"): {"text": "second", "url": "https://example.org/a"},
    }
    table = texts.table([("1", "a"), ("2", "b"), ("3", "c")]).to_pylist()
    empty = {"title": "", "text": "", "url": ""}
    assert table == [
        {"query": "1", "document": "a", "query_text": "cats", **empty, **texts.documents["1", "a"]},
        {"query": "2", "document": "b", "query_text": "dogs", **empty},
    ]


def test_texts_without_a_query_belong_to_all_queries() -> None:
    frame = pd.DataFrame({"docid": ["a", "x"], "body": ["about a", "unknown"]})
    texts = read_texts(frame, QUERIES, DOCUMENTS)
    assert texts.table([("1", "a"), ("2", "a"), ("1", "b")])["text"].to_pylist() == ["about a", "about a"]


def test_a_file_of_documents_and_a_file_of_queries(tmp_path: Path) -> None:
    (tmp_path / "documents.csv").write_text("document,text\na,about a\n")
    (tmp_path / "queries.csv").write_text("query,text\n2,dogs\n9,unknown\n")
    texts = read_texts([tmp_path / "documents.csv", tmp_path / "queries.csv"], QUERIES, DOCUMENTS)
    assert texts.queries == {"2": "dogs"}
    assert texts.documents == {("", "a"): {"text": "about a"}}


def test_queries_and_documents_can_be_in_one_file(tmp_path: Path) -> None:
    lines = [
        '{"query": "1", "query_text": "cats", "need": "how to feed them"}',
        '{"document": "a", "text": "about a"}',
        '{"query": "9", "document": "b", "text": "of an unknown query"}',
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    texts = read_texts(tmp_path / "texts.jsonl", QUERIES, DOCUMENTS)
    assert (texts.queries, texts.needs) == ({"1": "cats"}, {"1": "how to feed them"})
    assert texts.documents == {("", "a"): {"text": "about a"}}


def test_columns_named_like_ids_can_be_texts() -> None:
    frame = pd.DataFrame({"qid": [1], "query": ["cats"], "docid": ["a"], "document": ["about cats"]})
    texts = read_texts(frame, QUERIES, DOCUMENTS)
    assert texts.queries == {"1": "cats"}
    assert texts.documents == {("1", "a"): {"text": "about cats"}}


def test_long_texts_are_truncated() -> None:
    texts = read_texts(pd.DataFrame({"document": ["a"], "text": ["x" * 5000]}), QUERIES, DOCUMENTS)
    assert len(texts.documents["", "a"]["text"]) == MAX_TEXT_LENGTH
    whole = read_texts(pd.DataFrame({"document": ["a"], "text": ["x" * 5000]}), QUERIES, DOCUMENTS, max_length=None)
    assert len(whole.documents["", "a"]["text"]) == 5000


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (pd.DataFrame({"document": ["x"], "text": ["unknown"]}), "no-known-id"),
        (pd.DataFrame({"document": ["a"], "grade": [1]}), "no-column"),
        (pd.DataFrame({"text": ["a text without an id"]}), "no-column"),
    ],
)
def test_files_without_usable_texts_are_refused(frame: pd.DataFrame, kind: str) -> None:
    with pytest.raises(InputError) as caught:
        read_texts(frame, QUERIES, DOCUMENTS)
    assert caught.value.kind == kind
    assert caught.value.fix is not None
