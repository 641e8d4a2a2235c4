"""Test `crowdrank.estimate`: its table, its warnings, and what it refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimation_worlds import GRADES, make_world

import crowdrank
from crowdrank.errors import CrowdrankError, CrowdrankWarning, DataWarning, InputError, UsageError
from crowdrank.estimation.by_query import ByQueryEstimator, ContrastEstimate
from crowdrank.estimation.prepared import difference_of_means, move_into_range
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.readers.cells import NOT_DRAWN_REASON
from crowdrank.readers.read import read_sample

WORLD = make_world()
EXPERT = WORLD.expert(20)


def estimate(**changes: Any) -> crowdrank.Estimate:
    arguments = {"runs": WORLD.runs, "labels": WORLD.labels, "expert": EXPERT, "measure": "nDCG@5", **changes}
    return crowdrank.estimate(**arguments)


def values(gold: pd.DataFrame, measure: str) -> np.ndarray:
    return np.column_stack([evaluate(run, gold, measure).values(measure) for run in WORLD.runs.values()])


@pytest.mark.parametrize("measure", ["nDCG@5", "DCG@3", "P(rel=2)@3", "RR", "AP(rel=2)", "ERR@5"])
def test_by_query_the_table_has_the_estimates_of_the_values_per_query(measure: str) -> None:
    table = estimate(measure=measure).table
    predicted, truth = values(WORLD.labels, measure), np.nan_to_num(values(EXPERT, measure))
    experts = np.vstack([truth, np.zeros((len(predicted) - 20, 2))])
    expected = ByQueryEstimator(predicted, experts, np.arange(len(predicted)) < 20, np.zeros(len(predicted), np.bool_))
    for run, contrast in enumerate(np.eye(2)):
        mean = expected.estimate(contrast, 0.95)
        assert table["estimate"][run] == pytest.approx(mean.value)
        assert table["weight"][run] == pytest.approx(mean.weight)
        assert table["labels_only"][run] == pytest.approx(predicted[:, run].mean())
        assert table["experts_only"][run] == pytest.approx(truth[:, run].mean())
        assert table["bias"][run] == pytest.approx(table["labels_only"][run] - mean.value)
    difference = expected.estimate(np.array([-1.0, 1.0]), 0.95)
    assert table["difference"].tolist() == pytest.approx([0.0, difference.value])
    assert table["difference"][1] == pytest.approx(table["estimate"][1] - table["estimate"][0])
    assert table["p"][1] == pytest.approx(difference.p)
    assert table["difference_lower"][1] < difference.value < table["difference_upper"][1]
    assert table["judged"].tolist() == [1.0, 1.0]


def test_p_values_are_adjusted_over_the_runs() -> None:
    runs = {**WORLD.runs, "worse": WORLD.runs["live"].assign(score=lambda run: -run["score"])}
    table = estimate(runs=runs, baseline="new").table.set_index("run")
    p = table.loc[["live", "worse"], "p"].sort_values()
    assert np.isnan(table.loc["new", "p"])
    assert table.loc[p.index, "p_holm"].tolist() == pytest.approx([2 * p.iloc[0], max(2 * p.iloc[0], p.iloc[1])])


def test_a_run_beside_itself_has_no_difference() -> None:
    row = estimate(runs={"a": WORLD.runs["new"], "b": WORLD.runs["new"]}).table.loc[1]
    assert (row["difference"], row["p"]) == (0, 1)
    # Other queries may differ: with 95% confidence, as many as 60 equal ones allow.
    assert row["difference_upper"] == -row["difference_lower"] == pytest.approx(1 - 0.05 ** (1 / 60), rel=0.05)


@pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")
def test_without_experts_equal_runs_or_values_have_no_interval_of_width_0() -> None:
    row = estimate(runs={"a": WORLD.runs["new"], "b": WORLD.runs["new"]}, expert=None).table.loc[1]
    assert (row["difference"], row["p"]) == (0, 1)
    assert row["difference_upper"] == -row["difference_lower"] == pytest.approx(1 - 0.05 ** (1 / 60), rel=0.05)
    relevant = WORLD.truth.assign(grade=1)
    row = estimate(labels=relevant, expert=None, measure="P@3").table.loc[0]
    assert (row["estimate"], row["upper"]) == (1, 1)
    assert row["lower"] == pytest.approx(0.05 ** (1 / 60))


def test_a_difference_is_that_of_the_estimates_also_outside_of_the_range() -> None:
    parts: dict[str, Any] = {"p": 0.5, "labels": 0.1}
    above = [ContrastEstimate(*ends, **parts) for ends in ((1.3, 1.0, 1.6), (1.2, 0.9, 1.5), (0.7, 0.5, 0.9))]
    best, second, last = move_into_range(above, 1.0)
    assert [best.value, second.value, last.value] == pytest.approx([1.0, 0.9, 0.4])
    assert [one.lower for one in (best, second, last)] == pytest.approx([0.7, 0.9, 0.4])
    assert [one.upper for one in (best, second, last)] == [1.0, 1.0, 0.9]
    difference = difference_of_means(ContrastEstimate(-0.1, -0.15, -0.05, **parts), second, best, 1.0)
    assert [difference.value, difference.lower, difference.upper] == pytest.approx([-0.1, -0.15, -0.05])
    below = [ContrastEstimate(value, value - 0.1, value + 0.1, **parts) for value in (-0.2, 0.3)]
    assert [one.value for one in move_into_range(below, 1.0)] == pytest.approx([0.0, 0.5])
    both = [ContrastEstimate(value, value - 0.1, value + 0.1, **parts) for value in (-0.3, 1.2)]
    low, high = move_into_range(both, 1.0)
    assert (low.value, high.value) == (0.0, 1.0)
    limited = difference_of_means(ContrastEstimate(1.5, 1.4, 1.6, **parts), high, low, 1.0)
    assert (limited.value, limited.upper) == (1.0, 1.0)
    assert limited.lower < 1


def test_an_interval_outside_of_the_range_has_a_width_within() -> None:
    above, below = (ContrastEstimate(value, value - 0.2, value + 0.2, 0.5, 0.1).clipped(0, 1) for value in (1.5, -0.4))
    assert [above.value, above.lower, above.upper] == pytest.approx([1.0, 0.8, 1.0])
    assert [below.value, below.lower, below.upper] == pytest.approx([0.0, 0.0, 0.2])


def test_without_experts_the_bias_is_unknown() -> None:
    with pytest.warns(DataWarning) as caught:
        result = estimate(expert=None)
    assert [str(warning.message) for warning in caught] == [str(message) for message in result.warnings]
    assert [warning.kind for warning in result.warnings] == ["bias-unknown"]
    assert result.unit == "none"
    table = result.table
    assert np.isnan(table["experts_only"]).all()
    assert table["estimate"].tolist() == table["labels_only"].tolist()
    assert (table["lower"] < table["estimate"]).all()
    predicted = values(WORLD.labels, "nDCG@5")
    width = table["difference_upper"][1] - table["difference_lower"][1]
    over_queries = 2 * 1.96 * (predicted[:, 1] - predicted[:, 0]).std(ddof=1) / np.sqrt(60)
    assert 0.9 * over_queries < width < 2 * over_queries


def test_draws_without_experts_are_reproducible_and_use_the_seed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        one, same, other = (estimate(expert=None, random_state=seed).table for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, same)
    assert one["lower"].tolist() != other["lower"].tolist()


def test_paths_frames_and_ids_of_other_types_give_the_same(tmp_path: Path) -> None:
    WORLD.labels.to_parquet(tmp_path / "labels.parquet")
    EXPERT.rename(columns={"query": "qid", "grade": "rel"}).to_csv(tmp_path / "expert.csv", index=False)
    for name, run in WORLD.runs.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    runs = {name: tmp_path / f"{name}.csv" for name in WORLD.runs}
    read = estimate(runs=runs, labels=tmp_path / "labels.parquet", expert=tmp_path / "expert.csv")
    pd.testing.assert_frame_equal(read.table, estimate().table)
    polars = estimate(runs={name: pl.from_pandas(run) for name, run in WORLD.runs.items()})
    assert isinstance(polars.table, pl.DataFrame)


def test_results_are_ready_for_json() -> None:
    written = json.loads(json.dumps(estimate().to_dict(), allow_nan=False))
    assert (written["unit"], written["expert_queries"], written["expert_grades"]) == ("query", 20, 240)
    assert written["runs"][0]["p"] is None
    assert "Estimate of nDCG@5" in estimate()._repr_html_()


def test_few_expert_queries_and_missing_labels_are_warned_about() -> None:
    labels = WORLD.labels.drop(index=[0, 17, 40])
    with pytest.warns(DataWarning):
        result = estimate(expert=WORLD.expert(5), labels=labels)
    assert [warning.kind for warning in result.warnings] == ["few-expert-queries", "unlabeled-documents"]
    assert result.table["judged"].min() < 1


def first_documents(k: int) -> pd.DataFrame:
    """Return the expert grades of the documents that are among the first k of a run."""
    tops = [run.sort_values("score").groupby("query").tail(k)[["query", "document"]] for run in WORLD.runs.values()]
    return EXPERT.merge(pd.concat(tops).drop_duplicates())


@pytest.mark.parametrize("measure", ["nDCG@3", "nDCG@5", "AP@5", "DCG@3", "P@3", "RR@3", "ERR@3"])
def test_experts_may_grade_the_first_documents_only(measure: str) -> None:
    sample = first_documents(int(measure[-1]))
    assert len(sample) < 0.65 * len(EXPERT)
    depends = measure.startswith(("nDCG", "AP"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = estimate(expert=sample, measure=measure)
    assert [one.category for one in caught] == [DataWarning] * len(result.warnings)
    kinds = [one.kind for one in result.warnings]
    assert ("ideal-from-labels" in kinds) == depends
    complete = estimate(measure=measure).table["estimate"]
    if not depends:
        assert result.table["estimate"].tolist() == pytest.approx(complete.tolist(), rel=1e-12)
        return
    (warning,) = (one for one in result.warnings if one.kind == "ideal-from-labels")
    assert f"{len(sample)} of {len(EXPERT)} labeled documents" in warning.problem
    # The ideal DCG, or the number of relevant documents, of these grades alone is too small.
    alone = np.nan_to_num(values(sample, measure)).mean(axis=0)
    truth = np.nan_to_num(values(EXPERT, measure)).mean(axis=0)
    assert np.all(np.abs(result.table["experts_only"] - truth) < 0.85 * np.abs(alone - truth))


def test_certain_labels_complete_the_ideal_too() -> None:
    sample, certain = first_documents(3), WORLD.truth.copy()
    # Labels that equal all expert grades are refused, so one expert grade differs.
    changed = certain.index[certain["query"].isin(EXPERT["query"])].intersection(sample.index)[0]
    sample.loc[changed, "grade"] = (sample.loc[changed, "grade"] + 1) % 4
    expert = EXPERT.copy()
    expert.loc[changed, "grade"] = sample.loc[changed, "grade"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = estimate(expert=sample, labels=certain, measure="nDCG@3").table
    assert found["experts_only"].tolist() == pytest.approx(values(expert, "nDCG@3").mean(axis=0).tolist(), abs=0.02)


@pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")
def test_values_outside_of_the_range_are_moved_and_explained() -> None:
    labels = WORLD.truth.assign(grade=np.arange(len(WORLD.truth)) % 2)
    sample = first_documents(3).assign(probability=0.1, draw=1, grade=3)
    result = estimate(labels=labels, expert=sample, measure="P@3")
    table, (note, *others) = result.table, [one for one in result.protocol() if "range" in one]
    assert not others
    assert table["estimate"].max() == 1
    assert table["difference"][1] == pytest.approx(table["estimate"][1] - table["estimate"][0])
    raw, moved = (float(note.split(before)[1].split()[0].strip(",:)")) for before in ("'live' ", "moved by "))
    assert raw > 1
    assert table["bias"][0] == pytest.approx(table["labels_only"][0] - raw, abs=1e-4)
    assert table["estimate"][0] - raw == pytest.approx(moved, abs=2e-4)


@pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")
def test_low_labels_leave_the_difference_of_two_good_runs() -> None:
    """Experts give grades up to 3 where the labels expect at most 1, so that nDCG by document exceeds 1."""
    low = WORLD.truth.assign(grade=np.minimum(WORLD.truth["grade"], 1))
    sample = WORLD.truth.assign(probability=1.0, draw=1)
    runs = {name: WORLD.runs[name] for name in ("new", "live")}
    result = estimate(runs=runs, labels=low, expert=sample, baseline="new")
    raw = result.table["labels_only"] - result.table["bias"]
    assert raw.min() > 1
    table = result.table
    assert table["estimate"].max() == 1
    assert table["difference"][1] == pytest.approx(raw[1] - raw[0])
    assert table["difference_lower"][1] < table["difference"][1] < table["difference_upper"][1]


def test_by_query_a_drawn_sample_is_refused_because_of_its_few_documents() -> None:
    sample = WORLD.truth.sample(frac=0.2, random_state=1).assign(probability=0.2, draw=1)
    with pytest.raises(InputError) as caught:
        estimate(expert=sample, unit="query")
    assert caught.value.kind == "unknown-probabilities"
    assert "no column" not in caught.value.problem
    assert (caught.value.fixes[0].parameter, caught.value.fixes[0].value) == ("unit", "document")


def test_different_grades_of_a_drawn_document_are_noted() -> None:
    sample = WORLD.truth.head(20).assign(probability=0.5, draw=1)
    other = sample.head(3).assign(grade=lambda rows: (rows["grade"] + 1) % 3)
    (note,) = read_sample(pd.concat([sample, other])).report.notes
    assert (note.kind, note.severity) == ("different-grades", "note")
    assert note.problem.startswith("3 drawn documents")
    assert read_sample(pd.concat([sample, sample.head(3)])).report.notes == ()


def test_expert_grades_of_other_queries_are_not_used() -> None:
    other = EXPERT.head(3).assign(query="elsewhere")
    with pytest.warns(DataWarning):
        result = estimate(expert=pd.concat([EXPERT, other]))
    assert [warning.kind for warning in result.warnings] == ["expert-grades-unused"]
    pd.testing.assert_frame_equal(result.table, estimate().table)


def test_sampled_documents_without_a_label_are_used() -> None:
    expert = WORLD.truth.assign(probability=1.0)
    with pytest.warns(DataWarning):
        result = estimate(expert=expert, labels=WORLD.labels.drop(index=range(5)), measure="DCG@5")
    truth = [evaluate(run, WORLD.truth, "DCG@5", no_relevant="zero").means["DCG@5"] for run in WORLD.runs.values()]
    queries = set(WORLD.labels.drop(index=range(5))["query"])
    assert queries == set(WORLD.labels["query"])
    assert result.table["estimate"].tolist() == pytest.approx(truth)


def refused(error: type[CrowdrankError], **changes: Any) -> CrowdrankError:
    with pytest.raises(error) as caught:
        estimate(**changes)
    return caught.value


def test_expert_pairs_without_known_probabilities_are_refused() -> None:
    sample = WORLD.truth.sample(frac=0.3, random_state=1)
    assert refused(InputError, expert=sample).kind == "unknown-probabilities"
    problem = refused(InputError, unit="document")
    assert problem.kind == "unknown-probabilities"
    assert problem.fixes[1].parameter == "unit"


def test_labels_that_experts_made_are_refused() -> None:
    labels = WORLD.labels.copy()
    known = labels.index.isin(EXPERT.index)
    labels.loc[known, ["p0", "p1", "p2", "p3"]] = np.eye(4)[EXPERT["grade"]]
    labels.loc[known, "grade"] = EXPERT["grade"]
    assert refused(InputError, labels=labels).kind == "experts-made-labels"


def test_hard_labels_that_experts_made_are_refused() -> None:
    hard = WORLD.labels[["query", "document", "grade"]].copy()
    assert not estimate(labels=hard).table.empty  # a few labels differ
    hard.loc[hard.index.isin(EXPERT.index), "grade"] = EXPERT["grade"]
    assert refused(InputError, labels=hard).kind == "experts-made-labels"


def test_expert_grades_beyond_those_of_the_labels_are_a_warning() -> None:
    def kinds(expert: pd.DataFrame, labels: pd.DataFrame = WORLD.labels) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimate(expert=expert, labels=labels)
        return [one.message.kind for one in caught if isinstance(one.message, CrowdrankWarning)]

    assert "scales-differ" not in kinds(EXPERT)
    assert "scales-differ" in kinds(EXPERT.assign(grade=EXPERT["grade"] + 1))
    labels = WORLD.labels[["query", "document"]].assign(grade=3)  # say nothing of their scale
    assert "scales-differ" not in kinds(EXPERT, labels)


def test_one_expert_query_is_refused() -> None:
    assert refused(InputError, expert=WORLD.expert(1)).kind == "few-expert-queries"


def test_rankings_of_one_query_are_refused() -> None:
    runs = {name: run[run["query"] == "q7"] for name, run in WORLD.runs.items()}
    drawn = WORLD.truth[WORLD.truth["query"] == "q7"].assign(probability=0.5, draw=1)
    for expert in (None, drawn):
        problem = refused(InputError, runs=runs, expert=expert)
        assert (problem.kind, problem.location.source) == ("few-queries", "the runs")


def test_few_drawn_documents_are_a_warning() -> None:
    kinds = {}
    for n in (19, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            found = estimate(expert=WORLD.truth.head(n).assign(probability=0.5, draw=1))
        kinds[n] = [warning.kind for warning in found.warnings]
    assert kinds == {19: ["few-expert-grades"], 20: []}


def test_labels_have_no_weight_if_experts_graded_all_queries() -> None:
    table = estimate(expert=WORLD.truth).table
    assert table["weight"].tolist() == [0, 0]
    assert table["estimate"].tolist() == pytest.approx(table["experts_only"].tolist())


@pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")
def test_intervals_of_certain_labels_are_those_of_the_queries() -> None:
    certain = WORLD.labels[["query", "document", "grade"]]
    table = estimate(labels=certain, expert=None).table
    by_query = values(certain, "nDCG@5")
    expected = 2 * 1.96 * by_query.std(axis=0, ddof=1) / np.sqrt(len(by_query))
    assert (table["upper"] - table["lower"]).tolist() == pytest.approx(expected.tolist(), rel=0.15)


def test_judgments_of_several_assessors_are_no_labels(tmp_path: Path) -> None:
    rows = [WORLD.labels[["query", "document"]].assign(grade=grade, assessor=f"a{grade}") for grade in (0, 2)]
    pd.concat(rows).to_csv(tmp_path / "judgments.csv", index=False)
    problem = refused(InputError, labels=tmp_path / "judgments.csv", expert=None)
    assert problem.kind == "contradictory-grades"
    assert any("aggregate" in fix.text for fix in problem.fixes)


def test_runs_with_different_queries_are_refused() -> None:
    runs = {**WORLD.runs, "new": WORLD.runs["new"][lambda run: run["query"] != "q7"]}
    problem = refused(InputError, runs=runs)
    assert (problem.kind, problem.location.source) == ("queries-differ", "run 'new'")


def test_duplicate_documents_in_a_run_are_refused() -> None:
    runs = {**WORLD.runs, "new": pd.concat([WORLD.runs["new"], WORLD.runs["new"].head(1)])}
    problem = refused(InputError, runs=runs)
    assert (problem.kind, problem.location.source) == ("repeated-document", "the run 'new'")


def test_rows_without_a_probability_were_not_drawn(tmp_path: Path) -> None:
    drawn = EXPERT.assign(probability=0.5, draw=1.0)
    others = WORLD.truth[~WORLD.truth["query"].isin(EXPERT["query"])].assign(probability=np.nan, draw=np.nan)
    mixed = pd.concat([others, drawn, others], ignore_index=True)
    mixed.to_csv(tmp_path / "answers.csv", index=False)
    expected = estimate(expert=drawn).table
    for given in (mixed, tmp_path / "answers.csv"):
        pd.testing.assert_frame_equal(estimate(expert=given).table, expected)
        assert dict(read_sample(given).report.skipped) == {NOT_DRAWN_REASON: 2 * len(others)}
    assert refused(InputError, expert=others).kind == "no-rows-left"
    mixed.loc[len(others), "probability"] = 2.0
    mixed.to_csv(tmp_path / "answers.csv", index=False)
    assert refused(InputError, expert=tmp_path / "answers.csv").location.place.startswith(f"row {len(others) + 1}")


def test_of_several_grades_of_a_drawn_document_the_lower_median_is_used() -> None:
    grades = {"a": [3], "b": [2, 0], "c": [3, 0, 1], "d": [0, 1, 2, 3]}
    rows = [(document, grade) for document, listed in grades.items() for grade in listed]
    table = pd.DataFrame(rows, columns=["document", "grade"]).sample(frac=1, random_state=1)
    sample = read_sample(table.assign(probability=table["document"].map({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4})))
    found = sample.frame.set_index("document")[["grade", "probability"]]
    assert found.loc[list("abcd")].to_numpy().tolist() == [[3, 0.1], [0, 0.2], [1, 0.3], [1, 0.4]]
    with pytest.raises(InputError) as caught:
        read_sample(table)
    assert caught.value.kind == "contradictory-grades"


@pytest.mark.parametrize("value", [0.0, -0.1, 1.01])
def test_probabilities_outside_0_to_1_are_refused(value: float, tmp_path: Path) -> None:
    expert = EXPERT.assign(probability=0.5)
    expert.loc[expert.index[2], "probability"] = value
    expert.to_csv(tmp_path / "expert.csv", index=False)
    for given in (expert, tmp_path / "expert.csv"):
        problem = refused(InputError, expert=given)
        assert (problem.kind, problem.location.column) == ("not-a-probability", "probability")
        assert problem.location.place.startswith("row 3")


@pytest.mark.parametrize(
    ("measure", "changes"),
    [("Tau", {}), ("Judged@5", {}), ("AP", {"expert": EXPERT.assign(probability=1.0)}), ("TauB", {"expert": None})],
)
def test_measures_that_have_no_estimator_are_refused(measure: str, changes: dict[str, Any]) -> None:
    problem = refused(UsageError, measure=measure, **changes)
    assert (problem.kind, problem.parameter) == ("measure-not-estimated", "measure")
    assert "nDCG" in problem.problem


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [({"baseline": "old"}, "baseline"), ({"level": 1.0}, "level"), ({"unit": "page"}, "unit"), ({"runs": {}}, "runs")],
)
def test_invalid_arguments_are_refused(changes: dict[str, Any], parameter: str) -> None:
    assert refused(UsageError, **changes).parameter == parameter


def test_labels_without_a_needed_column_are_refused() -> None:
    assert refused(InputError, labels=WORLD.labels[["document", "grade"]]).kind == "no-column"
    assert refused(InputError, labels=WORLD.labels[GRADES].head(0)).kind == "no-rows"


FEATURE_LABELS = WORLD.labels.assign(prior_relevance=0.0)
"""Labels with the column that only a consensus has that used features."""


def test_labels_that_used_features_are_refused_without_experts(tmp_path: Path) -> None:
    FEATURE_LABELS.to_csv(tmp_path / "labels.csv", index=False)
    for labels in (FEATURE_LABELS, tmp_path / "labels.csv"):
        problem = refused(UsageError, labels=labels, expert=None)
        assert (problem.kind, problem.parameter) == ("features-used", "labels")
        assert [fix.parameter for fix in problem.fixes] == [None, "expert", "allow_feature_labels"]


def test_labels_that_used_features_can_be_allowed() -> None:
    with pytest.warns(DataWarning):
        result = estimate(labels=FEATURE_LABELS, expert=None, allow_feature_labels=True)
    assert [warning.kind for warning in result.warnings] == ["features-used", "bias-unknown"]
    assert result.labels_used_features


def test_experts_correct_labels_that_used_features() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = estimate(labels=FEATURE_LABELS)
    assert result.labels_used_features
    assert len(result.protocol()) == len(estimate().protocol()) + 1
    pd.testing.assert_frame_equal(result.table, estimate().table)


def test_expert_grades_that_used_features_are_refused() -> None:
    assert refused(InputError, expert=EXPERT.assign(prior_relevance=0.0)).kind == "features-used"
