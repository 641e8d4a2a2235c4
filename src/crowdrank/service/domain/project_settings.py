"""Settings of a project, each declared once.

A field of `ProjectSettings` is a column value of the database, a field of the API's requests and responses, a field of
the settings page and an option of `crowdrank new-project`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from crowdrank._assessor_kinds import KINDS
from crowdrank._options import option, union_members
from crowdrank.errors import near, shown
from crowdrank.service.service_errors import Invalid

MAX_LABELS = 1000
"""Maximum number of labels per pair and kind of assessor."""
MAX_LOOKS = 100
"""Maximum number of planned looks at a comparison, as in `crowdrank estimate --looks`."""


class Quota(NamedTuple):
    """Number of labels per pair for one kind of assessor: wanted at least, and accepted at most."""

    k_min: int
    k_max: int


@dataclass(frozen=True)
class PageField:
    """A field of the settings page.

    Attributes:
        group: title of the group of fields.
        label: label of the field.
        factor: value of the setting for 1 in the field: 0.01 for percent, 60 for minutes.
        choices: values to choose, each with its text.

    """

    group: str
    label: str
    factor: float = 1.0
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number.

    Attributes:
        low: lowest value.
        high: highest value.
        what: what the number is, for messages.
        exclusive: whether the bounds themselves are excluded.

    """

    low: float
    high: float
    what: str = ""
    exclusive: bool = False

    @property
    def conditions(self) -> dict[str, float]:
        """The bounds as arguments of pydantic's `Field`."""
        return dict(zip(("gt", "lt") if self.exclusive else ("ge", "le"), (self.low, self.high), strict=True))

    def check(self, name: str, value: float) -> None:
        """Raise Invalid if the value of a setting is out of bounds."""
        if self.low < value < self.high or (not self.exclusive and value in (self.low, self.high)):
            return
        problem = f"must be {self.low} to {self.high}"
        if self.what:
            link = "between {:g} and {:g}" if self.exclusive else "from {:g} to {:g}"
            problem = f"must be {self.what} {link.format(self.low, self.high)}, not {shown(value)}"
        raise Invalid(problem, parameter=name)


SHARE_BOUNDS = Bounds(0, 1, "a share")
NEXT, COMPARISON, TIME = "Which pairs come next", "Policy compare", "Time, honeypots and training"
"""Groups of fields of the settings page."""


def setting(
    default: Any,
    help: str,
    *,
    bounds: Bounds | None = None,
    max_length: int | None = None,
    page: PageField | None = None,
    is_public: bool = False,
) -> Any:
    """Return a field of `ProjectSettings`.

    Args:
        default: default value; None if the setting can be absent.
        help: description in the API and on the command line.
        bounds: bounds of a number.
        max_length: maximum number of characters of a text.
        page: field of the settings page; None if the page has another one for it, or none.
        is_public: whether all members may see it; judges must not see what tells honeypots from other pairs.

    """
    more = {"bounds": bounds, "max_length": max_length, "page": page, "is_public": is_public}
    metadata = {**option(default, help).metadata, **more}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class ProjectSettings:
    """Settings of a project that can be changed; the attributes are described by their `help`."""

    guidelines: str = setting(
        "", "Guidelines in Markdown; a change gives them a new version.", max_length=2_000_000, is_public=True
    )
    layout: Mapping[str, Any] = setting({}, "Layout of the judging page.", is_public=True)
    task: Literal["grades", "preferences"] = setting(
        "grades",
        "What judges say: the grade of a document, or which of two documents is better; it cannot be changed later.",
        is_public=True,
    )
    comparisons: int = setting(
        4,
        "Task preferences: number of comparisons of each document, where pairs are chosen by the service.",
        bounds=Bounds(1, 1000),
    )
    quotas: Mapping[str, Quota] = setting(
        {"human": Quota(2, 3)}, "Number of labels per pair, [k_min, k_max] by kind of assessor."
    )
    policy: str = setting(
        "random",
        "Policy by which pairs are handed out, such as random, ndcg@10, overlap-3 or compare.",
        max_length=100,
        page=PageField(NEXT, "Policy"),
    )
    settled: float | None = setting(
        None,
        "Certainty of its grade from which a pair gets no more labels.",
        bounds=Bounds(0, 1, "a probability", exclusive=True),
        page=PageField(NEXT, "Settled if the model is sure to, in percent", 0.01),
    )
    budget: float | None = setting(
        None,
        "Money for answers.",
        bounds=Bounds(0, 1e12, "an amount of money"),
        page=PageField(NEXT, "Budget"),
    )
    measure: str = setting(
        "nDCG@10",
        "Policy compare: measure DCG@k, nDCG@k or P@k.",
        max_length=100,
        page=PageField(COMPARISON, "Measure"),
    )
    pairs_per_draw: int = setting(
        100,
        "Policy compare: number of pairs to draw at a time.",
        bounds=Bounds(1, 1_000_000),
        page=PageField(COMPARISON, "Pairs per draw"),
    )
    looks: int | None = setting(
        None,
        "Policy compare: number of draws that are planned; each complete draw is a look, and intervals hold at every "
        "look.",
        bounds=Bounds(1, MAX_LOOKS),
        page=PageField(COMPARISON, "Planned draws"),
    )
    margin: float | None = setting(
        None,
        "Policy compare: largest difference that does not matter.",
        bounds=Bounds(0, 1e6, "a difference", exclusive=True),
        page=PageField(COMPARISON, "Difference that does not matter"),
    )
    flag_action: Literal["notify", "honeypots", "pause"] = setting(
        "notify",
        "What happens when the model flags an assessor as careless, random or reversed.",
        page=PageField(
            "Assessors whose answers are unreliable",
            "If the model flags somebody as careless, random or reversed",
            choices=(
                ("notify", "Show a notice"),
                ("honeypots", "Hand out more honeypots"),
                ("pause", "Pause the work"),
            ),
        ),
    )
    min_information: float | None = setting(
        None,
        "Ask only assessors with this share (0 to 1) of the average information per price.",
        bounds=SHARE_BOUNDS,
        page=PageField("Which assessors are asked", "Minimum information per price, in percent of the average", 0.01),
    )
    lease_seconds: int = setting(
        900,
        "Seconds that a pair is held for an assessor.",
        bounds=Bounds(1, 7 * 24 * 3600),
        page=PageField(TIME, "Minutes to answer a pair", 60),
        is_public=True,
    )
    honeypot_share: float = setting(
        0.0,
        "Share of gold pairs handed out.",
        bounds=SHARE_BOUNDS,
        page=PageField(TIME, "Share of honeypots (%)", 0.01),
    )
    qualification_share: float | None = setting(
        None,
        "Share of training pairs to answer correctly before judging.",
        bounds=SHARE_BOUNDS,
        page=PageField(TIME, "Training: correct answers needed (%)", 0.01),
    )
    calibrate: bool = setting(
        True, "Calibrate grade probabilities by the gold pairs, if there are 20 or more with answers."
    )
    is_open: bool = setting(True, "Whether pairs are handed out.", is_public=True)


SETTINGS: Mapping[str, Field[Any]] = {one.name: one for one in fields(ProjectSettings)}
"""The settings by name."""
TYPES: Mapping[str, Any] = get_type_hints(ProjectSettings)
"""Type of each setting by name."""
NULLABLE = tuple(name for name, one in SETTINGS.items() if one.default is None)
"""Settings that can be absent."""


def check_values(values: Mapping[str, Any]) -> None:
    """Raise Invalid unless settings are known, within their bounds and one of their choices."""
    for name, value in values.items():
        if name not in SETTINGS:
            raise Invalid(f"is not a setting of a project{near(name, SETTINGS)}", parameter=name)
        metadata, choices = SETTINGS[name].metadata, get_args(union_members(TYPES[name])[0])
        if metadata["bounds"] is not None and value is not None:
            metadata["bounds"].check(name, value)
        if isinstance(SETTINGS[name].default, str) and choices and value not in choices:
            problem = f"must be {', '.join(choices[:-1])} or {choices[-1]}, not {shown(value)}"
            raise Invalid(problem, parameter=name)
    for kind, bounds in values.get("quotas", {}).items():
        if kind not in KINDS:
            raise Invalid(f"has the unknown kind {shown(kind)}; use {', '.join(KINDS)}", parameter="quotas")
        if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] <= MAX_LABELS:
            problem = f"must have two numbers per kind, k_min <= k_max <= {MAX_LABELS}, not {shown(bounds)} for {kind}"
            raise Invalid(problem, parameter="quotas")


def page_fields() -> dict[str, list[Field[Any]]]:
    """Return the fields of the settings page by the title of their group."""
    groups: dict[str, list[Field[Any]]] = {}
    for one in SETTINGS.values():
        if one.metadata["page"] is not None:
            groups.setdefault(one.metadata["page"].group, []).append(one)
    return groups
