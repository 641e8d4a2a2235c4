"""Calibration of grade probabilities by 100 random expert grades, measured on the documents without them.

The gold of the web search set is the majority of nine of its own assessors; their labels are left out (`web5x`). The
passages of dl19-people were chosen by NIST's grades, with 409 of 5,158 zeros; expert grades are drawn, and documents
weighted, as if all zeros were there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus import get_aggregator
from crowdrank.consensus.calibration import expected_calibration_error, fit_calibration, grade_shares
from crowdrank.consensus.grade_rules import DEFAULT_RULE, choose_grades
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.robustness import Goal

N_EXPERT_GRADES = 100
SEEDS = range(20)
METHODS = ("gda", "dawid-skene")
MAX_ERROR = 0.08
MIN_FULL_COVERAGE = 8000
"""Minimum number of passages that a judge of DL20 covers; others judged a selection that depends on the grade."""
WEB_GOLD_ASSESSORS = ("0", "1", "2", "6", "7", "11", "12", "15", "25")
"""Assessors of the web search set whose majority is its gold."""
N_ZEROS, N_ZEROS_JUDGED = 5158, 409
"""Number of passages of DL19 with NIST's grade 0, and of those that people judged."""


@dataclass(frozen=True, eq=False)
class GradedDocuments:
    """Documents with expert grades: probabilities by a model, the expert grade, query and weight of each."""

    shares: Floats  # (n, n_grades)
    code: Integers  # (n,)
    query: Integers  # (n,)
    weight: Floats  # (n,)

    @property
    def allowed(self) -> Booleans:
        """The expert grade of each document as a row of flags, (n, n_grades)."""
        return np.eye(self.shares.shape[1], dtype=bool)[self.code]


def without_gold_assessors() -> tuple[Judgments, Gold]:
    """Return the web search set without the labels that its gold is made of."""
    web = dataset("web-5grade")
    return web.read_judgments(exclude=WEB_GOLD_ASSESSORS), web.read_gold()


def with_full_coverage() -> tuple[Judgments, Gold]:
    """Return DL20 with the judges that cover all passages."""
    passages = dataset("trec-dl20")
    judgments = passages.read_judgments()
    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    rare = judgments.assessors.filter(counts <= MIN_FULL_COVERAGE).to_pylist()
    return passages.read_judgments(exclude=rare), passages.read_gold()


def read(name: str) -> tuple[Judgments, Gold]:
    """Return judgments and expert grades of a data set; 'cannot judge' is no expert grade."""
    found = dataset(name)
    options = {"unjudgeable_as": "drop"} if name == "trec-rf10" else {}
    return found.read_judgments(), found.read_gold(**options)


SETS: dict[str, Callable[[], tuple[Judgments, Gold]]] = {
    "RF10": lambda: read("trec-rf10"),
    "AdultContent2": lambda: read("adult-content-2"),
    "dl19-people": lambda: read("dl19-people"),
    "DL20": with_full_coverage,
    "web5x": without_gold_assessors,
    "DL23": lambda: read("llmjudge-dl23"),
}


def graded_documents(name: str, method: str) -> GradedDocuments:
    """Return the documents of a set with expert grades, with the probabilities of a model fitted without them."""
    judgments, gold = SETS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares = grade_shares(get_aggregator(method).fit(judgments).consensus_)
    code = gold.for_items(judgments).code
    known = np.flatnonzero(code >= 0)
    weight = np.where(code[known] == 0, N_ZEROS / N_ZEROS_JUDGED, 1.0) if name == "dl19-people" else np.ones(len(known))
    return GradedDocuments(
        shares[known], code[known].astype(np.int64), judgments.item_query[known].astype(np.int64), weight
    )


def measure(documents: GradedDocuments, seeds: Sequence[int] = SEEDS) -> Floats:
    """Return calibration error and accuracy before and after calibration, (n_seeds, 4), on documents without experts.

    >>> rng = np.random.default_rng(0)
    >>> shares = np.repeat([[0.05, 0.95]], 400, axis=0)
    >>> documents = GradedDocuments(shares, (rng.random(400) < 0.7).astype(int), np.arange(400), np.ones(400))
    >>> error, calibrated_error, *_ = measure(documents, range(3)).mean(axis=0)
    >>> bool(error > 0.2), bool(calibrated_error < 0.1)
    (True, True)
    """
    rows = []
    n, allowed = len(documents.code), documents.allowed
    for seed in seeds:
        chance = documents.weight / documents.weight.sum()
        drawn = np.random.default_rng(seed).choice(n, N_EXPERT_GRADES, replace=False, p=chance)
        fit = fit_calibration(documents.shares[drawn], allowed[drawn], documents.query[drawn])
        rest = np.setdiff1d(np.arange(n), drawn)
        before, weight = documents.shares[rest], documents.weight[rest]
        after = fit.calibration.apply(before)
        grades = choose_grades(before, DEFAULT_RULE)
        new_grades = grades if fit.calibration.keeps_grades else choose_grades(after, DEFAULT_RULE)
        errors = (expected_calibration_error(one, allowed[rest], weight) for one in (before, after))
        right = (np.average(one == documents.code[rest], weights=weight) for one in (grades, new_grades))
        rows.append([*errors, *right])
    return np.array(rows)


def goals() -> list[Goal]:
    """Return the calibration error on every set, and the lowest change of accuracy."""
    found = {
        (name, method): measure(graded_documents(name, method)).mean(axis=0) for name in SETS for method in METHODS
    }
    errors = [
        Goal(f"{name}, {method}: calibration error (before: {row[0]:.3f})", float(row[1]), at_most=MAX_ERROR)
        for (name, method), row in found.items()
    ]
    changes = {key: float(row[3] - row[2]) for key, row in found.items()}
    name, method = min(changes, key=lambda key: changes[key])
    lowest = Goal(f"lowest change of accuracy ({name}, {method})", changes[name, method], at_least=-0.01)
    return [*errors, lowest]
