"""Whether intervals and probabilities are calibrated, on data drawn from a model, whose true relevance is known."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.gda_pairwise_assessors import standardized
from crowdrank.consensus.model import Aggregator
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from crowdrank.readers.read import read_judgments
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
    seeds_text,
)
from experiments.injected import informativeness, with_random

LEVELS = (0.5, 0.95)
N_BINS = 10
LABELS = (5, 17, 60, 120)
"""Numbers of labels per document."""
N_ASSESSORS, DOCUMENTS_PER_QUERY = 150, 50
GRADES = "0-4"
PAIRWISE = {"gda-pairwise (same-assessor)": ("gda-pairwise", {"pairs": "same-assessor"})}


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return all tables on calibration, for the named methods or for all."""
    chosen = choose(methods)
    data = dataset("trec-rf10")
    crowd, judged = data.read_judgments(), data.read_gold(unjudgeable_as="drop")
    tell("gda on RF10")
    source = GDA().fit(crowd)
    fits = fit_all(chosen, crowd, on="RF10", tell=tell)
    latent = {run: chosen[run] for run, model in fits.models.items() if not model.in_grades}
    return Experiment(
        "calibration",
        (
            labels_table(choose(list(latent), PAIRWISE) if latent else {}, seeds, tell),
            *latent_tables(latent, source, seeds, tell),
            against_gold(fits, judged),
        ),
        tuple(_protocol(crowd, latent, seeds)),
    )


def _protocol(crowd: Judgments, latent: Chosen, seeds: Sequence[int]) -> list[str]:
    return [
        f"Data: judgments drawn from a GDA fitted to TREC RF10: the same {counted(crowd.n_assessors, 'assessor')} with "
        f"their fitted curves on the same {counted(crowd.n_items, 'document')} ({counted(len(crowd), 'judgment')}, "
        f"'broken link' as grade 0), relevance drawn from N(0, 1) and standardized within each query; drawn with "
        f"{seeds_text(seeds)}.",
        "That is the best case for GDA: it shows whether its intervals and probabilities are computed right, not "
        "whether real crowds follow the model; other methods are fitted to data of another model than theirs.",
        f"Intervals and drawn grades are of methods with relevance on the latent scale: {', '.join(latent) or 'none'}.",
        ONE_CONFIGURATION,
    ]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Judgments drawn from a model, and the true relevance of their documents."""

    judgments: Judgments
    relevance: Floats  # (n_items,)


def draw(source: GDA, seed: int) -> Drawn:
    """Draw new relevance for the documents that a GDA was fitted to, and new answers from its curves.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "b", "b"], "assessor": ["x", "y"] * 2, "grade": [0, 0, 1, 1]})
    >>> draw(GDA().fit(votes), seed=0).judgments
    <Judgments: 4 judgments of 2 documents in 1 query by 2 assessors, grades 0,1>
    """
    # Not the seed alone: it draws the answers of the random assessor, which must not depend on relevance.
    rng = np.random.default_rng((seed, 1))
    crowd, n_grades = source.judgments_, len(source.consensus_.scale)
    relevance = _draw_relevance(crowd.item_query, rng)
    curves = source.theta_["curves"][crowd.assessor]
    scores = curves[:, :n_grades] * np.repeat(relevance, np.diff(crowd.offsets))[:, None] + curves[:, n_grades:]
    return Drawn(replace(crowd, grade=_draw_answers(scores, rng).astype(np.int8), extras={}), relevance)


def careful_grades(source: GDA, relevance: Floats, seed: int) -> NDArray[np.int64]:
    """Draw the grade of each document that a typical careful assessor gives, as a code."""
    nodes, typical = source.theta_["nodes"], source.theta_["typical"]
    shares = np.stack([np.interp(relevance, nodes, curve) for curve in typical], axis=1)
    return _draw_answers(np.log(shares), np.random.default_rng((seed, 2)))


def _draw_answers(scores: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw from the softmax of scores along the last axis."""
    return np.asarray((scores + rng.gumbel(size=scores.shape)).argmax(axis=-1))


def _draw_relevance(query: NDArray[np.integer], rng: np.random.Generator) -> Floats:
    """Draw normal relevance with mean 0 and variance 1 in each query; documents are sorted by query."""
    bounds = np.append(np.flatnonzero(np.diff(query, prepend=-1)), len(query))
    return standardized(rng.standard_normal(len(query)), bounds)


def draw_gda(n_labels: int, seed: int, n_documents: int = 1000) -> Drawn:
    """Draw judgments from GDA: Gaussians with the same five means for all assessors and widths that differ.

    >>> draw_gda(5, seed=0, n_documents=100).judgments
    <Judgments: 500 judgments of 100 documents in 2 queries by 19 assessors, grades 0-4>
    """
    rng = np.random.default_rng(seed)
    mu, width = np.linspace(-1.5, 1.5, 5), 0.5 * rng.lognormal(0.0, 0.3, N_ASSESSORS)
    return _draw_world(n_labels, n_documents, rng, lambda r, a: -((r - mu) ** 2) / (2 * width[a]))


def draw_rasch(n_labels: int, seed: int, n_documents: int = 1000) -> Drawn:
    """Draw judgments from the polytomous Rasch model with thresholds that differ between assessors."""
    rng = np.random.default_rng(seed)
    thresholds = np.linspace(-1.5, 1.5, 4) + rng.normal(0.0, 0.7, (N_ASSESSORS, 4))
    falls = np.concatenate([np.zeros((N_ASSESSORS, 1)), np.cumsum(thresholds, axis=1)], axis=1)
    return _draw_world(n_labels, n_documents, rng, lambda r, a: 1.5 * r * np.arange(5) - falls[a[..., 0]])


def _draw_world(
    n_labels: int,
    n_documents: int,
    rng: np.random.Generator,
    scores: Callable[[Floats, NDArray[np.int64]], Floats],
) -> Drawn:
    """Draw judgments; each query has a panel of assessors, so that an assessor judges several of its documents.

    Args:
        n_labels: number of judgments per document.
        n_documents: number of documents, a multiple of `DOCUMENTS_PER_QUERY`.
        rng: random generator.
        scores: function of relevance and assessor, (n, n_labels, 1) each, that returns log P(grade) up to a constant.

    """
    query = np.arange(n_documents) // DOCUMENTS_PER_QUERY
    relevance = _draw_relevance(query, rng)
    panels = [rng.permutation(N_ASSESSORS)[: 2 * n_labels] for _ in range(query[-1] + 1)]
    assessor = np.stack([rng.permutation(panels[one])[:n_labels] for one in query])[:, :, None]
    grade = _draw_answers(scores(relevance[:, None, None], assessor), rng)
    columns = {"query": query, "document": np.arange(n_documents)}
    rows = {name: np.repeat(values, n_labels) for name, values in columns.items()}
    table = pa.table({**rows, "assessor": assessor.ravel(), "grade": grade.ravel()})
    return Drawn(read_judgments(table, grades=GRADES), relevance)


def labels_table(chosen: Chosen, seeds: Sequence[int], tell: Tell) -> Table:
    """Return the coverage of intervals by the number of labels per document."""
    rows: list[Row] = []
    for n_labels in LABELS:
        draws: list[Mapping[str, Mapping[str, float]]] = []
        for seed in seeds:
            worlds = {run: (draw_rasch if run == "rasch" else draw_gda)(n_labels, seed) for run in chosen}
            figures = {}
            for run, world in worlds.items():
                tell(f"{run} with {n_labels} labels per document, seed {seed}")
                figures[run] = _coverages(_fitted(chosen[run], world.judgments), world)
            draws.append(figures)
        rows += [{"run": row.pop("run"), "labels": n_labels, **row} for row in averaged(draws)] if chosen else []
    notes = (
        "Judgments of 1,000 documents in 20 queries by 150 assessors on five grades, drawn from the model itself: from "
        "the Rasch model for rasch, from GDA for the others.",
        "True relevance is normal and has mean 0 and variance 1 in each query: the scale on which it is reported.",
        "Coverage is the share of documents whose true relevance lies within [lower, upper].",
        f"Means over the draws with {seeds_text(seeds)}; sd is over the draws.",
    )
    return Table("labels", "Coverage of intervals by number of labels per document", tuple(rows), notes)


def _fitted(make: Callable[[], Aggregator], judgments: Judgments) -> Aggregator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(judgments)


def latent_tables(chosen: Chosen, source: GDA, seeds: Sequence[int], tell: Tell) -> tuple[Table, ...]:
    """Return coverage, and reliability of P(grade), of methods on the latent scale."""
    draws, shares, grades = [], dict[str, list[Floats]](), []
    for seed in seeds:
        world = draw(source, seed)
        grades.append(careful_grades(source, world.relevance, seed))
        figures: dict[str, dict[str, float]] = {}
        for run, make in chosen.items():
            tell(f"{run} on drawn data, seed {seed}")
            model = _fitted(make, world.judgments)
            nats = informativeness(_fitted(make, with_random(world.judgments, seed)))
            figures[run] = {
                **_coverages(model, world),
                "Spearman": spearman(model.consensus_.documents["relevance"].to_numpy(), world.relevance),
                **dict(zip(("nats random", "nats crowd"), nats, strict=True)),
            }
            shares.setdefault(run, []).append(grade_shares(model))
        draws.append(figures)
    outcome = np.concatenate(grades)
    rows = [row for run, parts in shares.items() for row in reliability(run, np.concatenate(parts), outcome)]
    return _coverage_table(draws, seeds), _reliability_table(rows, seeds)


def _coverage_table(draws: Sequence[dict[str, dict[str, float]]], seeds: Sequence[int]) -> Table:
    notes = (
        "Coverage is the share of documents whose true relevance lies within [lower, upper]; Spearman is of estimated "
        "and true relevance over all documents together.",
        "nats random is the informativeness of one more assessor, uniform on the grades on every document, in a fit of "
        "its own; nats crowd the median of the others there.",
        f"Means over the draws with {seeds_text(seeds)}; sd is over the draws.",
    )
    return Table("coverage", "Coverage of intervals on drawn data", averaged(draws) if draws else (), notes)


def _reliability_table(rows: Sequence[Row], seeds: Sequence[int]) -> Table:
    notes = (
        "Every document has one pair of P(grade) and outcome for each grade; the outcome is whether a typical careful "
        "assessor of the generating model, at the document's true relevance, gave that grade (one answer drawn).",
        f"Pairs are gathered in ten bins of P, over the draws with {seeds_text(seeds)}; expected is the mean of P in "
        "the bin, observed the share of pairs whose outcome is that grade.",
    )
    return Table("reliability", "P(grade) against drawn grades", tuple(rows), notes)


def _coverages(model: Aggregator, world: Drawn) -> dict[str, float]:
    """Return the coverage of intervals at each level."""
    coverages = {}
    for level in LEVELS:
        table = model.set_params(interval=level).infer(world.judgments).document_table
        lower, upper = (table[name].to_numpy() for name in ("lower", "upper"))
        covered = (lower <= world.relevance) & (world.relevance <= upper)
        coverages[f"{level:.0%} covers"] = float(covered.mean())
    return coverages


def grade_shares(model: Aggregator) -> Floats:
    """Return P(grade) of every document: (n_items, n_grades)."""
    shares: Floats = model.consensus_.documents[model.consensus_.share_names].to_numpy()
    return shares


def reliability(run: str, shares: Floats, code: NDArray[np.integer]) -> list[Row]:
    """Return expected and observed frequencies in ten bins of P; empty bins are left out.

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
    """Return how far P(grade) on the real crowd is from NIST's grades."""
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
        "gap is the mean of |expected - observed| over the ten bins of P, weighted by pairs; Brier is the mean squared "
        "distance of P from the grade, summed over grades; lower is better in both, and there are no tests.",
        "The methods do not know NIST's standard: P of a model is that of the crowd's idea of a grade.",
        *fits.notes,
    )
    return Table("against-gold", "P(grade) against NIST's grades on RF10", tuple(rows), notes)
