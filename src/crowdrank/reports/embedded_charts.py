"""Charts of the report, as SVG images embedded in the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from crowdrank.consensus.replay import trace
from crowdrank.errors import CrowdrankError
from crowdrank.reports.formatting import one_line
from crowdrank.reports.report_data import ReportData
from crowdrank.reports.svg_images import can_draw, draw_svg, title_of, width_of

MAX_HALF_WIDTH = 640
"""Maximum width in pixels of a chart that takes half of the page."""
SECTIONS = ("rankers", "estimate", "assessors", "documents", "training")
"""Sections of the report that have charts."""


class Figure(NamedTuple):
    """Chart as an image.

    Attributes:
        title: title and subtitle of the chart, for readers who cannot see it.
        source: data URL of the image.
        is_wide: whether it takes the full width of the page.

    """

    title: str
    source: str
    is_wide: bool


def draw_figures(data: ReportData) -> dict[str, list[Figure]]:
    """Return the figures of each section; none if charts cannot be drawn."""
    if not can_draw():
        return {name: [] for name in SECTIONS}
    charts = {
        "rankers": _ranker_charts(data),
        "estimate": _estimate_charts(data),
        "assessors": _assessor_charts(data),
        "documents": _document_charts(data),
        "training": _training_charts(data),
    }
    return {name: [draw(chart) for chart in charts[name]] for name in SECTIONS}


def draw(chart: Any) -> Figure:
    """Return a chart as an SVG image; in an image element, nothing in it can run or be fetched."""
    spec = chart.to_dict()
    svg = draw_svg(spec)
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return Figure(title_of(spec), source, width_of(svg) > MAX_HALF_WIDTH)


def _ranker_charts(data: ReportData) -> Iterator[Any]:
    from crowdrank.reports import charts

    if not data.has_rankers or not data.tested:
        return
    yield charts.ranker_comparison(data.details, data.measure, chosen=data.chosen, baseline=data.baseline)
    if data.chosen != data.baseline:
        yield charts.differences_by_query(data.per_query, data.chosen, data.baseline, data.measure)


def _estimate_charts(data: ReportData) -> Iterator[Any]:
    from crowdrank.reports import charts

    if data.result.estimate is not None:
        yield charts.estimates(data.result.estimate)


def _assessor_charts(data: ReportData) -> Iterator[Any]:
    from crowdrank.reports import charts
    from crowdrank.reports.charts.assessors import QUALITY_COLUMNS

    yield charts.informativeness(data.assessors)
    if any(name in data.assessors and data.assessors[name].notna().any() for name in QUALITY_COLUMNS):
        yield charts.informativeness_by_agreement(data.assessors)
    if data.models_assessors:
        yield charts.grade_curves(data.model, *example_assessors(data.assessors))
    if data.model.judgments_.families is not None:
        yield charts.family_agreement(data.model.judgments_)


def example_assessors(table: pd.DataFrame, min_judgments: int = 10) -> tuple[list[str], list[str]]:
    """Return the most, the median and the least informative assessor, and a reversed one if any, with captions.

    >>> table = pd.DataFrame({"assessor": list("abc"), "informativeness": [0.1, 0.9, 0.5], "judgments": [50] * 3,
    ...                       "flag": ["", "careful", ""]})
    >>> example_assessors(table)
    (['b', 'c', 'a'], ['most informative: b', 'median: c', 'least informative: a'])
    """
    known = table[table["judgments"] >= min_judgments]
    known = (known if len(known) else table).sort_values("informativeness", ascending=False, kind="stable")
    reversed_ones = known.loc[known["flag"] == "reversed"].sort_values("judgments", ascending=False)["assessor"]
    examples = {
        "reversed": reversed_ones.iloc[0] if len(reversed_ones) else None,
        "most informative": known["assessor"].iloc[0],
        "median": known["assessor"].iloc[len(known) // 2],
        "least informative": known["assessor"].iloc[-1],
    }
    caption_of = {who: caption for caption, who in reversed(examples.items()) if who is not None}
    pairs = sorted(caption_of.items(), key=lambda pair: (pair[1] == "reversed", list(examples).index(pair[1])))
    return [who for who, _ in pairs], [f"{caption}: {one_line(who, 20)}" for who, caption in pairs]


def _document_charts(data: ReportData) -> Iterator[Any]:
    from crowdrank.reports import charts
    from crowdrank.reports.charts.documents import least_certain_query

    yield charts.uncertainty(data.documents, on_a_line=data.on_a_line)
    graded = data.against_experts
    if len(graded) and data.result.same_scale:
        consensus, expert = (graded[name].astype(int) for name in ("consensus", "expert"))
        yield charts.confusion(consensus, expert, "Consensus grades and expert grades", "consensus", "expert")
    if "difficulty" in data.documents:
        yield charts.difficulty_by_relevance(data.documents)
        if "duration" in data.model.judgments_.extras:
            yield charts.difficulty_by_duration(data.documents, data.model.judgments_)
    yield charts.relevance_intervals(data.documents, least_certain_query(data.documents), on_a_line=data.on_a_line)
    yield from _disputed_trace(data)


def _disputed_trace(data: ReportData) -> Iterator[Any]:
    """Yield a chart of the relevance of the most disputed document after each answer."""
    from crowdrank.reports import charts

    if not np.isfinite(data.dispute).any():
        return
    row = data.documents.iloc[int(np.nanargmax(data.dispute))]
    try:
        steps = trace(data.model, data.model.judgments_, row["document"], row["query"])
    except CrowdrankError:  # the model cannot be replayed
        return
    title = f"Relevance of {one_line(row['document'], 28)} after each answer"
    yield charts.document_trace(steps, title, on_a_line=data.on_a_line)


def _training_charts(data: ReportData) -> Iterator[Any]:
    from crowdrank.reports import charts

    if len(data.remapping):
        yield charts.learned_by_feature(data.remapping, "label")
        yield charts.importance_of_features(data.remapping)
