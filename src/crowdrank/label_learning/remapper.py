"""Base class of estimators that learn targets and weights of labels through the ranker they train (REMAP 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from crowdrank._estimator import load_estimator_class, require_integer, require_one_of
from crowdrank._folders import Fields, FolderKind, is_number, require
from crowdrank._progress import Report, reporting
from crowdrank._saved_estimators import FittedEstimator
from crowdrank._text import heading, html_table, panel, paragraph
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, InstanceOf, Number, OneOf, SequenceOf
from crowdrank.engine.passes import Engine
from crowdrank.errors import Fix, InputError, NotFittedError, UsageError
from crowdrank.evaluation.measures import parse_gains
from crowdrank.label_learning.expert_folds import ExpertSet, split_experts
from crowdrank.label_learning.gradient_ascent import (
    MODES,
    STANDARD_ERRORS,
    BestStep,
    GradientAscent,
    GridLimits,
    LabeledDocuments,
    LabelFunctions,
    LearnedFunctions,
    Settings,
    fit_average_trees,
    with_document_features,
)
from crowdrank.label_learning.label_features import KINDS, LabelFeatures, label_features
from crowdrank.label_learning.objectives import RANKING_OBJECTIVES, Loss, ObjectiveSpec
from crowdrank.label_learning.remapped_labels import RemappedLabels, group_by_value
from crowdrank.label_learning.tree_selection import TreeSelection
from crowdrank.rankers.linear import AUTO_TREES, GLS
from crowdrank.rankers.ranker import N_JOBS, REMAPPER, REMAPPER_RANKER, STATE_FILE, SavedState, warn_missing_values
from crowdrank.rankers.training_data import FeatureStatistics, NamedMatrix
from crowdrank.rankers.training_labels import Instances
from crowdrank.rankers.tree_features import TreeFeatures
from crowdrank.readers.features import Features, as_features

START_WEIGHT = 0.5
"""Weight of every label before the first step."""
REMAPPERS = ("linear_remapper.LinearRemapper", "boosted_remapper.BoostedRemapper")
"""Paths of the remapper classes in this package."""


class Remapper(FittedEstimator):
    """Base of estimators that learn a target and a weight for each label, so that a ranker on them ranks as experts do.

    The ranker is weighted least squares (`GLS`). The gradient of a measure on expert-graded queries is propagated
    through it to the target and the weight of every label, and from there to functions of label features. Folds of
    these queries steer and measure in turn, which decides on the parameters and the number of steps. Step 0 is least
    squares on the grades expected by Dawid-Skene (on the labels, if only weights are learned); a departure must be
    better by more than some standard errors, so that few expert grades give the ranker of the consensus.

    Compare the result with simpler labels before you use it: least squares on average labels, a ranker on expected
    grades and a ranker on the expert grades alone are often as good.

    Attributes:
        targets_, weights_: target and weight of every label of the fit that has features.
        remapped_: the same with ids, per label and per document.
        ranker_: the ranker (`GLS`) on the learned targets and weights.
        history_: a dict for each step: the tuned parameters, run, mu, iteration, training and validation measure,
            lower_bound (mean gain over the start of the run minus standard errors).
        best_params_: the tuned parameters of the best run.
        tree_measures_: mean measure before learning by the number of trees, if `tree_features` is `auto`
            and there are enough documents for trees.
        best_iteration_, mu_, validation_: number of the best step, its ridge, and its validation measure.
        validation_queries_: ids of the queries that decided: all expert queries, or those of `eval_set`; as text.
        grades_: grades of the scale of the labels.
        importances_: importance of each label feature for the target and the weight (DataFrame).
        label_features_: features of the labels of the fit.

    """

    _folder: ClassVar[FolderKind] = REMAPPER
    _file: ClassVar[str] = STATE_FILE
    _grid_limits: ClassVar[dict[str, GridLimits]] = {
        "ridge": GridLimits(1e-6, 1e6),
        "learning_rate": GridLimits(1e-4, 10.0),
    }
    _parameter_constraints: ClassVar[Constraints] = {
        "mode": [OneOf(*MODES)],
        "objective": [InstanceOf(str, "the name of a measure or loss"), InstanceOf(Callable, "a function")],
        "measure": [OneOf(*RANKING_OBJECTIVES)],
        "ridge": [Number(0, above=True), SequenceOf(Number(0, above=True))],
        "n_iter": [Number(0, integer=True)],
        "learning_rate": [Number(0, above=True), SequenceOf(Number(0, above=True))],
        "patience": [Number(1, integer=True)],
        "folds": [Number(2, integer=True)],
        "standard_errors": [Number(0)],
        "tree_features": [Number(0, integer=True), OneOf("auto")],
        "kind": [OneOf(*KINDS)],
        "start": [OneOf("label", "consensus", "zero"), None],
        "random_state": [Number(0, integer=True)],
        **N_JOBS,
    }

    label_features_: LabelFeatures
    remapped_: RemappedLabels
    ranker_: GLS
    history_: list[dict[str, float]]
    best_params_: Settings
    tree_measures_: dict[int, float]
    best_iteration_: int
    mu_: float
    validation_: float
    validation_queries_: tuple[str, ...]
    grades_: tuple[float, ...]
    feature_names_in_: tuple[str, ...]
    label_feature_arguments_: dict[str, Any]
    learned_: LearnedFunctions

    def __init__(
        self,
        mode: str = "W+T",
        *,
        objective: str | Loss = "DCG@10",
        measure: str = "lambdarank",
        gains: str | Sequence[float] = "exponential",
        ridge: float | Sequence[float] = (0.01, 0.1, 1.0),
        n_iter: int = 200,
        learning_rate: float | Sequence[float] = (0.01, 0.03, 0.1),
        patience: int = 20,
        folds: int = 3,
        standard_errors: float = STANDARD_ERRORS,
        tree_features: int | str = "auto",
        kind: str = "remap",
        start: str | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.mode = mode
        self.objective = objective
        self.measure = measure
        self.gains = gains
        self.ridge = ridge
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.patience = patience
        self.folds = folds
        self.standard_errors = standard_errors
        self.tree_features = tree_features
        self.kind = kind
        self.start = start
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _repr_html_(self) -> str:
        if not hasattr(self, "learned_"):
            return panel(heading(repr(self)), paragraph("not fitted yet"))
        best = f"best step: {self.best_iteration_}, {self.validation_:.4f} on the validation queries"
        return panel(heading(repr(self)), paragraph(best), html_table(self.importances_.to_dict("records")))

    # Hooks of subclasses.

    @abstractmethod
    def _prepare(self, labels: LabelFeatures) -> Any:
        """Return the label features in the form that the functions use."""

    @abstractmethod
    def _initial_functions(
        self, labels: LabelFeatures, prepared: Any, weight: Floats, settings: Settings
    ) -> LabelFunctions:
        """Return the functions before the first step."""

    @abstractmethod
    def _restore(self, state: SavedState) -> LearnedFunctions:
        """Return the functions from their saved state; raise ValueError if it is invalid."""

    def _start(self, labels: LabelFeatures) -> Floats:
        """Return the targets before the first step, (n_labels,)."""
        start = self.start or ("label" if self.mode == "W" else "consensus")
        if start == "zero":
            return np.zeros(len(labels))
        return labels.start if start == "label" else labels.expected

    # Fit.

    def fit(
        self,
        labels: Any,
        features: Any,
        expert: Any,
        *,
        eval_set: Any = None,
        progress: bool | Report = False,
        engine: Engine | None = None,
    ) -> Self:
        """Learn the functions.

        Args:
            labels: judgments (`Judgments`, a path or a DataFrame), or their `LabelFeatures`.
            features: features of the judged documents, and of the expert-graded ones if `expert` only has ids
                (`Features`, a path or a DataFrame).
            expert: expert grades for the gradients: `Gold`, a path or a DataFrame; `Instances`; or (X, y, query). If
                the objective is a loss, (X, y) is enough.
            eval_set: expert grades of other queries that decide on parameters and steps, in the same forms; by default
                the queries in `expert` do, in folds.
            progress: show a progress bar, or a function to call with (step, maximum, validation measure).
            engine: where sums over documents are computed; by default in memory.

        Returns:
            The fitted remapper.

        """
        self._check_parameters()
        table = as_features(features)
        if not isinstance(labels, LabelFeatures):
            labels = label_features(labels, kind=self.kind, engine=engine)
        labels, row = with_document_features(labels, table)
        self._require_varying_labels(labels)
        objective = ObjectiveSpec(self.objective, parse_gains(self.gains), self.measure)
        training = ExpertSet.of(expert, table, ranks=objective.ranks, parameter="expert")
        validation = None
        if eval_set is not None:
            validation = ExpertSet.of(eval_set, table, ranks=objective.ranks, parameter="eval_set")
        experts, self.validation_queries_ = split_experts(
            training.shuffled(self.random_state),
            validation,
            objective,
            n_folds=self.folds,
            random_state=self.random_state,
            used_queries=labels.gold_queries.to_pylist(),
        )
        X = table.matrix[row]
        warn_missing_values(X, table.names, "GLS")
        documents = NamedMatrix(X, table.names)
        n_trees = self._choose_trees(
            labels, documents, [part for part in (training, validation) if part is not None], objective, engine
        )
        trees = fit_average_trees(labels, documents, self._unfitted_trees(n_trees)) if n_trees else None
        data = LabeledDocuments(labels, X, experts, trees, engine)
        ascent = self._ascent(data)
        with reporting(progress, type(self).__name__) as report:
            best = ascent.search(self._grids(n_trees), self._grid_limits, report)
        self._set_fitted(data, table, objective, best)
        self.ranker_.feature_statistics_ = FeatureStatistics.from_matrix(X)
        self.ranker_.validation_queries_ = (*training.queries, *(() if validation is None else validation.queries))
        self.history_ = ascent.history
        return self

    def _choose_trees(
        self,
        labels: LabelFeatures,
        X: NamedMatrix,
        experts: Sequence[ExpertSet],
        objective: ObjectiveSpec,
        engine: Engine | None,
    ) -> int:
        """Return the number of trees whose outputs extend the features of documents."""
        self.tree_measures_ = {}
        if self.tree_features != "auto":
            return int(self.tree_features)
        trees, ridges = (
            self._unfitted_trees(max(AUTO_TREES)),
            np.atleast_1d(np.asarray(self.ridge, np.float64)).tolist(),
        )
        selection = TreeSelection(labels, X, experts, objective, trees, ridges, self.random_state, engine)
        try:
            self.tree_measures_ = selection.measures(self._start(labels))
        except InputError as problem:
            if problem.kind == "few-rows":
                return 0
            raise
        return max(self.tree_measures_, key=self.tree_measures_.__getitem__)

    def _unfitted_trees(self, n_trees: int) -> TreeFeatures:
        return TreeFeatures(n_trees, n_jobs=self.n_jobs, random_state=self.random_state)

    def _ascent(self, data: LabeledDocuments) -> GradientAscent:
        """Return the gradient ascent on the label functions; the runs share what does not depend on settings."""
        labels, prepared, weight = data.labels, self._prepare(data.labels), np.full(len(data.labels), START_WEIGHT)

        def start(settings: Settings) -> LabelFunctions:
            return self._initial_functions(labels, prepared, weight, settings)

        return GradientAscent(
            data,
            start,
            learns_weights="W" in self.mode,
            n_iter=self.n_iter,
            patience=self.patience,
            standard_errors=self.standard_errors,
        )

    def _grids(self, n_trees: int) -> dict[str, Sequence[float]]:
        """Return the values to try for each tuned parameter."""
        values = {"tree_features": n_trees, **{name: getattr(self, name) for name in self._grid_limits}}
        return {name: value if np.ndim(value) else (value,) for name, value in values.items()}

    def _set_fitted(self, data: LabeledDocuments, features: Features, objective: ObjectiveSpec, best: BestStep) -> None:
        labels = data.labels
        self.feature_names_in_, self.label_feature_arguments_ = labels.names, dict(labels.arguments)
        self.grades_ = _grades(labels)
        functions = type(best.functions[0]).mean(best.functions)
        self.learned_ = self._restore(functions.state())
        self.best_params_, self.best_iteration_ = dict(best.settings), best.iteration
        self.mu_, self.validation_ = best.mu, best.validation
        self.label_features_, self._features = labels, features
        self.remapped_ = self._apply(labels)
        self.ranker_ = best.ranker(data, self.remapped_, features.names, objective)

    # Results.

    def transform(self, labels: Any) -> RemappedLabels:
        """Return targets and weights of other labels (judgments or `LabelFeatures`); no expert grades are needed."""
        self._require_fitted()
        if not isinstance(labels, LabelFeatures):
            labels = label_features(labels, **self.label_feature_arguments_)
        return self._apply(labels)

    def starting_labels(self, labels: LabelFeatures) -> RemappedLabels:
        """Return the targets and weights of labels before the first step."""
        return RemappedLabels(labels, self._start(labels), np.full(len(labels), START_WEIGHT))

    def _apply(self, labels: LabelFeatures) -> RemappedLabels:
        if _grades(labels) != self.grades_:
            ours, theirs = (", ".join(f"{grade:g}" for grade in grades) for grades in (self.grades_, _grades(labels)))
            raise InputError(
                f"the labels are on another scale ({theirs}) than those of the fit ({ours})",
                kind="other-scale",
                fix=Fix("if it is the same scale, name its grades with {}", "grades", f"{ours.replace(' ', '')}"),
            )
        matrix = labels.aligned(self.feature_names_in_)
        return RemappedLabels(labels, *self.learned_.apply(matrix, self._start(labels)))

    @property
    def targets_(self) -> Floats:
        """Target of every label of the fit."""
        return self._fitted_labels().target

    @property
    def weights_(self) -> Floats:
        """Weight of every label of the fit."""
        return self._fitted_labels().weight

    def instances(self, features: Any = None, *, rescale: bool = True) -> Instances:
        """Return one training row per document with the learned target and weight; see `RemappedLabels.instances`."""
        remapped = self._fitted_labels()
        return remapped.instances(self._features if features is None else features, rescale=rescale)

    def predict(self, X: Any) -> Floats:
        """Return the scores of documents under `ranker_`."""
        self._require_fitted()
        return self.ranker_.predict(X)

    @property
    def importances_(self) -> Any:
        """Importance of each label feature for the target and for the weight, the most important first."""
        import pandas as pd

        self._require_fitted()
        target, weight = self.learned_.importances(len(self.feature_names_in_))
        table = pd.DataFrame({"feature": self.feature_names_in_, "target": target, "weight": weight})
        order = (table["target"] + table["weight"]).sort_values(ascending=False, kind="stable").index
        return table.loc[order].reset_index(drop=True)

    def dependence(self, feature: str, *, points: int = 10, labels: LabelFeatures | None = None) -> Any:
        """Return mean target and weight by the value of a label feature, in up to `points` groups (DataFrame).

        `target` and `weight` are means over the labels of a group; `target_alone` and `weight_alone` are means over all
        labels if only this feature is set to the mean of the group. The labels are those of the fit by default.
        """
        import pandas as pd

        require_integer("points", points, 1)
        known = self._fitted_labels().labels if labels is None else labels
        remapped, column = self._apply(known), known.column(feature)
        matrix, start = known.aligned(self.feature_names_in_), self._start(known)
        own = np.array([name == feature for name in self.feature_names_in_])
        rows = []
        for group in group_by_value(column, points):
            mean = float(column[group].mean())
            target, weight = self.learned_.apply(np.where(own, mean, matrix), start)
            rows.append(
                {
                    feature: mean,
                    "labels": len(group),
                    "target": remapped.target[group].mean(),
                    "weight": remapped.weight[group].mean(),
                    "target_alone": target.mean(),
                    "weight_alone": weight.mean(),
                }
            )
        return pd.DataFrame(rows)

    # Storage.

    @classmethod
    def _registered_classes(cls) -> Iterable[type[Any]]:
        return (load_estimator_class("label_learning", path) for path in REMAPPERS)

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters; a loss function is saved by its name."""
        parameters = super()._saved_parameters()
        if not isinstance(self.objective, str):
            parameters["objective"] = getattr(self.objective, "__name__", "a function")
        return parameters

    def _write_state(self, folder: Path) -> dict[str, Any]:
        """Write the learned functions and the ranker; labels are not saved."""
        values = {
            "best_iteration": self.best_iteration_,
            "mu": self.mu_,
            "validation": self.validation_,
            "best_params": self.best_params_,
            "tree_measures": {str(count): value for count, value in self.tree_measures_.items()},
            "grades": list(self.grades_),
            "recipe": self.label_feature_arguments_,
        }
        learned = self.learned_.state()
        state = SavedState(values, learned.arrays, learned.texts, {REMAPPER_RANKER: self.ranker_})
        return {
            "features": list(self.feature_names_in_),
            "history": self.history_,
            "validation_queries": list(self.validation_queries_),
            **state.write(folder),
        }

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        state = SavedState.read(folder, fields, files)
        self.feature_names_in_ = tuple(fields.texts("features"))
        require(self.feature_names_in_, "there are no features")
        self.history_ = fields.sequence("history", _is_settings, "steps")
        self.validation_queries_ = tuple(fields.texts("validation_queries"))
        values = Fields(state.values)
        self.best_iteration_, self.mu_ = values.integer("best_iteration"), values.number("mu")
        self.validation_ = values.number("validation")
        self.label_feature_arguments_ = _label_feature_arguments(values.object("recipe"))
        self.best_params_, self.grades_ = values.object("best_params"), tuple(values.numbers("grades"))
        require(_is_settings(self.best_params_), "its parameters are not numbers")
        measures = values.object("tree_measures") if "tree_measures" in values else {}
        require(_is_settings(measures), "its measures by the number of trees are not numbers")
        self.tree_measures_ = {int(count): float(value) for count, value in measures.items()}
        self.learned_ = self._restore(state)
        ranker = state.parts[REMAPPER_RANKER]
        require(isinstance(ranker, GLS), "its ranker is not a GLS")
        assert isinstance(ranker, GLS)
        self.ranker_ = ranker

    # Checks.

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.mode == "W" and self.start == "zero":
            raise UsageError(
                "must not be 'zero' if mode is 'W', which weights targets that are all 0", parameter="start"
            )

    def _require_varying_labels(self, labels: LabelFeatures) -> None:
        if self.mode == "W" and np.ptp(self._start(labels)) == 0:
            raise InputError(
                "every label is the same, and weights of equal labels change nothing",
                kind="equal-labels",
                fix=[Fix("learn targets with {}", "mode", "T"), "give labels that differ"],
            )
        if (labels.matrix == labels.matrix[:1]).all():
            raise InputError(
                "every label feature is constant",
                kind="constant-label-features",
                fix="give labels of several assessors or grades",
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learned_")

    def _fitted_labels(self) -> RemappedLabels:
        self._require_fitted()
        if not hasattr(self, "remapped_"):
            raise NotFittedError(
                f"This {type(self).__name__} was loaded, and labels are not saved; call transform with the labels."
            )
        return self.remapped_


def _grades(labels: LabelFeatures) -> tuple[float, ...]:
    return tuple(map(float, labels.judgments.scale.values))


def _label_feature_arguments(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the saved arguments of `label_features`; label features of the user's own have none."""
    if not stored:
        return {}
    arguments = Fields(stored)
    require_one_of("kind", arguments.text("kind"), KINDS)
    return {"kind": arguments.text("kind"), "by_grade": arguments.flag("by_grade"), "good": arguments.number("good")}


def _is_settings(value: object) -> bool:
    return isinstance(value, dict) and all(is_number(one) for one in value.values())
