"""LambdaMART: boosted trees on lambda gradients (Burges 2010), in this process or on a Dask cluster.

Everything that `lambdarank` lacks (real or soft labels, measures other than nDCG, pair weights) needs our objective,
which runs on one machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from crowdrank._progress import Report
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraints, Flag, Number, OneOf, Parsed
from crowdrank.errors import UsageError
from crowdrank.evaluation.measures import MAX_GRADE, Measure, parse_gains
from crowdrank.rankers.boosting import BoostedTrees, Loss
from crowdrank.rankers.lambdas import PAIR_TARGETS, WEIGHTINGS, LambdaObjective, check_measure
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Request, require_differences
from crowdrank.rankers.training_data import RankingData, label_gains

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

LAMBDA_CONSTRAINTS: Constraints = {
    "measure": [Parsed(check_measure)],
    "pair_weights": [OneOf(*WEIGHTINGS)],
    "pair_targets": [OneOf(*PAIR_TARGETS)],
    "sigmoid": [Number(0, above=True)],
    "truncation": [Number(1, integer=True)],
    "norm": [Flag()],
}
"""Constraints on the parameters of the lambda objective."""
LOCAL_SETTINGS = ("num_threads", "force_col_wise", "seed")
"""Parameters of LightGBM that Dask's interface sets itself."""


def lambda_objective(
    ranker: Any, data: RankingData, n_jobs: int, pair_probabilities: Floats | None = None
) -> LambdaObjective:
    """Return the objective of a ranker with the parameters of `LambdaMART`; raise InputError if it has no pairs."""
    objective = LambdaObjective(
        data,
        measure=ranker.measure,
        gains=parse_gains(ranker.gains),
        weighting=ranker.pair_weights,
        pair_targets=ranker.pair_targets,
        sigmoid=ranker.sigmoid,
        truncation=ranker.truncation,
        norm=ranker.norm,
        n_jobs=n_jobs,
        pair_probabilities=pair_probabilities,
    )
    require_differences(objective.gain, data.offsets)
    return objective


class LambdaMART(BoostedTrees):
    """Boosted trees that raise a ranking measure: a pair of documents counts as much as its swap changes the measure.

    With integer grades and no weights the gradients are those of LightGBM's `lambdarank`. In addition, labels can be
    real numbers or probabilities of grades (then gains are expected gains), pair targets can be probabilities, weights
    have a defined meaning, and the measure can be DCG, ERR or AP.

    Meaning of weights (`pair_weights`):

    - `product`: a pair has the weight w_i w_j. Without a measure (`measure=None, norm=False`, no truncation), a
      document of weight 2 equals that document given twice.
    - `left`: a pair has the weight of its better document. A query whose documents all have weight 2 equals that query
      given twice, for every measure.
    - `post`: the gradient of a document is multiplied by its weight, as in LightGBM; for whole queries as `left`. The
      gradients of a query no longer sum to zero.

    Args:
        measure: `nDCG`, `DCG`, `ERR` or `AP` with options and cutoff as in `nDCG@10`; None weights all pairs equally.
            `nDCG` without a cutoff is LightGBM's: discounts at all ranks, the ideal down to `truncation`.
        gains: gains of grades: `exponential`, `linear`, or a table.
        pair_weights: meaning of `sample_weight`: `product`, `left` or `post`.
        pair_targets: `grade`: the document with the higher gain is the better one. `posterior`: soft targets
            P(d > d') + P(d = d') / 2 from the probabilities of grades, as a consensus has them.
        sigmoid: steepness of the pairwise probability in the difference of scores.
        truncation: pairs have at least one document above this rank in the current order.
        norm: LightGBM's `lambdarank_norm`.
        n_estimators, learning_rate, num_leaves, min_child_samples: parameters of the trees, as in LightGBM.
        validate_by: measure for early stopping on the validation queries.
        patience: number of iterations without improvement after which training stops.
        lightgbm: further parameters of LightGBM, by its own names.
        n_jobs: number of threads; by default 1 below a million cells (rows times features), else OMP_NUM_THREADS or
            the number of cores.
        random_state: random seed of LightGBM.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=10, random_state=1)
    >>> X, gold = world.features.drop(columns=["query", "document"]), world.gold
    >>> ranker = LambdaMART(n_estimators=20).fit(X, gold["grade"], query=gold["query"])
    >>> run = gold[["query", "document"]].assign(score=ranker.predict(X))
    >>> crowdrank.evaluate(run, gold, "nDCG@5").means["nDCG@5"] > 0.9
    True

    """

    supports_engines = True
    _parameter_constraints: ClassVar[Constraints] = LAMBDA_CONSTRAINTS
    _default_requests: ClassVar[Mapping[str, Mapping[str, Request]]] = {
        **BoostedTrees._default_requests,
        "fit": {**BoostedTrees._default_requests["fit"], "pair_probabilities": None},
    }

    def __init__(
        self,
        measure: str | Measure | None = "nDCG",
        *,
        gains: str | Sequence[float] = "exponential",
        pair_weights: str = "product",
        pair_targets: str = "grade",
        sigmoid: float = 1.0,
        truncation: int = 30,
        norm: bool = True,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        min_child_samples: int = 20,
        validate_by: str = "nDCG@10",
        patience: int = 50,
        lightgbm: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.measure = measure
        self.gains = gains
        self.pair_weights = pair_weights
        self.pair_targets = pair_targets
        self.sigmoid = sigmoid
        self.truncation = truncation
        self.norm = norm
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.validate_by = validate_by
        self.patience = patience
        self.lightgbm = lightgbm
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        query: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any, Any] | None = None,
        progress: bool | Report = False,
        engine: Engine | None = None,
        pair_probabilities: Any = None,
    ) -> Self:
        """Fit the ranker; other arguments are those of `Ranker.fit`.

        Args:
            X, y, query, sample_weight, eval_set, progress, engine: as in `Ranker.fit`.
            pair_probabilities: P(row i is better than row j) of all rows i and j of each query, one query after
                another, (the sum of n_documents**2,), such as `PairProbabilities.of_queries` returns. They are the
                targets of pairs, and gains of `y` weight the pairs. Rows of a query must be adjacent.

        """
        options = {} if pair_probabilities is None else {"pair_probabilities": pair_probabilities}
        return self._fit(X, y, query, sample_weight, eval_set, progress, engine, **options)

    def _learn(
        self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None, **options: Any
    ) -> None:
        if engine is not None and engine.is_cluster:
            if options:
                problem = "must be local for pair probabilities; a cluster runs LightGBM's lambdarank, which has none"
                raise UsageError(problem, parameter="engine", kind="not-lambdarank", fix="leave it out")
            self._set_trees(*boost_on_cluster(self, data, validation, engine, report))
        else:
            super()._learn(data, validation, report, engine, **options)

    def _loss(self, data: RankingData, n_jobs: int, pair_probabilities: Any = None) -> Loss:
        return Loss(lambda_objective(self, data, n_jobs, pair_probabilities))


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
    """Return a booster, its number of iterations to use, and the validation measure after each iteration.

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
    """Return the validation measure after each iteration, up to the one at which training would have stopped."""
    history: list[float] = []
    score: Floats = np.zeros(len(validation.data.grade))
    for number in range(booster.current_iteration()):
        one_iteration = {"raw_score": True, "start_iteration": number, "num_iteration": 1}
        score = score + booster.predict(validation.data.features, **one_iteration)
        history.append(validation(score))
        if number - int(np.argmax(history)) >= patience:
            break
    return history
