"""`run` with preferences: consensus, candidate, cache, held-out queries, tables, report, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import GDA, PairProbabilities, RunResult
from crowdrank.errors import InputError, UsageError
from crowdrank.pipeline.candidates import BY_NAME
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.run_data import build_run_data
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.simulation.world import World
from terminal import crowdrank as command

SETTINGS: dict[str, Any] = {
    "candidates": ["majority", "preference-pairs"],
    "trees": {"n_estimators": 5},
    "forest": {"n_trees": 5},
}


def compared(world: World, seed: int = 0) -> pd.DataFrame:
    """Return simulated preferences between judged documents, by their true relevance."""
    rng, rows = np.random.default_rng(seed), []
    for query, documents in world.documents[~world.documents["honeypot"].astype(bool)].groupby("query"):
        relevance = dict(zip(documents["document"], documents["relevance"], strict=True))
        for _ in range(12):
            left, right = rng.choice(sorted(relevance), 2, replace=False)
            better = 2 * (relevance[left] - relevance[right]) + rng.logistic() > 0
            rows.append((query, left, right, f"p{rng.integers(3)}", -1 if better else 1))
    table = pd.DataFrame(rows, columns=["query", "left", "right", "assessor", "preference"])
    return table.drop_duplicates(["query", "left", "right", "assessor"], ignore_index=True)


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=24, documents=8, labels=2, assessors=12, honeypots=0, random_state=4)


@pytest.fixture(scope="module")
def preferences(world: World) -> pd.DataFrame:
    return compared(world)


@pytest.fixture(scope="module")
def folder(world: World, preferences: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "out"
    inputs = (world.judgments, world.features, world.gold)
    crowdrank.run(*inputs, preferences=preferences, output=folder, **SETTINGS)
    return folder


def reused(folder: Path) -> dict[str, bool]:
    """Return whether each stage with a name was stored by an earlier run."""
    stages = RunResult.load(folder).profile.stages
    return {f"{one.stage} {one.name}": one.reused == one.calls for one in stages if one.name}


def test_the_consensus_uses_preferences(world: World, preferences: pd.DataFrame, folder: Path) -> None:
    result = RunResult.load(folder)
    model = GDA().fit(world.judgments, preferences=preferences)
    assert result.sizes["preferences"] == len(preferences)
    assert "preferences" in result.inputs
    found, expected = (one.consensus_.document_table["relevance"].to_numpy() for one in (result.model, model))
    assert found == pytest.approx(expected, abs=1e-6)
    assert set(result.comparison["candidate"]) >= {"majority", "preference-pairs"}


def test_a_run_resumes_and_its_cache_depends_on_the_preferences(
    world: World, preferences: pd.DataFrame, folder: Path
) -> None:
    inputs = (world.judgments, world.features, world.gold)
    crowdrank.run(*inputs, preferences=preferences, output=folder, **SETTINGS)
    assert all(reused(folder).values())
    other = preferences.assign(preference=preferences["preference"] * np.where(preferences.index > 0, 1, -1))
    crowdrank.run(*inputs, preferences=other, output=folder, **SETTINGS)
    stages = reused(folder)
    assert stages["consensus majority"]
    assert not stages["consensus gda"]
    assert not stages["training preference-pairs"]


def test_pairs_of_held_out_queries_train_no_ranker(world: World, preferences: pd.DataFrame) -> None:
    data = build_run_data(world.judgments, world.features, world.gold).with_preferences(preferences)
    settings = RunSettings.of(SETTINGS)
    held_out, scores = np.arange(6), []
    for damage in (False, True):
        fits = ConsensusFits(data, StageCache(None), 1)
        pairs = fits.pair_probabilities("gda")
        if damage:
            rows = np.isin(data.labels.item_query, np.unique(data.labels.item_query[data.item[data.rows_of(held_out)]]))
            pairs.relevance[rows] = np.random.default_rng(0).normal(size=int(rows.sum()))
        view = CandidateTraining(data, fits, settings, StageCache(None)).view(held_out, np.zeros(0, np.int64))
        assert not np.isin(data.query[view.crowd], held_out).any()
        scores.append(BY_NAME["preference-pairs"].fit(view).predict(data.features.matrix))
    assert np.array_equal(scores[0], scores[1])


def test_documents_of_the_consensus_keep_the_order_of_the_labels(world: World, preferences: pd.DataFrame) -> None:
    more = pd.concat([preferences, preferences[:1].assign(right="new")], ignore_index=True)
    data = build_run_data(world.judgments, world.features).with_preferences(more)
    assert data.preferences is not None
    assert len(data.preferences) == len(preferences)
    assert [note.kind for note in data.notes if note.severity == "warning"] == ["preferences-not-used"]
    pairs = PairProbabilities.from_model(GDA().fit(data.labels, preferences=data.preferences))
    query, document = data.labels.item_ids()
    assert pairs.positions(query, document).tolist() == list(range(data.labels.n_items))


def test_tables_of_assessors_and_of_the_order(folder: Path) -> None:
    result = RunResult.load(folder)
    assessors = result.tables["preference_assessors"].to_pandas()
    assert set(assessors["assessor"]) == {"p0", "p1", "p2"}
    assert (assessors["position_bias_lower"] < assessors["position_bias"]).all()
    order = result.tables["order"].to_pandas()
    assert order["rank"].max() <= 10
    assert order["probability"].between(0.5, 1).all()
    relevance = result.tables["documents"].to_pandas().set_index(["query", "document"])["relevance"]
    first = order[order["rank"] == 1].astype({"query": str}).set_index("query")["document"]
    best = relevance.groupby("query").idxmax()
    assert all(first[str(query)] == document for query, (_, document) in best.items())


@pytest.mark.usefixtures("no_charts")
def test_the_report_has_preferences(folder: Path) -> None:
    page = crowdrank.write_report(folder).read_text(encoding="utf-8")
    assert "preference_assessors.csv" in page
    assert "order.csv" in page


def test_a_run_without_preferences_does_not_name_them(world: World) -> None:
    settings = {**SETTINGS, "candidates": ["majority", "gda"]}
    result = crowdrank.run(world.judgments, world.features, world.gold, **settings)
    assert not {"preference_assessors", "order"} & set(result.tables)
    assert "preferences" not in result.sizes
    assert result.rankers is not None
    assert "preference-pairs" not in result.rankers.left_out


def test_bad_input_is_refused(world: World, preferences: pd.DataFrame) -> None:
    with pytest.raises(UsageError) as caught:
        crowdrank.run(world.judgments, preferences=preferences, method="dawid-skene")
    assert (caught.value.kind, caught.value.parameter) == ("no-preferences", "preferences")
    with pytest.raises(InputError) as unknown:
        crowdrank.run(world.judgments, preferences=preferences.assign(query="other"))
    assert unknown.value.kind == "nothing-in-common"


def test_the_command_counts_preferences(world: World, preferences: pd.DataFrame, tmp_path: Path) -> None:
    world.judgments.to_csv(tmp_path / "labels.csv", index=False)
    unjudged = preferences[:1].assign(right="unknown")
    repeated = pd.concat([preferences, preferences[:3], unjudged])
    repeated.to_csv(tmp_path / "p.csv", index=False)
    words = ("run", "-j", "labels.csv", "--preferences", "p.csv", "-o", "out")
    done = command(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["preferences"]
    n = len(preferences)
    assert (counts["rows"], counts["repeats"], counts["used"]) == (n + 4, 3, n)
    (line,) = [
        one for one in command(*words, cwd=tmp_path).stdout.splitlines() if one.startswith("- ") and " read;" in one
    ]
    assert [int(one.replace(",", "")) for one in re.findall(r"\d[\d,]*", line)][:2] == [n + 4, 3]


def test_the_command_reads_preferences(world: World, preferences: pd.DataFrame, tmp_path: Path) -> None:
    world.judgments.to_csv(tmp_path / "labels.csv", index=False)
    preferences.rename(columns={"preference": "verdict"}).to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "run.toml").write_text('judgments = "labels.csv"\npreferences = "p.csv"\noutput = "out"\n')
    refused = command("run", "run.toml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--preferences-columns" in refused.stderr
    done = command("run", "run.toml", "--preferences-columns", "preference=verdict", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert RunResult.load(tmp_path / "out").sizes["preferences"] == len(preferences)
