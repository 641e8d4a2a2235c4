"""Threshold confusion against a slow reference with the coefficients of the paper, and on public data."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from crowdrank import Average, Judgments, ThresholdDawidSkene, read_judgments, simulate
from crowdrank.consensus.threshold_dawid_skene import answer_probabilities, learn_prior, newton_step, threshold_features
from crowdrank.errors import UsageError
from crowdrank.readers.datasets import dataset
from crowdrank.testing.robustness_checks import GradeWorld, short_task_world, tau_a
from experiments import rf10, web5
from experiments.base import choose, compared, fit_all


def labels(seed: int = 0, items: int = 50, assessors: int = 6, grades: int = 4, share: float = 0.7) -> pd.DataFrame:
    """Return grades that are off by up to two steps."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, grades, items)
    item, assessor = np.nonzero(rng.random((items, assessors)) < share)
    error = rng.choice([-2, -1, 0, 1, 2], len(item), p=[0.05, 0.15, 0.6, 0.15, 0.05])
    grade = np.clip(truth[item] + error, 0, grades - 1)
    return pd.DataFrame({"document": item, "assessor": assessor, "grade": grade})


def paper_features(grades: int) -> NDArray[np.float64]:
    """Return the four indicators per threshold of Zhou et al., as [true grade, answer, feature]."""
    reaches = np.arange(grades)[:, None] >= np.arange(1, grades)
    both = [np.stack([reaches == b for b in (False, True)], axis=2)] * 2
    features = both[0][:, None, :, :, None] & both[1][None, :, :, None, :]
    return np.asarray(features.reshape(grades, grades, -1), np.float64)


def reference_fit(frame: pd.DataFrame, grades: int, penalty: float, n_iter: int) -> NDArray[np.float64]:
    """Return the posterior of EM whose M-step maximizes the penalized likelihood numerically, from the vote shares."""
    item, assessor, grade = (frame[name].to_numpy() for name in ("document", "assessor", "grade"))
    features, n = paper_features(grades), assessor.max() + 1
    posterior = np.zeros((item.max() + 1, grades))
    np.add.at(posterior, (item, grade), 1.0)
    posterior /= posterior.sum(axis=1, keepdims=True)
    sigma = np.zeros(n * features.shape[2])
    for _ in range(n_iter):
        counts = np.zeros((n, grades, grades))
        np.add.at(counts.transpose(0, 2, 1), (assessor, grade), posterior[item])

        def loss(flat: NDArray[np.float64], counts: NDArray[np.float64] = counts) -> tuple[float, NDArray[np.float64]]:
            scores = np.einsum("tgk,ak->atg", features, flat.reshape(n, -1))
            value = -(counts * log_softmax(scores, axis=2)).sum() + 0.5 * penalty * (flat**2).sum()
            residual = counts.sum(axis=2, keepdims=True) * softmax(scores, axis=2) - counts
            return float(value), np.einsum("atg,tgk->ak", residual, features).ravel() + penalty * flat

        sigma = minimize(loss, sigma, jac=True, method="L-BFGS-B", options={"maxiter": 500, "gtol": 1e-9}).x
        logs = log_softmax(np.einsum("tgk,ak->atg", features, sigma.reshape(n, -1)), axis=2)
        scores = np.zeros_like(posterior)
        np.add.at(scores, item, logs[assessor, :, grade])
        posterior = softmax(scores, axis=1)
    return posterior


def fit(frame: pd.DataFrame | Judgments, **parameters: object) -> ThresholdDawidSkene:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ThresholdDawidSkene(**parameters).fit(frame)  # type: ignore[arg-type]


def probabilities(model: ThresholdDawidSkene) -> NDArray[np.float64]:
    table = model.consensus_.documents
    shares: NDArray[np.float64] = table[model.consensus_.true_share_names].to_numpy()
    return shares


@pytest.mark.parametrize("grades", [2, 3, 5])
def test_a_fixed_penalty_is_the_model_of_the_paper(grades: int) -> None:
    frame = labels(grades=grades)
    model = fit(frame, prior=0.5, grade_prior="uniform", n_iter=300, tol=0)
    expected = reference_fit(frame, grades, penalty=0.5 * grades**2, n_iter=60)
    assert np.abs(probabilities(model) - expected).max() < 1e-4


@pytest.mark.parametrize("unjudgeable", [False, True])
def test_newton_steps_reach_the_maximum_and_return_the_laplace_covariance(unjudgeable: bool) -> None:
    rng = np.random.default_rng(1)
    counts = rng.poisson(3.0, (3, 4, 4)).astype(float)
    mean, precision = rng.normal(size=6), np.diag(rng.uniform(0.5, 2.0, 6))
    features = threshold_features(4, unjudgeable)

    def log_posterior(coefficients: NDArray[np.float64], assessor: int) -> float:
        off = coefficients - mean
        logs = np.log(answer_probabilities(coefficients[None], features)[0])
        return float((counts[assessor] * logs).sum() - 0.5 * off @ precision @ off)

    coefficients = np.zeros((3, 6))
    for _ in range(20):
        coefficients, covariance = newton_step(counts, coefficients, features, mean, precision)
    step, hessians = 1e-3 * np.eye(6), []
    for assessor, best in enumerate(coefficients):
        top = log_posterior(best, assessor)
        assert all(log_posterior(best + side, assessor) < top for side in (*step, *-step))
        second = [
            [
                log_posterior(best + a + b, assessor) - log_posterior(best + a - b, assessor)
                - log_posterior(best - a + b, assessor) + log_posterior(best - a - b, assessor)
                for b in step
            ]
            for a in step
        ]  # fmt: skip
        hessians.append(-np.array(second) / (4 * 1e-6))
    assert np.allclose(np.linalg.inv(hessians).sum(axis=0), covariance[0], atol=1e-4)


def test_log_odds_of_neighboring_answers_take_two_values_per_threshold() -> None:
    coefficients = np.array([[-1.0, 2.0, -0.5, 0.3]])
    logs = np.log(answer_probabilities(coefficients, threshold_features(3))[0])
    assert np.allclose(np.diff(logs, axis=0), [[-1.0, 2.0, 2.0], [-0.5, -0.5, 0.3]])
    assert threshold_features(3).sum() == 9


def test_many_assessors_are_updated_in_blocks_and_threads_alike() -> None:
    counts = np.random.default_rng(0).poisson(2.0, (3_000, 3, 3)).astype(float)
    start, prior = np.zeros((3_000, 4)), (threshold_features(3), np.zeros(4), np.eye(4))
    one, other = (newton_step(counts, start, *prior, n_jobs) for n_jobs in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    alone, _ = newton_step(counts[-1:], start[-1:], *prior)
    assert np.allclose(one[0][-1:], alone)


def test_copies_in_a_family_count_as_one_assessor() -> None:
    frame = labels().assign(family=None)
    copied = [frame[frame["assessor"] == 0].assign(assessor=100 + copy) for copy in range(4)]
    family = pd.concat([frame, *copied])
    family.loc[family["assessor"].isin([0, 100, 101, 102, 103]), "family"] = "copies"
    alone, together = (fit(table, prior=1.0, n_iter=200, tol=0) for table in (frame, family))
    assert np.abs(probabilities(alone) - probabilities(together)).max() < 1e-9
    independent = fit(family, prior=1.0, families="none")
    assert np.abs(probabilities(alone) - probabilities(independent)).max() > 0.05


def test_detected_families_are_shown_and_used() -> None:
    world = simulate(queries=30, documents=20, assessors=12, labels=12, families=2, random_state=1)
    judgments = read_judgments(world.judgments)
    plain = replace(judgments, families=None, assessor_family=None)
    independent, detected = fit(plain), fit(plain, families="found")
    assert detected.consensus_.assessors["family"].notna().any()
    assert np.abs(probabilities(independent) - probabilities(detected)).max() > 0.05


def test_the_shape_of_confusions_is_learned_from_long_tasks_only() -> None:
    """What all assessors share is learned from few labels: how strict and how sharp they are."""
    rng, mean, sd = np.random.default_rng(0), np.tile([-1.0, 1.0], 3), np.full(6, 0.7)
    spread, n = np.zeros((2, 6, 6)), 200
    shape = np.array([1.0, 1.0, -2.0, -2.0, 1.0, 1.0]) / np.sqrt(12)  # neither a constant nor a factor of the mean
    directions = {"strict": np.ones(6) / np.sqrt(6), "sharp": mean / np.sqrt(6), "shape": shape}
    for name, direction in directions.items():
        coefficients = mean + rng.normal(0, 3.0, (n, 1)) * direction
        few, many = (
            direction @ learn_prior(coefficients, spread, np.stack([np.ones(n), long]), mean, sd, 6)[1] @ direction
            for long in (np.zeros(n), np.ones(n))
        )
        assert many > 5.0
        assert (few > 5.0) == (name != "shape")


def test_short_tasks_do_not_lose_to_the_average() -> None:
    for seed in range(3):
        frame, relevance = short_task_world(4, 4, 3, seed)
        taus = []
        for model in (Average(), ThresholdDawidSkene()):
            table = model.fit(frame).consensus_.documents
            taus.append(tau_a(table["relevance"].to_numpy(), relevance[table["document"].str[1:].astype(int)]))
        assert model.converged_
        assert taus[1] > taus[0]


def test_expert_grades_are_certain() -> None:
    frame = labels()
    gold = pd.DataFrame({"document": [0, 1], "grade": [3, 0]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = ThresholdDawidSkene().fit(read_judgments(frame), gold).consensus_.documents.set_index("document")
    assert table.loc[[0, 1], "grade"].tolist() == [3, 0]
    assert table.loc[[0, 1], "sd"].tolist() == [0.0, 0.0]


def test_a_new_assessor_starts_at_the_prior_mean() -> None:
    model = fit(labels())
    model.add(pd.DataFrame({"document": [0], "assessor": [99], "grade": [3]}), n_iter=0)
    assert np.array_equal(model.theta_["coefficients"][-1], model.theta_["mean"])


def broken_links(items: int = 50) -> Judgments:
    """Return labels of which the documents 0-9 are broken: assessor 0 does not notice and answers 0."""
    frame = labels(items=items)
    answer = np.where(frame["assessor"] == 0, 0, -2)
    return read_judgments(frame.assign(grade=np.where(frame["document"] < 10, answer, frame["grade"])), unjudgeable=-2)


def test_documents_that_cannot_be_judged_have_a_state_of_their_own() -> None:
    model = fit(broken_links(), unjudgeable_as="model")
    table = model.consensus_.documents.set_index("document")
    noticed = broken_links().frame.query("document < 10 and assessor > 0")["document"].unique()
    assert (table.loc[noticed, "unjudgeable"] > 0.9).all()
    assert (table.loc[noticed, "grade"] == 0).all()
    assert (table.loc[10:, "unjudgeable"] < 0.1).all()
    assert np.allclose(probabilities(model).sum(axis=1), 1.0)
    answers = model.theta_["likelihood"]  # [assessor, answer, state]
    assert answers[0, -1, -1] < 0.5 < answers[1:, -1, -1].min()
    assert "says_4_if_4" not in model.consensus_.assessors
    assert model.grade_curves().shape == (6 * 4, 2 + 4)


def test_a_uniform_prior_of_grades_leaves_the_share_of_unjudgeable_documents_learned() -> None:
    shares = fit(broken_links(items=20), unjudgeable_as="model", grade_prior="uniform").theta_["shares"]
    assert np.allclose(shares[:-1], shares[0])
    assert np.isclose(shares[-1], 0.5, atol=0.1)


def test_a_modeled_answer_that_nobody_gave_changes_little() -> None:
    plain, modeled = (probabilities(fit(labels(), unjudgeable_as=way)) for way in ("lowest", "model"))
    assert np.abs(plain - modeled).mean() < 0.05


def test_a_fit_does_not_start_from_one_with_other_states() -> None:
    judgments = broken_links()
    first = fit(judgments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ThresholdDawidSkene(unjudgeable_as="model").fit(judgments, init=first)
    assert model.theta_["likelihood"].shape[1:] == (5, 5)
    assert np.array_equal(probabilities(model), probabilities(fit(judgments, unjudgeable_as="model")))


def test_the_learned_grade_prior_is_the_mean_posterior() -> None:
    model = fit(labels(), tol=1e-9, n_iter=1_000)
    assert np.allclose(model.theta_["shares"], probabilities(model).mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("grade", range(5))
def test_unanimous_answers_are_the_grade_whatever_the_scale(grade: int) -> None:
    judgments = read_judgments(labels(grades=5).assign(grade=grade), grades="0-4")
    assert (fit(judgments).consensus_.document_table.to_pandas()["grade"] == grade).all()


def test_answers_that_nobody_gave_leave_one_threshold_between_the_others() -> None:
    judgments, truth = GradeWorld((0, 3), (0.5, 0.5), 0.3).draw(0)
    model = fit(judgments)
    likelihood = model.theta_["likelihood"]
    assert (likelihood[:, [1, 2, 4]] < 1e-9).all()
    assert np.allclose(likelihood.sum(axis=1), 1)
    assert (likelihood[:, 0, 0] > 0.5).all()
    assert (likelihood[:, 3, 3] > 0.5).all()
    documents = model.consensus_.document_table.to_pandas().sort_values("document")
    assert np.mean(documents["grade"] == truth) > 0.8
    more = pd.DataFrame({"query": "q", "document": "new", "assessor": ["x", "y"], "grade": 0})
    assert model.infer(read_judgments(more, grades="0-4")).document_table["true0"].to_pylist()[0] > 0.6


@pytest.mark.parametrize("parameters", [{"prior": 0}, {"prior": "flat"}, {"grade_prior": "flat"}, {"families": "x"}])
def test_invalid_parameters_are_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        fit(labels(), **parameters)
    assert caught.value.kind == "invalid-parameter"


@pytest.mark.data
def test_five_grades_beat_dawid_skene_and_the_penalty_reaches_the_published_figures() -> None:
    experiment = web5.experiment(["dawid-skene", "threshold-dawid-skene"])
    whole, three = (
        {row["run"]: [row[name] for name in ("AccuracyByMode", "MAEByMedian", "TauB")] for row in table.rows}
        for table in (experiment.table("crowd"), experiment.table("equal-count"))
    )
    worst = {
        "threshold-dawid-skene": [(0.849, 0.178, 0.846), (0.71, 0.375, 0.746)],
        "threshold-penalty": [(0.895, 0.12, 0.863), (0.715, 0.375, 0.746)],
    }
    for run, floors in worst.items():
        for table, (accuracy, error, tau) in zip((whole, three), floors, strict=True):
            assert table[run][0] > accuracy
            assert table[run][1] < error
            assert table[run][2] > tau
    assert whole["threshold-dawid-skene"][1] < whole["dawid-skene"][1]
    assert whole["threshold-dawid-skene"][2] > whole["dawid-skene"][2]
    assert three["threshold-dawid-skene"][0] > three["dawid-skene"][0] + 0.05


@pytest.mark.data
def test_on_three_grades_it_is_as_good_as_dawid_skene() -> None:
    data, runs = dataset("trec-rf10"), ["dawid-skene", "threshold-dawid-skene"]
    chosen = choose(runs, {"unjudgeable": ("threshold-dawid-skene", {"unjudgeable_as": "model"})})
    fits = fit_all(chosen, data.read_judgments(), on="the crowd")
    table = compared("crowd", "RF10", fits, data.read_gold().frame, rf10.MEASURES, baseline=runs[0])
    ours, plain, modeled = (table.row(run) for run in ("threshold-dawid-skene", "dawid-skene", "unjudgeable"))
    assert all(ours[measure] > plain[measure] - 0.002 for measure in rf10.MEASURES)
    assert modeled["Tau"] > ours["Tau"] + 0.02
