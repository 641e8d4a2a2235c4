"""Training data of rankers: features, labels and weights by query; statistics and standardization of features."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from crowdrank._folders import require, require_array, require_floats, require_range
from crowdrank._text import counted
from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.errors import CrowdrankWarning, InputError, UsageError, near, shown
from crowdrank.evaluation.measures import MAX_GRADE

ARRAY_NAMES = {"minimum": "feature_minimum", "maximum": "feature_maximum", "missing_share": "feature_missing_share"}
"""Name in a saved ranker of each array of the statistics."""


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Range and share of missing values of each feature.

    Attributes:
        minimum: (n_features,) smallest value; NaN for a feature that is always missing.
        maximum: (n_features,) largest value; NaN for a feature that is always missing.
        missing_share: (n_features,) share of rows without a value, from 0 to 1.

    """

    minimum: Floats
    maximum: Floats
    missing_share: Floats

    @classmethod
    def from_matrix(cls, features: Floats) -> Self:
        """Return the statistics of a matrix, (n, n_features), that has at least one row.

        >>> statistics = FeatureStatistics.from_matrix(np.array([[1.0, np.nan], [3.0, np.nan]]))
        >>> statistics.minimum.tolist(), statistics.maximum.tolist(), statistics.missing_share.tolist()
        ([1.0, nan], [3.0, nan], [0.0, 1.0])
        """
        return cls(np.fmin.reduce(features), np.fmax.reduce(features), np.isnan(features).mean(axis=0))

    @property
    def arrays(self) -> Arrays:
        """The arrays by their names in a saved ranker."""
        return {saved: getattr(self, name) for name, saved in ARRAY_NAMES.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int) -> Self | None:
        """Return saved statistics, or None if there are none; raise ValueError if they are incomplete or invalid."""
        if not set(ARRAY_NAMES.values()) & set(arrays):
            return None
        for name in ARRAY_NAMES.values():
            require(name in arrays, f"there is no array {name}")
            require_array(name, arrays[name], np.float64, (n_features,))
        found = cls(**{name: arrays[saved] for name, saved in ARRAY_NAMES.items()})
        require_range(ARRAY_NAMES["missing_share"], found.missing_share, 0.0, 1.0)
        is_missing = found.missing_share == 1
        is_range = np.isfinite(found.minimum) & np.isfinite(found.maximum) & (found.minimum <= found.maximum)
        no_range = np.isnan(found.minimum) & np.isnan(found.maximum)
        require(np.where(is_missing, no_range, is_range).all(), "the ranges of the features cannot be read")
        return found


MIN_RELATIVE_SD = 1e-12
"""Minimum standard deviation of a feature, relative to its mean; below it the feature counts as constant."""
TINY = float(np.finfo(float).tiny)


class Standardizer:
    """Map features to standard deviations from their weighted mean; constant features and missing values map to 0.

    Args:
        mean: (n_features,).
        scale: (n_features,) standard deviations; 0 for constant features.

    """

    def __init__(self, mean: Floats, scale: Floats) -> None:
        self.mean, self.scale = mean, scale

    @classmethod
    def fit(cls, X: Floats, weight: Floats) -> Standardizer:
        """Return the standardizer of features (n, n_features) with weights (n,); missing values are ignored."""
        sums = sum_values(X, weight)
        return cls.from_sums(sums, sum_squares(X, weight, weighted_mean(sums)))

    @classmethod
    def from_sums(cls, sums: Arrays, squares: Floats) -> Standardizer:
        """Return the standardizer for the results of :func:`sum_values` and :func:`sum_squares`."""
        mean = weighted_mean(sums)
        sd = np.sqrt(squares / np.maximum(sums["mass"], TINY))
        return cls(mean, np.where(sd <= MIN_RELATIVE_SD * np.maximum(np.abs(mean), TINY), 0.0, sd))

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int) -> Standardizer:
        """Return the standardizer that :attr:`arrays` describes; raise ValueError if it does not fit the features."""
        require_floats(arrays, ["mean"], (n_features,))
        require_floats(arrays, ["scale"], (n_features,), 0.0)
        return cls(arrays["mean"], arrays["scale"])

    @property
    def arrays(self) -> Arrays:
        """Arrays to save."""
        return {"mean": self.mean, "scale": self.scale}

    def first(self, n: int) -> Standardizer:
        """Return the standardizer of the first n features."""
        return Standardizer(self.mean[:n], self.scale[:n])

    def __call__(self, X: Floats) -> Floats:
        """Return standardized features."""
        values, has_scale = _centered(X, self.mean), self.scale > 0
        np.divide(values, self.scale, out=values, where=has_scale)
        if not has_scale.all():
            values[:, ~has_scale] = 0.0
        return values


def sum_values(X: Floats, weight: Floats) -> Arrays:
    """Return the sums of weights and of weighted values of each feature, without missing values."""
    present = ~np.isnan(X)
    products = np.where(present, X, 0.0)
    products *= weight[:, None]
    total = products.sum(axis=0)
    np.multiply(weight[:, None], present, out=products)
    return {"mass": products.sum(axis=0), "total": total}


def weighted_mean(sums: Arrays) -> Floats:
    """Return the weighted mean of each feature from :func:`sum_values`."""
    return np.asarray(sums["total"] / np.maximum(sums["mass"], TINY))


def sum_squares(X: Floats, weight: Floats, mean: Floats) -> Floats:
    """Return the sums of weighted squared differences from the mean, without missing values."""
    squares = _centered(X, mean)
    squares *= squares
    squares *= weight[:, None]
    return np.asarray(squares.sum(axis=0))


def _centered(X: Floats, mean: Floats) -> Floats:
    """Return the differences from the mean, 0 for missing values, as a new matrix; features are large."""
    values = X - mean
    values[np.isnan(values)] = 0.0
    return values


ID_COLUMNS = ("query", "document")
"""Columns of a frame that hold ids instead of features."""
MAX_MISSING_FEATURES_IN_MESSAGE = 10
"""Maximum number of missing features that an error message names."""
SHAPE_FIX = "give one row per document and one column per feature"
FITTED_FIX = "give the features that it was fitted on"


@dataclass(frozen=True, eq=False)
class NamedMatrix:
    """Feature matrix with column names but without query and document ids."""

    matrix: Floats
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RankingData:
    """Documents with features, labels and weights; the rows of a query are adjacent.

    Attributes:
        features: (n, n_features).
        grade: (n,) grade; the expected grade if labels are probabilities.
        weight: (n,) weights, or None.
        offsets: (n_queries + 1,) first row of each query.
        probabilities: (n, n_grades) probability of each grade, or None if labels are grades.
        order: (n,) position of each row in the input.
        names: names of the features.
        has_names: whether the names come from the user; otherwise they are f1, f2, ...
        original_matrix: the `NamedMatrix` that was given, if `features` is its array and `names` are its names; else
            None.

    """

    features: Floats
    grade: Floats
    weight: Floats | None
    offsets: Integers
    probabilities: Floats | None
    order: Integers
    names: tuple[str, ...]
    has_names: bool = True
    original_matrix: NamedMatrix | None = None

    @classmethod
    def from_ids(
        cls,
        X: Any,
        y: Any,
        query: Any,
        sample_weight: Any = None,
        *,
        names: tuple[str, ...] | None = None,
        source: str = "",
    ) -> RankingData:
        """Check features, labels and weights, and group the rows by query.

        Args:
            X: matrix, DataFrame, `Features` or `NamedMatrix`.
            y: (n,) grades or (n, n_grades) probabilities of grades.
            query: id of the query of each row; by default the ids in X. An integer array is used as it is.
            sample_weight: (n,) weights.
            names: features to take from X, in this order; all by default.
            source: description of the data for messages, such as " of eval_set".

        """
        matrix, own_names = checked_matrix(X) if names is None else (select_features(X, names), names)
        query = id_column(X, "query") if query is None else query
        if query is None:
            raise UsageError(f"is missing{source}; give the query of each row", parameter="query", kind="no-query")
        codes = query_codes(query, len(matrix))
        data = cls.from_codes(matrix, y, codes, sample_weight, names=own_names, source=source)
        is_unchanged = isinstance(X, NamedMatrix) and X.matrix is data.features and X.names == data.names
        return replace(data, original_matrix=X) if is_unchanged else data

    @classmethod
    def from_codes(
        cls,
        features: Floats,
        y: Any,
        query: Integers,
        sample_weight: Any = None,
        *,
        names: tuple[str, ...] | None = None,
        source: str = "",
    ) -> RankingData:
        """Group the rows of a checked matrix by integer query codes, without encoding ids.

        >>> RankingData.from_codes(np.eye(3), [2, 0, 1], np.array([7, 7, 4])).offsets.tolist()
        [0, 2, 3]
        """
        grade, probabilities = _checked_labels(y, len(features))
        data = cls(
            features,
            grade,
            checked_weights(sample_weight, len(features)),
            np.append(_run_starts(query), len(query)),
            probabilities,
            np.arange(len(features)),
            names or default_names(features.shape[1]),
            names is not None,
        )
        order = _adjacent_order(query, data.offsets[:-1])
        if order is None:
            return data
        problem = f"The rows of a query are not adjacent{source}; they were sorted by query"
        warnings.warn(CrowdrankWarning(problem, kind="unsorted-queries"), stacklevel=5)
        return replace(data._take(order), offsets=np.append(_run_starts(query[order]), len(query)))

    def _take(self, rows: Integers) -> RankingData:
        """Return some rows; the offsets stay unchanged."""
        return replace(
            self,
            features=self.features[rows],
            grade=self.grade[rows],
            weight=None if self.weight is None else self.weight[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            order=self.order[rows],
            original_matrix=None,
        )

    def take_queries(self, queries: Integers) -> RankingData:
        """Return the queries with these numbers, in their order."""
        sizes = np.diff(self.offsets)[queries]
        return replace(self._take(self.rows_of(queries)), offsets=np.append(0, np.cumsum(sizes)))

    def rows_of(self, queries: Integers) -> Integers:
        """Return the rows of the queries with these numbers."""
        return np.concatenate([np.arange(*self.offsets[query : query + 2]) for query in queries])

    @property
    def query(self) -> Integers:
        """Number of the query of each row, (n,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def labels(self) -> Floats:
        """Labels as the user gave them: grades, or probabilities of grades."""
        return self.grade if self.probabilities is None else self.probabilities

    @property
    def weights(self) -> Floats:
        """Weights, (n,); 1 if there are none."""
        return np.ones(len(self.grade)) if self.weight is None else self.weight

    def gain(self, gains: str | Sequence[float]) -> Floats:
        """Return the gain of each document; the expected gain if labels are probabilities."""
        return label_gains(self.labels, gains)

    def target(self, name: str, gains: str | Sequence[float]) -> Floats:
        """Return the values to regress on: the `grade`, or its `gain`."""
        return self.gain(gains) if name == "gain" else self.grade


# Features.


def as_matrix(X: Any, names: tuple[str, ...] = ()) -> tuple[Floats, tuple[str, ...] | None]:
    """Return features as a matrix, and their names if they have any.

    Args:
        X: matrix, DataFrame, `Features` or `NamedMatrix`; the columns query and document of a frame are ids.
        names: columns to take from a frame; all features by default.

    >>> import pandas as pd
    >>> as_matrix(pd.DataFrame({"query": [7, 7], "bm25": [1, 2]}))
    (array([[1.],
           [2.]]), ('bm25',))

    """
    if not isinstance(X, np.ndarray):  # frames need libraries that a matrix does not need
        from crowdrank.judgments.frames import is_frame
        from crowdrank.readers.features import Features

        if isinstance(X, Features | NamedMatrix):
            return X.matrix, X.names
        if is_frame(X):
            return _frame_matrix(X, names)
    try:
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("the features are not all numbers", fix="give a matrix or a frame of numbers") from problem
    if matrix.ndim != 2:
        raise InputError(f"the features have {counted(matrix.ndim, 'dimension')}, not 2", fix=SHAPE_FIX)
    return matrix, None


def _frame_matrix(frame: Any, names: tuple[str, ...]) -> tuple[Floats, tuple[str, ...]]:
    """Return columns of a frame as a matrix, and their names; all columns but ids by default."""
    from crowdrank.judgments import frames

    columns = frames.column_names(frame)
    require_features(columns, names)
    chosen = list(names) or [name for name in columns if name not in ID_COLUMNS]
    frame = frames.collect_columns(frame, chosen)
    matrix = frames.numeric_matrix(frame, chosen)
    if matrix is None:
        values = [_parse_column(frames.column_to_arrow(frame, name), name) for name in chosen]
        matrix = np.column_stack(values) if values else np.empty((0, 0))
    return matrix, tuple(chosen)


def _parse_column(column: pa.ChunkedArray, name: str) -> Floats:
    from crowdrank.readers.cells import parse_floats

    values = parse_floats(column)
    if values is None:
        raise InputError("it is not all numbers", source="the features", column=name, fix="leave it out")
    return values


def checked_matrix(X: Any, names: tuple[str, ...] = ()) -> tuple[Floats, tuple[str, ...] | None]:
    """Return features as in :func:`as_matrix`; raise InputError if there are none, or if one is infinite."""
    matrix, found = as_matrix(X, names)
    matrix = np.ascontiguousarray(matrix)  # the memory layout must not change how sums are rounded
    if not matrix.size:
        raise InputError("there are no rows or no features", fix=SHAPE_FIX)
    infinite = np.isinf(matrix)
    if infinite.any():
        row, column = (int(place[0]) for place in np.nonzero(infinite))
        name = found[column] if found else f"f{column + 1}"
        fix = "limit it, or leave it empty"
        raise InputError("a feature is infinite", place=f"row {row + 1}", column=name, fix=fix)
    return matrix, found


def select_features(X: Any, names: tuple[str, ...]) -> Floats:
    """Return the features of a fitted ranker from X, by name if X has names; further columns are ignored."""
    matrix, found = checked_matrix(_fill_omitted_zeros(X, names), names)
    if found is None or found == names:
        if matrix.shape[1] != len(names):
            problem = f"there are {counted(matrix.shape[1], 'feature')}, but the ranker was fitted to {len(names)}"
            raise InputError(problem, fix=FITTED_FIX, kind="feature-count")
        return matrix
    require_features(found, names)
    position = {name: number for number, name in enumerate(found)}
    return np.ascontiguousarray(matrix[:, [position[name] for name in names]])


def _fill_omitted_zeros(X: Any, names: tuple[str, ...]) -> Any:
    """Return LETOR features with zeros for features that no line has, up to the last one that a line has."""
    if isinstance(X, np.ndarray):
        return X
    from crowdrank.judgments.columns import feature_position, is_letor_feature
    from crowdrank.readers.features import Features

    if not isinstance(X, Features) or not X.zeros_omitted or not all(map(is_letor_feature, names)):
        return X
    found, last = set(X.names), max(map(feature_position, X.names), default=0)
    omitted = [name for name in names if name not in found and feature_position(name) <= last]
    return X.on_columns((*X.names, *omitted)) if omitted else X


def require_features(found: Sequence[str], names: Sequence[str], source: str = "") -> None:
    """Raise InputError, which lists missing features, unless all features of a ranker are found in a source."""
    known = set(found)
    missing = [name for name in names if name not in known]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        more = ", ..." if len(missing) > MAX_MISSING_FEATURES_IN_MESSAGE else ""
        others = [name for name in found if name not in set(names)]
        listed = ", ".join(f"{shown(name)}{near(name, others)}" for name in missing[:MAX_MISSING_FEATURES_IN_MESSAGE])
        problem = f"the ranker needs {counted(len(missing), 'feature')} that {verb} missing ({listed}{more})"
        unnamed = len(missing) == len(names) and tuple(names) == default_names(len(names))
        fix = "if it was fitted to a matrix, give a matrix" if unnamed else FITTED_FIX
        raise InputError(problem, source=source, fix=fix, kind="missing-features")


def default_names(n_features: int) -> tuple[str, ...]:
    """Return the names of the features of a matrix.

    >>> default_names(2)
    ('f1', 'f2')
    """
    return tuple(f"f{number + 1}" for number in range(n_features))


# Queries.


def id_column(X: Any, role: str) -> Any:
    """Return the ids of queries or documents (`role`) in features, or None if they have none.

    >>> import pandas as pd
    >>> id_column(pd.DataFrame({"query": [7, 7], "bm25": [1, 2]}), "query").to_pylist()
    [7, 7]
    """
    if isinstance(X, np.ndarray):
        return None
    from crowdrank.judgments import frames
    from crowdrank.readers.features import Features

    if isinstance(X, Features):
        return X.query if role == "query" else X.document
    return frames.column_to_arrow(X, role) if frames.is_frame(X) and role in frames.column_names(X) else None


def query_codes(query: Any, n: int) -> Integers:
    """Return the queries of n rows as integer codes; an integer array is returned as it is, other ids are encoded.

    A dictionary array has its codes already.

    >>> query_codes(["b", "b", "a"], 3).tolist(), query_codes(np.array([9, 9, 4]), 3).tolist()
    ([0, 0, 1], [9, 9, 4])
    """
    if isinstance(query, pa.DictionaryArray) and query.null_count == 0:
        query = query.indices.to_numpy()
    is_coded = isinstance(query, np.ndarray) and query.ndim == 1 and query.dtype.kind in "iu"
    column = query if is_coded or isinstance(query, pa.ChunkedArray) else pa.chunked_array([_id_array(query)])
    if len(column) != n:
        raise InputError(f"there are {n:,} rows, but {len(column):,} query ids", fix="give the query of each row")
    if is_coded:
        return np.asarray(column, dtype=np.int64)
    from crowdrank.judgments import ids

    codes = ids.encode(column)[0]
    if (codes < 0).any():
        raise InputError("the query is missing", place=f"row {int(np.argmax(codes < 0)) + 1}", fix="fill it in")
    return codes.astype(np.int64)


def _id_array(query: Any) -> pa.Array:
    if isinstance(query, pa.Array):
        return query
    values = np.asarray(query)
    if values.ndim != 1:
        raise UsageError("must be one id per row", parameter="query")
    try:
        return pa.array(values.tolist() if values.dtype == object else values)
    except pa.ArrowException as problem:
        raise InputError("the query ids have several types", fix="make them all text or all numbers") from problem


def _run_starts(codes: Integers) -> Integers:
    """Return the first row of each run of equal codes."""
    return np.flatnonzero(np.append(True, np.diff(codes) != 0))


def _adjacent_order(codes: Integers, starts: Integers) -> Integers | None:
    """Return an order of rows in which those of a query are adjacent, or None if they are."""
    if len(np.unique(codes[starts])) == len(starts):
        return None
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(first[group], kind="stable")


# Labels and weights.


def _checked_labels(y: Any, n: int) -> tuple[Floats, Floats | None]:
    """Return (expected) grades, and the probabilities of grades if `y` has one column per grade."""
    try:
        labels = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("the labels are not all numbers", fix="give grades, or probabilities of grades") from problem
    if labels.ndim not in (1, 2) or len(labels) != n:
        message = f"the labels have the shape {labels.shape}, but there are {n:,} rows"
        raise InputError(message, fix="give one label per row")
    if not np.isfinite(labels).all():
        row = int(np.argmax(~np.isfinite(labels).reshape(n, -1).all(axis=1)))
        raise InputError("the label is missing or infinite", place=f"row {row + 1}", fix="leave out such rows")
    if labels.ndim == 1:
        return labels, None
    invalid = (labels < 0).any(axis=1) | (np.abs(labels.sum(axis=1) - 1) > 1e-6)
    if invalid.any():
        place, fix = f"row {int(np.argmax(invalid)) + 1}", "give one column per grade, from 0 up"
        raise InputError("the probabilities of the grades do not sum to 1", place=place, fix=fix)
    return labels @ np.arange(labels.shape[1], dtype=np.float64), labels


def checked_weights(sample_weight: Any, n: int) -> Floats | None:
    """Return the weights of n rows, or None; raise InputError unless they are at least 0 and some are above."""
    if sample_weight is None:
        return None
    fix = "give one number of at least 0 per row"
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("the weights are not all numbers", fix=fix) from problem
    if weight.shape != (n,):
        raise InputError(f"the weights have the shape {weight.shape}, but there are {n:,} rows", fix=fix)
    invalid = ~(np.isfinite(weight) & (weight >= 0))
    if invalid.any():
        row = int(np.argmax(invalid))
        raise InputError(f"the weight {weight[row]:g} is invalid", place=f"row {row + 1}", fix=fix)
    if not weight.any():
        raise InputError("every weight is 0", fix="give some rows a weight above 0")
    return weight


def labels_differ_within_query(values: Floats, offsets: Integers) -> bool:
    """Return whether any query has two rows with different values, (n,) or (n, n_columns).

    >>> labels_differ_within_query(np.array([1.0, 1.0, 0.0]), np.array([0, 2, 3]))
    False
    """
    starts = offsets[:-1]
    return bool((np.maximum.reduceat(values, starts) > np.minimum.reduceat(values, starts)).any())


def require_gains(grades: Floats, gains: str | Sequence[float], row_name: Callable[[int], str] | None = None) -> None:
    """Raise InputError unless every grade has a gain; `row_name` describes the document of a row."""
    highest = np.inf if gains == "linear" else MAX_GRADE if isinstance(gains, str) else len(gains) - 1
    invalid = (grades < 0) | (grades > highest)
    if invalid.any():
        row = int(np.argmax(invalid))
        why = "below 0" if grades[row] < 0 else f"above {highest:g}, the highest grade that has a gain"
        document = "" if row_name is None else f" of {row_name(row)}"
        fix = "train on grades from 0 up, or on the probabilities of grades (p0, p1, ...)"
        raise InputError(f"the label {grades[row]:g}{document} is {why}", fix=fix, kind="no-gain")


def label_gains(labels: Floats, gains: str | Sequence[float]) -> Floats:
    """Return the gains of labels: (n,) grades, or (n, n_grades) probabilities, of which the expectation is taken.

    A grade between two grades of a table has an interpolated gain.

    >>> label_gains(np.array([0.0, 1.0, 1.5]), "exponential").tolist()
    [0.0, 1.0, 1.8284271247461903]
    >>> label_gains(np.array([[0.5, 0.0, 0.5]]), (0, 1, 3)).tolist()
    [1.5]
    """
    grades = labels if labels.ndim == 1 else np.arange(labels.shape[1], dtype=np.float64)
    require_gains(grades, gains)
    if gains == "linear":
        gain = grades
    elif gains == "exponential":
        gain = np.exp2(grades) - 1
    else:
        table = np.asarray(gains, dtype=np.float64)
        gain = np.interp(grades, np.arange(len(table)), table)
    return np.asarray(gain if labels.ndim == 1 else labels @ gain, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class SharedMatrix(NamedMatrix):
    """Feature matrix that several rankers are fitted to; do not change its values.

    LightGBM sorts the values of each feature into bins, which takes as long as dozens of trees. Rankers that are fitted
    to the same shared matrix with the same parameters of the bins share them; their trees are the same as without.
    Several threads can fit at the same time.
    """

    _binned: dict[str, Any] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def binned(self, parameters: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return LightGBM's data set for some parameters; `make` makes it for the first ranker that needs it."""
        key = json.dumps(parameters, sort_keys=True, default=str)
        with self._lock:
            if key not in self._binned:
                self._binned[key] = make().construct()
            return self._binned[key]

    @cached_property
    def statistics(self) -> FeatureStatistics:
        """Range and share of missing values of each feature."""
        return FeatureStatistics.from_matrix(self.matrix)
