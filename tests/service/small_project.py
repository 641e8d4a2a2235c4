"""A small judged project, written row by row, so that tests of readers do not depend on the service's functions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, insert

from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

GRADES = ["Bad", "Fair", "Good"]
START = 1_700_000_000_000
"""Time of the first answer, in milliseconds since 1970."""

ASSESSORS = [("ann", "human", None, 1.0), ("bob", "expert", None, 5.0), ("gpt_p1", "llm", "gpt", 0.01)]
"""Name, kind, family and price."""
PAIRS = [("q1", "d1", "real", None), ("q1", "d2", "real", None), ("q2", "d1", "gold", 2), ("q2", "d3", "training", 0)]
"""Query, document, kind and gold grade; the second pair was reopened."""
ANSWERS = [
    ("ann", 0, "grade", 2, 2_500),
    ("ann", 1, "grade", 0, None),
    ("ann", 2, "grade", 2, 1_000),
    ("ann", 3, "grade", 0, None),
    ("bob", 0, "cannot-judge", None, None),
    ("gpt_p1", 0, "grade", 1, None),
    ("gpt_p1", 1, "later", None, None),
]
"""Assessor, index of the pair, kind of answer, grade and active milliseconds."""


def add_small_project(database: Database, name: str = "jam") -> None:
    """Add a project with answers of a human, an expert and an LLM judge."""
    database.write(lambda connection: _write(connection, name))


def _add(connection: Connection, table: Table, **values: Any) -> int:
    key = connection.execute(insert(table).values(**values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _write(connection: Connection, name: str) -> None:
    project = _add(connection, schema.project, name=name, grades=GRADES, settings={"quotas": {}}, created=1)
    people = {
        one: _add(connection, schema.assessor, name=f"{one}", kind=kind, family=family, price=price, created=1)
        for one, kind, family, price in (ASSESSORS if name == "jam" else [])
    }
    queries = {
        key: _add(connection, schema.query, project_id=project, key=key, text=f"text of {key}") for key in ("q1", "q2")
    }
    documents = {
        key: _add(connection, schema.document, project_id=project, key=key, title=key, fields={}, digest="", changed=1)
        for key in ("d1", "d2", "d3")
    }
    pairs = [
        _add(
            connection,
            schema.pair,
            project_id=project,
            query_id=queries[query],
            document_id=documents[document],
            kind=kind,
            gold_grade=gold,
            generation=2 if document == "d2" else 1,
        )
        for query, document, kind, gold in PAIRS
    ]
    for number, (person, pair, kind, grade, active) in enumerate(ANSWERS if people else []):
        about = {"pair_id": pairs[pair], "assessor_id": people[person], "kind": kind, "grade": grade, "generation": 1}
        event = _add(
            connection,
            schema.event,
            **about,
            project_id=project,
            client_id=str(number),
            active_ms=active,
            probabilities=[0.25, 0.5, 0.25] if kind == "grade" and person.startswith("gpt") else None,
            guidelines_version=1,
            received=START + 1000 * number,
        )
        connection.execute(insert(schema.answer).values(**about, event_id=event, is_counted=kind != "later"))
