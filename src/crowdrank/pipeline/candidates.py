"""Candidates of a run: named ways to train a ranker on crowd labels, expert grades or both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.gda_pairwise import GDAPairwise
from crowdrank.errors import InputError, UsageError, near
from crowdrank.label_learning.boosted import BoostedRemapper
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.linear import LinearRemapper
from crowdrank.label_learning.remapped_labels import Remapped, rescaled
from crowdrank.label_learning.remapper import Remapper
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache, digest
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.gda_mart import GDAPairwiseMART
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.single_feature import SingleFeature

MIN_QUERIES_FOR_VALIDATION = 100
"""Minimum number of training queries of which a share is held out for early stopping."""
VALIDATION_SHARE = 0.15
"""Share of the training queries that is held out for early stopping."""
TREES: Mapping[str, Any] = {"n_estimators": 200, "learning_rate": 0.1, "patience": 20}
"""Parameters of LambdaMART with validation queries."""
SMALL_TREES: Mapping[str, Any] = {
    "n_estimators": 50,
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 30,
    "truncation": 15,
}
"""Parameters of LambdaMART without validation queries."""
RIDGES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Ridges that least squares chooses from, as multiples of the number of rows."""
RIDGE = 0.03
"""Ridge of least squares without validation queries, as a multiple of the number of rows."""
TREE_FEATURES = 200
"""Number of trees among the features of least squares without validation queries, within REMAP's best range."""
MAX_PAIRWISE_JUDGMENTS = 200_000
"""Maximum number of judgments for the pairwise model, whose time grows with the number of pairs."""
RemapperKind = Literal["linear", "boosted"]
REMAPPERS: Mapping[RemapperKind, type[Remapper]] = {"linear": LinearRemapper, "boosted": BoostedRemapper}
REMAPPER_PARAMETERS: Mapping[RemapperKind, Mapping[str, Any]] = {
    "linear": {"learning_rate": 0.1, "patience": 15},
    "boosted": {"learning_rate": 0.04, "depth": 3, "patience": 15},
}
"""Parameters of remappers: larger steps and less patience than the defaults do as well in half the time."""
MAX_LABELS_PER_DOCUMENT = 5
MAX_DOCUMENTS = 20_000
"""Maximum number of labels per document and of documents used to fit a remapper, which is then applied to all."""
MIN_REMAPPER_QUERIES = 4
"""Minimum number of expert-graded queries to fit a remapper: some for the gradients, some for early stopping."""


@dataclass(eq=False)
class TrainingView:
    """Part of the data that a candidate may be trained on.

    Attributes:
        data: data of the run.
        fits: consensus models.
        settings: settings of the run.
        crowd: rows whose crowd labels may be used.
        experts: rows whose expert grades may be used.
        cache: cache of remappers.
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
    _rankers: dict[str, Ranker] = field(default_factory=dict)
    _remappers: dict[str, Remapper] = field(default_factory=dict)
    _remapped: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)

    def labels(self, method: str, target: str) -> tuple[Integers, Floats]:
        """Return the rows with crowd labels, and the consensus of these rows as labels."""
        return self.crowd, self.fits.labels(method, target)[self.crowd]

    def expert_grades(self) -> tuple[Integers, Floats]:
        """Return the rows with expert grades, and the grades."""
        return self.experts, self.data.expert[self.experts]

    def ranker(self, candidate: Candidate) -> Ranker:
        """Return the ranker of a candidate, trained on this view once; ensembles share their members."""
        if candidate.name not in self._rankers:
            self._rankers[candidate.name] = candidate.fit(self)
        return self._rankers[candidate.name]

    def fit(
        self,
        make: RankerFactory,
        rows: Integers,
        y: Floats,
        sample_weight: Floats | None = None,
        *,
        with_items: bool = False,
    ) -> Ranker:
        """Train a ranker.

        Args:
            make: function that returns the unfitted ranker.
            rows: rows to train on, or to validate on if they are of validation queries.
            y: (n,) grades or (n, n_grades) probabilities of the rows.
            sample_weight: (n,) weights of the rows.
            with_items: whether the ranker learns from judgments and needs the item of each row in `data.labels`.

        """
        if not len(rows):
            raise InputError("all of its training data are of held-out queries", kind="no-training-data")
        is_validation = self._is_validation(rows)
        validation = self._validation_set(rows[is_validation], y[is_validation])
        train = rows[~is_validation]
        options: dict[str, Any] = {"items": self.data.item[train]} if with_items else {}
        ranker = make(self, len(rows), validation is not None).fit(
            self.data.matrix(train),
            y[~is_validation],
            query=self.data.query[train],
            sample_weight=None if sample_weight is None else sample_weight[~is_validation],
            eval_set=validation,
            progress=self.report,
            **options,
        )
        if validation is not None:
            ranker.validation_queries_ = tuple(self.data.query_ids.take(pa.array(np.unique(validation[2]))).to_pylist())
        return ranker

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
        return (self.data.matrix(rows), y, self.data.query[rows]) if len(rows) else None

    # Remappers.

    def remapper(self, kind: RemapperKind, /, **parameters: Any) -> Remapper:
        """Return a remapper fitted to the expert grades of this view, once for all candidates that use it."""
        name = digest(kind, parameters)
        with self._lock:
            if name not in self._remappers:
                self._remappers[name] = self.cache.get(
                    f"remapper-{kind}",
                    digest(self.key, kind, parameters),
                    lambda: self.fit_remapper(kind, parameters),
                    lambda remapper, path: remapper.save(path),
                    Remapper.load,
                )
            return self._remappers[name]

    def remap(self, kind: RemapperKind, /, **parameters: Any) -> Remapped:
        """Return the targets and weights that a remapper gives the crowd labels of this view."""
        remapper = self.remapper(kind, **parameters)
        return remapper.transform(self.fits.label_features(remapper.kind).where(self._is_visible(remapper.kind)))

    def remapped_labels(self, kind: RemapperKind, /, **parameters: Any) -> tuple[Floats, Floats]:
        """Return the target and the weight that a remapper gives each row with crowd labels, computed once."""
        remapper, name = self.remapper(kind, **parameters), digest(kind, parameters)
        with self._lock:
            if name not in self._remapped:
                # All labels are transformed: a copy of the visible ones would take longer.
                target, weight = remapper.transform(self.fits.label_features(remapper.kind)).folded()
                items = self.data.item[self.crowd]
                self._remapped[name] = target[items], weight[items]
            return self._remapped[name]

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
        remapper = REMAPPERS[kind]().set_params(**{**shared, **REMAPPER_PARAMETERS[kind], **own, **parameters})
        experts = (self.data.matrix(rows), grades, self.data.query[rows])
        return remapper.fit(
            self.remapper_sample(remapper.kind) if labels is None else labels,
            self.data.features,
            experts,
            eval_set=self._validation_set(rows[:0], grades[:0]) if self.validate_on_experts else None,
            progress=self.report,
            engine=self.fits.engine,
        )

    def remapper_sample(self, kind: str) -> LabelFeatures:
        """Return the features of the labels that a remapper is fitted to."""
        return self.fits.label_features(kind).where(self._is_sampled(kind))

    def labels_per_sampled_label(self, kind: str) -> float:
        """Return the number of visible labels divided by the number of labels that a remapper is fitted to."""
        return float(self._is_visible(kind).sum() / self._is_sampled(kind).sum())

    def _is_visible(self, kind: str) -> Booleans:
        """Return which labels are of documents of this view, (n_labels,)."""
        is_visible = np.zeros(self.data.labels.n_items, bool)
        is_visible[self.data.item[self.crowd]] = True
        return is_visible[self.fits.label_features(kind).item]

    def _is_sampled(self, kind: str) -> Booleans:
        """Return which labels a remapper is fitted to, (n_labels,)."""
        label_rank, document_rank = self.fits.random_order(kind, self.settings.random_state)
        visible = np.sort(self.data.item[self.crowd])
        sampled = np.zeros(len(document_rank), bool)
        sampled[visible[np.argsort(document_rank[visible])[:MAX_DOCUMENTS]]] = True
        return np.asarray((label_rank < MAX_LABELS_PER_DOCUMENT) & sampled[self.fits.label_features(kind).item])


RankerFactory = Callable[[TrainingView, int, bool], Ranker]
"""Function (view, number of rows, whether there are validation queries) that returns an unfitted ranker."""


@dataclass(frozen=True)
class Candidate:
    """Way to train a ranker.

    Attributes:
        name: name of the candidate.
        description: what it is, as a phrase.
        fit: function that trains the ranker on a view.
        methods: consensus methods that it uses.
        crowd: whether it is trained on crowd labels.
        experts: whether it is trained on expert grades.
        remapper: kind of remapper that it uses.
        remapper_parameters: parameters of the remapper that are not those of the run.
        needs_families: whether the judgments must name families of assessors.
        needs_expert_scale: whether grades of the crowd must map to the scale of the experts.
        max_judgments: maximum number of judgments with which it is trained unless the user names it.
        thorough: whether it is trained only in a thorough run, or if the user names it.
        is_control: whether it is only compared with others and is in no ensemble.

    """

    name: str
    description: str
    fit: Callable[[TrainingView], Ranker]
    methods: tuple[str, ...] = ()
    crowd: bool = True
    experts: bool = False
    remapper: RemapperKind | None = None
    remapper_parameters: Mapping[str, Any] = field(default_factory=dict)
    needs_families: bool = False
    needs_expert_scale: bool = False
    max_judgments: int | None = None
    thorough: bool = False
    is_control: bool = False

    @property
    def only_crowd(self) -> bool:
        """Whether it is trained on crowd labels alone."""
        return self.crowd and not self.experts

    @property
    def remapper_name(self) -> str | None:
        """Name of the remapper: its kind, which candidates share, or the candidate's name if it has own parameters."""
        return self.name if self.remapper_parameters else self.remapper

    def reason_to_skip(self, data: RunData) -> str:
        """Return why the candidate is not trained on these data, or an empty string."""
        if self.needs_families and not data.has_families:
            return "the judgments name no families"
        if self.experts and not len(data.graded_queries):
            return "there are no expert grades"
        if self.needs_expert_scale and data.expert_values is None:
            assert data.gold is not None
            return (
                f"the scales of the experts ({data.gold.scale}) and of the judgments ({data.labels.main_scale}) differ "
                "and there is no complete map between them"
            )
        return ""


# Rankers.


def lambdamart(view: TrainingView, n_rows: int, has_validation: bool) -> LambdaMART:
    """Return an unfitted LambdaMART."""
    return LambdaMART(**tree_parameters(view, n_rows, has_validation))


def soft_lambdamart(view: TrainingView, n_rows: int, has_validation: bool) -> LambdaMART:
    """Return an unfitted LambdaMART whose pair targets are probabilities."""
    return lambdamart(view, n_rows, has_validation).set_params(pair_targets="posterior")


def tree_parameters(view: TrainingView, n_rows: int, has_validation: bool) -> dict[str, Any]:
    """Return the parameters of boosted trees for a number of rows."""
    small = {**SMALL_TREES, "min_child_samples": max(1, min(30, n_rows // 20))}
    settings = view.settings
    return {
        "gains": settings.gains,
        "validate_by": settings.measure,
        **(TREES if has_validation else small),
        **settings.trees,
        "n_jobs": view.n_jobs,
        "random_state": settings.random_state,
    }


def least_squares(view: TrainingView, n_rows: int, has_validation: bool) -> GLS:
    """Return unfitted least squares; validation queries, if there are any, choose the ridge."""
    ridge = tuple(multiple * n_rows for multiple in RIDGES) if has_validation else RIDGE * n_rows
    return GLS(ridge, gains=view.settings.gains, validate_by=view.settings.measure)


def tree_feature_least_squares(view: TrainingView, n_rows: int, has_validation: bool) -> GLS:
    """Return unfitted least squares on features and outputs of trees (REMAP 5.2).

    Validation queries, if there are any, choose the ridge and the number of trees.
    """
    ranker = least_squares(view, n_rows, has_validation)
    return ranker.set_params(
        tree_features="auto" if has_validation else TREE_FEATURES,
        n_jobs=view.n_jobs,
        random_state=view.settings.random_state,
    )


def single_feature(view: TrainingView, n_rows: int, has_validation: bool) -> SingleFeature:
    """Return an unfitted ranker by the best feature."""
    return SingleFeature(validate_by=view.settings.measure, gains=view.settings.gains)


def gda_pairwise_mart(view: TrainingView, n_rows: int, has_validation: bool) -> GDAPairwiseMART:
    """Return an unfitted GDA-PW-MART with the assessors of the pairwise consensus model."""
    model = view.fits.model("gda-pairwise")
    assert isinstance(model, GDAPairwise)
    return GDAPairwiseMART(model, **tree_parameters(view, n_rows, has_validation))


# Candidates.


def consensus_candidate(
    name: str,
    description: str,
    method: str,
    target: str,
    make: RankerFactory = lambdamart,
    *,
    with_items: bool = False,
    **fields: Any,
) -> Candidate:
    """Return a candidate that is trained on a consensus.

    Args:
        name, description: name and description of the candidate.
        method, target: consensus model and kind of label, as in :meth:`ConsensusFits.labels`.
        make: function that returns the unfitted ranker.
        with_items: as in :meth:`TrainingView.fit`.
        fields: further fields of the candidate.

    """

    def fit(view: TrainingView) -> Ranker:
        return view.fit(make, *view.labels(method, target), with_items=with_items)

    return Candidate(name, description, fit, (method,), **fields)


def expert_candidate(name: str, description: str, make: RankerFactory = lambdamart, **fields: Any) -> Candidate:
    """Return a candidate that is trained on expert grades alone; `fields` are further fields of the candidate."""

    def fit(view: TrainingView) -> Ranker:
        return view.fit(make, *view.expert_grades())

    return Candidate(name, description, fit, crowd=False, experts=True, **fields)


def feature_candidate(name: str, description: str, feature: str) -> Candidate:
    """Return a control that ranks by a feature."""

    def fit(view: TrainingView) -> Ranker:
        query = view.data.query
        return SingleFeature(feature).fit(view.data.matrix(np.arange(len(query))), np.zeros(len(query)), query=query)

    return Candidate(name, description, fit, crowd=False, is_control=True)


def remapped_candidate(
    name: str,
    description: str,
    kind: RemapperKind,
    make: RankerFactory | None = lambdamart,
    parameters: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Candidate:
    """Return a candidate that is trained on remapped labels.

    Args:
        name, description: name and description of the candidate.
        kind: kind of remapper.
        make: function that returns the unfitted ranker; None for the least squares of the remapper, with its ridge and
            trees, fitted again to all labels.
        parameters: parameters of the remapper that are not those of the run.
        fields: further fields of the candidate.

    """
    parameters = parameters or {}

    def fit(view: TrainingView) -> Ranker:
        target, weight = view.remapped_labels(kind, **parameters)
        if make is not None:
            target, weight = rescaled(target, weight)
            return view.fit(make, view.crowd, target, weight)
        remapper = view.remapper(kind, **parameters)
        return remapper.ranker_.refit(
            view.data.matrix(view.crowd),
            target,
            query=view.data.query[view.crowd],
            sample_weight=weight,
            # The ridge was chosen for the sample of labels that the remapper was fitted to.
            mu=remapper.mu_ * view.labels_per_sampled_label(remapper.kind),
            engine=view.fits.engine,
        )

    methods = ("dawid-skene", "glad") if kind == "linear" else ("dawid-skene", "glad", "gda")
    return Candidate(
        name, description, fit, methods, experts=True, remapper=kind, remapper_parameters=parameters, **fields
    )


def _fit_crowd_and_experts(view: TrainingView) -> Ranker:
    """Train LambdaMART on expert grades where there are any, elsewhere on the crowd's expected grades."""
    y = view.data.on_expert_scale(view.fits.labels("gda", "expected-grade"))
    y[view.experts] = view.data.expert[view.experts]
    rows = np.union1d(view.crowd, view.experts)
    return view.fit(lambdamart, rows, y[rows])


CANDIDATES: tuple[Candidate, ...] = (
    consensus_candidate("majority", "LambdaMART on majority votes", "majority", "grade"),
    consensus_candidate("average", "LambdaMART on average grades", "average", "relevance"),
    consensus_candidate("dawid-skene", "LambdaMART on expected gains by Dawid-Skene", "dawid-skene", "probabilities"),
    consensus_candidate("gda", "LambdaMART on expected gains by GDA", "gda", "probabilities"),
    consensus_candidate(
        "soft-pairs",
        "LambdaMART on pair probabilities by Dawid-Skene",
        "dawid-skene",
        "probabilities",
        soft_lambdamart,
        thorough=True,
    ),
    consensus_candidate(
        "family-mean", "LambdaMART on the mean of family means", "family-mean", "relevance", needs_families=True
    ),
    consensus_candidate("gls", "least squares on average grades", "average", "relevance", least_squares),
    consensus_candidate(
        "gls-trees",
        "least squares on average grades, with outputs of trees as features",
        "average",
        "relevance",
        tree_feature_least_squares,
        thorough=True,
    ),
    consensus_candidate(
        "gda-pw-mart",
        "GDA-PW-MART, boosted trees fitted to pairs of judgments",
        "gda-pairwise",
        "probabilities",
        gda_pairwise_mart,
        with_items=True,
        thorough=True,
        max_judgments=MAX_PAIRWISE_JUDGMENTS,
    ),
    remapped_candidate("linear-gls", "least squares on labels remapped by linear functions", "linear", None),
    remapped_candidate(
        "remap-trees",
        "least squares on labels remapped by linear functions, with outputs of trees as features",
        "linear",
        None,
        {"tree_features": "auto"},
        thorough=True,
    ),
    remapped_candidate("linear-remap", "LambdaMART on labels remapped by linear functions", "linear"),
    remapped_candidate("boosted-gls", "least squares on labels remapped by trees", "boosted", None),
    remapped_candidate("boosted-remap", "LambdaMART on labels remapped by trees", "boosted"),
    Candidate(
        "crowd-and-expert",
        "LambdaMART on expert grades, and on expected grades by GDA where there are none",
        _fit_crowd_and_experts,
        ("gda",),
        experts=True,
        needs_expert_scale=True,
    ),
    expert_candidate("expert-only", "LambdaMART on expert grades alone"),
    expert_candidate("best-feature", "the best single feature", single_feature, is_control=True),
)
BY_NAME: Mapping[str, Candidate] = {candidate.name: candidate for candidate in CANDIDATES}


def choose_candidates(
    data: RunData, names: Sequence[str] | None, *, thorough: bool = False
) -> tuple[list[Candidate], dict[str, str]]:
    """Return the candidates to train, and the reason for each one that the data do not allow.

    Args:
        data: data of the run.
        names: names of candidates; by default all, without the slow ones unless the run is thorough.
        thorough: whether to train slow candidates too.

    """
    for name in names or ():
        if name not in BY_NAME:
            problem = f"must be names of candidates ({', '.join(BY_NAME)}), not '{name}'{near(name, BY_NAME)}"
            raise UsageError(problem, parameter="candidates", kind="unknown-candidate")
    chosen, skipped = [], {}
    for candidate in CANDIDATES:
        if names is not None and candidate.name not in names:
            continue
        if names is None and candidate.thorough and not thorough:
            continue
        reason = candidate.reason_to_skip(data)
        limit = candidate.max_judgments
        if names is None and limit is not None and len(data.labels) > limit:
            reason = f"there are more than {limit:,} judgments; name it to train it"
        if reason:
            skipped[candidate.name] = reason
        else:
            chosen.append(candidate)
    if not any(candidate.only_crowd for candidate in chosen):
        problem = "must name a candidate that is trained on crowd labels alone, such as majority"
        raise UsageError(problem, parameter="candidates", kind="no-crowd-candidate")
    return chosen, skipped


def consensus_methods(settings: RunSettings, candidates: Sequence[Candidate]) -> list[str]:
    """Return the consensus methods of a run: that of the settings, and those that candidates use."""
    return list(dict.fromkeys([settings.method, *(method for one in candidates for method in one.methods)]))


def remapper_label_features(candidates: Sequence[Candidate]) -> list[str]:
    """Return the kinds of label features that the remappers of candidates use."""
    kinds = dict.fromkeys(candidate.remapper for candidate in candidates)
    return [REMAPPERS[kind]().kind for kind in kinds if kind is not None]
