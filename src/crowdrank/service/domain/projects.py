"""Projects: their settings, quotas and guidelines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from crowdrank.collection import POLICIES, get_policy
from crowdrank.errors import UsageError, near, shown
from crowdrank.judgments.scale import Scale
from crowdrank.service.domain.quotas import Quota, change_quotas, forget_spending
from crowdrank.service.service_errors import Conflict, Invalid, NotFound
from crowdrank.service.store import schema

if TYPE_CHECKING:
    from crowdrank.evaluation.measures import Measure

MAX_ID = 2**31 - 1
"""Maximum id of a row: PostgreSQL refuses to compare larger ones."""
MAX_LISTED = 10_000
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


MAX_LABELS = 1000
"""Maximum number of labels per pair and kind of assessor."""
MAX_LEASE_SECONDS = 7 * 24 * 3600
MAX_LISTED_GRADES = 10
"""Maximum number of grades that a message lists."""
MAX_MONEY = 1e12
FLAG_ACTIONS = ("notify", "honeypots", "pause")
"""What happens when the model flags an assessor: a notice, more honeypots, or a pause."""
RANDOM = "random"
"""Name of the policy that hands pairs out in random order."""
COMPARE = "compare"
"""Name of the policy that draws pairs from rankings with known probabilities."""
MAX_PAIRS_PER_ROUND = 1_000_000
"""Maximum number of pairs drawn in a round."""

DEFAULT_QUOTAS: Mapping[str, Quota] = {"human": Quota(2, 3)}


class ProjectSettings(TypedDict, total=False):
    """Settings of a project that can be changed."""

    guidelines: str
    layout: Mapping[str, Any]
    policy: str
    settled: float | None
    budget: float | None
    flag_action: str
    measure: str
    pairs_per_round: int
    min_information: float | None
    quotas: Mapping[str, Sequence[int]]
    lease_seconds: int
    honeypot_share: float
    qualification_share: float | None
    is_open: bool


@dataclass(frozen=True)
class Project:
    """A project and its settings.

    Attributes:
        grades: names of the grades, from least to most relevant; they never change.
        policy: name of the policy by which pairs are handed out.
        settled: probability of the most probable grade above which a pair needs no more labels; None: no such rule.
        budget: money for answers; None: no limit.
        flag_action: what happens when the model flags an assessor, one of `FLAG_ACTIONS`.
        measure: measure by which the policy `compare` compares rankings.
        pairs_per_round: number of pairs that the policy `compare` draws at a time.
        min_information: minimum information per price of an assessor's answers, as a share of the mean of the kind;
            assessors below it get no pairs. None: no such rule.
        quotas: number of labels per pair, by kind of assessor.
        qualification_share: share of training pairs to answer correctly, or None if there is no qualification round.

    """

    id: int
    name: str
    grades: tuple[str, ...]
    guidelines: str
    guidelines_version: int
    layout: Mapping[str, Any]
    policy: str
    settled: float | None
    budget: float | None
    flag_action: str
    measure: str
    pairs_per_round: int
    min_information: float | None
    quotas: Mapping[str, Quota]
    lease_seconds: int
    honeypot_share: float
    qualification_share: float | None
    is_open: bool
    created: int

    @cached_property
    def scale(self) -> Scale:
        """The grades as a scale."""
        return Scale.parse(self.grades)

    @property
    def is_planned(self) -> bool:
        """Whether fits of the model set the targets and priorities of pairs."""
        return not self.is_sampled and (self.policy != RANDOM or self.settled is not None)

    @property
    def is_sampled(self) -> bool:
        """Whether only pairs that were drawn are handed out; the stop rule does not apply to them."""
        return self.policy == COMPARE

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
    connection: Connection, name: str, grades: str | Sequence[object], now: int, **settings: Unpack[ProjectSettings]
) -> Project:
    """Create a project.

    Args:
        connection: connection in a write transaction.
        name: name of the project, which is part of its address.
        grades: the scale, such as `0-3`, or the names of the grades from least to most relevant.
        now: time in milliseconds.
        settings: settings that differ from the defaults.

    Raises:
        Conflict: a project has this name.
        Invalid: the name, the scale or a setting is invalid.

    """
    if not name or len(name) > 100 or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise Invalid("must have 1 to 100 letters, digits, '-', '_' or '.'", parameter="name")
    try:
        scale = Scale.parse(grades)
    except UsageError as error:
        raise Invalid(error.message) from error
    values: dict[str, Any] = {"layout": {}, "quotas": DEFAULT_QUOTAS, **settings}
    check_settings(values)
    values = _stored(values)
    try:
        connection.execute(insert(schema.project).values(name=name, grades=list(scale.names), created=now, **values))
    except IntegrityError as error:
        problem = f"{shown(name)} is the name of another project"
        raise Conflict(problem, parameter="name", kind="name-taken", fix="choose another name") from error
    return get_project(connection, name)


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
    return [project_of(row) for row in connection.execute(_PROJECT.where(schema.project.c.is_open))]


def lock_project(connection: Connection, project_id: int) -> Project:
    """Return the current state of a project, and keep others from changing it or its pairs in this transaction."""
    return project_of(connection.execute(_LOCKED, {"id": project_id}).one())


def update_project(connection: Connection, project: Project, **settings: Unpack[ProjectSettings]) -> Project:
    """Change settings of a project.

    New guidelines get a new version. New quotas apply to all pairs; labels in excess of them are kept. After a change
    of quotas, policy or stop rule, targets are `k_min` until the next fit of the model. With the policy `compare`, they
    are `k_min` for the pairs that were drawn, and 0 for others.

    Raises:
        Invalid: a setting is invalid.
        Conflict: the measure changes, although pairs were drawn for another one.

    """
    current = lock_project(connection, project.id)
    check_settings(settings)
    values = _stored(settings)
    if values.get("measure", current.measure) != current.measure:
        require_no_rounds(connection, current)
    if "budget" in values:
        forget_spending(connection, [project.id])
    _change_plan(connection, current, values)
    if values.get("guidelines", current.guidelines) != current.guidelines:
        values["guidelines_version"] = current.guidelines_version + 1
    if values:
        connection.execute(update(schema.project).where(schema.project.c.id == project.id).values(values))
    return get_project(connection, current.name)


def _change_plan(connection: Connection, current: Project, values: Mapping[str, Any]) -> None:
    """Change the quotas that new settings differ in: of some kinds, or of all after a change of policy or stop rule."""
    changed = replace(current, **{name: values[name] for name in ("policy", "settled") if name in values})
    is_other_plan = (changed.policy, changed.settled) != (current.policy, current.settled)
    for kind, bounds in values.get("quotas", current.quotas).items():
        if is_other_plan or tuple(bounds) != current.quotas[kind]:
            modes = {"is_planned": changed.is_planned, "is_sampled": changed.is_sampled}
            change_quotas(connection, current.id, kind, Quota(*bounds), **modes)


def require_no_rounds(connection: Connection, project: Project) -> None:
    """Raise Conflict if pairs were drawn: their probabilities hold only for these rankings and this measure."""
    rounds = schema.sample_round
    if connection.execute(select(rounds.c.number).where(rounds.c.project_id == project.id)).first() is not None:
        problem = f"pairs were drawn for the rankings of project {shown(project.name)} by {project.measure}"
        raise Conflict(problem, kind="rounds-drawn", fix="discard the rounds first; their answers stay")


def project_of(row: Row[*tuple[Any, ...]]) -> Project:
    """Return the project of a row with all columns of its table."""
    fields = {column.name: row._mapping[column] for column in schema.project.c}
    fields["grades"] = tuple(fields["grades"])
    fields["quotas"] = {kind: Quota(*bounds) for kind, bounds in fields["quotas"].items()}
    return Project(**fields)


def _stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are stored: quotas of all kinds, the policy in lower case, the measure as it is shown."""
    values = dict(settings)
    if "quotas" in values:
        values["quotas"] = {kind: list(values["quotas"].get(kind, (0, 0))) for kind in schema.KINDS}
    if "policy" in values:
        values["policy"] = values["policy"].strip().lower()
    if "measure" in values:
        values["measure"] = str(_parse_measure(values["measure"]))
    return values


def check_settings(values: Mapping[str, Any]) -> None:
    """Raise Invalid unless settings of a project are known and valid."""
    unknown = [name for name in values if name not in ProjectSettings.__annotations__]
    if unknown:
        known = near(unknown[0], ProjectSettings.__annotations__)
        raise Invalid(f"is not a setting of a project{known}", parameter=unknown[0])
    check_text(values.get("guidelines"), column="guidelines")
    _check_policy(values.get("policy", RANDOM))
    settled, budget = values.get("settled"), values.get("budget")
    if settled is not None and not 0 < settled < 1:
        raise Invalid(f"must be a probability between 0 and 1, not {shown(settled)}", parameter="settled")
    if budget is not None and not 0 <= budget <= MAX_MONEY:
        raise Invalid(f"must be an amount of money from 0 to {MAX_MONEY:g}, not {shown(budget)}", parameter="budget")
    if values.get("flag_action", "notify") not in FLAG_ACTIONS:
        problem = f"must be {', '.join(FLAG_ACTIONS[:-1])} or {FLAG_ACTIONS[-1]}, not {shown(values['flag_action'])}"
        raise Invalid(problem, parameter="flag_action")
    if "measure" in values:
        _parse_measure(values["measure"])
    if not 1 <= values.get("pairs_per_round", 1) <= MAX_PAIRS_PER_ROUND:
        raise Invalid(f"must be 1 to {MAX_PAIRS_PER_ROUND}", parameter="pairs_per_round")
    if "quotas" in values:
        _check_quotas(values["quotas"])
    if not 1 <= values.get("lease_seconds", 1) <= MAX_LEASE_SECONDS:
        raise Invalid(f"must be 1 to {MAX_LEASE_SECONDS}", parameter="lease_seconds")
    for name in ("honeypot_share", "qualification_share", "min_information"):
        share = values.get(name)
        if share is not None and not 0 <= share <= 1:
            raise Invalid(f"must be a share from 0 to 1, not {shown(share)}", parameter=name)


def _check_policy(name: str) -> None:
    """Raise Invalid unless a policy can hand out pairs here; `random` is known without loading the policies."""
    if name == RANDOM:
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


def _check_quotas(quotas: Mapping[str, Sequence[int]]) -> None:
    for kind, bounds in quotas.items():
        if kind not in schema.KINDS:
            raise Invalid(f"has the unknown kind {shown(kind)}; use {', '.join(schema.KINDS)}", parameter="quotas")
        if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] <= MAX_LABELS:
            problem = f"must have two numbers per kind, k_min <= k_max <= {MAX_LABELS}, not {shown(bounds)} for {kind}"
            raise Invalid(problem, parameter="quotas")
