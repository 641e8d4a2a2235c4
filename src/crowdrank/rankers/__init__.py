"""Rankers, one file per kind: they learn scores from features and labels; `ranker.py` has their contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from crowdrank._estimator import load_estimator_class, unknown_name_error

if TYPE_CHECKING:
    from crowdrank.rankers.ranker import Ranker

RANKERS = {
    "lambdamart": "lambdamart.LambdaMART",
    "pointwise-gbdt": "boosting.PointwiseGBDT",
    "gls": "linear.GLS",
    "tree-features": "linear.TreeFeatureGLS",
    "rd": "linear.RD",
    "gda-pairwise-mart": "gda_mart.GDAPairwiseMART",
    "lambdarank-net": "network.LambdaRankNet",
    "ensemble": "ensemble.Ensemble",
    "single-feature": "single_feature.SingleFeature",
}
"""Location of each ranker by its name on the command line; modules are loaded when needed."""

InstanceKind = Literal[
    "single", "overlap", "per-judge-lists", "per-assessor-lists", "majority", "highest", "average", "weighted"
]
"""How judgments become training instances; see :meth:`crowdrank.rankers.training_labels.Instances.from_judgments`."""


def get_ranker(name: str, **parameters: Any) -> Ranker:
    """Return a ranker by its name on the command line.

    Args:
        name: a name such as `lambdamart` or `gls`.
        parameters: parameters of the ranker.

    Raises:
        UsageError: there is no such ranker, or it has no such parameter.

    >>> get_ranker("gls", mu=10.0)
    GLS(mu=10.0)

    """
    if name not in RANKERS:
        raise unknown_name_error("ranker", name, RANKERS)
    ranker: Ranker = load_estimator_class("rankers", RANKERS[name])().set_params(**parameters)
    return ranker
