"""The door for DataFrames: whatever library a frame is of, in as Arrow columns, out as the same library."""

from __future__ import annotations

from collections import Counter
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from crowdrank.errors import InputError, shown

SOURCE = "the frame"
"""What a frame is called in messages, as a file is by its path."""


def is_frame(value: object) -> bool:
    """Whether `value` is a DataFrame of a library that narwhals knows."""
    return isinstance(_known(value), nw.DataFrame | nw.LazyFrame)


def _known(frame: Any) -> Any:
    """The frame as narwhals sees it, or what else it is."""
    try:
        return nw.from_native(frame, pass_through=True)
    except nw.exceptions.DuplicateError as problem:
        names = frame.column_names if nw.dependencies.is_pyarrow_table(frame) else frame.columns
        raise _doubled([str(name) for name in names]) from problem


def _doubled(names: list[str]) -> InputError:
    name = next(name for name, count in Counter(names).items() if count > 1)
    return InputError(f"the column {shown(name)} occurs twice", source=SOURCE, fix="rename one of them")


def backend_of(frame: Any) -> str:
    """The library that results for a frame come in: its own, or pandas where that one has no frames in memory.

    >>> import pandas as pd
    >>> backend_of(pd.DataFrame({"a": [1]}))
    'pandas'
    """
    known = _known(frame)
    in_memory = isinstance(known, nw.DataFrame) or known.implementation.is_polars()
    return str(known.implementation.value) if in_memory else "pandas"


def column_names(frame: Any) -> list[str]:
    """The names of a frame's columns, in order; a name that occurs twice is refused."""
    names = [str(name) for name in _own_names(frame)]
    if len(set(names)) < len(names):
        raise _doubled(names)
    return names


def _own_names(frame: Any) -> list[Any]:
    """The names as the frame has them: pandas also takes numbers."""
    native = nw.to_native(frame, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(native):
        return list(native.columns)
    if nw.dependencies.is_pyarrow_table(native):
        return list(native.column_names)
    try:
        return list(_known(frame).collect_schema().names())
    except Exception as problem:
        raise _lazy_problem(problem) from problem


def collected(frame: Any, names: list[str]) -> Any:
    """The columns named of a frame that may be lazy, in memory."""
    known = _known(frame)
    if not isinstance(known, nw.LazyFrame):
        return frame
    try:
        return known.select(names).collect()
    except Exception as problem:
        raise _lazy_problem(problem) from problem


def _lazy_problem(problem: Exception) -> InputError:
    # A lazy frame fails when it is asked, with whatever its library raises.
    reason = str(problem).split("\n")[0].rstrip(".")
    return InputError(f"it cannot be computed ({reason})", source=SOURCE, fix="mend the query or file behind it")


def column_to_arrow(frame: Any, name: str) -> pa.ChunkedArray:
    """One column as Arrow; a column that holds several types at once is refused by name."""
    known = _known(collected(frame, [name]))
    native = known.to_native()
    if isinstance(native, pa.Table):
        return native[name]
    if nw.dependencies.is_pandas_dataframe(native):
        own = next(own for own in native.columns if str(own) == name)
        column = _pandas_to_arrow(native[own], name)
    else:
        column = _series_to_arrow(known.get_column(name), name)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _pandas_to_arrow(series: Any, name: str) -> Any:
    if str(series.dtype).startswith("Sparse"):
        series = series.sparse.to_dense()
    try:
        # from_pandas turns NaN into null, as pandas means it.
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as problem:
        there = series.notna()
        present = list(zip(np.flatnonzero(there).tolist(), series[there].tolist(), strict=True))
        # Whole numbers too large for Arrow's integers are ids: text keeps them exact.
        if all(type(value) is int for _, value in present):
            text = dict.fromkeys(range(len(series))) | {row: str(value) for row, value in present}
            return pa.array(list(text.values()), pa.string())
        raise _no_one_type(present, name) from problem


def _series_to_arrow(series: nw.Series[Any], name: str) -> Any:
    try:
        return series.to_arrow()
    except pa.ArrowException:
        # A type that Arrow does not know, such as integers of 128 bits: text keeps it exact.
        try:
            return series.cast(nw.String()).to_arrow()
        except Exception as problem:
            raise _no_cells(f"its cells are of type {series.dtype}", SOURCE, name) from problem


def _no_one_type(present: list[tuple[int, Any]], name: str) -> InputError:
    """What is wrong with a column that is no Arrow column; `present` are its rows and values without the blanks."""
    first = type(present[0][1])
    others = [(row, value) for row, value in present if type(value) is not first]
    row, value = others[0] if others else present[0]
    return InputError(
        f"{shown(value)} has another type than the values before it" if others else f"{shown(value)} is no cell",
        source=SOURCE,
        place=f"row {row + 1}",
        column=name,
        fix="make the column all text or all numbers",
    )


def as_cells(column: pa.ChunkedArray, source: str, name: str) -> pa.ChunkedArray:
    """The column where it holds one plain value a row; bytes become text.

    >>> as_cells(pa.chunked_array([[b"a"]]), "labels.parquet", "document").type
    DataType(string)
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType):
        raise _no_cells(f"its cells are of type {kind}", source, name)
    try:
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
            column.validate(full=True)  # a damaged file may hold text that is none
            return column
        return column.cast(kind).cast(pa.string())
    except pa.ArrowInvalid as problem:
        raise _no_cells("its bytes are not UTF-8 text", source, name) from problem


def _no_cells(problem: str, source: str, name: str) -> InputError:
    return InputError(problem, source=source, column=name, fix="make the column all text or all numbers")


def from_arrow(table: pa.Table, backend: str = "pandas") -> Any:
    """An Arrow table as a DataFrame of the library named.

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
