"""Trees over binned label features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_learning_reference import grow_tree

from crowdrank._typing import Floats
from crowdrank.label_learning import kernels
from crowdrank.label_learning.boosted import Binned, Grower, Trees


def matrix_of(seed: int, n: int = 80) -> Floats:
    """Features of few values, of many, with blanks, and a constant one."""
    rng = np.random.default_rng(seed)
    few, many = rng.integers(0, 3, n).astype(float), rng.normal(size=n)
    blanks = np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n))
    return np.column_stack([few, many, blanks, np.ones(n)])


@given(st.integers(0, 200), st.integers(1, 4), st.sampled_from([1, 3, 10]), st.sampled_from([2, 5, 16, 255]))
def test_a_tree_is_the_one_that_trying_every_split_grows(seed: int, depth: int, least: int, bins: int) -> None:
    binned = Binned(matrix_of(seed), bins)
    aim = np.random.default_rng(seed + 1).normal(size=len(binned.bins))
    tree, said = Grower(binned, depth, least)(aim)
    expected, won = grow_tree(binned.bins, binned.n_bins, aim, depth, least)
    assert np.allclose(said, expected)
    assert tree.gain.sum() == pytest.approx(won)


@given(st.integers(0, 100), st.sampled_from([4, 255]))
def test_a_tree_says_the_same_of_bins_and_of_values(seed: int, bins: int) -> None:
    matrix = matrix_of(seed)
    binned = Binned(matrix, bins)
    trees, sums = [], np.zeros(len(matrix))
    for number in range(3):
        tree, said = Grower(binned, 3, 2)(np.random.default_rng(seed + number).normal(size=len(matrix)))
        trees.append(tree)
        sums += said
    together = Trees.of(trees, 15)
    assert np.allclose(together.add_to(np.ones(len(matrix)), matrix, 0.5), 1 + 0.5 * sums)
    assert together.importances(4).sum() == pytest.approx(1)
    assert together.importances(4)[3] == 0


@given(st.integers(0, 100), st.sampled_from([2, 7, 64, 255]))
def test_bins_keep_the_order_of_values(seed: int, most: int) -> None:
    matrix = matrix_of(seed, 300)
    binned = Binned(matrix, most)
    assert (binned.n_bins <= most).all()
    for column, bins, edges in zip(matrix.T, binned.bins.T, binned.edges, strict=True):
        there = ~np.isnan(column)
        assert (bins[~there] == 0).all()
        assert (bins[there] == (column[there][:, None] > edges).sum(axis=1)).all()
    assert (np.bincount(binned.bins[:, 1]) >= 300 // most - 1).all()


def test_a_tree_of_nothing_to_explain_is_a_leaf() -> None:
    tree, said = Grower(Binned(matrix_of(0), 16), 3, 1)(np.full(80, 0.1))
    assert (tree.feature == kernels.LEAF).all()
    assert np.allclose(said, 0.1)


def test_no_trees_add_nothing() -> None:
    nothing = Trees.of([], 7)
    assert (nothing.add_to(np.arange(3.0), np.zeros((3, 2)), 1.0) == np.arange(3)).all()
    assert (nothing.importances(2) == 0).all()


def test_one_reading_gives_both_products() -> None:
    rng = np.random.default_rng(0)
    X, a, b = rng.normal(size=(9, 5)), rng.normal(size=5), rng.normal(size=5)
    of_a, of_b = np.empty(9), np.empty(9)
    kernels.two_products(X, a, b, of_a, of_b)
    assert np.allclose(of_a, X @ a)
    assert np.allclose(of_b, X @ b)


def test_scaled_rows() -> None:
    rng = np.random.default_rng(0)
    X, root, aim = rng.normal(size=(9, 2)), rng.random(9), rng.random(9)
    scaled: Any = np.zeros((4, 5))
    kernels.scale_rows(X, root, aim, 3, 6, scaled)
    expected = np.column_stack([X * root[:, None], root, aim])[3:6]
    assert np.allclose(scaled[:3, :4], expected)
    assert (scaled[3] == 0).all()
