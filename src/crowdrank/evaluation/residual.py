"""Leave out of an evaluation the documents whose expert grade the run has used (residual collection).

A consensus that was fitted with expert grades repeats them, so that it agrees with them by construction. As with
relevance feedback, such documents are removed from the rankings and from the gold before the rest is scored
(Chang, Cirillo and Razon, "Evaluation of feedback retrieval using modified freezing, residual collection & test and
control groups", 1971).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans
from crowdrank.errors import Fix, InputError
from crowdrank.judgments import frames, ids
from crowdrank.judgments.columns import EXPERT_GRADED

ALL_QUERIES = "all"
"""Query of documents in a table without a column for the query."""


@dataclass(frozen=True)
class Residual:
    """Runs and gold without the documents whose expert grade one of the runs has used.

    Attributes:
        runs: DataFrames of runs by name.
        gold: DataFrame of the gold.
        n_left_out: number of documents with gold that are left out.

    """

    runs: dict[str, Any]
    gold: Any
    n_left_out: int


def leave_out_used(runs: Mapping[str, Any], gold: Any) -> Residual:
    """Remove the documents whose column `expert_graded` is 1 in one of the runs from all runs and from the gold.

    Raises:
        InputError: nothing is left of the gold.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": ["a", "b"], "score": [2, 1], "expert_graded": [1, 0]})
    >>> leave_out_used({"run": run}, pd.DataFrame({"document": ["a", "b"], "grade": [1, 0]})).gold
      document  grade
    1        b      0
    """
    used: set[str] = set()
    for run in runs.values():
        if frames.is_frame(run) and EXPERT_GRADED in frames.column_names(run):
            marks = frames.column_to_arrow(run, EXPERT_GRADED).cast(pa.float64()).to_pylist()
            used.update(key for key, mark in zip(_pair_keys(run), marks, strict=True) if mark)
    kept = _is_not_in(gold, used) if used else np.ones(0, np.bool_)
    n_left_out = int((~kept).sum())
    if not n_left_out:
        return Residual(dict(runs), gold, 0)
    if not kept.any():
        grades = counted(n_left_out, "expert grade")
        problem = f"the consensus was fitted with all of its {grades}, so that none is left to score it"
        fixes = [Fix("score it on other expert grades"), Fix("score a consensus that was fitted without expert grades")]
        raise InputError(problem, source="the gold", kind="all-grades-used", fix=fixes)
    remaining = {name: _filter(run, _is_not_in(run, used)) for name, run in runs.items()}
    return Residual(remaining, _filter(gold, kept), n_left_out)


def _pair_keys(frame: Any) -> list[str]:
    """Return query and document of each row as one text; ids of different types are compared as text."""
    document = _id_texts(frame, "document")
    query = _id_texts(frame, "query") if "query" in frames.column_names(frame) else [ALL_QUERIES] * len(document)
    return [f"{len(one)}:{one}{other}" for one, other in zip(query, document, strict=True)]


def _id_texts(frame: Any, name: str) -> list[str]:
    cells = ids.to_integers_or_text(frames.column_to_arrow(frame, name)).cast(pa.string())
    return [cell or "" for cell in cells.to_pylist()]


def _is_not_in(frame: Any, used: set[str]) -> Booleans:
    return np.array([key not in used for key in _pair_keys(frame)], np.bool_)


def _filter(frame: Any, keep: Booleans) -> Any:
    """Return the rows of a DataFrame of any library that a mask keeps."""
    import narwhals as nw

    frame = frames.collect_columns(frame, frames.column_names(frame))
    return nw.from_native(frame, eager_only=True).filter(keep.tolist()).to_native()
