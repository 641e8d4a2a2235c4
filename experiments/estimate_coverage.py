"""Whether the intervals of `estimate` hold: a grid of simulated comparisons with known truth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.special import bdtr, ndtr

from crowdrank._files import write_file
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.estimation.by_document import (
    Sample,
    corrected_gains,
    document_gains,
    document_weights,
    draw_sample,
    error_effects,
    estimate_by_document,
    expected_gains,
    inclusion_probabilities,
)
from crowdrank.estimation.by_query import ByQueryEstimator
from crowdrank.estimation.designs import EVEN_DRAW_SHARE
from crowdrank.estimation.joined_runs import JoinedRuns
from crowdrank.estimation.prepared import ContrastEstimator, difference_of_means, move_into_range
from crowdrank.evaluation.alignment import Alignment, GoldGrades, align_codes, group_by_query
from crowdrank.evaluation.measures import Measure, parse_measure
from experiments.base import Experiment, Row, Table, Tell, quiet, select_names

N_REPLICATES, N_OTHER_LABELS, N_QUICK = 500, 200, 40
"""Number of replicates of a cell: with good labels, with others, and with --quick."""
SEED = 2026
BUDGETS = (20, 50, 100, 300, 1000)
N_QUERIES = (10, 50, 150)
SHARES = (0.05, 0.2, 1.0)
"""Shares of the queries in which the systems differ."""
PARTS = {
    **{f"query-{name.split('@')[0]}": ("query", name) for name in ("nDCG@10", "AP", "RR", "ERR@10", "P@10")},
    **{f"document-{name.split('@')[0]}": ("document", name) for name in ("nDCG@10", "P@10")},
}
"""Unit of the expert grades and measure of each part."""
N_DOCUMENTS = 20
CUTS = np.array([0.3, 1.1, 1.9])
"""Thresholds of relevance between the grades 0 to 3."""
GRADES_PER_QUERY = 14
"""Approximate number of different documents among the first ten of both systems."""
LEVEL = 0.95
MIN_QUERIES, MIN_SHOWN, MAX_MISSED = 5, 6, 0.1
"""Minimum numbers of queries with grades, and of those that show a difference, and how often the latter may be missed.

With fewer than six differences, no test of symmetric differences rejects at 5%: all have one sign in 2 of 2^5 cases."""
COVERAGE, TYPE_I, MAX_RMSE, MAX_GOOD_RMSE = (0.93, 0.97), (0.03, 0.07), 1.03, 0.85
"""Goals: coverage, type I error, largest RMSE relative to experts alone, and that with good labels by document."""
GOALS: dict[str, tuple[tuple[str, ...], str, float, float]] = {
    "systems": (("live", "new"), "few queries", *COVERAGE),
    "difference": (("difference",), "few differences", *COVERAGE),
    "type I": (("type I",), "few differences", *TYPE_I),
    "RMSE": (("RMSE",), "", 0.0, MAX_RMSE),
    "good RMSE": (("RMSE",), "weak labels", 0.0, MAX_GOOD_RMSE),
    "wrong": (("wrong",), "", 0.0, 0.0),
}
"""Columns of each goal, what makes it impossible, and its range."""
CENTERED = ("systems", "difference", "type I")
"""Goals with a lower and an upper bound."""
N_GROUPS = 200
"""Number of groups of documents by the gains that labels expect, in each of which the labels are calibrated."""
ROUNDING = 1e-9
DIFFERENCE = np.array([-1.0, 1.0])


@dataclass(frozen=True)
class World:
    """How systems and labels are simulated.

    Attributes:
        scale: grades of the experts, 'graded' (0-3) or 'binary'.
        labels: 'good', 'biased' or 'overconfident'.
        effect: whether the second system is 'equal' or 'better'.
        share: share of the queries in which the systems differ.

    """

    scale: str
    labels: str
    effect: str
    share: float

    @property
    def name(self) -> str:
        """Name of the world, part of that of its cells."""
        return f"{self.scale}-{self.labels}-{self.effect}-{self.share:g}"


@dataclass(frozen=True)
class Cell:
    """Settings of a cell of the grid."""

    unit: str
    measure: str
    world: World
    n_queries: int
    budget: int

    @property
    def name(self) -> str:
        """Name of the cell, also of its file."""
        return f"{self.unit}-{self.measure}-{self.world.name}-{self.n_queries}-{self.budget}"

    @property
    def is_possible(self) -> bool:
        """Whether the budget is neither too small for two queries nor too large for all documents."""
        if self.unit == "document":
            return self.budget / GRADES_PER_QUERY <= 0.7 * self.n_queries
        return 2 <= self.n_graded <= self.n_queries

    @property
    def n_graded(self) -> int:
        """Number of queries that the budget grades."""
        return self.budget // GRADES_PER_QUERY

    def limits(self, shown: float, best: float) -> str:
        """Return which goals cannot be reached in the cell, and why; empty if all can be.

        Args:
            shown: share of the queries that show a difference to an expert or, by document, may show one.
            best: relative RMSE if the labels were calibrated exactly.

        """
        n_seen = self.n_queries if self.unit == "document" else self.n_graded
        reasons = []
        if n_seen < MIN_QUERIES:
            reasons.append("few queries")
        if n_seen < MIN_SHOWN or bdtr(MIN_SHOWN - 1, n_seen, shown) > MAX_MISSED:
            reasons.append("few differences")
        if self.unit == "document" and self.world.labels == "good" and best > MAX_GOOD_RMSE:
            reasons.append("weak labels")
        return ", ".join(reasons)


class Population:
    """Queries of a world with rankings, labels and true grades; replicates are parts of it."""

    def __init__(self, world: World, n_queries: int, frames: dict[str, pd.DataFrame] | None = None) -> None:
        rng = np.random.default_rng([SEED, crc32(world.name.encode())])
        frames = make_world(world, n_queries, rng) if frames is None else frames
        labels, truth = frames["labels"], frames["truth"]
        names = pa.array(np.arange(n_queries))
        query, grades = labels["query"].to_numpy(), labels["grade"].to_numpy(np.float64)
        shares = labels.filter(regex="^p").to_numpy()
        known = GoldGrades(grades, shares, np.arange(shares.shape[1], dtype=np.float64))
        self.alignments = {
            name: replace(align_codes(query, frames[name]["score"].to_numpy(), grades, names), grades=known)
            for name in ("live", "new")
        }
        self.truth = truth["grade"].to_numpy(np.float64)
        self.n_queries = n_queries

    def part(self, first: int, last: int) -> JoinedRuns:
        """Return the runs joined with labels and expert grades of all documents, for some queries."""
        alignments = {name: _slice(one, first, last) for name, one in self.alignments.items()}
        grades = self.truth[first * N_DOCUMENTS : last * N_DOCUMENTS]
        rows, ones = np.arange(len(grades)), np.ones(len(grades))
        sample = Sample(rows, grades, ones, ones)
        return JoinedRuns(alignments, ones > 0, sample, True, np.arange(last - first))


def _slice(aligned: Alignment, first: int, last: int) -> Alignment:
    """Return the alignment of queries from `first` to `last`, which all have the same number of documents."""
    rows, ranking, grades = slice(first * N_DOCUMENTS, last * N_DOCUMENTS), aligned.ranking, aligned.grades
    assert grades.shares is not None
    query = ranking.query[rows] - first
    part = replace(
        ranking,
        query=query,
        scores=ranking.scores[rows],
        gold=ranking.gold[rows],
        row=ranking.row[rows] - rows.start,
        tie_group=ranking.tie_group[rows] - ranking.tie_group[rows.start],
        n_queries=last - first,
    )
    known = replace(grades, grades=grades.grades[rows], shares=grades.shares[rows])
    pool = group_by_query(query, np.arange(len(query)), last - first)
    return replace(aligned, queries=aligned.queries[first:last], ranking=part, gold=pool, grades=known)


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    keep: Path | None = None,
    quick: bool = False,
    tell: Tell = quiet,
) -> Experiment:
    """Return the figures of every cell, or of the cells of some parts; those in the folder `keep` are not repeated."""
    if methods is not None:
        raise UsageError("The experiment estimate-coverage has no methods to select; --only selects its parts.")
    parts = {part: list(cells(*PARTS[part], quick=quick)) for part in select_names(only, PARTS, "part")}
    rows: dict[str, list[Row]] = {part: [] for part in parts}
    for world in dict.fromkeys(cell.world for group in parts.values() for cell in group):
        population: Population | None = None
        n_replicates = N_QUICK if quick else N_REPLICATES if world.labels == "good" else N_OTHER_LABELS
        for part, group in parts.items():
            own = [cell for cell in group if cell.world == world]
            if not own:
                continue
            tell(f"{part}, {world.name}")
            path = None if keep is None else keep / f"{part}-{world.name}-{n_replicates}.json"
            if path is not None and path.exists():
                rows[part] += json.loads(path.read_text(encoding="utf-8"))
                continue
            population = population or Population(world, n_replicates * max(N_QUERIES))
            found = [{"run": cell.name, **figures} for cell, figures in simulate(population, own, n_replicates)]
            if path is not None:
                with write_file(path) as draft:
                    draft.write_text(json.dumps(found), encoding="utf-8")
            rows[part] += found
    known = {cell.name: cell for group in parts.values() for cell in group}
    pairs = [(known[row["run"]], row) for part in parts for row in rows[part]]
    tables = [goals_table(pairs), worst_table(pairs)]
    tables += [Table(part, f"{PARTS[part][1]} by {PARTS[part][0]}", tuple(rows[part])) for part in parts]
    notes = (
        f"{N_QUICK if quick else N_REPLICATES} replicates of each cell, {N_QUICK if quick else N_OTHER_LABELS} if the "
        "labels are biased or overconfident. A cell has the unit and the measure, the grades of the experts (0-3 "
        "or 0-1), the labels, whether the second system is equal or better, the share of the queries in which the "
        "systems differ, the number of queries with labels, and the number of expert grades. Labels are biased or "
        "overconfident for nDCG only.",
        f"Live, new, difference: coverage of intervals of level {LEVEL:g}. Type I: share of p below .05 if the "
        "systems are equal. RMSE: that of the difference, relative to experts alone with the same grades. Best RMSE: "
        "by document, the same if the expected gain of each label were known. Wrong: share of tables with a value "
        "outside of the range, an interval without width, or a difference that is not that of the estimates.",
        f"Limited: few queries (fewer than {MIN_QUERIES} with grades), few differences (in more than {MAX_MISSED:.0%} "
        f"of the samples, fewer than {MIN_SHOWN} queries show one: no test of symmetric differences can then reject at "
        f"5%), weak labels (the best RMSE exceeds {MAX_GOOD_RMSE:g}).",
        f"A coverage of exactly {LEVEL:g} is outside of {COVERAGE[0]:g} to {COVERAGE[1]:g} in 4% of the cells by the "
        f"chance of {N_REPLICATES} replicates, and in 19% by that of {N_OTHER_LABELS}. True values are those of all "
        "simulated queries of a world; by document, the ideal DCG is that of the labels. Replicates are different "
        "queries of the same world.",
        "Variants were compared on other seeds: two ways to weight and four strengths of a calibration by document, "
        "three weights of the mean of the systems in the draw and four rules for few large differences, and by query "
        "three strengths of shrinkage, four weights of the range and three numbers of differences below which an "
        "interval is widened.",
    )
    return Experiment("estimate-coverage", tuple(tables), notes)


Pairs = Sequence[tuple[Cell, Row]]


def goals_table(pairs: Pairs) -> Table:
    """Return the share of the cells of the grid that reach each goal, by unit and labels."""
    rows = []
    for unit, labels in dict.fromkeys((cell.unit, cell.world.labels) for cell, _ in pairs):
        own = [(cell, row) for cell, row in pairs if (cell.unit, cell.world.labels) == (unit, labels)]
        reached = {goal: [is_reached for *_, is_reached in outcomes(own, goal)] for goal in GOALS}
        shares = {goal: float(np.mean(found)) if found else float("nan") for goal, found in reached.items()}
        limited = [row for _, row in own if row["limited"]]
        lowest = [min(row[name] for name in ("live", "new", "difference")) for row in limited]
        covers = float(np.mean(np.array(lowest) >= COVERAGE[0])) if lowest else float("nan")
        run = f"by {unit}, {labels} labels"
        rows.append({"run": run, "cells": len(own), **shares, "limited": len(limited), "limited, covered": covers})
    notes = (
        "Share of the figures that reach the goal in cells where it can be reached: "
        f"coverage of systems and difference {COVERAGE[0]:g} to {COVERAGE[1]:g}, type I error {TYPE_I[0]:g} to "
        f"{TYPE_I[1]:g}, RMSE at most {MAX_RMSE:g} and, with good labels by document, at most {MAX_GOOD_RMSE:g}, no "
        "wrong table. Limited: number of cells in which a goal cannot be reached; covered: share of them in which the "
        f"coverage of all intervals is at least {COVERAGE[0]:g}.",
    )
    return Table("goals", "Share of cells that reach each goal", tuple(rows), notes)


def worst_table(pairs: Pairs) -> Table:
    """Return the cell that is farthest from each goal, by unit, among the cells where the goal can be reached."""
    rows = []
    for unit, goal in product(dict.fromkeys(cell.unit for cell, _ in pairs), GOALS):
        found = outcomes([pair for pair in pairs if pair[0].unit == unit], goal)
        if found:
            center = float(np.mean(GOALS[goal][2:]))
            name, value, _ = max(found, key=lambda one: abs(one[1] - center) if goal in CENTERED else one[1])
            rows.append({"run": f"by {unit}, {goal}", "cell": name, "value": value})
    return Table("worst", "The worst cell of each goal", tuple(rows))


def outcomes(pairs: Pairs, goal: str) -> list[tuple[str, float, bool]]:
    """Return cell, value, and whether it reaches the goal, of the cells where the goal can be reached."""
    names, limit, low, high = GOALS[goal]
    found = []
    for cell, row in pairs:
        is_meant = goal != "good RMSE" or (cell.unit == "document" and cell.world.labels == "good")
        if not is_meant or (limit and limit in row["limited"]):
            continue
        values = [row[name] for name in names if row[name] is not None and np.isfinite(row[name])]
        found += [(cell.name, value, low <= value <= high) for value in values]
    return found


def cells(unit: str, measure: str, *, quick: bool) -> Iterator[Cell]:
    """Yield the cells of a part that are possible."""
    scales, effects = ("graded", "binary"), ("equal", "better")
    qualities = ("good", "biased", "overconfident") if measure.startswith("nDCG") else ("good",)
    axes: tuple[Any, ...] = (scales, qualities, effects, SHARES, N_QUERIES, BUDGETS)
    if quick:
        axes = (("graded",), ("good",), effects, (0.2,), (50,), (100, 300))
    for *words, n_queries, budget in product(*axes):
        cell = Cell(unit, measure, World(*words), n_queries, budget)
        if cell.is_possible:
            yield cell


def simulate(population: Population, cells: Sequence[Cell], n_replicates: int) -> Iterator[tuple[Cell, Row]]:
    """Yield coverage, type I error, relative RMSE and the share of wrong tables of each cell of one world and part."""
    unit, measure, equal = cells[0].unit, parse_measure(cells[0].measure), cells[0].world.effect == "equal"
    whole = population.part(0, population.n_queries)
    full, labels, is_equal = (
        true_values(whole, measure, unit),
        whole.label_values(measure),
        whole.equal_rankings(measure),
    )
    exact = exact_gains(whole, measure) if unit == "document" else np.empty(0)
    truth = np.full(2, full.mean()) if equal else full.mean(axis=0)
    shown = cells[0].world.share if unit == "document" else float((np.abs(full @ DIFFERENCE) > ROUNDING).mean())
    found: dict[Cell, list[list[float]]] = {cell: [] for cell in cells}
    for number in range(n_replicates):
        for n_queries in dict.fromkeys(cell.n_queries for cell in cells):
            first = number * max(N_QUERIES)
            own, rows = slice(first, first + n_queries), slice(first * N_DOCUMENTS, (first + n_queries) * N_DOCUMENTS)
            replicate: ByQueryReplicate | ByDocumentReplicate
            if unit == "query":
                replicate = ByQueryReplicate(labels[own], full[own], is_equal[own])
            else:
                part = population.part(own.start, own.stop)
                replicate = ByDocumentReplicate(part, measure, is_equal[own], exact[rows], number)
            for cell in cells:
                if cell.n_queries == n_queries:
                    found[cell].append(_check(*replicate.estimate(cell), truth))
    for cell, results in found.items():
        mean = np.array(results).mean(axis=0)
        errors = np.sqrt(mean[4:7] / max(mean[6], 1e-12))
        yield (
            cell,
            {
                "live": float(mean[0]),
                "new": float(mean[1]),
                "difference": float(mean[2]),
                "type I": float(mean[3]) if equal else float("nan"),
                "RMSE": float(errors[0]),
                "best RMSE": float(errors[1]),
                "wrong": float(mean[7]),
                "limited": cell.limits(shown, float(errors[1])),
            },
        )


@dataclass(frozen=True)
class ByQueryReplicate:
    """Values of queries; experts grade the first ones."""

    labels: Floats
    experts: Floats
    is_equal: Booleans

    def estimate(self, cell: Cell) -> tuple[ContrastEstimator, float]:
        """Return the estimator for the budget of the cell, and no better one."""
        is_expert = np.arange(cell.n_queries) < cell.n_graded
        return ByQueryEstimator(self.labels, self.experts, is_expert, self.is_equal), float("nan")


@dataclass(frozen=True)
class ByDocumentReplicate:
    """Queries whose documents are drawn as by the policy `compare`; `exact` are the expected gains of the labels."""

    joined: JoinedRuns
    measure: Measure
    is_equal: Booleans
    exact: Floats
    seed: int

    def estimate(self, cell: Cell) -> tuple[ContrastEstimator, float]:
        """Return the estimator for the budget of the cell, and the difference if the labels were calibrated exactly."""
        joined, grades, pool = self.joined, self.joined.sample, self.pool
        assert grades is not None
        rng = np.random.default_rng([SEED, self.seed, cell.budget])
        probability = inclusion_probabilities(self.effects[pool], min(cell.budget, len(pool)), EVEN_DRAW_SHARE)
        drawn = draw_sample(probability, rng)
        row = pool[drawn]
        sample = Sample(row, grades.grade[row], probability[drawn], np.ones(len(row)))
        runs = list(joined.alignments.values())
        estimator = estimate_by_document(
            runs, joined.queries, joined.is_labeled, sample, self.measure, rng, self.is_equal, self.run_weights
        )
        ((_, gains),) = corrected_gains(self.exact, sample, document_gains(sample.grade, self.measure))
        return estimator, float(self.difference_weights @ gains) / len(joined.queries)

    @cached_property
    def effects(self) -> Floats:
        """Effect of each document on the comparison, (n_rows,)."""
        return error_effects(list(self.joined.alignments.values()), self.measure)

    @cached_property
    def run_weights(self) -> list[Floats]:
        """Weights of the documents of each run."""
        return [document_weights(one, self.measure) for one in self.joined.alignments.values()]

    @cached_property
    def difference_weights(self) -> Floats:
        """Weight of the gain of each document in the difference, (n_rows,)."""
        rows = [one.ranking.row for one in self.joined.alignments.values()]
        live, new = (np.bincount(row, weight) for row, weight in zip(rows, self.run_weights, strict=True))
        return np.asarray(new - live)

    @cached_property
    def pool(self) -> Integers:
        """Documents among the first of any run."""
        cutoff = self.measure.cutoff or N_DOCUMENTS
        rows = [one.ranking.row.reshape(-1, N_DOCUMENTS)[:, :cutoff] for one in self.joined.alignments.values()]
        return np.unique(np.concatenate(rows))


def exact_gains(joined: JoinedRuns, measure: Measure) -> Floats:
    """Return the mean expert gain of documents with about the same expected gain by the labels, (n_rows,)."""
    assert joined.sample is not None
    predicted, gains = expected_gains(joined.first, measure)[:-1], document_gains(joined.sample.grade, measure)
    group = np.searchsorted(np.quantile(predicted, np.linspace(0, 1, N_GROUPS + 1)[1:-1]), predicted)
    counts = np.bincount(group, minlength=N_GROUPS)
    return np.asarray((np.bincount(group, gains, N_GROUPS) / np.maximum(counts, 1))[group])


def true_values(joined: JoinedRuns, measure: Measure, unit: str) -> Floats:
    """Return the value of each run by query from the grades of all documents, (n_queries, n_runs)."""
    if unit == "query":
        return joined.expert_values(measure)
    assert joined.sample is not None
    gains = document_gains(joined.sample.grade, measure)
    weighted = (
        np.bincount(one.ranking.query, document_weights(one, measure) * gains[one.ranking.row])
        for one in joined.alignments.values()
    )
    return np.column_stack(list(weighted))


def _check(estimator: ContrastEstimator, best: float, truth: Floats) -> list[float]:
    """Return which intervals cover the truth, whether the difference is significant, errors, and what is wrong."""
    live, new = move_into_range([estimator.estimate(run, LEVEL) for run in np.eye(2)], 1.0)
    difference = difference_of_means(estimator.estimate(DIFFERENCE, LEVEL), new, live, 1.0)
    true_difference = float(truth @ DIFFERENCE)
    covers = [
        one.lower - ROUNDING <= value <= one.upper + ROUNDING
        for one, value in zip((live, new, difference), (*truth, true_difference), strict=True)
    ]
    errors = [(value - true_difference) ** 2 for value in (difference.value, best, difference.experts)]
    adds_up = abs(new.value - live.value - difference.value) < ROUNDING
    has_width = min(one.upper - one.lower for one in (live, new, difference)) > 0
    in_range = min(live.lower, new.lower) >= 0 and max(live.upper, new.upper) <= 1
    return [*covers, difference.p < 1 - LEVEL, *errors, not (adds_up and has_width and in_range)]


def make_world(world: World, n_queries: int, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return true grades, labels with probabilities, and two rankings of the same documents.

    Good labels are 0.3 too high; biased ones also favor what the new system favors; overconfident ones are half as
    noisy by their probabilities as in truth.
    """
    size = (n_queries, N_DOCUMENTS)
    relevance = rng.normal(-0.4, 0.7, (n_queries, 1)) + rng.normal(0, 1, size)
    style = rng.normal(0, 1, size)
    sd = 1.0 if world.effect == "equal" else 0.7
    live = relevance + rng.normal(0, 1.0, size)
    new = relevance + sd * (0.8 * style + 0.6 * rng.normal(0, 1, size))
    scores = {"live": live, "new": np.where(rng.random((n_queries, 1)) < world.share, new, live)}
    seen = relevance + 0.3 + (0.5 * style if world.labels == "biased" else 0.0) + rng.normal(0, 0.8, size)
    stated = 0.4 if world.labels == "overconfident" else 0.8
    spread = stated / np.sqrt(1 + stated**2)
    below = ndtr((CUTS - seen[..., None] / (1 + stated**2)) / spread)
    shares = np.diff(np.concatenate([np.zeros((*size, 1)), below, np.ones((*size, 1))], axis=2), axis=2)
    grade = (relevance[..., None] > CUTS).sum(axis=2)
    if world.scale == "binary":
        grade, shares = (grade >= 2).astype(int), shares.reshape(*size, 2, 2).sum(axis=3)
    query, document = (places.ravel() for places in np.indices(size))
    pairs = pd.DataFrame({"query": query, "document": document})
    columns = {f"p{value}": shares[..., value].ravel() for value in range(shares.shape[2])}
    frames = {name: pairs.assign(score=score.ravel()) for name, score in scores.items()}
    labels = pairs.assign(grade=shares.argmax(axis=2).ravel(), **columns)
    return {**frames, "labels": labels, "truth": pairs.assign(grade=grade.ravel())}
