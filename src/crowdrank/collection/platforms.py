"""Write requests as tasks that judging platforms import, with a template of their labeling interface."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._base import require_one_of
from crowdrank._files import check_output_file, write_file
from crowdrank.collection.requests import Requests
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.write import check_output, write_table

TASK_SUFFIXES = {"label-studio": ".json", "toloka": ".tsv", "mturk": ".csv", "quepid": ".csv"}
"""Suffix of the tasks of each platform."""
TEMPLATE_SUFFIXES = {"label-studio": ".xml", "toloka": ".html", "mturk": ".html"}
"""Suffix of the template of each platform that takes one."""
PLATFORMS = ("csv", *TASK_SUFFIXES)
"""Formats of requests; csv is a table with all columns, in the format of the file name."""
TASK_COLUMNS = ("labels", "assessors", "honeypot")
"""Columns of tasks besides ids and texts."""


def check_requests_output(path: str | Path, platform: str) -> None:
    """Raise an error if requests cannot be written to a path; call this before long computations."""
    require_one_of("to", platform, PLATFORMS)
    suffix = TASK_SUFFIXES.get(platform)
    if suffix is None:
        check_output(path)
    elif Path(path).suffix.lower() != suffix:
        problem = f"must be a file whose name ends in {suffix} for {platform}, not {path}"
        raise UsageError(problem, parameter="output", kind="wrong-suffix")
    else:
        check_output_file(path)


def write_requests(
    requests: Requests,
    path: str | Path,
    platform: str = "csv",
    *,
    grades: Sequence[str] | None = None,
    csv_safe: bool = False,
) -> Path | None:
    """Write requests for a platform: one task per pair with its texts, and a template of the labeling interface.

    Label Studio imports JSON with `data`, and an XML labeling configuration; Toloka a TSV with INPUT: columns (GOLDEN:
    for honeypots) and an HTML template; MTurk a CSV whose columns fill an HTML template; Quepid a CSV of query and
    docid.

    Args:
        requests: the requests; further columns of their pool (texts, URLs) become fields of the tasks.
        path: the file of tasks.
        platform: one of `PLATFORMS`.
        grades: names of the grades for the template; without them none is written.
        csv_safe: as in `write_table`, for csv only, because platforms return the ids.

    Returns:
        The path of the template if it was written. An existing template is not changed.

    >>> import pandas as pd
    >>> import tempfile
    >>> from crowdrank.collection import get_policy
    >>> requests = get_policy("single").next(pd.DataFrame({"query": ["q"], "document": ["a"]}), None, None, 5)
    >>> path = Path(tempfile.mkdtemp()) / "tasks.tsv"
    >>> write_requests(requests, path, "toloka", grades=["Bad", "Good"]).name
    'tasks.html'
    >>> path.read_text().split()
    ['"INPUT:query"', '"INPUT:document"', '"q"', '"a"']

    """
    check_requests_output(path, platform)
    if platform == "csv":
        write_table(requests.to_arrow(), path, csv_safe=csv_safe)
        return None
    tasks = _tasks(requests)
    fields = [name for name in tasks.column_names if name not in TASK_COLUMNS]
    match platform:
        case "label-studio":
            rows = tasks.drop_columns(["honeypot"]).to_pylist()
            data = [{name: value for name, value in row.items() if value is not None} for row in rows]
            write_json([{"data": one} for one in data], Path(path))
        case "toloka":
            columns = {f"INPUT:{name}": tasks[name] for name in fields}
            if tasks["honeypot"].null_count < len(tasks):
                columns["GOLDEN:grade"] = tasks["honeypot"]
            write_table(pa.table(columns), path)
        case "mturk":
            write_table(tasks.select(fields).append_column("assignments", tasks["labels"]), path)
        case _:
            write_table(pa.table({"query": tasks[fields[0]], "docid": tasks[fields[1]]}), path)
    template = Path(path).with_suffix(TEMPLATE_SUFFIXES.get(platform, ""))
    if grades is None or platform not in TEMPLATE_SUFFIXES or template.exists():
        return None
    _write_text(_TEMPLATES[platform](_shown_fields(tasks), grades), template)
    return template


def _tasks(requests: Requests) -> pa.Table:
    """Return one row per pair: ids, further columns of the pool, number of labels, assessors, and honeypot answer."""
    pool = requests.pool
    pairs, first, number, count = np.unique(requests.pair, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rows, names = pa.array(pairs[order]), [] if pool.extras is None else pool.extras.column_names
    query, document = (f"{role}_id" if role in names else role for role in ("query", "document"))
    columns = {query: pool.query.take(rows), document: pool.document.take(rows)}
    for name in names:
        field = re.sub(r"\W", "_", name)  # platforms insert fields by names without other characters
        if field in columns or field in TASK_COLUMNS:
            raise InputError(f"the pool's column {shown(name)} has the name of another field", fix="rename it")
        columns[field] = pool.extras[name].take(rows)  # type: ignore[index]
    assessors: list[list[str]] = [[] for _ in pairs]
    for task, assessor in zip(number.tolist(), requests.to_arrow()["assessor"].to_pylist(), strict=True):
        assessors[task] += [] if assessor is None else [str(assessor)]
    columns["labels"] = pa.array(count[order], pa.int64())
    columns["assessors"] = pa.array([", ".join(assessors[task]) or None for task in order.tolist()], pa.string())
    columns["honeypot"] = pa.nulls(len(rows), pa.string()) if pool.honeypot is None else pool.honeypot.take(rows)
    return pa.table(columns)


def _shown_fields(tasks: pa.Table) -> dict[str, bool]:
    """Return the fields that assessors see, and whether each is a URL: the query and all texts, or both ids."""
    query, document, *texts = [name for name in tasks.column_names if name not in TASK_COLUMNS]
    names = texts or [document]
    if not any("query" in name.casefold() for name in texts):
        names = [query, *names]
    return {name: _is_url(tasks[name]) for name in names}


def _is_url(column: pa.ChunkedArray) -> bool:
    cells = pc.drop_null(column.cast(pa.string()))
    return len(cells) > 0 and bool(pc.all(pc.match_substring_regex(cells, "^https?://")).as_py())


def _label_studio_template(fields: Mapping[str, bool], grades: Sequence[str]) -> str:
    def show(name: str, is_url: bool) -> str:
        if not is_url:
            return f'<Text name="{name}" value="${name}"/>'
        link = escape(f'<a href="${name}" target="_blank">${name}</a>')
        return f'<HyperText name="{name}" value="{link}" inline="true" clickableLinks="true"/>'

    choices = [f'    <Choice value="{escape(grade)}"/>' for grade in grades]
    last = list(fields)[-1]
    head = f'  <Choices name="grade" toName="{last}" choice="single-radio" required="true">'
    return "\n".join(
        ["<View>", *(f"  {show(*field)}" for field in fields.items()), head, *choices, "  </Choices>", "</View>\n"]
    )


def _html_fields(fields: Mapping[str, bool], variable: str) -> list[str]:
    values = {name: variable.replace("NAME", name) for name in fields}
    return [
        f'<p><a href="{values[name]}" target="_blank">{values[name]}</a></p>' if is_url else f"<p>{values[name]}</p>"
        for name, is_url in fields.items()
    ]


def _toloka_template(fields: Mapping[str, bool], grades: Sequence[str]) -> str:
    buttons = [
        f'{{{{field type="radio" name="grade" value="{escape(grade)}" label="{escape(grade)}"}}}}' for grade in grades
    ]
    return "\n".join([*_html_fields(fields, "{{NAME}}"), *buttons, ""])


def _mturk_template(fields: Mapping[str, bool], grades: Sequence[str]) -> str:
    buttons = [
        f'<p><label><input type="radio" name="grade" value="{escape(grade)}" required> {escape(grade)}</label></p>'
        for grade in grades
    ]
    script = '<script src="https://assets.crowd.aws/crowd-html-elements.js"></script>'
    return "\n".join([script, "<crowd-form>", *_html_fields(fields, "${NAME}"), *buttons, "</crowd-form>", ""])


_TEMPLATES = {"label-studio": _label_studio_template, "toloka": _toloka_template, "mturk": _mturk_template}


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON."""
    _write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", path)


def _write_text(text: str, path: Path) -> None:
    with write_file(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")
