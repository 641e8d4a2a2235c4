"""Whether intervals and probabilities hold: on data drawn from a fitted GDA, where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.latent import NODES
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from experiments.agreement import spearman
from experiments.base import (
    ONE_CONFIGURATION,
    SEEDS,
    Chosen,
    Experiment,
    Fits,
    Row,
    Table,
    Tell,
    averaged,
    choose,
    fit_all,
    quiet,
    seeds_told,
)
from experiments.injected import informativeness, with_random

LEVELS = (0.5, 0.95)
N_BINS = 10


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """All tables on calibration, for the methods named or for all."""
    chosen = choose(methods)
    data = dataset("trec-rf10")
    crowd, judged = data.read_judgments(), data.read_gold(unjudgeable_as="drop")
    tell("gda on RF10")
    source = GDA().fit(crowd)
    fits = fit_all(chosen, crowd, on="RF10", tell=tell)
    latent = {run: chosen[run] for run, model in fits.models.items() if on_the_line(model)}
    worlds = [draw(source, seed) for seed in seeds]
    return Experiment(
        "calibration",
        (
            *latent_tables(latent, worlds, seeds, tell),
            against_gold(fits, judged),
        ),
        tuple(_protocol(crowd, latent, seeds)),
    )


def _protocol(crowd: Judgments, latent: Chosen, seeds: Sequence[int]) -> list[str]:
    return [
        f"Data: judgments drawn from a GDA fitted to TREC RF10: the same {counted(crowd.n_assessors, 'assessor')} with "
        f"their fitted curves on the same {counted(crowd.n_items, 'document')} ({counted(len(crowd), 'judgment')}, "
        f"'broken link' as grade 0), relevance drawn from N(0, 1); drawn with {seeds_told(seeds)}.",
        "That is the best case for GDA: it says whether its intervals and probabilities are computed right, not "
        "whether real crowds follow the model; other methods are fitted to data of another model than theirs.",
        f"Intervals and drawn grades are of methods with relevance on the latent line: {', '.join(latent) or 'none'}.",
        ONE_CONFIGURATION,
    ]


def on_the_line(model: Aggregator) -> bool:
    """Whether a model's relevance is a point of the latent line, whose middle is 0, rather than of the grades."""
    return bool(model.consensus_.documents["relevance"].min() < model.consensus_.scale.values[0])


@dataclass(frozen=True, eq=False)
class Drawn:
    """Judgments drawn from a model, and the truth behind them."""

    judgments: Judgments
    relevance: Floats  # (n_items,)
    careful: NDArray[np.int64]  # (n_items,) the grade that a typical careful assessor gave, as a code


def draw(source: GDA, seed: int) -> Drawn:
    """New relevance for the documents that a GDA was fitted to, and new answers by its curves.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "b", "b"], "assessor": ["x", "y"] * 2, "grade": [0, 0, 1, 1]})
    >>> draw(GDA().fit(votes), seed=0).judgments
    <Judgments: 4 judgments of 2 documents in 1 query by 2 assessors, grades 0,1>
    """
    # A stream of its own: the seed alone draws the random assessor, who must not know the relevance.
    rng = np.random.default_rng((seed, 1))
    crowd, n_grades = source.judgments_, len(source.consensus_.scale)
    relevance = rng.standard_normal(crowd.n_items)
    curves = source.theta_["curves"][crowd.assessor]
    there = np.repeat(relevance, np.diff(crowd.offsets))[:, None]
    scores = curves[:, :n_grades] * there + curves[:, n_grades:]
    grade = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.int8)
    shares = np.stack([np.interp(relevance, NODES, curve) for curve in source.theta_["typical"]], axis=1)
    below = np.cumsum(shares, axis=1)[:, :-1]
    careful = (rng.random((crowd.n_items, 1)) > below).sum(axis=1)
    return Drawn(replace(crowd, grade=grade, extras={}), relevance, careful)


def latent_tables(chosen: Chosen, worlds: Sequence[Drawn], seeds: Sequence[int], tell: Tell) -> tuple[Table, ...]:
    """Coverage, and reliability of P(grade), of methods on the latent line."""
    draws, shares = [], dict[str, list[Floats]]()
    for world, seed in zip(worlds, seeds, strict=True):
        figures: dict[str, dict[str, float]] = {}
        for run, make in chosen.items():
            tell(f"{run} on drawn data, seed {seed}")
            models = [make().set_params(interval=level).fit(world.judgments) for level in LEVELS]
            with_one_random = make().fit(with_random(world.judgments, seed))
            figures[run] = {**_coverages(models, world.relevance), **_of_random(with_one_random)}
            shares.setdefault(run, []).append(grade_shares(models[0]))
        draws.append(figures)
    careful = np.concatenate([world.careful for world in worlds])
    rows = [row for run, parts in shares.items() for row in reliability(run, np.concatenate(parts), careful)]
    return _coverage_table(draws, seeds), _reliability_table(rows, seeds)


def _coverage_table(draws: Sequence[dict[str, dict[str, float]]], seeds: Sequence[int]) -> Table:
    notes = (
        "Coverage is the share of documents whose true relevance lies within [lower, upper]; Spearman is of estimated "
        "and true relevance over all documents together.",
        "nats random is the informativeness of one more assessor, uniform on the grades on every document, in a fit of "
        "its own; nats crowd the median of the others there.",
        f"Means over the draws with {seeds_told(seeds)}; sd is over the draws.",
    )
    return Table("coverage", "Coverage of intervals on drawn data", averaged(draws) if draws else (), notes)


def _reliability_table(rows: Sequence[Row], seeds: Sequence[int]) -> Table:
    notes = (
        "Every document has one pair of P(grade) and outcome for each grade; the outcome is whether a typical careful "
        "assessor of the generating model, at the document's true relevance, gave that grade (one answer drawn).",
        f"Pairs are gathered in ten bins of P, over the draws with {seeds_told(seeds)}; expected is the mean of P in "
        "the bin, observed the share of pairs whose outcome is that grade.",
    )
    return Table("reliability", "P(grade) against drawn grades", tuple(rows), notes)


def _coverages(models: Sequence[Aggregator], relevance: Floats) -> dict[str, float]:
    found: dict[str, float] = {}
    for level, model in zip(LEVELS, models, strict=True):
        documents = model.consensus_.documents
        lower, upper = documents["lower"].to_numpy(), documents["upper"].to_numpy()
        found[f"{level:.0%} covers"] = float(((lower <= relevance) & (relevance <= upper)).mean())
    return found | {"Spearman": spearman(models[0].consensus_.documents["relevance"].to_numpy(), relevance)}


def _of_random(model: Aggregator) -> dict[str, float]:
    return dict(zip(("nats random", "nats crowd"), informativeness(model), strict=True))


def grade_shares(model: Aggregator) -> Floats:
    """P(grade) of every document: (n_items, n_grades)."""
    shares: Floats = model.consensus_.documents[model.consensus_.share_names].to_numpy()
    return shares


def reliability(run: str, shares: Floats, code: NDArray[np.integer]) -> list[Row]:
    """Expected against observed in ten bins of P; empty bins are left out.

    >>> for row in reliability("sure", np.array([[0.1, 0.9], [0.1, 0.9]]), np.array([1, 0])):
    ...     print(row)
    {'run': 'sure', 'P': '0.1-0.2', 'pairs': 2, 'expected': 0.1, 'observed': 0.5}
    {'run': 'sure', 'P': '0.9-1.0', 'pairs': 2, 'expected': 0.9, 'observed': 0.5}
    """
    p, outcome = shares.ravel(), np.eye(shares.shape[1])[code].ravel()
    place = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    rows = []
    for number in np.unique(place):
        there = place == number
        rows.append(
            {
                "run": run,
                "P": f"{number / N_BINS:.1f}-{(number + 1) / N_BINS:.1f}",
                "pairs": int(there.sum()),
                "expected": float(p[there].mean()),
                "observed": float(outcome[there].mean()),
            }
        )
    return rows


def against_gold(fits: Fits, gold: Gold) -> Table:
    """How far P(grade) on the real crowd is from what NIST said."""
    rows = []
    for run, model in fits.models.items():
        known = gold.codes_by_name(model.judgments_)
        shares, code = grade_shares(model)[known >= 0], known[known >= 0]
        bins = reliability(run, shares, code)
        gap = sum(row["pairs"] * abs(row["expected"] - row["observed"]) for row in bins) / shares.size
        brier = float(((shares - np.eye(shares.shape[1])[code]) ** 2).sum(axis=1).mean())
        rows.append({"run": run, "gap": gap, "Brier": brier})
    notes = (
        f"RF10 as it is: P(grade) of the {len(gold):,} documents that NIST judged against NIST's grade.",
        "gap is the mean of |expected - observed| over the ten bins of P, by pairs; Brier the mean squared distance of "
        "P from the grade given, summed over grades; lower is better in both, and there are no tests.",
        "The methods were not told NIST's standard: for the models P is of the crowd's idea of a grade.",
        *fits.notes,
    )
    return Table("against-gold", "P(grade) against NIST's grades on RF10", tuple(rows), notes)
