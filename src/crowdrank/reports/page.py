"""The report of a run: one HTML file that opens offline, asks for nothing, and lets no id do anything."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

from crowdrank._files import check_output_file, write_file
from crowdrank._folders import update_folder
from crowdrank._text import counted
from crowdrank.assessors.flags import FLAGS
from crowdrank.reports.cards import ADVICE, MEANING, answers
from crowdrank.reports.embedded_charts import can_draw, figures
from crowdrank.reports.formatting import real_minus
from crowdrank.reports.run_folder import Findings, reading
from crowdrank.reports.tables import assessor_sheet, document_sheet, pair_sheet, ranker_sheet

REPORT = "report.html"


def write_report(folder: str | Path, output: str | Path | None = None, *, shown_as: str | Path | None = None) -> Path:
    """Write the HTML report of a run and return its path.

    Args:
        folder: folder that `run` wrote.
        output: file to write; by default report.html in the folder.
        shown_as: path of the folder in the commands that the report shows, where the folder is going to be renamed.

    >>> import crowdrank, tempfile
    >>> world = crowdrank.simulate(queries=12, documents=6, random_state=1)
    >>> folder = Path(tempfile.mkdtemp()) / "out"
    >>> done = crowdrank.run(world.judgments, world.features, candidates=["gls"], output=folder)
    >>> write_report(folder).name
    'report.html'
    """
    place = Path(folder) / REPORT if output is None else Path(output)
    check_output_file(place)
    found = Findings.read(folder, shown_as)
    with reading(folder):  # files that do not fit each other in a way that reading them does not show
        page = render(found)
    with update_folder(folder, found.manifest, REPORT) if output is None else write_file(place) as draft:
        draft.write_text(page, encoding="utf-8")
    return place


def render(found: Findings) -> str:
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
        "rankers": ranker_sheet(found),
        "assessors": assessor_sheet(found),
        "pairs": pair_sheet(found),
        "uncertain": document_sheet(found, "uncertain"),
        "disputed": document_sheet(found, "disputed"),
    }
    told: dict[str, Any] = {
        "found": found,
        "title": f"A ranker from {counted(found.sizes['judgments'], 'judgment')}",
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
        "files": [(name, what) for name, what in FILES if found.has(name)],
        "settings": [(name, _setting(value)) for name, value in found.settings.items()],
    }
    try:
        return env.get_template("page.html").render(told)
    except jinja2.UndefinedError as problem:
        raise ValueError(f"a value of the report is missing ({problem.message})") from problem


FILES = (
    ("model", "the ranker"),
    ("comparison.csv", "every candidate with its figures"),
    ("per_query.csv", "every candidate on every test query"),
    ("assessors.csv", "every assessor"),
    ("pairs.csv", "agreement of pairs of assessors"),
    ("consensus.parquet", "every document: relevance, interval, grade"),
    ("consensus", "the consensus model, with the judgments"),
    ("next.csv", "what to label next"),
    ("training.parquet", "what rankers learned from, row by row"),
    ("remapping.csv", "what labels turned out to be worth"),
    ("run.json", "settings, versions, which queries served what"),
)


def again(found: Findings) -> tuple[str, str]:
    """How to have the same made again: a sentence, and what to type or to call."""
    told = found.about.get("origin", {})
    if told.get("command"):
        return "The command, with names of files as seen from where it was given:", str(told["command"])
    if told.get("python"):
        return "This run was asked for in Python, with what its comments say:", str(told["python"])
    return "An earlier version made this run and did not keep the names of its files; the command with them:", command(
        found
    )


def command(found: Findings) -> str:
    """The command by the settings alone, for runs that do not say theirs."""
    expert = " --expert EXPERT" if found.sizes["expert_grades"] else ""
    usual = {"method": "gda", "measure": "nDCG@10", "gains": "exponential", "baseline": "majority", "test": 0.35}
    usual |= {"folds": 5, "random_state": 0, "unjudgeable_as": "lowest"}
    told = "".join(
        f" --{name.replace('_', '-')} {found.settings[name]}"
        for name, value in usual.items()
        if found.settings[name] != value
    )
    if found.settings["candidates"]:
        told += f" --candidates {','.join(found.settings['candidates'])}"
    return f"crowdrank run --judgments JUDGMENTS --features FEATURES{expert}{told} -o {quote(str(found.folder))}"


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
        return "as usual"
    return value if isinstance(value, str) else json.dumps(value)


def _flags(found: Findings) -> list[dict[str, Any]]:
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
