"""Slow reference implementations of the measures for one ranked list of gold grades."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

Ranked = Sequence[float]


def gain(grade: float, gains: str) -> float:
    return 2.0**grade - 1 if gains == "exponential" else grade


def dcg(ranked: Ranked, pool: Ranked, k: int | None = None, gains: str = "exponential") -> float:
    return sum(gain(grade, gains) / math.log2(rank + 1) for rank, grade in enumerate(ranked[:k], 1))


def ndcg(ranked: Ranked, pool: Ranked, k: int | None = None, gains: str = "exponential") -> float:
    return dcg(ranked, pool, k, gains) / dcg(sorted(pool, reverse=True), pool, k, gains)


def precision(ranked: Ranked, pool: Ranked, k: int, rel: int = 1) -> float:
    return sum(grade >= rel for grade in ranked[:k]) / k


def average_precision(ranked: Ranked, pool: Ranked, k: int | None = None, rel: int = 1) -> float:
    hits = [rank for rank, grade in enumerate(ranked[:k], 1) if grade >= rel]
    return sum(precision(ranked, pool, rank, rel) for rank in hits) / sum(grade >= rel for grade in pool)


def reciprocal_rank(ranked: Ranked, pool: Ranked, k: int | None = None, rel: int = 1) -> float:
    return next((1 / rank for rank, grade in enumerate(ranked[:k], 1) if grade >= rel), 0.0)


def err(ranked: Ranked, pool: Ranked, k: int | None = None, max_grade: int = 4) -> float:
    total, reached = 0.0, 1.0
    for rank, grade in enumerate(ranked[:k], 1):
        stops = (2**grade - 1) / 2**max_grade
        total += reached * stops / rank
        reached *= 1 - stops
    return total


def tau(scores: Sequence[float], grades: Sequence[float]) -> float:
    net, pairs = 0.0, 0
    for i, j in itertools.combinations(range(len(scores)), 2):
        net += np.sign(scores[i] - scores[j]) * np.sign(grades[i] - grades[j])
        pairs += grades[i] != grades[j]
    return net / pairs


REFERENCES: dict[str, Callable[[Ranked, Ranked], float]] = {
    "DCG@3": lambda ranked, pool: dcg(ranked, pool, 3),
    "nDCG": ndcg,
    "nDCG@2": lambda ranked, pool: ndcg(ranked, pool, 2),
    "nDCG(dcg='log2')@3": lambda ranked, pool: ndcg(ranked, pool, 3, "linear"),
    "AP": average_precision,
    "AP(rel=2)": lambda ranked, pool: average_precision(ranked, pool, rel=2),
    "AP@4": lambda ranked, pool: average_precision(ranked, pool, 4),
    "ERR": err,
    "ERR@3": lambda ranked, pool: err(ranked, pool, 3),
    "ERR(max_grade=3)@4": lambda ranked, pool: err(ranked, pool, 4, 3),
    "P@1": lambda ranked, pool: precision(ranked, pool, 1),
    "P(rel=2)@5": lambda ranked, pool: precision(ranked, pool, 5, 2),
    "P@20": lambda ranked, pool: precision(ranked, pool, 20),
    "RR": reciprocal_rank,
    "RR(rel=2)@3": lambda ranked, pool: reciprocal_rank(ranked, pool, 3, 2),
}


def orders(scores: Sequence[float], grades: Sequence[float]) -> Iterator[list[float]]:
    """Yield the gold grades in every order that the scores allow, with repetitions."""
    groups = [
        [grade for score, grade in zip(scores, grades, strict=True) if score == level]
        for level in sorted(set(scores), reverse=True)
    ]
    for chosen in itertools.product(*(list(itertools.permutations(group)) for group in groups)):
        yield [grade for group in chosen for grade in group]


def one_query(scores: Sequence[float], grades: Sequence[float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a run that ranks the first documents of the gold, and the gold."""
    documents = [f"d{i}" for i in range(len(grades))]
    run = pd.DataFrame({"document": documents[: len(scores)], "score": scores})
    return run, pd.DataFrame({"document": documents, "grade": grades})


def random_world(
    seed: int, *, ties: bool, n_queries: int = 30, highest: int = 4, gap: float = 0.2
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a run and gold; both lack some documents and a query, and some queries have no relevant document."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        [(f"q{q}", f"d{d}") for q in range(n_queries) for d in range(rng.integers(1, 25))],
        columns=["query", "document"],
    )
    rows["grade"] = rng.integers(0, highest + 1, len(rows)) * rng.integers(0, 2, len(rows))
    rows.loc[rows["query"].isin(["q3", "q4"]), "grade"] = 0
    # Quarters are exact in single precision too, which trec_eval may keep scores in.
    rows["score"] = rng.integers(-8, 8, len(rows)) / 4 if ties else rng.permutation(len(rows)) / 4
    in_run, in_gold = rng.random(len(rows)) > gap, rng.random(len(rows)) > gap
    in_run &= rows["query"] != "q5"
    in_gold &= rows["query"] != "q6"
    run = rows.loc[in_run, ["query", "document", "score"]].sample(frac=1, random_state=seed)
    return run, rows.loc[in_gold, ["query", "document", "grade"]]
