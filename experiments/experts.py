"""Targets and weights learned from experts: the papers' comparison (REMAP and MGBDT, Table 4), and every control."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.features import Features
from crowdrank.judgments.table import Judgments
from crowdrank.label_learning.label_features import LabelFeatures, without_honeypots
from crowdrank.label_learning.remapper import MODES
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.validation import Validation
from experiments.base import (
    UNJUDGED,
    Experiment,
    Row,
    Table,
    Tell,
    comparison_table,
    quiet,
    seeds_told,
    testing_protocol,
)
from experiments.dl20 import drawn_judges, sizes_told
from experiments.expert_claims import BACKGROUND, BASELINE, CLAIMS, ROOM, claim_table, verdict
from experiments.expert_lessons import LEARNERS, MAIN, TREE_FEATURES, Fold, Lesson, folds, mart_scores
from experiments.lessons import (
    LABELS,
    SMALL_TREES,
    TREES,
    crowd_over,
    crowd_told,
    dl20_documents,
    generated_documents,
    judgments_of,
    over_repeats,
    query_parts,
    trees_told,
)
from experiments.rankers import mq2008, named, query_numbers, run_frame

MEASURES = ("DCG@1", "DCG@5", "DCG@10")
NUMBERS = (0, 50, 100, 200, 300, 400)
"""Of tree features in REMAP's Figure 4."""
GENERATED: Mapping[str, Any] = {"queries": 1500, "documents": 15, "features": 20, "random_state": 100}
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
# The experiment.


def experiment(
    methods: Sequence[str] | None = None, *, only: Sequence[str] | None = None, tell: Tell = quiet
) -> Experiment:
    """All tables, or those named, for the runs named or for all."""
    chosen = named(methods, LEARNERS)
    asked = named(only, {**SETTINGS, **TABLES}, "data set or table")
    tables: list[Table] = []
    for name, make in SETTINGS.items():
        if name in asked:
            tables += setting_tables(make(), chosen, tell=tell)
    claims = claim_table([table for table in tables if table.comparison is not None])
    tables += [TABLES[name](mq2008_setting(), tell=tell) for name in TABLES if name in asked]
    return Experiment("experts", (*tables, *claims), tuple(protocol(tables, len(chosen))))


def protocol(tables: Sequence[Table], n_runs: int) -> list[str]:
    """What holds for all tables."""
    tested = [table for table in tables if table.comparison is not None]
    return [
        "Five folds by query: two fifths of the queries have labels of the crowd and no expert grade, one fifth has "
        "expert grades to learn from, one to choose by, and one is tested; the test parts of all folds are one run.",
        "majority, average, dawid-skene and glad are LambdaMART on the majority, the average, and the likeliest grade "
        "by either model; rd, linear-* and boosted-* are least squares: reweighted by deviations on averages, and with "
        "the targets (t), weights (w) or both that REMAP's linear functions (its 29 features, each for every grade) "
        "and MGBDT's trees (its 13) learned.",
        "The controls: gls-average is least squares on averages, expected-grades LambdaMART on Dawid-Skene's "
        "probabilities of grades, family-mean LambdaMART on the mean of the families' means (where there are families),"
        " expert-only LambdaMART on the expert grades to learn from, ensemble that and expected-grades together, "
        "mart-* LambdaMART on the learned targets and weights.",
        f"Whatever is chosen is chosen by {MAIN} of the expert grades to choose by, never by the test: when trees and "
        f"remappers stop, ridges, weights of the ensemble, and whether {TREE_FEATURES} trees (on the average label, "
        "their outputs for the crowd's documents cross-fitted) join the features of least squares. Everything else is "
        "as the library has it; no consensus and no label feature saw an expert grade.",
        f"Percentages are of the mean of {BASELINE}; gains are exponential (15, 7, 3, 1, 0 of grades 4 to 0); "
        f"{counted(n_runs, 'run')} in {counted(len(tested), 'tested table')}.",
        "Of the papers' headline, that the targets learned by boosting, alone or with weights (MGBDT), and the linear "
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
    """What is learned in every fold, side by side."""
    places = setting.places()
    with warnings.catch_warnings(), ThreadPoolExecutor(min(default_threads(), len(places))) as pool:
        warnings.simplefilter("ignore")  # blanks as the mean stand in the notes
        return {place[:2]: found for place, found in zip(places, pool.map(learn, places), strict=True)}


def _evaluations(setting: Setting, run: str, found: Mapping[tuple[int, int], Mapping[str, Floats]]) -> list[Evaluation]:
    """One evaluation of a run for each repeat; all folds of it together."""
    gold = run_frame(setting.features, setting.features.grade).rename(columns={"score": "grade"})
    score = np.full((len(setting.parts), len(gold)), np.nan)
    for repeat, k, fold in setting.places():
        score[repeat, fold.test] = found[repeat, k][run]
    return [evaluate(run_frame(setting.features, one), gold, list(MEASURES), unjudged=UNJUDGED) for one in score]


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
        "Share of each label feature in the gain of a tree's splits, averaged over trees and folds; "
        "steps is the mean number of trees; where a fold kept none, its importances are 0."
    )
    return [
        Table(f"{setting.name}-importances", f"{setting.title}: label features that mattered", tuple(rows), (note,))
    ]


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
        scores = {BASELINE: mart_scores(BASELINE, lesson)}
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
        scores[f"{BASELINE} validation"] = Validation(RankingData.from_ids(part, y, query), MAIN)(
            mart.predict(part, query)
        )
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
