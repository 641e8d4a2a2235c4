"""Tables of the report: columns with their explanations, and rows for the page's script to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._glossary import GLOSSARY
from crowdrank._text import minus_signs, one_line
from crowdrank.assessors.advice import ADVICE, FAULTS
from crowdrank.errors import Message
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.reports.report_data import UNKNOWN_UNIT, ReportData, informativeness_level

SIMULATED = "simulated"
"""Unit of the costs that `demo` simulates."""
MAX_ASSESSORS = 5000
"""Maximum number of rows of the table of assessors."""
MAX_PAIRS = 500
MAX_ID_LENGTH = 200
MAX_NAME_LENGTH = 24
MAX_ANSWERS = 12
"""Maximum number of answers that are listed for a document: those of the most informative assessors."""
DIGITS = 4
P_DIGITS = 6

Row = Mapping[Hashable, Any]


@dataclass(frozen=True)
class Column:
    """Column of a table.

    Attributes:
        title: header.
        kind: how cells are shown: text, number, difference (with its sign), p, share (percent), bar, interval (a list
            of lower, middle and upper), votes (a list of counts by grade), advice, line (a text below the row), or
            passage (a line that is cut).
        help: explanation of the column.
        value: function that returns the cell of a row, or the name of a column of numbers.
        digits: number of decimals.
        signed: whether intervals have a sign.

    """

    title: str
    kind: str
    help: str
    value: str | Callable[[Row], Any]
    digits: int = 2
    signed: bool = False

    def cell(self, row: Row) -> Any:
        """Return the cell of a row, ready for JSON."""
        if callable(self.value):
            return self.value(row)
        return rounded(row[self.value], P_DIGITS if self.kind == "p" else DIGITS)

    def to_dict(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {name: getattr(self, name) for name in ("title", "kind", "help", "digits", "signed")}


@dataclass(frozen=True)
class Table:
    """Table of the report.

    Attributes:
        columns: columns.
        rows: cells: numbers, texts, lists of numbers or None.
        total: number of rows of the complete table.
        file: file with the complete table.
        sorted_by: index of the column that the rows are sorted by.
        descending: whether the largest values come first.
        grades: names of the grades, for votes.

    """

    columns: Sequence[Column]
    rows: list[list[Any]]
    total: int
    file: str
    sorted_by: int
    descending: bool = True
    grades: tuple[str, ...] = ()

    @classmethod
    def build(
        cls,
        columns: Sequence[Column],
        frame: pd.DataFrame,
        *,
        sorted_by: str,
        file: str,
        total: int | None = None,
        **more: Any,
    ) -> Table:
        """Return the table with the rows of a frame; `sorted_by` is the title of a column."""
        rows = [[column.cell(row) for column in columns] for row in frame.to_dict("records")]
        place = [column.title for column in columns].index(sorted_by)
        return cls(columns, rows, len(rows) if total is None else total, file, place, **more)

    def to_dict(self) -> dict[str, Any]:
        """Return the table, ready for JSON."""
        return {**vars(self), "columns": [column.to_dict() for column in self.columns]}


def rounded(value: Any, digits: int = DIGITS) -> float | int | None:
    """Return a number for JSON: rounded, and None if it is missing.

    >>> rounded(0.123456), rounded(float("nan")), rounded(np.int64(3))
    (0.1235, None, 3)
    """
    if value is None or (isinstance(value, float | np.floating) and not math.isfinite(value)):
        return None
    return int(value) if isinstance(value, int | np.integer | np.bool_) else round(float(value), digits)


def _id_column(name: str, help: str) -> Column:
    return Column(name, "text", help, lambda row: one_line(row[name], MAX_ID_LENGTH))


def _interval(*names: str) -> Callable[[Row], list[float | int | None]]:
    """Return a function that returns the lower end, the middle and the upper end of an interval."""
    return lambda row: [rounded(row[name]) for name in names]


def make_tables(data: ReportData) -> dict[str, Table | Message]:
    """Return the tables of the report by name, or why they could not be made; those without rows are left out."""
    makers: dict[str, Callable[[], Table]] = {
        "assessors": lambda: assessor_table(data),
        "pairs": lambda: pair_table(data),
        "next": lambda: document_table(data, RANK.title, data.next_document_positions(), "next.csv"),
        "disputed": lambda: document_table(data, "spread (grades)", data.most_disputed()),
        "next-with-features": lambda: next_table(data),
    }
    if "preferences" in data.sizes:
        makers |= {"preferences": lambda: preference_table(data), "order": lambda: order_table(data)}
    if data.has_rankers:
        makers |= {"rankers": lambda: ranker_table(data), "features": lambda: feature_table(data)}
    tables = {name: data.make_or_warn(f"The table {name!r}", make) for name, make in makers.items()}
    return {name: table for name, table in tables.items() if isinstance(table, Message) or table.rows}


RANK = Column("rank", "number", "rank in the file of what to label next: 1 is the most useful", "rank", 0)
FLAG_ORDER = (*FAULTS, "careful", "", "few")
"""Order of the assessors by flag."""
ASSESSOR_SHARES = (
    Column("agrees", "share", "share of answers equal to the consensus grade", "agreement"),
    Column("agrees with experts", "share", "share of answers equal to the expert grade", "gold_accuracy"),
    Column("repeatability", "share", "share of repeated judgments with the same answer", "self_agreement"),
    Column("honeypots", "share", "share of honeypots answered correctly", "honeypot_share"),
)
"""Columns of the table of assessors that are shown if any assessor has a value."""


def assessor_table(data: ReportData) -> Table:
    """Return the table of assessors, those with a flag first."""
    frame = data.assessors
    order = frame.assign(rank=frame["flag"].map(FLAG_ORDER.index))
    order = order.sort_values(["rank", "judgments"], ascending=[True, False], kind="stable").head(MAX_ASSESSORS)
    columns = [
        _id_column("assessor", "id of the assessor"),
        Column("advice", "advice", "what to do, by flag", lambda row: ADVICE[row["flag"]].word),
        Column("flag", "text", f"{GLOSSARY['flag']}; empty if nothing stands out", lambda row: row["flag"]),
        *([Column("kind", "text", "kind of assessor", lambda row: row["kind"])] if "kind" in frame else []),
        Column("judgments", "number", "number of judgments", "judgments", 0),
        Column("informativeness", "bar", GLOSSARY["informativeness"], "informativeness", 3),
        *_columns_with_reference(
            frame, "slope", "compared_with", "interval", _interval("slope_lower", "slope", "slope_upper")
        ),
        *_columns_with_reference(frame, "bias", "bias_reference", "difference", "bias"),
        *(column for column in ASSESSOR_SHARES if column.value in frame and frame[column.value].notna().any()),
        *_time_and_cost(data),
        Column("evidence", "line", "why the assessor has this flag", lambda row: minus_signs(row["evidence"])),
    ]
    return Table.build(columns, order, sorted_by="advice", file="assessors.csv", total=len(frame), descending=False)


PREFERENCE_COLUMNS = (
    Column("preferences", "number", "number of preferences", "preferences", 0),
    Column("information", "bar", GLOSSARY["informativeness"], "preference_information", 3),
    Column("sharpness", "number", GLOSSARY["sharpness"], "sharpness"),
    Column(
        "position bias",
        "interval",
        f"{GLOSSARY['position bias']}, with its 95% interval; 0 is no bias",
        _interval("position_bias_lower", "position_bias", "position_bias_upper"),
        signed=True,
    ),
    Column("p (no bias)", "p", "p-value of no position bias (Wald test)", "position_bias_p", 3),
    Column("ties", "share", "share of ties", "ties"),
    Column("cycles", "share", f"{GLOSSARY['cycle']}: share of all sets of three; 25% for random answers", "cycles"),
)
"""Columns of the table of assessors with preferences; those that the result does not have are left out."""
NEEDED_COLUMN = {
    "information": "preference_information",
    "position bias": "position_bias",
    "p (no bias)": "position_bias_p",
}
"""Column of the result that a column of preferences needs, if its name is another."""


def preference_table(data: ReportData) -> Table:
    """Return the table of assessors with preferences, those with the most information per answer first."""
    frame = data.preference_assessors
    shown = [column for column in PREFERENCE_COLUMNS if NEEDED_COLUMN.get(column.title, column.title) in frame]
    columns = [_id_column("assessor", "id of the assessor"), *shown]
    file = "preference_assessors.csv"
    return Table.build(columns, frame.head(MAX_ASSESSORS), sorted_by="information", file=file, total=len(frame))


def order_table(data: ReportData) -> Table:
    """Return the table of neighbors at the top of queries, the least certain order first."""
    columns = [
        _id_column("query", "id of the query"),
        Column("rank", "number", "rank of the document by the consensus", "rank", 0),
        _id_column("document", "id of the document"),
        Column(
            "next", "text", "id of the document below it", lambda row: one_line(row["next_document"], MAX_ID_LENGTH)
        ),
        Column("certainty", "share", "probability that the document is more relevant than the next one", "probability"),
    ]
    frame = data.order.sort_values("probability", kind="stable").head(MAX_PAIRS)
    n = len(data.order)
    return Table.build(columns, frame, sorted_by="certainty", file="order.csv", total=n, descending=False)


MEASURE_HELP = {
    "slope": "increase of the answers with those of the reference: 1 is typical, 0 random, negative reversed",
    "bias": "in grades, from a joint fit of assessors and documents; empty where assessors share too few documents",
}
"""Help of the measures that have a reference."""


def _columns_with_reference(
    assessors: pd.DataFrame, name: str, reference: str, kind: str, value: str | Callable[[Row], Any]
) -> list[Column]:
    """Return a column with its reference in the title, or with a column of references if they differ."""
    references = sorted(set(assessors.loc[assessors[name].notna(), reference]))
    unit = " (grades)" if name == "bias" else ""
    title = f"{name} v. {references[0]}{unit}" if len(references) == 1 else f"{name}{unit}"
    columns = [Column(title, kind, MEASURE_HELP[name], value)]
    if len(references) > 1:
        columns.append(Column(f"{name} v.", "text", f"reference of the {name}", lambda row: row[reference]))
    return columns


def _time_and_cost(data: ReportData) -> list[Column]:
    """Return the columns of time and cost that the judgments have."""
    columns = []
    if "duration" in data.assessors and data.assessors["duration"].notna().any():
        title = f"time per judgment ({data.unit('duration')})"
        columns.append(Column(title, "number", f"median; {_unit_help(data, 'duration')}", "duration", 1))
    if data.cost_by_assessor:
        title, cost_by_assessor = f"cost ({data.unit('cost')})", data.cost_by_assessor
        help = f"cost of all judgments; {_unit_help(data, 'cost')}"
        columns.append(Column(title, "number", help, lambda row: rounded(cost_by_assessor.get(row["assessor"]))))
    return columns


def _unit_help(data: ReportData, column: str) -> str:
    unit = data.unit(column)
    if unit == SIMULATED:
        return "simulated, without a unit"
    return f"in the unit of the column {column!r} of the file" if unit == UNKNOWN_UNIT else f"in {unit}"


def pair_table(data: ReportData) -> Table:
    """Return the table of pairs of assessors with most documents in common, the highest agreement first."""
    columns = [
        _id_column("assessor", "id of the first assessor"),
        _id_column("other", "id of the second assessor"),
        Column("documents", "number", "number of documents that both judged", "documents", 0),
        Column("agree", "share", "share of documents with equal answers", "agreement"),
        Column("difference (grades)", "difference", "mean answer of the first minus that of the second", "difference"),
        Column("kappa", "number", "agreement corrected for chance, quadratic weights: 1 perfect, 0 chance", "kappa"),
    ]
    frame = data.pairs.head(MAX_PAIRS)
    if len(frame):
        frame = frame.sort_values("kappa", ascending=False, kind="stable")
    return Table.build(columns, frame, sorted_by="kappa", file="pairs.csv", total=len(data.pairs))


def document_table(
    data: ReportData, sorted_by: str, positions: Iterable[int], file: str = "consensus.parquet"
) -> Table:
    """Return the table of the documents at given positions; the positions are in the order of column `sorted_by`."""
    unit, list_answers = data.relevance_unit, AnswerList(data)
    scale = "0 is the mean document; not a grade" if data.on_a_line else "a grade"
    spread = "; only of assessors with typical or high informativeness" * data.models_assessors
    columns = [
        _id_column("document", "id of the document"),
        _id_column("query", "id of the query"),
        *([RANK] if sorted_by == RANK.title else []),
        Column(
            f"relevance ({unit})",
            "interval",
            f"estimated relevance with its interval, in {unit}; {scale}",
            _interval("lower", "relevance", "upper"),
        ),
        Column("width", "number", f"width of the interval, in {unit}", "width"),
        Column(
            "consensus grade", "text", f"grade of the consensus ({data.grade_range})", lambda row: str(row["grade"])
        ),
        Column("judgments", "number", "number of judgments", "judgments", 0),
        Column("answers", "votes", "how often each grade was given", lambda row: data.votes[row["place"]].tolist()),
        Column("spread (grades)", "number", f"standard deviation of the answers{spread}", "spread"),
        *_text_columns(data),
        Column("answers by assessor", "line", "answers, those of the most informative assessors first", list_answers),
    ]
    place = np.array(list(positions), np.int64)
    more = {"place": place, "width": data.interval_width[place], "spread": data.dispute[place]}
    more |= {"rank": np.arange(1, len(place) + 1)}
    names = tuple(f"{value:.0f}" for value in data.grade_values)
    return Table.build(
        columns,
        data.documents.iloc[place].assign(**more),
        sorted_by=sorted_by,
        file=file,
        total=len(data.next if sorted_by == RANK.title else data.documents),
        descending=sorted_by != RANK.title,
        grades=names,
    )


def next_table(data: ReportData) -> Table:
    """Return the table of documents to label next by labels that used features; empty without such labels."""
    frame, unit, file = data.next_with_features, data.relevance_unit, "next_with_features.csv"
    if not len(frame):
        return Table((), [], 0, file, 0)
    columns = [
        _id_column("document", "id of the document"),
        _id_column("query", "id of the query"),
        RANK,
        Column(
            f"relevance ({unit})",
            "interval",
            f"relevance by labels with features, with its interval, in {unit}",
            _interval("lower", "relevance", "upper"),
        ),
        Column("width", "number", "width of the interval with features", "width"),
        Column("width without features", "number", "width of the interval without features", "width_without"),
        Column("grade", "text", "consensus grade with features", lambda row: str(row["grade"])),
        Column("grade without features", "text", "consensus grade", lambda row: str(row["grade_without"])),
        Column("judgments", "number", "number of judgments", "judgments", 0),
    ]
    total = len(data.result.tables["next_with_features"])
    return Table.build(columns, frame, sorted_by=RANK.title, file=file, total=total, descending=False)


def _text_columns(data: ReportData) -> list[Column]:
    """Return the columns with the texts of queries and documents, if there are any."""

    def query_text(row: Row) -> str:
        text = data.texts.get((row["query"], row["document"]), {}).get("query_text", "")
        return f"Query: {_plain(text)}" if text else ""

    def document_text(row: Row) -> str:
        texts = data.texts.get((row["query"], row["document"]), {})
        parts = [_plain(texts[name]) for name in ("title", "text", "url") if texts.get(name)]
        return f"Document: {' · '.join(parts)}" if parts else ""

    if not data.texts:
        return []
    return [
        Column("query text", "passage", "text of the query", query_text),
        Column("document text", "passage", "title, text and address of the document", document_text),
    ]


def _plain(text: str) -> str:
    return one_line(text, len(text))


def ranker_table(data: ReportData) -> Table:
    """Return the table of the candidates that were trained."""
    measure = data.measure
    mean = f"{measure}, {'test' if data.tested else 'selection'}"
    columns = [Column("candidate", "text", "name of the candidate", _candidate_name)]
    if data.tested:
        columns += [
            Column(mean, "number", "mean on the test queries", f"{measure} mean", 4),
            Column(
                f"over {data.baseline_name}",
                "interval",
                f"difference to {data.baseline_name} on the test queries, with its 95% interval",
                _interval(*(f"{measure} {name}" for name in ("lower", "difference", "upper"))),
                4,
                signed=True,
            ),
            Column("p (Holm)", "p", "p-value adjusted for all candidates (Holm)", f"{measure} p_holm", 3),
        ]
    columns.append(Column(f"{measure}, selection", "number", "mean on the selection queries", "selection_mean", 4))
    if data.tested:
        others = data.measures[1:]
        columns += [Column(name, "number", "mean on the test queries", f"{name} mean", 4) for name in others]
    columns.append(Column("description", "line", "how the ranker is trained", _description))
    trained = data.comparison[~data.comparison["candidate"].isin(list(data.rankers.left_out))]
    return Table.build(columns, trained, sorted_by=mean, file="comparison.csv")


def _candidate_name(row: Row) -> str:
    return f"{row['candidate']} (selected)" if row["chosen"] is True else str(row["candidate"])


def _description(row: Row) -> str:
    return f"{row['about']} ({row['note']})" if row.get("note") else str(row["about"])


FEATURE_COLUMNS = (
    Column("feature", "text", "name of the feature", lambda row: one_line(row["feature"], MAX_ID_LENGTH)),
    Column("importance", "bar", "importance of the feature for the selected ranker", "importance", 3),
    Column("used", "text", "whether rankers are trained on it", lambda row: "yes" if row["used"] else "no"),
    Column("reason", "text", "why it is not used", lambda row: one_line(row["reason"] or "", MAX_ID_LENGTH)),
    Column("missing", "share", "share of documents without a value", "missing"),
    Column("minimum", "number", "smallest value", "minimum", 3),
    Column("maximum", "number", "largest value", "maximum", 3),
)
"""Columns of the table of features; those that the result does not have are left out."""


def feature_table(data: ReportData) -> Table:
    """Return the table of the features, the most important first."""
    columns = [column for column in FEATURE_COLUMNS if column.title in data.features]
    if not columns:
        return Table((), [], 0, "features.csv", 0)
    by = "importance" if "importance" in data.features else "feature"
    descending = by == "importance"
    frame = data.features.sort_values(by, ascending=not descending, kind="stable")
    return Table.build(columns, frame, sorted_by=by, file="features.csv", descending=descending)


class AnswerList:
    """Lists the answers on a document as text: the most informative assessors first, with their informativeness."""

    def __init__(self, data: ReportData) -> None:
        self.data, self.judgments = data, data.model.judgments_
        known = data.assessors.set_index("assessor")
        names = list(map(str, self.judgments.assessors.to_pylist()))
        self.nats = known["informativeness"].reindex(names).fillna(0.0).to_numpy(np.float64)  # (n_assessors,)
        self.flags = known["flag"].reindex(names).fillna("").to_list()
        self.names = [one_line(name, MAX_NAME_LENGTH) for name in names]

    def __call__(self, row: Row) -> str:
        """Return the answers on the document of a row."""
        start, end = self.judgments.offsets[row["place"]], self.judgments.offsets[row["place"] + 1]
        who = self.judgments.assessor[start:end]
        order = np.argsort(-self.nats[who], kind="stable") if self.data.models_assessors else np.arange(len(who))
        answers = ", ".join(self._answer(int(start + place)) for place in order[:MAX_ANSWERS])
        more = f" and {len(order) - MAX_ANSWERS:,} more" if len(order) > MAX_ANSWERS else ""
        return f"{'graded by an expert; ' * (not math.isnan(row['expert']))}{answers}{more}"

    def _answer(self, judgment: int) -> str:
        who = int(self.judgments.assessor[judgment])
        text = f"{self.names[who]}: {answer_name(self.judgments, judgment)}"
        if not self.data.models_assessors:  # all answers have the same weight
            return text
        level = informativeness_level(float(self.nats[who]), self.data.median_informativeness)
        return f"{text} ({'reversed, ' * (self.flags[who] == 'reversed')}{level})"


def answer_name(judgments: Judgments, judgment: int) -> str:
    """Return the grade of a judgment by its name on the scale of the assessor.

    >>> from crowdrank import read_judgments
    >>> frame = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": ["Good"]})
    >>> answer_name(read_judgments(frame, grades="Bad,Good"), 0)
    'Good'
    """
    grade = int(judgments.grade[judgment])
    if grade == UNJUDGEABLE:
        return "cannot judge"
    scale = judgments.scales[int(judgments.assessor_scale[judgments.assessor[judgment]])]
    return one_line(scale.names[grade], MAX_NAME_LENGTH)
