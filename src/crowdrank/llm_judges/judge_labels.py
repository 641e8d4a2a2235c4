"""Tables of labels and of failures from the answers of judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from crowdrank._files import write_together
from crowdrank.judgments.columns import probability_column
from crowdrank.judgments.scale import Scale, add_scale_column
from crowdrank.llm_judges.replies import OK, STATUSES, Reply, combine_samples, excerpt
from crowdrank.readers.write import write_table

LABEL_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor", "label", "family"), pa.string()),
        "cost": pa.float64(),
        "seconds": pa.float64(),
        "time": pa.string(),
        "samples": pa.int64(),
        **dict.fromkeys(("model", "prompt"), pa.string()),
    }
)
"""Columns of a table of labels. Columns p0, p1, ... with probabilities of the grades follow if there are any; they are
null for a label from a single answer without token probabilities."""
FAILURE_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("query", "document", "assessor"), pa.string()),
        "sample": pa.int64(),
        **dict.fromkeys(("status", "problem", "reply", "model", "prompt"), pa.string()),
        "cost": pa.float64(),
    }
)
"""Columns of a table of calls that gave no grade."""


@dataclass(frozen=True)
class JudgedCall:
    """A call that ended, with its answer.

    Attributes:
        query, document, judge: who judged what.
        sample: number of the call about the pair, from 0.
        family, model, prompt: family of the judge, name of its model, and digest of its prompt.
        scale: grades of the judge.
        answer: what the reply says.
        cost: cost of the call, None if it is not known.
        seconds: duration of the call, None if it is not known.
        time: when the reply arrived, in ISO format, or "".

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


@dataclass(frozen=True, eq=False)
class JudgeLabels:
    """Labels of judges, one per judge, prompt and pair, and the calls that gave no grade.

    Attributes:
        labels: table with the columns of `LABEL_SCHEMA`.
        failures: table with the columns of `FAILURE_SCHEMA`.
        counts: number of calls by status, for each judge.
        costs: sum of the known costs of all calls, for each judge.

    """

    labels: pa.Table
    failures: pa.Table
    counts: Mapping[str, Mapping[str, int]]
    costs: Mapping[str, float]

    @classmethod
    def of(cls, judged: Iterable[JudgedCall]) -> JudgeLabels:
        """Combine the samples of each judge, prompt and pair to one label, the most probable grade."""
        by_pair: dict[tuple[Any, ...], list[JudgedCall]] = {}
        counts: dict[str, Counter[str]] = {}
        costs: dict[str, float] = {}
        failures = []
        for call in judged:
            counts.setdefault(call.judge, Counter())[call.answer.status] += 1
            costs[call.judge] = costs.get(call.judge, 0.0) + (call.cost or 0.0)
            if call.answer.status == OK:
                key = (call.query, call.document, call.judge, call.prompt, call.scale)
                by_pair.setdefault(key, []).append(call)
            else:
                failures.append(_failure_row(call))
        calls = [sorted(group, key=lambda one: one.sample) for group in by_pair.values()]
        rows = [_label_row(group) for group in calls]
        values = sorted({value for group in calls if _has_probabilities(group) for value in group[0].scale.values})
        schema = pa.schema([*LABEL_SCHEMA, *(pa.field(probability_column(value), pa.float64()) for value in values)])
        columns = {name: [row.get(name) for row in rows] for name in schema.names}
        listed = {name: [row[name] for row in failures] for name in FAILURE_SCHEMA.names}
        scales = {group[0].scale for group in calls}
        labels = pa.table(columns, schema)
        labels = add_scale_column(labels, *scales) if len(scales) == 1 else labels
        return cls(labels, pa.table(listed, FAILURE_SCHEMA), counts, costs)

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
        """Return the number of calls with a status."""
        return sum(counts.get(status, 0) for counts in self.counts.values())

    def write(self, labels_path: Path, failures_path: Path, *, csv_safe: bool = False) -> None:
        """Write the tables of labels and of failures, both or none; `csv_safe` as in :func:`write_table`."""
        with write_together(labels_path):
            write_table(self.labels, labels_path, csv_safe=csv_safe)
            write_table(self.failures, failures_path, csv_safe=csv_safe)


def failures_path(labels_path: Path) -> Path:
    """Return the path of the file of failures beside a file of labels.

    >>> failures_path(Path("labels.csv")).name
    'labels.failures.csv'
    """
    return labels_path.with_name(f"{labels_path.name.removesuffix('.gz').rpartition('.')[0]}.failures.csv")


def _label_row(group: list[JudgedCall]) -> dict[str, Any]:
    """Return the label of a judge for a pair from its samples; probabilities are keyed by column name."""
    first = group[0]
    grade, probabilities = combine_samples([one.answer for one in group], first.scale)
    shares = dict(zip(first.scale.share_names, probabilities, strict=True))
    return {
        "query": first.query,
        "document": first.document,
        "assessor": first.judge,
        "label": grade,
        "family": first.family,
        "cost": _total(one.cost for one in group),
        "seconds": _total(one.seconds for one in group),
        "time": max(one.time for one in group) or None,
        "samples": len(group),
        "model": first.model,
        "prompt": first.prompt,
        **(shares if _has_probabilities(group) else {}),
    }


def _has_probabilities(group: list[JudgedCall]) -> bool:
    """Return whether several samples, or token probabilities, show how sure the judge is."""
    return len(group) > 1 or group[0].answer.probabilities is not None


def _total(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _failure_row(call: JudgedCall) -> dict[str, Any]:
    return {
        "query": call.query,
        "document": call.document,
        "assessor": call.judge,
        "sample": call.sample,
        "status": call.answer.status,
        "problem": call.answer.problem,
        "reply": excerpt(call.answer.text),
        "model": call.model,
        "prompt": call.prompt,
        "cost": call.cost,
    }
