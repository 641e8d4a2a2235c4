from __future__ import annotations

import pytest

from crowdrank.errors import UsageError
from crowdrank.evaluation.measures import Measure, parse_gains, parse_measure, parse_measures

NAMES = [
    "DCG@5",
    "nDCG",
    "nDCG@10",
    "nDCG(dcg='log2')@10",
    "Judged@10",
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


@pytest.mark.parametrize("name", ["nDCG@10", "AP(rel=2)@100", "ERR@20", "P@5", "RR(rel=2)", "Judged@10"])
def test_names_are_those_of_ir_measures(name: str) -> None:
    ir_measures = pytest.importorskip("ir_measures")

    assert str(ir_measures.parse_measure(name)) == str(parse_measure(name))


def test_the_default_gains_are_exponential_unlike_in_ir_measures() -> None:
    ir_measures = pytest.importorskip("ir_measures")

    exponential, linear = "nDCG(dcg='exp-log2')@10", "nDCG(dcg='log2')@10"
    assert str(parse_measure(exponential)) == "nDCG@10"
    assert str(ir_measures.parse_measure(linear)) == "nDCG@10"
    assert str(parse_measure(linear)) == linear
    assert str(ir_measures.parse_measure(exponential)) == exponential


def test_a_measure_that_names_its_gains_keeps_them() -> None:
    assert str(parse_measure("nDCG(dcg='log2')").with_gains([0, 1])) == "nDCG(dcg='log2')"
    assert str(parse_measure("nDCG").with_gains([0, 1])) == "nDCG(gains='0,1')"


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
    ("name", "kind"),
    [
        ("F1", "unknown-measure"),
        ("P", "no-cutoff"),
        ("Judged", "no-cutoff"),
        ("Tau@5", "unknown-option"),
        ("AP(dcg='log2')", "unknown-option"),
        ("Tau(rel=2)", "unknown-option"),
        ("AP(rel=0)", "invalid-measure"),
        ("AP(rel='x')", "invalid-measure"),
        ("nDCG@0", "invalid-measure"),
        ("AP(2)", "invalid-measure"),
        ("AP(rel=)", "invalid-measure"),
        ("AP(rel=2", "invalid-measure"),
        ("nDCG(dcg='log2',gains='0,1')", "invalid-measure"),
    ],
)
def test_an_invalid_name_is_refused(name: str, kind: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_measure(name)
    assert refused.value.kind == kind


@pytest.mark.parametrize(("name", "parameter"), [("nDCG(dcg='exp')", "dcg"), ("nDCG(gains='0,x')", "gains")])
def test_an_invalid_option_is_refused(name: str, parameter: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_measure(name)
    assert refused.value.parameter == parameter


def test_a_message_about_a_measure_is_a_sentence() -> None:
    with pytest.raises(UsageError) as refused:
        parse_measure("AP(rel=2")
    assert str(refused.value) == ("'AP(rel=2' is not a measure; write name, options and cutoff as in AP(rel=2)@100.")


def test_no_measure_at_all_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        parse_measures([])
    assert refused.value.parameter == "measures"


def test_options_of_another_measure_are_refused_on_construction_too() -> None:
    with pytest.raises(UsageError, match="P has no option 'gains'"):
        Measure("P", cutoff=3, gains="linear")
    with pytest.raises(UsageError, match="nDCG has no option 'max_grade'"):
        Measure("nDCG", max_grade=3)


@pytest.mark.parametrize("gains", [[0, -1], [], "", [float("nan")], "cubic", 3])
def test_gains_that_mean_nothing_are_refused(gains: object) -> None:
    with pytest.raises(UsageError) as refused:
        parse_gains(gains)  # type: ignore[arg-type]
    assert refused.value.parameter == "gains"
