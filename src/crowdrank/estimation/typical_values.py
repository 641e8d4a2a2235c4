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
        by_query=(0.927, 0.823, 0.81),
        by_document=(
            (0.778, 0.772, 0.746, 0.667, 0.142),
            (0.631, 0.626, 0.604, 0.536, 0.114),
            (0.611, 0.606, 0.585, 0.519, 0.107),
        ),
    ),
    "nDCG@10": TypicalValues(
        sd=0.209,
        documents=15.5,
        by_query=(0.902, 0.776, 0.766),
        by_document=(
            (0.457, 0.452, 0.435, 0.372, 0.0714),
            (0.366, 0.362, 0.347, 0.293, 0.051),
            (0.364, 0.361, 0.346, 0.295, 0.0532),
        ),
    ),
    "nDCG@20": TypicalValues(
        sd=0.182,
        documents=29.9,
        by_query=(0.892, 0.759, 0.766),
        by_document=(
            (0.292, 0.288, 0.275, 0.223, 0.0467),
            (0.236, 0.233, 0.221, 0.176, 0.0287),
            (0.233, 0.23, 0.219, 0.177, 0.0374),
        ),
    ),
    "P@10": TypicalValues(
        sd=0.214,
        documents=15.5,
        by_query=(0.879, 0.747, 0.837),
        by_document=(
            (0.45, 0.448, 0.44, 0.411, 0.0639),
            (0.397, 0.395, 0.389, 0.362, 0.0519),
            (0.366, 0.365, 0.359, 0.335, 0.0481),
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
