"""Charts of learned labels: their targets and weights (REMAP Figures 2-3)."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from crowdrank.errors import InputError
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, new_chart, styled
from crowdrank.reports.formatting import one_line

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
    "slope": "slope of the assessor",
    "bias": "bias of the assessor (grades)",
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
