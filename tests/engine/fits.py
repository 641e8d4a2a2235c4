"""Short fits, and their comparison."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from crowdrank import Aggregator
from crowdrank.consensus import get_aggregator

SHARD_SIZE = 40
"""Judgments per shard, so that the small judgments have many shards."""


def fit(method: str, judgments: Any, engine: Any, **options: Any) -> Aggregator:
    """Fit a model with few iterations."""
    model = get_aggregator(method)
    if "n_iter" in model.get_params():
        model.set_params(n_iter=3, tol=0.0)
    if method == "auto":
        model.set_params(candidates=("average", "majority"), folds=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(judgments, engine=engine, **options)


def tables(model: Aggregator) -> list[pd.DataFrame]:
    return [model.consensus_.document_table.to_pandas(), model.consensus_.assessor_table.to_pandas()]


def assert_same(one: Aggregator, other: Aggregator) -> None:
    """Assert that two fits have the same bytes."""
    for left, right in zip(tables(one), tables(other), strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    assert one.history_ == other.history_ or np.isnan(one.history_).all()


def interrupt(iteration: int, n_iter: int, objective: float) -> None:
    """Interrupt a fit after its second iteration."""
    if iteration == 2:
        raise KeyboardInterrupt
