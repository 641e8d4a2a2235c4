"""Ranking of files in batches: the same result as at once, for every ranker, format and size of batches."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GLS, Ensemble, LambdaMART, get_ranker, read_features, read_run
from crowdrank.errors import InputError
from crowdrank.rankers.rank_files import (
    FeatureBatches,
    FeatureCheck,
    RankedFiles,
    UnsortedQueriesError,
    rank_documents,
    rank_files,
    whole_queries,
)
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import FeatureStatistics
from crowdrank.readers import delimited
from crowdrank.readers.letor import LetorSource
from crowdrank.testing import example_world

RANKERS = ("gls", "lambdamart", "pointwise-gbdt", "rd", "tree-features", "single-feature", "ensemble")
FORMATS = ("letor", "csv", "tsv", "csv.gz", "jsonl", "parquet")
N_ROWS = len(example_world().features)


def write_features(frame: Any, path: Path) -> Path:
    """Write features in the format of the suffix of a path."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".letor"):
        names = [name for name in frame.columns if name not in ("query", "document")]
        rows = frame.to_dict("records")
        lines = [
            " ".join(["0", f"qid:{row['query']}", *(f"{name[1:]}:{row[name]!r}" for name in names)])
            + f" # docid = {row['document']}\n"
            for row in rows
        ]
        path.write_text("".join(lines))
    elif name.endswith(".jsonl"):
        path.write_text(frame.to_json(orient="records", lines=True, double_precision=15))
    elif name.endswith(".parquet"):
        frame.to_parquet(path, row_group_size=70)
    else:
        path.write_text(frame.to_csv(index=False, sep="\t" if name.endswith(".tsv") else ","))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@cache
def fitted(name: str) -> Ranker:
    world, ranker = example_world(), get_ranker(name)
    small = {"n_estimators": 10, "min_child_samples": 5, "n_trees": 5}
    ranker.set_params(**{name: value for name, value in small.items() if name in ranker.get_params(deep=False)})
    if name == "ensemble":
        ranker = Ensemble([LambdaMART(n_estimators=10, min_child_samples=5), GLS()])
    return ranker.fit(world.features, world.gold["grade"].to_numpy())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("features")
    return {suffix: write_features(example_world().features, folder / f"x.{suffix}") for suffix in FORMATS}


def ranked(ranker: Ranker, paths: Any, output: Path, n_rows: int | None = None, **options: Any) -> RankedFiles:
    batches = FeatureBatches(paths if isinstance(paths, list) else [paths], ranker.features_, n_rows=n_rows)
    return rank_files(ranker, batches, output, **options)


def assert_same_run(path: Path, expected: pa.Table) -> None:
    run = pd.read_csv(path, dtype={"query": str, "document": str})
    for name in ("query", "document"):
        assert run[name].tolist() == expected[name].cast(pa.string()).to_pylist()
    assert run["rank"].tolist() == expected["rank"].to_pylist()
    np.testing.assert_allclose(run["score"], expected["score"], rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(RANKERS), suffix=st.sampled_from(FORMATS), n_rows=st.integers(1, N_ROWS + 10))
def test_batches_give_the_ranking_of_the_whole_file(
    name: str, suffix: str, n_rows: int, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ranker, output = fitted(name), tmp_path_factory.mktemp("run") / "run.csv"
    summary = ranked(ranker, files[suffix], output, n_rows)
    expected = rank_documents(ranker, read_features(example_world().features))
    assert_same_run(output, expected)
    assert (summary.n_documents, summary.n_queries) == (N_ROWS, 40)
    assert summary.messages == ()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    n_rows=st.integers(1, 20),
)
def test_parts_hold_whole_queries(sizes: list[int], n_rows: int) -> None:
    query = np.repeat(np.arange(len(sizes)), sizes)
    frame = pd.DataFrame({"query": query, "document": np.arange(len(query)), "x": np.arange(len(query)) / 2})
    features = read_features(frame)
    cut = [features.take(np.arange(first, min(first + n_rows, len(query)))) for first in range(0, len(query), n_rows)]
    parts = list(whole_queries(iter(cut)))
    assert np.concatenate([part.matrix for part in parts])[:, 0].tolist() == frame["x"].tolist()
    of_part = [set(part.query.to_pylist()) for part in parts]
    assert sum(map(len, of_part)) == len(sizes)
    # A part ends with the last query that is complete, so that at most one batch and one query are in memory.
    assert max(len(part.query) for part in parts) < n_rows + max(sizes)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 10])
def test_queries_that_begin_again_are_found(n_rows: int) -> None:
    frame = pd.DataFrame({"query": [1, 2, 3, 1], "document": [1, 2, 3, 4], "x": [0.5, 1, 2, 3]})
    features = read_features(frame)
    cut = [features.take(np.arange(first, min(first + n_rows, 4))) for first in range(0, 4, n_rows)]
    with pytest.raises(UnsortedQueriesError):
        list(whole_queries(iter(cut)))


@pytest.mark.parametrize("name", ["gls", "ensemble"])
def test_rows_that_are_not_adjacent_are_read_into_memory(name: str, tmp_path: Path) -> None:
    shuffled = example_world().features.sample(frac=1, random_state=1)
    path = write_features(shuffled, tmp_path / "x.csv")
    summary = ranked(fitted(name), path, tmp_path / "run.csv", 50, check=True)
    assert [(message.kind, message.severity) for message in summary.messages] == [("unsorted-queries", "warning")]
    assert (summary.n_documents, summary.n_queries) == (N_ROWS, 40)
    assert_same_run(tmp_path / "run.csv", rank_documents(fitted(name), read_features(shuffled)))


def test_numbers_and_texts_as_ids_become_text(tmp_path: Path) -> None:
    features = example_world().features.assign(document=np.arange(N_ROWS))
    half = features["query"].isin(features["query"].unique()[:20])
    paths = [
        write_features(features[half].assign(query=lambda rows: rows["query"].astype(int)), tmp_path / "a.parquet"),
        write_features(features[~half], tmp_path / "b.csv"),
    ]
    ranked(fitted("gls"), paths, tmp_path / "run.parquet", 64)
    run = pd.read_parquet(tmp_path / "run.parquet")
    assert set(run["document"]) == {str(number) for number in range(N_ROWS)}
    assert len(run) == N_ROWS


@pytest.mark.parametrize("suffix", ["trec", "csv", "tsv", "parquet", "jsonl", "trec.gz", "csv.gz", "jsonl.gz"])
def test_output_in_batches_equals_output_at_once(suffix: str, files: dict[str, Path], tmp_path: Path) -> None:
    ranker = fitted("lambdamart")
    ranked(ranker, files["csv"], tmp_path / f"parts.{suffix}", 37)
    ranked(ranker, files["csv"], tmp_path / f"whole.{suffix}")
    parts, whole = (read_run(tmp_path / f"{name}.{suffix}") for name in ("parts", "whole"))
    assert len(parts) == N_ROWS
    pd.testing.assert_frame_equal(parts, whole)
    if suffix != "parquet":
        assert (tmp_path / f"parts.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()


# Errors: their place in the file, and nothing half-written.


def bad_features() -> Any:
    features = example_world().features.astype({"f3": object})
    features.loc[features.index[200], "f3"] = "high"
    return features


@pytest.mark.parametrize(("suffix", "place"), [("csv", "row 201 (line 202)"), ("tsv", "row 201 (line 202)")])
@pytest.mark.parametrize("n_rows", [7, 1000])
def test_an_error_names_the_row_of_the_file(suffix: str, place: str, n_rows: int, tmp_path: Path) -> None:
    path = write_features(bad_features(), tmp_path / f"x.{suffix}")
    (tmp_path / "run.csv").write_text("old")
    with pytest.raises(InputError) as caught:
        ranked(fitted("gls"), path, tmp_path / "run.csv", n_rows)
    assert caught.value.kind == "not-a-number"
    assert (caught.value.location.place, caught.value.location.column) == (place, "f3")
    assert (tmp_path / "run.csv").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"x.{suffix}", "run.csv"])


@pytest.mark.parametrize("n_rows", [7, 1000])
def test_an_error_names_the_row_of_json_lines_and_parquet(n_rows: int, tmp_path: Path) -> None:
    features = example_world().features.copy()
    features.loc[features.index[200], "f3"] = np.inf
    for suffix, place in (("parquet", "row 201"), ("jsonl", "line 201")):
        path = write_features(features.replace(np.inf, 1e308), tmp_path / f"x.{suffix}")
        if suffix == "jsonl":
            path.write_text(path.read_text().replace("1e+308", "1e999"))
        else:
            features.to_parquet(path)
        with pytest.raises(InputError) as caught:
            ranked(fitted("gls"), path, tmp_path / "run.csv", n_rows)
        assert caught.value.location.place == place


@pytest.mark.parametrize("block_bytes", [1 << 20, 3000, 100])
@pytest.mark.parametrize("n_rows", [7, 1000])
def test_malformed_lines_of_csv_are_named(
    block_bytes: int, n_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "CSV_BLOCK_BYTES", block_bytes)
    path = write_features(example_world().features, tmp_path / "x.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:201], f"{lines[201]},7", *lines[202:]]) + "\n")
    with pytest.raises(InputError) as caught:
        ranked(fitted("gls"), path, tmp_path / "run.csv", n_rows)
    assert caught.value.location.place == "row 201 (line 202)"
    path.write_text("\n".join([*lines[:-1], lines[-1].rpartition(",")[0] + ',"0.5']) + "\n")
    with pytest.raises(InputError) as caught:
        ranked(fitted("gls"), path, tmp_path / "run.csv", n_rows)
    assert "quote" in caught.value.problem
    path.write_bytes("\n".join([*lines[:150], lines[150].replace(",", ",\xe4", 1), *lines[151:]]).encode("latin-1"))
    with pytest.raises(InputError) as caught:
        ranked(fitted("gls"), path, tmp_path / "run.csv", n_rows)
    assert caught.value.kind == "encoding"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize("block_bytes", [3000, 100])
def test_rows_longer_than_a_block_are_read(
    block_bytes: int, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "CSV_BLOCK_BYTES", block_bytes)
    ranked(fitted("gls"), files["csv"], tmp_path / "run.csv")
    assert_same_run(tmp_path / "run.csv", rank_documents(fitted("gls"), read_features(example_world().features)))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    for suffix in ("csv", "parquet"):
        path = write_features(example_world().features.iloc[:0], tmp_path / f"x.{suffix}")
        with pytest.raises(InputError) as caught:
            ranked(fitted("gls"), path, tmp_path / "run.csv")
        assert caught.value.location.source == str(path)
        assert not (tmp_path / "run.csv").exists()


# Columns.


def test_extra_columns_are_noted_once_and_not_read(tmp_path: Path) -> None:
    features = example_world().features.assign(clicks="many", url="example.org", grade=1, f999=2.0)
    path = write_features(features, tmp_path / "x.csv")
    summary = ranked(fitted("gls"), path, tmp_path / "run.csv", 100)
    assert [(message.kind, message.severity) for message in summary.messages] == [("extra-columns", "note")]
    assert "'clicks', 'f999'" in summary.messages[0].problem
    assert "url" not in summary.messages[0].problem
    assert_same_run(tmp_path / "run.csv", rank_documents(fitted("gls"), read_features(example_world().features)))


def test_missing_columns_are_refused_before_rows_are_read(tmp_path: Path) -> None:
    path = write_features(example_world().features.rename(columns={"f3": "F3"}), tmp_path / "x.csv")
    with pytest.raises(InputError) as caught:
        FeatureBatches([path], fitted("gls").features_)
    assert caught.value.kind == "missing-features"
    assert "'f3' (did you mean 'F3'?)" in caught.value.problem
    assert caught.value.location.source == str(path)


def test_letor_files_have_only_numbered_features(tmp_path: Path) -> None:
    path = write_features(example_world().features, tmp_path / "x.letor")
    with pytest.raises(InputError) as caught:
        FeatureBatches([path], ("bm25",))
    assert caught.value.kind == "missing-features"


def test_features_that_no_line_has_are_zero_with_a_warning(tmp_path: Path) -> None:
    path = write_features(example_world().features.drop(columns="f3"), tmp_path / "x.letor")
    summary = ranked(fitted("gls"), path, tmp_path / "run.csv", 100)
    assert [(message.kind, message.severity) for message in summary.messages] == [("omitted-features", "warning")]
    expected = rank_documents(fitted("gls"), read_features(example_world().features.assign(f3=0.0)))
    assert_same_run(tmp_path / "run.csv", expected)


def test_documents_without_ids_are_numbered_within_their_query(tmp_path: Path) -> None:
    (tmp_path / "x.letor").write_text("".join(f"0 qid:{query} 1:{row}\n" for query in "ab" for row in range(5)))
    tables = LetorSource(tmp_path / "x.letor").read_batches(["query", "document"], 3)
    assert [cell for table in tables for cell in table["document"].to_pylist()] == ["1", "2", "3", "4", "5"] * 2


# Comparison with the training.


def batches_of(matrix: Any, n_rows: int) -> Iterator[Any]:
    return (matrix[first : first + n_rows] for first in range(0, len(matrix), n_rows))


TRAINING = np.array([[0.0, 0.0, 0.0, 0.0, np.nan, 5.0], [1.0, 1.0, 1.0, 1.0, np.nan, 5.0]])
GIVEN = np.array(
    [
        [0.5, np.nan, np.nan, 0.5, 1.0, 5.0],
        [2.0, np.nan, 0.2, 0.5, 2.0, 5.0],
        [0.0, np.nan, 0.3, 0.5, 2.0, 5.0],
        [-1.0, np.nan, 0.3, 0.5, 2.0, 5.0],
    ]
)


@pytest.mark.parametrize("n_rows", [1, 3, 4])
def test_features_are_compared_with_those_of_the_training(n_rows: int) -> None:
    check = FeatureCheck(list("abcdef"), FeatureStatistics.from_matrix(TRAINING))
    for batch in batches_of(GIVEN, n_rows):
        check.add(batch)
    table = check.table().to_pylist()
    assert [(row["feature"], row["problem"]) for row in table] == [
        ("b", "always-missing"),
        ("c", "more-missing"),
        ("d", "constant"),
        ("a", "out-of-range"),
    ]
    assert {message.kind: message.severity for message in check.messages()} == dict.fromkeys(
        ("always-missing", "more-missing", "constant", "out-of-range"), "warning"
    )
    outside = table[-1]
    assert (outside["outside"], outside["minimum"], outside["training_maximum"]) == (0.5, -1.0, 1.0)
    assert (table[0]["minimum"], table[0]["missing"], table[1]["missing"]) == (None, 1.0, 0.25)


def test_training_rows_differ_in_nothing(files: dict[str, Path], tmp_path: Path) -> None:
    summary = ranked(fitted("gls"), files["parquet"], tmp_path / "run.csv", 50, check=True)
    assert summary.check is not None
    assert len(summary.check) == 0
    assert summary.messages == ()


def test_a_ranker_without_statistics_says_so(files: dict[str, Path], tmp_path: Path) -> None:
    world = example_world()
    ranker = GLS().fit(world.features, world.gold["grade"].to_numpy())
    ranker.feature_statistics_ = None
    summary = ranked(ranker, files["csv"], tmp_path / "run.csv", check=True)
    assert summary.check is None
    assert [message.kind for message in summary.messages] == ["no-statistics"]
