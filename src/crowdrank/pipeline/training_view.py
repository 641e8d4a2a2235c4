"""Part of the data of a run that a ranker may be trained on, and the remappers that are fitted to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.pair_probabilities import PairProbabilities
from crowdrank.errors import InputError
from crowdrank.label_learning.boosted_remapper import BoostedRemapper
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.linear_remapper import LinearRemapper
from crowdrank.label_learning.remapped_labels import RemappedLabels
from crowdrank.label_learning.remapper import Remapper
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache, digest
from crowdrank.rankers.ranker import Ranker

if TYPE_CHECKING:
    from crowdrank.pipeline.candidates import Candidate

MIN_QUERIES_FOR_VALIDATION = 100
"""Minimum number of training queries of which a share is held out for early stopping."""
VALIDATION_SHARE = 0.15
"""Share of the training queries that is held out for early stopping."""
RemapperKind = Literal["linear", "boosted"]
REMAPPER_CLASSES: Mapping[RemapperKind, type[Remapper]] = {"linear": LinearRemapper, "boosted": BoostedRemapper}
REMAPPER_PARAMETERS: Mapping[RemapperKind, Mapping[str, Any]] = {
    "linear": {"learning_rate": 0.1, "patience": 8, "tree_features": 0},
    "boosted": {"learning_rate": 0.04, "depth": 3, "patience": 8, "tree_features": 0},
}
"""Parameters of remappers: larger steps and less patience than the defaults do as well in half the time.

Only `remap-trees` has tree features, so that `run` shows what they add.
"""
MAX_LABELS_PER_DOCUMENT = 5
"""Maximum number of labels per document that a remapper is fitted to; it is then applied to all labels."""
MAX_DOCUMENTS = 20_000
"""Maximum number of documents that a remapper is fitted to; it is then applied to all documents."""
MIN_REMAPPER_QUERIES = 4
"""Minimum number of expert-graded queries to fit a remapper: some for the gradients, some for early stopping."""


FIT = "fit"
"""Name of the stages with rankers by the content of their training data, which candidates and folds share.

A remapper that learns nothing, for example, gives the same labels on every fold.
"""


@dataclass(eq=False)
class TrainingView:
    """Part of the data that a candidate may be trained on.

    Attributes:
        data: data of the run.
        fits: consensus models.
        settings: settings of the run.
        crowd: rows whose crowd labels may be used.
        experts: rows whose expert grades may be used.
        cache: cache of rankers and remappers.
        key: cache key of the view.
        n_jobs: number of threads of a fit.
        report: progress function.
        validation_queries: queries for early stopping; by default some of the training queries if there are enough.
        validate_on_experts: whether the expert grades of these queries are used instead of the labels of the fit.

    """

    data: RunData
    fits: ConsensusFits
    settings: RunSettings
    crowd: Integers
    experts: Integers
    cache: StageCache = field(default_factory=lambda: StageCache(None))
    key: str = ""
    n_jobs: int | None = None
    report: Report | bool = False
    validation_queries: Integers | None = None
    validate_on_experts: bool = False

    def labels(self, method: str, target: str) -> tuple[Integers, Floats]:
        """Return the rows with crowd labels, and the consensus of these rows as labels."""
        return self.crowd, self.fits.labels(method, target)[self.crowd]

    def expert_grades(self) -> tuple[Integers, Floats]:
        """Return the rows with expert grades, and the grades."""
        return self.experts, self.data.expert[self.experts]

    def ranker(self, candidate: Candidate) -> Ranker:
        """Return the ranker of a candidate, trained on this view once; ensembles share their members."""
        return self.cache.remember(f"ranker-{candidate.name}", self.key, lambda: candidate.fit(self))

    def fit(
        self,
        make: RankerFactory,
        rows: Integers,
        y: Floats,
        sample_weight: Floats | None = None,
        *,
        with_items: bool = False,
        pairs: PairProbabilities | None = None,
    ) -> Ranker:
        """Train a ranker.

        Args:
            make: function that returns the unfitted ranker.
            rows: rows to train on, or to validate on if they are of validation queries.
            y: (n,) grades or (n, n_grades) probabilities of the rows.
            sample_weight: (n,) weights of the rows.
            with_items: whether the ranker learns from judgments and needs the item of each row in `data.labels`.
            pairs: joint posterior of the items, whose probabilities of the pairs of `rows` are the targets of pairs.

        """
        if not len(rows):
            raise InputError("all of its training data are of held-out queries", kind="no-training-data")
        is_validation = self._is_validation(rows)
        validation = self._validation_set(rows[is_validation], y[is_validation])
        train, labels = rows[~is_validation], y[~is_validation]
        weight = None if sample_weight is None else sample_weight[~is_validation]
        ranker = make(self, len(rows), validation is not None)
        options: dict[str, Any] = {"items": self.data.item[train]} if with_items else {}
        if pairs is not None:
            starts = np.flatnonzero(np.append(True, np.diff(self.data.query[train]) != 0))
            targets = pairs.of_queries(self.data.item[train], np.append(starts, len(train)))
            options["pair_probabilities"] = targets

        def fit() -> Ranker:
            query, X = self.data.query[train], self.data.shared_matrix(train)
            ranker.fit(
                X, labels, query=query, sample_weight=weight, eval_set=validation, progress=self.report, **options
            )
            if validation is not None:
                ids = self.data.query_ids.take(pa.array(np.unique(validation[2])))
                ranker.validation_queries_ = tuple(ids.to_pylist())
            return ranker

        if with_items:  # it also depends on the judgments
            return fit()
        optional = [part for part in (sample_weight, *(validation or ())[1:], *options.values()) if part is not None]
        settings = (type(ranker).__name__, ranker.get_params(), self.validate_on_experts, sample_weight is None)
        return self.cache.remember(FIT, digest(*settings, rows, train, y, *optional), fit)

    def _is_validation(self, rows: Integers) -> Booleans:
        """Return which rows are held out for early stopping."""
        queries = self.validation_queries
        if queries is None:
            training = np.unique(self.data.query[rows])
            if len(training) < MIN_QUERIES_FOR_VALIDATION:
                return np.zeros(len(rows), bool)
            order = np.random.default_rng(self.settings.random_state).permutation(training)
            queries = order[: round(VALIDATION_SHARE * len(order))]
        is_held_out = np.zeros(len(self.data.query_ids), bool)
        is_held_out[queries] = True
        return is_held_out[self.data.query[rows]]

    def _validation_set(self, rows: Integers, y: Floats) -> tuple[Any, Floats, Integers] | None:
        """Return features, labels and queries for early stopping, or None if there are none."""
        if self.validate_on_experts and self.validation_queries is not None:
            rows = self.data.graded_rows(self.validation_queries)
            y = self.data.expert[rows]
        return (self.data.shared_matrix(rows), y, self.data.query[rows]) if len(rows) else None

    # Remappers.

    def remapper(self, kind: RemapperKind, /, **parameters: Any) -> Remapper:
        """Return a remapper fitted to the expert grades of this view, once for all candidates that use it."""
        return self.cache.get(
            f"remapper-{kind}",
            self._remapper_key(kind, parameters),
            lambda: self.fit_remapper(kind, parameters),
            lambda remapper, path: remapper.save(path),
            Remapper.load,
        )

    def _remapper_key(self, kind: RemapperKind, parameters: Mapping[str, Any]) -> str:
        return digest(self.key, kind, getattr(self.settings, kind), parameters)

    def remap(self, kind: RemapperKind, /, **parameters: Any) -> RemappedLabels:
        """Return the targets and weights that a remapper gives the crowd labels of this view."""
        remapper = self.remapper(kind, **parameters)
        return remapper.transform(self.fits.label_features(remapper.kind).where(self._is_visible(remapper.kind)))

    def starting_labels(self, kind: RemapperKind, /, **parameters: Any) -> tuple[Floats, Floats]:
        """Return target and weight of each row with crowd labels before the remapper has learned anything."""
        remapper = self.remapper(kind, **parameters)
        target, weight = remapper.starting_labels(self.fits.label_features(remapper.kind)).by_document()
        items = self.data.item[self.crowd]
        return target[items], weight[items]

    def remapped_labels(self, kind: RemapperKind, /, **parameters: Any) -> tuple[Floats, Floats]:
        """Return the target and the weight that a remapper gives each row with crowd labels, computed once."""

        def remap() -> tuple[Floats, Floats]:
            # All labels are transformed: a copy of the visible ones would take longer.
            remapper = self.remapper(kind, **parameters)
            target, weight = remapper.transform(self.fits.label_features(remapper.kind)).by_document()
            items = self.data.item[self.crowd]
            return target[items], weight[items]

        return self.cache.remember("remapped", self._remapper_key(kind, parameters), remap)

    def fit_remapper(
        self, kind: RemapperKind, parameters: Mapping[str, Any], labels: LabelFeatures | None = None
    ) -> Remapper:
        """Fit a remapper to label features, by default those of `remapper_sample`."""
        rows, grades = self.expert_grades()
        n_queries = len(np.unique(self.data.query[rows]))
        if n_queries < MIN_REMAPPER_QUERIES:
            problem = f"{counted(n_queries, 'expert-graded query')} cannot fit a remapper; {MIN_REMAPPER_QUERIES} can"
            raise InputError(problem, kind="few-expert-queries")
        own = {"linear": self.settings.linear, "boosted": self.settings.boosted}[kind]
        shared = {
            "objective": "DCG@10",
            "gains": self.settings.gains,
            "n_jobs": self.n_jobs,
            "random_state": self.settings.random_state,
        }
        remapper = REMAPPER_CLASSES[kind]().set_params(**{**shared, **REMAPPER_PARAMETERS[kind], **own, **parameters})
        experts = (self.data.matrix(rows), grades, self._query_ids(self.data.query[rows]))
        held_out = self._validation_set(rows[:0], grades[:0]) if self.validate_on_experts else None
        return remapper.fit(
            self.remapper_sample(remapper.kind) if labels is None else labels,
            self.data.features,
            experts,
            eval_set=None if held_out is None else (*held_out[:2], self._query_ids(held_out[2])),
            progress=self.report,
            engine=self.fits.engine,
        )

    def _query_ids(self, query: Integers) -> pa.DictionaryArray:
        """Return the ids of queries as text, with their codes."""
        return pa.DictionaryArray.from_arrays(pa.array(query), self.data.query_ids.cast(pa.string()))

    def remapper_sample(self, kind: str) -> LabelFeatures:
        """Return the features of the labels that a remapper is fitted to."""
        return self.fits.label_features(kind).where(self._is_sampled_label(kind))

    def labels_per_sampled_label(self, kind: str) -> float:
        """Return the number of visible labels divided by the number of labels that a remapper is fitted to."""
        return float(self._is_visible(kind).sum() / self._is_sampled_label(kind).sum())

    def _is_visible(self, kind: str) -> Booleans:
        """Return which labels are of documents of this view, (n_labels,)."""
        is_visible = np.zeros(self.data.labels.n_items, bool)
        is_visible[self.data.item[self.crowd]] = True
        return is_visible[self.fits.label_features(kind).item]

    def _is_sampled_label(self, kind: str) -> Booleans:
        """Return which labels a remapper is fitted to, (n_labels,)."""
        label_rank, document_rank = self.fits.random_order(kind, self.settings.random_state)
        visible = np.sort(self.data.item[self.crowd])
        sampled = np.zeros(len(document_rank), bool)
        sampled[visible[np.argsort(document_rank[visible])[:MAX_DOCUMENTS]]] = True
        return np.asarray((label_rank < MAX_LABELS_PER_DOCUMENT) & sampled[self.fits.label_features(kind).item])


RankerFactory = Callable[[TrainingView, int, bool], Ranker]
"""Function (view, number of rows, whether there are validation queries) that returns an unfitted ranker."""
