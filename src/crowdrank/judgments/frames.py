"""Convert DataFrames of any library to Arrow columns and back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from crowdrank.errors import InputError, shown

SOURCE = "the frame"
"""Name of a DataFrame in messages."""


def is_frame(value: object) -> bool:
    """Return whether `value` is a DataFrame of a library that narwhals supports."""
    return isinstance(_wrapped(value), nw.DataFrame | nw.LazyFrame)


def _wrapped(frame: Any) -> Any:
    """Return a narwhals frame for a DataFrame; other objects are returned unchanged."""
    try:
        return nw.from_native(frame, pass_through=True)
    except nw.exceptions.DuplicateError as problem:
        names = frame.column_names if nw.dependencies.is_pyarrow_table(frame) else frame.columns
        raise _doubled([str(name) for name in names]) from problem


def _doubled(names: list[str]) -> InputError:
    name = next(name for name, count in Counter(names).items() if count > 1)
    return InputError(f"the column {shown(name)} occurs twice", source=SOURCE, fix="rename one of them")


def backend_of(frame: Any) -> str:
    """Return the library for results about a frame: its own, or pandas if that has only lazy frames.

    >>> import pandas as pd
    >>> backend_of(pd.DataFrame({"a": [1]}))
    'pandas'
    """
    wrapped = _wrapped(frame)
    in_memory = isinstance(wrapped, nw.DataFrame) or wrapped.implementation.is_polars()
    return str(wrapped.implementation.value) if in_memory else "pandas"


def column_names(frame: Any) -> list[str]:
    """Return the column names of a frame; raise InputError if a name occurs twice."""
    names = [str(name) for name in _own_names(frame)]
    if len(set(names)) < len(names):
        raise _doubled(names)
    return names


def _own_names(frame: Any) -> list[Any]:
    """Return the column names with their own types: pandas also allows numbers."""
    native = nw.to_native(frame, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(native):
        return list(native.columns)
    if nw.dependencies.is_pyarrow_table(native):
        return list(native.column_names)
    try:
        return list(_wrapped(frame).collect_schema().names())
    except Exception as problem:
        raise _lazy_problem(problem) from problem


def collected(frame: Any, names: list[str]) -> Any:
    """Return the columns `names` of a frame, in memory if it is lazy."""
    wrapped = _wrapped(frame)
    if not isinstance(wrapped, nw.LazyFrame):
        return frame
    try:
        return wrapped.select(names).collect()
    except Exception as problem:
        raise _lazy_problem(problem) from problem


def _lazy_problem(problem: Exception) -> InputError:
    # A lazy frame fails when it is computed, with any exception of its library.
    reason = str(problem).split("\n")[0].rstrip(".")
    return InputError(f"it cannot be computed ({reason})", source=SOURCE, fix="check the query or file behind it")


def column_to_arrow(frame: Any, name: str) -> pa.ChunkedArray:
    """Return one column as an Arrow column; raise InputError if it holds several types."""
    wrapped = _wrapped(collected(frame, [name]))
    native = wrapped.to_native()
    if isinstance(native, pa.Table):
        return native[name]
    if nw.dependencies.is_pandas_dataframe(native):
        own = next(own for own in native.columns if str(own) == name)
        column = _pandas_to_arrow(native[own], name)
    else:
        column = _series_to_arrow(wrapped.get_column(name), name)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _pandas_to_arrow(series: Any, name: str) -> Any:
    if str(series.dtype).startswith("Sparse"):
        series = series.sparse.to_dense()
    try:
        # from_pandas turns NaN into null.
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as problem:
        there = series.notna()
        present = list(zip(np.flatnonzero(there).tolist(), series[there].tolist(), strict=True))
        # Whole numbers that int64 cannot hold are ids; text keeps them exact.
        if all(type(value) is int for _, value in present):
            text = dict.fromkeys(range(len(series))) | {row: str(value) for row, value in present}
            return pa.array(list(text.values()), pa.string())
        raise _mixed_types(present, name) from problem


def _series_to_arrow(series: nw.Series[Any], name: str) -> Any:
    try:
        return series.to_arrow()
    except pa.ArrowException:
        # A type that Arrow lacks, such as integers of 128 bits; text keeps it exact.
        try:
            return series.cast(nw.String()).to_arrow()
        except Exception as problem:
            raise _not_cells(f"its cells are of type {series.dtype}", SOURCE, name) from problem


def _mixed_types(present: list[tuple[int, Any]], name: str) -> InputError:
    """Return the error for a column of several types; `present` are the numbers and values of its non-blank rows."""
    first = type(present[0][1])
    others = [(row, value) for row, value in present if type(value) is not first]
    row, value = others[0] if others else present[0]
    return InputError(
        f"{shown(value)} {'has another type than the values before it' if others else 'is neither text nor a number'}",
        source=SOURCE,
        place=f"row {row + 1}",
        column=name,
        fix="make the column all text or all numbers",
    )


def as_cells(column: pa.ChunkedArray, source: str, name: str) -> pa.ChunkedArray:
    """Return a column of plain values, bytes as text; raise InputError if it holds lists or objects.

    >>> as_cells(pa.chunked_array([[b"a"]]), "labels.parquet", "document").type
    DataType(string)
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType):
        raise _not_cells(f"its cells are of type {kind}", source, name)
    try:
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
            column.validate(full=True)  # a damaged file may hold invalid text
            return column
        return column.cast(kind).cast(pa.string())
    except pa.ArrowInvalid as problem:
        raise _not_cells("its bytes are not UTF-8 text", source, name) from problem


def _not_cells(problem: str, source: str, name: str) -> InputError:
    return InputError(problem, source=source, column=name, fix="make the column all text or all numbers")


def from_arrow(table: pa.Table, backend: str = "pandas") -> Any:
    """Return an Arrow table as a DataFrame of the library `backend`.

    >>> from_arrow(pa.table({"a": [1, 2]}))
       a
    0  1
    1  2
    """
    if backend == "pyarrow":
        return table
    if backend == "pandas":
        return table.to_pandas()
    return nw.from_arrow(table, backend=nw.Implementation.from_backend(backend)).to_native()  # type: ignore[arg-type]
