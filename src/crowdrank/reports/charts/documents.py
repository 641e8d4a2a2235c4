"""Charts of documents: relevance, uncertainty, difficulty, convergence of models, and learned labels (REMAP)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._text import counted, distinct_lines, one_line
from crowdrank.consensus.calibration import Calibration
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.table import Judgments
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, new_chart, styled

MAX_DOCUMENTS = 40
"""Maximum number of documents of a query that are plotted; of more, every n-th by relevance."""


def _relevance_title(on_a_line: bool) -> str:
    return "relevance (standard deviations)" if on_a_line else "relevance (grades)"


def relevance_intervals(documents: Any, query: Any = None, *, on_a_line: bool = True, level: str = "95%") -> Any:
    """Plot the relevance of the documents of a query with their intervals.

    Args:
        documents: `consensus.documents`, or consensus.parquet.
        query: id of the query; not needed if there is only one.
        on_a_line: whether relevance is in standard deviations (GDA, Rasch), otherwise it is in grades.
        level: level of the intervals.

    >>> frame = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "relevance": [0.2, 0.9],
    ...                       "lower": [0.0, 0.5], "upper": [0.5, 1.2], "judgments": [3, 3]})
    >>> relevance_intervals(frame, "q").to_dict()["title"]["text"]
    'Relevance of the documents of query q'
    """
    table = as_pandas(documents, "query", "document", "relevance", "lower", "upper", "judgments")
    if query is not None:
        table = table[table["query"].astype(str) == str(query)]
    queries = table["query"].unique()
    if not len(table):
        raise InputError(f"there is no document of query {shown(query)}", kind="no-query", fix="check the id")
    if len(queries) > 1:
        raise UsageError(f"is needed, because there are {len(queries):,} queries", parameter="query")
    step = int(np.ceil(len(table) / MAX_DOCUMENTS))
    rows = table.sort_values("relevance", ascending=False).iloc[::step]
    rows = rows.assign(document=distinct_lines(rows["document"], 28), place=range(len(rows)))
    base = new_chart(rows[["document", "place", "relevance", "lower", "upper", "judgments"]]).encode(
        alt.Y("document:N", sort=alt.SortField("place"), title=None, axis=alt.Axis(ticks=False, domain=False)),
        tooltip=["document:N", *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("relevance", "lower", "upper"))],
    )
    rules = base.mark_rule(color=theme.SKY, strokeWidth=4).encode(
        alt.X("lower:Q", title=_relevance_title(on_a_line)), alt.X2("upper:Q")
    )
    dots = base.mark_circle(color=theme.BLUE, size=45, opacity=1).encode(alt.X("relevance:Q"))
    n = counted(len(table), "document")
    subtitle = f"{n if step == 1 else f'1 in {step} of {n}'}; bars are {level} intervals"
    title = f"Relevance of the documents of query {one_line(queries[0], 30)}"
    return styled(alt.layer(rules, dots), title, subtitle, width=theme.WIDTH - 40, height=alt.Step(15))


def least_certain_query(documents: Any) -> Any:
    """Return the query with the widest mean interval, among those with at least five documents.

    >>> least_certain_query(pd.DataFrame({"query": ["p", "q"], "lower": [0.0, 0.0], "upper": [1.0, 2.0]}))
    'q'
    """
    table = as_pandas(documents, "query", "lower", "upper")
    widths = (table["upper"] - table["lower"]).groupby(table["query"].astype(str))
    found = pd.DataFrame({"mean": widths.mean(), "n": widths.size()})
    return found.loc[found["n"] >= min(5, int(found["n"].max())), "mean"].idxmax()


def uncertainty(documents: Any, *, on_a_line: bool = True) -> Any:
    """Plot a histogram of the widths of the intervals of relevance.

    >>> frame = pd.DataFrame({"lower": [0.0, 0.1], "upper": [1.0, 2.0], "judgments": [5, 1]})
    >>> uncertainty(frame).to_dict()["encoding"]["y"]["title"]
    'documents'
    """
    table = as_pandas(documents, "lower", "upper")
    unit = "standard deviations" if on_a_line else "grades"
    bars = theme.histogram(table["upper"] - table["lower"], f"width of the interval ({unit})", "documents", bins=30)
    subtitle = f"{counted(len(table), 'document')}; a narrow interval is more certain"
    return styled(bars, "Uncertainty of relevance", subtitle, **theme.SIZE)


def reliability(calibration: Calibration) -> Any:
    """Plot the accuracy of grades against their probability, before and after calibration (a reliability diagram).

    Args:
        calibration: calibration by expert grades, with the quality of held-out probabilities.

    >>> from crowdrank.consensus.calibration import Quality, ReliabilityBin
    >>> before, after = (Quality(gap, 1.0, 0.6, (ReliabilityBin(40, 0.6 + gap, 0.6),)) for gap in (0.3, 0.1))
    >>> found = Calibration("calibrated", 40, 2.0, (0.1, -0.1), 1.0, False, before, after)
    >>> reliability(found).to_dict()["title"]["text"]
    'Grade probabilities are right within 0.10 on average'
    """
    stages = {
        "before calibration": calibration.before,
        "calibrated": calibration.after if calibration.is_applied else None,
    }
    rows = [{"stage": stage, **asdict(one)} for stage, quality in stages.items() if quality for one in quality.bins]
    if not rows or calibration.before is None:
        raise InputError("there are too few expert grades for a reliability diagram", kind="few-grades")
    last = calibration.after if calibration.is_applied and calibration.after is not None else calibration.before
    percent = alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1])
    ends = alt.Scale(domain=[0, 1])
    color = alt.Color("stage:N", title=None, scale=alt.Scale(domain=list(stages), range=[theme.ORANGE, theme.BLUE]))
    base = new_chart(pd.DataFrame(rows)).encode(
        alt.X("confidence:Q", title="probability of the most probable grade", scale=ends, axis=percent),
        alt.Y("accuracy:Q", title="share equal to the expert grade", scale=ends, axis=percent),
        color,
    )
    tooltip = [
        "stage:N",
        "documents:Q",
        alt.Tooltip("confidence:Q", format=".0%"),
        alt.Tooltip("accuracy:Q", format=".0%"),
    ]
    dots = base.mark_circle(opacity=1).encode(
        size=alt.Size("documents:Q", legend=None, scale=alt.Scale(range=[25, 250])), tooltip=tooltip
    )
    diagonal = pd.DataFrame({"confidence": [0.0, 1.0], "accuracy": [0.0, 1.0]})
    line = new_chart(diagonal).mark_line(color=theme.GRAY, strokeDash=[4, 4]).encode(x="confidence:Q", y="accuracy:Q")
    change = f" ({calibration.before.calibration_error:.2f} before calibration)" if calibration.is_applied else ""
    return styled(
        alt.layer(line, base.mark_line(strokeWidth=1.5), dots),
        f"Grade probabilities are right within {last.calibration_error:.2f} on average",
        f"{counted(calibration.n_expert_grades, 'expert grade')}, cross-fitted{change}; dashed: all are right",
        width=theme.HEIGHT + 40,
        height=theme.HEIGHT + 40,
    )


def difficulty_by_relevance(documents: Any) -> Any:
    """Plot the difficulty of documents against their relevance (GDA's Figure 6), from a model with difficulty.

    >>> frame = pd.DataFrame({"document": ["a"], "relevance": [0.1], "difficulty": [1.2]})
    >>> difficulty_by_relevance(frame).to_dict()["mark"]["type"]
    'circle'
    """
    table = as_pandas(documents, "document", "relevance", "difficulty")
    chart = theme.scatter(table, "relevance", "difficulty", _relevance_title(True))
    subtitle = f"{counted(len(table), 'document')}; higher is harder to judge"
    return styled(chart, "Difficulty and relevance", subtitle, **theme.SIZE)


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
    table = as_pandas(documents, "query", "document", "difficulty")
    table = table.assign(duration=relative_durations(judgments, table)).dropna(subset=["duration"])
    correlation = float(table["duration"].corr(table["difficulty"], method="spearman"))
    chart = theme.scatter(table, "duration", "difficulty", "time per judgment (1: median of the assessor)", log=True)
    subtitle = f"{counted(len(table), 'document')}; Spearman's correlation {correlation:.2f}"
    return styled(chart, "Difficulty and time per judgment", subtitle, **theme.SIZE)


def relative_durations(judgments: Judgments, documents: pd.DataFrame) -> pd.Series[float]:
    """Return the median duration of each document's judgments, relative to the median of each assessor."""
    duration = pd.Series(judgments.extras["duration"].astype(np.float64)).where(lambda seconds: seconds > 0)
    relative = duration / duration.groupby(judgments.assessor).transform("median")
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    of_item = relative.groupby(item).median()
    ids = (pa.array(documents[name].tolist()) for name in ("query", "document"))
    return pd.Series(of_item.reindex(judgments.positions(*ids)).to_numpy(), documents.index)


def document_trace(steps: Any, title: str = "", *, on_a_line: bool = True) -> Any:
    """Plot the relevance of a document after each judgment (GDA's Figure 2).

    Args:
        steps: frame of `crowdrank.consensus.trace.trace`.
        title: title of the chart.
        on_a_line: as in :func:`relevance_intervals`.

    >>> frame = pd.DataFrame({"step": [1], "assessor": ["a"], "given": [2], "relevance": [0.5], "lower": [0.1],
    ...                       "upper": [0.9]})
    >>> [layer["mark"]["type"] for layer in document_trace(frame).to_dict()["layer"]]
    ['area', 'line', 'point', 'text']
    """
    table = as_pandas(steps, "step", "assessor", "given", "relevance", "lower", "upper")
    table = table.assign(
        assessor=distinct_lines(table["assessor"], 24), given=[one_line(grade, 12) for grade in table["given"]]
    )
    base = new_chart(table[["step", "assessor", "given", "relevance", "lower", "upper"]]).encode(
        alt.X("step:Q", title="number of judgments", axis=alt.Axis(tickMinStep=1, format="d")),
        tooltip=["step:Q", "assessor:N", "given:N"],
    )
    lower = alt.Y("lower:Q", title=_relevance_title(on_a_line))
    band = base.mark_area(color=theme.SKY, opacity=0.35).encode(lower, alt.Y2("upper:Q"))
    line = base.mark_line(color=theme.BLUE, strokeWidth=2).encode(alt.Y("relevance:Q"))
    dots = base.mark_point(color=theme.BLUE, filled=True, size=45, opacity=1).encode(alt.Y("relevance:Q"))
    labels = base.mark_text(dy=-11, fontSize=11, fontWeight="bold", color=theme.DARK).encode(
        alt.Y("relevance:Q"), text="given:N"
    )
    title = one_line(title or "Relevance after each judgment", 80)
    subtitle = "numbers are the grades given; the band is the interval"
    return styled(alt.layer(band, line, dots, labels), title, subtitle, width=theme.WIDTH, height=theme.HEIGHT - 40)


def convergence(model: Any) -> Any:
    """Plot the objective of a model after each iteration of its fit.

    Args:
        model: a fitted consensus model or remapper.

    >>> import crowdrank
    >>> model = crowdrank.DawidSkene().fit(crowdrank.simulate(queries=5, documents=6, random_state=1).judgments)
    >>> convergence(model).to_dict()["encoding"]["x"]["title"]
    'iteration'
    """
    history = list(model.history_)
    if history and isinstance(history[0], dict):  # a remapper
        table = pd.DataFrame(history).melt(["run", "iteration"], ["training", "validation"], "on", "value")
        table["line"] = table["on"] + table["run"].astype(str)
        color = alt.Color("on:N", title=None, scale=alt.Scale(range=[theme.BLUE, theme.ORANGE]))
        lines = new_chart(table).mark_line(strokeWidth=1.8).encode(color=color, detail="line:N")
        objective = "measure"
    else:
        values = [value for value in history if value == value]
        table = pd.DataFrame({"iteration": range(1, len(values) + 1), "value": values})
        lines = new_chart(table).mark_line(color=theme.BLUE, strokeWidth=2, point=len(values) < 60)
        objective = "log likelihood per judgment (nats)"
    chart = lines.encode(
        alt.X("iteration:Q", title="iteration", axis=alt.Axis(tickMinStep=1, format="d")),
        alt.Y("value:Q", title=objective, scale=alt.Scale(zero=False)),
    )
    status = "" if not hasattr(model, "converged_") else ", converged" if model.converged_ else ", not converged"
    subtitle = f"{counted(len(history), 'iteration')}{status}"
    return styled(
        chart, f"Convergence of {type(model).__name__}", subtitle, width=theme.WIDTH, height=theme.HEIGHT - 40
    )


MAX_FEATURES = 12
PANELS = (("target", "mean learned target"), ("weight", "mean learned weight"))
"""Columns of the learned values, and the titles of their axes."""
FEATURE_TITLES = {
    "label": "grade of the label",
    "right_dawid_skene": "probability that the label is correct (Dawid-Skene)",
    "right_glad": "probability that the label is correct (GLAD)",
    "good_dawid_skene": "probability that the document is good (Dawid-Skene)",
    "good_glad": "probability that the document is good (GLAD)",
    "bad_dawid_skene": "probability that the document is bad (Dawid-Skene)",
    "bad_glad": "probability that the document is bad (GLAD)",
    "expected_dawid_skene": "expected grade of the document (Dawid-Skene)",
    "expected_glad": "expected grade of the document (GLAD)",
    "latent_relevance": "relevance of the document (GDA)",
    "latent_sd": "uncertainty of the relevance (GDA)",
    "ability": "ability of the assessor (GLAD)",
    "informativeness": "informativeness of the assessor (nats)",
    "separation": "separation of the grades by the assessor",
    "shift": "shift of the assessor (grades)",
    "log_tasks": "number of labels of the assessor (log)",
    "share_bad": "share of low grades of the assessor",
    "honeypots_right": "honeypots that the assessor answered correctly",
    "duration": "duration of the judgment",
    "cost": "cost of the judgment",
}
"""Titles of label features in charts."""


def feature_title(name: str) -> str:
    """Return the title of a label feature, or its name if it has none.

    >>> feature_title("ability"), feature_title("says_1_if_0"), feature_title("my_own")
    ('ability of the assessor (GLAD)', 'probability that the assessor answers 1 if 0 is correct', 'my_own')
    """
    if name.startswith("says_") and "_if_" in name:
        answer, truth = name.removeprefix("says_").split("_if_", 1)
        return f"probability that the assessor answers {answer} if {truth} is correct"
    return FEATURE_TITLES.get(name, name)


def learned_by_feature(remapping: Any, feature: str = "label") -> Any:
    """Plot the mean learned target and weight of labels by the value of a label feature, for each remapper.

    Args:
        remapping: `RemappedLabels.by_feature()` of one remapper, remapping.csv of several, or the result of
            `remapper.dependence(feature)`.
        feature: name of the feature; by default the grade of the label.

    >>> frame = pd.DataFrame({"duration": [3.0, 9.0], "labels": [9, 9], "target": [0.1, 0.4], "weight": [0.5, 0.6]})
    >>> learned_by_feature(frame, "duration").to_dict()["hconcat"][0]["encoding"]["y"]["title"]
    'mean learned target'
    """
    table = as_pandas(remapping, "labels", "target", "weight")
    if "feature" in table:
        table = table[table["feature"] == feature].rename(columns={"value": feature})
    if feature not in table or not len(table):
        raise InputError(f"there are no values of the label feature '{feature}'", kind="no-feature")
    remapper = table["remapper"].astype(str) if "remapper" in table else "remapper"
    rows = pd.DataFrame(
        {
            "value": pd.to_numeric(table[feature]),
            "labels": table["labels"].astype(int),
            "target": table["target"].astype(float),
            "weight": table["weight"].astype(float),
            "remapper": remapper,
        }
    ).dropna(subset=["value"])
    n_labels = int(rows.groupby("remapper")["labels"].sum().max())
    title = one_line(feature_title(feature), 48)
    panels = [_panel(rows, column, y_title, title) for column, y_title in PANELS]
    heading = f"Learned targets and weights by {title.split(' (')[0]}"
    chart = alt.hconcat(*panels, spacing=30).resolve_scale(color="shared")
    return styled(chart, heading, f"{n_labels:,} labels; each point is the mean of a group")


def _panel(rows: pd.DataFrame, column: str, y_title: str, x_title: str) -> Any:
    """Return a line chart of one learned value."""
    discrete = rows["value"].nunique() <= 7 and (rows["value"] == rows["value"].round()).all()
    names = list(dict.fromkeys(rows["remapper"]))
    axis = alt.Axis(values=sorted(rows["value"].unique()), format="d") if discrete else alt.Axis(tickCount=5)
    color = alt.Color(
        "remapper:N",
        title="remapper",
        scale=alt.Scale(domain=names, range=[theme.BLUE, theme.VERMILION, theme.GREEN][: len(names)]),
        legend=alt.Legend() if len(names) > 1 else None,
    )
    return (
        new_chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True), strokeWidth=2)
        .encode(
            alt.X("value:Q", title=x_title, axis=axis, scale=alt.Scale(zero=False, nice=not discrete)),
            alt.Y(f"{column}:Q", title=y_title, scale=alt.Scale(zero=column == "weight")),
            color=color,
            tooltip=["remapper:N", "value:Q", "labels:Q", alt.Tooltip(f"{column}:Q", format=".3f")],
        )
        .properties(width=190, height=170)
    )


def spread_of_features(remapping: Any) -> pd.DataFrame:
    """Return the standard deviation of the mean learned target and weight over the groups of each feature.

    >>> frame = pd.DataFrame({"remapper": "boosted", "feature": ["a", "a", "b"], "value": [0, 1, 0],
    ...                       "labels": [5, 5, 9], "target": [0.0, 1.0, 0.5], "weight": [1.0, 1.0, 1.0]})
    >>> spread_of_features(frame)[["feature", "target"]].values.tolist()
    [['a', 0.5], ['b', 0.0]]
    """
    table = as_pandas(remapping, "feature", "labels", "target", "weight")
    if "remapper" not in table:
        table = table.assign(remapper="remapper")
    rows = []
    for (remapper, feature), group in table.groupby(["remapper", "feature"], sort=False):
        means, share = group[["target", "weight"]].to_numpy(np.float64), (group["labels"] / group["labels"].sum())
        weights = share.to_numpy(np.float64)
        target, weight = np.sqrt(weights @ (means - weights @ means) ** 2)
        rows.append({"remapper": remapper, "feature": feature, "target": float(target), "weight": float(weight)})
    return pd.DataFrame(rows, columns=["remapper", "feature", "target", "weight"]).sort_values(
        ["target", "weight"], ascending=False, kind="stable"
    )


def importance_of_features(remapping: Any) -> Any:
    """Plot the label features by which learned targets and weights differ most.

    >>> frame = pd.DataFrame({"feature": ["a", "a"], "value": [0, 1], "labels": [5, 5], "target": [0.0, 1.0],
    ...                       "weight": [1.0, 1.0]})
    >>> importance_of_features(frame).to_dict()["encoding"]["y"]["field"]
    'feature'
    """
    spread = spread_of_features(remapping)
    spread = spread[~spread["feature"].str.contains("_of_")]  # the linear remapper's: a feature within one grade
    features = list(dict.fromkeys(spread["feature"]))[:MAX_FEATURES]
    titles = {feature: one_line(feature_title(feature), 60) for feature in features}
    rows = spread[spread["feature"].isin(features)].groupby("feature", sort=False)[["target", "weight"]].max()
    rows = rows.reset_index().melt("feature", var_name="learned", value_name="spread")
    bars = (
        new_chart(rows.assign(feature=rows["feature"].map(titles)))
        .mark_bar()
        .encode(
            alt.X("spread:Q", title="standard deviation over groups of labels"),
            alt.Y("feature:N", sort=list(titles.values()), title=None, axis=alt.Axis(labelLimit=330)),
            yOffset="learned:N",
            color=alt.Color(
                "learned:N",
                title=None,
                scale=alt.Scale(range=[theme.BLUE, theme.ORANGE]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=["feature:N", "learned:N", alt.Tooltip("spread:Q", format=".3f")],
        )
    )
    subtitle = f"{len(features)} features by which targets and weights differ most"
    return styled(bars, "Effect of label features", subtitle, width=180, height=alt.Step(11))
