"""Candidates of a run: named ways to train a ranker on crowd labels, expert grades or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdrank.consensus.gda_pairwise import GDAPairwise
from crowdrank.errors import UsageError, near
from crowdrank.label_learning.gradient_ascent import gain_bound
from crowdrank.label_learning.remapped_labels import rescale_labels
from crowdrank.pipeline.ensembles import graded_validation
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.training_view import REMAPPER_CLASSES, RankerFactory, RemapperKind, TrainingView
from crowdrank.rankers.boosting import PointwiseGBDT
from crowdrank.rankers.gda_mart import GDAPairwiseMART
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.single_feature import SingleFeature

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


def pointwise_trees(view: TrainingView, n_rows: int, has_validation: bool) -> PointwiseGBDT:
    """Return unfitted boosted regression trees, with the parameters of LambdaMART."""
    parameters = tree_parameters(view, n_rows, has_validation)
    parameters.pop("truncation", None)
    return PointwiseGBDT(**parameters)


def single_feature(view: TrainingView, n_rows: int, has_validation: bool) -> SingleFeature:
    """Return an unfitted ranker by the best feature."""
    return SingleFeature(validate_by=view.settings.measure, gains=view.settings.gains)


def gda_pairwise_mart(view: TrainingView, n_rows: int, has_validation: bool) -> GDAPairwiseMART:
    """Return an unfitted GDA-PW-MART with the assessors of the pairwise consensus model."""
    model = view.fits.model("gda-pairwise")
    assert isinstance(model, GDAPairwise)
    return GDAPairwiseMART(model, **tree_parameters(view, n_rows, has_validation))


MAX_PAIRWISE_JUDGMENTS = 200_000
"""Maximum number of judgments for the pairwise model, whose time grows with the number of pairs."""


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
        needs_preferences: whether there must be preferences; without any it is left out without a word.
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
    needs_preferences: bool = False
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
        if self.needs_preferences and data.preferences is None:
            return "there are no preferences"
        if self.experts and not len(data.graded_queries):
            return "there are no expert grades"
        if self.needs_expert_scale and data.expert_values is None:
            assert data.gold is not None
            return (
                f"the scales of the experts ({data.gold.scale}) and of the judgments ({data.labels.main_scale}) differ "
                "and there is no complete map between them"
            )
        return ""


# Candidates.


def consensus_candidate(
    name: str,
    description: str,
    method: str,
    target: str,
    make: RankerFactory = lambdamart,
    *,
    with_items: bool = False,
    with_pairs: bool = False,
    **fields: Any,
) -> Candidate:
    """Return a candidate that is trained on a consensus.

    Args:
        name, description: name and description of the candidate.
        method, target: consensus model and kind of label, as in :meth:`ConsensusFits.labels`.
        make: function that returns the unfitted ranker.
        with_items: as in :meth:`TrainingView.fit`.
        with_pairs: whether the targets of pairs are the probabilities of the consensus model.
        fields: further fields of the candidate.

    """

    def fit(view: TrainingView) -> Ranker:
        pairs = view.fits.pair_probabilities(method) if with_pairs else None
        return view.fit(make, *view.labels(method, target), with_items=with_items, pairs=pairs)

    return Candidate(name, description, fit, (method,), **fields)


def expert_candidate(name: str, description: str, make: RankerFactory = lambdamart, **fields: Any) -> Candidate:
    """Return a candidate that is trained on expert grades alone; `fields` are further fields of the candidate."""

    def fit(view: TrainingView) -> Ranker:
        return view.fit(make, *view.expert_grades())

    return Candidate(name, description, fit, crowd=False, experts=True, **fields)


def feature_candidate(name: str, description: str, feature: str) -> Candidate:
    """Return a candidate that ranks by one feature alone, as a control for the trained ones."""

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
            trees, fitted again to all labels. Targets are learned for least squares and often harm another ranker,
            which is therefore trained on the labels before learning unless the learned ones are better.
        parameters: parameters of the remapper that are not those of the run.
        fields: further fields of the candidate.

    """
    parameters = parameters or {}

    def fit(view: TrainingView) -> Ranker:
        if make is not None:
            return _fit_if_better(view, make, kind, parameters)
        target, weight = view.remapped_labels(kind, **parameters)
        remapper = view.remapper(kind, **parameters)
        return remapper.ranker_.refit(
            view.data.shared_matrix(view.crowd),
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


def _fit_if_better(
    view: TrainingView, make: RankerFactory, kind: RemapperKind, parameters: Mapping[str, Any]
) -> Ranker:
    """Train a ranker on learned labels, or on those before learning.

    The learned ones must be significantly better on the expert queries.
    """
    labels = [view.starting_labels(kind, **parameters), view.remapped_labels(kind, **parameters)]
    before, after = (view.fit(make, view.crowd, *rescale_labels(*one)) for one in labels)
    rows = view.experts
    validation = graded_validation(
        view.data.query[rows], view.data.expert[rows], view.settings.measure, view.settings.gains
    )
    X, query = view.data.matrix(rows), view.data.query[rows]
    values = [validation.per_query(ranker.predict(X, query)) for ranker in (before, after)]
    return after if gain_bound(values[1] - values[0]) > 0 else before


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
        "preference-pairs",
        "LambdaMART on pair probabilities by GDA with preferences",
        "gda",
        "probabilities",
        with_pairs=True,
        needs_preferences=True,
    ),
    consensus_candidate(
        "soft-pairs",
        "LambdaMART on pair probabilities by Dawid-Skene",
        "dawid-skene",
        "probabilities",
        soft_lambdamart,
        thorough=True,
    ),
    consensus_candidate(
        "pointwise",
        "boosted regression trees on expected grades by Dawid-Skene",
        "dawid-skene",
        "expected-grade",
        pointwise_trees,
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
        if names is None and candidate.needs_preferences and data.preferences is None:
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
    return [REMAPPER_CLASSES[kind]().kind for kind in kinds if kind is not None]
