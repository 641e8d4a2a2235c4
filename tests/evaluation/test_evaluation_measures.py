from __future__ import annotations

import pytest

from crowdrank.errors import UsageError
from crowdrank.evaluation import Measure, parse_gains, parse_measure, parse_measures

NAMES = [
    "DCG@5",
    "nDCG",
    "nDCG@10",
    "nDCG(dcg='exp-log2')@10",
    "nDCG(dcg='log2')",
    "nDCG(gains='0,1,3,7,15')@10",
    "DCG(gains='0,0.5,1.25')",
    "AP",
    "AP(rel=2)",
    "AP(rel=2)@100",
    "ERR@20",
    "ERR(max_grade=3)",
    "P@10",
    "P(rel=2)@10",
    "RR",
    "RR(rel=2)@10",
    "Tau",
    "TauB",
    "Spearman",
    "GradeAccuracy",
    "GradeMAE",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_round_trip(name: str) -> None:
    assert str(parse_measure(name)) == name
    assert parse_measure(str(parse_measure(name))) == parse_measure(name)


@pytest.mark.parametrize("name", ["nDCG@10", "nDCG(dcg='exp-log2')@10", "AP(rel=2)@100", "ERR@20", "P@5", "RR(rel=2)"])
def test_names_are_those_of_ir_measures(name: str) -> None:
    import ir_measures

    assert str(ir_measures.parse_measure(name)) == str(parse_measure(name))


@pytest.mark.parametrize(("alias", "name"), [("NDCG@3", "nDCG@3"), ("MAP", "AP"), ("MRR@10", "RR@10")])
def test_aliases_of_ir_measures_are_known(alias: str, name: str) -> None:
    assert str(parse_measure(alias)) == name


def test_several_names_in_one_text_keep_their_order_and_come_once() -> None:
    text = "nDCG(gains='0, 1, 3')@5 AP, P(rel=2)@3\nAP"
    assert [str(m) for m in parse_measures(text)] == ["nDCG(gains='0,1,3')@5", "AP", "P(rel=2)@3"]
    assert parse_measures([Measure("AP"), "AP"]) == (Measure("AP"),)


def test_only_the_error_of_grades_is_better_when_lower() -> None:
    worse_when_higher = [name for name in NAMES if not parse_measure(name).higher_is_better]
    assert worse_when_higher == ["GradeMAE"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("F1", "There is no measure 'F1'; the measures are DCG, nDCG, AP, ERR, P, RR, Tau, TauB, Spearman, "),
        ("P", "P needs a cutoff; write P@10, for example."),
        ("Tau@5", "Tau looks at all documents; write Tau without @5."),
        ("AP(dcg='log2')", "AP has no option 'dcg'; its options: rel."),
        ("Tau(rel=2)", "Tau has no option 'rel'; its options: none."),
        ("AP(rel=0)", "AP has rel 0; use a whole number of at least 1."),
        ("AP(rel='x')", "AP has rel 'x'; use a whole number of at least 1."),
        ("nDCG@0", "nDCG has cutoff 0; use a whole number of at least 1."),
        ("AP(2)", "The options in 'AP(2)' cannot be read; write them as in AP(rel=2)@100."),
        ("AP(rel=)", "The options in 'AP(rel=)' cannot be read; write them as in AP(rel=2)@100."),
        ("AP(rel=2", "'AP(rel=2' is not how a measure is written; write its name, options and cutoff as in AP(rel=2)"),
        ("nDCG(dcg='exp')", "dcg='exp' is not known; use 'log2' (the grade) or 'exp-log2' (2^grade - 1)."),
        ("nDCG(dcg='log2',gains='0,1')", "\"nDCG(dcg='log2',gains='0,1')\" states both dcg and gains; state one of"),
        ("nDCG(gains='0,x')", "'0,x' is not a way to turn grades into gains; use linear, exponential, or the gains "),
    ],
)
def test_a_name_that_means_nothing_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_measure(name)
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith(".")


def test_no_measure_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="No measure is named; the measures are DCG, nDCG"):
        parse_measures([])


def test_options_of_another_measure_are_refused_on_construction_too() -> None:
    with pytest.raises(UsageError, match="P has no option 'gains'"):
        Measure("P", cutoff=3, gains="linear")
    with pytest.raises(UsageError, match="nDCG has no option 'max_grade'"):
        Measure("nDCG", max_grade=3)


@pytest.mark.parametrize("gains", [[0, -1], [], "", [float("nan")], "cubic", 3])
def test_gains_that_mean_nothing_are_refused(gains: object) -> None:
    with pytest.raises(UsageError, match="is not a way to turn grades into gains"):
        parse_gains(gains)  # type: ignore[arg-type]
