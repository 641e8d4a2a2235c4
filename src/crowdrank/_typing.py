"""Type aliases that packages share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.int32]
"""Indices into a table of ids; -1 means no id."""
Grades = NDArray[np.int8]
"""Indices of grades on a scale; negative numbers mean answers that are not grades."""

Arrays = dict[str, NDArray[Any]]
"""Arrays by name, such as the parameters of a model (theta) or the arrays that belong to one shard."""
