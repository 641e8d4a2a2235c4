"""Charts: valid specifications, no rows dropped, and ids that stay text."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank._text import distinct_lines
from crowdrank.consensus.calibration import Calibration, Quality, ReliabilityBin
from crowdrank.consensus.trace import trace
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.reports import charts
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.assessors import agreement_of_families
from crowdrank.reports.charts.documents import relative_durations
from crowdrank.reports.report_data import ReportData

vl_convert = pytest.importorskip("vl_convert")

ids = st.lists(st.text(max_size=30), min_size=1, max_size=8)


CALIBRATION = Calibration(
    "calibrated",
    50,
    2.0,
    (0.1, -0.1),
    1.0,
    before=Quality(0.3, 1.0, 0.6, (ReliabilityBin(10, 0.7, 0.5), ReliabilityBin(40, 0.95, 0.625))),
    after=Quality(0.05, 0.7, 0.6, (ReliabilityBin(50, 0.65, 0.6),)),
)


def rows(chart: Any) -> list[dict[str, Any]]:
    """Return the rows of all data sets of a chart."""
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


def texts(svg: str) -> list[str]:
    """Return the texts of a drawn chart; check that it is XML without scripts and links."""
    tree = ET.fromstring(svg)
    tags = {element.tag.split("}")[1] for element in tree.iter()}
    assert not tags & {"script", "foreignObject", "a", "image", "style"}
    assert not [name for element in tree.iter() for name in element.attrib if name.lower().startswith("on")]
    return ["".join(element.itertext()) for element in tree.iter() if element.tag.endswith("text")]


def example_estimate() -> crowdrank.Estimate:
    world = crowdrank.simulate(queries=30, random_state=1)
    labels = crowdrank.MajorityVote().fit(world.judgments).consensus_
    noise = np.random.default_rng(1).normal(size=(2, len(world.gold)))
    runs = {
        name: world.gold.assign(score=world.gold.grade + draw)
        for name, draw in zip(("live", "new"), noise, strict=True)
    }
    expert = world.gold[world.gold["query"].isin(world.gold["query"].unique()[:10])]
    return crowdrank.estimate(runs, labels, expert)


def test_estimates_show_intervals_and_what_each_source_gives_alone() -> None:
    result = example_estimate()
    shown = rows(charts.estimates(result))
    intervals = [row["upper"] for row in shown if "upper" in row]
    assert intervals == pytest.approx(result.table["upper"].tolist())
    values = {(row["run"], row["source"]): row["value"] for row in shown if "source" in row}
    assert values["new", "labels alone"] == pytest.approx(result.table["labels_only"][1])
    assert values["live", "experts alone"] == pytest.approx(result.table["experts_only"][0])
    with pytest.raises(UsageError) as caught:
        charts.estimates(result.table)
    assert caught.value.parameter == "estimate"


def test_all_charts_can_be_drawn(ranker_data: ReportData) -> None:
    model = ranker_data.model
    remapping = ranker_data.remapping
    steps = trace(model, model.judgments_, ranker_data.documents["document"][0], ranker_data.documents["query"][0])
    hard = crowdrank.GDA(difficulty=True, n_iter=5, tol=1.0).fit(model.judgments_).consensus_.documents
    assert "duration" in model.judgments_.extras
    judged = crowdrank.read_judgments(crowdrank.simulate(queries=8, documents=5, families=3, random_state=1).judgments)
    drawn = {
        "informativeness": charts.informativeness(ranker_data.assessors),
        "informativeness_by_agreement": charts.informativeness_by_agreement(ranker_data.assessors),
        "grade_curves": charts.grade_curves(model, ranker_data.assessors["assessor"].head(4).tolist()),
        "confusion": charts.confusion([0, 1, 2, 2], [0, 1, 1, 2]),
        "grade_shares": charts.grade_shares(
            pd.DataFrame({"assessor": ["a", "a", "b"], "grade": ["Bad", "Good", "Good"]}), ["Bad", "Good"], ["Good"]
        ),
        "answers_over_time": charts.answers_over_time(
            pd.DataFrame({"time": pd.to_datetime(["2024-01-01 10:00", "2024-01-01 12:00"]), "kind": ["human", "llm"]})
        ),
        "family_agreement": charts.family_agreement(judged),
        "relevance_intervals": charts.relevance_intervals(ranker_data.documents, ranker_data.documents["query"][0]),
        "reliability": charts.reliability(CALIBRATION),
        "uncertainty": charts.uncertainty(ranker_data.documents),
        "difficulty_by_relevance": charts.difficulty_by_relevance(hard),
        "difficulty_by_duration": charts.difficulty_by_duration(hard, model.judgments_),
        "document_trace": charts.document_trace(steps),
        "convergence": charts.convergence(model),
        "ranker_comparison": charts.ranker_comparison(
            ranker_data.details, chosen=ranker_data.chosen, baseline=ranker_data.baseline
        ),
        "differences_by_query": charts.differences_by_query(
            ranker_data.per_query, "gls", "majority", ranker_data.measure
        ),
        "quality_by_cost": charts.quality_by_cost(
            pd.DataFrame(
                {"cost": [1, 2], "AP": [0.1, 0.3], "lower": [0.0, 0.2], "upper": [0.2, 0.4], "policy": ["a", "a"]}
            ),
            quality="AP",
            of="policy",
        ),
        "estimates": charts.estimates(example_estimate()),
        "learned_by_feature": charts.learned_by_feature(remapping, "ability"),
        "importance_of_features": charts.importance_of_features(remapping),
    }
    assert set(drawn) == set(charts.__all__)
    for name, chart in drawn.items():
        words = texts(vl_convert.vegalite_to_svg(chart.to_dict()))
        assert any(any(sign.isdigit() for sign in word) for word in words), f"{name} has no axis with numbers"
        assert chart.to_dict()["title"]["text"] in words, name


def test_grade_shares_are_those_of_each_assessor() -> None:
    given = pd.DataFrame({"assessor": ["a", "a", "a", "b"], "grade": ["Bad", "Bad", "Good", "Good"]})
    shown = rows(charts.grade_shares(given, ["Bad", "Good"], ["Good", "Good", "Good", "Bad"]))
    assert {(row["assessor"], row["grade"]): row["share"] for row in shown} == {
        ("consensus (4)", "Bad"): 0.25,
        ("consensus (4)", "Good"): 0.75,
        ("a (3)", "Bad"): pytest.approx(2 / 3),
        ("a (3)", "Good"): pytest.approx(1 / 3),
        ("b (1)", "Bad"): 0.0,
        ("b (1)", "Good"): 1.0,
    }


def test_colors_are_okabe_and_ito() -> None:
    known = {"#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442"}
    assert {*theme.FLAGS.values(), *theme.GRADES} <= known | {theme.GRAY}


def test_many_points_are_counted_in_cells() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    many = pd.DataFrame({"document": np.arange(n), "relevance": rng.normal(size=n), "difficulty": rng.gamma(2, size=n)})
    chart = charts.difficulty_by_relevance(many)
    assert sum(row["count"] for row in rows(chart)) == n
    assert "100,000 documents" in chart.to_dict()["title"]["subtitle"][0]
    assessors = pd.DataFrame(
        {
            "assessor": np.arange(n).astype(str),
            "judgments": 10,
            "informativeness": rng.gamma(2, 0.2, size=n),
            "flag": rng.choice(["", "careful", "random"], size=n),
            "gold_accuracy": rng.uniform(size=n),
        }
    )
    assert sum(row.get("assessors", 0) for row in rows(charts.informativeness(assessors))) == n
    assert sum(row["count"] for row in rows(charts.informativeness_by_agreement(assessors))) == n
    width = pd.DataFrame({"lower": np.zeros(n), "upper": rng.gamma(2, size=n)})
    assert sum(row["count"] for row in rows(charts.uncertainty(width))) == n
    queries = pd.DataFrame(
        {"run": np.repeat(["a", "b"], 500), "query": np.tile(np.arange(500), 2), "AP": rng.random(1000)}
    )
    assert sum(row["count"] for row in rows(charts.differences_by_query(queries, "a", "b"))) == 500
    for one in (chart, charts.informativeness(assessors), charts.informativeness_by_agreement(assessors)):
        assert len(json.dumps(one.to_dict())) < 200_000


def test_documents_of_a_large_query_are_sampled() -> None:
    n = 500
    frame = pd.DataFrame({"query": "q", "document": np.arange(n), "relevance": np.arange(n) / n, "judgments": 1})
    chart = charts.relevance_intervals(frame.assign(lower=frame["relevance"] - 1, upper=frame["relevance"] + 1))
    assert len(rows(chart)) <= 40
    assert "1 in 13 of 500 documents" in chart.to_dict()["title"]["subtitle"][0]


@settings(max_examples=25)
@given(ids)
def test_equal_labels_are_numbered(names: list[str]) -> None:
    frame = pd.DataFrame(
        {"query": "q", "document": names, "relevance": 0.5, "lower": 0.0, "upper": 1.0, "judgments": 1}
    )
    shown = [row["document"] for row in rows(charts.relevance_intervals(frame))]
    assert len(set(shown)) == len(names)
    assert shown == distinct_lines(names, 28)


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a&b<i>", "' onload='x", "{{7*7}}", "datum.x", "\x01\u202e"]
)
def test_drawn_ids_are_inert(name: str) -> None:
    steps = pd.DataFrame(
        {
            "step": [1, 2],
            "assessor": [name, name],
            "given": [name, "1"],
            "relevance": [0.1, 0.2],
            "lower": 0.0,
            "upper": 1.0,
        }
    )
    texts(vl_convert.vegalite_to_svg(charts.document_trace(steps, title=name).to_dict()))
    runs = pd.DataFrame({"run": [name, "b"], "query": [1, 1], "AP": [0.2, 0.5]})
    words = texts(vl_convert.vegalite_to_svg(charts.differences_by_query(runs, name, "b").to_dict()))
    if name.isprintable():
        assert any(word.startswith(distinct_lines([name], 24)[0]) for word in words)


def test_agreement_of_families_equals_counting_pairs() -> None:
    world = crowdrank.simulate(queries=6, documents=5, families=3, random_state=4)
    judged = crowdrank.read_judgments(world.judgments)
    same, pairs, names = agreement_of_families(judged)
    frame = judged.frame.merge(world.judgments[["assessor", "family"]].drop_duplicates(), on="assessor")
    frame = frame.drop(columns="family_x", errors="ignore").rename(columns={"family_y": "family"})
    seen: dict[tuple[str, str], list[bool]] = {}
    for _, group in frame.groupby(["query", "document"]):
        answers = group[["family", "grade"]].to_numpy().tolist()
        for at, (family, grade) in enumerate(answers):
            for other, other_grade in answers[:at]:
                for key in {(family, other), (other, family)}:
                    seen.setdefault(key, []).append(grade == other_grade)
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            assert pairs[i, j] == len(seen[first, second])
            assert same[i, j] == sum(seen[first, second])


def test_invalid_input_is_refused(ranker_data: ReportData) -> None:
    model, assessors = ranker_data.model, ranker_data.assessors
    no_durations = replace(model.judgments_, extras={})
    no_shares = assessors[["assessor", "judgments", "informativeness", "flag"]]
    invalid: list[tuple[str, Callable[[], Any]]] = [
        ("no-column", lambda: charts.informativeness(pd.DataFrame({"informativeness": [1.0]}))),
        ("no-column", lambda: charts.informativeness_by_agreement(no_shares)),
        ("no-query", lambda: charts.relevance_intervals(ranker_data.documents, "nowhere")),
        ("no-durations", lambda: charts.difficulty_by_duration(ranker_data.documents, no_durations)),
        ("no-families", lambda: charts.family_agreement(model.judgments_)),
        ("no-ranker", lambda: charts.differences_by_query(ranker_data.per_query, "x", "majority")),
        ("no-measure", lambda: charts.ranker_comparison(ranker_data.details, "AP@7")),
        ("no-feature", lambda: charts.learned_by_feature(ranker_data.remapping, "x")),
    ]
    for kind, draw in invalid:
        with pytest.raises(CrowdrankError) as caught:
            draw()
        assert caught.value.kind == kind
    wrong_parameters: list[tuple[str, Callable[[], Any]]] = [
        ("query", lambda: charts.relevance_intervals(ranker_data.documents)),
        ("assessors", lambda: charts.grade_curves(model, [])),
        ("count", lambda: charts.informativeness(assessors, "queries")),
    ]
    for parameter, draw in wrong_parameters:
        with pytest.raises(UsageError) as usage:
            draw()
        assert usage.value.parameter == parameter


def test_judgments_are_counted_by_the_informativeness_of_their_assessors(ranker_data: ReportData) -> None:
    shown = rows(charts.informativeness(ranker_data.assessors, "judgments"))
    assert sum(row.get("judgments", 0) for row in shown) == ranker_data.assessors["judgments"].sum()


def test_agreement_with_experts_is_kendalls_tau(ranker_data: ReportData) -> None:
    spec = charts.informativeness_by_agreement(ranker_data.assessors).to_dict()
    assert spec["encoding"]["x"]["title"] == "Kendall's tau with expert grades"
    points = {row["assessor"]: row["value"] for row in rows(charts.informativeness_by_agreement(ranker_data.assessors))}
    expected = ranker_data.assessors.set_index("assessor")["gold_tau"]
    assert points == pytest.approx(expected[list(points)].to_dict())


def gaussians(model: Any, assessor: Any) -> pd.DataFrame:
    """Return three Gaussians in place of those of the model."""
    return pd.DataFrame({"assessor": assessor, "grade": [0, 1, 2], "mu": [-1, 0, 1], "width": 0.25, "alpha": 1 / 3})


def test_grade_curves_have_the_panels_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowdrank.GDA, "grade_gaussians", gaussians, raising=False)
    judgments = crowdrank.simulate(queries=5, documents=6, random_state=1).judgments
    chosen = judgments["assessor"].unique()[:2].tolist()
    for model, n_panels in ((crowdrank.GDA(), 3), (crowdrank.Rasch(), 2), (crowdrank.DawidSkene(), 2)):
        data = pd.DataFrame(rows(charts.grade_curves(model.fit(judgments), chosen)))
        assert data.groupby("assessor")["panel"].nunique().tolist() == [n_panels] * 2
        chances = data[data["panel"] == "probability of each grade"].groupby(["assessor", "relevance"])["value"].sum()
        assert chances.tolist() == pytest.approx([1] * len(chances))
        if n_panels == 3:
            density = data[data["panel"] == "Gaussian of each grade"]
            assert density["value"].max() == pytest.approx(1 / 3 / np.sqrt(2 * np.pi * 0.25), rel=0.05)


def test_many_grades_and_nodes_are_plotted(monkeypatch: pytest.MonkeyPatch) -> None:
    n_nodes, n_grades = 641, 14
    relevance, rng = np.linspace(-3.2, 3.2, n_nodes), np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(n_grades), n_nodes)
    curves = pd.DataFrame({"relevance": relevance, **{f"p{grade}": shares[:, grade] for grade in range(n_grades)}})
    judgments = crowdrank.simulate(queries=5, documents=6, random_state=1).judgments
    model, chosen = crowdrank.Rasch().fit(judgments), judgments["assessor"].unique()[:6].tolist()
    monkeypatch.setattr(crowdrank.Rasch, "grade_curves", lambda self, who: curves)
    chart = charts.grade_curves(model, chosen)
    data = pd.DataFrame(rows(chart))
    assert len(data) > 5000, "more rows than Altair accepts as a DataFrame"
    plotted = np.sort(data["relevance"].unique())
    assert len(plotted) == 161
    assert (plotted[0], plotted[-1]) == pytest.approx((-3.2, 3.2))
    assert data["grade"].nunique() == n_grades


def test_durations_are_relative_to_the_assessors_own() -> None:
    frame = pd.DataFrame(
        {"document": ["a", "b", "c"] * 2, "assessor": ["fast"] * 3 + ["slow"] * 3, "grade": [0, 1, 1] * 2}
    )
    judgments = crowdrank.read_judgments(frame.assign(duration=[1, 2, 4, 10, 20, 40]))
    documents = pd.DataFrame({"query": "all", "document": ["c", "a", "x"]})
    assert relative_durations(judgments, documents).tolist()[:2] == [2, 0.5]
    assert np.isnan(relative_durations(judgments, documents)[2])


def test_frames_of_other_libraries_are_read(ranker_data: ReportData) -> None:
    polars = pytest.importorskip("polars")
    ours = charts.informativeness(ranker_data.assessors).to_dict()["datasets"]
    assert charts.informativeness(polars.from_pandas(ranker_data.assessors)).to_dict()["datasets"] == ours


def test_convergence_of_remappers() -> None:
    world = crowdrank.simulate(queries=24, documents=6, random_state=5)
    remapper = crowdrank.LinearRemapper(n_iter=3, ridge=0.1, tree_features=0).fit(
        world.judgments, world.features, world.gold
    )
    assert {row["on"] for row in rows(charts.convergence(remapper))} == {"training", "validation"}
    charts.learned_by_feature(remapper.dependence("label"), "label").to_dict()


@given(st.floats(-2, 2), st.floats(0, 3))
def test_ticks_are_even_include_0_and_cover_the_range(low: float, width: float) -> None:
    ticks = theme.even_ticks(low, low + width)
    assert 0.0 in ticks
    assert 2 <= len(ticks) <= 9
    assert np.allclose(np.diff(ticks), ticks[1] - ticks[0])
    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= low + width - 1e-9


def test_the_reliability_diagram_shows_calibrated_probabilities_only_if_they_are_used() -> None:
    spec = charts.reliability(CALIBRATION).to_dict()
    shown = [row for data in spec["datasets"].values() for row in data if "stage" in row]
    assert {(row["stage"], row["documents"]) for row in shown} == {
        ("before calibration", 10),
        ("before calibration", 40),
        ("calibrated", 50),
    }
    left_alone = charts.reliability(replace(CALIBRATION, outcome="no-gain")).to_dict()
    stages = {row["stage"] for data in left_alone["datasets"].values() for row in data if "stage" in row}
    assert stages == {"before calibration"}
    with pytest.raises(InputError) as caught:
        charts.reliability(Calibration("few-grades", 3))
    assert caught.value.kind == "few-grades"
