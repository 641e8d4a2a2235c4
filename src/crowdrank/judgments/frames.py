"""The door for DataFrames: whatever library a frame is of, in as Arrow columns, out as the same library."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa

from crowdrank.errors import InputError


def is_frame(value: object) -> bool:
    """Whether `value` is a DataFrame of a library that narwhals knows."""
    return isinstance(nw.from_native(value, pass_through=True), nw.DataFrame | nw.LazyFrame)


def backend_of(frame: Any) -> str:
    """The library a frame is of: 'pandas', 'polars', 'pyarrow', ...

    >>> import pandas as pd
    >>> backend_of(pd.DataFrame({"a": [1]}))
    'pandas'
    """
    return str(nw.from_native(frame).implementation.value)


def column_names(frame: Any) -> list[str]:
    """The names of a frame's columns, in order."""
    return [str(name) for name in nw.from_native(frame).collect_schema().names()]


def column_to_arrow(frame: Any, name: str) -> pa.ChunkedArray:
    """One column as Arrow; a column that holds several types at once is refused by name."""
    eager = nw.from_native(frame)
    if isinstance(eager, nw.LazyFrame):
        eager = eager.select(name).collect()
    series = eager.get_column(name)
    try:
        column = _series_to_arrow(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        place, value = _first_of_other_type(series.to_list())
        raise InputError(
            f"{value!r} has another type than the values before it",
            source="the frame",
            place=place,
            column=name,
            remedy="make the column all text or all numbers",
        ) from problem
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _series_to_arrow(series: nw.Series[Any]) -> Any:
    if series.implementation.is_pandas():
        # from_pandas turns NaN into null, as pandas means it.
        return pa.Array.from_pandas(series.to_native())
    return series.to_arrow()


def _first_of_other_type(values: list[Any]) -> tuple[str, Any]:
    present = [(row, value) for row, value in enumerate(values) if value is not None and value == value]
    kind = type(present[0][1]) if present else object
    for row, value in present:
        if type(value) is not kind:
            return f"row {row + 1}", value
    return "row 1", values[0] if values else None


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
