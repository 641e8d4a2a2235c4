"""Families of assessors who err together: stated in the input, or detected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank import GDA, Judgments, evaluate, read_judgments, simulate
from crowdrank.consensus import e_step_kernels
from crowdrank.consensus.families import correlations, family_weights, find_families
from crowdrank.readers.datasets import dataset
from experiments.base import gold_in
from experiments.dl20 import thorough


def dense(seed: int, families: int) -> Judgments:
    world = simulate(queries=40, documents=20, assessors=24, labels=24, families=families, random_state=seed)
    return read_judgments(world.judgments)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), correlation=st.sampled_from([0.0, 0.3, 1.0]))
def test_voices_equal_their_definition(seed: int, correlation: float) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(rng.integers(1, 6, 5)))
    assessor = rng.integers(0, 7, offsets[-1]).astype(np.int32)
    family = rng.integers(0, 3, 7).astype(np.int32)
    found = family_weights(offsets, assessor, family, correlation)
    for item in range(5):
        rows = slice(offsets[item], offsets[item + 1])
        of = family[assessor[rows]]
        n = np.array([(of == own).sum() for own in of])
        assert np.allclose(found[rows], 1 / (1 + (n - 1) * correlation))


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_weighted_posteriors_equal_their_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(rng.integers(1, 5, 6)))
    n = int(offsets[-1])
    assessor, grade = rng.integers(0, 4, n).astype(np.int32), rng.integers(0, 3, n).astype(np.int8)
    likelihood, prior = rng.dirichlet(np.ones(3), (4, 5)).transpose(0, 2, 1), rng.dirichlet(np.ones(5))
    weight, gold = rng.uniform(0.1, 1.0, n), rng.integers(-1, 3, 6).astype(np.int8)
    expert = rng.dirichlet(np.ones(3), 5).T
    posterior, counts, states = np.empty((6, 5)), np.zeros((4, 3, 5)), np.zeros(5)
    total = e_step_kernels.weighted_e_step(
        offsets,
        assessor,
        grade,
        gold,
        weight,
        np.log(prior)[None],
        np.log(likelihood),
        expert,
        posterior,
        counts,
        states,
    )
    expected, logs = np.zeros((4, 3, 5)), 0.0
    for item in range(6):
        rows = np.arange(offsets[item], offsets[item + 1])
        product = prior * (likelihood[assessor[rows], grade[rows]] ** weight[rows, None]).prod(axis=0)
        product *= expert[gold[item]] if gold[item] >= 0 else 1.0
        logs += np.log(product.sum())
        assert np.allclose(posterior[item], product / product.sum())
        for row in rows:
            expected[assessor[row], grade[row]] += product / product.sum()
    assert np.allclose(counts, expected)
    assert np.allclose(states, posterior.sum(axis=0))
    assert total == pytest.approx(logs)


def test_correlations_equal_pandas() -> None:
    judgments = read_judgments(simulate(queries=10, documents=20, assessors=8, labels=5, random_state=2).judgments)
    found, common = correlations(judgments, np.arange(judgments.n_assessors))
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    wide = pd.DataFrame({"item": item, "assessor": judgments.assessor, "grade": judgments.grade}).pivot(
        index="item", columns="assessor", values="grade"
    )
    assert np.allclose(found, wide.astype(float).corr().fillna(0), atol=1e-9)
    assert (common == wide.notna().astype(int).T.dot(wide.notna().astype(int))).to_numpy().all()


@pytest.mark.parametrize("seed", range(3))
def test_independent_assessors_are_no_families(seed: int) -> None:
    judgments = dense(seed, families=0)
    assert (np.bincount(find_families(judgments)) == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_families_are_found_and_pure(seed: int) -> None:
    judgments = dense(seed, families=3)
    found, expected = find_families(judgments), judgments.family_of
    sizes = np.bincount(found)
    assert sizes.max() >= 3
    for number in np.flatnonzero(sizes > 1):
        assert len(np.unique(expected[found == number])) == 1


def test_families_do_not_hang_on_names_or_order() -> None:
    judgments = dense(1, families=3)
    frame = judgments.frame.drop(columns="family").sample(frac=1, random_state=0)
    other = read_judgments(frame.assign(assessor="x" + frame["assessor"].astype(str)))
    one = dict(zip(judgments.assessors.to_pylist(), find_families(judgments), strict=True))
    two = {name[1:]: number for name, number in zip(other.assessors.to_pylist(), find_families(other), strict=True)}
    pairs = {(one[name], two[str(name)]) for name in one}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def copied(times: int) -> Judgments:
    """A crowd, and an assessor with `times` copies, all of one family."""
    frame = simulate(queries=20, documents=10, assessors=6, labels=6, spammers=0, random_state=4).judgments
    first = frame["assessor"].iloc[0]
    copies = [frame[frame["assessor"] == first].assign(assessor=f"copy {n}") for n in range(times)]
    family = frame.assign(family=frame["assessor"].astype(str))
    joined = pd.concat([family, *(each.assign(family=str(first)) for each in copies)])
    return read_judgments(joined[["query", "document", "assessor", "grade", "family"]])


def relevance(model: GDA) -> NDArray[np.float64]:
    table = model.consensus_.document_table.sort_by([("query", "ascending"), ("document", "ascending")])
    return np.asarray(table["relevance"].to_numpy(), np.float64)


def test_a_family_of_copies_has_one_voice() -> None:
    alone, many = GDA().fit(copied(0)), GDA().fit(copied(12))
    outvoted = GDA(families="none").fit(copied(12))
    assert np.corrcoef(relevance(alone), relevance(many))[0, 1] > 0.99
    assert np.corrcoef(relevance(alone), relevance(outvoted))[0, 1] < 0.97


def test_correlation_zero_takes_a_family_as_independent() -> None:
    judgments = copied(3)
    one, other = GDA(family_correlation=0).fit(judgments), GDA(families="none").fit(judgments)
    assert np.array_equal(relevance(one), relevance(other))


def test_found_families_are_shown_saved_and_used_again(tmp_path: Path) -> None:
    judgments = dense(2, families=3)
    plain = replace(judgments, families=None, assessor_family=None)
    model = GDA(families="auto").fit(plain)
    shown = model.consensus_.assessors.set_index("assessor")["family"].dropna()
    sizes = np.bincount(find_families(judgments))
    assert sorted(shown.value_counts()) == sorted(sizes[sizes > 1])
    model.save(tmp_path / "model")
    loaded = GDA.load(tmp_path / "model")
    again = loaded.infer(plain).document_table
    assert np.allclose(again["relevance"], model.consensus_.document_table["relevance"], atol=1e-9)


@pytest.mark.data
@pytest.mark.usefixtures("data_folder")
def test_one_voice_beats_the_mean_of_family_means_on_dl20() -> None:
    """The goals of DL20: nDCG@10, AP and Tau, without gold; and families that are detected, not stated."""
    data = dataset("trec-dl20")
    judges = thorough(data.read_judgments(), 8_000)
    gold = gold_in(data.read_gold(), judges)
    measures = ["nDCG@10", "AP(rel=2)", "Tau"]
    means = evaluate(GDA().fit(judges).consensus_, gold, measures, unjudged="skip").means
    assert all(means[name] >= goal for name, goal in zip(measures, (0.68, 0.61, 0.70), strict=True))
    found, expected = find_families(judges), judges.family_of
    sizes = np.bincount(found)
    assert sorted(sizes)[-2] >= 15
    assert all(len(np.unique(expected[found == number])) == 1 for number in np.flatnonzero(sizes > 1))
    assert isinstance(judges.families, pa.Array)
