"""The report on assessors: what it says of simulated crowds, and that names and order do not matter."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from crowdrank import GDA, DawidSkene, MajorityVote, read_gold, read_judgments, simulate
from crowdrank.assessors.advice import ADVICE
from crowdrank.assessors.assessor_report import (
    FLAGS,
    RANDOM_FOUND,
    AssessorEvidence,
    assess,
    describe_few,
    describe_thin,
    evidence_sentences,
    flag,
)
from crowdrank.assessors.reference import (
    AssessorComparison,
    compare_with_others,
    count_pairs,
    fit_slopes,
    kendall_tau,
    leave_one_out_consensus,
)
from crowdrank.assessors.severity import Severity
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.errors import ConvergenceWarning, InputError, NotFittedError
from crowdrank.readers.datasets import dataset
from crowdrank.simulation import World

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HONEST = ["careful", "ordinary", "careless"]
each = pytest.mark.parametrize("method", METHODS)


@cache
def world(seed: int = 0, **settings: Any) -> World:
    return simulate(random_state=seed, **settings)


def reported(method: str, judgments: Any, **options: Any) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        frame: pd.DataFrame = assess(get_aggregator(method).fit(judgments), **options).table.to_pandas()
    return frame.set_index("assessor")


def flagged(method: str, seeds: range) -> pd.DataFrame:
    """Flags and true kinds of several crowds."""
    reports = [
        reported(method, world(seed).judgments).join(world(seed).assessors.set_index("assessor")[["kind", "rigor"]])
        for seed in seeds
    ]
    return pd.concat(reports)


def compared(n: int, n_varied: int | None = None, **columns: list[float]) -> AssessorComparison:
    """A comparison of as many assessors as there are values, typical where nothing else is named."""
    size = len(next(iter(columns.values())))
    typical = {"slope": 1.0, "slope_error": 0.05, "information": 1.0, "information_error": 0.05, "typical_z": 0.0}
    values = {name: np.array(columns.get(name, [value] * size)) for name, value in typical.items()}
    return AssessorComparison(
        np.full(size, n), **values, n_varied=np.full(size, n // 2 if n_varied is None else n_varied)
    )


def flags_of(
    comparison: AssessorComparison,
    informativeness: list[float],
    n_grades: int = 5,
    error: float = 0.01,
    bias: list[float] | None = None,
    bias_error: list[float] | None = None,
) -> list[str]:
    size = len(informativeness)
    severity = Severity(
        np.array(bias or [0.0] * size), np.array(bias_error or [0.05] * size), np.zeros(size, bool), np.zeros(size, int)
    )
    evidence = AssessorEvidence(
        comparison, np.zeros(size, bool), severity, np.array(informativeness), np.full(size, error), n_grades
    )
    return list(flag(evidence))


def test_a_reversed_slope_must_be_steep_and_significant() -> None:
    # The upper ends of the last two intervals are below and above half of the slope that counts as reversed.
    slope, error = [-1.04, -0.47, -0.15, -0.3, -0.3], [0.08, 0.23, 0.01, 0.09, 0.112]
    flags = flags_of(compared(100, slope=slope, slope_error=error), [0.42, 0.03, 0.03, 0.42, 0.42])
    assert [one == "reversed" for one in flags] == [True, False, False, True, False]


@pytest.mark.parametrize(("error", "flags"), [(0.01, ["careless", "", "careful"]), (0.2, ["", "", ""])])
def test_careless_and_careful_need_an_interval(error: float, flags: list[str]) -> None:
    assert flags_of(compared(100, slope=[1.0, 1.0, 1.0]), [0.2, 0.4, 0.6], error=error) == flags


def test_slopes_are_relative_to_the_assessors_with_most_judgments() -> None:
    n = [100, 8, 8]
    assessor = np.repeat(np.arange(3, dtype=np.int32), n)
    reference = np.tile([0.0, 1.0, 2.0, 3.0], sum(n) // 4)
    two, error = fit_slopes(
        np.array([0.0, 1.0, 2.0, 0.0, 2.0]),
        np.array([0.0, 1.0, 2.0, 1.0, 2.0]),
        np.array([0] * 3 + [1] * 2, np.int32),
        2,
    )
    assert two[0] == 1
    assert np.isnan(two[1])  # two answers have a slope without an error
    assert np.isinf(error[1])
    slope, _ = fit_slopes(np.array([1.0, -0.5, -0.25])[assessor] * reference, reference, assessor, 3)
    assert slope.tolist() == pytest.approx([1.0, -0.5, -0.25])


def test_strict_and_lenient_need_a_margin_and_an_interval() -> None:
    bias, error = [-0.6, -0.6, -0.4, 0.6, 0.0], [0.1, 0.2, 0.01, 0.1, 0.01]
    typical = compared(100, slope=[1.0] * 5)
    assert flags_of(typical, [0.5] * 5, bias=bias, bias_error=error) == ["strict", "", "", "lenient", ""]
    binary = compared(100, slope=[1.0] * 2)
    assert flags_of(binary, [0.5] * 2, n_grades=2, bias=[-0.2, 0.1], bias_error=[0.02, 0.01]) == ["strict", ""]
    assert flags_of(compared(9, slope=[1.0]), [0.5], bias=[-2.0]) == ["few"]


def test_tiny_but_significant_information_is_random_not_careless() -> None:
    comparison = compared(10_828, slope=[0.01], slope_error=[0.002], information=[0.01], information_error=[0.002])
    two = compared(10_828, slope=[0.01, 1.0], slope_error=[0.002] * 2, information=[0.01, 1.0], typical_z=[-60.0, 1.0])
    assert flags_of(two, [0.001, 0.5]) == ["random", "careful"]
    assert flags_of(comparison, [0.001]) == ["random"]


def test_a_constant_answer_is_random_only_if_ten_documents_need_another_one() -> None:
    zero = {"slope": [0.0], "information": [0.0], "typical_z": [1.0]}  # answers of typical probability
    assert flags_of(compared(5_744, n_varied=10, **zero), [0.001]) == ["random"]
    assert flags_of(compared(5_744, n_varied=9, **zero), [0.001]) == ["few"]


@pytest.mark.data
def test_thousands_of_equal_answers_are_random() -> None:
    """Three assessors of the pages rated by a crowd gave (nearly) the same answer to each of thousands."""
    pages = dataset("adult-content-2")
    for gold in (None, pages.read_gold()):
        report = assess(get_aggregator("dawid-skene").fit(pages.read_judgments()), gold=gold).table.to_pandas()
        flags = report.set_index("assessor")["flag"]
        assert flags[["w1", "w11", "w12"]].tolist() == ["random"] * 3
        assert not ((report["flag"] == "few") & (report["judgments"] > 100)).any()


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority"])
def test_flags_find_those_who_do_not_look_and_accuse_few_others(method: str) -> None:
    crowd = flagged(method, range(3))
    spammers = crowd[crowd["kind"].str.endswith("spammer") & (crowd["judgments"] >= 60)]
    adversaries = crowd[(crowd["kind"] == "adversary") & (crowd["judgments"] >= 60)]
    honest = crowd[crowd["kind"].isin(HONEST)]
    assert len(spammers) >= 8
    assert len(adversaries) >= 3
    assert (spammers["flag"] == "random").mean() > 0.7
    assert (adversaries["flag"] == "reversed").mean() > 0.7
    assert honest["flag"].isin(["random", "reversed"]).mean() < 0.03
    assert (crowd.loc[crowd["flag"] == "careful", "kind"].isin(["careful", "ordinary"])).all()
    assert not (honest.loc[honest["flag"] == "careless", "kind"] == "careful").any()
    assert (crowd.loc[crowd["flag"] == "strict", "rigor"] >= 2).all()
    assert (crowd.loc[crowd["flag"] == "lenient", "rigor"] <= 1).all()


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority"])
def test_equal_answers_to_equal_documents_are_not_random(method: str) -> None:
    """Assessors whose documents nearly all have the lowest grade cannot show that their answers follow them."""
    rng = np.random.default_rng(7)
    truth = np.repeat([0, 3], [300, 100])
    rows = [
        (document, f"w{who}", truth[document] if rng.random() < 0.9 else rng.integers(0, 4))
        for document in range(400)
        for who in rng.choice(20, 5, replace=False)
    ]
    documents = [*range(24), 398, 399]  # nearly all of grade 0
    rows += [(document, "honest", 0) for document in documents] + [(document, "lazy", 3) for document in documents]
    report = reported(method, pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    assert report["flag"][["honest", "lazy"]].tolist() == ["few", "random"]


def test_random_needs_answers_that_are_less_probable_than_typical_ones() -> None:
    columns = {"slope": [0.0, 0.0], "information": [0.0, 0.0], "typical_z": [-1.9, -2.0]}
    assert flags_of(compared(100, n_varied=9, **columns), [0.5, 0.5]) == ["few", "random"]


def test_numbers_follow_the_kinds() -> None:
    crowd = flagged("gda", range(2)).query("judgments >= 60")
    names = ["informativeness", "model_direction", "slope", "honeypot_share", "duration"]
    nats, model_direction, slope, right, seconds = (crowd.groupby("kind")[name].mean() for name in names)
    assert nats["careful"] > nats["ordinary"] > nats["careless"] > nats["random-spammer"]
    assert nats["random-spammer"] < 0.05
    assert model_direction["adversary"] < -0.5
    assert slope["adversary"] < -0.5
    assert abs(model_direction["random-spammer"]) < 0.3
    assert right["careful"] > 0.9
    assert right["adversary"] < 0.5
    assert seconds["random-spammer"] < seconds["careful"]


def test_bias_follows_rigor() -> None:
    truth = world(1).assessors.set_index("assessor")
    crowd = reported("gda", world(1).judgments).join(truth[["kind", "rigor"]])
    looking = crowd[crowd["kind"].isin(HONEST) & (crowd["judgments"] >= 60)]
    assert np.corrcoef(looking["bias"], looking["rigor"].astype(float))[0, 1] < -0.8


def test_bias_does_not_depend_on_which_documents_were_judged() -> None:
    """Four assessors who always agree, two of them on good documents only."""
    grade = np.tile([0, 1, 2, 3, 4], 20)
    rows = []
    for document, value in enumerate(grade):
        for assessor in ("a", "b") if value >= 2 else ("c", "d"):
            rows.append((f"d{document}", assessor, value))
        if document % 10 == 0:
            rows += [(f"d{document}", assessor, value) for assessor in ("a", "b", "c", "d")]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"]).drop_duplicates()
    for method in ("gda", "average", "dawid-skene"):
        report = reported(method, frame)
        assert report["bias"].tolist() == [0] * 4
        assert not report["flag"].isin(["strict", "lenient"]).any()


def test_bias_is_the_difference_from_the_mean_of_all() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 4, 60)
    offset = {"a": 0, "b": 0, "c": 0, "high": 1}
    rows = [(f"d{d}", who, truth[d] + offset[who]) for who in offset for d in range(60)]
    report = reported("average", pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    assert report["bias"].round(6).to_dict() == {"high": 0.75, "a": -0.25, "b": -0.25, "c": -0.25}
    assert report["flag"]["high"] == "lenient"


def test_bias_is_in_grades_of_the_longest_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, 50)
    rows = [(f"d{d}", who, 4 * truth[d]) for who in ("x", "y") for d in range(50)]
    rows += [(f"d{d}", "binary", max(truth[d], int(d < 10))) for d in range(50)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    scales = tmp_path / "scales.csv"
    scales.write_text("assessor,grades\nx,0-4\ny,0-4\nbinary,0-1\n")
    report = reported("gda", read_judgments(frame, scales=scales))
    difference = report["bias"]["binary"] - report["bias"]["x"]
    assert difference == pytest.approx(4 * (truth[:10] == 0).sum() / 50)


def outvoted(share: float = 0.3, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Judgments of one accurate assessor and seven who err together, and expert grades of a share of the queries."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 600)
    wrong = np.clip(truth + rng.normal(0, 1.8, 600), 0, 3)
    answers = {"good": truth + rng.normal(0, 0.4, 600)}
    answers |= {f"bad{n}": wrong + rng.normal(0, 0.5, 600) for n in range(7)}
    ids = {"query": [f"q{n // 20}" for n in range(600)], "document": [f"d{n}" for n in range(600)]}
    parts = [
        pd.DataFrame({**ids, "assessor": name, "grade": np.clip(np.round(one), 0, 3).astype(int)})
        for name, one in answers.items()
    ]
    return pd.concat(parts), pd.DataFrame({**ids, "grade": truth}).head(int(600 * share))


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority"])
def test_expert_grades_decide_order_and_flags(method: str) -> None:
    judgments, gold = outvoted()
    alone, known = reported(method, judgments), reported(method, judgments, gold=gold)
    assert alone.index[-1] == "good"
    assert known.index[0] == "good"
    assert known["flag"]["good"] == "careful"
    assert (known["compared_with"] == "experts").all()
    assert known["evidence"].str.startswith("slope v. experts ").all()


def test_few_expert_grades_leave_the_comparison_with_others() -> None:
    judgments, gold = outvoted(share=19 / 600)
    report = reported("gda", judgments, gold=gold)
    assert (report["compared_with"] == "others").all()


def test_the_offset_from_experts_is_in_grades() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(1, 5, 200)
    rows = [(f"d{d}", who, truth[d] - (rng.random() < 0.7)) for who in "abc" for d in range(200)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"]).astype({"grade": int})
    gold = pd.DataFrame({"document": [f"d{d}" for d in range(200)], "grade": truth})
    report = assess(GDA().fit(read_judgments(frame, grades="0-4")), gold=read_gold(gold, grades="0-4"))
    offset = report.expert_offset
    assert offset is not None
    assert offset.value == pytest.approx(-0.7, abs=0.06)
    assert offset.lower < -0.7 < offset.upper
    assert offset.documents == 200
    assert report.frame["bias"].mean() == pytest.approx(offset.value)
    assert set(report.frame["bias_reference"]) == {"experts"}
    assert set(report.frame["flag"]) == {"strict"}


@pytest.mark.parametrize("grade_map", [None, "0=0-1,1=2-4"])
def test_experts_may_have_a_scale_of_their_own(grade_map: str | None) -> None:
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 5, 300)
    answers = {who: np.clip(truth + rng.integers(-1, 2, 300), 0, 4) for who in "abc"} | {
        "low": np.maximum(truth - 2, 0)
    }
    rows = [(f"d{d}", who, grade) for who, grades in answers.items() for d, grade in enumerate(grades)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    graded = pd.DataFrame({"document": [f"d{d}" for d in range(300)], "grade": (truth >= 2).astype(int)})
    report = assess(GDA().fit(frame), gold=read_gold(graded, map=grade_map))
    table = report.frame.set_index("assessor")
    assert (table["gold_judgments"] == 300).all()
    assert (table["gold_tau"] > 0.5).all()
    if grade_map is None:
        assert report.expert_offset is None
        assert table["gold_accuracy"].isna().all()
        assert set(table["bias_reference"]) == {"others"}
    else:
        low = answers["low"]
        assert table["gold_accuracy"]["low"] == pytest.approx(((low >= 2) == (truth >= 2)).mean())
        assert table["bias"]["low"] < -0.5
        assert table["bias_reference"]["low"] == "experts"


def test_kendall_tau_equals_scipy() -> None:
    rng = np.random.default_rng(4)
    table = read_judgments(
        pd.DataFrame({"document": range(60), "assessor": rng.integers(0, 3, 60), "grade": rng.integers(0, 4, 60)})
    )
    reference = rng.integers(0, 4, 60).astype(np.int8)
    expected = [
        kendalltau(table.grade[table.assessor == who], reference[table.assessor == who]).statistic for who in range(3)
    ]
    np.testing.assert_allclose(kendall_tau(count_pairs(table, reference)), expected)


def test_self_agreement_comes_from_repeated_judgments() -> None:
    rows = [("a", "ann", 1), ("a", "ann", 1), ("b", "ann", 0), ("b", "ann", 2), ("a", "bob", 1), ("b", "bob", 2)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    report = reported("average", frame)
    columns = ["repeats", "repeats_equal", "self_agreement"]
    assert {name: report[name]["ann"] for name in columns} == {"repeats": 2, "repeats_equal": 1, "self_agreement": 0.5}
    assert np.isnan(report["self_agreement"]["bob"])
    assert "self_agreement" not in reported("average", frame.drop_duplicates(["document", "assessor"]))


@each
def test_every_method_has_a_report(method: str) -> None:
    judgments = world(4, queries=15, assessors=12).judgments
    report = reported(method, judgments, gold=world(4, queries=15, assessors=12).gold)
    nats = report["informativeness"]
    assert nats.is_monotonic_decreasing
    assert (nats >= 0).all()
    assert report["judgments"].sum() == len(judgments)
    assert set(report["flag"]) <= set(FLAGS)
    assert report["evidence"].str.contains(r"^slope v\. (?:experts|others) .*\d judgments?\).* nats \(median \d").all()
    assert {f"info_{grade}" for grade in range(5)} <= set(report.columns)
    assert report["agreement"].between(0, 1).all()
    assert (report["gold_judgments"] == report["judgments"]).all()
    assert ((report["gold_lower"] <= report["gold_accuracy"]) & (report["gold_accuracy"] <= report["gold_upper"])).all()


@pytest.mark.parametrize("method", ["gda", "dawid-skene"])
def test_informativeness_is_the_models(method: str) -> None:
    model = get_aggregator(method).fit(world(4, queries=15, assessors=12).judgments)
    expected = model.consensus_.assessor_table.to_pandas().set_index("assessor")["informativeness"]
    found = assess(model).table.to_pandas().set_index("assessor")["informativeness"]
    pd.testing.assert_series_equal(found.sort_index(), expected.sort_index())


@pytest.mark.parametrize("method", ["gda", "dawid-skene", "majority"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_names_and_order_change_nothing(method: str, seed: int) -> None:
    frame = world(5, queries=10, assessors=10).judgments
    rng = np.random.default_rng(seed)
    names = dict(zip(frame["assessor"].unique(), rng.permutation(frame["assessor"].unique()), strict=True))
    shuffled = frame.assign(assessor=frame["assessor"].map(names)).sample(frac=1, random_state=seed)
    one, other = reported(method, frame), reported(method, shuffled)
    words = ["evidence"]  # a rounded digit may differ
    expected = one.rename(index=names).sort_index().drop(columns=words)
    pd.testing.assert_frame_equal(expected, other.sort_index().drop(columns=words), rtol=1e-5, atol=1e-6)


@each
@pytest.mark.parametrize(
    "frame",
    [
        pytest.param({"document": ["a"], "assessor": ["x"], "grade": [1]}, id="one judgment"),
        pytest.param({"document": list("aabb"), "assessor": list("xyxy"), "grade": [1] * 4}, id="one grade"),
        pytest.param({"document": list("abcd"), "assessor": list("xxyy"), "grade": [0, 1, 2, 0]}, id="no overlap"),
        pytest.param({"document": list("aabb"), "assessor": list("xyxy"), "grade": [0, 2, 2, 0]}, id="contradiction"),
    ],
)
def test_small_and_odd_inputs_accuse_nobody(method: str, frame: dict[str, list[Any]]) -> None:
    report = reported(method, pd.DataFrame(frame))
    assert (report["flag"] == "few").all()
    assert np.isfinite(report["informativeness"]).all()


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_report_comes_in_the_library_of_the_judgments(library: Any) -> None:
    frame = library({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [0, 1, 1]})
    report = assess(MajorityVote().fit(frame))
    assert type(report.frame) is type(frame)
    assert not report.modeled
    assert repr(report) == "<AssessorReport by MajorityVote: 2 assessors; flags: 2 few>"


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet; call fit first"):
        assess(GDA(), world().judgments)


def test_other_grades_than_those_fitted_are_refused() -> None:
    frame = pd.DataFrame({"document": list("aabb"), "assessor": list("xyxy"), "grade": [0, 1, 1, 0]})
    with pytest.raises(InputError, match="the grades 0-3 are not those fitted"):
        assess(GDA().fit(frame), frame.assign(grade=[0, 3, 1, 0]))


def test_newcomers_are_taken_for_the_crowd_and_flagged_by_what_they_did() -> None:
    frame = world(0).judgments
    adversaries = world(0).assessors.query("kind == 'adversary'")
    newcomer = adversaries.sort_values("activity")["assessor"].iloc[-1]
    model = GDA().fit(frame[frame["assessor"] != newcomer])
    report = assess(model, frame).frame.set_index("assessor")
    assert report["model_direction"][newcomer] > 0.5
    assert report["slope"][newcomer] < 0
    assert report["flag"][newcomer] == "reversed"


def test_gold_of_the_fit_is_used_unless_other_is_given() -> None:
    here = world(4, queries=15, assessors=12)
    fitted = assess(DawidSkene().fit(here.judgments, gold=here.gold)).frame
    given_later = assess(DawidSkene().fit(here.judgments), gold=here.gold).frame
    name = ["assessor", "gold_judgments", "gold_right"]
    pd.testing.assert_frame_equal(
        fitted[name].sort_values("assessor", ignore_index=True),
        given_later[name].sort_values("assessor", ignore_index=True),
    )


def test_honeypots_are_judged_as_answered() -> None:
    frame = pd.DataFrame(
        {"document": list("aabb"), "assessor": list("xyxy"), "grade": [-2, 0, 1, 1], "honeypot": [-2, -2, None, None]}
    )
    for how in ("lowest", "drop"):
        model = MajorityVote().set_params(unjudgeable_as=how).fit(read_judgments(frame, unjudgeable=-2))
        report = assess(model).frame.set_index("assessor")
        assert report.loc[["x", "y"], "honeypots_right"].tolist() == [1, 0]
        assert "1 of 1 honeypot right" in report.loc["x", "evidence"]
        assert "0 of 1 honeypot right" in report.loc["y", "evidence"]
    plain = MajorityVote().fit(read_judgments(frame.drop(columns="honeypot"), unjudgeable=-2))
    assert not assess(plain).frame["evidence"].str.contains("honeypot").any()


def slow_expected(frame: pd.DataFrame) -> list[float]:
    """The mean vote of the others, one judgment at a time."""
    found = []
    for row in frame.itertuples():
        others = frame[(frame["document"] == row.document) & (frame["assessor"] != row.assessor)]
        found.append(others["grade"].mean())
    return found


def test_an_assessors_own_answers_are_left_out_also_repeated_ones() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"document": rng.integers(0, 20, 80), "assessor": rng.integers(0, 5, 80), "grade": rng.integers(0, 3, 80)}
    ).sort_values("document", kind="stable", ignore_index=True)
    table = read_judgments(frame, repeats="keep")
    found = leave_one_out_consensus(table)
    np.testing.assert_allclose(found.expected, slow_expected(table.frame), atol=1e-12)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GDA().fit(world(5, queries=10, assessors=10).judgments)
    whole = leave_one_out_consensus(model.judgments_, model.answer_states())
    monkeypatch.setattr("crowdrank.assessors.reference._JUDGMENTS_PER_BLOCK", 7)
    cut = leave_one_out_consensus(model.judgments_, model.answer_states())
    np.testing.assert_allclose(cut.expected, whole.expected)
    np.testing.assert_array_equal(cut.grade, whole.grade)


def test_leaving_out_by_states_equals_bayes_by_hand() -> None:
    table = read_judgments(pd.DataFrame({"document": list("aaa"), "assessor": list("xyz"), "grade": [0, 1, 1]}))
    good = np.array([[0.8, 0.3], [0.2, 0.7]])
    states = (np.array([0.6, 0.4]), np.stack([good, good, good]))
    belief = np.array([0.6 * 0.2 * 0.2, 0.4 * 0.7 * 0.7])  # what y and z say
    expected = float((belief / belief.sum()) @ good[1])
    assert leave_one_out_consensus(table, states).expected[0] == pytest.approx(expected)


def test_random_answers_look_related_no_more_often_than_chance_has_it() -> None:
    rng = np.random.default_rng(0)
    documents, assessors = 3000, 300
    frame = pd.DataFrame(
        {
            "document": np.repeat(np.arange(documents), 5),
            "assessor": np.concatenate([rng.choice(assessors, 5, replace=False) for _ in range(documents)]),
            "grade": rng.integers(0, 3, 5 * documents),
        }
    )
    table = read_judgments(frame)
    consensus = leave_one_out_consensus(table)
    comparison = compare_with_others(table, consensus)
    assert comparison.n.min() > 20
    known = np.isfinite(comparison.slope_error)
    assert (np.abs(comparison.slope[known] / comparison.slope_error[known]) > 1.96).mean() < 0.1


def test_the_share_of_random_assessors_who_are_found_is_that_of_the_experiment() -> None:
    stored = json.loads((RESULTS / "robustness.json").read_text(encoding="utf-8"))
    (table,) = (table for table in stored["tables"] if table["name"] == "flags")
    (row,) = (row for row in table["rows"] if row["run"] == "random, 3 labels")
    assert {n: pytest.approx(row[str(n)], abs=0.005) for n in RANDOM_FOUND} == RANDOM_FOUND
    assert describe_few(2, 9).startswith("2 of 9 assessors cannot have another flag")


def test_kinds_are_in_the_report_and_choose_the_advice() -> None:
    here = world(4, queries=15, assessors=12).judgments
    first = here["assessor"].iloc[0]
    kinds = here.assign(kind=np.where(here["assessor"] == first, "LLM", "banana"))
    assert "kind" not in assess(MajorityVote().fit(here)).table.column_names
    assert set(reported("majority", read_judgments(here, assessor_kind="llm"))["kind"]) == {"llm"}
    found = reported("majority", kinds)["kind"]
    assert found[found != ""].to_dict() == {first: "llm"}
    careless = ADVICE["careless"]
    assert careless.llm in careless.text({"llm"})
    assert careless.people not in careless.text({"llm"})
    assert careless.llm not in careless.text({"human", "expert"})
    assert all(words in careless.text({"human", "llm"}) for words in (careless.people, careless.llm))
    assert careless.text({""}) == careless.text({"human", "llm"})


def test_no_parameter_of_a_model_is_called_like_another_statistic_of_the_report() -> None:
    judgments = simulate(queries=10, documents=8, random_state=1).judgments
    for method in ("gda", "gda-pairwise", "bwa"):
        model = get_aggregator(method).fit(judgments)
        shared = {*model.consensus_.assessor_table.column_names} & {*assess(model).table.column_names}
        assert shared <= {"assessor", "judgments", "informativeness", "family"}


def test_a_bias_with_a_wide_interval_is_shown_with_it_and_asks_for_no_expert_grades_that_are_there() -> None:
    severity = Severity(np.array([1.4, 0.0]), np.array([0.3, np.inf]), np.zeros(2, bool), np.zeros(2, int))
    columns = (np.full(2, value) for value in (38, 0.9, 0.1, 0.8, 0.1, 0.0, 20))
    comparison = AssessorComparison(*columns)
    evidence = AssessorEvidence(comparison, np.zeros(2, bool), severity, np.full(2, 0.3), np.full(2, 0.1), 4)
    wide, none = evidence_sentences(evidence)
    assert evidence.bias_reference == ["thin", "thin"]
    assert "bias too uncertain: 1.40 grades (95% interval 0.81 to 1.99)" in wide
    assert "bias too uncertain: unknown" in none
    assert "give expert grades" in describe_thin(["thin"])
    assert "expert" not in describe_thin(["thin"], has_experts=True)


def test_the_offset_from_the_experts_leaves_out_random_and_reversed_assessors() -> None:
    world = simulate(queries=30, documents=10, assessors=12, spammers=0.3, random_state=3)
    report = assess(GDA().fit(world.judgments, world.gold))
    n_left_out = sum(report.flags.get(name, 0) for name in ("random", "reversed"))
    assert n_left_out > 0
    assert report.expert_offset is not None
    assert report.expert_offset.left_out == n_left_out
    names = report.frame.loc[report.frame["flag"].isin(["random", "reversed"]), "assessor"]
    rest = world.judgments[~world.judgments["assessor"].isin(names)]
    alone = assess(GDA().fit(rest, world.gold)).expert_offset
    assert alone is not None
    assert report.expert_offset.value == pytest.approx(alone.value)
    assert f"without {n_left_out} random or reversed" in str(report.expert_offset)
