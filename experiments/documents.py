"""Documents with features and expert grades, and simulated crowds that judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank import Features, read_features, read_judgments, simulate
from crowdrank._typing import Floats, Integers
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.base import seeds_text
from experiments.dl20 import COVERED, thorough

LABELS = 3
"""Number of labels per document in simulated crowds."""
PARTS = 5
"""Number of parts that the queries of a data set are split into."""


def mq2008() -> tuple[Features, Integers]:
    """Return all documents of MQ2008, and the part (0-4) of each."""
    data = dataset("mq2008")
    parts = [read_features(data.path(name), format="letor") for name in data.files]
    return joined(parts), np.repeat(np.arange(len(parts)), [len(part.query) for part in parts])


def joined(parts: Sequence[Features]) -> Features:
    """Return the rows of several tables of graded documents, one table after the other."""
    grades = [part.grade for part in parts if part.grade is not None]
    return Features(
        pa.concat_arrays([part.query for part in parts]),
        pa.concat_arrays([part.document for part in parts]),
        np.vstack([part.matrix for part in parts]),
        parts[0].names,
        np.concatenate(grades),
    )


def generated_documents(sizes: Mapping[str, Any]) -> Features:
    """Return simulated documents with their grades; `sizes` are arguments of `simulate`."""
    world = simulate(**sizes, labels=1, honeypots=0)
    return read_features(world.features.assign(grade=world.documents["grade"]))


def dl20_documents() -> tuple[Features, Judgments]:
    """Return the passages of DL20 with scores of retrieval systems as features, and labels of the thorough judges.

    Scores are scaled to 0-1 within a query.
    """
    data = dataset("trec-dl20")
    judges = thorough(data.read_judgments(), COVERED)
    graded = read_features(data.path("judged_features.tsv.gz"), columns="grade=nist_grade")
    features = graded.take(np.flatnonzero(judges.positions(graded.query, graded.document) >= 0))
    return replace(features, matrix=within_query(features.matrix, query_numbers(features))), judges


def crowd_over(features: Features, seed: int, **settings: Any) -> Judgments:
    """Return the judgments of a simulated crowd, by default without honeypots; `settings` are those of `simulate`."""
    crowd = {"labels": LABELS, "honeypots": 0, **settings}
    return read_judgments(simulate(source=features, **crowd, random_state=seed).judgments)


def describe_crowd(seeds: Sequence[int]) -> str:
    """Return a description of simulated crowds for the middle of a sentence."""
    return (
        f"{seeds_text(seeds)}; 60 assessors, of which 15% answer at random and 3% reverse the scale; noise 1, "
        "no families"
    )


def query_numbers(features: Features) -> Integers:
    """Return the number of each row's query, in the order of first occurrence, (n_rows,)."""
    return ids.encode(pa.chunked_array([features.query]))[0].astype(np.int64)


def query_parts(query: Integers, seed: int) -> Integers:
    """Return the part of each row, from 0 to 4; queries are assigned at random.

    >>> sorted(set(query_parts(np.arange(10), seed=0).tolist()))
    [0, 1, 2, 3, 4]
    """
    part: Integers = (np.random.default_rng(seed).permutation(query.max() + 1) % PARTS)[query]
    return part


def within_query(matrix: Floats, query: Integers) -> Floats:
    """Scale every feature from 0, the lowest value of the query, to 1, the highest; missing values stay.

    >>> within_query(np.array([[1.0], [np.nan], [3.0], [7.0]]), np.array([0, 0, 0, 1])).ravel().tolist()
    [0.0, nan, 1.0, 0.0]
    """
    groups = pd.DataFrame(matrix).groupby(query)
    low, high = (np.asarray(groups.transform(end)) for end in ("min", "max"))
    scaled = np.divide(matrix - low, high - low, out=np.zeros_like(matrix), where=high > low)
    return np.where(np.isnan(matrix), np.nan, scaled)


def run_frame(features: Features, score: Any, column: str = "score") -> pd.DataFrame:
    """Return query, document and score of every row."""
    return pd.DataFrame({"query": features.query.to_pandas(), "document": features.document.to_pandas(), column: score})
