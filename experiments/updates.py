"""Updates: how far a model that judgments were added to is from a model fitted to all of them.

A model is fitted to a part of the judgments, and the rest is added. The parts are 2 to 99.5% of the judgments, the
judgments of half of the assessors, of a fifth of the documents, and of the lower grades; or the judgments arrive in
batches of 1%. The figure is the share of documents whose expected grade is within 0.05 of that of a full fit, the
lowest of the simulated crowds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd

from crowdrank import get_aggregator, read_judgments
from crowdrank._typing import Booleans, Floats
from crowdrank.consensus.model import Aggregator
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.robustness import Goal

SEEDS = range(5000, 5003)
"""Random states that were not used while the limits of updates were chosen."""
METHODS = ("dawid-skene", "one-coin", "threshold-dawid-skene", "glad", "bwa")
SHARES = (0.02, 0.1, 0.5, 0.9, 0.98, 0.995)
"""Shares of the judgments that a model is fitted to first."""
N_GRADES, N_BATCHES = 5, 5
"""Number of grades of a simulated crowd, and number of batches of 1%."""
MAX_DISTANCE = 0.05
"""Maximum distance of two expected grades that count as the same."""


def draw_crowd(seed: int, n_documents: int = 300, n_assessors: int = 40) -> pd.DataFrame:
    """Return judgments of a crowd whose assessors differ in accuracy; one of seven answers mostly wrong.

    >>> draw_crowd(0).shape
    (1800, 4)
    """
    rng = np.random.default_rng(seed)
    truth = rng.choice(N_GRADES, n_documents, p=(0.4, 0.25, 0.15, 0.12, 0.08))
    accuracy = np.where(rng.random(n_assessors) < 1 / 7, 0.2, rng.beta(5, 2, n_assessors))
    document = np.repeat(np.arange(n_documents), 6)
    assessor = rng.permuted(np.tile(np.arange(n_assessors), (n_documents, 1)), axis=1)[:, :6].ravel()
    step = rng.choice((-2, -1, 1, 2), len(document), p=(0.1, 0.4, 0.4, 0.1))
    right = rng.random(len(document)) < accuracy[assessor]
    grade = np.where(right, truth[document], np.clip(truth[document] + step, 0, N_GRADES - 1))
    return pd.DataFrame({"query": document // 12, "document": document, "assessor": assessor, "grade": grade})


def growth_worlds(
    n: int, document: Floats, assessor: Floats, grade: Floats, seed: int
) -> Iterator[tuple[str, Booleans]]:
    """Yield the name of each world, and which judgments a model is fitted to first."""
    order = np.random.default_rng(seed).permutation(n) / n
    yield from ((f"{share:.1%} at first", order < share) for share in SHARES)
    yield "new assessors", assessor < np.quantile(assessor, 0.5)
    yield "new documents", document < np.quantile(document, 0.2)
    yield "new grades", grade < grade.max()


def expected_grades(model: Aggregator) -> Floats:
    """Return the expected grade of each document, in steps of the scale and in the order of the documents' ids."""
    consensus = model.consensus_
    grades = sum(code * consensus.numbers(name) for code, name in enumerate(consensus.true_share_names))
    ids = consensus.document_table.select(["query", "document"]).to_pandas()
    in_order: Floats = np.asarray(grades)[ids.sort_values(["query", "document"]).index]
    return in_order


def measure_update(method: str, judgments: Judgments, batches: list[Booleans], full: Aggregator) -> float:
    """Return the share of documents near a full fit, after a fit to the first batch and updates with the others."""
    model = get_aggregator(method).fit(judgments.where(batches[0]))
    for batch in batches[1:]:
        model.add(judgments.where(batch))
    return float(np.mean(np.abs(expected_grades(model) - expected_grades(full)) <= MAX_DISTANCE))


def measure_growth(method: str, judgments: Judgments, seed: int) -> dict[str, float]:
    """Return the figure of each world."""
    document = judgments.item.astype(np.float64)
    drawn = growth_worlds(
        len(judgments), document, judgments.assessor.astype(float), judgments.grade.astype(float), seed
    )
    order = np.random.default_rng(seed).permutation(len(judgments)) / len(judgments)
    batch = np.minimum(((1 - order) * 100).astype(int), N_BATCHES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full = get_aggregator(method).fit(judgments)
        figures = {name: measure_update(method, judgments, [first, ~first], full) for name, first in drawn}
        in_batches = [batch == at for at in range(N_BATCHES, -1, -1)]
        figures["batches of 1%"] = measure_update(method, judgments, in_batches, full)
    return figures


def goals() -> list[Goal]:
    """Return the lowest figure of the simulated crowds, and the figure on TREC RF10, of each model and world."""
    rows = []
    for method in METHODS:
        crowds = [read_judgments(draw_crowd(seed), grades=f"0-{N_GRADES - 1}") for seed in SEEDS]
        simulated = [measure_growth(method, crowd, seed) for crowd, seed in zip(crowds, SEEDS, strict=True)]
        for name in simulated[0]:
            rows.append(Goal(f"{method}, {name}", min(one[name] for one in simulated), at_least=0.95))
        for name, figure in measure_growth(method, dataset("trec-rf10").read_judgments(), SEEDS[0]).items():
            rows.append(Goal(f"RF10, {method}, {name}", figure, at_least=0.95))
    return rows
