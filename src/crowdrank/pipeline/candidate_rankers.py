"""Unfitted rankers of candidates, with parameters that depend on the settings of a run and on the size of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crowdrank.consensus.gda_pairwise import GDAPairwise
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.gda_mart import GDAPairwiseMART
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.single_feature import SingleFeature

TREES: Mapping[str, Any] = {"n_estimators": 200, "learning_rate": 0.1, "patience": 20}
"""Parameters of LambdaMART with validation queries."""
SMALL_TREES: Mapping[str, Any] = {
    "n_estimators": 50,
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 30,
    "truncation": 15,
}
"""Parameters of LambdaMART without validation queries."""
RIDGES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Ridges that least squares chooses from, as multiples of the number of rows."""
RIDGE = 0.03
"""Ridge of least squares without validation queries, as a multiple of the number of rows."""
TREE_FEATURES = 200
"""Number of trees among the features of least squares without validation queries, within REMAP's best range."""


def lambdamart(view: TrainingView, n_rows: int, has_validation: bool) -> LambdaMART:
    """Return an unfitted LambdaMART."""
    return LambdaMART(**tree_parameters(view, n_rows, has_validation))


def soft_lambdamart(view: TrainingView, n_rows: int, has_validation: bool) -> LambdaMART:
    """Return an unfitted LambdaMART whose pair targets are probabilities."""
    return lambdamart(view, n_rows, has_validation).set_params(pair_targets="posterior")


def tree_parameters(view: TrainingView, n_rows: int, has_validation: bool) -> dict[str, Any]:
    """Return the parameters of boosted trees for a number of rows."""
    small = {**SMALL_TREES, "min_child_samples": max(1, min(30, n_rows // 20))}
    settings = view.settings
    return {
        "gains": settings.gains,
        "validate_by": settings.measure,
        **(TREES if has_validation else small),
        **settings.trees,
        "n_jobs": view.n_jobs,
        "random_state": settings.random_state,
    }


def least_squares(view: TrainingView, n_rows: int, has_validation: bool) -> GLS:
    """Return unfitted least squares; validation queries, if there are any, choose the ridge."""
    ridge = tuple(multiple * n_rows for multiple in RIDGES) if has_validation else RIDGE * n_rows
    return GLS(ridge, gains=view.settings.gains, validate_by=view.settings.measure)


def tree_feature_least_squares(view: TrainingView, n_rows: int, has_validation: bool) -> GLS:
    """Return unfitted least squares on features and outputs of trees (REMAP 5.2).

    Validation queries, if there are any, choose the ridge and the number of trees.
    """
    ranker = least_squares(view, n_rows, has_validation)
    return ranker.set_params(
        tree_features="auto" if has_validation else TREE_FEATURES,
        n_jobs=view.n_jobs,
        random_state=view.settings.random_state,
    )


def single_feature(view: TrainingView, n_rows: int, has_validation: bool) -> SingleFeature:
    """Return an unfitted ranker by the best feature."""
    return SingleFeature(validate_by=view.settings.measure, gains=view.settings.gains)


def gda_pairwise_mart(view: TrainingView, n_rows: int, has_validation: bool) -> GDAPairwiseMART:
    """Return an unfitted GDA-PW-MART with the assessors of the pairwise consensus model."""
    model = view.fits.model("gda-pairwise")
    assert isinstance(model, GDAPairwise)
    return GDAPairwiseMART(model, **tree_parameters(view, n_rows, has_validation))
