"""Type aliases that packages share."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
"""Arrays by name: the local state of a shard, statistics, parameters of a model (theta), rows of a result."""
