"""Rankings of a project, the progress of draws that compare them, and the estimate of which is better."""

from __future__ import annotations

import hashlib
import io
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from crowdrank._text import counted
from crowdrank.errors import CrowdrankError, CrowdrankWarning, Fix, Message, shown
from crowdrank.estimation.estimate import estimate
from crowdrank.evaluation.alignment import align
from crowdrank.readers.read import read_sample
from crowdrank.readers.read_options import CANNOT_JUDGE, Format
from crowdrank.readers.runs import read_run
from crowdrank.readers.sources import BadRows, FrameSource
from crowdrank.service.domain.progress import sampled_answers
from crowdrank.service.domain.projects import Project, lock_project, require_no_draws
from crowdrank.service.domain.quotas import change_quotas
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store import schema

MAX_RANKINGS = 20
"""Maximum number of rankings of a project."""
MAX_NAME_LENGTH = 100
"""Maximum number of characters of the name of a ranking."""
MAX_RANKING_BYTES = 1 << 28
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
            return ranking_table(read_run(path, format=format, max_bytes=MAX_RANKING_BYTES), name)
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
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not all(letter.isalnum() or letter in "-_. " for letter in name):
        problem = f"must have 1 to {MAX_NAME_LENGTH} letters, digits, spaces, '-', '_' or '.'"
        raise Invalid(problem, parameter="name", kind="invalid-name", fix="use a name such as new-ranker")
    require_no_draws(connection, lock_project(connection, project.id))
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
    require_no_draws(connection, current)
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


_DRAW, _SAMPLED_PAIR, _PAIR, _ANSWER = schema.sample_draw, schema.sampled_pair, schema.pair, schema.answer
IS_ANSWERED = (_ANSWER.c.generation == _PAIR.c.generation) & (_ANSWER.c.kind != "later")
"""Condition on an answer and its pair: it answers the pair in the current generation."""


@dataclass(frozen=True)
class DrawProgress:
    """Progress of a draw, a random sample of the pairs of a project whose labels compare its rankings.

    Attributes:
        number: number of the draw, from 1 on.
        measure: measure for which the pairs were drawn.
        seed: random seed of the draw.
        created: time of the draw, in milliseconds.
        n_pairs: number of pairs in the sample.
        n_complete: number of those that have their labels.
        n_closed: number of closed pairs without their labels.
        n_unassignable: number of open pairs without their labels that nobody can judge.

    """

    number: int
    measure: str
    seed: int
    created: int
    n_pairs: int
    n_complete: int
    n_closed: int
    n_unassignable: int

    @property
    def is_complete(self) -> bool:
        """Whether all pairs have their labels."""
        return self.n_complete == self.n_pairs

    @property
    def warnings(self) -> tuple[Message, ...]:
        """Why the draw cannot become complete."""
        found = []
        if self.n_unassignable:
            problem = f"nobody can judge {counted(self.n_unassignable, 'drawn document')}, so the sample is not random"
            found.append((problem, "add assessors, lower the minimum information per price, or ask for labels again"))
        if self.n_closed:
            problem = f"a lead closed {counted(self.n_closed, 'drawn document')}, so the sample is not random"
            found.append((problem, "open these pairs; judges can answer that they cannot judge a document"))
        return tuple(Message(problem, "sample-incomplete", "warning", fixes=(Fix(fix),)) for problem, fix in found)


def discard_draws(connection: Connection, project: Project) -> int:
    """Delete all draws of a project, and hand out none of their pairs; the answers stay. Return their number."""
    project = lock_project(connection, project.id)
    connection.execute(delete(_SAMPLED_PAIR).where(_SAMPLED_PAIR.c.project_id == project.id))
    number = connection.execute(delete(_DRAW).where(_DRAW.c.project_id == project.id)).rowcount
    if project.is_sampled:
        for kind, quota in project.quotas.items():
            change_quotas(connection, project.id, kind, quota, is_sampled=True)
    return number


def list_draws(connection: Connection, project: Project) -> list[DrawProgress]:
    """Return the progress of each draw: a random sample of pairs, with known probabilities, to compare rankings."""
    columns = _DRAW.c.number, _DRAW.c.measure, _DRAW.c.seed, _DRAW.c.created
    draws = connection.execute(select(*columns).where(_DRAW.c.project_id == project.id).order_by(_DRAW.c.number))
    states = _pair_states(connection, project)
    return [_draw_progress(row, list(states.get(row.number, {}).values())) for row in draws]


def _draw_progress(row: Row[*tuple[Any, ...]], states: Sequence[str]) -> DrawProgress:
    complete, closed, unassignable = (states.count(name) for name in ("complete", "closed", "unassignable"))
    return DrawProgress(row.number, row.measure, row.seed, row.created, len(states), complete, closed, unassignable)


def _pair_states(connection: Connection, project: Project) -> dict[int, dict[int, str]]:
    """Return the state of each drawn pair by draw and pair id: complete, closed, unassignable or waiting."""
    answered = _answering_assessors(connection, project)
    able = {kind: set(prices) for kind, prices in prices_of_asked_members(connection, project).items()}
    rows = connection.execute(
        select(_SAMPLED_PAIR.c.draw, _SAMPLED_PAIR.c.pair_id, _SAMPLED_PAIR.c.kind, _PAIR.c.is_open)
        .join_from(_SAMPLED_PAIR, _PAIR)
        .where(_SAMPLED_PAIR.c.project_id == project.id)
    )
    states: dict[int, dict[int, str]] = {}
    for row in rows:
        assessors = answered.get((row.pair_id, row.kind), set())
        n_missing = max(project.quotas[row.kind].k_min, 1) - len(assessors)
        if n_missing <= 0:
            state = "complete"
        elif not row.is_open:
            state = "closed"
        elif not project.quotas[row.kind].k_min or len(able.get(row.kind, set()) - assessors) < n_missing:
            state = "unassignable"
        else:
            state = "waiting"
        pair_states = states.setdefault(row.draw, {})
        if pair_states.get(row.pair_id, "complete") == "complete":  # a pair is complete if all kinds have answered it
            pair_states[row.pair_id] = state
    return states


def _answering_assessors(connection: Connection, project: Project) -> dict[tuple[int, str], set[int]]:
    """Return who answered each drawn pair in its current generation, by pair id and kind."""
    assessor = schema.assessor
    rows = connection.execute(
        select(_SAMPLED_PAIR.c.pair_id, _SAMPLED_PAIR.c.kind, _ANSWER.c.assessor_id)
        .join_from(_SAMPLED_PAIR, _PAIR)
        .join(_ANSWER, (_ANSWER.c.pair_id == _PAIR.c.id) & IS_ANSWERED)
        .join(assessor, (assessor.c.id == _ANSWER.c.assessor_id) & (assessor.c.kind == _SAMPLED_PAIR.c.kind))
        .where(_SAMPLED_PAIR.c.project_id == project.id)
    )
    found: dict[tuple[int, str], set[int]] = {}
    for pair_id, kind, assessor_id in rows:
        found.setdefault((pair_id, kind), set()).add(assessor_id)
    return found


def prices_of_asked_members(connection: Connection, project: Project) -> dict[str, dict[int, float]]:
    """Return the prices of the members who may get pairs, by kind and assessor id."""
    assessor, membership = schema.assessor, schema.membership
    rows = connection.execute(
        select(assessor.c.kind, assessor.c.id, assessor.c.price, membership.c.relative_information)
        .join_from(membership, assessor)
        .where(
            membership.c.project_id == project.id,
            ~membership.c.is_paused,
            membership.c.qualification != "failed",
            assessor.c.is_active,
        )
    )
    found: dict[str, dict[int, float]] = {}
    for kind, assessor_id, price, information in rows:
        if project.is_informative_enough(information):
            found.setdefault(kind, {})[assessor_id] = price
    return found


def _unplanned_looks(number: int) -> Message:
    problem = (
        f"these intervals are for one look, and there are {number} complete draws: whoever draws until the difference "
        "is significant finds differences that do not exist"
    )
    return Message(problem, "looks-not-planned", "warning", fixes=(Fix("plan the draws before the first one"),))


@dataclass(frozen=True)
class DrawsEstimate:
    """Estimate of which ranking is better, from the draws before the first incomplete one.

    Attributes:
        result: the estimate as a dictionary; None without a complete draw, or if it failed.
        problem: why it failed.

    """

    result: Mapping[str, Any] | None = None
    problem: str | None = None


def estimate_from_draws(connection: Connection, project: Project, draws: Sequence[DrawProgress]) -> DrawsEstimate:
    """Estimate which ranking is better.

    An incomplete draw is not a random sample: easy documents may have been answered first. Each complete draw is a look
    at the comparison, with the planned number of looks and the margin of the project.
    """
    complete = [one.number for one in takewhile(lambda one: one.is_complete, draws)]
    if not complete:
        return DrawsEstimate()
    answers = sampled_answers(connection, project)
    answers = answers.filter(pc.is_in(answers["draw"], pa.array(complete)))
    content = select(_DRAW.c.labels).where(_DRAW.c.project_id == project.id, _DRAW.c.number == 1)
    labels = decode_table(connection.execute(content).scalar_one())
    runs = load_rankings(connection, project)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdrankWarning)  # the result lists them
        try:
            sample = read_sample(answers, grades=project.grades, unjudgeable=CANNOT_JUDGE)
            plan: dict[str, Any] = {"measure": draws[0].measure, "looks": project.looks, "margin": project.margin}
            result = estimate(runs, labels, sample, **plan)
            if project.looks is None and len(complete) > 1:
                result = replace(result, warnings=(*result.warnings, _unplanned_looks(len(complete))))
            return DrawsEstimate(result.to_dict())
        except CrowdrankError as error:
            return DrawsEstimate(problem=error.problem)
