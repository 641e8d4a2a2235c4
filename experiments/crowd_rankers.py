"""Rankers on a crowd's labels: which way of making labels of judgments gives the best ranker, by expert grades."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus.gda_pairwise import GDAPairwise
from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.features import Features, read_features
from crowdrank.judgments.table import Judgments
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.ensemble import Ensemble
from crowdrank.rankers.gda_mart import GDAPairwiseMART
from crowdrank.rankers.instances import Instances
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import GLS
from crowdrank.rankers.reweighting import RD
from experiments.base import (
    UNJUDGED,
    Experiment,
    Row,
    Table,
    Tell,
    averaged,
    comparison_table,
    quiet,
    seeds_told,
    testing_protocol,
)
from experiments.dl20 import COVERED, sizes_told
from experiments.lessons import (
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
    query_folds,
    trees_told,
)
from experiments.rankers import (
    FOLDS,
    RIDGES,
    Fold,
    against,
    folds,
    joined,
    mq2008,
    named,
    query_numbers,
    run_frame,
)

MEASURES = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10")
MAIN = "nDCG@10"
BASELINE = "average"
CLAIMED = "gda-pairwise-mart"
RIVAL = "soft-pairs"
"""The paper claims to beat this one too: LambdaMART that uses EM's posteriors in its pairs."""
ROOM = 0.01
"""The paper says that its ranker largely outperforms: a gain below this is not large."""
SEEDS = (0, 1)
DRAWS = (0, 1, 2)
"""Seeds of the crowds where there are few queries, so that a round is cheap."""
GENERATED: Mapping[str, Any] = {"queries": 600, "documents": 20, "features": 20, "random_state": 100}
REPEATS = 3
RIDGE = 100.0
"""Of linear rankers, where no validation queries choose."""
MANY_JUDGES: Mapping[str, Any] = {"partners": 5}
"""Of GDAPairwise, where every document has some 55 judgments."""


@dataclass(eq=False, kw_only=True)
class Lesson(CrowdLabels):
    """What a ranker may see: documents with features, and the crowd's judgments of those that are not for the test.

    The experts' grades (`features.grade`) are for the test, and for the one ranker that is a control.
    """

    fold: Fold
    trees: Mapping[str, Any]
    seed: int = 0

    @property
    def known(self) -> Integers:
        """The rows whose judgments may be seen."""
        return np.concatenate([self.fold.train, self.fold.validate])

    @property
    def ridge(self) -> float | tuple[float, ...]:
        """Of linear rankers: several to choose from where there are validation queries."""
        return RIDGES if len(self.fold.validate) else RIDGE

    def random_label(self) -> Floats:
        """One judgment of each document, drawn."""
        drawn = Instances.from_judgments(
            self.judgments,
            self.features,
            "single",
            random_state=self.seed,
            missing="skip",
            unjudgeable_as="lowest",
        )
        return self.spread(drawn.features.query, drawn.features.document, drawn.y)

    def taught(self, ranker: Ranker, y: Floats, **options: Any) -> Floats:
        """The scores of the test rows by a ranker that learned these labels."""
        train, validate, test = (self.features.take(rows) for rows in self._rows())
        held_out = (validate, y[self.fold.validate], validate.query) if len(self.fold.validate) else None
        ranker.fit(train, y[self.fold.train], query=train.query, eval_set=held_out, **options)
        return ranker.predict(test, test.query)

    def _rows(self) -> tuple[Integers, Integers, Integers]:
        return self.fold.train, self.fold.validate, self.fold.test

    def boosted(self) -> LambdaMART:
        """LambdaMART as the experiment sets it; folds run side by side, each in one thread."""
        return LambdaMART(**self.trees, n_jobs=1)


Learn = Callable[[Lesson], Floats]


def on_label(method: str, target: str) -> Learn:
    """LambdaMART on a consensus."""
    return lambda lesson: lesson.taught(lesson.boosted(), lesson.labels(method, target))


def soft_pairs(lesson: Lesson) -> Floats:
    """LambdaMART on the chances of pairs under Dawid-Skene's posterior."""
    ranker = lesson.boosted().set_params(pair_targets="posterior")
    return lesson.taught(ranker, lesson.labels("dawid-skene", "probabilities"))


def explained(lesson: Lesson) -> Floats:
    """GDA-PW-MART: every judgment of a document is looked at, in pairs with those of the others."""
    model = lesson.model("gda-pairwise")
    assert isinstance(model, GDAPairwise)
    most = max(9, int(np.diff(lesson.judgments.offsets).max()))
    ranker = GDAPairwiseMART(model, **lesson.trees, n_jobs=1, max_pairs=most)
    return lesson.taught(ranker, lesson.labels("gda-pairwise", "probabilities"))


def linear(make: Callable[[GLS], Ranker]) -> Learn:
    """A linear ranker on the average label."""
    return lambda lesson: lesson.taught(make(GLS(lesson.ridge)), lesson.labels("average", "relevance"))


def ensemble(lesson: Lesson) -> Floats:
    """LambdaMART and GLS together on the average label."""
    pair = Ensemble([lesson.boosted(), GLS(lesson.ridge)])
    return lesson.taught(pair, lesson.labels("average", "relevance"))


def expert_labels(lesson: Lesson) -> Floats:
    """LambdaMART on the experts' grades of the same documents: the control."""
    assert lesson.features.grade is not None
    return lesson.taught(lesson.boosted(), lesson.features.grade)


LEARNERS: Mapping[str, Learn] = {
    "average": on_label("average", "relevance"),
    "majority": on_label("majority", "grade"),
    "dawid-skene": on_label("dawid-skene", "probabilities"),
    "gda": on_label("gda", "probabilities"),
    "family-mean": on_label("family-mean", "relevance"),
    "random-label": lambda lesson: lesson.taught(lesson.boosted(), lesson.random_label()),
    "soft-pairs": soft_pairs,
    "gda-pairwise-mart": explained,
    "gls": linear(lambda gls: gls),
    "rd": linear(RD),
    "ensemble": ensemble,
    "expert-labels": expert_labels,
}
"""The runs by name; those that are named after a consensus are LambdaMART on it."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Documents, a crowd for each repeat, and the folds of each repeat."""

    name: str
    title: str
    features: Features
    crowds: tuple[Judgments, ...]
    splits: tuple[Sequence[Fold], ...]
    trees: Mapping[str, Any]
    notes: tuple[str, ...]
    pairwise: Mapping[str, Any] = field(default_factory=dict)
    once: tuple[str, ...] = ()  # runs that are too slow to be repeated
    descriptive: bool = False  # too few queries for tests: figures only

    def lesson(self, repeat: int, fold: Fold) -> Lesson:
        """What may be seen in one fold."""
        judgments = judgments_of(self.crowds[repeat], self.features, np.concatenate([fold.train, fold.validate]))
        return Lesson(
            features=self.features,
            judgments=judgments,
            fold=fold,
            trees=self.trees,
            seed=repeat,
            options={"gda-pairwise": self.pairwise},
        )


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """All tables, for the runs named or for all."""
    chosen = named(methods, LEARNERS)
    settings = (mq2008_setting(seeds), generated_setting(seeds[:1]), dl20_setting(), mslr_setting())
    tables = tuple(setting_table(one, chosen, tell=tell) for one in settings)
    return Experiment("crowd-rankers", (*tables, *claim_table(tables)), tuple(_protocol(tables, chosen)))


def _protocol(tables: Sequence[Table], chosen: Sequence[str]) -> list[str]:
    return [
        "A run that bears the name of a consensus is LambdaMART on it: on the average or the majority grade, on the "
        "probabilities of grades by Dawid-Skene or GDA (from which come expected gains), on the mean of the families' "
        "means. random-label is LambdaMART on one judgment of each document; soft-pairs on P(d > d') by Dawid-Skene's "
        "posterior; gls and rd are linear on the average; ensemble is LambdaMART and gls on the average; expert-labels "
        "is LambdaMART on the experts' grades of the same training documents, a control that no crowd pays for.",
        "gda-pairwise-mart takes no label but the judgments, with assessors as the pairwise GDA estimated them; every "
        "judgment of a document is looked at.",
        "No model saw a judgment or a grade of a test query. Where there are validation queries, trees stop, ridges "
        "and the ensemble's weights are chosen, by the label that the run learns from, never by experts' grades (but "
        "in expert-labels).",
        f"Every run had one configuration in each table ({counted(len(chosen), 'run')}, "
        f"{counted(len(tables), 'table')}); nothing was tuned on test queries.",
        "Where there are repeats, the value of a query is its mean over them, so that tests pair queries and count "
        "each once.",
        f"Of the paper's claim, that {CLAIMED} largely outperforms LambdaMART on aggregated labels: confirmed is "
        f"better than LambdaMART on the average by {MAIN} beyond chance (p by Holm); refuted is worse beyond chance, "
        f"or a 95% interval that has no room for a gain of {ROOM:g}; else it is undecided. The claim names "
        f"LambdaMART with EM's soft pairs too: that one test ({CLAIMED} against {RIVAL}) is told beside it.",
        "mslr-5k has too few queries for tests: its table only describes, and has no part in what is said of the "
        "claim.",
        *testing_protocol(tables[0]),
    ]


# The settings.


def mq2008_setting(seeds: Sequence[int]) -> Setting:
    """Simulated crowds over MQ2008's documents, LETOR's folds."""
    features, part = mq2008()
    notes = (
        f"Documents, features and expert grades are MQ2008's; {counted(LABELS, 'label')} of each document by simulated "
        f"crowds ({crowd_told(seeds)}).",
        "LETOR's folds: three parts to learn from, one to stop by, one to test on.",
        *trees_told(TREES),
    )
    crowds = tuple(crowd_over(features, seed) for seed in seeds)
    return Setting("mq2008", "MQ2008, simulated crowds", features, crowds, (folds(part),) * len(crowds), TREES, notes)


def generated_setting(seeds: Sequence[int], sizes: Mapping[str, Any] = GENERATED) -> Setting:
    """Simulated crowds over generated documents."""
    features = generated_documents(sizes)
    notes = (
        f"Documents are generated ({', '.join(f'{name} {value}' for name, value in sizes.items())}, grades 0-4); "
        f"{counted(LABELS, 'label')} of each by simulated crowds ({crowd_told(seeds)}).",
        "Five folds by query: three fifths to learn from, one to stop by, one to test on.",
        *trees_told(TREES),
    )
    crowds = tuple(crowd_over(features, seed) for seed in seeds)
    split = folds(query_numbers(features) % FOLDS)
    return Setting(
        "generated", "Generated documents, simulated crowds", features, crowds, (split,) * len(crowds), TREES, notes
    )


def dl20_setting(repeats: int = REPEATS) -> Setting:
    """DL20's LLM judges, over the scores of retrieval systems."""
    features, judges = dl20_documents()
    notes = (
        f"{counted(len(features.query), 'passage')} of TREC Deep Learning 2020, judged by the {judges.n_assessors} LLM "
        f"judges of more than {COVERED:,} items ({sizes_told(judges)}); tested on NIST's grades.",
        f"Features are the scores of {counted(len(features.names), 'retrieval system')}, from 0 to 1 within the query; "
        "what a system did not return stays missing.",
        f"{repeats} x {FOLDS} folds by query ({seeds_told(range(repeats))}), without validation queries; "
        f"{CLAIMED}, which is slow here, has the first {FOLDS} only.",
        *trees_told(SMALL_TREES),
        f"gls and rd have a ridge of {RIDGE:g} and take a missing score as the mean; the ensemble's weights are equal; "
        f"the pairwise GDA has {MANY_JUDGES['partners']} partners for a judgment.",
    )
    splits = tuple(query_folds(query_numbers(features), seed) for seed in range(repeats))
    title = "DL20, LLM judges"
    return Setting(
        "dl20", title, features, (judges,) * repeats, splits, SMALL_TREES, notes, MANY_JUDGES, once=(CLAIMED,)
    )


def mslr_setting(seeds: Sequence[int] = DRAWS) -> Setting:
    """Simulated crowds over the first documents of MSLR-WEB10K: one split, too few queries for more than figures."""
    data = dataset("mslr-5k")
    parts = [read_features(data.path(name), format="letor") for name in data.files]
    features = joined(parts)
    n, nothing = len(parts[0].query), np.array([], np.int64)
    split = [Fold(np.arange(n), nothing, np.arange(n, len(features.query)))]
    learned, tested = (counted(len(part.query.unique()), "query") for part in parts)
    notes = (
        f"Descriptive only: {learned} to learn from and {tested} to test on are too few for tests of significance, and "
        "none was made.",
        f"Documents, features and expert grades are those of MSLR-WEB10K's first fold, of train and test the first "
        f"5,000 each; {counted(LABELS, 'label')} of each document by simulated crowds ({crowd_told(seeds)}). sd is "
        "that of the means over crowds; how much other queries would change them, it does not say.",
        "There are no validation queries.",
        *trees_told(SMALL_TREES),
        f"gls and rd have a ridge of {RIDGE:g}; the ensemble's weights are equal.",
    )
    crowds = tuple(crowd_over(features, seed) for seed in seeds)
    title = "MSLR-WEB10K, first documents, simulated crowds (descriptive only)"
    return Setting("mslr-5k", title, features, crowds, (split,) * len(crowds), SMALL_TREES, notes, descriptive=True)


# A table.


def setting_table(setting: Setting, chosen: Sequence[str], *, tell: Tell = quiet) -> Table:
    """Every run in a setting, with paired tests against LambdaMART on the average where there is power for them."""
    runs, notes = possible(setting, chosen)
    places = [(repeat, number) for repeat, split in enumerate(setting.splits) for number in range(len(split))]

    def learn(place: tuple[int, int]) -> dict[str, Floats]:
        repeat, number = place
        lesson = setting.lesson(repeat, setting.splits[repeat][number])
        scores = {}
        for run in runs:
            if repeat == 0 or run not in setting.once:
                tell(f"{run} on {setting.name}, repeat {repeat + 1}, fold {number + 1}")
                scores[run] = LEARNERS[run](lesson)
        return scores

    with warnings.catch_warnings(), ThreadPoolExecutor(min(default_threads(), len(places))) as pool:
        warnings.simplefilter("ignore")  # blanks as the mean stand in the notes
        found = dict(zip(places, pool.map(learn, places), strict=True))
    repeated = {run: _evaluations(setting, run, found) for run in runs}
    if setting.descriptive:
        return described(setting, repeated, notes)
    evaluations = {run: over_repeats(repeats) for run, repeats in repeated.items()}
    baseline = BASELINE if BASELINE in evaluations else runs[0]
    comparison = compare_evaluations(evaluations, baseline=baseline)
    table = comparison_table(setting.name, setting.title, comparison, (*setting.notes, *notes))
    return replace(table, notes=(*table.notes, *verdict(table), *some_told(chosen, table)))


def described(setting: Setting, repeated: Mapping[str, Sequence[Evaluation]], notes: Sequence[str]) -> Table:
    """Figures without tests: the mean over repeats, and how far these are apart."""
    first = next(iter(repeated.values()))
    draws = [{run: repeats[number].means for run, repeats in repeated.items()} for number in range(len(first))]
    counts = first[0].notes()[0]
    return Table(setting.name, setting.title, averaged(draws), (counts, *setting.notes, *notes))


def some_told(chosen: Sequence[str], table: Table) -> list[str]:
    """That a verdict of some runs is not that of all: Holm's method adjusts for fewer tests."""
    if set(chosen) == set(LEARNERS) or judged(table) is None:
        return []
    return ["Only some runs were asked for, and p by Holm is lower than among all: the whole experiment's word counts."]


def possible(setting: Setting, chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs that a setting allows, and what is left out."""
    if setting.crowds[0].families is not None or "family-mean" not in chosen:
        return list(chosen), []
    runs = [run for run in chosen if run != "family-mean"]
    if not runs:
        raise UsageError(f"family-mean has no place on {setting.name}, where there are no families; name others too.")
    return runs, ["There are no families here, so that family-mean is left out."]


def _evaluations(setting: Setting, run: str, found: Mapping[tuple[int, int], Mapping[str, Floats]]) -> list[Evaluation]:
    """One evaluation of a run for each repeat; all folds of it together."""
    gold = run_frame(setting.features, setting.features.grade).rename(columns={"score": "grade"})
    tested = np.sort(np.concatenate([fold.test for fold in setting.splits[0]]))
    evaluations = []
    for repeat, split in enumerate(setting.splits):
        if run not in found[repeat, 0]:
            continue
        score = np.full(len(gold), np.nan)
        for number, fold in enumerate(split):
            score[fold.test] = found[repeat, number][run]
        scored = run_frame(setting.features, score).iloc[tested]
        evaluations.append(evaluate(scored, gold.iloc[tested], list(MEASURES), unjudged=UNJUDGED))
    return evaluations


@dataclass(frozen=True)
class Verdict:
    """How the claim's run differs from another, and what that makes of the claim."""

    word: str
    difference: float
    lower: float
    upper: float
    p: float
    p_holm: float


def judged(table: Table) -> Verdict | None:
    """What a table makes of the paper's claim; None where it was not put to the test."""
    rows = [] if table.comparison is None else table.comparison.rows.to_pylist()
    found = [row for row in rows if (row["run"], row["measure"]) == (CLAIMED, MAIN)]
    if not found or table.comparison is None or table.comparison.baseline != BASELINE:
        return None
    (row,) = found
    word = "undecided"
    if row["significant"]:
        word = "confirmed" if row["difference"] > 0 else "refuted"
    elif row["upper"] < ROOM:
        word = "refuted"
    return Verdict(word, *(row[name] for name in ("difference", "lower", "upper", "p", "p_holm")))


def verdict(table: Table) -> list[str]:
    """What a table makes of the claim, in sentences: against the average, and against the strongest rival named."""
    said = judged(table)
    if said is None:
        return []
    return [
        f"The paper's claim for {CLAIMED} is {said.word} here: by {MAIN} it differs from LambdaMART on the average "
        f"label by {said.difference:+.4f} [{said.lower:+.4f}, {said.upper:+.4f}], p {said.p:.4f}, by Holm over the "
        f"runs of the table {said.p_holm:.4f}.",
        *against(table, CLAIMED, RIVAL),
    ]


def claim_table(tables: Sequence[Table]) -> list[Table]:
    """The claim in all settings at a glance; nothing where it was not put to the test."""
    rows: list[Row] = []
    for table in tables:
        said = judged(table)
        if said is not None:
            means = {run: table.row(run)[MAIN] for run in (BASELINE, RIVAL, CLAIMED) if run in _runs(table)}
            rows.append({"run": table.name, **means, "p by Holm": said.p_holm, "claim": said.word})
    if not rows:
        return []
    counts = [(word, sum(row["claim"] == word for row in rows)) for word in ("confirmed", "refuted", "undecided")]
    told = ", ".join(f"{word} in {n} of {len(rows)}" for word, n in counts if n)
    lost = [sentence for table in tables for sentence in against(table, CLAIMED, RIVAL)]
    better = sum(f"{CLAIMED} is better than" in sentence for sentence in lost)
    rival = f" It beats {RIVAL} beyond chance in {better} of {len(lost)}." if lost else ""
    note = f"That {CLAIMED} beats LambdaMART on the average label is {told}.{rival}"
    return [Table("claim", f"The paper's claim for {CLAIMED}, {MAIN}", tuple(rows), (note,))]


def _runs(table: Table) -> list[str]:
    return [row["run"] for row in table.rows]
