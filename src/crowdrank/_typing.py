"""Type aliases that packages share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.int32]
"""Positions in a table of ids; -1 stands for none."""
Grades = NDArray[np.int8]
"""Positions on a scale; negative numbers stand for answers that are not grades."""

Arrays = dict[str, NDArray[Any]]
"""Arrays by name: the local state of a shard, statistics, parameters of a model (theta), rows of a result."""
