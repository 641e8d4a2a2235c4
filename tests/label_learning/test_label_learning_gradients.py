"""Least squares over labels, objectives, and the gradients through both."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_learning_reference import differences, soft_dcg, solve_unfolded, standardized_inputs
from scipy import linalg
from scipy.special import expit

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.label_learning import gradient_ascent
from crowdrank.label_learning.boosted_remapper import BoostedFunctions, GrowingTrees, binned_dataset
from crowdrank.label_learning.gradient_ascent import MODES, LabelRegression, normal_equations
from crowdrank.label_learning.linear_remapper import (
    MAX_DEVIATION,
    LinearCoefficients,
    LinearFunctions,
    StandardizedInputs,
    rescaled_target,
    target_offset,
)
from crowdrank.label_learning.objectives import (
    SOFTRANK_NOISE,
    LambdaRankObjective,
    ObjectiveSpec,
    SoftRankObjective,
)
from crowdrank.rankers.training_data import RankingData, Standardizer

CLOSE = 1e-6


def drawn(seed: int = 0, n: int = 40, k: int = 5, labels: int = 3) -> dict[str, Any]:
    """Documents, three labels each with features, and graded lists."""
    rng = np.random.default_rng(seed)
    document = rng.permutation(np.repeat(np.arange(n), labels))
    label = rng.integers(0, 2, len(document)).astype(float)
    Y = np.column_stack([label, rng.normal(size=(len(document), 3))])
    V = rng.normal(size=(30, k))
    lists = RankingData.from_ids(V, rng.integers(0, 4, 30), np.repeat(np.arange(5), 6))
    return {"X": rng.normal(size=(n, k)), "document": document, "label": label, "Y": Y, "V": V, "lists": lists}


def close(found: Floats, expected: Floats) -> bool:
    return bool(np.abs(found - expected).max() <= CLOSE * np.abs(expected).max())


def pair_loss(lists: RankingData, k: int, at: Floats) -> Any:
    """The function whose slope LambdaRank's is at scores `at`: pairs' log loss of standardized scores.

    What each swap changes in DCG@k is held as it is at `at`.
    """
    gain, changes = 2.0**lists.grade - 1, []
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
    found = LabelRegression(world["X"], world["document"]).solve(target, weight, mu)
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
    found = LabelRegression(world["X"], world["document"]).solve(target, np.ones(len(target)), 1e9)
    assert found[-1] == pytest.approx(target.mean(), abs=1e-3)
    assert np.abs(found[:-1]).max() < 1e-3


def test_the_same_weights_are_factored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world, made = drawn(), []
    monkeypatch.setattr(gradient_ascent, "normal_equations", lambda *a: made.append(1) or normal_equations(*a))  # type: ignore[func-returns-value]
    regression, weight = LabelRegression(world["X"], world["document"]), np.full(len(world["label"]), 0.5)
    rng = np.random.default_rng(0)
    for mu in (1.0, 1.0, 5.0):
        target = rng.normal(size=len(weight))
        once = regression.solve(target, weight, mu)
        anew = solve_unfolded(world["X"], world["document"], target, weight, mu)
        assert np.allclose(once, anew, rtol=1e-9)
    assert len(made) == 1


def test_features_that_depend_on_each_other_are_said() -> None:
    regression = LabelRegression(np.ones((4, 2)), np.arange(4))
    with pytest.raises(InputError) as caught:
        regression.solve(np.arange(4.0), np.zeros(4), 0.0)
    assert caught.value.kind == "dependent-features"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "ridge"


@pytest.mark.parametrize("objective", ["squared", "logistic", lambda s, y: (np.cosh(s - y), np.sinh(s - y))])
@pytest.mark.parametrize("mu", [0.0, 3.0])
def test_slopes_of_labels_are_finite_differences(objective: Any, mu: float) -> None:
    world = drawn()
    spec = ObjectiveSpec(objective)
    spec.set_range(world["lists"].grade)
    training = spec.build_objective(world["lists"])
    regression = LabelRegression(world["X"], world["document"])
    rng = np.random.default_rng(1)
    target, weight = rng.normal(size=len(world["label"])), rng.random(len(world["label"])) + 0.1

    def value(target: Floats, weight: Floats) -> float:
        regression.solve(target, weight, mu)
        return training.value(regression.predict(world["V"]))

    of_target = differences(lambda t: value(t, weight), target)
    of_weight = differences(lambda w: value(target, w), weight)
    value(target, weight)
    found = regression.gradients(world["V"], training.gradient(regression.predict(world["V"])))
    assert found[1] is not None
    assert close(found[0], of_target)
    assert close(found[1], of_weight)
    assert regression.gradients(world["V"], np.ones(30), with_weight_gradient=False)[1] is None


def moved(functions: Any, parameters: Floats, mode: str) -> tuple[Floats, Floats]:
    """Targets and weights for other parameters: coefficients, or sums of trees."""
    half = len(parameters) // 2
    if isinstance(functions, LinearFunctions):
        raw = functions.inputs.products(parameters.reshape(2, half).T)
        target = rescaled_target(functions.offset + raw[:, 0]) if "T" in mode else functions.target
        return target, expit(raw[:, 1])
    return (parameters[:half] if "T" in mode else functions.target), expit(parameters[half:])


@pytest.mark.parametrize("objective", ["DCG@3", "softrank", "squared", "logistic"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_gradients_of_functions_are_finite_differences(kind: str, mode: str, objective: str) -> None:
    world = drawn(3)
    spec = ObjectiveSpec("DCG@3", measure="softrank") if objective == "softrank" else ObjectiveSpec(objective)
    spec.set_range(world["lists"].grade)
    training: Any = spec.build_objective(world["lists"])
    regression = LabelRegression(world["X"], world["document"])
    functions: Any
    if kind == "linear":
        inputs = StandardizedInputs(Standardizer.fit(world["Y"], np.ones(len(world["Y"]))), world["Y"])
        functions = LinearFunctions(inputs, world["label"], np.full(len(world["Y"]), 0.5), mode)
    else:
        trees = [GrowingTrees(binned_dataset(world["Y"], 16), 2, 5) for _ in range(2)]
        functions = BoostedFunctions(trees[0], trees[1], world["label"], np.full(len(world["Y"]), 0.5), mode)

    def gradients() -> tuple[Floats, Any]:
        regression.solve(functions.target, functions.weight, 2.0)
        score = regression.predict(world["V"])
        return score, regression.gradients(world["V"], training.gradient(score), with_weight_gradient="W" in mode)

    for _ in range(3):  # away from the start, where all weights are equal
        functions.step(*gradients()[1], 0.3)
    score, of_labels = gradients()
    found = functions.gradient(*of_labels)
    smooth = {"DCG@3": lambda: pair_loss(world["lists"], 3, score), "softrank": lambda: training.smooth_value}
    measure = smooth.get(objective, lambda: training.value)()
    linear = kind == "linear"
    first, second = (functions.beta, functions.alpha) if linear else (functions.target, functions.raw_weight)

    def value(parameters: Floats) -> float:
        regression.solve(*moved(functions, parameters, mode), 2.0)
        return float(measure(regression.predict(world["V"])))

    expected = np.split(differences(value, np.concatenate([first, second])), 2)
    for letter, ours, theirs in zip("TW", found, expected, strict=True):
        if letter in mode:
            assert close(ours, theirs)
        else:
            assert ours is None or (ours == 0).all()
    if mode == "W":
        assert functions.target is world["label"]


@pytest.mark.parametrize("measure", ["DCG@3", "nDCG@4", "DCG"])
def test_softrank_is_the_expected_measure_of_noisy_scores(measure: str) -> None:
    lists = drawn()["lists"]
    objective = SoftRankObjective(lists, measure)
    score = np.random.default_rng(5).normal(size=len(lists.grade))
    cutoff = int(measure.partition("@")[2] or 6)
    standardized, expected = (score - score.mean()) / score.std(), []
    for first, last in pairwise(lists.offsets):
        gain = 2.0 ** lists.grade[first:last] - 1
        ideal = np.sort(gain)[::-1][:cutoff] @ (1 / np.log2(np.arange(cutoff) + 2)) if "n" in measure else 1.0
        expected.append(soft_dcg(standardized[first:last], gain, cutoff, SOFTRANK_NOISE) / ideal)
    assert objective.smooth_value(score) == pytest.approx(sum(expected) / len(expected), abs=1e-12)
    found = differences(objective.smooth_value, score, 1e-3)
    assert np.abs(objective.gradient(score) - found).max() < 1e-7


def test_softrank_refuses_other_measures() -> None:
    with pytest.raises(UsageError) as caught:
        ObjectiveSpec("ERR", measure="softrank").build_objective(drawn()["lists"])
    assert caught.value.parameter == "measure"


def test_a_logistic_score_is_a_probability_and_predictions_are_logits() -> None:
    spec = ObjectiveSpec("logistic")
    spec.set_range(np.array([0.0, 4.0]))
    factor, offset = spec.output_scale
    assert expit(factor * 0.5 + offset) == 0.5
    objective = spec.build_objective(RankingData.from_ids(np.eye(2), [0, 4], ["a", "b"]))
    assert objective.value(np.array([0.1, 0.9])) > objective.value(np.array([0.5, 0.5]))
    assert objective.value(np.array([0.9, 0.1])) < objective.value(np.array([0.5, 0.5]))


@given(st.floats(0, 1))
def test_targets_of_linear_functions_start_at_the_label(label: float) -> None:
    assert rescaled_target(target_offset(np.array([label])))[0] == pytest.approx(label, abs=1e-12)


def test_ranking_slopes_do_not_stretch_and_do_not_hang_on_the_scale() -> None:
    lists = drawn()["lists"]
    objective = LambdaRankObjective(lists, "DCG@3")
    score = np.random.default_rng(5).normal(size=len(lists.grade))
    slope = objective.gradient(score)
    assert slope @ (score - score.mean()) == pytest.approx(0, abs=1e-12)
    assert np.allclose(objective.gradient(1e-4 * score + 7) * 1e-4, slope, rtol=1e-6, atol=1e-9)
    assert objective.value(score + 1e-3 * slope / np.abs(slope).max()) >= objective.value(score)


def test_equal_scores_have_a_slope_too() -> None:
    lists = drawn()["lists"]
    slope = LambdaRankObjective(lists, "DCG@3").gradient(np.zeros(len(lists.grade)))
    assert np.abs(slope).max() > 0
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("objective", ["P@5", "squareds"])
def test_unknown_objectives_are_refused(objective: str) -> None:
    with pytest.raises(UsageError) as caught:
        ObjectiveSpec(objective)
    assert caught.value.parameter == "objective"


def test_losses_must_return_two_arrays() -> None:
    with pytest.raises(UsageError) as caught:
        ObjectiveSpec(lambda s, y: (0.0, 0.0)).build_objective(drawn()["lists"]).value(np.zeros(30))  # type: ignore[arg-type,return-value]
    assert caught.value.parameter == "objective"


def test_equal_expert_grades_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        ObjectiveSpec("squared").set_range(np.ones(3))
    assert caught.value.kind == "equal-expert-grades"


def test_cholesky_is_what_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Z was inverted")

    monkeypatch.setattr(linalg, "inv", refuse)
    monkeypatch.setattr(np.linalg, "inv", refuse)
    world = drawn()
    regression = LabelRegression(world["X"], world["document"])
    regression.solve(world["label"], np.ones(len(world["label"])), 1.0)
    assert np.isfinite(regression.gradients(world["V"], np.ones(30))[0]).all()


@given(st.integers(0, 200), st.floats(0, 1))
def test_sparse_inputs_multiply_like_dense_ones(seed: int, empty: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((30, 5)) < empty, 0.0, rng.standard_t(2, size=(30, 5)))
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    matrix[:, 3] = 7.0
    standard = Standardizer.fit(matrix, np.ones(len(matrix)))
    inputs = StandardizedInputs(standard, matrix)
    dense = standardized_inputs(matrix, standard.mean, standard.scale, MAX_DEVIATION)
    coefficients, values = rng.normal(size=(inputs.n_coefficients, 2)), rng.normal(size=(len(inputs), 2))
    assert np.allclose(inputs.products(coefficients), dense @ coefficients)
    assert np.allclose(inputs.transposed_products(values), dense.T @ values)
    learned = LinearCoefficients(standard, coefficients[:, 0], coefficients[:, 1], learns_target=True)
    target, weight = learned.apply(matrix, np.zeros(len(matrix)))
    assert np.allclose(target, (expit(dense @ coefficients[:, 1]) - 0.5) / (expit(1) - 0.5))
    assert np.allclose(weight, expit(dense @ coefficients[:, 0]))


def test_rare_features_are_not_clipped() -> None:
    rare = (np.arange(250) == 3).astype(float)[:, None]
    inputs = StandardizedInputs(Standardizer.fit(rare, np.ones(len(rare))), rare)
    assert inputs.products(np.array([[1.0], [0.0]]))[3, 0] == pytest.approx(np.sqrt(249))
