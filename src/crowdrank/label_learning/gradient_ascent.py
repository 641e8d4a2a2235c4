"""Gradient ascent on targets and weights of labels, through the least squares on them (REMAP Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crowdrank._progress import Report
from crowdrank._typing import Floats
from crowdrank.label_learning.label_functions import LabelFunctions, LearnedFunctions
from crowdrank.label_learning.labeled_documents import LabeledDocuments
from crowdrank.label_learning.objectives import ObjectiveSpec
from crowdrank.label_learning.tuning import GridLimits, Settings, coordinate_search
from crowdrank.rankers.linear import GLS


@dataclass(frozen=True)
class BestStep:
    """The functions after the best step, and the least squares on their targets and weights.

    Attributes:
        validation: measure on the validation queries.
        iteration: number of the step.
        mu: ridge of the least squares.
        settings: tuned parameters.
        functions: learned functions.
        coefficients: (n_features + n_trees + 1,) of the least squares, the intercept last.

    """

    validation: float
    iteration: int
    mu: float
    settings: Settings
    functions: LearnedFunctions
    coefficients: Floats

    def ranker(self, data: LabeledDocuments, names: tuple[str, ...], objective: ObjectiveSpec) -> GLS:
        """Return the least squares as a ranker of documents with features of these names."""
        n_trees = int(self.settings["tree_features"])
        factor, offset = objective.output_scale
        ranker = GLS(self.mu, tree_features=n_trees)
        ranker.coef_ = self.coefficients[:-1] * factor
        ranker.intercept_ = float(self.coefficients[-1]) * factor + offset
        ranker.tree_features_ = data.trees.first(n_trees) if data.trees is not None and n_trees else None
        ranker.standardizer_ = data.standardizer.first(len(ranker.coef_))
        ranker.mu_, ranker.history_, ranker.features_ = self.mu, [self.validation], names
        ranker.feature_importances_ = ranker._importances(len(names))
        return ranker


class GradientAscent:
    """Runs of gradient ascent with several settings, of which the validation queries choose the best step.

    Args:
        data: documents with labels and expert grades.
        start: function from settings to the functions before the first step.
        learns_weights: whether the weights are learned; otherwise their gradient is not needed.
        n_iter: maximum number of steps of a run.
        patience: number of steps without a higher validation measure after which a run stops.

    Attributes:
        history: a dict for each step: the settings, run, mu, iteration, training, validation.

    """

    def __init__(
        self,
        data: LabeledDocuments,
        start: Callable[[Settings], LabelFunctions],
        *,
        learns_weights: bool,
        n_iter: int,
        patience: int,
    ) -> None:
        self.data, self.start, self.learns_weights = data, start, learns_weights
        self.n_iter, self.patience = n_iter, patience
        self.history: list[dict[str, float]] = []

    def search(
        self, grids: Mapping[str, Sequence[float]], limits: Mapping[str, GridLimits], report: Report
    ) -> BestStep:
        """Tune the settings by coordinate search; return the step with the highest validation measure."""
        n_planned = 1 + sum(len(values) - 1 for values in grids.values())
        best: BestStep | None = None
        run = -1

        def evaluate(settings: Settings) -> float:
            nonlocal best, run
            run += 1

            def report_step(iteration: int, value: float) -> None:
                report(run * self.n_iter + iteration, max(n_planned, run + 1) * self.n_iter, value)

            step = self._ascend(settings, run, report_step)
            if best is None or step.validation > best.validation:
                best = step
            return step.validation

        coordinate_search(grids, limits, evaluate)
        assert best is not None
        return best

    def _ascend(self, settings: Settings, run: int, report: Callable[[int, float], None]) -> BestStep:
        """Run gradient ascent until the validation measure stops rising; return the best step."""
        functions, n_trees = self.start(settings), int(settings["tree_features"])
        regression = self.data.regression(n_trees)
        (V, training), (V_validation, validation) = self.data.experts(n_trees)
        mu = settings["ridge"] * float(functions.weight.sum())
        best: BestStep | None = None
        for iteration in range(self.n_iter + 1):
            coefficients = regression.solve(functions.target, functions.weight, mu)
            score, value = regression.predict(V), validation.value(regression.predict(V_validation))
            step = {"run": run, "mu": mu, "iteration": iteration, "training": training.value(score)}
            self.history.append({**settings, **step, "validation": value})
            if best is None or value > best.validation:
                best = BestStep(value, iteration, mu, settings, functions.snapshot(), coefficients)
            report(iteration, value)
            if iteration == self.n_iter or iteration - best.iteration >= self.patience:
                break
            gradients = regression.gradients(V, training.gradient(score), of_weight=self.learns_weights)
            functions.step(*gradients, settings["learning_rate"])
        assert best is not None
        return best
