"""Check the text of a LightGBM model before LightGBM reads it.

LightGBM does not validate indices in a model file: an invalid one crashes the process or reads out of bounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crowdrank._saved import require

END = "end of trees\n"
_HEADER = {
    "version": r"v\d+",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": r"\d{1,9}",
    "max_feature_idx": r"\d{1,9}",
    "objective": r"[\w :.,-]+",
    "average_output": "",
    "feature_names": r"[^ ]+(?: [^ ]+)*",
    "monotone_constraints": r"[0-9 -]+",
    "feature_infos": r"[^ ]+(?: [^ ]+)*",
    "tree_sizes": r"\d{1,9}(?: \d{1,9})*",
}
"""Keys of the lines before the trees, and patterns of their values."""
_TAIL = re.compile(
    r"\n*feature_importances:\n(?:[^ =\[\n]+=\d+\n)*\n*"
    r"parameters:\n(?:\[\w+: .*\]\n)*\n*end of parameters\n+(?:pandas_categorical:null\n*)?"
)
"""Text after the trees."""
_NODE_VALUES = ("split_gain", "internal_value", "internal_weight", "internal_count")
_LEAF_VALUES = ("leaf_weight", "leaf_count")
_LINE = re.compile(r"[a-z_]+=[^\r\n]*")
"""One line of a tree."""
_MAX_LINES = 22
"""Maximum number of lines per tree that LightGBM reads."""
_INTEGERS = re.compile(r"[0-9 -]*")
_NUMBERS = re.compile(r"[0-9a-z .+-]*")
_N_MISSING_TYPES = 3
"""Number of missing-value types in LightGBM's decision_type."""


def check_trees(text: str, n_features: int, names: Sequence[str] | None = None) -> int:
    """Return the number of trees; raise ValueError unless the text is a complete model with `n_features` features.

    Args:
        text: the model, as LightGBM writes it.
        n_features: number of features.
        names: names that the features must have in the text, in this order; by default any.

    """
    head, start, rest = text.partition("Tree=")
    require(start and END in rest, "the trees are incomplete")
    body, _, tail = (start + rest).partition(END)
    require(body.isascii(), "the trees are not plain text")
    sizes = _check_header(head, n_features, names)
    require(body.rstrip("\n").count("Tree=") == len(sizes), "there are more or fewer trees than tree_sizes says")
    place = 0
    for number, size in enumerate(sizes):
        _check_tree(body[place : place + size], number, n_features)
        place += size
    require(not body[place:].strip("\n"), "the sizes of the trees do not add up")
    require(_TAIL.fullmatch(tail), "the text after the trees cannot be read")
    return len(sizes)


def _check_header(head: str, n_features: int, names: Sequence[str] | None) -> list[int]:
    """Check the lines before the trees; return the length of each tree in characters."""
    name, *lines = head.splitlines()
    require(name == "tree", "it does not begin with 'tree'")
    found = _pairs(lines)
    for key, value in found.items():
        require(key in _HEADER and re.fullmatch(_HEADER[key], value), f"{key} cannot be read")
    missing = set(_HEADER) - {"objective", "average_output", "monotone_constraints"} - set(found)
    require(not missing, f"{min(missing, default='')} is missing")
    require(int(found["max_feature_idx"]) == n_features - 1, "the trees have other features")
    for key in ("feature_names", "feature_infos"):
        require(len(found[key].split(" ")) == n_features, f"{key} has another number of features")
    if names is not None:
        require(found["feature_names"].split(" ") == list(names), "the features of the trees have other names")
    return [int(size) for size in found["tree_sizes"].split(" ")]


def _pairs(lines: list[str]) -> dict[str, str]:
    pairs = [line.partition("=")[::2] for line in lines if line]
    found = dict(pairs)
    require(len(found) == len(pairs), "a line occurs twice")
    return found


def _check_tree(block: str, number: int, n_features: int) -> None:
    require(block.startswith(f"Tree={number}\n") and block.endswith("\n"), f"tree {number} is incomplete")
    lines = block.rstrip("\n").split("\n")[1:]
    # LightGBM stops reading at a blank line, and reads on to the next = where a line has none.
    require(len(lines) <= _MAX_LINES and all(map(_LINE.fullmatch, lines)), f"tree {number} cannot be read")
    found = _pairs(lines)
    n = int(_integers(found, "num_leaves", 1)[0])
    n_categorical = int(_integers(found, "num_cat", 1)[0])
    require(n >= 1 and n_categorical >= 0, f"tree {number} has no leaves")
    _numbers(found, "leaf_value", n)
    _numbers(found, "shrinkage", 1)
    if n > 1:
        _check_nodes(found, n, n_features, n_categorical)
    linear = _integers(found, "is_linear", 1) if "is_linear" in found else np.zeros(1)
    require(linear[0] in (0, 1), "is_linear is not 0 or 1")
    if linear[0]:
        _check_linear(found, n, n_features)


def _check_nodes(found: dict[str, str], n: int, n_features: int, n_categorical: int) -> None:
    """Check that the splits form a tree, on features that exist."""
    feature = _integers(found, "split_feature", n - 1)
    require(((feature >= 0) & (feature < n_features)).all(), "a split is on a feature that does not exist")
    children = np.concatenate([_integers(found, name, n - 1) for name in ("left_child", "right_child")])
    require(((children >= -n) & (children <= n - 2)).all(), "a child of a split does not exist")
    # Every leaf and every split but the first has one parent, which comes before it: so there is no cycle.
    require(len(np.unique(children)) == 2 * (n - 1), "a leaf or a split has two parents")
    parents = np.tile(np.arange(n - 1), 2)
    require(((children < 0) | (children > parents)).all(), "a split comes before its parent")
    kind = _integers(found, "decision_type", n - 1)
    require(((kind >= 0) & (kind >> 2 < _N_MISSING_TYPES)).all(), "a split is of an unknown type")
    threshold = _numbers(found, "threshold", n - 1)
    categorical = (kind & 1) == 1
    if n_categorical or categorical.any():
        _check_categories(found, threshold[categorical], n_categorical)
    for name in _NODE_VALUES:
        if name in found:
            _numbers(found, name, n - 1)
    for name in _LEAF_VALUES:
        if name in found:
            _numbers(found, name, n)


def _check_categories(found: dict[str, str], place: NDArray[np.float64], n_categorical: int) -> None:
    """Check the sets of categories that splits refer to by their place."""
    bounds = _integers(found, "cat_boundaries", n_categorical + 1)
    require(bounds[0] == 0 and (np.diff(bounds) > 0).all(), "the sets of categories do not add up")
    bits = _integers(found, "cat_threshold", int(bounds[-1]))
    require(((bits >= 0) & (bits < 2**32)).all(), "a set of categories cannot be read")
    known = (place >= 0) & (place < n_categorical) & (place == np.floor(place))
    require(known.all(), "a split is on a set of categories that does not exist")


def _check_linear(found: dict[str, str], n: int, n_features: int) -> None:
    """Check the linear functions in the leaves."""
    _numbers(found, "leaf_const", n)
    counts = _integers(found, "num_features", n)
    require((counts >= 0).all(), "the linear leaves cannot be read")
    features = _integers(found, "leaf_features", int(counts.sum()))
    require(((features >= 0) & (features < n_features)).all(), "a leaf uses a feature that does not exist")
    _numbers(found, "leaf_coeff", int(counts.sum()))


def _integers(found: dict[str, str], name: str, length: int) -> NDArray[np.int64]:
    return np.array(_tokens(found, name, length, _INTEGERS), np.int64)


def _numbers(found: dict[str, str], name: str, length: int) -> NDArray[np.float64]:
    return np.array(_tokens(found, name, length, _NUMBERS), np.float64)


def _tokens(found: dict[str, str], name: str, length: int, pattern: re.Pattern[str]) -> list[str]:
    require(name in found and pattern.fullmatch(found[name]), f"{name} is missing or cannot be read")
    tokens = found[name].split()
    require(len(tokens) == length, f"{name} has {len(tokens)} values instead of {length}")
    return tokens
