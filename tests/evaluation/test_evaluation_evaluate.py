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

from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation import Measure, evaluate
from crowdrank.judgments.read import read_gold

RUN = pd.DataFrame({"query": ["q", "q", "q"], "document": ["a", "b", "c"], "score": [3.0, 2.0, 1.0]})
GOLD = pd.DataFrame({"query": ["q", "q", "q"], "document": ["a", "b", "c"], "grade": [0, 2, 1]})
ALL = ["nDCG@10", "AP", "ERR@20", "P@1", "RR", "Tau", "TauB", "Spearman"]


def frame(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_gains_change_the_default_of_measures_that_state_none() -> None:
    names = ["DCG@1", "DCG(dcg='log2')@1", "DCG(dcg='exp-log2')@1", "DCG(gains='0,5,6,9')@1"]
    run, gold = frame(document=["a", "b"], score=[2, 1]), frame(document=["a", "b"], grade=[3, 0])
    assert list(evaluate(run, gold, names).means.values()) == [3, 3, 7, 9]
    assert list(evaluate(run, gold, names, gains="exponential").means.values()) == [7, 3, 7, 9]
    assert list(evaluate(run, gold, names, gains=[0, 1, 3, 8]).means.values()) == [8, 3, 7, 9]


def test_relevance_is_preferred_to_score() -> None:
    run = RUN.assign(relevance=[1.0, 3.0, 2.0])
    assert evaluate(run, GOLD, "nDCG").means["nDCG"] == 1.0


def test_documents_without_gold_are_left_out_or_count_as_grade_0() -> None:
    run = frame(document=["x", "a", "y", "b"], score=[4, 3, 2, 1])
    gold = frame(document=["a", "b"], grade=[1, 1])
    assert evaluate(run, gold, "P@2 AP").means == {"P@2": 1.0, "AP": 1.0}
    as_trec = evaluate(run, gold, "P@2 AP", unjudged="nonrelevant")
    assert as_trec.means == {"P@2": 0.5, "AP": 0.5}
    assert as_trec.counts.documents_as_nonrelevant == as_trec.counts.documents_without_gold == 2


def test_a_gain_for_grade_0_is_in_the_ideal_order_of_documents_without_gold_too() -> None:
    run, gold = frame(document=["x", "y", "a"], score=[3, 2, 1]), frame(document=["a"], grade=[1])
    means = evaluate(run, gold, "nDCG(gains='1,2')", unjudged="nonrelevant").means
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
def test_queries_without_a_relevant_document(no_relevant: str, value: float) -> None:
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
    evaluation = evaluate(run, gold, "GradeAccuracy GradeMAE", unjudged="nonrelevant")
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
    assert evaluate(run, gold, "nDCG@2 Tau ERR@3", gains="exponential").notes() == [
        "3 queries and 2 documents were scored.",
        "Equal scores count as the exact expectation over all orders of the tied documents (2 tied documents).",
        "2 documents of the run have no gold and were left out.",
        "1 query of the run has no gold at all.",
        "3 documents with gold are not in the run; they count as not found, and not at all in rank correlations and "
        "grade measures.",
        "2 queries with gold have no scored document in the run and count 0 (grade measures leave them out).",
        "1 query without relevant document was left out in nDCG@2, ERR@3.",
        "2 queries without gold grades that differ were left out in Tau.",
        "The gain of a document in nDCG@2 is 2^grade - 1.",
        "In ERR@3, R takes 4 for the highest grade (gdeval: 4).",
    ]
    as_trec = evaluate(run, gold, "AP", unjudged="nonrelevant", ties="document", no_relevant="zero").notes()
    assert as_trec[1:4] == [
        "Equal scores are ordered by document id, descending as text, as trec_eval does (2 tied documents).",
        "1 document of the run has no gold and counts as grade 0, except in rank correlations and grade measures.",
        "1 document of the run has no gold and was left out.",
    ]
    assert as_trec[-1] == "1 query without relevant document counted 0 in AP."


def test_an_evaluation_is_frozen() -> None:
    evaluation = evaluate(RUN, GOLD, Measure("RR"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        evaluation.means = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("run", "gold", "sentence"),
    [
        (RUN.assign(score=[1, np.nan, 2]), GOLD, "the run, row 2, column 'score': the value is missing (None); fill "),
        (RUN.assign(score=["1", "x", "2"]), GOLD, "the run, row 2, column 'score': 'x' is not a number; use numbers"),
        (
            RUN.assign(document=pd.Series(["a", None, "c"])),
            GOLD,
            "the run, row 2, column 'document': the value is missing (None)",
        ),
        (
            RUN,
            GOLD.assign(grade=[0, np.nan, 1]),
            "the gold, row 2, column 'grade': the value is missing (None); fill it",
        ),
        (RUN, GOLD.assign(grade=[0, 1, -1]), "the gold, row 3, column 'grade': -1 is not a grade that can be scored; "),
        (RUN, GOLD.assign(grade=[0, 1, np.inf]), "the gold, row 3, column 'grade': inf is not a grade that can be "),
        (
            RUN.assign(document=["a", "b", "a"]),
            GOLD,
            "the run, row 3, column 'document': 'a' of query 'q' was already in row 1; keep one row for each document",
        ),
        (
            RUN,
            GOLD.assign(document=["a", "b", "b"]),
            "the gold, row 3, column 'document': 'b' of query 'q' was already in row 2; keep one row for each document",
        ),
        (RUN.drop(columns="score"), GOLD, "the run: there is no column 'relevance' or 'score'; rename one of its col"),
        (
            RUN.drop(columns="document"),
            GOLD,
            "the run: there is no column 'document'; rename one of its columns (query",
        ),
        (RUN.drop(columns="query"), GOLD, "the run: there is no column 'query'; rename one of its columns (document, "),
        (RUN, GOLD.drop(columns="query"), "the gold: there is no column 'query'; rename one of its columns (document"),
        (RUN, GOLD.drop(columns="grade"), "the gold: there is no column 'grade'; rename one of its columns (query, "),
        (RUN, GOLD.iloc[:0], "the gold: there are no rows; give at least one document with its grade."),
        (
            RUN.assign(document=["x", "y", "z"]),
            GOLD,
            "the run: no document of the run has gold (the run begins with query 'q' document 'x', the gold with query "
            "'q' document 'a'); give both the same ids.",
        ),
        (
            RUN.assign(document=pd.Series([["a"], ["b"], ["c"]])),
            GOLD,
            "the run, column 'document': values of type list",
        ),
    ],
)
def test_frames_that_cannot_be_used_are_refused(run: pd.DataFrame, gold: pd.DataFrame, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        evaluate(run, gold, "nDCG")
    assert str(refused.value).startswith(sentence)


def test_nan_in_polars_is_missing_too() -> None:
    with pytest.raises(InputError, match=r"the run, row 2, column 'score': the value is missing \(nan\)"):
        evaluate(pl.from_pandas(RUN).with_columns(score=pl.Series([1.0, float("nan"), 0.0])), GOLD, "RR")


@pytest.mark.parametrize(
    ("measures", "options", "sentence"),
    [
        ("GradeMAE", {}, "GradeMAE compares grades, but the run has no column 'grade'; add the column or leave the "),
        ("GradeMAE GradeAccuracy", {}, "GradeMAE and GradeAccuracy compare grades, but the run has no column 'grade'"),
        ("RR", {"ties": "random"}, "ties='random' is not known; use one of expected, document, given."),
        ("RR", {"unjudged": "drop"}, "unjudged='drop' is not known; use one of skip, nonrelevant."),
        ("RR", {"no_relevant": 1}, "no_relevant=1 is not known; use one of skip, zero, one."),
        ("RR", {"gains": "cubic"}, "'cubic' is not a way to turn grades into gains; use linear, exponential, or the "),
        ("nDCG", {"gains": [0, 1]}, "The gains of nDCG are for grades 0 to 1, but the gold has grade 2; give a gain "),
        ("ERR(max_grade=1)", {}, "ERR(max_grade=1) takes 1 for the highest grade, but the gold has grade 2; write ERR"),
    ],
)
def test_options_that_mean_nothing_are_refused(measures: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        evaluate(RUN, GOLD, measures, **options)
    assert str(refused.value).startswith(sentence)


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(UsageError, match="The run is a list; give a DataFrame"):
        evaluate([1], GOLD, "RR")


def test_gains_of_grades_that_are_not_whole_or_too_large_are_refused() -> None:
    with pytest.raises(UsageError, match=r"for grades 0 to 2, but the gold has grade 0\.5"):
        evaluate(RUN, GOLD.assign(grade=[0.5, 1, 2]), "nDCG", gains=[0, 1, 3])
    with pytest.raises(InputError, match=r"grade 2000 has no gain 2\^grade - 1 that a computer can hold"):
        evaluate(RUN, GOLD.assign(grade=[0, 1, 2000]), "nDCG", gains="exponential")


def test_a_measure_that_was_not_asked_for_is_named() -> None:
    with pytest.raises(UsageError, match="AP was not evaluated; the measures are RR"):
        evaluate(RUN, GOLD, "RR").values("AP")


def test_a_path_and_what_read_gold_gives_stand_for_frames(tmp_path: Path) -> None:
    RUN.to_csv(tmp_path / "run.csv", index=False)
    GOLD.to_csv(tmp_path / "gold.csv", index=False)
    expected = evaluate(RUN, GOLD, "nDCG Tau").means
    assert evaluate(tmp_path / "run.csv", tmp_path / "gold.csv", "nDCG Tau").means == expected
    assert evaluate(RUN, read_gold(GOLD), "nDCG Tau").means == expected
