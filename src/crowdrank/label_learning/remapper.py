"""Functions from label features to targets and weights, learned through the ranker that they train (REMAP 5)."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from crowdrank._base import load_class, require_integer, require_one_of
from crowdrank._folders import FolderKind
from crowdrank._model_io import FittedEstimator
from crowdrank._notebook import heading, html_table, panel, paragraph
from crowdrank._progress import Report, reporting
from crowdrank._saved import Fields, is_number, require
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.constraints import Constraints, InstanceOf, Number, OneOf, SequenceOf
from crowdrank.engine.base import Engine
from crowdrank.errors import InputError, NotFittedError
from crowdrank.evaluation.measures import parse_gains
from crowdrank.label_learning.expert_set import Experts, refuse_leaks
from crowdrank.label_learning.gls_gradients import Background
from crowdrank.label_learning.label_features import KINDS, LabelFeatures, label_features
from crowdrank.label_learning.objectives import Aim, Loss, Objective
from crowdrank.label_learning.optimizer import Climb, EngineSteps, Steps
from crowdrank.label_learning.remapped_labels import Remapped, groups
from crowdrank.rankers import store
from crowdrank.rankers.base import normalized
from crowdrank.rankers.data_checks import warn_missing_values
from crowdrank.rankers.instances import Instances, as_features
from crowdrank.rankers.labels import pair_positions
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.standardize import Standardizer
from crowdrank.rankers.store import State

MODES = ("W", "T", "W+T")
"""What is learned: weights, targets, or both."""
REMAPPERS = ("linear.LinearRemapper", "boosted.BoostedRemapper")
"""Locations of the remappers."""


class Functions(ABC):
    """A target and a weight for every label, as functions of what is known of it, while they are being learned.

    Attributes:
        target, weight: (n_labels,) of the training labels, as the functions stand. Of what is not learned (`mode`) the
            array stays the same one.

    """

    target: Floats
    weight: Floats

    @abstractmethod
    def step(self, of_target: Floats, of_weight: Floats | None, rate: float) -> None:
        """Move up along dM/dt and dM/dw of the training labels."""

    @abstractmethod
    def kept(self) -> Any:
        """What `learned` needs to make of these functions as they stand."""

    @abstractmethod
    def learned(self, kept: Any) -> Learned:
        """The functions as they stood."""


class Learned(ABC):
    """Learned functions, free of the labels that they were learned on."""

    @abstractmethod
    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Targets and weights of labels with these features (n_labels, n_features) and starting values."""

    @abstractmethod
    def importances(self) -> tuple[Floats, Floats]:
        """How much each label feature counts for the target and for the weight, each summing to 1 where any does."""

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Named arrays of which `of_arrays` makes the functions again."""


@dataclass(frozen=True)
class Best:
    """The best functions so far."""

    value: float
    mu: float
    iteration: int
    steps: Climb
    kept: Any
    coefficients: Floats


class Remapper(FittedEstimator):
    """Learns what labels are worth and how much they count, so that a ranker trained on them serves the experts best.

    The ranker in between is weighted least squares (`GLS`), whose answer to a change of any label is known; the slope
    of a measure on expert-graded queries is carried through it to every label's target and weight, and from there to
    the functions of label features. Which ridge and how many steps is told by validation queries; step 0 is least
    squares on the labels as they are (or as Dawid-Skene reads them), so that learning nothing is among the choices.

    Compare the learned labels with others before you trust them: least squares on plain averages,
    a ranker on expected grades, and one on the expert grades alone are hard to beat where experts are many.

    Attributes:
        targets_, weights_: of every label of the fit that has features.
        remapped_: the same with ids, per label and per document.
        ranker_: the `GLS` that the learned targets and weights make.
        history_: a dict for each step: mu, iteration, training, validation.
        best_iteration_, mu_, validation_: of the step that was kept, and its measure on the validation queries.
        importances_: how much each label feature counts for the target and the weight (DataFrame).
        label_features_: what was known of the labels.

    """

    mode: str
    objective: str | Loss
    gains: str | Sequence[float]
    ridge: float | Sequence[float]
    n_iter: int
    learning_rate: float
    patience: int
    validation: float
    kind: str
    random_state: int

    _folder: ClassVar[FolderKind] = store.REMAPPER
    _file: ClassVar[str] = store.FILE
    _parameter_constraints: ClassVar[Constraints] = {
        "mode": [OneOf(*MODES)],
        "objective": [InstanceOf(str, "the name of a measure or loss"), InstanceOf(Callable, "a function")],
        "ridge": [Number(0, above=True), SequenceOf(Number(0, above=True))],
        "n_iter": [Number(0, integer=True)],
        "learning_rate": [Number(0, above=True)],
        "patience": [Number(1, integer=True)],
        "validation": [Number(0, above=True)],
        "kind": [OneOf(*KINDS)],
        "random_state": [Number(0, integer=True)],
    }

    label_features_: LabelFeatures
    remapped_: Remapped
    ranker_: GLS
    history_: list[dict[str, float]]
    best_iteration_: int
    mu_: float
    validation_: float
    feature_names_in_: tuple[str, ...]
    recipe_: dict[str, Any]
    learned_: Learned

    def _repr_html_(self) -> str:
        if not hasattr(self, "learned_"):
            return panel(heading(repr(self)), paragraph("not fitted yet"))
        said = f"step {self.best_iteration_} was kept: {self.validation_:.4f} on the validation queries"
        return panel(heading(repr(self)), paragraph(said), html_table(self.importances_.to_dict("records")))

    # What a remapper states.

    @abstractmethod
    def _prepare(self, labels: LabelFeatures) -> Any:
        """Whatever is made of the label features once."""

    @abstractmethod
    def _begin(self, labels: LabelFeatures, prepared: Any) -> Functions:
        """The functions before the first step."""

    @abstractmethod
    def _restore(self, arrays: dict[str, Any]) -> Learned:
        """The functions again from their arrays."""

    def _start(self, labels: LabelFeatures) -> Floats:
        """What targets start from, (n_labels,)."""
        return labels.start

    # What users call.

    @abstractmethod
    def _on_engine(
        self, functions: Any, prepared: Any, labels: LabelFeatures, X: Floats, engine: Engine
    ) -> EngineSteps:
        """The functions, to be moved on an engine; X are the standardized features of the documents."""

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
            labels: judgments (`Judgments`, a path or a DataFrame), or the `LabelFeatures` made of them.
            features: `Features`, a path or a DataFrame: of the judged documents, and of the experts' where `expert`
                names documents.
            expert: the grades that steer: `Gold`, a path or a DataFrame of grades of documents that have features;
                `Instances`; or (X, y, query). Where the objective is a loss, (X, y) will do.
            eval_set: the grades that tell when to stop, likewise, of other queries; by default a part of `expert`
                (`validation`) is set aside.
            progress: show a bar when it takes long, or call a function with (step, most, validation measure).
            engine: where the sums over labels are made; by default here, in memory.

        """
        self._check_parameters()
        known = as_features(features)
        told = labels if isinstance(labels, LabelFeatures) else label_features(labels, kind=self.kind, engine=engine)
        told, row = _with_features(told, known)
        self._refuse_flat(told)
        aim = Aim(self.objective, parse_gains(self.gains))
        experts, held_out = self._experts(expert, eval_set, known, aim)
        refuse_leaks(experts, held_out, told.gold_queries)
        aim.adopt(experts.lists.grade)
        X = known.matrix[row]
        standard = Standardizer.fit(X, np.diff(told.judgments.offsets).astype(np.float64))
        warn_missing_values(X, known.names, "GLS")
        standardized = standard(X)
        background = Background(standardized, told.item) if engine is None else None
        rows = [
            (standard(part.lists.features), aim.of(part.lists))
            for part in (experts.shuffled(self.random_state), held_out)
        ]
        prepared = self._prepare(told)
        with reporting(progress, type(self).__name__) as report:

            def begin() -> Climb:
                functions = self._begin(told, prepared)
                if background is not None:
                    return Steps(functions, background, "W" in self.mode)
                assert engine is not None
                return self._on_engine(functions, prepared, told, standardized, engine)

            best = self._climb(begin, rows, report)
        self._keep(told, known.names, standard, aim, best)
        self._features = known
        return self

    def _climb(
        self,
        begin: Callable[[], Climb],
        rows: list[tuple[Floats, Objective]],
        report: Report,
    ) -> Best:
        """Steps up the measure for each ridge, until the validation measure has not risen for a while."""
        (V, steering), (held_out, stopping) = rows
        self.history_ = []
        best: Best | None = None
        ridges = _several(self.ridge)
        for number, ridge in enumerate(ridges):
            steps = begin()
            # The ridge is a part of what a standardized feature weighs at the start.
            mu = ridge * steps.weight
            highest, at = -np.inf, 0
            for iteration in range(self.n_iter + 1):
                steps.solve(mu)
                score = steps.scores(V)
                value = stopping.value(steps.scores(held_out))
                told = {"training": steering.value(score), "validation": value}
                self.history_.append({"mu": mu, "iteration": iteration, **told})
                if best is None or value > best.value:
                    best = Best(value, mu, iteration, steps, steps.kept(), steps.coefficients)
                if value > highest:
                    highest, at = value, iteration
                report(number * self.n_iter + iteration, len(ridges) * self.n_iter, value)
                if iteration == self.n_iter or iteration - at >= self.patience:
                    break
                steps.climb(V, steering.slope(score), self.learning_rate)
        assert best is not None
        return best

    def _keep(
        self,
        labels: LabelFeatures,
        names: tuple[str, ...],
        standard: Standardizer,
        aim: Aim,
        best: Best,
    ) -> None:
        self.learned_ = best.steps.learned(best.kept)
        self.feature_names_in_, self.recipe_ = labels.names, dict(labels.recipe)
        self.best_iteration_, self.mu_, self.validation_ = best.iteration, best.mu, best.value
        self.label_features_ = labels
        self.remapped_ = self._remapped(labels)
        self.ranker_ = _ranker(best, standard, names, aim)

    def transform(self, labels: Any) -> Remapped:
        """Targets and weights of other labels, without experts: judgments, or the `LabelFeatures` made of them."""
        self._require_fitted()
        if not isinstance(labels, LabelFeatures):
            labels = label_features(labels, **self.recipe_)
        return self._remapped(labels)

    def _remapped(self, labels: LabelFeatures) -> Remapped:
        matrix = labels.aligned(self.feature_names_in_)
        return Remapped(labels, *self.learned_.apply(matrix, self._start(labels)))

    @property
    def targets_(self) -> Floats:
        """The target of every label of the fit."""
        return self._of_fit().target

    @property
    def weights_(self) -> Floats:
        """The weight of every label of the fit."""
        return self._of_fit().weight

    def instances(self, features: Any = None, *, rescale: bool = True) -> Instances:
        """Rows with the learned targets and weights, one a document, for any ranker; see `Remapped.instances`."""
        remapped = self._of_fit()
        return remapped.instances(self._features if features is None else features, rescale=rescale)

    def predict(self, X: Any) -> Floats:
        """The scores of documents by `ranker_`."""
        self._require_fitted()
        return self.ranker_.predict(X)

    @property
    def importances_(self) -> Any:
        """How much each label feature counts for the target and for the weight, the most important first."""
        import pandas as pd

        self._require_fitted()
        target, weight = self.learned_.importances()
        told = pd.DataFrame({"feature": self.feature_names_in_, "target": target, "weight": weight})
        by = (told["target"] + told["weight"]).sort_values(ascending=False, kind="stable").index
        return told.loc[by].reset_index(drop=True)

    def dependence(self, feature: str, *, points: int = 10, labels: LabelFeatures | None = None) -> Any:
        """How target and weight go with a label feature, in up to `points` groups of labels by its value.

        `target` and `weight` are the means over the group's labels; `target_alone` and `weight_alone` those over all
        labels if only this feature were the group's mean. The labels are those of the fit unless others are given.
        """
        import pandas as pd

        require_integer("points", points, 1)
        known = self._of_fit().labels if labels is None else labels
        remapped = self._remapped(known)
        column = known.column(feature)
        matrix, start = known.aligned(self.feature_names_in_), self._start(known)
        place = self.feature_names_in_.index(feature) if feature in self.feature_names_in_ else None
        rows = []
        for group in groups(column, points):
            middle = float(column[group].mean()) if len(group) else np.nan
            alone = matrix.copy()
            if place is not None:
                alone[:, place] = middle
            target, weight = self.learned_.apply(alone, start)
            rows.append(
                {
                    feature: middle,
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
        return (load_class("label_learning", location) for location in REMAPPERS)

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters; a function as the objective is saved by its name."""
        parameters = super()._saved_parameters()
        if not isinstance(self.objective, str):
            parameters["objective"] = getattr(self.objective, "__name__", "a function")
        return parameters

    def _write_state(self, folder: Path) -> dict[str, Any]:
        """Write the learned functions and the ranker, but not the labels."""
        values = {
            "best_iteration": self.best_iteration_,
            "mu": self.mu_,
            "validation": self.validation_,
            "recipe": self.recipe_,
        }
        state = State(values, self.learned_.arrays(), {}, {"ranker": self.ranker_})
        return {
            "features": list(self.feature_names_in_),
            "history": self.history_,
            "validation_queries": [],
            **state.write(folder),
        }

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        state = State.read(folder, fields, files)
        self.feature_names_in_ = tuple(fields.texts("features"))
        require(self.feature_names_in_, "there are no features")
        self.history_ = fields.sequence("history", _is_step, "steps")
        values = Fields(state.values)
        self.best_iteration_, self.mu_ = values.integer("best_iteration"), values.number("mu")
        self.validation_, self.recipe_ = values.number("validation"), _recipe(values.object("recipe"))
        self.learned_ = self._restore(state.arrays)
        ranker = state.parts["ranker"]
        require(isinstance(ranker, GLS), "its ranker is not a GLS")
        assert isinstance(ranker, GLS)
        self.ranker_ = ranker

    # Checks.

    def _experts(self, expert: Any, eval_set: Any, features: Any, aim: Aim) -> tuple[Experts, Experts]:
        experts = Experts.of(expert, features, ranks=aim.ranks, what="expert")
        if eval_set is None:
            return experts.split(self.validation, self.random_state)
        return experts, Experts.of(eval_set, features, ranks=aim.ranks, what="eval_set")

    def _refuse_flat(self, labels: LabelFeatures) -> None:
        if self.mode == "W" and np.ptp(self._start(labels)) == 0:
            raise InputError(
                "every label says the same, and weights cannot change what labels say",
                fix="learn targets (mode='T'), or give labels that differ",
            )
        if (labels.matrix == labels.matrix[:1]).all():
            raise InputError(
                "no label feature differs between two labels", fix="give labels of several assessors or grades"
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learned_")

    def _of_fit(self) -> Remapped:
        self._require_fitted()
        if not hasattr(self, "remapped_"):
            raise NotFittedError(
                f"This {type(self).__name__} was loaded, and labels are not saved; call transform with the labels."
            )
        return self.remapped_


def _with_features(labels: LabelFeatures, features: Any) -> tuple[LabelFeatures, Any]:
    """The labels of documents that have features, and the row of features of each document."""
    table = labels.judgments
    query = table.queries.take(table.item_query)
    document = table.documents.take(table.item_document)
    row = pair_positions(features.query, features.document, query, document, "the features")
    lost = row < 0
    if lost.all():
        raise InputError(
            f"no judged document has features (the first one judged: '{document[0].as_py()}' of query "
            f"'{query[0].as_py()}')",
            fix="check that both name queries and documents alike",
        )
    if lost.any():
        warnings.warn(
            f"{counted(int(lost.sum()), 'judged document')} without features "
            f"{'was' if lost.sum() == 1 else 'were'} left out.",
            stacklevel=3,
        )
    return labels.where(~lost[labels.item]), row[~lost]


def _ranker(best: Best, standard: Standardizer, names: tuple[str, ...], aim: Aim) -> GLS:
    """The least squares behind the best functions as a ranker; scores of a named loss are in grades again."""
    ranker = GLS(best.mu)
    graded = aim.range if aim.asked == "squared" else 1.0
    ranker.coef_ = best.coefficients[:-1] * graded
    ranker.intercept_ = float(best.coefficients[-1]) * graded + (aim.low if aim.asked == "squared" else 0.0)
    ranker.standardizer_, ranker.mu_, ranker.history_ = standard, best.mu, [best.value]
    ranker.feature_importances_, ranker.features_ = normalized(np.abs(ranker.coef_)), names
    return ranker


def _recipe(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the saved recipe of label features; labels with features of the user's own have none."""
    if not stored:
        return {}
    recipe = Fields(stored)
    require_one_of("kind", recipe.text("kind"), KINDS)
    return {"kind": recipe.text("kind"), "by_grade": recipe.flag("by_grade"), "good": recipe.number("good")}


def _is_step(value: object) -> bool:
    return isinstance(value, dict) and all(is_number(one) for one in value.values())


def _several(value: float | Sequence[float]) -> list[float]:
    return [float(one) for one in (value if isinstance(value, Sequence | np.ndarray) else [value])]
