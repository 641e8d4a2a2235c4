"""Draws of the policy `compare`: pairs drawn with known probabilities, to estimate which ranking is better.

Pairs are drawn among the first documents of the rankings, as `crowdrank collect next --policy compare` does. Only
drawn pairs are handed out. A pair that the assessors of the sample have answered before is part of the next draw with
probability 1. Rankings and measure stay the same, so that all draws are from the same pairs and `crowdrank estimate`
can combine them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, func, insert, select

from crowdrank._text import counted
from crowdrank.collection.compare_runs import CompareRuns, labels_of_pool, pool_of_runs
from crowdrank.collection.pool import Pool
from crowdrank.errors import Fix, Message, shown
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_judgments
from crowdrank.service.compare.rankings import (
    IS_ANSWERED,
    DrawProgress,
    encode_table,
    list_draws,
    load_rankings,
    prices_of_asked_members,
    ranking_digests,
)
from crowdrank.service.domain.projects import COMPARE_POLICY, Project, lock_project
from crowdrank.service.domain.quotas import BUDGET_TOLERANCE, committed_money, set_sample_targets
from crowdrank.service.model.fits import latest_snapshot, list_standings
from crowdrank.service.service_errors import Conflict
from crowdrank.service.store import schema

MAX_SEED = 2**31
"""Random seeds are below this number."""

_DRAW, _SAMPLED, _PAIR, _ANSWER = schema.sample_draw, schema.sampled_pair, schema.pair, schema.answer


class PoolPair(NamedTuple):
    """A pair of the project, and whether it was drawn, or answered by the assessors of the sample."""

    pair_id: int
    query: str
    document: str
    kind: str
    is_open: bool
    is_drawn: bool
    is_answered: bool

    @property
    def is_available(self) -> bool:
        """Whether the pair can be part of a sample."""
        return self.kind == "real" and (self.is_open or self.is_drawn or self.is_answered)


@dataclass(frozen=True, eq=False)
class DrawInputs:
    """Inputs of a draw, read in one transaction.

    Attributes:
        project: the project.
        number: number of the draw.
        version: number of draws, settings and digests of the rankings, which must not change until the draw is written.
        n_pairs: number of pairs to draw, as far as the budget reaches.
        rankings: rankings by name.
        pairs: pairs of the project.
        labels: labels of pairs by the newest fit of the model; None before the first.

    """

    project: Project
    number: int
    version: tuple[object, ...]
    n_pairs: int
    rankings: Mapping[str, pa.Table]
    pairs: Sequence[PoolPair]
    labels: pa.Table | None


@dataclass(frozen=True, eq=False)
class Draw:
    """Pairs that were drawn.

    Attributes:
        seed: random seed.
        pairs: (pair id, probability) of each pair.
        labels: labels of the pool.
        notes: notes and warnings for the lead.

    """

    seed: int
    pairs: Sequence[tuple[int, float]]
    labels: pa.Table
    notes: tuple[Message, ...] = ()


def read_draw_inputs(connection: Connection, project: Project) -> DrawInputs:
    """Read the inputs of the next draw of a project.

    A draw has three steps, so that no transaction is open while :func:`draw_pairs` computes: this one,
    :func:`draw_pairs`, and :func:`write_draw`.

    Raises:
        Conflict: the policy is another one, no label is wanted, the last draw is not complete, no further draw is
            planned, there are fewer than two rankings, or the budget is spent.

    """
    draws, kinds = list_draws(connection, project), _judging_kinds(project)
    if not project.is_sampled:
        problem = f"the policy of project {shown(project.name)} is {project.policy}, which draws no pairs"
        raise Conflict(problem, kind="other-policy", fix=f"set the policy {COMPARE_POLICY}")
    if not kinds:
        problem, fix = "no label is asked for", "set a minimum of at least 1 label per pair, usually of experts"
        raise Conflict(problem, kind="no-labels-wanted", fix=fix)
    if draws and not draws[-1].is_complete:
        last = draws[-1]
        problem = f"draw {last.number} is not complete: {last.n_complete} of {last.n_pairs} pairs have their labels"
        fixes = [fix for warning in last.warnings for fix in warning.fixes]
        raise Conflict(problem, kind="draw-incomplete", fix=fixes or "wait for the answers")
    if project.looks is not None and len(draws) >= project.looks:
        problem = f"draw {len(draws)} was the last of {counted(project.looks, 'planned draw')}"
        fix = "report the answer of the last look, or discard the draws and plan another comparison"
        raise Conflict(problem, kind="looks-used", fix=fix)
    rankings = load_rankings(connection, project)
    if len(rankings) < 2:
        has = f"project {shown(project.name)} has {counted(len(rankings), 'ranking')}"
        problem = f"{has}, and {COMPARE_POLICY} needs two"
        raise Conflict(problem, kind="few-rankings", fix="add the rankings to compare")
    return DrawInputs(
        project=project,
        number=len(draws) + 1,
        version=_inputs_version(connection, project),
        n_pairs=_affordable_pairs(connection, project),
        rankings=rankings,
        pairs=_read_pairs(connection, project, kinds),
        labels=_read_labels(connection, project),
    )


def draw_pairs(inputs: DrawInputs, seed: int | None = None) -> Draw:
    """Draw pairs with known probabilities by the policy `compare`.

    Args:
        inputs: what the draw depends on.
        seed: random seed; by default a random one.

    Raises:
        Conflict: the rankings do not fit each other or the pairs of the project, or all pairs have been drawn.

    """
    project, seed = inputs.project, random.SystemRandom().randrange(MAX_SEED) if seed is None else seed
    runs, notes = _rankings_of_project(inputs)
    query, document = (pa.array([getattr(pair, name) for pair in inputs.pairs]) for name in ("query", "document"))
    _require_pairs(runs, project.measure, query, document)
    pool = pool_of_runs(runs, project.measure)
    pairs = [inputs.pairs[row] for row in PairIndex.from_ids(query, document).positions(pool.query, pool.document)]
    labels = _labels_or_highest_grade(project, inputs.labels, pool)
    is_available = np.array([pair.is_available for pair in pairs])
    if not is_available.all():
        notes.append(_unavailable_note(int((~is_available).sum())))
    available = [pair for pair in pairs if pair.is_available]
    known = [pair.is_drawn or pair.is_answered for pair in available]
    sampled = [(pair.pair_id, 1.0) for pair in available if pair.is_answered and not pair.is_drawn]
    usable = Pool(pool.query.filter(pa.array(is_available)), pool.document.filter(pa.array(is_available)))
    if not all(known):
        policy = CompareRuns(runs, labels, measure=project.measure, random_state=seed)
        requests = policy.next(usable, _as_judgments(usable, known), budget=inputs.n_pairs)
        assert requests.probability is not None
        ids = [available[row].pair_id for row in requests.pair]
        sampled += zip(ids, map(float, requests.probability), strict=True)
    if not sampled:
        raise Conflict("all pairs have been drawn", kind="all-drawn", fix="estimate the difference")
    return Draw(seed, sampled, labels, tuple(notes))


def write_draw(connection: Connection, inputs: DrawInputs, draw: Draw, now: int) -> DrawProgress:
    """Store a draw, and ask for the labels of its pairs; raise Conflict if its inputs have changed."""
    project = lock_project(connection, inputs.project.id)
    if _inputs_version(connection, project) != inputs.version:
        problem = "the settings, rankings or draws of the project have changed meanwhile"
        raise Conflict(problem, kind="changed-meanwhile", fix="try again")
    row = {"measure": project.measure, "seed": draw.seed, "labels": encode_table(draw.labels), "created": now}
    connection.execute(insert(_DRAW).values(project_id=project.id, number=inputs.number, **row))
    kinds, fixed = _judging_kinds(project), {"project_id": project.id, "draw": inputs.number}
    rows = [
        {"pair_id": pair_id, "kind": kind, "probability": probability, **fixed}
        for pair_id, probability in draw.pairs
        for kind in kinds
    ]
    connection.execute(insert(_SAMPLED), rows)
    for kind in kinds:
        set_sample_targets(connection, project.id, inputs.number, kind, project.quotas[kind])
    return list_draws(connection, project)[-1]


def _affordable_pairs(connection: Connection, project: Project) -> int:
    """Return the number of pairs that the budget pays for at the highest prices; raise Conflict if it is 0."""
    if project.budget is None:
        return project.pairs_per_draw
    highest = {kind: max(prices.values()) for kind, prices in prices_of_asked_members(connection, project).items()}
    price = sum(project.quotas[kind].k_min * highest.get(kind, 0.0) for kind in _judging_kinds(project))
    if price == 0:
        return project.pairs_per_draw
    left = project.budget - committed_money(connection, project.id)
    if left < price:
        problem = f"{max(left, 0.0):g} is left of the budget, and the labels of a pair cost up to {price:g}"
        raise Conflict(problem, kind="budget-too-small", fix="raise the budget")
    return min(project.pairs_per_draw, int(left / price + BUDGET_TOLERANCE))


def _judging_kinds(project: Project) -> list[str]:
    """Return the kinds of assessors whose answers are part of a sample: those of which labels are wanted."""
    return [kind for kind, quota in project.quotas.items() if quota.k_min > 0]


def _inputs_version(connection: Connection, project: Project) -> tuple[object, ...]:
    n_draws = connection.execute(select(func.count()).where(_DRAW.c.project_id == project.id)).scalar_one()
    settings = project.plan_settings, project.measure, project.pairs_per_draw
    return n_draws, settings, ranking_digests(connection, project)


def _read_pairs(connection: Connection, project: Project, kinds: Sequence[str]) -> list[PoolPair]:
    assessor, query, document = schema.assessor, schema.query, schema.document
    is_drawn = select(_SAMPLED.c.pair_id).where(_SAMPLED.c.pair_id == _PAIR.c.id).exists()
    is_answered = (
        select(_ANSWER.c.pair_id)
        .join_from(_ANSWER, assessor)
        .where(_ANSWER.c.pair_id == _PAIR.c.id, IS_ANSWERED, assessor.c.kind.in_(kinds))
        .correlate(_PAIR)
        .exists()
    )
    columns = _PAIR.c.id, query.c.key, document.c.key, _PAIR.c.kind, _PAIR.c.is_open, is_drawn, is_answered
    rows = connection.execute(
        select(*columns)
        .join_from(_PAIR, query, query.c.id == _PAIR.c.query_id)
        .join(document, document.c.id == _PAIR.c.document_id)
        .where(_PAIR.c.project_id == project.id)
        .order_by(_PAIR.c.id)
    )
    return [PoolPair(*row) for row in rows]


def _read_labels(connection: Connection, project: Project) -> pa.Table | None:
    """Return the labels of the newest fit of the model, with the probabilities of the grades."""
    snapshot = latest_snapshot(connection, project)
    if snapshot is None:
        return None
    standings = list_standings(connection, project, snapshot)
    if not standings:
        return None
    columns: dict[str, list[Any]] = {
        "query": [one.query for one in standings],
        "document": [one.document for one in standings],
        "grade": [project.scale.values[project.grade_code(one.grade)] for one in standings],
    }
    shares = zip(*(_normalize(one.probabilities) for one in standings), strict=True)
    return pa.table({**columns, **dict(zip(project.scale.share_names, map(list, shares), strict=True))})


def _normalize(shares: Sequence[float]) -> list[float]:
    """Return probabilities, which are stored rounded, with the sum 1."""
    total = sum(shares)
    return [share / total for share in shares]


def _labels_or_highest_grade(project: Project, labels: pa.Table | None, pool: Pool) -> pa.Table:
    """Return the labels of all pairs of a pool, or the highest grade for all without labels: nDCG is from 0 to 1."""
    highest = {"grade": np.full(len(pool), float(project.scale.values[-1]))}
    found = highest if labels is None else labels_of_pool(labels, pool)
    return pa.table({"query": pool.query, "document": pool.document, **found})


def _rankings_of_project(inputs: DrawInputs) -> tuple[dict[str, pa.Table], list[Message]]:
    """Return the rankings of the queries of the project, with a note if there are others.

    Raises:
        Conflict: a query of the project is in some rankings only, or in none.

    """
    known = {pair.query for pair in inputs.pairs if pair.kind == "real"}
    queries = {name: set(table["query"].unique().to_pylist()) for name, table in inputs.rankings.items()}
    (first_name, first), *others = queries.items()
    for name, found in others:
        if differing := sorted((found ^ first) & known):
            has, lacks = (name, first_name) if differing[0] in found else (first_name, name)
            problem = (
                f"the rankings have different queries: {counted(len(differing), 'query')} in only one of "
                f"{shown(first_name)} and {shown(name)}, such as {shown(differing[0])}, which {shown(has)} has"
            )
            raise Conflict(problem, kind="queries-differ", fix=f"replace {shown(lacks)} by a ranking with this query")
    if not first & known:
        problem = f"no query of ranking {shown(first_name)} is in the project, such as {shown(min(first))}"
        raise Conflict(problem, kind="nothing-in-common", fix="use the same ids in rankings and pairs")
    used = pa.array(sorted(first & known))
    runs = {name: table.filter(pc.is_in(table["query"], used)) for name, table in inputs.rankings.items()}
    if n_others := len(first - known):
        problem = f"the project has no pairs of {counted(n_others, 'query')} of the rankings; they are not compared"
        return runs, [Message(problem, "queries-ignored", "note", fixes=(Fix("add pairs of these queries"),))]
    return runs, []


def _require_pairs(runs: Mapping[str, pa.Table], measure: str, query: pa.Array, document: pa.Array) -> None:
    """Raise Conflict unless the pairs of the project hold every document that the measure counts in a ranking."""
    for name, run in runs.items():
        pool = pool_of_runs({name: run}, measure)
        missing = np.flatnonzero(PairIndex.from_ids(query, document).positions(pool.query, pool.document) < 0)
        if len(missing):
            example = f"{shown(pool.document[missing[0]].as_py())} of query {shown(pool.query[missing[0]].as_py())}"
            documents = f"{counted(len(missing), 'document')} of ranking {shown(name)}"
            problem = f"the project has no pairs of {documents} that {measure} counts, such as {example}"
            raise Conflict(problem, kind="pairs-missing", fix="add these pairs to the project")


def _unavailable_note(number: int) -> Message:
    documents = f"{counted(number, 'document')} of the rankings cannot be drawn (gold, training or closed pairs)"
    problem = f"{documents}, so nothing corrects the labels there"
    fix = Fix("discard the draws, reopen the closed pairs, and draw again")
    return Message(problem, "pairs-not-drawn", "warning", fixes=(fix,))


def _as_judgments(pool: Pool, known: Sequence[bool]) -> Judgments | None:
    """Return judgments of the known pairs, which are not drawn again; None without any."""
    if not any(known):
        return None
    table = pa.table({"query": pool.query, "document": pool.document}).filter(pa.array(known))
    for name, value in (("assessor", "anybody"), ("grade", "0")):
        table = table.append_column(name, pa.array([value] * len(table)))
    return read_judgments(table, grades="0-1")
