"""Short crowd tasks: whether `gda` and `rasch` lose to the plain average.

Assessors judge 3 to 24 documents on 3 to 6 grades; documents get 3 or 10 labels; all assessors are connected by shared
documents, or only those of six groups; 0 or 15% of the assessors answer at random. Order is measured by tau-a, because
tau-b rewards the ties of the plain average. `short_task_variants.py` measures other models and inputs.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from crowdrank import get_aggregator
from crowdrank._typing import Booleans, Floats
from crowdrank.errors import ConvergenceWarning, Fix
from crowdrank.testing.robustness_checks import tau_a
from experiments.base import Row, Table
from experiments.robustness import Goal

SEEDS = range(2000, 2010)
"""Random states that were not used while the prior was developed."""
N_DOCUMENTS, DOCUMENTS_PER_QUERY = 120, 12
N_GROUPS = 6
"""Number of groups of documents that share no assessor."""
FEW_ITERATIONS, MANY_ITERATIONS = (1, 2, 3), 1000
"""Values of n_iter with which no fit may fail."""
LABELS_PER_ASSESSOR = (3, 4, 6, 10, 24)


@dataclass(frozen=True)
class Task:
    """Kind of a crowd task."""

    n_grades: int
    labels_per_assessor: int
    labels_per_document: int
    in_groups: bool
    has_careless: bool


TASKS = [
    Task(*cell) for cell in itertools.product((3, 4, 5, 6), LABELS_PER_ASSESSOR, (3, 10), (False, True), (False, True))
]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Arguments of `fit`, the judgments that the plain average gets, and the documents whose order is measured."""

    judgments: Any
    arguments: Mapping[str, Any]
    plain: pd.DataFrame
    measured: Booleans


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


def plain_inputs(task: Task, seed: int) -> tuple[Inputs, Floats]:
    """Return judgments without other arguments, and the true relevance of the documents."""
    frame, relevance = draw_judgments(task, seed)
    return Inputs(frame, {}, frame, np.ones(N_DOCUMENTS, bool)), relevance


@dataclass(frozen=True)
class Variant:
    """A method with options on one kind of inputs.

    Attributes:
        method: name of the method.
        options: names and values of its parameters.
        inputs: function that draws the inputs and the true relevance.
        within_queries: whether order is measured within queries.
        tasks: cells of the grid on which it is measured.
        seeds: random states of each cell.

    """

    method: str = "gda"
    options: tuple[tuple[str, Any], ...] = ()
    inputs: Callable[[Task, int], tuple[Inputs, Floats]] = plain_inputs
    within_queries: bool = False
    tasks: Sequence[Task] = tuple(TASKS)
    seeds: Sequence[int] = SEEDS


@dataclass(frozen=True, eq=False)
class Fit:
    """Result of a fit: relevance of the documents (NaN if it failed), and how it ended."""

    relevance: Floats
    converged: bool = False
    says_raise_n_iter: bool = False


FAILED = Fit(np.full(N_DOCUMENTS, np.nan))


@cache
def fit_method(
    method: str, options: tuple[tuple[str, Any], ...], inputs: Callable[[Task, int], Any], task: Task, seed: int
) -> Fit:
    """Fit a method to inputs; the plain average gets judgments on one scale and nothing else."""
    drawn: Inputs = inputs(task, seed)[0]
    takes = {"average": (), "rasch": ("gold",)}.get(method, tuple(drawn.arguments))
    judgments = drawn.plain if method == "average" else drawn.judgments
    model = get_aggregator(method, **dict(options))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(judgments, **{name: value for name, value in drawn.arguments.items() if name in takes})
        except np.linalg.LinAlgError:
            return FAILED
    problems = [one.message for one in caught]
    advice = [fix for problem in problems if isinstance(problem, ConvergenceWarning) for fix in problem.fixes]
    documents = model.consensus_.documents
    found = documents["relevance"].to_numpy()[np.argsort(documents["document"].astype(int).to_numpy())]
    if not np.isfinite(found).all():
        return FAILED
    return Fit(found, model.converged_, any(isinstance(fix, Fix) and fix.parameter == "n_iter" for fix in advice))


@cache
def measure_variant(variant: Variant) -> pd.DataFrame:
    """Return tau-a of a variant, the average and Rasch by task and seed, and how its fits ended.

    With the first seed the variant is also fitted with few iterations. A fit whose warning advises to raise n_iter is
    repeated with `MANY_ITERATIONS`; `gain` is the change of tau-a.

    >>> found = measure_variant(Variant("rasch", tasks=tuple(TASKS[:1]), seeds=SEEDS[:1]))
    >>> bool((found["tau"] == found["rasch"]).all()), found["failed"].tolist()
    (True, [0])
    """
    rows: list[dict[str, Any]] = []
    query = np.arange(N_DOCUMENTS) // DOCUMENTS_PER_QUERY * variant.within_queries
    for task, seed in itertools.product(variant.tasks, variant.seeds):
        drawn, relevance = variant.inputs(task, seed)
        parts = [drawn.measured & (query == number) for number in np.unique(query)]

        def tau(found: Fit, parts: list[Booleans] = parts, relevance: Floats = relevance) -> float:
            if found is FAILED:
                return float("nan")
            return float(np.mean([tau_a(found.relevance[part], relevance[part]) for part in parts]))

        def fit(
            method: str, *options: tuple[str, Any], variant: Variant = variant, cell: tuple[Task, int] = (task, seed)
        ) -> Fit:
            return fit_method(method, options, variant.inputs, *cell)

        found = fit(variant.method, *variant.options)
        taus = {"tau": tau(found), "average": tau(fit("average")), "rasch": tau(fit("rasch"))}
        few = FEW_ITERATIONS if seed == variant.seeds[0] else ()
        fits = [found, *(fit(variant.method, *variant.options, ("n_iter", number)) for number in few)]
        gain = float("nan")
        if found.says_raise_n_iter:
            gain = tau(fit(variant.method, *variant.options, ("n_iter", MANY_ITERATIONS))) - taus["tau"]
        failed = sum(one is FAILED for one in fits)
        rows.append({"task": task, **taus, "failed": failed, "converged": found.converged, "gain": gain})
    return pd.DataFrame(rows)


def variant_goals(name: str, variant: Variant) -> list[Goal]:
    """Return the figures of a variant over its tasks."""
    fits = measure_variant(variant)
    by_task = fits.groupby("task", sort=False)[["tau", "average", "rasch"]].mean()
    advantage, gain = by_task["tau"] - by_task["average"], fits["gain"].dropna()
    result = [
        Goal(
            f"{name}: tasks of {len(by_task)} in which it is below the average", float((advantage < 0).sum()), at_most=0
        ),
        Goal(f"{name}: lowest mean advantage over the average", float(advantage.min()), at_least=0),
        Goal(f"{name}: failed fits", float(fits["failed"].sum()), at_most=0),
        Goal(f"{name}: share of fits that did not converge", float(1 - fits["converged"].mean()), at_most=0.05),
    ]
    if variant.method != "rasch":
        over_rasch = float((by_task["tau"] - by_task["rasch"]).mean())
        result.insert(2, Goal(f"{name}: mean tau-a minus rasch", over_rasch, at_least=0))
    if len(gain):
        result.append(Goal(f"{name}: mean gain in tau-a by the advice to raise n_iter", float(gain.mean()), at_least=0))
    return result


def advantage_row(name: str, variant: Variant) -> Row:
    """Return a row of the table: mean advantage in tau-a over the average, by labels per assessor."""
    fits = measure_variant(variant)
    labels = [task.labels_per_assessor for task in fits["task"]]
    means = (fits["tau"] - fits["average"]).groupby(labels).mean()
    shape = {"tasks": fits["task"].nunique(), "seeds": len(variant.seeds)}
    return {"run": name, **shape, **{f"{n} labels": float(means.get(n, np.nan)) for n in LABELS_PER_ASSESSOR}}


VARIANTS: dict[str, Variant] = {"gda": Variant(), "rasch": Variant("rasch")}


def goals() -> list[Goal]:
    """Return the figures over all tasks."""
    return [goal for name, variant in VARIANTS.items() for goal in variant_goals(name, variant)]


def tables() -> list[Table]:
    """Return the mean advantage over the average by labels per assessor."""
    rows = tuple(advantage_row(name, variant) for name, variant in VARIANTS.items())
    title = "Short tasks: mean advantage in tau-a over the plain average, by labels per assessor"
    note = (
        "Tasks: 3 to 6 grades, 3 or 10 labels per document, connected or separate groups, with and without 15% "
        "careless assessors."
    )
    return [Table("short-tasks", title, rows, (note,))]
