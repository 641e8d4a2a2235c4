"""How many expert-graded queries are enough: every candidate of `run`, and its choice, by the number of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import UsageError
from crowdrank.evaluation.significance import bootstrap_intervals, fisher_randomization
from crowdrank.judgments.features import Features, read_features
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import Judgments
from crowdrank.pipeline.candidates import (
    BY_NAME,
    Candidate,
    choose_candidates,
    consensus_methods,
    remapper_label_features,
)
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import RunData, build_run_data
from crowdrank.pipeline.selection import CandidateSelection, ExpertScorer, deal_folds
from crowdrank.pipeline.settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.simulation.world import simulate
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_told
from experiments.crowd_rankers import dl20_setting
from experiments.lessons import crowd_over, crowd_told
from experiments.rankers import mq2008, named

MEASURE = "nDCG@10"
BUDGETS = (5, 10, 20, 50, 100)
DL20_BUDGETS = (5, 10, 20, 40)
DL20_MAIN = 10
SEEDS = tuple(range(10, 20))
"""Worlds and crowds 0 to 6 were looked at while it was settled how `run` chooses."""
DL20_REPEATS = 2
FOLDS = 5
GENERATED: Mapping[str, Any] = {"queries": 450, "documents": 20, "features": 20}
CROWD, POOL = 0.45, 0.25
"""The shares of queries that the crowd judges, and that experts may grade; the rest is for the test."""
CHOICE = "run's choice"
AVERAGE = "average"
ALL_EXPERTS = "all experts"
"""LambdaMART on the experts' grades of every query that is not for the test: the control of DL20."""
MARGIN = 0.01
"""Regret up to this, and losses to the control up to this, are what was aimed at."""
FROM = 20
"""The regret counts from so many expert-graded queries on."""


@dataclass(frozen=True, eq=False)
class Place:
    """One draw: data whose experts are all known, which queries may be bought, and which are for the test."""

    data: RunData
    pool: Integers
    test: Integers
    seed: int
    queries: Any  # names of test queries, the same in every draw of the same documents


Found = dict[str, Floats]
"""The test values of each run, query by query."""
Draw = tuple[str, Found, Any]
"""The choice, the values, and the names of the test queries; fits are not held on to."""


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    budgets: Sequence[int] = BUDGETS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """All tables, or those of the data sets named; there is no choice of methods, as `run` chooses among all.

    What was fitted is kept in the folder `keep`, so that an experiment that was interrupted goes on.
    """
    if methods is not None:
        raise UsageError("The experiment expert-budget tries what `run` tries; --methods is for other experiments.")
    tables: list[Table] = []
    for name in named(only, SETTINGS, "data set"):
        tables += SETTINGS[name](seeds, budgets, None if keep is None else keep / name, tell)
    return Experiment("expert-budget", tuple(tables), tuple(_protocol()))


def _protocol() -> list[str]:
    return [
        f"Candidates are those of `crowdrank run`, with its settings; '{CHOICE}' is what it chooses by the expert "
        "queries of the budget alone (folds of them), and it is tested, as every candidate, on test queries that "
        "nothing has seen.",
        f"The regret is the mean {MEASURE} over draws of the candidate that is best over all draws of the budget, less "
        "that of the choice; in hindsight, of the one that is best in each single draw, which is partly chance.",
        "Tests pair the queries of all draws of a setting (Fisher's randomization test, two-sided); the value of a "
        "query is its mean over draws where it was tested more than once. Intervals are 95% bootstrap intervals over "
        "queries.",
        "How the parts of ensemble-weighted are found, and that it is taken unless another leads it by two standard "
        "errors, was settled on other worlds and crowds (seeds 0 to 6), but with test queries of DL20 in view, of "
        "which there are no others.",
        "The length of the remappers' steps and their patience were settled on generated documents with seeds 0 to 2.",
        "Slow candidates (`run --thorough`) are left out; they have an experiment of their own (crowd-rankers).",
    ]


# One draw.


def tried(place: Place, budget: int, cache: StageCache, fits: ConsensusFits) -> tuple[str, Found]:
    """The choice with so many expert-graded queries, and the test values of every candidate and of the choice."""
    settings = RunSettings(random_state=place.seed, measure=MEASURE)
    bought = np.random.default_rng(place.seed).permutation(place.pool)[:budget]
    parts = deal_folds(bought, place.test, settings.folds)
    trial = CandidateSelection(place.data, fits, settings, candidates_of(place.data), parts, cache)
    outcome = trial.run()
    judge = ExpertScorer(place.data, place.test, settings)
    found = {name: judge.values(score) for name, score in outcome.scores.items()}
    return outcome.chosen, {**found, CHOICE: found[outcome.chosen]}


def candidates_of(data: RunData) -> list[Candidate]:
    """Return the candidates that `run` trains by default."""
    return choose_candidates(data, None)[0]


def opinions_of(data: RunData, cache: StageCache) -> ConsensusFits:
    """The consensus methods that the candidates ask for, fitted."""
    fits = ConsensusFits(data, cache)
    for method in consensus_methods(RunSettings(), candidates_of(data)):
        fits.fit(method)
    for kind in remapper_label_features(candidates_of(data)):
        fits.label_features(kind)
    return fits


@contextmanager
def kept_stages(keep: Path | None = None) -> Iterator[StageCache]:
    """StageCache that last as long as the draws that share them: what does not depend on the budget is made once."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield StageCache(keep or Path(folder))


def with_all_experts(features: Features, crowd: Judgments) -> RunData:
    """Return run data in which every grade of the features is an expert grade."""
    assert features.grade is not None
    grades = features.grade.astype(np.int8)
    gold = Gold(features.query, features.document, grades, Scale.parse(f"0-{grades.max()}"))
    return build_run_data(crowd, features, gold)


# RunSettings.


def apart(name: str, features: Features, seed: int) -> Place:
    """Queries that the crowd judges, others that experts may grade, others for the test; drawn."""
    crowd = crowd_over(features, seed)
    data = with_all_experts(features, crowd)
    order = np.random.default_rng(seed).permutation(data.graded_queries)
    n_crowd, n_pool = round(CROWD * len(order)), round(CROWD * len(order)) + round(POOL * len(order))
    test = np.sort(order[n_pool:])
    names = np.array([f"{name} {query}" for query in test])
    return Place(data.restrict_judgments(data.rows_of(order[:n_crowd])), order[n_crowd:n_pool], test, seed, names)


def simulated(
    name: str, title: str, seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell
) -> list[Table]:
    """The tables of a setting whose crowds are simulated."""
    draws: dict[int, list[Draw]] = {budget: [] for budget in budgets}
    features = mq2008()[0] if name == "mq2008" else None
    for seed in seeds:
        known = generated_features(seed) if features is None else features
        place = apart(name if features is not None else f"{name}-{seed}", known, seed)
        with kept_stages(keep) as cache:
            fits = opinions_of(place.data, cache)
            for budget in budgets:
                if budget <= len(place.pool):
                    tell(f"{counted(budget, 'expert query')} on {name}, seed {seed}")
                    draws[budget].append((*tried(place, budget, cache, fits), place.queries))
    share = f"{CROWD:.0%} of the queries are judged by the crowd, {POOL:.0%} may be graded by experts, the rest is for "
    notes = [f"{share}the test; crowds: {crowd_told(seeds)}."]
    return tables_of(name, title, draws, notes)


def generated_features(seed: int) -> Features:
    """A generated world's documents with their true grades."""
    world = simulate(**GENERATED, labels=1, honeypots=0, random_state=1000 + seed)
    return read_features(world.features.assign(grade=world.documents["grade"]))


def on_generated(seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell) -> list[Table]:
    """Generated documents, another world for each seed."""
    return simulated("generated", "Generated documents, simulated crowds", seeds, budgets, keep, tell)


def on_mq2008(seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell) -> list[Table]:
    """MQ2008's documents."""
    return simulated("mq2008", "MQ2008, simulated crowds", seeds, budgets, keep, tell)


def on_dl20(seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell) -> list[Table]:
    """DL20's LLM judges, NIST as experts; five folds of the queries, repeated."""
    setting = dl20_setting(1)
    data = with_all_experts(setting.features, setting.crowds[0])
    most = min(DL20_REPEATS, len(seeds))
    draws: dict[int, list[Draw]] = {}
    with kept_stages(keep) as cache:
        fits = opinions_of(data, cache)
        for budget in DL20_BUDGETS if set(budgets) == set(BUDGETS) else budgets:
            for repeat in range(most if budget == DL20_MAIN else 1):
                part = np.random.default_rng(repeat).permutation(len(data.graded_queries)) % FOLDS
                for fold in range(FOLDS):
                    tell(f"{counted(budget, 'expert query')} on dl20, repeat {repeat + 1}, fold {fold + 1}")
                    test = data.graded_queries[part == fold]
                    pool = np.setdiff1d(data.graded_queries, test)
                    place = Place(data, pool, test, 10 * repeat + fold, test)
                    chosen, found = tried(place, budget, cache, fits)
                    found[ALL_EXPERTS] = _all_experts(place, fits, cache)
                    draws.setdefault(budget, []).append((chosen, found, place.queries))
    notes = [
        *setting.notes[:2],
        f"{FOLDS} folds by query, with {DL20_MAIN} expert queries {most} times ({seeds_told(range(most))}): a fold is "
        "tested on, the LLM labels of the others are learned from, and of these as many are expert-graded as the "
        f"budget says. '{ALL_EXPERTS}' is LambdaMART on NIST's grades of all the others.",
    ]
    return tables_of("dl20", "DL20, LLM judges", draws, notes)


def _all_experts(place: Place, fits: ConsensusFits, cache: StageCache) -> Floats:
    settings = RunSettings(random_state=place.seed, measure=MEASURE)
    trial = CandidateSelection(place.data, fits, settings, [], deal_folds(place.pool, place.test, 2), cache)
    view = trial.view(place.test, place.pool)

    def score() -> dict[str, Any]:
        rows = place.data.rows_of(place.test)
        found = np.full(len(place.data.query), np.nan)
        found[rows] = BY_NAME["expert-only"].fit(view).predict(place.data.matrix(rows), place.data.query[rows])
        return {"score": found}

    kept = cache.arrays("all-experts", view.key, score)["score"]
    return ExpertScorer(place.data, place.test, settings).values(np.asarray(kept))


SETTINGS = {"generated": on_generated, "mq2008": on_mq2008, "dl20": on_dl20}


# Tables.

Draws = Mapping[int, Sequence[Draw]]


def tables_of(name: str, title: str, draws: Draws, notes: Sequence[str]) -> list[Table]:
    """Means by budget, and what the choice loses."""
    means, choices = [], []
    budgets = [budget for budget, found in draws.items() if found]
    runs = list(dict.fromkeys(run for budget in budgets for _, found, _ in draws[budget] for run in found))
    for run in runs:
        row: Row = {"run": run}
        for budget in budgets:
            values = [float(found[run].mean()) for _, found, _ in draws[budget] if run in found]
            row[f"{budget} queries"] = float(np.mean(values)) if values else float("nan")
        means.append(row)
    for budget in budgets:
        choices.append(choice_row(budget, draws[budget]))
    told = [*notes, *told_of(draws, budgets)]
    return [
        Table(name, f"{title}: {MEASURE} on test queries by the number of expert queries", tuple(means), tuple(notes)),
        Table(f"{name}-choice", f"{title}: what run's choice loses and gains", tuple(choices), tuple(told)),
    ]


def choice_row(budget: int, draws: Sequence[Draw]) -> Row:
    """Regret, and the choice against LambdaMART on averages."""
    hindsight = [max(candidate_means(found).values()) - float(found[CHOICE].mean()) for _, found, _ in draws]
    off, p, lower, upper = against(draws, AVERAGE)
    chosen = pd.Series([chosen for chosen, _, _ in draws]).value_counts()
    return {
        "run": f"{budget} queries",
        "draws": len(draws),
        "regret": regret(draws),
        "in hindsight": float(np.mean(hindsight)),
        "over average": off,
        "from": lower,
        "to": upper,
        "p": p,
        "chosen": ", ".join(f"{name} {count}" for name, count in chosen.items()),
    }


def candidate_means(found: Found) -> dict[str, float]:
    """The mean of every candidate in a draw."""
    return {run: float(values.mean()) for run, values in found.items() if run not in (CHOICE, ALL_EXPERTS)}


def regret(draws: Sequence[Draw]) -> float:
    """What the choice loses to the candidate that is best over all draws."""
    means = pd.DataFrame([candidate_means(found) for _, found, _ in draws]).mean()
    return float(means.max() - np.mean([found[CHOICE].mean() for _, found, _ in draws]))


def against(draws: Sequence[Draw], other: str) -> tuple[float, float, float, float]:
    """The choice less another run over the test queries of all draws: mean, p, interval."""
    ours, theirs = (by_query(draws, run) for run in (CHOICE, other))
    off = ours - theirs
    lower, upper = bootstrap_intervals(off[:, None])[0]
    return float(off.mean()), fisher_randomization(ours, theirs), float(lower), float(upper)


def by_query(draws: Sequence[Draw], run: str) -> Floats:
    """The values of a run, one for each test query: its mean over the draws that tested it."""
    names = np.concatenate([queries for _, _, queries in draws])
    values = np.concatenate([found[run] for _, found, _ in draws])
    _, group = np.unique(names, return_inverse=True)
    return np.asarray(np.bincount(group, values) / np.bincount(group))


def told_of(draws: Draws, budgets: Sequence[int]) -> list[str]:
    """Whether the aims are met, in sentences."""
    told = []
    enough = [budget for budget in budgets if budget >= FROM]
    if enough:
        rows = {budget: choice_row(budget, draws[budget]) for budget in enough}
        mean = float(np.mean([row["regret"] for row in rows.values()]))
        lost = [budget for budget, row in rows.items() if row["over average"] < 0 and row["p"] <= 0.05]
        told.append(
            f"From {FROM} expert queries on the mean regret is {mean:.4f} ({'at most' if mean <= MARGIN else 'above'} "
            f"{MARGIN:g}); the choice loses to LambdaMART on averages beyond chance "
            f"{'nowhere' if not lost else 'with ' + ', '.join(map(str, lost))}."
        )
    for budget in budgets:
        if all(ALL_EXPERTS in found for _, found, _ in draws[budget]):
            off, p, lower, upper = against(draws[budget], ALL_EXPERTS)
            word = "is not inferior" if lower > -MARGIN else "may be inferior"
            told.append(
                f"With {budget} expert queries the choice differs from '{ALL_EXPERTS}' by {off:+.4f} [{lower:+.4f}, "
                f"{upper:+.4f}] (p {p:.3f}): within a margin of {MARGIN:g} it {word}."
            )
    return told
