"""Soft labels in the models: the answer is latent, in the posterior and in the statistics of assessors."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import (
    GDA,
    GLAD,
    Auto,
    Average,
    DawidSkene,
    FamilyMean,
    Highest,
    MajorityVote,
    OneCoinDawidSkene,
    Rasch,
    ThresholdDawidSkene,
    read_judgments,
    read_partitions,
    simulate,
)
from crowdrank.consensus import posterior_check
from crowdrank.consensus.e_step import expectation_step, expected_counts
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.saved_models import CheckpointedFit
from crowdrank.engine.passes import LocalEngine
from crowdrank.engine.shards import Answers, split_into_shards
from crowdrank.errors import DataWarning

MODELS: list[Any] = [
    DawidSkene,
    OneCoinDawidSkene,
    ThresholdDawidSkene,
    GDA,
    Rasch,
    MajorityVote,
    Average,
    FamilyMean,
]
GRADES = 4
NAMES = [f"p{grade}" for grade in range(GRADES)]


@cache
def hard_rows() -> pd.DataFrame:
    world = simulate(queries=4, documents=6, assessors=6, labels=4, grades=GRADES, families=2, random_state=3)
    rows: pd.DataFrame = world.judgments[["query", "document", "assessor", "grade", "family"]]
    return rows


def with_shares(rows: pd.DataFrame, shares: Any) -> pd.DataFrame:
    return rows.assign(**dict(zip(NAMES, np.asarray(shares).T, strict=True)))


def soft_rows(concentration: float = 3.0, hard_share: float = 0.3) -> pd.DataFrame:
    """Return rows of which some are hard labels and the others have probabilities around their label."""
    rows, rng = hard_rows(), np.random.default_rng(5)
    shares = rng.dirichlet(np.ones(GRADES), len(rows))
    shares += concentration * np.eye(GRADES)[rows["grade"]] * rng.random((len(rows), 1))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[rng.random(len(rows)) < hard_share] = np.nan
    return with_shares(rows, shares)


def fit(model: Any, rows: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, **options)


def documents(model: Any) -> pd.DataFrame:
    table: pd.DataFrame = model.consensus_.documents.set_index(["query", "document"]).sort_index()
    return table


def assert_same(one: Any, other: Any, tolerance: float = 1e-9) -> None:
    pd.testing.assert_frame_equal(documents(one), documents(other), rtol=tolerance, atol=tolerance)


# One-hot rows.


@pytest.mark.parametrize("model", MODELS)
def test_one_hot_rows_are_hard_labels_exactly(model: Any) -> None:
    one_hot = np.eye(GRADES)[hard_rows()["grade"]]
    mixed = one_hot.copy()
    mixed[::3] = np.nan
    plain = fit(model(), hard_rows())
    for shares in (one_hot, mixed):
        soft = fit(model(), with_shares(hard_rows(), shares))
        assert soft.consensus_.document_table.equals(plain.consensus_.document_table)
        assert soft.consensus_.assessor_table.equals(plain.consensus_.assessor_table)
        assert soft.history_ == plain.history_ or model in (MajorityVote, Average, FamilyMean)


@pytest.mark.parametrize("model", [DawidSkene, ThresholdDawidSkene, GDA])
def test_the_grade_of_a_one_hot_row_counts_and_not_its_label(model: Any) -> None:
    rows = hard_rows().assign(grade=0)
    rows.loc[:1, "grade"] = GRADES - 1  # the labels show the scale
    soft = fit(model(tol=0, n_iter=5), with_shares(rows, np.eye(GRADES)[hard_rows()["grade"]]))
    assert_same(soft, fit(model(tol=0, n_iter=5), hard_rows()))


# A reference in NumPy.


def reference_dawid_skene(rows: pd.DataFrame, n_iter: int, pseudo: Any) -> tuple[Any, Any, Any]:
    """Return posterior, confusions and shares of Dawid-Skene with latent answers, written as matrices."""
    item = rows.groupby(["query", "document"], sort=False).ngroup().to_numpy()
    assessor = rows["assessor"].astype("category").cat.codes.to_numpy()
    shares = rows[NAMES].to_numpy()
    hard = np.isnan(shares).all(axis=1)
    shares[hard] = np.eye(GRADES)[rows["grade"].to_numpy()[hard]]
    votes = np.zeros((item.max() + 1, GRADES))
    np.add.at(votes, item, shares)
    posterior = votes / votes.sum(axis=1, keepdims=True)
    answer = np.repeat(shares[:, :, None], GRADES, axis=2)  # P(answer | judgment, true grade)
    for _ in range(n_iter):
        prior = posterior.mean(axis=0)
        counts = np.tile(pseudo, (assessor.max() + 1, 1, 1))
        np.add.at(counts, assessor, answer * posterior[item][:, None, :])
        confusions = counts / counts.sum(axis=1, keepdims=True)
        relative = confusions / (confusions @ prior)[:, :, None]
        terms = shares[:, :, None] * relative[assessor]
        answer = terms / terms.sum(axis=1, keepdims=True)
        logs = np.tile(np.log(prior), (len(votes), 1))
        np.add.at(logs, item, np.log(terms.sum(axis=1)))
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
    return posterior, confusions, prior


def test_dawid_skene_is_the_em_of_the_reference() -> None:
    rows, pseudo = soft_rows(), np.where(np.eye(GRADES, dtype=bool), 1.0, 0.3)
    model = fit(DawidSkene(n_iter=7, tol=0, prior=(1.0, 0.3), families="none"), rows)
    posterior, confusions, prior = reference_dawid_skene(rows, 7, pseudo)
    ids = rows[["query", "document"]].drop_duplicates()
    found = documents(model)[[f"true{grade}" for grade in range(GRADES)]].loc[pd.MultiIndex.from_frame(ids)]
    np.testing.assert_allclose(found.to_numpy(), posterior, atol=1e-9)
    order = [sorted(set(rows["assessor"])).index(name) for name in model.consensus_.assessors["assessor"]]
    np.testing.assert_allclose(model.theta_["likelihood"], confusions[order], atol=1e-9)
    np.testing.assert_allclose(model.theta_["shares"], prior, atol=1e-9)


@pytest.mark.parametrize("with_families", [False, True])
def test_the_expectation_step_is_that_of_latent_answers(with_families: bool) -> None:
    judgments = read_judgments(soft_rows())
    (shard,) = split_into_shards(judgments, shard_size=len(judgments) + 1)
    rng, n_states = np.random.default_rng(0), 5
    likelihood = rng.dirichlet(np.ones(GRADES), (judgments.n_assessors, n_states)).transpose(0, 2, 1).copy()
    prior, weight = rng.dirichlet(np.ones(n_states)), rng.random(len(judgments)) if with_families else None
    local, statistics = expectation_step(shard, likelihood, np.ones((GRADES, n_states)), prior, weight)
    shares = judgments.shares()
    assert shares is not None
    hard: Any = np.isnan(shares).all(axis=1)
    shares[hard] = np.eye(GRADES)[judgments.grade[hard]]
    relative = likelihood / (likelihood @ prior)[:, :, None]
    relative_of_row = np.where(hard[:, None, None], likelihood[judgments.assessor], relative[judgments.assessor])
    terms = shares[:, :, None] * relative_of_row
    logs = np.log(terms.sum(axis=1)) * (1.0 if weight is None else weight[:, None])
    scores = np.tile(np.log(prior), (judgments.n_items, 1))
    np.add.at(scores, judgments.item, logs)
    total = np.logaddexp.reduce(scores, axis=1)
    posterior = np.exp(scores - total[:, None])
    counts, answer = np.zeros_like(likelihood), terms / terms.sum(axis=1, keepdims=True)
    np.add.at(counts, judgments.assessor, answer * posterior[judgments.item][:, None, :])
    np.testing.assert_allclose(local["posterior"], posterior, atol=1e-12)
    np.testing.assert_allclose(statistics["counts"], counts, atol=1e-12)
    np.testing.assert_allclose(statistics["log_likelihood"][0], total.sum())
    np.testing.assert_allclose(statistics["counts"].sum(), len(judgments))  # one answer per judgment


@pytest.mark.parametrize("n_states", [5, 21])
def test_all_kernels_agree_on_labels(n_states: int) -> None:
    judgments = read_judgments(hard_rows(), grades="0-3")
    (shard,) = split_into_shards(judgments, shard_size=len(judgments) + 1)
    whole = Answers(shard.offsets, shard.assessor, shard.grade, np.ones(len(judgments)), np.arange(len(judgments)))
    rng = np.random.default_rng(0)
    likelihood = rng.dirichlet(np.ones(GRADES), (judgments.n_assessors, n_states)).transpose(0, 2, 1).copy()
    prior, gold = rng.dirichlet(np.ones(n_states)), np.ones((GRADES, n_states))
    by_item = np.tile(np.log(prior), (shard.n_items, 1))
    reused = np.full((shard.n_items, n_states), np.nan)
    expected, statistics = expectation_step(shard, likelihood, gold, prior, posterior=reused)
    assert expected["posterior"] is reused
    others = [
        expectation_step(shard, likelihood, gold, prior, np.ones(len(judgments))),
        expectation_step(shard, likelihood, gold, by_item),
        expectation_step(replace(shard, soft=whole), likelihood, gold, prior),
    ]
    for local, other in others:
        np.testing.assert_allclose(local["posterior"], reused, atol=1e-12)
        for name, values in statistics.items():
            np.testing.assert_allclose(other[name], values, rtol=1e-10)
    np.testing.assert_allclose(expected_counts(shard, reused, GRADES), statistics["counts"], rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_nearly_certain_probabilities_are_nearly_a_label(seed: int) -> None:
    rows, rng = hard_rows(), np.random.default_rng(seed)
    likelihood = 0.9 * rng.dirichlet(np.ones(GRADES), (6, GRADES)).transpose(0, 2, 1) + 0.1 / GRADES
    shares = 1e-9 + (1 - GRADES * 1e-9) * np.eye(GRADES)[rows["grade"]]
    posteriors = []
    for table in (rows, with_shares(rows, shares)):
        judgments = read_judgments(table, grades="0-3")
        (shard,) = split_into_shards(judgments, shard_size=len(judgments) + 1)
        prior = np.full(GRADES, 1 / GRADES)
        posteriors.append(expectation_step(shard, likelihood, np.ones((GRADES, GRADES)), prior)[0]["posterior"])
    np.testing.assert_allclose(posteriors[0], posteriors[1], atol=1e-6)


@pytest.mark.parametrize("model", [DawidSkene, ThresholdDawidSkene, GDA])
def test_soft_labels_and_features_together(model: Any) -> None:
    world = simulate(queries=12, documents=10, assessors=8, grades=GRADES, random_state=3)
    rows = world.judgments
    certain = with_shares(rows, 1e-9 + (1 - GRADES * 1e-9) * np.eye(GRADES)[rows["grade"]])
    fits = [fit(model(n_iter=5, tol=0.0), table, features=world.features) for table in (rows, certain)]
    assert all(one.consensus_.features_used for one in fits)
    relevance = [one.consensus_.documents["relevance"] for one in fits]
    np.testing.assert_allclose(relevance[0], relevance[1], atol=1e-4)


# Invariance.


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), model=st.sampled_from([DawidSkene, ThresholdDawidSkene, GDA, Average]))
def test_the_order_of_rows_does_not_matter(seed: int, model: Any) -> None:
    parameters = {} if model is Average else {"n_iter": 4, "tol": 0.0}
    shuffled = soft_rows().sample(frac=1.0, random_state=seed)
    assert_same(fit(model(**parameters), shuffled), fit(model(**parameters), soft_rows()), 1e-8)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), model=st.sampled_from([DawidSkene, MajorityVote]))
def test_soft_labels_are_invariant_to_the_names_of_grades(seed: int, model: Any) -> None:
    """These models know no order of grades: permuted grades give permuted probabilities."""
    parameters = {"n_iter": 4, "tol": 0.0} if model is DawidSkene else {}
    order = np.random.default_rng(seed).permutation(GRADES)  # the new grade of each grade
    rows = soft_rows()
    permuted = rows.assign(
        grade=order[rows["grade"]], **{f"p{order[grade]}": rows[f"p{grade}"] for grade in range(GRADES)}
    )
    found, expected = (documents(fit(model(**parameters), one)) for one in (permuted, rows))
    for grade in range(GRADES):
        np.testing.assert_allclose(found[f"p{order[grade]}"], expected[f"p{grade}"], atol=1e-9)


@given(share=st.floats(0.01, 0.99))
def test_the_average_is_the_mean_of_expected_grades(share: float) -> None:
    rows = pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [1, 0], "p0": [np.nan, share]})
    votes = fit(Average(), rows.assign(p1=1 - rows["p0"])).consensus_.documents
    np.testing.assert_allclose(votes["relevance"], (1 + (1 - share)) / 2)


def test_shards_do_not_change_the_fit() -> None:
    for model in (DawidSkene, GDA):
        one, many = (
            fit(model(n_iter=5, tol=0), soft_rows(), engine=engine) for engine in (None, LocalEngine(shard_size=7))
        )
        assert_same(one, many, 1e-10)


# Votes and models of hard labels.


def test_the_majority_is_the_grade_with_the_largest_sum() -> None:
    rows = pd.DataFrame({"document": "a", "assessor": list("xyz"), "grade": [0, 0, 2], "p0": [0.5, 0.5, np.nan]})
    rows = rows.assign(p1=[0.1, 0.1, np.nan], p2=[0.4, 0.4, np.nan])
    assert fit(MajorityVote(), rows).consensus_.documents["grade"].tolist() == [2]
    assert fit(MajorityVote(), rows[["document", "assessor", "grade"]]).consensus_.documents["grade"].tolist() == [0]


def test_a_family_counts_as_one_answer_however_soft() -> None:
    rows = pd.DataFrame({"document": "a", "assessor": list("xyz"), "family": list("ffg"), "grade": [0, 0, 1]})
    rows = rows.assign(p0=[0.75, 0.25, np.nan], p1=[0.25, 0.75, np.nan])
    assert fit(FamilyMean(), rows).consensus_.documents["relevance"].tolist() == [0.75]


@pytest.mark.parametrize("model", [GLAD, Highest])
def test_other_models_use_the_label_and_warn(model: Any) -> None:
    with pytest.warns(DataWarning) as caught:
        soft = model().fit(soft_rows())
    kinds = [warning.message.kind for warning in caught if isinstance(warning.message, DataWarning)]
    assert kinds.count("hard-labels-used") == 1
    assert soft.consensus_.document_table.equals(fit(model(), hard_rows()).consensus_.document_table)


@pytest.mark.parametrize("model", MODELS)
def test_models_of_soft_labels_do_not_warn(model: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model().fit(soft_rows())
    assert not [one for one in caught if getattr(one.message, "kind", "") == "hard-labels-used"]


# Storage, further judgments and shards on disk.


@pytest.mark.parametrize("model", [DawidSkene, ThresholdDawidSkene, GDA])
def test_a_saved_model_goes_on_with_soft_labels(model: Any, tmp_path: Path) -> None:
    rows = soft_rows()
    first, later = rows.iloc[: len(rows) // 2], rows.iloc[len(rows) // 2 :]
    fitted = fit(model(n_iter=20), first)
    fitted.save(tmp_path / "model")
    loaded = Aggregator.load(tmp_path / "model")
    assert loaded.consensus_.document_table.equals(fitted.consensus_.document_table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(loaded.add(later, n_iter=3), fitted.add(later, n_iter=3))
    assert fitted.judgments_.has_soft_labels
    assert len(fitted.judgments_) == len(rows)


@pytest.mark.parametrize("model", [DawidSkene, ThresholdDawidSkene, GDA])
def test_the_posterior_of_new_judgments_uses_their_probabilities(model: Any) -> None:
    fitted = fit(model(n_iter=20), soft_rows())
    again = fitted.posterior(soft_rows())
    np.testing.assert_allclose(
        again.drop(columns=["query", "document"]).to_numpy(),
        fitted.posterior().drop(columns=["query", "document"]).to_numpy(),
        atol=1e-9,
    )
    hard = fitted.posterior(hard_rows())
    assert not np.allclose(again.iloc[:, 2:], hard.iloc[:, 2:], atol=1e-3)


@pytest.mark.parametrize("model", [DawidSkene, GDA, MajorityVote, GLAD])
def test_fits_of_shards_on_disk_are_those_in_memory(model: Any, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    soft_rows().to_parquet(tmp_path / "parts" / "0.parquet")
    sharded = read_partitions(tmp_path / "parts", by="document", shard_size=20)
    parameters = {"n_iter": 4} if model in (DawidSkene, GDA) else {}
    stored = fit(model(**parameters), sharded)
    assert len(sharded.shards) > 1
    assert_same(stored, fit(model(**parameters), soft_rows()), 1e-8)


def test_a_checkpoint_belongs_to_its_probabilities() -> None:
    def fingerprint(rows: pd.DataFrame) -> str:
        return CheckpointedFit(DawidSkene(), read_judgments(rows), None, None, 1).fingerprint()

    other = soft_rows().assign(p0=soft_rows()["p1"], p1=soft_rows()["p0"])
    assert fingerprint(soft_rows()) == fingerprint(soft_rows())
    assert len({fingerprint(rows) for rows in (hard_rows(), soft_rows(), other)}) == 3


def test_gold_grades_and_soft_labels_combine() -> None:
    gold = hard_rows()[["query", "document"]].drop_duplicates()
    gold = gold.assign(grade=np.arange(len(gold)) % GRADES)
    for model in (DawidSkene, ThresholdDawidSkene, GDA):
        table = documents(fit(model(), soft_rows(), gold=gold))
        known = gold.set_index(["query", "document"])["grade"]
        np.testing.assert_array_equal(table.loc[known.index, "grade"], known)


# Diagnostics and choice.


@pytest.mark.parametrize("model", [DawidSkene, GDA])
def test_the_check_of_a_model_uses_the_labels(model: Any) -> None:
    fitted = fit(model(), soft_rows())
    soft, hard = (posterior_check.check(fitted, read_judgments(rows)) for rows in (soft_rows(), hard_rows()))
    assert soft.log_score == hard.log_score
    assert soft.agreement.equals(hard.agreement)


def test_auto_scores_labels_and_fits_probabilities() -> None:
    candidates = ("average", "dawid-skene")
    auto = fit(Auto(candidates=candidates, folds=3), soft_rows())
    assert auto.judgments_.has_soft_labels
    chosen = {"average": Average, "dawid-skene": DawidSkene}[auto.reason_.ranking]
    np.testing.assert_array_equal(documents(auto)["relevance"], documents(fit(chosen(), soft_rows()))["relevance"])


# A demonstration.


def calibrated_judges_and_people(seed: int) -> tuple[pd.DataFrame, Any]:
    """Return soft labels of four judges and labels of three people, and the true grades.

    A judge sees the true grade with noise and reports the probability of each grade given what it saw, so that its
    probabilities are calibrated. People are right in 70% of their labels, and label 40% of the documents.
    """
    rng, n = np.random.default_rng(seed), 300
    truth = rng.integers(0, GRADES, n)
    rows = []
    for judge in "wxyz":
        seen = truth + rng.normal(size=n)
        shares = np.exp(-0.5 * (seen[:, None] - np.arange(GRADES)) ** 2)
        shares /= shares.sum(axis=1, keepdims=True)
        frame = pd.DataFrame({"document": np.arange(n), "assessor": judge, "grade": shares.argmax(axis=1)})
        rows.append(with_shares(frame, shares))
    for person in "abc":
        wrong = np.clip(truth + rng.choice([-1, 1], n), 0, GRADES - 1)
        grade = np.where(rng.random(n) < 0.7, truth, wrong)
        frame = pd.DataFrame({"document": np.arange(n), "assessor": person, "grade": grade})
        rows.append(frame[rng.random(n) < 0.4])
    return pd.concat(rows), truth


def log_loss(model: Any, rows: pd.DataFrame, truth: Any) -> float:
    table = fit(model, rows).consensus_.documents.set_index("document").loc[np.arange(len(truth)), NAMES]
    return float(-np.log(np.maximum(table.to_numpy()[np.arange(len(truth)), truth], 1e-12)).mean())


@pytest.mark.parametrize("model", [DawidSkene, ThresholdDawidSkene, GDA])
def test_probabilities_of_calibrated_judges_are_worth_more_than_their_labels(model: Any) -> None:
    gains = []
    for seed in range(3):
        rows, truth = calibrated_judges_and_people(seed)
        gains.append(log_loss(model(), rows.drop(columns=NAMES), truth) - log_loss(model(), rows, truth))
    assert min(gains) > 0
    assert np.mean(gains) > 0.05
