"""Charts of assessors: informativeness, use of the grades, agreement, and answers over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from scipy.stats import norm

from crowdrank._text import counted, distinct_lines, one_line
from crowdrank._typing import Floats
from crowdrank.errors import UsageError
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, new_chart, styled
from crowdrank.reports.report_data import median_informativeness

INFORMATIVENESS = "informativeness (nats per answer)"
QUALITY_COLUMNS = {
    "gold_tau": ("Kendall's tau with expert grades", "gold_judgments"),
    "gold_accuracy": ("share of answers equal to the expert grade", "gold_judgments"),
    "honeypot_share": ("share of honeypots answered correctly", "honeypots"),
    "agreement": ("share of answers equal to the consensus grade", "judgments"),
}
"""Columns of the assessor report to plot informativeness against, in order of preference: axis title, and the column
with the number of answers."""
MIN_ANSWERS = 10
"""Minimum number of answers of an assessor to be plotted."""
MAX_CURVES = 6
MAX_CURVE_POINTS = 161
"""Maximum number of points of a curve; a model of many judgments per document has more nodes."""
MAX_FAMILIES = 12
PANELS_WIDTH = 840
"""Total width of the panels of one assessor."""
PANELS = ("Gaussian of each grade", "probability of each grade", "joint density of relevance and grade")


def informativeness(assessors: Any, count: str = "assessors") -> Any:
    """Plot a histogram of informativeness by flag (GDA's Figure 4).

    Args:
        assessors: frame of `assess(model)`, or assessors.csv.
        count: count `assessors` (top of the figure) or their `judgments` (bottom).

    >>> frame = pd.DataFrame({"informativeness": [0.0, 0.4, 0.5], "flag": ["random", "", "careful"]})
    >>> informativeness(frame).to_dict()["layer"][0]["encoding"]["x"]["title"]
    'informativeness (nats per answer)'
    """
    if count not in ("assessors", "judgments"):
        raise UsageError(f"must be one of assessors, judgments, not {count!r}", parameter="count")
    by_judgments = count == "judgments"
    table = as_pandas(assessors, "informativeness", "flag", *(["judgments"] if by_judgments else []))
    nats, flags = table["informativeness"].to_numpy(np.float64), _flags(table)
    weights = table["judgments"].to_numpy() if by_judgments else np.ones(len(table), np.int64)
    highest = float(np.nanmax(nats)) if np.isfinite(nats).any() else 1.0
    edges = np.linspace(0.0, max(highest, 1e-6) * 1.001, 25)
    rows = []
    for order, name in enumerate(theme.FLAGS):
        used = (flags == name).to_numpy() & np.isfinite(nats)
        counts, _ = np.histogram(nats[used], bins=edges, weights=weights[used])
        bins = zip(edges[:-1], edges[1:], counts.astype(int), strict=True)
        rows += [(name, order, start, end, n) for start, end, n in bins if n]
    bars_data = pd.DataFrame(rows, columns=["flag", "order", "start", "end", count])
    median = median_informativeness(table) if len(table) else 0.0
    few = 0 < int((table["flag"] == "few").sum()) < len(table)
    bars = (
        new_chart(bars_data)
        .mark_bar(binSpacing=1)
        .encode(
            alt.X("start:Q", bin="binned", title=INFORMATIVENESS),
            alt.X2("end:Q"),
            alt.Y(f"{count}:Q", title=count, stack="zero", axis=alt.Axis(tickMinStep=1)),
            color=_flag_colors(bars_data),
            order="order:Q",
            tooltip=["flag:N", f"{count}:Q", alt.Tooltip("start:Q", format=".3f"), alt.Tooltip("end:Q", format=".3f")],
        )
    )
    rule = new_chart(pd.DataFrame({"x": [median]})).mark_rule(color=theme.DARK, strokeDash=[4, 3]).encode(x="x:Q")
    title = "Judgments by the informativeness of their assessors" if by_judgments else "Informativeness of assessors"
    subtitle = f"{counted(len(table), 'assessor')}; dashed: median{' without the flag few' * few}"
    return styled(alt.layer(bars, rule), title, subtitle, **theme.SIZE)


def _flags(frame: pd.DataFrame) -> pd.Series[str]:
    flag = frame["flag"].astype(object)
    return flag.where(flag.notna() & (flag != ""), "no flag")


def _flag_colors(frame: pd.DataFrame) -> alt.Color:
    flags = [name for name in theme.FLAGS if (frame["flag"] == name).any()]
    scale = alt.Scale(domain=flags, range=[theme.FLAGS[name] for name in flags])
    return alt.Color("flag:N", title=None, scale=scale, sort=flags)


def informativeness_by_agreement(assessors: Any, share: str | None = None) -> Any:
    """Plot informativeness against agreement with experts, honeypots or the consensus (GDA's Figure 5).

    Args:
        assessors: as in :func:`informativeness`; very many assessors are shown as counts in cells.
        share: column to plot it against; by default the first of gold_tau, gold_accuracy, honeypot_share and agreement
            that has values.

    >>> frame = pd.DataFrame({"assessor": ["a", "b"], "judgments": [9, 9], "informativeness": [0.1, 0.4],
    ...                       "flag": ["", ""], "gold_accuracy": [0.4, 0.7]})
    >>> informativeness_by_agreement(frame).to_dict()["mark"]["type"]
    'point'
    """
    table = as_pandas(assessors, "assessor", "judgments", "informativeness", "flag")
    available = [name for name in QUALITY_COLUMNS if name in table and table[name].notna().any()]
    column = share or (available[0] if available else None)
    if column is None or column not in table:
        columns = ", ".join(QUALITY_COLUMNS)
        raise UsageError(
            f"The frame has no column to plot informativeness against; it needs one of {columns}.", kind="no-column"
        )
    x_title, n_column = QUALITY_COLUMNS.get(column, (column, "judgments"))
    n_answers = table[n_column] if n_column in table else table["judgments"]
    known = table[column].notna()
    enough = known & (n_answers >= MIN_ANSWERS)
    condition = f"with at least {MIN_ANSWERS} such answers" if enough.any() else "with any such answer"
    points = table[enough if enough.any() else known]
    points = pd.DataFrame(
        {
            "assessor": distinct_lines(points["assessor"]),
            "judgments": points["judgments"].astype(int),
            "informativeness": points["informativeness"],
            "value": points[column].astype(float),
            "flag": _flags(points),
        }
    )
    title = f"Informativeness and {x_title}"
    subtitle = f"{len(points):,} of {counted(len(table), 'assessor')}: those {condition}"
    if len(points) > theme.MAX_POINTS:
        chart = theme.density(points["value"], points["informativeness"], x_title, INFORMATIVENESS, "assessors")
        return styled(chart, title, subtitle, **theme.SIZE)
    flags = [name for name in theme.FLAGS if (points["flag"] == name).any()]
    shapes = alt.Scale(domain=flags, range=[theme.SHAPES[name] for name in flags])
    number_format = ".2f" if column == "gold_tau" else ".0%"
    chart = (
        new_chart(points)
        .mark_point(filled=True, opacity=0.85, stroke="white", strokeWidth=0.5)
        .encode(
            alt.X("value:Q", title=x_title, axis=alt.Axis(format=number_format), scale=alt.Scale(zero=False)),
            alt.Y("informativeness:Q", title=INFORMATIVENESS),
            color=_flag_colors(points),
            shape=alt.Shape("flag:N", title=None, scale=shapes, sort=flags),
            size=alt.Size("judgments:Q", title="judgments", scale=alt.Scale(range=[45, 260])),
            tooltip=["assessor:N", "judgments:Q", "flag:N", alt.Tooltip("value:Q", format=number_format)],
        )
    )
    return styled(chart, title, subtitle, **theme.SIZE)


def grade_curves(model: Any, assessors: Sequence[Any], captions: Sequence[str] | None = None) -> Any:
    """Plot how assessors use the grades, one row each (GDA's Figure 3).

    The columns are the Gaussian of each grade (models with Gaussians), the probability of each grade by relevance, and
    the joint density of relevance and grade: the more its curves are separated, the more an answer says.

    Args:
        model: a fitted model with grade curves (GDA, Rasch, Dawid-Skene, ...).
        assessors: ids of at most six assessors.
        captions: names of the rows; by default the ids.

    >>> import crowdrank
    >>> model = crowdrank.GDA().fit(crowdrank.simulate(queries=5, documents=6, random_state=1).judgments)
    >>> grade_curves(model, ["worker-01"]).to_dict()["spec"]["mark"]["type"]
    'line'
    """
    if not assessors or len(assessors) > MAX_CURVES:
        raise UsageError(f"must have 1 to {MAX_CURVES} ids, not {len(assessors)}", parameter="assessors")
    names = distinct_lines(assessors if captions is None else captions, 24 if captions is None else 48)
    curves = pd.concat(
        [_assessor_curves(model, who).assign(assessor=name) for who, name in zip(assessors, names, strict=True)]
    )
    grades = list(dict.fromkeys(curves["grade"]))
    panels = [panel for panel in PANELS if (curves["panel"] == panel).any()]
    on_a_line = model.assessor_estimator_.on_a_line
    x_title = "relevance (standard deviations)" if on_a_line else "grade of the document"
    lines = (
        new_chart(curves)
        .mark_line(strokeWidth=2, point=not on_a_line)
        .encode(
            alt.X("relevance:Q", title=x_title, axis=alt.Axis(tickCount=5)),
            alt.Y("value:Q", title=None, axis=alt.Axis(tickCount=4)),
            color=grade_colors(grades, "answer"),
            strokeDash=alt.StrokeDash("grade:N", title="answer", sort=grades, scale=alt.Scale(domain=grades)),
            tooltip=["grade:N", alt.Tooltip("value:Q", format=".2f"), alt.Tooltip("relevance:Q", format=".2f")],
        )
        .properties(width=PANELS_WIDTH // len(panels), height=90)
    )
    facets = lines.facet(
        row=alt.Row("assessor:N", title=None, sort=names, header=alt.Header(labelOrient="top", labelAnchor="start")),
        column=alt.Column("panel:N", title=None, sort=panels),
    ).resolve_scale(y="independent")
    return styled(facets, "How assessors use the grades", f"by {x_title}")


def _assessor_curves(model: Any, assessor: Any) -> pd.DataFrame:
    """Return the curves of one assessor in long form: panel, relevance, grade, value."""
    wide = as_pandas(model.grade_curves(assessor))
    wide = wide.iloc[np.linspace(0, len(wide) - 1, min(len(wide), MAX_CURVE_POINTS)).round().astype(np.int64)]
    shares = [name for name in map(str, wide) if name.startswith("p") and name[1:].lstrip("-").isdigit()]
    relevance = wide["relevance"].to_numpy(np.float64)
    probability = wide.set_index("relevance")[shares].rename(columns=lambda name: name[1:])
    prior = norm.pdf(relevance) if model.assessor_estimator_.on_a_line else _grade_shares(model, shares)
    tables = {PANELS[1]: probability, PANELS[2]: probability.mul(prior, axis=0)}
    if (gaussians := _gaussians(model, assessor)) is not None:
        mu, width, alpha = (gaussians[name].to_numpy() for name in ("mu", "width", "alpha"))
        density = alpha * norm.pdf(relevance[:, None], mu, np.sqrt(width))
        tables[PANELS[0]] = pd.DataFrame(density, probability.index, gaussians["grade"].astype(str).tolist())
    long = [
        table.reset_index().melt("relevance", var_name="grade", value_name="value").assign(panel=panel)
        for panel, table in tables.items()
    ]
    return pd.concat(long)


def _grade_shares(model: Any, shares: list[str]) -> Floats:
    """Return the share of documents of each grade."""
    mean: Floats = as_pandas(model.consensus_.documents)[shares].mean().to_numpy()
    return mean


def _gaussians(model: Any, assessor: Any) -> pd.DataFrame | None:
    """Return mu, width and alpha of each grade; None if the model has no Gaussians."""
    try:
        return as_pandas(model.grade_gaussians(assessor))
    except UsageError as error:
        if error.kind != "no-gaussians":
            raise
        return None


def grade_colors(grades: list[str], title: str) -> alt.Color:
    """Return the colors of grades, from the lowest to the highest."""
    if len(grades) > len(theme.GRADES):
        return alt.Color("grade:O", title=title, sort=grades, scale=alt.Scale(scheme="viridis"))
    colors = {2: [theme.VERMILION, theme.BLUE], 3: [theme.VERMILION, theme.GRAY, theme.BLUE]}
    colors_of_grades = colors.get(len(grades), list(theme.GRADES[: len(grades)]))
    return alt.Color("grade:N", title=title, sort=grades, scale=alt.Scale(domain=grades, range=colors_of_grades))


def confusion(
    given: Any,
    truth: Any,
    title: str = "",
    given_as: str = "given",
    truth_as: str = "expert",
    grades: Sequence[str] | None = None,
    noun: str = "document",
) -> Any:
    """Plot how often each answer was given to documents of each true grade.

    Args:
        given: answers, one per document.
        truth: true grades of the same documents.
        title: title of the chart.
        given_as: name of the answers.
        truth_as: name of the true grades.
        grades: names of the grades, from least to most relevant; by default, they are sorted.
        noun: what an answer is counted as.

    >>> chart = confusion([0, 1, 1], [0, 0, 1]).to_dict()
    >>> sorted(next(iter(chart["datasets"].values()))[0])
    ['answer', 'count', 'share', 'truth']
    """
    pairs = pd.DataFrame({"answer": _grades(given), "truth": _grades(truth)}).dropna()
    table = pairs.value_counts().rename("count").reset_index()
    table["share"] = table["count"] / table.groupby("truth")["count"].transform("sum")
    equal = float((pairs["answer"] == pairs["truth"]).mean()) if len(pairs) else 0.0
    base = new_chart(table).encode(
        alt.X("answer:O", title=f"{given_as} grade", axis=alt.Axis(labelAngle=0), sort=_grades(grades or []) or None),
        alt.Y("truth:O", title=f"{truth_as} grade", sort=_grades(reversed(grades or [])) or "descending"),
        tooltip=["answer:O", "truth:O", "count:Q", alt.Tooltip("share:Q", format=".0%")],
    )
    chart = _shaded_cells(base, "share of row", alt.Text("count:Q", format=","))
    side = max(150, min(46 * table["truth"].nunique(), 300))
    heading = title or f"{given_as} and {truth_as}".capitalize()
    subtitle = f"equal for {equal:.0%} of {counted(len(pairs), noun)}"
    return styled(chart, heading, subtitle, width=side, height=side * 0.8)


def _shaded_cells(base: Any, legend: str, text: alt.Text) -> Any:
    """Return cells shaded by the column `share`, with a text in each."""
    shade = alt.Color("share:Q", title=legend, scale=alt.Scale(domain=[0, 1], range=["#f4f8fb", "#00507d"]))
    text_color = alt.condition("datum.share > 0.5", alt.value("white"), alt.value(theme.DARK))
    cells = base.mark_rect(stroke="white").encode(color=shade.legend(format="%"))
    return alt.layer(cells, base.mark_text(fontSize=11).encode(text=text, color=text_color))


def _grades(values: Any) -> list[Any]:
    """Return numeric grades unchanged, and names as plain text."""
    return [one_line(value) if isinstance(value, str) else value for value in values]


def family_agreement(judgments: Judgments) -> Any:
    """Plot the share of equal answers of two judgments of a document, within and between families of assessors.

    Assessors of one family may make the same errors; their votes are then not independent.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=8, documents=6, families=3, random_state=1)
    >>> chart = family_agreement(crowdrank.read_judgments(world.judgments))
    >>> chart.to_dict()["layer"][0]["mark"]["type"]
    'rect'
    """
    if judgments.families is None or judgments.assessor_family is None:
        raise UsageError("These judgments have no families; add a column family.", kind="no-families")
    same, pairs, names = agreement_of_families(judgments)
    rows = [
        {"first": names[i], "second": names[j], "share": same[i, j] / pairs[i, j], "pairs": int(pairs[i, j])}
        for i, j in zip(*np.nonzero(pairs), strict=True)
    ]
    base = new_chart(pd.DataFrame(rows, columns=["first", "second", "share", "pairs"])).encode(
        alt.X("first:N", title=None, sort=names, axis=alt.Axis(labelAngle=-30)),
        alt.Y("second:N", title=None, sort=names),
        tooltip=["first:N", "second:N", "pairs:Q", alt.Tooltip("share:Q", format=".0%")],
    )
    total = len(judgments.families)
    which = f"the {len(names)} largest of {total:,} families" if total > len(names) else f"{total:,} families"
    side = 60 * len(names) if len(names) < 6 else 42 * len(names)
    return styled(
        _shaded_cells(base, "agree", alt.Text("share:Q", format=".0%")),
        "Agreement within and between families",
        f"share of pairs of answers that are equal; {which}",
        width=max(180, side),
        height=max(140, side * 0.75),
    )


def agreement_of_families(judgments: Judgments) -> tuple[Any, Any, list[str]]:
    """Return the numbers of equal pairs and of all pairs of judgments of a document by families, and their names.

    >>> import crowdrank
    >>> votes = pd.DataFrame({"document": ["a"] * 3, "assessor": ["x", "y", "z"], "family": ["f", "f", "g"],
    ...                       "grade": [1, 1, 0]})
    >>> same, pairs, names = agreement_of_families(crowdrank.read_judgments(votes))
    >>> same.tolist(), pairs.tolist(), names
    ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 0.0]], ['f', 'g'])
    """
    assert judgments.families is not None
    assert judgments.assessor_family is not None
    table = judgments.to_main_scale()
    family = judgments.assessor_family[table.assessor]
    used = (family >= 0) & (table.grade != UNJUDGEABLE)
    sizes = np.bincount(family[used], minlength=len(judgments.families))
    largest = np.argsort(-sizes, kind="stable")[:MAX_FAMILIES]
    position = np.full(len(sizes), -1)
    position[largest] = np.arange(len(largest))
    used &= position[np.maximum(family, 0)] >= 0
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))[used]
    row_family, grade, n = position[family[used]], table.grade[used], len(largest)
    same, votes = np.zeros((n, n)), np.zeros((table.n_items, n))
    for code in range(len(table.scale)):
        chosen = grade == code
        counts = np.bincount(item[chosen] * n + row_family[chosen], minlength=table.n_items * n).reshape(-1, n)
        same += counts.T @ counts - np.diag(counts.sum(axis=0))
        votes += counts
    pairs = votes.T @ votes - np.diag(votes.sum(axis=0))
    for matrix in (same, pairs):  # a pair within a family was counted twice
        np.fill_diagonal(matrix, np.diag(matrix) / 2)
    return same, pairs, distinct_lines(judgments.families.take(largest).to_pylist(), 24)


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
