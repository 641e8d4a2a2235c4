"""Projects: their settings, quotas and guidelines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from crowdrank._assessor_kinds import KINDS
from crowdrank.collection import POLICIES, get_policy
from crowdrank.errors import UsageError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.service.domain.project_settings import SETTINGS, ProjectSettings, Quota, check_values
from crowdrank.service.domain.quotas import change_quotas, forget_spending
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store import schema

if TYPE_CHECKING:
    from crowdrank.evaluation.measures import Measure

MAX_ID = 2**31 - 1
"""Maximum id of a row: PostgreSQL refuses to compare larger ones."""
MAX_CONDITION_VALUES = 10_000
"""Maximum number of values of a condition."""
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


def check_text(text: str | None, *, place: str = "", column: str = "") -> None:
    """Raise Invalid for text that PostgreSQL cannot store: NUL characters and halves of surrogate pairs.

    >>> check_text(chr(0), column="comment")
    Traceback (most recent call last):
    crowdrank.service.service_errors.Invalid: column 'comment': the text has NUL characters or halves of surrogate
    pairs; remove them.
    """
    if text is not None and _NOT_STORABLE.search(text):
        problem = "the text has NUL characters or halves of surrogate pairs"
        raise Invalid(problem, place=place, column=column, kind="invalid-text", fix="remove them")


MAX_LISTED_GRADES = 10
"""Maximum number of grades that a message lists."""
PREFERENCE_ANSWERS = ("left", "tie", "right")
"""Answers of projects that ask for preferences, in place of grades."""
RANDOM_POLICY = "random"
"""Name of the policy that hands pairs out in random order."""
COMPARE_POLICY = "compare"
"""Name of the policy that draws pairs from rankings with known probabilities."""
PREFERENCE_POLICY = "preferences"
"""Name of the policy that asks first for comparisons of documents whose order at the top is uncertain."""


@dataclass(frozen=True, kw_only=True)
class Project(ProjectSettings):
    """A project and its settings; the names of the grades, from least to most relevant, never change."""

    id: int
    name: str
    grades: tuple[str, ...]
    guidelines_version: int
    created: int

    @cached_property
    def scale(self) -> Scale:
        """The grades as a scale."""
        return Scale.parse(self.grades)

    @property
    def asks_preferences(self) -> bool:
        """Whether a pair has two documents, and the answer says which one is better."""
        return self.task == "preferences"

    @property
    def is_planned(self) -> bool:
        """Whether fits of the model set the targets and priorities of pairs."""
        return not self.is_sampled and (self.policy != RANDOM_POLICY or self.settled is not None)

    @property
    def is_sampled(self) -> bool:
        """Whether only pairs that were drawn are handed out; the stop rule does not apply to them."""
        return self.policy == COMPARE_POLICY

    @property
    def plan_settings(self) -> tuple[object, ...]:
        """The settings that targets and priorities depend on."""
        return self.policy, self.settled, tuple(sorted(self.quotas.items()))

    def is_informative_enough(self, relative_information: float | None) -> bool:
        """Return whether an assessor with this relative information gets pairs; None: not estimated yet."""
        minimum = self.min_information
        return minimum is None or relative_information is None or relative_information >= minimum

    @property
    def listed_grades(self) -> str:
        """Names of the grades for a message, at most `MAX_LISTED_GRADES`."""
        return ", ".join([*self.grades[:MAX_LISTED_GRADES], *(["..."] if len(self.grades) > MAX_LISTED_GRADES else [])])

    def grade_code(self, grade: object, *, place: str = "", column: str = "") -> int:
        """Return the position of a grade on the scale; raise Invalid, with a location, if it is not on it."""
        code = self.scale.code(grade)
        if code is None:
            problem, fix = f"{shown(grade)} is not a grade of the scale", f"use one of {self.listed_grades}"
            raise Invalid(problem, place=place, column=column, kind="unknown-grade", fix=fix)
        return code


_PROJECT = select(schema.project)
_BY_NAME = _PROJECT.where(schema.project.c.name == bindparam("name"))
_LOCKED = _PROJECT.where(schema.project.c.id == bindparam("id")).with_for_update(key_share=True)
_IS_ADMIN = select(schema.assessor.c.is_admin).where(schema.assessor.c.id == bindparam("assessor_id")).scalar_subquery()
_VISIBLE = or_(
    _IS_ADMIN,
    select(schema.membership.c.project_id)
    .where(
        schema.membership.c.project_id == schema.project.c.id,
        schema.membership.c.assessor_id == bindparam("assessor_id"),
    )
    .exists(),
)


def create_project(
    connection: Connection, name: str, grades: str | Sequence[object] | None, now: int, **settings: Any
) -> Project:
    """Create a project.

    Args:
        connection: connection in a write transaction.
        name: name of the project, which is part of its address.
        grades: the scale, such as `0-3`, or the names of the grades from least to most relevant; None for preferences.
        now: time in milliseconds.
        settings: settings that differ from the defaults.

    Raises:
        Conflict: a project has this name.
        Invalid: the name, the scale or a setting is invalid.

    """
    if not name or len(name) > 100 or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise Invalid("must have 1 to 100 letters, digits, '-', '_' or '.'", parameter="name")
    check_settings(settings)
    values = {"name": name, "grades": _grade_names(grades, settings.get("task", "grades")), "created": now}
    values["settings"] = _stored({**asdict(ProjectSettings()), **settings})
    try:
        connection.execute(insert(schema.project).values(values))
    except IntegrityError as error:
        problem = f"{shown(name)} is the name of another project"
        raise Conflict(problem, parameter="name", kind="name-taken", fix="choose another name") from error
    return get_project(connection, name)


def _grade_names(grades: str | Sequence[object] | None, task: str) -> list[str]:
    """Return the names of the grades of a new project; raise Invalid unless they suit its task."""
    if task == "preferences":
        if grades is not None and tuple(grades) != PREFERENCE_ANSWERS:
            fix = f"leave them out; the answers are {', '.join(PREFERENCE_ANSWERS)}"
            raise Invalid("are not used for preferences", parameter="grades", kind="no-grades", fix=fix)
        return list(PREFERENCE_ANSWERS)
    try:
        return list(Scale.parse("" if grades is None else grades).names)
    except UsageError as error:
        raise Invalid(error.message) from error


def get_project(connection: Connection, name: str, assessor_id: int | None = None) -> Project:
    """Return a project; raise NotFound if it does not exist or the assessor is neither a member nor an administrator.

    Args:
        connection: connection in a transaction.
        name: name of the project.
        assessor_id: whose membership is required; None for the service itself.

    """
    if assessor_id is None:
        row = connection.execute(_BY_NAME, {"name": name}).first()
    else:
        row = connection.execute(_BY_NAME.where(_VISIBLE), {"name": name, "assessor_id": assessor_id}).first()
    if row is None:
        raise NotFound(f"there is no project {shown(name)}", kind="no-project")
    return project_of(row)


def list_projects(connection: Connection, assessor_id: int) -> list[Project]:
    """Return the projects of an assessor by name; administrators see all."""
    found = connection.execute(_PROJECT.where(_VISIBLE).order_by(schema.project.c.name), {"assessor_id": assessor_id})
    return [project_of(row) for row in found]


def list_open_projects(connection: Connection) -> list[Project]:
    """Return all open projects, for the service itself."""
    return [project for project in map(project_of, connection.execute(_PROJECT)) if project.is_open]


def lock_project(connection: Connection, project_id: int) -> Project:
    """Return the current state of a project, and keep others from changing it or its pairs in this transaction."""
    return project_of(connection.execute(_LOCKED, {"id": project_id}).one())


def update_project(connection: Connection, project: Project, **settings: Any) -> Project:
    """Change settings of a project.

    New guidelines get a new version. New quotas apply to all pairs; labels in excess of them are kept. After a change
    of quotas, policy or stop rule, targets are `k_min` until the next fit of the model. With the policy `compare`, they
    are `k_min` for the pairs that were drawn, and 0 for others.

    Raises:
        Invalid: a setting is invalid.
        Conflict: the measure, the planned looks or the margin changes, although pairs were drawn.

    """
    current = lock_project(connection, project.id)
    check_settings({"task": current.task, **settings})
    if settings.get("task", current.task) != current.task:
        problem, fix = "cannot be changed after a project was created", "create another project"
        raise Conflict(problem, parameter="task", kind="task-fixed", fix=fix)
    stored = _stored({**{name: getattr(current, name) for name in SETTINGS}, **settings})
    changed = replace(current, **_parsed(stored))
    if changed.measure != current.measure:
        require_no_draws(connection, current)
    if (changed.looks, changed.margin) != (current.looks, current.margin):
        problem = f"pairs were drawn in project {shown(current.name)}; looks and margin are set before the first draw"
        require_no_draws(connection, current, problem)
    if "budget" in settings:
        forget_spending(connection, [project.id])
    _change_plan(connection, current, changed)
    if changed.guidelines != current.guidelines:
        changed = replace(changed, guidelines_version=current.guidelines_version + 1)
    values = {"settings": stored, "guidelines_version": changed.guidelines_version}
    connection.execute(update(schema.project).where(schema.project.c.id == project.id).values(values))
    return changed


def _change_plan(connection: Connection, current: Project, changed: Project) -> None:
    """Change the quotas that new settings differ in: of some kinds, or of all after a change of policy or stop rule."""
    is_other_plan = (changed.policy, changed.settled) != (current.policy, current.settled)
    for kind, quota in changed.quotas.items():
        if is_other_plan or quota != current.quotas[kind]:
            modes = {"is_planned": changed.is_planned, "is_sampled": changed.is_sampled}
            change_quotas(connection, current.id, kind, quota, **modes)


def require_no_draws(connection: Connection, project: Project, problem: str | None = None) -> None:
    """Raise Conflict if pairs were drawn: their probabilities hold only for these rankings and this measure."""
    draws = schema.sample_draw
    if connection.execute(select(draws.c.number).where(draws.c.project_id == project.id)).first() is not None:
        problem = problem or f"pairs were drawn for the rankings of project {shown(project.name)} by {project.measure}"
        raise Conflict(problem, kind="draws-exist", fix="discard the draws first; their answers stay")


def project_of(row: Row[*tuple[Any, ...]]) -> Project:
    """Return the project of a row with all columns of its table."""
    columns = {column.name: row._mapping[column] for column in schema.project.c}
    settings = columns.pop("settings")
    columns["grades"] = tuple(columns["grades"])
    return Project(**columns, **_parsed(settings))


def _parsed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings; those that an earlier version did not have are left out."""
    return {**stored, "quotas": {kind: Quota(*bounds) for kind, bounds in stored["quotas"].items()}}


def _stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are stored: quotas of all kinds, the policy in lower case, the measure as it is shown."""
    return {
        **settings,
        "layout": dict(settings["layout"]),
        "quotas": {kind: list(settings["quotas"].get(kind, (0, 0))) for kind in KINDS},
        "policy": settings["policy"].strip().lower(),
        "measure": str(_parse_measure(settings["measure"])),
    }


def check_settings(values: Mapping[str, Any]) -> None:
    """Raise Invalid unless settings of a project are known and valid."""
    check_values(values)
    check_text(values.get("guidelines"), column="guidelines")
    _check_policy(values.get("policy", RANDOM_POLICY), asks_preferences=values.get("task") == "preferences")
    if "measure" in values:
        _parse_measure(values["measure"])


def _check_policy(name: str, *, asks_preferences: bool) -> None:
    """Raise Invalid unless a policy can hand out pairs here; `random` is known without loading the policies."""
    if name == RANDOM_POLICY:
        return
    is_of_preferences = name.strip().lower() == PREFERENCE_POLICY
    if asks_preferences != is_of_preferences:
        known = f"{RANDOM_POLICY} or {PREFERENCE_POLICY}" if asks_preferences else f"one of {', '.join(POLICIES)}"
        problem = f"must be {known} for the task {'preferences' if asks_preferences else 'grades'}, not {shown(name)}"
        raise Invalid(problem, parameter="policy", kind="unknown-policy")
    if is_of_preferences:
        return
    try:
        get_policy(name)
    except UsageError as error:
        problem = f"must be one of {', '.join(POLICIES)} (k is a number), not {shown(name)}"
        raise Invalid(problem, parameter="policy", kind="unknown-policy") from error


def _parse_measure(text: str) -> Measure:
    """Return a measure by which pairs can be drawn; raise Invalid for others."""
    from crowdrank.collection.compare_runs import checked_measure

    try:
        return checked_measure(text)
    except UsageError as error:
        raise Invalid(error.problem, parameter="measure", kind=error.kind, fix=error.fixes) from error
