"""Export the answers of a project as files that crowdrank reads, and as judgments."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Connection, text

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


def answers_of(connection: Connection, project: Project) -> pa.Table:
    """Return the latest answers of a project as a table; earlier rounds and training pairs are left out.

    The columns are those that crowdrank recognizes (query, document, assessor, family, grade, time, duration, cost,
    honeypot), the kind of assessor and the comment. Read 'cannot judge' with `unjudgeable="cannot-judge"`.
    """
    rows = connection.execute(text(ANSWERS_SQL), {"project": project.name})
    return answer_table(map(dict, rows.mappings()), project.grades, BadRows())


def export_answers(connection: Connection, project: Project, format: str, *, csv_safe: bool = False) -> bytes:
    """Return the latest answers of a project as the content of a file.

    Args:
        connection: connection of a transaction.
        project: the project.
        format: `csv`, `jsonl` or `parquet`.
        csv_safe: in CSV, put `'` before text that a spreadsheet program would run as a formula.

    Raises:
        UsageError: the format is unknown.

    """
    require_one_of("format", format, tuple(CONTENT_TYPES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"answers.{format}"
        write_table(answers_of(connection, project), path, csv_safe=csv_safe)
        return path.read_bytes()


def judgments_of(connection: Connection, project: Project) -> Judgments:
    """Return the latest answers of a project as judgments on its scale.

    Raises:
        InputError: there are no answers (kind `no-rows`).

    """
    return read_judgments(answers_of(connection, project), grades=project.grades, unjudgeable=CANNOT_JUDGE)
