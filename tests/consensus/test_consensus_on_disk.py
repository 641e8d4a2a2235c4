"""Every model on judgments that stay on disk: the same shards give the same bytes, other shards the same numbers."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crowdrank import (
    Aggregator,
    Judgments,
    LocalEngine,
    ShardedJudgments,
    read_gold,
    read_judgments,
    read_partitions,
)
from crowdrank.cli.app import app
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.assembly import StoredConsensus
from crowdrank.engine.passes import LocalPasses
from crowdrank.engine.shards import InMemoryShards, make_shards
from crowdrank.errors import ConvergenceWarning, DataWarning, InputError, OutputError, UsageError

SHARD = 120
EACH = [method for method in METHODS if method != "auto"]
each = pytest.mark.parametrize("method", EACH)


def crowd(seed: int = 0) -> pd.DataFrame:
    """Nine queries, eight assessors, two of them in a family; each (document, assessor) at most once, in no order."""
    rng = np.random.default_rng(seed)
    truth, quality = rng.integers(0, 3, 150), rng.uniform(0.4, 0.95, 8)
    item, assessor = np.nonzero(rng.random((150, 8)) < 0.5)
    right = rng.random(len(item)) < quality[assessor]
    grade = np.where(right, truth[item], rng.integers(0, 3, len(item)))
    frame = pd.DataFrame({"query": item % 9, "document": item, "assessor": assessor, "grade": grade})
    frame = frame.assign(query=[f"q{q}" for q in frame["query"]], assessor=[f"w{a}" for a in frame["assessor"]])
    frame["family"] = frame["assessor"].map({"w1": "x", "w2": "x"})
    frame.loc[rng.random(len(frame)) < 0.05, "grade"] = -2
    return frame.sample(frac=1, random_state=seed)


def cut(frame: pd.DataFrame, folder: Path) -> Path:
    folder.mkdir()
    for number in range(3):
        frame.iloc[number::3].to_parquet(folder / f"{number}.parquet", index=False)
    return folder


def whole(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order in which `cut` has them."""
    return pd.concat([frame.iloc[number::3] for number in range(3)])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judgments, ShardedJudgments, ShardedJudgments]:
    """The crowd in memory, on disk in one shard, and in several."""
    folder = tmp_path_factory.mktemp("world")
    files = cut(crowd(), folder / "in")
    one = read_partitions(files, unjudgeable=-2)
    many = read_partitions(files, unjudgeable=-2, shard_size=SHARD)
    assert len(many.shards) > 3
    return read_judgments(whole(crowd()), unjudgeable=-2), one, many


def made(method: str, **settings: Any) -> Aggregator:
    model = get_aggregator(method)
    if "n_iter" in model.get_params():
        settings = {"n_iter": 5, "tol": 0.0, **settings}
    return model.set_params(**settings)


def fitted(model: Aggregator, judgments: Any, **options: Any) -> Aggregator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return model.fit(judgments, **options)


def assert_equal(one: Aggregator, other: Aggregator) -> None:
    for table in ("document_table", "assessor_table"):  # as pandas: there NaN, of grades that a scale has not, is NaN
        mine, its = (getattr(model.consensus_, table).to_pandas() for model in (one, other))
        pd.testing.assert_frame_equal(mine, its, check_exact=True)
    assert one.history_ == other.history_ or np.isnan(one.history_).all()


def assert_close(one: Aggregator, other: Aggregator, tolerance: float = 1e-8) -> None:
    for table, key in (("document_table", ["query", "document"]), ("assessor_table", ["assessor"])):
        mine, its = (getattr(model.consensus_, table).to_pandas().set_index(key).sort_index() for model in (one, other))
        pd.testing.assert_frame_equal(mine, its, check_exact=False, rtol=tolerance, atol=tolerance)


@each
def test_one_shard_gives_the_bytes_of_memory_and_several_the_numbers(
    method: str, world: tuple[Judgments, ShardedJudgments, ShardedJudgments]
) -> None:
    memory, one, many = world
    in_memory = fitted(made(method), memory)
    on_disk = fitted(made(method), one)
    assert_equal(in_memory, on_disk)
    assert isinstance(on_disk.consensus_, StoredConsensus)
    in_several = fitted(made(method), many, engine=LocalEngine(n_jobs=2))
    assert_close(in_memory, in_several)
    assert_equal(in_several, fitted(made(method), many))


@each
def test_the_same_shards_in_memory_give_the_same_bytes(
    method: str, world: tuple[Judgments, ShardedJudgments, ShardedJudgments]
) -> None:
    model, many = made(method), world[2]

    class InMemory:
        """The shards of the disk, held."""

        def open(self, model: Any, judgments: Any, gold: Any = None, scores: Any = None) -> LocalPasses[Any]:
            shards = make_shards(judgments, gold, model.locality, scores=scores)
            return LocalPasses(model, InMemoryShards([shards.load(place) for place in range(len(shards))]))

    assert_equal(fitted(model, many), fitted(made(method), many, engine=InMemory()))


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("dawid-skene", {"unjudgeable_as": "drop"}),
    ("glad", {"unjudgeable_as": "drop"}),
    ("gda-pairwise", {"unjudgeable_as": "drop", "partners": 3, "difficulty": True}),
    ("gda", {"unjudgeable_as": "model"}),
    ("gda", {"families": "none", "difficulty": True, "estimation": "joint"}),
    ("gda", {"families": "auto"}),
]


@pytest.mark.parametrize(("method", "settings"), SETTINGS)
def test_gold_and_settings_do_on_disk_what_they_do_in_memory(
    method: str, settings: dict[str, Any], world: tuple[Judgments, ShardedJudgments, ShardedJudgments]
) -> None:
    memory, one, many = world
    items = crowd().query("grade >= 0").drop_duplicates(["query", "document"]).head(25)
    gold = read_gold(items[["query", "document", "grade"]])
    in_memory = fitted(made(method, **settings), memory, gold=gold)
    assert_equal(in_memory, fitted(made(method, **settings), one, gold=gold))
    assert_close(in_memory, fitted(made(method, **settings), many, gold=gold))
    assert "gold_accuracy" in in_memory.consensus_.assessor_table.column_names


@pytest.mark.parametrize("method", ["rasch", "gda", "gda-pairwise"])
def test_scales_do_on_disk_what_they_do_in_memory(method: str, tmp_path: Path) -> None:
    frame = crowd().query("grade >= 0").drop(columns="family")
    frame.loc[frame["assessor"] == "w3", "grade"] *= 2
    (tmp_path / "scales.csv").write_text("assessor,grades\nw3,0-4\n*,0-2\n")
    options: dict[str, Any] = {"scales": tmp_path / "scales.csv"}
    memory = fitted(made(method), read_judgments(whole(frame), **options))
    files = cut(frame, tmp_path / "in")
    assert_equal(memory, fitted(made(method), read_partitions(files, **options)))
    assert_close(memory, fitted(made(method), read_partitions(files, shard_size=SHARD, **options)))


def test_auto_chooses_by_a_sample_and_fits_everything(
    world: tuple[Judgments, ShardedJudgments, ShardedJudgments], tmp_path: Path
) -> None:
    memory, _, many = world
    settings = {"candidates": ("average", "dawid-skene"), "folds": 2}
    in_memory = fitted(made("auto", **settings), memory)
    on_disk = fitted(made("auto", **settings), many, output=tmp_path / "out")
    assert on_disk.choice_["chosen_for"].tolist() == in_memory.choice_["chosen_for"].tolist()  # type: ignore[attr-defined]
    assert_close(in_memory, on_disk, 1e-6)
    assert StoredConsensus(tmp_path / "out").method == "Auto"
    few = many.sample(SHARD)
    assert 0 < len(few) < len(many)


def told_of(model: Aggregator, judgments: Any, gold: Any = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(judgments, gold=gold)
    return [str(one.message) for one in caught if issubclass(one.category, DataWarning)]


def test_cautions_are_those_of_memory(tmp_path: Path) -> None:
    frame = crowd().query("grade >= 0")
    apart = frame.assign(
        assessor=frame["assessor"] + "-" + (frame["document"] % 2).astype(str), family=None, document=frame["document"]
    )
    alone = frame.drop_duplicates(["query", "document"])
    gold = frame.drop_duplicates(["query", "document"])[["query", "document", "grade"]].assign(
        grade=lambda rows: 2 - rows["grade"]
    )
    cases = [("gda", apart, None, "fall into 2 groups"), ("dawid-skene", alone, None, "No document was judged by two")]
    for number, (method, rows, expert, said) in enumerate([*cases, ("gda", frame, gold, "against the expert grades")]):
        on_disk = read_partitions(cut(rows, tmp_path / f"in{number}"), shard_size=SHARD)
        known = None if expert is None else read_gold(expert)
        sentences = told_of(made(method), on_disk, known)
        in_memory = told_of(made(method), read_judgments(whole(rows)), known)
        # Pairs of judgments are sampled in another order, so that their share of agreement differs.
        assert [re.sub(r"\d+%", "", one) for one in sentences] == [re.sub(r"\d+%", "", one) for one in in_memory]
        assert any(said in sentence for sentence in sentences)


@pytest.mark.parametrize("method", ["dawid-skene", "glad", "gda-pairwise"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_fit_goes_on_from_its_checkpoint(
    method: str, threads: int, world: tuple[Judgments, ShardedJudgments, ShardedJudgments], tmp_path: Path
) -> None:
    many = world[2]
    expected = fitted(made(method), many)

    class Stops(type(get_aggregator(method))):  # type: ignore[misc]
        """Is interrupted in the middle of a pass."""

        passes = 0

        def _accumulate(self, *pass_: Any) -> Any:
            self.passes += 1
            if self.passes == 3 * len(many.shards) + 2:
                raise KeyboardInterrupt
            return super()._accumulate(*pass_)

    Stops.__name__ = type(get_aggregator(method)).__name__
    out, kept = tmp_path / "out", tmp_path / "kept"
    fitted(made("average"), many, output=out)
    before = StoredConsensus(out).document_table
    with pytest.raises(KeyboardInterrupt):
        fitted(Stops(5, 0.0), many, checkpoint=kept, output=out, engine=LocalEngine(threads))
    assert StoredConsensus(out).document_table.equals(before)  # the last good result
    assert json.loads((kept / "checkpoint.json").read_text())["shards"] == len(many.shards)
    assert_equal(expected, fitted(made(method), many, checkpoint=kept, output=out))
    assert not kept.exists()
    assert StoredConsensus(out).method == type(get_aggregator(method)).__name__


def test_a_checkpoint_of_other_shards_is_refused(
    world: tuple[Judgments, ShardedJudgments, ShardedJudgments], tmp_path: Path
) -> None:
    _, one, many = world

    def stop(*progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(made("dawid-skene"), many, checkpoint=tmp_path / "kept", progress=stop)
    with pytest.raises(InputError, match="it is the checkpoint of other judgments"):
        fitted(made("dawid-skene"), one, checkpoint=tmp_path / "kept")


def test_results_are_files_with_the_columns_of_memory(
    world: tuple[Judgments, ShardedJudgments, ShardedJudgments], tmp_path: Path
) -> None:
    memory, _, many = world
    model = fitted(made("dawid-skene"), many, output=tmp_path / "out")
    found, expected = model.consensus_, fitted(made("dawid-skene"), memory).consensus_
    assert isinstance(found, StoredConsensus)
    assert len(found.document_files()) == len(many.shards)
    assert {tuple(part.column_names) for part in found.document_parts()} == {
        tuple(expected.document_table.column_names)
    }
    assert found.n_documents == len(found.document_table) == many.n_items
    assert repr(found) == f"<Consensus by DawidSkene: {many.n_items} documents, 8 assessors, in {tmp_path / 'out'}>"
    assert model.predict().sort_index().equals(fitted(made("dawid-skene"), memory).predict().sort_index())
    assert pq.read_table(tmp_path / "out" / "assessors.parquet").equals(found.assessor_table)
    # Other judgments, in memory, by the assessors as they were estimated; and a start from what is known.
    few = crowd().query("grade >= 0").head(40)
    assert model.infer(few).n_documents == len(few.drop_duplicates(["query", "document"]))
    assert fitted(made("dawid-skene", n_iter=1), many, init=model).history_[0] > model.history_[0]


def test_what_needs_memory_is_refused_in_a_sentence(
    world: tuple[Judgments, ShardedJudgments, ShardedJudgments], tmp_path: Path
) -> None:
    memory, _, many = world
    model = fitted(made("gda"), many)
    for refused in (
        lambda: model.save(tmp_path / "model"),
        lambda: model.add(crowd()),
        lambda: model.posterior(),
        lambda: model.infer(many),
    ):
        with pytest.raises(UsageError) as on_disk:
            refused()
        assert on_disk.value.kind == "on-disk"
    with pytest.raises(UsageError) as in_memory:
        made("gda").fit(memory, output=tmp_path / "out")
    assert in_memory.value.parameter == "output"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(OutputError, match="crowdrank did not write this folder"):
        made("gda").fit(many, output=tmp_path / "mine")
    with pytest.raises(InputError) as other_documents:
        made("gda").fit(many, gold=pd.DataFrame({"query": ["z"], "document": ["z"], "grade": [1]}))
    assert other_documents.value.kind == "no-expert-grades"
    parts = read_partitions(cut(crowd(), tmp_path / "in"), by="document", shard_size=SHARD, unjudgeable=-2)
    assert fitted(made("gda"), parts).consensus_.n_documents == many.n_items
    with pytest.raises(UsageError) as split_queries:
        made("gda-pairwise").fit(parts)
    assert split_queries.value.kind == "split-queries"


def test_the_command_line_takes_a_folder_and_writes_one(tmp_path: Path) -> None:
    files, out, work = cut(crowd().query("grade >= 0"), tmp_path / "in"), tmp_path / "out", tmp_path / "work"
    run = CliRunner()
    words = ["aggregate", str(files), "-m", "dawid-skene", "-s", "n_iter=3", "-o", str(out), "--work", str(work)]
    done = run.invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    assert summary["documents"] == StoredConsensus(out).n_documents == len(pq.read_table(out / "documents"))
    assert (summary["judgments"], summary["output"]) == (len(crowd().query("grade >= 0")), str(out))
    shown = run.invoke(app, [*words, "--assessors", str(tmp_path / "who.csv")], catch_exceptions=False).stdout
    assert "more rows" in shown
    assert "dawid-skene on" in shown
    assert len(pd.read_csv(tmp_path / "who.csv")) == 8
    result = {
        "name a folder for its consensus too": ["aggregate", str(files)],
        "save is not available for a folder of judgments": [*words, "--save", "x"],
        "format is not available for a folder of judgments": [*words, "--format", "csv"],
        "which is read; choose another": ["aggregate", str(files), "-o", str(files / "out")],
        "must not be in the folder that is read": ["aggregate", str(files), "-o", "x", "--work", str(files / "work")],
        "work is for a folder of Parquet files": ["aggregate", str(files / "0.parquet"), "--work", str(work)],
    }
    for sentence, line in result.items():
        with pytest.raises(UsageError, match=sentence):
            run.invoke(app, line, catch_exceptions=False)
