"""That features tell of relevance, but not linearly, and that grades are as skewed as in life."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdrank.simulation.simulated_documents import Documents, draw_documents


def drawn(seed: int = 0, **sizes: int) -> Documents:
    return draw_documents(np.random.default_rng(seed), **{"queries": 300, "documents": 20} | sizes)


@pytest.mark.parametrize("seed", [0, 1])
def test_boosted_trees_beat_a_linear_model(seed: int) -> None:
    trees, least_squares = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.linear_model")
    documents = drawn(seed)
    train = documents.query.astype(int) <= 200
    X, y = documents.features, documents.grade

    def explained(model: Any) -> float:
        return float(model.fit(X[train], y[train]).score(X[~train], y[~train]))

    linear = explained(least_squares.Ridge())
    assert linear > 0.1
    assert explained(trees.HistGradientBoostingRegressor(max_iter=100, random_state=0)) > linear + 0.1


def test_the_last_columns_are_noise() -> None:
    documents = drawn()
    correlation = [np.corrcoef(column, documents.relevance)[0, 1] for column in documents.features.T]
    assert max(np.abs(correlation[12:])) < 0.05
    assert max(np.abs(correlation[:12])) > 0.2


@pytest.mark.parametrize("grades", [2, 3, 5])
def test_most_documents_are_bad(grades: int) -> None:
    shares = np.bincount(drawn(grades=grades).grade) / len(drawn(grades=grades))
    assert len(shares) == grades
    assert shares[:-1] / shares[1:] == pytest.approx(np.full(grades - 1, 2), rel=0.05)


def test_some_features_lie_on_another_level_in_each_query() -> None:
    documents = drawn()
    query = documents.query.astype(int) - 1
    means = np.bincount(query, documents.features[:, 2]) / np.bincount(query)
    assert means.std() > 0.7


def test_ids_are_text_in_order_and_unique() -> None:
    documents = drawn(queries=12, documents=15)
    assert documents.query[0] == "1"
    assert documents.document[:2].tolist() == ["1-01", "1-02"]
    assert len(set(documents.document)) == len(documents)
    assert (np.diff(documents.query.astype(int)) >= 0).all()


def test_honeypots_look_like_their_grade_and_are_clear_cut() -> None:
    documents = draw_documents(np.random.default_rng(0), queries=100, documents=20, honeypots=0.1)
    honeypot = documents.honeypot
    assert honeypot.mean() == pytest.approx(0.1, abs=0.001)
    assert set(documents.grade[honeypot]) == {0, 4}
    assert documents.difficulty[honeypot].max() < np.median(documents.difficulty[~honeypot])
    # The first column tells of relevance whatever the others say.
    first = documents.features[:, 0]
    assert first[honeypot & (documents.grade == 4)].mean() > first[honeypot & (documents.grade == 0)].mean() + 0.5
