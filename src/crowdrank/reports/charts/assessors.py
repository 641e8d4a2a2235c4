"""Charts of assessors: how much their answers tell, how they use the grades, with whom they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from crowdrank.errors import UsageError
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.theme import as_pandas, dressed, number_of, plain_ids, titled
from crowdrank.reports.formatting import plain_id
from crowdrank.reports.run_folder import crowd_median

SHARES = {
    "gold_accuracy": "answers equal to the experts' grade",
    "honeypot_share": "honeypots answered right",
    "agreement": "answers equal to the consensus grade",
}
"""What informativeness may be held against, the most telling first."""
ASKED = {"gold_accuracy": "gold_judgments", "honeypot_share": "honeypots"}
"""How many answers a share is of."""
FEWEST = 10
"""Shares of fewer answers than this are mostly chance."""
MOST_CURVES = 6
MOST_FAMILIES = 12


def informativeness(assessors: Any) -> Any:
    """How many assessors are how informative, by flag: where the random ones lie, and how far the careful ones.

    Args:
        assessors: the frame of `assess(model)`, or assessors.csv.

    >>> frame = pd.DataFrame({"informativeness": [0.0, 0.4, 0.5], "flag": ["random", "", "careful"]})
    >>> informativeness(frame).to_dict()["layer"][0]["encoding"]["x"]["title"]
    'what an answer tells of the truth (nats)'
    """
    known = as_pandas(assessors, "informativeness", "flag")
    edges = _edges(known["informativeness"])
    rows = []
    for name in theme.FLAGS:
        of = known.loc[_flags(known) == name, "informativeness"]
        count, _ = np.histogram(of.dropna(), bins=edges)
        rows += [(name, *edge, n) for *edge, n in zip(edges[:-1], edges[1:], count, strict=True) if n]
    told = pd.DataFrame(rows, columns=["flag", "start", "end", "assessors"])
    told["order"] = told["flag"].map({name: number for number, name in enumerate(theme.FLAGS)})
    middle = crowd_median(known) if len(known) else 0.0
    few = 0 < int((known["flag"] == "few").sum()) < len(known)
    bars = (
        alt.Chart(told)
        .mark_bar(binSpacing=1)
        .encode(
            alt.X("start:Q", bin="binned", title="what an answer tells of the truth (nats)"),
            alt.X2("end:Q"),
            alt.Y("assessors:Q", title="assessors", stack="zero"),
            color=_flag_colors(told),
            order="order:Q",
            tooltip=["flag:N", "assessors:Q", alt.Tooltip("start:Q", format=".3f"), alt.Tooltip("end:Q", format=".3f")],
        )
    )
    rule = alt.Chart(pd.DataFrame({"x": [middle]})).mark_rule(color=theme.INK, strokeDash=[4, 3]).encode(x="x:Q")
    return dressed(
        alt.layer(bars, rule).properties(
            width=theme.WIDTH,
            height=theme.HEIGHT,
            title=titled(
                "How much assessors' answers tell",
                f"{number_of(known, 'assessor')}; dashed: the crowd's median{', flag few left out' * few}",
            ),
        )
    )


def _edges(values: Any) -> Any:
    known = np.asarray(values, dtype=np.float64)
    high = float(np.nanmax(known)) if len(known) and np.isfinite(known).any() else 1.0
    return np.linspace(0.0, max(high, 1e-6) * 1.001, 25)


def _flags(frame: pd.DataFrame) -> Any:
    flag = frame["flag"].astype(object)
    return flag.where(flag.notna() & (flag != ""), "no flag")


def _flag_colors(frame: pd.DataFrame) -> alt.Color:
    there = [name for name in theme.FLAGS if (frame["flag"] == name).any()]
    return alt.Color(
        "flag:N", title=None, scale=alt.Scale(domain=there, range=[theme.FLAGS[name] for name in there]), sort=there
    )


def informativeness_by_agreement(assessors: Any, share: str | None = None) -> Any:
    """Informativeness against agreement with experts (or with honeypots, or with the consensus).

    Args:
        assessors: as of :func:`informativeness`; many are shown as how many lie where.
        share: the column to hold it against; the most telling that is there unless given.

    >>> frame = pd.DataFrame({"assessor": ["a", "b"], "judgments": [9, 9], "informativeness": [0.1, 0.4],
    ...                       "flag": ["", ""], "gold_accuracy": [0.4, 0.7]})
    >>> informativeness_by_agreement(frame).to_dict()["mark"]["type"]
    'point'
    """
    known = as_pandas(assessors, "assessor", "judgments", "informativeness", "flag")
    there = [name for name in SHARES if name in known and known[name].notna().any()]
    column = share or (there[0] if there else None)
    if column is None or column not in known:
        raise UsageError(
            f"There is nothing to hold informativeness against; the frame has none of {', '.join(SHARES)}."
        )
    asked = known[ASKED[column]] if ASKED.get(column) in known else known["judgments"]
    enough = known[column].notna() & (asked >= FEWEST)
    some = f"with {FEWEST} such answers or more" if enough.any() else "with any such answer"
    told = known.loc[enough if enough.any() else known[column].notna()].assign(
        flag=_flags(known), judgments=known["judgments"].astype(int)
    )
    y_title, x_title = "informativeness (nats)", SHARES.get(column, column)
    told = told.assign(share=told[column].astype(float), assessor=plain_ids(told["assessor"]))
    named = titled(
        f"Informativeness and {_what(column)}", f"{len(told):,} of {number_of(known, 'assessor')}: those {some}"
    )
    if len(told) > theme.MOST_POINTS:
        chart = theme.cloud(told["share"], told["informativeness"], f"{x_title} (share)", y_title, "assessor")
        return dressed(chart.properties(width=theme.WIDTH, height=theme.HEIGHT, title=named))
    flags = [name for name in theme.FLAGS if (told["flag"] == name).any()]
    shapes = alt.Scale(domain=flags, range=[theme.SHAPES[name] for name in flags])
    points = (
        alt.Chart(told[["assessor", "judgments", "informativeness", "share", "flag"]])
        .mark_point(filled=True, opacity=0.85, stroke="white", strokeWidth=0.5)
        .encode(
            alt.X("share:Q", title=x_title, axis=alt.Axis(format="%"), scale=alt.Scale(zero=False)),
            alt.Y("informativeness:Q", title=y_title),
            color=_flag_colors(told),
            shape=alt.Shape("flag:N", title=None, scale=shapes, sort=flags),
            size=alt.Size("judgments:Q", title="judgments", scale=alt.Scale(range=[45, 260])),
            tooltip=["assessor:N", "judgments:Q", "flag:N", alt.Tooltip("share:Q", format=".0%")],
        )
    )
    return dressed(points.properties(width=theme.WIDTH, height=theme.HEIGHT, title=named))


def _what(column: str) -> str:
    return {"gold_accuracy": "agreement with experts", "honeypot_share": "honeypots"}.get(
        column, "agreement with the consensus"
    )


def grade_curves(model: Any, assessors: Sequence[Any], captions: Sequence[str] | None = None) -> Any:
    """The probability that an assessor gives each grade where a document's relevance is known (GDA's Figure 3).

    Args:
        model: a fitted model that has curves (GDA, Rasch, Dawid-Skene, ...).
        assessors: ids; up to six are drawn side by side.
        captions: what to call each; its id unless given.

    >>> import crowdrank
    >>> model = crowdrank.GDA().fit(crowdrank.simulate(queries=5, documents=6, random_state=1).judgments)
    >>> grade_curves(model, ["worker-01"]).to_dict()["spec"]["mark"]["type"]
    'line'
    """
    if not assessors or len(assessors) > MOST_CURVES:
        raise UsageError(f"Name 1 to {MOST_CURVES} assessors to draw the curves of, not {len(assessors)}.")
    names = plain_ids(assessors if captions is None else captions, 24 if captions is None else 48)
    parts = []
    for who, name in zip(assessors, names, strict=True):
        curves = as_pandas(model.grade_curves(who))
        shares = [column for column in curves if str(column).startswith("p") and str(column)[1:].lstrip("-").isdigit()]
        long = curves.melt("relevance", shares, "grade", "chance")
        parts.append(long.assign(assessor=name, grade=long["grade"].str[1:]))
    told = pd.concat(parts)
    grades = list(dict.fromkeys(told["grade"]))
    on_a_line = model.assessor_estimator_.on_a_line
    x_title = "relevance (standard deviations)" if on_a_line else "grade of the document"
    lines = (
        alt.Chart(told)
        .mark_line(strokeWidth=2.2, point=not on_a_line)
        .encode(
            alt.X("relevance:Q", title=x_title, axis=alt.Axis(tickCount=5)),
            alt.Y("chance:Q", title="chance of the answer", axis=alt.Axis(format="%", tickCount=4)),
            color=_grade_colors(grades, "answer"),
            strokeDash=alt.StrokeDash("grade:N", title="answer", sort=grades, scale=alt.Scale(domain=grades)),
            tooltip=["grade:N", alt.Tooltip("chance:Q", format=".0%"), alt.Tooltip("relevance:Q", format=".2f")],
        )
        .properties(width=185, height=130)
    )
    facets = lines.facet(
        alt.Facet("assessor:N", title=None, sort=names), columns=2 if len(names) in (2, 4) else 3
    ).properties(
        title=titled("How assessors use the grades", "the chance of each answer, by how relevant the document is")
    )
    return dressed(facets)


def _grade_colors(grades: list[str], title: str) -> alt.Color:
    if len(grades) > len(theme.GRADES):
        return alt.Color("grade:O", title=title, sort=grades, scale=alt.Scale(scheme="viridis"))
    step = [theme.VERMILION, theme.BLUE] if len(grades) == 2 else list(theme.GRADES[: len(grades)])
    if len(grades) == 3:
        step = [theme.VERMILION, theme.GREY, theme.BLUE]
    return alt.Color("grade:N", title=title, sort=grades, scale=alt.Scale(domain=grades, range=step))


def confusion(given: Any, truth: Any, title: str = "", given_as: str = "answer", truth_as: str = "expert") -> Any:
    """How often each answer was given where the truth was each grade: a table of counts, shaded by row.

    Args:
        given, truth: a grade each, of the same documents.
        title: what the answers are of.
        given_as, truth_as: what the two sides are called.

    >>> chart = confusion([0, 1, 1], [0, 0, 1]).to_dict()
    >>> sorted(next(iter(chart["datasets"].values()))[0])
    ['answer', 'count', 'share', 'truth']
    """
    pairs = pd.DataFrame({"answer": _grades(given), "truth": _grades(truth)}).dropna()
    table = pairs.value_counts().rename("count").reset_index()
    table["share"] = table["count"] / table.groupby("truth")["count"].transform("sum")
    equal = float((pairs["answer"] == pairs["truth"]).mean()) if len(pairs) else 0.0
    base = alt.Chart(table).encode(
        alt.X("answer:O", title=f"grade by {given_as}", axis=alt.Axis(labelAngle=0)),
        alt.Y("truth:O", title=f"grade by {truth_as}", sort="descending"),
    )
    shade = alt.Color("share:Q", title="share of row", scale=alt.Scale(domain=[0, 1], range=["#f4f8fb", "#00507d"]))
    cells = base.mark_rect(stroke="white").encode(
        color=shade.legend(format="%"), tooltip=["answer:O", "truth:O", "count:Q", alt.Tooltip("share:Q", format=".0%")]
    )
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text("count:Q", format=","),
        color=alt.condition("datum.share > 0.5", alt.value("white"), alt.value(theme.INK)),
    )
    side = max(150, min(46 * table["truth"].nunique(), 300))
    said = f"equal in {equal:.0%} of {number_of(pairs, 'document')}"
    return dressed(
        alt.layer(cells, text).properties(
            width=side, height=side * 0.8, title=titled(title or f"{given_as} and {truth_as}".capitalize(), said)
        )
    )


def _grades(values: Any) -> list[Any]:
    """Grades that can be shown: numbers as they are, names as plain text."""
    return [plain_id(value) if isinstance(value, str) else value for value in values]


def family_agreement(judgments: Judgments) -> Any:
    """How often two judgments of a document agree, within families of assessors and between them.

    Copies of one judge agree with each other more than with the rest: their votes are not as many as they look.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=8, documents=6, families=3, random_state=1)
    >>> chart = family_agreement(crowdrank.read_judgments(world.judgments))
    >>> chart.to_dict()["layer"][0]["mark"]["type"]
    'rect'
    """
    if judgments.families is None or judgments.assessor_family is None:
        raise UsageError("These judgments name no families; add a column family.")
    same, pairs, names = agreement_of_families(judgments)
    rows = [
        {"first": names[i], "second": names[j], "share": same[i, j] / pairs[i, j], "pairs": int(pairs[i, j])}
        for i in range(len(names))
        for j in range(len(names))
        if pairs[i, j]
    ]
    told = pd.DataFrame(rows, columns=["first", "second", "share", "pairs"])
    base = alt.Chart(told).encode(
        alt.X("first:N", title=None, sort=names, axis=alt.Axis(labelAngle=-30)),
        alt.Y("second:N", title=None, sort=names),
    )
    shade = alt.Color("share:Q", title="agree", scale=alt.Scale(domain=[0, 1], range=["#f4f8fb", "#00507d"]))
    cells = base.mark_rect(stroke="white").encode(
        color=shade.legend(format="%"), tooltip=["first:N", "second:N", "pairs:Q", alt.Tooltip("share:Q", format=".0%")]
    )
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text("share:Q", format=".0%"),
        color=alt.condition("datum.share > 0.55", alt.value("white"), alt.value(theme.INK)),
    )
    total = len(judgments.families)
    some = f"the {len(names)} largest of {total:,} families" if total > len(names) else f"{total:,} families"
    side = 60 * len(names) if len(names) < 6 else 42 * len(names)
    return dressed(
        alt.layer(cells, text).properties(
            width=max(180, side),
            height=max(140, side * 0.75),
            title=titled("Agreement within and between families", f"pairs of answers that are equal; {some}"),
        )
    )


def agreement_of_families(judgments: Judgments) -> tuple[Any, Any, list[str]]:
    """Equal pairs, all pairs (n_families, n_families) of judgments of one document, and the families' names.

    >>> import crowdrank
    >>> votes = pd.DataFrame({"document": ["a"] * 3, "assessor": ["x", "y", "z"], "family": ["f", "f", "g"],
    ...                       "grade": [1, 1, 0]})
    >>> same, pairs, names = agreement_of_families(crowdrank.read_judgments(votes))
    >>> same.tolist(), pairs.tolist(), names
    ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 0.0]], ['f', 'g'])
    """
    assert judgments.families is not None
    assert judgments.assessor_family is not None
    table = judgments.on_main_scale()
    family = judgments.assessor_family[table.assessor]
    kept = (family >= 0) & (table.grade != UNJUDGEABLE)
    sizes = np.bincount(family[kept], minlength=len(judgments.families))
    largest = np.argsort(-sizes, kind="stable")[:MOST_FAMILIES]
    place = np.full(len(sizes), -1)
    place[largest] = np.arange(len(largest))
    kept &= place[np.maximum(family, 0)] >= 0
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))[kept]
    of, grade, n, n_grades = place[family[kept]], table.grade[kept], len(largest), len(table.scale)
    same, votes = np.zeros((n, n)), np.zeros((table.n_items, n))
    for code in range(n_grades):  # equal pairs of a grade: products of how many of each family gave it
        chosen = grade == code
        counts = np.bincount(item[chosen] * n + of[chosen], minlength=table.n_items * n).reshape(-1, n)
        same += counts.T @ counts - np.diag(counts.sum(axis=0))
        votes += counts
    pairs = votes.T @ votes - np.diag(votes.sum(axis=0))
    # A pair within a family was counted from both of its sides.
    np.fill_diagonal(same, np.diag(same) / 2)
    np.fill_diagonal(pairs, np.diag(pairs) / 2)
    names = plain_ids(judgments.families.take(largest).to_pylist(), 24)
    return same, pairs, names
