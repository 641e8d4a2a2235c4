from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from evaluation_reference import random_world

from crowdrank.errors import InputError, Location, UsageError
from crowdrank.evaluation.comparison import compare
from crowdrank.evaluation.evaluate import NoRelevant, evaluate
from crowdrank.evaluation.measures import Measure
from crowdrank.readers.read import read_gold

RUN = pd.DataFrame({"query": ["q", "q", "q"], "document": ["a", "b", "c"], "score": [3.0, 2.0, 1.0]})
GOLD = pd.DataFrame({"query": ["q", "q", "q"], "document": ["a", "b", "c"], "grade": [0, 2, 1]})
ALL = ["nDCG@10", "AP", "ERR@20", "P@1", "RR", "Tau", "TauB", "Spearman"]


def frame(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_gains_are_exponential_unless_the_name_of_the_measure_states_others() -> None:
    names = ["DCG@1", "DCG(dcg='log2')@1", "DCG(gains='0,5,6,9')@1"]
    run, gold = frame(document=["a", "b"], score=[2, 1]), frame(document=["a", "b"], grade=[3, 0])
    assert evaluate(run, gold, names).means == dict(zip(names, [7, 3, 9], strict=True))
    assert evaluate(run, gold, "DCG(dcg='exp-log2')@1").means == {"DCG@1": 7}


def test_relevance_is_preferred_to_score() -> None:
    run = RUN.assign(relevance=[1.0, 3.0, 2.0])
    assert evaluate(run, GOLD, "nDCG").means["nDCG"] == 1.0


def test_documents_without_gold_are_left_out_or_count_as_grade_0() -> None:
    run = frame(document=["x", "a", "y", "b"], score=[4, 3, 2, 1])
    gold = frame(document=["a", "b"], grade=[1, 1])
    skipped = evaluate(run, gold, "P@2 AP", unjudged="skip")
    assert skipped.means == {"P@2": 1.0, "AP": 1.0}
    as_trec = evaluate(run, gold, "P@2 AP")
    assert as_trec.means == {"P@2": 0.5, "AP": 0.5}
    assert as_trec.judged == skipped.judged == {"Judged@2": 0.5}
    assert as_trec.counts.documents_as_nonrelevant == as_trec.counts.documents_without_gold == 2


def test_a_gain_for_grade_0_is_in_the_ideal_order_of_documents_without_gold_too() -> None:
    run, gold = frame(document=["x", "y", "a"], score=[3, 2, 1]), frame(document=["a"], grade=[1])
    means = evaluate(run, gold, "nDCG(gains='1,2')").means
    best, ours = 2 + 1 / np.log2(3) + 0.5, 1 + 1 / np.log2(3) + 2 / 2
    assert means["nDCG(gains='1,2')"] == pytest.approx(ours / best)


def test_gold_that_the_run_lacks_counts_as_not_found() -> None:
    gold = frame(query=["q", "q", "p"], document=["a", "b", "c"], grade=[1, 1, 1])
    evaluation = evaluate(frame(query=["q"], document=["a"], score=[1]), gold, "AP nDCG RR")
    assert evaluation.values("AP").tolist() == [0.5, 0.0]
    assert evaluation.means["RR"] == 0.5
    assert evaluation.means["nDCG"] == pytest.approx(1 / (1 + 1 / np.log2(3)) / 2)
    assert evaluation.counts.gold_documents_missing == 2
    assert evaluation.counts.gold_queries_missing == 1


@pytest.mark.parametrize(("no_relevant", "value"), [("skip", np.nan), ("zero", 0.0), ("one", 1.0)])
def test_queries_without_a_relevant_document(no_relevant: NoRelevant, value: float) -> None:
    gold = GOLD.assign(grade=[1, 1, 1])
    evaluation = evaluate(RUN, gold, "nDCG AP AP(rel=2) RR(rel=2) Tau", no_relevant=no_relevant)
    tau = np.nan if no_relevant == "one" else value
    assert list(evaluation.means.values()) == pytest.approx([1.0, 1.0, value, value, tau], nan_ok=True)
    assert evaluation.without_relevant == {"nDCG": 0, "AP": 0, "AP(rel=2)": 1, "RR(rel=2)": 1, "Tau": 1}


def test_which_queries_are_left_out_does_not_depend_on_the_run() -> None:
    gold = random_world(1, ties=True)[1]
    left_out = [
        np.isnan(evaluate(random_world(seed, ties=True)[0], gold, "nDCG AP Tau Spearman").frame.drop(columns="query"))
        for seed in (1, 2)
    ]
    pd.testing.assert_frame_equal(left_out[0], left_out[1])


def test_grades_are_compared_where_both_sides_have_one() -> None:
    run = frame(query=[1, 1, 1], document=[1, 2, 9], score=[1, 2, 3], grade=[0, 3, 4])
    gold = frame(query=[1, 1, 1, 2], document=[1, 2, 3, 1], grade=[0, 1, 4, 2])
    evaluation = evaluate(run, gold, "GradeAccuracy GradeMAE")
    assert evaluation.means == {"GradeAccuracy": 0.5, "GradeMAE": 1.0}
    assert np.isnan(evaluation.values("GradeMAE")[1])


def test_without_a_query_column_all_documents_are_of_one_query() -> None:
    evaluation = evaluate(RUN.drop(columns="query"), GOLD.drop(columns="query"), "RR")
    assert evaluation.frame.to_dict("list") == {"query": ["all"], "RR": [0.5]}


@pytest.mark.parametrize("ids", [["1", "2", "3"], [1.0, 2.0, 3.0], pd.array([1, 2, 3], dtype="int32")])
def test_ids_of_other_types_are_joined(ids: Any) -> None:
    gold = frame(query=[7, 7, 7], document=[1, 2, 3], grade=[0, 2, 1])
    run = pd.DataFrame({"query": pd.Categorical(["7"] * 3), "document": ids, "score": [3, 2, 1]})
    assert evaluate(run, gold, "RR Tau").means == pytest.approx({"RR": 0.5, "Tau": -1 / 3})


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_the_frame_is_of_the_library_of_the_run(convert: Any) -> None:
    run, gold = random_world(2, ties=True)
    evaluation = evaluate(convert(run), convert(gold), ALL)
    assert type(evaluation.frame) is type(convert(run))
    expected = evaluate(run, gold, ALL).frame
    pd.testing.assert_frame_equal(evaluation.per_query.to_pandas(), expected, check_dtype=False)


def test_lazy_frames_are_read() -> None:
    assert evaluate(pl.from_pandas(RUN).lazy(), pl.from_pandas(GOLD).lazy(), "RR").means == {"RR": 0.5}


def test_queries_come_in_the_order_of_the_gold() -> None:
    gold = frame(query=["z", "a", "z"], document=[1, 1, 2], grade=[1, 1, 0])
    run = frame(query=["a", "z"], document=[1, 1], score=[1, 1])
    assert evaluate(run, gold, "RR").frame["query"].tolist() == ["z", "a"]


def test_an_empty_run_finds_nothing() -> None:
    evaluation = evaluate(RUN.iloc[:0], GOLD, [*ALL, "DCG@3"])
    assert set(evaluation.means.values()) == {0.0}
    assert evaluation.counts.gold_queries_missing == 1


def test_infinite_scores_are_scores() -> None:
    run = RUN.assign(score=[-np.inf, np.inf, 0.0])
    assert evaluate(run, GOLD, "nDCG TauB Spearman").means == {"nDCG": 1.0, "TauB": 1.0, "Spearman": 1.0}


def test_grades_need_not_be_whole() -> None:
    assert evaluate(RUN, GOLD.assign(grade=[0.5, 0.25, 0.0]), "nDCG Tau").means == {"nDCG": 1.0, "Tau": 1.0}


def test_the_notes_tell_what_was_left_out() -> None:
    run = frame(query=["q", "q", "q", "n"], document=["a", "b", "x", "a"], score=[1.0, 1.0, 0.0, 1.0])
    gold = frame(query=["q", "q", "q", "p", "o"], document=["a", "b", "c", "a", "a"], grade=[2, 1, 1, 0, 1])
    assert evaluate(run, gold, "nDCG@2 Tau ERR@3", unjudged="skip").notes() == [
        "3 queries and 2 documents were scored.",
        "Equal scores count as the exact expectation over all orders of the tied documents (2 tied documents).",
        "Documents without gold that are left out: 2.",
        "Queries of the run without gold that are left out: 1.",
        "Gold documents that the run does not rank (rank correlations and grade measures ignore them): 3.",
        "Gold queries without a scored document, which count 0: 2.",
        "Queries without a relevant document that are left out of the mean of nDCG@2: 1.",
        "Queries with equal gold grades that are left out of the mean of Tau: 2.",
        "Queries without a relevant document that are left out of the mean of ERR@3: 1.",
        "The gain of a grade in DCG and nDCG is 2^grade - 1, unless the measure names other gains.",
        "The highest grade in ERR is 4 (as in gdeval), unless the measure names another.",
    ]
    as_trec = evaluate(run, gold, "AP", ties="document", no_relevant="zero").notes()
    assert as_trec[1:4] == [
        "Equal scores are ordered by document id, descending as text, as trec_eval does (2 tied documents).",
        "Documents without gold that count as grade 0, except in rank correlations and grade measures: 1.",
        "Documents without gold that are left out: 1.",
    ]
    assert as_trec[-1] == "Queries without a relevant document that count 0 in the mean of AP: 1."


@pytest.mark.parametrize(("measures", "cutoffs"), [("AP Tau", [10]), ("nDCG@5 P@1 RR nDCG@5", [1, 5])])
def test_the_share_of_judged_documents_is_for_the_cutoffs_of_the_measures(measures: str, cutoffs: list[int]) -> None:
    assert evaluate(RUN, GOLD, measures).judged == {f"Judged@{cutoff}": 1.0 for cutoff in cutoffs}


def test_ties_count_as_expectation_in_the_share_of_judged_documents() -> None:
    run, gold = frame(document=["a", "x", "y"], score=[1, 1, 1]), frame(document=["a"], grade=[1])
    assert evaluate(run, gold, "Judged@1").means["Judged@1"] == pytest.approx(1 / 3)


def test_an_evaluation_is_frozen() -> None:
    evaluation = evaluate(RUN, GOLD, Measure("RR"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        evaluation.means = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("run", "gold", "kind", "location"),
    [
        (RUN.assign(score=[1, np.nan, 2]), GOLD, "missing-cell", Location("the run", "row 2", "score")),
        (RUN.assign(score=["1", "x", "2"]), GOLD, "not-a-number", Location("the run", "row 2", "score")),
        (
            RUN.assign(document=pd.Series(["a", None, "c"])),
            GOLD,
            "missing-cell",
            Location("the run", "row 2", "document"),
        ),
        (RUN, GOLD.assign(grade=[0, np.nan, 1]), "missing-cell", Location("the gold", "row 2", "grade")),
        (RUN, GOLD.assign(grade=[0, 1, -1]), "invalid-grade", Location("the gold", "row 3", "grade")),
        (RUN, GOLD.assign(grade=[0, 1, np.inf]), "invalid-grade", Location("the gold", "row 3", "grade")),
        (RUN.assign(document=["a", "b", "a"]), GOLD, "repeated-document", Location("the run", "row 3", "document")),
        (RUN, GOLD.assign(document=["a", "b", "b"]), "repeated-document", Location("the gold", "row 3", "document")),
        (RUN.drop(columns="score"), GOLD, "no-column", Location("the run")),
        (RUN.drop(columns="document"), GOLD, "no-column", Location("the run")),
        (RUN.drop(columns="query"), GOLD, "no-column", Location("the run")),
        (RUN, GOLD.drop(columns="query"), "no-column", Location("the gold")),
        (RUN, GOLD.drop(columns="grade"), "no-column", Location("the gold")),
        (RUN, GOLD.iloc[:0], "no-rows", Location("the gold")),
        (RUN.assign(document=["x", "y", "z"]), GOLD, "nothing-in-common", Location("the run")),
        (RUN.assign(document=pd.Series([["a"], ["b"], ["c"]])), GOLD, "input", Location("the run", "", "document")),
    ],
)
def test_frames_that_cannot_be_used_are_refused(
    run: pd.DataFrame, gold: pd.DataFrame, kind: str, location: Location
) -> None:
    with pytest.raises(InputError) as refused:
        evaluate(run, gold, "nDCG")
    assert (refused.value.kind, refused.value.location) == (kind, location)


def test_a_message_about_a_frame_is_a_sentence() -> None:
    with pytest.raises(InputError) as refused:
        evaluate(RUN.assign(document=["x", "y", "z"]), GOLD, "nDCG")
    assert str(refused.value) == (
        "the run: no document of the run has gold (the run begins with document 'x' of query 'q', the gold with "
        "document 'a' of query 'q'); use the same ids in both."
    )


def test_nan_in_polars_is_missing_too() -> None:
    with pytest.raises(InputError) as refused:
        evaluate(pl.from_pandas(RUN).with_columns(score=pl.Series([1.0, float("nan"), 0.0])), GOLD, "RR")
    assert (refused.value.kind, refused.value.location) == ("missing-cell", Location("the run", "row 2", "score"))


@pytest.mark.parametrize(("parameter", "value"), [("ties", "random"), ("unjudged", "drop"), ("no_relevant", 1)])
def test_invalid_arguments_are_refused(parameter: str, value: Any) -> None:
    with pytest.raises(UsageError) as refused:
        evaluate(RUN, GOLD, "RR", **{parameter: value})
    assert refused.value.parameter == parameter


@pytest.mark.parametrize(
    ("measures", "kind"),
    [
        ("GradeMAE", "no-grades"),
        ("GradeMAE GradeAccuracy", "no-grades"),
        ("nDCG(gains='0,1')", "no-gain"),
        ("ERR(max_grade=1)", "grade-above-maximum"),
    ],
)
def test_measures_that_do_not_fit_the_data_are_refused(measures: str, kind: str) -> None:
    with pytest.raises(UsageError) as refused:
        evaluate(RUN, GOLD, measures)
    assert refused.value.kind == kind


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        evaluate([1], GOLD, "RR")
    assert refused.value.parameter == "run"


def test_gains_of_grades_that_are_not_whole_or_too_large_are_refused() -> None:
    with pytest.raises(UsageError) as no_gain:
        evaluate(RUN, GOLD.assign(grade=[0.5, 1, 2]), "nDCG(gains='0,1,3')")
    assert no_gain.value.kind == "no-gain"
    with pytest.raises(InputError) as overflow:
        evaluate(RUN, GOLD.assign(grade=[0, 1, 2000]), "nDCG")
    assert overflow.value.kind == "gain-overflow"


def test_a_measure_that_was_not_asked_for_is_named() -> None:
    with pytest.raises(UsageError, match="AP was not evaluated; the evaluated measures are RR"):
        evaluate(RUN, GOLD, "RR").values("AP")


def test_a_path_and_what_read_gold_gives_stand_for_frames(tmp_path: Path) -> None:
    RUN.to_csv(tmp_path / "run.csv", index=False)
    GOLD.to_csv(tmp_path / "gold.csv", index=False)
    expected = evaluate(RUN, GOLD, "nDCG Tau").means
    assert evaluate(tmp_path / "run.csv", tmp_path / "gold.csv", "nDCG Tau").means == expected
    assert evaluate(RUN, read_gold(GOLD), "nDCG Tau").means == expected


def test_few_documents_with_gold_are_a_warning() -> None:
    run = pd.DataFrame({"query": 1, "document": range(10), "score": range(10)})
    gold = pd.DataFrame({"query": 1, "document": [9, 8, 7], "grade": [1, 0, 1]})
    assert [message.kind for message in evaluate(run, gold, "P@3").warnings] == []
    (warning,) = evaluate(run, gold, "P@3 P@10").warnings
    assert (warning.kind, warning.severity) == ("few-judged", "warning")
    assert "Judged@10" in warning.problem
    assert [(fix.parameter, fix.value) for fix in warning.fixes] == [(None, None), ("unjudged", "skip")]


def test_documents_whose_expert_grade_the_run_used_are_left_out_of_run_and_gold() -> None:
    run = RUN.assign(grade=[0, 0, 1], expert_graded=[1, 0, 0])
    scored = evaluate(run, GOLD, ["nDCG@10", "GradeAccuracy", "Tau"])
    rest = evaluate(run.iloc[1:].drop(columns="expert_graded"), GOLD.iloc[1:], ["nDCG@10", "GradeAccuracy", "Tau"])
    assert scored.means == rest.means
    assert scored.n_gold_used == 1
    assert rest.n_gold_used == 0
    assert "1 document is left out of all rankings and of the gold" in " ".join(scored.notes())
    for library in (pl.from_pandas(run), pa.Table.from_pandas(run, preserve_index=False)):
        assert evaluate(library, GOLD, ["nDCG@10", "GradeAccuracy", "Tau"]).means == rest.means
    number_ids = run.assign(query=1, document=[1, 2, 3])
    text_ids = GOLD.assign(query="1", document=["1", "2", "3"])
    assert evaluate(number_ids, text_ids, "GradeAccuracy").means["GradeAccuracy"] == 0.5


def test_nothing_can_be_scored_if_the_run_used_all_expert_grades() -> None:
    with pytest.raises(InputError) as error:
        evaluate(RUN.assign(expert_graded=1), GOLD, "Tau")
    assert error.value.kind == "all-grades-used"
    assert evaluate(RUN.assign(expert_graded=0), GOLD, "Tau").n_gold_used == 0


def test_runs_are_compared_without_documents_whose_expert_grade_one_of_them_used() -> None:
    comparison = compare({"blind": RUN, "informed": RUN.assign(expert_graded=[0, 1, 0])}, GOLD, "nDCG@10")
    alone = evaluate(RUN[RUN.document != "b"], GOLD[GOLD.document != "b"], "nDCG@10").means
    assert comparison.evaluations["blind"].means == comparison.evaluations["informed"].means == alone
    assert any("left out of all rankings" in sentence for sentence in comparison.protocol())
