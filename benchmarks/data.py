"""Judgments for benchmarks: random labels of any number, and TREC RF10."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank.readers.datasets import dataset


def random_labels(
    n: int, *, items: int, assessors: int, grades: int = 5, text: bool = False, seed: int = 0
) -> pd.DataFrame:
    """Draw about `n` labels, 70 % of them correct, with crowd-kit's columns; a worker labels a task once."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, items, n) * assessors + rng.integers(0, assessors, n))
    rng.shuffle(pairs)
    task, worker = pairs // assessors, pairs % assessors
    truth = rng.integers(0, grades, items)
    right = rng.random(len(pairs)) < 0.7
    label = np.where(right, truth[task], rng.integers(0, grades, len(pairs)))
    frame = pd.DataFrame({"task": task, "worker": worker, "label": label})
    if text:
        frame["task"] = _text_ids("task", task, items)
        frame["worker"] = _text_ids("worker", worker, assessors)
    return frame


def _text_ids(name: str, codes: np.ndarray, n: int) -> pd.Series:
    names = pa.array([f"{name}-{number:08d}" for number in range(n)])
    return pd.Series(names.take(pa.array(codes)).to_pandas())


def rf10() -> pd.DataFrame:
    """Read TREC RF10's crowd labels with crowd-kit's columns; broken links have the lowest grade."""
    frame = dataset("trec-rf10").read_judgments().with_unjudgeable("lowest").frame
    task = frame["query"] + "|" + frame["document"]
    return pd.DataFrame({"task": task, "worker": frame["assessor"], "label": frame["grade"]})
