"""Controls of learned labels: the same ranker on the labels before learning, and on pooled labels.

Pooled labels are the consensus and the expert grades together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.pipeline.candidates import (
    BY_NAME,
    Candidate,
    lambdamart,
    least_squares,
    remapped_candidate,
    tree_feature_least_squares,
)
from crowdrank.pipeline.ensembles import graded_validation
from crowdrank.pipeline.training_view import RankerFactory, TrainingView
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Ranker

WEIGHTS = (0.0, 1.0, 3.0, 10.0)
"""Weights of an expert-graded document to choose from, relative to a document with crowd labels."""
FOLDS = 3
"""Number of folds of the expert queries that choose the weight, if none are for validation."""
Train = Callable[[TrainingView, Integers, Floats, Floats], Ranker]
"""Function (view, rows, labels, weights) that trains a ranker."""


def pooled_candidate(name: str, description: str, make: RankerFactory) -> Candidate:
    """Return a ranker on Dawid-Skene's expected grades and expert grades; expert queries choose the weight of these."""
    return _candidate(name, description, lambda view, *labels: view.fit(make, *labels))


def pooled_trees_candidate(name: str, description: str) -> Candidate:
    """Return pooled least squares on features and outputs of trees, which are fitted to average labels alone."""

    def train(view: TrainingView, rows: Integers, y: Floats, weight: Floats) -> Ranker:
        base = view.fit(tree_feature_least_squares, *view.labels("average", "relevance"))
        assert isinstance(base, GLS)
        mu = base.mu_ * float(weight.sum()) / len(view.crowd)
        return base.refit(view.data.matrix(rows), y, query=view.data.query[rows], sample_weight=weight, mu=mu)

    return _candidate(name, description, train)


def _candidate(name: str, description: str, train: Train) -> Candidate:
    def fit(view: TrainingView) -> Ranker:
        weight = _rotated_weight(view, train) if view.validation_queries is None else _validated_weight(view, train)
        return train(view, *pooled_labels(view, weight))

    return Candidate(name, description, fit, ("dawid-skene",), experts=True)


def pooled_labels(view: TrainingView, expert_weight: float) -> tuple[Integers, Floats, Floats]:
    """Return rows, labels and weights: the consensus on the experts' scale, then the expert grades.

    A document with both is there twice.
    """
    assert view.data.gold is not None
    experts = view.experts if expert_weight > 0 else view.experts[:0]
    scale, highest = np.array(view.data.labels.main_scale.values, np.float64), float(view.data.gold.scale.values[-1])
    expected = view.fits.labels("dawid-skene", "expected-grade")[view.crowd]
    on_expert_scale = highest * (expected - scale[0]) / (scale[-1] - scale[0])
    weight = np.repeat([1.0, expert_weight], [len(view.crowd), len(experts)])
    rows = np.concatenate([view.crowd, experts])
    return rows, np.concatenate([on_expert_scale, view.data.expert[experts]]), weight


def _validated_weight(view: TrainingView, train: Train) -> float:
    """Return the weight whose ranker is best on the validation queries."""
    assert view.validation_queries is not None
    rows = view.data.graded_rows(view.validation_queries)
    validation = _validation(view, rows)
    return max(WEIGHTS, key=lambda weight: validation(_scores(view, rows, train, weight)))


def _rotated_weight(view: TrainingView, train: Train) -> float:
    """Return the weight whose rankers are best on the folds of expert queries that they have not seen."""
    queries = np.unique(view.data.query[view.experts])
    fold = np.random.default_rng(view.settings.random_state).permutation(len(queries)) % FOLDS
    fold_of_row = fold[np.searchsorted(queries, view.data.query[view.experts])]
    validation = _validation(view, view.experts)

    def measure(weight: float) -> float:
        score = np.empty(len(view.experts))
        for number in np.unique(fold):
            held_out = fold_of_row == number
            others = replace(view, experts=view.experts[~held_out])
            score[held_out] = _scores(others, view.experts[held_out], train, weight)
        return validation(score)

    return max(WEIGHTS, key=measure)


def _scores(view: TrainingView, rows: Integers, train: Train, weight: float) -> Floats:
    ranker = train(view, *pooled_labels(view, weight))
    return ranker.predict(view.data.matrix(rows), view.data.query[rows])


def _validation(view: TrainingView, rows: Integers) -> Validation:
    return graded_validation(view.data.query[rows], view.data.expert[rows], view.settings.measure, view.settings.gains)


LEARNED: Mapping[str, str] = {
    "linear-gls": "pooled-gls",
    "boosted-gls": "pooled-gls",
    "remap-trees": "pooled-trees",
    "linear-remap": "pooled-mart",
    "boosted-remap": "pooled-mart",
}
"""Candidates of `run` on learned labels, and the same ranker on pooled labels."""
POOLED = (
    pooled_candidate("pooled-gls", "least squares on expected grades and expert grades", least_squares),
    pooled_trees_candidate("pooled-trees", "least squares on the same, with outputs of trees as features"),
    pooled_candidate("pooled-mart", "LambdaMART on expected grades and expert grades", lambdamart),
)


def pooled_weights() -> str:
    """Return the weights of pooled expert grades to choose from, as text."""
    return ", ".join(f"{weight:g}" for weight in WEIGHTS)


def start_name(name: str) -> str:
    """Return the name of a run before learning."""
    return f"{name}, start"


def start_candidate(name: str) -> Candidate:
    """Return the ranker of a candidate on learned labels, trained on the labels before the first step."""
    learned = BY_NAME[name]
    assert learned.remapper is not None
    make = lambdamart if LEARNED[name] == "pooled-mart" else None
    parameters = {**learned.remapper_parameters, "n_iter": 0}
    return remapped_candidate(
        start_name(name), f"{learned.description}, before learning", learned.remapper, make, parameters
    )


CONTROLS = (*map(start_candidate, LEARNED), *POOLED)


def describe_controls() -> list[str]:
    """Return sentences about the controls and about the development of the remappers."""
    return [
        "'NAME, start' is the ranker of NAME on the labels before learning, with the ridge and the number of trees "
        "that the same expert queries choose.",
        "pooled-gls, pooled-trees (with outputs of trees as features) and pooled-mart (LambdaMART) are the same "
        "rankers on Dawid-Skene's expected grades with the expert grades appended; "
        f"{FOLDS} folds of the expert queries choose the weight of these ({pooled_weights()}).",
    ]
