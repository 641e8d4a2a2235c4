"""Targets and weights learnt from experts: the papers' comparison (REMAP and MGBDT, Table 4), and every control."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from crowdrank.evaluation.comparison import Comparison, compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.read import Features
from crowdrank.judgments.table import Judgments, counted
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.data import Floats, Integers, gather
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.lambdamart import LambdaMART, usual_threads
from crowdrank.rankers.linear import GLS, RD, Standard
from crowdrank.rankers.tree_features import cross_fitted, tree_outputs
from crowdrank.rankers.validation import Validation
from crowdrank.studies.base import GAINS, Row, Study, Table, Tell, comparison_table, quiet, seeds_told, testing_protocol
from crowdrank.studies.dl20 import drawn_judges, sizes_told
from crowdrank.studies.lessons import (
    LABELS,
    SMALL_TREES,
    TREES,
    CrowdLabels,
    crowd_over,
    crowd_told,
    dl20_documents,
    generated_documents,
    judgments_of,
    over_repeats,
    query_parts,
    trees_told,
)
from crowdrank.studies.rankers import FOLDS, RIDGES, against, mq2008, named, query_numbers, run_frame
from crowdrank.training.boosted import BoostedRemapper
from crowdrank.training.label_features import LabelFeatures, label_features, without_honeypots
from crowdrank.training.linear import LinearRemapper
from crowdrank.training.remap import MODES, Remapper

MEASURES = ("DCG@1", "DCG@5", "DCG@10")
MAIN = "DCG@10"
BASELINE = "majority"
MARTS = ("majority", "average", "dawid-skene", "glad")
"""LambdaMART on what the papers take for labels: their headline is to beat them all."""
CLAIMS: Mapping[str, tuple[str, ...]] = {"MGBDT": ("boosted-t", "boosted-w+t"), "REMAP": ("linear-w+t",)}
"""Who beats them, by which paper."""
BACKGROUND = "gls-average"
"""The ranker that remappers learn through, on labels that nobody learnt."""
ROOM = 0.01
"""The papers' gains are of several percent: one below this part of the baseline is none."""
TREE_FEATURES = 100
"""Trees that join the features of linear rankers and remappers, where the validation queries like them better."""
FOREST: Mapping[str, Any] = {"learning_rate": 0.1, "num_leaves": 8, "min_child_samples": 20, "threads": 1}
NUMBERS = (0, 50, 100, 200, 300, 400)
"""Of tree features in REMAP's Figure 4."""
GENERATED: Mapping[str, Any] = {"queries": 1500, "documents": 15, "features": 20, "seed": 100}
CROWD: Mapping[str, Any] = {"label_grades": 2, "honeypots": 0.05}
PER_FAMILY = 9
"""Of DL20's judges, at most."""
GROUPS: Mapping[str, tuple[str, ...]] = {"dawid-skene": ("says_", "dawid_skene"), "glad": ("ability", "glad")}
"""Label features by the model they come from; the others are basic."""
FEATURE_SETS: Mapping[str, tuple[str, ...]] = {
    "basic": (),
    "basic + glad": ("glad",),
    "basic + dawid-skene": ("dawid-skene",),
    "all": ("glad", "dawid-skene"),
}
SHOWN = 5
"""Label features in a table of importances."""


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
        """A ranker that learnt labels of the crowd's rows, and chose by the experts' validation queries."""
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
        """LambdaMART as the study sets it; folds run side by side, each in one thread."""
        return LambdaMART(**self.trees, validate_by=MAIN, threads=1)

    def mart(self, name: str) -> Ranker:
        """LambdaMART on one of the labels, fitted once."""
        if name not in self.rankers:
            if name == "expert-only":
                part, y, query = self.expert(self.fold.train)
                held_out = self.expert(self.fold.validate)
                self.rankers[name] = self.boosted().fit(part, y, query=query, eval_set=held_out)
            else:
                self.rankers[name] = self.taught(self.boosted(), self.labels(*LABELLED[name]), self.features)
        return self.rankers[name]

    # Features of linear rankers.

    @cached_property
    def forest(self) -> Floats:
        """The output of each tree for every row, standardised: (n, n_trees).

        For the crowd's rows it comes from trees that did not see the query's labels.
        """
        y = self.labels("average", "relevance")
        rows = self.fold.crowd[~np.isnan(y[self.fold.crowd])]
        part = self.features.take(rows)
        lists = gather(part, y[rows], part.query)
        trees = LambdaMART(n_estimators=self.n_trees, **FOREST).fit(part, y[rows], query=part.query)
        outputs = tree_outputs(trees, self.features.matrix)
        unseen = cross_fitted(trees, lists, outputs.shape[1], folds=FOLDS, seed=self.seed)
        outputs[rows[lists.order]] = unseen
        return Standard.of(unseen, np.ones(len(unseen)))(outputs)

    def extended(self, n: int) -> Features:
        """The features and the first trees."""
        if not n:
            return self.features
        names = (*self.features.names, *(f"tree {number}" for number in range(1, n + 1)))
        return replace(self.features, matrix=np.hstack([self.features.matrix, self.forest[:, :n]]), names=names)

    def best_linear(self, cls: type[GLS]) -> Floats:
        """A linear ranker on averages, with the ridge and with or without trees as the validation queries like it."""
        y = self.labels("average", "relevance")
        tried = []
        for n in (0, self.n_trees):
            features = self.extended(n)
            ranker = self.taught(cls(RIDGES, validate_by=MAIN), y, features)
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
        """Functions learnt with the first trees among the features; `name` is as in linear-w+t."""
        family, mode = name.split("-")
        make = LinearRemapper if family == "linear" else BoostedRemapper
        features = self.extended(n)
        remapper: Remapper = make(mode.upper(), seed=self.seed)
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


LABELLED: Mapping[str, tuple[str, str]] = {
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


def _mart(name: str, lesson: Lesson) -> Floats:
    return lesson.scores(lesson.mart(name))


LEARNERS: Mapping[str, Learn] = {
    **{name: partial(_mart, name) for name in MARTS},
    "rd": lambda lesson: lesson.best_linear(RD),
    **{name: partial(lambda name, lesson: lesson.remapped(name), name) for name in REMAPPED},
    "gls-average": lambda lesson: lesson.best_linear(GLS),
    "expected-grades": partial(_mart, "expected-grades"),
    "family-mean": partial(_mart, "family-mean"),
    "expert-only": partial(_mart, "expert-only"),
    "ensemble": Lesson.together,
    **{
        f"mart-{name}": partial(lambda name, lesson: lesson.mart_on(name), name) for name in REMAPPED if "t" in name[-1]
    },
}
"""The runs by name."""
CONTROLS = ("gls-average", "expected-grades", "family-mean", "expert-only", "ensemble")


@dataclass(frozen=True, eq=False)
class Setting:
    """Documents with expert grades, a crowd for each repeat, and the parts that its folds are made of."""

    name: str
    title: str
    features: Features
    crowds: tuple[Judgments, ...]
    parts: tuple[Integers, ...]
    trees: Mapping[str, Any]
    notes: tuple[str, ...]
    n_trees: int = TREE_FEATURES

    def lesson(self, repeat: int, fold: Fold, tell: Tell = quiet) -> Lesson:
        """What may be seen in one fold."""
        told = judgments_of(self.crowds[repeat], self.features, fold.crowd)
        return Lesson(
            features=self.features,
            judgments=without_honeypots(told),
            told=told,
            fold=fold,
            trees=self.trees,
            seed=repeat,
            tell=tell,
            n_trees=self.n_trees,
        )

    def places(self) -> list[tuple[int, int, Fold]]:
        """Repeats and folds."""
        return [(repeat, k, fold) for repeat, part in enumerate(self.parts) for k, fold in enumerate(folds(part))]


# The settings.


def mq2008_setting(seed: int = 0) -> Setting:
    """A simulated crowd over MQ2008's documents."""
    features, part = mq2008()
    notes = (
        f"Documents, features and expert grades (0-2) are MQ2008's; {counted(LABELS, 'label')} of two grades of each "
        f"document by a simulated crowd ({crowd_told([seed])}); 5% of the documents are honeypots.",
        *trees_told(TREES),
    )
    crowd = crowd_over(features, seed, **CROWD)
    return Setting("mq2008", "MQ2008, a simulated crowd", features, (crowd,), (part,), TREES, notes)


def generated_setting(seed: int = 0, sizes: Mapping[str, Any] = GENERATED) -> Setting:
    """A simulated crowd over many generated queries."""
    features = generated_documents(sizes)
    notes = (
        f"Documents are generated ({', '.join(f'{name} {value}' for name, value in sizes.items())}, expert grades "
        f"0-4); {counted(LABELS, 'label')} of two grades of each by a simulated crowd ({crowd_told([seed])}); 5% of "
        "the documents are honeypots.",
        *trees_told(TREES),
    )
    part = query_parts(query_numbers(features), seed)
    crowd = crowd_over(features, seed, **CROWD)
    return Setting("generated", "Generated documents, a simulated crowd", features, (crowd,), (part,), TREES, notes)


def dl20_setting(repeats: int = 1) -> Setting:
    """Some of DL20's LLM judges as the crowd, NIST as the experts."""
    features, judges = dl20_documents()
    few = judges.where(drawn_judges(judges, PER_FAMILY, seed=0)[judges.assessor])
    notes = (
        f"{counted(len(features.query), 'passage')} of TREC Deep Learning 2020; the crowd are {few.n_assessors} LLM "
        f"judges, at most {PER_FAMILY} of each family (drawn with seed 0: {sizes_told(few)}), the experts NIST's.",
        f"Features are the scores of {counted(len(features.names), 'retrieval system')}, from 0 to 1 within the query; "
        "linear rankers take a missing score as the mean.",
        f"{counted(repeats, 'time')} five folds ({seeds_told(range(repeats))}).",
        *trees_told(SMALL_TREES),
    )
    parts = tuple(query_parts(query_numbers(features), seed) for seed in range(repeats))
    return Setting("dl20", "DL20, LLM judges and NIST", features, (few,) * repeats, parts, SMALL_TREES, notes)


SETTINGS: Mapping[str, Callable[[], Setting]] = {
    "mq2008": mq2008_setting,
    "generated": generated_setting,
    "dl20": dl20_setting,
}
# The study.


def study(methods: Sequence[str] | None = None, *, only: Sequence[str] | None = None, tell: Tell = quiet) -> Study:
    """All tables, or those named, for the runs named or for all."""
    chosen = named(methods, LEARNERS)
    asked = named(only, {**SETTINGS, **TABLES}, "data set or table")
    tables: list[Table] = []
    for name, make in SETTINGS.items():
        if name in asked:
            tables += setting_tables(make(), chosen, tell=tell)
    claims = claim_table([table for table in tables if table.comparison is not None])
    tables += [TABLES[name](mq2008_setting(), tell=tell) for name in TABLES if name in asked]
    return Study("experts", (*tables, *claims), tuple(protocol(tables, len(chosen))))


def protocol(tables: Sequence[Table], n_runs: int) -> list[str]:
    """What holds for all tables."""
    tested = [table for table in tables if table.comparison is not None]
    return [
        "Five folds by query: two fifths of the queries have labels of the crowd and no expert grade, one fifth has "
        "expert grades to learn from, one to choose by, and one is tested; the test parts of all folds are one run.",
        "majority, average, dawid-skene and glad are LambdaMART on the majority, the average, and the likeliest grade "
        "by either model; rd, linear-* and boosted-* are least squares: reweighted by deviations on averages, and with "
        "the targets (t), weights (w) or both that REMAP's linear functions (its 29 features, each for every grade) "
        "and MGBDT's trees (its 13) learnt.",
        "The controls: gls-average is least squares on averages, expected-grades LambdaMART on Dawid-Skene's "
        "probabilities of grades, family-mean LambdaMART on the mean of the families' means (where there are families),"
        " expert-only LambdaMART on the expert grades to learn from, ensemble that and expected-grades together, "
        "mart-* LambdaMART on the learnt targets and weights.",
        f"Whatever is chosen is chosen by {MAIN} of the expert grades to choose by, never by the test: when trees and "
        f"remappers stop, ridges, weights of the ensemble, and whether {TREE_FEATURES} trees (on the average label, "
        "their outputs for the crowd's documents cross-fitted) join the features of least squares. Everything else is "
        "as the library has it; no consensus and no label feature saw an expert grade.",
        f"Percentages are of the mean of {BASELINE}; gains are exponential (15, 7, 3, 1, 0 of grades 4 to 0); "
        f"{counted(n_runs, 'run')} in {counted(len(tested), 'tested table')}.",
        "Of the papers' headline, that the targets learnt by boosting, alone or with weights (MGBDT), and the linear "
        "targets with weights (REMAP) beat every LambdaMART baseline: confirmed is better than each of the four by "
        f"{MAIN} beyond chance (p by Holm over the four); refuted is worse than one of them beyond chance, or a 95% "
        f"interval against the best of them that has no room for a gain of {ROOM:.0%}; else it is undecided. Beside "
        f"it, the better of the claimed runs is held against {BACKGROUND}, the same ranker on plain averages, and "
        "against the control that did best in the test.",
        *(testing_protocol(tested[0]) if tested else []),
    ]


def setting_tables(setting: Setting, chosen: Sequence[str], *, tell: Tell = quiet) -> list[Table]:
    """Every run in a setting with its tests, and the label features that mattered."""
    runs = [run for run in chosen if run != "family-mean" or setting.crowds[0].families is not None]
    lessons: dict[tuple[int, int], Lesson] = {}

    def learn(place: tuple[int, int, Fold]) -> dict[str, Floats]:
        repeat, k, fold = place
        where = f"{setting.name}, repeat {repeat + 1}, fold {k + 1}"
        lesson = lessons[repeat, k] = setting.lesson(repeat, fold, lambda doing: tell(f"{doing} on {where}"))
        scores = {}
        for run in runs:
            tell(f"{run} on {where}")
            scores[run] = LEARNERS[run](lesson)
        return scores

    found = _each(setting, learn)
    evaluations = {run: over_repeats(_evaluations(setting, run, found)) for run in runs}
    baseline = BASELINE if BASELINE in evaluations else runs[0]
    comparison = compare_evaluations(evaluations, baseline=baseline)
    table = comparison_table(setting.name, setting.title, comparison, setting.notes)
    rows = tuple({**row, **relative(row, table.row(baseline))} for row in table.rows)
    told = [sentence for paper in CLAIMS for sentence in verdict(comparison, paper)]
    return [replace(table, rows=rows, notes=(*table.notes, *told)), *importances(setting, lessons)]


def _each(setting: Setting, learn: Callable[[tuple[int, int, Fold]], Any]) -> dict[tuple[int, int], Any]:
    """What is learnt in every fold, side by side."""
    places = setting.places()
    with warnings.catch_warnings(), ThreadPoolExecutor(min(usual_threads(), len(places))) as pool:
        warnings.simplefilter("ignore")  # blanks as the mean stand in the notes
        return {place[:2]: found for place, found in zip(places, pool.map(learn, places), strict=True)}


def _evaluations(setting: Setting, run: str, found: Mapping[tuple[int, int], Mapping[str, Floats]]) -> list[Evaluation]:
    """One evaluation of a run for each repeat; all folds of it together."""
    gold = run_frame(setting.features, setting.features.grade).rename(columns={"score": "grade"})
    score = np.full((len(setting.parts), len(gold)), np.nan)
    for repeat, k, fold in setting.places():
        score[repeat, fold.test] = found[repeat, k][run]
    return [evaluate(run_frame(setting.features, one), gold, list(MEASURES), gains=GAINS) for one in score]


def relative(row: Row, base: Row) -> Row:
    """Gains over the baseline in percent.

    >>> relative({"DCG@1": 3.0, "DCG@5": 1.0, "DCG@10": 2.0}, {"DCG@1": 2.0, "DCG@5": 1.0, "DCG@10": 4.0})
    {'DCG@1 %': 50.0, 'DCG@5 %': 0.0, 'DCG@10 %': -50.0}
    """
    return {f"{measure} %": 100 * (row[measure] / base[measure] - 1) for measure in MEASURES}


def importances(setting: Setting, lessons: Mapping[tuple[int, int], Lesson]) -> list[Table]:
    """The label features that mattered most to boosted targets and weights, the mean over folds (MGBDT's Table 5)."""
    rows: list[Row] = []
    for name, role in (("boosted-w", "weight"), ("boosted-t", "target")):
        if not all(any(of == name for of, _ in lesson.remappers) for lesson in lessons.values()):
            continue
        told = [lesson.best(name)[0].importances_.set_index("feature")[role] for lesson in lessons.values()]
        mean = sum(told[1:], told[0]) / len(told)
        steps = np.mean([lesson.best(name)[0].best_iteration_ for lesson in lessons.values()])
        for feature, share in mean.sort_values(ascending=False).head(SHOWN).items():
            rows.append({"run": name, "label feature": str(feature), "importance": float(share), "steps": float(steps)})
    if not rows:
        return []
    note = (
        "Parts of what the splits took off the squared error of the gradients, summed over trees and averaged over "
        "folds; steps is the mean number of trees; where a fold kept none, its importances are 0."
    )
    return [
        Table(f"{setting.name}-importances", f"{setting.title}: label features that mattered", tuple(rows), (note,))
    ]


# What is made of the headline.


def judged(comparison: Comparison, run: str) -> str | None:
    """What a comparison makes of the claim that a run beats all LambdaMART baselines; None where it lacks some."""
    evaluations = comparison.evaluations
    if not {run, *MARTS} <= set(evaluations):
        return None
    part = compare_evaluations({name: evaluations[name] for name in (run, *MARTS)}, baseline=run)
    rows = [row for row in part.rows.to_pylist() if row["measure"] == MAIN and row["run"] != run]
    if all(row["significant"] and row["difference"] < 0 for row in rows):
        return "confirmed"
    if any(row["significant"] and row["difference"] > 0 for row in rows):
        return "refuted"
    best = max(rows, key=lambda row: row["mean"])
    room = ROOM * evaluations[BASELINE].means[MAIN]
    # The differences are the baselines' to the run: the run's gain is at most minus the lower end.
    return "refuted" if -best["lower"] < room else "undecided"


def headline(comparison: Comparison, paper: str) -> str | None:
    """The word on all runs that a paper's headline names."""
    words = [judged(comparison, run) for run in CLAIMS[paper]]
    if None in words:
        return None
    if "refuted" in words:
        return "refuted"
    return "confirmed" if set(words) == {"confirmed"} else "undecided"


def verdict(comparison: Comparison, paper: str) -> list[str]:
    """What a comparison makes of a paper's headline, in sentences, and of its runs next to the best control."""
    word = headline(comparison, paper)
    if word is None:
        return []
    best = best_of(comparison, MARTS)
    table = Table("", "", (), comparison=comparison)
    said = [f"{paper}'s headline ({' and '.join(CLAIMS[paper])} beat every LambdaMART baseline) is {word} here."]
    for run in CLAIMS[paper]:
        said += against(table, run, best, MAIN)
    ours, control = best_of(comparison, CLAIMS[paper]), best_of(comparison, CONTROLS)
    # What least squares gains over LambdaMART by itself is no merit of what was learnt.
    for other in dict.fromkeys(name for name in (BACKGROUND, control) if name in comparison.evaluations):
        said += against(table, ours, other, MAIN)
    return said


def best_of(comparison: Comparison, runs: Sequence[str]) -> Any:
    """The run of the highest mean; None where none of them ran."""
    there = [run for run in runs if run in comparison.evaluations]
    return max(there, key=lambda run: comparison.evaluations[run].means[MAIN]) if there else None


def claim_table(tables: Sequence[Table]) -> list[Table]:
    """The papers' headlines in all settings at a glance; nothing where they were not put to the test."""
    rows: list[Row] = []
    for table in tables:
        assert table.comparison is not None
        for paper, claimed in CLAIMS.items():
            word = headline(table.comparison, paper)
            if word is None:
                continue
            row: Row = {"run": f"{table.name}, {paper}"}
            for what, runs in (("claimed", claimed), ("baseline", MARTS), ("control", CONTROLS)):
                best = best_of(table.comparison, runs)
                row[what] = best or ""
                row[f"{what} %"] = float("nan") if best is None else table.row(best)[f"{MAIN} %"]
            rows.append({**row, "headline": word})
    if not rows:
        return []
    counts = [(word, sum(row["headline"] == word for row in rows)) for word in ("confirmed", "refuted", "undecided")]
    told = ", ".join(f"{word} in {n} of {len(rows)}" for word, n in counts if n)
    note = (
        f"That learnt targets (and weights) beat every LambdaMART baseline is {told}. The best run of a kind is shown."
    )
    return [Table("claim", f"The papers' headline, gains in {MAIN} over {BASELINE}", tuple(rows), (note,))]


# REMAP's Table 5 and Figure 4.


def only_groups(labels: LabelFeatures, groups: Sequence[str]) -> LabelFeatures:
    """The basic label features and those of some models."""
    left_out = [mark for group, marks in GROUPS.items() if group not in groups for mark in marks]
    kept = [place for place, name in enumerate(labels.names) if not any(mark in name for mark in left_out)]
    return replace(labels, names=tuple(labels.names[place] for place in kept), matrix=labels.matrix[:, kept])


def ablation_table(setting: Setting, *, tell: Tell = quiet) -> Table:
    """Linear functions of some label features only, relative to LambdaMART on majority votes (REMAP's Table 5)."""

    def learn(place: tuple[int, int, Fold]) -> dict[str, Floats]:
        repeat, k, fold = place
        lesson = setting.lesson(repeat, fold)
        scores = {BASELINE: _mart(BASELINE, lesson)}
        for mode in MODES:
            for name, groups in FEATURE_SETS.items():
                tell(f"linear {mode} of {name} on {setting.name}, fold {k + 1}")
                known = only_groups(lesson.known["linear"], groups)
                remapper = lesson.remapper(f"linear-{mode.lower()}", lesson.n_trees, known)
                scores[f"{mode} {name}"] = lesson.scores(remapper.ranker_, lesson.extended(lesson.n_trees))
        return scores

    found = _each(setting, learn)
    means = {run: over_repeats(_evaluations(setting, run, found)).means[MAIN] for run in found[0, 0]}
    rows = []
    for mode in MODES:
        gains = {name: 100 * (means[f"{mode} {name}"] / means[BASELINE] - 1) for name in FEATURE_SETS}
        rows.append({"run": f"linear-{mode.lower()}", **{f"{name} %": gain for name, gain in gains.items()}})
    note = (
        f"Gains in {MAIN} over {BASELINE} with {TREE_FEATURES} trees among the features; basic is the label, the "
        "number of tasks, the share of low labels and the honeypots of the assessor. There are no tests."
    )
    return Table(f"{setting.name}-ablation", f"{setting.title}: label features left out", tuple(rows), (note,))


def number_table(setting: Setting, *, numbers: Sequence[int] = NUMBERS, tell: Tell = quiet) -> Table:
    """Linear functions with more and more trees among the features (REMAP's Figure 4)."""
    runs = ("linear-t", "boosted-t")

    def learn(place: tuple[int, int, Fold]) -> dict[str, Any]:
        repeat, k, fold = place
        lesson = replace(setting.lesson(repeat, fold), n_trees=max(numbers))
        scores: dict[str, Any] = {}
        for n in numbers:
            for run in runs:
                tell(f"{run} with {n} trees on {setting.name}, fold {k + 1}")
                remapper = lesson.remapper(run, n)
                scores[f"{run} {n}"] = lesson.scores(remapper.ranker_, lesson.extended(n))
                scores[f"{run} {n} validation"] = remapper.validation_
        mart = lesson.mart(BASELINE)
        scores[BASELINE] = lesson.scores(mart)
        part, y, query = lesson.expert(fold.validate)
        scores[f"{BASELINE} validation"] = Validation(gather(part, y, query), MAIN, GAINS)(mart.predict(part, query))
        return scores

    found = _each(setting, learn)
    test = {
        run: over_repeats(_evaluations(setting, run, found)).means[MAIN]
        for run in (BASELINE, *(f"{run} {n}" for run in runs for n in numbers))
    }
    chosen_by = {run: float(np.mean([one[f"{run} validation"] for one in found.values()])) for run in test}
    rows: list[Row] = []
    for n in numbers:
        row: Row = {"run": f"{n} trees"}
        for run in runs:
            row[f"{run}, validation %"] = 100 * (chosen_by[f"{run} {n}"] / chosen_by[BASELINE] - 1)
            row[f"{run}, test %"] = 100 * (test[f"{run} {n}"] / test[BASELINE] - 1)
        rows.append(row)
    note = (
        f"Gains in {MAIN} over {BASELINE}. Validation is what the steps were chosen by (so was when {BASELINE} "
        "stopped) and promises too much. There are no tests."
    )
    return Table(f"{setting.name}-tree-features", f"{setting.title}: trees among the features", tuple(rows), (note,))


TABLES: Mapping[str, Callable[..., Table]] = {"ablation": ablation_table, "tree-features": number_table}
"""Further tables, on MQ2008."""
