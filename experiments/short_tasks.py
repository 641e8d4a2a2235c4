"""Short crowd tasks: whether models with a line of relevance or ordered grades lose to the plain average.

Assessors judge 3 to 24 documents on 3 to 6 grades; documents get 3 or 10 labels; all assessors are connected by shared
documents, or only those of six groups; 0 or 15% of the assessors answer at random. Order is measured by tau-a, because
tau-b rewards the ties of the plain average. `gda` is measured on every third cell of this grid with ten seeds, the
other models and inputs on every ninth cell with five seeds.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdrank import get_aggregator
from crowdrank._typing import Booleans, Floats
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import ConvergenceWarning, Fix
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_judgments
from crowdrank.testing.robustness_checks import tau_a
from experiments.robustness import Goal

SEEDS = range(2000, 2010)
"""Random states that were not used while the prior was developed; the first five for models on every ninth cell."""
N_VARIANT_SEEDS = 5
N_DOCUMENTS, DOCUMENTS_PER_QUERY = 120, 12
N_GROUPS = 6
"""Number of groups of documents that share no assessor."""
N_EXPERT_GRADES = 24
"""Number of documents with an expert grade, in the input with gold; order is measured on the others."""
FEW_ITERATIONS, MANY_ITERATIONS = (1, 2, 3), 1000
"""Values of n_iter with which no fit may fail."""


@dataclass(frozen=True)
class Task:
    """Kind of a crowd task."""

    n_grades: int
    labels_per_assessor: int
    labels_per_document: int
    in_groups: bool
    has_careless: bool


TASKS = [
    Task(*cell) for cell in itertools.product((3, 4, 5, 6), (3, 4, 6, 10, 24), (3, 10), (False, True), (False, True))
]


@dataclass(frozen=True)
class Variant:
    """A method with options on one kind of input.

    Attributes:
        method: name of the method.
        options: its parameters.
        inputs: `judgments`, or with `mixed scales`, `features` or `gold`.
        within_queries: whether order is measured within queries.
        tasks: cells of the grid on which it is measured.
        n_seeds: number of seeds.

    """

    method: str = "gda"
    options: dict[str, Any] = field(default_factory=dict)
    inputs: str = "judgments"
    within_queries: bool = False
    tasks: Sequence[Task] = tuple(TASKS[::9])
    n_seeds: int = N_VARIANT_SEEDS


VARIANTS: dict[str, Variant] = {
    "gda": Variant(tasks=TASKS[::3], n_seeds=len(SEEDS)),
    "gda-difficulty": Variant(options={"difficulty": True}),
    "gda-ordinal": Variant(options={"ordinal": True}),
    "gda-widths": Variant(options={"tied_variance": False}),
    "gda with mixed scales": Variant(inputs="mixed scales"),
    "gda with features": Variant(inputs="features"),
    "gda with gold": Variant(inputs="gold"),
    "gda-pairwise": Variant("gda-pairwise", within_queries=True),
    "threshold-dawid-skene": Variant("threshold-dawid-skene"),
}


def draw_judgments(task: Task, seed: int) -> tuple[pd.DataFrame, Floats]:
    """Return judgments of a task and the true relevance of the documents.

    >>> draw_judgments(Task(3, 4, 3, False, False), 0)[0].shape
    (360, 4)
    """
    rng = np.random.default_rng([seed, task.n_grades, task.labels_per_assessor, task.labels_per_document])
    relevance = rng.normal(size=N_DOCUMENTS)
    cuts = grade_cuts(relevance, task.n_grades)
    groups = np.array_split(rng.permutation(N_DOCUMENTS), N_GROUPS if task.in_groups else 1)
    rows, n_assessors = [], 0
    for group in groups:
        document = np.concatenate([rng.permutation(group) for _ in range(task.labels_per_document)])
        assessor = np.arange(len(document)) // task.labels_per_assessor
        severity = rng.normal(0, 0.5, assessor[-1] + 1)
        careless = task.has_careless & (rng.random(assessor[-1] + 1) < 0.15)
        seen = relevance[document] + severity[assessor] + rng.normal(0, 0.6, len(document))
        random_grade = rng.integers(0, task.n_grades, len(document))
        grade = np.where(careless[assessor], random_grade, np.searchsorted(cuts, seen))
        rows.append(pd.DataFrame({"document": document, "assessor": assessor + n_assessors, "grade": grade}))
        n_assessors += assessor[-1] + 1
    frame = pd.concat(rows).drop_duplicates(["document", "assessor"])
    return frame.assign(query=frame["document"] // DOCUMENTS_PER_QUERY), relevance


def grade_cuts(relevance: Floats, n_grades: int) -> Floats:
    """Return the relevance above which each grade but the lowest begins; all grades are equally frequent."""
    return np.quantile(relevance, np.linspace(0, 1, n_grades + 1)[1:-1])


def without_highest_grade(frame: pd.DataFrame, n_grades: int) -> pd.DataFrame:
    """Return judgments in which every second assessor gives the second highest grade in place of the highest."""
    is_short = frame["assessor"] % 2 == 1
    return frame.assign(grade=np.where(is_short, np.minimum(frame["grade"], n_grades - 2), frame["grade"]))


def on_mixed_scales(frame: pd.DataFrame, n_grades: int) -> Judgments:
    """Return judgments of :func:`without_highest_grade` in which these assessors have a scale of their own."""
    is_short = frame["assessor"] % 2 == 1
    scale = np.where(is_short, f"0-{n_grades - 2}", f"0-{n_grades - 1}")
    rules = pd.DataFrame({"assessor": frame["assessor"], "grades": scale}).drop_duplicates()
    with tempfile.TemporaryDirectory() as folder:
        rules.to_csv(path := Path(folder) / "scales.csv", index=False)
        return read_judgments(without_highest_grade(frame, n_grades), scales=path)


def prepare_inputs(
    inputs: str, frame: pd.DataFrame, relevance: Floats, task: Task, seed: int
) -> tuple[Any, dict[str, Any], Booleans]:
    """Return the judgments, other arguments of `fit`, and the documents on which order is measured."""
    rng, document = np.random.default_rng([seed, N_DOCUMENTS]), np.arange(N_DOCUMENTS)
    names, measured = {"query": document // DOCUMENTS_PER_QUERY, "document": document}, np.ones(N_DOCUMENTS, bool)
    if inputs == "mixed scales":
        return on_mixed_scales(frame, task.n_grades), {}, measured
    if inputs == "features":
        related, unrelated = relevance + rng.normal(size=N_DOCUMENTS), rng.normal(size=N_DOCUMENTS)
        return frame, {"features": pd.DataFrame({**names, "related": related, "unrelated": unrelated})}, measured
    if inputs == "gold":
        graded = rng.choice(document, N_EXPERT_GRADES, replace=False)
        grade = np.searchsorted(grade_cuts(relevance, task.n_grades), relevance, side="right")
        measured[graded] = False
        return frame, {"gold": pd.DataFrame({**names, "grade": grade}).iloc[graded]}, measured
    return frame, {}, measured


@dataclass(frozen=True)
class Fit:
    """Result of a fit: tau-a (NaN if it failed), whether it converged, and whether its advice is to raise n_iter."""

    tau: float
    converged: bool = False
    says_raise_n_iter: bool = False


def fit(model: Aggregator, judgments: Any, arguments: dict[str, Any], measure: Any) -> Fit:
    """Fit a model and measure its order."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(judgments, **arguments)
        except np.linalg.LinAlgError:
            return Fit(float("nan"))
    problems = [one.message for one in caught]
    advice = [fix for problem in problems if isinstance(problem, ConvergenceWarning) for fix in problem.fixes]
    documents = model.consensus_.documents
    has_n_iter = any(isinstance(fix, Fix) and fix.parameter == "n_iter" for fix in advice)
    found = documents["relevance"].to_numpy()[np.argsort(documents["document"].astype(int).to_numpy())]
    return Fit(measure(found) if np.isfinite(found).all() else float("nan"), model.converged_, has_n_iter)


def measure_variant(variant: Variant) -> pd.DataFrame:
    """Return tau-a of a variant, the average and Rasch by task and seed, and how its fits ended.

    With the first seed the variant is also fitted with few iterations. A fit whose warning advises to raise n_iter is
    repeated with `MANY_ITERATIONS`; `gain` is the change of tau-a.
    """
    rows: list[dict[str, Any]] = []
    query = np.arange(N_DOCUMENTS) // DOCUMENTS_PER_QUERY * variant.within_queries
    for (cell, task), seed in itertools.product(enumerate(variant.tasks), SEEDS[: variant.n_seeds]):
        frame, relevance = draw_judgments(task, seed)
        if variant.inputs == "mixed scales":
            frame = without_highest_grade(frame, task.n_grades)
        judgments, arguments, measured = prepare_inputs(variant.inputs, frame, relevance, task, seed)
        parts = [measured & (query == number) for number in np.unique(query)]

        def measure(found: Floats, parts: list[Booleans] = parts, relevance: Floats = relevance) -> float:
            return float(np.mean([tau_a(found[part], relevance[part]) for part in parts]))

        model, gold = (
            get_aggregator(variant.method, **variant.options),
            {k: v for k, v in arguments.items() if k == "gold"},
        )
        ended = fit(model, judgments, arguments, measure)
        taus = {"tau": ended.tau, "average": fit(get_aggregator("average"), frame, {}, measure).tau}
        taus["rasch"] = fit(get_aggregator("rasch"), judgments, gold, measure).tau

        def with_iterations(
            n_iter: int, model: Aggregator = model, given: Any = (judgments, arguments, measure)
        ) -> Fit:
            return fit(model.unfitted().set_params(n_iter=n_iter), *given)

        few = [with_iterations(n).tau for n in FEW_ITERATIONS] if seed == SEEDS[0] else []
        gain = with_iterations(MANY_ITERATIONS).tau - ended.tau if ended.says_raise_n_iter else float("nan")
        failed = int(np.isnan([ended.tau, *few]).sum())
        rows.append({"cell": cell, **taus, "failed": failed, "converged": ended.converged, "gain": gain})
    return pd.DataFrame(rows)


def goals() -> list[Goal]:
    """Return the figures of all tasks."""
    result = []
    for name, variant in VARIANTS.items():
        fits = measure_variant(variant)
        by_cell = fits.groupby("cell")[["tau", "average", "rasch"]].mean()
        advantage, gain = by_cell["tau"] - by_cell["average"], fits["gain"].dropna()
        result += [
            Goal(f"{name}: tasks in which it is below the average", float((advantage < 0).sum()), at_most=0),
            Goal(f"{name}: lowest mean advantage over the average", float(advantage.min()), at_least=0),
            Goal(f"{name}: mean tau-a minus rasch", float((by_cell["tau"] - by_cell["rasch"]).mean()), at_least=0),
            Goal(f"{name}: failed fits", float(fits["failed"].sum()), at_most=0),
            Goal(f"{name}: share of fits that did not converge", float(1 - fits["converged"].mean()), at_most=0.05),
        ]
        if len(gain):
            result.append(
                Goal(f"{name}: mean gain in tau-a by the advice to raise n_iter", float(gain.mean()), at_least=0)
            )
    return result
