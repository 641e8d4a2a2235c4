"""Texts of queries and documents, which reports show beside the ids and LLM judges read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crowdrank.errors import InputError
from crowdrank.judgments import ids
from crowdrank.judgments.columns import Roles, quote_names
from crowdrank.readers.inputs import TableLike, open_input
from crowdrank.readers.sources import BadRows, Source

TEXT_COLUMN_ALIASES = {
    "query_text": ("query_text", "query_string", "question", "query"),
    "need": ("need", "information_need", "query_description", "narrative"),
    "title": ("title", "document_title", "doc_title"),
    "text": ("text", "body", "passage", "contents", "content", "snippet", "document_text", "document"),
    "url": ("url", "link"),
}
"""Names of the columns of texts by role, in lower case, in order of preference."""
DOCUMENT_TEXT_ROLES = ("title", "text", "url")
"""Roles of the texts of a document."""
MAX_TEXT_LENGTH = 1000
"""Default maximum number of characters of a text, enough for reports; a longer one is truncated."""


@dataclass(frozen=True)
class Texts:
    """Texts of queries and documents by id.

    Attributes:
        queries: text of each query.
        needs: description of the information need behind each query.
        documents: title, text and url of each (query, document) pair; the query is "" if they are the same for all.

    """

    queries: dict[str, str] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)
    documents: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def of_document(self, query: str, document: str) -> dict[str, str]:
        """Return title, text and url of a document for a query, as far as they are known."""
        return self.documents.get((query, document)) or self.documents.get(("", document), {})

    def table(self, pairs: Iterable[tuple[str, str]]) -> pa.Table:
        """Return the texts of (query, document) pairs; pairs without a text are left out."""
        rows = []
        for query, document in pairs:
            texts = self.of_document(query, document)
            if texts or query in self.queries:
                row = {"query": query, "document": document, "query_text": self.queries.get(query, ""), **texts}
                rows.append(row)
        names = ("query", "document", "query_text", *DOCUMENT_TEXT_ROLES)
        return pa.table({name: pa.array([row.get(name, "") for row in rows], pa.string()) for name in names})


def read_texts(
    source: TableLike, queries: pa.Array, documents: pa.Array, *, max_length: int | None = MAX_TEXT_LENGTH
) -> Texts:
    """Read the texts of queries and documents from files (JSON Lines, CSV, Parquet, ...) or a DataFrame.

    Files have a column `document`, `query` or both, and any of `text`, `title`, `url`, `query_text` and `need`.
    Without a query, a text belongs to the document of any query; without a column `document`, `text` is that of the
    query. Unknown ids are ignored.

    Args:
        source: files or a DataFrame, as in `read_judgments`.
        queries: ids of the queries whose texts are read.
        documents: ids of the documents whose texts are read.
        max_length: maximum number of characters of a text; None reads all of it.

    Raises:
        InputError: a file cannot be read, has no column of texts, or there is no known id in any of them.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"docid": ["a", "x"], "title": ["Apples", "Unknown"]})
    >>> read_texts(frame, pa.array(["q"]), pa.array(["a", "b"])).documents
    {('', 'a'): {'title': 'Apples'}}
    """
    texts, opened = Texts(), open_input(source)
    for one in opened.sources:
        _read_source(one, texts, queries, documents, max_length)
    if not texts.queries and not texts.needs and not texts.documents:
        raise InputError(
            "no id in it is the id of a judged query or document",
            source=opened.name,
            kind="no-known-id",
            fix="use the ids of the judgments",
        )
    return texts


def _read_source(source: Source, texts: Texts, queries: pa.Array, documents: pa.Array, max_length: int | None) -> None:
    """Add the texts of one file to `texts`."""
    id_columns = Roles((), ("query", "document")).find_columns(source.names, source.name)
    columns = {role: name for role in TEXT_COLUMN_ALIASES if (name := _find_column(role, source.names, id_columns))}
    if "document" not in id_columns and "text" in columns:
        columns.setdefault("query_text", columns.pop("text"))
    if not id_columns or not columns:
        missing = "the ids of documents or queries" if not id_columns else "texts"
        raise InputError(
            f"there is no column of {missing}; the columns are: {quote_names(source.names)}",
            source=source.name,
            kind="no-column",
            fix="name the columns document, query, text, title, url, query_text and need",
        )
    table = source.read(list(dict.fromkeys((*id_columns.values(), *columns.values()))), BadRows())
    query = _known_ids(table, id_columns.get("query"), queries)
    document = _known_ids(table, id_columns.get("document"), documents)
    no_query = "query" not in id_columns or np.asarray(ids.encode(table[id_columns["query"]])[0] < 0)
    kept = (query != "") | ((document != "") & no_query)
    rows = table.filter(pa.array(kept))
    values = {role: [_truncate(cell, max_length) for cell in rows[name].to_pylist()] for role, name in columns.items()}
    for query_id, document_id, *cells in zip(query[kept], document[kept], *values.values(), strict=True):
        row = {role: cell for role, cell in zip(values, cells, strict=True) if cell}
        for role, by_query in (("query_text", texts.queries), ("need", texts.needs)):
            text = row.pop(role, "")
            if query_id and text:
                by_query.setdefault(str(query_id), text)
        if document_id and row:
            texts.documents.setdefault((str(query_id), str(document_id)), row)


def _find_column(role: str, names: Sequence[str], id_columns: dict[str, str]) -> str | None:
    """Return the column of a kind of text; the columns of ids are no texts."""
    by_name = {name.casefold(): name for name in names if name not in id_columns.values()}
    return next((by_name[alias] for alias in TEXT_COLUMN_ALIASES[role] if alias in by_name), None)


def _known_ids(
    table: pa.Table, column: str | None, known_ids: pa.Array
) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return the id of each row as text, "" if it is missing or not known."""
    if column is None:
        return np.full(len(table), "", dtype=object)
    codes, names = ids.encode(table[column])
    texts = np.array([*map(str, names.to_pylist()), ""], dtype=object)
    texts[:-1][ids.match(known_ids, names) < 0] = ""
    return texts[codes]


def _truncate(cell: object, max_length: int | None) -> str:
    return "" if cell is None else str(cell)[:max_length]
