"""Type aliases that packages share."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
"""Arrays by name: a shard's local state, statistics, a model's parameters (theta), rows of a result."""
