"""Partitioned Parquet files in shards on disk, compared with judgments in memory."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdrank import Judgments, ShardedJudgments, read_gold, read_judgments, read_partitions
from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank.errors import DataWarning, InputError, OnDiskError, OutputError, UsageError
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.summary import inspect
from crowdrank.on_disk import sharded, storage
from crowdrank.on_disk.partitions import split_into_parts, summarize_file
from crowdrank.on_disk.sharded import concat_shards, load_sharded


def crowd(n: int = 300, seed: int = 0, **more: Any) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = {
        "query": [f"q{number}" for number in rng.integers(0, 12, n)],
        "document": [f"d{number}" for number in rng.integers(0, 15, n)],
        "assessor": [f"w{number}" for number in rng.integers(0, 9, n)],
        "grade": rng.integers(0, 4, n),
    }
    return pd.DataFrame({**frame, **more})


def cut(frame: pd.DataFrame, folder: Path, files: int = 3) -> Path:
    """Write the rows in order to a number of files."""
    folder.mkdir(parents=True)
    bounds = np.linspace(0, len(frame), files + 1).astype(int)
    for number in range(files):
        frame.iloc[bounds[number] : bounds[number + 1]].to_parquet(folder / f"{number}.parquet", index=False)
    return folder


def in_memory(judgments: ShardedJudgments) -> Judgments:
    return concat_shards([judgments.load(place) for place in range(len(judgments.shards))])


def rows(judgments: Judgments) -> pd.DataFrame:
    frame: pd.DataFrame = judgments.to_arrow().to_pandas()
    return frame.sort_values(list(frame.columns)).reset_index(drop=True)


def assert_same(one: Judgments, other: Judgments) -> None:
    """Check that all codes, ids, scales and reports are equal."""
    for name in ("offsets", "assessor", "grade", "item_query", "item_document", "assessor_scale", "assessor_family"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in ("queries", "documents", "assessors", "families"):
        mine, its = getattr(one, name), getattr(other, name)
        assert (mine is None and its is None) or mine.equals(its), name
    for name in ("scales", "scale_maps", "common_scale", "unjudgeable", "report"):
        assert getattr(one, name) == getattr(other, name), name


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), files=st.integers(1, 5), repeats=st.sampled_from(["last", "first", "keep"]))
def test_one_shard_is_what_the_reader_in_memory_makes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, files: int, repeats: str
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    frame = crowd(80, seed, family=[None if row % 3 else "f" for row in range(80)])
    made = read_partitions(cut(frame, folder / "in", files), repeats=repeats, work=folder / "work")
    assert_same(made.load(0), read_judgments(frame, repeats=repeats))  # type: ignore[arg-type]
    assert len(made) == len(made.load(0))


def test_shards_hold_every_query_whole_and_every_judgment_once(tmp_path: Path) -> None:
    frame = crowd()
    made, memory = read_partitions(cut(frame, tmp_path / "in"), shard_size=40), read_judgments(frame)
    shards = [made.load(place) for place in range(len(made.shards))]
    assert len(shards) > 3
    queries = [name for shard in shards for name in shard.queries.to_pylist()]
    assert sorted(queries) == sorted(memory.queries.to_pylist())
    pd.testing.assert_frame_equal(rows(in_memory(made)), rows(memory))
    assert made.assessors.equals(memory.assessors)
    assert made.counts[:, 0].tolist() == np.bincount(memory.assessor).tolist()
    assert (len(made), made.n_items, made.n_queries) == (len(memory), memory.n_items, memory.n_queries)
    numbers = {
        name: number
        for place, shard in enumerate(shards)
        for name, number in zip(shard.queries.to_pylist(), made.query_indexes(place).tolist(), strict=True)
    }
    assert [numbers[name] for name in memory.queries.to_pylist()] == list(range(memory.n_queries))


def test_neither_the_cut_nor_threads_nor_row_groups_change_the_shards(tmp_path: Path) -> None:
    frame = crowd()
    one = read_partitions(cut(frame, tmp_path / "a", 2), shard_size=60)
    two = read_partitions(cut(frame, tmp_path / "b", 5), shard_size=60, n_jobs=2)
    (tmp_path / "c").mkdir()
    frame.to_parquet(tmp_path / "c" / "all.parquet", row_group_size=20)
    three = read_partitions(tmp_path / "c", shard_size=60)
    assert [shard.digest for shard in one.shards] == [shard.digest for shard in two.shards]
    assert one.shards == three.shards


def test_files_are_read_in_parts_of_row_groups(tmp_path: Path) -> None:
    crowd(100).to_parquet(tmp_path / "a.parquet", row_group_size=30)
    parts = split_into_parts([summarize_file(str(tmp_path / "a.parquet"), {})], max_rows=60)
    assert [(part.row_groups, part.first_row, part.n_rows) for part in parts] == [((0, 2), 0, 60), ((2, 4), 60, 40)]


@pytest.mark.parametrize("by", ["query", "document"])
def test_numbers_folders_in_folders_and_no_query_work(tmp_path: Path, by: str) -> None:
    frame = crowd().assign(document=lambda f: f["document"].str[1:].astype(int)).drop(columns="query")
    cut(frame.iloc[:150], tmp_path / "in" / "day=1", 2)
    cut(frame.iloc[150:], tmp_path / "in" / "day=2", 1)
    (tmp_path / "in" / "_SUCCESS").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of one large query
        made = read_partitions(tmp_path / "in", shard_size=50, by=by)
    assert made.whole_queries == (by == "query")
    assert (len(made.shards) > 1) == (by == "document")
    pd.testing.assert_frame_equal(rows(in_memory(made)), rows(read_judgments(frame)), check_dtype=False)


def test_unjudgeable_answers_are_dropped_with_those_who_gave_nothing_else(tmp_path: Path) -> None:
    frame = crowd()
    frame.loc[frame["assessor"] == "w3", "grade"] = -2
    frame.loc[frame["document"] == "d4", "grade"] = -2
    made = read_partitions(cut(frame, tmp_path / "in"), shard_size=60, unjudgeable=-2)
    memory = read_judgments(frame, unjudgeable=-2)
    assert made.n_unjudgeable == memory.n_unjudgeable > 0
    for how in ("lowest", "drop"):
        one, other = made.with_unjudgeable(how), memory.with_unjudgeable(how)
        pd.testing.assert_frame_equal(rows(in_memory(one)), rows(other))
        assert one.assessors.equals(other.assessors)
        assert (len(one), one.n_items) == (len(other), other.n_items)
    nobody = read_partitions(cut(frame.assign(grade=-2), tmp_path / "none"), unjudgeable=-2)
    with pytest.raises(InputError, match="no judgment is left"):
        nobody.with_unjudgeable("drop")


def test_scales_families_and_excluded_assessors_are_those_of_the_reader_in_memory(tmp_path: Path) -> None:
    frame = crowd(family=None)
    frame["family"] = frame["assessor"].map({"w1": "x", "w2": "x"})
    frame.loc[frame["assessor"] == "w2", "grade"] += 1
    scales = tmp_path / "scales.csv"
    scales.write_text("assessor,grades,maps_to\nw2,1-4,0|1|1|2\n*,0-3,0|1|2|2\n")
    made, memory = read_partitions(cut(frame, tmp_path / "in"), scales=scales), read_judgments(frame, scales=scales)
    assert_same(made.load(0), memory)
    assert_same(made.to_one_scale().load(0), memory.to_one_scale())
    options: dict[str, Any] = {"scales": scales, "exclude": ["w5"]}
    made, memory = read_partitions(tmp_path / "in", **options), read_judgments(frame, **options)
    assert made.report.excluded == memory.report.excluded > 0
    assert made.assessors.equals(memory.assessors)
    pd.testing.assert_frame_equal(rows(made.load(0)), rows(memory))
    pattern = read_partitions(cut(crowd(), tmp_path / "plain"), family_pattern="(w[12])")
    assert_same(pattern.load(0), read_judgments(crowd(), family_pattern="(w[12])"))


def test_rows_that_cannot_be_used_are_skipped_and_counted(tmp_path: Path) -> None:
    frame = crowd().astype({"grade": object})
    frame.loc[3, "document"], frame.loc[5, "assessor"], frame.loc[7, "query"] = "  ", None, None
    frame.loc[[11, 13], "grade"] = ["7x", None]
    frame["grade"] = frame["grade"].map(lambda cell: None if cell is None else str(cell))
    frame["family"] = frame["assessor"].map({"w1": "f"})
    frame.loc[frame.index[frame["assessor"] == "w1"][3], "family"] = "g"
    made = read_partitions(cut(frame, tmp_path / "in"), on_bad_rows="skip")
    memory = read_judgments(frame, on_bad_rows="skip")
    assert dict(made.report.skipped) == dict(memory.report.skipped)
    assert len(made.report.skipped) == 6
    pd.testing.assert_frame_equal(rows(made.load(0)), rows(memory))


def error(folder: Path, **options: Any) -> InputError:
    with pytest.raises(InputError) as problem:
        read_partitions(folder, **options)
    assert "\n" not in str(problem.value)
    return problem.value


def test_an_empty_partition_is_fine_and_nothing_but_those_is_not(tmp_path: Path) -> None:
    folder = cut(crowd(), tmp_path / "in")
    pq.write_table(pa.table({"anything": pa.array([], pa.null())}), folder / "9.parquet")
    assert_same(read_partitions(folder).load(0), read_judgments(crowd()))
    pq.write_table(crowd_table().slice(0, 0), folder / "a.parquet")
    assert len(read_partitions(folder)) == len(read_judgments(crowd()))
    (tmp_path / "empty").mkdir()
    pq.write_table(crowd_table().slice(0, 0), tmp_path / "empty" / "a.parquet")
    assert error(tmp_path / "empty").problem == "there are no rows"


def crowd_table() -> pa.Table:
    return pa.Table.from_pandas(crowd(), preserve_index=False)


def test_files_that_differ_are_both_named(tmp_path: Path) -> None:
    frame = crowd(20)
    folder = cut(frame, tmp_path / "in", 1)
    other = folder / "9.parquet"

    def differ(kind: str, column: str = "") -> str:
        problem = error(folder)
        assert (problem.kind, problem.location.source, problem.location.column) == (kind, str(other), column)
        assert problem.problem.endswith(f"in {folder / '0.parquet'}")
        return problem.problem

    frame.assign(assessor=range(20)).to_parquet(other)
    assert "the assessor is of the type numbers here and text in" in differ("types-differ", "assessor")
    frame.assign(grade="Good").to_parquet(other)
    assert "the grade is of the type text here and numbers in" in differ("types-differ", "grade")
    frame.drop(columns="query").to_parquet(other)
    assert "the query is in no column here and the column 'query' in" in differ("columns-differ")
    frame.rename(columns={"grade": "label"}).to_parquet(other)
    assert "the grade is the column 'label' here and the column 'grade' in" in differ("columns-differ")
    # Floats that are not whole numbers are text, which only reading them shows.
    numbers = frame.assign(assessor=np.arange(20.0))
    numbers.to_parquet(folder / "0.parquet")
    numbers.assign(assessor=0.5).to_parquet(other)
    assert "the assessor is of the type text here and numbers in" in differ("types-differ", "assessor")
    frame.drop(columns="grade").to_parquet(other)
    assert error(folder).location.source == str(other)
    other.write_bytes(b"no Parquet")
    assert error(folder).location.source == str(other)


def test_bad_rows_are_named_by_file_row_column_and_value(tmp_path: Path) -> None:
    def with_cell(row: int, column: str, value: Any, **options: Any) -> tuple[str, str, str]:
        frame = crowd(30)
        frame[column] = [value if at == row else cell for at, cell in enumerate(frame[column])]
        problem = error(cut(frame, tmp_path / f"in{next(numbers)}", 3), **options)
        assert problem.location.column == column
        return problem.kind, Path(problem.location.source).name, problem.location.place

    numbers = count()
    assert with_cell(24, "grade", -3) == ("grade-below-scale", "2.parquet", "row 5")
    assert with_cell(14, "grade", 700) == ("grade-too-large", "1.parquet", "row 5")
    assert with_cell(0, "grade", None) == ("missing-cell", "0.parquet", "row 1")
    assert with_cell(14, "grade", 9, grades="0-3") == ("grade-off-scale", "1.parquet", "row 5")
    for role in ("query", "document", "assessor"):
        assert with_cell(13, role, " ") == ("missing-cell", "1.parquet", "row 4")
    families = crowd(30).assign(assessor="w", family="x")
    families.loc[22, "family"] = "y"
    other = error(cut(families, tmp_path / "families"))
    assert (other.kind, other.location.place) == ("another-family", "row 3")
    twice = error(cut(pd.concat([crowd(1), crowd(1)]), tmp_path / "twice", 2), repeats="error")
    assert twice.kind == "repeated-judgment"
    assert f"{tmp_path}/twice/0.parquet, row 1 and {tmp_path}/twice/1.parquet, row 1" in twice.problem
    scales = tmp_path / "scales.csv"
    scales.write_text("assessor,grades\nw1,0-3\n*,0-8\n")
    frame = crowd(30).assign(assessor="w1")
    frame.loc[15, "grade"] = 7
    scaled = error(cut(frame, tmp_path / "scaled"), scales=scales)
    assert (scaled.kind, scaled.location.place) == ("grade-off-scale", "row 6")
    nobody = error(cut(crowd(9), tmp_path / "all"), exclude=[f"w{n}" for n in range(9)])
    assert (nobody.kind, nobody.location.source) == ("no-rows-left", str(tmp_path / "all"))


def test_a_folder_without_parquet_files_is_refused(tmp_path: Path) -> None:
    assert error(tmp_path / "nowhere").location.source == str(tmp_path / "nowhere")
    (tmp_path / "nothing").mkdir()
    assert error(tmp_path / "nothing").location.source == str(tmp_path / "nothing")
    for name in "abcd":
        crowd(3).to_csv(tmp_path / "nothing" / f"{name}.csv")
    assert "a.csv, b.csv, c.csv" in str(error(tmp_path / "nothing"))


def test_files_that_are_passed_over_are_said(tmp_path: Path) -> None:
    folder = cut(crowd(30), tmp_path / "in")
    whole = len(read_partitions(folder))
    (folder / "_SUCCESS").touch()
    (folder / "later").mkdir()
    crowd(3).to_csv(folder / "later" / "more.csv", index=False)
    with pytest.warns(
        DataWarning, match=r"in: 1 other file \(more.csv\) passed over; of a folder only Parquet files are read"
    ) as caught:
        assert len(read_partitions(folder)) == whole
    assert len(caught) == 1


def test_a_query_larger_than_a_shard_works_and_is_said(tmp_path: Path) -> None:
    frame = crowd(200).assign(query=lambda f: f["query"].where(f.index < 80, "large"))
    with pytest.warns(DataWarning, match="The query 'large' has 120 judgments, more than a shard of 50"):
        made = read_partitions(cut(frame, tmp_path / "in"), shard_size=50, repeats="keep")
    pd.testing.assert_frame_equal(rows(in_memory(made)), rows(read_judgments(frame, repeats="keep")))


def test_a_remote_file_is_opened_for_its_footer_and_for_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for number in range(2):
        with system.open(f"/counted/{number}.parquet", "wb") as stream:
            crowd(scale="0|1|2|3|4").iloc[number * 150 : (number + 1) * 150].to_parquet(stream)
    opens: Counter[str] = Counter()
    open_file = type(system).open

    def counting(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        opens[path] += 1
        return open_file(self, path, *arguments, **options)

    monkeypatch.setattr(type(system), "open", counting)
    try:
        judgments = read_partitions("memory://counted", shard_size=100)
    finally:
        system.rm("/counted", recursive=True)
    assert judgments.scales == (Scale.parse("0-4"),)
    assert opens == {"/counted/0.parquet": 2, "/counted/1.parquet": 2}


def test_any_address_that_fsspec_reaches_is_read() -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for number in range(2):
        with system.open(f"/partitions/{number}.parquet", "wb") as stream:
            crowd().iloc[number * 150 : (number + 1) * 150].to_parquet(stream)
    try:
        assert_same(read_partitions("memory://partitions").load(0), read_judgments(crowd()))
    finally:
        system.rm("/partitions", recursive=True)
    with pytest.raises(InputError, match="memory://partitions: there is no such folder"):
        read_partitions("memory://partitions")
    with pytest.raises(InputError, match="nosuch://x: it cannot be reached"):
        read_partitions("nosuch://x")


def test_shards_that_are_there_are_used_again_until_something_changes(tmp_path: Path) -> None:
    folder, work = cut(crowd(), tmp_path / "in"), tmp_path / "work"
    made = read_partitions(folder, work=work, shard_size=60)
    assert {path.name.split("-")[0] for path in work.iterdir()} >= {"codes", "ids", "queries"}
    assert not list(work.glob("part-*"))
    before = (work / "judgments.json").stat().st_mtime_ns
    again = read_partitions(folder, work=work, shard_size=60)
    assert (work / "judgments.json").stat().st_mtime_ns == before
    assert again.shards == made.shards
    for place in range(len(made.shards)):
        assert_same(again.load(place), made.load(place))
    crowd(50, seed=1).to_parquet(folder / "9.parquet")
    more = read_partitions(folder, work=work, shard_size=60)
    assert more.report.rows == 350
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(OutputError, match="crowdrank did not write this folder"):
        read_partitions(folder, work=tmp_path / "mine")
    with pytest.raises(InputError, match="it is not a folder of shards"):
        load_sharded(tmp_path / "mine")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(bytes(range(256)) * 4),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "empty", "binary", "removed"],
)
def test_damaged_shards_are_built_again(damage: Callable[[Path], object], tmp_path: Path) -> None:
    folder, work = cut(crowd(), tmp_path / "in"), tmp_path / "work"
    made = read_partitions(folder, work=work, shard_size=60)
    files = {path.name: path.read_bytes() for path in work.iterdir()}
    for name in files:
        damage(work / name)
        if name == MANIFEST_FILE_NAME:  # nothing else shows that crowdrank wrote the folder
            with pytest.raises(OutputError) as refused, warnings.catch_warnings(action="error"):
                read_partitions(folder, work=work, shard_size=60)
            assert refused.value.kind == "foreign-folder"
            (work / name).write_bytes(files[name])
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = read_partitions(folder, work=work, shard_size=60)
        kinds = [one.message.kind for one in caught if isinstance(one.message, DataWarning)]
        assert kinds == ([] if name == "key.txt" else ["damaged-shards"]), name
        assert {path.name: path.read_bytes() for path in work.iterdir()} == files, name
        assert again.shards == made.shards


def test_a_shard_is_verified_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soft = crowd(p0=0.25, p1=0.25, p2=0.25, p3=0.25)
    read_partitions(cut(soft, tmp_path / "in"), work=tmp_path / "work", shard_size=60)
    checks: Counter[str] = Counter()

    def count_calls(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counting(*arguments: Any) -> Any:
            checks[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, counting)

    count_calls(sharded, "_codes_digest")
    count_calls(storage, "check_codes")
    count_calls(storage, "check_grade_probabilities")
    monkeypatch.setattr(sharded, "_verified_files", set())
    monkeypatch.setattr(sharded, "_files_with_valid_shares", set())
    judgments = load_sharded(tmp_path / "work")
    n_shards = len(judgments.shards)
    for _ in range(3):
        in_memory(judgments)
    counted = {"check_codes": 3 * n_shards, "check_grade_probabilities": n_shards}
    assert checks == counted  # the manifest has the digests
    sharded._verified_files.clear()  # as in the process of a worker
    for _ in range(2):
        in_memory(judgments)
    assert checks["_codes_digest"] == n_shards
    path = tmp_path / "work" / "codes-00000.npy"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        judgments.load(0)
    assert caught.value.location.source == str(path)


def test_a_failed_shuffle_leaves_nothing(tmp_path: Path) -> None:
    folder = cut(crowd(30).assign(family=lambda f: f.index.astype(str)), tmp_path / "in")
    assert error(folder, work=tmp_path / "work").kind == "another-family"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_gold_is_found_in_its_shard(tmp_path: Path) -> None:
    frame = crowd()
    made, memory = read_partitions(cut(frame, tmp_path / "in"), shard_size=60), read_judgments(frame)
    gold = read_gold(frame.drop_duplicates(["query", "document"])[["query", "document", "grade"]].head(20))
    found = gold.for_shards(made)
    assert len(found) == len(gold.for_items(memory)) == 20
    for place in range(len(made.shards)):
        shard = made.load(place)
        np.testing.assert_array_equal(found.shard(place, shard.n_items).code, gold.for_items(shard).code)


def test_what_is_said_of_judgments_is_that_of_memory(tmp_path: Path) -> None:
    frame = crowd().assign(family="f")
    frame.loc[frame.index[::9], "grade"] = -2
    frame.loc[4, "grade"] = -7
    options: dict[str, Any] = {"unjudgeable": -2, "on_bad_rows": "skip"}
    found = inspect(read_partitions(cut(frame, tmp_path / "in"), shard_size=60, **options))
    in_memory = inspect(read_judgments(frame, **options))
    remarks, in_memory_remarks = (
        [message for message in one.messages if message.severity != "error"] for one in (found, in_memory)
    )
    of_queries = {"documents per query", "queries per assessor", "judgments per assessor and query"}
    facts = {name: fact for name, fact in in_memory.facts.items() if name not in of_queries}  # these need all shards
    assert (found.facts, remarks, len(found.problems)) == (facts, in_memory_remarks, 1)
    assert of_queries < set(in_memory.facts)


def test_what_only_memory_has_is_refused_in_a_sentence(tmp_path: Path) -> None:
    made = read_partitions(cut(crowd(), tmp_path / "in"))
    with pytest.raises(OnDiskError, match="These judgments are on disk and have no 'grade'"):
        _ = made.grade
    assert not hasattr(made, "nonsense")
    wrong: tuple[dict[str, Any], ...] = ({"by": "row"}, {"repeats": "all"}, {"shard_size": 0}, {"on_bad_rows": "drop"})
    for options in wrong:
        with pytest.raises(UsageError):
            read_partitions(tmp_path / "in", **options)


def test_the_column_scale_of_a_folder_has_the_order_of_the_grades(tmp_path: Path) -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": ["Good", "Bad"], "scale": "Bad|Fair|Good"})
    frame.to_parquet(tmp_path / "1.parquet")
    frame.assign(assessor="y").to_parquet(tmp_path / "2.parquet")
    assert read_partitions(tmp_path).scales == (Scale.parse("Bad,Fair,Good"),)
    assert read_partitions(tmp_path, grades="Good,Bad").scales == (Scale.parse("Good,Bad"),)
