"""Typical variances of a comparison of two rankings, for plans without a pilot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crowdrank.errors import UsageError
from crowdrank.estimation.designs import DesignModel, DesignName
from crowdrank.evaluation.measures import Measure

LABELS = (1, 3, 10)
"""Numbers of labels per document of the typical values."""
TYPICAL_SHARES = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Shares of the documents that experts grade, of the typical values by document."""
TYPICAL_SOURCE = (
    "means of random pairs of systems of TREC DL20 with labels of LLM judges (`python -m experiments plan`); similar "
    "rankings have smaller ones"
)


@dataclass(frozen=True)
class TypicalValues:
    """Typical values of a measure.

    Attributes:
        sd: standard deviation of the difference of a query by the experts.
        kurtosis: kurtosis of the difference.
        documents: number of different first documents of both rankings.
        by_query: (n_labels,) share of the variance that labels do not explain.
        by_document: (n_labels, n_shares) share of the variance that labels do not explain at each share.
        draw_kurtosis: (n_shares,) kurtosis of the error of a draw at each share, with one label per document.

    """

    sd: float
    kurtosis: float
    documents: float
    by_query: Sequence[float]
    by_document: Sequence[Sequence[float]]
    draw_kurtosis: Sequence[float]


TYPICAL: dict[str, TypicalValues] = {
    "nDCG@5": TypicalValues(
        sd=0.252,
        kurtosis=3.66,
        documents=7.98,
        by_query=(0.94, 0.819, 0.814),
        by_document=(
            (0.785, 0.779, 0.754, 0.676, 0.15),
            (0.634, 0.628, 0.607, 0.541, 0.122),
            (0.615, 0.61, 0.589, 0.525, 0.115),
        ),
        draw_kurtosis=(40.4, 14.9, 5.98, 3.7, 14.7),
    ),
    "nDCG@10": TypicalValues(
        sd=0.214,
        kurtosis=3.54,
        documents=15.7,
        by_query=(0.905, 0.771, 0.769),
        by_document=(
            (0.456, 0.451, 0.434, 0.372, 0.0714),
            (0.365, 0.361, 0.346, 0.293, 0.0504),
            (0.36, 0.357, 0.342, 0.292, 0.0543),
        ),
        draw_kurtosis=(27.2, 10.6, 4.87, 3.47, 11.4),
    ),
    "nDCG@20": TypicalValues(
        sd=0.186,
        kurtosis=3.65,
        documents=30.1,
        by_query=(0.891, 0.747, 0.762),
        by_document=(
            (0.291, 0.287, 0.273, 0.221, 0.0432),
            (0.235, 0.232, 0.219, 0.174, 0.0276),
            (0.231, 0.228, 0.217, 0.175, 0.0346),
        ),
        draw_kurtosis=(18.6, 7.87, 4.19, 3.32, 9.08),
    ),
    "P@10": TypicalValues(
        sd=0.219,
        kurtosis=3.72,
        documents=15.7,
        by_query=(0.878, 0.745, 0.83),
        by_document=(
            (0.442, 0.44, 0.433, 0.405, 0.0617),
            (0.388, 0.386, 0.38, 0.355, 0.0514),
            (0.361, 0.36, 0.354, 0.331, 0.0476),
        ),
        draw_kurtosis=(15.1, 6.87, 3.99, 3.21, 11),
    ),
}
"""Typical values by measure."""


def typical_designs(measure: Measure) -> list[DesignModel]:
    """Return the designs of typical values with one label per document."""
    values = _typical_values(measure)
    variance = values.sd**2

    def make_model(
        name: DesignName, shares: Sequence[float], unexplained: Sequence[float], kurtosis: Sequence[float]
    ) -> DesignModel:
        return DesignModel(
            name=name,
            documents_per_query=values.documents,
            query_variance=variance,
            query_kurtosis=values.kurtosis,
            shares=np.array(shares),
            grade_variances=variance * np.array(unexplained),
            grade_kurtoses=np.array(kurtosis),
        )

    return [
        make_model("experts", [1.0], [1.0], [1.0]),
        make_model("query", [1.0], [values.by_query[0]], [1.0]),
        make_model("document", TYPICAL_SHARES, values.by_document[0], values.draw_kurtosis),
    ]


def label_factor(measure: Measure, design: DesignName, n_labels: int, n_before: int) -> float:
    """Return the typical variance that labels do not explain, relative to that of another number of labels.

    Between the known numbers of labels, it is linear in 1 / n. Measures without typical values have those of nDCG@10.
    """
    if design == "experts" or n_labels == n_before:
        return 1.0
    values = TYPICAL.get(str(measure), TYPICAL["nDCG@10"])
    unexplained = values.by_query if design == "query" else [float(np.mean(row)) for row in values.by_document]
    inverse = 1 / np.array(LABELS[::-1])
    now, before = (np.interp(1 / n, inverse, list(unexplained)[::-1]) for n in (n_labels, n_before))
    return float(now / before)


def _typical_values(measure: Measure) -> TypicalValues:
    if str(measure) not in TYPICAL:
        problem = f"has no typical values; they are known of {', '.join(TYPICAL)}"
        fix = "give a pilot: two rankings, labels and expert grades"
        raise UsageError(problem, parameter="measure", kind="measure-not-typical", fix=fix)
    return TYPICAL[str(measure)]
