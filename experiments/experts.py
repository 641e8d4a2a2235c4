"""Targets and weights learned from experts: REMAP's and MGBDT's comparison (Table 4), with controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._text import counted
from crowdrank.label_learning.gradient_ascent import MODES
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.pipeline.candidates import Candidate, consensus_candidate
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.training_view import RemapperKind, TrainingView
from crowdrank.rankers.linear import AUTO_TREES
from crowdrank.rankers.ranker import Ranker
from experiments.base import (
    Experiment,
    Row,
    Table,
    Tell,
    average_repeats,
    quiet,
    seeds_text,
    select_names,
    testing_protocol,
)
from experiments.dl20 import drawn_judges, sizes_text
from experiments.documents import (
    LABELS,
    crowd_over,
    describe_crowd,
    dl20_documents,
    generated_documents,
    mq2008,
    query_numbers,
    query_parts,
)
from experiments.driver import (
    SMALL_TREES,
    TREES,
    Rankings,
    Setting,
    compare_rankings,
    describe_trees,
    evaluate_repeats,
    rotate_parts,
    select,
    train_candidates,
)
from experiments.expert_candidates import CANDIDATES, regression, remapper_parameters
from experiments.expert_claims import (
    BACKGROUND,
    BASELINE,
    CLAIMS,
    MAIN,
    MIN_GAIN,
    claim_tables,
    describe_headline,
    mode_tables,
)
from experiments.label_controls import pooled_weights

MEASURES = ("DCG@1", "DCG@5", "DCG@10")
TREE_COUNTS = (0, 50, 100, 200, 300, 400)
"""Numbers of tree features in REMAP's Figure 4."""
GENERATED: Mapping[str, Any] = {"queries": 600, "documents": 15, "features": 20, "random_state": 100}
CROWD: Mapping[str, Any] = {"label_grades": 2, "honeypots": 0.05}
JUDGES_PER_FAMILY = 9
"""Maximum number of DL20's judges per family."""
FEATURE_GROUPS: Mapping[str, tuple[str, ...]] = {"dawid-skene": ("says_", "dawid_skene"), "glad": ("ability", "glad")}
"""Parts of the names of label features that come from a consensus model; the others are basic."""
FEATURE_SETS: Mapping[str, tuple[str, ...]] = {
    "basic": (),
    "basic + glad": ("glad",),
    "basic + dawid-skene": ("dawid-skene",),
    "all": ("glad", "dawid-skene"),
}
N_IMPORTANCES = 5
"""Number of label features in a table of importances."""


# Settings.


def _setting(name: str, title: str, **fields: Any) -> Setting:
    """Return a setting with the folds and measures of this experiment, from the `parts` of each repeat."""
    trees = fields.pop("trees", TREES)
    notes = (*fields.pop("notes"), describe_trees(trees))
    splits = tuple(rotate_parts(part, crowd=(0, 1), experts=(2,)) for part in fields.pop("parts"))
    settings = RunSettings(measure=MAIN, trees=trees)
    return Setting(
        name,
        title,
        splits=splits,
        measures=MEASURES,
        settings=settings,
        notes=notes,
        validate_on_experts=True,
        **fields,
    )


def mq2008_setting(seed: int = 0) -> Setting:
    """Return MQ2008 with a simulated crowd."""
    features, part = mq2008()
    note = (
        f"Documents, features and expert grades (0-2) are those of MQ2008; {counted(LABELS, 'label')} of two grades "
        f"per document by a simulated crowd ({describe_crowd([seed])}); 5% of the documents are honeypots."
    )
    crowd = crowd_over(features, seed, **CROWD)
    title = "MQ2008, a simulated crowd"
    return _setting("mq2008", title, features=features, crowds=(crowd,), parts=(part,), notes=(note,))


def generated_setting(seed: int = 0, sizes: Mapping[str, Any] = GENERATED) -> Setting:
    """Return many generated queries with a simulated crowd."""
    features = generated_documents(sizes)
    note = (
        f"Documents are generated ({', '.join(f'{name} {value}' for name, value in sizes.items())}, expert grades "
        f"0-4); {counted(LABELS, 'label')} of two grades per document by a simulated crowd ({describe_crowd([seed])}); "
        "5% of the documents are honeypots."
    )
    parts = (query_parts(query_numbers(features), seed),)
    crowds = (crowd_over(features, seed, **CROWD),)
    title = "Generated documents, a simulated crowd"
    return _setting("generated", title, features=features, crowds=crowds, parts=parts, notes=(note,))


def dl20_setting(repeats: int = 1) -> Setting:
    """Return DL20 with some of its LLM judges as the crowd and NIST as the experts."""
    features, judges = dl20_documents()
    few = judges.where(drawn_judges(judges, JUDGES_PER_FAMILY, seed=0)[judges.assessor])
    notes = (
        f"{counted(len(features.query), 'passage')} of TREC Deep Learning 2020; the crowd is {few.n_assessors} LLM "
        f"judges, at most {JUDGES_PER_FAMILY} of each family (drawn with seed 0: {sizes_text(few)}); the experts are "
        "those of NIST.",
        f"Features are the scores of {counted(len(features.names), 'retrieval system')}, scaled to 0-1 within the "
        "query; linear rankers replace a missing score by the mean.",
        f"{counted(repeats, 'time')} five folds ({seeds_text(range(repeats))}).",
    )
    return _setting(
        "dl20",
        "DL20, LLM judges and NIST",
        features=features,
        crowds=(few,) * repeats,
        parts=tuple(query_parts(query_numbers(features), seed) for seed in range(repeats)),
        trees=SMALL_TREES,
        notes=notes,
    )


SETTINGS: Mapping[str, Callable[[], Setting]] = {
    "mq2008": mq2008_setting,
    "generated": generated_setting,
    "dl20": dl20_setting,
}


# The experiment.


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Compare candidates (by default all) on data sets; `only` names the data sets and tables to make.

    An interrupted experiment resumes from `keep`.
    """
    candidates = select(CANDIDATES, methods)
    names = select_names(only, {**SETTINGS, **FURTHER_TABLES}, "data set or table")
    tables: list[Table] = []
    for name, make in SETTINGS.items():
        if name in names:
            tables += setting_tables(make(), candidates, keep=keep, tell=tell)
    compared = [table for table in tables if table.comparison is not None]
    claims = [*claim_tables(compared), *mode_tables(compared)]
    tables += [FURTHER_TABLES[name](mq2008_setting(), keep=keep, tell=tell) for name in FURTHER_TABLES if name in names]
    return Experiment("experts", (*tables, *claims), tuple(_protocol(tables, len(candidates))))


def _protocol(tables: Sequence[Table], n_candidates: int) -> list[str]:
    tested = [table for table in tables if table.comparison is not None]
    trees = ", ".join(map(str, AUTO_TREES))
    baselines = "; ".join(f"{claim.paper} {', '.join(claim.baselines)}" for claim in CLAIMS)
    return [
        "Five folds by query: two fifths of the queries have crowd labels and no expert grades, one fifth has expert "
        "grades for training, one for validation, and one is the test set; the test sets of all folds are evaluated "
        "together.",
        "majority, average, dawid-skene and glad are LambdaMART on the majority vote, the average, and the most "
        "probable grade under either model; gbdt-* are pointwise boosted trees and gls-* least squares on the same "
        "labels. gbdt-rd is pointwise trees, as in the papers, and rd least squares, reweighted by deviations on "
        "single labels.",
        "linear-* and boosted-* are least squares with the targets (t), weights (w) or both learned by REMAP's linear "
        "functions (its 29 label features, each for every grade) and by MGBDT's trees (its 13). Learned targets start "
        "at Dawid-Skene's expected grades; the best step on the validation queries is taken.",
        "Controls: gls-average is least squares with the same features and ridges on averages; expected-grades is "
        "LambdaMART on Dawid-Skene's probabilities of grades; family-mean is LambdaMART on the mean of family means "
        "(if there are families); expert-only is LambdaMART on the expert grades for training; ensemble is expert-only "
        "and expected-grades; pooled-gls, pooled-gbdt and pooled-mart are least squares, pointwise trees and "
        "LambdaMART on expected grades with the expert grades for training appended, whose weight "
        f"({pooled_weights()}) is selected; mart-* are LambdaMART on learned targets and weights.",
        f"All choices are made by {MAIN} on the expert grades for validation, never on the test set: early stopping, "
        "RD's delta, ensemble weights, the weight of pooled expert grades, the ridge of every least squares, learned "
        f"or not, and the number of trees among its features ({trees}; pointwise trees of 8 leaves fitted to the same "
        "labels, for learned labels to the average, with in-sample outputs as in the papers). Grids of ridges and of "
        "delta extend themselves if the best value is at an end.",
        "The learning rate of remappers (and the depth of MGBDT's trees) is selected together with the ridge and the "
        "number of trees, one parameter at a time until none improves. Remappers have a patience of 15 steps and are "
        "fitted to at most 5 labels per document; everything else has its default. No consensus model and no label "
        "feature saw an expert grade.",
        f"Percentages are relative to the mean of {BASELINE}; gains are exponential (15, 7, 3, 1, 0 for grades 4 to "
        f"0); {counted(n_candidates, 'run')} in {counted(len(tested), 'tested table')}, one configuration each.",
        "The papers claim that targets learned by boosting, alone or with weights (MGBDT), and linear targets with "
        f"weights (REMAP) beat every baseline of their Tables 4: {baselines}. A claim is confirmed if each claimed run "
        f"is significantly better than each baseline by {MAIN} (p by Holm's method over the baselines); refuted if one "
        "is significantly worse than a baseline, or if the 95% interval of its gain over the best of them lies below "
        f"{MIN_GAIN:.0%}; otherwise undecided. The better of the claimed runs is also compared with "
        f"{BACKGROUND} and with the control that is best on the test set. The papers also say that targets are better "
        "than weights, and REMAP that both are better than either; these are tested in the same way, each by itself.",
        *(testing_protocol(tested[0]) if tested else []),
    ]


def setting_tables(
    setting: Setting, candidates: Sequence[Candidate], *, keep: Path | None = None, tell: Tell = quiet
) -> list[Table]:
    """Return the table of all candidates with tests, and the importances of label features."""
    names = [candidate.name for candidate in candidates]
    roles = {name: role for name, role in (("boosted-w", "weight"), ("boosted-t", "target")) if name in names}
    inspect = partial(boosted_importances, roles=roles)
    rankings = train_candidates(setting, candidates, inspect=inspect, keep=keep, tell=tell)
    table = compare_rankings(setting, rankings, BASELINE)
    assert table.comparison is not None
    base = table.row(table.comparison.baseline)
    rows = tuple({**row, **relative_gains(row, base)} for row in table.rows)
    notes = [sentence for claim in CLAIMS for sentence in describe_headline(table.comparison, claim)]
    tables = [replace(table, rows=rows, notes=(*table.notes, *notes))]
    return [*tables, *([importance_table(setting, roles, rankings)] if roles else [])]


def relative_gains(row: Row, base: Row) -> Row:
    """Return the gains over the baseline in percent.

    >>> relative_gains({"DCG@1": 3.0, "DCG@5": 1.0, "DCG@10": 2.0}, {"DCG@1": 2.0, "DCG@5": 1.0, "DCG@10": 4.0})
    {'DCG@1 %': 50.0, 'DCG@5 %': 0.0, 'DCG@10 %': -50.0}
    """
    return {f"{measure} %": 100 * (row[measure] / base[measure] - 1) for measure in MEASURES}


def boosted_importances(view: TrainingView, roles: Mapping[str, str]) -> dict[str, Any]:
    """Return the importances of label features and the number of steps of boosted remappers in a fold."""
    remappers = {
        name: view.remapper("boosted", **remapper_parameters(name.removeprefix("boosted-").upper(), "boosted"))
        for name in roles
    }
    return {
        name: (remapper.importances_.set_index("feature")[roles[name]], remapper.best_iteration_)
        for name, remapper in remappers.items()
    }


def importance_table(setting: Setting, roles: Mapping[str, str], rankings: Rankings) -> Table:
    """Return the most important label features of boosted targets and weights, mean over folds (MGBDT's Table 5)."""
    rows: list[Row] = []
    for name in roles:
        importances, steps = zip(*(one[name] for one in rankings.inspected), strict=True)
        mean = sum(importances[1:], importances[0]) / len(importances)
        for feature, share in mean.sort_values(ascending=False).head(N_IMPORTANCES).items():
            values = {"importance": float(share), "steps": float(np.mean(steps))}
            rows.append({"run": name, "label feature": str(feature), **values})
    note = (
        "Share of each label feature in the gain of a tree's splits, averaged over trees and folds; steps is the mean "
        "number of trees. The importances are 0 in a fold without trees."
    )
    return Table(f"{setting.name}-importances", f"{setting.title}: importance of label features", tuple(rows), (note,))


# REMAP's Table 5 and Figure 4.

MAJORITY = consensus_candidate(BASELINE, "LambdaMART on majority votes", "majority", "grade")


def mean_gains(setting: Setting, rankings: Rankings) -> dict[str, float]:
    """Return the gain of each candidate over the baseline on the test sets, in percent."""
    means = {
        name: average_repeats(evaluate_repeats(setting, score)).means[MAIN] for name, score in rankings.scores.items()
    }
    return {name: 100 * (mean / means[BASELINE] - 1) for name, mean in means.items()}


def select_groups(labels: LabelFeatures, groups: Sequence[str]) -> LabelFeatures:
    """Return the basic label features and those of some consensus models."""
    left_out = [part for group, parts in FEATURE_GROUPS.items() if group not in groups for part in parts]
    columns = [column for column, name in enumerate(labels.names) if not any(part in name for part in left_out)]
    return replace(labels, names=tuple(labels.names[column] for column in columns), matrix=labels.matrix[:, columns])


def ablation_table(setting: Setting, *, keep: Path | None = None, tell: Tell = quiet) -> Table:
    """Return gains of linear functions of some label features only (REMAP's Table 5)."""

    def fit(mode: str, groups: Sequence[str], view: TrainingView) -> Ranker:
        labels = select_groups(view.remapper_sample("remap"), groups)
        return view.fit_remapper("linear", remapper_parameters(mode, "linear"), labels).ranker_

    candidates = [
        Candidate(f"{mode} {name}", "linear functions of some label features", partial(fit, mode, groups), experts=True)
        for mode in MODES
        for name, groups in FEATURE_SETS.items()
    ]
    gains = mean_gains(setting, train_candidates(setting, [MAJORITY, *candidates], keep=keep, tell=tell))
    rows = tuple(
        {"run": f"linear-{mode.lower()}", **{f"{name} %": gains[f"{mode} {name}"] for name in FEATURE_SETS}}
        for mode in MODES
    )
    note = (
        f"Gains in {MAIN} over {BASELINE}; basic is the label and the assessor's number of tasks, share of low labels "
        "and honeypot accuracy. There are no tests."
    )
    return Table(f"{setting.name}-ablation", f"{setting.title}: some label features only", rows, (note,))


def tree_count_table(
    setting: Setting, *, counts: Sequence[int] = TREE_COUNTS, keep: Path | None = None, tell: Tell = quiet
) -> Table:
    """Return gains by the number of trees among the features (REMAP's Figure 4), with least squares on averages."""

    def fit_learned(kind: RemapperKind, count: int, view: TrainingView) -> Ranker:
        return view.remapper(kind, **remapper_parameters("T", kind) | {"tree_features": count}).ranker_

    def fit_average(count: int, view: TrainingView) -> Ranker:
        return view.fit(
            lambda *of: regression(*of).set_params(tree_features=count), *view.labels("average", "relevance")
        )

    fits: dict[str, Callable[..., Ranker]] = {
        "linear-t": partial(fit_learned, "linear"),
        "boosted-t": partial(fit_learned, "boosted"),
        BACKGROUND: fit_average,
    }
    candidates = [
        Candidate(f"{run} {count}", f"{run} with {count} trees", partial(fit, count), experts=True)
        for run, fit in fits.items()
        for count in counts
    ]

    def validation(view: TrainingView) -> dict[str, float]:
        return {one.name: max(view.ranker(one).history_) for one in (MAJORITY, *candidates)}

    rankings = train_candidates(setting, [MAJORITY, *candidates], inspect=validation, keep=keep, tell=tell)
    test = mean_gains(setting, rankings)
    values = {name: float(np.mean([one[name] for one in rankings.inspected])) for name in rankings.scores}
    rows: list[Row] = []
    for count in counts:
        row: Row = {"run": f"{count} trees"}
        for run in fits:
            row[f"{run}, validation %"] = 100 * (values[f"{run} {count}"] / values[BASELINE] - 1)
            row[f"{run}, test %"] = test[f"{run} {count}"]
        rows.append(row)
    note = (
        f"Gains in {MAIN} over {BASELINE}. Validation gains are optimistic: steps, ridges and the early stopping of "
        f"{BASELINE} were selected by them. There are no tests."
    )
    return Table(f"{setting.name}-tree-features", f"{setting.title}: trees among the features", tuple(rows), (note,))


FURTHER_TABLES: Mapping[str, Callable[..., Table]] = {"ablation": ablation_table, "tree-features": tree_count_table}
"""Further tables, on MQ2008."""
