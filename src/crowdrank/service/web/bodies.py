"""Bodies of requests and responses of the HTTP API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, create_model

from crowdrank._assessor_kinds import DEFAULT_KIND, Kind
from crowdrank.service.domain.answers import Feedback
from crowdrank.service.domain.credentials import MAX_PASSWORD_LENGTH
from crowdrank.service.domain.pairs import QuotaState
from crowdrank.service.domain.project_settings import SETTINGS, TYPES
from crowdrank.service.model.fits import DEFAULT_METHOD, Standing

MAX_ID = 2**31 - 1
"""Maximum id of a row."""
MAX_MILLISECONDS = 2**53
"""Maximum time in milliseconds, the largest integer that JavaScript represents exactly."""
MAX_TEXT_CHARACTERS = 2_000_000
"""Maximum number of characters of a text."""

RowId = Annotated[int, Path(ge=1, le=MAX_ID)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
Key = Annotated[str, Field(min_length=1, max_length=1000)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_MILLISECONDS)]
ProjectRole = Literal["lead", "judge"]
Scope = Literal["judge", "read", "manage"]
Secret = Annotated[str, Field(max_length=200)]
Password = Annotated[str, Field(max_length=MAX_PASSWORD_LENGTH)]
Days = Annotated[float, Field(gt=0, le=3650)]


class RequestBody(BaseModel):
    """Body of a request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ResponseBody(BaseModel):
    """Body of a response."""

    model_config = ConfigDict(from_attributes=True)


# Signing in.


class SignInWays(ResponseBody):
    """Ways to sign in that this service offers."""

    password: bool = Field(description="By name and password.")
    single_sign_on: bool = Field(description="At an OpenID Connect provider.")
    trusted_header: bool = Field(
        description="By a proxy in front of the service, which names the user of this request."
    )


class Login(RequestBody):
    """Name and password."""

    name: str = Field(max_length=1000, description="Name of the assessor.")
    password: Password = Field(description="Password.")


class CurrentActor(ResponseBody):
    """Who sends the request."""

    id: int
    name: str
    kind: str
    is_admin: bool
    form_token: str | None = Field(description="Value of the header X-Form-Token of requests with this session.")
    scopes: list[str] | None = Field(description="Scopes of the token; null for a session.")


class NewPassword(RequestBody):
    """A new password of one's own account."""

    current: Password = Field(description="Current password.")
    password: Password = Field(description="New password.")


class InvitationSecret(RequestBody):
    """Secret of an invitation link."""

    invitation: Secret = Field(description="Secret part of the link.")


class InvitationPreview(ResponseBody):
    """What an invitation is for."""

    project_name: str | None = Field(description="Project to join.")
    role: str = Field(description="Role of those who join.")
    kind: str = Field(description="Kind of assessor of those who join.")
    is_password_link: bool = Field(description="Whether the link sets a new password of an existing account.")


class Join(InvitationSecret):
    """Accept an invitation: with a new account, or, if signed in, with the current one."""

    name: str | None = Field(None, max_length=1000, description="Name of the new account.")
    password: Password | None = Field(None, description="Password of the new account.")


class ResetPassword(InvitationSecret):
    """Set a new password by a link."""

    password: Password = Field(description="New password.")


class StartSignOn(RequestBody):
    """Start to sign in at the provider."""

    invitation: Secret | None = Field(None, description="Secret of an invitation to accept.")


class SignOnAddress(ResponseBody):
    """Address of the provider to send the browser to."""

    url: str


# People.


class AssessorChanges(RequestBody):
    """Changes of an assessor; absent fields stay."""

    family: Annotated[str, Field(max_length=200)] | None = Field(None, description="Family of an LLM judge.")
    price: float | None = Field(None, ge=0, le=1e9, description="Price of an answer.")
    is_admin: bool | None = Field(None, description="Whether the assessor administers the service.")
    is_active: bool | None = Field(None, description="Whether the assessor can sign in and use tokens.")


class NewMember(RequestBody):
    """An LLM judge to create, or, for administrators, an existing assessor to add."""

    name: str = Field(max_length=1000, description="Name of the assessor.")
    role: ProjectRole = Field("judge", description="Role in the project.")
    family: Annotated[str, Field(max_length=200)] | None = Field(None, description="Family of a new LLM judge.")
    price: float = Field(1.0, ge=0, le=1e9, description="Price of an answer of a new LLM judge.")


class MemberChanges(RequestBody):
    """Changes of a membership; absent fields stay."""

    role: ProjectRole | None = Field(None, description="Role in the project.")
    is_paused: bool | None = Field(None, description="Whether the member gets no pairs.")
    reset_qualification: bool = Field(False, description="Let the member start the qualification again.")


class NewInvitation(RequestBody):
    """An invitation to a project."""

    role: ProjectRole = Field("judge", description="Role of those who join.")
    kind: Kind = Field(DEFAULT_KIND, description="Kind of assessor of those who join.")
    uses: int = Field(1, ge=1, le=10_000, description="Number of assessors who can join.")
    days: Days | None = Field(None, description="Days until it expires; the default is set by the server.")


class NewAdminInvitation(RequestBody):
    """An invitation to administer the service."""

    days: Days | None = Field(None, description="Days until it expires; the default is set by the server.")


class InvitationView(ResponseBody):
    """An invitation."""

    id: int
    project_name: str | None
    role: str
    kind: str
    assessor_id: int | None = Field(description="Assessor who sets a new password with it.")
    uses_left: int
    expires: int
    revoked: int | None
    created: int


class CreatedInvitation(ResponseBody):
    """A new invitation with its secret, which is shown only here."""

    invitation: InvitationView
    secret: str = Field(description="Secret part of the link.")


class NewToken(RequestBody):
    """An API token of one's own."""

    name: str = Field(min_length=1, max_length=200, description="What the token is for.")
    scopes: list[Scope] = Field(min_length=1, max_length=3, description="What the token may do.")
    project: Annotated[str, Field(max_length=100)] | None = Field(None, description="Project that it is limited to.")
    days: Days | None = Field(None, description="Days until it expires; null: it does not expire.")


class NewProjectToken(RequestBody):
    """An API token of an LLM judge of a project."""

    assessor_id: int = Field(ge=1, le=MAX_ID, description="Member that the token acts for: an LLM judge.")
    name: str = Field(min_length=1, max_length=200, description="What the token is for.")
    days: Days | None = Field(None, description="Days until it expires; null: it does not expire.")


class TokenView(ResponseBody):
    """An API token."""

    id: int
    name: str
    assessor_name: str
    project_name: str | None
    scopes: list[str]
    created: int
    expires: int | None
    revoked: int | None


class CreatedToken(ResponseBody):
    """A new token with its secret, which is shown only here."""

    token: TokenView
    secret: str = Field(description="Value of the header `Authorization: Bearer ...`.")


# Projects and pairs.


def _settings_model(base: type[BaseModel], *, is_optional: bool = False, is_public: bool = False) -> Any:
    """Return a model with the fields of a base and the settings of a project, with their bounds and descriptions.

    Args:
        base: model of the other fields.
        is_optional: whether each setting may be absent.
        is_public: whether to leave out what judges must not see.

    """
    found: dict[str, Any] = {}
    for name, one in SETTINGS.items():
        bounds, default = one.metadata["bounds"], [None] if is_optional else []
        conditions = {} if bounds is None else bounds.conditions
        described = Field(
            *default, description=one.metadata["help"], max_length=one.metadata["max_length"], **conditions
        )
        if one.metadata["is_public"] or not is_public:
            found[name] = (TYPES[name] | None if is_optional else TYPES[name], described)
    return create_model(base.__name__, __base__=base, **found)


class _ProjectHead(ResponseBody):
    """What a project has besides settings."""

    name: str
    grades: list[str]
    guidelines_version: int
    role: str | None = Field(description="Role of the member; null for administrators who are not members.")
    is_paused: bool
    qualification: str | None


class ProjectChanges(_settings_model(RequestBody, is_optional=True)):  # type: ignore[misc]
    """Settings of a project; absent fields stay."""


class NewProject(ProjectChanges):
    """A project."""

    name: str = Field(max_length=100, description="Name, which is part of its address.")
    grades: Annotated[str, Field(max_length=1000)] | Annotated[list[str | int], Field(max_length=100)] | None = Field(
        None,
        description="Scale such as `0-3`, or names of the grades from least to most relevant; not for preferences.",
    )


class ProjectView(_settings_model(_ProjectHead, is_public=True)):  # type: ignore[misc]
    """A project as its members see it."""


class ProjectSettingsView(_settings_model(_ProjectHead)):  # type: ignore[misc]
    """A project as its leads see it."""

    created: int


class OtherDocument(RequestBody):
    """The right document of two to compare. Absent texts keep what is stored."""

    document: Key = Field(description="Id of the document in your files.")
    title: Text | None = Field(None, description="Title of the document.")
    body: Text | None = Field(None, description="Text of the document.")
    fields: dict[str, Any] | None = Field(None, description="Further fields of the document.")
    url: Annotated[str, Field(max_length=10_000)] | None = Field(None, description="Address of the document.")


class NewPair(RequestBody):
    """A pair of a query and a document. Absent texts keep what is stored."""

    query: Key = Field(description="Id of the query in your files.")
    document: Key = Field(description="Id of the document in your files.")
    query_text: Text | None = Field(None, description="Text of the query.")
    need: Text | None = Field(None, description="Information need behind the query.")
    title: Text | None = Field(None, description="Title of the document.")
    body: Text | None = Field(None, description="Text of the document.")
    fields: dict[str, Any] | None = Field(None, description="Further fields of the document.")
    url: Annotated[str, Field(max_length=10_000)] | None = Field(None, description="Address of the document.")
    kind: Literal["real", "gold", "training"] = Field("real", description="Kind of pair.")
    gold_grade: Annotated[str, Field(max_length=1000)] | Annotated[int, Field(ge=-MAX_ID, le=MAX_ID)] | None = Field(
        None, description="Correct grade of a gold or training pair."
    )
    explanation: Text | None = Field(None, description="Shown after the answer to a training pair.")
    other: OtherDocument | None = Field(
        None,
        description="Right document, in projects that ask for preferences; without it, the service chooses comparisons "
        "of the document.",
    )


class PairView(ResponseBody):
    """State of a pair, for leads."""

    pair_id: int
    query: str
    document: str
    other: str | None = Field(None, description="Right document of a comparison, whose left one is `document`.")
    kind: str
    gold_grade: str | None
    is_open: bool
    generation: int
    quotas: dict[str, QuotaState]


class PairSelection(RequestBody):
    """Selects pairs; the conditions given must all hold."""

    pair_ids: Annotated[list[Annotated[int, Field(ge=1, le=MAX_ID)]], Field(max_length=10_000)] | None = Field(
        None, description="Ids of pairs."
    )
    queries: Annotated[list[Key], Field(max_length=10_000)] | None = Field(None, description="Ids of queries.")
    documents: Annotated[list[Key], Field(max_length=10_000)] | None = Field(None, description="Ids of documents.")
    document_changed: bool = Field(False, description="An answer is older than the last change of the document.")
    answered_before: Milliseconds | None = Field(None, description="An answer was received before this time.")
    guidelines_before: int | None = Field(
        None, ge=1, le=MAX_ID, description="An answer was given under guidelines older than this version."
    )


class PairReopening(PairSelection):
    """Selects pairs to reopen."""

    keep_answers: bool = Field(False, description="Only open closed pairs again; the answers still count.")


class ChangedPairs(ResponseBody):
    """Number of pairs changed."""

    pairs: int


# Comparison of rankings.


class MessageView(ResponseBody):
    """A warning or a note."""

    problem: str
    kind: str
    severity: str
    fix: str | None


class DrawView(ResponseBody):
    """A draw of pairs with known probabilities, and its progress."""

    number: int
    measure: str
    seed: int = Field(description="Random seed of the draw.")
    created: int
    n_pairs: int = Field(description="Number of pairs in the sample.")
    n_complete: int = Field(description="Number of those that have their labels.")
    n_closed: int = Field(description="Number of closed pairs without their labels.")
    n_unassignable: int = Field(description="Number of open pairs without their labels that nobody can judge.")
    is_complete: bool
    messages: list[MessageView] = Field(description="Warnings about the draw; after a draw, also notes about it.")


class RunEstimateView(ResponseBody):
    """Estimated quality of a ranking, and its difference from the baseline, with intervals."""

    run: str
    estimate: float
    lower: float
    upper: float
    difference: float
    difference_lower: float | None
    difference_upper: float | None
    p_holm: float | None = Field(description="P-value of the difference, adjusted over the rankings by Holm's method.")


class EstimateWarningView(ResponseBody):
    """What to check before an estimate is used."""

    kind: str
    problem: str


class ForecastView(ResponseBody):
    """Expert grades in all, or else queries, that are expected to give an answer."""

    grades: int | None
    queries: int | None


class AnswerView(ResponseBody):
    """What a look concludes about a ranking and the baseline."""

    run: str
    answer: Literal["different", "not-different", "go-on"]
    forecast: ForecastView | None = Field(description="What is expected to suffice, if the answer is `go-on`.")
    more_grades: int | None = Field(description="Number of expert grades that are still expected; null: none suffice.")


class WatchingView(ResponseBody):
    """The present look at a comparison: each complete draw is one."""

    look: int
    looks: int = Field(description="Planned number of looks.")
    bound: float = Field(description="Bound of the test statistic at this look.")
    information: float = Field(description="Share of the planned grades.")
    margin: float | None
    answers: list[AnswerView]
    sentences: list[str] = Field(description="The answers in words.")


class ComparisonEstimateView(ResponseBody):
    """Estimate of which ranking is better, from the complete draws."""

    measure: str
    baseline: str
    level: float
    expert_grades: int = Field(description="Number of graded documents.")
    runs: list[RunEstimateView]
    warnings: list[EstimateWarningView]
    watching: WatchingView | None = Field(
        None, description="The present look; null if the project plans no looks and has no margin."
    )


class ComparisonView(ResponseBody):
    """Draws of a project, and the estimate from the complete ones; `estimate` is null before the first is complete."""

    draws: list[DrawView]
    estimate: ComparisonEstimateView | None
    problem: str | None = Field(description="Why there is no estimate, although a draw is complete.")


# Judging.


class LeaseReturn(RequestBody):
    """Pairs to give back unanswered."""

    tokens: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=1000)] | None = Field(
        None, description="Tokens of the leases; null: all."
    )


class ReturnedLeases(ResponseBody):
    """Number of pairs given back."""

    leases: int


class MarkedPassage(RequestBody):
    """A passage that an assessor marked."""

    field: Annotated[str, Field(max_length=200)] = Field(description="Field of the document, such as `body`.")
    start: int = Field(ge=0, le=MAX_ID, description="Position of the first character.")
    end: int = Field(ge=0, le=MAX_ID, description="Position after the last character.")


class NewAnswer(RequestBody):
    """An answer; its pair is given by a lease, by its id, or by the ids of query and document."""

    client_id: str = Field(min_length=1, max_length=100, description="Made by the client; recognizes repetitions.")
    kind: Literal["grade", "cannot-judge", "later"] = Field("grade", description="Kind of answer.")
    grade: Annotated[str, Field(max_length=1000)] | Annotated[int, Field(ge=-MAX_ID, le=MAX_ID)] | None = Field(
        None, description="Name or number of the grade, for the kind `grade`."
    )
    swapped_grade: Annotated[str, Field(max_length=1000)] | Annotated[int, Field(ge=-MAX_ID, le=MAX_ID)] | None = Field(
        None, description="Preference of an LLM judge with the two documents on the other sides."
    )
    lease: Annotated[str, Field(max_length=100)] | None = Field(None, description="Token of the lease.")
    pair_id: int | None = Field(None, ge=1, le=MAX_ID, description="Id of the pair.")
    query: Key | None = Field(None, description="Id of the query in your files.")
    document: Key | None = Field(None, description="Id of the document in your files.")
    other: Key | None = Field(
        None, description="Id of the right document, for a preference; `document` is the left one."
    )
    comment: Annotated[str, Field(max_length=10_000)] | None = Field(None, description="Remark.")
    spans: Annotated[list[MarkedPassage], Field(max_length=100)] | None = Field(None, description="Marked passages.")
    active_ms: Milliseconds | None = Field(None, description="Time on the pair, in milliseconds.")
    away_ms: Milliseconds | None = Field(None, description="Time with the page in the background, in milliseconds.")
    probabilities: Annotated[list[float], Field(max_length=1000)] | None = Field(
        None, description="Probability of each grade, from least to most relevant, of a judge that knows them."
    )


class ReceiptView(ResponseBody):
    """What was stored for an answer."""

    client_id: str
    pair_id: int
    kind: str
    grade: str | None
    is_late: bool = Field(description="The lease had ended.")
    received: int
    feedback: Feedback | None = Field(description="For training pairs.")


class Undo(RequestBody):
    """Withdraw an answer."""

    client_id: str = Field(min_length=1, max_length=100, description="Made by the client; recognizes repetitions.")
    pair_id: int | None = Field(None, ge=1, le=MAX_ID, description="Id of the pair; null: the latest answer.")


# Results.


class Refit(RequestBody):
    """A fit of the model."""

    method: str = Field(DEFAULT_METHOD, max_length=100, description="Name of a consensus model.")


class SnapshotView(ResponseBody):
    """A fit of the model."""

    id: int
    method: str
    last_event_id: int = Field(description="Newest event that the fit has seen.")
    created: int


class ConsensusView(ResponseBody):
    """Consensus of each pair."""

    snapshot: SnapshotView | None = Field(description="The fit; null before the first one.")
    pairs: list[Standing]
