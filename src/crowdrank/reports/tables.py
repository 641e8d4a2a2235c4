"""The tables of the report: columns with what they mean, rows ready for JSON, and how many of all are shown."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crowdrank.reports.answers import ADVICE
from crowdrank.reports.findings import Findings
from crowdrank.reports.words import plain_id

MOST_ASSESSORS = 5000
MOST_DOCUMENTS = 500
LONGEST_ID = 200
DIGITS = 4


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `kind` says how a cell is shown: text, number, share (percent), bar, interval ([lower, middle, upper]), votes (a
    count per grade), flag, or words (a sentence).
    """

    title: str
    kind: str
    help: str = ""
    digits: int = 2


@dataclass(frozen=True)
class Sheet:
    """A table of the report.

    Attributes:
        columns, rows: what is shown; cells are numbers, text, lists of numbers or None.
        total: how many rows there are in all.
        file: where all of them are.
        sorted_by: the column that the rows are sorted by, and whether the largest come first.
        grades: the names of grades, for votes.

    """

    columns: list[Column]
    rows: list[list[Any]]
    total: int
    file: str
    noun: str
    sorted_by: tuple[int, bool]
    grades: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def number(value: Any, digits: int = DIGITS) -> float | int | None:
    """A number for JSON: rounded, and None where there is none.

    >>> number(0.123456), number(float("nan")), number(np.int64(3))
    (0.1235, None, 3)
    """
    if value is None or (isinstance(value, float | np.floating) and not math.isfinite(value)):
        return None
    return int(value) if isinstance(value, int | np.integer | np.bool_) else round(float(value), digits)


def assessor_sheet(found: Findings) -> Sheet:
    """Every assessor: what to do about whom, and why; of very many those with flags and the most active."""
    table = found.assessors
    rank = {"random": 0, "reversed": 1, "careless": 2, "careful": 3, "": 4, "few": 5}
    order = table.assign(rank=table["flag"].map(rank)).sort_values(
        ["rank", "judgments"], ascending=[True, False], kind="stable"
    )
    told: list[tuple[Column, Any]] = [
        (Column("assessor", "text"), lambda row: plain_id(row["assessor"], LONGEST_ID)),
        (Column("do", "advice", "what to do, by the flag"), lambda row: ADVICE[row["flag"]]),
        (Column("flag", "flag", "what the answers look like"), lambda row: row["flag"]),
        (Column("judgments", "number", "how many", 0), lambda row: number(row["judgments"])),
        (
            Column("informativeness", "bar", "what an answer tells of the truth, in nats; 0 is nothing", 3),
            lambda row: number(row["informativeness"]),
        ),
        (
            Column("rise", "interval", "how the answers rise with the others': 1 alike, 0 random, below 0 reversed"),
            lambda row: [number(row[name], 3) for name in ("rise_lower", "rise", "rise_upper")],
        ),
        (Column("bias", "number", "mean answer less the others', in grades"), lambda row: number(row["bias"])),
        (
            Column("agrees", "share", "answers equal to the consensus grade"),
            lambda row: number(row["agreement"]),
        ),
    ]
    if "gold_judgments" in table and table["gold_judgments"].sum():
        told.append(
            (
                Column("as experts", "share", "answers equal to the experts' grade"),
                lambda row: number(row["gold_accuracy"]),
            )
        )
    if table["honeypots"].sum():
        told.append(
            (
                Column("honeypots", "share", "planted documents answered right"),
                lambda row: number(row["honeypot_share"]),
            )
        )
    if "duration" in table and table["duration"].notna().any():
        told.append((Column("time", "number", "median duration", 1), lambda row: number(row["duration"])))
    if found.paid:
        paid = found.paid
        told.append((Column("paid", "number", "for labels, in all"), lambda row: number(paid.get(row["assessor"]))))
    told.append((Column("evidence", "words"), lambda row: row["evidence"]))
    rows = [[read(row) for _, read in told] for row in order.head(MOST_ASSESSORS).to_dict("records")]
    return Sheet([column for column, _ in told], rows, len(table), "assessors.csv", "assessor", (1, False))


def _document_columns(found: Findings) -> list[tuple[Column, Any]]:
    unit = "0 is the mean document" if found.on_a_line else "in grades"
    told: list[tuple[Column, Any]] = [
        (Column("document", "text"), lambda row: plain_id(row["document"], LONGEST_ID)),
        (Column("query", "text"), lambda row: plain_id(row["query"], LONGEST_ID)),
        (
            Column("relevance", "interval", f"with its interval; {unit}"),
            lambda row: [number(row[name], 3) for name in ("lower", "relevance", "upper")],
        ),
        (Column("width", "number", "of the interval"), lambda row: number(row["upper"] - row["lower"], 3)),
        (Column("grade", "text", "by the consensus"), lambda row: str(row["grade"])),
        (Column("judgments", "number", "", 0), lambda row: number(row["judgments"])),
    ]
    if found.votes is not None:
        votes, dispute = found.votes, found.dispute
        told += [
            (Column("answers", "votes", "how often each grade was given"), lambda row: votes[row["place"]].tolist()),
            (
                Column("apart", "number", "how far apart the answers are: their standard deviation, in grades"),
                lambda row: number(dispute[row["place"]]),
            ),
        ]
    return told


def document_sheet(found: Findings, by: str) -> Sheet | None:
    """The documents of which least is known (`uncertain`), or whose answers are farthest apart (`disputed`)."""
    documents = found.documents.assign(place=np.arange(len(found.documents)))
    if by == "uncertain":
        key = (documents["upper"] - documents["lower"]).to_numpy()
    else:
        if found.votes is None:
            return None
        key = found.dispute
        documents = documents[~np.isnan(key)]
        key = key[~np.isnan(key)]
    order = documents.iloc[np.argsort(-key, kind="stable")[:MOST_DOCUMENTS]]
    told = _document_columns(found)
    rows = [[read(row) for _, read in told] for row in order.to_dict("records")]
    columns = [column for column, _ in told]
    place = [column.title for column in columns].index("width" if by == "uncertain" else "apart")
    names = tuple(f"{value:.0f}" for value in found.grade_values)
    return Sheet(columns, rows, len(documents), "consensus.parquet", "document", (place, True), names)


def ranker_sheet(found: Findings) -> Sheet:
    """Every candidate, with what it is, and its figures."""
    measure = found.measure
    told: list[tuple[Column, Any]] = [
        (
            Column("candidate", "text"),
            lambda row: str(row["candidate"]) + (" (chosen)" if row["chosen"] is True else ""),
        ),
        (
            Column(f"{measure}, choice", "number", "on the queries for the choice", 4),
            lambda row: number(row["choice_mean"]),
        ),
    ]
    if found.tested:
        told += [
            (
                Column(f"{measure}, test", "number", "on the test queries", 4),
                lambda row: number(row[f"{measure} mean"]),
            ),
            (
                Column(f"over {found.baseline}", "interval", "difference with its 95% interval", 4),
                lambda row: [number(row[f"{measure} {name}"]) for name in ("lower", "difference", "upper")],
            ),
            (Column("p", "number", "of this difference alone", 3), lambda row: number(row[f"{measure} p"])),
            (
                Column("p (Holm)", "number", "corrected for all candidates", 3),
                lambda row: number(row[f"{measure} p_holm"]),
            ),
        ]
        for name in found.measures[1:]:
            told.append(
                (Column(name, "number", "on the test queries", 4), lambda row, name=name: number(row[f"{name} mean"]))
            )
    told.append((Column("what it is", "words"), _what))
    rows = [[read(row) for _, read in told] for row in found.comparison.to_dict("records")]
    by = (2, True) if found.tested else (1, True)
    return Sheet([column for column, _ in told], rows, len(rows), "comparison.csv", "candidate", by)


def _what(row: dict[str, Any]) -> str:
    note = row.get("note") or ""
    return f"{row['about']}{f' ({note})' if note else ''}"
