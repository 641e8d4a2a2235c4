"""Least squares over labels and the slopes through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_learning_reference import differences, inputs, solve_unfolded
from scipy import linalg
from scipy.special import expit

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.label_learning import gls_gradients
from crowdrank.label_learning.boosted import Binned, BoostedFunctions
from crowdrank.label_learning.gls_gradients import Background, normal_equations
from crowdrank.label_learning.linear import FARTHEST, Inputs, LinearFunctions, LinearLearnt
from crowdrank.label_learning.objectives import Aim, RankingObjective
from crowdrank.label_learning.remapper import MODES
from crowdrank.rankers.linear import Standard
from crowdrank.rankers.ranking_data import Lists, gather

CLOSE = 1e-6


def drawn(seed: int = 0, n: int = 40, k: int = 5, labels: int = 3) -> dict[str, Any]:
    """Documents, three labels each with features, and graded lists."""
    rng = np.random.default_rng(seed)
    document = rng.permutation(np.repeat(np.arange(n), labels))
    label = rng.integers(0, 2, len(document)).astype(float)
    Y = np.column_stack([label, rng.normal(size=(len(document), 3))])
    V = rng.normal(size=(30, k))
    lists = gather(V, rng.integers(0, 4, 30), np.repeat(np.arange(5), 6))
    return {"X": rng.normal(size=(n, k)), "document": document, "label": label, "Y": Y, "V": V, "lists": lists}


def close(found: Floats, expected: Floats) -> bool:
    return bool(np.abs(found - expected).max() <= CLOSE * np.abs(expected).max())


def pair_loss(lists: Lists, k: int, at: Floats) -> Any:
    """The function whose slope LambdaRank's is at scores `at`: pairs' log loss of standardized scores.

    What each swap changes in DCG@k is held as it is at `at`.
    """
    gain, changes = 2.0**lists.y - 1, []
    for first, last in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        rows = first + np.argsort(-at[first:last], kind="stable")
        discount = np.where(np.arange(len(rows)) < k, 1 / np.log2(np.arange(len(rows)) + 2), 0.0)
        for i, a in enumerate(rows):
            for j, b in enumerate(rows):
                if gain[a] > gain[b]:
                    changes.append((a, b, abs((gain[a] - gain[b]) * (discount[i] - discount[j]))))
    better, worse, change = (np.array(part) for part in zip(*changes, strict=True))

    def value(score: Floats) -> float:
        width = score.std()
        return -float(
            (change * np.logaddexp(0, -(score[better] - score[worse]) / width)).sum() / (len(lists.offsets) - 1)
        )

    return value


@given(st.integers(0, 50), st.sampled_from([0.0, 0.5, 20.0]))
def test_folded_documents_give_what_single_labels_give(seed: int, mu: float) -> None:
    world = drawn(seed)
    rng = np.random.default_rng(seed)
    target, weight = rng.normal(size=len(world["document"])), rng.random(len(world["document"]))
    found = Background(world["X"], world["document"]).solve(target, weight, mu)
    assert np.allclose(found, solve_unfolded(world["X"], world["document"], target, weight, mu), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [1, 511, 512, 513, 1100])
@pytest.mark.parametrize("k", [1, 6, 7])
def test_normal_equations_are_the_products(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    X, mass, target = rng.normal(size=(n, k)), rng.random(n), rng.normal(size=n)
    mass[0] = 0.0
    gram, right = normal_equations(X, mass, mass * target)
    rows = np.column_stack([X, np.ones(n)])
    assert np.allclose(np.triu(gram), np.triu(rows.T @ (mass[:, None] * rows)))
    assert np.allclose(right, rows.T @ (mass * target))


def test_the_ridge_leaves_the_intercept_alone() -> None:
    world = drawn()
    target = world["label"] + 100
    found = Background(world["X"], world["document"]).solve(target, np.ones(len(target)), 1e9)
    assert found[-1] == pytest.approx(target.mean(), abs=1e-3)
    assert np.abs(found[:-1]).max() < 1e-3


def test_the_same_weights_are_factored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world, made = drawn(), []
    monkeypatch.setattr(gls_gradients, "normal_equations", lambda *a: made.append(1) or normal_equations(*a))  # type: ignore[func-returns-value]
    background, weight = Background(world["X"], world["document"]), np.full(len(world["label"]), 0.5)
    rng = np.random.default_rng(0)
    for mu in (1.0, 1.0, 5.0):
        target = rng.normal(size=len(weight))
        once = background.solve(target, weight, mu)
        solved_again = solve_unfolded(world["X"], world["document"], target, weight, mu)
        assert np.allclose(once, solved_again, rtol=1e-9)
    assert len(made) == 1


def test_features_that_depend_on_each_other_are_said() -> None:
    background = Background(np.ones((4, 2)), np.arange(4))
    with pytest.raises(InputError, match="give a larger ridge"):
        background.solve(np.arange(4.0), np.zeros(4), 0.0)


@pytest.mark.parametrize("objective", ["squared", "logistic", lambda s, y: (np.cosh(s - y), np.sinh(s - y))])
@pytest.mark.parametrize("mu", [0.0, 3.0])
def test_slopes_of_labels_are_finite_differences(objective: Any, mu: float) -> None:
    world = drawn()
    aim = Aim(objective)
    aim.adopt(world["lists"].y)
    steering = aim.of(world["lists"])
    background = Background(world["X"], world["document"])
    rng = np.random.default_rng(1)
    target, weight = rng.normal(size=len(world["label"])), rng.random(len(world["label"])) + 0.1

    def value(target: Floats, weight: Floats) -> float:
        background.solve(target, weight, mu)
        return steering.value(background.scores(world["V"]))

    of_target = differences(lambda t: value(t, weight), target)
    of_weight = differences(lambda w: value(target, w), weight)
    value(target, weight)
    found = background.slopes(world["V"], steering.slope(background.scores(world["V"])))
    assert found[1] is not None
    assert close(found[0], of_target)
    assert close(found[1], of_weight)
    assert background.slopes(world["V"], np.ones(30), of_weight=False)[1] is None


def moved(functions: Any, parameters: Floats, mode: str) -> tuple[Floats, Floats]:
    """Targets and weights where the numbers behind them are others: coefficients, or sums of trees."""
    half = len(parameters) // 2
    if isinstance(functions, LinearFunctions):
        target = expit(functions.Y.dense @ parameters[:half]) if "T" in mode else functions.target
        return target, expit(functions.Y.dense @ parameters[half:])
    return (parameters[:half] if "T" in mode else functions.target), expit(parameters[half:])


@pytest.mark.parametrize("objective", ["DCG@3", "squared", "logistic"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_gradients_of_functions_are_finite_differences(kind: str, mode: str, objective: str) -> None:
    world = drawn(3)
    aim = Aim(objective)
    aim.adopt(world["lists"].y)
    steering, background = aim.of(world["lists"]), Background(world["X"], world["document"])
    functions: Any
    if kind == "linear":
        standard = Standard.of(world["Y"], np.ones(len(world["Y"])))
        functions = LinearFunctions(standard, Inputs(standard, world["Y"]), world["label"], 0, mode)
    else:
        functions = BoostedFunctions(Binned(world["Y"], 16), world["label"], mode, 2, 5, 0.05)
    start = world["label"]
    for _ in range(3):  # away from the start, where all weights are equal
        background.solve(functions.target, functions.weight, 2.0)
        score = background.scores(world["V"])
        functions.step(*background.slopes(world["V"], steering.slope(score), of_weight="W" in mode), 0.3)
    background.solve(functions.target, functions.weight, 2.0)
    score = background.scores(world["V"])
    pulls = background.slopes(world["V"], steering.slope(score), of_weight="W" in mode)
    found = functions.gradient(*pulls) if kind == "linear" else functions.slopes(*pulls)
    measure = pair_loss(world["lists"], 3, score) if objective == "DCG@3" else steering.value
    here = (
        np.concatenate([functions.beta, functions.alpha])
        if kind == "linear"
        else np.concatenate([functions.target, functions.raw])
    )

    def value(parameters: Floats) -> float:
        background.solve(*moved(functions, parameters, mode), 2.0)
        return float(measure(background.scores(world["V"])))

    expected = np.split(differences(value, here), 2)
    assert (found[0] is None) == ("T" not in mode)
    assert (found[1] is None) == ("W" not in mode)
    for ours, theirs in zip(found, expected, strict=True):
        if ours is not None:
            assert close(ours, theirs)
    if mode == "W":
        assert functions.target is start or (functions.target == start).all()


def test_ranking_slopes_do_not_stretch_and_do_not_hang_on_the_scale() -> None:
    lists = drawn()["lists"]
    objective = RankingObjective(lists, "DCG@3")
    score = np.random.default_rng(5).normal(size=len(lists.y))
    slope = objective.slope(score)
    assert slope @ (score - score.mean()) == pytest.approx(0, abs=1e-12)
    assert np.allclose(objective.slope(1e-4 * score + 7) * 1e-4, slope, rtol=1e-6, atol=1e-9)
    assert objective.value(score + 1e-3 * slope / np.abs(slope).max()) >= objective.value(score)


def test_equal_scores_have_a_slope_too() -> None:
    lists = drawn()["lists"]
    slope = RankingObjective(lists, "DCG@3").slope(np.zeros(len(lists.y)))
    assert np.abs(slope).max() > 0
    assert np.isfinite(slope).all()


def test_objectives_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="a measure such as DCG@10"):
        Aim("P@5")
    with pytest.raises(UsageError, match="objective is"):
        Aim("squareds")
    with pytest.raises(UsageError, match="two arrays"):
        Aim(lambda s, y: (0.0, 0.0)).of(drawn()["lists"]).value(np.zeros(30))  # type: ignore[arg-type,return-value]
    aim = Aim("squared")
    with pytest.raises(InputError, match="every expert grade is the same"):
        aim.adopt(np.ones(3))


def test_cholesky_is_what_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Z was inverted")

    monkeypatch.setattr(linalg, "inv", refuse)
    monkeypatch.setattr(np.linalg, "inv", refuse)
    world = drawn()
    background = Background(world["X"], world["document"])
    background.solve(world["label"], np.ones(len(world["label"])), 1.0)
    assert np.isfinite(background.slopes(world["V"], np.ones(30))[0]).all()


@given(st.integers(0, 200), st.floats(0, 1))
def test_sparse_inputs_multiply_as_written_out(seed: int, empty: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((30, 5)) < empty, 0.0, rng.standard_t(2, size=(30, 5)))
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    matrix[:, 3] = 7.0
    standard = Standard.of(matrix, np.ones(len(matrix)))
    known, written = Inputs(standard, matrix), inputs(matrix, standard.mean, standard.scale, FARTHEST)
    assert np.allclose(known.dense, written)
    first, second = rng.normal(size=(2, known.width))
    for found, expected in zip(known.sums(first, second), (written @ first, written @ second), strict=True):
        assert np.allclose(found, expected)
    left, right = rng.normal(size=(2, len(known)))
    for found, expected in zip(known.moments(left, right), (left @ written, right @ written), strict=True):
        assert np.allclose(found, expected)
    target, weight = LinearLearnt(standard, first, second, learns_target=True).apply(matrix, np.zeros(len(matrix)))
    assert np.allclose(target, expit(written @ second))
    assert np.allclose(weight, expit(written @ first))


def test_what_is_true_of_few_labels_is_not_cut_off() -> None:
    rare = (np.arange(250) == 3).astype(float)[:, None]
    known = Inputs(Standard.of(rare, np.ones(len(rare))), rare)
    assert known.dense[3, 0] == pytest.approx(np.sqrt(249))
