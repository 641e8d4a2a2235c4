"""What learned functions say of labels: a target and a weight each, and together per document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.judgments import frames
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.rankers.instances import Instances
from crowdrank.rankers.labels import Labels

TAIL = 0.005
"""This part of the documents at either end does not stretch the scale of targets."""


@dataclass(frozen=True, eq=False)
class Remapped:
    """Labels with a learned target and weight each.

    Attributes:
        labels: what is known of the labels.
        target, weight: (n_labels,).

    """

    labels: LabelFeatures
    target: Floats
    weight: Floats

    def __repr__(self) -> str:
        documents = counted(self.labels.judgments.n_items, "document")
        return f"<Remapped: {counted(len(self.target), 'label')} of {documents}>"

    @property
    def frame(self) -> Any:
        """Query, document, assessor, grade, target and weight of every label as a DataFrame."""
        told = self.labels.judgments.to_arrow().select(["query", "document", "assessor", "grade"])
        told = told.append_column("target", pa.array(self.target)).append_column("weight", pa.array(self.weight))
        return frames.from_arrow(told, self.labels.judgments.backend)

    def by_feature(self, points: int = 10) -> pa.Table:
        """The mean target and weight in up to `points` groups of labels by each feature's value (REMAP Figures 2-3).

        feature, value (the group's mean, null where the feature is not known), labels, target, weight

        >>> import pandas as pd, crowdrank
        >>> labels = crowdrank.read_judgments(pd.DataFrame(
        ...     {"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 0, 0]}))
        >>> told = LabelFeatures.of(labels, {"hour": [9, 23, 9]})
        >>> Remapped(told, np.array([1.0, 0.0, 0.5]), np.ones(3)).by_feature().to_pylist()[0]
        {'feature': 'hour', 'value': 9.0, 'labels': 2, 'target': 0.75, 'weight': 1.0}
        """
        rows = []
        for name in self.labels.names:
            column = self.labels.column(name)
            for group in groups(column, points):
                middle = float(column[group].mean())
                rows.append(
                    {
                        "feature": name,
                        "value": None if np.isnan(middle) else middle,
                        "labels": len(group),
                        "target": float(self.target[group].mean()),
                        "weight": float(self.weight[group].mean()),
                    }
                )
        return pa.Table.from_pylist(rows)

    def folded(self) -> tuple[Floats, Floats]:
        """Each document's target (the weighted mean of its labels') and weight (their sum)."""
        starts = self.labels.judgments.offsets[:-1]
        weight = np.add.reduceat(self.weight, starts)
        return np.add.reduceat(self.weight * self.target, starts) / weight, weight

    def rescaled(self) -> tuple[Floats, Floats]:
        """As `folded`, with targets as parts of their own range (but for the farthest at either end); weights mean 1.

        So any gains and any ranker can take them.
        """
        return rescaled(*self.folded())

    @property
    def documents(self) -> Any:
        """Query, document, target, weight and the number of labels of every document as a DataFrame."""
        table = self.labels.judgments
        target, weight = self.folded()
        told = {
            "query": table.queries.take(pa.array(table.item_query)),
            "document": table.documents.take(pa.array(table.item_document)),
            "target": target,
            "weight": weight,
            "labels": np.diff(table.offsets),
        }
        return frames.from_arrow(pa.table(told), table.backend)

    def instances(self, features: Any, *, rescale: bool = True, missing: str = "warn") -> Instances:
        """Rows that any ranker learns from: `ranker.fit(**remapped.instances(features).arguments)`.

        Args:
            features: `Features`, a path or a DataFrame.
            rescale: targets from 0 to 1 and weights of mean 1 (`rescaled`), else as they were learned.
            missing: documents without features: `warn`, `skip` or `error`.

        """
        table = self.labels.judgments
        target, weight = self.rescaled() if rescale else self.folded()
        told = Labels(
            table.queries.take(pa.array(table.item_query)),
            table.documents.take(pa.array(table.item_document)),
            target,
            source="the remapped labels",
        )
        return Instances.from_labels(told, features, target="relevance", weights=weight, missing=missing)


def rescaled(target: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Documents' targets as parts of their own range (but for the farthest at either end); weights of mean 1.

    >>> target, weight = rescaled(np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    >>> target.round(2).tolist(), weight.tolist()
    ([0.0, 0.5, 1.0], [0.5, 1.0, 1.5])
    """
    low, high = np.quantile(target, [TAIL, 1 - TAIL])
    parts = np.clip((target - low) / (high - low), 0, 1) if high > low else np.zeros(len(target))
    return parts, weight / weight.mean()


def groups(column: Floats, points: int) -> list[Any]:
    """Labels in groups by the value of a feature: one for each value where there are few, else of about one size."""
    values = np.unique(column[~np.isnan(column)])
    edges = values if len(values) <= points else np.unique(np.nanquantile(column, np.arange(1, points + 1) / points))
    place = np.searchsorted(edges, column)
    groups = [np.flatnonzero((place == number) & ~np.isnan(column)) for number in range(len(edges))]
    return [group for group in [*groups, np.flatnonzero(np.isnan(column))] if len(group)]
