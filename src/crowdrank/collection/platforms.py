"""Requests and labels as platforms import them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._base import require_one_of
from crowdrank._files import check_output_file, write_file
from crowdrank._text import counted
from crowdrank.collection.requests import Requests
from crowdrank.consensus.result import Consensus
from crowdrank.errors import OutputError, UsageError, shown
from crowdrank.judgments.write import check_output, write_table

PLATFORMS = ("csv", "label-studio", "toloka", "mturk", "quepid")
"""What requests can be written for; csv is our own table, in the format that the file's name tells."""


def check_requests(path: str | Path, platform: str) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    require_one_of("to", platform, PLATFORMS)
    suffix = {"label-studio": ".json", "toloka": ".tsv", "mturk": ".csv", "quepid": ".csv"}.get(platform)
    if suffix is None:
        check_output(path)
    elif Path(path).suffix.lower() != suffix:
        raise UsageError(f"Cannot write {path} for {platform}: its name has to end in {suffix}.")
    else:
        check_output_file(path)


def write_requests(requests: Requests, path: str | Path, platform: str = "csv", *, csv_safe: bool = False) -> None:
    """Write requests for a platform: one task for each pair, with the number of labels wanted where it can be told.

    Label Studio imports a list of tasks with `data`; Toloka a TSV of INPUT: columns, with the right answer of a
    control task in a GOLDEN: column; MTurk a CSV whose columns fill the template's placeholders; Quepid a CSV of query
    and docid. `csv_safe` is for our own table only (see `write_table`): platforms return the ids.

    >>> import pandas as pd
    >>> import tempfile
    >>> from crowdrank.collection import get_policy
    >>> asked = get_policy("single").next(pd.DataFrame({"query": ["q"], "document": ["a"]}), None, None, 5)
    >>> path = Path(tempfile.mkdtemp()) / "tasks.tsv"
    >>> write_requests(asked, path, "toloka")
    >>> path.read_text().split()
    ['"INPUT:query"', '"INPUT:document"', '"q"', '"a"']
    """
    check_requests(path, platform)
    if platform == "csv":
        write_table(requests.to_arrow(), path, csv_safe=csv_safe)
        return
    writers: dict[str, Callable[[Requests, Path], None]] = {
        "label-studio": _label_studio,
        "toloka": _toloka,
        "mturk": _mturk,
        "quepid": _quepid,
    }
    writers[platform](requests, Path(path))


def _tasks(requests: Requests) -> list[dict[str, Any]]:
    """One row for each pair, in order: ids, how many labels, who is asked, and the right answer of a honeypot."""
    table = requests.to_arrow()
    answers = table["honeypot"].to_pylist() if "honeypot" in table.column_names else [None] * len(table)
    who = table["assessor"].to_pylist()
    tasks: dict[int, dict[str, Any]] = {}
    for row, pair in enumerate(requests.pair.tolist()):
        query, document = table["query"][row].as_py(), table["document"][row].as_py()
        task = tasks.setdefault(
            pair, {"query": query, "document": document, "labels": 0, "assessors": [], "honeypot": answers[row]}
        )
        task["labels"] += 1
        task["assessors"] += [] if who[row] is None else [str(who[row])]
    return list(tasks.values())


def _label_studio(requests: Requests, path: Path) -> None:
    tasks = []
    for task in _tasks(requests):
        data = {name: task[name] for name in ("query", "document", "labels")}
        tasks.append({"data": {**data, **({"assessors": ", ".join(task["assessors"])} if task["assessors"] else {})}})
    _write_json(tasks, path)


def _toloka(requests: Requests, path: Path) -> None:
    tasks = _tasks(requests)
    columns = {"INPUT:query": _texts(tasks, "query"), "INPUT:document": _texts(tasks, "document")}
    if any(task["honeypot"] is not None for task in tasks):
        columns["GOLDEN:grade"] = _texts(tasks, "honeypot")
    write_table(pa.table(columns), path)


def _mturk(requests: Requests, path: Path) -> None:
    tasks = _tasks(requests)
    labels = pa.array([task["labels"] for task in tasks], pa.int64())
    write_table(
        pa.table({"query": _texts(tasks, "query"), "document": _texts(tasks, "document"), "assignments": labels}), path
    )


def _quepid(requests: Requests, path: Path) -> None:
    tasks = _tasks(requests)
    write_table(pa.table({"query": _texts(tasks, "query"), "docid": _texts(tasks, "document")}), path)


def _texts(tasks: list[dict[str, Any]], name: str) -> pa.Array:
    return pa.array([None if task[name] is None else str(task[name]) for task in tasks], pa.string())


def _write_json(value: Any, path: Path) -> None:
    with write_file(path) as draft:
        draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_labels(path: str | Path) -> None:
    """Refuse a file of labels that cannot be written, before any work is done."""
    if Path(path).suffix.lower() in (".json", ".qrels"):
        check_output_file(path)
    else:
        check_output(path)


def write_labels(consensus: Consensus, path: str | Path) -> None:
    """Write the grades of a consensus: .qrels, .json (a judgment list that OpenSearch imports), or the whole table.

    >>> import pandas as pd
    >>> import tempfile
    >>> from crowdrank import MajorityVote
    >>> votes = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "assessor": ["x", "x"], "grade": [1, 0]})
    >>> path = Path(tempfile.mkdtemp()) / "labels.qrels"
    >>> write_labels(MajorityVote().fit(votes).consensus_, path)
    >>> print(path.read_text(), end="")
    q 0 a 1
    q 0 b 0
    """
    check_labels(path)
    suffix = Path(path).suffix.lower()
    if suffix not in (".json", ".qrels"):
        write_table(consensus.document_table, path)
        return
    table = consensus.document_table
    query, document = ([str(cell) for cell in table[name].to_pylist()] for name in ("query", "document"))
    worth = {label: int(value) for label, value in zip(consensus.labels, consensus.scale.values, strict=False)}
    grade = [worth[label] for label in table["grade"].to_pylist()]
    if suffix == ".qrels":
        _write_qrels(query, document, grade, Path(path))
        return
    alone = int((table["judgments"].to_numpy() == 1).sum())
    ratings: dict[str, list[dict[str, str]]] = {}
    for q, d, g in zip(query, document, grade, strict=True):
        ratings.setdefault(q, []).append({"docId": d, "rating": f"{g:.3f}"})
    about = {
        "name": f"crowdrank, {consensus.method}",
        "description": f"Consensus of judgments; {alone:,} of {counted(len(grade), 'document')} by a single answer",
        "type": "IMPORT_JUDGMENT",
    }
    lists = [{"query": q, "ratings": rated} for q, rated in ratings.items()]
    _write_json({**about, "judgmentRatings": lists}, Path(path))


def _write_qrels(query: list[str], document: list[str], grade: list[int], path: Path) -> None:
    for role, names in (("query", query), ("document", document)):
        bad = np.array([len(name.split()) != 1 for name in names])
        if bad.any():
            raise OutputError(
                f"qrels cannot hold the {role} {shown(names[int(np.argmax(bad))])}; use ids without spaces."
            )
    lines = [f"{q} 0 {d} {g}\n" for q, d, g in zip(query, document, grade, strict=True)]
    with write_file(path) as draft:
        draft.write_text("".join(lines), encoding="utf-8", newline="\n")
