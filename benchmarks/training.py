"""Time of a gradient step of learned targets and weights, relative to the matrix product X'X that it needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.measure import Result, at_most, best, in_own_process

DOCUMENTS, FEATURES, LABELS, LABEL_FEATURES = 132_000, 300, 3, 29
EXPERTS, LIST = 36_000, 14
"""Sizes of the REMAP paper: documents with three labels each; expert-graded documents for training and validation."""
RUNS = 5


def _random_data() -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(DOCUMENTS, FEATURES))
    Y = rng.normal(size=(DOCUMENTS * LABELS, LABEL_FEATURES))
    Y[:, 0] = rng.integers(0, 2, len(Y))
    experts = []
    for _ in range(2):
        V, query = rng.normal(size=(EXPERTS, FEATURES)), np.arange(EXPERTS) // LIST
        experts.append((V, rng.choice(5, EXPERTS, p=[0.5, 0.25, 0.15, 0.07, 0.03]).astype(float), query))
    return X, np.repeat(np.arange(DOCUMENTS), LABELS), Y, experts


def _step_seconds() -> dict[str, float]:
    """Measure X'X, a step without functions in each mode, the linear functions, and two trees."""
    from crowdrank.label_learning.boosted_remapper import BoostedFunctions, GrowingTrees, binned_dataset
    from crowdrank.label_learning.gradient_ascent import LabelRegression
    from crowdrank.label_learning.linear_remapper import LinearFunctions, StandardizedInputs
    from crowdrank.label_learning.objectives import ObjectiveSpec
    from crowdrank.rankers.training_data import RankingData, Standardizer

    X, document, Y, experts = _random_data()
    regression, unweighted = LabelRegression(X, document), LabelRegression(X, document)
    (V, training), (W, validation) = (
        (rows[0], ObjectiveSpec("DCG@10").build_objective(RankingData.from_ids(*rows))) for rows in experts
    )
    label, weight = Y[:, 0].copy(), np.full(len(Y), 0.5)

    def step(regression: LabelRegression, weight: Any, with_weight_gradient: bool) -> tuple[Any, Any]:
        regression.solve(label, weight, 1e4)
        score = regression.predict(V)
        training.value(score), validation.value(regression.predict(W))
        return regression.gradients(V, training.gradient(score), with_weight_gradient=with_weight_gradient)

    gradients = step(regression, weight, True)
    step(unweighted, weight, False)
    linear = LinearFunctions(StandardizedInputs(Standardizer.fit(Y, np.ones(len(Y))), Y), label, weight, "W+T")
    trees = [GrowingTrees(binned_dataset(Y, 64), 3, 50) for _ in range(2)]
    boosted = BoostedFunctions(trees[0], trees[1], label, weight, "W+T")
    boosted.step(*gradients, 0.05)
    seconds: dict[str, float] = {}
    # In turns, so that other load of the machine affects all measurements alike.
    for _ in range(RUNS):
        for name, work in {
            "XX": lambda: X.T @ X,
            "weights and targets": lambda: step(regression, weight.copy(), True),
            "targets": lambda: step(unweighted, weight, False),
            "linear functions": lambda: linear.step(*gradients, 0.1),
            "two trees": lambda: boosted.step(*gradients, 0.05),
        }.items():
            seconds[name] = min(seconds.get(name, np.inf), best(work, 1))
    return seconds


def step() -> list[Result]:
    """Divide the times of the parts of a step by that of X'X of the documents' features."""
    seconds = in_own_process(_step_seconds)
    floor = seconds["XX"]
    sizes = f"{DOCUMENTS // 1000}k documents x {FEATURES}"
    trees = f"two trees on {DOCUMENTS * LABELS // 1000}k labels x {LABEL_FEATURES}"
    goals = {"weights and targets": 1.5, "targets": 1.5, "linear functions": 1.5, "two trees": 2.0}
    named = {
        "weights and targets": f"a step of a remapper, weights and targets / X'X, {sizes}",
        "targets": f"a step of a remapper, targets alone / X'X, {sizes}",
        "linear functions": f"linear functions of a remapper / X'X, {sizes}",
        "two trees": f"{trees} / X'X, {sizes}",
    }
    return [
        at_most(named[name], seconds[name] / floor, goal, ours=seconds[name], product=floor)
        for name, goal in goals.items()
    ]
