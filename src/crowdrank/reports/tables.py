"""The tables of the report: columns with what they mean, rows ready for JSON, and how many of all are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.reports.cards import ADVICE
from crowdrank.reports.formatting import plain_id, real_minus
from crowdrank.reports.report_data import UNKNOWN_UNIT, ReportData, weight_word

SIMULATED = "simulated"
"""The unit of what `demo` made up."""
MOST_ASSESSORS = 5000
MOST_DOCUMENTS = 500
MOST_PAIRS = 500
LONGEST_ID = 200
DIGITS = 4
P_DIGITS = 6


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `kind` says how a cell is shown: text, number, difference (with its sign), p, share (percent), bar, interval
    ([lower, middle, upper]; `signed` where it is of a difference), votes (a count per grade), flag, or words (a
    sentence).
    """

    title: str
    kind: str
    help: str = ""
    digits: int = 2
    signed: bool = False


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


ASSESSOR_COLUMNS = {
    "agreement": Column("agrees", "share", "answers equal to the consensus grade"),
    "gold_accuracy": Column("as experts", "share", "answers equal to the expert grade"),
    "self_agreement": Column("repeats", "share", "repeated judgments of a document with the same answer"),
    "honeypot_share": Column("honeypots", "share", "planted documents answered correctly"),
}
"""Columns of the table of assessors that are shown if any assessor has a value; the file has more."""
FLAG_RANK = {flag: rank for rank, flag in enumerate(("random", "reversed", "careless", "strict", "lenient", "careful"))}
"""Order of assessors by flag; those without a flag and with few judgments come last."""


def assessor_sheet(found: ReportData) -> Sheet:
    """Return the table of assessors, flagged ones first; of very many only those with flags and the most active."""
    table = found.assessors
    order = table.assign(rank=table["flag"].map(lambda flag: FLAG_RANK.get(flag, 6 + (flag == "few")))).sort_values(
        ["rank", "judgments"], ascending=[True, False], kind="stable"
    )
    columns: list[tuple[Column, Any]] = [
        (Column("assessor", "text"), lambda row: plain_id(row["assessor"], LONGEST_ID)),
        (Column("do", "advice", "advice by flag"), lambda row: ADVICE[row["flag"]]),
        (Column("flag", "flag"), lambda row: row["flag"]),
        (Column("judgments", "number", "number of judgments", 0), lambda row: number(row["judgments"])),
        (
            Column("informativeness", "bar", "information about relevance in one answer, in nats; 0 is none", 3),
            lambda row: number(row["informativeness"]),
        ),
        _interval_column(
            "slope", "slope", "how answers increase with the others': 1 is typical, 0 random, negative reversed"
        ),
        (
            Column("bias (grades)", "difference", "mean answer minus the others' on the same documents"),
            lambda row: number(row["bias"]),
        ),
    ]
    shown = [name for name in ASSESSOR_COLUMNS if name in table and table[name].notna().any()]
    columns += [(ASSESSOR_COLUMNS[name], lambda row, name=name: number(row[name])) for name in shown]
    if "duration" in table and table["duration"].notna().any():
        unit = found.unit("duration")
        title, help = f"time per judgment ({unit})", f"median; {_from(unit, 'duration')}"
        columns.append((Column(title, "number", help, 1), lambda row: number(row["duration"])))
    if found.paid:
        paid, unit = found.paid, found.unit("cost")
        title, help = f"paid ({unit})", f"for all judgments together; {_from(unit, 'cost')}"
        columns.append((Column(title, "number", help), lambda row: number(paid.get(row["assessor"]))))
    columns.append((Column("evidence", "words"), lambda row: real_minus(row["evidence"])))
    rows = [[read(row) for _, read in columns] for row in order.head(MOST_ASSESSORS).to_dict("records")]
    return Sheet([column for column, _ in columns], rows, len(table), "assessors.csv", "assessor", (1, False))


def _interval_column(title: str, name: str, help: str) -> tuple[Column, Any]:
    """Return a column that shows a value of a table with its interval."""
    names = (f"{name}_lower", name, f"{name}_upper")
    return Column(title, "interval", help), lambda row: [number(row[one], 3) for one in names]


def pair_sheet(found: ReportData) -> Sheet | None:
    """Return the table of pairs of assessors with most documents in common, the highest agreement first."""
    if not len(found.pairs):
        return None
    columns: list[tuple[Column, Any]] = [
        (Column("assessor", "text"), lambda row: plain_id(row["assessor"], LONGEST_ID)),
        (Column("other", "text"), lambda row: plain_id(row["other"], LONGEST_ID)),
        (Column("documents", "number", "documents that both judged", 0), lambda row: number(row["documents"])),
        (Column("agrees", "share", "equal answers"), lambda row: number(row["agreement"])),
        (
            Column("difference (grades)", "difference", "mean answer of the assessor minus the other's"),
            lambda row: number(row["difference"]),
        ),
        (
            Column("kappa", "number", "agreement corrected for chance, with quadratic weights"),
            lambda row: number(row["kappa"]),
        ),
    ]
    order = found.pairs.head(MOST_PAIRS).sort_values("kappa", ascending=False, kind="stable")
    rows = [[read(row) for _, read in columns] for row in order.to_dict("records")]
    kappa = len(columns) - 1
    return Sheet([column for column, _ in columns], rows, len(found.pairs), "pairs.csv", "pair", (kappa, True))


def _from(unit: str, column: str) -> str:
    if unit == SIMULATED:
        return "simulated, in no unit of the world"
    return f"in the unit of its column '{column}'" if unit == UNKNOWN_UNIT else f"in {unit}"


def _document_columns(found: ReportData, places: Iterable[int]) -> list[tuple[Column, Any]]:
    unit = found.relevance_unit
    means = "0 is the mean document, 1 one standard deviation better; not a grade" if found.on_a_line else "in grades"
    told: list[tuple[Column, Any]] = [
        (Column("document", "text"), lambda row: plain_id(row["document"], LONGEST_ID)),
        (Column("query", "text"), lambda row: plain_id(row["query"], LONGEST_ID)),
        (
            Column(f"relevance ({unit})", "interval", f"with its interval; {means}"),
            lambda row: [number(row[name], 3) for name in ("lower", "relevance", "upper")],
        ),
        (
            Column("width", "number", f"of the interval of relevance, in {unit}"),
            lambda row: number(row["upper"] - row["lower"], 3),
        ),
        (
            Column("consensus grade", "text", f"the grade that the consensus gives; {found.grade_range}"),
            lambda row: str(row["grade"]),
        ),
        (Column("judgments", "number", "", 0), lambda row: number(row["judgments"])),
    ]
    if found.votes is not None:
        votes, dispute = found.votes, found.dispute
        which = "; only those marked usual or much, none of reversed assessors" if found.models_assessors else ""
        told += [
            (Column("answers", "votes", "how often each grade was given"), lambda row: votes[row["place"]].tolist()),
            (
                Column("spread (grades)", "number", f"standard deviation of the answers{which}"),
                lambda row: number(dispute[row["place"]]),
            ),
        ]
        lines, graded = Answered(found).lines(places), _graded(found)
        told.append(
            (
                Column("who answered what", "words"),
                lambda row: f"{'graded by an expert; ' * (_pair(row) in graded)}{lines[row['place']]}",
            )
        )
    return told


def _graded(found: ReportData) -> set[tuple[str, str]]:
    """The documents that experts graded; next.csv does not ask for more answers on them."""
    return set(map(_pair, found.against_experts[["query", "document"]].to_dict("records")))


def _pair(row: dict[Any, Any]) -> tuple[str, str]:
    return str(row["query"]), str(row["document"])


def document_sheet(found: ReportData, by: str) -> Sheet | None:
    """The documents of which least is known (`uncertain`), or whose answers are farthest apart (`disputed`)."""
    documents = found.documents.assign(place=np.arange(len(found.documents)))
    if by == "uncertain":
        key = (documents["upper"] - documents["lower"]).to_numpy()
    else:
        key = found.dispute
        documents = documents[~np.isnan(key)]
        key = key[~np.isnan(key)]
    order = documents.iloc[np.argsort(-key, kind="stable")[:MOST_DOCUMENTS]]
    told = _document_columns(found, order["place"])
    rows = [[read(row) for _, read in told] for row in order.to_dict("records")]
    columns = [column for column, _ in told]
    place = [column.title for column in columns].index("width" if by == "uncertain" else "spread (grades)")
    names = tuple(f"{value:.0f}" for value in found.grade_values)
    return Sheet(columns, rows, len(documents), "consensus.parquet", "document", (place, True), names)


def ranker_sheet(found: ReportData) -> Sheet:
    """Every candidate that was tried, with what it is, and its figures."""
    measure = found.measure
    told: list[tuple[Column, Any]] = [
        (
            Column("candidate", "text"),
            lambda row: str(row["candidate"]) + (" (chosen)" if row["chosen"] is True else ""),
        ),
    ]
    choice = (
        Column(f"{measure}, choice", "number", "on the queries for the choice", 4),
        lambda row: number(row["selection_mean"]),
    )
    if found.tested:
        told += [
            (
                Column(f"{measure}, test", "number", "on the test queries", 4),
                lambda row: number(row[f"{measure} mean"]),
            ),
            (
                Column(f"over {found.baseline}", "interval", "difference with its 95% interval", 4, signed=True),
                lambda row: [number(row[f"{measure} {name}"]) for name in ("lower", "difference", "upper")],
            ),
            (Column("p", "p", "of this difference alone", 3), lambda row: number(row[f"{measure} p"], P_DIGITS)),
            (
                Column("p (Holm)", "p", "corrected for all candidates", 3),
                lambda row: number(row[f"{measure} p_holm"], P_DIGITS),
            ),
        ]
    told.append(choice)
    if found.tested:
        for name in found.measures[1:]:
            told.append(
                (Column(name, "number", "on the test queries", 4), lambda row, name=name: number(row[f"{name} mean"]))
            )
    told.append((Column("what it is", "words"), _what))
    tried = found.comparison[~found.comparison["candidate"].isin(list(found.rankers.left_out))]
    rows = [[read(row) for _, read in told] for row in tried.to_dict("records")]
    return Sheet([column for column, _ in told], rows, len(rows), "comparison.csv", "candidate", (1, True))


def _what(row: dict[str, Any]) -> str:
    note = row.get("note") or ""
    return f"{row['about']}{f' ({note})' if note else ''}"


MOST_ANSWERS = 12
"""Of more answers on a document, those that tell most are named: the page must stay small."""


LONGEST_NAME = 24


class Answered:
    """Tells the answers on documents of `found.documents` in a line each."""

    def __init__(self, found: ReportData) -> None:
        self.found, self.judgments = found, found.model.judgments_
        known = found.assessors.set_index("assessor")
        names = list(map(str, self.judgments.assessors.to_pylist()))
        self.nats = known["informativeness"].reindex(names).fillna(0.0).to_numpy(np.float64)  # (n_assessors,)
        self.flag = known["flag"].reindex(names).fillna("").to_list()
        self.names = [plain_id(name, LONGEST_NAME) for name in names]

    def lines(self, places: Iterable[int]) -> dict[int, str]:
        """The line of each place in `found.documents`."""
        asked = list(places)
        rows = self.found.documents.iloc[asked]
        items = self.judgments.positions(*(pa.array(rows[name].astype(str)) for name in ("query", "document")))
        return {place: self._line(int(item)) for place, item in zip(asked, items, strict=True)}

    def _line(self, item: int) -> str:
        start, end = self.judgments.offsets[item], self.judgments.offsets[item + 1]
        who = self.judgments.assessor[start:end]
        order = np.argsort(-self.nats[who], kind="stable") if self.found.models_assessors else np.arange(len(who))
        told = [self._answer(int(start + at)) for at in order[:MOST_ANSWERS]]
        more = f" and {len(order) - MOST_ANSWERS:,} more" if len(order) > MOST_ANSWERS else ""
        return f"{', '.join(told)}{more}"

    def _answer(self, row: int) -> str:
        who = int(self.judgments.assessor[row])
        said = f"{self.names[who]}: {answer_of(self.judgments, row)}"
        if not self.found.models_assessors:
            return said  # votes weigh everybody alike
        word = weight_word(float(self.nats[who]), self.found.median_informativeness)
        return f"{said} ({'reversed, ' * (self.flag[who] == 'reversed')}{word})"


def answer_of(judgments: Judgments, row: int) -> str:
    """The grade of a judgment, by its name on the scale of the assessor.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> frame = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": ["Good"]})
    >>> answer_of(read_judgments(frame, grades="Bad,Good"), 0)
    'Good'
    """
    grade = int(judgments.grade[row])
    if grade == UNJUDGEABLE:
        return "cannot judge"
    scale = judgments.scales[int(judgments.assessor_scale[judgments.assessor[row]])]
    return plain_id(scale.names[grade], LONGEST_NAME)
