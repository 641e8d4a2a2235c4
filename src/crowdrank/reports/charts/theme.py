"""How all charts look, and what they are made of: frames in, few points out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._text import counted
from crowdrank.errors import InputError, UsageError
from crowdrank.reports.formatting import plain_ids as plain_ids

try:
    import altair as alt
except ImportError as problem:  # pragma: no cover - the tests have Altair
    raise UsageError("Charts need Altair; install it with: pip install 'crowdrank[report]'") from problem

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
YELLOW = "#F0E442"
INK, GREY, PALE = "#1f2933", "#8a939c", "#e4e7eb"
GRADES = (VERMILION, ORANGE, GREY, SKY, BLUE, PURPLE, GREEN)
"""Of grades that are few enough to have a color each, from the lowest up."""
FLAGS = {
    "careful": GREEN,
    "no flag": GREY,
    "lenient": YELLOW,
    "strict": BLUE,
    "careless": ORANGE,
    "random": VERMILION,
    "reversed": PURPLE,
    "few": SKY,
}
SHAPES = {
    "careful": "circle",
    "no flag": "circle",
    "lenient": "triangle-up",
    "strict": "triangle-right",
    "careless": "square",
    "random": "cross",
    "reversed": "triangle-down",
    "few": "diamond",
}
"""Flags differ in shape too, for print and for whoever sees no colors."""
MOST_POINTS = 1500
"""Of more points than this, a chart shows how many lie where."""
BINS = 40
WIDTH, HEIGHT = 430, 230


def titled(title: str, *subtitle: str) -> alt.TitleParams:
    """A title that says what is to be seen, and below it what of, in a line or more."""
    return alt.TitleParams(title, subtitle=[line for line in subtitle if line])


def even_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Evenly spaced ticks, 0 among them, from the one below `low` to the one above `high`; both ends reach 0.

    >>> even_ticks(-0.09, 0.173)
    [-0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2]
    >>> even_ticks(0.0, 0.0)
    [0.0, 1.0]
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-9:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high - low))
    for step in (size * part for part in (0.1, 0.2, 0.5, 1.0, 2.0)):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < most:
            break
    return [round(at * step, 12) + 0.0 for at in range(first, last + 1)]


def dressed(chart: Any) -> Any:
    """The chart in the house's look."""
    return (
        chart.configure(font="Helvetica, Arial, sans-serif", background="white")
        .configure_view(stroke=None)
        .configure_title(
            anchor="start", fontSize=14, color=INK, subtitleColor="#52606d", subtitleFontSize=11.5, offset=10
        )
        .configure_axis(
            labelColor="#3e4c59", titleColor=INK, titleFontWeight="normal", gridColor=PALE, domainColor=GREY,
            tickColor=GREY, labelFontSize=11, titleFontSize=11.5, labelLimit=190,
        )
        .configure_axisQuantitative(labelOverlap="greedy", labelSeparation=7)
        .configure_legend(labelColor="#3e4c59", titleColor=INK, titleFontWeight="normal", symbolSize=70, labelLimit=160)
        .configure_header(labelColor=INK, titleColor=INK, labelFontSize=12, labelLimit=190)
    )  # fmt: skip


def as_pandas(frame: Any, *needed: str) -> pd.DataFrame:
    """A frame of any library (or Arrow) as pandas, with the columns that are needed.

    >>> as_pandas(pd.DataFrame({"a": [1]}), "b")
    Traceback (most recent call last):
    crowdrank.errors.InputError: the frame for this chart lacks the column 'b' (it has: a).
    """
    import narwhals as nw

    known: pd.DataFrame = nw.from_native(frame, eager_only=True).to_pandas()
    missing = [name for name in needed if name not in known]
    if missing:
        raise InputError(
            f"the frame for this chart lacks the column '{missing[0]}' (it has: {', '.join(map(str, known.columns))})"
        )
    return known


def counts_in_bins(values: Any, bins: int = BINS) -> pd.DataFrame:
    """How many values lie in each of equal bins: start, end, count.

    >>> counts_in_bins([0.0, 0.1, 1.0], bins=2)
       start  end  count
    0    0.0  0.5      2
    1    0.5  1.0      1
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    count, edges = np.histogram(known, bins=bins) if len(known) else (np.zeros(0, np.int64), np.zeros(1))
    return pd.DataFrame({"start": edges[:-1], "end": edges[1:], "count": count})


def counts_in_cells(x: Any, y: Any, bins: int = BINS) -> pd.DataFrame:
    """How many points lie in each cell of a grid; empty cells are left out, points never.

    >>> cells = counts_in_cells([0, 0, 1], [0, 0, 1], bins=2)
    >>> cells["count"].tolist(), len(cells)
    ([2, 1], 2)
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = np.isfinite(across) & np.isfinite(up)
    count, left, low = np.histogram2d(across[known], up[known], bins=bins)
    i, j = np.nonzero(count)
    return pd.DataFrame(
        {"x0": left[i], "x1": left[i + 1], "y0": low[j], "y1": low[j + 1], "count": count[i, j].astype(int)}
    )


def cloud(x: Any, y: Any, x_title: str, y_title: str, noun: str) -> Any:
    """Many points as cells, the darker the more."""
    cells = counts_in_cells(x, y)
    shade = alt.Color("count:Q", title=f"{noun}s", scale=alt.Scale(type="log", range=["#d6e8f5", "#003f66"]))
    return (
        alt.Chart(cells)
        .mark_rect(stroke=None)
        .encode(
            alt.X("x0:Q", title=x_title, scale=alt.Scale(zero=False)),
            alt.X2("x1:Q"),
            alt.Y("y0:Q", title=y_title, scale=alt.Scale(zero=False)),
            alt.Y2("y1:Q"),
            color=shade,
            tooltip=[alt.Tooltip("count:Q", title=f"{noun}s")],
        )
    )


def number_of(frame: Any, noun: str) -> str:
    """How many rows a chart shows, in words.

    >>> number_of([1, 2], "document")
    '2 documents'
    """
    return counted(len(frame), noun)
