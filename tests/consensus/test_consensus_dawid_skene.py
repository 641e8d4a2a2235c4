"""Dawid-Skene against crowd-kit, against a slow reference, and on RF10."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank import Average, DawidSkene, Judgments, MajorityVote, OneCoinDawidSkene, evaluate, read_judgments
from crowdrank.consensus import e_step_kernels
from crowdrank.consensus.dawid_skene import (
    WEAK_PSEUDO_COUNTS,
    confusions,
    digamma,
    dirichlet_step,
    learn_pseudo_counts,
    prior_matrix,
)
from crowdrank.errors import ConvergenceWarning, UsageError
from crowdrank.readers.datasets import dataset


def random_labels(seed: int, items: int = 40, assessors: int = 7, grades: int = 4, share: float = 0.5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, grades, items)
    item, assessor = np.nonzero(rng.random((items, assessors)) < share)
    right = rng.random(len(item)) < np.linspace(0.3, 0.95, assessors)[assessor]
    grade = np.where(right, truth[item], rng.integers(0, grades, len(item)))
    return pd.DataFrame({"task": item, "worker": assessor, "label": grade})


def largest_gap(frame: pd.DataFrame, iterations: int) -> float:
    crowdkit = pytest.importorskip("crowdkit.aggregation")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = DawidSkene(prior=0, n_iter=iterations, tol=0).fit_predict_proba(frame)
        theirs = crowdkit.DawidSkene(n_iter=iterations, tol=-1).fit_predict_proba(frame)
    return float(np.abs(ours.to_numpy() - theirs.loc[ours.index, ours.columns].to_numpy()).max())


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), grades=st.integers(2, 5), iterations=st.integers(1, 20))
def test_without_a_prior_it_is_crowd_kit(seed: int, grades: int, iterations: int) -> None:
    assert largest_gap(random_labels(seed, grades=grades), iterations) < 1e-9


@pytest.mark.data
@pytest.mark.parametrize("iterations", [1, 10])
def test_without_a_prior_it_is_crowd_kit_on_rf10(rf10: Judgments, iterations: int) -> None:
    frame = rf10.with_unjudgeable("lowest").frame
    task = frame["query"] + "|" + frame["document"]
    assert (
        largest_gap(pd.DataFrame({"task": task, "worker": frame["assessor"], "label": frame["grade"]}), iterations)
        < 1e-9
    )


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), grades=st.integers(2, 5))
def test_one_coin_is_crowd_kit_too(seed: int, grades: int) -> None:
    crowdkit = pytest.importorskip("crowdkit.aggregation")
    frame = random_labels(seed, grades=grades)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = OneCoinDawidSkene(prior=0, n_iter=5, tol=0).fit_predict_proba(frame)
        theirs = crowdkit.OneCoinDawidSkene(n_iter=5, tol=-1).fit_predict_proba(frame)
    assert np.abs(ours.to_numpy() - theirs.loc[ours.index, ours.columns].to_numpy()).max() < 1e-8


def expect_twin(
    item: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    gold: NDArray[np.int8],
    shares: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """The E-step and its counts in logarithms, with no thought of speed."""
    n_grades = len(shares)
    logs = np.tile(np.log(shares), (len(gold), 1))
    np.add.at(logs, item, np.log(likelihood[assessor, grade]))
    highest = logs.max(axis=1, keepdims=True)
    norm = highest[:, 0] + np.log(np.exp(logs - highest).sum(axis=1))
    posterior = np.exp(logs - norm[:, None])
    known = gold >= 0
    total = norm[~known].sum() + logs[known, gold[known]].sum()
    posterior[known] = np.eye(n_grades)[gold[known]]
    counts = np.zeros_like(likelihood)
    np.add.at(counts, (assessor, grade), posterior[item])
    return posterior, counts, float(total)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), per_item=st.sampled_from([1, 5, 8, 9, 400]))
def test_the_kernel_equals_its_twin_also_where_products_underflow(seed: int, per_item: int) -> None:
    rng = np.random.default_rng(seed)
    items, assessors, n_grades = 4, 50, 3
    offsets = np.arange(items + 1) * per_item
    item = np.repeat(np.arange(items), per_item)
    assessor = rng.integers(0, assessors, len(item)).astype(np.int32)
    grade = rng.integers(0, n_grades, len(item)).astype(np.int8)
    gold = np.array([-1, 2, -1, -1], np.int8)
    likelihood = rng.dirichlet(np.full(n_grades, 0.3), (assessors, n_grades)).transpose(0, 2, 1).clip(1e-10)
    shares = rng.dirichlet(np.ones(n_grades))
    posterior, counts = np.empty((items, n_grades)), np.zeros((assessors, n_grades, n_grades))
    classes = np.zeros(n_grades)
    total = e_step_kernels.make_e_step_kernel(n_grades)(
        offsets,
        assessor,
        grade,
        gold,
        n_grades,
        shares,
        likelihood.ravel(),
        np.eye(n_grades).ravel(),
        posterior.ravel(),
        counts.ravel(),
        classes,
    )
    twin_posterior, twin_counts, twin_total = expect_twin(item, assessor, grade, gold, shares, likelihood)
    assert np.allclose(posterior, twin_posterior, atol=1e-12)
    assert np.allclose(counts, twin_counts, atol=1e-9)
    assert np.allclose(classes, twin_posterior.sum(axis=0), atol=1e-9)
    # The likelihood of a known item is cut off at 1e-290, far below what matters.
    assert total == pytest.approx(twin_total, rel=1e-9) or per_item == 400


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), strength=st.sampled_from([0.0, 0.5]))
def test_confusions_equal_their_twin(seed: int, strength: float) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.gamma(0.3, 1.0, (6, 4, 4)) * rng.integers(0, 2, (6, 4, 1))
    counts[:, 0, 0] += 0.1
    pseudo = np.full((4, 4), strength)
    raised = counts + pseudo
    if not strength:
        raised = np.where(counts.sum(axis=2, keepdims=True) > 0, np.maximum(counts, 1e-10), 0.0)
    reference = raised / raised.sum(axis=1, keepdims=True)
    assert np.allclose(confusions(counts, pseudo, 1e-10), reference, rtol=1e-12, atol=0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("cls", [DawidSkene, OneCoinDawidSkene])
def test_every_iteration_raises_the_objective(cls: type[DawidSkene], seed: int) -> None:
    model = cls(n_iter=200, prior=(1.0, 0.1)).fit(random_labels(seed))
    assert (np.diff(model.history_) > -1e-9).all()


def test_flipping_an_adversary_flips_its_confusions_and_nothing_else() -> None:
    frame = random_labels(3, items=200, grades=2, share=0.9)
    flipped = frame.assign(label=np.where(frame["worker"] == 6, 1 - frame["label"], frame["label"]))
    one, other = (DawidSkene(prior=0.5).fit(labels) for labels in (frame, flipped))
    relevance = [model.consensus_.documents["relevance"].to_numpy() for model in (one, other)]
    assert np.abs(relevance[0] - relevance[1]).mean() < 0.02
    worker = [model.consensus_.assessors.set_index("assessor").loc[6] for model in (one, other)]
    assert worker[0]["says_1_if_1"] == pytest.approx(worker[1]["says_0_if_1"], abs=0.05)
    assert worker[1]["accuracy"] < 0.2


def test_gold_makes_a_bad_crowd_useful() -> None:
    """Four of five assessors answer in reverse; a few expert grades tell who."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    rows = [(item, who, truth[item] if who == 0 else 1 - truth[item]) for item in range(200) for who in range(5)]
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"])
    gold = pd.DataFrame({"document": range(20), "grade": truth[:20]})
    without = DawidSkene().fit(frame).consensus_.documents.set_index("document")["grade"]
    # Gold must outweigh the majority's start: the reversed ones are seen through.
    model = DawidSkene(prior=0.01).fit(frame, gold=gold)
    assert (without.loc[range(200)].to_numpy() == truth).mean() < 0.1
    assert (model.consensus_.assessors.set_index("assessor")["gold_accuracy"].loc[[0, 1]] == [1, 0]).all()


def test_it_warns_where_it_did_not_converge() -> None:
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations"):
        DawidSkene(n_iter=2).fit(random_labels(0))


@pytest.mark.parametrize("prior", [-1, (1.0, 0.0), (-1.0, 1.0), "flat"])
def test_a_senseless_prior_is_refused(prior: str | float | tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="prior must be one of learned, 0 or a number above 0"):
        DawidSkene(prior=prior).fit(random_labels(0))


def test_it_has_no_model_of_cannot_judge() -> None:
    with pytest.raises(UsageError, match="unjudgeable_as must be one of lowest, drop"):
        DawidSkene(unjudgeable_as="model").fit(random_labels(0))


def test_an_interrupted_fit_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    frame = random_labels(1, items=300)
    whole = DawidSkene().fit(frame)

    def interrupt(iteration: int, most: int, objective: float) -> None:
        if iteration == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DawidSkene().fit(frame, checkpoint=tmp_path / "state", progress=interrupt)
    assert (tmp_path / "state" / "checkpoint.json").exists()
    seen: list[int] = []
    resumed = DawidSkene().fit(frame, checkpoint=tmp_path / "state", progress=lambda i, most, value: seen.append(i))
    assert seen[0] == 5
    assert resumed.history_ == whole.history_
    assert resumed.consensus_.document_table.equals(whole.consensus_.document_table)
    assert not (tmp_path / "state").exists()


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    def interrupt(iteration: int, most: int, objective: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DawidSkene().fit(random_labels(1), checkpoint=tmp_path / "state", progress=interrupt)
    with pytest.raises(ValueError, match="checkpoint of other judgments"):
        DawidSkene().fit(random_labels(2), checkpoint=tmp_path / "state")


def test_a_warm_start_needs_fewer_iterations() -> None:
    frame = read_judgments(random_labels(1, items=300))
    cold = DawidSkene().fit(frame)
    warm = DawidSkene().fit(frame, init=cold)
    assert warm.n_iter_ < cold.n_iter_


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-6, 1e6))
def test_digamma_equals_scipys(x: float) -> None:
    assert digamma(x) == pytest.approx(float(scipy.special.digamma(x)), rel=1e-11, abs=1e-11)


def dirichlet_multinomial(counts: NDArray[np.float64], pseudo: NDArray[np.float64]) -> float:
    """The log likelihood that the learned prior maximizes, one assessor of weak answers among them."""
    counts = np.concatenate([counts, prior_matrix(WEAK_PSEUDO_COUNTS, counts.shape[1])[None]])
    log_gamma = scipy.special.gammaln
    per_answer = log_gamma(counts + pseudo) - log_gamma(pseudo)
    strength = pseudo.sum(axis=0)
    return float(per_answer.sum() - (log_gamma(counts.sum(axis=1) + strength) - log_gamma(strength)).sum())


def test_a_step_of_the_fixed_point_equals_numpy() -> None:
    rng = np.random.default_rng(0)
    pseudo, seen, asked = rng.gamma(1.0, 1.0, (4, 3)), rng.gamma(1.0, 1.0, (4, 3)), rng.gamma(1.0, 1.0, 3)
    after, change = dirichlet_step(pseudo, seen, asked, 0.1, 2.0)
    expected = np.clip(pseudo * seen / asked, 0.1, 2.0)
    assert {0.1, 2.0} < set(expected.ravel())  # both bounds apply
    np.testing.assert_array_equal(after, expected)
    assert change == np.abs(expected / pseudo - 1).max()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_learned_prior_climbs_its_likelihood_to_the_top(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true_pseudo = rng.gamma(2.0, 1.0, (3, 3)) + 3 * np.eye(3)
    counts = np.stack(
        [
            np.stack([rng.multinomial(rng.integers(1, 60), rng.dirichlet(true_pseudo[:, c])) for c in range(3)], axis=1)
            for _ in range(80)
        ]
    ).astype(float)
    pseudo, before = prior_matrix(WEAK_PSEUDO_COUNTS, 3), -np.inf
    for _ in range(60):
        pseudo = learn_pseudo_counts(counts, pseudo)
        assert dirichlet_multinomial(counts, pseudo) >= before - 1e-9
        before = dirichlet_multinomial(counts, pseudo)
    for factor in (0.9, 1.1):  # no direction along an axis leads up
        for cell in np.ndindex(3, 3):
            moved = pseudo.copy()
            moved[cell] *= factor
            assert dirichlet_multinomial(counts, moved) < before


@pytest.mark.data
def test_the_learned_prior_gives_better_grades_than_none_on_web_5grade(data_folder: Path) -> None:
    web = dataset("web-5grade")
    judgments, gold = web.read_judgments(), web.read_gold().frame
    accuracy = {}
    for prior in ("learned", 0):
        consensus = DawidSkene(n_iter=200, prior=prior).fit(judgments).consensus_
        accuracy[prior] = evaluate(consensus.documents, gold, "GradeAccuracy").means["GradeAccuracy"]
    assert accuracy[0] == pytest.approx(0.829, abs=0.005)  # crowd-kit's
    assert accuracy["learned"] > accuracy[0] + 0.01


REFERENCE = {
    MajorityVote: (0.667, 0.761, 0.465),
    Average: (0.723, 0.792, 0.583),
    DawidSkene: (0.785, 0.830, 0.648),
}


@pytest.mark.data
@pytest.mark.parametrize("cls", REFERENCE)
def test_the_reference_protocol_on_rf10(rf10: Judgments, cls: type[DawidSkene]) -> None:
    gold = dataset("trec-rf10").read_gold()
    consensus = cls().fit(rf10).consensus_
    scored = evaluate(consensus.documents, gold.frame, ["AP", "nDCG", "Tau"], unjudged="skip")
    assert scored.counts.documents_scored == 4460
    assert list(scored.means.values()) == pytest.approx(REFERENCE[cls], abs=0.01)


def test_an_interval_that_ends_at_the_mean_leaves_no_more_beyond_than_it_says() -> None:
    table = DawidSkene().fit(random_labels(3, items=200)).consensus_.documents
    shares, grades = table[[f"true{grade}" for grade in range(4)]].to_numpy(), np.arange(4)
    lower, upper, mean = (table[name].to_numpy() for name in ("lower", "upper", "relevance"))
    assert ((lower == mean) | (upper == mean)).any()
    assert ((shares * (grades < lower[:, None])).sum(axis=1) <= 0.025 + 1e-12).all()
    assert ((shares * (grades > upper[:, None])).sum(axis=1) <= 0.025 + 1e-12).all()


@pytest.mark.parametrize("n", [1, 30])
def test_an_item_that_is_impossible_in_every_state_stays_open(n: int) -> None:
    offsets, assessor, grade = np.array([0, n]), np.zeros(n, np.int32), np.zeros(n, np.int8)
    posterior, counts, totals = np.empty(2), np.zeros(4), np.zeros(2)
    likelihood = np.array([0.0, 0.0, 1.0, 1.0])  # grade 0 is never given
    args = (offsets, assessor, grade, np.full(1, -1, np.int8), 2, np.full(2, 0.5), likelihood, np.ones(4))
    found = e_step_kernels.make_e_step_kernel(2)(*args, posterior, counts, totals)
    assert posterior.tolist() == [0.5, 0.5]
    assert np.isfinite(found)
