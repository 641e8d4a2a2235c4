"""Rankers of boosted trees, fitted and stored by LightGBM."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from crowdrank._progress import Report
from crowdrank._saved import Fields
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, InstanceOf, Number
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.base import N_JOBS, Ranker, normalized
from crowdrank.rankers.lambdas import Objective
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.shared_matrix import SharedMatrix
from crowdrank.rankers.store import State
from crowdrank.rankers.trees_text import check_trees
from crowdrank.rankers.validation import Validation

if TYPE_CHECKING:
    from crowdrank.engine.base import Engine

ONE_THREAD_CELLS = 1_000_000
"""Number of cells (rows times features) below which a second thread does not make LightGBM faster."""


@dataclass(frozen=True, eq=False)
class Loss:
    """Loss that trees minimize: an objective of the scores, or the squared error to a target (n,) with weights."""

    objective: Objective | None = None
    target: Floats | None = None
    weight: Floats | None = None


class BoostedTrees(Ranker):
    """Base of rankers of boosted trees; a subclass implements `_loss`."""

    n_estimators: int
    learning_rate: float
    num_leaves: int
    min_child_samples: int
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
    def _loss(self, data: RankingData, n_jobs: int) -> Loss:
        """Return the loss; a subclass may have further optional arguments, which its `fit` passes on."""

    def _learn(
        self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None, **options: Any
    ) -> None:
        n_jobs = self.n_jobs or default_threads(data.features.size)
        loss = self._loss(data, n_jobs, **options)
        self._set_trees(*boost(self, data, loss, tree_settings(self, n_jobs), validation, report))

    def _set_trees(self, booster: Any, best_iteration: int, history: list[float]) -> None:
        self.feature_importances_ = tree_importances(booster, best_iteration)
        self.booster_, self.best_iteration_, self.history_ = without_data(booster), best_iteration, history

    def _score(self, features: Floats, query: Any = None) -> Floats:
        n_jobs = prediction_threads(self.n_jobs, features.size)
        scores: Floats = self.booster_.predict(
            features, raw_score=True, num_iteration=self.best_iteration_, num_threads=n_jobs
        )
        return scores

    def _state(self) -> State:
        text = self.booster_.model_to_string(num_iteration=self.best_iteration_)
        return State({"best_iteration": self.best_iteration_}, {}, {"trees": text})

    def _restore(self, state: State) -> None:
        n_trees = check_trees(state.texts["trees"], self.n_features_in_, lightgbm_names(self.features_))
        lgb = import_lightgbm()
        try:
            self.booster_ = lgb.Booster(model_str=state.texts["trees"])
        except lgb.basic.LightGBMError as problem:
            raise ValueError(str(problem)) from problem
        self.best_iteration_ = Fields(state.values).integer("best_iteration", 1, max(n_trees, 1))


def default_threads(n_cells: float = np.inf) -> int:
    """Return OMP_NUM_THREADS or else the number of cores; 1 for a matrix of few cells (rows times features).

    >>> default_threads() >= 1, default_threads(50_000)
    (True, 1)
    """
    if n_cells < ONE_THREAD_CELLS:
        return 1
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdecimal() and int(setting) > 0 else os.cpu_count() or 1


def prediction_threads(n_jobs: int | None, n_cells: int) -> int:
    """Return the number of threads for prediction, at most the number of cores.

    >>> prediction_threads(10**9, 100) <= (os.cpu_count() or 1)
    True
    """
    n_threads = n_jobs or default_threads(n_cells)
    return 1 if n_threads == 1 else min(n_threads, os.cpu_count() or 1)  # counting takes longer than the checks of X


def tree_settings(ranker: BoostedTrees, n_jobs: int) -> dict[str, Any]:
    """Return LightGBM's parameters, with which trees do not depend on the number of threads."""
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


def boost(
    ranker: BoostedTrees,
    data: RankingData,
    loss: Loss,
    settings: Mapping[str, Any],
    validation: Validation | None,
    report: Report,
) -> tuple[Any, int, list[float]]:
    """Return a booster, its number of rounds to use, and the validation measure after each round."""
    lgb, min_leaf, objective = import_lightgbm(), int(settings["min_data_in_leaf"]), loss.objective
    require_rows(data, min_leaf)
    history: list[float] = []
    best = 0
    try:
        dataset = _dataset(data, loss, {"verbosity": -1, "min_data_in_leaf": min_leaf, **(ranker.lightgbm or {})})
        booster = lgb.Booster({**settings, "objective": "regression" if objective is None else "none"}, dataset)
        gradients = None if objective is None else (lambda scores, _: objective(scores))
        score = None if validation is None else np.zeros(len(validation.data.grade))
        for number in range(ranker.n_estimators):
            is_finished = booster.update(fobj=gradients)
            if score is not None and validation is not None:
                one_round = {"start_iteration": number, "num_iteration": 1, "num_threads": settings["num_threads"]}
                score += booster.predict(validation.data.features, raw_score=True, **one_round)
                history.append(validation(score))
                best = number if history[-1] > history[best] else best
            report(number + 1, ranker.n_estimators, history[-1] if history else float("nan"))
            if is_finished or (history and number - best >= ranker.patience):
                break
    except lgb.basic.LightGBMError as problem:
        if "num_features" in str(problem):  # LightGBM has no other way to tell
            raise too_few_rows(f"no feature splits the {counted(len(data.grade), 'row')}", min_leaf) from problem
        raise lightgbm_error(problem) from problem
    return booster, (best + 1 if history else booster.current_iteration()), history


def _dataset(data: RankingData, loss: Loss, parameters: Mapping[str, Any]) -> Any:
    """Return LightGBM's data set; losses that are objectives of the scores share that of a shared matrix.

    LightGBM drops features that cannot be split into leaves of its default size, unless it knows the actual one.
    Parameters of the data, such as max_bin, and those that need the raw data, such as linear_tree, are read here.
    """

    def make() -> Any:
        return import_lightgbm().Dataset(
            data.features,
            label=np.zeros(len(data.grade)) if loss.target is None else loss.target,
            weight=loss.weight,
            feature_name=lightgbm_names(data.names),
            free_raw_data=False,
            params=dict(parameters),
        )

    if isinstance(data.given, SharedMatrix) and loss.target is None and loss.weight is None:
        return data.given.binned(parameters, make)
    return make()


def require_rows(data: RankingData, min_leaf: int) -> None:
    """Raise InputError if there are too few rows for two leaves."""
    if len(data.grade) < 2 * min_leaf:
        raise too_few_rows(f"{counted(len(data.grade), 'row')} cannot be split", min_leaf)


def too_few_rows(problem: str, min_leaf: int) -> InputError:
    """Return the error for data that cannot be split into leaves."""
    fix = "lower it, give more rows, or take GLS"
    return InputError(f"{problem} into leaves of {min_leaf} (min_child_samples)", kind="few-rows", fix=fix)


def lightgbm_error(problem: Exception) -> UsageError:
    """Return the error for parameters that LightGBM refuses."""
    return UsageError(f"LightGBM refused: {str(problem).strip().rstrip('.')}", kind="lightgbm")


def lightgbm_names(names: tuple[str, ...]) -> list[str]:
    """Return feature names that LightGBM's text format can hold, all different.

    >>> lightgbm_names(("bm25", "title length", "title:length"))
    ['bm25', 'title_length', 'title_length_3']
    """
    found: dict[str, None] = {}
    for number, name in enumerate(names, 1):
        plain = re.sub(r"[^\w.+-]", "_", name) or "_"
        while plain in found:
            plain = f"{plain}_{number}"
        found[plain] = None
    return list(found)


def without_data(booster: Any) -> Any:
    """Return the booster without its training data and buffers, which are larger than its trees."""
    return booster.model_from_string(booster.model_to_string(num_iteration=-1)).free_dataset()


def tree_importances(booster: Any, n_trees: int) -> Floats:
    """Return the mean over trees of each feature's share in the gain of the tree's splits, (n_features,)."""
    totals = [booster.feature_importance("gain", iteration=number) for number in range(1, n_trees + 1)]
    gains = np.maximum(np.diff(totals, axis=0, prepend=0.0), 0.0)
    return normalized(sum(map(normalized, gains)))


def import_lightgbm() -> Any:
    """Return the module; raise UsageError if it cannot be loaded."""
    try:
        import lightgbm
    except OSError as problem:  # the wheel needs the OpenMP runtime of the system
        raise UsageError(
            f"LightGBM cannot be loaded ({problem})", kind="no-openmp", fix="install libgomp: apt install libgomp1"
        ) from problem
    return lightgbm
