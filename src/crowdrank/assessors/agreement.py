"""Agreement of assessors with each other (Krippendorff's alpha, kappa of pairs), and their accuracy on honeypots."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from crowdrank._estimator import require_integer, require_one_of
from crowdrank._text import counted, enumerate_names
from crowdrank._typing import Floats, Grades, Integers
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, Message, shown
from crowdrank.judgments import frames
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments

MIN_COPY_AGREEMENT, MIN_COPY_DOCUMENTS = 0.99, 50
"""Minimum share of equal answers and kappa, and minimum number of shared documents, of assessors who may be copies."""
MAX_LISTED_COPIES, MAX_NAMED_COPIES = 3, 8
"""Maximum number of groups of copies that a warning lists, and of assessors of a group that it names."""
MAX_PATTERN_LENGTH = 500
"""Maximum number of characters of the regular expression for families that a warning about copies suggests."""
LEVEL_CONSTRAINTS = [Number(0, 1, above=True, below=True)]
"""Valid values of the parameter `level` of intervals."""


def wilson(successes: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return lower and upper ends of Wilson's intervals of the proportions successes / n; NaN if n is 0.

    >>> low, high = wilson([8, 0], [10, 0])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.49, nan], [0.943, nan])
    """
    from scipy.special import ndtri

    check_parameter("level", level, LEVEL_CONSTRAINTS)
    hits, trials = np.asarray(successes, np.float64), np.asarray(n, np.float64)
    z2 = float(ndtri((1 + level) / 2)) ** 2
    n_trials = np.where(trials > 0, trials, np.nan)
    share = hits / n_trials
    center = (share + z2 / (2 * n_trials)) / (1 + z2 / n_trials)
    margin = np.sqrt(z2 * (share * (1 - share) / n_trials + z2 / (4 * n_trials**2))) / (1 + z2 / n_trials)
    lower, upper = np.maximum(center - margin, 0.0), np.minimum(center + margin, 1.0)
    return np.where(hits == 0, np.minimum(lower, 0.0), lower), np.where(hits == trials, np.maximum(upper, 1.0), upper)


def accuracy(judgments: Judgments, true_grade: Grades, level: float = 0.95) -> dict[str, NDArray[np.generic]]:
    """Return per assessor the accuracy on documents with a known grade.

    Args:
        judgments: judgments on one scale.
        true_grade: (n,) code of the true grade of each judgment's document; NO_HONEYPOT if it is not known.
        level: level of the intervals.

    Returns:
        Arrays (n_assessors,): `asked` (number of judgments with a known grade), `right` (number of correct ones),
        `share`, and the ends of its Wilson interval `lower` and `upper`.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 2]}))
    >>> accuracy(table, np.array([0, NO_HONEYPOT], np.int8))["share"].tolist()
    [1.0]
    """
    known = true_grade != NO_HONEYPOT
    correct = known & (judgments.grade == true_grade)
    asked, right = (np.bincount(judgments.assessor[rows], minlength=judgments.n_assessors) for rows in (known, correct))
    share = np.divide(right, asked, out=np.full(len(asked), np.nan), where=asked > 0)
    lower, upper = wilson(right, asked, level)
    return {"asked": asked, "right": right, "share": share, "lower": lower, "upper": upper}


def honeypot_accuracy(judgments: Judgments, level: float = 0.95) -> dict[str, NDArray[np.generic]]:
    """Return the accuracy of each assessor on honeypots, as :func:`accuracy` does.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"],
    ...                                      "grade": [2, 0, 1], "honeypot": [2, 2, None]}))
    >>> counts = honeypot_accuracy(table)
    >>> counts["asked"].tolist(), counts["right"].tolist()
    ([1, 1], [1, 0])
    """
    no_honeypots = np.full(len(judgments), NO_HONEYPOT, np.int8)
    return accuracy(judgments, judgments.extras.get("honeypot", no_honeypots), level)


METRICS = ("nominal", "ordinal", "interval")
WEIGHTS = ("linear", "quadratic")
MAX_DENSE_CELLS = 1 << 22
"""Maximum number of cells (grades of assessors times documents) below which tables are counted without SciPy."""
MAX_ASSESSORS = 200
"""Maximum number of assessors whose pairs are compared: the most active ones."""
MIN_SHARED_DOCUMENTS = 10
"""Default minimum number of documents that a pair of assessors has in common."""
_MAX_BLOCK_VALUES = 2**22
"""Maximum number of values of a block of bootstrap samples."""


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's alpha with its interval: 1 is perfect agreement, 0 agreement by chance, NaN if not defined.

    Attributes:
        value: alpha.
        lower: lower end of the interval.
        upper: upper end of the interval.
        metric: nominal, ordinal or interval.
        level: level of the interval.
        documents: number of documents with at least two judgments.

    >>> print(Alpha(0.743, 0.5, 0.9, "nominal", 0.95, 11))
    Krippendorff's alpha (nominal) 0.743, 95% interval 0.500 to 0.900, 11 documents with several judgments

    """

    value: float
    lower: float
    upper: float
    metric: str
    level: float
    documents: int

    def __str__(self) -> str:
        documents = f"{counted(self.documents, 'document')} with several judgments"
        if np.isnan(self.value):
            reason = (
                f"all judgments of {documents} are equal" if self.documents else "no document has several judgments"
            )
            return f"Krippendorff's alpha ({self.metric}) is not defined: {reason}"
        interval = f"{self.level:.0%} interval {self.lower:.3f} to {self.upper:.3f}"
        return f"Krippendorff's alpha ({self.metric}) {self.value:.3f}, {interval}, {documents}"


def krippendorff_alpha(
    judgments: Any, metric: str = "ordinal", *, level: float = 0.95, resamples: int = 1000, random_state: int = 0
) -> Alpha:
    """Return Krippendorff's alpha with a bootstrap interval over documents.

    Documents may have any number of judgments; 'cannot judge' answers count as missing.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        metric: distance of two grades: nominal, ordinal, or interval (by the values of the grades).
        level: level of the interval.
        resamples: number of bootstrap samples.
        random_state: seed of the bootstrap.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "b", "b", "c", "c"], "assessor": ["x", "y"] * 3,
    ...                       "grade": [0, 0, 1, 1, 2, 1]})
    >>> round(krippendorff_alpha(votes).value, 3)
    0.778
    """
    check_parameter("level", level, LEVEL_CONSTRAINTS)
    require_integer("resamples", resamples, 1)
    require_one_of("metric", metric, METRICS)
    table = as_judgments(judgments).to_main_scale()
    patterns, n_documents = _vote_patterns(table)
    values, total = np.array(table.scale.values), int(n_documents.sum())
    if not total:
        return Alpha(np.nan, np.nan, np.nan, metric, level, 0)
    coincidences = pattern_coincidences(patterns)
    value = float(alpha_from_coincidences(_weighted_sum(n_documents[None], coincidences), values, metric)[0])
    rng, block = np.random.default_rng(random_state), max(1, _MAX_BLOCK_VALUES // len(patterns))
    samples = []
    for start in range(0, resamples, block):
        drawn = rng.multinomial(total, n_documents / total, min(block, resamples - start))
        samples.append(alpha_from_coincidences(_weighted_sum(drawn, coincidences), values, metric))
    sample = np.concatenate(samples)
    sample = sample[np.isfinite(sample)]
    tail = (1 - level) / 2
    lower, upper = np.quantile(sample, [tail, 1 - tail]) if len(sample) and not np.isnan(value) else (np.nan, np.nan)
    return Alpha(value, float(lower), float(upper), metric, level, total)


def _vote_patterns(table: Judgments) -> tuple[Integers, Integers]:
    """Return the distinct rows of grade counts of documents with several judgments, and how often each occurs.

    Documents with equal counts are equivalent, so that the bootstrap draws patterns instead of documents.
    """
    votes = table.vote_counts()
    patterns, n_documents = np.unique(votes[votes.sum(axis=1) > 1], axis=0, return_counts=True)
    return patterns, n_documents


def pattern_coincidences(grade_counts: Integers) -> Floats:
    """Return the coincidence matrix of each document (n, n_grades, n_grades) from its grade counts (n, n_grades).

    >>> pattern_coincidences(np.array([[1, 2]])).tolist()
    [[[0.0, 1.0], [1.0, 1.0]]]
    """
    n_judgments = grade_counts.sum(axis=1)
    pairs = grade_counts[:, :, None] * grade_counts[:, None, :] - grade_counts[:, :, None] * np.eye(
        grade_counts.shape[1], dtype=np.int64
    )
    return np.asarray(pairs / np.maximum(n_judgments - 1, 1)[:, None, None])


def _weighted_sum(weights: Integers, coincidences: Floats) -> Floats:
    size = coincidences.shape[1]
    total: Floats = (weights.astype(np.float64) @ coincidences.reshape(len(coincidences), -1)).reshape(-1, size, size)
    return total


def alpha_from_coincidences(coincidences: Floats, values: Floats, metric: str = "ordinal") -> Floats:
    """Return alpha of coincidence matrices (n, n_grades, n_grades); NaN if only one grade occurs.

    >>> alpha_from_coincidences(np.array([[[4.0, 0.0], [0.0, 4.0]]]), np.array([0.0, 1.0])).tolist()
    [1.0]
    """
    margin = coincidences.sum(axis=2)
    distance = squared_distances(margin, values, metric)
    observed = (coincidences * distance).sum(axis=(1, 2))
    expected = np.einsum("nc,nk,nck->n", margin, margin, distance) / np.maximum(margin.sum(axis=1) - 1, 1.0)
    return np.asarray(1 - np.divide(observed, expected, out=np.full(len(observed), np.nan), where=expected > 0))


def squared_distances(grade_counts: Floats, values: Floats, metric: str) -> Floats:
    """Return the squared distance of each two grades by a metric, (n, n_grades, n_grades).

    The ordinal metric depends on how often each grade occurs: `grade_counts`, (n, n_grades).

    >>> squared_distances(np.array([[2.0, 2.0, 2.0]]), np.array([0.0, 1.0, 2.0]), "ordinal")[0].tolist()
    [[0.0, 4.0, 16.0], [4.0, 0.0, 4.0], [16.0, 4.0, 0.0]]
    """
    if metric == "nominal":
        return np.broadcast_to(1 - np.eye(len(values)), (len(grade_counts), len(values), len(values)))
    # The ordinal distance is the number of judgments between the middles of two grades.
    position = (
        np.cumsum(grade_counts, axis=1) - grade_counts / 2
        if metric == "ordinal"
        else np.tile(values, (len(grade_counts), 1))
    )
    return np.asarray((position[:, :, None] - position[:, None, :]) ** 2)


def weighted_kappa(first: ArrayLike, second: ArrayLike, n_grades: int, weights: str = "quadratic") -> float:
    """Return Cohen's weighted kappa of the grades (codes) that two assessors gave the same documents.

    NaN if both gave a single grade to all documents.

    >>> weighted_kappa([0, 1, 2, 2], [0, 1, 1, 2], 3, "linear")
    0.7142857142857143
    """
    require_one_of("weights", weights, WEIGHTS)
    cells = np.asarray(first, np.int64) * n_grades + np.asarray(second, np.int64)
    counts = np.bincount(cells, minlength=n_grades**2).reshape(1, n_grades, n_grades)
    return float(weighted_kappas(counts, weights)[0])


def weighted_kappas(counts: Integers, weights: str) -> Floats:
    """Return the weighted kappa of each contingency table (n, n_grades, n_grades)."""
    code = np.arange(counts.shape[1])
    distance = np.abs(code[:, None] - code).astype(np.float64) ** (1 if weights == "linear" else 2)
    observed = (counts * distance).sum(axis=(1, 2)) * counts.sum(axis=(1, 2))
    expected = np.einsum("nc,nk,ck->n", counts.sum(axis=2), counts.sum(axis=1), distance)
    return np.asarray(1 - np.divide(observed, expected, out=np.full(len(counts), np.nan), where=expected > 0))


def pairwise_agreement(judgments: Any, weights: str = "quadratic", *, min_documents: int = MIN_SHARED_DOCUMENTS) -> Any:
    """Return the agreement of each pair of assessors on the documents that both judged, as a DataFrame.

    Pairs of the 200 most active assessors are compared; grades on several scales are mapped to the longest one.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        weights: weights of kappa: linear or quadratic.
        min_documents: minimum number of shared documents.

    Returns:
        Columns `assessor`, `other`, `documents` (number of shared documents), `agreement` (share of equal answers),
        `difference` (mean answer of the assessor minus that of the other, in grades) and `kappa`; the pairs with most
        shared documents first.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "b", "b", "c", "c"], "assessor": ["x", "y"] * 3,
    ...                       "grade": [0, 0, 1, 1, 2, 1]})
    >>> pairwise_agreement(votes, min_documents=1).round(2)
      assessor other  documents  agreement  difference  kappa
    0        x     y          3       0.67        0.33   0.67
    """
    table = as_judgments(judgments)
    return frames.from_arrow(agreement_table(table, weights, min_documents=min_documents), table.backend)


def agreement_table(
    judgments: Judgments, weights: str = "quadratic", *, min_documents: int = MIN_SHARED_DOCUMENTS
) -> pa.Table:
    """Return :func:`pairwise_agreement` as an Arrow table."""
    require_one_of("weights", weights, WEIGHTS)
    require_integer("min_documents", min_documents, 1)
    table = judgments.to_main_scale()
    one, other, tables = _pair_tables(table, min_documents)
    n_documents, code = tables.sum(axis=(1, 2)), np.arange(len(table.scale))
    columns = {
        "assessor": table.assessors.take(pa.array(one)),
        "other": table.assessors.take(pa.array(other)),
        "documents": n_documents,
        "agreement": np.trace(tables, axis1=1, axis2=2) / n_documents,
        "difference": (tables * (code[:, None] - code)).sum(axis=(1, 2)) / n_documents,
        "kappa": pa.array(weighted_kappas(tables, weights), from_pandas=True),
    }
    return pa.table(columns)


def _pair_tables(table: Judgments, min_documents: int) -> tuple[Integers, Integers, Integers]:
    """Return the codes of two assessors and their contingency table, for pairs with enough documents, most first."""
    active = np.argsort(-np.bincount(table.assessor, minlength=table.n_assessors), kind="stable")[:MAX_ASSESSORS]
    counts = _pair_contingency_tables(table, active)
    one, other = np.triu_indices(len(active), 1)
    n_documents = counts[one, other].sum(axis=(1, 2))
    order = np.argsort(-n_documents, kind="stable")
    order = order[n_documents[order] >= min_documents]
    return active[one[order]], active[other[order]], counts[one[order], other[order]]


def _may_have_copies(judgments: Judgments) -> bool:
    """Return whether two assessors agree as often as copies do; without the libraries that a table needs."""
    tables = _pair_tables(judgments.to_main_scale(), MIN_COPY_DOCUMENTS)[2]
    return bool((np.trace(tables, axis1=1, axis2=2) >= MIN_COPY_AGREEMENT * tables.sum(axis=(1, 2))).any())


def copy_groups(judgments: Judgments, pairs: pa.Table | None = None) -> list[list[dict[str, Any]]]:
    """Return groups of assessors of different families whose answers are all or nearly all equal.

    Args:
        judgments: the judgments.
        pairs: table of :func:`agreement_table`, by default of these judgments.

    Returns:
        The rows of `pairs` of each group.

    """
    if judgments.n_items < MIN_COPY_DOCUMENTS or judgments.n_assessors < 2:
        return []
    if pairs is None and not _may_have_copies(judgments):
        return []
    names = judgments.assessors.to_pylist()
    code = {name: number for number, name in enumerate(names)}
    family = judgments.family_of
    copies = [
        pair
        for pair in (agreement_table(judgments) if pairs is None else pairs).to_pylist()
        if pair["documents"] >= MIN_COPY_DOCUMENTS
        and pair["agreement"] >= MIN_COPY_AGREEMENT
        and (pair["kappa"] or 0.0) >= MIN_COPY_AGREEMENT  # equal answers to equal documents are no copies
        and family[code[pair["assessor"]]] != family[code[pair["other"]]]
    ]
    if not copies:
        return []
    ends = np.array([(code[pair["assessor"]], code[pair["other"]]) for pair in copies]).T
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(copies)), (ends[0], ends[1])), (len(names), len(names)))
    group_of = connected_components(graph, directed=False)[1]
    groups: dict[int, list[dict[str, Any]]] = {}
    for pair in copies:
        groups.setdefault(int(group_of[code[pair["assessor"]]]), []).append(pair)
    return list(groups.values())


def copies_warning(judgments: Judgments, pairs: pa.Table | None = None) -> Message | None:
    """Return a warning about :func:`copy_groups`, or None if there are none."""
    groups = copy_groups(judgments, pairs)
    if not groups:
        return None
    listed = "; ".join(_describe_copies(group) for group in groups[:MAX_LISTED_COPIES])
    more = f"; and {len(groups) - MAX_LISTED_COPIES:,} more" if len(groups) > MAX_LISTED_COPIES else ""
    problem = f"Assessors gave the same answers and may be copies, which count twice and look too good: {listed}{more}"
    if judgments.families is None:
        put = "if they err together, put them into one family with a column family or {}"
        fix = Fix(put, "family_pattern", _pattern_of_copies(groups))
    else:
        fix = Fix("if they err together, put them into one family in the column family")
    return Message(problem, "copies", "warning", fixes=(Fix("ask whether they worked together"), fix))


def copy_names(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the assessors of a group of copies, sorted."""
    return sorted({str(pair[role]) for pair in group for role in ("assessor", "other")})


def _pattern_of_copies(groups: Sequence[Sequence[Mapping[str, Any]]]) -> str | None:
    """Return a family pattern that puts each group into one family, or None if it would be very long."""
    named = [
        f"(?P<copies_{number}>{'|'.join(map(re.escape, copy_names(group)))})"
        for number, group in enumerate(groups, start=1)
    ]
    pattern = f"(?:{'|'.join(named)})$" if len(named) > 1 else f"{named[0]}$"
    return pattern if len(pattern) <= MAX_PATTERN_LENGTH else None


def _describe_copies(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return the names of a group of copies, with their lowest agreement and kappa."""
    names = copy_names(pairs)
    lowest, kappa = min(pair["agreement"] for pair in pairs), min(pair["kappa"] for pair in pairs)
    n_documents = counted(min(pair["documents"] for pair in pairs), "document")
    # Rounded down: only equal answers are 100%.
    share = "all" if lowest == 1 else f"{math.floor(1000 * lowest) / 10:.1f}%"
    shown_names = [shown(name) for name in names[:MAX_NAMED_COPIES]]
    shown_names += [f"{len(names) - MAX_NAMED_COPIES:,} more"] * (len(names) > MAX_NAMED_COPIES)
    return (
        f"{enumerate_names(shown_names)} ({share} of {n_documents}, kappa {math.floor(100 * kappa + 1e-9) / 100:.2f})"
    )


def _pair_contingency_tables(table: Judgments, active: Integers) -> Integers:
    """Return the contingency table of the grades of each two assessors, (n_active, n_active, n_grades, n_grades)."""
    n_grades, position = len(table.scale), np.full(table.n_assessors, -1)
    position[active] = np.arange(len(active))
    used = (position[table.assessor] >= 0) & (table.grade != UNJUDGEABLE)
    item = table.item[used]
    answer = position[table.assessor[used]] * n_grades + table.grade[used]
    shape = len(active) * n_grades, table.n_items
    if shape[0] * shape[1] <= MAX_DENSE_CELLS:
        dense = np.bincount(answer * shape[1] + item, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float32)
        counts = np.rint(dense @ dense.T).astype(np.int64)  # exact below 2^24 documents
    else:
        from scipy.sparse import csr_array

        indicator = csr_array((np.ones(len(item), np.int64), (answer, item)), shape)
        counts = (indicator @ indicator.T).toarray()
    return np.asarray(counts.reshape(len(active), n_grades, len(active), n_grades).transpose(0, 2, 1, 3))
