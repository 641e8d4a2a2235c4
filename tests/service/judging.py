"""A project with assessors, for tests of the judging service."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from sqlalchemy import Connection, insert, select, update

from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.answers import Receipt, WithdrawnAnswer, record_answers, undo
from crowdrank.service.domain.assignment import NextPairs, next_pairs
from crowdrank.service.domain.leases import Lease
from crowdrank.service.domain.pairs import PairContent, PairFilter, PairRow, add_pairs, close_pairs, reopen_pairs
from crowdrank.service.domain.projects import Project, create_project, get_project, update_project
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from tools.service_invariants import find_violations


class Judging:
    """A project and shortcuts for the requests of its assessors.

    Args:
        database: an empty database.
        n_pairs: number of real pairs; the pairs `d0`, `d1`, ... have two documents per query.
        kinds: kinds of the assessors; in a new database their ids are 1, 2, ...
        name: name of the project.
        settings: settings of the project.

    """

    def __init__(
        self,
        database: Database,
        n_pairs: int = 4,
        kinds: Sequence[str] = ("human",) * 4,
        *,
        name: str = "shoes",
        **settings: Any,
    ) -> None:
        self.database = database
        self.numbers = count()
        self.project_name = name
        self.assessors: dict[int, str] = {}  # kinds by id
        settings = {"quotas": {"human": (2, 2)}, **settings}
        qualification = "pending" if settings.get("qualification_share") is not None else "not-required"

        def create(connection: Connection) -> None:
            project = self.create(connection, name, settings)
            rows = [PairRow(f"q{number // 2}", f"d{number}", body="text") for number in range(n_pairs)]
            add_pairs(connection, project, rows, database.now())
            for number, kind in enumerate(kinds, start=1):
                person = {"name": f"{name}-a{number}", "kind": kind, "created": 0}
                returning = insert(schema.assessor).values(person).returning(schema.assessor.c.id)
                assessor_id = connection.execute(returning).scalar_one()
                self.assessors[assessor_id] = kind
                member = {"project_id": project.id, "assessor_id": assessor_id, "role": "judge", "created": 0}
                connection.execute(insert(schema.membership).values(**member, qualification=qualification))

        database.write(create)

    def create(self, connection: Connection, name: str, settings: dict[str, Any]) -> Project:
        return create_project(connection, name, "0-3", self.database.now(), **settings)

    @property
    def project(self) -> Project:
        with self.database.read() as connection:
            return get_project(connection, self.project_name)

    def _write(self, function: Any, *arguments: Any, **options: Any) -> Any:
        def work(connection: Connection) -> Any:
            return function(connection, get_project(connection, self.project_name), *arguments, **options)

        return self.database.write(work)

    def add(self, *rows: PairRow) -> Any:
        return self._write(add_pairs, rows, self.database.now())

    def update(self, **settings: Any) -> Project:
        project: Project = self._write(update_project, **settings)
        return project

    def next(self, assessor: int, number: int = 1) -> NextPairs:
        found: NextPairs = self._write(next_pairs, assessor, number, self.database.now())
        return found

    def lease(self, assessor: int) -> Lease:
        """Return the first lease of an assessor."""
        return self.next(assessor).leases[0]

    def send(self, assessor: int, *answers: Answer) -> list[Receipt]:
        receipts: list[Receipt] = self._write(record_answers, assessor, answers, self.database.now())
        return receipts

    def answer(self, assessor: int, lease: Lease | None = None, **fields: Any) -> Receipt:
        """Answer a pair, with grade 1 or "left" unless another is given."""
        if fields.setdefault("kind", "grade") == "grade":
            fields.setdefault("grade", "left" if self.project.asks_preferences else 1)
        fields.setdefault("client_id", f"c{next(self.numbers)}")
        return self.send(assessor, Answer(lease=None if lease is None else lease.token, **fields))[0]

    def judge(self, assessor: int, **fields: Any) -> Receipt:
        """Take a lease and answer it."""
        return self.answer(assessor, self.lease(assessor), **fields)

    def judge_content(self, assessor: int) -> PairContent:
        """Take a lease, answer it, and return its content."""
        lease = self.lease(assessor)
        self.answer(assessor, lease)
        return lease.content

    def undo(self, assessor: int, pair_id: int | None = None, client_id: str | None = None) -> WithdrawnAnswer:
        name = client_id or f"c{next(self.numbers)}"
        undone: WithdrawnAnswer = self._write(undo, assessor, name, self.database.now(), pair_id)
        return undone

    def reopen(self, **conditions: Any) -> int:
        keep_answers = conditions.pop("keep_answers", False)
        number: int = self._write(
            reopen_pairs, PairFilter(**conditions), self.database.now(), keep_answers=keep_answers
        )
        return number

    def close(self, **conditions: Any) -> int:
        number: int = self._write(close_pairs, PairFilter(**conditions))
        return number

    def set_member(self, assessor: int, **values: Any) -> None:
        of_member = schema.membership.c.assessor_id == assessor
        self.database.write(
            lambda connection: connection.execute(update(schema.membership).where(of_member).values(**values))
        )

    def set_priority(self, pair_id: int, priority: float) -> None:
        of_pair = schema.quota.c.pair_id == pair_id
        self.database.write(
            lambda connection: connection.execute(update(schema.quota).where(of_pair).values(priority=priority))
        )

    def rows(self, table: Any, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a table that have the given values."""
        statement = select(table).where(*(table.c[name] == value for name, value in values.items()))
        with self.database.read() as connection:
            return [dict(row._mapping) for row in connection.execute(statement)]

    def taken(self, pair_id: int, kind: str = "human") -> int:
        number: int = self.rows(schema.quota, pair_id=pair_id, kind=kind)[0]["taken"]
        return number

    def check_invariants(self) -> None:
        project_id = self.project.id
        with self.database.read() as connection:
            assert find_violations(connection, project_id) == []
