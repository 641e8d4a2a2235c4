"""Charts of answers: use of the grades by each assessor, and progress over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from crowdrank._text import counted
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.assessors import grade_colors
from crowdrank.reports.charts.theme import as_pandas, new_chart, styled
from crowdrank.reports.formatting import distinct_lines

MAX_ASSESSORS = 30
"""Maximum number of assessors that are plotted: those with the most answers."""
N_TIMES = 100
"""Number of points in time of a line."""


def grade_shares(answers: Any, grades: Sequence[str], consensus: Sequence[str] | None = None) -> Any:
    """Plot the share of each grade among the answers of each assessor, and among the consensus grades.

    Args:
        answers: frame with the columns `assessor` and `grade`, one row per answer.
        grades: names of the grades, from least to most relevant.
        consensus: consensus grade of each document, plotted as the first row.

    >>> frame = pd.DataFrame({"assessor": ["a", "a", "b"], "grade": ["Bad", "Good", "Good"]})
    >>> grade_shares(frame, ["Bad", "Good"]).to_dict()["mark"]["type"]
    'bar'
    """
    table = as_pandas(answers, "assessor", "grade")
    sizes = table["assessor"].value_counts(sort=False).sort_values(ascending=False, kind="stable")
    rows = [(name, table.loc[table["assessor"] == name, "grade"]) for name in sizes.index[:MAX_ASSESSORS]]
    names = distinct_lines([name for name, _ in rows], 28)
    groups = [(f"{name} ({len(given):,})", given) for name, (_, given) in zip(names, rows, strict=True)]
    if consensus is not None:
        groups.insert(0, (f"consensus ({len(consensus):,})", pd.Series(list(consensus))))
    shares = pd.DataFrame(
        [
            {"assessor": name, "grade": grade, "order": order, "share": float((given == grade).mean())}
            for name, given in groups
            for order, grade in enumerate(grades)
        ]
    )
    chart = (
        new_chart(shares)
        .mark_bar()
        .encode(
            alt.X(
                "share:Q",
                title="share of the answers",
                axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
                scale=alt.Scale(domain=[0, 1]),
            ),
            alt.Y("assessor:N", title=None, sort=[name for name, _ in groups]),
            color=grade_colors(list(grades), "grade"),
            order="order:Q",
            tooltip=["assessor:N", "grade:N", alt.Tooltip("share:Q", format=".0%")],
        )
    )
    n = counted(len(sizes), "assessor")
    subtitle = f"{n if len(sizes) <= MAX_ASSESSORS else f'{MAX_ASSESSORS} of {n}'}; number of answers in parentheses"
    return styled(chart, "Use of the grades", subtitle, width=theme.WIDTH - 40, height=alt.Step(22))


def answers_over_time(answers: Any) -> Any:
    """Plot the cumulative number of answers by kind of assessor.

    Args:
        answers: frame with the columns `time` and `kind`, one row per answer.

    >>> times = pd.to_datetime(["2024-01-01 10:00", "2024-01-01 12:00"])
    >>> answers_over_time(pd.DataFrame({"time": times, "kind": "human"})).to_dict()["mark"]["interpolate"]
    'step-after'
    """
    table = as_pandas(answers, "time", "kind")
    first, last = table["time"].min(), table["time"].max()
    times = pd.date_range(first, last, N_TIMES)
    time_format = "%H:%M" if last - first < pd.Timedelta(days=1) else "%b %d"
    rows = [
        {"time": time, "kind": kind, "answers": int(number)}
        for kind, group in table.groupby("kind")
        for time, number in zip(times, np.searchsorted(np.sort(group["time"]), times, side="right"), strict=True)
    ]
    chart = (
        new_chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2, interpolate="step-after")
        .encode(
            alt.X(
                "time:T",
                title=f"time (UTC), from {first:%Y-%m-%d}",
                scale=alt.Scale(type="utc"),
                axis=alt.Axis(tickCount=6, format=time_format),
            ),
            alt.Y("answers:Q", title="answers so far", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(range=[theme.BLUE, theme.ORANGE, theme.GREEN])),
            tooltip=["time:T", "kind:N", "answers:Q"],
        )
    )
    return styled(chart, "Answers over time", counted(len(table), "answer"), **theme.SIZE)
