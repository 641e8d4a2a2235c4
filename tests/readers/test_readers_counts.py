"""Every row that is read and not used is counted by reason."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_readers_platforms import LABEL_STUDIO, MTURK, OPENSEARCH, QUEPID, RADIO, TOLOKA

from crowdrank import Gold, Judgments, read_gold, read_judgments
from crowdrank.errors import InputError
from crowdrank.judgments.summary import inspect
from judgments_reference import table_of

RF10 = "topicID\tworkerID\tdocID\tgold\tlabel\n1\tw1\td1\t-1\t0\n1\tw2\td1\t-1\t1\n1\tw1\td2\t2\t1\n1\tw2\td2\t2\t2\n"


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def uncounted(read: Judgments | Gold) -> int:
    """Return the number of rows that were read, and neither used nor counted."""
    report = read.report
    return report.rows - len(read) - report.repeats - report.excluded - sum(report.skipped.values())


def changed(value: Any, **changes: Any) -> Any:
    made = copy.deepcopy(value)
    made[0].update(changes)
    return made


@pytest.mark.parametrize(
    ("name", "content", "skipped"),
    [
        ("a.tsv", TOLOKA, {"assignment rejected": 1, "no worker": 1}),
        ("a.tsv", TOLOKA.replace("REJECTED", "EXPIRED"), {"assignment expired": 1, "no worker": 1}),
        ("a.tsv", TOLOKA.replace("REJECTED", "odd"), {"assignment in an unknown state": 1, "no worker": 1}),
        ("a.csv", MTURK, {"assignment rejected": 1}),
        ("a.csv", MTURK.replace('"W2"', '""'), {"assignment rejected": 1, "no worker": 1}),
        ("a.csv", RADIO, {}),
        ("a.csv", QUEPID, {}),
        ("a.csv", QUEPID + "jam,d3,,,\n", {"no rating": 1}),
        ("a.json", OPENSEARCH, {}),
        ("a.json", [OPENSEARCH, {"judgmentRatings": None}], {"judgment list without ratings": 1}),
        (
            "a.json",
            {"judgmentRatings": [*OPENSEARCH["judgmentRatings"], {"query": "x", "ratings": []}]},
            {"query without ratings": 1},
        ),
        (
            "a.json",
            {
                "judgmentRatings": [
                    {**OPENSEARCH["judgmentRatings"][0], "failures": [{"docId": "d8"}, {"docId": "d9"}]},
                    OPENSEARCH["judgmentRatings"][1],
                    {"query": "x", "failures": [{"docId": "d1"}]},
                ]
            },
            {"document that the LLM did not rate": 3, "query without ratings": 1},
        ),
        (
            "a.json",
            changed(LABEL_STUDIO, predictions=[{"result": []}, {"result": []}]),
            {
                "annotation canceled": 1,
                "prediction": 2,
                "ground-truth annotation": 1,
                "task without annotations": 1,
            },
        ),
    ],
)
def test_rows_that_a_platform_marks_as_unused_are_counted(
    name: str, content: Any, skipped: dict[str, int], tmp_path: Path
) -> None:
    judgments = read_judgments(put(tmp_path, name, content))
    assert judgments.report.skipped == skipped
    assert uncounted(judgments) == 0
    inspection = inspect(judgments)
    assert inspection.problems == [], "a rejected assignment is no fault of the file"
    assert sum(remark.kind == "rows-left-out" for remark in inspection.messages) == len(skipped)


def test_malformed_annotations_are_refused_or_counted(tmp_path: Path) -> None:
    tasks = copy.deepcopy(LABEL_STUDIO)
    tasks[0]["annotations"] += [7, None, ["x"]]
    path = put(tmp_path, "a.json", tasks)
    with pytest.raises(InputError, match="task 1: 7 is not expected here"):
        read_judgments(path)
    judgments = read_judgments(path, on_bad_rows="skip")
    assert judgments.report.skipped["malformed line"] == 3
    assert uncounted(judgments) == 0
    assert len(inspect(judgments).problems) == 1


def test_several_ticked_values_are_no_grade(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", RADIO.replace("d1,false,false,true", "d1,true,false,true"))
    with pytest.raises(InputError, match=r"'0\|2' is not a grade"):
        read_judgments(path)
    judgments = read_judgments(path, on_bad_rows="skip")
    assert judgments.report.skipped == {"grade off the scale": 1}
    assert uncounted(judgments) == 0


def test_an_export_without_a_usable_row_is_refused_with_its_counts(tmp_path: Path) -> None:
    for name, content, counted in [
        ("a.csv", MTURK.replace("Approved", "Rejected").replace("Submitted", "Rejected"), "assignment rejected: 3"),
        ("a.json", [{"id": 1, "data": {"query": "q"}, "annotations": []}], "task without annotations: 1"),
    ]:
        with pytest.raises(InputError, match=counted):
            read_judgments(put(tmp_path, name, content))


def test_rows_of_gold_are_counted(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", RF10)
    gold = read_gold(path, format="trec-rf10")
    assert gold.report.skipped == {"no gold grade": 2}
    assert (len(gold), gold.report.rows, gold.report.repeats, uncounted(gold)) == (1, 4, 1, 0)
    frame = pd.DataFrame({"document": ["a", "b", "c"], "grade": [1, -1, 0]})
    gold = read_gold(frame, unjudgeable=-1, unjudgeable_as="drop")
    assert gold.report.skipped == {"cannot judge": 1}
    assert uncounted(gold) == 0


def test_expert_grades_of_unjudged_documents_are_counted() -> None:
    judgments = read_judgments(table_of([("q", "a", "x", 0), ("q", "b", "x", 1)]))
    gold = read_gold(pd.DataFrame({"query": "q", "document": ["a", "c", "d"], "grade": [0, 1, 1]}))
    assert gold.n_unjudged(judgments) == 2


CELL = st.sampled_from(["a", "b", " a", "", "0", "1", "2", "x", "nan", "-1"])


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=12),
    repeats=st.sampled_from(["last", "first"]),
    exclude=st.sampled_from([None, ["a"], ["a", "x"]]),
)
def test_no_row_is_lost(rows: list[tuple[str, ...]], repeats: str, exclude: list[str] | None) -> None:
    options: dict[str, Any] = {"repeats": repeats, "exclude": exclude, "unjudgeable": "-1", "on_bad_rows": "skip"}
    try:
        judgments = read_judgments(table_of(rows), grades="0-2", **options)
    except InputError:  # no row can be used, or the grades are names
        return
    assert judgments.report.rows == len(rows)
    assert uncounted(judgments) == 0
