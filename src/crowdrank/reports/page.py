"""The report of a run: one HTML file that opens offline, asks for nothing, and lets no id do anything."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from crowdrank._files import check_output_file, write_file
from crowdrank._folders import Manifest, update_folder
from crowdrank._text import counted
from crowdrank.assessors.flags import FLAGS
from crowdrank.errors import UsageError
from crowdrank.pipeline.result import TABLE_FILES, RunResult, reading_run
from crowdrank.reports.cards import ADVICE, MEANING, answers
from crowdrank.reports.embedded_charts import can_draw, figures
from crowdrank.reports.formatting import real_minus
from crowdrank.reports.report_data import ReportData
from crowdrank.reports.tables import assessor_sheet, document_sheet, pair_sheet, ranker_sheet

REPORT = "report.html"


def write_report(source: RunResult | str | Path, output: str | Path | None = None, *, folder: str | Path = "") -> Path:
    """Write the HTML report of a run and return its path.

    Args:
        source: result of a run, or the folder that a run wrote.
        output: file to write; by default report.html in the folder of the run.
        folder: folder of the run in the commands that the report shows; by default the folder that is read.

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
        return _write(render(ReportData(source, Path(folder))), Path(output))
    place = Path(source) / REPORT if output is None else Path(output)
    check_output_file(place)
    result, manifest = RunResult.load(source), Manifest.read(Path(source))
    with reading_run(source):  # files that do not fit each other in ways that loading does not check
        page = render(ReportData(result, Path(folder or source)))
    if output is not None:
        return _write(page, place)
    with update_folder(source, manifest, REPORT) as draft:
        draft.write_text(page, encoding="utf-8")
    return place


def _write(page: str, path: Path) -> Path:
    check_output_file(path)
    with write_file(path) as draft:
        draft.write_text(page, encoding="utf-8")
    return path


def render(found: ReportData) -> str:
    """The page as text."""
    import jinja2

    env = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    env.filters["minus"] = real_minus
    script, style = _asset("page.js"), _asset("page.css")
    drawings = figures(found)
    sheets = {
        "rankers": ranker_sheet(found) if found.has_rankers else None,
        "assessors": assessor_sheet(found),
        "pairs": pair_sheet(found),
        "uncertain": document_sheet(found, "uncertain"),
        "disputed": document_sheet(found, "disputed"),
    }
    told: dict[str, Any] = {
        "found": found,
        "title": _title(found),
        "answers": answers(found),
        "figures": {name: [one for one in drawings if one.section == name] for name in SECTIONS},
        "can_draw": can_draw(),
        "sheets": {name: sheet for name, sheet in sheets.items() if sheet is not None},
        "data": {name: in_script(sheet.to_dict()) for name, sheet in sheets.items() if sheet is not None},
        "flags": _flags(found),
        "script": script,
        "style": style,
        "policy": f"default-src 'none'; img-src data:; script-src {digest(script)}; style-src {digest(style)}",
        "interval_bar": interval_bar,
        "counted": counted,
        "again": again(found),
        "files": _files(found),
        "settings": [(name, _setting(value)) for name, value in found.settings.to_dict().items()],
    }
    try:
        return env.get_template("page.html").render(told)
    except jinja2.UndefinedError as problem:
        raise ValueError(f"a value of the report is missing ({problem.message})") from problem


TABLE_CONTENTS = {
    "comparison": "results of every candidate",
    "per_query": "results of every candidate on every test query",
    "assessors": "every assessor",
    "pairs": "agreement of pairs of assessors",
    "documents": "every document: relevance, interval, grade",
    "next": "documents to label next",
    "training": "labels that rankers are trained on",
    "remapping": "learned targets and weights by feature of the labels",
    "features": "every feature",
}
"""What the table of a run contains."""


def _files(found: ReportData) -> list[tuple[str, str]]:
    """Return the names and contents of the files of a run."""
    files = [(TABLE_FILES[name], what) for name, what in TABLE_CONTENTS.items() if name in found.result.tables]
    if found.has_rankers:
        files.insert(0, ("model", "the ranker"))
        files += [("remappers", "the learned remappers")] if found.rankers.remappers else []
    return [
        *files,
        ("consensus", "the consensus model with its judgments"),
        ("run.json", "settings, versions, figures"),
    ]


def _title(found: ReportData) -> str:
    return f"{'A ranker' if found.has_rankers else 'Labels'} from {counted(found.sizes['judgments'], 'judgment')}"


def again(found: ReportData) -> tuple[str, str]:
    """Return the command or Python call that repeats the run, with a sentence before it."""
    provenance = found.result.provenance
    if provenance.command:
        return "Run this command in the same folder:", provenance.command
    return "The run was started from Python:", provenance.python


def interval_bar(interval: tuple[float, float, float], width: float = 200.0, edge: float = 10.0) -> dict[str, float]:
    """Where the ends of an interval, its middle and 0 stand in a picture so wide.

    >>> interval_bar((-1.0, 0.0, 1.0), width=120)
    {'lower': 10.0, 'middle': 60.0, 'upper': 110.0, 'zero': 60.0}
    """
    lower, middle, upper = interval
    low, high = min(lower, 0.0), max(upper, 0.0)
    step = (width - 2 * edge) / (high - low) if high > low else 0.0
    told = {"lower": lower, "middle": middle, "upper": upper, "zero": 0.0}
    return {name: round(edge + step * (value - low), 1) for name, value in told.items()}


SECTIONS = ("rankers", "assessors", "documents", "training")


def _asset(name: str) -> str:
    return files("crowdrank.reports").joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The name by which a browser knows the one script (or style) that the page allows.

    >>> digest("x")
    "'sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def in_script(value: Any) -> str:
    """JSON that may stand in a script element: no id can end the element or begin another.

    >>> "<" in in_script({"id": "</script><b>"}), json.loads(in_script({"id": "</script><b>"}))
    (False, {'id': '</script><b>'})
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # and plain ASCII
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _setting(value: Any) -> str:
    if value in (None, {}, []):
        return "default"
    return value if isinstance(value, str) else json.dumps(value)


def _flags(found: ReportData) -> list[dict[str, Any]]:
    """Return for each flag the number of its assessors, their share of the judgments, and advice."""
    table, rows = found.assessors, []
    total = max(int(table["judgments"].sum()), 1)
    for flag in FLAGS:
        of = table[table["flag"] == flag]
        if len(of):
            advice = ADVICE[flag]
            share = int(of["judgments"].sum()) / total
            rows.append(
                {"flag": flag or "no flag", "advice": advice, "n": len(of), "share": share, "means": MEANING[advice]}
            )
    return rows
