"""The HTML report of a run: one file that opens offline, requests nothing, and shows ids only as text."""

from __future__ import annotations

import base64
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet

from crowdrank._files import check_output_file, write_file
from crowdrank._folders import Manifest, update_folder
from crowdrank._text import counted, minus_signs, one_line
from crowdrank.assessors.advice import ADVICE
from crowdrank.assessors.assessor_report import FLAGS, describe_few, describe_thin
from crowdrank.consensus.families import describe_effective_assessors, effective_assessors
from crowdrank.consensus.trace import trace
from crowdrank.errors import CrowdrankError, CrowdrankWarning, Message, UsageError
from crowdrank.pipeline.result_tables import describe_next
from crowdrank.pipeline.run_result import DEPLOYABLE, NOT_FOR_RANKERS, RUN_FILE, TABLE_FILES, RunResult, reading_run
from crowdrank.pipeline.stage_cache import PROFILE_FILE
from crowdrank.readers.inputs import TableLike
from crowdrank.reports.cards import make_cards
from crowdrank.reports.report_data import ReportData
from crowdrank.reports.report_tables import Table, make_tables
from crowdrank.reports.svg_images import can_draw, draw_svg, title_of, width_of

if TYPE_CHECKING:
    from crowdrank.readers.texts import Texts

REPORT = "report.html"
TABLE_CONTENTS = {
    "comparison": "results of every candidate",
    "per_query": "results of every candidate on every test query",
    "estimate": "the selected ranker and the current ranking, by experts and by labels alone",
    "assessors": "every assessor",
    "pairs": "agreement of pairs of assessors",
    "documents": "every document: relevance, interval, grade",
    "next": "documents to label next",
    "training": "labels that rankers are trained on",
    "remapping": "learned targets and weights by feature of the labels",
    "features": "every feature",
    "texts": "texts of the documents in this report",
    "documents_with_features": "every document, by labels that used features",
    "next_with_features": "documents to label next by labels that used features",
    "preference_assessors": "every assessor with preferences",
    "order": "order at the top of each query, with its probability",
}
"""Contents of the tables of a run."""
LABEL_SETTINGS = ("method", "method_settings", "feature_labels", "unjudgeable_as", "n_jobs", "random_state")
"""Settings that a run without rankers uses."""


def write_report(
    source: RunResult | str | Path,
    output: str | Path | None = None,
    *,
    folder: str | Path = "",
    texts: Texts | TableLike | None = None,
) -> Path:
    """Write the HTML report of a run and return its path.

    Args:
        source: result of a run, or the folder that a run wrote.
        output: file to write; by default report.html in the folder of the run.
        folder: folder of the run in the commands that the report shows; by default the folder that is read.
        texts: texts of queries and documents to show: files or a DataFrame with columns such as document, query, text,
            title, url and query_text. If the report is written into the folder of the run, the texts that it shows are
            saved there too.

    Returns:
        Path of the report.

    >>> import crowdrank, tempfile
    >>> world = crowdrank.simulate(queries=12, documents=6, random_state=1)
    >>> folder = Path(tempfile.mkdtemp()) / "out"
    >>> result = crowdrank.run(world.judgments, world.features, candidates=["gls"], output=folder)
    >>> write_report(folder).name
    'report.html'
    """
    if isinstance(source, RunResult):
        if output is None:
            raise UsageError("is needed to write the report of a result", parameter="output")
        return _write(render(ReportData(add_texts(source, texts), Path(folder))), Path(output))
    path = Path(source) / REPORT if output is None else Path(output)
    if Path(source).is_dir():
        check_output_file(path)
    result = add_texts(RunResult.load(source), texts)
    with reading_run(source):  # files that do not fit each other in ways that loading does not check
        page = render(ReportData(result, Path(folder or source)))
    if output is not None:
        return _write(page, path)
    return _add_page(page, result if texts is not None else None, Path(source))


def _write(page: str, path: Path) -> Path:
    check_output_file(path)
    with write_file(path) as draft:
        draft.write_text(page, encoding="utf-8")
    return path


def add_report(result: RunResult, folder: Path, texts: Texts | TableLike | None = None) -> Path:
    """Write the report of a result, and the texts that it shows, into the folder of its run; return its path."""
    result = add_texts(result, texts)
    return _add_page(render(ReportData(result, folder)), result if texts is not None else None, folder)


def _add_page(page: str, result_with_texts: RunResult | None, folder: Path) -> Path:
    """Put a report, and the texts of a result if there is one, into the folder of a run."""
    if result_with_texts is not None:
        with update_folder(folder, Manifest.read(folder), TABLE_FILES["texts"]) as draft:
            parquet.write_table(result_with_texts.tables["texts"], draft)
    with update_folder(folder, Manifest.read(folder), REPORT) as draft:
        draft.write_text(page, encoding="utf-8")
    return folder / REPORT


def add_texts(result: RunResult, texts: Texts | TableLike | None) -> RunResult:
    """Return the result with the texts of the documents that its report shows as the table `texts`."""
    if texts is None:
        return result
    from crowdrank.readers.texts import Texts, read_texts

    if not isinstance(texts, Texts):
        judgments = result.model.judgments_
        texts = read_texts(texts, judgments.queries, judgments.documents)
    table = texts.table(ReportData(result, Path()).shown_documents())
    return replace(result, tables={**result.tables, "texts": table})


def render(data: ReportData) -> str:
    """Return the report as HTML.

    A part that cannot be made is replaced by a sentence that says so, which is also issued as a warning.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["minus"] = minus_signs
    environment.filters["number"] = "{:,}".format
    script, style, figures = _read_asset("page.js"), _read_asset("page.css"), draw_figures(data)
    made = make_tables(data)
    tables = {name: table for name, table in made.items() if isinstance(table, Table)}

    def section(name: str, caller: Callable[[], str]) -> str:
        content = data.make_or_warn(f"The section {name!r}", caller)
        return Markup('<p class="failed">{}</p>').format(content) if isinstance(content, Message) else content

    values: dict[str, Any] = {
        "data": data,
        "result": data.result,
        "title": f"{'A ranker' if data.has_rankers else 'Labels'} from {counted(data.sizes['judgments'], 'judgment')}",
        "section": section,
        "cards": make_cards(data),
        "describe_next": describe_next,
        "deployable_folder": quote(str(data.folder / DEPLOYABLE)),
        "figures": figures,
        "not_for_rankers": NOT_FOR_RANKERS,
        "can_draw": can_draw(),
        "tables": tables,
        "failed_tables": {name: problem for name, problem in made.items() if name not in tables},
        "listed_tables": made,
        "table_data": {name: script_json(table.to_dict()) for name, table in tables.items()},
        "flag_counts": flag_counts,
        "effective_assessors": describe_effective_assessors(data.sizes["assessors"], effective_assessors(data.model)),
        "thin_assessors": describe_thin(
            data.assessors["bias_reference"].tolist(), has_experts="gold_judgments" in data.assessors
        ),
        "few_assessors": describe_few(int((data.assessors["flag"] == "few").sum()), len(data.assessors)),
        "script": script,
        "style": style,
        "policy": f"default-src 'none'; img-src data:; script-src {csp_hash(script)}; style-src {csp_hash(style)}",
        "interval_bar": interval_bar,
        "counted": counted,
        "files": _files,
        "settings": _settings,
        **(_ranker_values() if data.has_rankers else {}),
    }
    page = environment.get_template("page.html").render(values)
    for message in data.failures:
        warnings.warn(CrowdrankWarning(message), stacklevel=2)
    return page


def _ranker_values() -> dict[str, Any]:
    """Return what the page needs only for a run with rankers."""
    from crowdrank.pipeline.baseline_estimate import EXPLANATION, QUESTION, estimate_rows
    from crowdrank.pipeline.deployment import describe_deployable

    return {
        "describe_deployable": describe_deployable,
        "estimate_question": QUESTION,
        "estimate_explanation": EXPLANATION,
        "estimate_rows": estimate_rows,
    }


def _read_asset(name: str) -> str:
    return files("crowdrank.reports").joinpath(name).read_text(encoding="utf-8")


def _files(data: ReportData) -> list[tuple[str, str]]:
    """Return the names and contents of the files of a run."""
    models = [("consensus", "the consensus model with its judgments")]
    if data.has_rankers:
        models.append(("model", "the ranker"))
        models += [("alternative", "the ranker that the selected one is not ahead of")] * (
            data.rankers.alternative is not None
        )
        models += [("deployable", "one forest for search engines")] * (data.rankers.deployable is not None)
        models += [("remappers", "the learned remappers")] * bool(data.rankers.remappers)
    tables = [(TABLE_FILES[name], text) for name, text in TABLE_CONTENTS.items() if name in data.result.tables]
    about = [(RUN_FILE, "settings, versions, figures"), (PROFILE_FILE, "time and memory of each stage")]
    return [*models, *tables, *about]


def _settings(data: ReportData) -> list[tuple[str, str]]:
    """Return the settings as text; without rankers, those of the labels."""
    values = data.settings.to_dict().items()
    used = [(name, value) for name, value in values if data.has_rankers or name in LABEL_SETTINGS]
    return [(name, "default" if value in (None, {}, []) else str(value)) for name, value in used]


def flag_counts(data: ReportData) -> list[dict[str, Any]]:
    """Return the number of assessors with each flag, their share of the judgments, and advice."""
    table, rows = data.assessors, []
    total = max(int(table["judgments"].sum()), 1)
    for flag in FLAGS:
        flagged = table[table["flag"] == flag]
        if len(flagged):
            share, advice = int(flagged["judgments"].sum()) / total, ADVICE[flag]
            kinds = set(flagged["kind"]) if "kind" in flagged else {""}
            meaning = advice.text(kinds, data.bias_reference(flagged))
            rows.append({"flag": flag, "advice": advice.word, "n": len(flagged), "share": share, "help": meaning})
    return rows


def interval_bar(interval: tuple[float, float, float], width: float = 200.0, edge: float = 10.0) -> dict[str, float]:
    """Return the x coordinates of an interval and of 0 in a drawing.

    >>> interval_bar((-1.0, 0.0, 1.0), width=120)
    {'lower': 10.0, 'middle': 60.0, 'upper': 110.0, 'zero': 60.0}
    """
    lower, middle, upper = interval
    low, high = min(lower, 0.0), max(upper, 0.0)
    step = (width - 2 * edge) / (high - low) if high > low else 0.0
    values = {"lower": lower, "middle": middle, "upper": upper, "zero": 0.0}
    return {name: round(edge + step * (value - low), 1) for name, value in values.items()}


def csp_hash(text: str) -> str:
    """Return the hash by which a Content Security Policy allows an inline script or style.

    >>> csp_hash("x")
    "'sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def script_json(value: Any) -> str:
    """Return JSON for a script element; no text in it can end the element.

    >>> "<" in script_json({"id": "</script><b>"}), json.loads(script_json({"id": "</script><b>"}))
    (False, {'id': '</script><b>'})
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # in ASCII
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


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
        figure = data.make_or_warn(f"The chart {title!r}", lambda make=make: draw(make()))  # type: ignore[misc]
        if isinstance(figure, Message):
            figure = Figure(title, "", is_wide=False, problem=str(figure))
        if figure is not None:
            figures.append(figure)
    return figures


def draw(chart: Any) -> Figure | None:
    """Return a chart as an SVG image, None for None; in an image element, nothing in it can run or be fetched."""
    if chart is None:
        return None
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
