"""Probabilities of pairs by the joint posterior, compared with the Hessian of the model written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, ndtr

from crowdrank import GDA, DawidSkene, PairProbabilities, read_judgments, simulate
from crowdrank.errors import UsageError

Array = np.ndarray[Any, Any]

ROWS = [
    (query, left, right, f"x{n % 3}", answer)
    for query in ("q1", "q2", "q3")
    for n, (left, right, answer) in enumerate(
        [("a", "b", -1), ("b", "a", 1), ("b", "c", -1), ("c", "b", -1), ("a", "c", -1), ("c", "d", -1), ("d", "a", 1)]
    )
]
PREFERENCES = pd.DataFrame(ROWS, columns=["query", "left", "right", "assessor", "preference"])


@pytest.fixture(scope="module")
def model() -> GDA:
    return GDA().fit(None, preferences=PREFERENCES)


def test_correlations_are_those_of_the_inverse_hessian(model: GDA) -> None:
    pairs = PairProbabilities.from_model(model)
    table = model.consensus_.assessors.set_index("assessor")
    sharpness, offset = table["sharpness"], model.theta_["preference_params"][:, 1]
    own = PREFERENCES[PREFERENCES["query"] == "q1"]
    place = {name: row for row, name in enumerate(pairs.document[:4].to_pylist())}

    def loss(relevance: Array) -> float:
        total = 0.5 * (relevance**2).sum()  # the prior is N(0, 1), and there are no grades
        for row in own.itertuples():
            code = list(table.index).index(row.assessor)
            difference = relevance[place[str(row.left)]] - relevance[place[str(row.right)]]
            x = sharpness[row.assessor] * difference + offset[code]
            total -= np.log(expit(x if row.preference == -1 else -x))
        return float(total)

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    hessian, step = np.empty((4, 4)), 1e-3 * np.eye(4)
    for i in range(4):
        for j in range(4):
            ends = [loss(best + a * step[i] + b * step[j]) * a * b for a in (-1, 1) for b in (-1, 1)]
            hessian[i, j] = sum(ends) / 4e-6
    covariance = np.linalg.inv(hessian)
    sd = np.sqrt(np.diag(covariance))
    items = np.arange(4)
    assert pairs.correlation(items) == pytest.approx(covariance / np.outer(sd, sd), abs=0.02)
    a, b = place["a"], place["b"]
    spread = np.sqrt(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
    assert pairs.matrix(items)[a, b] == pytest.approx(ndtr((best[a] - best[b]) / spread), abs=0.02)
    assert pairs.correlation(items)[a, b] > 0.05  # compared documents are not independent


def test_probabilities_of_both_orders_sum_to_one(model: GDA) -> None:
    pairs = PairProbabilities.from_model(model)
    items = pairs.positions(*(column.take([4, 7, 5]) for column in (pairs.query, pairs.document)))
    assert items.tolist() == [4, 7, 5]
    matrix = pairs.matrix(items)
    assert matrix + matrix.T == pytest.approx(np.ones((3, 3)))
    everything = pairs.of_queries(np.arange(12), np.array([0, 4, 8, 12]))
    assert everything.reshape(3, 4, 4)[1][np.ix_([0, 3, 1], [0, 3, 1])] == pytest.approx(matrix)


def test_documents_without_preferences_are_independent() -> None:
    world = simulate(queries=6, documents=6, random_state=1)
    judgments = read_judgments(world.judgments)
    query, document = (column.to_pylist() for column in judgments.item_ids())
    rows = {"query": query[0], "left": document[:1], "right": document[1:2], "assessor": "x", "preference": -1}
    pairs = PairProbabilities.from_model(GDA().fit(judgments, preferences=pd.DataFrame(rows)))
    items = np.arange(*pairs.offsets[:2])
    correlation = pairs.correlation(items)
    assert correlation[0, 1] != 0
    assert np.array_equal(correlation[2:], np.eye(len(items))[2:])
    assert not PairProbabilities.from_model(GDA().fit(judgments)).correlations


def test_a_model_without_relevance_on_a_line_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        PairProbabilities.from_model(DawidSkene().fit(simulate(queries=3, documents=4, random_state=1).judgments))
    assert caught.value.kind == "no-joint-posterior"
