"""The gate for pull requests on the systems of DL20: false alarms and misses by number of expert grades."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.estimation.by_query import ByQueryEstimator, ContrastEstimate, sample_mean, widen_if_sparse
from crowdrank.estimation.gate import decide
from experiments.base import SEEDS, Experiment, Row, Table, Tell, quiet, seeds_text
from experiments.estimate import LEVEL, MEASURE, Systems, load_dl20_systems, values_by_document

BUDGETS = (50, 100, 300, 1000)
"""Numbers of expert grades."""
MARGIN = 0.005
"""Largest loss that is acceptable: the default of `crowdrank gate`."""
CLOSE = 0.03
"""Largest difference of two systems that are called close."""
N_PAIRS, N_DRAWS, N_QUERIES = 30, 15, 300
"""Number of pairs of systems of each kind, of draws per pair and seed, and of queries with labels."""
UNITS = ("query", "document")
KINDS = ("any", "close")
"""Kinds of pairs of systems."""


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return the decisions of the gate by unit and number of expert grades."""
    if methods is not None:
        raise UsageError("The experiment gate has no methods to select.")
    tell("gda on DL20")
    systems, n_judges = load_dl20_systems()
    pairs = {kind: draw_pairs(systems, kind, np.random.default_rng(seeds[0])) for kind in KINDS}
    rows: list[Row] = []
    for unit, kind, budget in product(UNITS, KINDS, BUDGETS):
        run = f"{budget} grades by {unit}, {kind} pairs"
        tell(run)
        found = np.concatenate([_decisions(systems, pairs[kind], unit, budget, seed) for seed in seeds])
        rows.append({"run": run, **decision_shares(found, MARGIN)})
    notes = (
        f"{N_PAIRS} random pairs (live, new) of the {systems.labels.shape[1]} systems, and as many of those that "
        f"differ by at most {CLOSE:g} (close), {N_DRAWS} draws each, {seeds_text(seeds)}. A draw has {N_QUERIES} "
        "queries with labels, drawn with replacement from the "
        f"{systems.n_queries} of DL20. Experts grade the first 10 documents of both systems for as many of the queries "
        "as the number of grades allows, or as many documents drawn with known probabilities from all queries.",
        f"False alarms: share of decisions 'worse' if the new system is not worse. Misses: share of 'pass' if it is "
        f"worse by more than the margin of {MARGIN:g} {MEASURE}; at most {(1 - LEVEL) / 2:g} is wanted of both. Found "
        "and passed: share of 'worse' if it is worse by more than the margin, and of 'pass' if it is not worse. Not "
        "enough: share of decisions that there is not enough evidence.",
        "The true difference is that of all queries and grades of NIST; by document, the ideal DCG is that of the "
        "labels, in the true difference too.",
    )
    protocol = (
        "Data: TREC Deep Learning 2020 passages; the labels are the consensus (gda) of "
        f"{counted(n_judges, 'LLM judge')} without expert grades, and NIST's grades 0-3 are those of the experts. One "
        "configuration: the defaults of "
        "`crowdrank gate`; nothing was tuned on these data.",
    )
    return Experiment("gate", (Table("gate", "Decisions of the gate", tuple(rows), notes),), protocol)


def draw_pairs(systems: Systems, kind: str, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return random pairs of different systems: any, or of those whose values by the experts are close."""
    means, pairs = systems.experts.mean(axis=0), list[tuple[int, int]]()
    while len(pairs) < N_PAIRS:
        live, new = map(int, rng.choice(len(means), 2, replace=False))
        if kind == "any" or abs(means[new] - means[live]) <= CLOSE:
            pairs.append((live, new))
    return pairs


def decision_shares(found: Floats, margin: float) -> Row:
    """Return shares of decisions.

    Args:
        found: (n, 3) true difference, and whether the decision was 'pass' and 'worse'.
        margin: largest loss that is acceptable.

    >>> decision_shares(np.array([[0.1, 1, 0], [0.2, 0, 0], [-0.1, 0, 1], [-0.001, 1, 0]]), 0.005)
    {'false alarms': 0.0, 'misses': 0.0, 'found': 1.0, 'passed': 0.5, 'not enough': 0.25}
    """
    truth, passed, worse = found[:, 0], found[:, 1], found[:, 2]
    return {
        "false alarms": _mean(worse, truth >= 0),
        "misses": _mean(passed, truth < -margin),
        "found": _mean(worse, truth < -margin),
        "passed": _mean(passed, truth >= 0),
        "not enough": float((1 - passed - worse).mean()),
    }


def _mean(values: Floats, chosen: Booleans) -> float:
    return float(values[chosen].mean()) if chosen.any() else float("nan")


def _decisions(systems: Systems, pairs: Sequence[tuple[int, int]], unit: str, budget: int, seed: int) -> Floats:
    """Return true difference, 'pass' and 'worse' of each pair and draw, (n, 3)."""
    rng, found = np.random.default_rng([seed, budget, UNITS.index(unit)]), []
    rows_of_query = [np.flatnonzero(systems.query == query) for query in range(systems.n_queries)]
    for live, new in pairs:
        used = (systems.weight[:, [live, new]] != 0).any(axis=1)
        rows = [one[used[one]] for one in rows_of_query]
        difference = _ByQuery if unit == "query" else _ByDocument
        comparison = difference(systems, live, new, rows, budget)
        for _ in range(N_DRAWS):
            decision = decide(comparison.draw(rng), MARGIN)
            found.append([comparison.truth, float(decision == "pass"), float(decision == "worse")])
    return np.array(found)


class _ByQuery:
    """Draws of queries that experts graded, for a pair of systems."""

    def __init__(self, systems: Systems, live: int, new: int, rows: list[Integers], budget: int) -> None:
        self.labels, self.experts = (values[:, [live, new]] for values in (systems.labels, systems.experts))
        self.truth = float((self.experts[:, 1] - self.experts[:, 0]).mean())
        weight = systems.weight[:, new] - systems.weight[:, live]
        self.is_equal = np.array([not weight[one].any() for one in rows])
        self.n_expert = max(2, round(budget / float(np.mean([len(one) for one in rows]))))

    def draw(self, rng: np.random.Generator) -> ContrastEstimate:
        queries = rng.integers(0, len(self.labels), N_QUERIES)
        is_expert = np.arange(N_QUERIES) < self.n_expert
        parts = self.labels[queries], self.experts[queries], is_expert, self.is_equal[queries]
        return ByQueryEstimator(*parts).estimate(np.array([-1.0, 1.0]), LEVEL)


class _ByDocument:
    """Draws of documents that experts graded, for a pair of systems."""

    def __init__(self, systems: Systems, live: int, new: int, rows: list[Integers], budget: int) -> None:
        self.systems, self.rows, self.budget = systems, rows, budget
        self.weight = systems.weight[:, new] - systems.weight[:, live]
        self.truth = float(np.bincount(systems.query, self.weight * systems.truth, systems.n_queries).mean())
        self.is_equal = np.array([not self.weight[one].any() for one in rows])
        self.largest = float(np.abs(systems.labels[:, [live, new]]).max())

    def draw(self, rng: np.random.Generator) -> ContrastEstimate:
        queries = rng.integers(0, self.systems.n_queries, N_QUERIES)
        rows = [self.rows[query] for query in queries]
        values, slope = values_by_document(self.systems, self.weight, rows, self.budget, rng)
        mean, differs = sample_mean(values), ~self.is_equal[queries]
        estimate = mean.contrast(LEVEL, 0.0, mean, slope)
        return widen_if_sparse(estimate, values[differs], self.largest, differs, LEVEL)
