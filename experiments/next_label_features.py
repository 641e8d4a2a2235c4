"""Policies for the next labels with and without features: labels saved at equal quality, quality at equal labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from crowdrank import Features
from crowdrank._text import counted
from crowdrank.collection import get_policy
from crowdrank.collection.policy import Policy
from crowdrank.collection.replay import Crowd, Curve, model_ranking, refit, replay
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import evaluate
from experiments.base import (
    UNJUDGED,
    Experiment,
    Row,
    Table,
    Tell,
    average_repeats,
    comparison_table,
    describe_difference,
    quiet,
    seeds_text,
    select_names,
    testing_protocol,
)
from experiments.documents import crowd_over, describe_crowd, dl20_documents, mq2008, run_frame
from experiments.feature_prior import N_USELESS, noise
from experiments.next_label import SEEDS, check_names, dl20_crowds, policy_for

POLICIES = ("random", "ndcg@10")
"""Default policies: a control, and the policy for the main measure."""
MEASURES = ("nDCG@10", "Tau")
LABELS = 2
"""Number of labels per document that a replay buys."""
ROUNDS = 4
MQ2008_LABELS = 5
"""Number of labels per document that can be bought on MQ2008."""
VARIANTS = {"-ranking": "ranks", "-choice": "chooses", "-features": "chooses and ranks"}
"""Suffix of each run with features, and what it does with them."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Documents with features and expert grades, and one crowd per seed."""

    name: str
    features: Features
    crowds: Mapping[int, Crowd]
    gold: pd.DataFrame
    about: str  # sentence for the protocol

    @property
    def n_documents(self) -> int:
        """Number of documents that can be judged."""
        return len(next(iter(self.crowds.values())).pool)

    @property
    def title(self) -> str:
        """Name of the data set in titles."""
        return self.name.upper()


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = quiet,
) -> Experiment:
    """Return the tables of some data sets or all, for some policies or all."""
    chosen = list(POLICIES) if methods is None else check_names(methods)
    makers = {"dl20": dl20_setting, "mq2008": mq2008_setting}
    settings = [makers[name](seeds) for name in select_names(only, makers, "data set")]
    tables = [table for one in settings for table in setting_tables(one, chosen, tell=tell)]
    return Experiment("next-label-features", tuple(tables), tuple(_protocol(settings, tables)))


def dl20_setting(seeds: Sequence[int]) -> Setting:
    """Return the LLM judges of DL20 and the scores of retrieval systems."""
    crowds, features = dl20_crowds(seeds), dl20_documents()[0]
    judges = crowds[0].full
    about = (
        f"DL20: the {judges.n_assessors} LLM judges and {counted(judges.n_items, 'passage')} of next-label; features "
        f"are the scores of {len(features.names)} retrieval systems. Each judge may judge any passage; "
        f"{seeds_text(seeds)} set the order of equals."
    )
    return Setting("dl20", features, {one.seed: one.crowd for one in crowds}, crowds[0].gold, about)


def mq2008_setting(seeds: Sequence[int]) -> Setting:
    """Return MQ2008 with simulated crowds."""
    features = mq2008()[0]
    crowds = {seed: Crowd.of(crowd_over(features, seed, labels=MQ2008_LABELS)) for seed in seeds}
    about = (
        f"MQ2008: {counted(len(features.query), 'document')} with {len(features.names)} features; {MQ2008_LABELS} "
        f"labels of each can be bought, of simulated crowds ({describe_crowd(seeds)})."
    )
    return Setting("mq2008", features, crowds, run_frame(features, features.grade, "grade"), about)


def _protocol(settings: Sequence[Setting], tables: Sequence[Table]) -> list[str]:
    return [
        f"Every replay spends {LABELS} labels per document in {ROUNDS} equal rounds. The documents of the first round "
        "are drawn at random. After each round GDA is fitted from the previous fit, with or without features. A "
        "document without a label has the score that its features predict, or without features the average one. No "
        "document counts as settled, so that every label is spent.",
        "A run named like a policy has no features. With -ranking, the labels are those of the policy without "
        "features, and the consensus that is scored has features; with -choice it is the reverse; with "
        "-features both have them. random needs no model to choose, so that random-features differs in the ranking "
        f"only. With -noise, {N_USELESS} features of noise take the place of the features.",
        "Without features a policy with a model requests a label for every document first. With features, documents "
        "without a label compete by what their features predict. This rule was set before these replays, and checked "
        "on simulated queries only. -choice and -features therefore differ from the policy without features in the "
        "rule, too; -noise shows what the rule does alone.",
        *(setting.about for setting in settings),
        "No fit and no policy sees gold. Values of a query are means over the seeds, so that tests pair queries and "
        "count each once. One configuration was run; the control -noise was added after it.",
        *testing_protocol(tables[0]),
    ]


def setting_tables(setting: Setting, chosen: Sequence[str], *, tell: Tell = quiet) -> list[Table]:
    """Return three tables: quality at the end, labels needed for the quality without features, and quality by round."""
    curves: dict[str, list[Curve]] = {}
    for name in chosen:
        for seed, crowd in setting.crowds.items():
            tell(f"{name} on {setting.name}, seed {seed}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = replay_variants(setting, name, crowd, seed)
            for run, curve in found.items():
                curves.setdefault(run, []).append(curve)
    tables = [end_table(setting, chosen, curves), saved_table(setting, chosen, curves), curve_table(setting, curves)]
    return [
        *tables,
        *(noise_table(setting, name, curves[name], tell) for name in chosen if get_policy(name).takes_model),
    ]


def replay_variants(setting: Setting, name: str, crowd: Crowd, seed: int) -> dict[str, Curve]:
    """Replay a policy without and with features, and rank the labels of each the other way, too."""
    policy = policy_for(name, setting.name, seed)
    plain = replay_setting(setting, policy, crowd)
    ranked = rank_again(plain, setting, crowd, setting.features)
    if not policy.takes_model:
        return {name: plain, f"{name}-features": ranked}
    both = replay_setting(setting, policy, crowd, setting.features)
    return {
        name: plain,
        f"{name}-ranking": ranked,
        f"{name}-choice": rank_again(both, setting, crowd, None),
        f"{name}-features": both,
    }


def replay_setting(setting: Setting, policy: Policy, crowd: Crowd, features: Features | None = None) -> Curve:
    """Replay a policy with or without features."""
    money = LABELS * setting.n_documents
    return replay(policy, crowd, setting.gold, MEASURES, budget=money, rounds=ROUNDS, features=features)


def rank_again(curve: Curve, setting: Setting, crowd: Crowd, features: Features | None) -> Curve:
    """Return the curve of the same labels, ranked by a consensus with other features or none."""
    fitted: Aggregator | None = None
    points = []
    for point in curve.points:
        fitted = refit(GDA, crowd.judgments.where(point.bought), fitted, features)
        evaluation = evaluate(model_ranking(fitted, crowd.pool), setting.gold, list(MEASURES), unjudged=UNJUDGED)
        points.append(replace(point, evaluation=evaluation))
    return Curve(tuple(points))


def end_table(setting: Setting, chosen: Sequence[str], curves: Mapping[str, Sequence[Curve]]) -> Table:
    """Return the quality after all labels, with tests against random and of each variant against its policy."""
    ends = {run: average_repeats([curve.points[-1].evaluation for curve in found]) for run, found in curves.items()}
    table = comparison_table(
        f"{setting.name}-end",
        f"{setting.title}: {LABELS} labels per document",
        compare_evaluations(ends, baseline=chosen[0]),
    )
    pairs = [(f"{name}{suffix}", name) for name in chosen for suffix in VARIANTS]
    pairs += [(f"{name}-features", f"{name}-ranking") for name in chosen]
    notes = [
        sentence
        for run, other in pairs
        for measure in MEASURES
        for sentence in describe_difference(table.comparison, run, other, measure)
    ]
    return replace(table, notes=(*table.notes, *notes))


def noise_table(setting: Setting, name: str, plain: Sequence[Curve], tell: Tell = quiet) -> Table:
    """Compare a policy without features with the same policy and features of noise."""
    noisy = []
    for seed, crowd in setting.crowds.items():
        tell(f"{name} on {setting.name} with features of noise, seed {seed}")
        policy, useless = policy_for(name, setting.name, seed), noise(setting.features, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            noisy.append(replay_setting(setting, policy, crowd, useless))
    runs = {name: plain, f"{name}-noise": noisy}
    ends = {run: average_repeats([curve.points[-1].evaluation for curve in found]) for run, found in runs.items()}
    title = f"{setting.title}: {name} with features of noise, {LABELS} labels per document"
    table = comparison_table(f"{setting.name}-{name}-noise", title, compare_evaluations(ends, baseline=name))
    note = "The difference is what competition of unlabeled documents does by itself, without a prediction."
    return replace(table, notes=(*table.notes, note))


def saved_table(setting: Setting, chosen: Sequence[str], curves: Mapping[str, Sequence[Curve]]) -> Table:
    """Return how many labels each run with features needs for the end quality of its policy without features."""
    rows: list[Row] = []
    for name in chosen:
        for run in (f"{name}{suffix}" for suffix in VARIANTS if f"{name}{suffix}" in curves):
            labels = mean_labels(setting, curves[run])
            needed = {
                measure: labels_to_reach(labels, means(curves[run], measure), means(curves[name], measure)[-1])
                for measure in MEASURES
            }
            rows.append({"run": run, **{f"labels for {measure}": value for measure, value in needed.items()}})
    note = (
        f"Labels per document with which a run reaches the value that its policy without features has after {LABELS}, "
        f"interpolated between rounds; {LABELS / ROUNDS:g} if the first round reaches it, blank if none does. Means "
        "over seeds; there are no tests."
    )
    return Table(f"{setting.name}-saved", f"{setting.title}: labels at equal quality", tuple(rows), (note,))


def labels_to_reach(labels: Sequence[float], values: Sequence[float], target: float) -> float:
    """Return the number of labels at which a curve first reaches a value, or NaN.

    >>> labels_to_reach([0.5, 1.0, 1.5], [0.1, 0.3, 0.7], 0.5), labels_to_reach([0.5, 1.0], [0.1, 0.3], 0.5)
    (1.25, nan)
    """
    if values[0] >= target:
        return labels[0]
    for number in range(1, len(values)):
        low, high = values[number - 1], values[number]
        if high >= target:
            share = (target - low) / (high - low)
            return labels[number - 1] + share * (labels[number] - labels[number - 1])
    return float("nan")


def means(curves: Sequence[Curve], measure: str) -> list[float]:
    """Return the mean of a measure over seeds after each round."""
    values = [[point.evaluation.means[measure] for point in curve.points] for curve in curves]
    return [float(value) for value in np.mean(values, axis=0)]


def mean_labels(setting: Setting, curves: Sequence[Curve]) -> list[float]:
    """Return the mean number of labels per document after each round."""
    bought = [[point.labels for point in curve.points] for curve in curves]
    return [float(value) for value in np.mean(bought, axis=0) / setting.n_documents]


def curve_table(setting: Setting, curves: Mapping[str, Sequence[Curve]]) -> Table:
    """Return all measures after each round."""
    rows: list[Row] = []
    for run, found in curves.items():
        row: Row = {"run": run}
        for measure in MEASURES:
            steps = zip(mean_labels(setting, found), means(found, measure), strict=True)
            row |= {f"{measure}, {labels:.2f}": value for labels, value in steps}
        rows.append(row)
    note = "Each measure by labels per document. Means over seeds; there are no tests."
    return Table(f"{setting.name}-curve", f"{setting.title}: quality against labels bought", tuple(rows), (note,))
