"""Parts shared by experiments with rankers on a crowd's labels: documents, consensus labels, folds and repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._typing import Floats, Integers
from crowdrank.consensus import get_aggregator
from crowdrank.consensus._base import Aggregator
from crowdrank.evaluation.evaluate import Evaluation
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.features import Features, read_features
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.table import Judgments
from crowdrank.rankers.labels import pair_positions, read_labels
from crowdrank.simulation.world import simulate
from experiments.base import seeds_told
from experiments.dl20 import COVERED, thorough
from experiments.rankers import FOLDS, Fold, query_numbers

LABELS = 3
"""Of each document, by simulated crowds."""
TREES: Mapping[str, Any] = {
    "n_estimators": 100,
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_child_samples": 20,
    "patience": 20,
}
SMALL_TREES: Mapping[str, Any] = {
    "n_estimators": 50,
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 30,
    "truncation": 15,
}
"""For the few queries of DL20 that a fold learns from."""


@dataclass(eq=False, kw_only=True)
class CrowdLabels:
    """Documents with features, the judgments of some of them that may be seen, and what consensus models make of them.

    The experts' grades (`features.grade`) are for the test, and for whom an experiment allows them.
    """

    features: Features
    judgments: Judgments
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of consensus models, by name
    models: dict[str, Aggregator] = field(default_factory=dict)

    def model(self, method: str) -> Aggregator:
        """The consensus of the judgments by a method, fitted once."""
        if method not in self.models:
            self.models[method] = get_aggregator(method, **self.options.get(method, {})).fit(self.judgments)
        return self.models[method]

    def labels(self, method: str, target: str) -> Floats:
        """A consensus as labels of all rows, blank where nothing may be known: (n,) or (n, n_grades)."""
        labels = read_labels(self.model(method))
        return self.spread(labels.query, labels.document, labels.target(target))

    def spread(self, query: pa.Array, document: pa.Array, values: Floats) -> Floats:
        """Values of pairs of ids as values of the rows, blank where there is none."""
        place = pair_positions(query, document, self.features.query, self.features.document, "the labels")
        found = np.full((len(place), *values.shape[1:]), np.nan)
        found[place >= 0] = values[place[place >= 0]]
        return found


def judgments_of(judgments: Judgments, features: Features, rows: Integers) -> Judgments:
    """The judgments of some rows' documents."""
    at = pa.array(rows)
    seen = judgments.positions(features.query.take(at), features.document.take(at))
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    return judgments.where(np.isin(item, seen))


def crowd_over(features: Features, seed: int, **settings: Any) -> Judgments:
    """A simulated crowd's judgments of documents; none are planted unless said."""
    crowd = {"labels": LABELS, "honeypots": 0, **settings}
    return read_judgments(simulate(source=features, **crowd, random_state=seed).judgments)


def crowd_told(seeds: Sequence[int]) -> str:
    """What a simulated crowd is, for a sentence."""
    return (
        f"{seeds_told(seeds)}; 60 assessors, of whom 15% do not look and 3% turn the scale round; noise 1, no families"
    )


def trees_told(settings: Mapping[str, Any]) -> list[str]:
    """The settings of the trees in a sentence."""
    return [f"Trees: {', '.join(f'{name} {value:g}' for name, value in settings.items())}."]


def generated_documents(sizes: Mapping[str, Any]) -> Features:
    """Documents of a generated world with their grades."""
    world = simulate(**sizes, labels=1, honeypots=0)
    return read_features(world.features.assign(grade=world.documents["grade"]))


def dl20_documents() -> tuple[Features, Judgments]:
    """DL20's passages over the scores of retrieval systems, from 0 to 1 within a query, and the thorough judges."""
    data = dataset("trec-dl20")
    judges = thorough(data.read_judgments(), COVERED)
    found = read_features(data.path("judged_features.tsv.gz"), columns="grade=nist_grade")
    features = found.take(np.flatnonzero(judges.positions(found.query, found.document) >= 0))
    return replace(features, matrix=within_query(features.matrix, query_numbers(features))), judges


def query_parts(query: Integers, seed: int) -> Integers:
    """The part of each row, from 0 to 4: queries dealt by chance.

    >>> sorted(set(query_parts(np.arange(10), seed=0).tolist()))
    [0, 1, 2, 3, 4]
    """
    part: Integers = (np.random.default_rng(seed).permutation(query.max() + 1) % FOLDS)[query]
    return part


def query_folds(query: Integers, seed: int) -> list[Fold]:
    """Folds by query without validation queries.

    >>> parts = query_folds(np.arange(10) // 2, seed=0)
    >>> sorted(np.concatenate([part.test for part in parts]).tolist()) == list(range(10))
    True
    """
    part, nothing = query_parts(query, seed), np.array([], np.int64)
    return [Fold(np.flatnonzero(part != number), nothing, np.flatnonzero(part == number)) for number in range(FOLDS)]


def within_query(matrix: Floats, query: Integers) -> Floats:
    """Every feature from 0, the lowest of the query, to 1, the highest; blanks stay.

    >>> within_query(np.array([[1.0], [np.nan], [3.0], [7.0]]), np.array([0, 0, 0, 1])).ravel().tolist()
    [0.0, nan, 1.0, 0.0]
    """
    groups = pd.DataFrame(matrix).groupby(query)
    low, high = (np.asarray(groups.transform(end)) for end in ("min", "max"))
    scaled = np.divide(matrix - low, high - low, out=np.zeros_like(matrix), where=high > low)
    return np.where(np.isnan(matrix), np.nan, scaled)


def over_repeats(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The mean of each query's values over repeats."""
    first = evaluations[0]
    table, means = first.per_query, {}
    for measure in first.means:
        values = np.mean([one.values(measure) for one in evaluations], axis=0)
        table = table.set_column(table.column_names.index(measure), measure, pa.array(values))
        means[measure] = float(np.nanmean(values))
    return replace(first, per_query=table, means=means)
