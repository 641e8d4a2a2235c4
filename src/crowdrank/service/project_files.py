"""Pairs of a project from files of pairs and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from crowdrank.collection.pool import Pool
from crowdrank.errors import Message
from crowdrank.judgments import ids
from crowdrank.judgments.columns import COLUMN_ALIASES, PREFERENCE_COLUMN_ALIASES, Roles
from crowdrank.readers.inputs import RoleTable, open_input, read_roles
from crowdrank.readers.texts import Texts, read_texts
from crowdrank.service.compare.draws import draw_pairs, read_draw_inputs, write_draw
from crowdrank.service.compare.rankings import set_ranking
from crowdrank.service.domain.pairs import AddedPairs, DocumentRow, PairRow, add_pairs, count_without_text
from crowdrank.service.domain.projects import create_project
from crowdrank.service.store.database import Database

COMPARISON_ROLES = Roles(
    ("left", "right"), ("query", "honeypot"), {**PREFERENCE_COLUMN_ALIASES, "honeypot": COLUMN_ALIASES["honeypot"]}
)
"""Column roles of files of comparisons."""


def pair_rows(pool: Pool, texts: Texts) -> list[PairRow]:
    """Return pairs with their texts; honeypots are gold pairs."""
    honeypots = [None] * len(pool) if pool.honeypot is None else pool.honeypot.to_pylist()
    ids = zip(map(str, pool.query.to_pylist()), map(str, pool.document.to_pylist()), honeypots, strict=True)
    return [_pair_row(query, document, honeypot, texts) for query, document, honeypot in ids]


def read_pair_files(pairs: Path | Pool, texts: Sequence[Path], task: str = "grades") -> list[PairRow]:
    """Read pairs from a file, with texts of queries and documents from others.

    Args:
        pairs: pairs, or a file of them; a column `honeypot` has the correct grade of gold pairs. For preferences, a
            file with the columns `left` and `right` has the comparisons, and one with `document` the documents of
            each query, whose comparisons the service chooses.
        texts: files of texts of queries and documents.
        task: task of the project, `grades` or `preferences`.

    """
    if task == "preferences" and isinstance(pairs, Path):
        inputs = open_input(pairs)
        if any(_has_sides(source.names) for source in inputs.sources):
            return _comparison_rows(read_roles(inputs, COMPARISON_ROLES), texts)
    pool = pairs if isinstance(pairs, Pool) else Pool.read(pairs)
    found = read_texts(list(texts), pool.query, pool.document, max_length=None) if texts else Texts()
    return pair_rows(pool, found)


def _has_sides(column_names: Sequence[str]) -> bool:
    names = {name.casefold() for name in column_names}
    return all(names & {role, *PREFERENCE_COLUMN_ALIASES[role]} for role in COMPARISON_ROLES.required)


def _comparison_rows(tables: Sequence[RoleTable], texts: Sequence[Path]) -> list[PairRow]:
    """Return a row per comparison of two documents in the tables, with the texts of both documents from the files."""
    query, left, right = (
        ids.concat_arrays([table.row_ids(role) for table in tables]) for role in ("query", "left", "right")
    )
    both = ids.concat_arrays([left, right])
    found = read_texts(list(texts), query, both, max_length=None) if texts else Texts()
    gold = [cell for table in tables for cell in table.cells.get("honeypot", pa.nulls(len(table))).to_pylist()]
    names = zip(*(map(str, column.to_pylist()) for column in (query, left, right)), strict=True)
    return [_comparison_row(one, answer, found) for one, answer in zip(names, gold, strict=True)]


def _comparison_row(names: Sequence[str], gold: object, texts: Texts) -> PairRow:
    query, left, right = names
    row, content = _pair_row(query, left, _gold_answer(gold), texts), texts.of_document(query, right)
    other = DocumentRow(right, title=content.get("title"), body=content.get("text"), url=content.get("url"))
    return replace(row, other=other)


def _gold_answer(cell: object) -> str | None:
    """Return the correct answer to a comparison, which is a word, or -1, 0 or 1; None if it is no honeypot."""
    text = "" if cell is None else str(cell).strip().lower()
    return {"-1": "left", "0": "tie", "1": "right"}.get(text, text) or None


@dataclass(frozen=True)
class CreatedProject:
    """What was added to a new project.

    Attributes:
        pairs: numbers of pairs, queries and documents.
        n_without_text: number of pairs of which a document has neither title, text nor link.
        n_drawn: number of pairs that were drawn to compare rankings.
        notes: notes about the draw.

    """

    pairs: AddedPairs
    n_without_text: int = 0
    n_drawn: int = 0
    notes: tuple[Message, ...] = ()


def create_project_with_pairs(
    database: Database,
    name: str,
    grades: str | None,
    rows: Sequence[PairRow],
    settings: Mapping[str, Any],
    rankings: Mapping[str, pa.Table] = MappingProxyType({}),
) -> CreatedProject:
    """Create a project with its pairs in one transaction; with rankings, draw the first pairs."""
    now = database.now()

    def create(connection: Connection) -> CreatedProject:
        project = create_project(connection, name, grades, now, **settings)
        added = add_pairs(connection, project, rows, now)
        n_without_text = count_without_text(connection, project)
        if not rankings:
            return CreatedProject(added, n_without_text)
        for ranking_name, table in rankings.items():
            set_ranking(connection, project, ranking_name, table, now)
        inputs = read_draw_inputs(connection, project)
        draw = draw_pairs(inputs)
        return CreatedProject(added, n_without_text, write_draw(connection, inputs, draw, now).n_pairs, draw.notes)

    return database.write(create)


def _pair_row(query: str, document: str, honeypot: str | None, texts: Texts) -> PairRow:
    content = texts.of_document(query, document)
    return PairRow(
        query,
        document,
        query_text=texts.queries.get(query),
        need=texts.needs.get(query),
        title=content.get("title"),
        body=content.get("text"),
        url=content.get("url"),
        kind="real" if honeypot is None else "gold",
        gold_grade=honeypot,
    )
