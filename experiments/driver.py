"""Train candidates of `crowdrank run` on the folds of an experiment and compare their rankings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from crowdrank import Features
from crowdrank._typing import Floats, Integers
from crowdrank.errors import CrowdrankError, InputError
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import Judgments
from crowdrank.pipeline.candidates import Candidate
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData, build_run_data
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache, digest
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.ranker import Ranker
from experiments.base import UNJUDGED, Table, Tell, average_repeats, comparison_table, quiet, select_names
from experiments.documents import PARTS, run_frame

TREES: Mapping[str, Any] = {
    "n_estimators": 100,
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_child_samples": 20,
    "patience": 20,
}
"""Parameters of boosted trees with validation queries."""
SMALL_TREES: Mapping[str, Any] = {
    "n_estimators": 50,
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 30,
    "truncation": 15,
}
"""Parameters of boosted trees for few training queries."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows of a fold by their use.

    Attributes:
        crowd: rows whose crowd labels may be used.
        experts: rows whose expert grades may be used for training.
        validation: rows of the queries for early stopping and the selection of hyperparameters.
        test: rows that are scored.

    """

    crowd: Integers
    experts: Integers
    validation: Integers
    test: Integers


def rotate_parts(
    part: Integers, *, crowd: Sequence[int], experts: Sequence[int], validation: Sequence[int] = (3,)
) -> list[Fold]:
    """Return five folds: fold k uses part p + k for what the arguments say of part p, and tests part 4 + k.

    >>> first = rotate_parts(np.array([0, 1, 2, 3, 4, 4]), crowd=(0, 1), experts=(2,))[0]
    >>> [rows.tolist() for rows in (first.crowd, first.experts, first.validation, first.test)]
    [[0, 1], [2], [3], [4, 5]]
    """
    uses = [np.array(numbers, np.int64) for numbers in (crowd, experts, validation, (4,))]
    return [Fold(*(np.flatnonzero(np.isin(part, (use + k) % PARTS)) for use in uses)) for k in range(PARTS)]


def graded_data(features: Features, crowd: Judgments) -> RunData:
    """Return run data in which every grade of the features, also of honeypots, is an expert grade."""
    assert features.grade is not None
    grade = features.grade.astype(np.int8)
    gold = Gold(features.query, features.document, grade, Scale.parse(f"0-{grade.max()}"))
    data = build_run_data(crowd, features, gold)
    assert data.features.document.equals(features.document), "the rows of a query must be adjacent"
    return replace(data, expert=features.grade.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Setting:
    """Data and folds of one table of an experiment.

    Attributes:
        name, title: name and title of the table.
        features: documents with features and expert grades.
        crowds: judgments of each repeat.
        splits: folds of each repeat.
        measures: measures to report.
        settings: settings of the candidates, such as the validation measure and the trees.
        notes: description of the data for the reader.
        validate_on_experts: whether validation queries have expert grades; otherwise the labels that are learned.
        parameters: parameters of consensus models, by method.
        once: names of candidates that are trained in the first repeat only.

    """

    name: str
    title: str
    features: Features
    crowds: tuple[Judgments, ...]
    splits: tuple[Sequence[Fold], ...]
    measures: tuple[str, ...]
    settings: RunSettings
    notes: tuple[str, ...] = ()
    validate_on_experts: bool = False
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    once: tuple[str, ...] = ()

    def view(self, repeat: int, fold: Fold, keep: Path | None = None) -> TrainingView:
        """Return what candidates may see in a fold; consensus models are fitted to its crowd labels only.

        Remappers are stored in the folder `keep`.
        """
        data = graded_data(self.features, self.crowds[repeat]).restrict_judgments(fold.crowd)
        return TrainingView(
            data,
            ConsensusFits(data, StageCache(None), n_jobs=1, parameters=self.parameters),
            replace(self.settings, random_state=repeat),
            crowd=fold.crowd[data.item[fold.crowd] >= 0],
            experts=fold.experts,
            cache=StageCache(keep),
            key=digest(self.title, repeat, fold.crowd, fold.experts, fold.validation, fold.test),
            n_jobs=1,
            validation_queries=np.unique(data.query[fold.validation]),
            validate_on_experts=self.validate_on_experts,
        )

    @property
    def tested(self) -> Integers:
        """Rows of the test queries of all folds."""
        return np.sort(np.concatenate([fold.test for fold in self.splits[0]]))


@dataclass
class Rankings:
    """Rankings of the test queries of a setting.

    Attributes:
        scores: scores of each candidate, (n_repeats, n_rows); NaN for rows that were not scored.
        failed: reason for each candidate that could not be trained.
        inspected: results of the function `inspect`, one per fold.

    """

    scores: dict[str, Floats]
    failed: dict[str, str]
    inspected: list[Any]

    @property
    def notes(self) -> list[str]:
        """Sentences about candidates that could not be trained."""
        return [f"{name} was left out: {reason}." for name, reason in self.failed.items()]


def train_candidates(
    setting: Setting,
    candidates: Sequence[Candidate],
    *,
    inspect: Callable[[TrainingView], Any] | None = None,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Rankings:
    """Train candidates on every fold, several folds in parallel, and score the test queries.

    Args:
        setting: data and folds.
        candidates: candidates to train; one that raises an error is left out.
        inspect: function that is called with the view of each fold after training.
        keep: folder for scores and remappers; those that are there are not computed again.
        tell: progress function.

    """
    failed: dict[str, str] = {}
    shape = (len(setting.splits), len(setting.features.query))
    scores = {candidate.name: np.full(shape, np.nan) for candidate in candidates}

    def train(repeat: int, number: int, fold: Fold) -> Any:
        view = setting.view(repeat, fold, keep)

        def fold_scores(candidate: Candidate) -> dict[str, Floats]:
            tell(f"{candidate.name} on {setting.name}, repeat {repeat + 1}, fold {number + 1}")
            ranker = _train(candidate, view)
            return {"score": ranker.predict(view.data.matrix(fold.test), view.data.query[fold.test])}

        for candidate in candidates:
            if candidate.name in failed or (repeat and candidate.name in setting.once):
                continue
            try:
                made = view.cache.arrays(
                    "fold-scores", digest(view.key, candidate.name), partial(fold_scores, candidate)
                )
            except CrowdrankError as problem:
                failed.setdefault(candidate.name, str(problem).rstrip("."))
                continue
            scores[candidate.name][repeat, fold.test] = made["score"]
        return None if inspect is None else inspect(view)

    places = [
        (repeat, number, fold) for repeat, split in enumerate(setting.splits) for number, fold in enumerate(split)
    ]
    n_threads = min(default_threads(), len(places))
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        warnings.simplefilter("ignore")  # the notes of a setting describe its data
        inspected = list(pool.map(lambda place: train(*place), places))
    scores = {name: score for name, score in scores.items() if name not in failed}
    if not scores:
        name, reason = next(iter(failed.items()))
        raise InputError(f"no candidate can be trained on {setting.name} ({name}: {reason})", kind="no-ranker")
    return Rankings(scores, failed, inspected)


def _train(candidate: Candidate, view: TrainingView) -> Ranker:
    """Return the ranker of a candidate; raise InputError if the data do not allow it."""
    for method in candidate.methods:
        view.fits.fit(method)
    failed = (view.fits.failed[method] for method in candidate.methods if method in view.fits.failed)
    reason = candidate.reason_to_skip(view.data) or next(failed, "")
    if reason:
        raise InputError(reason)
    return view.ranker(candidate)


def evaluate_repeats(setting: Setting, score: Floats) -> list[Evaluation]:
    """Evaluate the scores (n_repeats, n_rows) of a candidate; repeats without scores are left out."""
    rows = setting.tested
    gold = run_frame(setting.features, setting.features.grade, "grade").iloc[rows]
    return [
        evaluate(run_frame(setting.features, one).iloc[rows], gold, list(setting.measures), unjudged=UNJUDGED)
        for one in score
        if not np.isnan(one[rows]).any()
    ]


def compare_rankings(setting: Setting, rankings: Rankings, baseline: str) -> Table:
    """Return a table with paired tests; the baseline is the first candidate if the named one was not trained."""
    evaluations = {name: average_repeats(evaluate_repeats(setting, score)) for name, score in rankings.scores.items()}
    base = baseline if baseline in evaluations else next(iter(evaluations))
    comparison = compare_evaluations(evaluations, baseline=base)
    return comparison_table(setting.name, setting.title, comparison, (*setting.notes, *rankings.notes))


def select(candidates: Sequence[Candidate], names: Sequence[str] | None) -> list[Candidate]:
    """Return the candidates with the given names, by default all."""
    by_name = {candidate.name: candidate for candidate in candidates}
    return [by_name[name] for name in select_names(names, by_name)]


def describe_trees(settings: Mapping[str, Any]) -> str:
    """Return a sentence about the parameters of trees."""
    return f"Trees: {', '.join(f'{name} {value:g}' for name, value in settings.items())}."
