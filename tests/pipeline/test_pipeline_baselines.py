"""Baselines, leaks, scales and thorough runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import LinearRemapper, read_features, read_gold
from crowdrank.errors import InputError, UsageError
from crowdrank.pipeline.baseline import read_run_scores
from crowdrank.pipeline.candidates import CANDIDATES, choose_candidates
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_data import EXPERT_DOUBTS, RunData, build_run_data
from crowdrank.rankers.rank_files import rank_documents
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.single_feature import SingleFeature
from crowdrank.readers.leak_check import MIN_LEAK_AGREEMENT, check_leaks
from crowdrank.readers.write import write_table
from crowdrank.reports.cards import make_cards
from crowdrank.reports.report_data import ReportData
from crowdrank.simulation.world import World

QUICK: dict[str, Any] = {"candidates": ["majority", "expert-only", "best-feature"], "trees": {"n_estimators": 5}}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=18, random_state=1)


@pytest.fixture(scope="module")
def leaked(world: World) -> pd.DataFrame:
    """Features with a column that holds the expert grades."""
    return world.features.merge(world.gold.rename(columns={"grade": "verdict"}), on=["query", "document"], how="left")


# Leaks.


@pytest.mark.parametrize("sign", [1, -1])
def test_feature_with_expert_grades_is_refused(world: World, leaked: pd.DataFrame, sign: int) -> None:
    leaked = leaked.assign(verdict=sign * leaked["verdict"])
    with pytest.raises(InputError) as caught:
        run(world.judgments, leaked, world.gold, **QUICK)
    assert caught.value.kind == "leak"
    assert caught.value.location.column == "verdict"
    assert str(caught.value).count("verdict") == 1
    assert "allow_leak" in {fix.parameter for fix in caught.value.fixes}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("lowest_is_blank", [False, True])
def test_leak_is_measured_in_the_better_direction(
    world: World, leaked: pd.DataFrame, sign: int, lowest_is_blank: bool
) -> None:
    grade = leaked["verdict"]
    verdict = (sign * grade).where(grade > 0) if lowest_is_blank else sign * grade
    (leak,) = build_run_data(world.judgments, leaked.assign(verdict=verdict), world.gold).leaks()
    assert leak.feature == "verdict"
    assert (leak.ndcg, leak.correlation) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("sign", [1, -1])
def test_leak_without_ties_is_found_in_both_directions(world: World, leaked: pd.DataFrame, sign: int) -> None:
    noise = np.random.default_rng(0).uniform(0, 0.01, len(leaked))
    features = leaked.assign(verdict=sign * (leaked["verdict"] + noise))
    (leak,) = build_run_data(world.judgments, features, world.gold).leaks()
    assert leak.ndcg == pytest.approx(1.0)
    assert leak.correlation < MIN_LEAK_AGREEMENT, "grades are tied, so that only nDCG finds it"


def test_allowed_leak_is_noted(world: World, leaked: pd.DataFrame) -> None:
    result = run(world.judgments, leaked, world.gold, allow_leak=True, **QUICK)
    (note,) = [note for note in result.notes if note.kind == "leak"]
    assert (note.severity, note.location.column) == ("warning", "verdict")
    assert str(note).count("verdict") == 1
    assert result.comparison.set_index("candidate").loc["best-feature", "nDCG@10 mean"] == pytest.approx(1.0)


def test_real_features_are_not_leaks(world: World) -> None:
    data = build_run_data(world.judgments, world.features, world.gold)
    assert data.leaks() == []
    assert check_leaks(data.leaks(), allow_leaks=False) == []


def test_few_queries_are_not_checked_for_leaks(world: World, leaked: pd.DataFrame) -> None:
    gold = world.gold[world.gold["query"].isin(world.gold["query"].unique()[:6])]
    assert build_run_data(world.judgments, leaked, gold).leaks() == []


# Features.


def test_features_are_summarized(world: World) -> None:
    features = world.features.assign(
        target=1, empty=np.nan, f1=world.features["f1"].where(world.features.index % 2 > 0)
    )
    with pytest.warns(crowdrank.errors.DataWarning):
        data = build_run_data(world.judgments, features)
    assert [note.kind for note in data.features.notes] == ["grade-like-features"]
    table = data.feature_table().to_pandas().set_index("feature")
    assert "target" not in table.index
    assert table.loc["f1", "missing"] == pytest.approx(0.5, abs=0.01)
    assert table.loc["empty", "missing"] == 1
    assert table.loc["empty"].isna().tolist() == [False, True, True]
    assert table.loc["f2", "maximum"] == pytest.approx(world.features["f2"].max())


# Baselines.


def test_single_feature_is_saved(world: World, tmp_path: Path) -> None:
    features = crowdrank.read_features(world.features)
    ranker = SingleFeature("f3").fit(features, np.zeros(len(features.query)))
    np.testing.assert_array_equal(ranker.predict(features), world.features["f3"])
    ranker.save(tmp_path / "ranker")
    np.testing.assert_array_equal(Ranker.load(tmp_path / "ranker").predict(features), ranker.predict(features))
    with pytest.raises(UsageError) as caught:
        SingleFeature("f33").fit(features, np.zeros(len(features.query)))
    assert caught.value.kind == "unknown-feature"


def test_feature_is_the_baseline(world: World) -> None:
    result = run(world.judgments, world.features, world.gold, baseline="feature:f2", **QUICK)
    assert result.rankers is not None
    assert result.rankers.baseline == "feature:f2"
    table = result.comparison.set_index("candidate")
    assert table.loc["feature:f2", "nDCG@10 difference"] == 0
    frame = world.features[["query", "document"]].assign(score=world.features["f2"])
    tested = world.gold[world.gold["query"].astype(str).isin(map(str, result.rankers.test_queries))]
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    tested = tested[~tested["document"].isin(planted)]
    expected = crowdrank.evaluate(frame, tested, "nDCG@10", unjudged="skip").means["nDCG@10"]
    assert table.loc["feature:f2", "nDCG@10 mean"] == pytest.approx(expected)
    assert "feature:f2" not in result.rankers.weights["ensemble-weighted"]


@pytest.mark.parametrize("name", ["price:2", "title/body", "..", "f 2", "C:\\f2", "Größe", "x" * 300])
def test_features_of_any_name_are_baselines_of_runs_with_a_folder(world: World, tmp_path: Path, name: str) -> None:
    features, folder = world.features.rename(columns={"f2": name}), tmp_path / "out"
    plain = run(world.judgments, world.features, world.gold, baseline="feature:f2", **QUICK)
    for _ in range(2):  # the folder can be used again
        result = run(world.judgments, features, world.gold, baseline=f"feature:{name}", output=folder, **QUICK)
        assert result.rankers is not None
        assert plain.rankers is not None
        assert result.rankers.baseline == f"feature:{name}"
        assert result.rankers.contrasts[0].other_mean == plain.rankers.contrasts[0].other_mean
    loaded = crowdrank.RunResult.load(folder)
    assert loaded.rankers is not None
    assert loaded.rankers.baseline == f"feature:{name}"
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert all(name not in path for path in files if name != "..")


def test_features_whose_names_differ_in_case_have_results_of_their_own(world: World, tmp_path: Path) -> None:
    features = world.features.rename(columns={"f2": "bm25", "f3": "BM25"})
    for name, other in (("bm25", "f2"), ("BM25", "f3")):
        options = {**QUICK, "output": tmp_path / "out"}
        result = run(world.judgments, features, world.gold, baseline=f"feature:{name}", **options)
        expected = run(world.judgments, world.features, world.gold, baseline=f"feature:{other}", **QUICK)
        assert result.rankers is not None
        assert expected.rankers is not None
        assert result.rankers.contrasts[0].other_mean == expected.rankers.contrasts[0].other_mean


def test_another_baseline_is_never_used_silently(world: World) -> None:
    few = world.gold[world.gold["query"].isin(world.gold["query"].unique()[:4])]
    result = run(world.judgments, world.features, few, baseline="best-feature", **QUICK)
    (note,) = [note for note in result.notes if note.kind == "other-baseline"]
    assert note.severity == "warning"
    assert result.rankers is not None
    assert result.rankers.baseline == "majority"
    assert "best-feature" in result.rankers.left_out
    assert "other-baseline" not in {note.kind for note in run(world.judgments, world.features, few, **QUICK).notes}


def test_run_file_is_the_baseline(world: World, tmp_path: Path) -> None:
    path = tmp_path / "production.run"
    ranked = world.features.iloc[::2].assign(score=lambda rows: rows["f2"])
    lines = [f"{row.query} Q0 {row.document} 1 {row.score} prod" for row in ranked.itertuples()]
    path.write_text("\n".join(lines) + "\n")
    data = build_run_data(world.judgments, world.features, world.gold)
    scores = read_run_scores(data, path)
    np.testing.assert_allclose(scores[::2], world.features["f2"][::2])
    assert (scores[1::2] == -np.inf).all(), "documents that the run lacks are not ranked"
    result = run(world.judgments, world.features, world.gold, baseline=str(path), **QUICK)
    assert result.rankers is not None
    honeypots = world.judgments.loc[world.judgments["honeypot"].notna(), "document"]
    is_tested = world.gold["query"].astype(str).isin(result.rankers.test_queries)
    tested = world.gold[is_tested & ~world.gold["document"].isin(honeypots)]
    found = crowdrank.evaluate(crowdrank.read_run(path), tested, ["nDCG@10", "nDCG@5"], unjudged="skip").means
    figures = result.comparison.set_index("candidate").loc[str(path)]
    assert {name: figures[f"{name} mean"] for name in found} == pytest.approx(found)
    contrast = next(one for one in result.rankers.contrasts if one.other == str(path))
    assert contrast.other_mean == pytest.approx(found["nDCG@10"])
    assert result.estimate is not None
    assert result.estimate.table["estimate"][0] == pytest.approx(found["nDCG@10"])
    assert result.rankers.baseline == str(path)
    assert result.chosen != str(path)
    assert result.comparison.set_index("candidate").loc[str(path), "about"] == "the ranking in production.run"


def test_run_file_without_documents_of_the_features_is_refused(world: World, tmp_path: Path) -> None:
    data, path, first = build_run_data(world.judgments, world.features), tmp_path / "live.run", world.features.iloc[0]
    path.write_text("nowhere Q0 nothing 1 1.0 live\n")
    with pytest.raises(InputError) as caught:
        read_run_scores(data, path)
    assert caught.value.kind == "no-common-documents"
    path.write_text(f"{first['query']} Q0 {first['document']} 1 5.0 live\n")
    assert (read_run_scores(data, path) == 5.0).sum() == 1, "one document is enough"


@pytest.mark.parametrize(("baseline", "kind"), [("majorty", "unknown-baseline"), ("feature:f222", "unknown-feature")])
def test_unknown_baseline_is_refused(world: World, baseline: str, kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(world.judgments, world.features, world.gold, baseline=baseline, **QUICK)
    assert caught.value.kind == kind
    assert caught.value.parameter == "baseline"
    assert caught.value.fix is None


def test_feature_without_its_prefix_is_named_in_the_fix(world: World) -> None:
    with pytest.raises(UsageError) as caught:
        run(world.judgments, world.features, world.gold, baseline="f2", **QUICK)
    assert caught.value.fix is not None
    assert (caught.value.fix.parameter, caught.value.fix.value) == ("baseline", "feature:f2")


def test_single_feature_in_place_of_the_ranker_needs_no_other_features(world: World) -> None:
    noise = np.random.default_rng(0).normal(0, 0.6, len(world.features))
    relevance = world.features.merge(world.documents, on=["query", "document"], how="left")["relevance"]
    features = world.features.assign(near=relevance + noise)
    options: dict[str, Any] = {"candidates": ["majority", "best-feature"], "trees": {"n_estimators": 1}}
    result = run(world.judgments, features, world.gold, deployable=True, **options)
    assert result.rankers is not None
    assert result.rankers.alternative is not None
    assert result.rankers.alternative.features_ == ("near",)
    np.testing.assert_array_equal(result.rankers.alternative.predict(features[["near"]]), features["near"])


def test_few_graded_documents_of_test_queries_are_a_warning(world: World) -> None:
    kinds = {note.kind for note in run(world.judgments, world.features, world.gold, **QUICK).notes}
    assert "few-graded-documents" not in kinds
    few = pd.concat(rows.sort_values("grade").iloc[[0, 1, -1]] for _, rows in world.gold.groupby("query"))
    result = run(world.judgments, world.features, few, **QUICK)
    (note,) = [note for note in result.notes if note.kind == "few-graded-documents"]
    assert note.severity == "warning"
    assert "at most 3 graded" in note.problem
    assert "Documents without gold are left out of the ranking." in result.protocol


def test_folder_without_a_ranker_is_no_baseline(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run(world.judgments, world.features, world.gold, baseline=str(tmp_path), **QUICK)
    assert caught.value.kind == "baseline-folder"


def test_the_ranker_of_a_remapper_is_the_baseline(world: World, tmp_path: Path) -> None:
    remapper = LinearRemapper(n_iter=2, ridge=0.1, tree_features=0)
    remapper.fit(world.judgments, world.features, world.gold).save(tmp_path / "remapper")
    ranking = rank_documents(remapper.ranker_, read_features(world.features))
    write_table(ranking, tmp_path / "run.csv")
    results = []
    for name in ("remapper", "run.csv"):
        path = str(tmp_path / name)
        result = run(world.judgments, world.features, world.gold, baseline=path, **QUICK)
        assert result.rankers is not None
        assert result.rankers.baseline == path
        results.append(result)
    by_ranker, by_file = (result.tables["per_query"].to_pandas() for result in results)
    is_baseline = [table["candidate"].str.startswith(str(tmp_path)) for table in (by_ranker, by_file)]
    values = [
        table[chosen].drop(columns="candidate") for table, chosen in zip((by_ranker, by_file), is_baseline, strict=True)
    ]
    pd.testing.assert_frame_equal(*(one.reset_index(drop=True) for one in values))
    kinds = [{note.kind for note in result.notes} for result in results]
    assert ["validation-queries" in one for one in kinds] == [True, False]
    assert results[0].estimate is not None
    with pytest.raises(InputError, match="remapper: the ranker needs 1 feature that is missing"):
        run(
            world.judgments, world.features.drop(columns="f1"), world.gold, baseline=str(tmp_path / "remapper"), **QUICK
        )


def test_best_feature_is_chosen_on_other_queries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    real = SingleFeature.fit

    def spy(self: SingleFeature, X: Any, y: Any, *, query: Any, **options: Any) -> SingleFeature:
        seen.append(set(query.tolist()))
        return real(self, X, y, query=query, **options)

    monkeypatch.setattr(SingleFeature, "fit", spy)
    run(world.judgments, world.features, world.gold, folds=2, refit=False, **QUICK)
    final, first, second = sorted(seen, key=len, reverse=True)
    assert first | second == final
    assert not first & second


# Scales, and 'cannot judge'.


def binary(world: World) -> pd.DataFrame:
    return world.gold.assign(grade=(world.gold["grade"] >= 2).astype(int))


def test_other_expert_scale_needs_a_map(world: World) -> None:
    data = build_run_data(world.judgments, world.features, binary(world))
    with pytest.raises(InputError) as caught:
        data.on_expert_scale(np.array([1.0]))
    assert caught.value.kind == "scales-differ"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "expert_map"
    assert "scales-differ" in {note.kind for note in data.notes}
    _, skipped = choose_candidates(data, None)
    assert "differ" in skipped["crowd-and-expert"]


def test_map_brings_labels_on_the_expert_scale(world: World) -> None:
    data = build_run_data(world.judgments, world.features, binary(world), expert_map="0=0|1,1=2|3|4")
    np.testing.assert_allclose(data.on_expert_scale(np.array([0.0, 1.5, 4.0])), [0.0, 0.5, 1.0])
    assert "scales-differ" not in {note.kind for note in data.notes}
    names = {candidate.name for candidate in choose_candidates(data, None)[0]}
    assert "crowd-and-expert" in names


def test_scales_of_equal_length_match_by_position(world: World) -> None:
    shifted = world.gold.assign(grade=world.gold["grade"] + 1)
    data = build_run_data(world.judgments, world.features, shifted)
    np.testing.assert_allclose(data.on_expert_scale(np.array([0.0, 2.5])), [0.0, 2.5])
    (note,) = [note for note in data.notes if note.kind == "scales-differ"]
    assert note.severity == "warning"
    assert note.fix is not None
    assert note.fix.parameter == "expert_map"
    assert "scales-differ" not in {note.kind for note in build_run_data(world.judgments, None, world.gold).notes}
    assert note.fix.value == "1=0,2=1,3=2,4=3,5=4"
    stated = build_run_data(world.judgments, world.features, shifted, expert_map=note.fix.value)
    assert "scales-differ" not in {note.kind for note in stated.notes}


def test_expert_grades_on_a_part_of_the_scale_are_named_by_that_scale(world: World) -> None:
    part = world.gold[world.gold["grade"] >= 1]
    (note,) = [one for one in build_run_data(world.judgments, None, part).notes if one.kind == "scales-differ"]
    assert (note.fixes[0].parameter, note.fixes[0].value) == ("expert_grades", "0-4")
    assert [fix.parameter for fix in note.fixes] == ["expert_grades", "expert_map"]
    stated = build_run_data(world.judgments, None, read_gold(part, grades="0-4"))
    assert "scales-differ" not in {one.kind for one in stated.notes}


# Expert grades of other documents.


def shifted_by_a_row(world: World) -> pd.DataFrame:
    """Return expert grades of which each is that of the next row."""
    return world.gold.assign(grade=np.roll(world.gold["grade"], 1))


def test_shifted_expert_ids_do_not_accuse_assessors(world: World) -> None:
    result = run(world.judgments, expert=shifted_by_a_row(world))
    assert [note.kind for note in result.notes if note.kind in EXPERT_DOUBTS] == ["shifted-ids"]
    assert result.expert_offset is None
    alone = run(world.judgments)
    assert result.assessors["flag"].tolist() == alone.assessors["flag"].tolist()
    steps = make_cards(ReportData(result, Path()))[-1].steps
    (warning,) = [note for note in result.notes if note.kind == "shifted-ids"]
    assert steps[0] == str(warning)


def test_reversed_expert_grades_do_not_accuse_assessors(world: World) -> None:
    reverse = world.gold.assign(grade=world.gold["grade"].max() - world.gold["grade"])
    result = run(world.judgments, expert=reverse)
    assert [note.kind for note in result.notes if note.kind in EXPERT_DOUBTS] == ["reversed-grades"]
    assert result.assessors["flag"].tolist() == run(world.judgments).assessors["flag"].tolist()


def test_correct_expert_grades_are_not_doubted(world: World) -> None:
    result = run(world.judgments, expert=world.gold)
    assert not [note for note in result.notes if note.kind in EXPERT_DOUBTS]
    assert result.expert_offset is not None


def unjudgeable(world: World) -> Any:
    frame = world.judgments.drop(columns="honeypot")
    frame = frame.assign(grade=frame["grade"].where(frame.index % 9 > 0, -2))
    return crowdrank.read_judgments(frame, grades="0-4", unjudgeable="-2")


def test_unjudgeable_answers_can_be_modeled(world: World) -> None:
    result = run(unjudgeable(world), world.features, world.gold, unjudgeable_as="model", **QUICK)
    assert result.model.unjudgeable_as == "model"
    assert result.documents["unjudgeable"].gt(0).any()
    with pytest.raises(UsageError) as caught:
        run(unjudgeable(world), world.features, unjudgeable_as="model", method="majority")
    assert caught.value.parameter == "unjudgeable_as"


# Thorough runs.


def candidate_names(data: RunData, **options: Any) -> set[str]:
    return {candidate.name for candidate in choose_candidates(data, None, **options)[0]}


def test_thorough_runs_train_slow_candidates(world: World) -> None:
    data = build_run_data(world.judgments, world.features, world.gold)
    slow = {candidate.name for candidate in CANDIDATES if candidate.thorough}
    assert slow == {"gda-pw-mart", "soft-pairs", "pointwise", "gls-trees", "remap-trees"}
    assert not slow & candidate_names(data)
    assert candidate_names(data, thorough=True) == candidate_names(data) | slow
    named, _ = choose_candidates(data, ["majority", "gda-pw-mart"])
    assert [candidate.name for candidate in named] == ["majority", "gda-pw-mart"]


def test_one_more_label_keeps_expert_models(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {**QUICK, "output": tmp_path / "out"}
    run(world.judgments.iloc[1:], world.features, world.gold, **options)
    trained: list[str] = []
    real = crowdrank.LambdaMART.fit

    def spy(self: Any, X: Any, y: Any, **more: Any) -> Any:
        trained.append(type(self).__name__)
        return real(self, X, y, **more)

    monkeypatch.setattr(crowdrank.LambdaMART, "fit", spy)
    result = run(world.judgments, world.features, world.gold, **options)
    assert result.rankers is not None
    n_folds = 5
    assert len(trained) == 2 + n_folds, "only the candidate on crowd labels: final, refit and folds"


# The verdict.


@pytest.mark.parametrize("refit", [True, False])
def test_the_alternative_that_is_ahead_is_saved(world: World, tmp_path: Path, refit: bool) -> None:
    rng = np.random.default_rng(0)
    features = world.features.merge(world.documents[["document", "relevance"]], on="document")
    features = features.assign(f2=features.pop("relevance") + rng.normal(0, 0.3, len(features)))
    spoiled = world.judgments.assign(grade=rng.permutation(world.judgments["grade"]))
    options: dict[str, Any] = {**QUICK, "deployable": True, "refit": refit, "output": tmp_path / "out"}
    result = run(spoiled, features, world.gold, **options)
    loaded = crowdrank.RunResult.load(tmp_path / "out")
    for one in (result, loaded):
        assert one.rankers is not None
        verdict, alternative = one.rankers.verdict, one.rankers.alternative
        assert verdict is not None
        assert verdict.decisive == "best-feature"
        assert set(verdict.alternatives) == {"majority", "best-feature", "expert-only"} - {one.chosen}
        assert verdict.answer in ("worse", "open", "baseline")
        assert isinstance(alternative, SingleFeature)
        assert alternative.feature_ == "f2"
        assert Ranker.load(tmp_path / "out" / "alternative").get_params() == alternative.get_params()
    table = result.comparison.set_index("candidate")
    assert table.loc["best-feature", "note"] == "f2"
    assert "best-feature" in result.summary[0]


def test_a_ranker_that_is_ahead_has_no_alternative(world: World, tmp_path: Path) -> None:
    noise = world.features.assign(f2=np.random.default_rng(0).normal(size=len(world.features)))
    result = run(world.judgments, noise, world.gold, baseline="feature:f2", **QUICK, output=tmp_path / "out")
    assert result.rankers is not None
    verdict = result.rankers.verdict
    assert verdict is not None
    contrast = result.rankers.contrast(result.chosen, verdict.decisive)
    assert contrast is not None
    assert contrast.difference > 0
    assert result.rankers.alternative is None
    assert verdict.alternatives[0] == "feature:f2"
    assert verdict.p == max(result.rankers.contrast(result.chosen, name).p_holm for name in verdict.alternatives)  # type: ignore[union-attr, type-var]
    assert not (tmp_path / "out" / "alternative").exists()
