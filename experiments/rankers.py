"""Rankers on given labels: ours next to LightGBM's and XGBoost's own on MQ2008, with the same settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError, UsageError, near
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.judgments import ids
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.features import Features, read_features
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS, TreeFeatureGLS
from crowdrank.rankers.network import LambdaRankNet
from crowdrank.rankers.pointwise import PointwiseGBDT
from crowdrank.rankers.reweighting import RD
from experiments.base import Experiment, Table, Tell, compared_runs, quiet, testing_protocol

MEASURES = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "AP")
MAIN = "nDCG@10"
BASELINE = "lightgbm"
PEERS = ("lightgbm", "xgboost")
OURS = "lambdamart"
"""What is held against the peers: the same trees with forces of our own."""
FOLDS = 5
TREES: Mapping[str, Any] = {"n_estimators": 100, "learning_rate": 0.1, "num_leaves": 31, "min_child_samples": 20}
PATIENCE = 50
TRUNCATION = 30
RIDGES = (1.0, 10.0, 100.0, 1000.0)
"""Of linear rankers; the validation queries choose."""
TREE_RIDGES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Of the linear ranker over trees, whose outputs are many and alike; the validation queries choose here too."""

Learn = Callable[[Features, Features, Features], Floats]
"""From training, validation and test documents, with their grades, to the scores of the test documents."""


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows to learn from, to stop by, and to test on."""

    train: Integers
    validate: Integers
    test: Integers


def experiment(methods: Sequence[str] | None = None, *, tell: Tell = quiet) -> Experiment:
    """The table on MQ2008, for the rankers named or for all."""
    chosen = named(methods, LEARNERS)
    features, part = mq2008()
    table = given_labels(chosen, features, folds(part), tell=tell)
    return Experiment("rankers", (table,), tuple(_protocol(features, table)))


def _protocol(features: Features, table: Table) -> list[str]:
    told = ", ".join(f"{name} {value:g}" for name, value in TREES.items())
    return [
        f"Data: LETOR 4.0 MQ2008, {counted(len(features.query), 'document')} of "
        f"{counted(len(features.query.unique()), 'query')}, {counted(len(features.names), 'feature')}, grades 0-2.",
        "LETOR's five folds: fold k learns from parts k, k+1 and k+2, stops by part k+3 and is tested on part k+4; the "
        "test parts of all folds together are one run.",
        f"All trees, ours and the peers', have the same settings ({told}), pairs down to rank {TRUNCATION}, and stop "
        f"after {PATIENCE} rounds without a better {MAIN} of the validation part; that is what the library does unless "
        "told otherwise. The peers stop by their own nDCG, which breaks ties otherwise.",
        "lightgbm is its lambdarank; xgboost is its rank:ndcg with lossguide trees of as many leaves. XGBoost knows no "
        "least number of documents in a leaf, and keeps its own least sum of curvatures and its own L2 penalty.",
        f"gls and rd choose their ridge of {', '.join(f'{mu:g}' for mu in RIDGES)} by the validation part; ensemble is "
        "lambdamart and gls with weights from the validation part.",
        "tree-features is gls over features and the outputs of 0, 100, 200 or 300 pointwise trees of 8 leaves; the "
        f"validation part chooses their number and the ridge, from {', '.join(f'{mu:g}' for mu in TREE_RIDGES)}. Grids "
        "of ridges extend themselves if the best value is at an end.",
        "gda-pairwise-mart explains judgments of several assessors, and here are none: see crowd-rankers.",
        "Every ranker ran once with one configuration (seed 0); nothing was tuned on the test parts.",
        "A document is relevant in AP from grade 1 up.",
        *testing_protocol(table),
    ]


def mq2008() -> tuple[Features, Integers]:
    """All documents of MQ2008, and the part (0-4) of each."""
    data = dataset("mq2008")
    parts = [read_features(data.path(name), format="letor") for name in data.files]
    return joined(parts), np.repeat(np.arange(len(parts)), [len(part.query) for part in parts])


def joined(parts: Sequence[Features]) -> Features:
    """Features of the same columns, one after the other."""
    grades = [part.grade for part in parts if part.grade is not None]
    return Features(
        pa.concat_arrays([part.query for part in parts]),
        pa.concat_arrays([part.document for part in parts]),
        np.vstack([part.matrix for part in parts]),
        parts[0].names,
        np.concatenate(grades),
    )


def folds(part: Integers) -> list[Fold]:
    """LETOR's folds: three parts to learn from, one to stop by, one to test on.

    >>> first = folds(np.array([0, 1, 2, 3, 4, 4]))[0]
    >>> first.train.tolist(), first.validate.tolist(), first.test.tolist()
    ([0, 1, 2], [3], [4, 5])
    """
    return [
        Fold(*(np.flatnonzero(np.isin(part, (np.array(numbers) + k) % FOLDS)) for numbers in ([0, 1, 2], [3], [4])))
        for k in range(FOLDS)
    ]


def named(methods: Sequence[str] | None, known: Mapping[str, Any], what: str = "ranker") -> list[str]:
    """The runs to make (or the data sets to take): those named, or all that an experiment knows.

    >>> named(["b"], {"a": 1, "b": 2})
    ['b']
    """
    if methods is None:
        return list(known)
    if not methods:
        raise UsageError(f"There is no {what} to run; name some of: {', '.join(known)}.")
    for method in methods:
        if method not in known:
            meant, listed = near(method, known), ", ".join(known)
            raise UsageError(f"There is no {what} '{method}' in this experiment{meant}; it has: {listed}.")
    return list(dict.fromkeys(methods))


def given_labels(chosen: Sequence[str], features: Features, splits: Sequence[Fold], *, tell: Tell = quiet) -> Table:
    """Every ranker over all folds on the grades that the features come with, with paired tests."""
    runs, notes, problem = {}, [], ""
    for name in chosen:
        tell(f"{name} on MQ2008")
        try:
            runs[name] = run_frame(features, across(LEARNERS[name], features, splits))
        except UsageError as refusal:  # what it needs is not installed
            problem = str(refusal)
            notes.append(f"{name} was left out: {problem}")
    if not runs:
        raise InputError(f"no ranker can learn here ({problem})")
    gold = run_frame(features, features.grade).rename(columns={"score": "grade"})
    table = compared_runs("mq2008", "MQ2008, five folds", runs, gold, MEASURES, baseline=BASELINE, notes=notes)
    said = [sentence for peer in PEERS for sentence in against(table, OURS, peer)]
    return replace(table, notes=(*table.notes, *said))


def across(learn: Learn, features: Features, splits: Sequence[Fold]) -> Floats:
    """The score of each document from the fold that tests it."""
    score = np.full(len(features.query), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fold in splits:
            train, validate, test = (features.take(rows) for rows in (fold.train, fold.validate, fold.test))
            score[fold.test] = learn(train, validate, test)
    return score


def run_frame(features: Features, score: Any) -> pd.DataFrame:
    """Query, document and score."""
    frame = {"query": features.query.to_pandas(), "document": features.document.to_pandas(), "score": score}
    return pd.DataFrame(frame)


def against(table: Table, run: str, other: str, measure: str = MAIN) -> list[str]:
    """Whether one run is worse than another beyond chance, the two alone; nothing where one of them did not run."""
    evaluations = {} if table.comparison is None else table.comparison.evaluations
    if run not in evaluations or other not in evaluations:
        return []
    both = compare_evaluations({name: evaluations[name] for name in (other, run)}, baseline=other)
    (row,) = (row for row in both.rows.to_pylist() if (row["run"], row["measure"]) == (run, measure))
    how = "no better and no worse than"
    if row["significant"]:
        how = "better than" if row["difference"] > 0 else "worse than"
    return [
        f"By {measure}, {run} is {how} {other} beyond chance: {row['difference']:+.4f} "
        f"[{row['lower']:+.4f}, {row['upper']:+.4f}], p {row['p']:.3f} of this one test."
    ]


# Our rankers.


def learner(make: Callable[[], Ranker]) -> Learn:
    """How one of our rankers learns and scores."""

    def learn(train: Features, validate: Features, test: Features) -> Floats:
        held_out = (validate, validate.grade, validate.query)
        return make().fit(train, train.grade, query=train.query, eval_set=held_out).predict(test, test.query)

    return learn


def trees(**other: Any) -> LambdaMART:
    """LambdaMART as the experiment sets it; one thread is no slower on lists as short as these."""
    return LambdaMART(**{**TREES, "patience": PATIENCE, "truncation": TRUNCATION, "n_jobs": 1, **other})


def pointwise_trees() -> PointwiseGBDT:
    """Pointwise regression trees with the parameters of LambdaMART."""
    return PointwiseGBDT(**TREES, patience=PATIENCE, n_jobs=1)


def tree_features() -> TreeFeatureGLS:
    """Trees as features; the ridge over them is one that the validation part chooses, never a default."""
    return TreeFeatureGLS("auto", mu=TREE_RIDGES, n_jobs=1)


# The peers.


def lightgbm(train: Features, validate: Features, test: Features) -> Floats:
    """LightGBM's lambdarank."""
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
    data = lgb.Dataset(train.matrix, train.grade, group=list_sizes(train), params={"verbosity": -1})
    held_out = lgb.Dataset(validate.matrix, validate.grade, group=list_sizes(validate), reference=data)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    booster = lgb.train(settings, data, TREES["n_estimators"], valid_sets=[held_out], callbacks=[stop])
    return np.asarray(booster.predict(test.matrix, num_iteration=booster.best_iteration, num_threads=1))


def xgboost(train: Features, validate: Features, test: Features) -> Floats:
    """XGBoost's rank:ndcg."""
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
    data, held_out = (xgb.DMatrix(part.matrix, part.grade, qid=query_numbers(part)) for part in (train, validate))
    booster = xgb.train(
        settings,
        data,
        TREES["n_estimators"],
        evals=[(held_out, "validate")],
        early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    )
    best = (0, booster.best_iteration + 1)
    return np.asarray(booster.predict(xgb.DMatrix(test.matrix), iteration_range=best), dtype=np.float64)


def query_numbers(features: Features) -> Integers:
    """Queries as numbers in the order of their first rows."""
    return ids.encode(pa.chunked_array([features.query]))[0].astype(np.int64)


def list_sizes(features: Features) -> Integers:
    """How many documents each query has."""
    return np.bincount(query_numbers(features))


LEARNERS: Mapping[str, Learn] = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "lambdamart": learner(trees),
    "gls": learner(lambda: GLS(RIDGES)),
    "rd": learner(lambda: RD(GLS(RIDGES))),
    "pointwise-gbdt": learner(pointwise_trees),
    "rd-gbdt": learner(lambda: RD(pointwise_trees())),
    "lambdarank-net": learner(lambda: LambdaRankNet(n_jobs=1)),
    "ensemble": learner(lambda: Ensemble([trees(), GLS(RIDGES)])),
    "tree-features": learner(tree_features),
}
"""The runs of the experiment by name: the peers, then our rankers."""
