"""Export the answers of a project as files that crowdrank reads, and as judgments."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Connection, bindparam, text

from crowdrank._base import require_one_of
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.judging_database import ANSWERS_SQL, CANNOT_JUDGE, answer_table
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.table import Judgments
from crowdrank.judgments.write import write_table
from crowdrank.service.projects import Project

CONTENT_TYPES: Mapping[str, str] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
"""Content type of each export format."""


_OF_QUERIES = text(ANSWERS_SQL.replace("ORDER BY", "AND query IN :queries ORDER BY")).bindparams(
    bindparam("queries", expanding=True)
)
_OF_SAMPLE = text(ANSWERS_SQL.replace("ORDER BY", "AND probability IS NOT NULL ORDER BY"))


def answers_of(connection: Connection, project: Project, queries: Sequence[str] | None = None) -> pa.Table:
    """Return the latest answers of a project as a table; earlier rounds and training pairs are left out.

    The columns are those that crowdrank recognizes (query, document, assessor, family, grade, time, duration, cost,
    honeypot), the kind of assessor and the comment. Answers to pairs that the policy `compare` drew have the
    probability of the draw and the number of its round; named grades have the column `scale`.

    Args:
        connection: connection of a transaction.
        project: the project.
        queries: ids of queries in the user's files; None for all.

    """
    if queries is None:
        rows = connection.execute(text(ANSWERS_SQL), {"project": project.name})
    else:
        rows = connection.execute(_OF_QUERIES, {"project": project.name, "queries": list(queries)})
    return answer_table(map(dict, rows.mappings()), project.grades, BadRows())


def sampled_answers(connection: Connection, project: Project) -> pa.Table:
    """Return the answers of a project to pairs that were drawn, as :func:`answers_of` does."""
    rows = connection.execute(_OF_SAMPLE, {"project": project.name})
    return answer_table(map(dict, rows.mappings()), project.grades, BadRows())


def file_content(table: pa.Table, format: str, *, csv_safe: bool = False) -> bytes:
    """Return a table as the content of a file.

    Args:
        table: the table.
        format: `csv`, `jsonl` or `parquet`.
        csv_safe: in CSV, put `'` before text that a spreadsheet program would run as a formula.

    Raises:
        UsageError: the format is unknown.

    """
    require_one_of("format", format, tuple(CONTENT_TYPES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{format}"
        write_table(table, path, csv_safe=csv_safe)
        return path.read_bytes()


def judgments_of(connection: Connection, project: Project, queries: Sequence[str] | None = None) -> Judgments | None:
    """Return the latest answers of a project, or of some queries, as judgments on its scale; None without any."""
    answers = answers_of(connection, project, queries)
    return read_judgments(answers, grades=project.grades, unjudgeable=CANNOT_JUDGE) if len(answers) else None
