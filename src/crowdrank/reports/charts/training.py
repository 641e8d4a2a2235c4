"""Charts of training: what labels turned out to be worth, and how much they count (REMAP Figures 2-3)."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from crowdrank.errors import InputError
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, dressed, titled
from crowdrank.reports.formatting import plain_id

MOST_FEATURES = 12
WORDS = {
    "label": "grade of the label",
    "right_dawid_skene": "chance that the label is right (Dawid-Skene)",
    "right_glad": "chance that the label is right (GLAD)",
    "good_dawid_skene": "chance that the document is good (Dawid-Skene)",
    "good_glad": "chance that the document is good (GLAD)",
    "bad_dawid_skene": "chance that the document is bad (Dawid-Skene)",
    "bad_glad": "chance that the document is bad (GLAD)",
    "expected_dawid_skene": "expected grade of the document (Dawid-Skene)",
    "expected_glad": "expected grade of the document (GLAD)",
    "latent_relevance": "relevance of the document (GDA, sd)",
    "latent_sd": "doubt about the document (GDA, sd)",
    "ability": "ability of the assessor (GLAD)",
    "informativeness": "informativeness of the assessor (nats)",
    "slope": "slope of the assessor",
    "bias": "bias of the assessor (grades)",
    "log_tasks": "labels of the assessor (log)",
    "share_bad": "share of low grades by the assessor",
    "honeypots_right": "honeypots that the assessor got right",
    "duration": "duration of the judgment",
    "cost": "cost of the judgment",
}
"""What the label features are called in charts."""


def feature_words(name: str) -> str:
    """A label feature in plain words, where there are any.

    >>> feature_words("ability"), feature_words("says_1_if_0"), feature_words("my_own")
    ('ability of the assessor (GLAD)', 'how often the assessor says 1 of a 0', 'my_own')
    """
    if name.startswith("says_") and "_if_" in name:
        said, truth = name.removeprefix("says_").split("_if_", 1)
        return f"how often the assessor says {said} of a {truth}"
    return WORDS.get(name, name)


def learned_by_grade(remapping: Any) -> Any:
    """What a label of each grade turned out to be worth, and how much it counts, by each remapper.

    Args:
        remapping: `Remapped.by_feature()` of one remapper, or remapping.csv of several.

    >>> frame = pd.DataFrame({"feature": ["label"], "value": [0.0], "labels": [9], "target": [0.1], "weight": [0.5]})
    >>> len(learned_by_grade(frame).to_dict()["hconcat"])
    2
    """
    return learned_by_feature(remapping, "label")


def learned_by_feature(remapping: Any, feature: str) -> Any:
    """The mean learned target and weight of labels, by the value of what is known of them.

    Args:
        remapping: as of :func:`learned_by_grade`; also what `remapper.dependence(feature)` gives.
        feature: its name.

    >>> frame = pd.DataFrame({"duration": [3.0, 9.0], "labels": [9, 9], "target": [0.1, 0.4], "weight": [0.5, 0.6]})
    >>> learned_by_feature(frame, "duration").to_dict()["hconcat"][0]["encoding"]["y"]["title"]
    'learned value (own scale)'
    """
    known = as_pandas(remapping, "labels", "target", "weight")
    if "feature" in known:
        known = known[known["feature"] == feature].rename(columns={"value": feature})
    if feature not in known or not len(known):
        raise InputError(f"nothing is known of the label feature '{feature}'", fix="see which there are")
    told = pd.DataFrame(
        {
            "value": pd.to_numeric(known[feature]),
            "labels": known["labels"].astype(int),
            "target": known["target"].astype(float),
            "weight": known["weight"].astype(float),
            "remapper": known["remapper"].astype(str) if "remapper" in known else "learned",
        }
    ).dropna(subset=["value"])
    total = int(known.groupby("remapper")["labels"].sum().max() if "remapper" in known else known["labels"].sum())
    named = titled(
        f"What labels turned out to be worth, by {plain_id(feature_words(feature).split(' (')[0], 60)}",
        f"{total:,} labels in groups; each point is the mean of one",
    )
    sides = [_side(told, column, title, plain_id(feature_words(feature), 48)) for column, title in SIDES]
    return dressed(alt.hconcat(*sides, spacing=30).resolve_scale(color="shared").properties(title=named))


SIDES = (("target", "learned value (own scale)"), ("weight", "learned weight"))


def _side(told: pd.DataFrame, column: str, title: str, x_title: str) -> Any:
    few = told["value"].nunique() <= 7 and (told["value"] == told["value"].round()).all()
    several = told["remapper"].nunique() > 1
    names = list(dict.fromkeys(told["remapper"]))
    axis = alt.Axis(values=sorted(told["value"].unique()), format="d") if few else alt.Axis(tickCount=5)
    return (
        alt.Chart(told)
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True), strokeWidth=2)
        .encode(
            alt.X("value:Q", title=x_title, axis=axis, scale=alt.Scale(zero=False, nice=not few)),
            alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=column == "weight")),
            color=alt.Color(
                "remapper:N",
                title="remapper",
                scale=alt.Scale(domain=names, range=[theme.BLUE, theme.VERMILION, theme.GREEN][: len(names)]),
                legend=alt.Legend() if several else None,
            ),
            tooltip=["remapper:N", "value:Q", "labels:Q", alt.Tooltip(f"{column}:Q", format=".3f")],
        )
        .properties(width=190, height=170)
    )


def spread_of_features(remapping: Any) -> pd.DataFrame:
    """How far the learned value and weight of labels differ with each feature: sd of the groups' means.

    >>> frame = pd.DataFrame({"remapper": "boosted", "feature": ["a", "a", "b"], "value": [0, 1, 0],
    ...                       "labels": [5, 5, 9], "target": [0.0, 1.0, 0.5], "weight": [1.0, 1.0, 1.0]})
    >>> spread_of_features(frame)[["feature", "target"]].values.tolist()
    [['a', 0.5], ['b', 0.0]]
    """
    known = as_pandas(remapping, "feature", "labels", "target", "weight")
    if "remapper" not in known:
        known = known.assign(remapper="learned")
    rows = []
    for (kind, name), group in known.groupby(["remapper", "feature"], sort=False):
        share = group["labels"] / group["labels"].sum()
        spreads = {
            column: float(np.sqrt(max(0.0, (share * (group[column] - (share * group[column]).sum()) ** 2).sum())))
            for column in ("target", "weight")
        }
        rows.append({"remapper": kind, "feature": name, **spreads})
    return pd.DataFrame(rows, columns=["remapper", "feature", "target", "weight"]).sort_values(
        ["target", "weight"], ascending=False, kind="stable"
    )


def importance_of_features(remapping: Any) -> Any:
    """The label features with which the learned value and weight differ most.

    >>> frame = pd.DataFrame({"feature": ["a", "a"], "value": [0, 1], "labels": [5, 5], "target": [0.0, 1.0],
    ...                       "weight": [1.0, 1.0]})
    >>> importance_of_features(frame).to_dict()["encoding"]["y"]["field"]
    'feature'
    """
    spread = spread_of_features(remapping)
    spread = spread[~spread["feature"].str.contains("_of_")]  # the linear remapper's: a feature within one grade
    names = list(dict.fromkeys(spread["feature"]))[:MOST_FEATURES]
    told = spread[spread["feature"].isin(names)].melt(["remapper", "feature"], ["target", "weight"], "of", "spread")
    told = told.groupby(["feature", "of"], sort=False)["spread"].max().reset_index()
    names = [plain_id(feature_words(name), 48) for name in names]
    told["feature"] = [plain_id(feature_words(name), 48) for name in told["feature"]]
    told["of"] = told["of"].map({"target": "value", "weight": "weight"})
    bars = (
        alt.Chart(told)
        .mark_bar()
        .encode(
            alt.X("spread:Q", title="sd of the learned number over groups of labels"),
            alt.Y("feature:N", sort=names, title=None, axis=alt.Axis(labelLimit=300)),
            yOffset="of:N",
            color=alt.Color("of:N", title="learned", scale=alt.Scale(range=[theme.BLUE, theme.ORANGE])),
            tooltip=["feature:N", "of:N", alt.Tooltip("spread:Q", format=".3f")],
        )
    )
    return dressed(
        bars.properties(
            width=theme.WIDTH - 150,
            height=alt.Step(11),
            title=titled("What the worth of a label goes with", f"the {len(names)} features that part labels most"),
        )
    )
