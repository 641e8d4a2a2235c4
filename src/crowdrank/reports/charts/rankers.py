"""Charts of rankers and systems: differences and estimates with their intervals, and quality by cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from crowdrank._text import counted, distinct_lines, one_line
from crowdrank.errors import InputError, UsageError
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, even_ticks, new_chart, styled

if TYPE_CHECKING:
    from crowdrank.estimation.estimate import Estimate

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
    from crowdrank.estimation.estimate import Estimate

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


MAX_QUERIES = 80
"""Maximum number of queries with a bar each; the differences of more are plotted as a histogram."""
TEST_NAMES = {"fisher": "randomization"}
"""Names of significance tests, if they differ from their values."""


def ranker_comparison(comparison: Any, measure: str | None = None, *, chosen: str = "", baseline: str = "") -> Any:
    """Plot the difference of each ranker to the baseline with its interval, the best ranker on top.

    Args:
        comparison: a `Comparison`, or its `details` (measure, run, mean, difference, lower, upper, p_holm).
        measure: measure to plot; by default the first.
        chosen: name of the ranker to highlight.
        baseline: name of the baseline, if `comparison` is a frame.

    >>> frame = pd.DataFrame({"measure": ["AP", "AP"], "run": ["a", "b"], "mean": [0.3, 0.4], "difference": [0, 0.1],
    ...                       "lower": [None, 0.05], "upper": [None, 0.2], "p_holm": [None, 0.01]})
    >>> ranker_comparison(frame, baseline="a").to_dict()["layer"][1]["encoding"]["x"]["title"]
    'difference in AP to a'
    """
    from crowdrank.evaluation.comparison import Comparison

    test = "fisher"
    if isinstance(comparison, Comparison):
        test, baseline, comparison = comparison.test, comparison.baseline, comparison.details
    table = as_pandas(comparison, "measure", "run", "mean", "difference", "lower", "upper", "p_holm")
    measure = measure or str(table["measure"].iloc[0])
    table = table[(table["measure"] == measure) & table["difference"].notna()].sort_values("mean", ascending=False)
    if not len(table):
        raise InputError(f"there are no values of {measure}", kind="no-measure")
    rows = table.assign(
        kind=["selected" if run == chosen else "baseline" if run == baseline else "other" for run in table["run"]],
        run=distinct_lines(table["run"], 28),
        place=range(len(table)),
        **{name: pd.to_numeric(table[name]) for name in ("difference", "lower", "upper", "p_holm")},
    )[["run", "kind", "place", "mean", "difference", "lower", "upper", "p_holm"]]
    kinds = [kind for kind in ("selected", "baseline", "other") if (rows["kind"] == kind).any()]
    colors = {"selected": theme.VERMILION, "baseline": theme.DARK, "other": theme.BLUE}
    shapes = {"selected": "diamond", "baseline": "square", "other": "circle"}
    legend = alt.Legend(orient="top", offset=2)
    color = alt.Color(
        "kind:N", title=None, scale=alt.Scale(domain=kinds, range=[colors[kind] for kind in kinds]), legend=legend
    )
    shape = alt.Shape(
        "kind:N", title=None, scale=alt.Scale(domain=kinds, range=[shapes[kind] for kind in kinds]), legend=legend
    )
    base = new_chart(rows).encode(
        alt.Y("run:N", sort=alt.SortField("place"), title=None, axis=alt.Axis(ticks=False, domain=False)),
        tooltip=["run:N", *(alt.Tooltip(f"{n}:Q", format=".4f") for n in ("mean", "difference", "lower", "upper"))],
    )
    zero = new_chart(pd.DataFrame({"x": [0.0]})).mark_rule(color=theme.GRAY, strokeDash=[4, 3]).encode(x="x:Q")
    ends, name = rows[["lower", "difference", "upper"]], one_line(baseline, 28)
    ticks = even_ticks(float(ends.min().min()), float(ends.max().max()))
    x = alt.X(
        "lower:Q",
        title=f"difference in {measure} to {name}",
        scale=alt.Scale(domain=[ticks[0], ticks[-1]], nice=False),
        axis=alt.Axis(values=ticks, labelOverlap=False),
    )
    intervals = base.mark_rule(strokeWidth=2.5).encode(x, alt.X2("upper:Q"), color)
    dots = base.mark_point(filled=True, size=75, opacity=1).encode(alt.X("difference:Q"), color, shape=shape)
    means = base.mark_text(align="left", baseline="middle", fontSize=11, color=theme.DARK).encode(
        x=alt.value(theme.WIDTH + 8), text=alt.Text("mean:Q", format=".4f")
    )
    return styled(
        alt.layer(zero, intervals, dots, means),
        f"{measure} of all rankers, compared with {name}",
        "bars are 95% intervals of the difference; the mean is on the right",
        f"p-values come from the {TEST_NAMES.get(test, test)} test, not from the bars",
        width=theme.WIDTH,
        height=alt.Step(22),
    )


def differences_by_query(per_query: Any, ours: str, theirs: str, measure: str | None = None) -> Any:
    """Plot the difference between two rankers on each query.

    Args:
        per_query: frame with candidate (or run), query, and a column per measure: `Comparison.per_query`, or
            per_query.csv.
        ours, theirs: names of the two rankers.
        measure: measure to plot; by default the first.

    >>> frame = pd.DataFrame({"run": ["a", "b"], "query": [1, 1], "AP": [0.2, 0.5]})
    >>> differences_by_query(frame, "b", "a").to_dict()["title"]["subtitle"]
    ['1 query: better on 1, worse on 0, equal on 0']
    """
    table = as_pandas(per_query).rename(columns={"run": "candidate"})
    measure = measure or str(next(name for name in table if name not in ("candidate", "query")))
    table["candidate"] = table["candidate"].astype(str)
    wide = table.pivot_table(index="query", columns="candidate", values=measure, sort=False)
    missing = next((name for name in (ours, theirs) if name not in wide), None)
    if missing is not None:
        raise InputError(f"there are no values of the ranker '{missing}'", kind="no-ranker")
    difference = (wide[ours] - wide[theirs]).dropna().sort_values(ascending=False)
    title = f"difference in {measure}"
    if len(difference) > MAX_QUERIES:
        sign = alt.condition("datum.start >= 0", alt.value(theme.BLUE), alt.value(theme.VERMILION))
        bars = theme.histogram(difference, title, "queries", color=sign)
    else:
        rows = pd.DataFrame({"query": distinct_lines(difference.index, 20), "difference": difference.to_numpy()})
        bars = (
            new_chart(rows)
            .mark_bar()
            .encode(
                alt.X("query:N", sort=None, axis=alt.Axis(labelAngle=-60, title="test query")),
                alt.Y("difference:Q", title=title),
                color=alt.condition("datum.difference > 0", alt.value(theme.BLUE), alt.value(theme.VERMILION)),
                tooltip=["query:N", alt.Tooltip("difference:Q", format=".4f")],
            )
        )
    n_better, n_worse = int((difference > 0).sum()), int((difference < 0).sum())
    equal = len(difference) - n_better - n_worse
    subtitle = f"{counted(len(difference), 'query')}: better on {n_better}, worse on {n_worse}, equal on {equal}"
    heading = f"{one_line(ours, 24)} compared with {one_line(theirs, 24)}, by query"
    return styled(bars, heading, subtitle, width=theme.WIDTH, height=theme.HEIGHT - 40)


def quality_by_cost(points: Any, *, cost: str = "cost", quality: str = "quality", unit: str = "", of: str = "") -> Any:
    """Plot quality against cost, one line per method; with bands if there are columns lower and upper.

    Args:
        points: frame with one row per method and cost.
        cost, quality: names of the columns.
        unit: unit of the cost, such as "labels" or "dollars".
        of: name of the column with the method, if there are several.

    >>> frame = pd.DataFrame({"cost": [1, 2], "quality": [0.4, 0.5], "policy": ["random", "random"]})
    >>> quality_by_cost(frame, of="policy", unit="dollars").to_dict()["layer"][0]["encoding"]["x"]["title"]
    'cost (dollars)'
    """
    table = as_pandas(points, cost, quality, *([of] if of else []))
    methods = list(dict.fromkeys(table[of])) if of else [quality]
    names = dict(zip(methods, distinct_lines(methods, 30), strict=True))
    rows = pd.DataFrame(
        {
            "cost": pd.to_numeric(table[cost]),
            "quality": pd.to_numeric(table[quality]),
            "method": table[of].map(names) if of else quality,
            **{name: pd.to_numeric(table[name]) for name in ("lower", "upper") if name in table},
        }
    )
    domain = list(names.values())
    colors = [theme.BLUE, theme.VERMILION, theme.GREEN, theme.ORANGE, theme.PURPLE, theme.SKY, theme.DARK]
    scale = alt.Scale(domain=domain, range=colors) if len(domain) <= len(colors) else alt.Scale(scheme="viridis")
    base = new_chart(rows).encode(
        alt.X("cost:Q", title=f"{cost} ({unit})" if unit else cost),
        color=alt.Color("method:N", title=None, scale=scale, legend=alt.Legend() if of else None),
    )
    layers: list[Any] = [
        base.mark_line(strokeWidth=2, point=True).encode(
            alt.Y("quality:Q", title=quality, scale=alt.Scale(zero=False)),
            strokeDash=alt.StrokeDash("method:N", title=None, sort=domain, scale=alt.Scale(domain=domain)),
        )
    ]
    if {"lower", "upper"} <= set(rows):
        layers.append(base.mark_area(opacity=0.15).encode(alt.Y("lower:Q"), alt.Y2("upper:Q")))
    return styled(alt.layer(*layers), f"{quality} by {cost}", counted(len(rows), "point"), **theme.SIZE)
