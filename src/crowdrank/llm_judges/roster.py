"""LLM judges as assessors whom a labeling policy may ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._typing import Floats
from crowdrank.collection.pool import Pool, Roster
from crowdrank.errors import Fix, UsageError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.judges import Judge
from crowdrank.llm_judges.judging_task import JudgingTask, read_pair_texts
from crowdrank.llm_judges.run import JudgingPlan

MAX_PRICED_PAIRS = 200
"""Maximum number of pairs of a pool whose requests are estimated for the price of a label."""


def judge_roster(
    judges: Sequence[Judge], pool: Pool, texts: Sequence[Path], scale: Scale, price: float | None = None
) -> Roster:
    """Return LLM judges as a roster with the expected price of a label.

    Args:
        judges: the judges.
        pool: pairs that may be judged.
        texts: files with the texts of queries and documents, from which the price of judges with prices is estimated.
        scale: scale of the project; a judge can have another one.
        price: price of a label of every judge; by default that of its calls, which is 0 without prices.

    Raises:
        UsageError: a judge has prices, and neither texts nor a price of its labels are given.
        InputError: a text cannot be read or is missing.

    """
    names = pa.array([judge.name for judge in judges])
    if price is not None:
        return Roster.of(names, "llm", price)
    priced = [judge for judge in judges if judge.prices is not None]
    if priced and not texts:
        problem = f"has the judge {shown(priced[0].name)} with prices per token, and the price of a label is not known"
        by_price = Fix("give the price of a label with {}", "prices", "llm=0.001")
        fixes = [Fix("give the texts with {}", "texts"), by_price]
        raise UsageError(problem, parameter="judges", kind="no-texts", fix=fixes)
    roster = Roster.of(names, "llm", 0.0)
    return Roster(names, roster.kind, _label_prices(judges, pool, texts, scale)) if priced else roster


def _label_prices(judges: Sequence[Judge], pool: Pool, texts: Sequence[Path], scale: Scale) -> Floats:
    """Return the mean estimated cost of the calls of each judge for a pair, over an even sample of the pool."""
    rows = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), MAX_PRICED_PAIRS)).round().astype(np.int64))
    columns = (column.take(pa.array(rows)).to_pylist() for column in (pool.query, pool.document))
    pairs = [(str(query), str(document)) for query, document in zip(*columns, strict=True)]
    found = read_pair_texts(pairs, texts, ids_as_queries=True)
    plans = [JudgingPlan.of(JudgingTask(pairs, [judge] * len(pairs), found, scale), {}) for judge in judges]
    return np.array([plan.estimates[0].cost / len(pairs) for plan in plans])
