"""Charts of the report, as SVG images embedded in the page."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from crowdrank.consensus.trace import trace
from crowdrank.errors import CrowdrankError, Message
from crowdrank.reports.formatting import one_line
from crowdrank.reports.report_data import ReportData
from crowdrank.reports.svg_images import can_draw, draw_svg, title_of, width_of

MAX_HALF_WIDTH = 640
"""Maximum width in pixels of a chart that takes half of the page."""
SECTIONS = ("rankers", "estimate", "assessors", "documents", "training")
"""Sections of the report that have charts."""


ChartMaker = tuple[str, Callable[[], Any]]
"""Name of a chart and the function that makes it; a function that returns None leaves it out."""


class Figure(NamedTuple):
    """Chart as an image, or the reason why there is none.

    Attributes:
        title: title and subtitle of the chart, for readers who cannot see it.
        source: data URL of the image.
        is_wide: whether it takes the full width of the page.
        problem: why the chart could not be drawn; empty if it was.

    """

    title: str
    source: str
    is_wide: bool
    problem: str = ""


def draw_figures(data: ReportData) -> dict[str, list[Figure]]:
    """Return the figures of each section; none if charts cannot be drawn."""
    if not can_draw():
        return {name: [] for name in SECTIONS}
    makers = (_ranker_charts, _estimate_charts, _assessor_charts, _document_charts, _training_charts)
    return {name: _draw_section(data, name, charts) for name, charts in zip(SECTIONS, makers, strict=True)}


def _draw_section(
    data: ReportData, name: str, list_charts: Callable[[ReportData], Iterator[ChartMaker]]
) -> list[Figure]:
    """Return the figures of a section; a chart that cannot be drawn becomes a figure that says so."""
    charts = data.make_or_warn(f"The charts of the section {name!r}", lambda: list(list_charts(data)))
    if isinstance(charts, Message):
        return [Figure("", "", is_wide=False, problem=str(charts))]
    figures = []
    for title, make in charts:
        figure = data.make_or_warn(f"The chart {title!r}", lambda make=make: _draw_if_any(make()))  # type: ignore[misc]
        if isinstance(figure, Message):
            figure = Figure(title, "", is_wide=False, problem=str(figure))
        if figure is not None:
            figures.append(figure)
    return figures


def _draw_if_any(chart: Any) -> Figure | None:
    return None if chart is None else draw(chart)


def draw(chart: Any) -> Figure:
    """Return a chart as an SVG image; in an image element, nothing in it can run or be fetched."""
    spec = chart.to_dict()
    svg = draw_svg(spec)
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return Figure(title_of(spec), source, width_of(svg) > MAX_HALF_WIDTH)


def _ranker_charts(data: ReportData) -> Iterator[ChartMaker]:
    from crowdrank.reports import charts

    if not data.has_rankers or not data.tested:
        return
    chosen, baseline, measure = data.chosen, data.baseline, data.measure
    yield (
        "rankers",
        lambda: charts.ranker_comparison(data.details, measure, chosen=chosen, baseline=baseline),
    )
    verdict = data.rankers.verdict
    if verdict is not None and verdict.decisive:
        yield (
            "differences by query",
            lambda: charts.differences_by_query(data.per_query, chosen, verdict.decisive, measure),
        )


def _estimate_charts(data: ReportData) -> Iterator[ChartMaker]:
    from crowdrank.reports import charts

    if data.result.estimate is not None:
        yield "estimates", lambda: charts.estimates(data.result.estimate)


def _assessor_charts(data: ReportData) -> Iterator[ChartMaker]:
    from crowdrank.reports import charts
    from crowdrank.reports.charts.assessors import QUALITY_COLUMNS

    yield "informativeness", lambda: charts.informativeness(data.assessors)
    if any(name in data.assessors and data.assessors[name].notna().any() for name in QUALITY_COLUMNS):
        yield "informativeness and agreement", lambda: charts.informativeness_by_agreement(data.assessors)
    if data.models_assessors:
        yield "use of the grades", lambda: charts.grade_curves(data.model, *example_assessors(data.assessors))
    if data.model.judgments_.families is not None:
        yield "agreement of families", lambda: charts.family_agreement(data.model.judgments_)


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


def _document_charts(data: ReportData) -> Iterator[ChartMaker]:
    from crowdrank.reports import charts
    from crowdrank.reports.charts.documents import least_certain_query

    documents, on_a_line = data.documents, data.on_a_line
    yield "uncertainty", lambda: charts.uncertainty(documents, on_a_line=on_a_line)
    if len(data.against_experts) and data.result.same_scale:
        yield "consensus and experts", lambda: _consensus_and_experts(data)
    calibration = data.result.calibration
    if calibration is not None and calibration.before is not None:
        yield "reliability of probabilities", lambda: charts.reliability(calibration)
    if "difficulty" in documents:
        yield "difficulty and relevance", lambda: charts.difficulty_by_relevance(documents)
        if "duration" in data.model.judgments_.extras:
            yield (
                "difficulty and duration",
                lambda: charts.difficulty_by_duration(documents, data.model.judgments_),
            )
    yield (
        "relevance of a query",
        lambda: charts.relevance_intervals(documents, least_certain_query(documents), on_a_line=on_a_line),
    )
    yield "relevance after each answer", lambda: _disputed_trace(data)


def _consensus_and_experts(data: ReportData) -> Any:
    from crowdrank.reports import charts

    consensus, expert = (data.against_experts[name].astype(int) for name in ("consensus", "expert"))
    return charts.confusion(consensus, expert, "Consensus grades and expert grades", "consensus", "expert")


def _disputed_trace(data: ReportData) -> Any:
    """Return a chart of the relevance of the most disputed document after each answer; None if there is none."""
    from crowdrank.reports import charts

    if not (data.dispute > 0).any():
        return None
    row = data.documents.iloc[int(np.nanargmax(data.dispute))]
    try:
        steps = trace(data.model, data.model.judgments_, row["document"], row["query"])
    except CrowdrankError:  # the model cannot be replayed
        return None
    title = f"Relevance of {one_line(row['document'], 28)} after each answer"
    return charts.document_trace(steps, title, on_a_line=data.on_a_line)


def _training_charts(data: ReportData) -> Iterator[ChartMaker]:
    from crowdrank.reports import charts

    if len(data.remapping):
        yield "learned labels", lambda: charts.learned_by_feature(data.remapping, "label")
        yield "importance of label features", lambda: charts.importance_of_features(data.remapping)
