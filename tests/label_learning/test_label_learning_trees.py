"""Sums of trees over label features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_learning_reference import grow_tree

from crowdrank._typing import Floats
from crowdrank.label_learning.boosted_remapper import GrowingTrees, LearnedTrees, TreeSum, binned_dataset


def matrix_of(seed: int, n: int = 80) -> Floats:
    """Features of few values, of many, and a constant one."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, 3, n), rng.integers(0, 20, n), np.ones(n)]).astype(float)


def trees_over(matrix: Floats, depth: int = 3, min_labels: int = 2) -> GrowingTrees:
    return GrowingTrees(binned_dataset(matrix, 255), depth, min_labels)


@given(st.integers(0, 50), st.integers(1, 3), st.sampled_from([1, 3, 10]))
def test_a_tree_is_the_one_with_the_best_splits(seed: int, depth: int, min_labels: int) -> None:
    matrix = matrix_of(seed)
    gradient = 1e-6 * np.random.default_rng(seed + 1).normal(size=len(matrix))
    outputs = trees_over(matrix, depth, min_labels).add(gradient, 0.5)
    expected = grow_tree(matrix, gradient * 1e6, depth, min_labels)
    assert np.sqrt(np.mean(outputs**2)) == pytest.approx(0.5)
    assert np.allclose(outputs, expected * 0.5 / np.sqrt(np.mean(expected**2)), atol=1e-5)


@given(st.integers(0, 50))
def test_saved_trees_give_the_sum_of_the_outputs(seed: int) -> None:
    matrix = matrix_of(seed)
    matrix[np.random.default_rng(seed).random(matrix.shape) < 0.2] = np.nan
    trees, total, early = trees_over(matrix), np.zeros(len(matrix)), np.zeros(0)
    for number in range(4):
        total = total + trees.add(np.random.default_rng(seed + number).normal(size=len(matrix)), 0.1)
        if number == 1:
            snapshot, early = trees.snapshot(), total
    assert np.allclose(snapshot.predict(matrix), early)
    again = TreeSum.from_text(trees.snapshot().text, 3)
    assert np.allclose(again.predict(matrix), total)
    assert again.importances(3) == pytest.approx(trees.snapshot().importances(3), rel=1e-4)


def test_every_tree_has_the_same_total_importance() -> None:
    matrix = matrix_of(0)
    trees = trees_over(matrix, depth=1)
    trees.add(np.where(matrix[:, 0] > 0, 1e6, 0.0), 1.0)
    trees.add(np.where(matrix[:, 1] > 9, 1e-6, 0.0), 1.0)
    assert trees.snapshot().importances(3).tolist() == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.parametrize("gradient", [np.zeros(80), np.full(80, 0.1)])
def test_a_gradient_without_splits_adds_nothing(gradient: Any) -> None:
    trees = trees_over(matrix_of(0))
    for _ in range(2):
        assert (trees.add(gradient, 1.0) == 0).all()
    assert (trees.snapshot().importances(3) == 0).all()
    assert (trees.snapshot().predict(matrix_of(1)) == 0).all()


def test_no_trees_leave_the_start() -> None:
    nothing = TreeSum.from_text("", 2)
    target, weight = LearnedTrees((nothing,), (nothing,)).apply(np.zeros((3, 2)), np.arange(3.0))
    assert (target == np.arange(3)).all()
    assert (weight == 0.5).all()
    assert (nothing.importances(2) == 0).all()
