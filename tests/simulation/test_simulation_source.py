"""That a crowd over real documents leaves ids, grades and features as they are in the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank.errors import InputError, OutputError, UsageError
from crowdrank.readers.features import Features, read_features
from crowdrank.readers.read import read_gold, read_judgments
from crowdrank.simulation import World, simulate
from terminal import crowdrank

LETOR = """2 qid:10 1:0.5 2:1.25 # docid = GX1
0 qid:10 1:0.125 # docid = GX2
1 qid:7 1:3 2:0.1 # docid = GX1
0 qid:7 2:-4.5 # docid = GX3
"""


@pytest.fixture
def letor(tmp_path: Path) -> Path:
    path = tmp_path / "part.txt"
    path.write_text(LETOR)
    return path


def same_as(world: World, features: Features) -> None:
    """Check that the documents of a world are those of the features."""
    for frame in (world.documents, world.features, world.gold):
        assert frame["query"].tolist() == features.query.to_pylist()
        assert frame["document"].tolist() == features.document.to_pylist()
    assert features.grade is not None
    assert world.gold["grade"].tolist() == world.documents["grade"].tolist() == features.grade.tolist()
    assert world.features.columns.tolist() == ["query", "document", *features.names]
    assert (world.features[list(features.names)].to_numpy() == features.matrix).all()
    assert (abs(world.documents["relevance"] - world.documents["grade"]) <= 0.5).all()


def test_ids_grades_and_features_are_those_of_the_file(letor: Path) -> None:
    world = simulate(source=letor)
    same_as(world, read_features(letor, format="letor"))
    assert (world.settings.queries, world.settings.features, world.settings.grades) == (2, 2, 3)
    assert world.settings.source == (str(letor),)
    assert set(zip(world.judgments["query"], world.judgments["document"], strict=True)) == {
        ("10", "GX1"),
        ("10", "GX2"),
        ("7", "GX1"),
        ("7", "GX3"),
    }


def test_files_hold_what_the_source_held(letor: Path, tmp_path: Path) -> None:
    simulate(source=str(letor), assessors=7, random_state=3).write(tmp_path / "world")
    again = simulate(source=tmp_path / "world" / "features.letor")
    same_as(again, read_features(letor, format="letor"))
    settings = json.loads((tmp_path / "world" / "world.json").read_text())
    assert settings["source"] == [str(letor)]


def test_the_same_seed_makes_the_same_bytes(letor: Path, tmp_path: Path) -> None:
    for name in ("first", "again"):
        simulate(source=letor, families=2, copies=0.2, random_state=9).write(tmp_path / name)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_several_files_are_one_collection(letor: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.letor"
    other.write_text("1 qid:8 1:1 # docid = A\n3 qid:8 1:2 # docid = B\n")
    world = simulate(source=[letor, other])
    assert world.documents["document"].tolist() == ["GX1", "GX2", "GX1", "GX3", "A", "B"]
    assert world.features["f2"].tolist()[-2:] == [0, 0]  # what a LETOR line leaves out is 0
    assert world.settings.grades == 4
    assert world.settings.source == (str(letor), str(other))


def test_features_and_tables_will_do_too(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("query,document,grade,bm25,clicks\nhow,a,0,1.5,2\nhow,b,1,2.5,3\n")
    features = read_features(table)
    for source in (features, table, pd.read_csv(table), [features]):
        same_as(simulate(source=source), features)


def test_the_first_queries_are_taken_and_the_scale_stays(letor: Path) -> None:
    features = read_features(letor, format="letor")
    later = Features(features.query, features.document, features.matrix, features.names, np.array([0.0, 1, 2, 0]))
    world = simulate(source=later, queries=1)
    assert world.documents["query"].unique().tolist() == ["10"]
    assert (world.settings.queries, world.settings.grades) == (1, 3)
    assert simulate(source=letor, queries=50).settings.queries == 2


def test_the_crowd_obeys_its_settings_as_over_invented_documents(letor: Path) -> None:
    world = simulate(source=letor, labels=4, assessors=9, label_grades=2, families=2, gold_queries=1, spammers=0)
    assert (world.judgments.groupby(["query", "document"])["assessor"].nunique() == 4).all()
    assert set(world.judgments["grade"]) <= {0, 1}
    assert world.gold["query"].unique().tolist() == ["10"]
    assert len(world.assessors) == 9
    assert world.assessors["rigor"].max() <= 1


def graded(grade: list[int]) -> Features:
    """Documents of such grades, three in each query."""
    ids = [str(number) for number in range(len(grade))]
    queries = [str(number // 3) for number in range(len(grade))]
    matrix = np.arange(2.0 * len(grade)).reshape(-1, 2)
    return Features(pa.array(queries), pa.array(ids), matrix, ("a", "b"), np.array(grade, dtype=float))


def test_honeypots_are_existing_documents_of_the_lowest_and_the_highest_grade() -> None:
    source = graded([0, 1, 2, 0, 0, 2] * 50)
    world = simulate(source=source, honeypots=0.1)
    same_as(world, source)
    chosen = world.documents[world.documents["honeypot"]]
    assert chosen["grade"].value_counts().to_dict() == {0: 15, 2: 15}
    assert chosen["difficulty"].max() < 0.3
    known = world.judgments.dropna(subset="honeypot")
    assert set(known["document"]) == set(chosen["document"])
    assert (known["honeypot"] == known["document"].map(chosen.set_index("document")["grade"])).all()


def test_an_end_with_few_documents_keeps_half_of_them_and_the_other_gives_more() -> None:
    world = simulate(source=graded([0] * 90 + [1] * 2 + [2] * 8), honeypots=0.2)
    assert world.documents.query("honeypot")["grade"].value_counts().to_dict() == {0: 16, 2: 4}
    all_of_both = simulate(source=graded([0] * 5 + [1] * 90 + [2] * 5), honeypots=0.2)
    assert all_of_both.documents["honeypot"].sum() == 4


def test_honeypots_do_not_change_the_other_documents() -> None:
    source = graded([0, 1, 2] * 20)
    without, planted = simulate(source=source, honeypots=0).documents, simulate(source=source, honeypots=0.2).documents
    others = ~planted["honeypot"]
    pd.testing.assert_frame_equal(without[others], planted[others])


@settings(max_examples=40, deadline=None)
@given(
    grade=st.lists(st.integers(0, 10), min_size=2, max_size=20).filter(lambda grade: len(set(grade)) > 1),
    queries=st.none() | st.integers(1, 9),
    labels=st.integers(1, 13),
    assessors=st.integers(3, 12),
    families=st.integers(0, 3),
    copies=st.floats(0, 1),
    honeypots=st.floats(0, 0.5),
    label_grades=st.none() | st.integers(2, 11),
    random_state=st.integers(0, 2**40),
)
def test_any_grades_are_sound(grade: list[int], queries: int | None, **sizes: Any) -> None:
    world = simulate(source=graded(grade), queries=queries, **sizes)
    assert world.documents["grade"].tolist() == grade[: 3 * (queries or 99)]
    assert world.judgments["grade"].between(0, (sizes["label_grades"] or max(grade) + 1) - 1).all()
    asked = world.judgments.groupby(["query", "document"])["assessor"].nunique()
    assert (asked == min(sizes["labels"], sizes["assessors"])).all()
    assert len(asked) == len(world.documents)
    assert set(world.documents.query("honeypot")["grade"]) <= {0, max(grade)}


@pytest.mark.parametrize(("setting", "value"), [("documents", 20), ("features", 20), ("grades", 5)])
def test_what_the_data_tell_cannot_be_set(letor: Path, setting: str, value: int) -> None:
    sizes: dict[str, Any] = {setting: value}
    with pytest.raises(UsageError) as refused:
        simulate(source=letor, **sizes)
    assert refused.value.parameter == setting
    assert refused.value.fixes[1].parameter == "source"


@pytest.mark.parametrize("wrong", [{"queries": 0}, {"spammers": 2}, {"families": 61}])
def test_settings_are_checked_before_files_are_read(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        simulate(source=tmp_path / "missing.txt", **wrong)
    assert refused.value.parameter == next(iter(wrong))


def test_more_gold_queries_than_the_data_have_are_refused(letor: Path) -> None:
    with pytest.raises(UsageError) as refused:
        simulate(source=letor, gold_queries=3)
    assert (refused.value.parameter, refused.value.kind) == ("gold_queries", "invalid-parameter")


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("1 qid:1 1:2\n1 qid:1 1:3\n", "one-grade", ""),
        ("1.5 qid:1 1:2\n", "invalid-grade", "document 1"),
        ("0 qid:1 1:2\n-1 qid:1 1:2\n", "invalid-grade", "document 2"),
        ("0 qid:1 1:2\n11 qid:1 1:2\n", "invalid-grade", "document 2"),
        ("0 qid:1\n1 qid:1\n", "no-features", ""),
        ("0 qid:1 1:2 # docid = A\n1 qid:1 1:2 # docid = A\n", "repeated-document", ""),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, text: str, kind: str, place: str) -> None:
    path = tmp_path / "part.txt"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        simulate(source=path)
    assert (refused.value.kind, refused.value.location.source) == (kind, str(path))
    assert refused.value.location.place == place


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.txt"
    path.write_text("")
    with pytest.raises(InputError, match="there are no rows"):
        simulate(source=path)


def test_tables_that_will_not_do_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("query,document,bm25\n1,a,1.5\n1,b,2.5\n")
    with pytest.raises(InputError) as refused:
        simulate(source=table)
    assert (refused.value.kind, refused.value.location.source) == ("no-grades", str(table))
    table.write_text("query,document,bm25,grade\n1,a,1.5,0\n1,b,2.5,\n")
    with pytest.raises(InputError) as refused:
        simulate(source=table)
    assert (refused.value.kind, refused.value.location.place) == ("invalid-grade", "document 2")
    other = tmp_path / "other.csv"
    table.write_text("query,document,bm25,grade\n1,a,1.5,0\n")
    other.write_text("query,document,bm25,clicks,grade\n2,a,1.5,4,1\n")
    with pytest.raises(InputError) as refused:
        simulate(source=[table, other])
    assert (refused.value.kind, refused.value.location.source) == ("no-column", str(table))


def test_a_source_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        simulate(source=[])
    assert refused.value.parameter == "source"
    with pytest.raises(UsageError, match="a DataFrame is required, not int"):
        simulate(source=3)
    empty = Features(pa.array([]), pa.array([]), np.empty((0, 1)), ("a",), np.empty(0))
    with pytest.raises(InputError, match="the features: there are no rows"):
        simulate(source=empty)


def test_ids_that_are_not_words_cannot_be_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"query": ["two words"] * 2, "document": ["a", "b"], "grade": [0, 1], "bm25": [1.0, 2]})
    world = simulate(source=frame)
    with pytest.raises(OutputError) as refused:
        world.write(tmp_path / "world")
    assert refused.value.kind == "unfit-id"
    assert not (tmp_path / "world").exists()


def test_the_command_takes_several_files(letor: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("1 qid:8 1:1 # docid = A\n")
    crowd = ["--families", 2, "--family-error", 2, "--copies", 0.1, "--price", 1, "--expert-price", 9]
    done = crowdrank(
        "simulate", "-o", tmp_path / "world", "--from", letor, "--from", other, *crowd, "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 5
    written = json.loads((tmp_path / "world" / "world.json").read_text())
    expected = {"families": 2, "family_error": 2, "copies": 0.1, "price": 1, "expert_price": 9}
    assert {name: written[name] for name in expected} == expected
    assert written["source"] == [str(letor), str(other)]


def test_the_command_refuses_sizes_beside_files(letor: Path, tmp_path: Path) -> None:
    done = crowdrank("simulate", "-o", tmp_path / "world", "--from", letor, "--documents", 5, cwd=tmp_path)
    assert done.returncode == 2
    assert "--documents comes from the data and cannot be 5; omit it, or omit --from." in " ".join(done.stderr.split())
    assert not (tmp_path / "world").exists()


@pytest.mark.data
@pytest.mark.parametrize(
    ("folder", "parts", "grades"),
    [("mq2008", ("S1.txt.gz", "S2.txt.gz"), 3), ("mslr-5k", ("test.txt.gz",), 5)],
)
def test_public_data_stay_as_they_are(
    data_folder: Path, tmp_path: Path, folder: str, parts: tuple[str, ...], grades: int
) -> None:
    paths = [data_folder / folder / part for part in parts]
    read = [read_features(path, format="letor") for path in paths]
    whole = Features(
        pa.concat_arrays([part.query for part in read]),
        pa.concat_arrays([part.document for part in read]),
        np.concatenate([part.matrix for part in read]),
        read[0].names,
        np.concatenate([part.grade for part in read if part.grade is not None]),
    )
    world = simulate(source=paths, labels=3, families=2)
    same_as(world, whole)
    assert world.settings.grades == grades
    assert world.documents["honeypot"].mean() == pytest.approx(0.05, abs=0.001)
    world.write(tmp_path)
    assert len(read_judgments(tmp_path / "judgments.csv")) == 3 * len(whole.query)
    again = read_features(tmp_path / "features.letor")
    assert (again.matrix == whole.matrix).all()
    assert again.document.to_pylist() == whole.document.to_pylist()
    assert len(read_gold(tmp_path / "gold.qrels")) == len(whole.query)


@pytest.mark.data
def test_a_part_of_public_data_is_its_first_queries(data_folder: Path) -> None:
    world = simulate(source=data_folder / "mq2008" / "S1.txt.gz", queries=10)
    assert world.documents["query"].nunique() == 10
    assert world.documents["query"].iloc[0] == "10002"
    assert world.settings.queries == 10
