"""The manners of crowd-kit: task-worker-label frames in, pandas Series and DataFrames indexed by task out.

Code written for crowd-kit runs with one import changed. Labels may be anything: whole numbers are grades in their
order, other labels are taken in the order of their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank.errors import InputError
from crowdrank.judgments import frames
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.read import read_gold, read_judgments
from crowdrank.judgments.scale import whole_number
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    import pandas as pd

    from crowdrank.consensus.result import Consensus

COLUMNS = ("task", "worker", "label")


def is_task_frame(what: Any) -> bool:
    """Whether `what` is a frame with crowd-kit's columns."""
    return frames.is_frame(what) and set(COLUMNS) <= set(frames.column_names(what))


def read_tasks(frame: Any, known: Judgments | None = None) -> Judgments:
    """Judgments from a task-worker-label frame, with its labels as they are, or as those `known` before."""
    task, worker, label = (frames.column_to_arrow(frame, name) for name in COLUMNS)
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
    labels, grades = _in_order(found)
    if known is not None and known.labels is not None and set(found) <= set(known.labels):
        labels, grades = list(known.labels), [int(value) for value in known.scale.values][: len(known.labels)]
    coded = pa.table({"task": task, "worker": worker, "label": _coded(label, labels, grades)})
    # A scale has two grades at least, though a frame may hold one.
    judgments = read_judgments(coded, grades=grades if len(grades) > 1 else [*grades, grades[0] + 1])
    return replace(judgments, labels=tuple(labels), backend=frames.backend_of(frame))


def _in_order(labels: list[Any]) -> tuple[list[Any], list[int]]:
    """Labels from lowest to highest, and the grade of each: its own number, or its place."""
    numbers = [whole_number(label) for label in labels]
    if all(number is not None for number in numbers) and len(set(numbers)) == len(numbers):
        pairs = sorted(zip(numbers, labels, strict=True), key=lambda pair: pair[0] or 0)
        return [label for _, label in pairs], [number for number, _ in pairs if number is not None]
    return sorted(labels, key=str), list(range(len(labels)))


def _coded(column: pa.ChunkedArray, labels: list[Any], grades: Sequence[int]) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column
    place = pc.index_in(column, value_set=pa.array(labels, column.type))
    return pa.chunked_array(pa.array(grades).take(chunk) for chunk in place.chunks)


def read_true_labels(series: Any, judgments: Judgments) -> Gold:
    """Gold from a Series of labels indexed by task."""
    labels = judgments.labels or judgments.scale.names
    unknown = [label for label in series.unique() if label not in labels]
    if unknown:
        raise InputError(f"the true label {unknown[0]!r} is not among the labels {', '.join(map(repr, labels))}")
    grades = dict(zip(labels, judgments.scale.values, strict=False))
    table = pa.table({"document": pa.array(series.index), "grade": [int(grades[label]) for label in series]})
    return read_gold(table, grades=judgments.scale.names)


def label_series(consensus: Consensus) -> pd.Series[Any]:
    """The label of each task."""
    import pandas as pd

    grade = consensus.document_table["grade"].to_pandas().to_numpy()
    return pd.Series(grade, index=_index(consensus), name="agg_label")


def label_shares(consensus: Consensus) -> pd.DataFrame:
    """The probability of each label per task."""
    import pandas as pd

    shares = consensus.share_names[: len(consensus.labels)]
    values = np.column_stack([consensus.document_table[name] for name in shares])
    return pd.DataFrame(values, index=_index(consensus), columns=pd.Index(consensus.labels, name="label"))


def worker_series(consensus: Consensus, column: str, name: str) -> pd.Series[Any]:
    """A column of the table of assessors, indexed by worker."""
    import pandas as pd

    workers = pd.Index(consensus.assessor_table["assessor"].to_pandas(), name="worker")
    return pd.Series(consensus.assessor_table[column].to_numpy(), index=workers, name=name)


def _index(consensus: Consensus) -> Any:
    import pandas as pd

    table = consensus.document_table
    if len(pc.unique(table["query"])) == 1:
        return pd.Index(table["document"].to_pandas(), name="task")
    return pd.MultiIndex.from_arrays([table[name].to_pandas() for name in ("query", "document")])
