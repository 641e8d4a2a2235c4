"""Charts of documents: how relevant, how sure that is, how hard they are to judge, and how it came to be known."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.table import Judgments
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, counts_in_bins, dressed, number_of, plain_ids, titled
from crowdrank.reports.formatting import plain_id

MOST_DOCUMENTS = 60
"""So many documents of a query have a line of their own; of more, every so manieth by relevance."""


IN_SD = "relevance (standard deviations)"
"""Of a point on a line: 0 is the mean document, 1 one standard deviation better."""


def relevance_intervals(documents: Any, query: Any = None, *, on_a_line: bool = True, level: str = "95%") -> Any:
    """The documents of a query by relevance, each with its interval.

    Args:
        documents: `consensus.documents`, or consensus.parquet.
        query: the id of the query; where there is one only it need not be said.
        on_a_line: whether relevance is a point on a line of its own (GDA, Rasch), else it is in grades.
        level: of the intervals.

    >>> frame = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "relevance": [0.2, 0.9],
    ...                       "lower": [0.0, 0.5], "upper": [0.5, 1.2], "judgments": [3, 3]})
    >>> relevance_intervals(frame, "q").to_dict()["title"]["text"]
    'How relevant the documents of query q are'
    """
    known = as_pandas(documents, "query", "document", "relevance", "lower", "upper", "judgments")
    if query is not None:
        known = known[known["query"].astype(str) == str(query)]
    names = known["query"].unique()
    if not len(known):
        raise InputError(f"there is no document of query {shown(query)}", fix="check the id")
    if len(names) > 1:
        raise UsageError(f"There are {len(names):,} queries; say of which one to show the documents.")
    order = known.sort_values("relevance", ascending=False)
    step = int(np.ceil(len(order) / MOST_DOCUMENTS))
    told = order.iloc[::step]
    told = told.assign(document=plain_ids(told["document"], 28), place=range(len(told)))
    base = alt.Chart(told[["document", "place", "relevance", "lower", "upper", "judgments"]]).encode(
        alt.Y("document:N", sort=alt.SortField("place"), title=None, axis=alt.Axis(ticks=False, domain=False)),
        tooltip=["document:N", *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("relevance", "lower", "upper"))],
    )
    title = "relevance (standard deviations; 0 is the mean document)" if on_a_line else "relevance (grades)"
    rules = base.mark_rule(color=theme.SKY, strokeWidth=4).encode(alt.X("lower:Q", title=title), alt.X2("upper:Q"))
    dots = base.mark_circle(color=theme.BLUE, size=45, opacity=1).encode(alt.X("relevance:Q"))
    said = number_of(order, "document") if step == 1 else f"1 in {step} of {number_of(order, 'document')}, by relevance"
    return dressed(
        alt.layer(rules, dots).properties(
            width=theme.WIDTH - 40,
            height=alt.Step(15),
            title=titled(
                f"How relevant the documents of query {plain_ids(names, 30)[0]} are", f"{said}; bars: {level}"
            ),
        )
    )


def uncertainty(documents: Any, *, on_a_line: bool = True) -> Any:
    """How many documents have how wide an interval, by how many judgments they have.

    >>> frame = pd.DataFrame({"lower": [0.0, 0.1], "upper": [1.0, 2.0], "judgments": [5, 1]})
    >>> uncertainty(frame).to_dict()["encoding"]["y"]["title"]
    'documents'
    """
    known = as_pandas(documents, "lower", "upper")
    told = counts_in_bins(known["upper"] - known["lower"], 30)
    unit = "standard deviations of relevance" if on_a_line else "grades"
    bars = (
        alt.Chart(told)
        .mark_bar(color=theme.BLUE, binSpacing=1)
        .encode(
            alt.X("start:Q", bin="binned", title=f"width of the interval ({unit})"),
            alt.X2("end:Q"),
            alt.Y("count:Q", title="documents"),
            tooltip=[alt.Tooltip("count:Q", title="documents")],
        )
    )
    return dressed(
        bars.properties(
            width=theme.WIDTH,
            height=theme.HEIGHT,
            title=titled("How sure the relevance of documents is", f"{number_of(known, 'document')}; left is surer"),
        )
    )


def difficulty_by_relevance(documents: Any) -> Any:
    """How hard documents are to judge, by their relevance (GDA's Figure 6); from a model that has difficulties.

    >>> frame = pd.DataFrame({"document": ["a"], "relevance": [0.1], "difficulty": [1.2]})
    >>> difficulty_by_relevance(frame).to_dict()["mark"]["type"]
    'circle'
    """
    known = as_pandas(documents, "document", "relevance", "difficulty")
    named = titled("Difficulty and relevance", f"{number_of(known, 'document')}; higher is harder to judge")
    if len(known) > theme.MOST_POINTS:
        chart = theme.cloud(known["relevance"], known["difficulty"], IN_SD, "difficulty", "document")
    else:
        told = known.assign(document=plain_ids(known["document"]))[["document", "relevance", "difficulty"]]
        chart = (
            alt.Chart(told)
            .mark_circle(color=theme.BLUE, size=28, opacity=0.55)
            .encode(
                alt.X("relevance:Q", title=IN_SD),
                alt.Y("difficulty:Q", title="difficulty", scale=alt.Scale(zero=False)),
                tooltip=["document:N"],
            )
        )
    return dressed(chart.properties(width=theme.WIDTH, height=theme.HEIGHT, title=named))


def difficulty_by_duration(documents: Any, judgments: Judgments) -> Any:
    """Plot the difficulty of documents against the time that assessors took for them.

    Durations are divided by the median duration of their assessor, because assessors differ in speed; a document has
    the median over its judgments.

    Args:
        documents: `consensus.documents` of a model with difficulty.
        judgments: the judgments, with a column duration.

    >>> import crowdrank
    >>> judgments = crowdrank.read_judgments(crowdrank.simulate(queries=8, documents=6, random_state=1).judgments)
    >>> consensus = crowdrank.GDA(difficulty=True, n_iter=5, tol=1).fit(judgments).consensus_
    >>> difficulty_by_duration(consensus.documents, judgments).to_dict()["mark"]["type"]
    'circle'
    """
    if "duration" not in judgments.extras:
        raise UsageError("These judgments have no durations; add a column duration.", kind="no-durations")
    known = as_pandas(documents, "query", "document", "difficulty")
    table = known.assign(duration=relative_durations(judgments, known)).dropna(subset=["duration"])
    correlation = float(table["duration"].corr(table["difficulty"], method="spearman"))
    x_title = "time per judgment (1: median of the assessor)"
    if len(table) > theme.MOST_POINTS:
        chart = theme.cloud(table["duration"], table["difficulty"], x_title, "difficulty", "document")
    else:
        points = table.assign(document=plain_ids(table["document"]))[["document", "duration", "difficulty"]]
        chart = (
            alt.Chart(points)
            .mark_circle(color=theme.BLUE, size=28, opacity=0.55)
            .encode(
                alt.X("duration:Q", title=x_title, scale=alt.Scale(type="log")),
                alt.Y("difficulty:Q", title="difficulty", scale=alt.Scale(zero=False)),
                tooltip=["document:N"],
            )
        )
    subtitle = f"{number_of(table, 'document')}; Spearman's correlation {correlation:.2f}"
    title = titled("Difficulty and time per judgment", subtitle)
    return dressed(chart.properties(width=theme.WIDTH, height=theme.HEIGHT, title=title))


def relative_durations(judgments: Judgments, documents: pd.DataFrame) -> pd.Series[float]:
    """Return the median duration of each document's judgments, relative to the median of each assessor."""
    duration = pd.Series(judgments.extras["duration"].astype(np.float64)).where(lambda seconds: seconds > 0)
    relative = duration / duration.groupby(judgments.assessor).transform("median")
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    of_item = relative.groupby(item).median()
    ids = (pa.array(documents[name].tolist()) for name in ("query", "document"))
    return pd.Series(of_item.reindex(judgments.positions(*ids)).to_numpy(), documents.index)


def document_trace(steps: Any, title: str = "", *, on_a_line: bool = True) -> Any:
    """What is known of a document after each judgment (GDA's Figure 2).

    Args:
        steps: what `crowdrank.consensus.replay.trace` gives.
        title: whose trace it is.
        on_a_line: as of :func:`relevance_intervals`.

    >>> frame = pd.DataFrame({"step": [1], "assessor": ["a"], "given": [2], "relevance": [0.5], "lower": [0.1],
    ...                       "upper": [0.9]})
    >>> [layer["mark"]["type"] for layer in document_trace(frame).to_dict()["layer"]]
    ['area', 'line', 'point', 'text']
    """
    known = as_pandas(steps, "step", "assessor", "given", "relevance", "lower", "upper")
    told = known.assign(
        assessor=plain_ids(known["assessor"], 24), given=[plain_id(given, 12) for given in known["given"]]
    )
    told = told[["step", "assessor", "given", "relevance", "lower", "upper"]]
    unit = IN_SD if on_a_line else "relevance (grades)"
    x = alt.X("step:Q", title="judgments seen", axis=alt.Axis(tickMinStep=1, format="d"))
    base = alt.Chart(told).encode(x, tooltip=["step:Q", "assessor:N", "given:N"])
    band = base.mark_area(color=theme.SKY, opacity=0.35).encode(alt.Y("lower:Q", title=unit), alt.Y2("upper:Q"))
    line = base.mark_line(color=theme.BLUE, strokeWidth=2).encode(alt.Y("relevance:Q"))
    dots = base.mark_point(color=theme.BLUE, filled=True, size=45, opacity=1).encode(alt.Y("relevance:Q"))
    words = base.mark_text(dy=-11, fontSize=11, fontWeight="bold", color=theme.INK).encode(
        alt.Y("relevance:Q"), text="given:N"
    )
    return dressed(
        alt.layer(band, line, dots, words).properties(
            width=theme.WIDTH,
            height=theme.HEIGHT - 40,
            title=titled(
                plain_id(title or "What is known after each judgment", 80),
                "numbers: the grade given; band: the interval",
            ),
        )
    )


def convergence(model: Any) -> Any:
    """How the fit of a model went: its objective after every iteration.

    Args:
        model: anything fitted with a `history_`: a consensus model (numbers), or a remapper (dicts).

    >>> import crowdrank
    >>> model = crowdrank.DawidSkene().fit(crowdrank.simulate(queries=5, documents=6, random_state=1).judgments)
    >>> convergence(model).to_dict()["encoding"]["x"]["title"]
    'iteration'
    """
    history = list(model.history_)
    if history and isinstance(history[0], dict):
        long = pd.DataFrame(history).melt(["run", "iteration"], ["training", "validation"], "on", "value")
        long["line"] = long["on"] + long["run"].astype(str)
        line = alt.Chart(long).mark_line(strokeWidth=1.8)
        encoded = line.encode(
            color=alt.Color("on:N", title=None, scale=alt.Scale(range=[theme.BLUE, theme.ORANGE])),
            detail="line:N",
        )
        what = "measure"
    else:
        values = [value for value in history if value == value]
        long = pd.DataFrame({"iteration": range(1, len(values) + 1), "value": values})
        encoded = alt.Chart(long).mark_line(color=theme.BLUE, strokeWidth=2, point=len(values) < 60)
        what = "log likelihood per judgment (nats)"
    ended = "" if not hasattr(model, "converged_") else "converged" if model.converged_ else "not yet converged"
    chart = encoded.encode(
        alt.X("iteration:Q", title="iteration", axis=alt.Axis(tickMinStep=1, format="d")),
        alt.Y("value:Q", title=what, scale=alt.Scale(zero=False)),
    )
    name = type(model).__name__
    return dressed(
        chart.properties(
            width=theme.WIDTH,
            height=theme.HEIGHT - 40,
            title=titled(
                f"How the fit of {name} went", f"{number_of(history, 'iteration')}{', ' * bool(ended)}{ended}"
            ),
        )
    )
