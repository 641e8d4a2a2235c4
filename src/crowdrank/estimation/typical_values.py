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
        documents: number of different first documents of both rankings.
        by_query: (n_labels,) share of the variance that labels do not explain.
        by_document: (n_labels, n_shares) share of the variance that labels do not explain at each share.

    """

    sd: float
    documents: float
    by_query: Sequence[float]
    by_document: Sequence[Sequence[float]]


TYPICAL: dict[str, TypicalValues] = {
    "nDCG@5": TypicalValues(
        sd=0.247,
        documents=7.91,
        by_query=(0.942, 0.849, 0.828),
        by_document=(
            (0.807, 0.801, 0.777, 0.704, 0.204),
            (0.656, 0.651, 0.631, 0.569, 0.167),
            (0.701, 0.695, 0.673, 0.604, 0.172),
        ),
    ),
    "nDCG@10": TypicalValues(
        sd=0.209,
        documents=15.5,
        by_query=(0.894, 0.786, 0.766),
        by_document=(
            (0.471, 0.467, 0.45, 0.39, 0.0964),
            (0.38, 0.376, 0.361, 0.31, 0.0722),
            (0.413, 0.409, 0.393, 0.339, 0.0797),
        ),
    ),
    "nDCG@20": TypicalValues(
        sd=0.182,
        documents=29.9,
        by_query=(0.868, 0.754, 0.77),
        by_document=(
            (0.301, 0.297, 0.284, 0.234, 0.0587),
            (0.245, 0.242, 0.23, 0.186, 0.039),
            (0.261, 0.258, 0.246, 0.201, 0.0508),
        ),
    ),
    "P@10": TypicalValues(
        sd=0.214,
        documents=15.5,
        by_query=(0.882, 0.757, 0.834),
        by_document=(
            (0.483, 0.481, 0.475, 0.452, 0.0785),
            (0.412, 0.41, 0.405, 0.384, 0.0659),
            (0.439, 0.437, 0.432, 0.411, 0.0692),
        ),
    ),
}
"""Typical values by measure."""


def typical_designs(measure: Measure) -> list[DesignModel]:
    """Return the designs of typical values with one label per document."""
    values = _typical_values(measure)
    variance = values.sd**2

    def make_model(name: DesignName, shares: Sequence[float], unexplained: Sequence[float]) -> DesignModel:
        return DesignModel(
            name=name,
            documents_per_query=values.documents,
            query_variance=variance,
            shares=np.array(shares),
            grade_variances=variance * np.array(unexplained),
        )

    return [
        make_model("experts", [1.0], [1.0]),
        make_model("query", [1.0], [values.by_query[0]]),
        make_model("document", TYPICAL_SHARES, values.by_document[0]),
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
