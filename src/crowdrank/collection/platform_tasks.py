"""Write requests as tasks that judging platforms import, with a template of their labeling interface."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._estimator import require_one_of
from crowdrank._files import check_output_file, write_file
from crowdrank.collection.requests import Requests
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.readers.write import check_output, write_table

TASK_SUFFIXES = {"label-studio": ".json", "toloka": ".tsv", "mturk": ".csv", "quepid": ".csv"}
"""Suffix of the tasks of each platform."""
PLATFORMS = ("csv", *TASK_SUFFIXES)
"""Formats of requests; `csv` is a table with all columns, and the suffix of the file says of which kind."""


@dataclass(frozen=True)
class Template:
    """Labeling interface; NAME stands for a field of tasks, GRADE for a grade, FIELDS and CHOICES for their lines."""

    text: str  # line of a field with text
    link: str  # line of a field with URLs
    choice: str  # line of a grade
    page: str = "FIELDS\nCHOICES"


TEMPLATES = {
    "label-studio": Template(
        text='  <Text name="NAME" value="$NAME"/>',
        link='  <HyperText name="NAME" inline="true" clickableLinks="true" '
        'value="&lt;a href=&quot;$NAME&quot; target=&quot;_blank&quot;&gt;$NAME&lt;/a&gt;"/>',
        choice='    <Choice value="GRADE"/>',
        page='<View>\nFIELDS\n  <Choices name="grade" toName="NAME" choice="single-radio" required="true">\nCHOICES\n'
        "  </Choices>\n</View>",
    ),
    "toloka": Template(
        text="<p>{{NAME}}</p>",
        link='<p><a href="{{NAME}}" target="_blank">{{NAME}}</a></p>',
        choice='{{field type="radio" name="grade" value="GRADE" label="GRADE"}}',
    ),
    "mturk": Template(
        text="<p>${NAME}</p>",
        link='<p><a href="${NAME}" target="_blank">${NAME}</a></p>',
        choice='<p><label><input type="radio" name="grade" value="GRADE" required> GRADE</label></p>',
        page='<script src="https://assets.crowd.aws/crowd-html-elements.js"></script>\n<crowd-form>\nFIELDS\nCHOICES\n'
        "</crowd-form>",
    ),
}
"""Labeling interface of each platform that takes one."""
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
    template_path = Path(path).with_suffix(".xml" if platform == "label-studio" else ".html")
    if grades is None or platform not in TEMPLATES or template_path.exists():
        return None
    _write_text(_fill_template(TEMPLATES[platform], _shown_fields(tasks), grades), template_path)
    return template_path


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


def _fill_template(template: Template, fields: Mapping[str, bool], grades: Sequence[str]) -> str:
    """Return the labeling interface: the template with the fields of tasks, as link or text, and the grades."""
    lines = [(template.link if is_url else template.text).replace("NAME", name) for name, is_url in fields.items()]
    choices = [template.choice.replace("GRADE", escape(grade)) for grade in grades]
    page = template.page.replace("NAME", list(fields)[-1])
    return page.replace("FIELDS", "\n".join(lines)).replace("CHOICES", "\n".join(choices)) + "\n"


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON."""
    _write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", path)


def _write_text(text: str, path: Path) -> None:
    with write_file(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")
