"""Charts of estimated quality: estimates with intervals, beside those of labels and experts alone."""

from __future__ import annotations

from typing import Any

import altair as alt

from crowdrank.errors import UsageError
from crowdrank.estimation.estimate import Estimate
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, new_chart, styled
from crowdrank.reports.formatting import distinct_lines, one_line

SOURCES = {"estimate": "estimate", "labels_only": "labels alone", "experts_only": "experts alone"}
"""Columns of an estimate with a value per run, and their names in the legend."""


def estimates(estimate: Any) -> Any:
    """Plot the estimate of each run with its interval, beside the values of labels and experts alone.

    Args:
        estimate: the result of :func:`crowdrank.estimate`.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, random_state=1)
    >>> labels = crowdrank.MajorityVote().fit(world.judgments).consensus_
    >>> run = world.gold.assign(score=world.gold.grade)
    >>> expert = world.gold[world.gold["query"].isin(world.gold["query"].unique()[:10])]
    >>> chart = estimates(crowdrank.estimate({"live": run, "new": run}, labels, expert))
    >>> chart.to_dict()["layer"][0]["encoding"]["x"]["title"]
    'nDCG@10'
    """
    if not isinstance(estimate, Estimate):
        raise UsageError(f"must be an Estimate, not a {type(estimate).__name__}", parameter="estimate")
    table = as_pandas(estimate.table, "run", "lower", "upper", *SOURCES)
    table["run"] = distinct_lines(table["run"], 28)
    experts_alone = (table["experts_only"] == table["estimate"]).all()  # as if no labels of other queries are used
    sources = [name for name in SOURCES if name != "experts_only" or not experts_alone]
    points = table.melt(["run"], sources, "source", "value").dropna()
    points["source"] = points["source"].map(SOURCES)
    names = [name for name in SOURCES.values() if (points["source"] == name).any()]
    looks = {"estimate": (theme.BLUE, "circle"), "labels alone": (theme.ORANGE, "cross")}
    looks["experts alone"] = (theme.GREEN, "triangle-up")
    legend = alt.Legend(orient="top", offset=2)
    color, shape = (
        channel(
            "source:N", title=None, scale=alt.Scale(domain=names, range=[looks[n][part] for n in names]), legend=legend
        )
        for part, channel in enumerate((alt.Color, alt.Shape))
    )
    y = alt.Y("run:N", sort=table["run"].tolist(), title=None, axis=alt.Axis(ticks=False, domain=False))
    x = alt.X("lower:Q", title=str(estimate.measure), scale=alt.Scale(zero=False))
    intervals = (
        new_chart(table[["run", "lower", "upper"]])
        .mark_rule(strokeWidth=2.5, color=theme.BLUE)
        .encode(x, alt.X2("upper:Q"), y)
    )
    dots = (
        new_chart(points)
        .mark_point(filled=True, size=75, opacity=1)
        .encode(alt.X("value:Q"), y, color, shape, tooltip=["run:N", "source:N", alt.Tooltip("value:Q", format=".4f")])
    )
    return styled(
        alt.layer(intervals, dots),
        f"{estimate.measure} of the runs, estimated",
        f"bars are {estimate.level:.4g} intervals",
        _difference_text(estimate),
        width=theme.WIDTH,
        height=alt.Step(26),
    )


def _difference_text(estimate: Estimate) -> str:
    """Return the difference of the first run that is not the baseline, with its interval."""
    rows = [row for row in estimate.rows.to_pylist() if row["run"] != estimate.baseline]
    if not rows:
        return ""
    row = rows[0]
    interval = f"[{row['difference_lower']:+.4f}, {row['difference_upper']:+.4f}]"
    return f"{one_line(row['run'], 24)} minus {one_line(estimate.baseline, 24)}: {row['difference']:+.4f} {interval}"
