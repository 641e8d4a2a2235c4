"""Checks that an aggregator does not lose to the plain average, and that a useless assessor does little harm.

The judgments are simulated such that the plain average is known to rank well. Models without a continuous relevance
skip these checks.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.votes import Average
from crowdrank.errors import ConvergenceWarning, DataWarning

SHORT_TASKS = ((3, 3, 10), (5, 4, 10), (6, 6, 3))
"""Number of grades, of labels per assessor and of labels per document of each kind of simulated judgments."""
DOCUMENTS_PER_QUERY = 12
"""Number of documents per query in the simulated judgments."""
N_SEEDS = 5
"""Number of simulated sets of judgments per kind of task."""
MAX_LOSS = 0.015
"""Maximum by which the mean Kendall's tau-a of a model may be below that of the plain average."""
MIN_CORRELATION = 0.97
"""Minimum rank correlation of relevance before and after a useless assessor is added."""


def short_task_world(
    n_grades: int, labels_per_assessor: int, labels_per_document: int, seed: int, *, n_documents: int = 120
) -> tuple[pd.DataFrame, Floats]:
    """Return judgments of a crowd whose assessors judge a few documents each, and the true relevance.

    Assessors are strict or lenient, and their answers are noisy. Every document gets the same number of labels.

    >>> short_task_world(3, 4, 10, 0)[0].shape
    (1200, 4)
    """
    rng = np.random.default_rng([seed, n_grades, labels_per_assessor, labels_per_document])
    relevance = rng.normal(size=n_documents)
    cuts = np.quantile(relevance, np.linspace(0, 1, n_grades + 1)[1:-1])
    document = np.concatenate([rng.permutation(n_documents) for _ in range(labels_per_document)])
    assessor = np.arange(len(document)) // labels_per_assessor
    severity = rng.normal(0, 0.5, assessor[-1] + 1)
    seen = relevance[document] + severity[assessor] + rng.normal(0, 0.6, len(document))
    frame = pd.DataFrame(
        {
            "query": [f"q{number // DOCUMENTS_PER_QUERY}" for number in document],
            "document": [f"d{number:03}" for number in document],
            "assessor": [f"w{number}" for number in assessor],
            "grade": np.searchsorted(cuts, seen),
        }
    )
    return frame.drop_duplicates(["document", "assessor"]), relevance


def tau_a(one: Floats, other: Floats) -> float:
    """Return Kendall's tau-a of two rankings by scores; a pair that is tied in either of them counts as 0.

    >>> tau_a(np.array([1.0, 2.0, 3.0]), np.array([0.0, 5.0, 5.0]))
    0.6666666666666666
    """
    first, second = np.triu_indices(len(one), 1)
    return float(np.mean(np.sign(one[first] - one[second]) * np.sign(other[first] - other[second])))


def _tau_within_queries(first: Floats, second: Floats) -> float:
    """Return the mean tau-a of the queries of :func:`short_task_world`."""
    queries = np.arange(len(first)) // DOCUMENTS_PER_QUERY
    return float(np.mean([tau_a(first[queries == query], second[queries == query]) for query in np.unique(queries)]))


def _fitted_relevance(model: Aggregator, judgments: pd.DataFrame) -> Floats:
    """Return the relevance of the documents in the order of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        table = model.unfitted().fit(judgments).consensus_.document_table.to_pandas()
    return np.asarray(table.sort_values("document")["relevance"], np.float64)


def check_short_tasks(model: Aggregator) -> None:
    """Check that a model with continuous relevance ranks as well as the average if assessors judge few documents."""
    if not getattr(model, "on_a_line", False):
        return
    for n_grades, per_assessor, per_document in SHORT_TASKS:
        losses = []
        for seed in range(N_SEEDS):
            judgments, relevance = short_task_world(n_grades, per_assessor, per_document, seed)
            taus = [_tau_within_queries(_fitted_relevance(one, judgments), relevance) for one in (Average(), model)]
            losses.append(taus[0] - taus[1])
        assert np.mean(losses) <= MAX_LOSS, (
            f"with {n_grades} grades and {per_assessor} labels per assessor the plain average has a tau that is "
            f"{np.mean(losses):.3f} higher"
        )


def check_useless_assessor(model: Aggregator) -> None:
    """Check that an assessor with random answers hardly changes the ranking of a model with continuous relevance."""
    if not getattr(model, "on_a_line", False):
        return
    judgments, _ = short_task_world(4, 30, 8, 0)
    documents = judgments[["query", "document"]].drop_duplicates()
    grades = np.random.default_rng(0).integers(0, 4, len(documents))
    useless = documents.assign(assessor="useless", grade=grades)
    before, after = (_fitted_relevance(model, frame) for frame in (judgments, pd.concat([judgments, useless])))
    correlation = float(np.corrcoef(before.argsort().argsort(), after.argsort().argsort())[0, 1])
    assert correlation >= MIN_CORRELATION, f"a useless assessor changed the ranking (correlation {correlation:.3f})"
