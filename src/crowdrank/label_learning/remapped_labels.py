"""Labels with learned targets and weights, per label and per document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.judgments import frames
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.rankers.training_labels import LEARNED_FOR, Instances, Labels

RANKER_NAME = "gls"
"""Name of the ranker for which targets and weights are learned."""
CLIPPED_SHARE = 0.005
"""Share of the documents at either end of the targets whose targets are clipped when targets are rescaled."""


@dataclass(frozen=True, eq=False)
class RemappedLabels:
    """Labels with a learned target and weight each.

    Attributes:
        labels: the labels and their features.
        target, weight: (n_labels,).

    """

    labels: LabelFeatures
    target: Floats
    weight: Floats

    def __repr__(self) -> str:
        documents = counted(self.labels.judgments.n_items, "document")
        return f"<RemappedLabels: {counted(len(self.target), 'label')} of {documents}>"

    @property
    def table(self) -> pa.Table:
        """One row per label: query, document, assessor, grade, target and weight."""
        ids = self.labels.judgments.to_arrow().select(["query", "document", "assessor", "grade"])
        return ids.append_column("target", pa.array(self.target)).append_column("weight", pa.array(self.weight))

    @property
    def frame(self) -> Any:
        """The same table as a DataFrame of the judgments' library."""
        return frames.from_arrow(self.table, self.labels.judgments.backend)

    @property
    def document_table(self) -> pa.Table:
        """Query, document, target, weight and number of labels of every document."""
        judgments = self.labels.judgments
        target, weight = self.by_document()
        columns = {
            "query": judgments.queries.take(pa.array(judgments.item_query)),
            "document": judgments.documents.take(pa.array(judgments.item_document)),
            "target": target,
            "weight": weight,
            "labels": np.diff(judgments.offsets),
        }
        return pa.table(columns)

    @property
    def documents(self) -> Any:
        """The same table as a DataFrame of the judgments' library."""
        return frames.from_arrow(self.document_table, self.labels.judgments.backend)

    @property
    def training_table(self) -> pa.Table:
        """Training rows of documents as `train` reads them.

        The columns are query, document, relevance (rescaled target), weight (of mean 1), number of labels, and the name
        of the ranker for which targets and weights were learned.
        """
        target, weight = self.rescaled()
        table = self.document_table
        columns = {"query": table["query"], "document": table["document"], "relevance": target, "weight": weight}
        learned_for = pa.DictionaryArray.from_arrays(np.zeros(len(target), np.int32), [RANKER_NAME])
        return pa.table({**columns, "labels": table["labels"], LEARNED_FOR: learned_for})

    def by_feature(self, points: int = 10) -> pa.Table:
        """Return mean target and weight by the value of each label feature, in up to `points` groups (REMAP Fig. 2-3).

        Returns:
            Table of feature, value (mean of the group, null for missing values), labels, target, weight.

        >>> import pandas as pd, crowdrank
        >>> labels = crowdrank.read_judgments(pd.DataFrame(
        ...     {"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 0, 0]}))
        >>> features = LabelFeatures.of(labels, {"hour": [9, 23, 9]})
        >>> RemappedLabels(features, np.array([1.0, 0.0, 0.5]), np.ones(3)).by_feature().to_pylist()[0]
        {'feature': 'hour', 'value': 9.0, 'labels': 2, 'target': 0.75, 'weight': 1.0}

        """
        rows = []
        for name in self.labels.names:
            column = self.labels.column(name)
            for group in group_by_value(column, points):
                mean = float(column[group].mean())
                rows.append(
                    {
                        "feature": name,
                        "value": None if np.isnan(mean) else mean,
                        "labels": len(group),
                        "target": float(self.target[group].mean()),
                        "weight": float(self.weight[group].mean()),
                    }
                )
        return pa.Table.from_pylist(rows)

    def by_document(self) -> tuple[Floats, Floats]:
        """Return the target (weighted mean over labels) and the weight (sum) of each document."""
        starts = self.labels.judgments.offsets[:-1]
        weight = np.add.reduceat(self.weight, starts)
        return np.add.reduceat(self.weight * self.target, starts) / weight, weight

    def rescaled(self) -> tuple[Floats, Floats]:
        """Return targets and weights of documents on scales that any ranker accepts; see :func:`rescale_labels`."""
        return rescale_labels(*self.by_document())

    def instances(self, features: Any, *, rescale: bool = True, missing: str = "warn") -> Instances:
        """Return training rows for any ranker: `ranker.fit(**remapped.instances(features).arguments)`.

        Args:
            features: `Features`, a path or a DataFrame.
            rescale: targets from 0 to 1 and weights of mean 1 (`rescale_labels`); otherwise as they were learned.
            missing: documents without features: `warn`, `skip` or `error`.

        """
        target, weight = self.rescaled() if rescale else self.by_document()
        table = self.document_table
        query, document = (table[name].combine_chunks() for name in ("query", "document"))
        labels = Labels(query, document, target, source="the remapped labels")
        return Instances.from_labels(labels, features, target="relevance", weights=weight, missing=missing)


def rescale_labels(target: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Scale targets of documents to [0, 1], clipping outliers, and weights to mean 1.

    >>> target, weight = rescale_labels(np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    >>> target.round(2).tolist(), weight.tolist()
    ([0.0, 0.5, 1.0], [0.5, 1.0, 1.5])
    """
    low, high = np.quantile(target, [CLIPPED_SHARE, 1 - CLIPPED_SHARE])
    scaled = np.clip((target - low) / (high - low), 0, 1) if high > low else np.zeros(len(target))
    return scaled, weight / weight.mean()


def group_by_value(column: Floats, points: int) -> list[Integers]:
    """Return groups of rows by value: one per value if there are few, otherwise quantiles; missing values last.

    >>> [group.tolist() for group in group_by_value(np.array([2.0, 1.0, np.nan, 2.0]), 10)]
    [[1], [0, 3], [2]]
    """
    missing = np.isnan(column)
    values = np.unique(column[~missing])
    edges = values if len(values) <= points else np.unique(np.nanquantile(column, np.arange(1, points + 1) / points))
    place = np.searchsorted(edges, column)
    groups = [np.flatnonzero((place == number) & ~missing) for number in range(len(edges))]
    return [group for group in [*groups, np.flatnonzero(missing)] if len(group)]
