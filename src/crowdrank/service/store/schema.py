"""Tables of the service's database, for SQLite and PostgreSQL.

Times are milliseconds since 1970 (UTC). The column `key` has the user's id of a query or document. Secrets are stored
as SHA-256 digests.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)

from crowdrank._assessor_kinds import KINDS

ROLES = ("lead", "judge")
"""Roles in a project; administrators (`assessor.is_admin`) may do everything in all projects."""
PAIR_KINDS = ("real", "gold", "training")
"""Kinds of pairs: `gold` are honeypots, `training` pairs qualify an assessor and show the correct grade."""
EVENT_KINDS = ("grade", "cannot-judge", "later", "withdrawn")
LEASE_ENDS = ("answered", "expired", "returned")
QUALIFICATIONS = ("not-required", "pending", "passed", "failed")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _key() -> Column[int]:
    return Column("id", Integer, primary_key=True, autoincrement=True)


def _reference(table: str, *, name: str | None = None, nullable: bool = False, index: bool = False) -> Column[int]:
    return Column(name or f"{table}_id", Integer, ForeignKey(f"{table}.id"), nullable=nullable, index=index)


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


# People.

assessor = Table(
    "assessor",
    metadata,
    _key(),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("family", Text),
    Column("price", Float, nullable=False, server_default="1"),
    Column("is_admin", Boolean, nullable=False, server_default=false()),
    Column("is_active", Boolean, nullable=False, server_default=true()),
    Column("password", Text, comment="Argon2 hash; NULL for assessors who sign in another way"),
    Column("subject", Text, unique=True, comment="identity at the single sign-on provider"),
    Column("created", BigInteger, nullable=False),
    _one_of("kind", KINDS),
)

session = Table(
    "session",
    metadata,
    Column("digest", Text, primary_key=True),
    _reference("assessor", index=True),
    Column("created", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False, comment="time of a recent request; an idle session ends"),
    Column("expires", BigInteger, nullable=False),
)

login_failure = Table(
    "login_failure",
    metadata,
    Column("key", Text, primary_key=True, comment="digest of a name or of an address"),
    Column("failures", Integer, nullable=False),
    Column("locked_until", BigInteger, nullable=False),
)

# Projects.

project = Table(
    "project",
    metadata,
    _key(),
    Column("name", Text, nullable=False, unique=True),
    Column("grades", JSON, nullable=False, comment="names of the grades, from least to most relevant"),
    Column("settings", JSON, nullable=False, comment="fields of ProjectSettings"),
    Column("guidelines_version", Integer, nullable=False, server_default="1"),
    Column("created", BigInteger, nullable=False),
)

ranking = Table(
    "ranking",
    metadata,
    _key(),
    _reference("project"),
    Column("name", Text, nullable=False),
    Column("n_documents", Integer, nullable=False),
    Column("content", LargeBinary, nullable=False, comment="Parquet file: query, document, score"),
    Column("digest", Text, nullable=False, comment="of the content"),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("project_id", "name"),
    comment="Rankings that the policy compare compares; the first one is the baseline",
)

sample_draw = Table(
    "sample_draw",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("measure", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("labels", LargeBinary, nullable=False, comment="Parquet file: labels of the pool at the time of the draw"),
    Column("created", BigInteger, nullable=False),
    comment="Draws of pairs with known probabilities",
)

spending = Table(
    "spending",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("reserved", Float, nullable=False, comment="at least the price of all answers and live leases"),
    comment="Money of projects with a budget; without a row it is not known",
)

membership = Table(
    "membership",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("assessor_id", Integer, ForeignKey("assessor.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    Column("is_paused", Boolean, nullable=False, server_default=false()),
    Column("qualification", Text, nullable=False, server_default="not-required"),
    Column("n_leases", Integer, nullable=False, server_default="0", comment="leases issued; seeds the honeypots"),
    Column("last_query_id", Integer, ForeignKey("query.id"), comment="query of the last pair"),
    Column("created", BigInteger, nullable=False),
    Column("flag", Text, comment="flag of the last fit: careless, random or reversed"),
    Column("acted_flag", Text, comment="last flag that was acted on"),
    Column("acted_answers", Integer, comment="number of answers that it was based on"),
    Column("pause_reason", Text, comment="flag and evidence, if the service paused the member"),
    Column(
        "relative_information",
        Float,
        comment="information per price of an answer, relative to the mean of the kind; NULL: too few answers",
    ),
    _one_of("role", ROLES),
    _one_of("qualification", QUALIFICATIONS),
)

invitation = Table(
    "invitation",
    metadata,
    _key(),
    Column("digest", Text, nullable=False, unique=True),
    _reference("project", nullable=True, index=True),
    Column("role", Text, nullable=False, comment="lead, judge, or admin (without a project)"),
    Column("kind", Text, nullable=False),
    Column("assessor_id", Integer, ForeignKey("assessor.id"), comment="who sets a new password; NULL: a new member"),
    Column("uses_left", Integer, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created_by", Integer, ForeignKey("assessor.id")),
    Column("created", BigInteger, nullable=False),
    _one_of("kind", KINDS),
    CheckConstraint("role IN ('admin', 'lead', 'judge')", name="role"),
    CheckConstraint("uses_left >= 0", name="uses_left"),
)

token = Table(
    "token",
    metadata,
    _key(),
    Column("digest", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    _reference("assessor", index=True),
    _reference("project", nullable=True),
    Column("scopes", JSON, nullable=False, comment="of judge, read, manage"),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
)

# What is judged.

query = Table(
    "query",
    metadata,
    _key(),
    _reference("project"),
    Column("key", Text, nullable=False),
    Column("text", Text, nullable=False, server_default=""),
    Column("need", Text, nullable=False, server_default="", comment="information need behind the query"),
    UniqueConstraint("project_id", "key"),
)

document = Table(
    "document",
    metadata,
    _key(),
    _reference("project"),
    Column("key", Text, nullable=False),
    Column("title", Text, nullable=False, server_default=""),
    Column("body", Text, nullable=False, server_default=""),
    Column("fields", JSON, nullable=False),
    Column("url", Text),
    Column("digest", Text, nullable=False, comment="of title, body, fields and url"),
    Column("changed", BigInteger, nullable=False, comment="time of the last change of the digest"),
    UniqueConstraint("project_id", "key"),
)

pair = Table(
    "pair",
    metadata,
    _key(),
    _reference("project"),
    _reference("query"),
    _reference("document"),
    _reference("document", name="other_document_id", nullable=True),
    Column("kind", Text, nullable=False, server_default="real"),
    Column("gold_grade", Integer),
    Column("explanation", Text, comment="shown after the answer to a training pair"),
    Column("is_open", Boolean, nullable=False, server_default=true()),
    Column("generation", Integer, nullable=False, server_default="1", comment="only answers of the last one count"),
    UniqueConstraint("query_id", "document_id", "other_document_id"),
    _one_of("kind", PAIR_KINDS),
    CheckConstraint("kind = 'real' OR gold_grade IS NOT NULL", name="gold_grade"),
    CheckConstraint("document_id <> other_document_id", name="other_document_id"),
    Index("ix_pair_project_id_kind", "project_id", "kind"),
    comment="A query with a document, or with two to compare: the one whose key comes first, and the other",
)
_SINGLE = text("other_document_id IS NULL")
Index(
    "uq_pair_single",
    pair.c.query_id,
    pair.c.document_id,
    unique=True,
    sqlite_where=_SINGLE,
    postgresql_where=_SINGLE,
)

quota = Table(
    "quota",
    metadata,
    Column("pair_id", Integer, ForeignKey("pair.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    _reference("project"),
    _reference("query"),
    Column("taken", Integer, nullable=False, server_default="0", comment="counted answers, and leases not ended"),
    Column("target", Integer, nullable=False, comment="number of labels wanted now"),
    Column("k_max", Integer, nullable=False),
    Column("priority", Float, nullable=False, server_default="0", comment="higher comes first"),
    Column("shuffle", Float, nullable=False, comment="random order of equal priorities"),
    Column("is_open", Boolean, nullable=False, server_default=true(), comment="copy of pair.is_open"),
    Column("generation", Integer, nullable=False, server_default="1", comment="copy of pair.generation"),
    Column(
        "is_unsettled",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="labels beyond the target, up to k_max, are of use",
    ),
    _one_of("kind", KINDS),
    CheckConstraint("taken >= 0 AND taken <= k_max AND target <= k_max", name="taken"),
    comment="Labels wanted and taken of each real pair, by kind of assessor",
)
_WANTED = text("is_open AND taken < target")
Index(
    "ix_quota_wanted",
    quota.c.project_id,
    quota.c.kind,
    quota.c.priority.desc(),
    quota.c.shuffle,
    sqlite_where=_WANTED,
    postgresql_where=_WANTED,
)
_SPARE = text("is_open AND is_unsettled AND taken < k_max")
Index(
    "ix_quota_spare",
    quota.c.project_id,
    quota.c.kind,
    quota.c.taken,
    quota.c.priority.desc(),
    quota.c.shuffle,
    sqlite_where=_SPARE,
    postgresql_where=_SPARE,
)
Index("ix_quota_wanted_query", quota.c.query_id, quota.c.kind, sqlite_where=_WANTED, postgresql_where=_WANTED)

sampled_pair = Table(
    "sampled_pair",
    metadata,
    Column("pair_id", Integer, ForeignKey("pair.id"), primary_key=True),
    Column("kind", Text, primary_key=True, comment="kind of the assessors whose answers are part of the sample"),
    _reference("project", index=True),
    Column("draw", Integer, nullable=False, comment="number of the sample_draw"),
    Column("probability", Float, nullable=False, comment="probability with which the pair was drawn"),
    _one_of("kind", KINDS),
    CheckConstraint("probability > 0 AND probability <= 1", name="probability"),
    comment="Pairs drawn by the policy compare",
)

# Answers.

lease = Table(
    "lease",
    metadata,
    _key(),
    Column("token", Text, nullable=False, unique=True),
    _reference("pair"),
    _reference("assessor"),
    Column("generation", Integer, nullable=False),
    Column("issued", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("end_kind", Text),
    Column("is_undo", Boolean, nullable=False, server_default=false(), comment="keeps the place of an undone answer"),
    Column("is_swapped", Boolean, nullable=False, server_default=false(), comment="the other document is on the left"),
    _one_of("end_kind", LEASE_ENDS),
    CheckConstraint("(ended IS NULL) = (end_kind IS NULL)", name="ended"),
)
_LIVE = text("ended IS NULL")
Index("ix_lease_live_expires", lease.c.expires, sqlite_where=_LIVE, postgresql_where=_LIVE)
Index("ix_lease_live_pair_id", lease.c.pair_id, sqlite_where=_LIVE, postgresql_where=_LIVE)
Index(
    "uq_lease_live",
    lease.c.assessor_id,
    lease.c.pair_id,
    unique=True,
    sqlite_where=_LIVE,
    postgresql_where=_LIVE,
)

event = Table(
    "event",
    metadata,
    _key(),
    _reference("project", index=True),
    _reference("pair"),
    _reference("assessor"),
    _reference("lease", nullable=True),
    Column("client_id", Text, nullable=False, comment="made by the client, so that a repeated request is recognized"),
    Column("kind", Text, nullable=False),
    Column("grade", Integer, comment="of a comparison: as if its other document had been on the right"),
    Column("is_swapped", Boolean, nullable=False, server_default=false(), comment="the other document was on the left"),
    Column("swapped_grade", Integer, comment="of an LLM judge: the same with the documents on the other sides"),
    Column("is_late", Boolean, nullable=False, server_default=false(), comment="the lease had ended"),
    Column("is_counted", Boolean, nullable=False, server_default=false(), comment="counted when received"),
    Column("comment", Text),
    Column("spans", JSON(none_as_null=True), comment="marked passages: field, start, end"),
    Column("probabilities", JSON(none_as_null=True), comment="of the grades, from least to most relevant"),
    Column("active_ms", BigInteger),
    Column("away_ms", BigInteger),
    Column("guidelines_version", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("received", BigInteger, nullable=False),
    UniqueConstraint("assessor_id", "client_id"),
    _one_of("kind", EVENT_KINDS),
    CheckConstraint("(kind = 'grade') = (grade IS NOT NULL)", name="grade"),
    CheckConstraint("swapped_grade IS NULL OR grade IS NOT NULL", name="swapped_grade"),
    Index("ix_event_pair_id", "pair_id"),
)

answer = Table(
    "answer",
    metadata,
    Column("pair_id", Integer, ForeignKey("pair.id"), primary_key=True),
    Column("assessor_id", Integer, ForeignKey("assessor.id"), primary_key=True),
    _reference("event"),
    Column("generation", Integer, nullable=False),
    Column("kind", Text, nullable=False, comment="grade, cannot-judge or later"),
    Column("grade", Integer),
    Column("swapped_grade", Integer),
    Column("is_counted", Boolean, nullable=False, comment="real pairs: whether it takes a place of the quota"),
    Index("ix_answer_assessor_id_event_id", "assessor_id", "event_id"),
    comment="Latest answer of each assessor to each pair, written with its event",
)
_LATER = text("kind = 'later'")
_LATER_COLUMNS = (answer.c.assessor_id, answer.c.kind, answer.c.event_id)  # kind makes SQLite prefer this index
Index("ix_answer_later", *_LATER_COLUMNS, sqlite_where=_LATER, postgresql_where=_LATER)

audit = Table(
    "audit",
    metadata,
    _key(),
    Column("at", BigInteger, nullable=False),
    _reference("assessor", nullable=True),
    _reference("project", nullable=True, index=True),
    Column("action", Text, nullable=False),
    Column("details", JSON, nullable=False),
)

# Fits of the model.

snapshot = Table(
    "snapshot",
    metadata,
    _key(),
    _reference("project", index=True),
    Column("method", Text, nullable=False),
    Column("last_event_id", Integer, nullable=False, comment="newest event that the fit has seen"),
    Column("agreement", JSON, nullable=False, comment="agreement of pairs of assessors"),
    Column("created", BigInteger, nullable=False),
    Column("is_complete", Boolean, nullable=False, server_default=true(), comment="readers see only complete ones"),
)

standing = Table(
    "standing",
    metadata,
    Column("snapshot_id", Integer, ForeignKey("snapshot.id", ondelete="CASCADE"), primary_key=True),
    Column("pair_id", Integer, ForeignKey("pair.id"), primary_key=True),
    Column("relevance", Float, nullable=False),
    Column("sd", Float),
    Column("lower", Float),
    Column("upper", Float),
    Column("grade", Integer, nullable=False),
    Column("probabilities", JSON, nullable=False),
    Column("certainty", Float, comment="probability of the range of relevance of one grade"),
    comment="Consensus of each pair in a snapshot",
)

reliability = Table(
    "reliability",
    metadata,
    Column("snapshot_id", Integer, ForeignKey("snapshot.id", ondelete="CASCADE"), primary_key=True),
    Column("assessor_id", Integer, ForeignKey("assessor.id"), primary_key=True),
    Column("informativeness", Float),
    Column("flags", JSON, nullable=False),
    comment="Reliability of each assessor in a snapshot",
)

refit_failure = Table(
    "refit_failure",
    metadata,
    Column("project_id", Integer, ForeignKey("project.id"), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("problem", Text, nullable=False),
    comment="Last failure of a fit in the background, until one succeeds",
)
