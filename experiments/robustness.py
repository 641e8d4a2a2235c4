"""Goals of the consensus on worlds of their own and on public data, each with its figure.

A part is a module with a function `goals() -> list[Goal]`, and perhaps `tables() -> list[Table]`;
`python -m experiments robustness --only PART` runs one.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crowdrank._files import write_file
from crowdrank.errors import UsageError
from experiments.base import Experiment, Row, Table, Tell, quiet, select_names

PARTS: dict[str, str] = {
    "short-tasks": "short_tasks",
    "short-task-variants": "short_task_variants",
    "difficulty-prior": "difficulty_prior",
    "families": "family_worlds",
    "calibration": "expert_calibration",
    "flags": "flags",
    "unused-grades": "unused_grades",
    "updates": "updates",
    "auto": "auto",
    "features": "feature_leaks",
}
"""Module of each part, by the name of the part."""


@dataclass(frozen=True)
class Goal:
    """Figure of a goal, and the bounds within which the goal is reached.

    >>> Goal("coverage", 0.94, at_least=0.93, at_most=0.97).is_reached
    True
    """

    name: str
    figure: float
    at_least: float = -float("inf")
    at_most: float = float("inf")

    @property
    def is_reached(self) -> bool:
        """Whether the figure is within the bounds; NaN is not."""
        return self.at_least <= self.figure <= self.at_most

    def row(self, part: str) -> Row:
        """Return the row of a table."""
        bounds = [f">= {self.at_least:g}"] * (self.at_least > -float("inf"))
        bounds += [f"<= {self.at_most:g}"] * (self.at_most < float("inf"))
        goal = " and ".join(bounds)
        return {"run": f"{part}: {self.name}", "figure": self.figure, "goal": goal, "reached": self.is_reached}


def experiment(
    methods: Sequence[str] | None = None,
    tell: Tell = quiet,
    only: Sequence[str] | None = None,
    keep: Path | None = None,
) -> Experiment:
    """Return the figure of every goal, or of the goals of some parts; parts in the folder `keep` are not repeated."""
    if methods is not None:
        raise UsageError("The experiment robustness has no methods to select; --only selects its parts.")
    rows: list[Row] = []
    tables: list[Table] = []
    for part in select_names(only, PARTS, "part"):
        tell(part)
        goals, *others = _kept(part, keep)
        rows += goals.rows
        tables += others
    return Experiment("robustness", (Table("goals", "Goals of the consensus", tuple(rows)), *tables), ())


def _kept(part: str, keep: Path | None) -> list[Table]:
    """Return the goals and the other tables of a part, from its file if there is one."""
    path = None if keep is None else keep / f"{part}.json"
    if path is not None and path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return [Table(one["name"], one["title"], tuple(one["rows"]), tuple(one["notes"])) for one in kept]
    module = importlib.import_module(f"experiments.{PARTS[part]}")
    goals: list[Goal] = module.goals()
    tables = [Table("goals", "Goals of the consensus", tuple(goal.row(part) for goal in goals))]
    tables += module.tables() if hasattr(module, "tables") else []
    if path is not None:
        with write_file(path) as draft:
            draft.write_text(json.dumps([table.to_dict() for table in tables]), encoding="utf-8")
    return tables
