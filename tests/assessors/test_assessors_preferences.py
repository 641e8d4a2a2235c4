"""The report on assessors of preferences: information, test and interval of position bias, cycles."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from crowdrank import GDA, read_preferences
from crowdrank.assessors import preference_report
from crowdrank.assessors.preference_report import (
    count_cycles,
    missing_information,
    observed_variance,
    preference_information,
    preference_table,
)

OFFSETS = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.2, -1.2])


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return the report on 8 assessors, of which two have a position bias; the last one is random."""
    rng, rows = np.random.default_rng(3), []
    relevance = rng.normal(size=(40, 8))
    sharpness = np.array([3.0, 2.0, 1.5, 1.5, 1.5, 0.0, 1.5, 1.5])
    for query in range(40):
        for _ in range(40):
            (left, right), a = rng.choice(8, 2, replace=False), rng.integers(8)
            x = sharpness[a] * (relevance[query, left] - relevance[query, right]) + OFFSETS[a] + rng.logistic()
            rows.append((f"q{query}", f"d{left}", f"d{right}", f"a{a}", -1 if x > 0 else 1))
    frame = pd.DataFrame(rows, columns=["query", "left", "right", "assessor", "preference"])
    model = GDA().fit(None, preferences=read_preferences(frame, repeats="keep"))
    report: pd.DataFrame = preference_table(model).to_pandas()
    return report.set_index("assessor")


def test_biased_assessors_are_found(table: pd.DataFrame) -> None:
    biased = table.loc[["a6", "a7"]]
    assert (biased["position_bias_p"] < 0.001).all()
    assert biased["position_bias"].to_numpy() == pytest.approx([0.54, -0.54], abs=0.15)
    others = table.drop(index=["a6", "a7"])
    assert (others["position_bias_p"] > 0.01).all()
    assert ((others["position_bias_lower"] < 0) & (others["position_bias_upper"] > 0)).all()
    assert (table["position_bias_lower"] < table["position_bias"]).all()
    assert (table["position_bias"] < table["position_bias_upper"]).all()


def fit_unbiased(seed: int) -> GDA:
    """Return a fit of the answers of 6 sharp assessors without position bias."""
    rng = np.random.default_rng(seed)
    query, assessor = np.repeat(np.arange(40), 20), rng.integers(6, size=800)
    relevance = rng.normal(size=(40, 8))
    left, away = rng.integers(8, size=800), rng.integers(1, 8, size=800)
    right = (left + away) % 8
    x = 5.0 * (relevance[query, left] - relevance[query, right]) + rng.logistic(size=800)
    answer = np.where(np.abs(x) < 0.3, 0, -np.sign(x)).astype(int)
    columns = {"query": query, "left": left, "right": right, "assessor": assessor, "preference": answer}
    return GDA().fit(None, preferences=read_preferences(pd.DataFrame(columns).astype({"query": str}), repeats="keep"))


def test_the_test_of_bias_has_about_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [fit_unbiased(seed) for seed in range(10)]

    def p_values() -> np.ndarray:
        return np.concatenate([preference_table(model)["position_bias_p"].to_numpy() for model in models])

    observed = p_values()
    assert (observed < 0.05).mean() <= 0.1
    monkeypatch.setattr(preference_report, "missing_information", lambda model: np.zeros((6, 4, 4)))
    assert (p_values() < observed).mean() > 0.6


def test_missing_information_widens_the_variance_and_stays_below_the_complete_one() -> None:
    missing = missing_information(fit_unbiased(0))
    assert (np.linalg.eigvalsh(missing) > -1e-9).all()
    assert (missing[:, 1, 1] > 0).all()
    complete = np.array([np.diag([4.0, 2.0]), np.diag([4.0, 2.0])])
    lost = np.array([np.diag([1.0, 0.0]), np.diag([0.0, 9.0])])
    assert observed_variance(complete, lost) == pytest.approx(np.array([[1 / 3, 1 / 2], [1 / 4, 50.0]]))


def test_the_most_informative_assessor_is_first(table: pd.DataFrame) -> None:
    assert table.index[0] == "a0"
    assert table.index[-1] == "a5"
    assert table["preference_information"]["a5"] < 0.1 * table["preference_information"]["a0"]


def test_information_is_the_mutual_information_of_answer_and_difference() -> None:
    params = np.array([[0.4, 0.3, 0.0, 0.0]])
    draws = np.random.default_rng(0).normal(0, np.sqrt(2), 200_000)
    left = expit(np.exp(0.4) * draws + 0.3)

    def entropy(p: float | np.ndarray) -> float | np.ndarray:
        return -p * np.log(p) - (1 - p) * np.log(1 - p)

    expected = entropy(left.mean()) - np.mean(entropy(left))
    active = np.array([True, True, False, False])
    assert preference_information(params, active)[0] == pytest.approx(expected, abs=0.003)


def test_cycles_are_those_of_all_sets_of_three() -> None:
    rng, rows = np.random.default_rng(1), []
    for assessor in "xy":
        for query in range(3):
            for left, right in combinations("abcdef", 2):
                rows.append((f"q{query}", left, right, assessor, int(rng.integers(-1, 2))))
    frame = pd.DataFrame(rows, columns=["query", "left", "right", "assessor", "preference"])
    preferences = read_preferences(frame)
    cyclic, triads = count_cycles(preferences)
    for code, assessor in enumerate(preferences.assessors.to_pylist()):
        own = frame[frame["assessor"] == assessor]
        wins = {(row.query, *((row.left, row.right)[:: -row.preference])) for row in own.itertuples() if row.preference}
        found = n = 0
        for query in own["query"].unique():
            for three in combinations("abcdef", 3):
                edges = [(one, other) for one, other in wins_of(wins, query) if {one, other} <= set(three)]
                n += len(edges) == 3
                found += len(edges) == 3 and len({one for one, _ in edges}) == 3
        assert (cyclic[code], triads[code]) == (found, n)


def wins_of(wins: set[tuple[str, ...]], query: str) -> list[tuple[str, str]]:
    return [(one, other) for name, one, other in wins if name == query]


def test_contradicted_answers_are_not_decided() -> None:
    rows = {"winner": ["a", "b", "b", "c", "a"], "loser": ["b", "a", "c", "a", "c"], "assessor": "x"}
    preferences = read_preferences(pd.DataFrame(rows), repeats="keep")
    assert [numbers.tolist() for numbers in count_cycles(preferences)] == [[0], [0]]
