"""Comparison of features with those that a ranker was trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats
from crowdrank.errors import Message
from crowdrank.judgments.columns import quote_names
from crowdrank.rankers.feature_statistics import FeatureStatistics

MAX_MORE_MISSING = 0.1
"""Maximum increase of the share of missing values that is no problem."""
PROBLEMS = {
    "always-missing": "always missing, but not in training",
    "more-missing": "missing much more often than in training",
    "constant": "constant, but not in training",
    "out-of-range": "outside of the range in training in some rows",
}
"""Kinds of problems and their descriptions, the most severe first."""


class FeatureCheck:
    """Comparison of rows, which are added in batches, with the training rows of a ranker.

    Args:
        names: names of the features.
        training: statistics of the training rows.

    >>> training = FeatureStatistics.of(np.array([[0.0, 1.0], [1.0, 2.0]]))
    >>> check = FeatureCheck(["bm25", "clicks"], training)
    >>> check.add(np.array([[0.5, np.nan], [2.0, np.nan]]))
    >>> check.table().select(["feature", "problem", "outside"]).to_pylist()
    [{'feature': 'clicks', 'problem': 'always-missing', 'outside': 0.0},
     {'feature': 'bm25', 'problem': 'out-of-range', 'outside': 0.5}]

    """

    def __init__(self, names: Sequence[str], training: FeatureStatistics) -> None:
        self.names, self.training = tuple(names), training
        self.n_rows = 0
        self._minimum, self._maximum = np.full(len(self.names), np.nan), np.full(len(self.names), np.nan)
        self._n_missing, self._n_outside = np.zeros(len(self.names)), np.zeros(len(self.names))

    def add(self, features: Floats) -> None:
        """Add the rows of a matrix, (n, n_features)."""
        found = FeatureStatistics.of(features)
        self._minimum, self._maximum = np.fmin(self._minimum, found.minimum), np.fmax(self._maximum, found.maximum)
        self._n_missing += found.missing_share * len(features)
        # A comparison with NaN is false: values of features without a range are not outside of it.
        outside = (features < self.training.minimum) | (features > self.training.maximum)
        self._n_outside += outside.sum(axis=0)
        self.n_rows += len(features)

    @property
    def statistics(self) -> FeatureStatistics:
        """Statistics of the rows that were added."""
        return FeatureStatistics(self._minimum, self._maximum, self._n_missing / max(self.n_rows, 1))

    def _has_problem(self) -> dict[str, Booleans]:
        """Return a mask of the features that have each kind of problem."""
        found, training = self.statistics, self.training
        is_missing = (found.missing_share >= 1) & (training.missing_share < 1)
        more_missing = found.missing_share > training.missing_share + MAX_MORE_MISSING
        constant = (found.minimum == found.maximum) & (training.minimum < training.maximum) & (self.n_rows > 1)
        return {
            "always-missing": is_missing,
            "more-missing": more_missing & ~is_missing,
            "constant": constant,
            "out-of-range": self._n_outside > 0,
        }

    def table(self) -> pa.Table:
        """Return the features that have a problem, the most severe first, with their statistics.

        Columns: feature; problem, several separated by commas; outside, the share of rows outside of the range in
        training; minimum, maximum and missing (share of rows) of the given rows and of the training rows.
        """
        problems = self._has_problem()
        severity = np.argmax([*problems.values(), np.ones(len(self.names), bool)], axis=0)
        outside = self._n_outside / max(self.n_rows, 1)
        order = [place for place in np.lexsort((-outside, severity)) if severity[place] < len(problems)]
        found, training = self.statistics, self.training
        numbers = {
            "outside": outside,
            "minimum": found.minimum,
            "maximum": found.maximum,
            "missing": found.missing_share,
            "training_minimum": training.minimum,
            "training_maximum": training.maximum,
            "training_missing": training.missing_share,
        }
        kinds = [", ".join(kind for kind, mask in problems.items() if mask[place]) for place in order]
        return pa.table(
            {
                "feature": pa.array([self.names[place] for place in order], pa.string()),
                "problem": pa.array(kinds, pa.string()),
                **{name: pa.array(values[order], from_pandas=True) for name, values in numbers.items()},
            }
        )

    def messages(self) -> list[Message]:
        """Return one warning per kind of problem, with the names of the features."""
        found = []
        for kind, mask in self._has_problem().items():
            names = [name for name, has_problem in zip(self.names, mask, strict=True) if has_problem]
            if names:
                verb = "is" if len(names) == 1 else "are"
                problem = f"{counted(len(names), 'feature')} {verb} {PROBLEMS[kind]}: {quote_names(names)}"
                found.append(Message(problem, kind, "warning"))
        return found


def no_statistics() -> Message:
    """Return the warning that a ranker has no statistics of its training rows."""
    problem = "the ranker has no statistics of its training features, so that nothing was compared"
    return Message(problem, "no-statistics", "warning")
