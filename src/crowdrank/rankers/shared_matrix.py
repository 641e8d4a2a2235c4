"""Feature matrix that several rankers are fitted to, with what they all need of it, computed once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from crowdrank.rankers.feature_statistics import FeatureStatistics
from crowdrank.rankers.ranking_data import NamedMatrix


@dataclass(frozen=True, eq=False)
class SharedMatrix(NamedMatrix):
    """Feature matrix that several rankers are fitted to; do not change its values.

    LightGBM sorts the values of each feature into bins, which takes as long as dozens of trees. Rankers that are fitted
    to the same shared matrix with the same parameters of the bins share them; their trees are the same as without.
    Several threads can fit at the same time.
    """

    _binned: dict[str, Any] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def binned(self, parameters: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return LightGBM's data set for some parameters; `make` makes it for the first ranker that needs it."""
        key = json.dumps(parameters, sort_keys=True, default=str)
        with self._lock:
            if key not in self._binned:
                self._binned[key] = make().construct()
            return self._binned[key]

    @cached_property
    def statistics(self) -> FeatureStatistics:
        """Range and share of missing values of each feature."""
        return FeatureStatistics.of(self.matrix)
