"""Checks that an aggregator does not lose to plain votes, resists a useless assessor, and knows what it does not know.

The judgments are simulated such that plain votes are known to be good. Models without a continuous relevance skip the
comparison of rankings with the average. Models of ordered errors skip worlds in which all errors are equally likely.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from crowdrank._typing import Floats, Integers
from crowdrank.consensus.calibration import expected_calibration_error
from crowdrank.consensus.grade_rules import GRADE_RULES
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.threshold_dawid_skene import ThresholdDawidSkene
from crowdrank.consensus.votes import Average, MajorityVote
from crowdrank.errors import ConvergenceWarning, DataWarning
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_judgments

SHORT_TASKS = ((3, 3, 10), (5, 4, 10), (6, 6, 3))
"""Number of grades, of labels per assessor and of labels per document of each kind of simulated judgments."""
DOCUMENTS_PER_QUERY = 12
"""Number of documents per query in the simulated judgments."""
N_SEEDS = 3
"""Number of simulated sets of judgments per kind of task."""
MAX_LOSS = 0.015
"""Maximum by which the mean Kendall's tau-a of a model may be below that of the plain average."""
MIN_CORRELATION = 0.97
"""Minimum rank correlation of relevance before and after a useless assessor is added."""
N_GRADES, N_ASSESSORS, LABELS_PER_DOCUMENT = 5, 20, 5
"""Number of grades on the scale, of assessors and of labels per document in worlds with unused grades."""
N_GRADE_SEEDS = 2
"""Number of sets of judgments of each kind with unused grades and wrong answers."""
MAX_FEWER_RIGHT = 0.01
"""Maximum by which the share of right grades may be below that of the majority."""
CAREFUL_NOISE, SEVERITY_SD = 0.4, 0.2
"""Standard deviations of a careful assessor's noise and of severities, in standard deviations of relevance."""
N_RANDOM_ASSESSORS, JUDGED_SHARE = 2, 0.4
"""Number of assessors who answer at random, and probability that an assessor judges a document."""
N_CAREFUL_ANSWERS, N_SEEDS_OF_PERCEPTION = 20, 3
"""Number of further careful assessors whose answers the probabilities of grades are compared with, and of worlds."""
MAX_CALIBRATION_ERROR = 0.13
"""Maximum of the mean expected calibration error of the probabilities of grades.

Models whose errors are the same for all grades, or symmetric, are not calibrated where half of the documents have the
lowest grade; the error of the posterior probability of true grades is 0.14 to 0.25.
"""


@dataclass(frozen=True)
class GradeWorld:
    """Documents whose grades, and all answers, are some of the grades of a scale.

    Attributes:
        used: grades of the documents; no other grade is ever answered.
        shares: share of documents with each used grade.
        noise: probability of a wrong answer.
        errors: wrong answers are `uniform` over the other used grades, or `neighboring`: the next used grade on a side.

    """

    used: tuple[int, ...]
    shares: tuple[float, ...]
    noise: float = 0.0
    errors: str = "uniform"

    def __str__(self) -> str:
        shares = "" if len(set(self.shares)) == 1 else " in shares " + "/".join(f"{share:g}" for share in self.shares)
        errors = f", {self.noise:.0%} {self.errors} errors" if self.noise else ""
        return f"only {','.join(map(str, self.used))}{shares}{errors}"

    def draw(self, seed: int, n_documents: int = 1000) -> tuple[Judgments, Integers]:
        """Return judgments, and the true grades of the documents in the order of their names.

        >>> judgments, grades = GradeWorld((0, 3), (0.5, 0.5), 0.1).draw(0)
        >>> len(judgments), len(judgments.scale), sorted(set(grades.tolist()))
        (5000, 5, [0, 3])
        """
        rng, n_used = np.random.default_rng([seed, *self.used]), len(self.used)
        truth = rng.choice(n_used, n_documents, p=self.shares)
        document = np.repeat(np.arange(n_documents), LABELS_PER_DOCUMENT)
        drawn = rng.permuted(np.tile(np.arange(N_ASSESSORS), (n_documents, 1)), axis=1)
        answer = truth[document]
        if self.errors == "uniform":
            wrong = (answer + rng.integers(1, max(n_used, 2), len(answer))) % n_used
        else:
            wrong = np.abs(answer + rng.choice([-1, 1], len(answer)))
            wrong = np.where(wrong < n_used, wrong, max(n_used - 2, 0))
        answer = np.where(rng.random(len(answer)) < self.noise, wrong, answer)
        frame = pd.DataFrame(
            {
                "query": [f"q{number // DOCUMENTS_PER_QUERY}" for number in document],
                "document": [f"d{number:04}" for number in document],
                "assessor": [f"w{number}" for number in drawn[:, :LABELS_PER_DOCUMENT].ravel()],
                "grade": np.array(self.used)[answer],
            }
        )
        return read_judgments(frame, grades=f"0-{N_GRADES - 1}"), np.array(self.used)[truth]


UNANIMOUS = tuple(GradeWorld((grade,), (1.0,)) for grade in range(N_GRADES))
"""Worlds in which all answers are one grade."""
NOISY = tuple(
    GradeWorld(used, shares, noise, errors)
    for (used, shares), noise, errors in itertools.product(
        (((0, 3), (0.5, 0.5)), ((0, 1, 2), (1 / 3,) * 3), ((0, 1, 2, 3), (0.9, 0.05, 0.03, 0.02))),
        (0.1, 0.3),
        ("uniform", "neighboring"),
    )
)
"""Worlds with unused grades and skewed shares of the used ones."""


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


def _fit_quietly(model: Aggregator, judgments: pd.DataFrame | Judgments) -> Aggregator:
    """Return a copy of the model, fitted without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return model.unfitted().fit(judgments)


def _fitted_relevance(model: Aggregator, judgments: pd.DataFrame) -> Floats:
    """Return the relevance of the documents in the order of their names."""
    table = _fit_quietly(model, judgments).consensus_.document_table.to_pandas()
    return np.asarray(table.sort_values("document")["relevance"], np.float64)


@cache
def _tau_of_average(n_grades: int, labels_per_assessor: int, labels_per_document: int, seed: int) -> float:
    """Return the mean tau-a of the plain average on the judgments of :func:`short_task_world`."""
    judgments, relevance = short_task_world(n_grades, labels_per_assessor, labels_per_document, seed)
    return _tau_within_queries(_fitted_relevance(Average(), judgments), relevance)


def check_short_tasks(model: Aggregator) -> None:
    """Check that a model with continuous relevance ranks as well as the average if assessors judge few documents."""
    if not getattr(model, "on_a_line", False):
        return
    for n_grades, per_assessor, per_document in SHORT_TASKS:
        losses = []
        for seed in range(N_SEEDS):
            judgments, relevance = short_task_world(n_grades, per_assessor, per_document, seed)
            tau = _tau_within_queries(_fitted_relevance(model, judgments), relevance)
            losses.append(_tau_of_average(n_grades, per_assessor, per_document, seed) - tau)
        assert np.mean(losses) <= MAX_LOSS, (
            f"with {n_grades} grades and {per_assessor} labels per assessor the plain average has a tau that is "
            f"{np.mean(losses):.3f} higher"
        )


def check_useless_assessor(model: Aggregator) -> None:
    """Check that an assessor with random answers hardly changes the ranking of a model with assessors' parameters."""
    if not any(array.by_assessor for array in getattr(model, "theta_arrays", {}).values()):
        return
    judgments, _ = short_task_world(4, 30, 8, 0)
    documents = judgments[["query", "document"]].drop_duplicates()
    grades = np.random.default_rng(0).integers(0, 4, len(documents))
    useless = documents.assign(assessor="useless", grade=grades)
    before, after = (_fitted_relevance(model, frame) for frame in (judgments, pd.concat([judgments, useless])))
    correlation = float(np.corrcoef(before.argsort().argsort(), after.argsort().argsort())[0, 1])
    assert correlation >= MIN_CORRELATION, f"a useless assessor changed the ranking (correlation {correlation:.3f})"


def check_calibration(model: Aggregator) -> None:
    """Check that P(grade) is about the frequency of the grade among the answers of additional, careful assessors."""
    errors = []
    for seed in range(N_SEEDS_OF_PERCEPTION):
        world = PerceptionWorld.draw(seed)
        consensus = _fit_quietly(model, world.judgments).consensus_
        table = consensus.document_table.to_pandas().sort_values("document")
        shares = np.repeat(table[consensus.share_names].to_numpy(), N_CAREFUL_ANSWERS, axis=0)
        is_answer = world.answers.ravel()[:, None] == np.arange(shares.shape[1])
        errors.append(expected_calibration_error(shares, is_answer))
    error = float(np.mean(errors))
    assert error <= MAX_CALIBRATION_ERROR, f"the expected calibration error of P(grade) is {error:.3f}"


def share_right(model: Aggregator, judgments: Judgments, truth: Integers) -> float:
    """Return the share of documents with the right grade, which the rule `mode` maximizes."""
    unfitted = model.unfitted()
    if "grade_by" in unfitted.get_params():
        unfitted.set_params(grade_by="mode")
    table = _fit_quietly(unfitted, judgments).consensus_.document_table.to_pandas()
    return float(np.mean(table.sort_values("document")["grade"].to_numpy() == truth))


def applies_to(world: GradeWorld, model: Aggregator) -> bool:
    """Return whether errors in a world may be as a model assumes; order does not matter between two grades."""
    assumes_order = getattr(model, "on_a_line", False) or isinstance(model, ThresholdDawidSkene)
    return not assumes_order or world.errors == "neighboring" or len(world.used) <= 2


@cache
def _draw_with_majority(world: GradeWorld, seed: int) -> tuple[Judgments, Integers, float]:
    """Return judgments and true grades of a world, and the share of grades that the majority gets right."""
    judgments, truth = world.draw(seed)
    return judgments, truth, share_right(MajorityVote(), judgments, truth)


def check_unused_grades(model: Aggregator) -> None:
    """Check that a model finds the right grade as often as the majority if some grades are unused or rare.

    Exempt are rules that do not estimate the true grade, such as the highest grade, and models that compare only the
    documents of a query.
    """
    if model.grade_by not in GRADE_RULES or getattr(model, "locality", "item") == "query":
        return
    for world in (*UNANIMOUS, *NOISY):
        if applies_to(world, model):
            drawn = [_draw_with_majority(world, seed) for seed in range(N_GRADE_SEEDS if world.noise else 1)]
            right = np.mean([share_right(model, judgments, truth) for judgments, truth, _ in drawn])
            plain = np.mean([share_of_majority for *_, share_of_majority in drawn])
            problem = f"{world}: {right:.3f} of the grades are right, {plain:.3f} of those of the majority"
            assert right >= plain - MAX_FEWER_RIGHT, problem


@dataclass(frozen=True)
class PerceptionWorld:
    """Assessors who see the relevance of a document with normal noise and cut it into grades; no model's own form.

    The confusions of grades depend on relevance within a grade, curves are no Gaussians, and some assessors answer at
    random. A careful assessor has the noise `CAREFUL_NOISE` and a severity of their own.

    Attributes:
        judgments: judgments by all assessors.
        answers: grades by careful assessors who did not take part, one for each document and draw, in the order of the
            names of documents, (n_documents, N_CAREFUL_ANSWERS).

    """

    judgments: pd.DataFrame
    answers: Integers

    @classmethod
    def draw(cls, seed: int, n_documents: int = 480) -> PerceptionWorld:
        """Draw a world.

        >>> PerceptionWorld.draw(0).answers.shape
        (480, 20)
        """
        rng = np.random.default_rng(seed)
        relevance, noise = rng.normal(size=n_documents), np.repeat([CAREFUL_NOISE, 1.0], [10, 5])
        cuts = np.array([0.0, 0.7, 1.3])  # half of the documents have the lowest grade
        severity = rng.normal(0, SEVERITY_SD, len(noise))
        seen = relevance[:, None] + severity + noise * rng.normal(size=(n_documents, len(noise)))
        grades = np.hstack([np.searchsorted(cuts, seen), rng.integers(0, 4, (n_documents, N_RANDOM_ASSESSORS))])
        is_judged = np.asarray(rng.random(grades.shape)) < JUDGED_SHARE
        document, assessor = np.nonzero(is_judged)
        frame = pd.DataFrame(
            {
                "query": [f"q{number // DOCUMENTS_PER_QUERY}" for number in document],
                "document": [f"d{number:03}" for number in document],
                "assessor": [f"w{number}" for number in assessor],
                "grade": grades[document, assessor],
            }
        )
        of_one_more = (n_documents, N_CAREFUL_ANSWERS)
        spread = np.hypot(SEVERITY_SD, CAREFUL_NOISE)
        return cls(frame, np.searchsorted(cuts, relevance[:, None] + spread * rng.normal(size=of_one_more)))
