"""The typical careful assessor: the weights of assessors in it, and the power of their informativeness."""

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from crowdrank import GDA
from crowdrank._typing import Floats
from crowdrank.consensus.careful_assessor import careful_curves, grade_memberships, learn_careful_curves
from crowdrank.consensus.latent import NODES, PRIOR, softmax

SHARES = (0.55, 0.2, 0.15, 0.1)
"""Shares of the true grades."""


def crowd(n_careful: int, n_careless: int, n_documents: int = 300) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return judgments of careful assessors and of others who give every second document grade 0, and the grades."""
    rng = np.random.default_rng(0)
    true = rng.choice(4, n_documents, p=SHARES)
    rows = []
    for assessor in range(n_careful + n_careless):
        document = rng.choice(n_documents, n_documents // 4, replace=False)
        near = np.clip(true[document] + rng.choice([-1, 0, 1], len(document), p=[0.1, 0.8, 0.1]), 0, 3)
        is_careless = (assessor >= n_careful) & (rng.random(len(document)) < 0.5)
        grade = np.where(is_careless, 0, near)
        rows.append(pd.DataFrame({"document": document, "assessor": assessor, "grade": grade}))
    return pd.concat(rows), true


def right_share(model: GDA, true: NDArray[np.int64]) -> float:
    documents = model.consensus_.documents
    return float((documents["grade"].to_numpy() == true[documents["document"].to_numpy()]).mean())


def curves_and_counts(n_careful: int, n_careless: int) -> tuple[Floats, Floats]:
    """Return P(grade | node) of assessors, some of which answer 0 half of the time, and 1,000 answers of each."""
    careful = softmax(4.0 * np.arange(4)[:, None] * NODES - np.array([0.0, 1.0, 4.0, 9.0])[:, None], axis=0)
    careless = 0.5 * careful + 0.5 * np.eye(4)[0][:, None]
    likelihood = np.stack([careful] * n_careful + [careless] * n_careless)
    return likelihood, 1000 * likelihood * PRIOR


def test_careless_assessors_with_a_favorite_grade_do_not_decide_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    judgments, true = crowd(n_careful=24, n_careless=72)
    learned = right_share(GDA().fit(judgments), true)
    monkeypatch.setattr("crowdrank.consensus.careful_assessor.OTHER_POWERS", ())
    assert learned > right_share(GDA().fit(judgments), true)


def test_equal_assessors_keep_the_default_power() -> None:
    likelihood, counts = curves_and_counts(n_careful=5, n_careless=0)
    n_judgments = counts.sum(axis=(1, 2))
    assert np.array_equal(
        learn_careful_curves(n_judgments, likelihood, counts), careful_curves(n_judgments, likelihood)
    )


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_power_is_learned_only_from_enough_answers(scale: float) -> None:
    likelihood, counts = curves_and_counts(n_careful=24, n_careless=72)
    n_judgments = scale * counts.sum(axis=(1, 2))
    is_default = np.array_equal(
        learn_careful_curves(n_judgments, likelihood, scale * counts), careful_curves(n_judgments, likelihood)
    )
    assert is_default == (scale < 1)


@pytest.mark.parametrize(("n_copies", "is_default"), [(1, False), (6, True)])
def test_a_few_independent_assessors_do_not_decide_alone(n_copies: int, is_default: bool) -> None:
    likelihood, counts = curves_and_counts(n_careful=24, n_careless=72)
    n_judgments = counts.sum(axis=(1, 2)) / n_copies  # families of copies
    found = learn_careful_curves(n_judgments, likelihood, counts)
    assert np.array_equal(found, careful_curves(n_judgments, likelihood)) == is_default


def test_states_of_other_difficulties_and_other_answers_are_part_of_the_counts() -> None:
    likelihood, counts = curves_and_counts(n_careful=24, n_careless=72)
    n_judgments = counts.sum(axis=(1, 2))
    split = np.concatenate([0.3 * counts, 0.7 * counts, np.full((*counts.shape[:2], 1), 50.0)], axis=2)
    expected = learn_careful_curves(n_judgments, likelihood, counts)
    found = learn_careful_curves(n_judgments * split.sum(axis=(1, 2)) / n_judgments, likelihood, split)
    assert np.allclose(found, expected, rtol=1e-3)


def test_a_grade_begins_where_the_median_reaches_it() -> None:
    likelihood, _ = curves_and_counts(n_careful=1, n_careless=0)
    memberships = grade_memberships(likelihood[0])
    assert np.allclose(memberships.sum(axis=1), 1)
    begins = [np.interp(grade - 0.5, memberships @ np.arange(4), NODES) for grade in (1, 2, 3)]
    assert np.allclose(begins, [0.25, 0.75, 1.25], atol=0.05)  # two neighboring grades are equally probable there
