"""Which charts a report shows, and how they become pictures that need nothing from anywhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from crowdrank.consensus.replay import trace
from crowdrank.errors import CrowdrankError
from crowdrank.reports.formatting import plain_id
from crowdrank.reports.report_data import ReportData

NEEDED = ("altair", "vl_convert")
OF_DOCUMENTS = ("expected_dawid_skene", "expected_glad", "good_dawid_skene", "good_glad", "latent_relevance")
OF_ASSESSORS = (
    "right_dawid_skene",
    "right_glad",
    "ability",
    "informativeness",
    "honeypots_right",
    "slope",
    "share_bad",
)


@dataclass(frozen=True)
class Figure:
    """A drawn chart: where it stands, what it says in words, and the picture as a data address."""

    section: str
    title: str
    source: str


def can_draw() -> bool:
    """Whether the extra `report` is installed."""
    return all(find_spec(name) is not None for name in NEEDED)


def drawn(section: str, chart: Any) -> Figure:
    """A chart as an SVG picture; in an image element nothing in it can run or be fetched."""
    import vl_convert

    spec = chart.to_dict()
    svg = renumbered(vl_convert.vegalite_to_svg(spec))
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    named = spec.get("title", {})
    words = [named.get("text", ""), *named.get("subtitle", [])]
    return Figure(section, ": ".join(word for word in words if word), address)


def renumbered(svg: str) -> str:
    """A drawing whose gradients and clips are numbered from 0: the renderer counts on from drawing to drawing.

    >>> renumbered('<path id="clip7"/><g clip-path="url(#clip7)"/><text>id="clip7"</text>')
    '<path id="clip0"/><g clip-path="url(#clip0)"/><text>id="clip7"</text>'
    """
    known: dict[str, str] = {}

    def numbered(name: re.Match[str]) -> str:
        before, kind = name.group(1), name.group(2)
        return before + known.setdefault(name.group(0)[len(before) :], f"{kind}{len(known)}")

    return re.sub(r"<[^>]*>", lambda tag: re.sub(r'(id="|url\(#)(gradient_|clip)\d+', numbered, tag.group()), svg)


def figures(found: ReportData) -> list[Figure]:
    """All charts that the findings give; none where nothing can be drawn."""
    if not can_draw():
        return []
    return [drawn(section, chart()) for section, chart in _charts(found)]


def _charts(found: ReportData) -> Iterator[tuple[str, Callable[[], Any]]]:
    from crowdrank.reports import charts

    if found.has_rankers and found.tested:
        yield (
            "rankers",
            lambda: charts.ranker_comparison(
                found.details, found.measure, chosen=found.chosen, baseline=found.baseline
            ),
        )
        if found.per_query is not None and found.chosen != found.baseline:
            values = found.per_query
            yield "rankers", lambda: charts.differences_by_query(values, found.chosen, found.baseline, found.measure)
    yield from _of_assessors(found)
    yield from _of_documents(found)
    yield from _of_training(found)


def _of_assessors(found: ReportData) -> Iterator[tuple[str, Callable[[], Any]]]:
    from crowdrank.reports import charts
    from crowdrank.reports.charts.assessors import QUALITY_COLUMNS

    yield "assessors", lambda: charts.informativeness(found.assessors)
    yield "assessors", lambda: charts.informativeness(found.assessors, "judgments")
    if any(name in found.assessors and found.assessors[name].notna().any() for name in QUALITY_COLUMNS):
        yield "assessors", lambda: charts.informativeness_by_agreement(found.assessors)
    model = found.model
    if model.answer_states() is not None:
        who, captions = typical_assessors(found.assessors)
        yield "assessors", lambda: charts.grade_curves(model, who, captions)
    if model.judgments_.families is not None:
        yield "assessors", lambda: charts.family_agreement(model.judgments_)


def typical_assessors(table: pd.DataFrame, fewest: int = 10) -> tuple[list[str], list[str]]:
    """The most and the least informative assessor, one in the middle and a reversed one if any, with captions.

    >>> table = pd.DataFrame({"assessor": list("abc"), "informativeness": [0.1, 0.9, 0.5], "judgments": [50] * 3,
    ...                       "flag": ["", "careful", ""]})
    >>> typical_assessors(table)
    (['b', 'c', 'a'], ['most informative: b', 'in the middle: c', 'least informative: a'])
    """
    known = table[table["judgments"] >= fewest]
    known = (known if len(known) else table).sort_values("informativeness", ascending=False, kind="stable")
    places = {"most informative": 0, "in the middle": len(known) // 2, "least informative": len(known) - 1}
    chosen = {known["assessor"].iloc[place]: said for said, place in reversed(places.items())}
    turned = known.loc[known["flag"] == "reversed"].sort_values("judgments", ascending=False)["assessor"]
    if len(turned):
        chosen[turned.iloc[0]] = "reversed"
    order = [*places, "reversed"]
    pairs = sorted(chosen.items(), key=lambda pair: order.index(pair[1]))
    return [who for who, _ in pairs], [f"{said}: {plain_id(who, 20)}" for who, said in pairs]


def _of_documents(found: ReportData) -> Iterator[tuple[str, Callable[[], Any]]]:
    from crowdrank.reports import charts

    yield "documents", lambda: charts.uncertainty(found.documents, on_a_line=found.on_a_line)
    both = found.against_experts
    if len(both) and found.result.same_scale:
        ours, theirs = (both[name].astype(int) for name in ("consensus", "expert"))
        yield "documents", lambda: charts.confusion(ours, theirs, "Consensus and experts", "the consensus", "experts")
    if len(found.documents):
        yield (
            "documents",
            lambda: charts.relevance_intervals(found.documents, _doubtful_query(found), on_a_line=found.on_a_line),
        )
    if "difficulty" in found.documents:
        yield "documents", lambda: charts.difficulty_by_relevance(found.documents)
        if "duration" in found.model.judgments_.extras:
            judgments = found.model.judgments_
            yield "documents", lambda: charts.difficulty_by_duration(found.documents, judgments)
    steps = _disputed_trace(found)
    if steps is not None:
        name, told = steps
        yield (
            "documents",
            lambda: charts.document_trace(
                told, f"What is known of {plain_id(name, 28)} after each answer", on_a_line=found.on_a_line
            ),
        )


def _doubtful_query(found: ReportData) -> Any:
    """The query whose documents are least certain, among those with several."""
    width = (found.documents["upper"] - found.documents["lower"]).groupby(found.documents["query"].astype(str))
    told = pd.DataFrame({"width": width.mean(), "n": width.size()})
    several = told[told["n"] >= min(5, int(told["n"].max()))]
    return several["width"].idxmax()


def _disputed_trace(found: ReportData) -> tuple[str, Any] | None:
    """The steps of the document whose answers are farthest apart."""
    if not np.isfinite(found.dispute).any():
        return None
    row = found.documents.iloc[int(np.nanargmax(found.dispute))]
    try:
        return str(row["document"]), trace(found.model, found.model.judgments_, row["document"], row["query"])
    except CrowdrankError:  # a model that cannot be replayed, as one that chose among several
        return None


def _of_training(found: ReportData) -> Iterator[tuple[str, Callable[[], Any]]]:
    from crowdrank.reports import charts

    told = found.remapping
    if told is not None:
        yield "training", lambda: charts.learned_by_grade(told)
        yield "training", lambda: charts.importance_of_features(told)
        for name in telling_features(told):
            yield "training", lambda name=name: charts.learned_by_feature(told, name)  # type: ignore[misc]
    model = found.model
    if len([value for value in model.history_ if value == value]) > 1:
        yield "training", lambda: charts.convergence(model)


def telling_features(remapping: pd.DataFrame) -> list[str]:
    """The feature of documents and the one of assessors with which what labels are worth differs most."""
    from crowdrank.reports.charts.training import spread_of_features

    spread = spread_of_features(remapping)
    names = [name for name in dict.fromkeys(spread["feature"]) if "_of_" not in name]
    firsts = ([name for name in names if name in side][:1] for side in (OF_DOCUMENTS, OF_ASSESSORS))
    return [name for first in firsts for name in first]
