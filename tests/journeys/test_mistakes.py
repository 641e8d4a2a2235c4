"""Mistakes of the first hour: each gets one message that names what is wrong, where, and what to type instead."""

from __future__ import annotations

import bz2
import gzip
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from zlib import crc32

import pytest

from .conftest import Terminal

HEADER = "query,document,assessor,grade\n"
AGGREGATE = ("aggregate", "x.csv", "-o", "out.csv")
VALIDATE = ("validate", "x.csv", "--expert", "gold.csv")
FIRST_GRADE = "x.csv, row 1 (line 2), column 'grade'"
RUN = ("run", "--judgments", "x.csv", "--expert", "gold.csv", "-o", "out")


def rows(
    grade: Callable[[int], object] = lambda number: number % 3, *, separator: str = ",", assessors: str = "abc"
) -> str:
    """Return judgments of 12 queries with 5 documents; `grade` gets a number that differs little between assessors."""
    cells = [
        (f"q{query}", f"q{query}-d{document}", assessor, str(grade(2 * document + query + (place + document) % 2)))
        for query, document in itertools.product(range(12), range(5))
        for place, assessor in enumerate(assessors)
    ]
    return "".join(separator.join(row) + "\n" for row in cells)


def gold(
    grade: Callable[[int], object] = lambda number: number % 3, query: str = "q{}", document: str = "q{}-d{}"
) -> str:
    """Return expert grades of the same documents."""
    cells = [
        (query.format(one), document.format(one, two), str(grade(2 * two + one)))
        for one, two in itertools.product(range(12), range(5))
    ]
    return "query,document,grade\n" + "".join(",".join(row) + "\n" for row in cells)


def numbered(first: int, assessors: tuple[str, ...]) -> str:
    """Return judgments (or expert grades, without assessors) of 100 documents whose ids are numbers."""
    cells = [
        (f"q{number // 20}", str(first + number), *assessor, str(crc32(b"%d" % number) % 3))
        for number in range(100)
        for assessor in (zip(assessors) if assessors else [()])
    ]
    header = HEADER if assessors else HEADER.replace("assessor,", "")
    return header + "".join(",".join(row) + "\n" for row in cells)


JUDGMENTS = HEADER + rows()
JSON_LINES = "".join(
    f'{{"query": "q", "document": "d{document}", "assessor": "{assessor}", "grade": {document % 3}}}\n'
    for document, assessor in itertools.product(range(5), "ab")
)
LOGIN_PAGE = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Sign in, please</body></html>\n"
FEATURES = "query,document,length,popularity\n" + "".join(
    f"q{query},q{query}-d{document},{(3 * query + 7 * document) % 11},{(2 * document + query) % 3}\n"
    for query, document in itertools.product(range(12), range(5))
)


@dataclass(frozen=True)
class Mistake:
    """What a user types, and what the answer must contain.

    Attributes:
        words: arguments after `crowdrank`.
        files: files in the folder, by name.
        shown: texts that the message contains: file, place, column or value, and the option that helps.
        code: exit code; with 2, no file is written or changed.
        then: a command that works, as the message advises; the exit code is 0.

    """

    words: tuple[str, ...]
    files: Mapping[str, str | bytes]
    shown: tuple[str, ...]
    code: int = 2
    then: tuple[str, ...] = ()


def aggregate(
    text: str | bytes, *shown: str, more: tuple[str, ...] = (), code: int = 2, then: tuple[str, ...] = ()
) -> Mistake:
    """Return the mistake of aggregating a file; `then` has options to add."""
    return Mistake((*AGGREGATE, *more), {"x.csv": text}, shown, code, (*AGGREGATE, *then) if then else ())


MISTAKES = {
    # Separators and encodings.
    "wrong separator": aggregate(
        JUDGMENTS, "x.csv", "--separator ,", more=("--separator", ";"), then=("--separator", ",")
    ),
    "unknown separator": aggregate(JUDGMENTS.replace(",", ":"), "x.csv", "--separator :", then=("--separator", ":")),
    "semicolons": aggregate(JUDGMENTS.replace(",", ";"), code=0),
    "spaces after commas": aggregate(JUDGMENTS.replace(",", ", "), "x.csv", "' document'", "spaces"),
    "decimal commas": Mistake(
        ("run", "--judgments", "x.csv", "--features", "f.csv", "-o", "out"),
        {"x.csv": JUDGMENTS, "f.csv": "query;document;f1\n" + "".join(f"q0;q0-d{d};0,{d}5\n" for d in range(5))},
        ("f.csv, row 1 (line 2), column 'f1'", "0,05"),
    ),
    "decimal comma in a grade": aggregate(
        JUDGMENTS.replace(",", ";").replace(";1\n", ";1,5\n"),
        "x.csv, row 2 (line 3), column 'grade'",
        "1,5",
        "--grades",
    ),
    "UTF-16": aggregate(JUDGMENTS.encode("utf-16"), code=0),
    "Latin-1": aggregate(JUDGMENTS.replace("a,", "ä,").encode("latin-1"), "x.csv, line 2", "UTF-8"),
    "stray quotes": Mistake(
        ("aggregate", "x.tsv", "-o", "out.csv"),
        {"x.tsv": JUDGMENTS.replace(",", "\t").replace("q1-d1", '"q1-d1').replace("q3-d1", '5" disk')},
        ("180 judgments", "60 documents"),
        code=0,
    ),
    # Compressed files, files of other kinds, and paths.
    "not gzip": Mistake(
        ("aggregate", "x.csv.gz", "-o", "out.csv"), {"x.csv.gz": JUDGMENTS}, ("180 judgments",), code=0
    ),
    "gzip without its suffix": aggregate(gzip.compress(JUDGMENTS.encode()), "180 judgments", code=0),
    "truncated gzip": Mistake(
        ("aggregate", "x.csv.gz"), {"x.csv.gz": gzip.compress(JUDGMENTS.encode())[:60]}, ("x.csv.gz", "truncated")
    ),
    "bzip2": Mistake(
        ("aggregate", "x.csv.bz2", "-o", "out.csv"),
        {"x.csv.bz2": bz2.compress(JUDGMENTS.encode())},
        ("180 judgments",),
        code=0,
    ),
    "web page": aggregate(LOGIN_PAGE, "x.csv", "HTML"),
    "PDF": aggregate(b"%PDF-1.7\n\x00\x01", "x.csv", "PDF", "CSV"),
    "folder without judgments": Mistake(
        ("aggregate", "labels"), {"labels/notes.txt": "to do"}, ("labels", "notes.txt")
    ),
    "file instead of a folder": Mistake(
        ("rank", "--model", "x.csv", "--features", "x.csv"), {"x.csv": JUDGMENTS}, ("x.csv", "folder")
    ),
    "missing file": Mistake(("aggregate", "x.csv"), {"x.cvs": JUDGMENTS}, ("x.csv", "x.cvs")),
    # Empty and damaged tables.
    "empty file": aggregate("", "x.csv"),
    "header only": aggregate(HEADER, "x.csv"),
    "no header": aggregate(rows(), "x.csv", "'q0-d0'", "--columns"),
    "no header in a TSV": Mistake(
        ("aggregate", "x.tsv"), {"x.tsv": rows(separator="\t")}, ("x.tsv", "'q0-d0'", "--columns")
    ),
    "column twice": aggregate(JUDGMENTS.replace("grade", "grade,grade", 1).replace("\n", ",1\n"), "x.csv", "'grade'"),
    "huge cell": aggregate(
        HEADER.replace("\n", ",comment\n")
        + rows().replace("\n", ",fine\n")
        + 'q9,d9,a,1,"'
        + "one, two\n" * 500_000
        + '"\n',
        "181 judgments",
        code=0,
    ),
    "broken JSON line": Mistake(
        ("aggregate", "x.jsonl", "-o", "out.csv"),
        {"x.jsonl": JSON_LINES + '{"query": "q", "document": \n'},
        ("x.jsonl, line 11", "--on-bad-rows skip"),
        then=("aggregate", "x.jsonl", "-o", "out.csv", "--on-bad-rows", "skip"),
    ),
    "qrels with three columns": Mistake(
        ("evaluate", "run.csv", "--expert", "x.qrels"),
        {"x.qrels": "q0 q0-d0 1\nq0 q0-d1 0\n", "run.csv": "query,document,score\nq0,q0-d0,1.5\n"},
        ("x.qrels, line 1", "query", "document", "grade"),
    ),
    # Columns.
    "unknown columns": aggregate(
        JUDGMENTS.replace("document", "thing").replace("grade", "stars"),
        "'thing', 'assessor', 'stars'",
        "--columns",
        then=("--columns", "document=thing,grade=stars"),
    ),
    "role of a column mistyped": aggregate(
        JUDGMENTS, "--columns", "'grad'", "'grade'", more=("--columns", "grad=grade")
    ),
    "query and document swapped": Mistake(
        ("validate", "x.csv"),
        {"x.csv": JUDGMENTS.replace("query,document", "document,query")},
        ("query", "--columns query=document,document=query"),
        code=0,
        then=("validate", "x.csv", "--columns", "query=document,document=query"),
    ),
    "grade and assessor swapped": aggregate(
        JUDGMENTS.replace("assessor,grade", "grade,assessor"),
        FIRST_GRADE,
        "'a'",
        then=("--columns", "grade=assessor,assessor=grade"),
    ),
    "no column for the assessor": aggregate(
        JUDGMENTS.replace("assessor", "by_whom"),
        "x.csv",
        "'by_whom'",
        "--columns assessor=",
        then=("--columns", "assessor=by_whom"),
    ),
    # Grades.
    "words as grades": aggregate(
        HEADER + rows(lambda number: ("Bad", "Fair", "Good")[number % 3]),
        FIRST_GRADE,
        "--grades",
        then=("--grades", "Bad,Fair,Good"),
    ),
    "words in different case": aggregate(
        HEADER + rows(lambda number: ("Bad", "bad", "Good ", "GOOD")[number % 4]),
        "180 judgments",
        "Bad,Good",
        more=("--grades", "Bad,Good"),
        code=0,
    ),
    "a word that is not a grade": aggregate(
        HEADER + rows(lambda number: ("Bad", "Good", "Goof")[number % 3]),
        "x.csv, row 5",
        "'Goof'",
        "--grades",
        more=("--grades", "Bad,Good"),
    ),
    "NA": aggregate(
        HEADER + rows(lambda number: (0, 1, "NA")[number % 3]),
        "x.csv, row 5 (line 6), column 'grade'",
        "--on-bad-rows skip",
        then=("--on-bad-rows", "skip"),
    ),
    "negative grades": aggregate(
        HEADER + rows(lambda number: number % 3 - 1),
        FIRST_GRADE,
        "-1",
        "--unjudgeable -1",
        then=("--unjudgeable", "-1"),
    ),
    "percent": aggregate(
        HEADER + rows(lambda number: f"{50 * (number % 3)}%"),
        FIRST_GRADE,
        "0%",
        "--grades",
        then=("--grades", "0%,50%,100%"),
    ),
    "grade off the scale": aggregate(
        JUDGMENTS,
        "x.csv, row ",
        "column 'grade'",
        "--grades",
        "--on-bad-rows skip",
        more=("--grades", "0,1"),
        then=("--grades", "0-2"),
    ),
    "one stray grade": Mistake(
        ("validate", "x.csv"),
        {"x.csv": HEADER + rows(assessors="abcdefgh" * 5) + "q0,q0-d0,z,30\n"},
        ("30", "--grades"),
        code=0,
    ),
    "forty grades": aggregate(HEADER + rows(lambda number: (number * 7) % 40), "--grades", code=0),
    # Assessors.
    "one assessor": Mistake(
        ("validate", "x.csv"), {"x.csv": HEADER + rows(assessors="a")}, ("Warning", "one assessor"), code=0
    ),
    "every document judged once": aggregate(
        HEADER + "".join(rows().splitlines(keepends=True)[number * 3 + number % 3] for number in range(60)),
        "Warning",
        code=0,
    ),
    # Expert grades and features.
    "experts on another scale": Mistake(
        RUN,
        {"x.csv": HEADER + rows(lambda number: number % 5), "gold.csv": gold(lambda number: number % 5 + 1)},
        ("Warning", "1-5", "0-4"),
        code=0,
    ),
    "experts with other queries": Mistake(
        RUN, {"x.csv": JUDGMENTS, "gold.csv": gold(query="z{}", document="z{}-d{}")}, ("'z0-d0'", "'q0-d0'", "ids")
    ),
    "leading zeros lost": Mistake(
        VALIDATE,
        {"x.csv": JUDGMENTS.replace("q", "00"), "gold.csv": gold(query="{}", document="{}-d{}")},
        ("'0-d0'", "'000-d0'"),
    ),
    "half of the leading zeros lost": Mistake(
        VALIDATE,
        {"x.csv": JUDGMENTS.replace("q0", "00"), "gold.csv": gold().replace("q0", "0")},
        ("Warning", "'0'", "'00'"),
        code=0,
    ),
    "ids of experts shifted": Mistake(
        VALIDATE,
        {"x.csv": numbered(100, ("a", "b")), "gold.csv": numbered(101, ())},
        ("Warning", "document id is -1"),
        code=0,
    ),
    "judgments as expert grades": Mistake(
        RUN,
        {"x.csv": JUDGMENTS, "gold.csv": JUDGMENTS},
        ("gold.csv", "'q0-d0'"),
    ),
    "leaked grades": Mistake(
        ("run", "--judgments", "x.csv", "--expert", "gold.csv", "--features", "f.csv", "-o", "out"),
        {"x.csv": JUDGMENTS, "gold.csv": gold(), "f.csv": FEATURES},
        ("popularity", "--allow-leak"),
    ),
    "leaked grades, checked first": Mistake(
        (*VALIDATE, "--features", "f.csv"),
        {"x.csv": JUDGMENTS, "gold.csv": gold(), "f.csv": FEATURES},
        ("'popularity'",),
        code=0,
    ),
    # Output.
    "output folder with other things": Mistake(
        RUN, {"x.csv": JUDGMENTS, "gold.csv": gold(), "out/thesis.txt": "mine"}, ("out", "thesis.txt")
    ),
    "output folder is a file": Mistake(RUN, {"x.csv": JUDGMENTS, "gold.csv": gold(), "out": "mine"}, ("out", "file")),
    "output is the input": Mistake(("aggregate", "x.csv", "-o", "x.csv"), {"x.csv": JUDGMENTS}, ("--output", "x.csv")),
    "output in a folder that is missing": Mistake(
        ("aggregate", "x.csv", "-o", "results/out.csv"), {"x.csv": JUDGMENTS}, ("results/out.csv", "folder")
    ),
    "output that may not be written": Mistake(
        ("aggregate", "x.csv", "-o", "/proc/out.csv"), {"x.csv": JUDGMENTS}, ("/proc/out.csv",)
    ),
    "output of an unknown kind": Mistake(
        ("aggregate", "x.csv", "-o", "out.xls"), {"x.csv": JUDGMENTS}, ("out.xls", ".csv", ".parquet")
    ),
    # Options.
    "option mistyped": Mistake(
        ("aggregate", "x.csv", "--gradess", "0-2"), {"x.csv": JUDGMENTS}, ("--gradess", "--grades")
    ),
    "command mistyped": Mistake(("agregate", "x.csv"), {"x.csv": JUDGMENTS}, ("agregate", "aggregate")),
    "method mistyped": Mistake(("aggregate", "x.csv", "-m", "gdaa"), {"x.csv": JUDGMENTS}, ("'gdaa'", "'gda'")),
    "parameter mistyped": Mistake(
        ("aggregate", "x.csv", "-s", "n_iterr=5"), {"x.csv": JUDGMENTS}, ("'n_iterr'", "'n_iter'")
    ),
    "judgments without their option": Mistake(
        ("run", "x.csv", "-o", "out"),
        {"x.csv": JUDGMENTS},
        ("x.csv", "--judgments x.csv"),
    ),
    "no judgments": Mistake(("run", "-o", "out"), {}, ("--judgments",)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, crowdrank: Terminal) -> None:
    mistake = MISTAKES[name]
    for path, content in mistake.files.items():
        crowdrank.path(path).parent.mkdir(parents=True, exist_ok=True)
        crowdrank.path(path).write_bytes(content.encode() if isinstance(content, str) else content)
    before = crowdrank.files()
    done = crowdrank(*mistake.words, code=mistake.code)
    told = " ".join((done.stdout + done.stderr).split())
    assert [text for text in mistake.shown if text not in told] == [], told
    if mistake.code:
        assert not done.stdout.strip() or mistake.words[0] == "validate"
        assert crowdrank.files() == before, "nothing is written"
        assert len(told) < 1500, "the message can be read"
    elif "-o" in mistake.words:
        assert crowdrank.path(mistake.words[mistake.words.index("-o") + 1]).exists()
    if mistake.then:
        crowdrank(*mistake.then)
