"""Style of all charts, and helpers that reduce many points to few marks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._text import distinct_lines
from crowdrank.errors import InputError, UsageError

try:
    import altair as alt
except ImportError as problem:  # pragma: no cover - the tests have Altair
    raise UsageError("Charts need Altair; install it with: pip install 'crowdrank[report]'") from problem

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
YELLOW = "#F0E442"
DARK, GRAY, PALE = "#1f2933", "#8a939c", "#e4e7eb"
GRADES = (VERMILION, ORANGE, GRAY, SKY, BLUE, PURPLE, GREEN)
"""Colors of grades, from the lowest to the highest."""
FLAGS = {
    "careful": GREEN,
    "no flag": GRAY,
    "copy": SKY,
    "lenient": YELLOW,
    "strict": BLUE,
    "careless": ORANGE,
    "random": VERMILION,
    "reversed": PURPLE,
    "few": SKY,
}
"""Colors of flags."""
SHAPES = {
    "careful": "circle",
    "no flag": "circle",
    "copy": "triangle-left",
    "lenient": "triangle-up",
    "strict": "triangle-right",
    "careless": "square",
    "random": "cross",
    "reversed": "triangle-down",
    "few": "diamond",
}
"""Shapes of flags, for print and for readers who cannot distinguish the colors."""
MAX_POINTS = 1500
"""Maximum number of points that are drawn one by one; more are counted in cells."""
BINS = 40
WIDTH, HEIGHT = 430, 230
FONT = "DejaVu Sans, Verdana, sans-serif"
"""Fonts of equal widths, of which most computers have one: text then fits where the layout puts it."""
SIZE = {"width": WIDTH, "height": HEIGHT}


STYLE = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "title": {"anchor": "start", "frame": "group", "color": DARK, "fontSize": 14, "offset": 10}
    | {"subtitleColor": "#52606d", "subtitleFontSize": 11},
    "axis": {"labelColor": "#3e4c59", "labelFontSize": 10.5, "labelLimit": 190, "titleColor": DARK, "titleFontSize": 11}
    | {"titleFontWeight": "normal", "gridColor": PALE, "domainColor": GRAY, "tickColor": GRAY},
    "axisQuantitative": {"labelOverlap": "greedy", "labelSeparation": 7},
    "legend": {"labelColor": "#3e4c59", "labelLimit": 160, "titleColor": DARK, "titleFontWeight": "normal"}
    | {"symbolSize": 70},
    "header": {"labelColor": DARK, "labelFontSize": 11.5, "labelLimit": 400, "titleColor": DARK},
}
"""Configuration of all charts."""


def new_chart(table: pd.DataFrame) -> Any:
    """Return a chart of a table; the rows are part of the chart, however many they are.

    A DataFrame in a chart would be refused from 5,000 rows on, a limit that can only be changed for the whole process.

    >>> len(new_chart(pd.DataFrame({"x": range(6_000)})).mark_point().encode(x="x:Q").to_dict()["datasets"])
    1
    """
    return alt.Chart(alt.InlineData(values=alt.to_values(table)["values"]))


def styled(chart: Any, title: str, *subtitle: str, **properties: Any) -> Any:
    """Return the chart with a title, subtitles, other properties such as its size, and the style of all charts."""
    heading = alt.TitleParams(title, subtitle=[line for line in subtitle if line])
    return chart.properties(title=heading, **properties).configure(**STYLE)


def even_ticks(low: float, high: float, max_ticks: int = 8) -> list[float]:
    """Return evenly spaced ticks that include 0 and cover `low` to `high`.

    >>> even_ticks(-0.09, 0.173)
    [-0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2]
    >>> even_ticks(0.0, 0.0)
    [0.0, 1.0]
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-9:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high - low))
    for step in (size * factor for factor in (0.1, 0.2, 0.5, 1.0, 2.0)):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < max_ticks:
            break
    return [round(number * step, 12) + 0.0 for number in range(first, last + 1)]


def as_pandas(frame: Any, *required: str) -> pd.DataFrame:
    """Return a DataFrame of any library as pandas; raise InputError if it lacks a required column.

    >>> as_pandas(pd.DataFrame({"a": [1]}), "b")
    Traceback (most recent call last):
    crowdrank.errors.InputError: the frame for this chart has no column 'b'; its columns are a.
    """
    import narwhals as nw

    table: pd.DataFrame = nw.from_native(frame, eager_only=True).to_pandas()
    missing = next((name for name in required if name not in table), None)
    if missing is not None:
        columns = ", ".join(map(str, table.columns))
        problem = f"the frame for this chart has no column '{missing}'; its columns are {columns}"
        raise InputError(problem, kind="no-column")
    return table


def histogram(values: Any, x_title: str, noun: str, bins: int = BINS, color: Any = BLUE) -> Any:
    """Return a bar chart of the number of values in equal bins; `color` is a color, or an encoding by `start`."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    count, edges = np.histogram(known, bins=bins) if len(known) else (np.zeros(0, np.int64), np.zeros(1))
    table = pd.DataFrame({"start": edges[:-1], "end": edges[1:], "count": count})
    return (
        new_chart(table)
        .mark_bar(binSpacing=1)
        .encode(
            alt.X("start:Q", bin="binned", title=x_title),
            alt.X2("end:Q"),
            alt.Y("count:Q", title=noun, axis=alt.Axis(tickMinStep=1)),
            color=alt.value(color) if isinstance(color, str) else color,
            tooltip=[alt.Tooltip("count:Q", title=noun)],
        )
    )


def scatter(table: pd.DataFrame, x: str, y: str, x_title: str, log: bool = False) -> Any:
    """Return a scatter plot of documents; more than `MAX_POINTS` are counted in cells."""
    if len(table) > MAX_POINTS:
        return density(table[x], table[y], x_title, y, "documents")
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    points = table.assign(document=distinct_lines(table["document"]))[["document", x, y]]
    return (
        new_chart(points)
        .mark_circle(color=BLUE, size=28, opacity=0.55)
        .encode(
            alt.X(f"{x}:Q", title=x_title, scale=scale),
            alt.Y(f"{y}:Q", title=y, scale=alt.Scale(zero=False)),
            tooltip=["document:N"],
        )
    )


def counts_in_cells(x: Any, y: Any, bins: int = BINS) -> pd.DataFrame:
    """Return the number of points in each cell of a grid; empty cells are left out.

    >>> cells = counts_in_cells([0, 0, 1], [0, 0, 1], bins=2)
    >>> cells["count"].tolist(), len(cells)
    ([2, 1], 2)
    """
    horizontal, vertical = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = np.isfinite(horizontal) & np.isfinite(vertical)
    count, left, bottom = np.histogram2d(horizontal[known], vertical[known], bins=bins)
    i, j = np.nonzero(count)
    columns = {"x0": left[i], "x1": left[i + 1], "y0": bottom[j], "y1": bottom[j + 1]}
    return pd.DataFrame({**columns, "count": count[i, j].astype(int)})


def density(x: Any, y: Any, x_title: str, y_title: str, noun: str) -> Any:
    """Return a chart of the number of points in each cell of a grid."""
    shade = alt.Color("count:Q", title=noun, scale=alt.Scale(type="log", range=["#d6e8f5", "#003f66"]))
    return (
        new_chart(counts_in_cells(x, y))
        .mark_rect(stroke=None)
        .encode(
            alt.X("x0:Q", title=x_title, scale=alt.Scale(zero=False)),
            alt.X2("x1:Q"),
            alt.Y("y0:Q", title=y_title, scale=alt.Scale(zero=False)),
            alt.Y2("y1:Q"),
            color=shade,
            tooltip=[alt.Tooltip("count:Q", title=noun)],
        )
    )
