"""A project that asks for preferences, for tests of the judging service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from crowdrank.service.domain.leases import Lease
from crowdrank.service.domain.pairs import ComparisonContent, DocumentRow, PairRow
from crowdrank.service.domain.projects import Project, create_project
from crowdrank.service.store.database import Database

from .judging import Judging

SWAPPED = {"left": "right", "tie": "tie", "right": "left"}
"""Each answer with the sides exchanged."""


def comparison(query: str, left: str, right: str, **fields: Any) -> PairRow:
    """Return a comparison to add."""
    return PairRow(query, left, body=f"text of {left}", other=DocumentRow(right, body=f"text of {right}"), **fields)


class Comparing(Judging):
    """A project that asks for preferences, with the comparisons of three documents in each query."""

    def __init__(
        self, database: Database, n_queries: int = 2, kinds: Sequence[str] = ("human",) * 4, **settings: Any
    ) -> None:
        super().__init__(database, 0, kinds, task="preferences", **settings)
        self.add(*(PairRow(f"q{query}", name, body=name) for query in range(n_queries) for name in ("a", "b", "c")))

    def create(self, connection: Connection, name: str, settings: dict[str, Any]) -> Project:
        return create_project(connection, name, None, self.database.now(), **settings)


def shown_left(lease: Lease) -> tuple[str, str]:
    """Return the documents of a lease, as they are shown: left and right."""
    assert isinstance(lease.content, ComparisonContent)
    return lease.content.document, lease.content.other.document
