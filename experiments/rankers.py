"""Rankers on given labels: ours, LightGBM's and XGBoost's with the same parameters on MQ2008."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdrank import Features, read_judgments
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.pipeline.candidates import (
    Candidate,
    expert_candidate,
    lambdamart,
    least_squares,
    pointwise_trees,
    tree_feature_least_squares,
)
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.linear import RD
from crowdrank.rankers.network import LambdaRankNet
from crowdrank.rankers.ranker import Ranker
from experiments.base import Experiment, Table, Tell, describe_difference, quiet, testing_protocol
from experiments.documents import mq2008, run_frame
from experiments.driver import Setting, compare_rankings, rotate_parts, select, train_candidates

MEASURES = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "AP")
MAIN = "nDCG@10"
BASELINE = "lightgbm"
PEERS = ("lightgbm", "xgboost")
OURS = "lambdamart"
"""Ranker that is compared with the peers: the same trees with our own gradients."""
TREES: Mapping[str, Any] = {"n_estimators": 100, "learning_rate": 0.1, "num_leaves": 31, "min_child_samples": 20}
PATIENCE = 50
TRUNCATION = 30


def experiment(methods: Sequence[str] | None = None, *, tell: Tell = quiet) -> Experiment:
    """Compare rankers on MQ2008: all of them, or those in `methods`."""
    candidates = select(CANDIDATES, methods)
    features, part = mq2008()
    table = given_labels(given_setting(features, part), candidates, tell=tell)
    return Experiment("rankers", (table,), tuple(_protocol(features, table)))


def _protocol(features: Features, table: Table) -> list[str]:
    parameters = ", ".join(f"{name} {value:g}" for name, value in TREES.items())
    return [
        f"Data: LETOR 4.0 MQ2008, {counted(len(features.query), 'document')} of "
        f"{counted(len(features.query.unique()), 'query')}, {counted(len(features.names), 'feature')}, grades 0-2.",
        "LETOR's five folds: fold k is trained on parts k, k+1 and k+2, validated on part k+3 and tested on part k+4; "
        "the test parts of all folds are evaluated together.",
        f"All boosted trees, ours and the peers', have the same parameters ({parameters}, truncation {TRUNCATION}) and "
        f"stop after {PATIENCE} iterations without a better {MAIN} of the validation part. The peers use their nDCG "
        "for this, which breaks ties differently.",
        "lightgbm is LightGBM's lambdarank; xgboost is XGBoost's rank:ndcg with lossguide trees of as many leaves. "
        "XGBoost has no minimum number of documents per leaf; its minimum Hessian and L2 penalty are its defaults.",
        "pointwise-gbdt is a regression by boosted trees, and rd-gbdt the same reweighted by deviations.",
        "gls and rd are linear; the validation part selects their ridge and RD's delta on grids that extend themselves "
        "if the best value is at an end. tree-features is gls on features and the outputs of 0, 100, 200 or 300 "
        "pointwise trees of 8 leaves; the validation part selects the number together with the ridge.",
        "ensemble is lambdamart and gls with weights selected on the validation part.",
        "gda-pairwise-mart needs judgments of several assessors; see crowd-rankers.",
        "Every ranker was trained once with one configuration (seed 0); nothing was tuned on the test parts.",
        "A document is relevant in AP if its grade is at least 1.",
        *testing_protocol(table),
    ]


def given_setting(features: Features, part: Integers) -> Setting:
    """Return the setting whose labels are the grades of the features, as if they were expert grades."""
    judgments = read_judgments(run_frame(features, features.grade, "grade").assign(assessor="given"))
    trees = {**TREES, "patience": PATIENCE, "truncation": TRUNCATION}
    folds = rotate_parts(part, crowd=(0, 1, 2, 3), experts=(0, 1, 2, 3))
    settings = RunSettings(measure=MAIN, trees=trees)
    return Setting("mq2008", "MQ2008, five folds", features, (judgments,), (folds,), MEASURES, settings)


def given_labels(setting: Setting, candidates: Sequence[Candidate], *, tell: Tell = quiet) -> Table:
    """Return the table of all rankers, with paired tests and a comparison of our LambdaMART with the peers."""
    table = compare_rankings(setting, train_candidates(setting, candidates, tell=tell), BASELINE)
    sentences = [one for peer in PEERS for one in describe_difference(table.comparison, OURS, peer, MAIN)]
    return replace(table, notes=(*table.notes, *sentences))


# Rankers.


def reweighted_regression(view: TrainingView, n_rows: int, has_validation: bool) -> Ranker:
    """Return unfitted RD on least squares."""
    return RD(least_squares(view, n_rows, has_validation), validate_by=view.settings.measure)


def tree_ensemble(view: TrainingView, n_rows: int, has_validation: bool) -> Ranker:
    """Return an unfitted ensemble of LambdaMART and least squares."""
    members = [lambdamart(view, n_rows, has_validation), least_squares(view, n_rows, has_validation)]
    return Ensemble(members, validate_by=view.settings.measure)


# Peers.


@dataclass(frozen=True)
class Peer:
    """Trained model of another library."""

    score: Callable[[Any], Any]

    def predict(self, X: Any, query: Any) -> Floats:
        """Return the scores of documents."""
        return np.asarray(self.score(X.matrix), dtype=np.float64)


def _parts(view: TrainingView) -> list[tuple[Floats, Floats, Integers]]:
    """Return features, grades and queries for training and for validation."""
    assert view.validation_queries is not None
    is_validation = np.isin(view.data.query[view.experts], view.validation_queries)
    rows = (view.experts[~is_validation], view.experts[is_validation])
    return [(view.data.features.matrix[one], view.data.expert[one], view.data.query[one]) for one in rows]


def fit_lightgbm(view: TrainingView) -> Any:
    """Train LightGBM's lambdarank."""
    import lightgbm as lgb

    settings = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "lambdarank_truncation_level": TRUNCATION,
        "learning_rate": TREES["learning_rate"],
        "num_leaves": TREES["num_leaves"],
        "min_data_in_leaf": TREES["min_child_samples"],
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "seed": 0,
        "verbosity": -1,
    }
    (X, y, query), (X_held_out, y_held_out, query_held_out) = _parts(view)
    data = lgb.Dataset(X, y, group=_list_sizes(query), params={"verbosity": -1})
    held_out = lgb.Dataset(X_held_out, y_held_out, group=_list_sizes(query_held_out), reference=data)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    booster = lgb.train(settings, data, TREES["n_estimators"], valid_sets=[held_out], callbacks=[stop])
    return Peer(lambda matrix: booster.predict(matrix, num_iteration=booster.best_iteration, num_threads=1))


def _list_sizes(query: Integers) -> Integers:
    """Return the number of documents of each query."""
    return np.unique(query, return_counts=True)[1]


def fit_xgboost(view: TrainingView) -> Any:
    """Train XGBoost's rank:ndcg; raise UsageError if it is not installed."""
    try:
        import xgboost as xgb
    except ImportError as problem:
        raise UsageError("XGBoost is not installed; pip install xgboost-cpu adds it to this experiment.") from problem
    settings = {
        "objective": "rank:ndcg",
        "eval_metric": "ndcg@10",
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": TRUNCATION,
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": TREES["num_leaves"],
        "eta": TREES["learning_rate"],
        "nthread": 1,
        "seed": 0,
    }
    data, held_out = (xgb.DMatrix(X, y, qid=query) for X, y, query in _parts(view))
    booster = xgb.train(
        settings,
        data,
        TREES["n_estimators"],
        evals=[(held_out, "validate")],
        early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    )
    best = (0, booster.best_iteration + 1)
    return Peer(lambda matrix: booster.predict(xgb.DMatrix(matrix), iteration_range=best))


CANDIDATES = (
    Candidate("lightgbm", "LightGBM's lambdarank", fit_lightgbm),
    Candidate("xgboost", "XGBoost's rank:ndcg", fit_xgboost),
    expert_candidate("lambdamart", "LambdaMART"),
    expert_candidate("pointwise-gbdt", "pointwise regression trees", pointwise_trees),
    expert_candidate("gls", "least squares", least_squares),
    expert_candidate("rd", "reweighting by deviations", reweighted_regression),
    expert_candidate("rd-gbdt", "pointwise trees reweighted by deviations", lambda *of: RD(pointwise_trees(*of))),
    expert_candidate("lambdarank-net", "LambdaRank network", lambda *_: LambdaRankNet()),
    expert_candidate("ensemble", "LambdaMART and least squares", tree_ensemble),
    expert_candidate("tree-features", "least squares on outputs of trees", tree_feature_least_squares),
)
