"""Data of a run, consensus models and the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import crowdrank
from crowdrank.errors import Message
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments
from crowdrank.pipeline import stage_cache
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.dry_run import plan
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_data import build_run_data
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.rankers.training_labels import read_labels
from crowdrank.readers.features import Features
from crowdrank.simulation.world import World

TREES = {"n_estimators": 10}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=18, random_state=1)


def test_expert_grades_keep_their_scale(world: World) -> None:
    data = build_run_data(world.judgments, world.features, world.gold)
    assert data.gold is not None
    binary = world.gold.assign(grade=(world.gold["grade"] >= 2).astype(int))
    other = build_run_data(world.judgments, world.features, binary)
    assert other.gold is not None
    assert other.gold.for_items(other.judgments).sets is None
    assert build_run_data(world.judgments, world.features).gold is None


def test_methods_that_did_not_converge_are_noted_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = ConsensusFits(build_run_data(world.judgments, world.features), StageCache(None))
    monkeypatch.setattr("crowdrank.consensus.model.has_converged", lambda history, tol: False)
    fits.fit("glad")
    (note,) = fits.notes
    assert note.kind == "not-converged"
    assert "glad" in note.problem
    fits.fit("dawid-skene")
    (note,) = fits.notes
    assert "glad and dawid-skene" in note.problem


def test_honeypots_from_a_file_are_not_labels(world: World) -> None:
    bare = world.judgments.drop(columns="honeypot")
    planted = world.judgments.dropna(subset="honeypot").drop_duplicates("document")
    file = planted[["query", "document"]].assign(grade=planted["honeypot"].astype(int))
    marked = build_run_data(world.judgments, world.features)
    marked_again = build_run_data(bare, world.features, honeypots=file)
    np.testing.assert_array_equal(marked.n_labels, marked_again.n_labels)
    assert "honeypots" in {note.kind for note in marked_again.notes}


def test_expert_grades_of_honeypots_are_not_used(world: World) -> None:
    planted = world.documents.loc[world.documents["honeypot"], ["document"]].merge(world.gold, on="document")
    assert len(planted)
    data = build_run_data(world.judgments, world.features, world.gold)
    at = pd.Series(data.expert, index=world.features["document"])
    assert at[planted["document"]].isna().all()
    assert "honeypot-grades" in {note.kind for note in data.notes}


def test_what_the_reader_found_is_noted(world: World) -> None:
    votes = world.judgments.drop(columns="honeypot")
    table = crowdrank.read_judgments(pd.concat([votes, votes[:7]]), exclude=[votes["assessor"].iloc[-1]])
    warning = Message("the files may have different scales", "shifted-scales", "warning")
    hint = Message("the name of the file is used", "assessor-from-file-name", "note")
    table = replace(table, report=replace(table.report, notes=(warning, hint)))
    notes = {note.kind: note for note in build_run_data(table, None).notes}
    assert notes["shifted-scales"] == warning
    assert "assessor-from-file-name" not in notes
    assert notes["repeats"].problem.startswith(f"{table.report.repeats} repeated")
    assert "excluded" in notes


def test_queries_with_one_expert_grade_are_noted(world: World) -> None:
    some = world.gold["query"].unique()[:3]
    flat = world.gold.assign(grade=world.gold["grade"].where(~world.gold["query"].isin(some), 1))
    notes = build_run_data(world.judgments.drop(columns="honeypot"), world.features, flat).notes
    n = int((flat.groupby("query")["grade"].nunique() == 1).sum())
    (note,) = [note for note in notes if note.kind == "one-grade"]
    assert note.problem.startswith(f"{n} expert-graded queries of 18 ")
    assert note.fixes[0].text == "have other queries graded by experts"
    first = flat.index[flat["query"] == some[0]][0]
    notes = build_run_data(world.judgments.drop(columns="honeypot"), world.features, flat.drop(index=first)).notes
    (note,) = [note for note in notes if note.kind == "one-grade"]
    assert note.fixes[0].text == "have more of their documents graded by experts"
    labels = build_run_data(world.judgments.drop(columns="honeypot"), None, flat)
    assert labels.n_expert_queries == 18
    assert "one-grade" not in [note.kind for note in labels.notes]


def test_plan_names_split_candidates_and_time(world: World) -> None:
    lines = plan(world.judgments, world.features, world.gold, trees=TREES)
    assert any("for the test" in line for line in lines)
    assert "with features" in lines[0]
    stray = world.judgments.drop(columns="honeypot").assign(grade=lambda rows: rows["grade"].where(rows.index > 0, 9))
    labels_only = plan(stray, None, note_text=lambda note: note.kind)
    assert "with features" not in labels_only[0]
    assert "rare-grades" in labels_only
    assert any("Candidates: majority" in line for line in lines)
    assert lines[-1].startswith("Roughly ")
    assert any("too few for a selection" in line for line in plan(world.judgments, world.features, world.gold.head(20)))


def test_run_encodes_each_id_column_and_digests_each_input_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = (
        crowdrank.read_judgments(world.judgments),
        crowdrank.read_features(world.features),
        crowdrank.read_gold(world.gold),
    )
    encode, update, encoded, digested = ids.encode, stage_cache._update, [], []

    def counting_encode(column: Any) -> Any:
        encoded.append(column.combine_chunks())
        return encode(column)

    def counting_update(state: Any, part: Any) -> None:
        digested.append(part)
        update(state, part)

    monkeypatch.setattr(ids, "encode", counting_encode)
    monkeypatch.setattr(stage_cache, "_update", counting_update)
    brief = {"n_iter": 2, "ridge": 0.1}
    names = ["majority", "gda", "gls", "linear-remap", "boosted-gls", "crowd-and-expert", "expert-only"]
    run(*inputs, candidates=names, trees=TREES, linear=brief, boosted=brief)
    id_columns = [inputs[1].query, inputs[1].document, inputs[2].query, inputs[2].document]
    assert [sum(one.equals(column) for one in encoded) for column in id_columns] == [1, 1, 0, 0]
    assert len(encoded) <= 8, "the ids of the features, and one index of the pairs of each table"
    tables = [part for part in digested if isinstance(part, Judgments | Features)]
    assert len(tables) == len({id(table) for table in tables}) == 3, "features, judgments, and those without honeypots"


def test_rows_of_queries_are_adjacent(world: World) -> None:
    shuffled = world.features.sample(frac=1, random_state=0)
    data = build_run_data(world.judgments, shuffled, world.gold)
    assert (np.diff(data.query) >= 0).all()
    queries = np.array([7, 2])
    rows = data.rows_of(queries)
    assert set(data.query[rows].tolist()) == {2, 7}
    assert len(rows) == np.isin(data.query, queries).sum()
    ids_of_rows = data.query_ids.take(pa.array(data.query)).to_pylist()
    assert ids_of_rows == data.features.query.to_pylist()
    labels = world.judgments[world.judgments["honeypot"].isna()].groupby("document").size()
    documents = data.features.document.to_pylist()
    assert data.n_labels.tolist() == [labels.get(document, 0) for document in documents]


def test_restricted_judgments_are_those_of_the_rows(world: World) -> None:
    data = build_run_data(world.judgments, world.features, world.gold)
    rows = data.rows_of(np.arange(5))
    some = data.restrict_judgments(rows)
    assert np.flatnonzero(some.item >= 0).tolist() == [row for row in rows if data.item[row] >= 0]
    np.testing.assert_array_equal(some.n_labels[rows], data.n_labels[rows])
    assert some.digests["labels"] != data.digests["labels"]
    assert some.digests["features"] == data.digests["features"]


@pytest.mark.parametrize("target", ["probabilities", "expected-grade", "grade", "relevance"])
@pytest.mark.parametrize("method", ["majority", "gda"])
def test_labels_of_rows_are_those_of_the_consensus_table(world: World, method: str, target: str) -> None:
    fits = ConsensusFits(build_run_data(world.judgments, world.features), StageCache(None))
    expected = read_labels(fits.model(method)).target(target)
    expected = expected - min(0.0, expected.min())
    labeled = fits.data.item >= 0
    np.testing.assert_allclose(fits.labels(method, target)[labeled], expected[fits.data.item[labeled]])
    assert np.isnan(fits.labels(method, target)[~labeled]).all()
