"""Interface of the library crowd-kit: task-worker-label frames in, pandas Series and DataFrames indexed by task out.

Code written for crowd-kit runs with one changed import. Labels may be of any type: whole numbers are grades in their
order, other labels are sorted by their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.result import grade_column
from crowdrank.errors import InputError
from crowdrank.judgments import frames
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.scale import parse_integer
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_gold, read_judgments

if TYPE_CHECKING:
    import pandas as pd

    from crowdrank.consensus.result import Consensus

TASK_COLUMNS = ("task", "worker", "label")
"""Columns of a DataFrame in the form of crowd-kit."""


class CrowdKitMethods:
    """Mixin with the methods and attributes of crowd-kit's aggregators, such as `fit_predict` and `labels_`."""

    _label_rule: ClassVar[str] = "mode"
    """Rule for labels; that of crowd-kit is the most probable label, whatever the rule for grades."""

    if TYPE_CHECKING:
        consensus_: Consensus
        history_: list[float]

        def fit(self, judgments: Any, gold: Any = None) -> Self: ...  # noqa: D102
        def infer(self, judgments: Any = None) -> Consensus: ...  # noqa: D102
        def _require_fitted(self) -> None: ...

    def predict(self, judgments: Any = None) -> pd.Series[Any]:
        """Return the most probable label of each document, by the fitted parameters of assessors.

        Args:
            judgments: judgments to predict from; by default those of the fit.

        """
        return label_series(self.infer(judgments), self._label_rule)

    def predict_proba(self, judgments: Any = None) -> pd.DataFrame:
        """Return P(true label), one row per document, by the fitted parameters of assessors.

        These are the columns true0, true1, ... of the consensus, or p0, p1, ... of a model without a true label.

        Args:
            judgments: judgments to predict from; by default those of the fit.

        """
        return label_probabilities(self.infer(judgments))

    def fit_predict(self, judgments: Any, gold: Any = None, **options: Any) -> pd.Series[Any]:
        """Fit the model and return the label of each document."""
        return self.fit(judgments, gold, **options).predict()

    def fit_predict_proba(self, judgments: Any, gold: Any = None, **options: Any) -> pd.DataFrame:
        """Fit the model and return the probability of each label per document."""
        return self.fit(judgments, gold, **options).predict_proba()

    @property
    def labels_(self) -> pd.Series[Any]:
        """The label of each document."""
        return self.predict()

    @property
    def probas_(self) -> pd.DataFrame:
        """The probability of each label per document."""
        return self.predict_proba()

    @property
    def loss_history_(self) -> list[float]:
        """Objective of the fit after each iteration (`history_`; higher is better)."""
        return self.history_

    def _assessor_series(self, column: str, name: str) -> pd.Series[Any]:
        """Return a column of the table of assessors as a Series indexed by worker."""
        self._require_fitted()
        return worker_series(self.consensus_, column, name)


def is_task_frame(value: Any) -> bool:
    """Return whether `value` is a DataFrame with the columns task, worker and label."""
    return frames.is_frame(value) and set(TASK_COLUMNS) <= set(frames.column_names(value))


def read_tasks(frame: Any, earlier: Judgments | None = None) -> Judgments:
    """Return judgments from a task-worker-label DataFrame.

    The scale is that of `earlier` judgments if their labels include all labels of the frame; otherwise it has the
    labels of the frame.
    """
    task, worker, label = (frames.column_to_arrow(frame, name) for name in TASK_COLUMNS)
    if not len(label):
        raise InputError("there are no rows", source="the frame", fix="give it some")
    if label.null_count:
        row = int(np.argmax(np.asarray(label.is_null())))
        raise InputError(
            "the label is missing",
            source="the frame",
            place=f"row {row + 1}",
            column="label",
            fix="fill it in, or leave the row out",
        )
    found = pc.unique(label).to_pylist()
    labels, grades = _order_labels(found)
    if earlier is not None and earlier.labels is not None and set(found) <= set(earlier.labels):
        labels, grades = list(earlier.labels), [int(value) for value in earlier.scale.values][: len(earlier.labels)]
    coded = pa.table({"task": task, "worker": worker, "label": _labels_to_grades(label, labels, grades)})
    # A scale has two grades at least, though a frame may hold one.
    judgments = read_judgments(coded, grades=grades if len(grades) > 1 else [*grades, grades[0] + 1])
    return replace(judgments, labels=tuple(labels), backend=frames.frame_library(frame))


def _order_labels(labels: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the labels from lowest to highest and the grade of each: its number, or its position."""
    numbers = [parse_integer(label) for label in labels]
    if all(number is not None for number in numbers) and len(set(numbers)) == len(numbers):
        pairs = sorted(zip(numbers, labels, strict=True), key=lambda pair: pair[0] or 0)
        return [label for _, label in pairs], [number for number, _ in pairs if number is not None]
    return sorted(labels, key=str), list(range(len(labels)))


def _labels_to_grades(column: pa.ChunkedArray, labels: list[Any], grades: Sequence[int]) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column
    place = pc.index_in(column, value_set=pa.array(labels, column.type))
    return pa.chunked_array(pa.array(grades).take(chunk) for chunk in place.chunks)


def read_true_labels(series: Any, judgments: Judgments) -> Gold:
    """Return expert grades from a Series of true labels indexed by task."""
    labels = judgments.labels or judgments.scale.names
    unknown = [label for label in series.unique() if label not in labels]
    if unknown:
        raise InputError(f"the true label {unknown[0]!r} is not among the labels {', '.join(map(repr, labels))}")
    grades = dict(zip(labels, judgments.scale.values, strict=False))
    table = pa.table({"document": pa.array(series.index), "grade": [int(grades[label]) for label in series]})
    return read_gold(table, grades=judgments.scale.names)


def label_series(consensus: Consensus, rule: str) -> pd.Series[Any]:
    """Return the label of each task, chosen from P(true label) by a rule: `median`, `mode` or `mean`."""
    import pandas as pd

    consensus.require_grades()
    shares = np.column_stack([consensus.document_table[name] for name in consensus.true_share_names])
    labels = grade_column(choose_grades(shares, rule), consensus.labels).to_pandas().to_numpy()
    return pd.Series(labels, index=_task_index(consensus), name="agg_label")


def label_probabilities(consensus: Consensus) -> pd.DataFrame:
    """Return P(true label) as a DataFrame: one row per task, one column per label."""
    import pandas as pd

    consensus.require_grades()
    shares = consensus.true_share_names[: len(consensus.labels)]
    values = np.column_stack([consensus.document_table[name] for name in shares])
    return pd.DataFrame(values, index=_task_index(consensus), columns=pd.Index(consensus.labels, name="label"))


def worker_series(consensus: Consensus, column: str, name: str) -> pd.Series[Any]:
    """Return a column of the table of assessors, indexed by worker."""
    import pandas as pd

    workers = pd.Index(consensus.assessor_table["assessor"].to_pandas(), name="worker")
    return pd.Series(consensus.assessor_table[column].to_numpy(), index=workers, name=name)


def _task_index(consensus: Consensus) -> Any:
    import pandas as pd

    table = consensus.document_table
    if len(pc.unique(table["query"])) == 1:
        return pd.Index(table["document"].to_pandas(), name="task")
    return pd.MultiIndex.from_arrays([table[name].to_pandas() for name in ("query", "document")])
