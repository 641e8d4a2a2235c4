"""What may be seen in a fold of the experiment of experts, and the runs that learn from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from crowdrank._typing import Floats, Integers
from crowdrank.judgments.features import Features
from crowdrank.judgments.table import Judgments
from crowdrank.label_learning.boosted import BoostedRemapper
from crowdrank.label_learning.label_features import LabelFeatures, label_features
from crowdrank.label_learning.linear import LinearRemapper
from crowdrank.label_learning.remapper import MODES, Remapper
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.reweighting import RD
from crowdrank.rankers.tree_features import TreeFeatures
from experiments.base import Tell, quiet
from experiments.lessons import CrowdLabels
from experiments.rankers import FOLDS, RIDGES

MAIN = "DCG@10"
MARTS = ("majority", "average", "dawid-skene", "glad")
"""LambdaMART on what the papers take for labels: their headline is to beat them all."""
TREE_FEATURES = 100
"""Trees that join the features of linear rankers and remappers, where the validation queries like them better."""
FOREST: Mapping[str, Any] = {"learning_rate": 0.1, "num_leaves": 8, "min_child_samples": 20, "n_jobs": 1}


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows with labels of the crowd, with expert grades to learn from and to choose by, and rows to test on."""

    crowd: Integers
    train: Integers
    validate: Integers
    test: Integers


def folds(part: Integers) -> list[Fold]:
    """Fold k has labels of parts k and k+1, expert grades of k+2 to learn from and of k+3 to choose by, and tests k+4.

    >>> first = folds(np.array([0, 1, 2, 3, 4, 4]))[0]
    >>> [rows.tolist() for rows in (first.crowd, first.train, first.validate, first.test)]
    [[0, 1], [2], [3], [4, 5]]
    """
    of = [[0, 1], [2], [3], [4]]
    return [
        Fold(*(np.flatnonzero(np.isin(part, (np.array(numbers) + k) % FOLDS)) for numbers in of)) for k in range(FOLDS)
    ]


@dataclass(eq=False, kw_only=True)
class Lesson(CrowdLabels):
    """What may be seen in a fold: labels of the crowd's documents, expert grades of the others that are not tested.

    No consensus and no label feature sees an expert's grade. `judgments` are without honeypots; `told` has them, for
    what they say of their assessors.
    """

    told: Judgments
    fold: Fold
    trees: Mapping[str, Any]
    seed: int = 0
    tell: Tell = quiet
    n_trees: int = TREE_FEATURES
    rankers: dict[str, Ranker] = field(default_factory=dict)
    remappers: dict[tuple[str, int], Remapper] = field(default_factory=dict)

    def expert(self, rows: Integers, features: Features | None = None) -> tuple[Features, Any, Any]:
        """Documents with expert grades."""
        part = (self.features if features is None else features).take(rows)
        return part, part.grade, part.query

    def taught(self, ranker: Ranker, y: Floats, features: Features, weight: Floats | None = None) -> Ranker:
        """A ranker that learned labels of the crowd's rows, and chose by the experts' validation queries."""
        rows = self.fold.crowd[~np.isnan(y[self.fold.crowd].reshape(len(self.fold.crowd), -1)).any(axis=1)]
        part = features.take(rows)
        weights = None if weight is None else weight[rows]
        held_out = self.expert(self.fold.validate, features)
        return ranker.fit(part, y[rows], query=part.query, sample_weight=weights, eval_set=held_out)

    def scores(self, ranker: Ranker, features: Features | None = None) -> Floats:
        """Of the test rows."""
        part, _, query = self.expert(self.fold.test, features)
        return ranker.predict(part, query)

    def boosted(self) -> LambdaMART:
        """LambdaMART as the experiment sets it; folds run side by side, each in one thread."""
        return LambdaMART(**self.trees, validate_by=MAIN, n_jobs=1)

    def mart(self, name: str) -> Ranker:
        """LambdaMART on one of the labels, fitted once."""
        if name not in self.rankers:
            if name == "expert-only":
                part, y, query = self.expert(self.fold.train)
                held_out = self.expert(self.fold.validate)
                self.rankers[name] = self.boosted().fit(part, y, query=query, eval_set=held_out)
            else:
                self.rankers[name] = self.taught(self.boosted(), self.labels(*LABELED[name]), self.features)
        return self.rankers[name]

    # Features of linear rankers.

    @cached_property
    def forest(self) -> Floats:
        """Return the standardized output of each tree for every row, (n, n_trees); the trees see the crowd's rows."""
        y = self.labels("average", "relevance")
        rows = self.fold.crowd[~np.isnan(y[self.fold.crowd])]
        part = self.features.take(rows)
        trees = TreeFeatures(self.n_trees, **FOREST, random_state=self.seed)
        return trees.fit(part, y[rows], part.query).transform(self.features)

    def extended(self, n: int) -> Features:
        """The features and the first trees."""
        if not n:
            return self.features
        names = (*self.features.names, *(f"tree {number}" for number in range(1, n + 1)))
        return replace(self.features, matrix=np.hstack([self.features.matrix, self.forest[:, :n]]), names=names)

    def best_linear(self, make: Callable[[GLS], Ranker]) -> Floats:
        """A linear ranker on averages, with the ridge and with or without trees as the validation queries like it."""
        y = self.labels("average", "relevance")
        tried = []
        for n in (0, self.n_trees):
            features = self.extended(n)
            ranker = self.taught(make(GLS(RIDGES, validate_by=MAIN)), y, features)
            tried.append((max(ranker.history_), ranker, features))
        _, ranker, features = max(tried, key=lambda one: one[0])
        return self.scores(ranker, features)

    # Remappers.

    @cached_property
    def known(self) -> dict[str, LabelFeatures]:
        """What is known of the labels: REMAP's list for linear functions, MGBDT's for boosted ones."""
        models: dict[str, Any] = {"dawid_skene": self.model("dawid-skene"), "glad": self.model("glad")}
        return {
            name: label_features(self.told, kind=kind, **models)
            for name, kind in (("linear", "remap"), ("boosted", "mgbdt"))
        }

    def remapper(self, name: str, n: int, labels: LabelFeatures | None = None) -> Remapper:
        """Functions learned with the first trees among the features; `name` is as in linear-w+t."""
        family, mode = name.split("-")
        make = LinearRemapper if family == "linear" else BoostedRemapper
        features = self.extended(n)
        remapper: Remapper = make(mode.upper(), random_state=self.seed)
        expert, held_out = (self.expert(rows, features) for rows in (self.fold.train, self.fold.validate))
        return remapper.fit(labels or self.known[family], features, expert, eval_set=held_out)

    def best(self, name: str) -> tuple[Remapper, int]:
        """The remapper with or without trees among the features, as the validation queries like it."""
        for n in (0, self.n_trees):
            if (name, n) not in self.remappers:
                self.tell(f"{name} with {n} trees")
                self.remappers[name, n] = self.remapper(name, n)
        n = max((0, self.n_trees), key=lambda n: self.remappers[name, n].validation_)
        return self.remappers[name, n], n

    def remapped(self, name: str) -> Floats:
        """The scores of the least squares behind a remapper."""
        remapper, n = self.best(name)
        return self.scores(remapper.ranker_, self.extended(n))

    def mart_on(self, name: str) -> Floats:
        """LambdaMART on the targets and weights of a remapper."""
        rows = self.best(name)[0].remapped_.instances(self.features)
        ids = rows.features.query, rows.features.document
        assert rows.weight is not None
        y, weight = self.spread(*ids, rows.y), self.spread(*ids, rows.weight)
        return self.scores(self.taught(self.boosted(), y, self.features, weight))

    def together(self) -> Floats:
        """The experts' LambdaMART and that on the crowd's expected grades, weighted by the validation queries."""
        pair = Ensemble([self.mart("expert-only"), self.mart("expected-grades")], prefit=True, validate_by=MAIN)
        part, y, query = self.expert(self.fold.validate)
        return self.scores(pair.fit(part, y, query=query))


LABELED: Mapping[str, tuple[str, str]] = {
    "majority": ("majority", "grade"),
    "average": ("average", "relevance"),
    "dawid-skene": ("dawid-skene", "grade"),
    "glad": ("glad", "grade"),
    "expected-grades": ("dawid-skene", "probabilities"),
    "family-mean": ("family-mean", "relevance"),
}
"""What LambdaMART learns from, by the names of runs: the consensus, and what of it."""
REMAPPED = tuple(f"{family}-{mode.lower()}" for family in ("linear", "boosted") for mode in MODES)
Learn = Callable[[Lesson], Floats]


def mart_scores(name: str, lesson: Lesson) -> Floats:
    """The scores of LambdaMART on one of the labels."""
    return lesson.scores(lesson.mart(name))


LEARNERS: Mapping[str, Learn] = {
    **{name: partial(mart_scores, name) for name in MARTS},
    "rd": lambda lesson: lesson.best_linear(partial(RD, validate_by=MAIN)),
    **{name: partial(lambda name, lesson: lesson.remapped(name), name) for name in REMAPPED},
    "gls-average": lambda lesson: lesson.best_linear(lambda gls: gls),
    "expected-grades": partial(mart_scores, "expected-grades"),
    "family-mean": partial(mart_scores, "family-mean"),
    "expert-only": partial(mart_scores, "expert-only"),
    "ensemble": Lesson.together,
    **{
        f"mart-{name}": partial(lambda name, lesson: lesson.mart_on(name), name) for name in REMAPPED if "t" in name[-1]
    },
}
"""The runs by name."""
CONTROLS = ("gls-average", "expected-grades", "family-mean", "expert-only", "ensemble")
