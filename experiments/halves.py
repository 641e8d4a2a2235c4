"""Compare difficulty and relevance estimated from two halves of the assessors (GDA, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crowdrank.consensus.result import Consensus
from crowdrank.judgments.table import Judgments
from experiments.agreement import spearman
from experiments.base import Chosen, Fits, Table, Tell, averaged, fit_all, seeds_text

MIN_JUDGMENTS = 3
"""Minimum number of judgments of a document in each half."""


def split_assessors(judgments: Judgments, seed: int) -> tuple[Judgments, Judgments]:
    """Return the judgments of a random half of the assessors, and those of the other half.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = pd.DataFrame({"document": ["a"] * 4, "assessor": list("wxyz"), "grade": [0, 1, 1, 0]})
    >>> [half.n_assessors for half in split_assessors(read_judgments(votes), seed=0)]
    [2, 2]
    """
    first = np.random.default_rng(seed).permutation(judgments.n_assessors) % 2 == 0
    return judgments.where(first[judgments.assessor]), judgments.where(~first[judgments.assessor])


def split_half_table(chosen: Chosen, fits: Fits, crowd: Judgments, *, seeds: Sequence[int], tell: Tell) -> Table:
    """Return the correlation of difficulty and of relevance between halves, for every method with difficulty."""
    with_difficulty = {
        run: chosen[run]
        for run, model in fits.models.items()
        if "difficulty" in model.consensus_.document_table.column_names
    }
    draws = []
    for seed in seeds if with_difficulty else ():
        on = f"half of the assessors, seed {seed}"
        one, other = (fit_all(with_difficulty, half, on=on, tell=tell).models for half in split_assessors(crowd, seed))
        draws.append({run: _correlations(one[run].consensus_, other[run].consensus_) for run in with_difficulty})
    notes = (
        f"Assessors are split in two at random ({seeds_text(seeds)}), and each half is fitted alone; documents with at "
        f"least {MIN_JUDGMENTS} judgments in both halves are used. Spearman's correlation between the halves, mean "
        "over the splits; a correlation of 0 means that the difficulty is noise.",
    )
    title = "Difficulty and relevance from two halves of the assessors"
    return Table("split-half", title, averaged(draws) if draws else (), notes)


def _correlations(one: Consensus, other: Consensus) -> dict[str, float]:
    """Return the number of shared documents, and the rank correlations of difficulty and relevance over them."""
    keys = ["query", "document"]
    both = one.document_table.join(other.document_table, keys, right_suffix=" other", join_type="inner").to_pandas()
    both = both[(both["judgments"] >= MIN_JUDGMENTS) & (both["judgments other"] >= MIN_JUDGMENTS)]
    pairs = {name: (both[name].to_numpy(), both[f"{name} other"].to_numpy()) for name in ("difficulty", "relevance")}
    return {"documents": float(len(both)), **{name: spearman(*pair) for name, pair in pairs.items()}}
