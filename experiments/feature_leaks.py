"""Features as a prior: refusal of functions of the answers, level of the test of usefulness, and coverage.

Crowds judge 600 documents of 30 queries. Either 12 assessors of similar quality give two labels to each document, or 40
of very different quality, 15% of them at random, give one to eight. Genuine features are functions of relevance with
noise, up to relevance itself. Leaking features are functions of the answers, some with noise (in standard deviations of
the mean grade). Noise hides a leak if assessors are alike; such figures have no goal.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank import GDA, Features, read_judgments
from crowdrank._typing import Floats
from crowdrank.consensus.answer_features import find_answer_features
from crowdrank.consensus.feature_scores import (
    MIN_PERMUTATION_Z,
    center_within_groups,
    cross_fit,
    permutation_z_score,
    scale_within_groups,
    usable_features,
)
from experiments.feature_prior import drawn_crowd
from experiments.robustness import Goal

SEEDS = range(3000, 3010)
"""Random states that were not used while the test was developed."""
N_DOCUMENTS = 600
NULL_WORLDS: Mapping[str, tuple[int, int, int, int]] = {
    "least squares": (20, 15, 3, 400),
    "trees": (60, 20, 10, 100),
}
"""Numbers of queries, of documents per query, of features, and of worlds without any relation."""
COVERAGE_SEEDS, N_LABELS = 5, 50
"""Number of worlds, and number of labels of a document, for heavy-tailed relevance."""


def draw_crowd(seed: int, *, alike: bool) -> tuple[pd.DataFrame, Floats]:
    """Return judgments and the relevance of each document.

    >>> draw_crowd(0, alike=True)[0].shape
    (1200, 4)
    """
    rng = np.random.default_rng([seed, alike])
    relevance, n_assessors = rng.normal(size=N_DOCUMENTS), 12 if alike else 40
    n_labels = np.full(N_DOCUMENTS, 2) if alike else np.minimum(rng.poisson(3, N_DOCUMENTS) + 1, 8)
    document = np.repeat(np.arange(N_DOCUMENTS), n_labels)
    assessor = np.concatenate([rng.choice(n_assessors, n, replace=False) for n in n_labels])
    noise = np.full(n_assessors, 0.7) if alike else 0.7 * np.exp(rng.normal(0, 0.5, n_assessors))
    bias, is_random = rng.normal(0, 0.3, n_assessors), (rng.random(n_assessors) < 0.15) & (not alike)
    seen = relevance[document] + bias[assessor] + noise[assessor] * rng.normal(size=len(document))
    grade = np.searchsorted([-0.8, 0.2, 1.0, 1.7], seen)
    grade = np.where(is_random[assessor], rng.integers(0, 5, len(document)), grade)
    frame = pd.DataFrame({"query": document // 20, "document": document, "assessor": assessor, "grade": grade})
    return frame, relevance


def genuine_features(relevance: Floats, seed: int) -> dict[str, Floats]:
    """Return features that depend on the answers through relevance only."""
    noise = np.random.default_rng([seed, 2]).normal(size=len(relevance))
    linear = {rho: rho * relevance + np.sqrt(1 - rho**2) * noise for rho in (0.0, 0.3, 0.6, 0.8, 0.95, 0.99)}
    return {f"correlation {rho}": values for rho, values in linear.items()} | {
        "relevance itself": relevance,
        "true grade": np.searchsorted([-0.8, 0.2, 1.0, 1.7], relevance).astype(float),
        "skewed": np.exp(linear[0.8]),
        "yes or no": (linear[0.8] > 1).astype(float),
        "reversed": -linear[0.8],
    }


def leaking_features(judgments: pd.DataFrame, seed: int) -> dict[str, Floats]:
    """Return functions of the answers, with and without noise."""
    grades = judgments.groupby("document")["grade"]
    mean, highest = grades.mean().to_numpy(), grades.max().to_numpy(float)
    assessor = judgments["assessor"].value_counts().index[0]
    own = judgments[judgments["assessor"] == assessor].set_index("document")["grade"].reindex(range(N_DOCUMENTS))
    noise = mean.std() * np.random.default_rng([seed, 3]).normal(size=N_DOCUMENTS)
    return {
        "mean grade": mean,
        "exponential of the mean": np.exp(mean),
        "highest grade": highest,
        "grades of one assessor": own.to_numpy(float),
        "grades of one assessor, 0 for others": own.fillna(0).to_numpy(float),
        "mean grade, noise 0.25": mean + 0.25 * noise,
        "mean grade, noise 0.5": mean + 0.5 * noise,
        "mean grade, noise 1": mean + noise,
    }


FOUND = ("mean grade", "exponential of the mean", "grades of one assessor", "grades of one assessor, 0 for others")
"""Leaking features that every fit has to refuse."""


def measure_refusals(seeds: Sequence[int], *, alike: bool) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of fits that refuse each genuine and each leaking feature."""
    refused: dict[str, list[bool]] = {}
    genuine: list[str] = []
    for seed in seeds:
        frame, relevance = draw_crowd(seed, alike=alike)
        good = genuine_features(relevance, seed)
        genuine, columns = list(good), good | leaking_features(frame, seed)
        names = refused_features(frame, columns)
        for name in columns:
            refused.setdefault(name, []).append(name in names)
    shares = {name: float(np.mean(found)) for name, found in refused.items()}
    return {name: shares[name] for name in genuine}, {name: shares[name] for name in shares if name not in genuine}


def refused_features(frame: pd.DataFrame, columns: Mapping[str, Floats]) -> list[str]:
    """Return the names of the features of all documents that a fit refuses."""
    document = np.arange(N_DOCUMENTS)
    matrix = np.column_stack(list(columns.values()))
    features = Features(pa.array(document // 20), pa.array(document), matrix, tuple(columns))
    judgments = read_judgments(frame)
    usable, _ = usable_features(features, judgments)
    assert usable is not None
    return find_answer_features(usable, judgments)


def null_level(n_queries: int, n_documents: int, n_features: int, n_worlds: int) -> float:
    """Return the share of worlds in which features of noise predict labels of noise.

    >>> null_level(4, 10, 1, 5) <= 1
    True
    """
    passed = []
    group = np.repeat(np.arange(n_queries), n_documents)
    for seed in range(n_worlds):
        rng = np.random.default_rng([seed, n_features])
        matrix = scale_within_groups(rng.normal(size=(len(group), n_features)), group)
        target = rng.normal(size=len(group))
        score = cross_fit(matrix, center_within_groups(target, group), group, seed)
        passed.append(permutation_z_score(score, target, group) > MIN_PERMUTATION_Z)
    return float(np.mean(passed))


def covered_with_features() -> float:
    """Return the share of 95% intervals that cover relevance, with an informative feature and two of noise."""
    covered = []
    for seed in range(COVERAGE_SEEDS):
        judgments, features, relevance = drawn_crowd(0.8, 2, seed)
        covered.append(_covered(judgments, relevance, features))
    return float(np.mean(covered))


def covered_relevance(*, heavy: bool) -> float:
    """Return the share of 95% intervals that cover relevance with 50 labels, if it is normal or Student's t(3)."""
    covered = []
    for seed in range(COVERAGE_SEEDS):
        rng = np.random.default_rng(seed)
        n_documents, n_assessors = 500, 60
        drawn = rng.standard_t(3, n_documents) if heavy else rng.normal(size=n_documents)
        relevance = (drawn - drawn.mean()) / drawn.std()
        document = np.repeat(np.arange(n_documents), N_LABELS)
        assessor = np.concatenate([rng.permutation(n_assessors)[:N_LABELS] for _ in range(n_documents)])
        cuts = np.array([-0.3, 0.5, 1.3]) + rng.normal(0, 0.2, (n_assessors, 1))
        seen = relevance[document] + 0.8 * rng.normal(size=len(document))
        grade = (seen[:, None] > cuts[assessor]).sum(axis=1)
        frame = pd.DataFrame({"query": document // 25, "document": document, "assessor": assessor, "grade": grade})
        covered.append(_covered(frame, relevance, None))
    return float(np.mean(covered))


def _covered(judgments: pd.DataFrame, relevance: Floats, features: Features | None) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = GDA().fit(judgments, features=features).consensus_.documents
    judged = table[table["judgments"] > 0]
    true = relevance[judged["document"].astype(int).to_numpy()]
    return float(((judged["lower"] <= true) & (true <= judged["upper"])).mean())


def goals() -> list[Goal]:
    """Return refusals and false alarms, the level of the test of usefulness, and coverage."""
    rows = []
    for crowd, alike in (("assessors alike", True), ("assessors differ", False)):
        genuine, leaking = measure_refusals(SEEDS, alike=alike)
        worst = max(genuine, key=lambda name: genuine[name])
        rows.append(Goal(f"{crowd}: genuine features refused", float(np.mean([*genuine.values()])), at_most=0.01))
        rows.append(Goal(f"{crowd}: the genuine feature refused most often ({worst})", genuine[worst], at_most=0.05))
        rows += [
            Goal(f"{crowd}: refused, {name}", share, at_least=0.95 if name in FOUND else -float("inf"))
            for name, share in leaking.items()
        ]
    rows += [
        Goal(f"useless features used, {name}, nominal 0.05", null_level(*world), at_most=0.07)
        for name, world in NULL_WORLDS.items()
    ]
    coverage = covered_with_features()
    return [
        *rows,
        Goal("coverage of 95% intervals, good features", coverage, at_least=0.93, at_most=0.97),
        Goal("coverage of 95% intervals, 50 labels, normal relevance", covered_relevance(heavy=False)),
        Goal("coverage of 95% intervals, 50 labels, relevance of Student's t(3)", covered_relevance(heavy=True)),
    ]
