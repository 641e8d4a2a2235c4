"""A document's judgments one by one."""

from __future__ import annotations

import numpy as np
import pytest

from crowdrank import DawidSkene, read_judgments, simulate
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.trace import trace
from crowdrank.errors import InputError


@pytest.mark.parametrize("method", METHODS)
def test_the_last_step_is_what_the_fit_says(method: str) -> None:
    world = simulate(queries=8, documents=6, labels=5, random_state=2)
    judgments = read_judgments(world.judgments)
    model = get_aggregator(method).fit(judgments)
    steps = trace(model, judgments, "1-2")
    fitted = model.consensus_.documents.set_index("document").loc["1-2"]
    assert len(steps) == fitted["judgments"]
    last, by_query = steps.to_pylist()[-1], model.assessor_estimator_.locality == "query"
    assert last["relevance"] == pytest.approx(fitted["relevance"], abs=1e-3 if by_query else 1e-6)
    assert last["grade"] == fitted["grade"]
    assert sorted(steps["assessor"].to_pylist()) == sorted(
        world.judgments.query("document == '1-2'")["assessor"].tolist()
    )


def test_steps_follow_the_time() -> None:
    world = simulate(queries=8, documents=6, labels=5, random_state=2)
    judgments = read_judgments(world.judgments)
    steps = trace(DawidSkene().fit(judgments), judgments, "1-2")
    mine = world.judgments.query("document == '1-2'").sort_values("time")
    assert steps["assessor"].to_pylist() == mine["assessor"].tolist()
    assert steps["given"].to_pylist() == mine["grade"].tolist()


def test_more_judgments_are_surer_on_average() -> None:
    world = simulate(queries=8, documents=6, labels=7, random_state=2)
    judgments = read_judgments(world.judgments)
    model = get_aggregator("gda").fit(judgments)
    sds = [trace(model, judgments, f"{query}-{n}")["sd"].to_numpy() for query in range(1, 6) for n in (1, 2, 3)]
    assert np.mean([sd[-1] for sd in sds]) < np.mean([sd[0] for sd in sds])


def test_unknown_and_ambiguous_documents_are_refused() -> None:
    world = simulate(queries=3, documents=4, random_state=2)
    frame = world.judgments.assign(document=world.judgments["document"].str.split("-").str[1])
    judgments = read_judgments(frame)
    model = DawidSkene(n_iter=200).fit(judgments)
    with pytest.raises(InputError) as unknown:
        trace(model, judgments, "nothing")
    assert unknown.value.kind == "unknown-document"
    with pytest.raises(InputError) as ambiguous:
        trace(model, judgments, str(frame["document"].mode()[0]))
    assert ambiguous.value.kind == "ambiguous-document"
    assert ambiguous.value.fixes[0].parameter == "query"
    assert len(trace(model, judgments, str(frame["document"].mode()[0]), "1")) > 0


def test_a_model_of_pairs_compares_with_the_other_documents() -> None:
    world = simulate(queries=8, documents=6, labels=5, random_state=2)
    judgments = read_judgments(world.judgments)
    model = get_aggregator("gda-pairwise").fit(judgments)
    steps = trace(model, judgments, "1-2")
    assert (steps["sd"].to_numpy() < 0.99).all()
    assert len(set(steps["relevance"].to_pylist())) == len(steps)
    posterior = model.posterior()
    nodes = posterior.columns[2:].to_numpy(float)
    mean = posterior.iloc[:, 2:].to_numpy() @ nodes
    assert mean == pytest.approx(model.consensus_.documents["relevance"].to_numpy(), abs=0.03)
