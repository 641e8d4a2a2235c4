"""Simulated runs, labels and expert grades with known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

GRADES = ["query", "document", "grade"]


@dataclass
class World:
    """True grades of all documents, biased labels with probabilities, and two runs."""

    truth: pd.DataFrame
    labels: pd.DataFrame
    runs: dict[str, pd.DataFrame]

    def expert(self, n_queries: int) -> pd.DataFrame:
        """Return the true grades of the first queries."""
        return self.truth[self.truth["query"].isin(self.truth["query"].unique()[:n_queries])]


def make_world(n_queries: int = 60, n_documents: int = 12, *, bias: float = 1.0, seed: int = 0) -> World:
    """Return a world in which labels exceed the truth by `bias` grades on average, and more so for the run 'new'."""
    rng = np.random.default_rng(seed)
    size = (n_queries, n_documents)
    topic = rng.normal(0, 0.6, (n_queries, 1))
    relevance = topic + rng.normal(0.8, 1.0, size)
    grade = np.clip(np.round(relevance), 0, 3).astype(int)
    scores = {"live": relevance + rng.normal(0, 2.0, size), "new": relevance + rng.normal(0, 1.2, size)}
    believed = relevance + bias * (0.6 + 0.2 * np.tanh(scores["new"])) + rng.normal(0, 0.7, size)
    shares = np.exp(-((believed[..., None] - np.arange(4)) ** 2) / 0.5)
    shares /= shares.sum(axis=2, keepdims=True)
    query = np.repeat([f"q{q}" for q in range(n_queries)], n_documents)
    document = np.tile([f"d{d}" for d in range(n_documents)], n_queries)
    pairs = pd.DataFrame({"query": query, "document": document})
    labels = pairs.assign(grade=shares.argmax(axis=2).ravel())
    labels = labels.assign(**{f"p{value}": shares[..., value].ravel() for value in range(4)})
    runs = {name: pairs.assign(score=score.ravel()) for name, score in scores.items()}
    return World(pairs.assign(grade=grade.ravel()), labels, runs)
