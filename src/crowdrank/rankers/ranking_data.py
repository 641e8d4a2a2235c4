"""What a ranker learns from: features, labels and weights, query by query."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.cells import parse_floats
from crowdrank.judgments.features import Features
from crowdrank.judgments.letor import feature_position, is_letor_feature

IDS = ("query", "document")
"""Columns of a frame that are ids, never features."""
LARGEST_GRADE = 30
"""2^grade - 1 is taken up to this grade; a larger one is no grade."""


@dataclass(frozen=True, eq=False)
class Named:
    """A matrix (n, n_features) whose columns have names; of whom its rows are, it does not tell."""

    matrix: Floats
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Lists:
    """Rows of documents, query by query.

    Attributes:
        X: (n, n_features).
        y: (n,) what each document is worth, in grades.
        shares: (n, n_grades) the probability of each grade, where the labels are such.
        offsets: (n_queries + 1,) where each query begins.
        weight: (n,) or None.
        order: (n,) the row that each was before they were sorted by query.
        names: of the features.
        has_names: whether the names are those of the user; otherwise they are f1, f2, ...

    """

    X: Floats
    y: Floats
    shares: Floats | None
    offsets: Integers
    weight: Floats | None
    order: Integers
    names: tuple[str, ...]
    has_names: bool = True

    @property
    def query(self) -> Integers:
        """The number of each row's query."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def gain(self, gains: str | Sequence[float]) -> Floats:
        """What each document gains; where its grade has a distribution, the expected gain."""
        return label_gains(self.y if self.shares is None else self.shares, gains)

    def of_queries(self, chosen: Integers) -> Lists:
        """Only the queries whose numbers are given."""
        rows = np.concatenate([np.arange(*self.offsets[q : q + 2]) for q in chosen])
        sizes = np.diff(self.offsets)[chosen]
        return Lists(
            self.X[rows],
            self.y[rows],
            None if self.shares is None else self.shares[rows],
            np.append(0, np.cumsum(sizes)),
            None if self.weight is None else self.weight[rows],
            self.order[rows],
            self.names,
            self.has_names,
        )

    def named(self) -> Named:
        """The features under their names, for another ranker to learn from."""
        return Named(self.X, self.names)

    @property
    def labels(self) -> Floats:
        """The labels as they were given: grades, or the probabilities of grades."""
        return self.y if self.shares is None else self.shares


def as_matrix(X: Any, known: tuple[str, ...] = ()) -> tuple[Floats, tuple[str, ...] | None]:
    """Features as a matrix of numbers, and their names where they have any; of a frame, those that are `known`.

    A frame's columns query and document are ids: they are no features.

    >>> import pandas as pd
    >>> as_matrix(pd.DataFrame({"query": [7, 7], "bm25": [1, 2]}))
    (array([[1.],
           [2.]]), ('bm25',))
    """
    if isinstance(X, Features | Named):
        return X.matrix, X.names
    if frames.is_frame(X):
        names = frames.column_names(X)
        refuse_missing(names, known)
        names = list(known) or [name for name in names if name not in IDS]
        columns = [_column(frames.column_to_arrow(X, name), name) for name in names]
        return (np.column_stack(columns) if columns else np.empty((0, 0))), tuple(names)
    try:
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("the features are not all numbers", fix="give a matrix or a frame of numbers") from problem
    if matrix.ndim != 2:
        raise InputError(
            f"the features have {matrix.ndim} ax{'i' if matrix.ndim == 1 else 'e'}s, not two",
            fix="give one row a document and one column a feature",
        )
    return matrix, None


def _column(column: pa.ChunkedArray, name: str) -> Floats:
    values = parse_floats(column)
    if values is None:
        raise InputError("it is not all numbers", source="the features", column=name, fix="leave it out")
    return values


def checked_matrix(X: Any, known: tuple[str, ...] = ()) -> tuple[Floats, tuple[str, ...] | None]:
    """As :func:`as_matrix`; nothing to learn from is refused, and infinite numbers are."""
    matrix, names = as_matrix(X, known)
    matrix = np.ascontiguousarray(matrix)  # how numbers lie must not change how they round
    if not matrix.size:
        raise InputError("there are no rows or no features", fix="give one row a document and one column a feature")
    infinite = np.isinf(matrix)
    if infinite.any():
        row, column = (int(place[0]) for place in np.nonzero(infinite))
        name = names[column] if names else f"f{column + 1}"
        raise InputError("a feature is infinite", place=f"row {row + 1}", column=name, fix="bound it or leave it blank")
    return matrix, names


def aligned(X: Any, known: tuple[str, ...]) -> Floats:
    """Return the features in the order in which a ranker knows them, found by name where they have names."""
    matrix, names = checked_matrix(_with_zeros(X, known), known)
    if names is None or names == known:
        if matrix.shape[1] != len(known):
            raise InputError(
                f"there are {counted(matrix.shape[1], 'feature')}, but the ranker learned from {len(known)}",
                fix="give the features that it was fitted on",
            )
        return matrix
    refuse_missing(names, known)
    place = {name: number for number, name in enumerate(names)}
    return np.ascontiguousarray(matrix[:, [place[name] for name in known]])


def _with_zeros(X: Any, known: tuple[str, ...]) -> Any:
    """Return LETOR features with zeros for the known positions that no line names, up to the last that one names."""
    if not isinstance(X, Features) or not X.zeros_omitted or not all(map(is_letor_feature, known)):
        return X
    there, last = set(X.names), max(map(feature_position, X.names), default=0)
    omitted = [name for name in known if name not in there and feature_position(name) <= last]
    return X.on_columns((*X.names, *omitted)) if omitted else X


def refuse_missing(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse features without some that a ranker knows; those are named."""
    there = set(names)
    missing = [name for name in known if name not in there]
    if missing:
        raise InputError(
            f"the ranker needs {counted(len(missing), 'feature')} that {'is' if len(missing) == 1 else 'are'} not "
            f"there ({', '.join(map(shown, missing[:3]))}{', ...' if len(missing) > 3 else ''})",
            fix="give the features that it was fitted on",
        )


def told_queries(X: Any) -> Any:
    """The query of each row, where the features tell it: `Features`, or a frame with such a column."""
    return told_ids(X, "query")


def told_ids(X: Any, role: str) -> Any:
    """The query or the document of each row, where the features tell it.

    >>> import pandas as pd
    >>> told_ids(pd.DataFrame({"query": [7, 7], "bm25": [1, 2]}), "query").to_pylist()
    [7, 7]
    """
    if isinstance(X, Features):
        return X.query if role == "query" else X.document
    return frames.column_to_arrow(X, role) if frames.is_frame(X) and role in frames.column_names(X) else None


def query_codes(query: Any, n: int) -> Integers:
    """Return the queries of n rows as codes in the order of their first rows; ascending integers are not encoded.

    >>> query_codes(["b", "b", "a"], 3).tolist(), query_codes(np.array([4, 4, 9]), 3).tolist()
    ([0, 0, 1], [0, 0, 1])
    """
    if isinstance(query, np.ndarray) and query.dtype.kind == "i" and len(query) == n and (np.diff(query) >= 0).all():
        return np.cumsum(np.diff(query, prepend=query[:1]) != 0)
    column = query if isinstance(query, pa.ChunkedArray) else pa.chunked_array([_ids(query)])
    if len(column) != n:
        raise InputError(f"there are {n:,} rows, but {len(column):,} query ids", fix="give each row its query")
    codes, _ = ids.encode(column)
    if (codes < 0).any():
        raise InputError("the query is missing", place=f"row {int(np.argmax(codes < 0)) + 1}", fix="fill it in")
    return codes.astype(np.int64)


def _ids(query: Any) -> pa.Array:
    if isinstance(query, pa.Array):
        return query
    try:
        flat = np.asarray(query)
        if flat.ndim != 1:
            raise UsageError("query is one id for each row.")
        return pa.array(flat.tolist() if flat.dtype == object else flat)
    except pa.ArrowException as problem:
        raise InputError("the query ids are of several types", fix="make them all text or all numbers") from problem


def gather(
    X: Any, y: Any, query: Any, sample_weight: Any = None, *, known: tuple[str, ...] | None = None, what: str = ""
) -> Lists:
    """Rows of documents query by query; what cannot be used is said in one sentence.

    Rows whose queries are not contiguous are sorted, which is said once.
    """
    matrix, names = checked_matrix(X) if known is None else (aligned(X, known), known)
    query = told_queries(X) if query is None else query
    if query is None:
        raise UsageError(f"A ranker learns from lists: give query, one id for each row{what}.")
    codes = query_codes(query, len(matrix))
    order = np.arange(len(matrix))
    if (np.diff(codes) < 0).any():
        warnings.warn(f"The rows of a query are not together{what}; they were sorted by query.", stacklevel=4)
        order = np.argsort(codes, kind="stable")
        matrix, codes = matrix[order], codes[order]
    labels, shares = _labels(y, len(matrix))
    weight = checked_weights(sample_weight, len(matrix))
    return Lists(
        matrix,
        labels[order],
        None if shares is None else shares[order],
        np.searchsorted(codes, np.arange(codes[-1] + 2)).astype(np.int64),
        None if weight is None else weight[order],
        order,
        names or tuple(f"f{number + 1}" for number in range(matrix.shape[1])),
        names is not None,
    )


def _labels(y: Any, n: int) -> tuple[Floats, Floats | None]:
    """Labels as grades, and the probabilities of grades where `y` has a column for each."""
    try:
        labels = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("the labels are not all numbers", fix="give grades, or probabilities of grades") from problem
    if labels.ndim not in (1, 2) or len(labels) != n:
        raise InputError(
            f"the labels have the shape {labels.shape}, but there are {n:,} rows", fix="give one label for each row"
        )
    if not np.isfinite(labels).all():
        row = int(np.argmax(~np.isfinite(labels).reshape(n, -1).all(axis=1)))
        raise InputError("the label is missing or infinite", place=f"row {row + 1}", fix="leave such rows out")
    if labels.ndim == 1:
        return labels, None
    off = (labels < 0).any(axis=1) | (np.abs(labels.sum(axis=1) - 1) > 1e-6)
    if off.any():
        raise InputError(
            "the probabilities of the grades do not sum to 1",
            place=f"row {int(np.argmax(off)) + 1}",
            fix="give one column for each grade from 0 up",
        )
    return labels @ np.arange(labels.shape[1], dtype=np.float64), labels


def checked_weights(sample_weight: Any, n: int) -> Floats | None:
    """One weight of 0 or more for each of n rows, or None; what is none is named with its row."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("the weights are not all numbers", fix="weights are numbers of 0 or more") from problem
    if weight.shape != (n,):
        raise InputError(f"the weights have the shape {weight.shape}, but there are {n:,} rows", fix="give one a row")
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"the weight {weight[row]:g} is not one", place=f"row {row + 1}", fix="weights are 0 or more")
    if not weight.any():
        raise InputError("every weight is 0", fix="give some rows a weight above 0")
    return weight


def differ_within(values: Floats, offsets: Integers) -> bool:
    """Whether any query has two rows of different values, (n,) or (n, n_columns).

    >>> differ_within(np.array([1.0, 1.0, 0.0]), np.array([0, 2, 3]))
    False
    """
    starts = offsets[:-1]
    return bool((np.maximum.reduceat(values, starts) > np.minimum.reduceat(values, starts)).any())


def require_gains(grades: Floats, gains: str | Sequence[float], name: Callable[[int], str] | None = None) -> None:
    """Refuse grades that have no gain; `name` says of which row the first is, where a row has a better name."""
    highest = np.inf if gains == "linear" else LARGEST_GRADE if isinstance(gains, str) else len(gains) - 1
    off = (grades < 0) | (grades > highest)
    if off.any():
        row = int(np.argmax(off))
        why = "below 0" if grades[row] < 0 else f"above {highest:g}, the last that has a gain"
        of = "" if name is None else f" of {name(row)}"
        remedy = "train on grades from 0 up, or on the probabilities of grades (p0, p1, ...)"
        raise InputError(f"the label {grades[row]:g}{of} is {why}", fix=remedy)


def label_gains(labels: Floats, gains: str | Sequence[float]) -> Floats:
    """What labels gain: grades (whole or between two), or the expectation over probabilities of grades.

    Between two grades of a table lies what is between their gains.

    >>> label_gains(np.array([0.0, 1.0, 1.5]), "exponential").tolist()
    [0.0, 1.0, 1.8284271247461903]
    >>> label_gains(np.array([[0.5, 0.0, 0.5]]), (0, 1, 3)).tolist()
    [1.5]
    """
    grades = labels if labels.ndim == 1 else np.arange(labels.shape[1], dtype=np.float64)
    require_gains(grades, gains)
    if gains == "linear":
        worth = grades
    elif gains == "exponential":
        worth = np.exp2(grades) - 1
    else:
        table = np.asarray(gains, dtype=np.float64)
        worth = np.interp(grades, np.arange(len(table)), table)
    return np.asarray(worth if labels.ndim == 1 else labels @ worth, dtype=np.float64)
