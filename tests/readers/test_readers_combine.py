"""Joining tables and keeping them on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdrank import read_judgments
from crowdrank.errors import InputError
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.storage import load, save
from crowdrank.readers.combine import combine
from judgments_reference import Row, check, rows, table_of

NAMES = st.sampled_from(["a", "b", "c", "d"])
CELLS = st.lists(st.tuples(NAMES, NAMES, NAMES, st.integers(0, 3)), min_size=1, max_size=15)
KEY = ["query", "document", "assessor"]


def frame(grade: Any = 1, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [grade], **columns})


def same(one: Judgments, other: Judgments) -> None:
    for name in ("queries", "documents", "assessors"):
        assert getattr(one, name).equals(getattr(other, name))
    for name in ("item_query", "item_document", "offsets", "assessor", "grade", "assessor_scale", "assessor_family"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert getattr(mine, "dtype", None) == getattr(theirs, "dtype", None)
        np.testing.assert_array_equal(mine, theirs)
    for name in ("scales", "scale_maps", "common_scale", "backend", "report"):
        assert getattr(one, name) == getattr(other, name)
    assert (one.families is None) == (other.families is None)
    assert one.families is None or one.families.equals(other.families)
    assert list(one.extras) == list(other.extras)
    for name in one.extras:
        assert one.extras[name].dtype == other.extras[name].dtype
        np.testing.assert_array_equal(one.extras[name], other.extras[name])


@given(CELLS, CELLS)
def test_new_judgments_take_the_place_of_old_ones(old: list[Row], new: list[Row]) -> None:
    both = pd.concat([table_of(old), table_of(new)])
    one, other = (read_judgments(table_of(cells), grades="0-3") for cells in (old, new))
    joined = combine(one, other)
    check(joined)
    last = both.drop_duplicates(KEY, keep="last")
    assert rows(joined) == sorted(tuple(map(str, row)) for row in last.itertuples(index=False))
    assert joined.report.rows == len(both)
    assert joined.report.repeats == len(both) - len(last)
    assert joined.assessors.to_pylist()[: one.n_assessors] == one.assessors.to_pylist(), "the old codes hold"


def test_repeats_that_were_kept_stay() -> None:
    twice = read_judgments(pd.concat([frame(0), frame(1)]), repeats="keep")
    other = read_judgments(frame(1).assign(document="b"))
    assert [row[1:] for row in rows(combine(twice, other))] == [("a", "x", "0"), ("a", "x", "1"), ("b", "x", "1")]
    assert rows(combine(twice, read_judgments(frame(3)))) == [("all", "a", "x", "3")]


def test_numbers_and_text_meet_as_text() -> None:
    joined = combine(read_judgments(frame(document=[7])), read_judgments(frame(document=["7"], grade=0)))
    check(joined)
    assert rows(joined) == [("all", "7", "x", "0")]


def test_whole_number_scales_grow_and_honeypots_with_them() -> None:
    old = read_judgments(frame(2, honeypot=[1]), grades="1-3")
    new = read_judgments(frame(0, honeypot=[0]).assign(document="b"), grades="0,5")
    joined = combine(old, new)
    check(joined)
    assert joined.scale.names == ("0", "1", "2", "3", "5")
    assert joined.frame[["grade", "honeypot"]].to_numpy().tolist() == [[2, 1], [0, 0]]


def test_unjudgeable_answers_stay_apart_when_scales_grow() -> None:
    old = read_judgments(frame(-2, honeypot=[-2]), unjudgeable=-2)
    joined = combine(old, read_judgments(frame(3).assign(document="b")))
    assert joined.grade.tolist() == [-1, 3]
    assert joined.extras["honeypot"].tolist() == [-1, -2]


def test_scales_that_do_not_meet_are_refused() -> None:
    with pytest.raises(InputError) as problem:
        combine(read_judgments(frame(0)), read_judgments(frame("Bad"), grades="Bad,Good"))
    assert problem.value.kind == "scales-differ"
    assert [fix.parameter for fix in problem.value.fixes] == ["grades", "scales"]


def test_tables_with_some_of_the_scales_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "scales.csv"
    path.write_text("assessor,grades,maps_to\ngpt-*,0-4,0|0|1|1|2\n*,Bad|Good,0|2\n")
    ann = read_judgments(frame("Good", honeypot=["Bad"]).assign(assessor="ann"), scales=path)
    gpt = read_judgments(frame("4", honeypot=["3"]).assign(assessor="gpt-1"), scales=path)
    for old, new in ((ann, gpt), (gpt, ann)):
        joined = combine(old, new)
        check(joined)
        assert {row[2:] for row in rows(joined)} == {("ann", "Good", "Bad"), ("gpt-1", "4", "3")}
        assert sorted(joined.to_one_scale().grade.tolist()) == [2, 2]
        assert sorted(joined.to_one_scale().extras["honeypot"].tolist()) == [0, 1]
    path.write_text("assessor,grades,maps_to\n*,0-4,0|0|1|1|2\n")
    changed = read_judgments(frame("4").assign(assessor="ann"), scales=path)
    with pytest.raises(InputError, match="the assessor 'ann' uses another scale than before"):
        combine(ann, changed)


def test_families_and_extra_columns_of_either_side() -> None:
    cases = [
        (frame(family=["f"], cost=[1.0]), frame(time=["2024-05-31"], duration=[2.0], honeypot=[1])),
        (frame(time=["2024-05-31"], duration=[2.0], honeypot=[1]), frame(family=["f"], cost=[1.0])),
        (frame(family=["f"], cost=[1.0]), frame(family=[None], cost=[3.0])),
        (frame(family=[None]), frame(family=[None])),
        (frame(family=["f"]), frame(family=[8])),
    ]
    for old, new in cases:
        joined = combine(read_judgments(old), read_judgments(new.assign(document="b", assessor=["y"])))
        check(joined)
        expected = pd.concat([old, new.assign(document="b", assessor=["y"])])
        assert ("family" in joined.frame) == ("family" in expected and expected["family"].notna().any())
        for name in [name for name in ("family", "time", "duration", "cost", "honeypot") if name in joined.frame]:
            result = joined.frame[name].astype(object).where(joined.frame[name].notna(), None)
            meant = expected[name].astype(object).where(expected[name].notna(), None)
            assert [str(value)[:10] for value in result] == [str(value) for value in meant]


def test_a_family_once_told_is_not_forgotten() -> None:
    joined = combine(read_judgments(frame(family=["f"])), read_judgments(frame(family=[None]).assign(document="b")))
    assert joined.frame["family"].tolist() == ["f", "f"]
    changed = combine(joined, read_judgments(frame(family=["g"])))
    assert changed.frame["family"].tolist() == ["g", "g"]


def test_reports_add_up() -> None:
    old = read_judgments(pd.concat([frame(), frame(None)]), on_bad_rows="skip")
    new = read_judgments(
        pd.concat([frame(), frame(None), frame().assign(assessor="z")]), on_bad_rows="skip", exclude=["z"]
    )
    report = combine(old, new).report
    assert (report.rows, report.repeats, report.excluded) == (5, 1, 1)
    assert report.skipped == {"no grade": 2}
    assert list(report.examples) == ["no grade"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(CELLS)
def test_what_is_saved_is_loaded_code_by_code(tmp_path: Path, cells: list[Row]) -> None:
    judgments = read_judgments(table_of(cells), grades="0-3")
    save(judgments, tmp_path / "judgments.parquet")
    again = load(tmp_path / "judgments.parquet")
    check(again)
    same(again, judgments)


def test_everything_a_table_may_hold_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "scales.csv"
    path.write_text("assessor,grades,maps_to\ngpt-*,0-4,no|no|so|so|yes\n*,Bad|Good,no|yes\n")
    labels = pd.DataFrame(
        {
            "query": [8, 7, 7, 7],
            "document": ["b", "b", "a", "b"],
            "assessor": ["ann", "gpt-1", "ann", "bob"],
            "grade": ["Good", "4", "?", None],
            "family": [None, "gpt", None, None],
            "time": ["2024-05-31", None, None, None],
            "duration": [1.5, None, 2.5, 1.0],
            "cost": [1, 2, 3, 4],
            "honeypot": [None, "?", "Bad", None],
        }
    )
    judgments = read_judgments(labels, scales=path, unjudgeable="?", on_bad_rows="skip")
    assert judgments.report.skipped == {"no grade": 1}
    save(judgments, tmp_path / "judgments.parquet")
    again = load(tmp_path / "judgments.parquet")
    check(again)
    same(again, judgments)
    assert rows(again.to_one_scale()) == rows(judgments.to_one_scale())


def test_a_scale_whose_names_hold_commas_is_saved(tmp_path: Path) -> None:
    judgments = read_judgments(frame("yes, very"), grades=["no", "so, so", "yes, very"])
    save(judgments, tmp_path / "a.parquet")
    same(load(tmp_path / "a.parquet"), judgments)


def test_many_long_ids_keep_their_codes(tmp_path: Path) -> None:
    n = 60_000  # too many for a dictionary page of Parquet
    order = np.random.default_rng(1).permutation(n)
    labels = pd.DataFrame(
        {
            "query": order % 7,
            "document": [f"clueweb09-en{i:030d}" for i in order // 2],
            "assessor": [f"w{i}" for i in order % 999],
            "grade": 1,
        }
    )
    judgments = read_judgments(labels)
    save(judgments, tmp_path / "a.parquet")
    same(load(tmp_path / "a.parquet"), judgments)


def test_a_file_that_holds_no_judgments_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(InputError, match=r"a\.parquet: there is no such file"):
        load(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="it holds no saved judgments"):
        load(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="it cannot be read"):
        load(path)


@pytest.mark.parametrize("repeats", ["last", "first", "keep"])
def test_repeats_are_counted_by_assessor_with_those_that_agree(repeats: Any) -> None:
    rows = [("a", "ann", 1), ("a", "ann", 1), ("a", "ann", 0), ("b", "ann", 2), ("a", "bob", 1), ("a", "bob", 2)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    table = read_judgments(frame, repeats=repeats)
    assert table.report.repeats_by_assessor == {"ann": (2, 1), "bob": (1, 0)}
    assert combine(table, table).report.repeats_by_assessor == {"ann": (4, 2), "bob": (2, 0)}
