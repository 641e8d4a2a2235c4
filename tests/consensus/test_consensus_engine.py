"""Shards and the local engine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import LocalEngine, read_judgments
from crowdrank.engine.shards import split_into_shards
from crowdrank.errors import UsageError


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(1, 200), locality=st.sampled_from(["item", "query"]))
def test_shards_hold_every_judgment_once(seed: int, size: int, locality: str) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 300))
    frame = pd.DataFrame(
        {
            "query": rng.integers(0, 8, n),
            "document": rng.integers(0, 20, n),
            "assessor": rng.integers(0, 9, n),
            "grade": rng.integers(0, 3, n),
        }
    )
    judgments = read_judgments(frame)
    shards = split_into_shards(judgments, locality=locality, shard_size=size)
    assert np.concatenate([shard.assessor for shard in shards]).tolist() == judgments.assessor.tolist()
    assert np.concatenate([shard.grade for shard in shards]).tolist() == judgments.grade.tolist()
    assert np.concatenate([np.diff(shard.offsets) for shard in shards]).tolist() == np.diff(judgments.offsets).tolist()
    assert all(shard.n_items > 0 for shard in shards)
    if locality == "query":
        queries = [set(shard.item_query.tolist()) for shard in shards]
        assert sum(map(len, queries)) == judgments.n_queries


def test_no_threads_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        LocalEngine(n_jobs=0)
    assert refused.value.parameter == "n_jobs"
