"""Document difficulty and grade order in GDA, on simulated crowds where difficulty and reversed assessors are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.consensus.model import Aggregator
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.readers.read import read_judgments
from crowdrank.simulation import World, simulate
from experiments.agreement import spearman
from experiments.base import (
    Chosen,
    Experiment,
    Row,
    Table,
    Tell,
    Variants,
    choose,
    fit_all,
    quiet,
    ranking,
    seeds_text,
)

DESIGN_SEEDS, HELD_OUT_SEEDS = (7, 8, 9), (20, 21, 22, 23, 24)
"""Seeds of the crowds on which the prior of GDA with difficulty was chosen, and of crowds used only afterwards."""
SEEDS = DESIGN_SEEDS + HELD_OUT_SEEDS
METHODS = ("gda", "gda-pairwise")
DIFFICULTY: Variants = {
    "gda-difficulty": ("gda", {"difficulty": True}),
    "gda-widths": ("gda", {"tied_variance": False}),
    "gda-widths-difficulty": ("gda", {"tied_variance": False, "difficulty": True}),
    "gda-pairwise-difficulty": ("gda-pairwise", {"difficulty": True}),
}
ORDINAL: Variants = {
    f"{name}-ordinal": ("gda", {**options, "ordinal": True})
    for name, options in {
        "gda": {},
        "gda-difficulty": {"difficulty": True},
        "gda-widths": {"tied_variance": False},
        "gda-widths-difficulty": {"tied_variance": False, "difficulty": True},
    }.items()
}
REVERSED = "reversed"
"""Id of the assessor whose grades are the expert grades in reverse."""


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Run all methods with and without difficulty, and with grades in order, on simulated crowds."""
    methods = METHODS if methods is None else methods
    plain, ordinal = choose(methods, DIFFICULTY), choose(methods, ORDINAL)
    tables = (
        simulated_table(plain, seeds, tell),
        reversed_table(ordinal, seeds, tell),
        skewed_table(plain, seeds, tell),
    )
    protocol = (
        "Simulated crowds: simulate(queries=60, documents=15, labels=5, assessors=60, honeypots=0, adversaries=0, "
        f"spammers=0) with {seeds_text(seeds)}; the noise of an assessor is proportional to the difficulty of the "
        "document, and each grade is half as frequent as the next lower one.",
        "The prior of GDA with difficulty was chosen among 10 configurations by the first table on "
        f"{seeds_text(DESIGN_SEEDS)}, with the simulated truth in view; those rows are therefore optimistic. Crowds "
        f"with {seeds_text(HELD_OUT_SEEDS)} had no part in it. Everything else has its defaults.",
    )
    return Experiment("difficulty", tables, protocol)


def simulated_crowd(seed: int) -> World:
    """Simulate honest assessors on documents of different difficulty."""
    return simulate(
        queries=60, documents=15, labels=5, assessors=60, honeypots=0, adversaries=0, spammers=0, random_state=seed
    )


def simulated_table(chosen: Chosen, seeds: Sequence[int], tell: Tell) -> Table:
    """Compare Tau with and without difficulty, and estimated with true difficulty."""
    rows: list[Row] = []
    for seed in seeds:
        world = simulated_crowd(seed)
        models = fit_runs(chosen, world.judgments, f"the simulated crowd, seed {seed}", tell)
        for run, model in models.items():
            documents = model.consensus_.documents
            true = documents[["query", "document"]].merge(world.documents)
            truth = {"true difficulty": true["difficulty"].to_numpy(), "expert grade": true["grade"].to_numpy()}
            rows.append({"run": f"{run}, seed {seed}", "Tau": tau(model, world.gold), **correlations(documents, truth)})
    notes = (
        "Tau is Kendall's rank correlation of relevance with the expert grades, averaged over queries. The other "
        "columns are Spearman's rank correlations of the estimated difficulty with the true difficulty and with the "
        "expert grade, over all documents; the two are independent in the simulation.",
    )
    return Table("simulated", "Difficulty on simulated crowds", tuple(rows), notes)


def reversed_table(chosen: Chosen, seeds: Sequence[int], tell: Tell) -> Table:
    """Add one assessor who reverses the expert grades, and compare fits with and without ordered grades."""
    rows: list[Row] = []
    for seed in seeds:
        world = simulated_crowd(seed)
        reverse = world.gold.assign(assessor=REVERSED, grade=world.gold["grade"].max() - world.gold["grade"])
        crowd = pd.concat([world.judgments[reverse.columns], reverse])
        for run, model in fit_runs(chosen, crowd, f"the crowd with a reversed assessor, seed {seed}", tell).items():
            assessors = model.consensus_.assessors.set_index("assessor")
            nats = float(assessors.loc[REVERSED, "informativeness"])
            rows.append({"run": f"{run}, seed {seed}", "Tau": tau(model, world.gold), "nats reversed": nats})
    notes = (
        "One more assessor judged every document with the highest grade minus the expert grade. nats reversed is the "
        "informativeness of this assessor; with ordered grades it should be 0.",
    )
    return Table("reversed", "One reversed assessor among the simulated crowd", tuple(rows), notes)


def skewed_table(chosen: Chosen, seeds: Sequence[int], tell: Tell) -> Table:
    """Compare the estimates with the truth on data drawn from eq. 1 with rare high grades."""
    rows: list[Row] = []
    for seed in seeds:
        judgments, relevance, log_difficulty = draw_skewed(seed)
        for run, model in fit_runs(chosen, judgments, f"skewed grades, seed {seed}", tell).items():
            documents = model.consensus_.documents
            item = documents["document"].to_numpy(int)
            truth = {"true difficulty": log_difficulty[item], "true relevance": relevance[item]}
            rank = spearman(documents["relevance"].to_numpy(), relevance[item])
            rows.append({"run": f"{run}, seed {seed}", "Spearman": rank, **correlations(documents, truth)})
    notes = (
        "Judgments are drawn from eq. 1 with one width per assessor, log difficulty ~ N(0, 0.25), means of grades "
        "between -0.5 and 2.4 and weights alpha that fall from 0.5 to 0.05. Spearman is the rank correlation of "
        "relevance with the true one; the other columns are rank correlations of the estimated difficulty.",
    )
    return Table("skewed", "Difficulty on data drawn from the model", tuple(rows), notes)


def fit_runs(chosen: Chosen, judgments: pd.DataFrame, on: str, tell: Tell) -> dict[str, Aggregator]:
    """Fit the chosen models."""
    columns = ["query", "document", "assessor", "grade"]
    return fit_all(chosen, read_judgments(judgments[columns]), on=on, tell=tell).models


def tau(model: Aggregator, gold: pd.DataFrame) -> float:
    """Return Kendall's tau of relevance with the expert grades, averaged over queries."""
    return evaluate(ranking(model), gold, ["Tau"]).means["Tau"]


def correlations(documents: pd.DataFrame, truth: Mapping[str, Floats]) -> dict[str, float]:
    """Return the rank correlation of the estimated difficulty with each array; NaN without difficulty."""
    if "difficulty" not in documents:
        return dict.fromkeys(truth, float("nan"))
    return {name: spearman(documents["difficulty"].to_numpy(), values) for name, values in truth.items()}


def draw_skewed(seed: int) -> tuple[pd.DataFrame, Floats, Floats]:
    """Draw judgments from eq. 1 with rare high grades.

    Returns:
        The judgments, and relevance and log difficulty of the documents (numbered from 0).

    >>> draw_skewed(0)[0].columns.tolist()
    ['query', 'document', 'assessor', 'grade']
    """
    rng = np.random.default_rng(seed)
    n_items, n_assessors, n_labels = 900, 40, 6
    relevance, log_difficulty = rng.standard_normal(n_items), 0.5 * rng.standard_normal(n_items)
    mu = np.sort([-0.5, 0.5, 1.2, 1.8, 2.4] + 0.2 * rng.standard_normal((n_assessors, 5)), axis=1)
    width = 0.3 * np.exp(0.4 * rng.standard_normal(n_assessors))
    log_alpha = np.log([0.5, 0.2, 0.15, 0.1, 0.05]) + 0.3 * rng.standard_normal((n_assessors, 5))
    item = np.repeat(np.arange(n_items), n_labels)
    assessor = np.concatenate([rng.choice(n_assessors, n_labels, replace=False) for _ in range(n_items)])
    variance = width[assessor] * np.exp(log_difficulty)[item]
    scores = log_alpha[assessor] - 0.5 * (relevance[item, None] - mu[assessor]) ** 2 / variance[:, None]
    grade = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    frame = pd.DataFrame({"query": item // 15, "document": item, "assessor": assessor, "grade": grade})
    return frame, relevance, log_difficulty
