"""Test labels that also use features: their comparison with the other labels, their files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import crowdrank
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.pipeline.dry_run import plan
from crowdrank.pipeline.result_tables import markdown
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_result import RunResult
from crowdrank.readers.read import read_gold
from crowdrank.reports import page
from crowdrank.reports.page import SECTIONS
from crowdrank.reports.report_data import ReportData
from crowdrank.simulation.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=30, documents=8, gold_queries=12, labels=2, random_state=1)


@pytest.fixture(scope="module")
def labels_run(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """Return a run that uses features for labels only, and its folder."""
    folder = tmp_path_factory.mktemp("runs") / "labels"
    options: dict[str, Any] = {"feature_labels": True, "rankers": False, "method": "dawid-skene", "output": folder}
    return run(world.judgments, world.features, world.gold, **options), folder


def test_figures_are_those_of_a_fit_with_and_one_without_features(
    world: World, labels_run: tuple[RunResult, Path]
) -> None:
    result, _ = labels_run
    judgments = result.model.judgments_
    fits = [crowdrank.DawidSkene().fit(judgments, features=features) for features in (None, world.features)]
    plain, other = (fit.consensus_.document_table.to_pandas() for fit in fits)
    labels = result.feature_labels
    assert labels is not None
    assert labels.features == fits[1].consensus_.features_used
    assert labels.weight == pytest.approx(float(fits[1].theta_["feature_slope"][0]))
    assert (labels.n_documents, labels.n_changed) == (len(plain), int((plain["grade"] != other["grade"]).sum()))
    assert labels.width == pytest.approx((other["upper"] - other["lower"]).mean())
    assert labels.width_without == pytest.approx((plain["upper"] - plain["lower"]).mean())
    shares = [name for name in plain if name.startswith("true") and name[4:].isdigit()]
    assert labels.settled_without == pytest.approx((plain[shares].max(axis=1) >= 0.95).mean())
    graded = result.tables["documents"].to_pandas().dropna(subset="expert")
    gold = graded[["query", "document"]].assign(grade=graded["expert"].astype(int))
    for table, name in ((plain, "other_mean"), (other, "mean")):
        ranking = table[["query", "document", "relevance"]].merge(gold[["query", "document"]])
        means = evaluate(ranking, gold, "nDCG@10 Tau").means
        for measure, mean in means.items():
            assert getattr(labels.agreement[measure], name) == pytest.approx(mean)
        accuracy = (table["grade"] == result.tables["documents"].to_pandas()["expert"])[graded.index]
        expected = accuracy.groupby(graded["query"]).mean().mean()
        assert getattr(labels.agreement["GradeAccuracy"], name) == pytest.approx(expected)


def test_tables_are_those_of_the_labels_with_features(labels_run: tuple[RunResult, Path]) -> None:
    result, folder = labels_run
    documents = result.tables["documents_with_features"].to_pandas()
    assert documents["document"].tolist() == result.tables["documents"]["document"].to_pylist()
    assert "prior_relevance" in documents
    assert "prior_relevance" not in result.tables["documents"].column_names
    wanted = documents[documents["expert"].isna()]
    listed = result.tables["next_with_features"].to_pandas()
    assert listed["priority"][listed["reason"] != "settled"].is_monotonic_decreasing
    assert len(result.tables["next_with_features"]) == len(wanted)
    assert read_gold(folder / "consensus_with_features.parquet").used_features
    assert not read_gold(folder / "consensus.parquet").used_features


def test_a_saved_run_has_the_labels_and_its_stage_is_reused(world: World, labels_run: tuple[RunResult, Path]) -> None:
    result, folder = labels_run
    again = RunResult.load(folder)
    assert again.feature_labels == result.feature_labels
    assert again.tables["documents_with_features"].equals(result.tables["documents_with_features"])
    assert again.rankers is None
    assert again.summary == result.summary
    stages = {path.name for path in (folder / "stages").iterdir()}
    assert sum("with-features" in name for name in stages) == 1
    options: dict[str, Any] = {"feature_labels": True, "rankers": False, "method": "dawid-skene", "output": folder}
    run(world.judgments, world.features, world.gold, **options)
    assert {path.name for path in (folder / "stages").iterdir()} == stages


def test_reports_show_both_kinds_of_labels(labels_run: tuple[RunResult, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    result, folder = labels_run
    assert result.feature_labels is not None
    monkeypatch.setattr(page, "draw_figures", lambda data: dict.fromkeys(SECTIONS, ()))  # charts take seconds
    shown, text = page.render(ReportData(result, folder)), markdown(result)
    assert 'id="feature-labels"' in shown
    for row in result.feature_labels.rows():
        assert row["with features"] in shown
        assert row["with features"] in text


def test_rankers_do_not_depend_on_labels_with_features(world: World) -> None:
    options: dict[str, Any] = {
        "candidates": ["majority", "gls"],
        "trees": {"n_estimators": 3},
        "forest": {"n_trees": 3},
        "refit": False,
    }
    data = (world.judgments, world.features, world.gold)
    plain, other = (run(*data, **options, feature_labels=wanted) for wanted in (False, True))
    assert plain.feature_labels is None
    assert other.feature_labels is not None
    pd.testing.assert_frame_equal(plain.comparison, other.comparison)
    assert plain.tables["training"].equals(other.tables["training"])
    assert plain.tables["documents"].equals(other.tables["documents"])
    assert plain.tables["next"].equals(other.tables["next"])


def test_without_experts_there_is_no_agreement(world: World) -> None:
    result = run(world.judgments, world.features, rankers=False, feature_labels=True, method="one-coin")
    assert result.feature_labels is not None
    assert result.feature_labels.agreement == {}
    assert result.feature_labels.weight is not None


def test_features_that_cannot_be_used_are_warned_about(world: World) -> None:
    features = world.features[["query", "document"]].assign(constant=1.0)
    result = run(world.judgments, features, rankers=False, feature_labels=True, method="one-coin")
    assert result.feature_labels is not None
    assert (result.feature_labels.features, result.feature_labels.weight) == ((), None)
    assert "constant-features" in [note.kind for note in result.notes]
    assert result.feature_labels.n_changed == 0


def test_methods_without_a_prior_and_missing_features_are_refused(world: World) -> None:
    with pytest.raises(UsageError) as error:
        run(world.judgments, world.features, feature_labels=True, method="majority")
    assert (error.value.parameter, error.value.kind) == ("feature_labels", "no-prior")
    assert "gda-pairwise" in error.value.problem
    joint: dict[str, Any] = {"feature_labels": True, "method_settings": {"estimation": "joint"}}
    with pytest.raises(UsageError) as error:
        run(world.judgments, world.features, **joint)
    assert error.value.kind == "no-prior"
    with pytest.raises(UsageError) as error:
        run(world.judgments, feature_labels=True)
    assert error.value.fix is not None
    assert error.value.fix.parameter == "features"


def test_features_that_hold_the_expert_grades_are_refused_without_rankers(world: World) -> None:
    graded = world.gold[["query", "document", "grade"]].rename(columns={"grade": "leak"})
    features = world.features.merge(graded, "left", ["query", "document"])
    with pytest.raises(InputError) as error:
        run(world.judgments, features, world.gold, rankers=False, feature_labels=True)
    assert (error.value.kind, error.value.location.column) == ("leak", "leak")


def test_the_plan_names_the_fit_with_features(world: World) -> None:
    lines = plan(world.judgments, world.features, rankers=False, feature_labels=True, method="one-coin")
    assert any("one-coin with features" in line for line in lines)
