"""What do learned labels add to the same ranker before learning, by the number of expert queries?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from crowdrank._text import counted
from crowdrank.errors import UsageError
from crowdrank.pipeline.candidates import BY_NAME
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.crowd_rankers import dl20_setting
from experiments.driver import graded_data
from experiments.expert_budget import (
    FOLDS,
    MEASURE,
    TITLES,
    Draw,
    Outcome,
    candidate_values,
    fit_consensus,
    paired_difference,
    simulated_draws,
    simulated_note,
    stage_cache,
)
from experiments.label_controls import CONTROLS, LEARNED, describe_controls, start_name

SEEDS = tuple(range(45, 50))
"""Seeds that were not used before; the remappers were developed on seeds 0 to 5 and, of MQ2008, 40 to 44."""
BUDGETS = (10, 20, 50, 100)
DL20_BUDGETS = (10, 20, 40)
DL20_SEED = 45
"""Seed of the folds of DL20."""
MAX_LOSS = 0.002
"""Largest acceptable loss of learned labels to the same ranker before learning."""
REFERENCES = ("gls", "gls-trees", "average", "crowd-and-expert", "expert-only")
"""Candidates without learned labels."""
CANDIDATES = (*(BY_NAME[name] for name in (*REFERENCES, *LEARNED)), *CONTROLS)
DATA_SETS: Mapping[str, str] = {**TITLES, "dl20": "DL20, LLM judges"}


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    budgets: Sequence[int] = BUDGETS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Compare learned labels with their controls on all data sets, or on those in `only`."""
    if methods is not None:
        raise UsageError("The experiment learned-labels compares fixed candidates; --methods is for other experiments.")
    tables: list[Table] = []
    for name in select_names(only, DATA_SETS, "data set"):
        outcomes = measure_candidates(name, seeds, budgets, None if keep is None else keep / name, tell)
        tables += [mean_table(name, seeds, outcomes), *gain_tables(name, outcomes)]
    return Experiment("learned-labels", tuple(tables), tuple(_protocol()))


def _protocol() -> list[str]:
    return [
        "Every candidate is trained once, on the crowd labels of all queries that are not for the test and on the "
        "expert grades of as many queries as the budget says; nothing is selected among candidates. linear-gls, "
        "boosted-gls and remap-trees (with outputs of trees as features) are the least squares that their labels are "
        "learned through; linear-remap and boosted-remap are LambdaMART on such labels, or on those before learning "
        "unless the learned ones are better on the expert queries by more than two standard errors.",
        *describe_controls(),
        "The rule by which expert queries choose the number of steps, and its number of standard errors, were "
        "chosen on seeds 0 to 5 of MQ2008 and generated documents, on which about 40 designs were compared. That the "
        "number of trees is chosen before learning was decided on seeds 40 to 44 of MQ2008, where remap-trees lost.",
        f"Tests pair the queries of all draws (Fisher's randomization test, two-sided, {MEASURE}); the value of a "
        "query that is tested in several draws is its mean. Intervals are 95% intervals over queries. The p-values are "
        "not adjusted for the number of comparisons.",
    ]


def measure_candidates(
    name: str, seeds: Sequence[int], budgets: Sequence[int], keep: Path | None, tell: Tell
) -> dict[int, list[Outcome]]:
    """Return the test values of all candidates for each budget and draw."""
    outcomes: dict[int, list[Outcome]] = {}
    with stage_cache(keep) as cache:
        for draw in draws_of(name, seeds):
            candidates = [one for one in CANDIDATES if not one.reason_to_skip(draw.data)]
            fits = fit_consensus(draw.data, candidates, cache)
            for budget in _budgets(name, draw, budgets):
                tell(f"{counted(budget, 'expert query')} on {name}, seed {draw.seed}")
                values = candidate_values(draw, budget, candidates, fits, cache)
                outcomes.setdefault(budget, []).append(Outcome("", values, draw.test_ids))
    return outcomes


def draws_of(name: str, seeds: Sequence[int]) -> Iterator[Draw]:
    """Return the divisions of a data set into training and test queries: one per seed, or one per fold of DL20."""
    return dl20_draws([DL20_SEED]) if name == "dl20" else simulated_draws(name, seeds)


def dl20_draws(seeds: Sequence[int]) -> Iterator[Draw]:
    """Return the divisions of DL20: each fold of each random division into folds is the test once."""
    setting = dl20_setting(1)
    data = graded_data(setting.features, setting.crowds[0])
    for seed in seeds:
        fold_of_query = np.random.default_rng(seed).permutation(len(data.graded_queries)) % FOLDS
        for fold in range(FOLDS):
            test = data.graded_queries[fold_of_query == fold]
            yield Draw(data, np.setdiff1d(data.graded_queries, test), test, 10 * seed + fold, test)


def _budgets(name: str, draw: Draw, budgets: Sequence[int]) -> list[int]:
    chosen = DL20_BUDGETS if name == "dl20" and tuple(budgets) == BUDGETS else budgets
    return [budget for budget in chosen if budget <= len(draw.pool)]


def mean_table(name: str, seeds: Sequence[int], outcomes: Mapping[int, Sequence[Outcome]]) -> Table:
    """Return the mean measure of each candidate by budget."""
    runs = [run for run in (one.name for one in CANDIDATES) if run in next(iter(outcomes.values()))[0].values]
    rows: list[Row] = []
    for run in runs:
        means = {
            f"{budget} queries": float(np.mean([draw.values[run].mean() for draw in draws]))
            for budget, draws in outcomes.items()
        }
        rows.append({"run": run, **means})
    note = simulated_note(seeds) if name != "dl20" else f"{FOLDS} folds by query ({seeds_text([DL20_SEED])})."
    title = f"{DATA_SETS[name]}: {MEASURE} on test queries by the number of expert queries"
    return Table(name, title, tuple(rows), (note,))


def gain_tables(name: str, outcomes: Mapping[int, Sequence[Outcome]]) -> list[Table]:
    """Return a table of the gains of learned labels over their start, and one over pooled labels."""
    starts = {run: start_name(run) for run in LEARNED}
    return [
        _gain_table(name, "start", "the same ranker before learning", starts, outcomes),
        _gain_table(name, "pooled", "the same ranker on pooled labels", LEARNED, outcomes),
    ]


def _gain_table(
    name: str, control: str, described: str, others: Mapping[str, str], outcomes: Mapping[int, Sequence[Outcome]]
) -> Table:
    rows: list[Row] = [
        {"run": f"{run}, {counted(budget, 'query')}", **paired_difference(draws, run, other)}
        for run, other in others.items()
        for budget, draws in outcomes.items()
    ]
    losses = [f"{row['run']} {row['difference']:+.4f}" for row in rows if row["difference"] < -MAX_LOSS]
    significant = [row for row in rows if row["p"] <= 0.05]
    n_better = sum(row["difference"] > 0 for row in significant)
    note = (
        f"Losses of more than {MAX_LOSS:g}: {'; '.join(losses) if losses else 'none'}. Of {len(rows)} differences, "
        f"{n_better} are significantly above 0 and {len(significant) - n_better} below (p at most 0.05)."
    )
    title = f"{DATA_SETS[name]}: learned labels minus {described}, {MEASURE}"
    return Table(f"{name}-{control}", title, tuple(rows), (note,))
