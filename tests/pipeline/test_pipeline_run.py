"""The one command: what it writes, that nothing leaks, that it resumes, and what it says of bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank._text import markdown_text
from crowdrank.cli.run import print_candidates
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.pipeline import candidates as candidates_module
from crowdrank.pipeline import selection as trial_module
from crowdrank.pipeline.candidates import BY_NAME, CANDIDATES, Candidate, sensible
from crowdrank.pipeline.consensus_fits import Opinions
from crowdrank.pipeline.dry_run import plan
from crowdrank.pipeline.run import Run, run
from crowdrank.pipeline.run_data import Material, gather
from crowdrank.pipeline.selection import (
    CROWD,
    ENSEMBLES,
    LEAST_CHOICE,
    SAFE,
    CandidateSelection,
    ExpertScorer,
    ExpertSplit,
    chosen,
    parted,
)
from crowdrank.pipeline.settings import Settings
from crowdrank.pipeline.stage_cache import Stages
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.ensemble import PRIOR_QUERIES, shrunk_weights
from crowdrank.rankers.ranking_data import RankingData
from crowdrank.rankers.validation import Validation
from crowdrank.simulation.world import World

FEW = ["majority", "average", "gls", "expert-only"]
TREES = {"n_estimators": 10}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=18, random_state=1)


@pytest.fixture(scope="module")
def whole(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run of every candidate."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    brief = {"n_iter": 5, "ridge": 0.1}
    done = run(
        world.judgments,
        world.features,
        world.gold,
        output=folder,
        trees=TREES,
        linear=brief,
        boosted=brief,
    )
    return done, folder


def test_every_candidate_is_tried_and_every_file_written(whole: tuple[Run, Path]) -> None:
    done, folder = whole
    table = pd.read_csv(folder / "comparison.csv")
    tried = set(table.loc[table["choice_mean"].notna(), "candidate"])
    assert tried == {c.name for c in CANDIDATES if c.name != "family-mean"} | {
        *ENSEMBLES,
    }
    assert table.loc[table["candidate"] == "family-mean", "note"].tolist() == [
        "left out: the judgments name no families"
    ]
    assert table["chosen"].eq(True).sum() == 1
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("consensus.parquet", "assessors.csv", "training.parquet", "model", "comparison.csv", "next.csv", "pairs.csv"),
        *("crowdrank.json", "run.json", "report.md", "stages", "consensus", "per_query.csv", "remapping.csv"),
    }
    about = json.loads((folder / "run.json").read_text())
    assert about["chosen"] == done.chosen
    assert about["settings"]["measure"] == "nDCG@10"
    assert len(about["queries"]["test"]) + len(about["queries"]["choice"]) == about["sizes"]["expert_queries"]
    assert not set(about["queries"]["test"]) & set(about["queries"]["choice"])
    report = (folder / "report.md").read_text()
    assert markdown_text(done.paragraph) in report
    assert "## What to label next" in report


def test_the_written_ranker_ranks_as_the_one_returned(whole: tuple[Run, Path], world: World) -> None:
    done, folder = whole
    features = crowdrank.read_features(world.features)
    again = Ranker.load(folder / "model")
    np.testing.assert_allclose(again.predict(features, features.query), done.ranker.predict(features, features.query))


def test_the_candidates_fit_into_80_columns(whole: tuple[Run, Path], capsys: pytest.CaptureFixture[str]) -> None:
    print_candidates(whole[0])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if line.startswith(" ") and line.strip()]
    assert set(whole[0].outcome.scores) <= set(shown), "a name is one word in one line"
    assert lines[-1] == "Left out: family-mean (the judgments name no families)."
    (row,) = [line.split() for line in lines if line.split()[:1] == ["gls"]]
    table = whole[0].comparison.set_index("candidate")
    assert row[3] == f"{table.loc['gls', 'nDCG@10 difference']:+.4f}"


def test_a_run_says_the_call_that_made_it(whole: tuple[Run, Path], world: World) -> None:
    done, folder = whole
    told = json.loads((folder / "run.json").read_text())["origin"]
    assert told["command"] == ""
    assert f"judgments=judgments,  # pandas DataFrame, {len(world.judgments):,} rows" in told["python"]
    names = {"judgments": world.judgments, "features": world.features, "expert": world.gold}
    given: dict[str, Any] = {}
    called = told["python"].replace("import crowdrank", "").replace("crowdrank.run(", "given.update(")
    exec(called, {**names, "given": given})
    settings = {name: value for name, value in given.items() if name not in {*names, "output"}}
    assert Settings.of(settings) == done.settings
    assert given["output"] == str(folder)
    assert given["expert"] is world.gold


def test_next_is_widest_first_and_leaves_out_what_experts_graded(whole: tuple[Run, Path], world: World) -> None:
    _, folder = whole
    table = pd.read_csv(folder / "next.csv")
    assert table["width"].is_monotonic_decreasing
    assert len(table)
    graded = set(world.gold["document"])
    assert not graded & set(table["document"])


def test_training_tells_labels_parts_and_experts(whole: tuple[Run, Path], world: World) -> None:
    _, folder = whole
    table = pd.read_parquet(folder / "training.parquet")
    assert set(table["part"]) == {"train", "choice", "test"}
    assert {"majority", "average", "dawid_skene", "gda", "linear_target", "boosted_weight"} <= set(table.columns)
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    assert table["expert"].notna().sum() == (~world.gold["document"].isin(planted)).sum()
    test = table["part"] == "test"
    assert table.loc[test, "linear_target"].isna().all(), "test queries must not be learned from"
    average = world.judgments[world.judgments["honeypot"].isna()].groupby("document")["grade"].mean()
    judged = table[table["labels"] > 0].set_index("document")
    np.testing.assert_allclose(judged["average"], average.loc[judged.index], atol=1e-9)


def test_honeypots_never_enter_training(whole: tuple[Run, Path], world: World) -> None:
    _, folder = whole
    table = pd.read_parquet(folder / "training.parquet").set_index("document")
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    assert len(planted)
    assert (table["labels"].reindex(planted).fillna(0) == 0).all()


def test_the_same_again_reuses_every_stage_and_gives_the_same(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    told: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    first = run(world.judgments, world.features, world.gold, **told)
    fits: list[str] = []
    monkeypatch.setattr(candidates_module.TrainingView, "taught", lambda *a, **k: fits.append("fit"))
    second = run(world.judgments, world.features, world.gold, **told)
    assert not fits
    pd.testing.assert_frame_equal(first.comparison, second.comparison)


def test_a_run_that_is_made_again_keeps_what_labels_turned_out_to_be_worth(world: World, tmp_path: Path) -> None:
    brief = {"n_iter": 2, "ridge": 0.1}
    told: dict[str, Any] = {"output": tmp_path / "out", "candidates": ["majority", "linear-gls"], "linear": brief}
    names = ("training.parquet", "remapping.csv", "per_query.csv")
    contents = []
    for _ in range(2):
        run(world.judgments, world.features, world.gold, trees=TREES, **told)
        contents.append([(tmp_path / "out" / name).read_bytes() for name in names])
    assert contents[0] == contents[1]
    assert "linear_target" in pd.read_parquet(tmp_path / "out" / "training.parquet")
    run(world.judgments, world.features, output=tmp_path / "out", candidates=["gls"])
    assert not (tmp_path / "out" / "per_query.csv").exists(), "figures of an earlier run are not taken for this one's"
    assert not (tmp_path / "out" / "remapping.csv").exists()


def test_values_per_query_have_the_means_of_the_comparison(whole: tuple[Run, Path]) -> None:
    done, folder = whole
    values = pd.read_csv(folder / "per_query.csv", dtype={"query": str})
    means = values.groupby("candidate")["nDCG@10"].mean()
    told = done.comparison.set_index("candidate")["nDCG@10 mean"].dropna()
    pd.testing.assert_series_equal(means, told, check_names=False, check_like=True)
    assert set(values["query"]) <= set(done.about()["queries"]["test"])


def test_assessors_are_held_against_experts(whole: tuple[Run, Path], world: World) -> None:
    done, _ = whole
    asked = world.judgments[world.judgments["honeypot"].isna()]
    both = asked.merge(world.gold, on=["query", "document"], suffixes=("", "_expert"))
    right = (both["grade"] == both["grade_expert"]).groupby(both["assessor"]).mean()
    told = done.assessors.set_index("assessor")["gold_accuracy"].astype(float).dropna()
    pd.testing.assert_series_equal(told.sort_index(), right.sort_index(), check_names=False)


def test_experts_keep_their_scale_in_a_run(world: World) -> None:
    material = gather(world.judgments, world.features, world.gold)
    assert material.gold is not None
    binary = world.gold.assign(grade=(world.gold["grade"] >= 2).astype(int))
    other = gather(world.judgments, world.features, binary)
    assert other.gold is not None
    assert other.gold.for_items(other.judgments).sets is None
    assert gather(world.judgments, world.features).gold is None


def test_an_interrupted_run_goes_on_where_it_was(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    told: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES, "n_jobs": 1}
    real, seen = candidates_module.TrainingView.taught, []

    def stopping(self: Any, *words: Any, **more: Any) -> Any:
        seen.append(1)
        if len(seen) == 7:
            raise KeyboardInterrupt
        return real(self, *words, **more)

    monkeypatch.setattr(candidates_module.TrainingView, "taught", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(world.judgments, world.features, world.gold, **told)
    there = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert there == ["crowdrank.json", "stages"], "results come together, at the end"
    counted: list[int] = []

    def counting(self: Any, *words: Any, **more: Any) -> Any:
        counted.append(1)
        return real(self, *words, **more)

    monkeypatch.setattr(candidates_module.TrainingView, "taught", counting)
    resumed = run(world.judgments, world.features, world.gold, **told)
    left = len(counted)
    fresh = run(world.judgments, world.features, world.gold, **{**told, "output": tmp_path / "other"})
    total = len(counted) - left
    assert left + 6 <= total <= left + 7, "the fits before the interrupt (and the one under way) are not made again"
    pd.testing.assert_frame_equal(resumed.comparison, fresh.comparison)


def test_an_interrupted_run_leaves_the_last_results_whole(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    told: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    run(world.judgments, world.features, world.gold, **told)
    files = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    before = {path.name: path.read_bytes() for path in files}

    def stopped(self: Any, *words: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(candidates_module.TrainingView, "taught", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(world.judgments.iloc[:-200], world.features, world.gold, **told)
    assert {path.name: path.read_bytes() for path in files} == before


def test_damaged_notes_of_inputs_are_no_obstacle(world: World, tmp_path: Path) -> None:
    told: dict[str, Any] = {"candidates": ["majority"], "trees": TREES, "output": tmp_path / "out"}
    run(world.judgments, world.features, **told)
    (tmp_path / "out" / "stages" / "inputs.json").write_text("nojson")
    done = run(world.judgments, world.features, **told)
    assert not any("changed" in note for note in done.notes)


def test_stages_of_earlier_settings_go_once_a_run_is_done(world: World, tmp_path: Path) -> None:
    told: dict[str, Any] = {"output": tmp_path / "out", "candidates": ["majority", "gls"]}

    def stages() -> set[str]:
        return {path.name for path in (tmp_path / "out" / "stages").iterdir()}

    run(world.judgments, world.features, world.gold, trees=TREES, **told)
    first = stages()
    run(world.judgments, world.features, world.gold, trees=TREES, **told)
    assert stages() == first, "the same run again needs all of it"
    run(world.judgments, world.features, world.gold, trees={"n_estimators": 5}, **told)
    second = stages()
    assert len(second) == len(first)
    assert "inputs.json" in second
    assert any(name.startswith("consensus-") for name in first & second)
    assert not any(name.startswith("ranker-") for name in first & second)


def test_changed_files_are_noticed_and_what_depends_on_them_made_again(world: World, tmp_path: Path) -> None:
    told: dict[str, Any] = {"output": tmp_path / "out", "candidates": FEW, "trees": TREES}
    run(world.judgments, world.features, world.gold, **told)
    fewer = world.judgments.iloc[:-200]
    changed = run(fewer, world.features, world.gold, **told)
    assert any("judgments have changed" in note for note in changed.notes)
    fresh = run(fewer, world.features, world.gold, candidates=FEW, trees=TREES)
    pd.testing.assert_frame_equal(changed.comparison, fresh.comparison)


# Nothing leaks.


def material_of(world: World) -> Material:
    return gather(world.judgments, world.features, world.gold)


def trial_of(material: Material, names: list[str], settings: Settings, parts: ExpertSplit) -> CandidateSelection:
    opinions = Opinions(material, Stages(None))
    for name in names:
        for method in BY_NAME[name].needs:
            opinions.fit(method)
    return CandidateSelection(material, opinions, settings, [BY_NAME[name] for name in names], parts, Stages(None))


def test_no_candidate_sees_what_it_is_judged_on(world: World) -> None:
    material, settings = material_of(world), Settings(trees=TREES)
    seen: list[tuple[set[int], set[int]]] = []

    def spying(lesson: Any) -> Ranker:
        crowd, expert = (set(material.query[rows].tolist()) for rows in (lesson.crowd, lesson.expert))
        seen.append((crowd, expert))
        return BY_NAME["average"].learn(lesson)

    spy = Candidate("average", "", spying, ("average",), expert=True)
    parts = parted(material.graded_queries, settings)
    trial = trial_of(material, ["average"], settings, parts)
    trial.candidates = [spy]
    crowd_only = replace(BY_NAME["majority"], name="majority")
    trial.opinions.fit("majority")
    trial.candidates.append(crowd_only)
    trial.run()
    test, development = set(parts.test.tolist()), set(parts.development.tolist())
    folds = [set(fold.tolist()) for fold in parts.folds]
    assert len(seen) == 1 + len(folds)
    for crowd, expert in seen:
        assert not crowd & test
        assert not expert & test
        assert expert <= development
    unseen = [[k for k, fold in enumerate(folds) if not (crowd | expert) & fold] for crowd, expert in seen]
    assert sorted(unseen) == [[], *([k] for k in range(len(folds)))], "each fold is hidden once, and none at the end"


def test_progress_reaches_the_end_if_a_candidate_fails(world: World) -> None:
    def fail(lesson: Any) -> Ranker:
        raise UsageError("cannot be fitted here")

    material, settings = material_of(world), Settings(trees=TREES)
    steps: list[tuple[int, int]] = []
    selection = trial_of(material, ["average"], settings, parted(material.graded_queries, settings))
    selection.candidates.append(Candidate("failing", "", fail, ("average",)))
    selection.report = lambda step, most, measure: steps.append((step, most))
    assert set(selection.run().failed) == {"failing"}
    assert steps[-1][0] == steps[-1][1]


def test_judgments_are_stored_once_for_all_consensus_stages(world: World, tmp_path: Path) -> None:
    run(world.judgments, world.features, world.gold, output=tmp_path / "out", candidates=FEW, trees=TREES)
    saved = list((tmp_path / "out" / "stages").glob("consensus-*/judgments.parquet"))
    assert len(saved) > 1
    assert len({path.stat().st_ino for path in saved}) == 1


def test_grades_of_test_queries_change_no_score_and_no_choice(world: World) -> None:
    settings = Settings(trees=TREES, linear={"n_iter": 3, "ridge": 0.1})
    names = ["majority", "gda", "linear-remap", "crowd-and-expert", "expert-only"]
    material = material_of(world)
    parts = parted(material.graded_queries, settings)
    scrambled = material.expert.copy()
    rows = np.flatnonzero(np.isin(material.query, parts.test) & ~np.isnan(scrambled))
    scrambled[rows] = np.random.default_rng(0).permutation(scrambled[rows])
    outcomes = []
    for expert in (material.expert, scrambled):
        trial = trial_of(replace(material, expert=expert), [*names], settings, parts)
        trial.opinions.fit("dawid-skene")
        trial.opinions.fit("glad")
        outcomes.append(trial.run())
    assert not outcomes[0].failed
    for name, score in outcomes[0].scores.items():
        np.testing.assert_array_equal(score, outcomes[1].scores[name], err_msg=name)
    assert outcomes[0].chosen == outcomes[1].chosen


def test_crowd_rankers_are_fitted_once_where_no_fold_hides_a_label(world: World) -> None:
    graded = set(world.gold["query"])
    apart = world.judgments[~world.judgments["query"].isin(graded)]
    material, settings = gather(apart, world.features, world.gold), Settings(trees=TREES)
    counted: list[int] = []

    def counting(lesson: Any) -> Ranker:
        counted.append(1)
        return BY_NAME["average"].learn(lesson)

    trial = trial_of(material, ["average"], settings, parted(material.graded_queries, settings))
    trial.candidates = [replace(BY_NAME["average"], learn=counting)]
    trial.run()
    assert len(counted) == 1


@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_least_squares_on_remapped_labels_is_the_remappers_own(world: World, kind: str) -> None:
    told = {"n_iter": 5, "ridge": 0.1}
    material, settings = material_of(world), Settings(linear=told, boosted=told)
    trial = trial_of(material, [f"{kind}-gls"], settings, parted(material.graded_queries, settings))
    lesson = trial.lesson(trial.parts.test, trial.parts.development)
    ranker = BY_NAME[f"{kind}-gls"].learn(lesson)
    own = lesson.remapper(kind).ranker_
    known = material.features
    # But for the weights that features are standardized with, and so what the ridge weighs, they are the same.
    assert np.corrcoef(ranker.predict(known), own.predict(known))[0, 1] > 0.9999


def test_a_sample_steers_a_remapper_where_labels_are_many(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(candidates_module, "MOST_STEERING", 2)
    monkeypatch.setattr(candidates_module, "MOST_DOCUMENTS", 100)
    material, settings = material_of(world), Settings(linear={"n_iter": 3, "ridge": 0.1}, trees=TREES)
    trial = trial_of(material, ["linear-remap"], settings, parted(material.graded_queries, settings))
    lesson = trial.lesson(trial.parts.test, trial.parts.development)
    some = lesson.steering("remap")
    assert np.diff(some.judgments.offsets).max() == 2
    assert some.judgments.n_items == 100
    assert len(lesson.remapped("linear").target) == int(material.judged[lesson.crowd].sum()), "all labels are remapped"


def test_ensembles_scores_are_those_of_the_ensemble_that_is_written(world: World) -> None:
    material, settings = material_of(world), Settings(trees=TREES)
    trial = trial_of(material, FEW, settings, parted(material.graded_queries, settings))
    outcome = trial.run()
    rows = material.rows_of(outcome.parts.test)
    known = material.taken(rows)
    assert outcome.weights
    for name in outcome.weights:
        np.testing.assert_allclose(
            outcome.ranker(name).predict(known, known.query), outcome.scores[name][rows], atol=1e-9, err_msg=name
        )


def test_the_judge_measures_as_evaluate_does(world: World) -> None:
    material = material_of(world)
    score = np.random.default_rng(0).normal(size=len(material.query))
    frame = world.features[["query", "document"]].assign(score=score)
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    gold = world.gold[~world.gold["document"].isin(planted)]
    found = crowdrank.evaluate(frame, gold, "nDCG@10", unjudged="skip").means["nDCG@10"]
    judge = ExpertScorer(material, material.graded_queries, Settings())
    assert judge.values(score).mean() == pytest.approx(found)


# The choice.


def test_the_safe_one_is_taken_unless_another_leads_clearly() -> None:
    rng = np.random.default_rng(0)
    safe = rng.uniform(0.3, 0.9, 30)
    noisy = safe + rng.normal(0.01, 0.2, 30)
    better = safe + rng.normal(0.1, 0.02, 30)
    assert chosen({SAFE: safe, "noisy": noisy})[0] == SAFE
    assert chosen({SAFE: safe, "noisy": noisy, "better": better})[0] == "better"


def test_weights_of_few_queries_are_nearly_equal_and_of_many_follow_the_better_ranker() -> None:
    def found(n: int) -> tuple[float, float]:
        rng = np.random.default_rng(1)
        y, query = rng.integers(0, 3, 10 * n), np.repeat(np.arange(n), 10)
        votes = np.stack([y + rng.normal(0, 0.5, 10 * n), rng.normal(0, 1, 10 * n), rng.normal(0, 1, 10 * n)])
        lists = RankingData.from_ids(votes.T, y, query)
        weights = shrunk_weights(votes, Validation(lists), steps=10)
        assert weights.sum() == pytest.approx(1)
        return float(weights[0]), float(weights.min())

    few, many = found(4), found(400)
    assert 1 / 3 < few[0] < 0.5
    assert few[1] > PRIOR_QUERIES / (4 + PRIOR_QUERIES) / 3 - 1e-9  # the equal part of each is never taken away
    assert many[0] > 0.85


def test_progress_goes_to_its_end_and_no_further(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "SIDE_BY_SIDE", 0)  # one after the other, so that each tells how far it is
    material, settings = material_of(world), Settings(trees=TREES, folds=2)
    trial = trial_of(material, ["majority", "expert-only"], settings, parted(material.graded_queries, settings))
    for work in (trial.run, lambda: trial.refit(SAFE, trial.report)):
        shares: list[float] = []
        trial.report = lambda done, most, _, shares=shares: shares.append(done / most)
        work()
        assert shares == sorted(shares)
        assert shares[-1] == 1
        assert len(shares) > 2


@pytest.mark.parametrize("n", [1, LEAST_CHOICE - 1, LEAST_CHOICE + 1])
def test_too_few_experts_to_choose_by_are_for_the_test(world: World, n: int) -> None:
    some = world.gold["query"].unique()[:n]
    gold = world.gold[world.gold["query"].isin(some)]
    done = run(world.judgments, world.features, gold, candidates=[*FEW], trees=TREES)
    assert done.chosen == CROWD
    assert not done.outcome.values
    assert "none can be spared to choose by" in done.paragraph
    assert "too few" in done.outcome.failed["expert-only"]
    assert done.verdict.comparison is not None


def test_without_experts_it_says_what_they_would_buy(world: World) -> None:
    done = run(world.judgments, world.features, candidates=["majority", "average"], trees=TREES)
    assert done.chosen == CROWD
    assert done.verdict.comparison is None
    assert "50 expert-graded queries would show differences in nDCG@10 of 0." in done.paragraph


def test_without_a_test_all_experts_are_for_the_choice(world: World) -> None:
    done = run(world.judgments, world.features, world.gold, candidates=FEW, trees=TREES, test=0)
    assert len(done.outcome.parts.development) == len(done.material.graded_queries)
    assert "Nothing was tested" in done.paragraph


def test_experts_of_other_queries_than_the_crowds(world: World) -> None:
    graded = set(world.gold["query"])
    apart = world.judgments[~world.judgments["query"].isin(graded)]
    done = run(apart, world.features, world.gold, candidates=FEW, trees=TREES)
    assert not any("also have crowd labels" in line for line in done.verdict.protocol)
    both = run(world.judgments, world.features, world.gold, candidates=FEW, trees=TREES)
    assert any("also have crowd labels" in line for line in both.verdict.protocol)


def test_fewer_folds_than_asked_for_are_said(world: World) -> None:
    some = world.gold["query"].unique()[:9]
    gold = world.gold[world.gold["query"].isin(some)]
    done = run(world.judgments, world.features, gold, candidates=["majority", "gls"], trees=TREES, folds=4)
    n = len(done.outcome.parts.development)
    assert f"The {n} expert queries for the choice are dealt into {n // 2} folds, not 4" in " ".join(done.notes)
    done = run(world.judgments, world.features, gold, candidates=["majority", "gls"], trees=TREES, folds=2)
    assert "folds" not in " ".join(done.notes)


def test_a_method_at_its_last_iteration_is_said_without_options_that_a_run_lacks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opinions = Opinions(gather(world.judgments, world.features), Stages(None))
    monkeypatch.setattr("crowdrank.consensus.em_loop.has_converged", lambda history, tol: False)
    opinions.fit("glad")
    (caution,) = opinions.cautions
    assert caution.startswith("glad had not converged after")
    assert "raise n_iter" not in caution
    opinions.fit("dawid-skene")
    (both,) = opinions.cautions
    assert both.startswith("glad and dawid-skene had not converged after")


def test_families_join_the_candidates() -> None:
    world = crowdrank.simulate(queries=30, documents=8, families=3, gold_queries=10, random_state=2)
    done = run(world.judgments, world.features, world.gold, candidates=["majority", "family-mean"], trees=TREES)
    assert "family-mean" in done.outcome.scores


def test_the_same_seed_gives_the_same_and_ids_do_not_matter(world: World) -> None:
    told: dict[str, Any] = {"candidates": FEW, "trees": TREES}
    one = run(world.judgments, world.features, world.gold, **told)
    renamed = [
        frame.assign(query="q" + frame["query"].astype(str), document="d" + frame["document"].astype(str))
        for frame in (world.judgments, world.features, world.gold)
    ]
    other = run(*renamed, **told)
    pd.testing.assert_frame_equal(one.comparison, other.comparison)


# Honeypots, and bad input.


def test_honeypots_from_a_file_are_kept_out(world: World) -> None:
    bare = world.judgments.drop(columns="honeypot")
    planted = world.judgments.dropna(subset="honeypot").drop_duplicates("document")
    file = planted[["query", "document"]].assign(grade=planted["honeypot"].astype(int))
    marked = gather(world.judgments, world.features)
    told = gather(bare, world.features, honeypots=file)
    np.testing.assert_array_equal(marked.judged, told.judged)
    assert any("no ranker learns from them" in note for note in told.notes)


def test_expert_grades_of_honeypots_count_for_nothing(world: World) -> None:
    planted = world.documents.loc[world.documents["honeypot"], ["document"]].merge(world.gold, on="document")
    assert len(planted)
    material = gather(world.judgments, world.features, world.gold)
    at = pd.Series(material.expert, index=world.features["document"])
    assert at[planted["document"]].isna().all()
    assert any("honeypot" in note for note in material.notes)


def test_queries_of_one_expert_grade_are_said_to_be_left_out(world: World) -> None:
    some = world.gold["query"].unique()[:3]
    flat = world.gold.assign(grade=world.gold["grade"].where(~world.gold["query"].isin(some), 1))
    notes = gather(world.judgments.drop(columns="honeypot"), world.features, flat).notes
    n = int((flat.groupby("query")["grade"].nunique() == 1).sum())
    assert any(note.startswith(f"{n} expert-graded queries of 18 have one grade only") for note in notes), notes


def test_few_test_queries_can_tell_nothing(world: World) -> None:
    some = world.gold["query"].unique()[:3]
    done = run(
        world.judgments, world.features, world.gold[world.gold["query"].isin(some)], candidates=["majority", "gls"]
    )
    assert "With 3 test queries no difference, however large, can be told from chance" in done.paragraph


def test_no_common_documents_show_ids_of_both_sides(world: World) -> None:
    strange = world.features.assign(document="x" + world.features["document"].astype(str))
    with pytest.raises(InputError, match=r"no judged document has features \(judged: document '.*'x1-01' of query '1'"):
        run(world.judgments, strange)
    other = world.gold.assign(document="y" + world.gold["document"].astype(str))
    with pytest.raises(InputError, match=r"no expert-graded document has features .*'y1-01'"):
        run(world.judgments, world.features, other)


def test_honeypots_that_nobody_judged_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="none of the 1 honeypot was judged"):
        run(world.judgments, world.features, honeypots=pd.DataFrame({"query": ["1"], "document": ["no"], "grade": [1]}))


def test_all_labels_equal_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="every judgment says the same grade"):
        run(world.judgments.drop(columns="honeypot").assign(grade=1), world.features)


def test_one_assessor_works_and_is_said(world: World) -> None:
    alone = world.judgments.drop_duplicates(["query", "document"]).assign(assessor="only")
    tried = ["majority", "average", "gda", "dawid-skene"]
    done = run(alone, world.features, world.gold, candidates=tried, trees=TREES)
    assert done.chosen in done.outcome.scores
    (told,) = [note for note in done.notes if "No document was judged by two assessors" in note]
    assert told.endswith("This concerns gda and dawid-skene."), "the same is said once"


def test_a_resumed_run_repeats_the_warnings_of_the_first(world: World, tmp_path: Path) -> None:
    one = world.judgments.assign(assessor="alone").drop_duplicates(["query", "document"])
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
    assert any("No document was judged by two assessors" in note for note in first.notes)
    assert again.opinions.stages.made == 0
    assert again.notes == first.notes


def test_several_scales_without_maps_leave_out_what_cannot_take_them(tmp_path: Path, world: World) -> None:
    scales = tmp_path / "scales.csv"
    scales.write_text(f"assessor,grades\n{world.judgments['assessor'].iloc[0]},0-9\n*,0-4\n")
    judgments = crowdrank.read_judgments(world.judgments.drop(columns="honeypot"), scales=scales)
    done = run(judgments, world.features, world.gold, candidates=["majority", "gda"], trees=TREES)
    assert "2 scales" in done.outcome.failed["majority"]
    assert "gda" in done.outcome.scores


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"candidates": ["maority"]}, "no candidate 'maority'"),
        ({"candidates": ["expert-only"]}, "learns from the crowd alone"),
        ({"test": 1.0}, "below 1"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"measure": "Tau"}, "validate_by|measure"),
        ({"method": "gold"}, "method must be one of"),
        ({"color": 1}, "no setting 'color'"),
        ({"baseline": "zzz"}, "The baseline 'zzz' is no candidate here"),
    ],
)
def test_settings_that_mean_nothing_are_refused(world: World, settings: dict[str, Any], said: str) -> None:
    with pytest.raises((UsageError, CrowdrankError), match=said):
        run(world.judgments, world.features, **settings)


def test_a_folder_with_other_files_is_not_touched(world: World, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(CrowdrankError, match=r"it contains mine\.txt"):
        run(world.judgments, world.features, output=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_the_plan_names_parts_candidates_and_time(world: World) -> None:
    lines = plan(world.judgments, world.features, world.gold, trees=TREES)
    assert any("for the test" in line for line in lines)
    assert any("Candidates: majority" in line for line in lines)
    assert lines[-1].startswith("Roughly ")
    assert any("too few to choose by" in line for line in plan(world.judgments, world.features, world.gold.head(20)))


def test_sensible_candidates_name_why_others_are_left_out(world: World) -> None:
    material = gather(world.judgments, world.features)
    kept, out = sensible(material, None)
    assert {candidate.name for candidate in kept} | set(out) == set(BY_NAME)
    assert out["expert-only"] == "there are no expert grades"
