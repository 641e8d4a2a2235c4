"""How many expert-graded queries are enough? Candidates and selection of `run` by their number."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from crowdrank import Features
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import difference_interval, fisher_randomization
from crowdrank.pipeline.candidates import (
    BY_NAME,
    TREE_FEATURES,
    Candidate,
    choose_candidates,
    consensus_methods,
    remapper_label_features,
)
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.selection import ExpertScorer, split_into_folds, train_and_select
from crowdrank.pipeline.stage_cache import StageCache, digest
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.pipeline.training_view import MIN_QUERIES_FOR_VALIDATION, MIN_REMAPPER_QUERIES, VALIDATION_SHARE
from crowdrank.rankers.linear import AUTO_TREES
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.crowd_rankers import dl20_setting
from experiments.documents import crowd_over, describe_crowd, generated_documents, mq2008
from experiments.driver import graded_data
from experiments.label_controls import CONTROLS, describe_controls

MEASURE = "nDCG@10"
BUDGETS = (5, 10, 20, 50, 100)
DL20_BUDGETS = (5, 10, 20, 40)
DL20_MAIN = 10
SEEDS = tuple(range(60, 65))
"""Seeds that were not used before; the selection of `run` and the remappers were designed on others (0 to 44)."""
DL20_SEEDS = (60, 61)
"""Seeds of the folds of DL20, the second one only for the main budget."""
FOLDS = 5
GENERATED: Mapping[str, Any] = {"queries": 450, "documents": 20, "features": 20}
CROWD_SHARE, POOL_SHARE = 0.45, 0.25
"""Shares of the queries that the crowd judges and that experts may grade; the others are for the test."""
TREE_CANDIDATES = ("gls-trees", "remap-trees")
"""Slow candidates of `run` that are tried too: least squares with outputs of trees as features."""
SELECTED = "run's choice"
AVERAGE = "average"
ALL_EXPERTS = "all experts"
"""Control on DL20: LambdaMART on the expert grades of all queries that are not for the test."""
MARGIN = 0.01
"""Largest regret, and largest loss to the control, that is acceptable."""
MIN_BUDGET = 20
"""Smallest budget for which the regret must be acceptable."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Random split of the queries of a data set.

    Attributes:
        data: data of the run, in which all queries are graded by experts.
        pool: queries that experts may grade, as far as the budget allows.
        test: queries for the test.
        seed: random seed of the draw.
        test_ids: ids of the test queries, equal in all draws of the same documents.

    """

    data: RunData
    pool: Integers
    test: Integers
    seed: int
    test_ids: Any

    @property
    def settings(self) -> RunSettings:
        """Settings of the run."""
        return RunSettings(random_state=self.seed, measure=MEASURE)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Selected candidate, and the measure of each candidate on each test query."""

    selected: str
    values: dict[str, Floats]
    test_ids: Any


# The experiment.


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    budgets: Sequence[int] = BUDGETS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Return the tables of all data sets, or of those in `only`; an interrupted experiment resumes from `keep`."""
    if methods is not None:
        raise UsageError("The experiment expert-budget tries what `run` tries; --methods is for other experiments.")
    tables: list[Table] = []
    for name in select_names(only, SETTINGS, "data set"):
        tables += SETTINGS[name](seeds, budgets, None if keep is None else keep / name, tell)
    return Experiment("expert-budget", tuple(tables), tuple(_protocol()))


def _protocol() -> list[str]:
    return [
        f"Candidates are those of `crowdrank run` with its settings, and {' and '.join(TREE_CANDIDATES)} of `crowdrank "
        f"run --thorough`; the other slow candidates are left out, see crowd-rankers. '{SELECTED}' is what `run` "
        "selects among them by cross-validation on the expert-graded queries of the budget. All are tested on held-out "
        "queries.",
        describe_tree_counts(),
        f"Regret is the mean {MEASURE} over draws of the candidate that is best over all draws of the budget, minus "
        "that of the selected one. In hindsight, it is relative to the best candidate of each draw, which is partly "
        "luck.",
        "Tests pair the queries of all draws (Fisher's randomization test, two-sided); the value of a query that is "
        "tested in several draws is its mean. Intervals are 95% intervals over queries.",
        "The weights of ensemble-weighted, and the rule that it is selected unless another candidate leads by two "
        "standard errors, were designed on other seeds (0 to 6), but with the test queries of DL20 in view, which has "
        "no others.",
        *describe_controls(),
    ]


def describe_tree_counts() -> str:
    """Return a sentence about the number of trees among the features of candidates."""
    *others, last = map(str, AUTO_TREES)
    return (
        f"The number of trees among the features is {', '.join(others)} or {last}: gls-trees chooses it by the labels "
        f"of {VALIDATION_SHARE:.0%} of the training queries if there are {MIN_QUERIES_FOR_VALIDATION} or more "
        f"(otherwise {TREE_FEATURES}), remap-trees by some of the expert-graded queries of the budget."
    )


# One draw.


def evaluate_selection(
    draw: Draw, budget: int, candidates: Sequence[Candidate], fits: ConsensusFits, cache: StageCache
) -> Outcome:
    """Return what `run` selects with a number of expert-graded queries, and the test values of all candidates."""
    split = split_into_folds(budget_queries(draw, budget), draw.test, draw.settings.folds)
    result = train_and_select(CandidateTraining(draw.data, fits, draw.settings, cache), candidates, split)
    scorer = ExpertScorer(draw.data, draw.test, draw.settings)
    values = {name: scorer.values(score) for name, score in result.scores.items()}
    return Outcome(result.chosen, {**values, SELECTED: values[result.chosen]}, draw.test_ids)


def control_values(draw: Draw, budget: int, fits: ConsensusFits, cache: StageCache) -> dict[str, Floats]:
    """Return the test values of the controls of learned labels, trained on all expert queries of the budget."""
    if budget < MIN_REMAPPER_QUERIES:
        return {}
    return candidate_values(draw, budget, CONTROLS, fits, cache)


def candidate_values(
    draw: Draw, budget: int, candidates: Sequence[Candidate], fits: ConsensusFits, cache: StageCache
) -> dict[str, Floats]:
    """Return the test values of candidates that are trained on all expert queries of the budget."""
    training = CandidateTraining(draw.data, fits, draw.settings, cache)
    view, rows = training.view(draw.test, budget_queries(draw, budget)), draw.data.rows_of(draw.test)
    scorer = ExpertScorer(draw.data, draw.test, draw.settings)

    def test_values(candidate: Candidate) -> dict[str, Floats]:
        score = np.full(len(draw.data.query), np.nan)
        score[rows] = candidate.fit(view).predict(draw.data.matrix(rows), draw.data.query[rows])
        return {"values": scorer.values(score)}

    return {
        one.name: cache.arrays("test-values", digest(view.key, one.name, rows), partial(test_values, one))["values"]
        for one in candidates
    }


def budget_queries(draw: Draw, budget: int) -> Integers:
    """Return the queries that experts grade within the budget."""
    return np.random.default_rng(draw.seed).permutation(draw.pool)[:budget]


def run_candidates(data: RunData) -> list[Candidate]:
    """Return the candidates that `run` trains by default, and those with outputs of trees as features."""
    return [*choose_candidates(data, None)[0], *(BY_NAME[name] for name in TREE_CANDIDATES)]


def fit_consensus(data: RunData, candidates: Sequence[Candidate], cache: StageCache) -> ConsensusFits:
    """Fit the consensus models and label features of the candidates."""
    fits = ConsensusFits(data, cache)
    for method in consensus_methods(RunSettings(), candidates):
        fits.fit(method)
    for kind in remapper_label_features(candidates):
        fits.label_features(kind)
    return fits


@contextmanager
def stage_cache(folder: Path | None = None) -> Iterator[StageCache]:
    """Return a cache for draws that share fits, by default in a temporary folder; ignore warnings meanwhile."""
    with TemporaryDirectory() as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield StageCache(folder or Path(temporary))


# Settings.


def split_queries(name: str, features: Features, seed: int) -> Draw:
    """Return a random split into queries for the crowd, for experts and for the test, with a simulated crowd."""
    data = graded_data(features, crowd_over(features, seed))
    order = np.random.default_rng(seed).permutation(data.graded_queries)
    n_crowd, n_pool = round(CROWD_SHARE * len(order)), round(POOL_SHARE * len(order))
    crowd, pool, test = np.split(order, [n_crowd, n_crowd + n_pool])
    test = np.sort(test)
    ids = np.array([f"{name} {query}" for query in test])
    return Draw(data.restrict_judgments(data.rows_of(crowd)), pool, test, seed, ids)


def simulated_draws(name: str, seeds: Sequence[int]) -> Iterator[Draw]:
    """Return a draw for each seed: MQ2008 with another crowd, or other generated documents with a crowd."""
    features = mq2008()[0] if name == "mq2008" else None
    for seed in seeds:
        if features is not None:
            yield split_queries(name, features, seed)
        else:
            documents = generated_documents({**GENERATED, "random_state": 1000 + seed})
            yield split_queries(f"{name}-{seed}", documents, seed)


TITLES = {"generated": "Generated documents, simulated crowds", "mq2008": "MQ2008, simulated crowds"}


def simulated_note(seeds: Sequence[int]) -> str:
    """Return a sentence about the split of the queries and the simulated crowds."""
    return (
        f"{CROWD_SHARE:.0%} of the queries are judged by the crowd, {POOL_SHARE:.0%} may be graded by experts, the "
        f"others are for the test; crowds: {describe_crowd(seeds)}."
    )


def simulated_tables(
    name: str, seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell
) -> list[Table]:
    """Return the tables of a data set with simulated crowds."""
    outcomes: dict[int, list[Outcome]] = {budget: [] for budget in budgets}
    for draw in simulated_draws(name, seeds):
        candidates = run_candidates(draw.data)
        with stage_cache(keep) as cache:
            fits = fit_consensus(draw.data, candidates, cache)
            for budget in (budget for budget in budgets if budget <= len(draw.pool)):
                tell(f"{counted(budget, 'expert query')} on {name}, seed {draw.seed}")
                outcome = evaluate_selection(draw, budget, candidates, fits, cache)
                outcome.values.update(control_values(draw, budget, fits, cache))
                outcomes[budget].append(outcome)
    return budget_tables(name, TITLES[name], outcomes, [simulated_note(seeds)])


def dl20_tables(seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell) -> list[Table]:
    """Return the tables of DL20: LLM judges as the crowd, NIST as the experts, repeated folds of the queries."""
    setting = dl20_setting(1)
    data = graded_data(setting.features, setting.crowds[0])
    candidates = run_candidates(data)
    fold_seeds = DL20_SEEDS[: len(seeds)]
    outcomes: dict[int, list[Outcome]] = {}
    with stage_cache(keep) as cache:
        fits = fit_consensus(data, candidates, cache)
        for budget in DL20_BUDGETS if set(budgets) == set(BUDGETS) else budgets:
            for repeat, seed in enumerate(fold_seeds if budget == DL20_MAIN else fold_seeds[:1]):
                fold_of_query = np.random.default_rng(seed).permutation(len(data.graded_queries)) % FOLDS
                for fold in range(FOLDS):
                    tell(f"{counted(budget, 'expert query')} on dl20, repeat {repeat + 1}, fold {fold + 1}")
                    test = data.graded_queries[fold_of_query == fold]
                    draw = Draw(data, np.setdiff1d(data.graded_queries, test), test, 10 * seed + fold, test)
                    outcome = evaluate_selection(draw, budget, candidates, fits, cache)
                    outcome.values.update(control_values(draw, budget, fits, cache))
                    outcome.values[ALL_EXPERTS] = _all_experts(draw, fits, cache)
                    outcomes.setdefault(budget, []).append(outcome)
    notes = [
        *setting.notes[:2],
        f"{FOLDS} folds by query, with {DL20_MAIN} expert queries {len(fold_seeds)} times ({seeds_text(fold_seeds)}): "
        "one fold is the test set, the LLM labels of the others are for training, and as many of these as the budget "
        f"says are graded by experts. '{ALL_EXPERTS}' is LambdaMART on NIST's grades of all the others.",
    ]
    return budget_tables("dl20", "DL20, LLM judges", outcomes, notes)


def _all_experts(draw: Draw, fits: ConsensusFits, cache: StageCache) -> Floats:
    """Return the test values of LambdaMART on the expert grades of the whole pool."""
    training = CandidateTraining(draw.data, fits, draw.settings, cache)
    score, rows = np.full(len(draw.data.query), np.nan), draw.data.rows_of(draw.test)
    score[rows] = training.scored(BY_NAME["expert-only"], training.view(draw.test, draw.pool), rows)
    return ExpertScorer(draw.data, draw.test, draw.settings).values(score)


SETTINGS: Mapping[str, Callable[..., list[Table]]] = {
    "generated": lambda *arguments: simulated_tables("generated", *arguments),
    "mq2008": lambda *arguments: simulated_tables("mq2008", *arguments),
    "dl20": dl20_tables,
}


# Tables.


def budget_tables(
    name: str, title: str, outcomes: Mapping[int, Sequence[Outcome]], notes: Sequence[str]
) -> list[Table]:
    """Return a table of means by budget, and a table of the selection."""
    budgets = [budget for budget, draws in outcomes.items() if draws]
    runs = dict.fromkeys(run for budget in budgets for draw in outcomes[budget] for run in draw.values)
    means = []
    for run in runs:
        row: Row = {"run": run}
        for budget in budgets:
            values = [float(draw.values[run].mean()) for draw in outcomes[budget] if run in draw.values]
            row[f"{budget} queries"] = float(np.mean(values)) if values else float("nan")
        means.append(row)
    selections = {budget: selection_row(budget, outcomes[budget]) for budget in budgets}
    sentences = [*describe_regret(selections), *describe_control({budget: outcomes[budget] for budget in budgets})]
    return [
        Table(name, f"{title}: {MEASURE} on test queries by the number of expert queries", tuple(means), tuple(notes)),
        Table(f"{name}-choice", f"{title}: the selection of run", tuple(selections.values()), (*notes, *sentences)),
    ]


def selection_row(budget: int, draws: Sequence[Outcome]) -> Row:
    """Return regret, and the difference of the selected candidate to LambdaMART on averages."""
    hindsight = [max(candidate_means(draw).values()) - float(draw.values[SELECTED].mean()) for draw in draws]
    difference = paired_difference(draws, SELECTED, AVERAGE)
    counts = pd.Series([draw.selected for draw in draws]).value_counts()
    return {
        "run": f"{budget} queries",
        "draws": len(draws),
        "regret": regret(draws),
        "in hindsight": float(np.mean(hindsight)),
        "over average": difference["difference"],
        "from": difference["lower"],
        "to": difference["upper"],
        "p": difference["p"],
        "chosen": ", ".join(f"{name} {count}" for name, count in counts.items()),
    }


def candidate_means(draw: Outcome) -> dict[str, float]:
    """Return the mean test value of every candidate."""
    controls = (SELECTED, ALL_EXPERTS, *(one.name for one in CONTROLS))
    return {run: float(values.mean()) for run, values in draw.values.items() if run not in controls}


def regret(draws: Sequence[Outcome]) -> float:
    """Return the loss of the selected candidates to the candidate that is best over all draws."""
    means = pd.DataFrame([candidate_means(draw) for draw in draws]).mean()
    return float(means.max() - np.mean([draw.values[SELECTED].mean() for draw in draws]))


def paired_difference(draws: Sequence[Outcome], run: str, other: str) -> dict[str, float]:
    """Return the mean difference of two runs over the test queries of all draws, its interval and p-value."""
    ours, theirs = (mean_by_query(draws, name) for name in (run, other))
    lower, upper = difference_interval(ours - theirs)
    p = fisher_randomization(ours, theirs)
    return {"difference": float((ours - theirs).mean()), "lower": lower, "upper": upper, "p": p}


def mean_by_query(draws: Sequence[Outcome], run: str) -> Floats:
    """Return the values of a run, one per test query: the mean over the draws that tested it."""
    ids = np.concatenate([draw.test_ids for draw in draws])
    values = np.concatenate([draw.values[run] for draw in draws])
    _, group = np.unique(ids, return_inverse=True)
    return np.asarray(np.bincount(group, values) / np.bincount(group))


def describe_regret(selections: Mapping[int, Row]) -> list[str]:
    """Return a sentence about the regret and the losses to LambdaMART on averages with enough expert queries."""
    rows = {budget: row for budget, row in selections.items() if budget >= MIN_BUDGET}
    if not rows:
        return []
    mean = float(np.mean([row["regret"] for row in rows.values()]))
    losses = [str(budget) for budget, row in rows.items() if row["over average"] < 0 and row["p"] <= 0.05]
    return [
        f"With {MIN_BUDGET} or more expert queries the mean regret is {mean:.4f} "
        f"({'at most' if mean <= MARGIN else 'above'} {MARGIN:g}); the selected candidate is significantly worse than "
        f"LambdaMART on averages {'with ' + ', '.join(losses) + ' queries' if losses else 'with no budget'}."
    ]


def describe_control(outcomes: Mapping[int, Sequence[Outcome]]) -> list[str]:
    """Return a sentence for each budget about the difference to LambdaMART on all expert grades."""
    sentences = []
    for budget, draws in outcomes.items():
        if all(ALL_EXPERTS in draw.values for draw in draws):
            test = paired_difference(draws, SELECTED, ALL_EXPERTS)
            word = "is not inferior" if test["lower"] > -MARGIN else "may be inferior"
            sentences.append(
                f"With {budget} expert queries the selected candidate differs from '{ALL_EXPERTS}' by "
                f"{test['difference']:+.4f} [{test['lower']:+.4f}, {test['upper']:+.4f}] (p {test['p']:.3f}): within a "
                f"margin of {MARGIN:g} it {word}."
            )
    return sentences
