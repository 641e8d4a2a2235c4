"""Rankings of a project, which the policy `compare` compares."""

from __future__ import annotations

import hashlib
import io
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, delete, func, insert, select, update

from crowdrank.errors import CrowdrankError, shown
from crowdrank.evaluation.alignment import align
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.read_options import Format
from crowdrank.judgments.runs import read_run
from crowdrank.judgments.sources import FrameSource
from crowdrank.service import schema
from crowdrank.service.errors import Conflict, Invalid, NotFound
from crowdrank.service.projects import Project, lock_project, require_no_rounds

MAX_RANKINGS = 20
"""Maximum number of rankings of a project."""
MAX_NAME = 100
"""Maximum number of characters of the name of a ranking."""
MAX_BYTES = 1 << 28
"""Maximum size of a ranking in bytes when decompressed."""
GZIP_SIGNATURE = b"\x1f\x8b"
"""First bytes of a file that is compressed with gzip."""

_RANKING = schema.ranking


@dataclass(frozen=True)
class StoredRanking:
    """A ranking of a project, without its documents."""

    name: str
    n_documents: int
    created: int


def parse_ranking(content: bytes, name: str, format: Format | None = None) -> pa.Table:
    """Return the ranking in the content of a file, in any format that `crowdrank estimate` reads.

    Args:
        content: content of the file.
        name: name of the ranking for messages.
        format: the format; by default it is detected.

    Raises:
        InputError: the file cannot be read, or a document occurs twice.
        UsageError: the format is unknown.

    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"ranking{'.gz' if content.startswith(GZIP_SIGNATURE) else ''}"
        path.write_bytes(content)
        try:
            return ranking_table(read_run(path, format=format, max_bytes=MAX_BYTES), name)
        except CrowdrankError as error:
            location = replace(error.location, source=f"ranking {shown(name)}")
            raise type(error)(replace(error.message, location=location)) from None


def ranking_table(run: Any, name: str) -> pa.Table:
    """Return a ranking as a table with query, document and score; raise InputError if a document occurs twice."""
    table = FrameSource(run, f"ranking {shown(name)}").read(["query", "document", "score"], BadRows())
    for place, column in enumerate(("query", "document")):
        table = table.set_column(place, column, table[column].cast(pa.string()))
    first = table.slice(0, 1).drop_columns("score").append_column("grade", pa.array([0]))
    align(table, first, ties="expected", with_grades=False, run_name=f"ranking {shown(name)}")
    return table


def set_ranking(connection: Connection, project: Project, name: str, table: pa.Table, now: int) -> StoredRanking:
    """Add a ranking to a project, or replace the one of this name.

    Raises:
        Invalid: the name is invalid.
        Conflict: pairs were drawn for the present rankings, or the project has too many rankings.

    """
    if not 1 <= len(name) <= MAX_NAME or not all(letter.isalnum() or letter in "-_. " for letter in name):
        problem = f"must have 1 to {MAX_NAME} letters, digits, spaces, '-', '_' or '.'"
        raise Invalid(problem, parameter="name", kind="invalid-name", fix="use a name such as new-ranker")
    require_no_rounds(connection, lock_project(connection, project.id))
    content = encode_table(table)
    stored = StoredRanking(name, len(table), now)
    values = {**stored.__dict__, "content": content, "digest": hashlib.sha256(content).hexdigest()}
    of_project = _RANKING.c.project_id == project.id
    if not connection.execute(update(_RANKING).where(of_project, _RANKING.c.name == name).values(values)).rowcount:
        if connection.execute(select(func.count()).where(of_project)).scalar_one() >= MAX_RANKINGS:
            problem = f"a project has at most {MAX_RANKINGS} rankings"
            raise Conflict(problem, kind="too-many-rankings", fix="remove one first")
        connection.execute(insert(_RANKING).values(project_id=project.id, **values))
    return stored


def remove_ranking(connection: Connection, project: Project, name: str) -> None:
    """Remove a ranking; raise NotFound if there is none of this name, and Conflict if pairs were drawn for it."""
    current = lock_project(connection, project.id)
    is_it = (_RANKING.c.project_id == project.id) & (_RANKING.c.name == name)
    if connection.execute(select(_RANKING.c.id).where(is_it)).first() is None:
        raise NotFound(f"project {shown(project.name)} has no ranking {shown(name)}", kind="no-ranking")
    require_no_rounds(connection, current)
    connection.execute(delete(_RANKING).where(is_it))


def list_rankings(connection: Connection, project: Project) -> list[StoredRanking]:
    """Return the rankings of a project in the order in which they were added; the first one is the baseline."""
    columns = (_RANKING.c[name] for name in StoredRanking.__dataclass_fields__)
    rows = connection.execute(select(*columns).where(_RANKING.c.project_id == project.id).order_by(_RANKING.c.id))
    return [StoredRanking(*row) for row in rows]


def load_rankings(connection: Connection, project: Project) -> dict[str, pa.Table]:
    """Return the documents of the rankings of a project by name."""
    columns = select(_RANKING.c.name, _RANKING.c.content)
    rows = connection.execute(columns.where(_RANKING.c.project_id == project.id).order_by(_RANKING.c.id))
    return {name: decode_table(content) for name, content in rows}


def ranking_digests(connection: Connection, project: Project) -> tuple[tuple[str, str], ...]:
    """Return name and digest of each ranking of a project."""
    columns = select(_RANKING.c.name, _RANKING.c.digest)
    rows = connection.execute(columns.where(_RANKING.c.project_id == project.id).order_by(_RANKING.c.id))
    return tuple((row.name, row.digest) for row in rows)


def encode_table(table: pa.Table) -> bytes:
    """Return a table as the content of a Parquet file."""
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def decode_table(content: bytes) -> pa.Table:
    """Return the table in the content of a Parquet file."""
    return pq.read_table(io.BytesIO(content))
