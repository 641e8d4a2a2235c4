"""Binary expert grades of half of the documents of a five-grade crowd: whether they help or harm."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdrank.consensus import get_aggregator
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.readers.read import read_gold
from crowdrank.simulation.world import simulate
from experiments.base import UNJUDGED, Experiment, Row, Table, Tell, averaged, quiet, ranking, seeds_text

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("dawid-skene", "glad", "bwa", "rasch", "gda", "gda-pairwise")
MEASURES = ("nDCG@10", "Tau", "AP(rel=2)")
MAP = "0=0-1,1=2-4"
GOOD = 2
SEEDS = (7, 8, 9)


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Compare fits without expert grades, with five grades, and with binary grades, by method."""
    rows: list[Row] = []
    for method in methods or METHODS:
        draws = [_figures(method, seed, tell) for seed in seeds]
        rows += [{"method": method, **row} for row in averaged(draws)]
    notes = (
        f"simulate(queries=60, documents=15, labels=5, assessors=60) with {seeds_text(seeds)}; means over the seeds.",
        f"Experts graded a random half of the documents; binary: grades {GOOD} and higher are 1 (gold_map {MAP}).",
        "'no map' lets the model place the binary grades on its own line; models of classes need the map.",
        "Measured on all documents, with gold on five grades; one configuration each.",
    )
    return Experiment(
        "expert-scale", (Table("expert-scale", "Experts with a scale of their own", tuple(rows), notes),), ()
    )


def _figures(method: str, seed: int, tell: Tell) -> dict[str, dict[str, float]]:
    world = simulate(queries=60, documents=15, labels=5, assessors=60, honeypots=0, random_state=seed)
    half = world.gold.sample(frac=0.5, random_state=0)[["query", "document", "grade"]]
    binary = half.assign(grade=(half["grade"] >= GOOD).astype(int))
    given = {
        "none": None,
        "five grades": read_gold(half, grades="0-4"),
        "binary": read_gold(binary, grades="0,1", map=MAP),
        "binary, no map": read_gold(binary, grades="0,1"),
    }
    if "scales" not in get_aggregator(method).takes:
        del given["binary, no map"]
    means = {}
    for name, gold in given.items():
        tell(f"{method}, expert grades: {name}, seed {seed}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = get_aggregator(method).fit(world.judgments, gold)
        means[name] = _means(ranking(model), world.gold)
    return means


def _means(run: pd.DataFrame, gold: pd.DataFrame) -> dict[str, float]:
    return evaluate(run, gold, list(MEASURES), unjudged=UNJUDGED).means
