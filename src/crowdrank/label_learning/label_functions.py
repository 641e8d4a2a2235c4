"""Functions from label features to targets and weights: the contract of linear functions and of boosted trees."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.special import expit

from crowdrank._typing import Floats
from crowdrank.rankers.store import State

MODES = ("W", "T", "W+T")
"""What is learned: weights, targets, or both."""
MAX_RAW_WEIGHT = 30.0
"""Limit of the argument of the sigmoid, so that no weight becomes 0."""


def sigmoid(raw: Floats) -> Floats:
    """Return the logistic sigmoid of numbers that are clipped to +-30.

    >>> sigmoid(np.array([0.0, -1e9])).round(6).tolist()
    [0.5, 0.0]
    """
    return np.asarray(expit(np.clip(raw, -MAX_RAW_WEIGHT, MAX_RAW_WEIGHT)))


class LabelFunctions(ABC):
    """Targets and weights of the training labels as functions of their features, while they are learned.

    Attributes:
        target, weight: (n_labels,) current values. An array that is not learned (`mode`) is never replaced.

    """

    target: Floats
    weight: Floats

    @abstractmethod
    def step(self, target_gradient: Floats, weight_gradient: Floats | None, learning_rate: float) -> None:
        """Move along the gradients dM/dt and dM/dw of the training labels."""

    @abstractmethod
    def snapshot(self) -> LearnedFunctions:
        """Return the functions as they are now."""


class LearnedFunctions(ABC):
    """Learned functions, without the labels that they were learned from."""

    @abstractmethod
    def apply(self, matrix: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Return targets and weights of labels from their features (n_labels, n_features) and starting targets."""

    @abstractmethod
    def importances(self, n_features: int) -> tuple[Floats, Floats]:
        """Return the importance of each label feature for the target and for the weight; each sums to 1 or is 0."""

    @abstractmethod
    def state(self) -> State:
        """Return the arrays and texts to save."""
