"""LambdaMART on a Dask cluster: LightGBM's own distribution of its own `lambdarank`, where that is what is asked for.

Beyond it our objective is needed (grades that are chances or no whole numbers, targets of pairs, measures other than
nDCG, weights of pairs), which sees all scores at once and runs here.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.ranking_data import Lists, label_gains
from crowdrank.rankers.validation import Validation

if TYPE_CHECKING:
    from crowdrank.rankers.lambdamart import LambdaMART

MOST_GRADE = 30
"""LightGBM has a table of gains; grades above this are none."""


def why_not(ranker: LambdaMART, lists: Lists, pair_targets: Any) -> str:
    """What of it needs our objective; nothing, if LightGBM's own will do."""
    if lists.shares is not None or (lists.y != np.floor(lists.y)).any() or lists.y.min() < 0:
        return "labels that are no whole grades"
    if lists.y.max() > MOST_GRADE:
        return f"grades above {MOST_GRADE}"
    if pair_targets is not None:
        return "pair_targets"
    if ranker.measure != "nDCG":
        return f"measure={ranker.measure!r}"
    if lists.weight is not None and ranker.pair_weights != "post":
        return f"weights with pair_weights={ranker.pair_weights!r} (LightGBM's are 'post')"
    return ""


def require_own(ranker: LambdaMART, lists: Lists, pair_targets: Any) -> None:
    """Refuse what LightGBM's own objective cannot do."""
    needed = why_not(ranker, lists, pair_targets)
    if needed:
        raise UsageError(
            f"On a cluster LambdaMART follows LightGBM's own lambdarank, and {needed} needs ours, which runs on one "
            "machine; leave the engine out."
        )


def boosted_on_cluster(
    ranker: LambdaMART,
    lists: Lists,
    settings: dict[str, Any],
    validation: Validation | None,
    engine: Any,
    report: Report,
) -> tuple[Any, int, list[float]]:
    """A booster, the number of its rounds to use, and the validation measure after each.

    When to stop is told afterwards, by the same rule: trees do not depend on it.
    """
    import dask.array
    from lightgbm import DaskLGBMRanker
    from lightgbm.basic import LightGBMError

    da: Any = dask.array
    runs = query_runs(lists.offsets, len(engine.client.nthreads()))
    least = int(settings["min_data_in_leaf"])
    if len(lists.y) < 2 * least:
        raise InputError(f"{counted(len(lists.y), 'row')} cannot be parted into leaves of {least} (min_child_samples)")
    ends = [int(lists.offsets[last]) for _, last in runs]
    rows = tuple(np.diff([0, *ends]).tolist())

    def spread(values: Any) -> Any:
        return da.from_array(values, chunks=(rows, *((size,) for size in values.shape[1:])))

    group = da.from_array(np.diff(lists.offsets), chunks=(tuple(last - first for first, last in runs),))
    told = {name: value for name, value in settings.items() if name not in ("num_threads", "force_col_wise", "seed")}
    grades = np.arange(int(lists.y.max()) + 1)
    model = DaskLGBMRanker(
        n_estimators=ranker.n_estimators,
        random_state=ranker.random_state,
        client=engine.client,
        label_gain=label_gains(grades.astype(np.float64), ranker.gains).tolist(),
        lambdarank_truncation_level=ranker.truncation,
        lambdarank_norm=ranker.norm,
        sigmoid=ranker.sigmoid,
        **told,
    )
    weight = None if lists.weight is None else spread(lists.weight)
    try:
        with engine.client.as_current(), warnings.catch_warnings():  # LightGBM asks for the current client too
            warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored")
            booster = model.fit(spread(lists.X), spread(lists.y), group=group, sample_weight=weight).booster_
    except LightGBMError as problem:
        raise UsageError(f"LightGBM refused: {str(problem).strip().rstrip('.')}.") from problem
    report(ranker.n_estimators, ranker.n_estimators, float("nan"))
    history = [] if validation is None else _history(booster, validation, ranker.patience)
    return booster, (int(np.argmax(history)) + 1 if history else booster.current_iteration()), history


def query_runs(offsets: Any, among: int) -> list[tuple[int, int]]:
    """Whole queries in runs of about as many rows each, at most `among`.

    >>> query_runs(np.array([0, 2, 4, 8, 9]), 2)
    [(0, 2), (2, 4)]
    """
    wanted = np.linspace(0, offsets[-1], min(among, len(offsets) - 1) + 1)
    above = np.searchsorted(offsets, wanted)
    below = np.maximum(above - 1, 0)
    ends = np.unique(np.where(wanted - offsets[below] < offsets[above] - wanted, below, above))
    return [(int(first), int(last)) for first, last in pairwise(ends)]


def _history(booster: Any, validation: Validation, patience: int) -> list[float]:
    history: list[float] = []
    score: Floats = np.zeros(len(validation.lists.y))
    for number in range(booster.current_iteration()):
        options = {"raw_score": True, "start_iteration": number, "num_iteration": 1}
        score = score + booster.predict(validation.lists.X, **options)
        history.append(validation(score))
        if number - int(np.argmax(history)) >= patience:
            break
    return history
