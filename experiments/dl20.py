"""TREC DL20: judges that are prompts of a few language models, and so err together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.base import (
    ONE_CONFIGURATION,
    SEEDS,
    Chosen,
    Experiment,
    Table,
    Tell,
    Variants,
    averaged,
    choose,
    compared,
    figures,
    fit_all,
    gold_in,
    quiet,
    seeds_text,
    testing_protocol,
)

MEASURES = ("AP(rel=2)", "nDCG", "nDCG@10", "Tau")
BASELINE = "family-mean"
COVERED = 8_000
"""A judge of more items than this judged nearly all of them."""
PER_FAMILY = (1, 3, 9)
VARIANTS: Variants = {
    "gda-difficulty": ("gda", {"difficulty": True, "tied_variance": False}),
    "gda-found": ("gda", {"families": "found"}),
    "gda-independent": ("gda", {"families": "none"}),
}


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """All tables on DL20, for the methods named or for all."""
    chosen = choose(methods, VARIANTS)
    data = dataset("trec-dl20")
    everyone, gold = data.read_judgments(), data.read_gold()
    judges = thorough(everyone, COVERED)
    known = gold_in(gold, judges)
    fits = fit_all(chosen, judges, on="all thorough judges", tell=tell)
    title = f"The {judges.n_assessors} judges of more than {COVERED:,} items"
    table = compared("judges", title, fits, known, MEASURES, baseline=BASELINE)
    fewer = tuple(fewer_table(chosen, judges, known, n, seeds=seeds, tell=tell) for n in PER_FAMILY)
    return Experiment(
        "dl20",
        (table, families_table(judges, known), *fewer),
        tuple(_protocol(everyone, judges, gold, table)),
    )


def _protocol(everyone: Judgments, judges: Judgments, gold: Gold, table: Table) -> list[str]:
    return [
        f"Data: TREC Deep Learning 2020 passages, {counted(len(everyone), 'judgment')} by "
        f"{counted(everyone.n_assessors, 'LLM judge')}; {sum(everyone.report.skipped.values()):,} off the scale left "
        f"out; NIST's grades 0-3 of {counted(len(gold), 'passage')} are gold.",
        f"Only judges of more than {COVERED:,} items take part ({judges.n_assessors}: {sizes_text(judges)}): the "
        "others judged a part that is richer in relevant passages, so that how many judged one would tell of its gold.",
        "A family is a language model, a judge one of its prompts; family-mean gives each family one voice, however "
        "few judges it has, and so does gda (gda-difficulty: with difficulties and widths of their own; gda-found: "
        "families found from correlations, the column not read; gda-independent: no families); the other methods take "
        "judges as independent.",
        "In AP a passage is relevant from grade 2 up; Tau is (concordant - discordant) / pairs of different gold.",
        ONE_CONFIGURATION,
        *testing_protocol(table),
    ]


def thorough(judgments: Judgments, covered: int) -> Judgments:
    """Only the judges of more than `covered` items.

    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame(
    ...     {"document": ["a", "b", "b"], "assessor": ["x", "x", "y"], "grade": [0, 1, 1]}))
    >>> thorough(table, 1)
    <Judgments: 2 judgments of 2 documents in 1 query by 1 assessor, grades 0,1>
    """
    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    return judgments.where(counts[judgments.assessor] > covered)


def family_sizes(judges: Judgments) -> dict[str, int]:
    """Return the number of judges of each family."""
    assert judges.families is not None
    sizes = np.bincount(judges.family_of, minlength=len(judges.families))
    return dict(zip(map(str, judges.families.to_pylist()), sizes.tolist(), strict=True))


def sizes_text(judges: Judgments) -> str:
    """Return the number of judges of each family as part of a sentence."""
    return ", ".join(f"{name} {size}" for name, size in family_sizes(judges).items())


def families_table(judges: Judgments, gold: pd.DataFrame) -> Table:
    """Return the quality of the average label of each family."""
    means, family = {}, judges.family_of[judges.assessor]
    for number, (name, size) in enumerate(family_sizes(judges).items()):
        alone = fit_all(choose(["average"]), judges.where(family == number), on=name)
        means[name] = {"judges": size, **figures(alone, gold, MEASURES)["average"]}
    rows = tuple({"run": name, **row} for name, row in means.items())
    note = "The mean grade of the family's judges; nothing is weighted, and there are no tests."
    return Table("families", "Each family alone, averaged", rows, (note,))


def drawn_judges(judges: Judgments, per_family: int, seed: int) -> NDArray[np.bool_]:
    """Return which judges are drawn: at most `per_family` of each family."""
    rng, family = np.random.default_rng(seed), judges.family_of
    kept = np.zeros(judges.n_assessors, bool)
    for number in np.unique(family):
        members = np.flatnonzero(family == number)
        kept[rng.choice(members, min(per_family, len(members)), replace=False)] = True
    return kept


def fewer_table(
    chosen: Chosen, judges: Judgments, gold: pd.DataFrame, per_family: int, *, seeds: Sequence[int], tell: Tell
) -> Table:
    """Return the table of all methods with a few judges of each family, averaged over seeds."""
    draws, notes = [], dict[str, None]()
    for seed in seeds:
        few = judges.where(drawn_judges(judges, per_family, seed)[judges.assessor])
        fits = fit_all(chosen, few, on=f"{per_family} of each family, seed {seed}", tell=tell)
        draws.append(figures(fits, gold, MEASURES))
        notes |= dict.fromkeys(fits.notes)
    lines = (
        f"At most {counted(per_family, 'judge')} of each family, drawn with {seeds_text(seeds)}; a family with fewer "
        f"takes part with all it has ({sizes_text(judges)}).",
        "Figures are means over the draws; sd is over the draws, not over queries; there are no tests.",
        *notes,
    )
    return Table(f"per-family-{per_family}", f"{counted(per_family, 'judge')} of each family", averaged(draws), lines)
