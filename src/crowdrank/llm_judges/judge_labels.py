"""Tables of labels or preferences, and of failed calls, from the replies of LLM judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from crowdrank._assessor_kinds import LLM
from crowdrank._files import write_together
from crowdrank.errors import UsageError
from crowdrank.judgments.columns import probability_column
from crowdrank.judgments.scale import Scale, add_scale_column
from crowdrank.llm_judges.replies import (
    OK,
    PREFERENCE_NAMES,
    PREFERENCE_SCALES,
    STATUSES,
    Reply,
    combine_samples,
    excerpt,
)
from crowdrank.readers.write import write_table

LABEL_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor", "label", "family", "kind"), pa.string()),
        "cost": pa.float64(),
        "seconds": pa.float64(),
        "time": pa.string(),
        "samples": pa.int64(),
        **dict.fromkeys(("model", "prompt"), pa.string()),
    }
)
"""Columns of a table of labels. Columns p0, p1, ... with probabilities of the grades follow if there are any; they are
null for a label from a single answer without token probabilities."""
PREFERENCE_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "left", "right", "assessor"), pa.string()),
        "preference": pa.int64(),
        **{field.name: field.type for field in list(LABEL_SCHEMA)[4:]},
    }
)
"""Columns of a table of preferences. Columns p_left, p_tie and p_right with probabilities follow if there are any."""
FAILURE_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor"), pa.string()),
        "sample": pa.int64(),
        **dict.fromkeys(("status", "problem", "reply", "model", "prompt"), pa.string()),
        "cost": pa.float64(),
    }
)
"""Columns of a table of calls that gave no grade; for preferences, `left` and `right` stand in place of `document`."""


@dataclass(frozen=True)
class JudgedCall:
    """A call that ended, with the reply of the judge.

    Attributes:
        query, document, judge: ids of the pair, and name of the judge; the document is the left one of a comparison.
        sample: number of the call about the pair, from 0.
        family, model, prompt: family of the judge, name of its model, and digest of its prompt.
        scale: grades of the judge.
        answer: grade and probabilities in the reply, or why there are none.
        cost: cost of the call, None if it is not known.
        seconds: duration of the call, None if it is not known.
        time: when the reply arrived, in ISO format, or "".
        right: id of the right document of a comparison, or "".

    """

    query: str
    document: str
    judge: str
    sample: int
    family: str
    model: str
    prompt: str
    scale: Scale
    answer: Reply
    cost: float | None = None
    seconds: float | None = None
    time: str = ""
    right: str = ""


@dataclass(frozen=True, eq=False)
class JudgeLabels:
    """Labels or preferences of LLM judges, one per judge, prompt and pair, and the calls that gave none.

    Attributes:
        labels: table with the columns of `LABEL_SCHEMA`, or of `PREFERENCE_SCHEMA`.
        failures: table with the columns of `FAILURE_SCHEMA`.
        counts: number of calls by status, for each judge.
        costs: sum of the known costs of all calls, for each judge.

    """

    labels: pa.Table
    failures: pa.Table
    counts: Mapping[str, Mapping[str, int]]
    costs: Mapping[str, float]

    @classmethod
    def from_calls(cls, judged_calls: Iterable[JudgedCall]) -> JudgeLabels:
        """Combine the calls of each judge, prompt and pair to one label, the most probable grade or preference.

        The two orders of a comparison are two pairs.

        Raises:
            UsageError: some calls are about grades, and others about preferences.

        """
        by_pair: dict[tuple[Any, ...], list[JudgedCall]] = {}
        counts: dict[str, Counter[str]] = {}
        costs: dict[str, float] = {}
        failures, kinds = [], set[bool]()
        for call in judged_calls:
            kinds.add(bool(call.right))
            counts.setdefault(call.judge, Counter())[call.answer.status] += 1
            costs[call.judge] = costs.get(call.judge, 0.0) + (call.cost or 0.0)
            if call.answer.status == OK:
                key = (call.query, call.document, call.right, call.judge, call.prompt, call.scale)
                by_pair.setdefault(key, []).append(call)
            else:
                failures.append(_failure_row(call))
        if len(kinds) > 1:
            fix = "read the results of each kind by themselves"
            raise UsageError("The calls are about both grades and preferences", kind="mixed-answers", fix=fix)
        compares = kinds == {True}
        calls = [sorted(calls_of_pair, key=lambda one: one.sample) for calls_of_pair in by_pair.values()]
        rows = [_label_row(calls_of_pair) for calls_of_pair in calls]
        schema = pa.schema(
            [
                *(PREFERENCE_SCHEMA if compares else LABEL_SCHEMA),
                *(pa.field(name, pa.float64()) for name in _probability_columns(calls, compares=compares)),
            ]
        )
        columns = {name: [row.get(name) for row in rows] for name in schema.names}
        scales = {calls_of_pair[0].scale for calls_of_pair in calls}
        labels = pa.table(columns, schema)
        labels = add_scale_column(labels, *scales) if len(scales) == 1 and not compares else labels
        return cls(labels, _failure_table(failures, compares=compares), counts, costs)

    def summary(self) -> pa.Table:
        """Return the number of calls by status and their cost, one row per judge."""
        used = {status for counts in self.counts.values() for status in counts}
        names = [*STATUSES, *sorted(used.difference(STATUSES))]
        rows = [
            {"assessor": judge, **{name: counts.get(name, 0) for name in names}, "cost": self.costs[judge]}
            for judge, counts in self.counts.items()
        ]
        return pa.table({name: [row[name] for row in rows] for name in ("assessor", *names, "cost")})

    def count(self, status: str) -> int:
        """Return the number of calls with a status, over all judges."""
        return sum(counts.get(status, 0) for counts in self.counts.values())

    def write(self, labels_path: Path, failures_path: Path, *, csv_safe: bool = False) -> None:
        """Write the tables of labels and of failures, both or none.

        Args:
            labels_path, failures_path: the files; their extensions choose the formats.
            csv_safe: passed to :func:`write_table`.

        """
        with write_together(labels_path):
            write_table(self.labels, labels_path, csv_safe=csv_safe)
            write_table(self.failures, failures_path, csv_safe=csv_safe)


def failures_path(labels_path: Path) -> Path:
    """Return the path of the file of failures beside a file of labels.

    >>> failures_path(Path("labels.csv")).name
    'labels.failures.csv'
    """
    return labels_path.with_name(f"{labels_path.name.removesuffix('.gz').rpartition('.')[0]}.failures.csv")


def _probability_columns(calls: Iterable[list[JudgedCall]], *, compares: bool) -> list[str]:
    """Return the columns for the probabilities of all answers that calls give probabilities of, in order."""
    scales = {calls_of_pair[0].scale for calls_of_pair in calls if _has_probabilities(calls_of_pair)}
    if compares:
        used = {name for scale in scales for name in scale.names}
        return [preference_column(name) for name in PREFERENCE_NAMES if name in used]
    return [probability_column(value) for value in sorted({value for scale in scales for value in scale.values})]


def preference_column(answer: str) -> str:
    """Return the name of the column with the probability of an answer.

    >>> preference_column("left")
    'p_left'
    """
    return f"p_{answer}"


def _label_row(calls_of_pair: list[JudgedCall]) -> dict[str, Any]:
    """Return a row of the table of labels or preferences from all calls of a judge about a pair."""
    first = calls_of_pair[0]
    grade, probabilities = combine_samples([one.answer for one in calls_of_pair], first.scale)
    names = [preference_column(name) for name in first.scale.names] if first.right else first.scale.share_names
    shares = dict(zip(names, probabilities, strict=True))
    if first.right:
        answers = dict(zip(first.scale.names, PREFERENCE_SCALES[first.scale.names], strict=True))
        about = {"left": first.document, "right": first.right, "preference": answers[grade]}
    else:
        about = {"document": first.document, "label": grade}
    return {
        "query": first.query,
        **about,
        "assessor": first.judge,
        "family": first.family,
        "kind": LLM,
        "cost": _sum_known(one.cost for one in calls_of_pair),
        "seconds": _sum_known(one.seconds for one in calls_of_pair),
        "time": max(one.time for one in calls_of_pair) or None,
        "samples": len(calls_of_pair),
        "model": first.model,
        "prompt": first.prompt,
        **(shares if _has_probabilities(calls_of_pair) else {}),
    }


def _has_probabilities(calls_of_pair: list[JudgedCall]) -> bool:
    """Return whether the calls give probabilities of grades: several calls, or one with token probabilities."""
    return len(calls_of_pair) > 1 or calls_of_pair[0].answer.probabilities is not None


def _sum_known(numbers: Iterable[float | None]) -> float | None:
    """Return the sum of the numbers that are not None, or None if there are none."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _failure_table(rows: list[dict[str, Any]], *, compares: bool) -> pa.Table:
    """Return the table of calls without an answer."""
    table = pa.table({name: [row[name] for row in rows] for name in FAILURE_SCHEMA.names}, FAILURE_SCHEMA)
    if not compares:
        return table
    right = pa.array([row["right"] for row in rows], pa.string())
    return table.rename_columns(["query", "left", *table.column_names[2:]]).add_column(2, "right", right)


def _failure_row(call: JudgedCall) -> dict[str, Any]:
    return {
        "query": call.query,
        "document": call.document,
        "right": call.right,
        "assessor": call.judge,
        "sample": call.sample,
        "status": call.answer.status,
        "problem": call.answer.problem,
        "reply": excerpt(call.answer.text),
        "model": call.model,
        "prompt": call.prompt,
        "cost": call.cost,
    }
