"""LambdaMART: boosted trees that follow lambda gradients (Burges 2010), on LightGBM's trees."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from crowdrank._progress import Report
from crowdrank._saved import Fields
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, Flag, InstanceOf, Number, OneOf, Parsed
from crowdrank.engine.base import Engine
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.measures import Measure, parse_gains
from crowdrank.rankers.base import N_JOBS, Ranker, require_differences
from crowdrank.rankers.lambdamart_dask import boosted_on_cluster, require_own
from crowdrank.rankers.lambdas import WEIGHTINGS, LambdaObjective, check_measure
from crowdrank.rankers.ranking_data import Lists
from crowdrank.rankers.store import State
from crowdrank.rankers.trees_text import check_trees
from crowdrank.rankers.validation import Validation

Objective = Callable[[Floats], tuple[Floats, Floats]]
FEW_CELLS = 1_000_000
"""Below so many cells (rows times features), threads cost more in waiting for each other than they gain."""


class BoostedTrees(Ranker):
    """Trees of LightGBM that follow an objective of ours; a subclass states `_objective`."""

    n_estimators: int
    learning_rate: float
    num_leaves: int
    min_child_samples: int
    validate_by: str
    patience: int
    lightgbm: Mapping[str, Any] | None
    n_jobs: int | None

    best_iteration_: int
    booster_: Any

    _parameter_constraints: ClassVar[Constraints] = {
        "n_estimators": [Number(1, integer=True)],
        "num_leaves": [Number(2, integer=True)],
        "min_child_samples": [Number(1, integer=True)],
        "patience": [Number(1, integer=True)],
        "learning_rate": [Number(0, above=True)],
        "lightgbm": [InstanceOf(Mapping, "a mapping of LightGBM's parameters"), None],
        **N_JOBS,
    }

    @abstractmethod
    def _objective(self, lists: Lists, n_jobs: int) -> Objective:
        """Return the gradient and the curvature of the loss in each score as a function of the scores.

        A subclass may have further optional arguments, which its `fit` passes on.
        """

    def _learn(
        self, lists: Lists, validation: Validation | None, report: Report, engine: Engine | None, **options: Any
    ) -> None:
        n_jobs = self.n_jobs or usual_threads(lists.X.size)
        objective = self._objective(lists, n_jobs, **options)
        self.booster_, self.best_iteration_, self.history_ = boosted(
            lists.X,
            objective,
            tree_settings(self, n_jobs),
            self.n_estimators,
            validation,
            self.patience,
            report,
        )
        self.importances_ = shares(self.booster_.feature_importance("gain", iteration=self.best_iteration_))

    def _score(self, X: Floats, query: Any = None) -> Floats:
        n_jobs = prediction_threads(self.n_jobs, X.size)
        scores: Floats = self.booster_.predict(
            X, raw_score=True, num_iteration=self.best_iteration_, num_threads=n_jobs
        )
        return scores

    def _state(self) -> State:
        text = self.booster_.model_to_string(num_iteration=self.best_iteration_)
        return State({"best_iteration": self.best_iteration_}, {"importances": self.importances_}, {"trees": text})

    def _restore(self, state: State) -> None:
        n_trees = check_trees(state.texts["trees"], self.n_features_in_)
        self.booster_ = booster_of(state.texts["trees"])
        self.best_iteration_ = Fields(state.values).integer("best_iteration", 1, max(n_trees, 1))


class LambdaMART(BoostedTrees):
    """Boosted trees that raise a measure: every pair of documents pulls as hard as its swap would change it.

    With whole grades and no weights the forces are those of LightGBM's `lambdarank` (whose sigmoid is a table). Beyond
    it: grades may be any numbers or probabilities of grades (then gains are expected gains), targets of pairs may be
    chances, weights have a meaning that is stated, and the measure may be another than nDCG.

    What a weight means (`pair_weights`):

    - `product`: a pair counts w_i w_j. Where no measure is asked for (`measure=None, norm=False`, no truncation) a
      document of weight 2 is the same as that document standing there twice.
    - `left`: a pair counts the weight of its better document. A query whose documents all have weight 2 is the same as
      that query given twice, whatever the measure.
    - `post`: what a document gets from all its pairs is multiplied by its weight, as LightGBM does; of whole queries
      the same holds as for `left`. The forces within a query no longer sum to zero.

    Args:
        measure: what a swap changes: `nDCG`, `DCG`, `ERR` or `AP` with options and cutoff as in `nDCG@10`; None takes
            all pairs alike. `nDCG` without a cutoff is LightGBM's: discounts at all ranks, the ideal down to
            `truncation`.
        gains: of grades: `exponential`, `linear`, or a table.
        pair_weights: what `sample_weight` means: `product`, `left`, `post`.
        sigmoid: how steep the chance of an order is in the difference of scores.
        truncation: pairs have at least one document above this rank in the current order.
        norm: LightGBM's `lambdarank_norm`: pairs count less the further they are apart, queries by the logarithm of
            their forces.
        n_estimators, learning_rate, num_leaves, min_child_samples: of the trees, as in LightGBM.
        validate_by, patience: stop after so many rounds in which this measure of the validation queries did not rise.
        lightgbm: more parameters of LightGBM, by its own names.
        n_jobs: unless said, one where there are fewer than a million cells (rows times features), which a second
            thread would not make faster; else as many as OMP_NUM_THREADS says or the machine has.
        random_state: of whatever LightGBM draws.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=10, random_state=1)
    >>> X, gold = world.features.drop(columns=["query", "document"]), world.gold
    >>> ranker = LambdaMART(n_estimators=20).fit(X, gold["grade"], query=gold["query"])
    >>> run = gold[["query", "document"]].assign(score=ranker.predict(X))
    >>> crowdrank.evaluate(run, gold, "nDCG@5").means["nDCG@5"] > 0.9
    True
    """

    learns_on_engines = True
    _parameter_constraints: ClassVar[Constraints] = {
        "measure": [Parsed(check_measure)],
        "pair_weights": [OneOf(*WEIGHTINGS)],
        "sigmoid": [Number(0, above=True)],
        "truncation": [Number(1, integer=True)],
        "norm": [Flag()],
    }

    def __init__(
        self,
        measure: str | Measure | None = "nDCG",
        *,
        gains: str | Sequence[float] = "exponential",
        pair_weights: str = "product",
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
        pair_targets: Any = None,
        engine: Engine | None = None,
    ) -> Self:
        """Learn to rank; arguments as in `Ranker.fit`, and two more.

        Args:
            pair_targets: None: of two documents the one of higher gain is the better one. Soft targets, the chance
                P(d > d'): `"posterior"` takes it from the probabilities of grades in `y` (half of equal grades counts);
                an array (n, n_grades) of such probabilities, while `y` says the gains; an array (n,) of standard
                deviations around `y`, for P = Phi((y - y') / sqrt(sd^2 + sd'^2)); or a function that takes the row
                numbers of one query and returns the matrix of chances.
            engine: a cluster (`DaskEngine`), on which trees follow LightGBM's own `lambdarank`: for whole grades,
                `nDCG`, and no weights but `post`. By default here.

        """
        return self._fit(X, y, query, sample_weight, eval_set, progress, engine, pair_targets=pair_targets)

    def _learn(
        self, lists: Lists, validation: Validation | None, report: Report, engine: Engine | None, **options: Any
    ) -> None:
        if engine is None or not engine.is_cluster:
            super()._learn(lists, validation, report, engine, **options)
            return
        require_own(self, lists, options["pair_targets"])
        settings = tree_settings(self, 1)
        found = boosted_on_cluster(self, lists, settings, validation, engine, report)
        self.booster_, self.best_iteration_, self.history_ = found
        self.importances_ = shares(self.booster_.feature_importance("gain", iteration=self.best_iteration_))

    def _objective(self, lists: Lists, n_jobs: int, pair_targets: Any = None) -> Objective:
        objective = LambdaObjective(
            lists,
            measure=self.measure,
            gains=parse_gains(self.gains),
            weighting=self.pair_weights,
            pair_targets=pair_targets,
            sigmoid=self.sigmoid,
            truncation=self.truncation,
            norm=self.norm,
            n_jobs=n_jobs,
        )
        require_differences(objective.gain, lists)
        return objective


def usual_threads(cells: float = np.inf) -> int:
    """As many threads as OMP_NUM_THREADS says, else as the machine has; one for a matrix of few cells.

    >>> usual_threads() >= 1, usual_threads(50_000)
    (True, 1)
    """
    if cells < FEW_CELLS:
        return 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) > 0 else os.cpu_count() or 1


def prediction_threads(n_jobs: int | None, cells: int) -> int:
    """Return the number of threads that score: those asked for, but no more than the machine has.

    >>> prediction_threads(10**9, 100) <= (os.cpu_count() or 1)
    True
    """
    return min(n_jobs or usual_threads(cells), os.cpu_count() or 1)


def tree_settings(ranker: BoostedTrees, n_jobs: int) -> dict[str, Any]:
    """LightGBM's parameters; the same data and seed give the same trees on any number of threads."""
    return {
        "learning_rate": ranker.learning_rate,
        "num_leaves": ranker.num_leaves,
        "min_data_in_leaf": ranker.min_child_samples,
        "num_threads": n_jobs,
        "seed": ranker.random_state,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
        **(ranker.lightgbm or {}),
    }


def boosted(
    X: Floats,
    objective: Objective,
    settings: Mapping[str, Any],
    rounds: int,
    validation: Validation | None,
    patience: int,
    report: Report,
) -> tuple[Any, int, list[float]]:
    """A booster that followed `objective`, the number of its rounds to use, and the validation measure after each."""
    lgb = _lightgbm()
    least = int(settings["min_data_in_leaf"])
    if len(X) < 2 * least:
        raise InputError(
            f"{counted(len(X), 'row')} cannot be parted into leaves of {least} (min_child_samples)",
            fix="lower it, give more rows, or take gls",
        )
    history: list[float] = []
    best = 0
    try:
        # LightGBM drops features that no leaf of its usual size could part, unless it is told ours.
        known = {"verbosity": -1, "min_data_in_leaf": least}
        data = lgb.Dataset(X, label=np.zeros(len(X)), free_raw_data=False, params=known)
        # The objective sees the scores; LightGBM's own labels are never looked at.
        booster = lgb.Booster({**settings, "objective": "none"}, data)
        score = None if validation is None else np.zeros(len(validation.lists.y))
        for number in range(rounds):
            stuck = booster.update(fobj=lambda scores, _: objective(scores))
            if score is not None and validation is not None:
                score += booster.predict(
                    validation.lists.X,
                    raw_score=True,
                    start_iteration=number,
                    num_iteration=1,
                    num_threads=settings["num_threads"],
                )
                history.append(validation(score))
                best = number if history[-1] > history[best] else best
            report(number + 1, rounds, history[-1] if history else float("nan"))
            if stuck or (history and number - best >= patience):
                break
    except lgb.basic.LightGBMError as problem:
        if "num_features" in str(problem):
            raise InputError(
                f"no feature parts the {counted(len(X), 'row')} into leaves of {least} (min_child_samples)",
                fix="lower it, give more rows, or take gls",
            ) from problem
        raise UsageError(f"LightGBM refused: {str(problem).strip().rstrip('.')}.") from problem
    return booster, (best + 1 if history else booster.current_iteration()), history


def booster_of(text: str) -> Any:
    """The booster behind LightGBM's text."""
    lgb = _lightgbm()
    try:
        return lgb.Booster(model_str=text)
    except lgb.basic.LightGBMError as problem:
        raise ValueError(str(problem)) from problem


def _lightgbm() -> Any:
    try:
        import lightgbm
    except OSError as problem:  # its wheel takes OpenMP's runtime from the system
        raise UsageError(
            f"LightGBM cannot be loaded ({problem}); install libgomp, as in: apt install libgomp1."
        ) from problem
    return lightgbm


def shares(amounts: Any) -> Floats:
    """Amounts as parts of their sum."""
    whole = np.asarray(amounts, dtype=np.float64)
    return whole / whole.sum() if whole.sum() > 0 else whole
