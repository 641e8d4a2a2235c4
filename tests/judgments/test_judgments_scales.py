# ruff: noqa: E501 - a sentence is checked as it is read: on one line
"""Grades: named, one scale or several, 'cannot judge', honeypots, families, excluded assessors, times."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crowdrank import DawidSkene, MajorityVote, evaluate, read_gold, read_judgments
from crowdrank.errors import CrowdrankError, Fix, InputError, UsageError
from crowdrank.judgments.ids import MIN_ROWS_FOR_HASH_TABLE
from crowdrank.judgments.scale import Scale, parse_integer
from crowdrank.judgments.table import Judgments
from crowdrank.readers.cells import encode_distinct, parse_extras
from judgments_reference import check, rows

MIXED = pd.DataFrame(
    {
        "document": ["a", "a", "a", "b", "b", "b"],
        "assessor": ["gpt-1", "gpt-2", "ann", "gpt-1", "gpt-2", "ann"],
        "grade": ["4", "0", "Good", "2", "skip", "Bad"],
        "honeypot": ["3", "1", "Good", None, None, None],
        "family": ["gpt", "gpt", None, "gpt", "gpt", None],
    }
)


def scales(folder: Path, *lines: str) -> Path:
    path = folder / "scales.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def mixed(folder: Path, *lines: str, **options: Any) -> Judgments:
    return read_judgments(MIXED, scales=scales(folder, *lines), unjudgeable="Skip", **options)


MAPPED = ("assessor,grades,maps_to", "gpt-*,0-4,0|0|1|1|2", "*,Bad|Good,0|2")


def test_named_grades_are_in_the_order_given() -> None:
    frame = pd.DataFrame({"document": ["a", "b", "c"], "assessor": "x", "grade": [" good", "BAD", "Fair"]})
    judgments = read_judgments(frame, grades="Bad,Fair,Good")
    assert judgments.grade.tolist() == [2, 0, 1]
    assert judgments.frame["grade"].tolist() == ["Good", "Bad", "Fair"]
    assert judgments.scale.values == (0.0, 1.0, 2.0)


def test_a_scale_is_taken_as_it_is() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["Good", "Bad"]})
    scale = Scale.parse("Bad,Fair,Good")
    assert read_judgments(frame, grades=scale).scale == scale
    assert read_gold(frame.drop(columns="assessor"), grades=scale).scale == scale


def test_a_scale_that_is_a_number_is_refused() -> None:
    frame = pd.DataFrame({"document": ["a"], "assessor": "x", "grade": [1]})
    with pytest.raises(UsageError) as caught:
        read_judgments(frame, grades=3)  # type: ignore[arg-type]
    assert caught.value.message.parameter == "grades"


def test_names_between_bars_may_have_commas() -> None:
    grades = "Müll|geht so|gut|Volltreffer, perfekt"
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["Volltreffer, perfekt", "Müll"]})
    judgments = read_judgments(frame, grades=grades)
    assert judgments.grade.tolist() == [3, 0]
    assert str(judgments.scale) == grades
    assert Scale.parse(str(judgments.scale)) == judgments.scale


@pytest.mark.parametrize(
    ("grades", "scale"),
    [([0, 2], "0-2"), ([1, 5], "1-5"), ([1], "1,2"), ([0], "0,1"), ([True, False], "0,1"), (["1.0", " 3 "], "1-3")],
)
def test_the_scale_is_what_whole_numbers_span(grades: list[Any], scale: str) -> None:
    frame = pd.DataFrame({"document": range(len(grades)), "assessor": "x", "grade": grades})
    assert str(read_judgments(frame).scale) == scale


@pytest.mark.parametrize("text", ["0-3", "1,2,3", "0,10,20", "Bad,Fair,Good", "None,Some", "-1,0,1"])
def test_a_scale_is_what_it_prints(text: str) -> None:
    assert Scale.parse(str(Scale.parse(text))) == Scale.parse(text)


def test_a_grade_called_none_is_a_grade() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["None", "Some"], "honeypot": ["None", ""]})
    judgments = read_judgments(frame, grades="None,Some")
    assert judgments.grade.tolist() == [0, 1]
    assert judgments.extras["honeypot"].tolist() == [0, -2]


def test_whole_numbers() -> None:
    sure = ["7", 7, 7.0, " 7. ", "+7", "7.000", np.float64(7)]
    assert [parse_integer(value) for value in sure] == [7] * len(sure)
    unsure = ["", "7.5", "7e0", "x", None, float("nan"), float("inf"), 1e30, "٧", [7], "7" * 30]
    assert [parse_integer(value) for value in unsure] == [None] * len(unsure)


@pytest.mark.parametrize("answers", [-2, "-2", -2.0, [-2], ["-2.0"], np.int64(-2), "-2, x"])
def test_cannot_judge_is_kept_apart(answers: Any) -> None:
    frame = pd.DataFrame({"document": ["a", "b", "c"], "assessor": ["x", "y", "x"], "grade": [0, -2, 3]})
    judgments = read_judgments(frame, unjudgeable=answers)
    check(judgments)
    assert judgments.grade.tolist() == [0, -1, 3]
    assert judgments.n_unjudgeable == 1
    assert judgments.frame["grade"].isna().tolist() == [False, True, False]
    assert judgments.with_unjudgeable("model") is judgments
    assert judgments.with_unjudgeable("lowest").grade.tolist() == [0, 0, 3]
    dropped = judgments.with_unjudgeable("drop")
    check(dropped)
    assert rows(dropped) == [("all", "a", "x", "0"), ("all", "c", "x", "3")]
    with pytest.raises(CrowdrankError, match="unjudgeable_as must be one of"):
        judgments.with_unjudgeable("highest")


def test_a_right_answer_of_cannot_judge_follows_the_grades() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": [-2, 1], "honeypot": [-2, None]})
    judgments = read_judgments(frame, unjudgeable=-2, grades="0,1")
    assert judgments.extras["honeypot"].tolist() == [-1, -2]
    lowest = judgments.with_unjudgeable("lowest")
    assert lowest.extras["honeypot"].tolist() == [0, -2]
    assert lowest.grade.tolist() == [0, 1]


def test_a_scale_per_assessor(tmp_path: Path) -> None:
    judgments = mixed(tmp_path, "assessor,grades", "gpt-*,0-4", "*,Bad|Good")
    check(judgments)
    assert [str(scale) for scale in judgments.scales] == ["0-4", "Bad,Good"]
    assert judgments.assessor_scale.tolist() == [0, 0, 1]
    assert judgments.frame["grade"].tolist()[:4] == ["4", "0", "Good", "2"]
    assert rows(judgments)[0] == ("all", "a", "ann", "Good", "None", "Good")
    with pytest.raises(InputError, match="the assessors use 2 scales \\(0-4 / Bad,Good\\); map each to one scale"):
        _ = judgments.scale
    with pytest.raises(InputError, match="the assessors use 2 scales"):
        judgments.to_one_scale()


@pytest.mark.parametrize(
    "lines", [("family,grades", "gpt,0-4", "*,Bad|Good"), ("assessor,family,grades", ",gpt,0-4", "ann,,Bad|Good")]
)
def test_a_scale_per_family(lines: tuple[str, ...], tmp_path: Path) -> None:
    assert mixed(tmp_path, *lines).assessor_scale.tolist() == [0, 0, 1]


def test_scales_meet_on_one_by_their_maps(tmp_path: Path) -> None:
    judgments = mixed(tmp_path, *MAPPED).to_one_scale()
    check(judgments)
    assert str(judgments.scale) == "0-2"
    assert judgments.grade.tolist() == [2, 0, 2, 1, -1, 0]
    assert judgments.extras["honeypot"].tolist() == [1, 0, 2, -2, -2, -2]
    assert judgments.to_one_scale() is judgments
    given = mixed(tmp_path, *MAPPED, grades="0-4").to_one_scale()
    assert str(given.scale) == "0-4"


def test_the_common_scale_does_not_hang_on_who_judged(tmp_path: Path) -> None:
    only = read_judgments(MIXED[MIXED["assessor"] == "ann"], scales=scales(tmp_path, *MAPPED))
    assert str(only.to_one_scale().scale) == "0-2"


@pytest.mark.parametrize("model", [MajorityVote, DawidSkene])
def test_models_refuse_mixed_scales_unless_they_are_mapped(model: type[Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="map each to one scale in the scales file"):
        model().fit(mixed(tmp_path, "assessor,grades", "gpt-*,0-4", "*,Bad|Good"))
    assert len(model().fit(mixed(tmp_path, *MAPPED)).consensus_.documents) == 2


BAD_SCALES = [
    (("who,grades", "x,0-4"), "SCALES: there is no column 'assessor'"),
    (("assessor,scale", "x,0-4"), "SCALES: there is no column 'grades'"),
    (("assessor,grades,grades", "x,0-4,0-4"), "SCALES: the column 'grades' occurs twice"),
    (("assessor,grades", "gpt-*,0-4"), "SCALES: no row matches the assessor 'ann'"),
    (("assessor,grades", "gpt-*,0-4", "*,Bad"), "SCALES, row 2 (line 3), column 'grades': 'Bad' is not a scale"),
    (("assessor,grades", ",0-4"), "SCALES, row 1 (line 2), column 'assessor': the assessor is missing"),
    (("assessor,grades,maps_to", "*,0-4,0|1"), "SCALES, row 1 (line 2), column 'maps_to': 2 grades are mapped where the scale 0-4 has 5"),
    (("assessor,grades,maps_to", "*,0-2,0||1"), "SCALES, column 'maps_to': the grades mapped to ('0,,1') are not a scale"),
    (("assessor,grades,maps_to", "*,0-2,2|1|0"), "SCALES, column 'maps_to': the map 2|1|0 of the scale 0-2 decreases on the common scale 0-2"),
    (("assessor,grades", "*"), "SCALES, row 1 (line 2): there is 1 cell where the header has 2"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), BAD_SCALES)
def test_error_about_a_scales_file(lines: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        mixed(tmp_path, *lines)
    found = f"{caught.value.location}: {caught.value.problem}"
    assert found == expected.replace("SCALES", str(tmp_path / "scales.csv"))
    assert caught.value.fixes


def test_a_grade_off_the_common_scale_given(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'2' is not on the common scale 0,1") as caught:
        mixed(tmp_path, *MAPPED, grades="0,1")
    assert caught.value.fix == Fix("give the common scale with {}", "grades")


def test_who_is_left_out_needs_no_scale(tmp_path: Path) -> None:
    judgments = mixed(tmp_path, "assessor,grades", "gpt-*,0-4", exclude=["ann"])
    check(judgments)
    assert judgments.report.excluded == 2
    assert str(judgments.scale) == "0-4"


def test_excluded_assessors_by_list_and_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"document": ["a", "b", "c"], "assessor": [1, 2, 3], "grade": [0, 1, 9]})
    path = tmp_path / "bad.txt"
    path.write_bytes(b"\xef\xbb\xbf3\r\n\r\n2\r\n")
    for exclude in ([2, 3], ["2", "3"], path, str(path)):
        judgments = read_judgments(frame, exclude=exclude)
        check(judgments)
        assert judgments.assessors.to_pylist() == [1]
        assert judgments.report.excluded == 2
    with pytest.raises(InputError, match=r"ann: there is no such file"):
        read_judgments(frame, exclude="ann")


def test_families_are_told_once_or_always() -> None:
    frame = pd.DataFrame(
        {"document": list("abcd"), "assessor": ["x", "x", "y", "z"], "grade": 1, "family": [None, "f", "g", None]}
    )
    judgments = read_judgments(frame)
    check(judgments)
    assert judgments.families is not None
    assert judgments.families.to_pylist() == ["f", "g"]
    assert judgments.assessor_family is not None
    assert judgments.assessor_family.tolist() == [0, 1, -1]
    part = judgments.where(np.array([False, False, True, True]))
    check(part)
    assert part.families is not None
    assert part.families.to_pylist() == ["g"]
    nobody = read_judgments(frame.assign(family=None))
    check(nobody)
    assert nobody.families is None
    assert "family" not in nobody.frame
    twice = read_judgments(frame.assign(family=["f", "g", "g", ""]), on_bad_rows="skip")
    assert twice.report.skipped == {"another family": 1}
    assert twice.documents.to_pylist() == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2024-05-31T10:15:00", "2024-05-31T10:15:00"),
        ("2024-05-31 10:15:00.25", "2024-05-31T10:15:00.25"),
        ("2024-05-31T10:15:00Z", "2024-05-31T10:15:00"),
        ("2024-05-31T10:15:00+02:00", "2024-05-31T08:15:00"),
        ("2024-05-31", "2024-05-31"),
        (1717150500, "2024-05-31T10:15:00"),
        ("1717150500.5", "2024-05-31T10:15:00.5"),
        (-1, "1969-12-31T23:59:59"),
        (datetime(2024, 5, 31, 10, 15, tzinfo=UTC), "2024-05-31T10:15:00"),
        (pd.Timestamp("2024-05-31T10:15", tz="Europe/Paris"), "2024-05-31T08:15:00"),
        (pd.Timestamp(1717150500123456789), "2024-05-31T10:15:00.123456"),
        (None, "NaT"),
        ("", "NaT"),
        ("NA", "NaT"),
    ],
)
def test_points_in_time(time: Any, expected: str) -> None:
    cells: dict[str, list[Any]] = {"document": ["a"], "assessor": ["x"], "grade": [1], "time": [time]}
    frame = pd.DataFrame(cells)
    stamp = read_judgments(frame).extras["time"]
    assert stamp.dtype == np.dtype("datetime64[us]")
    np.testing.assert_array_equal(stamp, np.array([expected], dtype="datetime64[us]"))


@pytest.mark.parametrize("year", ["0000", "0001", "1969", "2024", "9999"])
def test_times_with_zones_are_those_of_python(year: str) -> None:
    clocks = [f"{hour}:59{rest}" for hour in ("00", "23") for rest in ("", ":07", ":07.25", ":07.123456")]
    zones = ["Z", "+00:00", "+0530", "-08", "+23:59", "-23:59"]
    texts = [f"{year}-{day}T{clock}{zone}" for day in ("01-01", "12-31") for clock in clocks for zone in zones]
    column = parse_extras({"time": pa.chunked_array([[*texts, None, " "]])})["time"]
    one_by_one = [parse_extras({"time": pa.chunked_array([[text, "2024"]])})["time"] for text in texts]
    expected = np.array([*(one.values[0] for one in one_by_one), "NaT", "NaT"], "datetime64[us]")
    np.testing.assert_array_equal(column.values, expected)
    is_bad = np.zeros(len(column.values), bool) if column.is_bad is None else column.is_bad
    assert is_bad.tolist() == [*(bool(one.is_bad is not None and one.is_bad[0]) for one in one_by_one), False, False]


def test_many_whole_numbers_are_encoded_like_a_few() -> None:
    grades = np.random.default_rng(0).integers(-3, 9, MIN_ROWS_FOR_HASH_TABLE)
    codes, distinct = encode_distinct(pa.chunked_array([grades[:9], grades[9:]]))
    few_codes, few = encode_distinct(pa.chunked_array([grades[:9]]))
    assert distinct == list(dict.fromkeys(grades.tolist()))
    assert distinct[: len(few)] == few
    assert codes.dtype == few_codes.dtype
    np.testing.assert_array_equal(np.array(distinct)[codes], grades)


def test_items_without_a_query_belong_to_one() -> None:
    judgments = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": 1}))
    assert judgments.queries.to_pylist() == ["all"]
    assert judgments.query_offsets.tolist() == [0, 2]


def test_the_column_scale_has_the_order_of_the_grades() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["Good", "Bad"], "scale": "Bad|Fair|Good"})
    judgments = read_judgments(frame)
    assert judgments.scale.names == ("Bad", "Fair", "Good")
    assert read_judgments(judgments.frame).grade.tolist() == [2, 0]
    assert read_gold(frame.drop(columns="assessor")).code.tolist() == [2, 0]
    assert read_judgments(frame, grades="Good,Bad").grade.tolist() == [0, 1]
    consensus = MajorityVote().fit(judgments).consensus_
    assert read_gold(consensus.documents).code.tolist() == [2, 0]
    values = evaluate(consensus.documents, consensus.documents, "GradeAccuracy").means
    assert values == {"GradeAccuracy": 1.0}


def test_names_with_a_bar_are_written_as_json() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["yes|maybe", "no"]})
    table = read_judgments(frame, grades=["no", "yes|maybe"]).to_arrow()
    assert table["scale"].to_pylist() == ['["no", "yes|maybe"]'] * 2
    assert read_judgments(table).grade.tolist() == [1, 0]


def test_a_column_scale_of_something_else_is_ignored() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": [1, 0], "scale": ["metric", "1,5"]})
    assert str(read_judgments(frame).scale) == "0,1"
    assert "scale" not in read_judgments(frame).frame


def test_different_scales_in_the_column_are_refused() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": "Good", "scale": ["Bad|Good", "Good|Bad"]})
    with pytest.raises(InputError) as caught:
        read_judgments(frame)
    assert caught.value.kind == "scales-differ"
    assert caught.value.location.column == "scale"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "grades"


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["Perfect (2)", "Relevant (1)", "Bad (0)"], ("Bad (0)", "Relevant (1)", "Perfect (2)")),
        (["3 - good", "2: fair"], ("2: fair", "3 - good")),
        (["Good [1]", " good [1] ", "Bad [0]"], ("Bad [0]", "Good [1]")),
    ],
)
def test_numbers_in_names_give_their_order(names: list[str], order: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"document": range(len(names)), "assessor": "x", "grade": names})
    assert read_judgments(frame).scale.names == order


@pytest.mark.parametrize(
    "names", [["Bad (0)", "Good (2)"], ["Bad (0)", "Poor (0)"], ["Bad", "Good (1)"], ["Bad (0)"], ["a1", "b2"]]
)
def test_names_without_consecutive_numbers_need_a_scale(names: list[str]) -> None:
    frame = pd.DataFrame({"document": range(len(names)), "assessor": "x", "grade": names})
    with pytest.raises(InputError) as caught:
        read_judgments(frame)
    assert caught.value.kind == "named-grades"


def test_named_expert_grades_have_the_scale_of_the_judgments() -> None:
    votes = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["Good", "Bad"]})
    judgments = read_judgments(votes, grades="Bad,Fair,Good")
    model = DawidSkene().fit(judgments, gold=votes.drop(columns="assessor"))
    assert model.consensus_.documents["grade"].tolist() == ["Good", "Bad"]
    with pytest.raises(InputError) as caught:
        read_gold(votes.drop(columns="assessor"), scale=Scale.parse("Low,High"))
    assert caught.value.kind == "named-grades"


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["yes", "No"], ("No", "yes")),
        (["TRUE", "FALSE", "true"], ("FALSE", "TRUE")),
        (["relevant"], ("irrelevant", "relevant")),
        (["Relevant", "not relevant"], ("not relevant", "Relevant")),
    ],
)
def test_the_order_of_yes_and_no_is_known(names: list[str], order: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"document": range(len(names)), "assessor": "x", "grade": names})
    assert read_judgments(frame).scale.names == order
    with pytest.raises(InputError):
        read_judgments(pd.concat([frame, frame.assign(grade="maybe")]))


def test_a_decimal_comma_in_a_whole_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("document;assessor;grade\na;x;2,0\nb;x;0,00\n")
    assert read_judgments(tmp_path / "a.csv").grade.tolist() == [2, 0]
    assert parse_integer("1,000") is None
