"""Short crowd tasks: whether models with a line of relevance lose to the plain average.

Assessors judge 3 to 24 documents on 3 to 6 grades; documents get 3 or 10 labels; all assessors are connected by shared
documents, or only those of six groups; 0 or 15% of the assessors answer at random. Order is measured by tau-a, because
tau-b rewards the ties of the plain average.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.rasch import Rasch
from crowdrank.consensus.votes import Average
from crowdrank.testing.robustness_checks import tau_a
from experiments.robustness import Goal

SEEDS = range(2000, 2010)
"""Random states that were not used while the prior was developed."""
N_DOCUMENTS = 120
N_GROUPS = 6
"""Number of groups of documents that share no assessor."""
MODELS: dict[str, Callable[[], Aggregator]] = {"average": Average, "gda": GDA, "rasch": Rasch}


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


def draw_judgments(task: Task, seed: int) -> tuple[pd.DataFrame, Floats]:
    """Return judgments of a task and the true relevance of the documents.

    >>> draw_judgments(Task(3, 4, 3, False, False), 0)[0].shape
    (360, 4)
    """
    rng = np.random.default_rng([seed, task.n_grades, task.labels_per_assessor, task.labels_per_document])
    relevance = rng.normal(size=N_DOCUMENTS)
    cuts = np.quantile(relevance, np.linspace(0, 1, task.n_grades + 1)[1:-1])
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
    return frame.assign(query=frame["document"] // 12), relevance


def measure_task(task: Task, seeds: Sequence[int] = SEEDS) -> dict[str, list[tuple[float, bool]]]:
    """Return tau-a of each model and whether it converged, by seed; NaN if the fit failed."""
    outcomes: dict[str, list[tuple[float, bool]]] = {name: [] for name in MODELS}
    for seed in seeds:
        judgments, relevance = draw_judgments(task, seed)
        for name, make in MODELS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    model = make().fit(judgments)
                except np.linalg.LinAlgError:
                    outcomes[name].append((float("nan"), False))
                    continue
            documents = model.consensus_.documents
            tau = tau_a(documents["relevance"].to_numpy(), relevance[documents["document"].astype(int)])
            outcomes[name].append((tau, model.converged_))
    return outcomes


def goals() -> list[Goal]:
    """Return the figures of all tasks."""
    cells = [measure_task(task) for task in TASKS]
    tau = {name: np.array([[one[0] for one in cell[name]] for cell in cells]) for name in MODELS}
    advantage = tau["gda"].mean(axis=1) - tau["average"].mean(axis=1)
    unconverged = 1 - np.mean([one[1] for cell in cells for one in cell["gda"]])
    return [
        Goal("tasks in which gda is below the average", float((advantage < 0).sum()), at_most=0),
        Goal("lowest mean advantage of gda over the average", float(advantage.min()), at_least=0),
        Goal("mean tau-a of gda minus rasch", float((tau["gda"] - tau["rasch"]).mean()), at_least=0),
        Goal("failed fits", float(np.isnan(np.stack(list(tau.values()))).sum()), at_most=0),
        Goal("share of fits of gda that did not converge", float(unconverged), at_most=0.05),
    ]
