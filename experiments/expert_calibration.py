"""Calibration of grade probabilities without expert grades, and by 100 random ones on the documents without them.

Without expert grades P(grade) is what one more careful assessor would answer. For models with a true grade, its error
is compared with that of P(true grade); and the grades of the default rule must not become less accurate.

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
from crowdrank.consensus import DEFAULT_METHOD, get_aggregator
from crowdrank.consensus.calibration import expected_calibration_error, fit_calibration, grade_shares
from crowdrank.consensus.grade_rules import DEFAULT_RULE, choose_grades
from crowdrank.consensus.result import grade_codes
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.robustness import Goal

N_EXPERT_GRADES = 100
SEEDS = range(20)
METHODS = ("gda", "dawid-skene")
DISCRETE = ("dawid-skene", "one-coin", "threshold-dawid-skene", "glad", "bwa")
"""Methods with a true grade."""
MAX_ERROR = 0.08
MAX_DEFAULT_ERROR = {
    "RF10": 0.05,
    "AdultContent2": 0.09,
    "dl19-people": 0.10,
    "DL20": 0.12,
    "web5x": 0.14,
    "DL23": 0.16,
}
"""Maximum calibration error of the default method without expert grades."""
MIN_ACCURACY = {
    "RF10": (0.4898, 0.4959, 0.4580, 0.5212, 0.5060, 0.3628),
    "AdultContent2": (0.76, 0.7568, 0.7147, 0.7748, 0.7598, 0.7267),
    "dl19-people": (0.6300, 0.6321, 0.6143, 0.6296, 0.5976, 0.5958),
    "DL20": (0.6274, 0.6246, 0.6273, 0.5923, 0.3444, 0.3012),
    "web5x": (0.3598, 0.2782, 0.2688, 0.4126, 0.3903, 0.3567),
    "DL23": (0.5309, 0.5155, 0.5460, 0.5266, 0.5381, 0.4789),
}
"""Minimum share of right grades of the default method and of `DISCRETE`, in this order.

It is that of the median of P(true grade) before P(grade) became the answer of one more assessor. The default method had
0.7267 on AdultContent2.
"""
MIN_FULL_COVERAGE = 8000
"""Minimum number of passages that a judge of DL20 covers; others judged a selection that depends on the grade."""
WEB_GOLD_ASSESSORS = ("0", "1", "2", "6", "7", "11", "12", "15", "25")
"""Assessors of the web search set whose majority is its gold."""
N_ZEROS, N_ZEROS_JUDGED = 5158, 409
"""Number of passages of DL19 with NIST's grade 0, and of those that people judged."""


@dataclass(frozen=True, eq=False)
class GradedDocuments:
    """Documents with expert grades: probabilities and grade by a model, the expert grade, query and weight of each."""

    shares: Floats  # (n, n_grades)
    true_shares: Floats  # (n, n_grades)
    grade: Integers  # (n,)
    code: Integers  # (n,)
    query: Integers  # (n,)
    weight: Floats  # (n,)

    @property
    def allowed(self) -> Booleans:
        """The expert grade of each document as a row of flags, (n, n_grades)."""
        return np.eye(self.shares.shape[1], dtype=bool)[self.code]

    @property
    def accuracy(self) -> float:
        """Share of documents whose grade is that of the experts."""
        return float(np.average(self.grade == self.code, weights=self.weight))


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


def graded_documents(name: str, judgments: Judgments, gold: Gold, method: str) -> GradedDocuments:
    """Return the documents of a set with expert grades, with the probabilities of a model fitted without them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        consensus = get_aggregator(method).fit(judgments).consensus_
    shares, table = grade_shares(consensus), consensus.document_table
    true_shares = np.column_stack([table[name].to_numpy() for name in consensus.true_share_names])
    grade = grade_codes(table["grade"], consensus.labels)
    code = gold.for_items(judgments).code
    known = np.flatnonzero(code >= 0)
    weight = np.where(code[known] == 0, N_ZEROS / N_ZEROS_JUDGED, 1.0) if name == "dl19-people" else np.ones(len(known))
    return GradedDocuments(
        shares[known],
        true_shares[known],
        grade[known],
        code[known].astype(np.int64),
        judgments.item_query[known].astype(np.int64),
        weight,
    )


def measure(documents: GradedDocuments, seeds: Sequence[int] = SEEDS) -> Floats:
    """Return calibration error and accuracy before and after calibration, (n_seeds, 4), on documents without experts.

    >>> rng = np.random.default_rng(0)
    >>> shares = np.repeat([[0.05, 0.95]], 400, axis=0)
    >>> code = (rng.random(400) < 0.7).astype(int)
    >>> documents = GradedDocuments(shares, shares, np.ones(400, int), code, np.arange(400), np.ones(400))
    >>> error, calibrated_error, *_ = measure(documents, range(3)).mean(axis=0)
    >>> bool(error > 0.2), bool(calibrated_error < 0.1)
    (True, True)
    """
    rows = []
    n, allowed = len(documents.code), documents.allowed
    for seed in seeds:
        chance = documents.weight / documents.weight.sum()
        drawn = np.random.default_rng(seed).choice(n, N_EXPERT_GRADES, replace=False, p=chance)
        grades = documents.grade
        fit = fit_calibration(documents.shares[drawn], allowed[drawn], documents.query[drawn], grades=grades[drawn])
        rest = np.setdiff1d(np.arange(n), drawn)
        before, weight = documents.shares[rest], documents.weight[rest]
        after = fit.calibration.apply(before)
        grades = grades[rest]
        new_grades = grades if fit.calibration.keeps_grades else choose_grades(after, DEFAULT_RULE)
        errors = (expected_calibration_error(one, allowed[rest], weight) for one in (before, after))
        right = (np.average(one == documents.code[rest], weights=weight) for one in (grades, new_grades))
        rows.append([*errors, *right])
    return np.array(rows)


def goals() -> list[Goal]:
    """Return calibration errors without expert grades and with 100, and the accuracy of grades."""
    without, with_experts, accuracies = [], [], []
    changes: dict[str, float] = {}
    for name, read_set in SETS.items():
        judgments, gold = read_set()
        for method, min_accuracy in zip((DEFAULT_METHOD, *DISCRETE), MIN_ACCURACY[name], strict=True):
            documents = graded_documents(name, judgments, gold, method)
            without.append(error_without_experts(name, method, documents))
            # The bounds have four decimals.
            lowest = min_accuracy - 0.00005
            accuracies.append(Goal(f"{name}, {method}: accuracy", documents.accuracy, at_least=lowest))
            if method in METHODS:
                row = measure(documents).mean(axis=0)
                label = f"{name}, {method}, {N_EXPERT_GRADES} expert grades: calibration error (before: {row[0]:.3f})"
                with_experts.append(Goal(label, float(row[1]), at_most=MAX_ERROR))
                changes[f"{name}, {method}"] = float(row[3] - row[2])
    worst = min(changes, key=lambda key: changes[key])
    change = Goal(f"lowest change of accuracy by expert grades ({worst})", changes[worst], at_least=-0.01)
    return [*without, *accuracies, *with_experts, change]


def error_without_experts(name: str, method: str, documents: GradedDocuments) -> Goal:
    """Return the calibration error of P(grade); that of P(true grade) is the bound if the model has one."""
    error, true_error = (
        expected_calibration_error(shares, documents.allowed, documents.weight)
        for shares in (documents.shares, documents.true_shares)
    )
    if method == DEFAULT_METHOD:
        return Goal(f"{name}, {method}: calibration error", error, at_most=MAX_DEFAULT_ERROR[name])
    label = f"{name}, {method}: calibration error (P(true grade): {true_error:.3f})"
    return Goal(label, error, at_most=round(true_error, 4))
