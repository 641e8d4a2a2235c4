"""Posterior predictive check of preferences: the counts, worlds from the model, and dependence that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, read_preferences
from crowdrank.consensus.preference_check import _Questions, check_preferences
from crowdrank.errors import UsageError
from crowdrank.judgments.joined import join, no_judgments

Array = np.ndarray[Any, Any]
COLUMNS = ["query", "left", "right", "assessor", "preference"]


def simulate(seed: int, n_queries: int = 20, n_documents: int = 6) -> pd.DataFrame:
    """Return answers of five assessors to about half of all pairs of documents each, from the model."""
    rng = np.random.default_rng(seed)
    sharpness, offset = np.exp(rng.normal(0.4, 0.3, 5)), rng.normal(0.2, 0.3, 5)
    rows = []
    for query in range(n_queries):
        relevance = rng.normal(size=n_documents)
        for pair in combinations(range(n_documents), 2):
            for a in np.flatnonzero(rng.random(5) < 0.5):
                left, right = rng.permutation(pair)
                x = sharpness[a] * (relevance[left] - relevance[right]) + offset[a] + rng.logistic()
                answer = 0 if abs(x) < 0.4 else -int(np.sign(x))
                rows.append((f"q{query}", f"d{left}", f"d{right}", f"a{a}", answer))
    return pd.DataFrame(rows, columns=COLUMNS)


def with_copies(frame: pd.DataFrame) -> pd.DataFrame:
    """Add an assessor who copies the answers of another."""
    return pd.concat([frame, frame[frame["assessor"] == "a0"].assign(assessor="copy")])


def with_circles(frame: pd.DataFrame) -> pd.DataFrame:
    """Add an assessor for whom d0 is better than d1, d1 than d2, and d2 than d0."""
    circle = [("d0", "d1"), ("d1", "d2"), ("d2", "d0")]
    queries = frame["query"].unique()
    rows = [
        (query, better, worse, "round", -1) if number % 2 else (query, worse, better, "round", 1)
        for number, (query, (better, worse)) in enumerate(product(queries, circle))
    ]
    return pd.concat([frame, pd.DataFrame(rows, columns=COLUMNS)])


def by_statistic(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    rows = check_preferences(GDA().fit(None, preferences=frame)).statistics.to_pylist()
    return {row["statistic"]: row for row in rows}


def test_answers_from_the_model_pass_and_p_values_are_conservative() -> None:
    found = [by_statistic(simulate(seed)) for seed in range(8)]
    p = np.array([[row["p"] for row in rows.values()] for rows in found])
    assert p.shape == (8, 4)
    assert p.min() > 0.01
    assert (p < 0.1).mean() < 0.1
    assert p.mean(axis=0)[:2].min() > 0.6  # shares of ties and of left answers are fitted


@pytest.mark.parametrize(
    ("add", "statistic", "name"), [(with_copies, "agreement", "copy"), (with_circles, "cycles", "round")]
)
def test_dependence_that_the_model_lacks_fails(
    add: Callable[[pd.DataFrame], pd.DataFrame], statistic: str, name: str
) -> None:
    result = check_preferences(GDA().fit(None, preferences=add(simulate(0, n_queries=60))))
    (row,) = (row for row in result.statistics.to_pylist() if row["statistic"] == statistic)
    assert row["p"] <= 0.01
    assert row["z"] > 3
    assert row["observed"] > row["expected"]
    rows = result.assessors.to_pylist()
    (own,) = (one for one in rows if one["assessor"] == name)
    assert own["statistic"] == statistic
    assert own["z"] > 3
    assert [abs(one["z"]) for one in rows] == sorted((abs(one["z"]) for one in rows), reverse=True)
    assert len(result.sentences) >= 2
    assert result.to_dict()["statistics"] == result.statistics.to_pylist()


def test_an_assessor_has_all_pairs_of_answers_with_others() -> None:
    one = [("q", "a", "b", name, -1) for name in "xyz"]
    result = check_preferences(GDA().fit(None, preferences=pd.DataFrame(one, columns=COLUMNS)))
    by_assessor = [row["number"] for row in result.assessors.to_pylist() if row["statistic"] == "agreement"]
    assert by_assessor == [2, 2, 2]
    (overall,) = (row["number"] for row in result.statistics.to_pylist() if row["statistic"] == "agreement")
    assert overall == 3


def test_the_observed_shares_are_those_of_the_answers() -> None:
    frame = simulate(1, n_queries=4).assign(
        pair=lambda f: f[["left", "right"]].min(axis=1) + f[["left", "right"]].max(axis=1)
    )
    frame["winner"] = np.select(
        [frame["preference"] < 0, frame["preference"] > 0], [frame["left"], frame["right"]], "tie"
    )
    found = by_statistic(frame[COLUMNS])
    decided = frame[frame["preference"] != 0]
    assert found["ties"]["number"] == len(frame)
    assert found["ties"]["observed"] == pytest.approx((frame["preference"] == 0).mean())
    assert found["left"]["observed"] == pytest.approx((decided["preference"] < 0).mean())
    groups = [list(group) for _, group in frame.groupby(["query", "pair"])["winner"]]
    agree = [one == other for group in groups for one, other in combinations(group, 2)]
    assert found["agreement"]["number"] == len(agree)
    assert found["agreement"]["observed"] == pytest.approx(np.mean(agree))
    cycles = []
    for _, own in decided.groupby(["query", "assessor"]):
        winner = dict(zip(own["pair"], own["winner"], strict=True))
        for i, j, k in combinations(sorted({*own["left"], *own["right"]}), 3):
            if {i + j, j + k, i + k} <= set(winner):
                cycles.append(len({winner[i + j], winner[j + k], winner[i + k]}) == 3)
    assert found["cycles"]["number"] == len(cycles) > 20
    assert found["cycles"]["observed"] == pytest.approx(np.mean(cycles))


def test_assessors_of_a_family_are_not_compared() -> None:
    frame = with_copies(simulate(2, n_queries=3))
    frame["family"] = frame["assessor"].replace({"copy": "a0"})
    joined = join(no_judgments("pandas"), read_preferences(frame))
    questions = _Questions(joined.preferences, joined.family_of, np.random.default_rng(0))
    family = joined.family_of[joined.preferences.assessor]
    assert len(questions.one)
    assert len(set(joined.family_of)) == joined.n_assessors - 1
    assert (family[questions.one] != family[questions.other]).all()


def test_statistics_that_the_answers_cannot_have_are_left_out() -> None:
    rows = [("q", "a", "b", "x"), ("q", "a", "b", "y"), ("q", "b", "c", "x")]
    frame = pd.DataFrame(rows, columns=["query", "winner", "loser", "assessor"])
    assert list(by_statistic(frame)) == ["agreement"]


def test_judgments_with_preferences_are_checked_too() -> None:
    frame = simulate(3, n_queries=5)
    grades = pd.DataFrame(
        [(f"q{q}", f"d{d}", g, (d + q) % 3) for q in range(5) for d in range(6) for g in ("g1", "g2")],
        columns=["query", "document", "assessor", "grade"],
    )
    result = check_preferences(GDA().fit(grades, preferences=frame))
    assert result.statistics["number"].to_pylist()[0] == len(frame)
    assert set(result.assessors["assessor"].to_pylist()) == {f"a{n}" for n in range(5)}


def test_a_model_without_preferences_is_refused() -> None:
    grades = pd.DataFrame({"document": ["a", "b"] * 2, "assessor": ["x", "x", "y", "y"], "grade": [0, 1] * 2})
    model = GDA().fit(grades)
    with pytest.raises(UsageError) as refused:
        check_preferences(model)
    assert refused.value.kind == "no-preferences"
