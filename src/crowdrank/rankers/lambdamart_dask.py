"""LambdaMART on a Dask cluster, by LightGBM's own distributed `lambdarank`.

Everything that `lambdarank` lacks (real or soft labels, measures other than nDCG, pair weights) needs our objective,
which runs on one machine.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdrank._progress import Report
from crowdrank._typing import Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.rankers.ranking_data import MAX_GRADE, RankingData, label_gains
from crowdrank.rankers.validation import Validation

if TYPE_CHECKING:
    from crowdrank.rankers.lambdamart import LambdaMART

LOCAL_SETTINGS = ("num_threads", "force_col_wise", "seed")
"""Parameters of LightGBM that Dask's interface sets itself."""


def require_lambdarank(ranker: LambdaMART, data: RankingData) -> None:
    """Raise UsageError if a ranker and its data need more than LightGBM's `lambdarank`."""
    unsupported = ""
    if data.probabilities is not None or (data.grade != np.floor(data.grade)).any() or data.grade.min() < 0:
        unsupported = "labels that are not whole grades"
    elif data.grade.max() > MAX_GRADE:
        unsupported = f"grades above {MAX_GRADE}"
    elif ranker.pair_targets != "grade":
        unsupported = f"pair_targets={ranker.pair_targets!r}"
    elif ranker.measure != "nDCG":
        unsupported = f"measure={ranker.measure!r}"
    elif data.weight is not None and ranker.pair_weights != "post":
        unsupported = f"weights with pair_weights={ranker.pair_weights!r} ('post' works)"
    if unsupported:
        problem = f"must be local for {unsupported}; a cluster runs LightGBM's lambdarank, which has none"
        raise UsageError(problem, parameter="engine", kind="not-lambdarank", fix="leave it out")


def boost_on_cluster(
    ranker: LambdaMART, data: RankingData, validation: Validation | None, engine: Any, report: Report
) -> tuple[Any, int, list[float]]:
    """Return a booster, its number of rounds to use, and the validation measure after each round.

    Early stopping is applied afterwards, with the same result: trees do not depend on it.
    """
    import dask.array
    from lightgbm import DaskLGBMRanker
    from lightgbm.basic import LightGBMError

    from crowdrank.rankers.boosting import lightgbm_error, lightgbm_names, require_rows, tree_settings

    require_lambdarank(ranker, data)
    settings = tree_settings(ranker, 1)
    require_rows(data, int(settings["min_data_in_leaf"]))
    da: Any = dask.array
    ranges = query_ranges(data.offsets, len(engine.client.nthreads()))
    n_rows = tuple(np.diff([0, *(int(data.offsets[last]) for _, last in ranges)]).tolist())

    def distribute(values: Any) -> Any:
        return da.from_array(values, chunks=(n_rows, *((size,) for size in values.shape[1:])))

    grades = np.arange(int(data.grade.max()) + 1, dtype=np.float64)
    model = DaskLGBMRanker(
        n_estimators=ranker.n_estimators,
        random_state=ranker.random_state,
        client=engine.client,
        label_gain=label_gains(grades, ranker.gains).tolist(),
        lambdarank_truncation_level=ranker.truncation,
        lambdarank_norm=ranker.norm,
        sigmoid=ranker.sigmoid,
        **{name: value for name, value in settings.items() if name not in LOCAL_SETTINGS},
    )
    try:
        with engine.client.as_current(), warnings.catch_warnings():  # LightGBM looks up the current client too
            warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored")
            model.fit(
                distribute(data.features),
                distribute(data.grade),
                group=da.from_array(np.diff(data.offsets), chunks=(tuple(last - first for first, last in ranges),)),
                sample_weight=None if data.weight is None else distribute(data.weight),
                feature_name=lightgbm_names(data.names),
            )
    except LightGBMError as problem:
        raise lightgbm_error(problem) from problem
    booster = model.booster_
    report(ranker.n_estimators, ranker.n_estimators, float("nan"))
    history = [] if validation is None else _history(booster, validation, ranker.patience)
    return booster, (int(np.argmax(history)) + 1 if history else booster.current_iteration()), history


def query_ranges(offsets: Integers, n: int) -> list[tuple[int, int]]:
    """Return at most n ranges of queries with similar numbers of rows.

    >>> query_ranges(np.array([0, 2, 4, 8, 9]), 2)
    [(0, 2), (2, 4)]
    """
    wanted = np.linspace(0, offsets[-1], min(n, len(offsets) - 1) + 1)
    above = np.searchsorted(offsets, wanted)
    below = np.maximum(above - 1, 0)
    ends = np.unique(np.where(wanted - offsets[below] < offsets[above] - wanted, below, above))
    return [(int(first), int(last)) for first, last in pairwise(ends)]


def _history(booster: Any, validation: Validation, patience: int) -> list[float]:
    """Return the validation measure after each round, up to the round at which training would have stopped."""
    history: list[float] = []
    score: Floats = np.zeros(len(validation.data.grade))
    for number in range(booster.current_iteration()):
        one_round = {"raw_score": True, "start_iteration": number, "num_iteration": 1}
        score = score + booster.predict(validation.data.features, **one_round)
        history.append(validation(score))
        if number - int(np.argmax(history)) >= patience:
            break
    return history
