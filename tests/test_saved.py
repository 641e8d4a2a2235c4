"""Altered saved folders are refused with one message, also where their digests were made to fit."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crowdrank
from crowdrank._saved_estimators import arrays_from_table, arrays_to_table
from crowdrank.collection.requests import OutstandingRequests
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.saved_models import Checkpoint
from crowdrank.errors import InputError
from crowdrank.label_learning.boosted_remapper import BoostedRemapper
from crowdrank.label_learning.linear_remapper import LinearRemapper
from crowdrank.label_learning.remapper import Remapper
from crowdrank.on_disk.sharded import load_sharded
from crowdrank.pipeline.run_result import RunResult
from crowdrank.rankers.boosting import check_trees
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.ranker import Ranker
from tools.fuzz_saved import manifest_kinds, run, update_digests
from tools.mutations import mutate

WORLD = crowdrank.simulate(queries=12, documents=5, assessors=6, labels=4, gold_queries=8, random_state=1)
Change = Callable[[Any], Any]


def sealed(folder: Path, change: Callable[[], None]) -> Path:
    """Change a folder and make its digests fit again."""
    kinds = manifest_kinds(folder)
    change()
    update_digests(folder, kinds)
    return folder


def json_change(path: Path, change: Change) -> Callable[[], None]:
    return lambda: _write_json(path, change(json.loads(path.read_text())))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def column_change(path: Path, name: str, values: Change) -> Callable[[], None]:
    def change() -> None:
        table = pq.read_table(path)
        column = values(table[name].to_pylist())
        kind = table[name].type if not isinstance(column, pa.Array) else column.type
        table = table.set_column(table.column_names.index(name), name, pa.array(column, kind))
        pq.write_table(table, path)

    return change


def array_change(path: Path, name: str, change: Change) -> Callable[[], None]:
    def write() -> None:
        arrays = arrays_from_table(pq.read_table(path))
        pq.write_table(arrays_to_table({**arrays, name: change(arrays[name])}), path)

    return write


def first(value: Any) -> Change:
    """Put a value in the place of the first one."""
    return lambda values: [value, *values[1:]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a saved model, a saved ranker and shards."""
    folder = tmp_path_factory.mktemp("saved")
    crowdrank.DawidSkene(n_iter=50, tol=1.0).fit(WORLD.judgments).save(folder / "model")
    rows = WORLD.features.merge(WORLD.gold, on=["query", "document"])
    X = rows.drop(columns=["query", "document", "grade"])
    ranker = LambdaMART(n_estimators=3, num_leaves=4, min_child_samples=2)
    ranker.fit(X, rows["grade"], query=rows["query"]).save(folder / "ranker")
    (folder / "in").mkdir()
    WORLD.judgments.to_parquet(folder / "in" / "0.parquet")
    crowdrank.read_partitions(folder / "in", work=folder / "shards", shard_size=80)
    return folder


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """Return a copy of the saved model."""
    return Path(shutil.copytree(saved / "model", tmp_path / "model"))


@pytest.fixture
def trees(saved: Path, tmp_path: Path) -> Path:
    """Return a copy of the saved ranker."""
    return Path(shutil.copytree(saved / "ranker", tmp_path / "ranker"))


@pytest.fixture
def shards(saved: Path, tmp_path: Path) -> Path:
    """Return a copy of the shards."""
    return Path(shutil.copytree(saved / "shards", tmp_path / "shards"))


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("assessor", first(2_000_000_000)),
        ("assessor", first(-1)),
        ("grade", first(99)),
        ("grade", first(-7)),
        ("document", first(2_000_000_000)),
        ("query", lambda values: values[::-1]),
        ("assessor_scale", first(3)),
        ("assessors", lambda values: [values[1], *values[1:]]),
        ("assessor", lambda values: pa.array([float(value) for value in values])),
    ],
)
def test_codes_of_saved_judgments_are_checked(model: Path, column: str, change: Change) -> None:
    sealed(model, column_change(model / "judgments.parquet", column, change))
    with pytest.raises(InputError, match=r"judgments\.parquet: it holds no saved judgments \("):
        Aggregator.load(model)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("likelihood", lambda array: array[:1]),
        ("likelihood", lambda array: array.astype(np.float32)),
        ("likelihood", lambda array: array * np.nan),
        ("likelihood", lambda array: array - 2),
        ("shares", lambda array: np.append(array, 0.0)),
        ("more", lambda array: array),
    ],
)
def test_parameters_of_a_saved_model_are_checked(model: Path, name: str, change: Change) -> None:
    if name == "more":
        table = arrays_to_table({**arrays_from_table(pq.read_table(model / "theta.parquet")), "more": np.zeros(1)})
        sealed(model, lambda: pq.write_table(table, model / "theta.parquet"))
    else:
        sealed(model, array_change(model / "theta.parquet", name, change))
    with pytest.raises(InputError, match="model: it is not a saved model"):
        Aggregator.load(model)


@pytest.mark.parametrize(
    "row",
    [
        {"name": "a", "dtype": "|O", "shape": [1], "bytes": b"12345678"},
        {"name": "a", "dtype": "<f8", "shape": [2], "bytes": b"12345678"},
        {"name": "a", "dtype": "<f8", "shape": [-1], "bytes": b"12345678"},
        {"name": "a", "dtype": "<f8", "shape": [2**62, 2**62], "bytes": b""},
        {"name": None, "dtype": "<f8", "shape": [1], "bytes": b"12345678"},
    ],
)
def test_an_array_whose_bytes_do_not_fit_is_refused(row: dict[str, Any]) -> None:
    schema = arrays_to_table({"a": np.zeros(1)}).schema
    with pytest.raises(ValueError, match="array"):
        arrays_from_table(pa.Table.from_pylist([row], schema=schema))


@pytest.mark.parametrize(
    "change",
    [
        lambda about: {**about, "parameters": {**about["parameters"], "prior": "x"}},
        lambda about: {**about, "parameters": {**about["parameters"], "n_iter": -1}},
        lambda about: {**about, "parameters": {**about["parameters"], "unknown": 1}},
        lambda about: {**about, "history": "x"},
        lambda about: {**about, "model": 3},
        lambda about: [about],
    ],
)
def test_settings_of_a_saved_model_are_checked(model: Path, change: Change) -> None:
    sealed(model, json_change(model / "model.json", change))
    with pytest.raises(InputError, match="it is not a saved model"):
        Aggregator.load(model)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "x", "Trees"])
@pytest.mark.parametrize("kind", ["texts", "parts"])
def test_a_ranker_opens_no_file_outside_of_its_folder(trees: Path, name: str, kind: str) -> None:
    sealed(trees, json_change(trees / "ranker.json", lambda about: {**about, kind: [name]}))
    with pytest.raises(InputError, match=f"there is no '{name}' in it"):
        Ranker.load(trees)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("split_feature", "999 0 0"),
        ("split_feature", "-1 0 0"),
        ("split_feature", "1_0 0 0"),
        ("left_child", "0 1 2"),
        ("left_child", "-9 -1 -2"),
        ("right_child", "900 -3 -4"),
        ("threshold", "1 2"),
        ("leaf_value", "1 2 3"),
        ("decision_type", "2 2 99"),
        ("decision_type", "1 1 1"),
        ("num_leaves", "2000000000"),
        ("num_cat", "5"),
    ],
)
def test_indices_in_trees_are_checked(trees: Path, line: str, value: str) -> None:
    text = (trees / "trees.txt").read_text()
    n_features = int(text.partition("max_feature_idx=")[2].split("\n")[0]) + 1
    assert check_trees(text, n_features) == 3
    head, _, rest = text.partition(f"\n{line}=")
    altered = f"{head}\n{line}={value}\n{rest.partition(chr(10))[2]}"
    grown = len(altered) - len(text)
    sizes = altered.partition("tree_sizes=")[2].split("\n")[0]
    sized = " ".join([str(int(sizes.split()[0]) + grown), *sizes.split()[1:]])
    with pytest.raises(ValueError, match=r"."):
        check_trees(altered.replace(f"tree_sizes={sizes}", f"tree_sizes={sized}"), n_features)


def test_arrays_of_a_remapper_are_checked(tmp_path: Path) -> None:
    world = crowdrank.simulate(queries=16, documents=4, label_grades=2, gold_queries=12, random_state=1)
    folder = tmp_path / "remapper"
    LinearRemapper(n_iter=2, mode="T", tree_features=0).fit(world.judgments, world.features, world.gold).save(folder)
    sealed(folder, array_change(folder / "arrays.parquet", "beta", lambda array: np.append(array, 1.0)))
    with pytest.raises(InputError, match="remapper: it is not a saved remapper"):
        Remapper.load(folder)


def test_trees_of_a_remapper_are_checked(tmp_path: Path) -> None:
    world = crowdrank.simulate(queries=16, documents=4, label_grades=2, gold_queries=12, random_state=1)
    folder = tmp_path / "remapper"
    remapper = BoostedRemapper(n_iter=9, mode="T", start="zero", min_child_samples=2, tree_features=0)
    remapper.fit(world.judgments, world.features, world.gold).save(folder)

    def change() -> None:
        text = (folder / "target-0.txt").read_text()
        (folder / "target-0.txt").write_text(text.replace("split_feature=", "split_feature=9"))

    sealed(folder, change)
    with pytest.raises(InputError, match="remapper: it is not a saved remapper"):
        Remapper.load(folder)


def test_shards_that_change_after_they_were_opened_are_refused(shards: Path) -> None:
    judgments = load_sharded(shards)
    codes = shards / "codes-00000.npy"
    whole = codes.read_bytes()
    judgments.load(0)
    for altered in (whole[:-3], whole[:40], b"", whole[:200] + b"\x7f\x7f\x7f\x7f" + whole[204:], whole + whole[:5]):
        codes.write_bytes(altered)
        if altered.startswith(whole):
            judgments.load(0)  # what comes after the arrays is not read
            continue
        with pytest.raises(InputError, match=r"codes-00000\.npy: the shard was changed after it was written"):
            judgments.load(0)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: {**about, "shards": []},
        lambda about: {**about, "shards": [{**about["shards"][0], "number": -1}, *about["shards"][1:]]},
        lambda about: {**about, "shards": [{**about["shards"][0], "number": "../x"}, *about["shards"][1:]]},
        lambda about: {**about, "shards": [about["shards"][0]] * len(about["shards"])},
        lambda about: {**about, "scales": [[["0", "1"], [0.0, 7.0]]]},
        lambda about: {**about, "report": {}},
    ],
)
def test_what_is_known_of_shards_is_checked(shards: Path, change: Change) -> None:
    sealed(shards, json_change(shards / "judgments.json", change))
    with pytest.raises(InputError, match="it holds no shards of judgments"):
        load_sharded(shards)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("method", [crowdrank.DawidSkene, crowdrank.GLAD, crowdrank.GDAPairwise])
def test_a_checkpoint_is_checked(tmp_path: Path, method: Any) -> None:
    def stop(iteration: int, *rest: object) -> None:
        if iteration == 3:
            raise StoppedError

    judgments, folder = crowdrank.read_judgments(WORLD.judgments), tmp_path / "checkpoint"
    whole = method(n_iter=5, tol=0).fit(judgments).consensus_.document_table
    with pytest.raises(StoppedError):
        method(n_iter=5, tol=0).fit(judgments, checkpoint=Checkpoint(folder, every=0.0), progress=stop)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("theta", "statistics", "local-0"):
        for file, data in kept.items():
            (folder / file).write_bytes(data)
        arrays = arrays_from_table(pq.read_table(folder / f"{name}.parquet"))
        wrong = {one: array[:-1] for one, array in arrays.items()} or {"unknown": np.zeros(1)}
        path = folder / f"{name}.parquet"
        sealed(folder, lambda path=path, wrong=wrong: pq.write_table(arrays_to_table(wrong), path))  # type: ignore[misc]
        with pytest.raises(InputError, match="it is not a checkpoint"):
            method(n_iter=5, tol=0).fit(judgments, checkpoint=folder)
    for file, data in kept.items():
        (folder / file).write_bytes(data)
    assert method(n_iter=5, tol=0).fit(judgments, checkpoint=folder).consensus_.document_table.equals(whole)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    crowdrank.run(WORLD.judgments, WORLD.features, candidates=["average"], output=folder)
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda about: {**about, "sizes": {}},
        lambda about: {**about, "settings": []},
        lambda about: {**about, "rankers": {**about["rankers"], "chosen": "nobody"}},
        lambda about: {**about, "notes": [1]},
        lambda about: {**about, "rankers": {**about["rankers"], "test_queries": None}},
    ],
)
def test_run_json_is_checked(finished_run: Path, change: Change) -> None:
    before = (finished_run / "run.json").read_bytes()
    sealed(finished_run, json_change(finished_run / "run.json", change))
    with pytest.raises(InputError, match="its files cannot be read"):
        RunResult.load(finished_run)
    sealed(finished_run, json_change(finished_run / "run.json", lambda _: json.loads(before)))


@pytest.mark.parametrize(
    "line",
    ["q,d,ann,crowd,1,-1,2024-05-31", "q,d,ann,crowd,1e300,1,2024-05-31", "q,d,ann,crowd,1,0.5,2024-05-31",
     "q,d,ann,crowd,1,1,yesterday", ",d,ann,crowd,1,1,2024-05-31"],
)  # fmt: skip
def test_a_ledger_is_checked(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.requests.csv"
    path.write_text(f"query,document,assessor,kind,price,had,asked\n{line}\n")
    with pytest.raises(InputError, match=r"a\.requests\.csv, row 1"):
        OutstandingRequests.read(path)


def test_bytes_are_mutated() -> None:
    rng = random.Random(0)
    assert sum(mutate(b"0123456789" * 20, rng) != b"0123456789" * 20 for _ in range(50)) > 40


def test_altered_folders_give_an_error_or_a_result() -> None:
    outcomes = run(count=80, seconds=600.0, seed=7)
    assert sum(outcomes.values()) == 80
    assert sum(number for name, number in outcomes.items() if name.endswith("refused")) > 20
