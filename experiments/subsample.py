"""The same number of labels for every document, so that label counts can tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crowdrank._text import counted
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from experiments.base import Chosen, Fits, Table, Tell, averaged, figures, fit_all, gold_in, seeds_text

if TYPE_CHECKING:
    import pandas as pd

Score = Callable[[Fits, "pd.DataFrame", Sequence[str]], dict[str, dict[str, float]]]
"""Function that returns the figures of each run, as `experiments.base.figures` does."""


def equal_count(judgments: Judgments, labels: int, seed: int) -> Judgments:
    """`labels` judgments of every document that has as many, drawn at random; other documents are left out.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame(
    ...     {"document": ["a", "a", "a", "b"], "assessor": ["x", "y", "z", "x"], "grade": [0, 1, 1, 1]}))
    >>> equal_count(table, 2, seed=0)
    <Judgments: 2 judgments of 1 document in 1 query by 2 assessors, grades 0,1>
    """
    counts = np.diff(judgments.offsets)
    item = np.repeat(np.arange(judgments.n_items), counts)
    order = np.lexsort((np.random.default_rng(seed).random(len(item)), item))
    place = np.empty(len(item), np.int64)
    place[order] = np.arange(len(item)) - judgments.offsets[item]
    return judgments.where((place < labels) & (counts[item] >= labels))


def equal_count_table(
    chosen: Chosen,
    judgments: Judgments,
    gold: Gold,
    measures: Sequence[str],
    *,
    labels: int,
    seeds: Sequence[int],
    tell: Tell,
    score: Score = figures,
) -> Table:
    """Return the figures of every method on equal-count subsamples, averaged over the seeds."""
    draws, documents, scored, notes = [], 0, 0, dict[str, None]()
    for seed in seeds:
        drawn = equal_count(judgments, labels, seed)
        fits = fit_all(chosen, drawn, on=f"{labels} labels per document, seed {seed}", tell=tell)
        known = gold_in(gold, drawn)
        draws.append(score(fits, known, measures))
        documents, scored = drawn.n_items, len(known)
        notes |= dict.fromkeys(fits.notes)
    lines = (
        f"Of every document with at least {labels} labels, {labels} were drawn at random, without replacement; "
        f"{counted(documents, 'document')} took part and {counted(judgments.n_items - documents, 'document')} with "
        f"fewer labels did not.",
        f"{counted(scored, 'document')} with gold are scored.",
        f"Figures are means over the draws with {seeds_text(seeds)}; sd is over the draws, not over queries; "
        "there are no tests.",
        *notes,
    )
    return Table("equal-count", f"{labels} labels for every document", averaged(draws), lines)
