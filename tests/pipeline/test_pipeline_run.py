"""Complete runs: files, resuming, messages and invalid input."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank._options import option_fields
from crowdrank._text import markdown_text
from crowdrank.cli.run_commands import print_candidates
from crowdrank.collection import BEST_POLICY, get_policy
from crowdrank.collection.belief import Belief, grade_certainty, value_of_labels
from crowdrank.collection.model_policies import ModelPolicy
from crowdrank.collection.pool import Pool
from crowdrank.collection.requests import PoolState
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.pipeline import consensus_fits, deployment, run_rankers, training, training_view
from crowdrank.pipeline import run as run_module
from crowdrank.pipeline.candidates import CANDIDATES
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.ensembles import CROWD, ENSEMBLES
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_data import build_run_data
from crowdrank.pipeline.run_result import RunResult
from crowdrank.pipeline.run_settings import TABLES, RunSettings
from crowdrank.pipeline.selection import MIN_SELECTION_QUERIES
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.rankers.ranker import Ranker
from crowdrank.reports.cards import make_cards
from crowdrank.reports.page import write_report
from crowdrank.reports.report_data import ReportData
from crowdrank.simulation.world import World
from tools.results import FOLDER

FEW = ["majority", "average", "gls", "expert-only"]
TREES = {"n_estimators": 10}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=18, random_state=1)


@pytest.fixture(scope="module")
def whole(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """A run of every candidate."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    brief = {"n_iter": 5, "ridge": 0.1}
    result = run(
        world.judgments,
        world.features,
        world.gold,
        output=folder,
        trees=TREES,
        linear=brief,
        boosted=brief,
        thorough=True,
    )
    return result, folder


def test_every_candidate_is_trained_and_every_file_is_written(whole: tuple[RunResult, Path]) -> None:
    result, folder = whole
    table = pd.read_csv(folder / "comparison.csv")
    tried = set(table.loc[table["selection_mean"].notna(), "candidate"])
    assert tried == {c.name for c in CANDIDATES if c.name != "family-mean" and not c.needs_preferences} | {*ENSEMBLES}
    assert table.loc[table["candidate"] == "family-mean", "note"].tolist() == [
        "left out: the judgments name no families"
    ]
    assert table["chosen"].eq(True).sum() == 1
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("consensus.parquet", "assessors.csv", "training.parquet", "model", "comparison.csv", "next.csv", "pairs.csv"),
        *("crowdrank.json", "run.json", "report.md", "stages", "consensus", "per_query.csv", "remapping.csv"),
        *("remappers", "features.csv", "deployable", "profile.json"),
    }
    about = json.loads((folder / "run.json").read_text())
    assert about["rankers"]["chosen"] == result.chosen
    assert about["settings"]["measure"] == "nDCG@10"
    assert len(about["rankers"]["test_queries"]) + len(about["rankers"]["selection_queries"]) == 17
    assert about["sizes"]["expert_queries"] == 18, "one has a single grade"
    assert not set(about["rankers"]["test_queries"]) & set(about["rankers"]["selection_queries"])
    report = (folder / "report.md").read_text()
    assert all(f"- {markdown_text(text)}" in report for text in result.summary)
    assert "## What to label next" in report


def test_saved_ranker_predicts_like_returned_ranker(whole: tuple[RunResult, Path], world: World) -> None:
    result, folder = whole
    features = crowdrank.read_features(world.features)
    again = Ranker.load(folder / "model")
    np.testing.assert_allclose(again.predict(features, features.query), result.ranker.predict(features, features.query))


def test_printed_candidates_fit_80_columns(whole: tuple[RunResult, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rankers = whole[0].rankers
    assert rankers is not None
    print_candidates(whole[0], rankers)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if line.startswith(" ") and line.strip()]
    assert set(whole[0].comparison["candidate"]) - set(rankers.left_out) <= set(shown), "a name is one word in one line"
    assert lines[-1].startswith("Not trained: family-mean (")
    (row,) = [line.split() for line in lines if line.split()[:1] == ["gls"]]
    table = whole[0].comparison.set_index("candidate")
    assert row[3] == f"{table.loc['gls', 'nDCG@10 difference']:+.4f}"


def test_provenance_has_python_call(whole: tuple[RunResult, Path], world: World) -> None:
    result, folder = whole
    provenance = json.loads((folder / "run.json").read_text())["provenance"]
    assert provenance["command"] == ""
    assert f"judgments=judgments,  # pandas DataFrame, {len(world.judgments):,} rows" in provenance["python"]
    names = {"judgments": world.judgments, "features": world.features, "expert": world.gold}
    given: dict[str, Any] = {}
    called = provenance["python"].replace("import crowdrank", "").replace("crowdrank.run(", "given.update(")
    exec(called, {**names, "given": given})
    settings = {name: value for name, value in given.items() if name not in {*names, "output"}}
    assert RunSettings.of(settings) == result.settings
    assert given["output"] == str(folder)
    assert given["expert"] is world.gold


def test_next_table_is_sorted_by_priority_without_graded_documents(whole: tuple[RunResult, Path], world: World) -> None:
    result, folder = whole
    table = pd.read_csv(folder / "next.csv")
    is_settled = table["reason"] == "settled"
    assert not is_settled[: (~is_settled).sum()].any(), "settled documents are last"
    assert table["priority"][~is_settled].is_monotonic_decreasing
    assert set(table["reason"][~is_settled]) == {"may change the top 10"}
    graded = set(world.gold["document"])
    assert set(table["document"]) == set(result.documents["document"]) - graded
    values = pd.Series(value_of_labels(result.model), result.documents["document"])
    for name in ("priority", "gain"):
        assert table[name].tolist() == pytest.approx(values[table["document"]].tolist())
    certainty = pd.Series(grade_certainty(result.model), result.documents["document"])
    assert ((certainty[table["document"]] >= 0.95).to_numpy() == is_settled).all()


def test_next_table_has_the_gain_of_the_policy_with_the_best_published_gain() -> None:
    published = json.loads((FOLDER / "next-label.json").read_text())
    tables = {table["name"]: table["rows"] for table in published["tables"]}
    means = [{row["run"]: row["nDCG@10"] for row in tables[name]} for name in ("rf10-area", "dl20-area")]
    gains = {run: sum(one[run] - one["random"] for one in means) for run in means[0]}
    assert max(gains, key=lambda name: gains[name]) == BEST_POLICY.removesuffix("k") + "10"
    votes = crowdrank.simulate(queries=20, documents=15, labels=4, random_state=2).judgments
    model = crowdrank.GDA().fit(votes)
    policy, judgments = get_policy(BEST_POLICY.removesuffix("k") + "10"), model.judgments_
    assert isinstance(policy, ModelPolicy)
    belief = Belief.from_model(PoolState.of(Pool.of(judgments), judgments), model)
    priority, gain = policy.priority(belief, np.arange(judgments.n_items)), value_of_labels(model, 10)
    assert (gain <= priority + 1e-12).all(), "less only in queries with a low expected DCG"
    assert np.isclose(gain, priority).mean() > 0.5


def with_sure_zeros(world: World, n_queries: int = 5, n_assessors: int = 12) -> tuple[pd.DataFrame, set[str]]:
    """Return judgments with queries whose documents got grade 0 from all of many assessors, and these documents."""
    judgments = world.judgments[["query", "document", "assessor", "grade"]]
    sure = [f"sure-{number}" for number in range(n_queries)]
    assessors = judgments["assessor"].value_counts().index[:n_assessors]
    rows = [(query, f"{query}-{place}", who, 0) for query in sure for place in range(6) for who in assessors]
    planted = pd.DataFrame(rows, columns=judgments.columns)
    return pd.concat([judgments.astype({"query": str}), planted]), set(planted["document"])


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "rasch", "majority", "average", "glad"])
def test_documents_that_are_surely_irrelevant_are_labeled_last(world: World, method: str) -> None:
    judgments, sure = with_sure_zeros(world)
    documents = run(judgments, method=method).next["document"]
    places = np.flatnonzero(documents.isin(sure))
    assert len(places) == len(sure)
    assert places.min() > 0.75 * len(documents)


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority", "average"])
def test_more_answers_0_never_move_a_document_up(world: World, method: str) -> None:
    judgments, _ = with_sure_zeros(world, 0)
    only_zeros = judgments.groupby("document")["grade"].agg(["max", "size"]).query("max == 0 and size < 6").index
    before = run(judgments, method=method).next["document"].tolist()
    for document in only_zeros[:6]:
        own = judgments[judgments["document"] == document]
        others = judgments["assessor"][~judgments["assessor"].isin(own["assessor"])].value_counts().index[:10]
        more = own.iloc[[0] * len(others)].assign(assessor=others)
        after = run(pd.concat([judgments, more]), method=method).next["document"].tolist()
        assert after.index(document) >= before.index(document)


def test_next_table_follows_the_cutoff_of_the_measure(world: World) -> None:
    first, third = (run(world.judgments, measure=f"nDCG@{k}").next for k in (1, 3))
    assert set(first["reason"]) - {"settled"} == {"may change the top 1"}
    assert (first["priority"] > 0).mean() < (third["priority"] > 0).mean()


def test_next_table_has_labels_to_check_if_experts_graded_all(world: World) -> None:
    gold = world.documents[["query", "document", "grade"]]
    result = run(world.judgments.drop(columns="honeypot"), expert=gold, calibrate=False)
    table = result.next
    grades = gold.set_index("document")["grade"]
    assert set(table["reason"]) == {"differs from the expert grade"}
    assert (table["priority"] == (table["grade"].astype(int) - grades[table["document"]].to_numpy()).abs()).all()
    assert table["priority"].is_monotonic_decreasing
    assert table["priority"].min() > 0
    names = ["Bad (0)", "Fair (1)", "Good (2)", "Great (3)", "Perfect (4)"]
    named = world.judgments.drop(columns="honeypot").assign(grade=world.judgments["grade"].map(dict(enumerate(names))))
    other = run(crowdrank.read_judgments(named, grades=",".join(names)), expert=gold, calibrate=False).next
    assert other["document"].tolist() == table["document"].tolist(), "named grades correspond by position"
    unknown = run(world.judgments.drop(columns="honeypot"), expert=gold.assign(grade=gold["grade"] // 2))
    assert len(unknown.next) == 0
    agreed = result.documents[["query", "document", "grade"]].assign(grade=result.documents["grade"].astype(int))
    same = run(world.judgments.drop(columns="honeypot"), expert=agreed, calibrate=False)
    assert len(same.next) == 0
    (card,) = [card for card in make_cards(ReportData(same, Path())) if card.question == "What next?"]
    assert any("new documents" in step for step in card.steps)


def test_grades_of_any_size_are_ranked() -> None:
    rows = {"document": list("aabbcc"), "assessor": list("xyxyxy"), "grade": [0, 5000, 0, 0, 5000, 5000]}
    frame = pd.DataFrame(rows)
    for method in ("majority", "dawid-skene"):
        table = run(crowdrank.read_judgments(frame, grades="0,5000"), method=method).next
        assert np.isfinite(table["priority"]).all()
        assert table["document"].iloc[0] == "a"


def test_training_table_has_labels_parts_and_expert_grades(whole: tuple[RunResult, Path], world: World) -> None:
    _, folder = whole
    table = pd.read_parquet(folder / "training.parquet")
    assert set(table["part"]) == {"train", "selection", "test"}
    assert {"majority", "average", "dawid_skene", "gda", "linear_target", "boosted_weight"} <= set(table.columns)
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    assert table["expert"].notna().sum() == (~world.gold["document"].isin(planted)).sum()
    test = table["part"] == "test"
    assert table.loc[test, "linear_target"].isna().all(), "test queries must not be learned from"
    average = world.judgments[world.judgments["honeypot"].isna()].groupby("document")["grade"].mean()
    judged = table[table["labels"] > 0].set_index("document")
    np.testing.assert_allclose(judged["average"], average.loc[judged.index], atol=1e-9)


def test_honeypots_are_not_in_training_table(whole: tuple[RunResult, Path], world: World) -> None:
    _, folder = whole
    table = pd.read_parquet(folder / "training.parquet").set_index("document")
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    assert len(planted)
    assert (table["labels"].reindex(planted).fillna(0) == 0).all()


def test_repeated_run_reuses_every_stage(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    first = run(world.judgments, world.features, world.gold, **options)
    fits: list[str] = []
    monkeypatch.setattr(training_view.TrainingView, "fit", lambda *a, **k: fits.append("fit"))
    second = run(world.judgments, world.features, world.gold, **options)
    assert not fits
    pd.testing.assert_frame_equal(first.comparison, second.comparison)


def test_repeated_run_writes_remapped_labels_again(world: World, tmp_path: Path) -> None:
    brief = {"n_iter": 2, "ridge": 0.1}
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": ["majority", "linear-gls"], "linear": brief}
    names = ("training.parquet", "remapping.csv", "per_query.csv")
    contents = []
    for _ in range(2):
        run(world.judgments, world.features, world.gold, trees=TREES, **options)
        contents.append([(tmp_path / "out" / name).read_bytes() for name in names])
    assert contents[0] == contents[1]
    assert "linear_target" in pd.read_parquet(tmp_path / "out" / "training.parquet")
    run(world.judgments, world.features, output=tmp_path / "out", candidates=["gls"])
    assert not (tmp_path / "out" / "per_query.csv").exists(), "figures of an earlier run are not taken for this one's"
    assert not (tmp_path / "out" / "remapping.csv").exists()


def test_per_query_values_have_the_means_of_the_comparison(whole: tuple[RunResult, Path]) -> None:
    result, folder = whole
    values = pd.read_csv(folder / "per_query.csv", dtype={"query": str})
    means = values.groupby("candidate")["nDCG@10"].mean()
    expected = result.comparison.set_index("candidate")["nDCG@10 mean"].dropna()
    pd.testing.assert_series_equal(means, expected, check_names=False, check_like=True)
    assert set(values["query"]) <= set(result.to_dict()["rankers"]["test_queries"])


def test_gold_accuracy_of_assessors(whole: tuple[RunResult, Path], world: World) -> None:
    result, _ = whole
    asked = world.judgments[world.judgments["honeypot"].isna()]
    both = asked.merge(world.gold, on=["query", "document"], suffixes=("", "_expert"))
    right = (both["grade"] == both["grade_expert"]).groupby(both["assessor"]).mean()
    accuracy = result.assessors.set_index("assessor")["gold_accuracy"].astype(float).dropna()
    pd.testing.assert_series_equal(accuracy.sort_index(), right.sort_index(), check_names=False)


def test_interrupted_run_resumes(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES, "n_jobs": 1}
    real, seen = training_view.TrainingView.fit, []

    def stopping(self: Any, *words: Any, **more: Any) -> Any:
        seen.append(1)
        if len(seen) == 7:
            raise KeyboardInterrupt
        return real(self, *words, **more)

    monkeypatch.setattr(training_view.TrainingView, "fit", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(world.judgments, world.features, world.gold, **options)
    there = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert there == ["crowdrank.json", "stages"], "results come together, at the end"
    counted: list[int] = []

    def counting(self: Any, *words: Any, **more: Any) -> Any:
        counted.append(1)
        return real(self, *words, **more)

    monkeypatch.setattr(training_view.TrainingView, "fit", counting)
    resumed = run(world.judgments, world.features, world.gold, **options)
    left = len(counted)
    fresh = run(world.judgments, world.features, world.gold, **{**options, "output": tmp_path / "other"})
    total = len(counted) - left
    assert left + 6 <= total <= left + 7, "the fits before the interrupt (and the one under way) are not made again"
    pd.testing.assert_frame_equal(resumed.comparison, fresh.comparison)


def test_interrupted_run_keeps_earlier_results(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    run(world.judgments, world.features, world.gold, **options)
    files = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    before = {path.name: path.read_bytes() for path in files}

    def stopped(self: Any, *words: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(training_view.TrainingView, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(world.judgments.iloc[:-200], world.features, world.gold, **options)
    assert {path.name: path.read_bytes() for path in files} == before


def test_unused_stages_are_deleted_after_a_run(world: World, tmp_path: Path) -> None:
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": ["majority", "gls"]}

    def cache() -> set[str]:
        return {path.name for path in (tmp_path / "out" / "stages").iterdir()}

    run(world.judgments, world.features, world.gold, trees=TREES, **options)
    first = cache()
    run(world.judgments, world.features, world.gold, trees=TREES, **options)
    assert cache() == first, "the same run again needs all of it"
    run(world.judgments, world.features, world.gold, trees={"n_estimators": 5}, **options)
    second = cache()
    assert len(second) == len(first)
    assert any(name.startswith("consensus-") for name in first & second)
    assert not any(name.startswith("ranker-") for name in first & second)


def test_changed_inputs_are_noted_and_used(world: World, tmp_path: Path) -> None:
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    run(world.judgments, world.features, world.gold, **options)
    fewer = world.judgments.iloc[:-200]
    changed = run(fewer, world.features, world.gold, **options)
    assert any(change.startswith("Judgments: ") for change in changed.changes)
    fresh = run(fewer, world.features, world.gold, candidates=FEW, trees=TREES)
    pd.testing.assert_frame_equal(changed.comparison, fresh.comparison)


CACHED: dict[str, Any] = {
    "candidates": ["majority", "dawid-skene", "gls", "expert-only", "linear-gls"],
    "measure": "AP",
    "trees": {"n_estimators": 5},
    "linear": {"n_iter": 2, "ridge": 0.1},
    "folds": 2,
    "forest": {"n_trees": 2},
}


@pytest.fixture(scope="module")
def cached(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run whose stages later runs find."""
    folder = tmp_path_factory.mktemp("cached") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_view, "MIN_QUERIES_FOR_VALIDATION", 1)
        run(world.judgments, world.features, world.gold, output=folder, **CACHED)
    return folder


@pytest.mark.parametrize(
    "changed",
    [
        {"measure": "nDCG@1"},
        {"gains": "linear"},
        {"random_state": 1},
        {"trees": {"n_estimators": 9}},
        {"linear": {"n_iter": 4, "ridge": 10.0}},
        {"folds": 3},
        {"test": 0.5},
        {"forest": {"n_trees": 4}},
        {"method": "dawid-skene", "method_settings": {"n_iter": 1}},
        "features",
        "grades",
    ],
    ids=str,
)
def test_a_run_into_an_earlier_folder_equals_a_new_run(
    world: World, cached: Path, tmp_path: Path, changed: dict[str, Any] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_view, "MIN_QUERIES_FOR_VALIDATION", 1)  # the measure stops early
    features, gold, options = world.features, world.gold, {**CACHED}
    if changed == "features":
        features = features.assign(f1=features["f2"], f2=features["f1"] ** 2)
    elif changed == "grades":
        gold = gold.assign(grade=gold["grade"].max() - gold["grade"])
    else:
        assert isinstance(changed, dict)
        options |= changed
    shutil.copytree(cached, tmp_path / "out")
    again = run(world.judgments, features, gold, output=tmp_path / "out", **options)
    fresh = run(world.judgments, features, gold, **options)
    pd.testing.assert_frame_equal(again.comparison, fresh.comparison)
    pd.testing.assert_frame_equal(again.documents, fresh.documents)
    for one, two in ((again.ranker, fresh.ranker), (again.deployable, fresh.deployable)):
        rows = crowdrank.read_features(features)
        np.testing.assert_array_equal(one.predict(rows, rows.query), two.predict(rows, rows.query))


def test_the_written_ranker_is_trained_on_all_data_and_the_figures_are_not(world: World) -> None:
    options: dict[str, Any] = {"candidates": ["majority", "gls"], "trees": TREES}
    again, once = (run(world.judgments, world.features, world.gold, refit=refit, **options) for refit in (True, False))
    pd.testing.assert_frame_equal(again.comparison, once.comparison)
    rows = crowdrank.read_features(world.features)
    assert (again.ranker.predict(rows, rows.query) != once.ranker.predict(rows, rows.query)).any()


def test_stages_of_another_version_are_not_used(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, folder, keys = build_run_data(world.judgments, world.features, world.gold), tmp_path / "stages", []
    for version in ("one", "two"):
        for module in (consensus_fits, training):
            monkeypatch.setattr(module, "source_digest", lambda version=version: version)
        cache = StageCache(folder)
        fits = ConsensusFits(data, cache)
        fits.fit("majority")
        assert cache.made == 1
        keys.append(CandidateTraining(data, fits, RunSettings(), cache).full_view.key)
    assert keys[0] != keys[1]


def test_judgments_are_stored_once_for_all_consensus_stages(world: World, tmp_path: Path) -> None:
    run(world.judgments, world.features, world.gold, output=tmp_path / "out", candidates=FEW, trees=TREES)
    stages = tmp_path / "out" / "stages"
    assert len(list(stages.glob("consensus-*"))) > 1
    assert not list(stages.glob("consensus-*/**/judgments.parquet"))
    (stored,) = stages.glob("judgments-*")
    assert stored.read_bytes() == (tmp_path / "out" / "consensus" / "judgments.parquet").read_bytes()


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_damaged_judgments_of_models_are_stored_again(world: World, tmp_path: Path, damage: str) -> None:
    data, folder = build_run_data(world.judgments, world.features, world.gold), tmp_path / "stages"
    methods = ("majority", "auto")

    def fit_all() -> tuple[StageCache, ConsensusFits]:
        cache = StageCache(folder)
        fits = ConsensusFits(data, cache)
        for method in methods:
            fits.fit(method)
        cache.delete_unused()
        return cache, fits

    first, fits = fit_all()
    assert (first.made, first.reused) == (2, 0)
    (stored,) = folder.glob("judgments-*")
    content = stored.read_bytes()
    again, loaded = fit_all()
    assert (again.made, again.reused) == (0, 2)
    for method in methods:
        assert loaded.model(method).consensus_.document_table.equals(fits.model(method).consensus_.document_table)
    if damage == "missing":
        stored.unlink()
    else:
        stored.write_bytes(content[:-9] + b"x" * 9)
    repaired, _ = fit_all()
    assert (repaired.made, repaired.reused) == (1, 1), "the first model stores the judgments again"
    assert stored.read_bytes() == content
    assert {path.name.split("-")[0] for path in folder.iterdir() if not path.name.startswith(".")} == {
        "consensus",
        "judgments",
    }


def test_judgments_of_other_runs_are_deleted(world: World, tmp_path: Path) -> None:
    options: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    run(world.judgments, world.features, world.gold, **options)
    (first,) = (tmp_path / "out" / "stages").glob("judgments-*")
    run(world.judgments.iloc[:-50], world.features, world.gold, **options)
    (second,) = (tmp_path / "out" / "stages").glob("judgments-*")
    assert first.name != second.name


@pytest.mark.parametrize("n", [1, MIN_SELECTION_QUERIES - 1, MIN_SELECTION_QUERIES + 1])
def test_few_expert_queries_are_all_for_the_test(world: World, n: int) -> None:
    some = world.gold["query"].unique()[:n]
    gold = world.gold[world.gold["query"].isin(some)]
    result = run(world.judgments, world.features, gold, candidates=[*FEW], trees=TREES)
    assert result.chosen == CROWD
    assert result.rankers is not None
    assert not result.rankers.selection_queries
    assert any("too few to select a ranker" in text for text in result.summary)
    assert "too few" in result.rankers.left_out["expert-only"]
    assert "per_query" in result.tables


@pytest.mark.parametrize("n", [1, MIN_SELECTION_QUERIES - 1, MIN_SELECTION_QUERIES + 1])
def test_few_queries_with_expert_grades_train_a_ranker_without_a_test(world: World, n: int) -> None:
    judgments, features, gold = (
        frame[frame["query"].isin(world.gold["query"].unique()[:n])]
        for frame in (world.judgments, world.features, world.gold)
    )
    result = run(judgments, features, gold, candidates=FEW, trees=TREES)
    assert result.rankers is not None
    assert not result.rankers.test_queries
    assert len(result.rankers.selection_queries) == (n if n >= MIN_SELECTION_QUERIES else 0)
    assert len(result.ranker.predict(features)) == len(features)
    assert "per_query" not in result.tables


def test_summary_without_experts_states_their_benefit(world: World) -> None:
    result = run(world.judgments, world.features, candidates=["majority", "average"], trees=TREES)
    assert result.chosen == CROWD
    assert "per_query" not in result.tables
    assert result.summary[1].startswith("50 expert-graded queries would show differences in nDCG@10 from about 0.")


def test_without_test_share_all_experts_are_for_the_selection(world: World) -> None:
    result = run(world.judgments, world.features, world.gold, candidates=FEW, trees=TREES, test=0)
    assert result.rankers is not None
    assert len(result.rankers.selection_queries) == 17
    assert any("No expert-graded query was held out" in text for text in result.summary)


def test_protocol_states_whether_graded_queries_have_labels(world: World) -> None:
    graded = set(world.gold["query"])
    apart = world.judgments[~world.judgments["query"].isin(graded)]
    result = run(apart, world.features, world.gold, candidates=FEW, trees=TREES)
    assert not any("also have crowd labels" in line for line in result.protocol)
    both = run(world.judgments, world.features, world.gold, candidates=FEW, trees=TREES)
    assert any("also have crowd labels" in line for line in both.protocol)


def test_fewer_folds_are_noted(world: World) -> None:
    some = world.gold["query"].unique()[:9]
    gold = world.gold[world.gold["query"].isin(some)]
    result = run(world.judgments, world.features, gold, candidates=["majority", "gls"], trees=TREES, folds=4)
    assert result.rankers is not None
    n = len(result.rankers.selection_queries)
    (note,) = [note for note in result.notes if note.kind == "few-folds"]
    assert f"{n // 2} folds, not 4" in note.problem
    result = run(world.judgments, world.features, gold, candidates=["majority", "gls"], trees=TREES, folds=2)
    assert "few-folds" not in {note.kind for note in result.notes}


def test_family_mean_is_trained_if_there_are_families() -> None:
    world = crowdrank.simulate(queries=30, documents=8, families=3, gold_queries=10, random_state=2)
    result = run(world.judgments, world.features, world.gold, candidates=["majority", "family-mean"], trees=TREES)
    assert "family-mean" in result.comparison["candidate"].tolist()


def test_result_does_not_depend_on_ids(world: World) -> None:
    options: dict[str, Any] = {"candidates": FEW, "trees": TREES}
    one = run(world.judgments, world.features, world.gold, **options)
    renamed = [
        frame.assign(query="q" + frame["query"].astype(str), document="d" + frame["document"].astype(str))
        for frame in (world.judgments, world.features, world.gold)
    ]
    other = run(*renamed, **options)
    pd.testing.assert_frame_equal(one.comparison, other.comparison)


def test_summary_states_that_few_test_queries_show_nothing(world: World) -> None:
    some = world.gold["query"].unique()[:3]
    result = run(
        world.judgments, world.features, world.gold[world.gold["query"].isin(some)], candidates=["majority", "gls"]
    )
    assert any("With 3 test queries no difference can be significant" in text for text in result.summary)


def test_error_without_common_documents_shows_ids_of_both_files(world: World) -> None:
    strange = world.features.assign(document="x" + world.features["document"].astype(str))
    with pytest.raises(InputError, match=r"no judged document has features \(judged: document '.*'x1-01' of query '1'"):
        run(world.judgments, strange)
    other = world.gold.assign(document="y" + world.gold["document"].astype(str))
    with pytest.raises(InputError, match=r"no expert-graded document has features .*'y1-01'"):
        run(world.judgments, world.features, other)
    with pytest.raises(InputError, match=r"no expert-graded document has judgments .*'y1-01'.*with judgments: "):
        run(world.judgments, expert=other)


def test_unjudged_honeypots_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="none of the 1 honeypot was judged"):
        run(world.judgments, world.features, honeypots=pd.DataFrame({"query": ["1"], "document": ["no"], "grade": [1]}))


def test_equal_labels_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="every judgment has the same grade"):
        run(world.judgments.drop(columns="honeypot").assign(grade=1), world.features)


def test_single_assessor_is_noted_once(world: World) -> None:
    alone = world.judgments.drop_duplicates(["query", "document"]).assign(assessor="only")
    tried = ["majority", "average", "gda", "dawid-skene"]
    result = run(alone, world.features, world.gold, candidates=tried, trees=TREES)
    assert result.chosen in result.comparison["candidate"].tolist()
    (note,) = [note for note in result.notes if "No document was judged by two assessors" in note.problem]
    assert "gda and dawid-skene" in note.problem, "a warning of several methods appears once"


def test_resumed_run_repeats_warnings(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = world.judgments.assign(assessor="alone").drop_duplicates(["query", "document"])
    made: list[int] = []
    monkeypatch.setattr(StageCache, "delete_unused", lambda cache: made.append(cache.made))
    first, again = (
        run(
            one,
            world.features,
            world.gold,
            output=tmp_path / "run",
            candidates=["majority", "dawid-skene"],
            trees=TREES,
        )
        for _ in range(2)
    )
    assert any("No document was judged by two assessors" in note.problem for note in first.notes)
    assert made[1] == 0
    assert again.notes == first.notes


def test_methods_that_need_one_scale_are_left_out(tmp_path: Path, world: World) -> None:
    scales = tmp_path / "scales.csv"
    scales.write_text(f"assessor,grades\n{world.judgments['assessor'].iloc[0]},0-9\n*,0-4\n")
    judgments = crowdrank.read_judgments(world.judgments.drop(columns="honeypot"), scales=scales)
    result = run(judgments, world.features, world.gold, candidates=["majority", "gda"], trees=TREES)
    assert result.rankers is not None
    assert "2 scales" in result.rankers.left_out["majority"]
    assert result.comparison.set_index("candidate")["selection_mean"].notna()["gda"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"candidates": ["maority"]}, "not 'maority'"),
        ({"candidates": ["expert-only"]}, "trained on crowd labels alone"),
        ({"test": 1.0}, "below 1"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"measure": "Tau"}, "validate_by|measure"),
        ({"method": "gold"}, "method must be one of"),
        ({"color": 1}, "no setting 'color'"),
        ({"baseline": "zzz"}, "baseline 'zzz' is neither a candidate of this run nor a file"),
    ],
)
def test_invalid_settings_are_refused(world: World, settings: dict[str, Any], said: str) -> None:
    with pytest.raises((UsageError, CrowdrankError), match=said):
        run(world.judgments, world.features, **settings)


def test_folder_with_other_files_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(CrowdrankError, match=r"it contains mine\.txt"):
        run(world.judgments, world.features, output=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


# Parts that cannot be made.


def fail(*values: Any, **options: Any) -> Any:
    raise RuntimeError("planned failure")


def failures(result: RunResult) -> list[str]:
    return [note.problem for note in result.notes if note.kind == "failed-part"]


def test_results_are_complete_before_the_report_is_written(world: World, tmp_path: Path) -> None:
    folder, seen = tmp_path / "out", []

    def report(result: RunResult, place: Path) -> None:
        loaded = RunResult.load(place)
        seen.append((loaded.to_dict() == result.to_dict(), (place / "report.md").is_file()))
        raise RuntimeError("planned failure")

    for n_runs in (1, 2):  # the folder can be used again
        result = run(world.judgments, world.features, world.gold, candidates=["gls"], output=folder, report=report)
        assert seen == [(True, True)] * n_runs
        assert len(failures(result)) == 1
        assert RunResult.load(folder).chosen == result.chosen
        assert [stage.stage for stage in RunResult.load(folder).profile.stages].count("report") == 1


def test_an_interrupted_report_leaves_the_results(world: World, tmp_path: Path) -> None:
    def interrupt(result: RunResult, place: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(world.judgments, expert=world.gold, output=tmp_path / "out", report=interrupt)
    assert RunResult.load(tmp_path / "out").sizes["judgments"] == len(world.judgments)


def test_a_run_without_a_forest_for_search_engines(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "distill", fail)
    result = run(world.judgments, world.features, world.gold, candidates=["gls"], output=tmp_path / "out")
    assert result.rankers is not None
    assert result.rankers.deployable is None
    assert len(failures(result)) == 1
    assert not (tmp_path / "out" / "deployable").exists()
    loaded = RunResult.load(tmp_path / "out")
    assert failures(loaded) == failures(result)
    with pytest.raises(InputError) as caught:
        _ = loaded.deployable
    assert caught.value.kind == "no-forest"
    write_report(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('<p class="failed">') == 1
    assert "crowdrank export" not in page


@pytest.mark.parametrize("part", ["markdown", "describe_changes", "estimate_baseline"])
def test_other_parts_that_fail_cost_that_part(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    ranking = tmp_path / "live.trec"
    pairs = world.features[["query", "document"]].itertuples(index=False)
    ranking.write_text("".join(f"{query} Q0 {document} 1 1.0 live\n" for query, document in pairs))
    monkeypatch.setattr(run_rankers if part == "estimate_baseline" else run_module, part, fail)
    result = run(
        world.judgments,
        world.features,
        world.gold,
        candidates=["gls"],
        output=tmp_path / "out",
        baseline=str(ranking),
    )
    assert len(failures(result)) == 1
    assert (tmp_path / "out" / "report.md").exists() is (part != "markdown")
    assert failures(RunResult.load(tmp_path / "out")) == failures(result)


def test_each_setting_is_declared_once_as_an_option_or_a_table() -> None:
    options = {one.name: one for one, _ in option_fields(RunSettings)}
    assert TABLES == ("method_settings", "trees", "linear", "boosted", "forest")
    assert [one.name for one in fields(RunSettings)] == [*options, *TABLES]
    bounded = {name: one for name, one in options.items() if one.metadata["valid"] is not None}
    assert {"method", "test", "folds", "n_jobs", "random_state"} <= set(bounded)
    for one in bounded.values():
        assert one.metadata["help"].endswith(f": {one.metadata['valid']}.")
        if one.default is not None:
            assert one.metadata["valid"].accepts(one.default)


LABELS_ONLY = """
import sys
from crowdrank.cli.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
packages = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("crowdrank.")}
pipeline = {name.removeprefix("crowdrank.pipeline.") for name in sys.modules if name.startswith("crowdrank.pipeline.")}
print("modules", *sorted({name.removeprefix("crowdrank.") for name in packages} | pipeline))
"""


def test_a_run_without_features_loads_nothing_that_trains_rankers(world: World, tmp_path: Path) -> None:
    world.judgments.to_csv(tmp_path / "judgments.csv", index=False)
    inputs, output = str(tmp_path / "judgments.csv"), str(tmp_path / "out")
    command = [sys.executable, "-c", LABELS_ONLY, "run", "-j", inputs, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "run" in loaded
    assert not set(loaded) & {"run_rankers", "candidates", "training", "selection", "ensembles", "estimation"}


def test_labels_of_a_run_are_calibrated_and_training_labels_are_not(tmp_path: Path) -> None:
    world = crowdrank.simulate(queries=30, documents=12, gold_queries=20, random_state=2)
    options: dict[str, Any] = {"method": "majority", "rankers": False}
    result = crowdrank.run(world.judgments, None, world.gold, output=tmp_path / "run", **options)
    assert result.calibration is not None
    assert result.calibration.is_applied
    plain = crowdrank.run(world.judgments, None, world.gold, calibrate=False, **options)
    assert plain.calibration is None
    names = result.model.consensus_.share_names
    assert plain.tables["documents"].select(names).equals(plain.model.consensus_.document_table.select(names))
    shares = plain.tables["documents"].select(names).to_pandas().to_numpy()
    ungraded = plain.documents["expert"].isna().to_numpy()
    calibrated = result.documents[names].to_numpy()
    np.testing.assert_allclose(calibrated[ungraded], result.calibration.apply(shares)[ungraded])
    assert result.model.consensus_.document_table.equals(plain.model.consensus_.document_table)
    assert RunResult.load(tmp_path / "run").calibration == result.calibration
