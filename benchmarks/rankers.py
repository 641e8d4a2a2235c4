"""Speed and nDCG of LambdaMART, compared with LightGBM's lambdarank and XGBoost."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.measure import Result, at_least, at_most, best, in_own_process

THREADS = 2
N_ITERATIONS = 12
ROWS, FEATURES, PER_QUERY = 500_000, 136, 120


def _random_data() -> tuple[Any, Any, Any]:
    """Draw documents in lists of 120 with the grade shares of MSLR-WEB and ten informative features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    worth = X[:, :10].sum(axis=1) + 3 * rng.normal(size=ROWS)
    y = np.digitize(worth, np.quantile(worth, [0.52, 0.84, 0.97, 0.99])).astype(np.float64)
    return X, y, np.bincount(np.arange(ROWS) // PER_QUERY)


def _iteration_times() -> tuple[list[float], list[float], list[float]]:
    """Measure boosting iterations of LightGBM and ours in turns, on the same bins, and our gradients alone."""
    import lightgbm as lgb

    from crowdrank.rankers.boosting import tree_settings
    from crowdrank.rankers.lambdamart import LambdaMART
    from crowdrank.rankers.lambdas import LambdaObjective
    from crowdrank.rankers.training_data import RankingData

    X, y, sizes = _random_data()
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    lists = RankingData(X, y, None, offsets, None, np.arange(ROWS), ())
    settings = tree_settings(LambdaMART(), THREADS)
    data = lgb.Dataset(X, y, group=sizes, params={"verbosity": -1}).construct()
    theirs = lgb.Booster({**settings, "objective": "lambdarank"}, data)
    ours = lgb.Booster({**settings, "objective": "none"}, data)
    objective = LambdaObjective(lists, n_jobs=THREADS)
    objective(np.zeros(ROWS))
    seconds: tuple[list[float], list[float], list[float]] = ([], [], [])

    def gradients(score: Any, _: Any) -> Any:
        start = time.perf_counter()
        values = objective(score)
        seconds[2].append(time.perf_counter() - start)
        return values

    for _ in range(N_ITERATIONS):
        for times, step in ((seconds[0], theirs.update), (seconds[1], lambda: ours.update(fobj=gradients))):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return seconds


def iterations() -> Result:
    """Divide the time of our boosting iteration by that of LightGBM, 500k x 136, two threads (median)."""
    theirs, ours, gradients = in_own_process(_iteration_times)
    return at_most(
        "an iteration of LambdaMART, 500k x 136, two threads: crowdrank / LightGBM's lambdarank",
        float(np.median(np.divide(ours, theirs))),
        1.1,
        best=min(ours) / min(theirs),
        ours=float(np.median(ours)),
        lightgbm=float(np.median(theirs)),
        gradients=float(np.median(gradients)),
    )


def _gradient_seconds(queries: int) -> tuple[float, float]:
    """Measure the gradients of many lists with one thread and with two."""
    from crowdrank.rankers.lambdas import LambdaObjective
    from crowdrank.rankers.training_data import RankingData

    rng = np.random.default_rng(0)
    n = queries * 40
    y, score = rng.integers(0, 5, n).astype(np.float64), rng.normal(size=n)
    lists = RankingData(np.zeros((n, 1)), y, None, np.arange(queries + 1) * 40, None, np.arange(n), ())
    one, two = (LambdaObjective(lists, n_jobs=threads) for threads in (1, 2))
    return best(lambda: one(score), 10), best(lambda: two(score), 10)


def threads() -> Result:
    """Divide the time of the gradients with one thread by that with two."""
    one, two = in_own_process(_gradient_seconds, 10_000)
    return at_least(
        "gradients of LambdaMART, 400k documents: one thread / two threads", one / two, 1.5, one=one, two=two
    )


def _mq2008() -> dict[str, list[float]]:
    """Return nDCG@10 of every fold: 300 trees of 15 leaves with early stopping."""
    import lightgbm as lgb
    import xgboost as xgb

    from crowdrank import LambdaMART, read_features
    from crowdrank.rankers.model_selection import Validation
    from crowdrank.rankers.training_data import RankingData
    from crowdrank.readers.datasets import dataset

    parts = [read_features(dataset("mq2008").path(f"S{part}.txt.gz"), format="letor") for part in range(1, 6)]

    def rows(*chosen: int) -> tuple[Any, Any, Any]:
        grades: list[Any] = [parts[p % 5].grade for p in chosen]
        query = np.concatenate([parts[p % 5].query.to_numpy(zero_copy_only=False) for p in chosen])
        return np.vstack([parts[p % 5].matrix for p in chosen]), np.concatenate(grades), query

    values: dict[str, list[float]] = {"ours": [], "lightgbm": [], "xgboost": []}
    for fold in range(5):
        train, valid, test = rows(fold, fold + 1, fold + 2), rows(fold + 3), rows(fold + 4)
        score_test = Validation(RankingData.from_ids(*test))
        sizes, valid_sizes = (np.diff(RankingData.from_ids(*part).offsets) for part in (train, valid))
        ours = LambdaMART(n_estimators=300, num_leaves=15, learning_rate=0.05)
        ours.fit(train[0], train[1], query=train[2], eval_set=valid)
        settings = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "num_leaves": 15, "verbosity": -1}
        data = lgb.Dataset(train[0], train[1], group=sizes)
        theirs = lgb.train(
            {**settings, "learning_rate": 0.05},
            data,
            300,
            valid_sets=[lgb.Dataset(valid[0], valid[1], group=valid_sizes, reference=data)],
            callbacks=[lgb.early_stopping(50, verbose=False)],
        )
        third = xgb.XGBRanker(
            objective="rank:ndcg", n_estimators=300, max_leaves=15, grow_policy="lossguide", max_depth=0,
            learning_rate=0.05, eval_metric="ndcg@10", early_stopping_rounds=50, n_jobs=THREADS,
        )  # fmt: skip
        third.fit(
            train[0], train[1], group=sizes, eval_set=[(valid[0], valid[1])], eval_group=[valid_sizes], verbose=False
        )
        values["ours"].append(score_test(ours.predict(test[0])))
        values["lightgbm"].append(score_test(np.asarray(theirs.predict(test[0]))))
        values["xgboost"].append(score_test(np.asarray(third.predict(test[0]), dtype=np.float64)))
    return values


def mq2008() -> Result:
    """Divide our mean nDCG@10 over five folds by LightGBM's."""
    folds = in_own_process(_mq2008)
    means = {name: float(np.mean(values)) for name, values in folds.items()}
    return at_least(
        "nDCG@10 of LambdaMART on MQ2008: crowdrank / LightGBM", means["ours"] / means["lightgbm"], 0.99, **means
    )
