"""The grid of relevance: quantiles, moments and refinement, and coverage of intervals with many judgments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from crowdrank import GDA, Aggregator, Rasch, read_judgments
from crowdrank._typing import Arrays, Floats
from crowdrank.consensus.latent import (
    MAX_NODES,
    N_NODES,
    NODES,
    PRIOR,
    document_estimates,
    example_on_nodes,
    node_prior,
    node_quantiles,
    node_statistics,
    refined_nodes,
    relevance_moments,
    standard_nodes,
)
from crowdrank.errors import ConvergenceWarning
from experiments.calibration import Drawn, draw_gda, draw_rasch


def normal_posterior(mean: float, sd: float, n_nodes: int = N_NODES) -> Floats:
    density = np.exp(-0.5 * ((standard_nodes(n_nodes) - mean) / sd) ** 2)
    return np.asarray(density / density.sum())[None]


@given(mean=st.floats(-1, 1), sd=st.floats(0.22, 0.6), level=st.floats(0.02, 0.98))
def test_quantiles_of_normal_posteriors(mean: float, sd: float, level: float) -> None:
    exact = norm(mean, sd).ppf(level)
    assert node_quantiles(normal_posterior(mean, sd), level)[0] == pytest.approx(exact, abs=0.08 * sd)


def test_quantiles_of_a_posterior_at_one_node_lie_within_a_step() -> None:
    step = NODES[1] - NODES[0]
    for node in (0, 10, N_NODES - 1):
        lower, upper = (node_quantiles(np.eye(N_NODES)[[node]], level)[0] for level in (0.025, 0.975))
        assert NODES[node] - step < lower < upper < NODES[node] + step


def test_moments_of_a_normal_posterior() -> None:
    rows = document_estimates(normal_posterior(0.3, 0.2), np.ones((1, N_NODES)), 0.95)
    assert rows["relevance"][0] == pytest.approx(0.3, abs=1e-3)
    assert rows["sd"][0] == pytest.approx(0.2, abs=2e-3)


def statistics_of(posterior: Floats) -> Arrays:
    return node_statistics(posterior, posterior.sum(axis=0), posterior.shape[1])


def test_the_prior_has_mean_0_and_sd_1_on_every_grid() -> None:
    for n_nodes in (N_NODES, 41, MAX_NODES):
        assert relevance_moments(statistics_of(np.tile(node_prior(n_nodes), (50, 1)))) == pytest.approx((0, 1))


def test_moments_are_those_of_the_documents() -> None:
    posterior = np.tile(normal_posterior(1.5, 0.3), (100, 1))
    assert relevance_moments(statistics_of(posterior)) == pytest.approx((1.43, 0.5), abs=0.1)


def test_the_grid_is_refined_until_it_resolves_the_posteriors() -> None:
    nodes = NODES
    for _ in range(10):
        nodes = refined_nodes(statistics_of(normal_posterior(0.1, 0.05, len(nodes))))
    assert len(nodes) == 161
    assert nodes[1] - nodes[0] < 1.5 * 0.05
    assert len(refined_nodes(statistics_of(PRIOR[None]))) == N_NODES
    certain = np.eye(MAX_NODES)[[300]]
    assert len(refined_nodes(statistics_of(certain))) == MAX_NODES


@pytest.mark.parametrize(("n_labels", "n_documents"), [(5, 1500), (17, 1000), (60, 600), (120, 600)])
@pytest.mark.parametrize(("cls", "draw"), [(GDA, draw_gda), (Rasch, draw_rasch)])
def test_intervals_cover_with_few_and_many_labels(
    cls: type[Aggregator], draw: Callable[..., Drawn], n_labels: int, n_documents: int
) -> None:
    world = draw(n_labels, seed=0, n_documents=n_documents)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = cls().fit(world.judgments)
    lower, upper, mean, sd = (
        model.consensus_.document_table[name].to_numpy() for name in ("lower", "upper", "relevance", "sd")
    )
    assert 0.93 <= ((lower <= world.relevance) & (world.relevance <= upper)).mean() <= 0.97
    total_variance = mean.var() + (sd**2).mean()
    assert total_variance == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("options", [{}, {"difficulty": True}, {"unjudgeable_as": "model"}, {"estimation": "joint"}])
def test_a_fine_grid_survives_saving_and_adding(options: dict[str, Any], tmp_path: Path) -> None:
    world = draw_gda(60, seed=0, n_documents=50)
    model = GDA(**options).fit(world.judgments)
    assert len(model.theta_["nodes"]) > N_NODES
    model.save(tmp_path / "model")
    loaded = GDA.load(tmp_path / "model")
    assert np.array_equal(loaded.theta_["nodes"], model.theta_["nodes"])
    assert loaded.posterior().shape[1] == 2 + len(model.theta_["nodes"])
    assert len(loaded.grade_curves(model.consensus_.assessor_table["assessor"][0].as_py())) == len(
        model.theta_["nodes"]
    )
    before = model.consensus_.document_table["relevance"].to_numpy()
    assert np.allclose(loaded.infer(world.judgments).document_table["relevance"], before, atol=1e-9)
    more = pa.table({"query": [0], "document": [0], "assessor": [-1], "grade": [4]})
    loaded.add(read_judgments(more, grades="0-4"), n_iter=2)
    assert loaded.consensus_.assessor_table["judgments"].to_pylist().count(1) == 1


def test_saved_nodes_must_be_those_of_a_grid() -> None:
    with pytest.raises(ValueError, match="grid"):
        example_on_nodes({}, NODES * 2)
    with pytest.raises(ValueError, match="grid"):
        example_on_nodes({}, np.zeros(3))
