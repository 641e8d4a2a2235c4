"""Looking at a comparison while expert grades arrive: false alarms, power, and grades that are saved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import ndtr

from crowdrank._typing import Floats
from crowdrank.errors import UsageError
from crowdrank.estimation.by_query import ByQueryEstimator
from crowdrank.estimation.group_sequential import lan_demets_bounds, obrien_fleming_bounds
from crowdrank.estimation.watching import answer
from experiments.base import SEEDS, Experiment, Row, Table, Tell, quiet, seeds_text

LOOKS = (1, 2, 3, 5, 10)
N_EXPERT, N_QUERIES = 60, 200
"""Number of expert queries at the last look, and of queries with labels."""
N_WORLDS = 200
"""Number of simulated comparisons per world and seed."""
ALPHA = 0.05
DIFFERENCE = np.array([-1.0, 1.0])
WORLDS = {"no difference": 0.0, "no difference, skewed": 0.0, "difference": 0.35}
"""Mean difference of each world, in standard deviations of the difference of a query."""
MARGIN = 0.4
"""Difference that does not matter, in standard deviations."""


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return false alarms, power and expected grades by the number of looks."""
    if methods is not None:
        raise UsageError("The experiment looks has no methods to select.")
    rows: list[Row] = []
    for world in WORLDS:
        for n_looks in LOOKS:
            tell(f"{n_looks} looks, {world}")
            numbers = [(seed, number) for seed in seeds for number in range(N_WORLDS)]
            means = np.mean([simulate_looks(world, n_looks, *one) for one in numbers], axis=0)
            rows.append(
                {
                    "run": f"{n_looks} looks, {world}",
                    "looks": n_looks,
                    "peeking": float(means[0]),
                    "O'Brien-Fleming": float(means[1]),
                    "Lan-DeMets": float(means[2]),
                    "not different": float(means[3]),
                    "expected grades": float(means[4]),
                }
            )
    notes = (
        f"Share of {N_WORLDS * len(seeds):,} simulated comparisons ({seeds_text(seeds)}) in which any look finds the "
        "systems different: with a 95% interval at each look (peeking), and with the bounds of `estimate --looks`. "
        f"Without a difference, this is the type I error, wanted: {ALPHA:g}.",
        f"Experts grade {N_EXPERT} of {N_QUERIES} queries up to the last look, in equal steps; estimates are by query "
        "with labels that correlate .7 with the experts. Values of a query are normal, or exponential minus 1 "
        f"(skewed). In the last world the difference is {WORLDS['difference']:g} standard deviations.",
        f"Not different: share in which a look finds the difference below {MARGIN:g} standard deviations. Expected "
        "grades: mean number of expert queries when O'Brien-Fleming bounds give an answer or the last look is over, as "
        "a share of the fixed design (one look, all queries).",
    )
    return Experiment("looks", (Table("looks", "Looks while grades arrive", tuple(rows), notes),), ())


def simulate_looks(world: str, n_looks: int, seed: int, number: int) -> list[float]:
    """Return for one comparison whether any look finds a difference by each rule, and the share of grades used."""
    labels, experts = _draw_values(world, np.random.default_rng([seed, number]))
    fractions = np.arange(1, n_looks + 1) / n_looks
    bounds, spending = _bounds(n_looks)
    found, is_equal, used = np.zeros(3, np.bool_), False, 0.0
    for look in range(n_looks):
        is_expert = np.arange(N_QUERIES) < round(N_EXPERT * fractions[look])
        estimator = ByQueryEstimator.of_differences(labels, experts, is_expert)
        estimate = estimator.estimate(DIFFERENCE, float(1 - 2 * ndtr(-bounds[look])))
        found |= estimate.p <= np.array([ALPHA, 2 * ndtr(-bounds[look]), 2 * ndtr(-spending[look])])
        if used:
            continue
        p = 0.0 if found[1] else 1.0
        kind = answer("new", estimate, p, alpha=ALPHA, margin=MARGIN, is_last=look == n_looks - 1).kind
        is_equal = kind == "not-different"
        if kind != "go-on" or look == n_looks - 1:
            used = float(fractions[look])
    return [*found.astype(float).tolist(), float(is_equal), used]


@cache
def _bounds(n_looks: int) -> tuple[Floats, Floats]:
    """Return the bounds of O'Brien and Fleming and those of Lan and DeMets."""
    return obrien_fleming_bounds(n_looks, ALPHA), lan_demets_bounds(np.arange(1, n_looks + 1) / n_looks, ALPHA)


def _draw_values(world: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the differences of the queries by the labels and by the experts, (n_queries,) each."""
    if world == "no difference, skewed":
        truth = rng.exponential(size=N_QUERIES) - 1
    else:
        truth = rng.normal(WORLDS[world], 1.0, N_QUERIES)
    return 0.2 + truth + rng.normal(0, 1.0, N_QUERIES), truth
