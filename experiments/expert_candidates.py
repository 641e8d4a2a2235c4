"""Candidates of the experiment `experts`: the baselines of REMAP's Table 4, learned labels, and controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.label_learning.gradient_ascent import MODES
from crowdrank.label_learning.remapped_labels import rescale_labels
from crowdrank.pipeline.candidates import (
    Candidate,
    consensus_candidate,
    expert_candidate,
    lambdamart,
    pointwise_trees,
)
from crowdrank.pipeline.training_view import RemapperKind, TrainingView
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.linear import GLS, RD
from crowdrank.rankers.ranker import Ranker
from experiments.label_controls import pooled_candidate

LABELS: Mapping[str, tuple[str, str]] = {
    "majority": ("majority", "grade"),
    "average": ("average", "relevance"),
    "dawid-skene": ("dawid-skene", "grade"),
    "glad": ("glad", "grade"),
}
"""Labels of the papers' baselines: consensus method and target."""
MARTS = tuple(LABELS)
"""LambdaMART on these labels, baselines of both papers."""
GBDTS = tuple(f"gbdt-{name}" for name in LABELS)
"""Pointwise boosted trees on these labels, baselines of REMAP."""
TREE_RD = "gbdt-rd"
"""Pointwise trees reweighted by deviations, as both papers train RD."""
CONTROLS = (
    "gls-average",
    "expected-grades",
    "family-mean",
    "expert-only",
    "ensemble",
    "pooled-gls",
    "pooled-gbdt",
    "pooled-mart",
)
REMAPPERS: Mapping[RemapperKind, Mapping[str, Any]] = {
    "linear": {
        "kind": "remap",
        "tree_features": "auto",
        "learning_rate": (0.01, 0.03, 0.1),
        "patience": 15,
        "standard_errors": 0.0,
    },
    "boosted": {
        "kind": "mgbdt",
        "tree_features": "auto",
        "learning_rate": (0.01, 0.02, 0.04),
        "depth": (2, 3, 4),
        "patience": 15,
        "standard_errors": 0.0,
    },
}
"""Parameters of remappers: each paper's label features, and the grids that validation selects from together."""
LEARNED = tuple(f"{kind}-{mode.lower()}" for kind in REMAPPERS for mode in MODES)
LINEAR = tuple(name for name in LEARNED if name.startswith("linear"))
"""REMAP's functions, baselines of MGBDT."""


def regression(view: TrainingView, n_rows: int, has_validation: bool) -> GLS:
    """Return unfitted least squares; validation selects the ridge and the number of trees among the features."""
    return GLS(
        "auto",
        tree_features="auto",
        validate_by=view.settings.measure,
        n_jobs=1,
        random_state=view.settings.random_state,
    )


def single_labels(view: TrainingView) -> tuple[Integers, Floats]:
    """Return a row for each crowd label, and the labels."""
    labels, items = view.data.labels, view.data.item[view.crowd]
    n_labels = np.diff(labels.offsets)[items]
    starts = np.repeat(labels.offsets[items] - (np.cumsum(n_labels) - n_labels), n_labels)
    values = np.array(labels.main_scale.values, np.float64)
    return np.repeat(view.crowd, n_labels), values[labels.grade[starts + np.arange(n_labels.sum())]]


def fit_reweighted(view: TrainingView) -> Ranker:
    """Train RD on single labels; validation selects delta, the ridge and the number of trees."""
    return view.fit(lambda *of: RD(regression(*of), validate_by=view.settings.measure), *single_labels(view))


def fit_reweighted_trees(view: TrainingView) -> Ranker:
    """Train RD on single labels by pointwise trees; validation selects delta."""
    return view.fit(lambda *of: RD(pointwise_trees(*of), validate_by=view.settings.measure), *single_labels(view))


def remapper_parameters(mode: str, kind: RemapperKind) -> dict[str, Any]:
    """Return the parameters of a remapper that learns weights, targets or both."""
    return {"mode": mode, **REMAPPERS[kind]}


def learned_candidate(kind: RemapperKind, mode: str) -> Candidate:
    """Return least squares on the targets and weights that a remapper learns through it."""

    def fit(view: TrainingView) -> Ranker:
        return view.remapper(kind, **remapper_parameters(mode, kind)).ranker_

    description = f"least squares on labels remapped by {kind} functions, {mode}"
    return Candidate(f"{kind}-{mode.lower()}", description, fit, ("dawid-skene", "glad"), experts=True, remapper=kind)


def transferred_candidate(kind: RemapperKind, mode: str) -> Candidate:
    """Return LambdaMART on the targets and weights that a remapper learns through least squares."""
    parameters = remapper_parameters(mode, kind)

    def fit(view: TrainingView) -> Ranker:
        return view.fit(lambdamart, view.crowd, *rescale_labels(*view.remapped_labels(kind, **parameters)))

    description = f"LambdaMART on labels remapped by {kind} functions, {mode}"
    name = f"mart-{kind}-{mode.lower()}"
    return Candidate(name, description, fit, ("dawid-skene", "glad"), experts=True, remapper=kind)


EXPERT_ONLY = expert_candidate("expert-only", "LambdaMART on expert grades alone")
EXPECTED_GRADES = consensus_candidate(
    "expected-grades", "LambdaMART on expected gains by Dawid-Skene", "dawid-skene", "probabilities"
)


def fit_ensemble(view: TrainingView) -> Ranker:
    """Train the ensemble of expert-only and expected-grades; the validation queries select the weights."""
    members = [view.ranker(EXPERT_ONLY), view.ranker(EXPECTED_GRADES)]
    assert view.validation_queries is not None
    rows = view.data.graded_rows(view.validation_queries)
    ensemble = Ensemble(members, prefit=True, validate_by=view.settings.measure)
    return ensemble.fit(view.data.matrix(rows), view.data.expert[rows], query=view.data.query[rows])


CANDIDATES = (
    *(consensus_candidate(name, f"LambdaMART on {name}", *label) for name, label in LABELS.items()),
    *(
        consensus_candidate(f"gbdt-{name}", f"pointwise trees on {name}", *label, pointwise_trees)
        for name, label in LABELS.items()
    ),
    *(
        consensus_candidate(f"gls-{name}", f"least squares on {name}", *label, regression)
        for name, label in LABELS.items()
    ),
    Candidate(TREE_RD, "pointwise trees reweighted by deviations, on single labels", fit_reweighted_trees),
    Candidate("rd", "least squares reweighted by deviations, on single labels", fit_reweighted),
    *(learned_candidate(kind, mode) for kind in REMAPPERS for mode in MODES),
    EXPECTED_GRADES,
    consensus_candidate(
        "family-mean", "LambdaMART on the mean of family means", "family-mean", "relevance", needs_families=True
    ),
    EXPERT_ONLY,
    Candidate("ensemble", "expert-only and expected-grades", fit_ensemble, ("dawid-skene",), experts=True),
    *(transferred_candidate(kind, mode) for kind in REMAPPERS for mode in MODES if "T" in mode),
    pooled_candidate("pooled-gls", "least squares on expected grades and expert grades", regression),
    pooled_candidate("pooled-gbdt", "pointwise trees on expected grades and expert grades", pointwise_trees),
    pooled_candidate("pooled-mart", "LambdaMART on expected grades and expert grades", lambdamart),
)
