from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.stats
from evaluation_reference import random_world
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.errors import DataWarning, UsageError
from crowdrank.evaluation.comparison import (
    compare,
    difference_interval,
    effect_size,
    fisher_randomization,
    holm,
    paired_t,
)
from crowdrank.evaluation.evaluate import evaluate

GOLD = random_world(4, ties=True)[1]
MEASURES = ["nDCG@10", "AP(rel=2)", "Tau", "GradeMAE"]


def noisy(noise: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    scores = GOLD["grade"] + rng.normal(0, noise, len(GOLD))
    run = GOLD[["query", "document"]].assign(score=scores, grade=scores.round().clip(0, 4))
    return run.sample(frac=0.9, random_state=seed)


RUNS = {"rough": noisy(3, 1), "fair": noisy(1, 2), "fine": noisy(0.3, 3).query("query != 'q1'")}


@pytest.mark.parametrize("test", ["fisher", "t"])
def test_details_are_those_of_the_single_tests(test: str) -> None:
    comparison = compare(RUNS, GOLD, MEASURES, baseline="fair", test=test, random_state=9)
    details = comparison.details.set_index(["measure", "run"])
    for measure in MEASURES:
        values = {run: evaluate(frame, GOLD, measure).values(measure) for run, frame in RUNS.items()}
        p = {}
        for run in ("rough", "fine"):
            row, paired = details.loc[(measure, run)], (values[run], values["fair"])
            p[run] = fisher_randomization(*paired, random_state=9) if test == "fisher" else paired_t(*paired)
            assert row["mean"] == pytest.approx(np.nanmean(values[run]))
            assert row["difference"] == pytest.approx(np.nanmean(values[run] - values["fair"]))
            assert row["p"] == pytest.approx(p[run], abs=1e-12)
            differences = (values[run] - values["fair"])[~np.isnan(values[run] - values["fair"])]
            student = scipy.stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
            interval = difference_interval(differences, random_state=9) if test == "fisher" else tuple(student)
            assert (row["lower"], row["upper"]) == pytest.approx(interval, abs=1e-12)
            assert row["effect_size"] == pytest.approx(effect_size(*paired))
            assert row["queries"] == (~np.isnan(values[run] - values["fair"])).sum()
        adjusted = dict(zip(p, holm(list(p.values())), strict=True))
        for run in p:
            assert details.loc[(measure, run), "p_holm"] == pytest.approx(adjusted[run], abs=1e-12)
            assert details.loc[(measure, run), "significant"] == (adjusted[run] <= 0.05)


def test_best_is_lowest_where_lower_is_better() -> None:
    comparison = compare(RUNS, GOLD, MEASURES)
    means = comparison.table.set_index("run")
    best = comparison.details.query("best").set_index("measure")["run"]
    assert best["GradeMAE"] == means["GradeMAE"].idxmin() == "fine"
    assert best["nDCG@10"] == means["nDCG@10"].idxmax()
    assert compare({"a": RUNS["fair"], "b": RUNS["fair"]}, GOLD, "AP").details["best"].tolist() == [True, True]


def test_the_baseline_is_compared_with_nothing() -> None:
    details = compare(RUNS, GOLD, "AP").details.set_index("run")
    assert details.loc["rough", "difference"] == 0.0
    assert details.loc["rough", ["lower", "upper", "p", "p_holm", "effect_size"]].isna().all()
    assert not details.loc["rough", "significant"]


def test_tables() -> None:
    comparison = compare(RUNS, GOLD, MEASURES)
    assert comparison.table["run"].tolist() == ["rough", "fair", "fine"]
    assert list(comparison.table.columns) == ["run", *MEASURES, "Judged@10"]
    per_query = comparison.per_query
    assert list(per_query.columns) == ["run", "query", *MEASURES]
    assert len(per_query) == 3 * GOLD["query"].nunique()
    fine = per_query[per_query["run"] == "fine"].set_index("query")
    assert fine.loc["q1", "nDCG@10"] == 0.0
    assert np.isnan(fine.loc["q1", "GradeMAE"])


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_tables_are_of_the_library_of_the_runs(convert: Any) -> None:
    comparison = compare({name: convert(run) for name, run in RUNS.items()}, convert(GOLD), "AP Tau")
    for frame in (comparison.table, comparison.details, comparison.per_query):
        assert type(frame) is type(convert(GOLD))


def test_query_ids_have_the_type_of_the_gold() -> None:
    gold = pd.DataFrame({"query": [1, 1, 2], "document": [1, 2, 1], "grade": [1, 0, 1]})
    run = gold.assign(score=gold["grade"])
    per_query = compare({"numbers": run, "text": run.astype({"query": str})}, gold, "AP").per_query
    assert per_query["query"].tolist() == [1, 2, 1, 2]


def test_to_dict_is_ready_for_json() -> None:
    said = compare(RUNS, GOLD, MEASURES, test="t").to_dict()
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert said["details"][0]["p"] is None
    assert said["baseline"] == "rough"
    assert set(said["means"]["fine"]) == set(MEASURES)


def test_one_run_alone_is_a_table_too() -> None:
    comparison = compare({"only": RUNS["fair"]}, GOLD, "AP RR")
    assert comparison.details["best"].tolist() == [True, True]
    queries = GOLD["query"].nunique()
    assert comparison.protocol()[0] == f"1 run is compared on {queries} queries with gold; differences are to 'only'."


def test_same_seed_same_comparison() -> None:
    first, second = (compare(RUNS, GOLD, MEASURES, random_state=2).to_dict() for _ in range(2))
    assert first == second


def test_the_protocol_says_how() -> None:
    gold = pd.DataFrame({"query": [1, 2], "document": [1, 1], "grade": [1, 0]})
    run = gold.assign(score=1.0)
    comparison = compare({"a": run, "b": run}, gold, "nDCG(gains='0,5')@10 Tau", test="t", no_relevant="one")
    assert comparison.protocol() == [
        "2 runs are compared on 2 queries with gold; differences are to 'a'.",
        "Runs are paired query by query; a query that a run lacks counts 0.",
        "Equal scores count as the exact expectation over all orders of the tied documents.",
        "Documents without gold count as grade 0, except in rank correlations and grade measures.",
        "Queries without a relevant document count 1 in the mean.",
        "Queries whose gold grades are all equal are left out of rank correlations.",
        "The gain of a grade in DCG and nDCG is 2^grade - 1, unless the measure names other gains.",
        "p is the p-value of the paired t-test, two-sided.",
        "p_holm is p adjusted by Holm's method over the runs of each measure; a difference with p_holm of at most 0.05 "
        "is significant.",
        "Intervals of level 0.95 hold the mean differences that the test does not reject.",
        "The effect size is the mean difference divided by the standard deviation of the differences.",
    ]


def partly_judged(n_unjudged: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return gold, a run of judged documents, and a run with better ones after some documents without gold."""
    queries = [f"q{number}" for number in range(12)]
    gold = pd.DataFrame(
        [(q, f"d{d}", int(d < 3)) for q in queries for d in range(6)], columns=["query", "document", "grade"]
    )
    old = gold.assign(score=[10.0 - d for _ in queries for d in (0, 1, 3, 2, 4, 5)])
    unjudged = [(q, f"x{d}", 20.0 - d) for q in queries for d in range(n_unjudged)]
    new = pd.concat(
        [
            gold.assign(score=[10.0 - d for _ in queries for d in range(6)]),
            pd.DataFrame(unjudged, columns=["query", "document", "score"]),
        ]
    )
    return gold, old, new[["query", "document", "score"]]


def test_a_conclusion_that_depends_on_unjudged_documents_is_a_warning() -> None:
    gold, old, new = partly_judged(2)
    with pytest.warns(DataWarning) as caught:
        comparison = compare({"old": old, "new": new}, gold, "nDCG@5 Tau")
    kinds = ["judged-differs", "depends-on-unjudged"]
    assert [warning.kind for warning in comparison.warnings] == kinds
    assert [one.message.kind for one in caught if isinstance(one.message, DataWarning)] == kinds
    assert comparison.warnings[1].fixes[1].value == "skip"
    assert comparison.table["Judged@5"].tolist() == pytest.approx([1.0, 0.6])
    details = comparison.details.set_index(["measure", "run"])
    assert details["depends_on_unjudged"].tolist() == [False, True, False, False]
    assert comparison.other_rows is not None
    other = comparison.other_rows.to_pandas().set_index(["measure", "run"])
    assert details.loc[("nDCG@5", "new"), "difference"] < 0 < other.loc[("nDCG@5", "new"), "difference"]
    assert details.loc[("nDCG@5", "new"), "significant"]
    assert other.loc[("nDCG@5", "new"), "significant"]
    with pytest.warns(DataWarning):
        skipped = compare({"old": old, "new": new}, gold, "nDCG@5 Tau", unjudged="skip").details
    columns = ["difference", "lower", "upper", "p_holm", "significant"]
    pd.testing.assert_frame_equal(skipped.set_index(["measure", "run"])[columns], other[columns])


def test_no_warning_if_every_document_is_judged_or_none_matters() -> None:
    gold, old, new = partly_judged(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare({"old": old, "new": new}, gold, "nDCG@5").other_rows is None
        low = pd.concat([new, pd.DataFrame({"query": ["q1"], "document": ["x"], "score": [-1.0]})])
        comparison = compare({"old": old, "new": low}, gold, "nDCG@5")
    assert comparison.warnings == ()
    assert comparison.other_rows is not None


@pytest.mark.parametrize(
    ("parameter", "value", "problem"),
    [
        ("baseline", "none", "must be one of the runs (rough, fair, fine), not 'none'"),
        ("test", "wilcoxon", "must be one of fisher, t, not 'wilcoxon'"),
        ("alpha", 5, "must be between 0 and 1, such as 0.05, not 5"),
    ],
)
def test_invalid_arguments_are_refused(parameter: str, value: Any, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        compare(RUNS, GOLD, "AP", **{parameter: value})
    assert (refused.value.parameter, refused.value.problem) == (parameter, problem)


def test_no_runs_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        compare({}, GOLD, "AP")
    assert refused.value.parameter == "runs"


def test_the_command_counts_queries_that_are_not_in_the_mean(tmp_path: Path) -> None:
    (tmp_path / "gold.qrels").write_text("1 0 a 1\n1 0 b 0\n2 0 a 0\n3 0 a 0\n")
    for name in ("old", "new"):
        (tmp_path / f"{name}.csv").write_text("query,document,score\n1,a,2\n1,b,1\n2,a,1\n3,a,1\n")
    files = [str(tmp_path / name) for name in ("old.csv", "new.csv")]
    done = CliRunner().invoke(app, ["compare", *files, "--expert", str(tmp_path / "gold.qrels"), "--measures", "AP"])
    assert done.exit_code == 0, done.output
    assert "left out of the mean of AP: 2." in " ".join(done.output.split())
