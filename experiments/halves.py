"""Whether what is said of a document, by half of the assessors, is said by the other half too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from crowdrank.consensus.result import Consensus
from crowdrank.judgments.table import Judgments
from experiments.base import Chosen, Fits, Table, Tell, averaged, fit_all, seeds_told

ENOUGH = 3
"""A document takes part if each half has so many judgments of it."""


def halves(judgments: Judgments, seed: int) -> tuple[Judgments, Judgments]:
    """The judgments of half of the assessors, and those of the others.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = pd.DataFrame({"document": ["a"] * 4, "assessor": list("wxyz"), "grade": [0, 1, 1, 0]})
    >>> [half.n_assessors for half in halves(read_judgments(votes), seed=0)]
    [2, 2]
    """
    first = np.random.default_rng(seed).permutation(judgments.n_assessors) % 2 == 0
    return judgments.where(first[judgments.assessor]), judgments.where(~first[judgments.assessor])


def split_half_table(chosen: Chosen, fits: Fits, crowd: Judgments, *, seeds: Sequence[int], tell: Tell) -> Table:
    """Of every method with difficulties: how those found by two halves of the crowd go together, and relevance."""
    hard = {run: chosen[run] for run, model in fits.models.items() if "difficulty" in _columns(model.consensus_)}
    draws = []
    for seed in seeds if hard else ():
        on = f"half of the assessors, seed {seed}"
        one, other = (fit_all(hard, half, on=on, tell=tell).models for half in halves(crowd, seed))
        draws.append({run: _together(one[run].consensus_, other[run].consensus_) for run in hard})
    notes = (
        f"Assessors are split in two at random ({seeds_told(seeds)}), and each half is fitted alone; documents with at "
        f"least {ENOUGH} judgments in both halves take part. Spearman's correlation between the halves, mean over the "
        f"splits; 0 says that a difficulty is noise.",
    )
    title = "Difficulty and relevance from two halves of the assessors"
    return Table("split-half", title, averaged(draws) if draws else (), notes)


def _columns(consensus: Consensus) -> list[str]:
    names: list[str] = consensus.document_table.column_names
    return names


def _together(one: Consensus, other: Consensus) -> dict[str, float]:
    keys = ["query", "document"]
    both = one.document_table.join(other.document_table, keys, right_suffix=" other", join_type="inner").to_pandas()
    both = both[(both["judgments"] >= ENOUGH) & (both["judgments other"] >= ENOUGH)]
    return {
        "documents": float(len(both)),
        **{name: _rank_correlation(both[name], both[f"{name} other"]) for name in ("difficulty", "relevance")},
    }


def _rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(spearmanr(one, other).statistic) if len(one) > 2 else float("nan")
