"""Pairs of a project from files of pairs and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from crowdrank.collection.pool import Pool
from crowdrank.errors import Message
from crowdrank.readers.texts import Texts, read_texts
from crowdrank.service.compare.draws import draw_pairs, read_draw_inputs, write_draw
from crowdrank.service.compare.rankings import set_ranking
from crowdrank.service.domain.pairs import AddedPairs, PairRow, add_pairs, count_without_text
from crowdrank.service.domain.projects import create_project
from crowdrank.service.store.database import Database


def pair_rows(pool: Pool, texts: Texts) -> list[PairRow]:
    """Return pairs with their texts; honeypots are gold pairs."""
    honeypots = [None] * len(pool) if pool.honeypot is None else pool.honeypot.to_pylist()
    ids = zip(map(str, pool.query.to_pylist()), map(str, pool.document.to_pylist()), honeypots, strict=True)
    return [_pair_row(query, document, honeypot, texts) for query, document, honeypot in ids]


def read_pair_files(pairs: Path | Pool, texts: Sequence[Path]) -> list[PairRow]:
    """Read pairs from a file, with texts of queries and documents from others.

    Args:
        pairs: pairs, or a file of them; a column `honeypot` has the correct grade of gold pairs.
        texts: files of texts of queries and documents.

    """
    pool = pairs if isinstance(pairs, Pool) else Pool.read(pairs)
    found = read_texts(list(texts), pool.query, pool.document, max_length=None) if texts else Texts()
    return pair_rows(pool, found)


@dataclass(frozen=True)
class CreatedProject:
    """What was added to a new project.

    Attributes:
        pairs: numbers of pairs, queries and documents.
        n_without_text: number of pairs whose documents have neither title, text nor link.
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
    grades: str,
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
