"""Charts of rankers: which is better, by how much and how surely, and at what price."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from crowdrank.errors import InputError
from crowdrank.evaluation.comparison import Comparison
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, dressed, even_ticks, number_of, plain_ids, titled

MOST_QUERIES = 80
"""Differences on more queries than this are shown as how many are how large."""


def ranker_comparison(comparison: Any, measure: str | None = None, *, chosen: str = "", baseline: str = "") -> Any:
    """Every ranker's difference to the baseline with its interval, the best on top.

    Args:
        comparison: a `Comparison`, or its `details` (measure, run, mean, difference, lower, upper, p_holm).
        measure: which of them; the first unless given.
        chosen: the ranker to stand out.
        baseline: its name, where `comparison` is a frame.

    >>> frame = pd.DataFrame({"measure": ["AP", "AP"], "run": ["a", "b"], "mean": [0.3, 0.4], "difference": [0, 0.1],
    ...                       "lower": [None, 0.05], "upper": [None, 0.2], "p_holm": [None, 0.01]})
    >>> ranker_comparison(frame, baseline="a").to_dict()["layer"][1]["encoding"]["x"]["title"]
    'difference in AP to a'
    """
    test = "randomization"
    if isinstance(comparison, Comparison):
        test = {"fisher": test}.get(comparison.test, comparison.test)
        baseline, comparison = comparison.baseline, comparison.details
    known = as_pandas(comparison, "measure", "run", "mean", "difference", "lower", "upper", "p_holm")
    measure = measure or str(known["measure"].iloc[0])
    known = known[(known["measure"] == measure) & known["difference"].notna()].sort_values("mean", ascending=False)
    if not len(known):
        raise InputError(f"nothing was measured by {measure}")
    told = known.assign(
        kind=["chosen" if run == chosen else "baseline" if run == baseline else "other" for run in known["run"]],
        run=plain_ids(known["run"], 28),
        place=range(len(known)),
        **{name: pd.to_numeric(known[name]) for name in ("difference", "lower", "upper", "p_holm")},
    )[["run", "kind", "place", "mean", "difference", "lower", "upper", "p_holm"]]
    kinds, legend = ["chosen", "baseline", "other"], alt.Legend(orient="top", offset=2)
    colors = alt.Scale(domain=kinds, range=[theme.VERMILION, theme.INK, theme.BLUE])
    shapes = alt.Scale(domain=kinds, range=["diamond", "square", "circle"])
    shade = alt.Color("kind:N", title=None, scale=colors, legend=legend)
    base = alt.Chart(told).encode(
        alt.Y("run:N", sort=alt.SortField("place"), title=None, axis=alt.Axis(ticks=False, domain=False)),
        tooltip=["run:N", *(alt.Tooltip(f"{n}:Q", format=".4f") for n in ("mean", "difference", "lower", "upper"))],
    )
    zero = alt.Chart(pd.DataFrame({"x": [0.0]})).mark_rule(color=theme.GREY, strokeDash=[4, 3]).encode(x="x:Q")
    ends = told[["lower", "difference", "upper"]]
    ticks = even_ticks(float(ends.min().min()), float(ends.max().max()))
    reach = base.mark_rule(strokeWidth=2.5).encode(
        alt.X(
            "lower:Q",
            title=f"difference in {measure} to {plain_ids([baseline], 28)[0]}",
            scale=alt.Scale(domain=[ticks[0], ticks[-1]], nice=False),
            axis=alt.Axis(values=ticks, labelOverlap=False),
        ),
        alt.X2("upper:Q"),
        shade,
    )
    dots = base.mark_point(filled=True, size=75, opacity=1).encode(
        alt.X("difference:Q"),
        shade,
        shape=alt.Shape("kind:N", title=None, scale=shapes, legend=legend),
    )
    words = base.mark_text(align="left", baseline="middle", fontSize=11, color=theme.INK).encode(
        x=alt.value(theme.WIDTH + 8), text=alt.Text("mean:Q", format=".4f")
    )
    return dressed(
        alt.layer(zero, reach, dots, words).properties(
            width=theme.WIDTH,
            height=alt.Step(22),
            title=titled(
                f"{measure} of every ranker, against {plain_ids([baseline], 28)[0]}",
                "bars: 95% bootstrap intervals of the difference, each by itself; right: the mean",
                f"beyond chance or within it is said by the {test} test (p), not by the bars",
            ),
        )
    )


def differences_by_query(per_query: Any, ours: str, theirs: str, measure: str | None = None) -> Any:
    """On which queries one ranker beats another, and by how much.

    Args:
        per_query: candidate (or run), query, and a column per measure: `Comparison.per_query`, or per_query.csv.
        ours, theirs: the two rankers.
        measure: the first unless given.

    >>> frame = pd.DataFrame({"run": ["a", "b"], "query": [1, 1], "AP": [0.2, 0.5]})
    >>> differences_by_query(frame, "b", "a").to_dict()["title"]["subtitle"]
    ['1 query: better on 1, worse on 0, equal on 0']
    """
    known = as_pandas(per_query).rename(columns={"run": "candidate"})
    measure = measure or str(next(name for name in known if name not in ("candidate", "query")))
    known["candidate"] = known["candidate"].astype(str)
    wide = known.pivot_table(index="query", columns="candidate", values=measure, sort=False)
    for name in (ours, theirs):
        if name not in wide:
            raise InputError(f"there is no ranker '{name}' in these values per query")
    off = (wide[ours] - wide[theirs]).dropna().sort_values(ascending=False)
    told = pd.DataFrame({"query": plain_ids(off.index, 20), "difference": off.to_numpy(), "place": range(len(off))})
    better, worse = int((off > 0).sum()), int((off < 0).sum())
    said = f"{number_of(off, 'query')}: better on {better}, worse on {worse}, equal on {len(off) - better - worse}"
    shade = alt.condition("datum.difference > 0", alt.value(theme.BLUE), alt.value(theme.VERMILION))
    title = f"difference in {measure}"
    if len(told) > MOST_QUERIES:
        bins = theme.counts_in_bins(off)
        bars = (
            alt.Chart(bins.assign(difference=(bins["start"] + bins["end"]) / 2))
            .mark_bar(binSpacing=1)
            .encode(
                alt.X("start:Q", bin="binned", title=title),
                alt.X2("end:Q"),
                alt.Y("count:Q", title="queries"),
                color=shade,
            )
        )
    else:
        bars = (
            alt.Chart(told)
            .mark_bar()
            .encode(
                alt.X("query:N", sort=alt.SortField("place"), axis=alt.Axis(labelAngle=-60, title="test query")),
                alt.Y("difference:Q", title=title),
                color=shade,
                tooltip=["query:N", alt.Tooltip("difference:Q", format=".4f")],
            )
        )
    named = f"{plain_ids([ours], 24)[0]} against {plain_ids([theirs], 24)[0]}, query by query"
    return dressed(bars.properties(width=theme.WIDTH, height=theme.HEIGHT - 40, title=titled(named, said)))


def quality_by_cost(points: Any, *, cost: str = "cost", quality: str = "quality", unit: str = "", of: str = "") -> Any:
    """Quality against what it cost, a line for each way; with intervals where there are columns lower and upper.

    Args:
        points: a row per way and amount: cost, quality, `of` (the name of the way), lower, upper.
        cost, quality, of: the names of the columns.
        unit: of the cost, as in "labels" or "dollars".

    >>> frame = pd.DataFrame({"cost": [1, 2], "quality": [0.4, 0.5], "way": ["random", "random"]})
    >>> quality_by_cost(frame, of="way", unit="dollars").to_dict()["layer"][0]["encoding"]["x"]["title"]
    'cost (dollars)'
    """
    known = as_pandas(points, cost, quality, *([of] if of else []))
    told = pd.DataFrame(
        {
            "cost": pd.to_numeric(known[cost]),
            "quality": pd.to_numeric(known[quality]),
            "way": plain_ids_of(known[of]) if of else quality,
            **{name: pd.to_numeric(known[name]) for name in ("lower", "upper") if name in known},
        }
    )
    names = list(dict.fromkeys(told["way"]))
    colors = [theme.BLUE, theme.VERMILION, theme.GREEN, theme.ORANGE, theme.PURPLE, theme.SKY, theme.INK]
    scale = alt.Scale(domain=names, range=colors) if len(names) <= len(colors) else alt.Scale(scheme="viridis")
    base = alt.Chart(told).encode(
        alt.X("cost:Q", title=f"{cost} ({unit})" if unit else cost),
        color=alt.Color("way:N", title=None, scale=scale, legend=alt.Legend() if of else None),
    )
    layers: list[Any] = [
        base.mark_line(strokeWidth=2, point=True).encode(
            alt.Y("quality:Q", title=quality, scale=alt.Scale(zero=False)),
            strokeDash=alt.StrokeDash("way:N", title=None, sort=names, scale=alt.Scale(domain=names)),
        )
    ]
    if {"lower", "upper"} <= set(told):
        layers.append(base.mark_area(opacity=0.15).encode(alt.Y("lower:Q"), alt.Y2("upper:Q")))
    return dressed(
        alt.layer(*layers).properties(
            width=theme.WIDTH, height=theme.HEIGHT, title=titled(f"{quality} against {cost}", number_of(told, "point"))
        )
    )


def plain_ids_of(column: Any) -> list[str]:
    """Names of ways: a way that comes again keeps its name."""
    names = list(dict.fromkeys(column))
    known = dict(zip(names, plain_ids(names, 30), strict=True))
    return [known[name] for name in column]
