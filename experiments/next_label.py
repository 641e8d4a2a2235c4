"""Policies for the next labels: quality by labels bought, on crowds whose answers are recorded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.collection import get_policy
from crowdrank.collection.policy import Policy
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.replay import Crowd, Curve, model_ranking, replay
from crowdrank.collection.requests import Budget
from crowdrank.consensus.gda import GDA
from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.rankers.linear import GLS
from crowdrank.readers.datasets import dataset
from crowdrank.readers.features import read_features
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
    testing_protocol,
)
from experiments.dl20 import COVERED, sizes_text, thorough
from experiments.documents import query_numbers, within_query
from experiments.rf10 import in_odd_places
from experiments.subsample import equal_count

LABELS = 5
ROUNDS = 10
"""Number of rounds of a replay, which buys half of the labels."""
SEEDS = (0, 1, 2)
MAIN = "nDCG@10"
MEASURES: Mapping[str, tuple[str, ...]] = {
    "rf10": (MAIN, "nDCG", "AP", "Tau"),
    "dl20": (MAIN, "nDCG", "AP(rel=2)", "Tau"),
}
RUNS = ("random", "overlap-5", "if-good-3", "if-good-5", "good-till-bad-5", "widest-interval", "entropy", "ndcg@10")
MODEL_POLICIES = ("widest-interval", "entropy", "ndcg@10")
BEST = "ndcg@10"
"""Policy for the main measure, named before the replays."""
RIVALS = ("random", "if-good-3")
FULL = "5 labels everywhere"
GOOD: Mapping[str, float] = {"rf10": 1, "dl20": 2, "mq2008": 1}
EXPERT, LLM = 50.0, 1.0
MONEY = (5, 10)
"""Budgets per document, in labels of an LLM."""
RIDGE = 300.0


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return all tables, for some policies or all."""
    chosen = list(RUNS) if methods is None else check_names(methods)
    rf10, dl20 = rf10_crowds(seeds), dl20_crowds(seeds)
    tables = [*setting_tables("rf10", rf10, chosen, tell=tell), *setting_tables("dl20", dl20, chosen, tell=tell)]
    if BEST in chosen:
        tables += [experts_table(dl20[0].full, money, seeds, tell=tell) for money in MONEY]
    return Experiment("next-label", tuple(tables), tuple(_protocol(rf10, dl20, seeds, tables)))


def check_names(methods: Sequence[str]) -> list[str]:
    """Return the names of policies; raise UsageError if there is none, or an unknown one."""
    if not methods:
        raise UsageError(f"There is no policy to run; name some of: {', '.join(RUNS)}.")
    for name in methods:
        get_policy(name)
    return list(methods)


def _protocol(
    rf10: Sequence[Replayed], dl20: Sequence[Replayed], seeds: Sequence[int], tables: list[Table]
) -> list[str]:
    one, other = rf10[0].full, dl20[0].full
    return [
        f"RF10: documents with at least {LABELS} labels ({one.n_items:,}), {LABELS} of each kept at random "
        f"({seeds_text(seeds)}), so that the number of labels carries no information; a document can be judged by "
        f"those {LABELS}. Scored on topics in even places; one number of the policies (variety) was chosen on the "
        "odd ones.",
        f"DL20: the {other.n_assessors} LLM judges of more than {COVERED:,} items ({sizes_text(other)}), each "
        f"of which may judge any of {counted(other.n_items, 'passage')}; nothing was chosen on it.",
        f"Every replay spends {LABELS / 2:g} labels a document in {ROUNDS} equal rounds; after each, GDA is fitted "
        "from where it was, and a document without a label has the middle of what is expected. A policy that wants no "
        "more stays where it is.",
        f"'{FULL}' is GDA on {LABELS} labels of every document: all that were kept of RF10, and as many of random "
        "judges of DL20.",
        "Policies see judgments and the model, never gold, nor how many labels there are to be had. random, overlap-5 "
        "and the schemes draw the assessor at random; policies that use the model choose the assessor, too. "
        "majority-k and highest-k buy the labels of overlap-k, if-good-xk and single those of its first round.",
        f"Labels are good from grade {GOOD['rf10']:g} (RF10, grades 0-2) and {GOOD['dl20']:g} (DL20, grades 0-3) up. "
        "No document counts as settled here: every label is spent.",
        "The area is the mean of a query's values after each round; values of a query are means over the seeds, so "
        "that tests pair queries and count each once.",
        f"Experts: a label of an LLM judge costs {LLM:g}, an expert's (NIST's) grade {EXPERT:g}. All strategies spend "
        "the same. 'llm' spends it on LLM labels chosen by ndcg@10; its ranking is the consensus. 'llm, ranker' is GLS "
        "on the retrieval systems' scores and the consensus, with the consensus as target. 'experts' grades documents "
        "drawn at random, and GLS learns them from the systems' scores. 'llm, then experts' spends half on LLM labels "
        "(by ndcg@10) and half on experts where the policy named in brackets says; GLS learns the experts' grades from "
        "the systems' scores, and its scores and the consensus, each standardized within the query, are added. All are "
        "scored on documents whose expert grade none of them bought. How the two are joined was chosen among five ways "
        "with DL20 in view (a sum, a sum with twice the consensus, GLS on both at two ridges, and that and a sum).",
        *testing_protocol(next(table for table in tables if table.comparison is not None)),
    ]


# Crowds.


@dataclass(frozen=True, eq=False)
class Replayed:
    """A crowd, expert grades, and the five labels per document with which policies are compared."""

    full: Judgments
    crowd: Crowd
    gold: pd.DataFrame
    five: Judgments
    seed: int


def rf10_crowds(seeds: Sequence[int]) -> list[Replayed]:
    """Return RF10 with five labels per document, one crowd per seed."""
    data = dataset("trec-rf10")
    judgments, gold = data.read_judgments(), data.read_gold()
    found = []
    for seed in seeds:
        five = equal_count(judgments, LABELS, seed)
        known = _gold_in(gold, five)
        found.append(Replayed(five, Crowd.of(five), known[~in_odd_places(known["query"])], five, seed))
    return found


def dl20_crowds(seeds: Sequence[int]) -> list[Replayed]:
    """Return the LLM judges of DL20 who judged all items; the five labels per document depend on the seed."""
    data = dataset("trec-dl20")
    judges, gold = thorough(data.read_judgments(), COVERED), data.read_gold()
    crowd, known = Crowd.of(judges), _gold_in(gold, judges)
    return [Replayed(judges, crowd, known, equal_count(judges, LABELS, seed), seed) for seed in seeds]


def _gold_in(gold: Gold, judgments: Judgments) -> pd.DataFrame:
    frame: pd.DataFrame = gold.frame
    return frame[judgments.positions(gold.query, gold.document) >= 0]


def policy_for(name: str, setting: str, seed: int) -> Policy:
    """Return a policy with the parameters of the experiment."""
    policy = get_policy(name)
    parameters = {"random_state": seed, "good": GOOD[setting], "settled": None}
    return policy.set_params(**{one: value for one, value in parameters.items() if one in policy.get_params()})


# Replays.


def setting_tables(
    setting: str, crowds: Sequence[Replayed], chosen: Sequence[str], *, tell: Tell = quiet
) -> list[Table]:
    """Return the mean over the rounds, the last round next to five labels everywhere, and all rounds."""
    measures, curves = MEASURES[setting], dict[str, list[Curve]]()
    budget = LABELS / 2
    for name in chosen:
        for one in crowds:
            tell(f"{name} on {setting}, seed {one.seed}")
            policy = policy_for(name, setting, one.seed)
            money = budget * one.full.n_items
            curve = replay(policy, one.crowd, one.gold, measures, budget=money, rounds=ROUNDS, scheme_labels=False)
            curves.setdefault(name, []).append(curve)
    full = average_repeats([full_evaluation(one, measures) for one in crowds])
    grid = [budget * crowds[0].full.n_items * (number + 1) / ROUNDS for number in range(ROUNDS)]
    areas = {
        name: average_repeats([curve.at_cost(money) for curve in found for money in grid])
        for name, found in curves.items()
    }
    ends = {name: average_repeats([curve.at_cost(grid[-1]) for curve in found]) for name, found in curves.items()}
    return [
        area_table(setting, areas),
        end_table(setting, {FULL: full, **ends}),
        curve_table(setting, curves, grid, crowds[0].full.n_items, full),
    ]


def full_evaluation(one: Replayed, measures: Sequence[str]) -> Evaluation:
    """Evaluate the consensus of five labels of every document."""
    return evaluate(model_ranking(GDA().fit(one.five), one.crowd.pool), one.gold, list(measures), unjudged=UNJUDGED)


def area_table(setting: str, areas: Mapping[str, Evaluation]) -> Table:
    """Return the mean over the rounds, with tests against random."""
    baseline = "random" if "random" in areas else next(iter(areas))
    table = comparison_table(
        f"{setting}-area",
        f"{setting.upper()}: mean over {LABELS / 2:g} labels a document, bought in {ROUNDS} rounds",
        compare_evaluations(areas, baseline=baseline),
    )
    notes = [
        sentence
        for name in MODEL_POLICIES
        for rival in RIVALS
        for sentence in describe_difference(table.comparison, name, rival, MAIN)
    ]
    return replace(table, notes=(*table.notes, *notes))


def end_table(setting: str, ends: Mapping[str, Evaluation]) -> Table:
    """Return the quality of half of the labels, chosen by policies, next to all labels."""
    table = comparison_table(
        f"{setting}-half",
        f"{setting.upper()}: {LABELS / 2:g} labels a document, next to {LABELS} everywhere",
        compare_evaluations(ends, baseline=FULL),
    )
    return replace(table, notes=(*table.notes, *_sufficiency_notes(table)))


def _sufficiency_notes(table: Table) -> list[str]:
    """Return, by measure, whether the best policy with a model reaches the quality of all labels with half of them."""
    rows = {row["run"]: row for row in table.rows}
    policies = [name for name in MODEL_POLICIES if name in rows]
    sentences = []
    for measure in [name for name in rows[FULL] if name != "run" and policies]:
        best = max(policies, key=lambda name: rows[name][measure])
        word = "reaches" if rows[best][measure] >= rows[FULL][measure] else "does not reach"
        sentences.append(
            f"By {measure}, {best} with at most half of the labels {word} the quality of {LABELS} everywhere "
            f"({rows[best][measure]:.4f} and {rows[FULL][measure]:.4f})."
        )
        sentences += describe_difference(table.comparison, best, FULL, measure)
    return sentences


def curve_table(
    setting: str, curves: Mapping[str, Sequence[Curve]], grid: Sequence[float], documents: int, full: Evaluation
) -> Table:
    """Return the main measure after each round."""
    rows: list[Row] = []
    for name, found in curves.items():
        means = [np.mean([curve.at_cost(money).means[MAIN] for curve in found]) for money in grid]
        steps = {f"{money / documents:.2f}": float(mean) for money, mean in zip(grid, means, strict=True)}
        bought = float(np.mean([curve.points[-1].labels / documents for curve in found]))
        rows.append({"run": name, "labels a document": bought, **steps})
    note = f"{MAIN} by labels a document; {FULL}: {full.means[MAIN]:.4f}. Means over seeds; there are no tests."
    return Table(f"{setting}-curve", f"{setting.upper()}: {MAIN} against labels bought", tuple(rows), (note,))


# Experts and LLM judges.


@dataclass(frozen=True, eq=False)
class ExpertSetting:
    """Judgments that strategies buy, and features from which rankers learn."""

    judges: Judgments
    crowd: Crowd
    grade: Floats  # (n_items,) expert grades
    features: Floats  # (n_items, n_features) scores of systems, missing ones as the mean
    gold: pd.DataFrame

    def buy_llm_labels(self, labels: float, seed: int) -> Judgments:
        """Return this number of LLM labels per document, chosen by the best policy."""
        rounds = int(np.clip(round(4 * labels), 4, 16))
        policy = policy_for(BEST, "dl20", seed)
        money = labels * self.judges.n_items
        return self.judges.where(replay(policy, self.crowd, self.gold, [MAIN], budget=money, rounds=rounds).bought)

    def fit_predict(self, columns: Floats, known: Integers, target: Floats) -> Floats:
        """Return the scores of all documents by GLS, fitted to the targets of some."""
        query = self.judges.item_query
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ranker = GLS(RIDGE).fit(columns[known], target, query=query[known])
            return ranker.predict(columns, query)

    def standardized(self, score: Floats) -> Floats:
        """Return scores with mean 0 and standard deviation 1 within each query."""
        groups = pd.Series(score).groupby(self.judges.item_query)
        spread = groups.transform("std").fillna(0.0).to_numpy()
        off: Floats = score - groups.transform("mean").to_numpy()
        return np.asarray(np.divide(off, spread, out=np.zeros_like(off), where=spread > 0))


def expert_setting(judges: Judgments) -> ExpertSetting:
    """Return DL20 with its features."""
    data = dataset("trec-dl20")
    found = read_features(data.path("judged_features.tsv.gz"), columns="grade=nist_grade")
    place = judges.positions(found.query, found.document)
    matrix = within_query(found.matrix, query_numbers(found))
    features, grade = np.full((judges.n_items, matrix.shape[1]), np.nan), np.full(judges.n_items, np.nan)
    assert found.grade is not None
    features[place[place >= 0]], grade[place[place >= 0]] = matrix[place >= 0], found.grade[place >= 0]
    returned = ~np.isnan(features)
    filled = np.where(returned, features, np.nanmean(features, axis=0))
    filled = np.column_stack([filled, returned.mean(axis=1)])
    return ExpertSetting(judges, Crowd.of(judges), grade, filled, _gold_in(data.read_gold(), judges))


def experts_table(judges: Judgments, money: int, seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """Return LLM judges followed by experts next to either alone, for the same money."""
    table = expert_setting(judges)
    runs: dict[str, list[Evaluation]] = {}
    bought = 0
    for seed in seeds:
        tell(f"experts, money {money} a document, seed {seed}")
        found, bought, scored = strategies(table, money, seed)
        keep = pd.Series(np.isin(np.arange(judges.n_items), scored))[_gold_items(table)].to_numpy()
        for run, values in found.items():
            frame = _frame(table.crowd.pool, values)
            evaluation = evaluate(frame, table.gold[keep], [MAIN, "AP(rel=2)", "Tau"], unjudged=UNJUDGED)
            runs.setdefault(run, []).append(evaluation)
    runs = _same_queries(runs)
    compared = compare_evaluations({run: average_repeats(found) for run, found in runs.items()}, baseline="llm")
    made = comparison_table(f"experts-{money}", f"DL20: money for {money} LLM labels a document", compared)
    mixed = [run for run in runs if run.startswith("llm, then")]
    others = [("llm", MAIN), ("llm, ranker", MAIN), ("experts", MAIN), ("llm", "Tau"), ("experts", "Tau")]
    tests = [
        one
        for run in mixed
        for other, measure in others
        for one in describe_difference(made.comparison, run, other, measure)
    ]
    worth = bought * EXPERT / judges.n_items
    cost = f"{counted(bought, 'expert grade')} at {EXPERT:g} cost what {worth:.1f} LLM labels a document do."
    return replace(made, notes=(*made.notes, cost, *tests))


def strategies(table: ExpertSetting, money: int, seed: int) -> tuple[dict[str, Floats], int, Integers]:
    """Return the scores by strategy, the number of expert grades of the mixed ones, and the items to evaluate on."""
    n = table.judges.n_items
    alone, first = table.buy_llm_labels(money, seed), table.buy_llm_labels(money / 2, seed)
    model, half = GDA().fit(alone), GDA().fit(first)
    number = int(money / 2 * n / EXPERT)
    drawn = np.random.default_rng(seed).choice(n, 2 * number, replace=False)
    consensus, first_consensus = (model_ranking(one, table.crowd.pool)["score"].to_numpy() for one in (model, half))
    found = {
        "llm": consensus,
        "llm, ranker": table.fit_predict(np.column_stack([table.features, consensus]), np.arange(n), consensus),
        "experts": table.fit_predict(table.features, drawn, table.grade[drawn]),
    }
    pool = Pool.of(table.judges).with_roster(Roster.of(["expert"], "expert", EXPERT))
    taken = [drawn]
    for name in ("random", BEST):
        policy = policy_for(name, "dl20", seed)
        asked = policy.next(pool, first, half if policy.takes_model else None, Budget(number * EXPERT)).pair
        by_experts = table.fit_predict(table.features, asked, table.grade[asked])
        found[f"llm, then experts ({name})"] = table.standardized(by_experts) + table.standardized(first_consensus)
        taken.append(asked)
    return found, number, np.setdiff1d(np.arange(n), np.concatenate(taken))


def _gold_items(table: ExpertSetting) -> Integers:
    query, document = (pa.array(table.gold[name]) for name in ("query", "document"))
    return table.judges.positions(query, document)


def _frame(pool: Pool, values: Floats) -> pd.DataFrame:
    return pd.DataFrame({"query": pool.query.to_pandas(), "document": pool.document.to_pandas(), "score": values})


def _same_queries(runs: dict[str, list[Evaluation]]) -> dict[str, list[Evaluation]]:
    """Raise UsageError if seeds leave different queries to evaluate on."""
    queries = [one.per_query["query"] for found in runs.values() for one in found]
    if any(one != queries[0] for one in queries):
        raise UsageError("The seeds leave different queries to score; buy fewer expert grades.")
    return runs
