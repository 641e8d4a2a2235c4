"""What platforms export is recognized and read: small files in the layouts that they document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crowdrank import Judgments, read_gold, read_judgments
from crowdrank.errors import CrowdrankError, Fix, InputError
from crowdrank.readers.combine import combine
from judgments_reference import check
from judgments_reference import rows as whole_rows

TOLOKA = (
    "INPUT:query\tINPUT:docid\tOUTPUT:result\tGOLDEN:result\tHINT:text\tASSIGNMENT:link\tASSIGNMENT:assignment_id\t"
    "ASSIGNMENT:task_id\tASSIGNMENT:worker_id\tASSIGNMENT:status\tASSIGNMENT:started\tASSIGNMENT:submitted\t"
    "ASSIGNMENT:reward\n"
    "jam\td1\t2\t\t\tx\ta1\tt1\tw1\tAPPROVED\t2024-05-31T10:15:00\t2024-05-31T10:16:00\t0.01\n"
    "jam\td1\t1\t2\t\tx\ta2\tt1\tw2\tSUBMITTED\t2024-05-31T10:15:00\t2024-05-31T10:17:00\t0.01\n"
    "jam\td2\t0\t\t\tx\ta3\tt2\tw3\tREJECTED\t2024-05-31T10:15:00\t2024-05-31T10:17:00\t0.01\n"
    "jam\td3\t\t\t\t\t\tt3\t\t\t\t\t\n"
)
MTURK = (
    '"HITId","Reward","AssignmentId","WorkerId","AssignmentStatus","SubmitTime","WorkTimeInSeconds","Input.query",'
    '"Input.document","Answer.grade","Approve","Reject"\n'
    '"H1","$0.05","A1","W1","Approved","Fri Nov 07 12:38:00 PST 2014","17","jam","d1","2","x",""\n'
    '"H1","$0.05","A2","W2","Submitted","Fri Nov 07 12:39:00 PST 2014","8","jam","d1","1","",""\n'
    '"H2","$0.05","A3","W3","Rejected","Fri Nov 07 12:39:00 PST 2014","1","jam","d2","0","","spam"\n'
)
RADIO = (
    "HITId,WorkerId,AssignmentStatus,Input.query,Input.document,Answer.grade.0,Answer.grade.1,Answer.grade.2\n"
    "H1,W1,Approved,jam,d1,false,false,true\nH1,W2,Approved,jam,d1,FALSE,TRUE,FALSE\n"
)
QUEPID = 'query,docid,Ann Lee,bob@x.org, =eve\n"jam, sweet",d1,2,1,\njam,d2,,,0\n'
OPENSEARCH: dict[str, Any] = {
    "name": "Imported",
    "type": "IMPORT_JUDGMENT",
    "judgmentRatings": [
        {"query": "jam", "ratings": [{"docId": "d1", "rating": "2.000"}, {"docId": "d2", "rating": "0.0"}]},
        {"query": "tea", "ratings": [{"docId": "d1", "rating": "1"}]},
    ],
}
LABEL_STUDIO: list[Any] = [
    {
        "id": 1,
        "data": {"query": "jam", "document": "d1", "text": "..."},
        "annotations": [
            {
                "id": 7,
                "completed_by": 10,
                "was_canceled": False,
                "ground_truth": False,
                "lead_time": 4.25,
                "created_at": "2021-03-09T22:16:08.728353Z",
                "result": [{"type": "choices", "value": {"choices": ["2"]}, "from_name": "grade", "to_name": "text"}],
            },
            {"completed_by": {"id": 11, "email": "bob@x.org"}, "result": [{"value": {"rating": 1}}]},
            {"completed_by": 12, "was_canceled": True, "result": []},
            {"completed_by": 13, "ground_truth": True, "result": [{"value": {"rating": 2}}]},
        ],
        "predictions": [],
    },
    {"id": 2, "data": {"query": "jam", "document": "d2"}, "annotations": []},
]
READ = [("jam", "d1", "w1", "2"), ("jam", "d1", "w2", "1")]


def rows(judgments: Judgments) -> list[tuple[str, ...]]:
    """Query, document, assessor and grade."""
    return [tuple(row[:4]) for row in whole_rows(judgments)]


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", ["assignments.tsv", "assignments.txt"])
def test_toloka(tmp_path: Path, name: str) -> None:
    judgments = read_judgments(put(tmp_path, name, TOLOKA))
    check(judgments)
    assert rows(judgments) == READ
    assert judgments.extras["honeypot"].tolist() == [-2, 1]
    assert judgments.extras["cost"].tolist() == [0.01, 0.01]
    assert judgments.report.units == {}, "of what a reward is, Toloka's file does not say"
    assert str(judgments.extras["time"][1]) == "2024-05-31T10:17:00.000000"
    assert rows(read_judgments(tmp_path / name, columns="grade=GOLDEN:result", on_bad_rows="skip"))[0][3] == "2"


def test_toloka_with_several_outputs_needs_a_name(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tsv", TOLOKA.replace("HINT:text", "OUTPUT:comment"))
    with pytest.raises(CrowdrankError, match="no column for grade") as error:
        read_judgments(path)
    assert error.value.fix == Fix("name them with {}", "columns", "grade=NAME")
    assert rows(read_judgments(path, columns="grade=OUTPUT:result")) == READ


def test_mturk(tmp_path: Path) -> None:
    judgments = read_judgments(put(tmp_path, "batch.csv", MTURK))
    assert rows(judgments) == [(q, d, who.upper(), grade) for q, d, who, grade in READ]
    assert judgments.extras["duration"].tolist() == [17, 8]
    assert judgments.extras["cost"].tolist() == [0.05, 0.05]
    assert judgments.report.units == {"duration": "seconds", "cost": "US dollars"}
    assert judgments.extras["time"].astype(str).tolist() == ["2014-11-07T20:38:00.000000", "2014-11-07T20:39:00.000000"]
    by_the_api = MTURK.replace("Fri Nov 07 12:38:00 PST 2014", "2014-11-07T20:38:00Z")
    again = read_judgments(put(tmp_path, "api.csv", by_the_api))
    assert again.extras["time"].tolist() == judgments.extras["time"].tolist()
    with pytest.raises(InputError, match="'yesterday' is not a time"):
        read_judgments(put(tmp_path, "odd.csv", MTURK.replace("Fri Nov 07 12:38:00 PST 2014", "yesterday")))
    assert rows(read_judgments(put(tmp_path, "radio.csv", RADIO))) == rows(judgments)


def test_quepid(tmp_path: Path) -> None:
    judgments = read_judgments(put(tmp_path, "book_1_export.csv", QUEPID))
    assert sorted(rows(judgments)) == [
        ("jam", "d2", "=eve", "0"),
        ("jam, sweet", "d1", "Ann Lee", "2"),
        ("jam, sweet", "d1", "bob@x.org", "1"),
    ]


def test_opensearch(tmp_path: Path) -> None:
    path = put(tmp_path, "judgments.json", OPENSEARCH)
    expected = [("jam", "d1", 2), ("jam", "d2", 0), ("tea", "d1", 1)]
    assert [tuple(row) for row in read_gold(path).frame.to_numpy().tolist()] == expected
    assert read_judgments(path).assessors.to_pylist() == ["judgments"]
    early = {"judgmentRatings": {one["query"]: one["ratings"] for one in OPENSEARCH["judgmentRatings"]}}
    found = {"hits": {"total": 1, "hits": [{"_id": "x", "_source": early}]}}
    for other in (early, found):
        assert [tuple(row) for row in read_gold(put(tmp_path, "b.json", other)).frame.to_numpy().tolist()] == expected


def test_label_studio(tmp_path: Path) -> None:
    judgments = read_judgments(put(tmp_path, "project.json", LABEL_STUDIO))
    assert rows(judgments) == [("jam", "d1", "10", "2"), ("jam", "d1", "bob@x.org", "1")]
    assert judgments.extras["honeypot"].tolist() == [1, 1]
    assert judgments.extras["duration"][0] == 4.25
    assert judgments.report.units == {"duration": "seconds"}
    flat = [{"id": 1, "query": "jam", "document": "d1", "grade": "2", "annotator": 3, "lead_time": 1.5}]
    assert rows(read_judgments(put(tmp_path, "min.json", flat))) == [("jam", "d1", "3", "2")]


def test_label_studio_knows_a_task_by_its_number(tmp_path: Path) -> None:
    tasks = [
        {"id": 5, "data": {"text": "x"}, "annotations": [{"completed_by": 1, "result": [{"value": {"rating": 3}}]}]}
    ]
    assert rows(read_judgments(put(tmp_path, "a.json", tasks))) == [("all", "5", "1", "3")]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", "{", "it is not JSON"),
        ("a.json", '"x"', "neither tasks of Label Studio"),
        ("a.json", "[]", "there are no rows"),
        ("a.json", [{"data": 1}], "a task has data and a list of annotations"),
        ("a.json", {"judgmentRatings": [{"query": "x", "ratings": [1]}]}, "docId and rating"),
        ("a.json", [{"data": {}, "annotations": [{"completed_by": 1, "result": []}]}], "no column for document"),
        ("book.csv", "query,docid,ann\njam,d1,\n", "there are no rows"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, content: Any, words: str) -> None:
    with pytest.raises(CrowdrankError, match=words):
        read_judgments(put(tmp_path, name, content))


def test_rows_are_named_as_they_stand_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(CrowdrankError, match=r"row 2 \(line 3\).*'x' is not a grade"):
        read_judgments(put(tmp_path, "book.csv", "query,docid,ann,bob\njam,d1,1,2\njam,d2,,x\n"))
    with pytest.raises(CrowdrankError, match=r"task 1, column 'grade': 'x' is not a grade"):
        read_judgments(put(tmp_path, "a.json", json.dumps(LABEL_STUDIO).replace('["2"]', '["x"]')))


def test_a_format_that_it_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrowdrankError, match="it is not an export of toloka"):
        read_judgments(put(tmp_path, "a.csv", MTURK), format="toloka", separator=",")


def test_files_without_a_telling_name_are_looked_into(tmp_path: Path) -> None:
    assert len(read_gold(put(tmp_path, "a.txt", "2 qid:10 1:0.5 # docid = d\n0 qid:10 1:0.1\n"))) == 2
    assert len(read_gold(put(tmp_path, "b.dat", "1 0 d1 2\n1 0 d2 0\n"))) == 2
    assert len(read_gold(put(tmp_path, "c", OPENSEARCH))) == 3
    with pytest.raises(CrowdrankError, match="shows the format"):
        read_gold(put(tmp_path, "d.txt", "some words in a row\n"))


def test_a_table_of_features_is_no_book(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "query,docid,grade,bm25\njam,d1,2,0.5\n")
    assert read_gold(path).frame["grade"].tolist() == [2]


def test_a_column_called_seconds_is_in_seconds() -> None:
    frame = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1], "seconds": [3.5], "price": [1]})
    assert read_judgments(frame).report.units == {"duration": "seconds"}
    other = frame.rename(columns={"seconds": "duration"})
    assert read_judgments(other).report.units == {}
    assert combine(read_judgments(frame), read_judgments(other.assign(document="b"))).report.units == {}


def annotation(assessor: int, *answers: tuple[str, str, Any], **fields: Any) -> dict[str, Any]:
    """Return an annotation of Label Studio with answers to questions: name, kind and answer."""
    result = [{"from_name": name, "value": {kind: answer}} for name, kind, answer in answers]
    return {"completed_by": assessor, "result": result, **fields}


def task(*annotations: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"query": "jam", "document": "d1"}, "annotations": list(annotations)}


def test_all_answers_of_label_studio_are_used_or_reported(tmp_path: Path) -> None:
    tasks = [
        task(
            annotation(1, ("relevance", "choices", ["2"]), ("why", "text", ["long"]), ("sure", "rating", 4)),
            annotation(2, ("sure", "rating", 1), ("relevance", "choices", ["0"])),
            annotation(3, ("relevance", "choices", ["0", "2"])),
            annotation(4, ("relevance", "choices", ["1"]), ("relevance", "choices", ["2"])),
            annotation(5, ("relevance", "choices", ["1"]), ("relevance", "choices", ["1"])),
            annotation(6, ("relevance", "choices", ["2"]), ("sure", "rating", 4), ground_truth=True),
        )
    ]
    judgments = read_judgments(put(tmp_path, "a.json", tasks))
    assert rows(judgments) == [("jam", "d1", "1", "2"), ("jam", "d1", "2", "0"), ("jam", "d1", "5", "1")]
    assert judgments.report.skipped == {"several labels": 2, "ground-truth annotation": 1}
    assert judgments.extras["honeypot"].tolist() == [2, 2, 2]
    (note,) = judgments.report.notes
    assert note.kind == "answers-not-used"
    assert "'why' (1), 'sure' (2)" in note.problem


def test_questions_of_label_studio_without_a_known_name_are_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", [task(annotation(1, ("topical", "rating", 2), ("assessor", "rating", 0)))])
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert (caught.value.kind, caught.value.fixes[0].parameter) == ("no-column", "columns")
    assert rows(read_judgments(path, columns="grade=topical")) == [("jam", "d1", "1", "2")]
    assert rows(read_judgments(path, columns="grade=assessor (answer)")) == [("jam", "d1", "1", "0")]


def test_texts_of_label_studio_are_grades_if_nothing_else_is(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", [task(annotation(1, ("answer", "text", ["2"])))])
    assert rows(read_judgments(path)) == [("jam", "d1", "1", "2")]


@pytest.mark.parametrize(
    "content",
    [
        "query,docid,bm25,length\njam,d1,1.25,3\n",
        "query,docid,clicks\njam,d1,120\n",
        "query,docid,p0,p1\njam,d1,0,1\n",
        "query,docid,title\njam,d1,Jam\n",
        "query,docid,score\njam,d1,2\n",
        "query,docid,change\njam,d1,-1\n",
    ],
)
def test_other_tables_are_no_books_of_quepid(content: str, tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", content)
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "no-column"


def test_a_book_of_quepid_is_noted_and_can_be_overruled(tmp_path: Path) -> None:
    path = put(tmp_path, "book.csv", "query,docid,ann,bob\njam,d1,2,\njam,d2,0,1\n")
    (note,) = read_judgments(path).report.notes
    assert note.kind == "quepid-book"
    assert note.fix is not None
    assert (note.fix.parameter, note.fix.value) == ("format", "csv")
    assert rows(read_judgments(path, format="csv", columns="grade=ann", on_bad_rows="skip"))[0][2:] == ("book", "2")
    sure = put(tmp_path, "sure.csv", "query,docid,ann\njam,d1,50\n")
    assert rows(read_judgments(sure, format="quepid")) == [("jam", "d1", "ann", "50")]
