"""LambdaMART: boosted trees on lambda gradients (Burges 2010)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from crowdrank._progress import Report
from crowdrank.constraints import Constraints, Flag, Number, OneOf, Parsed
from crowdrank.evaluation.measures import Measure, parse_gains
from crowdrank.rankers.boosting import BoostedTrees, Loss
from crowdrank.rankers.data_checks import require_differences
from crowdrank.rankers.lambdamart_dask import boost_on_cluster
from crowdrank.rankers.lambdas import PAIR_TARGETS, WEIGHTINGS, LambdaObjective, check_measure
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.validation import Validation

if TYPE_CHECKING:
    from crowdrank.engine.base import Engine

LAMBDA_CONSTRAINTS: Constraints = {
    "measure": [Parsed(check_measure)],
    "pair_weights": [OneOf(*WEIGHTINGS)],
    "pair_targets": [OneOf(*PAIR_TARGETS)],
    "sigmoid": [Number(0, above=True)],
    "truncation": [Number(1, integer=True)],
    "norm": [Flag()],
}
"""Constraints on the parameters of the lambda objective."""


def lambda_objective(ranker: Any, data: RankingData, n_jobs: int) -> LambdaObjective:
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
        patience: number of rounds without improvement after which training stops.
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

    def _learn(
        self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None, **options: Any
    ) -> None:
        if engine is not None and engine.is_cluster:
            self._set_trees(*boost_on_cluster(self, data, validation, engine, report))
        else:
            super()._learn(data, validation, report, engine, **options)

    def _loss(self, data: RankingData, n_jobs: int) -> Loss:
        return Loss(lambda_objective(self, data, n_jobs))
