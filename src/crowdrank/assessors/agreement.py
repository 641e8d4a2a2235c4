"""How far assessors agree beyond chance: Krippendorff's alpha of all, weighted kappa of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from crowdrank._base import require_one_of
from crowdrank._typing import Floats
from crowdrank.consensus._coerce import as_judgments
from crowdrank.errors import UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

METRICS = ("nominal", "ordinal", "interval")
WEIGHTS = ("linear", "quadratic")

_BLOCK = 2**22  # numbers held at a time
_ACTIVE = 100  # pairs are sought among so many of the most active assessors: all pairs of a large crowd are too many


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's alpha: 1 is perfect agreement, 0 that of chance; NaN where there is nothing to compare.

    >>> print(Alpha(0.743, 0.5, 0.9, "nominal", 0.95, 11))
    Krippendorff's alpha (nominal) 0.743, 95% interval 0.500 to 0.900, 11 documents with several judgments
    """

    value: float
    lower: float
    upper: float
    metric: str
    level: float
    documents: int  # those with at least two judgments

    def __str__(self) -> str:
        many = f"{self.documents:,} document{'' if self.documents == 1 else 's'} with several judgments"
        if np.isnan(self.value):
            return f"Krippendorff's alpha ({self.metric}) is not defined: {many}, and no two grades to tell apart"
        interval = f"{self.level:.0%} interval {self.lower:.3f} to {self.upper:.3f}"
        return f"Krippendorff's alpha ({self.metric}) {self.value:.3f}, {interval}, {many}"


def krippendorff_alpha(
    judgments: Any, metric: str = "ordinal", *, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> Alpha:
    """Krippendorff's alpha of judgments, with a bootstrap interval over documents.

    Documents may have any number of judgments; 'cannot judge' answers count as missing.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        metric: how far apart two grades are: nominal, ordinal, or interval (by the values of the grades).
        level: the level of the interval.
        resamples: how often documents are drawn with replacement.
        random_state: the same seed gives the same interval.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "b", "b", "c", "c"], "assessor": ["x", "y"] * 3,
    ...                       "grade": [0, 0, 1, 1, 2, 1]})
    >>> round(krippendorff_alpha(votes).value, 3)
    0.778
    """
    if not 0 < level < 1:
        raise UsageError(f"level is a number between 0 and 1, not {level}.")
    if resamples < 1:
        raise UsageError(f"resamples is a number from 1 up, not {resamples}.")
    table = as_judgments(judgments).on_main_scale()
    patterns, often = _patterns(table)
    values, documents = np.array(table.scale.values), int(often.sum())
    if not documents:
        return Alpha(np.nan, np.nan, np.nan, metric, level, 0)
    coincidences = pattern_coincidences(patterns)
    value = float(alpha_of(_summed(often[None], coincidences), values, metric)[0])
    rng = np.random.default_rng(random_state)
    drawn = [
        alpha_of(_summed(rng.multinomial(documents, often / documents, size), coincidences), values, metric)
        for size in _sizes(resamples, len(often))
    ]
    found = np.concatenate(drawn)
    found = found[np.isfinite(found)]
    tail = (1 - level) / 2
    lower, upper = np.quantile(found, [tail, 1 - tail]) if len(found) and not np.isnan(value) else (np.nan, np.nan)
    return Alpha(value, float(lower), float(upper), metric, level, documents)


def _patterns(table: Judgments) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The counts of grades that a document with at least two has, each different row once, and how often."""
    # Resampling documents is resampling their patterns, of which there are few.
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    judged, size = table.grade != UNJUDGEABLE, len(table.scale)
    cells = item[judged] * size + table.grade[judged]
    votes = np.bincount(cells, minlength=table.n_items * size).reshape(-1, size)
    patterns, often = np.unique(votes[votes.sum(axis=1) > 1], axis=0, return_counts=True)
    return patterns, often


def _sizes(resamples: int, width: int) -> list[int]:
    """Resamples in blocks that fit."""
    most = max(1, _BLOCK // max(width, 1))
    return [min(most, resamples - done) for done in range(0, resamples, most)]


def pattern_coincidences(counts: NDArray[np.int64]) -> Floats:
    """The pairs of grades that each document gives, (n, n_grades, n_grades): as many in all as it has judgments.

    >>> pattern_coincidences(np.array([[1, 2]])).tolist()
    [[[0.0, 1.0], [1.0, 1.0]]]
    """
    number = counts.sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(counts.shape[1], dtype=np.int64)
    coincidences: Floats = pairs / np.maximum(number - 1, 1)[:, None, None]
    return coincidences


def _summed(weights: NDArray[np.int64], coincidences: Floats) -> Floats:
    size = coincidences.shape[1]
    summed: Floats = (weights.astype(np.float64) @ coincidences.reshape(len(coincidences), -1)).reshape(-1, size, size)
    return summed


def alpha_of(coincidences: Floats, values: Floats, metric: str = "ordinal") -> Floats:
    """Alpha of matrices of coincidences (n, n_grades, n_grades); NaN where only one grade occurs.

    >>> alpha_of(np.array([[[4.0, 0.0], [0.0, 4.0]]]), np.array([0.0, 1.0])).tolist()
    [1.0]
    """
    margin = coincidences.sum(axis=2)
    apart = distances(margin, values, metric)
    seen = (coincidences * apart).sum(axis=(1, 2))
    chance = np.einsum("nc,nk,nck->n", margin, margin, apart) / np.maximum(margin.sum(axis=1) - 1, 1.0)
    alpha: Floats = 1 - np.divide(seen, chance, out=np.full(len(seen), np.nan), where=chance > 0)
    return alpha


def distances(margin: Floats, values: Floats, metric: str) -> Floats:
    """How far apart grades are, squared: (n, n_grades, n_grades) for n margins of the grades.

    >>> distances(np.array([[2.0, 2.0, 2.0]]), np.array([0.0, 1.0, 2.0]), "ordinal")[0].tolist()
    [[0.0, 4.0, 16.0], [4.0, 0.0, 4.0], [16.0, 4.0, 0.0]]
    """
    require_one_of("metric", metric, METRICS)
    if metric == "nominal":
        return np.broadcast_to(1 - np.eye(len(values)), (len(margin), len(values), len(values)))
    # Between two grades lie all judgments from the middle of the one to the middle of the other.
    place = np.cumsum(margin, axis=1) - margin / 2 if metric == "ordinal" else np.tile(values, (len(margin), 1))
    apart: Floats = (place[:, :, None] - place[:, None, :]) ** 2
    return apart


def weighted_kappa(one: ArrayLike, other: ArrayLike, n_grades: int, weights: str = "quadratic") -> float:
    """Cohen's kappa of two assessors' grades (codes) of the same documents, disagreements weighed by their size.

    NaN where both gave one and the same grade throughout, or nothing.

    >>> weighted_kappa([0, 1, 2, 2], [0, 1, 1, 2], 3, "linear")
    0.7142857142857143
    """
    require_one_of("weights", weights, WEIGHTS)
    cells = np.asarray(one, np.int64) * n_grades + np.asarray(other, np.int64)
    counts = np.bincount(cells, minlength=n_grades**2).reshape(n_grades, n_grades)
    code = np.arange(n_grades)
    apart = np.abs(code[:, None] - code).astype(np.float64) ** (1 if weights == "linear" else 2)
    chance = float((np.outer(counts.sum(axis=1), counts.sum(axis=0)) * apart).sum())
    return 1 - float((counts * apart).sum()) * len(cells) / chance if chance > 0 else float("nan")


def pair_kappas(judgments: Any, weights: str = "quadratic", *, pairs: int = 10) -> Any:
    """Weighted kappa of the pairs of assessors with most documents in common, as a DataFrame; the pair with most first.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        weights: linear or quadratic.
        pairs: how many pairs; they are sought among the 100 most active assessors.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "b", "b", "c", "c"], "assessor": ["x", "y"] * 3,
    ...                       "grade": [0, 0, 1, 1, 2, 1]})
    >>> pair_kappas(votes)
      assessor other  documents     kappa
    0        x     y          3  0.666667
    """
    require_one_of("weights", weights, WEIGHTS)
    table = as_judgments(judgments).on_main_scale()
    active = np.argsort(-np.bincount(table.assessor, minlength=table.n_assessors), kind="stable")[:_ACTIVE]
    answers = _answers_of(table, active)
    judged = (answers != UNJUDGEABLE).astype(np.float32)
    common = np.triu(judged.T @ judged, 1).astype(np.int64)
    best = np.argsort(-common.ravel(), kind="stable")[:pairs]
    best = best[common.ravel()[best] > 0]
    one, other = np.unravel_index(best, common.shape)
    kappas = [_kappa_of(answers[:, [a, b]], len(table.scale), weights) for a, b in zip(one, other, strict=True)]
    columns = {
        "assessor": table.assessors.take(pa.array(active[one])),
        "other": table.assessors.take(pa.array(active[other])),
        "documents": common[one, other],
        "kappa": pa.array(np.array(kappas, np.float64), from_pandas=True),
    }
    return frames.from_arrow(pa.table(columns), table.backend)


def _answers_of(table: Judgments, active: NDArray[np.int64]) -> NDArray[np.int8]:
    """The answers of some assessors side by side, (n_items, n_active); UNJUDGEABLE where there is none."""
    column = np.full(table.n_assessors, -1)
    column[active] = np.arange(len(active))
    mine = column[table.assessor] >= 0
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))[mine]
    answers = np.full((table.n_items, len(active)), UNJUDGEABLE, np.int8)
    answers[item, column[table.assessor[mine]]] = table.grade[mine]
    return answers


def _kappa_of(answers: NDArray[np.int8], n_grades: int, weights: str) -> float:
    both = answers[(answers != UNJUDGEABLE).all(axis=1)]
    return weighted_kappa(both[:, 0], both[:, 1], n_grades, weights)
