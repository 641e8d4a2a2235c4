"""Rows that cannot be used: kind, location and fixes of the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crowdrank import read_gold, read_judgments
from crowdrank.errors import InputError

HEADER = "query,document,assessor,grade\n"
GOOD = HEADER + "q,a,x,0\nq,b,y,1\n"
EXTRA = "document,assessor,grade,"


@dataclass(frozen=True)
class Case:
    """A file, and the kind, place, column and parameters of the fixes of its error."""

    name: str
    content: str
    kind: str
    place: str
    column: str
    fixes: tuple[str | None, ...]
    problem: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    read: Callable[..., Any] = read_judgments
    file: str = "labels.csv"

    def __str__(self) -> str:
        return self.name


LAST = "row 3 (line 4)"
MISSING = (None, "on_bad_rows")
NOT_A_GRADE = (None, "grades", "on_bad_rows")
WORD = (None, "grades", "unjudgeable", "on_bad_rows")
OFF = ("grades", "on_bad_rows")
BLANK = (None, None)
NAMES = ("grades", None)
RF10 = "topicID\tworkerID\tdocID\tgold\tlabel\n1\tw\td\t-1\t1\n1\tw\te\tx\t1\n"
CASES = [
    Case("no document", GOOD + "q, ,x,1\n", "missing-cell", LAST, "document", MISSING, "the document is missing"),
    Case("no query", GOOD + ",c,x,1\n", "missing-cell", LAST, "query", MISSING, "the query is missing"),
    Case("no assessor", "task,worker,label\na,,1\n", "missing-cell", "row 1 (line 2)", "worker", MISSING),
    Case("named grade", GOOD + "q,c,x,good\n", "not-a-grade", LAST, "grade", WORD, "'good' is not a grade of"),
    Case("fraction", GOOD + "q,c,x,1.5\n", "not-a-grade", LAST, "grade", NOT_A_GRADE, "'1.5' is not a grade of"),
    Case("blank grade", GOOD + "q,c,x,\n", "missing-cell", LAST, "grade", MISSING, "the grade is missing"),
    Case("NaN grade", GOOD + "q,c,x,NaN\n", "missing-cell", LAST, "grade", MISSING),
    Case("infinite grade", GOOD + "q,c,x,inf\n", "not-a-grade", LAST, "grade", WORD, "'inf' is"),
    Case("off the scale", GOOD + "q,c,x,7\n", "grade-off-scale", LAST, "grade", OFF, "grade 7", {"grades": "0-3"}),
    Case("below", GOOD + "q,c,x,-2\n", "grade-below-scale", LAST, "grade", ("unjudgeable", "on_bad_rows"), "grade -2"),
    Case("too large", GOOD + "q,c,x,200\nq,d,x,5000\n", "grade-too-large", LAST, "grade", OFF, "200 is too large"),
    Case(
        "unknown name",
        GOOD.replace(",0", ",bad").replace(",1", ",Super"),
        "grade-off-scale",
        "row 2 (line 3)",
        "grade",
        OFF,
        "'Super' is off the scale Bad,Good",
        {"grades": "Bad,Good"},
    ),
    Case("long value", GOOD + f"q,c,x,{'y' * 500}\n", "not-a-grade", LAST, "grade", NOT_A_GRADE, f"'{'y' * 56}... is"),
    Case("two lines", GOOD + 'q,c,x,"a\nb"\nq,d,x,1\n', "not-a-grade", LAST, "grade", NOT_A_GRADE, "'a\\nb' is not"),
    Case("qrels", "1 0 a 1\n\n1 0 b x\n", "not-a-grade", "line 3", "grade", WORD, read=read_gold, file="a.qrels"),
    Case("names only", HEADER + "q,a,x,Bad\nq,b,x,Good\n", "named-grades", "row 1 (line 2)", "grade", NAMES),
    Case("rf10", RF10, "named-grades", "row 2 (line 3)", "gold", NAMES, "", {"format": "trec-rf10"}, read_gold),
    Case("time", EXTRA + "time\na,x,1,2024-05-31\nb,x,1,yesterday\n", "bad-cell", "row 2 (line 3)", "time", BLANK),
    Case(
        "negative cost", EXTRA + "price\na,x,1,-1\n", "bad-cell", "row 1 (line 2)", "price", BLANK, "'-1' is not a cost"
    ),
    Case("infinite duration", EXTRA + "duration\na,x,1,inf\n", "bad-cell", "row 1 (line 2)", "duration", BLANK),
    Case("honeypot", EXTRA + "honeypot\na,x,1,\nb,x,1,9\n", "grade-off-scale", "row 2 (line 3)", "honeypot", OFF),
    Case("two families", EXTRA + "family\na,x,1,f\nb,x,1,\nc,x,1,g\n", "another-family", LAST, "family", (None,)),
]


def write(case: Case, folder: Path) -> Path:
    path = folder / case.file
    path.write_text(case.content)
    return path


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bad_row_is_refused(case: Case, tmp_path: Path) -> None:
    path = write(case, tmp_path)
    with pytest.raises(InputError) as problem:
        case.read(path, **case.options)
    error = problem.value
    assert (error.kind, error.location.place, error.location.column) == (case.kind, case.place, case.column)
    assert error.location.source == str(path)
    assert tuple(fix.parameter for fix in error.fixes) == case.fixes
    assert case.problem in error.problem
    assert "\n" not in str(error)


@pytest.mark.parametrize("case", [case for case in CASES if "on_bad_rows" in case.fixes], ids=str)
def test_skipping_helps_where_the_error_says_so(case: Case, tmp_path: Path) -> None:
    path = write(case, tmp_path)
    if len(path.read_text().splitlines()) > 2:
        report = case.read(path, on_bad_rows="skip", **case.options).report
        assert sum(report.skipped.values()) >= 1
        assert [example.kind for example in report.examples.values()] == [case.kind]


@pytest.mark.parametrize(
    ("content", "options", "reasons"),
    [
        (
            HEADER + "q,a,,1\nq,,x,1\nq,c\n",
            {"on_bad_rows": "skip"},
            "malformed line: 1, no document: 1, no assessor: 1",
        ),
        (GOOD, {"exclude": ["x", "y"]}, "assessors excluded"),
        (HEADER + "q,a,x,\n", {"on_bad_rows": "skip"}, "no grade: 1"),
    ],
)
def test_a_file_of_which_no_row_is_left_is_refused(
    content: str, options: dict[str, Any], reasons: str, tmp_path: Path
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(content)
    with pytest.raises(InputError) as problem:
        read_judgments(path, **options)
    assert problem.value.problem.startswith(f"no row can be used ({reasons})")
    assert (problem.value.kind, problem.value.location.source) == ("no-rows-left", str(path))


def test_a_repeated_judgment_is_named_by_both_rows(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(GOOD + "q,a,x,1\n")
    with pytest.raises(InputError) as problem:
        read_judgments(path, repeats="error")
    assert "twice (row 1 (line 2) and row 3 (line 4))" in problem.value.problem
    assert (problem.value.location.source, problem.value.kind) == (str(path), "repeated-judgment")
