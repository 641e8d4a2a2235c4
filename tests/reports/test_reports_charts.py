"""Charts: valid specifications of our data, nothing dropped in silence, ids that stay text."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank.consensus.replay import trace
from crowdrank.errors import InputError, UsageError
from crowdrank.reports import charts
from crowdrank.reports.charts import theme
from crowdrank.reports.charts.assessors import agreement_of_families
from crowdrank.reports.charts.documents import relative_durations
from crowdrank.reports.formatting import plain_ids
from crowdrank.reports.report_data import ReportData

vl_convert = pytest.importorskip("vl_convert")

ids = st.lists(st.text(max_size=30), min_size=1, max_size=8)


def rows(chart: Any) -> list[dict[str, Any]]:
    """All rows of data in a chart, over its data sets."""
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


def texts(svg: str) -> list[str]:
    """The words of a drawn chart; that it can be read as XML is the first thing asserted."""
    tree = ET.fromstring(svg)
    tags = {element.tag.split("}")[1] for element in tree.iter()}
    assert not tags & {"script", "foreignObject", "a", "image", "style"}
    assert not [name for element in tree.iter() for name in element.attrib if name.lower().startswith("on")]
    return ["".join(element.itertext()) for element in tree.iter() if element.tag.endswith("text")]


def test_every_chart_is_drawn_from_a_run(found: ReportData) -> None:
    model = found.model
    assert model is not None
    assert found.per_query is not None
    remapping = found.remapping
    steps = trace(model, model.judgments_, found.documents["document"][0], found.documents["query"][0])
    hard = crowdrank.GDA(difficulty=True, n_iter=5, tol=1.0).fit(model.judgments_).consensus_.documents
    assert "duration" in model.judgments_.extras
    judged = crowdrank.read_judgments(crowdrank.simulate(queries=8, documents=5, families=3, random_state=1).judgments)
    drawn = {
        "informativeness": charts.informativeness(found.assessors),
        "informativeness_by_agreement": charts.informativeness_by_agreement(found.assessors),
        "grade_curves": charts.grade_curves(model, found.assessors["assessor"].head(4).tolist()),
        "confusion": charts.confusion([0, 1, 2, 2], [0, 1, 1, 2]),
        "family_agreement": charts.family_agreement(judged),
        "relevance_intervals": charts.relevance_intervals(found.documents, found.documents["query"][0]),
        "uncertainty": charts.uncertainty(found.documents),
        "difficulty_by_relevance": charts.difficulty_by_relevance(hard),
        "difficulty_by_duration": charts.difficulty_by_duration(hard, model.judgments_),
        "document_trace": charts.document_trace(steps),
        "convergence": charts.convergence(model),
        "ranker_comparison": charts.ranker_comparison(found.details, chosen=found.chosen, baseline=found.baseline),
        "differences_by_query": charts.differences_by_query(found.per_query, "gls", "majority", found.measure),
        "quality_by_cost": charts.quality_by_cost(
            pd.DataFrame(
                {"cost": [1, 2], "AP": [0.1, 0.3], "lower": [0.0, 0.2], "upper": [0.2, 0.4], "way": ["a", "a"]}
            ),
            quality="AP",
            of="way",
        ),
        "learned_by_grade": charts.learned_by_grade(remapping),
        "learned_by_feature": charts.learned_by_feature(remapping, "ability"),
        "importance_of_features": charts.importance_of_features(remapping),
    }
    assert set(drawn) == set(charts.__all__)
    for name, chart in drawn.items():
        words = texts(vl_convert.vegalite_to_svg(chart.to_dict()))
        assert any(any(sign.isdigit() for sign in word) for word in words), f"{name} has no axis with numbers"
        assert chart.to_dict()["title"]["text"] in words, name


def test_colors_are_okabe_and_ito() -> None:
    known = {"#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442"}
    assert {*theme.FLAGS.values(), *theme.GRADES} <= known | {theme.GREY}


def test_many_points_are_counted_not_dropped() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    many = pd.DataFrame({"document": np.arange(n), "relevance": rng.normal(size=n), "difficulty": rng.gamma(2, size=n)})
    chart = charts.difficulty_by_relevance(many)
    assert sum(row["count"] for row in rows(chart)) == n
    assert "100,000 documents" in chart.to_dict()["title"]["subtitle"][0]
    told = pd.DataFrame(
        {
            "assessor": np.arange(n).astype(str),
            "judgments": 10,
            "informativeness": rng.gamma(2, 0.2, size=n),
            "flag": rng.choice(["", "careful", "random"], size=n),
            "gold_accuracy": rng.uniform(size=n),
        }
    )
    assert sum(row.get("assessors", 0) for row in rows(charts.informativeness(told))) == n
    assert sum(row["count"] for row in rows(charts.informativeness_by_agreement(told))) == n
    width = pd.DataFrame({"lower": np.zeros(n), "upper": rng.gamma(2, size=n)})
    assert sum(row["count"] for row in rows(charts.uncertainty(width))) == n
    queries = pd.DataFrame(
        {"run": np.repeat(["a", "b"], 500), "query": np.tile(np.arange(500), 2), "AP": rng.random(1000)}
    )
    assert sum(row["count"] for row in rows(charts.differences_by_query(queries, "a", "b"))) == 500
    for one in (chart, charts.informativeness(told), charts.informativeness_by_agreement(told)):
        assert len(json.dumps(one.to_dict())) < 200_000


def test_documents_of_a_large_query_are_thinned_and_it_is_said() -> None:
    n = 500
    frame = pd.DataFrame({"query": "q", "document": np.arange(n), "relevance": np.arange(n) / n, "judgments": 1})
    chart = charts.relevance_intervals(frame.assign(lower=frame["relevance"] - 1, upper=frame["relevance"] + 1))
    assert len(rows(chart)) <= 60
    assert "1 in 9 of 500 documents" in chart.to_dict()["title"]["subtitle"][0]


@settings(max_examples=25)
@given(ids)
def test_ids_are_data_and_stay_apart(names: list[str]) -> None:
    frame = pd.DataFrame(
        {"query": "q", "document": names, "relevance": 0.5, "lower": 0.0, "upper": 1.0, "judgments": 1}
    )
    shown = [row["document"] for row in rows(charts.relevance_intervals(frame))]
    assert len(set(shown)) == len(names)
    assert shown == plain_ids(names, 28)


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
        assert any(word.startswith(plain_ids([name], 24)[0]) for word in words)


def test_agreement_of_families_equals_counting_pairs() -> None:
    world = crowdrank.simulate(queries=6, documents=5, families=3, random_state=4)
    judged = crowdrank.read_judgments(world.judgments)
    same, pairs, names = agreement_of_families(judged)
    frame = judged.frame.merge(world.judgments[["assessor", "family"]].drop_duplicates(), on="assessor")
    frame = frame.drop(columns="family_x", errors="ignore").rename(columns={"family_y": "family"})
    seen: dict[tuple[str, str], list[bool]] = {}
    for _, of in frame.groupby(["query", "document"]):
        told = of[["family", "grade"]].to_numpy().tolist()
        for at, (family, grade) in enumerate(told):
            for other, another in told[:at]:
                for key in {(family, other), (other, family)}:
                    seen.setdefault(key, []).append(grade == another)
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            assert pairs[i, j] == len(seen[first, second])
            assert same[i, j] == sum(seen[first, second])


def test_bad_input_is_a_sentence(found: ReportData) -> None:
    assert found.model is not None
    with pytest.raises(InputError, match="lacks the column 'flag'"):
        charts.informativeness(pd.DataFrame({"informativeness": [1.0]}))
    with pytest.raises(UsageError, match="say of which one"):
        charts.relevance_intervals(found.documents)
    with pytest.raises(InputError, match="no document of query 'nowhere'"):
        charts.relevance_intervals(found.documents, "nowhere")
    with pytest.raises(UsageError) as caught:
        charts.grade_curves(found.model, [])
    assert caught.value.parameter == "assessors"
    with pytest.raises(UsageError) as caught:
        charts.informativeness(found.assessors, "queries")
    assert caught.value.parameter == "count"
    with pytest.raises(UsageError) as caught:
        charts.difficulty_by_duration(found.documents, replace(found.model.judgments_, extras={}))
    assert caught.value.kind == "no-durations"
    with pytest.raises(UsageError, match="name no families"):
        charts.family_agreement(found.model.judgments_)
    with pytest.raises(InputError, match="no ranker 'x'"):
        charts.differences_by_query(found.per_query, "x", "majority")
    with pytest.raises(InputError, match="label feature 'x'"):
        charts.learned_by_feature(found.remapping, "x")
    with pytest.raises(UsageError, match="no column to plot informativeness against"):
        charts.informativeness_by_agreement(found.assessors[["assessor", "judgments", "informativeness", "flag"]])


def test_judgments_are_counted_by_the_informativeness_of_their_assessors(found: ReportData) -> None:
    shown = rows(charts.informativeness(found.assessors, "judgments"))
    assert sum(row.get("judgments", 0) for row in shown) == found.assessors["judgments"].sum()


def test_agreement_with_experts_is_kendalls_tau(found: ReportData) -> None:
    spec = charts.informativeness_by_agreement(found.assessors).to_dict()
    assert spec["encoding"]["x"]["title"] == "Kendall's tau with expert grades"
    points = {row["assessor"]: row["value"] for row in rows(charts.informativeness_by_agreement(found.assessors))}
    expected = found.assessors.set_index("assessor")["gold_tau"]
    assert points == pytest.approx(expected[list(points)].to_dict())


def gaussians(model: Any, assessor: Any) -> pd.DataFrame:
    """Three Gaussians in place of the model's own."""
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


def test_durations_are_relative_to_the_assessors_own() -> None:
    frame = pd.DataFrame(
        {"document": ["a", "b", "c"] * 2, "assessor": ["fast"] * 3 + ["slow"] * 3, "grade": [0, 1, 1] * 2}
    )
    judgments = crowdrank.read_judgments(frame.assign(duration=[1, 2, 4, 10, 20, 40]))
    documents = pd.DataFrame({"query": "all", "document": ["c", "a", "x"]})
    assert relative_durations(judgments, documents).tolist()[:2] == [2, 0.5]
    assert np.isnan(relative_durations(judgments, documents)[2])


def test_frames_of_other_libraries_are_taken(found: ReportData) -> None:
    polars = pytest.importorskip("polars")
    ours = charts.informativeness(found.assessors).to_dict()["datasets"]
    assert charts.informativeness(polars.from_pandas(found.assessors)).to_dict()["datasets"] == ours


def test_remappers_show_their_convergence() -> None:
    world = crowdrank.simulate(queries=24, documents=6, random_state=5)
    remapper = crowdrank.LinearRemapper(n_iter=3, ridge=0.1).fit(world.judgments, world.features, world.gold)
    told = rows(charts.convergence(remapper))
    assert {row["on"] for row in told} == {"training", "validation"}
    charts.learned_by_feature(remapper.dependence("label"), "label").to_dict()


@given(st.floats(-2, 2), st.floats(0, 3))
def test_ticks_are_even_have_0_and_reach_both_ends(low: float, width: float) -> None:
    ticks = theme.even_ticks(low, low + width)
    assert 0.0 in ticks
    assert 2 <= len(ticks) <= 9
    assert np.allclose(np.diff(ticks), ticks[1] - ticks[0])
    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= low + width - 1e-9
