"""Short crowd tasks with other models and inputs: whether they lose to the plain average.

Tasks are every ninth of `short_tasks.py`, with five seeds; for `gda-difficulty` with three. Inputs are plain judgments,
judgments in which every second assessor has a scale without the highest grade, judgments with two features, one of them
unrelated, or with 24 expert grades.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_judgments
from experiments.base import Table
from experiments.robustness import Goal
from experiments.short_tasks import (
    DOCUMENTS_PER_QUERY,
    N_DOCUMENTS,
    SEEDS,
    TASKS,
    Inputs,
    Task,
    Variant,
    advantage_row,
    draw_judgments,
    grade_cuts,
    variant_goals,
)

N_EXPERT_GRADES = 24
"""Number of documents with an expert grade; order is measured on the others."""


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


def mixed_scales(task: Task, seed: int) -> tuple[Inputs, Floats]:
    """Return judgments on two scales; the plain average gets them on one."""
    frame, relevance = draw_judgments(task, seed)
    plain = without_highest_grade(frame, task.n_grades)
    return Inputs(on_mixed_scales(frame, task.n_grades), {}, plain, np.ones(N_DOCUMENTS, bool)), relevance


def with_features(task: Task, seed: int) -> tuple[Inputs, Floats]:
    """Return judgments and two features, the second one unrelated to relevance."""
    frame, relevance = draw_judgments(task, seed)
    rng = np.random.default_rng([seed, N_DOCUMENTS])
    related, unrelated = relevance + rng.normal(size=N_DOCUMENTS), rng.normal(size=N_DOCUMENTS)
    features = document_names().assign(related=related, unrelated=unrelated)
    return Inputs(frame, {"features": features}, frame, np.ones(N_DOCUMENTS, bool)), relevance


def with_gold(task: Task, seed: int) -> tuple[Inputs, Floats]:
    """Return judgments and the expert grades of some documents."""
    frame, relevance = draw_judgments(task, seed)
    graded = np.random.default_rng([seed, N_DOCUMENTS]).choice(N_DOCUMENTS, N_EXPERT_GRADES, replace=False)
    grade = np.searchsorted(grade_cuts(relevance, task.n_grades), relevance, side="right")
    measured = np.ones(N_DOCUMENTS, bool)
    measured[graded] = False
    return Inputs(frame, {"gold": document_names().assign(grade=grade).iloc[graded]}, frame, measured), relevance


def document_names() -> pd.DataFrame:
    """Return query and name of each document."""
    document = np.arange(N_DOCUMENTS)
    return pd.DataFrame({"query": document // DOCUMENTS_PER_QUERY, "document": document})


def _variant(method: str, **settings: object) -> Variant:
    return Variant(method, **{"tasks": tuple(TASKS[::9]), "seeds": SEEDS[:5], **settings})  # type: ignore[arg-type]


VARIANTS: dict[str, Variant] = {
    "gda-difficulty": _variant("gda", options=(("difficulty", True),), seeds=SEEDS[:3]),
    "gda-ordinal": _variant("gda", options=(("ordinal", True),)),
    "gda-widths": _variant("gda", options=(("tied_variance", False),)),
    "gda with mixed scales": _variant("gda", inputs=mixed_scales),
    "gda with features": _variant("gda", inputs=with_features),
    "gda with gold": _variant("gda", inputs=with_gold),
    "gda-pairwise": _variant("gda-pairwise", within_queries=True),
    "threshold-dawid-skene": _variant("threshold-dawid-skene"),
}


def goals() -> list[Goal]:
    """Return the figures of all variants."""
    return [goal for name, variant in VARIANTS.items() for goal in variant_goals(name, variant)]


def tables() -> list[Table]:
    """Return the mean advantage over the average by labels per assessor."""
    rows = tuple(advantage_row(name, variant) for name, variant in VARIANTS.items())
    title = "Short tasks, other models and inputs: mean advantage in tau-a over the plain average"
    note = (
        "To save time, these are measured on every ninth task of the grid, with fewer seeds. Columns: labels per "
        "assessor. gda-pairwise is measured within queries."
    )
    return [Table("short-task-variants", title, rows, (note,))]
