"""Convert DataFrames of any library to Arrow columns, and Arrow tables to DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.errors import InputError, shown
from crowdrank.judgments.columns import refuse_duplicate_columns

if TYPE_CHECKING:
    import narwhals as nw

FRAME_SOURCE_NAME = "the frame"
"""Name of a DataFrame in error messages."""
_POLARS_NUMBERS = {
    *("Boolean", "Float32", "Float64", "Int8", "Int16", "Int32", "Int64"),
    *("UInt8", "UInt16", "UInt32", "UInt64"),
}
"""Types of polars whose values are numbers of at most 64 bits."""


def is_frame(candidate: object) -> bool:
    """Return whether `candidate` is a DataFrame of a library that narwhals supports."""
    if isinstance(candidate, str | Path | list):
        return False
    import narwhals as nw

    return _is_in_memory_frame(candidate) or isinstance(_to_narwhals(candidate), nw.DataFrame | nw.LazyFrame)


def _is_in_memory_frame(candidate: object) -> bool:
    """Return whether `candidate` is a frame in memory of pandas, polars, pyarrow or narwhals, without wrapping it."""
    import narwhals as nw

    if isinstance(candidate, nw.DataFrame | pa.Table):
        return True
    return nw.dependencies.is_pandas_dataframe(candidate) or nw.dependencies.is_polars_dataframe(candidate)


def _to_narwhals(frame: Any) -> Any:
    """Wrap a DataFrame in a narwhals frame; return other objects unchanged."""
    import narwhals as nw

    try:
        return nw.from_native(frame, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = frame.column_names if nw.dependencies.is_pyarrow_table(frame) else frame.columns
        refuse_duplicate_columns([str(name) for name in names], FRAME_SOURCE_NAME)
        raise


def frame_library(frame: Any) -> str:
    """Return the library of a DataFrame, in which results are returned; 'pandas' for libraries with only lazy frames.

    >>> import pandas as pd
    >>> frame_library(pd.DataFrame({"a": [1]}))
    'pandas'
    """
    import narwhals as nw

    if nw.dependencies.is_pandas_dataframe(frame):  # wrapping a frame takes longer than many a fit
        return "pandas"
    wrapped = _to_narwhals(frame)
    in_memory = isinstance(wrapped, nw.DataFrame) or wrapped.implementation.is_polars()
    return str(wrapped.implementation.value) if in_memory else "pandas"


def column_names(frame: Any) -> list[str]:
    """Return the column names of a frame; raise InputError if a name occurs twice."""
    names = [str(name) for name in _native_column_names(frame)]
    refuse_duplicate_columns(names, FRAME_SOURCE_NAME)
    return names


def _native_column_names(frame: Any) -> list[Any]:
    """Return the column names with their own types; in pandas a name can also be a number."""
    import narwhals as nw

    is_pandas = nw.dependencies.is_pandas_dataframe(frame)
    native = frame if is_pandas else nw.to_native(frame, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(native) or nw.dependencies.is_polars_dataframe(native):
        return list(native.columns)
    if nw.dependencies.is_pyarrow_table(native):
        return list(native.column_names)
    try:
        return list(_to_narwhals(frame).collect_schema().names())
    except Exception as problem:
        raise _lazy_frame_error(problem) from problem


def collect_columns(frame: Any, column_names: list[str]) -> Any:
    """Compute some columns of a lazy frame; return other frames unchanged."""
    import narwhals as nw

    if _is_in_memory_frame(frame):
        return frame
    wrapped = _to_narwhals(frame)
    if not isinstance(wrapped, nw.LazyFrame):
        return frame
    try:
        return wrapped.select(column_names).collect()
    except Exception as problem:
        raise _lazy_frame_error(problem) from problem


def _lazy_frame_error(error: Exception) -> InputError:
    # A lazy frame fails when it is computed, with any exception of its library.
    reason = str(error).split("\n")[0].rstrip(".")
    return InputError(
        f"it cannot be computed ({reason})", source=FRAME_SOURCE_NAME, fix="check the query or file behind it"
    )


def column_to_arrow(frame: Any, column_name: str) -> pa.ChunkedArray:
    """Return a column of a DataFrame as an Arrow column; raise InputError if its cells have several types."""
    import narwhals as nw

    frame = collect_columns(frame, [column_name])
    native = frame if isinstance(frame, pa.Table) else nw.to_native(frame, pass_through=True)
    if isinstance(native, pa.Table):
        return native[column_name]
    if nw.dependencies.is_pandas_dataframe(native):
        native_name = next(native_name for native_name in native.columns if str(native_name) == column_name)
        column = _pandas_to_arrow(native[native_name], column_name)
    else:
        column = _series_to_arrow(_to_narwhals(frame).get_column(column_name), column_name)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def numeric_matrix(frame: Any, column_names: list[str]) -> NDArray[np.float64] | None:
    """Return numeric columns of a frame of pandas or polars as a matrix, NaN for null; None for other frames.

    It is many times faster than the conversion of one column after the other.

    >>> import pandas as pd
    >>> numeric_matrix(pd.DataFrame({"a": [1, 2], "b": [0.5, None]}), ["b", "a"])
    array([[0.5, 1. ],
           [nan, 2. ]])
    >>> numeric_matrix(pd.DataFrame({"a": ["1"]}), ["a"])
    """
    import narwhals as nw

    native = nw.to_native(frame, pass_through=True)
    if nw.dependencies.is_polars_dataframe(native):
        chosen = native[column_names]  # select would start polars' query engine
        if not all(str(dtype) in _POLARS_NUMBERS for dtype in chosen.dtypes):
            return None
        return np.asarray(chosen.to_numpy(), dtype=np.float64)
    if not nw.dependencies.is_pandas_dataframe(native):
        return None
    found = [str(name) for name in native.columns]
    if found != column_names:
        place = {name: number for number, name in enumerate(found)}
        native = native.iloc[:, [place[name] for name in column_names]]
    if not all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in native.dtypes):
        return None
    return np.asarray(native.to_numpy(np.float64))


def _pandas_to_arrow(series: Any, column_name: str) -> Any:
    """Convert a pandas series; integers that do not fit into 64 bits become text."""
    if str(series.dtype).startswith("Sparse"):
        series = series.sparse.to_dense()
    try:
        # from_pandas turns NaN into null.
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as problem:
        is_present = series.notna()
        present_cells = list(zip(np.flatnonzero(is_present).tolist(), series[is_present].tolist(), strict=True))
        # Whole numbers that int64 cannot hold are ids; text keeps them exact.
        if all(type(value) is int for _, value in present_cells):
            text = dict.fromkeys(range(len(series))) | {row: str(value) for row, value in present_cells}
            return pa.array(list(text.values()), pa.string())
        raise _mixed_types_error(present_cells, column_name) from problem


def _series_to_arrow(series: nw.Series[Any], column_name: str) -> Any:
    """Convert a series of another library than pandas; types that Arrow lacks become text."""
    import narwhals as nw

    try:
        return series.to_arrow()
    except pa.ArrowException:
        # A type that Arrow lacks, such as integers of 128 bits; text keeps it exact.
        try:
            return series.cast(nw.String()).to_arrow()
        except Exception as problem:
            raise _column_type_error(
                f"its cells are of type {series.dtype}", FRAME_SOURCE_NAME, column_name
            ) from problem


def _mixed_types_error(present_cells: list[tuple[int, Any]], column_name: str) -> InputError:
    """Return the error for a column of several types; `present_cells` are (row, value) of the cells with a value."""
    first = type(present_cells[0][1])
    others = [(row, value) for row, value in present_cells if type(value) is not first]
    row, value = others[0] if others else present_cells[0]
    return InputError(
        f"{shown(value)} {'has another type than the values before it' if others else 'is neither text nor a number'}",
        source=FRAME_SOURCE_NAME,
        place=f"row {row + 1}",
        column=column_name,
        fix="make the column all text or all numbers",
    )


def to_plain_values(column: pa.ChunkedArray, source: str, column_name: str) -> pa.ChunkedArray:
    """Return a column with bytes decoded as text; raise InputError if its cells are lists or objects.

    >>> to_plain_values(pa.chunked_array([[b"a"]]), "labels.parquet", "document").type
    DataType(string)
    """
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if (
        pa.types.is_nested(value_type)
        or pa.types.is_interval(value_type)
        or isinstance(value_type, pa.BaseExtensionType)
    ):
        raise _column_type_error(f"its cells are of type {value_type}", source, column_name)
    try:
        if not (
            pa.types.is_binary(value_type)
            or pa.types.is_large_binary(value_type)
            or pa.types.is_fixed_size_binary(value_type)
        ):
            column.validate(full=True)  # a damaged file may hold invalid text
            return column
        return column.cast(value_type).cast(pa.string())
    except pa.ArrowInvalid as problem:
        raise _column_type_error("its bytes are not UTF-8 text", source, column_name) from problem


def _column_type_error(problem: str, source: str, column_name: str) -> InputError:
    """Return the error for a column whose cells are not text or numbers."""
    return InputError(problem, source=source, column=column_name, fix="make the column all text or all numbers")


def from_arrow(table: pa.Table, backend: str = "pandas") -> Any:
    """Convert an Arrow table to a DataFrame of the library `backend`.

    >>> from_arrow(pa.table({"a": [1, 2]}))
       a
    0  1
    1  2
    """
    import narwhals as nw

    if backend == "pyarrow":
        return table
    if backend == "pandas":
        return table.to_pandas()
    return nw.from_arrow(table, backend=nw.Implementation.from_backend(backend)).to_native()  # type: ignore[arg-type]
