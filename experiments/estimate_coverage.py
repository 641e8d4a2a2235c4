"""Whether the intervals of `estimate` hold: a grid of simulated comparisons with known truth."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from scipy.special import ndtr

from crowdrank._files import write_file
from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs
from crowdrank.errors import UsageError
from crowdrank.estimation.estimate import estimate
from experiments.base import Experiment, Row, Table, Tell, quiet, select_names

N_REPLICATES, N_QUICK = 500, 40
"""Number of replicates of a cell, and with --quick."""
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
N_TRUTH = 20_000
"""Number of queries from which true values are computed."""
GRADES_PER_QUERY = 14
"""Approximate number of different documents among the first ten of both systems."""
LEVEL = 0.95


@dataclass(frozen=True)
class Cell:
    """Settings of a cell of the grid."""

    unit: str
    measure: str
    scale: str
    labels: str
    effect: str
    share: float
    n_queries: int
    budget: int

    @property
    def name(self) -> str:
        """Name of the cell, also of its file."""
        words = (self.unit, self.measure, self.scale, self.labels, self.effect, f"{self.share:g}")
        return "-".join([*words, str(self.n_queries), str(self.budget)])

    @property
    def is_possible(self) -> bool:
        """Whether the budget is neither too small for two queries nor too large for all documents."""
        n_graded = self.budget / GRADES_PER_QUERY
        if self.unit == "document":
            return n_graded <= 0.7 * self.n_queries
        return 2 <= int(n_graded) <= self.n_queries


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    keep: Path | None = None,
    quick: bool = False,
    tell: Tell = quiet,
) -> Experiment:
    """Return the figures of every cell, or of the cells of some parts; cells in the folder `keep` are not repeated."""
    if methods is not None:
        raise UsageError("The experiment estimate-coverage has no methods to select; --only selects its parts.")
    n_replicates, tables = N_QUICK if quick else N_REPLICATES, []
    for part in select_names(only, PARTS, "part"):
        rows: list[Row] = []
        for cell in cells(*PARTS[part], quick=quick):
            tell(cell.name)
            figures = _kept(cell, n_replicates, keep)
            rows.append({"run": cell.name, **figures})
        tables.append(Table(part, f"{PARTS[part][1]} by {PARTS[part][0]}", tuple(rows)))
    notes = (
        f"{n_replicates} replicates of each cell. A cell has the unit and the measure, the grades of the experts (0-3 "
        "or 0-1), the labels, whether the second system is equal or better, the share of the queries in which the "
        "systems differ, the number of queries with labels, and the number of expert grades.",
        f"Coverage of intervals of level {LEVEL:g} of both systems (levels) and of their difference. Type I: share of "
        "p below .05 if the systems are equal. RMSE: that of the difference, relative to experts alone. Wrong: share "
        "of tables with a value outside of the range, an interval without width, or a difference that is not that of "
        "the estimates.",
        f"Values are those of a population of {N_TRUTH:,} queries; by document, the ideal DCG is that of the labels.",
    )
    return Experiment("estimate-coverage", tuple(tables), notes)


def cells(unit: str, measure: str, *, quick: bool) -> Iterator[Cell]:
    """Yield the cells of a part that are possible."""
    scales, effects = ("graded", "binary"), ("equal", "better")
    qualities = ("good", "biased", "overconfident") if measure.startswith("nDCG") else ("good",)
    axes: tuple[Any, ...] = (scales, qualities, effects, SHARES, N_QUERIES, BUDGETS)
    if quick:
        axes = (("graded",), ("good",), effects, (0.2,), (50,), (100, 300))
    for values in product(*axes):
        cell = Cell(unit, measure, *values)
        if cell.is_possible:
            yield cell


def _kept(cell: Cell, n_replicates: int, keep: Path | None) -> dict[str, float]:
    """Return the figures of a cell, from its file if there is one."""
    path = None if keep is None else keep / f"{cell.name}-{n_replicates}.json"
    if path is not None and path.exists():
        return {name: float(value) for name, value in json.loads(path.read_text(encoding="utf-8")).items()}
    figures = simulate_cell(cell, n_replicates)
    if path is not None:
        with write_file(path) as draft:
            draft.write_text(json.dumps(figures), encoding="utf-8")
    return figures


def simulate_cell(cell: Cell, n_replicates: int) -> dict[str, float]:
    """Return coverage, type I error, relative RMSE and the share of wrong tables of a cell."""
    truth = true_values(cell.unit, cell.measure, cell.scale, cell.labels, cell.effect, cell.share)
    found = np.array([_replicate(cell, truth, number) for number in range(n_replicates)])
    means = found.mean(axis=0)
    return {
        "levels": float(means[0]),
        "difference": float(means[1]),
        "type I": float(means[2]) if cell.effect == "equal" else float("nan"),
        "RMSE": float(np.sqrt(means[3] / max(means[4], 1e-12))),
        "wrong": float(means[5]),
    }


def _replicate(cell: Cell, truth: tuple[float, float], number: int) -> list[float]:
    rng = np.random.default_rng([number, crc32(cell.name.encode())])
    world = make_world(cell, cell.n_queries, rng)
    runs = {"live": world["live"], "new": world["new"]}
    if cell.unit == "query":
        chosen = rng.permutation(cell.n_queries)[: cell.budget // GRADES_PER_QUERY]
        expert = world["truth"][world["truth"]["query"].isin(chosen)]
    else:
        policy = CompareRuns(runs, world["labels"], measure=cell.measure, random_state=number)
        drawn = policy.next(pool_of_runs(runs, cell.measure), budget=cell.budget).frame
        drawn = drawn.assign(**{name: drawn[name].astype(int) for name in ("query", "document")})
        expert = drawn[["query", "document", "probability", "draw"]].merge(world["truth"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = estimate(runs, world["labels"], expert, measure=cell.measure, level=LEVEL, random_state=number).table
    live, new = table.to_dict("records")
    levels = [row["lower"] <= value <= row["upper"] for row, value in zip((live, new), truth, strict=True)]
    difference = truth[1] - truth[0]
    covered = new["difference_lower"] <= difference <= new["difference_upper"]
    errors = [(new[name] - difference) ** 2 for name in ("difference", "experts_difference")]
    return [float(np.mean(levels)), float(covered), float(new["p"] < 1 - LEVEL), *errors, float(_is_wrong(live, new))]


def _is_wrong(live: Mapping[str, float], new: Mapping[str, float]) -> bool:
    """Return whether a table contradicts itself."""
    values = [row[name] for row in (live, new) for name in ("estimate", "lower", "upper")]
    widths = [live["upper"] - live["lower"], new["upper"] - new["lower"]]
    widths.append(new["difference_upper"] - new["difference_lower"])
    is_clipped = {live["estimate"], new["estimate"]} & {0.0, 1.0}
    adds_up = abs(new["estimate"] - live["estimate"] - new["difference"]) < 1e-9 or bool(is_clipped)
    return min(values) < 0 or max(values) > 1 or min(widths) <= 0 or not adds_up


@cache
def true_values(unit: str, measure: str, scale: str, labels: str, effect: str, share: float) -> tuple[float, float]:
    """Return the values of both systems in a large population, from expert grades of all documents."""
    cell = Cell(unit, measure, scale, labels, effect, share, N_TRUTH, N_TRUTH)
    world = make_world(cell, N_TRUTH, np.random.default_rng(crc32(f"{scale}-{labels}-{effect}-{share}".encode())))
    expert = world["truth"] if unit == "query" else world["truth"].assign(probability=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = {"live": world["live"], "new": world["new"]}
        values = estimate(runs, world["labels"], expert, measure=measure).table["estimate"]
    low, high = float(values[0]), float(values[1])
    return ((low + high) / 2,) * 2 if effect == "equal" else (low, high)


def make_world(cell: Cell, n_queries: int, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Return true grades, labels with probabilities, and two rankings of the same documents.

    Good labels are 0.3 too high; biased ones also favor what the new system favors; overconfident ones are half as
    noisy by their probabilities as in truth.
    """
    size = (n_queries, N_DOCUMENTS)
    relevance = rng.normal(-0.4, 0.7, (n_queries, 1)) + rng.normal(0, 1, size)
    style = rng.normal(0, 1, size)
    sd = 1.0 if cell.effect == "equal" else 0.7
    live = relevance + rng.normal(0, 1.0, size)
    new = relevance + sd * (0.8 * style + 0.6 * rng.normal(0, 1, size))
    scores = {"live": live, "new": np.where(rng.random((n_queries, 1)) < cell.share, new, live)}
    seen = relevance + 0.3 + (0.5 * style if cell.labels == "biased" else 0.0) + rng.normal(0, 0.8, size)
    stated = 0.4 if cell.labels == "overconfident" else 0.8
    spread = stated / np.sqrt(1 + stated**2)
    below = ndtr((CUTS - seen[..., None] / (1 + stated**2)) / spread)
    shares = np.diff(np.concatenate([np.zeros((*size, 1)), below, np.ones((*size, 1))], axis=2), axis=2)
    grade = (relevance[..., None] > CUTS).sum(axis=2)
    if cell.scale == "binary":
        grade, shares = (grade >= 2).astype(int), shares.reshape(*size, 2, 2).sum(axis=3)
    query, document = (places.ravel() for places in np.indices(size))
    pairs = pd.DataFrame({"query": query, "document": document})
    columns = {f"p{value}": shares[..., value].ravel() for value in range(shares.shape[2])}
    frames = {name: pairs.assign(score=score.ravel()) for name, score in scores.items()}
    labels = pairs.assign(grade=shares.argmax(axis=2).ravel(), **columns)
    return {**frames, "labels": labels, "truth": pairs.assign(grade=grade.ravel())}
