"""Preferences: reading, repeats, families, rows that cannot be used, and `crowdrank validate --preferences`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from crowdrank import Preferences, read_judgments, read_preferences, validate
from crowdrank.errors import InputError, UsageError
from crowdrank.on_disk.storage import load_preferences, save_preferences
from crowdrank.readers.preference_files import combine_preferences
from crowdrank.readers.read_options import Repeats
from crowdrank.readers.write import write_table
from terminal import crowdrank

ROWS: dict[str, list[Any]] = {
    "qid": ["q2", "q1", "q2", "q1"],
    "left": ["b", "a", "a", "a"],
    "right": ["a", "b", "c", "c"],
    "worker": ["x", "x", "y", "y"],
    "preference": [-1, 2, 0, 1],
}


def rows(table: Preferences) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_arrow().to_pylist()]


SORTED = [("q2", "b", "a", "x", -1), ("q2", "a", "c", "y", 0), ("q1", "a", "b", "x", 2), ("q1", "a", "c", "y", 1)]


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.parquet", "p.jsonl", "p.csv.gz"])
def test_files_and_frames_are_read_and_written_alike(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame(ROWS)
    table = read_preferences(frame)
    assert rows(table) == SORTED  # the positions are as given, rows are grouped by query
    assert rows(read_preferences(pl.DataFrame(ROWS))) == SORTED
    write_table(table.to_arrow(), tmp_path / name)
    again = read_preferences(tmp_path / name)
    assert rows(again) == SORTED
    assert again.report.columns["left"] == "left"
    assert again.frame.equals(table.frame)
    assert type(read_preferences(pl.DataFrame(ROWS)).frame).__module__.startswith("polars")


def test_words_and_numbers_are_answers() -> None:
    words = {**ROWS, "preference": ["Left", "2", "tie", "right"]}
    assert rows(read_preferences(pd.DataFrame(words))) == SORTED


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.jsonl"])
@pytest.mark.parametrize(
    ("left", "right", "winner"),
    [
        (["b", "a", "a"], ["a", "b", "c"], ["a", None, "a"]),
        (["b", "a", "a"], ["a", "b", "c"], ["Right", "tie", "left"]),
        ([2, 1, 1], [1, 2, 3], ["1", "tie", "1"]),
        ([2, 1, 1], [1, 2, 3], [1, None, 1]),
    ],
)
def test_the_winner_of_two_sides_is_an_id_or_a_side(
    tmp_path: Path, name: str, left: list[Any], right: list[Any], winner: list[Any]
) -> None:
    frame = pd.DataFrame({"left": left, "right": right, "winner": winner, "judge": "m"})
    write_table(pa.Table.from_pandas(frame), tmp_path / name)
    for table in (read_preferences(frame), read_preferences(tmp_path / name)):
        assert table.has_positions
        assert table.answer.tolist() == [1, 0, -1]
        assert [str(row[1]) for row in rows(table)] == list(map(str, left))
    mapped = read_preferences(frame.rename(columns={"winner": "best"}), columns={"winner": "best"})
    assert mapped.answer.tolist() == [1, 0, -1]


def test_a_winner_that_is_none_of_the_two_is_a_bad_row() -> None:
    frame = pd.DataFrame({"left": ["a", "a"], "right": ["b", "b"], "winner": ["c", "b"], "judge": "m"})
    with pytest.raises(InputError) as caught:
        read_preferences(frame)
    assert caught.value.kind == "not-a-preference"
    assert caught.value.location is not None
    assert caught.value.location.column == "winner"
    assert [fix.parameter for fix in caught.value.fixes] == [None, "on_bad_rows"]
    table = read_preferences(frame, on_bad_rows="skip")
    assert (table.answer.tolist(), sum(table.report.skipped.values())) == ([1], 1)


def test_a_preference_is_read_rather_than_a_winner() -> None:
    frame = pd.DataFrame({"left": ["a"], "right": ["b"], "preference": [-1], "winner": ["b"], "judge": "m"})
    assert read_preferences(frame).answer.tolist() == [-1]


def test_a_missing_column_is_asked_for_beside_the_winner() -> None:
    """Without sides of known names, a winner is no reason to ask for a column of preferences."""
    frame = pd.DataFrame({"Left URL": ["a"], "Right URL": ["b"], "winner": ["b"], "judge": "m"})
    with pytest.raises(InputError) as refused:
        read_preferences(frame)
    assert "preference" not in re.findall(r"\w+(?==NAME)", str(refused.value))
    table = read_preferences(frame, columns={"left": "Left URL", "right": "Right URL"})
    assert table.answer.tolist() == [1]


def test_new_preferences_follow_those_so_far() -> None:
    so_far, new = (read_preferences(pd.DataFrame({**ROWS, "worker": [name] * 4})) for name in "xz")
    assert rows(combine_preferences(None, new)) == rows(new)
    assert sorted(rows(combine_preferences(so_far, new))) == sorted(rows(so_far) + rows(new))


def test_winners_and_losers_have_no_positions(tmp_path: Path) -> None:
    frame = pd.DataFrame({"qid": ["q", "q"], "winner": ["a", "c"], "loser": ["b", "a"], "judge": "m"})
    table = read_preferences(frame)
    assert not table.has_positions
    assert rows(table) == [("q", "a", "b", "m"), ("q", "c", "a", "m")]
    assert table.frame.columns.tolist() == ["query", "winner", "loser", "assessor"]
    write_table(table.to_arrow(), tmp_path / "winners.csv")
    assert rows(read_preferences(tmp_path / "winners.csv")) == rows(table)
    pd.DataFrame(ROWS).to_csv(tmp_path / "sides.csv", index=False)
    with pytest.raises(InputError) as error:
        read_preferences([tmp_path / "winners.csv", tmp_path / "sides.csv"])
    assert error.value.kind == "positions-differ"


def test_several_files_are_one_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS)
    frame[:2].to_csv(tmp_path / "1.csv", index=False)
    frame[2:].to_csv(tmp_path / "2.csv", index=False)
    assert rows(read_preferences(tmp_path)) == SORTED
    assert rows(read_preferences(str(tmp_path / "*.csv"))) == SORTED


def test_a_file_without_assessors_is_one_assessor(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS).drop(columns="worker")
    frame.to_csv(tmp_path / "ann.csv", index=False)
    table = read_preferences(tmp_path / "ann.csv")
    assert table.assessors.to_pylist() == ["ann"]
    assert [note.kind for note in table.report.notes] == ["assessor-from-file-name"]
    assert read_preferences(tmp_path / "ann.csv", assessor_name="bob").assessors.to_pylist() == ["bob"]
    with pytest.raises(InputError) as error:
        read_preferences(frame)
    assert error.value.kind == "no-column"
    pd.concat([frame, frame]).to_csv(tmp_path / "ann.csv", index=False)
    with pytest.raises(InputError) as hidden:
        read_preferences(tmp_path / "ann.csv")
    assert hidden.value.fixes[0].parameter == "columns"


def test_repeats_are_counted_and_one_is_used() -> None:
    repeated = {name: [*column, column[0]] for name, column in ROWS.items()} | {"preference": [-1, 2, 0, 1, 1]}
    frame = pd.DataFrame(repeated)
    last = read_preferences(frame)
    assert last.report.repeats == 1
    assert dict(last.report.repeats_by_assessor) == {"x": (1, 0)}
    assert [row[-1] for row in rows(last) if row[:4] == ("q2", "b", "a", "x")] == [1]
    assert ("q2", "b", "a", "x", -1) in rows(read_preferences(frame, repeats="first"))
    assert len(read_preferences(frame, repeats="keep")) == 5
    with pytest.raises(InputError) as error:
        read_preferences(frame, repeats="error")
    assert error.value.location.place == "row 5"


def test_contradictions_of_both_orders_are_counted_and_kept() -> None:
    frame = pd.DataFrame(
        {"left": ["a", "b", "a", "b"], "right": ["b", "a", "c", "c"], "assessor": "x", "preference": [-1, -1, 1, -1]}
    )
    table = read_preferences(frame)
    assert (len(table), table.contradictions, table.report.repeats) == (4, 1, 0)
    winners = pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "a"], "judge": "x"})
    assert read_preferences(winners).report.repeats == 1  # without positions it is the same question


@pytest.mark.parametrize(("repeats", "n_used"), [("last", 2), ("first", 2), ("keep", 5)])
def test_contradictions_of_winners_and_losers_are_counted_before_repeats_are_left_out(
    tmp_path: Path, repeats: Repeats, n_used: int
) -> None:
    frame = pd.DataFrame({"winner": list("abacc"), "loser": list("babaa"), "judge": "x"})
    table = read_preferences(frame, repeats=repeats)
    assert (len(table), table.contradictions, table.report.repeats) == (n_used, 1, 3)
    save_preferences(table, tmp_path / "saved.parquet")
    assert load_preferences(tmp_path / "saved.parquet").contradictions == 1
    messages = validate(preferences=frame, preference_options={"repeats": repeats}).inputs["preferences"].messages
    assert [one.kind for one in messages].count("contradictions") == 1


def test_families_are_those_of_judgments() -> None:
    frame = pd.DataFrame({**ROWS, "family": ["f", "f", None, None]})
    table = read_preferences(frame)
    assert table.families is not None
    assert table.assessor_family is not None
    assert (table.families.to_pylist(), table.assessor_family.tolist()) == (["f"], [0, -1])
    assert table.frame["family"].tolist()[0] == "f"
    by_pattern = read_preferences(pd.DataFrame(ROWS), family_pattern="(.)")
    assert by_pattern.families is not None
    assert by_pattern.families.to_pylist() == ["x", "y"]
    with pytest.raises(InputError) as error:
        read_preferences(pd.DataFrame({**ROWS, "family": ["f", "g", "h", "h"]}))
    assert (error.value.location.place, error.value.kind) == ("row 2", "another-family")


BAD_ROWS = [
    ("left", "c", "same-document", "right"),
    ("left", "", "missing-cell", "left"),
    ("preference", "maybe", "not-a-preference", "preference"),
    ("preference", "3", "not-a-preference", "preference"),
    ("preference", "0.5", "not-a-preference", "preference"),
    ("preference", "", "missing-cell", "preference"),
    ("worker", "", "missing-cell", "worker"),
]


@pytest.mark.parametrize(("column", "cell", "kind", "named"), BAD_ROWS)
def test_a_bad_row_is_an_error_or_counted(tmp_path: Path, column: str, cell: str, kind: str, named: str) -> None:
    frame = pd.DataFrame(ROWS).astype(str)
    frame.loc[3, column] = cell
    frame.to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(InputError) as error:
        read_preferences(tmp_path / "p.csv")
    assert (error.value.kind, error.value.location.column) == (kind, named)
    assert error.value.location.place == "row 4 (line 5)"
    skipped = read_preferences(tmp_path / "p.csv", on_bad_rows="skip")
    assert rows(skipped) == SORTED[:3]
    assert sum(skipped.report.skipped.values()) == 1
    assert set(skipped.report.skipped) <= {*skipped.report.examples}
    with pytest.raises(InputError) as nothing:
        read_preferences(frame[3:], on_bad_rows="skip")
    assert nothing.value.kind == "no-rows-left"


@pytest.mark.parametrize("name", ["p.parquet", "p.jsonl", "frame"])
def test_bad_rows_of_other_formats_are_errors_or_counted(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({**ROWS, "right": ["a", "b", "c", "a"]})
    if name == "p.parquet":
        frame.to_parquet(tmp_path / name)
    elif name == "p.jsonl":
        frame.to_json(tmp_path / name, orient="records", lines=True)
    source = frame if name == "frame" else tmp_path / name
    with pytest.raises(InputError) as error:
        read_preferences(source)
    assert (error.value.kind, error.value.location.column) == ("same-document", "right")
    skipped = read_preferences(source, on_bad_rows="skip")
    assert (len(skipped), dict(skipped.report.skipped)) == (3, {"a document against itself": 1})


def test_documents_in_cycles_are_counted() -> None:
    rows = {"left": ["a", "b", "c", "a", "e", "e"], "right": ["b", "c", "a", "d", "f", "f"], "assessor": list("xyzxxy")}
    frame = pd.DataFrame({**rows, "preference": [-1, -1, -1, -1, -1, 1]})
    table = read_preferences(frame)
    assert table.n_cyclic_documents == 3
    notes = validate(None, preferences=frame).inputs["preferences"].messages
    assert [note.kind for note in notes] == ["cycles"]
    assert read_preferences(frame[1:]).n_cyclic_documents == 0
    turned = frame.rename(columns={"left": "right", "right": "left"}).assign(preference=-frame["preference"])
    assert read_preferences(turned).n_cyclic_documents == 3


def test_grades_and_preferences_are_not_confused() -> None:
    grades = pd.DataFrame({"query": ["q"], "document": ["a"], "assessor": ["x"], "grade": [1]})
    with pytest.raises(InputError) as error:
        read_preferences(grades)
    assert error.value.kind == "is-judgments"
    for frame in (pd.DataFrame(ROWS), pd.DataFrame({"winner": ["a"], "loser": ["b"], "assessor": ["x"]})):
        with pytest.raises(InputError) as other:
            read_judgments(frame)
        assert other.value.kind == "is-preferences"


def test_answers_on_one_side_only_are_a_warning() -> None:
    n = 30
    frame = pd.DataFrame(
        {"left": range(n), "right": range(1, n + 1), "assessor": "x", "preference": [i % 2 for i in range(n)]}
    )
    assert [note.kind for note in read_preferences(frame).report.notes] == ["one-sided"]
    assert not read_preferences(frame.assign(preference=frame["preference"] * 2 - 1)).report.notes


def test_assessors_can_be_excluded() -> None:
    table = read_preferences(pd.DataFrame(ROWS), exclude=["y"])
    assert (table.report.excluded, table.assessors.to_pylist(), table.documents.to_pylist()) == (2, ["x"], ["b", "a"])
    with pytest.raises(UsageError):
        read_preferences(pd.DataFrame(ROWS), columns="first=left")


def test_validate_counts_and_compares_preferences() -> None:
    labels = pd.DataFrame({"query": ["q1", "q2"], "document": ["a", "a"], "assessor": "x", "grade": [1, 0]})
    report = validate(labels, preferences=pd.DataFrame(ROWS))
    assert report.is_valid
    facts = report.inputs["preferences"].facts
    assert (facts["preferences"], facts["documents"]) == ("4", "6")
    assert facts["answers"] == "left: 25.0%, tie: 25.0%, right: 25.0%, right, much: 25.0%"
    assert [(note.kind, note.severity) for note in report.fit] == [("partial-overlap", "note")]
    unknown = validate(labels, preferences=pd.DataFrame({**ROWS, "qid": ["r"] * 4}))
    assert [note.kind for note in unknown.problems] == ["nothing-in-common"]
    assert [one.kind for one in validate(None, preferences=labels).problems] == ["is-judgments"]


def test_the_command_validates_preferences(tmp_path: Path) -> None:
    frame = pd.DataFrame({**ROWS, "left": ["b", "a", "a", "c"]})
    frame.to_csv(tmp_path / "p.csv", index=False)
    done = crowdrank("validate", "--preferences", "p.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "a document against itself" in done.stdout
    assert "--preferences-on-bad-rows skip" in done.stdout
    words = ("validate", "--preferences", "p.csv", "--preferences-on-bad-rows", "skip", "--json")
    skipped = crowdrank(*words, cwd=tmp_path)
    assert skipped.returncode == 0, skipped.stderr
    assert json.loads(skipped.stdout)["inputs"]["preferences"]["facts"]["preferences"] == "3"
    wrong = crowdrank("validate", "p.csv", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "give the file as preferences" in wrong.stderr


def test_errors_name_the_row_of_the_second_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({**ROWS, "family": ["f"] * 4})
    frame.to_csv(tmp_path / "1.csv", index=False)
    frame[2:].assign(family=["f", "g"]).to_csv(tmp_path / "2.csv", index=False)
    with pytest.raises(InputError) as error:
        read_preferences(tmp_path)
    assert error.value.location.source.endswith("2.csv")
    assert error.value.location.place == "row 2 (line 3)"
    with pytest.raises(InputError) as repeated:
        read_preferences([tmp_path / "1.csv", tmp_path / "1.csv"], repeats="error")
    assert repeated.value.location.place == "row 1 (line 2)"
