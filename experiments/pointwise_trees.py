"""Do pointwise trees on expected grades improve the ensemble of `run`, with forests of equal size?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crowdrank._text import counted
from crowdrank.errors import UsageError
from crowdrank.pipeline.candidates import BY_NAME, Candidate
from crowdrank.pipeline.ensembles import WEIGHTED
from crowdrank.pipeline.run_data import RunData
from experiments.base import Experiment, Table, Tell, quiet, seeds_text, select_names
from experiments.ensemble_members import difference_row
from experiments.expert_budget import (
    FOLDS,
    MEASURE,
    Outcome,
    evaluate_selection,
    fit_consensus,
    run_candidates,
    simulated_note,
    stage_cache,
)
from experiments.learned_labels import DATA_SETS, dl20_draws, draws_of

SEEDS = tuple(range(50, 60))
"""Seeds that no other experiment uses."""
DL20_SEEDS = (50, 51)
"""Seeds of the folds of DL20."""
BUDGET = 20
"""Number of expert-graded queries; DL20 has 54 in all."""
MEMBER, PEER = "pointwise", "dawid-skene"
"""The new member, and LambdaMART on the same expected grades."""
BASE, EXTENDED = "run", "+ pointwise"
MIN_GAIN = 0.001
"""Smallest gain of the ensemble with which the member joins those of `run`."""
MIN_SETS = 2
"""Number of data sets on which the ensemble must gain as much."""


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Compare the ensemble of `run` with and without pointwise trees on all data sets, or on those in `only`."""
    if methods is not None:
        raise UsageError("The experiment pointwise-trees compares fixed ensembles; --methods is for other experiments.")
    names = select_names(only, DATA_SETS, "data set")
    tables = [member_table(name, seeds, None if keep is None else keep / name, tell=tell) for name in names]
    return Experiment("pointwise-trees", tuple(tables), tuple(_protocol(seeds, tables)))


def _protocol(seeds: Sequence[int], tables: Sequence[Table]) -> list[str]:
    gains = [table.row(f"{EXTENDED} (over {BASE})")["difference"] for table in tables]
    n_gains = sum(gain >= MIN_GAIN for gain in gains)
    return [
        f"'{BASE}' is {WEIGHTED}, the weighted ensemble of the candidates that `crowdrank run` trains by default but "
        f"for those on learned labels, with {counted(BUDGET, 'expert-graded query')}; its weights are cross-fitted on "
        f"these queries. '{EXTENDED}' adds {MEMBER}: boosted regression trees on Dawid-Skene's expected grades. "
        f"The largest number of trees, their leaves, the learning rate and the early stopping are those of {PEER}, "
        "LambdaMART on the same posterior.",
        f"New {seeds_text(seeds)} (DL20: {counted(FOLDS, 'fold')}, {seeds_text(DL20_SEEDS)}); nothing was selected or "
        "tuned on them. One configuration was tried.",
        f"The member joins the default if the ensemble gains at least {MIN_GAIN:g} {MEASURE} on {MIN_SETS} of "
        f"{len(DATA_SETS)} sets: it does on {n_gains} of {len(tables)}.",
        "p and the interval pair the test queries of all draws (Fisher's randomization test, two-sided; 95% interval); "
        "the value of a query that is tested in several draws is its mean. p by seed pairs the means of the draws. The "
        "p-values are not adjusted for the number of comparisons.",
    ]


def member_table(name: str, seeds: Sequence[int], keep: Path | None = None, *, tell: Tell = quiet) -> Table:
    """Return the differences of the ensembles, and of the member and its peer, on a data set."""
    outcomes = []
    with stage_cache(keep) as cache:
        draws = draws_of(name, seeds) if name != "dl20" else dl20_draws(DL20_SEEDS[: len(seeds)])
        for draw in draws:
            tell(f"{name}, seed {draw.seed}")
            base = base_candidates(draw.data)
            fits = fit_consensus(draw.data, [*base, BY_NAME[MEMBER]], cache)
            values = {}
            for run, members in ((BASE, base), (EXTENDED, [*base, BY_NAME[MEMBER]])):
                found = evaluate_selection(draw, BUDGET, members, fits, cache).values
                values[run] = found[WEIGHTED]
            values |= {run: found[run] for run in (MEMBER, PEER)}
            outcomes.append(Outcome(WEIGHTED, values, draw.test_ids))
    means = {run: float(np.mean([one.values[run].mean() for one in outcomes])) for run in outcomes[0].values}
    rows = [difference_row(outcomes, *pair, means) for pair in ((EXTENDED, BASE), (MEMBER, PEER))]
    means_text = f"Mean {MEASURE} of '{BASE}' is {means[BASE]:.4f}, of {PEER} {means[PEER]:.4f}"
    note = f"{means_text}; {counted(len(outcomes), 'draw')}."
    notes = (simulated_note(seeds), note) if name != "dl20" else (note,)
    return Table(name, f"{DATA_SETS[name]}: pointwise trees in the ensemble, {MEASURE}", tuple(rows), notes)


def base_candidates(data: RunData) -> list[Candidate]:
    """Return the candidates that `run` trains by default, without those on learned labels."""
    return [one for one in run_candidates(data) if one.remapper is None and not one.thorough and one.name != MEMBER]
