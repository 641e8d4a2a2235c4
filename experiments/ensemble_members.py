"""Do tree features, learned labels on them, and soft pairs improve the ensemble of `run`?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from crowdrank._text import counted
from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import difference_interval, fisher_randomization
from crowdrank.pipeline.candidates import BY_NAME, Candidate
from crowdrank.pipeline.ensembles import WEIGHTED
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.expert_budget import (
    MEASURE,
    TITLES,
    Draw,
    Outcome,
    describe_tree_counts,
    evaluate_selection,
    fit_consensus,
    paired_difference,
    run_candidates,
    simulated_draws,
    simulated_note,
    stage_cache,
)

SEEDS = tuple(range(20, 30))
"""Seeds that no other experiment uses."""
BUDGET = 50
"""Number of expert-graded queries."""
MEMBERS: Mapping[str, Candidate] = {name: BY_NAME[name] for name in ("soft-pairs", "gls-trees", "remap-trees")}
"""Candidates of `run --thorough` that are added to the ensemble."""
BASE = "run"
VARIANTS: Mapping[str, tuple[str, ...]] = {
    BASE: (),
    "+ soft-pairs": ("soft-pairs",),
    "+ gls-trees": ("gls-trees",),
    "+ remap-trees": ("remap-trees",),
    "+ gls-trees, remap-trees": ("gls-trees", "remap-trees"),
    "+ all": tuple(MEMBERS),
}
"""Members that are added to the candidates of `run`."""
QUESTIONS = (
    *((variant, BASE) for variant in VARIANTS if variant != BASE),
    ("+ gls-trees, remap-trees", "+ gls-trees"),
)
"""Pairs of ensembles to compare; the last one shows what learned labels add to the same features."""


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    budget: int = BUDGET,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Compare ensembles on all data sets, or on those in `only`; an interrupted experiment resumes from `keep`."""
    if methods is not None:
        raise UsageError(
            "The experiment ensemble-members compares fixed ensembles; --methods is for other experiments."
        )
    names = select_names(only, TITLES, "data set")
    tables = [member_table(name, seeds, budget, None if keep is None else keep / name, tell=tell) for name in names]
    return Experiment("ensemble-members", tuple(tables), tuple(_protocol(seeds, budget)))


def _protocol(seeds: Sequence[int], budget: int) -> list[str]:
    return [
        f"'{BASE}' is {WEIGHTED}, the weighted ensemble of the candidates that `crowdrank run` trains by default, "
        f"with {counted(budget, 'expert-graded query')}; its weights are "
        "cross-fitted on these queries. Each variant adds members.",
        "The members are candidates of `crowdrank run --thorough`. soft-pairs is LambdaMART on P(d > d') by "
        "Dawid-Skene's posterior; gls-trees is least squares on averages with the outputs of pointwise trees as "
        "further features; remap-trees is least squares on labels remapped by linear functions (targets and weights) "
        f"with such features. {describe_tree_counts()}",
        f"New {seeds_text(seeds)}; nothing was selected or tuned on them. One configuration of each member was tried.",
        "p and the interval pair the test queries of all seeds (Fisher's randomization test, two-sided; 95% "
        "interval); the value of an MQ2008 query that is tested with several seeds is its mean. p by seed pairs the "
        "means of the seeds. The p-values are not adjusted for the number of comparisons.",
    ]


def member_table(
    name: str, seeds: Sequence[int], budget: int, keep: Path | None = None, *, tell: Tell = quiet
) -> Table:
    """Return the differences between ensembles on a data set."""
    outcomes = [evaluate_variants(draw, budget, keep, tell) for draw in simulated_draws(name, seeds)]
    means = {variant: float(np.mean([one.values[variant].mean() for one in outcomes])) for variant in VARIANTS}
    rows = [difference_row(outcomes, run, other, means) for run, other in QUESTIONS]
    note = f"Mean {MEASURE} of '{BASE}' is {means[BASE]:.4f}; {counted(len(outcomes), 'seed')}."
    notes = (simulated_note(seeds), note, *describe_members(rows))
    return Table(name, f"{TITLES[name]}: members of the ensemble, {MEASURE}", tuple(rows), notes)


def evaluate_variants(draw: Draw, budget: int, keep: Path | None, tell: Tell) -> Outcome:
    """Return the test values of each ensemble; the variants share all fits."""
    base = [candidate for candidate in run_candidates(draw.data) if candidate.name not in MEMBERS]
    values = {}
    with stage_cache(keep) as cache:
        fits = fit_consensus(draw.data, [*base, *MEMBERS.values()], cache)
        for variant, members in VARIANTS.items():
            tell(f"{variant}, {draw.test_ids[0].split()[0]}, seed {draw.seed}")
            candidates = [*base, *(MEMBERS[member] for member in members)]
            values[variant] = evaluate_selection(draw, budget, candidates, fits, cache).values[WEIGHTED]
    return Outcome(WEIGHTED, values, draw.test_ids)


def difference_row(outcomes: Sequence[Outcome], run: str, other: str, means: Mapping[str, float]) -> Row:
    """Return the difference of two ensembles over queries and over seeds."""
    test = paired_difference(outcomes, run, other)
    by_seed = [np.array([one.values[name].mean() for one in outcomes]) for name in (run, other)]
    lower, upper = difference_interval(by_seed[0] - by_seed[1])
    return {
        "run": f"{run} (over {other})",
        "mean": means[run],
        **test,
        "seeds better": int((by_seed[0] > by_seed[1]).sum()),
        "lower by seed": lower,
        "upper by seed": upper,
        "p by seed": fisher_randomization(*by_seed),
    }


def describe_members(rows: Sequence[Row]) -> list[str]:
    """Return a sentence about significant differences."""
    significant = [f"{row['run']} {row['difference']:+.4f}" for row in rows if row["p"] <= 0.05]
    return [f"Significant differences (p at most 0.05): {'; '.join(significant) if significant else 'none'}."]
