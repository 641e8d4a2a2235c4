"""Output of models, comparisons and results in notebooks, and the scale of relevance that they state."""

from __future__ import annotations

import warnings
from html import unescape

import pandas as pd
import pytest

import crowdrank
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.latent import NODES
from crowdrank.errors import ConvergenceWarning


def test_objects_show_tables_and_ids_stay_text(hostile_ids: tuple[str, ...]) -> None:
    votes = pd.DataFrame(
        {
            "query": "q",
            "document": ["a", "b"] * 3,
            "assessor": [hostile_ids[0], hostile_ids[0], "y", "y", "z", "z"],
            "grade": [1, 0] * 3,
        }
    )
    model = crowdrank.DawidSkene()
    assert "not fitted yet" in model._repr_html_()
    model.fit(votes)
    world = crowdrank.simulate(queries=12, documents=6, random_state=1)
    runs = {hostile_ids[1]: world.gold.assign(score=1.0), "b": world.gold.assign(score=world.gold["grade"])}
    comparison = crowdrank.compare(runs, world.gold, "AP")
    result = crowdrank.run(world.judgments, world.features, candidates=["gls"])
    pages = [
        model._repr_html_(),
        model.consensus_._repr_html_(),
        comparison._repr_html_(),
        crowdrank.assess(model)._repr_html_(),
        result._repr_html_(),
        result.ranker._repr_html_(),
    ]
    for html in pages:
        assert "<table>" in html
        assert "<script" not in html
    assert "&lt;script&gt;" in pages[0]
    assert all(text in unescape(pages[4]) for text in result.summary)


@pytest.mark.parametrize("method", METHODS)
def test_models_show_two_tables(method: str) -> None:
    world = crowdrank.simulate(queries=6, documents=5, families=2, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        html = get_aggregator(method).fit(world.judgments)._repr_html_()
    assert html.count("<table>") == 2
    assert type(get_aggregator(method)).__name__ in html


def test_remappers_show_a_table() -> None:
    world = crowdrank.simulate(queries=24, documents=6, random_state=5)
    remapper = crowdrank.LinearRemapper(n_iter=2, ridge=0.1, tree_features=0)
    assert "not fitted yet" in remapper._repr_html_()
    html = remapper.fit(world.judgments, world.features, world.gold)._repr_html_()
    assert "on the validation queries" in html
    assert "<table>" in html


@pytest.mark.parametrize("method", METHODS)
def test_relevance_is_in_grades_or_on_a_line(method: str) -> None:
    world = crowdrank.simulate(queries=12, documents=6, families=2, honeypots=0, random_state=1)
    frame = world.judgments[["query", "document", "assessor", "family"]].assign(grade=world.judgments["grade"] + 10)
    model = get_aggregator(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(crowdrank.read_judgments(frame, grades="10,11,12,13,14"))
    relevance = model.consensus_.documents["relevance"]
    assert model.in_grades == (relevance.mean() > 5), "grades begin with 10, the mean on a line is 0"
    if model.answer_states() is not None:
        curves = model.grade_curves(frame["assessor"].iloc[0])
        assert len(curves) == (len(NODES) if model.assessor_estimator_.on_a_line else 5)
        assert (curves.filter(regex=r"^p\d").sum(axis=1) > 0.9).all()
