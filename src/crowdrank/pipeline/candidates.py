"""The candidates: ways from labels to a ranker. Each is a name, a sentence, and a function of a lesson."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus.gda_pairwise import GDAPairwise
from crowdrank.errors import InputError, UsageError, near
from crowdrank.label_learning.boosted import BoostedRemapper
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.linear import LinearRemapper
from crowdrank.label_learning.remapped_labels import Remapped, rescaled
from crowdrank.label_learning.remapper import Remapper
from crowdrank.pipeline.consensus_fits import Opinions
from crowdrank.pipeline.run_data import Material
from crowdrank.pipeline.settings import Settings
from crowdrank.pipeline.stage_cache import Stages, digest
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.gda_mart import GDAPairwiseMART
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS

ENOUGH_QUERIES = 100
"""From so many training queries on, a part of them is set aside to tell when to stop."""
STOPPING = 0.15
TREES: Mapping[str, Any] = {"n_estimators": 200, "learning_rate": 0.1, "patience": 20}
SMALL_TREES: Mapping[str, Any] = {
    "n_estimators": 50,
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 30,
    "truncation": 15,
}
"""Where there are too few queries to tell when to stop."""
RIDGES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Of least squares, as parts of the number of rows."""
RIDGE = 0.03
MOST_JUDGMENTS = 200_000
"""The pairwise model looks at pairs of judgments: beyond so many judgments it is tried only when asked for."""
STEPS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"learning_rate": 0.1, "patience": 15},
    "boosted": {"learning_rate": 0.04, "depth": 3, "patience": 15},
}
"""Of the remappers: larger steps than usual, and less patience, do as well and take half the time."""
MOST_STEERING = 5
MOST_DOCUMENTS = 20_000
"""So many labels a document, and so many documents, steer a remapper: its functions are of what is known of a label,
which a sample tells as well. What it learns is then applied to all labels."""
LEAST_EXPERTS = 4
"""Fewer expert-graded queries than this cannot steer a remapper: a part steers, a part tells when to stop."""


@dataclass(eq=False)
class TrainingView:
    """What a candidate may see.

    Attributes:
        crowd: the rows whose crowd labels may be seen.
        expert: the rows whose expert grades may be seen.
        key: a name for all of this.

    """

    material: Material
    opinions: Opinions
    settings: Settings
    crowd: Integers
    expert: Integers
    stages: Stages
    key: str
    n_jobs: int | None = None
    report: Report | bool = False
    remappers: dict[str, Remapper] = field(default_factory=dict)
    read: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def labels(self, method: str, target: str) -> tuple[Integers, Floats]:
        """The rows of the crowd, and what a consensus says of them."""
        return self.crowd, self.opinions.labels(method, target)[self.crowd]

    def experts(self) -> tuple[Integers, Floats]:
        """The rows of the experts, and their grades."""
        return self.expert, self.material.expert[self.expert]

    def taught(self, make: Callable[[int, bool], Ranker], rows: Integers, y: Floats, **options: Any) -> Ranker:
        """A ranker that learned these labels; with enough queries, some of them tell when to stop."""
        if not len(rows):
            raise InputError("all that it could learn from is of queries that are held out")
        query = self.material.query[rows]
        later = self._set_aside(query)
        ranker = make(len(rows), bool(later.any()))
        train = self.material.taken(rows[~later])
        told = {name: value[~later] for name, value in options.items()}
        held_out = None
        if later.any():
            features = self.material.taken(rows[later])
            held_out = (features, y[later], features.query)
        return ranker.fit(train, y[~later], query=train.query, eval_set=held_out, progress=self.report or False, **told)

    def _set_aside(self, query: Integers) -> Any:
        names = np.unique(query)
        if len(names) < ENOUGH_QUERIES:
            return np.zeros(len(query), bool)
        drawn = np.random.default_rng(self.settings.random_state).permutation(names)[: round(STOPPING * len(names))]
        return np.isin(query, drawn)

    def trees(self, stops: bool, rows: int) -> dict[str, Any]:
        """Settings of boosted trees for so many rows."""
        usual = TREES if stops else {**SMALL_TREES, "min_child_samples": max(1, min(30, rows // 20))}
        gains = {"gains": self.settings.gains, "validate_by": self.settings.measure}
        return {
            **gains,
            **usual,
            **self.settings.trees,
            "n_jobs": self.n_jobs,
            "random_state": self.settings.random_state,
        }

    def boosted(self, rows: int, stops: bool) -> LambdaMART:
        """LambdaMART for so many rows."""
        return LambdaMART(**self.trees(stops, rows))

    def linear(self, rows: int, stops: bool) -> GLS:
        """Least squares; the ridge is chosen where there is something to choose by."""
        ridge = tuple(part * rows for part in RIDGES) if stops else RIDGE * rows
        return GLS(ridge, gains=self.settings.gains, validate_by=self.settings.measure)

    def remapper(self, kind: str) -> Remapper:
        """A remapper that learned from the experts of this lesson; once, for all who ask."""
        with self.lock:
            if kind not in self.remappers:
                self.remappers[kind] = self.stages.kept(
                    f"remapper-{kind}",
                    digest(self.key, kind),
                    lambda: self._steered(kind),
                    lambda made, place: made.save(place),
                    Remapper.load,
                )
            return self.remappers[kind]

    def remapped(self, kind: str) -> Remapped:
        """What the remapper makes of the crowd labels that may be seen."""
        made = self.remapper(kind)
        labels = self.opinions.label_features(made.kind)
        return made.transform(labels.where(self._seen(made.kind)))

    def folded(self, kind: str) -> tuple[Floats, Floats]:
        """The learned target and weight of each row of the crowd; once, for all who ask.

        All labels are read where they lie: to set apart those that may be seen would copy most of them.
        """
        made = self.remapper(kind)
        with self.lock:
            if kind not in self.read:
                target, weight = made.transform(self.opinions.label_features(made.kind)).folded()
                found = self.opinions.items(made.kind)[self.crowd]
                self.read[kind] = target[found], weight[found]
            return self.read[kind]

    def _steered(self, kind: str) -> Remapper:
        rows, grades = self.experts()
        n = len(np.unique(self.material.query[rows]))
        if n < LEAST_EXPERTS:
            raise InputError(f"{counted(n, 'expert-graded query')} cannot steer it, {LEAST_EXPERTS} can")
        told = {**STEPS[kind], **{"linear": self.settings.linear, "boosted": self.settings.boosted}[kind]}
        made: Remapper = {"linear": LinearRemapper, "boosted": BoostedRemapper}[kind]()
        made.set_params(
            **{"objective": "DCG@10", "gains": self.settings.gains, "random_state": self.settings.random_state, **told}
        )
        features = self.material.taken(rows)
        known = (features, grades, features.query)
        seen, engine = self.steering(made.kind), self.opinions.cluster
        return made.fit(seen, self.material.features, known, progress=self.report, engine=engine)

    def steering(self, kind: str) -> LabelFeatures:
        """The labels that steer a remapper, by the kind of what is known of them."""
        return self.opinions.label_features(kind).where(self._some(kind))

    def share(self, kind: str) -> float:
        """How many labels may be seen for each that steers."""
        return float(self._seen(kind).sum() / self._some(kind).sum())

    def _seen(self, kind: str) -> NDArray[np.bool_]:
        """(n_labels,) which labels may be seen."""
        labels = self.opinions.label_features(kind)
        return self._documents(kind)[labels.item]

    def _documents(self, kind: str) -> NDArray[np.bool_]:
        seen = np.zeros(self.opinions.label_features(kind).judgments.n_items, bool)
        seen[self.opinions.items(kind)[self.crowd]] = True
        return seen

    def _some(self, kind: str) -> NDArray[np.bool_]:
        """(n_labels,) up to so many labels of up to so many documents, drawn."""
        number, place = self.opinions.drawn(kind, self.settings.random_state)
        seen = np.flatnonzero(self._documents(kind))
        kept = np.zeros(len(place), bool)
        kept[seen[np.argsort(place[seen])[:MOST_DOCUMENTS]]] = True
        return np.asarray((number < MOST_STEERING) & kept[self.opinions.label_features(kind).item])


Learn = Callable[[TrainingView], Ranker]


@dataclass(frozen=True)
class Candidate:
    """A way from labels to a ranker.

    Attributes:
        about: what it is, to be read after its name.
        learn: the ranker that a lesson makes.
        needs: the consensus methods that it asks for.
        crowd, expert: whether it learns from the crowd's labels, and from experts' grades.
        cost: how long it takes, roughly, as a multiple of LambdaMART.

    """

    name: str
    about: str
    learn: Learn
    needs: tuple[str, ...] = ()
    crowd: bool = True
    expert: bool = False
    cost: float = 1.0


def on_label(method: str, target: str) -> Learn:
    """LambdaMART on a consensus."""
    return lambda lesson: lesson.taught(lesson.boosted, *lesson.labels(method, target))


def linear_on_average(lesson: TrainingView) -> Ranker:
    """Least squares on the average label."""
    return lesson.taught(lesson.linear, *lesson.labels("average", "relevance"))


def experts_only(lesson: TrainingView) -> Ranker:
    """LambdaMART on the experts' grades."""
    return lesson.taught(lesson.boosted, *lesson.experts())


def crowd_and_experts(lesson: TrainingView) -> Ranker:
    """Train LambdaMART on expert grades where there are any, and on the crowd's expected grades on the same scale."""
    y = lesson.material.on_expert_scale(lesson.opinions.labels("gda", "expected-grade"))
    y[lesson.expert] = lesson.material.expert[lesson.expert]
    rows = np.union1d(lesson.crowd, lesson.expert)
    return lesson.taught(lesson.boosted, rows, y[rows])


def remapped_linear_model(kind: str) -> Learn:
    """Least squares on what a remapper learned, through which it learned it."""

    def learn(lesson: TrainingView) -> Ranker:
        made, (target, weight) = lesson.remapper(kind), lesson.folded(kind)
        known = lesson.material.taken(lesson.crowd)
        # The remapper's ridge was for the labels that steered it.
        mu = made.mu_ * lesson.share(made.kind)
        told = {"query": known.query, "sample_weight": weight, "engine": lesson.opinions.cluster}
        return GLS(mu).fit(known, target, **told)

    return learn


def remapped_trees(kind: str) -> Learn:
    """LambdaMART on the targets and weights that a remapper learned."""

    def learn(lesson: TrainingView) -> Ranker:
        target, weight = rescaled(*lesson.folded(kind))
        return lesson.taught(lesson.boosted, lesson.crowd, target, sample_weight=weight)

    return learn


def explained(lesson: TrainingView) -> Ranker:
    """GDA-PW-MART on the judgments themselves."""
    model = lesson.opinions.model("gda-pairwise")
    assert isinstance(model, GDAPairwise)

    def make(rows: int, stops: bool) -> Ranker:
        told = lesson.trees(stops, rows)
        return GDAPairwiseMART(model, **told)

    return lesson.taught(make, *lesson.labels("gda-pairwise", "probabilities"))


CANDIDATES: tuple[Candidate, ...] = (
    Candidate("majority", "LambdaMART on majority votes", on_label("majority", "grade"), ("majority",)),
    Candidate("average", "LambdaMART on average grades", on_label("average", "relevance"), ("average",)),
    Candidate(
        "dawid-skene",
        "LambdaMART on expected gains by Dawid-Skene",
        on_label("dawid-skene", "probabilities"),
        ("dawid-skene",),
    ),
    Candidate("gda", "LambdaMART on expected gains by GDA", on_label("gda", "probabilities"), ("gda",)),
    Candidate(
        "family-mean",
        "LambdaMART on the mean of the families' means",
        on_label("family-mean", "relevance"),
        ("family-mean",),
    ),
    Candidate("gls", "least squares on average grades", linear_on_average, ("average",), cost=0.1),
    Candidate(
        "gda-pw-mart", "trees that explain the judgments themselves (GDA-PW-MART)", explained, ("gda-pairwise",), cost=3
    ),
    Candidate(
        "linear-gls",
        "least squares on linearly remapped labels",
        remapped_linear_model("linear"),
        ("dawid-skene", "glad"),
        expert=True,
        cost=3,
    ),
    Candidate(
        "linear-remap",
        "LambdaMART on linearly remapped labels",
        remapped_trees("linear"),
        ("dawid-skene", "glad"),
        expert=True,
    ),
    Candidate(
        "boosted-gls",
        "least squares on labels remapped by trees",
        remapped_linear_model("boosted"),
        ("dawid-skene", "glad", "gda"),
        expert=True,
        cost=3,
    ),
    Candidate(
        "boosted-remap",
        "LambdaMART on labels remapped by trees",
        remapped_trees("boosted"),
        ("dawid-skene", "glad", "gda"),
        expert=True,
    ),
    Candidate(
        "crowd-and-expert",
        "LambdaMART on expected grades by GDA, experts' where there are",
        crowd_and_experts,
        ("gda",),
        expert=True,
    ),
    Candidate("expert-only", "LambdaMART on the experts' grades alone", experts_only, crowd=False, expert=True),
)
BY_NAME: Mapping[str, Candidate] = {candidate.name: candidate for candidate in CANDIDATES}


def sensible(material: Material, asked: tuple[str, ...] | None) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates to try, and why others are left out."""
    if asked is not None:
        unknown = [name for name in asked if name not in BY_NAME]
        if unknown:
            meant, listed = near(unknown[0], BY_NAME), ", ".join(BY_NAME)
            raise UsageError(f"There is no candidate '{unknown[0]}'{meant}; there are: {listed}.")
    chosen: list[Candidate] = []
    out: dict[str, str] = {}
    for candidate in CANDIDATES:
        why = _pointless(candidate, material)
        if asked is not None and candidate.name not in asked:
            continue
        if why and not (asked is not None and candidate.name == "gda-pw-mart"):
            out[candidate.name] = why
        else:
            chosen.append(candidate)
    if not any(candidate.crowd and not candidate.expert for candidate in chosen):
        raise UsageError("No candidate learns from the crowd alone; name at least one that does, as in majority.")
    return chosen, out


def _pointless(candidate: Candidate, material: Material) -> str:
    if candidate.name == "family-mean" and not material.has_families:
        return "the judgments name no families"
    if candidate.name == "gda-pw-mart" and len(material.labels) > MOST_JUDGMENTS:
        return f"there are more than {MOST_JUDGMENTS:,} judgments, of which it looks at pairs; name it to try it"
    if candidate.expert and not len(material.graded_queries):
        return "there are no expert grades"
    return ""
