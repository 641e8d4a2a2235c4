"""Judgments on disk with preferences: the same shards give the same bytes, other shards the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, LocalEngine, ShardedJudgments, read_judgments, read_partitions, read_preferences
from crowdrank.consensus.assembly import StoredConsensus
from crowdrank.errors import InputError, UsageError
from crowdrank.on_disk.joined_shards import JoinedShards
from terminal import crowdrank

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")


def relevance() -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).normal(size=(10, 12))


def crowd() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return judgments of nine queries, and preferences that have further documents, assessors and a query."""
    rng = np.random.default_rng(0)
    truth = relevance()
    rows = [
        (f"q{query}", f"d{document}", f"w{judge}", int(np.digitize(truth[query, document] + rng.normal(), [-0.5, 0.5])))
        for query in range(9)
        for document in range(10)
        for judge in rng.choice(6, 3, replace=False)
    ]
    pairs = []
    for _ in range(500):
        query, judge, (left, right) = rng.integers(10), rng.integers(4, 9), rng.choice(12, 2, replace=False)
        latent = 1.5 * (truth[query, left] - truth[query, right]) + rng.logistic()
        answer = 0 if abs(latent) < 0.3 else -int(np.sign(latent))
        pairs.append((f"q{query}", f"d{left}", f"d{right}", f"w{judge}", answer))
    judgments = pd.DataFrame(rows, columns=["query", "document", "assessor", "grade"])
    preferences = pd.DataFrame(pairs, columns=["query", "left", "right", "assessor", "preference"])
    strong = preferences["query"] == "q3"  # in this query, all answers are strong
    preferences.loc[strong, "preference"] *= 2
    return judgments, preferences


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judgments")
    crowd()[0].to_parquet(path / "judgments.parquet", index=False)
    return path


def fit(judgments: Any, threads: int = 1, **options: Any) -> GDA:
    model = GDA(n_iter=5, tol=0.0)
    return model.fit(judgments, preferences=crowd()[1], engine=LocalEngine(threads), **options)


def tables(model: GDA) -> list[pd.DataFrame]:
    documents = model.consensus_.documents.sort_values(["query", "document"], ignore_index=True)
    return [documents, model.consensus_.assessors.sort_values("assessor", ignore_index=True)]


@pytest.fixture(scope="module")
def in_memory() -> GDA:
    return fit(read_judgments(crowd()[0]))


def test_one_shard_gives_the_bytes_of_a_fit_in_memory(folder: Path, in_memory: GDA) -> None:
    on_disk = fit(read_partitions(folder))
    assert isinstance(on_disk.consensus_, StoredConsensus)
    for one, other in zip(tables(in_memory), tables(on_disk), strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert on_disk.history_ == in_memory.history_


def test_several_shards_give_the_same_numbers_with_any_number_of_threads(folder: Path, in_memory: GDA) -> None:
    shards = read_partitions(folder, shard_size=60)
    assert len(shards.shards) > 2
    one, two = fit(shards), fit(shards, threads=3)
    for left, right in zip(tables(one), tables(two), strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    for left, right in zip(tables(one), tables(in_memory), strict=True):
        pd.testing.assert_frame_equal(left, right, rtol=1e-5, atol=1e-5)
    scratch = [path for path in Path(shards.folder).iterdir() if path.name.endswith(".scratch")]
    assert not any(list(path.glob("preferences-*")) for path in scratch)  # deleted


def test_a_query_with_its_preferences_is_in_one_shard(folder: Path) -> None:
    preferences = read_preferences(crowd()[1])
    joined = JoinedShards.of(read_partitions(folder, shard_size=60), preferences)
    shards = [joined.load(position) for position in range(len(joined.shards))]
    assert sum(len(one.preferences) for one in shards) == len(preferences)
    queries = [one.queries.take(np.unique(one.preferences.query)).to_pylist() for one in shards]
    assert len(set(sum(queries, []))) == len(sum(queries, [])) == 10  # noqa: RUF017
    assert joined.n_items == sum(one.n_items for one in shards)
    assert joined.preference_answers.sum() == len(preferences)
    indexes = np.concatenate([joined.query_indexes(position) for position in range(len(joined.shards))])
    assert sorted(indexes.tolist()) == list(range(10))
    for position in range(len(joined.shards)):
        by_ids, by_codes = joined.load(position), joined.load(position, ids=False)
        for name in ("item_query", "item_document", "offsets", "assessor", "grade"):
            assert np.array_equal(getattr(by_ids, name), getattr(by_codes, name))
        for name in ("left", "right", "answer", "assessor", "query"):
            assert np.array_equal(getattr(by_ids.preferences, name), getattr(by_codes.preferences, name))


def test_gold_features_and_a_start_are_used_on_disk(folder: Path, in_memory: GDA, tmp_path: Path) -> None:
    judgments = crowd()[0]
    graded = judgments.groupby(["query", "document"], as_index=False)["grade"].median().round()
    gold = graded[::4].assign(grade=graded["grade"].astype(int))
    places = graded["query"].str[1:].astype(int), graded["document"].str[1:].astype(int)
    signal = relevance()[places] + np.random.default_rng(1).normal(0, 0.5, len(graded))
    options: dict[str, Any] = {
        "gold": gold,
        "features": graded.assign(bm25=signal)[["query", "document", "bm25"]],
        "init": in_memory,
    }
    shards = read_partitions(folder, shard_size=60)
    memory, disk = (fit(table, **options) for table in (read_judgments(judgments), shards))
    for left, right in zip(tables(memory), tables(disk), strict=True):
        pd.testing.assert_frame_equal(left, right, rtol=1e-4, atol=1e-4)
    assert disk.consensus_.documents["expert_graded"].sum() == len(gold)

    def interrupt(iteration: int, most: int, objective: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(shards, checkpoint=tmp_path / "state", progress=interrupt)
    with pytest.raises(InputError) as error:
        GDA().fit(shards, preferences=crowd()[1][:-1], checkpoint=tmp_path / "state")
    assert error.value.kind == "other-fit"
    resumed = fit(shards, checkpoint=tmp_path / "state")
    for left, right in zip(tables(resumed), tables(fit(shards)), strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)


def test_the_command_takes_a_folder(folder: Path, tmp_path: Path) -> None:
    crowd()[1].to_csv(tmp_path / "p.csv", index=False)
    words = ("aggregate", str(folder), "--preferences", "p.csv", "-o", "out", "-s", "n_iter=5")
    done = crowdrank(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    documents = StoredConsensus(tmp_path / "out").documents
    assert documents["preferences"].sum() == 2 * len(read_preferences(crowd()[1]))


def test_shards_without_whole_queries_and_other_documents_are_refused(folder: Path) -> None:
    shards = read_partitions(folder, shard_size=60)
    with pytest.raises(InputError) as other:
        GDA().fit(shards, preferences=crowd()[1].assign(query="other"))
    assert other.value.kind == "nothing-in-common"
    split: ShardedJudgments = read_partitions(folder, shard_size=60, by="document")
    with pytest.raises(UsageError) as error:
        fit(split)
    assert (error.value.parameter, error.value.kind) == ("preferences", "split-queries")
