"""The experiment of the judging service, small: judges over HTTP, and the statistics of answers needed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from crowdrank._typing import Integers
from crowdrank.readers.read import read_judgments
from experiments import service
from experiments.answers_needed import Curves, answers_needed, draw_weights
from experiments.base import quiet
from experiments.judging_worlds import MAIN, SETTINGS, World, generated_world
from experiments.simulated_judging import Arm, simulate_judging

RANDOM = Arm("random", "random", 2)
STEERED = Arm("steered", "ndcg@10", 2, 60)


@pytest.fixture(scope="module")
def world() -> World:
    """Return 2 queries of 3 documents with the answers of 4 judges."""
    drawn = generated_world(0, 2, 3)
    judgments = read_judgments(drawn.judgments.where(drawn.judgments.assessor < 4).to_arrow(), grades="0-4")
    return replace(drawn, judgments=judgments)


def labels_per_document(world: World, rows: Integers) -> list[int]:
    counts: list[int] = np.bincount(world.judgments.item[rows], minlength=world.judgments.n_items).tolist()
    return counts


def test_random_order_gives_every_pair_an_answer_before_any_gets_two(world: World) -> None:
    rows, n = simulate_judging(world, RANDOM), world.judgments.n_items
    assert len(set(rows.tolist())) == len(rows) == 2 * n
    assert labels_per_document(world, rows[:n]) == [1] * n
    assert labels_per_document(world, rows) == [2] * n


def test_a_simulation_can_be_repeated(world: World) -> None:
    assert simulate_judging(world, STEERED).tolist() == simulate_judging(world, STEERED).tolist()


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_policy_with_a_model_judges_every_pair_and_then_what_it_wants(world: World, seconds: float) -> None:
    rows, n = simulate_judging(world, replace(STEERED, refit_seconds=seconds, labels=3)), world.judgments.n_items
    assert len(set(rows.tolist())) == len(rows) == 3 * n
    assert min(labels_per_document(world, rows)) >= 1


def test_settled_pairs_end_the_judging(world: World) -> None:
    rows = simulate_judging(world, replace(STEERED, refit_seconds=0, labels=4, settings={"settled": 0.3}))
    assert world.judgments.n_items <= len(rows) < 2 * world.judgments.n_items


def test_quality_grows_with_answers(world: World) -> None:
    everything = np.arange(len(world.judgments))
    assert np.nanmean(world.quality(everything)) > np.nanmean(world.quality(world.rows[:2, 0]))


def test_answers_needed_are_relative_to_what_the_baseline_needs() -> None:
    labels = [1.0, 2.0, 3.0, 4.0]
    means = {"s": [0.2, 0.4, 0.6, 0.6], "f": [0.2, 0.6, 0.7, 0.8], "x": [0.2, 0.3, 0.3, 0.3]}
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(3, 5, 1)) / 10  # the same for all runs, so that they cancel
    curves = {name: Curves(labels, queries + np.array(one)) for name, one in means.items()}
    needs = answers_needed(curves, "s", same_queries=False, resamples=50)
    assert needs["s"].labels == pytest.approx(3)  # the first of the equal values
    assert needs["f"].labels == pytest.approx(2)
    assert [needs["f"].ratio, needs["f"].lower, needs["f"].upper] == pytest.approx([2 / 3] * 3)
    assert needs["x"].ratio == np.inf
    assert service.describe_need("x", needs["x"]).startswith("x does not reach")


def test_curves_are_made_monotone_and_skip_queries_without_a_value() -> None:
    values = np.array([[[0.2, 0.6, 0.4], [np.nan] * 3]])
    curves = Curves([1.0, 2.0, 3.0], values)
    assert curves.raw_mean().tolist() == pytest.approx([0.2, 0.6, 0.4])
    assert curves.mean().tolist() == pytest.approx([0.2, 0.5, 0.5])
    assert curves.mean(np.array([[2.0, 5.0]])).tolist() == pytest.approx([0.2, 0.5, 0.5])


def test_the_bootstrap_draws_queries_once_if_seeds_share_them() -> None:
    weight = draw_weights(np.random.default_rng(1), (4, 6), same_queries=True)
    drawn = weight[weight.sum(axis=1) > 0]
    assert all(np.array_equal(row / row.sum(), drawn[0] / drawn[0].sum()) for row in drawn)
    assert draw_weights(np.random.default_rng(1), (4, 6), same_queries=False).sum() == 24


def test_the_experiment_has_three_tables_per_setting_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(SETTINGS["generated"], draw=lambda seed: generated_world(seed, 2, 3))
    monkeypatch.setitem(SETTINGS, "generated", small)
    for name, value in {
        "STEP": 0.5,
        "REPLAY_ROUNDS": 1,
        "answers_needed": partial(answers_needed, resamples=9),
    }.items():
        monkeypatch.setattr(service, name, value)
    arms = [service.BASELINE, service.STEERED, *service.REPLAYS]
    done = service.experiment(arms, only=["generated"], seeds=[0, 1], keep=tmp_path)
    assert [table.name for table in done.tables] == ["generated-needed", "generated-equal", "generated-curve"]
    needed, equal, curve = done.tables
    assert [row["run"] for row in needed.rows] == arms
    assert needed.row(service.BASELINE)["ratio"] == 1
    assert needed.row(service.BASELINE)["answers given"] == service.LABELS
    assert equal.comparison is not None
    assert equal.comparison.baseline == service.BASELINE
    assert len(equal.comparison.evaluations["random"].values(MAIN)) == 4  # queries of both seeds
    assert curve.row(service.BASELINE)["5"] > 0

    def fail(*arguments: object) -> None:
        raise AssertionError("the answers are stored")

    monkeypatch.setattr(service, "simulate_judging", fail)
    rows = service.answers_of(small.draw(0), service.BASELINE, tmp_path, quiet)
    assert len(rows) == service.LABELS * generated_world(0, 2, 3).judgments.n_items
