"""A project for the demo of the service: texts written for it, simulated colleagues, and a fitted model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from crowdrank.errors import UsageError
from crowdrank.service.domain.answers import Answer, record_answers
from crowdrank.service.domain.credentials import MINUTE
from crowdrank.service.domain.pairs import PairRow, add_pairs
from crowdrank.service.domain.people import add_member, create_assessor
from crowdrank.service.domain.projects import Project, create_project
from crowdrank.service.model.fits import fit_project
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

DEMO_PROJECT_NAME = "demo"
COLLEAGUES = {"ada": (0.95, 0.0), "ben": (0.85, 0.3), "chris": (0.2, 0.0)}
"""Simulated assessors: probability of the expected grade, and mean of other errors, in grades."""
MILLISECONDS_PER_QUERY = 10 * MINUTE
"""Milliseconds in which the simulated assessors judge the documents of a query."""
ANSWERED_SHARE = 0.9
"""Probability that a simulated assessor answers a pair."""
GUIDELINES = """# How to judge

Read the query and the information need. Would the document help the person who asked?

- **Highly relevant**: it answers the question.
- **Relevant**: it answers a part of it, or gives the background.
- **Related**: the same topic, but it does not help with the question.
- **Irrelevant**: another topic.

Choose *Cannot judge* only if you cannot read the document.
"""
DEMO_SETTINGS: Mapping[str, Any] = {
    "guidelines": GUIDELINES,
    "policy": "ndcg@10",
    "settled": 0.9,
    "quotas": {"human": (1, 5)},
}


def create_demo(database: Database, random_state: int = 0) -> Project:
    """Create the demo project with answers of simulated colleagues, and fit a model to them.

    Args:
        database: a new database.
        random_state: random seed of the simulated answers.

    Raises:
        UsageError: the database has projects already.

    """
    texts = json.loads(files("crowdrank.service").joinpath("demo", "texts.json").read_text(encoding="utf-8"))
    now, rng = database.now(), np.random.default_rng(random_state)

    def create(connection: Connection) -> Project:
        if connection.execute(select(func.count()).select_from(schema.project)).scalar_one():
            raise UsageError("the demo needs a new database", parameter="demo", fix="name a new file, or none")
        project = create_project(connection, DEMO_PROJECT_NAME, texts["grades"], now, **DEMO_SETTINGS)
        add_pairs(connection, project, _pair_rows(texts), now)
        answers = {}
        for name, (accuracy, leniency) in COLLEAGUES.items():
            person = create_assessor(connection, name, now=now)
            add_member(connection, project.id, person.id, "judge", now)
            answers[person.id] = _simulated_answers(texts, name, accuracy, leniency, rng)
        _record_by_query(connection, project, answers, now)
        return project

    project = database.write(create)
    fit_project(database, project)
    return project


def _record_by_query(
    connection: Connection, project: Project, answers: Mapping[int, Sequence[Answer]], now: int
) -> None:
    """Record the answers of each colleague query by query, one every `MILLISECONDS_PER_QUERY` until now."""
    queries = list(dict.fromkeys(one.query for listed in answers.values() for one in listed))
    for place, query in enumerate(queries):
        received = now - (len(queries) - place) * MILLISECONDS_PER_QUERY
        for assessor_id, listed in answers.items():
            of_query = [one for one in listed if one.query == query]
            record_answers(connection, project, assessor_id, of_query, received)


def _pair_rows(texts: dict[str, Any]) -> list[PairRow]:
    return [
        PairRow(
            query["id"],
            document["id"],
            query_text=query["text"],
            need=query["need"],
            title=document["title"],
            body=document["body"],
        )
        for query in texts["queries"]
        for document in query["documents"]
    ]


def _simulated_answers(
    texts: dict[str, Any], name: str, accuracy: float, leniency: float, rng: np.random.Generator
) -> list[Answer]:
    """Return the answers of a colleague to some pairs: the expected grade, or another one."""
    highest, answers = len(texts["grades"]) - 1, []
    for query in texts["queries"]:
        for document in query["documents"]:
            if rng.random() > ANSWERED_SHARE:
                continue
            error = 0 if rng.random() < accuracy else round(rng.normal(leniency, 1.2))
            grade = int(np.clip(document["grade"] + error, 0, highest))
            seconds = float(rng.lognormal(2.3, 0.5))
            answers.append(
                Answer(
                    f"{name} {document['id']}",
                    grade=texts["grades"][grade],
                    query=query["id"],
                    document=document["id"],
                    active_ms=round(1000 * seconds),
                )
            )
    return answers
