"""Create the tables of projects, people and answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

JUDGMENT_VIEW = """
CREATE VIEW judgment AS
SELECT project.name AS project, query.key AS query, document.key AS document, assessor.name AS assessor,
    assessor.kind AS kind, assessor.family AS family, assessor.price AS price, pair.kind AS pair_kind,
    pair.gold_grade AS gold_grade, answer.kind AS answer, answer.grade AS grade, event.received AS received,
    event.active_ms AS active_ms, event.comment AS comment, answer.is_counted AS is_counted,
    answer.round = pair.round AS is_current, event.is_late AS is_late
FROM answer
JOIN event ON event.id = answer.event_id
JOIN pair ON pair.id = answer.pair_id
JOIN query ON query.id = pair.query_id
JOIN document ON document.id = pair.document_id
JOIN project ON project.id = pair.project_id
JOIN assessor ON assessor.id = answer.assessor_id
WHERE answer.kind <> 'later'
"""
"""Latest answers with the ids of the user's files: what other commands read."""

APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER {table}_is_append_only_{action} BEFORE {action} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for table in ("event", "audit")
        for action in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$",
        *(
            f"CREATE TRIGGER {table}_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
            for table in ("event", "audit")
        ),
    ],
}
"""Statements that refuse to change or delete events and entries of the audit log, by database."""


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "assessor",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=True),
        sa.Column("price", sa.Float(), server_default="1", nullable=False),
        sa.Column("is_admin", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("is_active", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column(
            "password", sa.Text(), nullable=True, comment="Argon2 hash; NULL for assessors who sign in another way"
        ),
        sa.Column("subject", sa.Text(), nullable=True, comment="identity at the single sign-on provider"),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('human', 'llm', 'expert')", name="ck_assessor_kind"),
        sa.PrimaryKeyConstraint("id", name="pk_assessor"),
        sa.UniqueConstraint("name", name="uq_assessor_name"),
        sa.UniqueConstraint("subject", name="uq_assessor_subject"),
    )
    op.create_table(
        "login_failure",
        sa.Column("key", sa.Text(), nullable=False, comment="digest of a name or of an address"),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("locked_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_login_failure"),
    )
    op.create_table(
        "project",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("grades", sa.JSON(), nullable=False, comment="names of the grades, from least to most relevant"),
        sa.Column("guidelines", sa.Text(), server_default="", nullable=False),
        sa.Column("guidelines_version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("layout", sa.JSON(), nullable=False),
        sa.Column("policy", sa.Text(), server_default="random", nullable=False),
        sa.Column("quotas", sa.JSON(), nullable=False, comment="[k_min, k_max] by kind of assessor"),
        sa.Column("lease_seconds", sa.Integer(), server_default="900", nullable=False),
        sa.Column("honeypot_share", sa.Float(), server_default="0", nullable=False),
        sa.Column(
            "qualification_share",
            sa.Float(),
            nullable=True,
            comment="share of training pairs to answer correctly; NULL: no round",
        ),
        sa.Column("is_open", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("honeypot_share >= 0 AND honeypot_share <= 1", name="ck_project_honeypot_share"),
        sa.CheckConstraint("lease_seconds > 0", name="ck_project_lease_seconds"),
        sa.PrimaryKeyConstraint("id", name="pk_project"),
        sa.UniqueConstraint("name", name="uq_project_name"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=True),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_audit_assessor_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_audit_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_project_id", "audit", ["project_id"], unique=False)

    op.create_table(
        "document",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=False, comment="of title, body, fields and url"),
        sa.Column("changed", sa.BigInteger(), nullable=False, comment="time of the last change of the digest"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_document_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_document"),
        sa.UniqueConstraint("project_id", "key", name="uq_document_project_id_key"),
    )
    op.create_table(
        "invitation",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False, comment="lead, judge, or admin (without a project)"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=True, comment="who sets a new password; NULL: a new member"),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.Column("created_by", sa.Integer(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('human', 'llm', 'expert')", name="ck_invitation_kind"),
        sa.CheckConstraint("role IN ('admin', 'lead', 'judge')", name="ck_invitation_role"),
        sa.CheckConstraint("uses_left >= 0", name="ck_invitation_uses_left"),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_invitation_assessor_id"),
        sa.ForeignKeyConstraint(["created_by"], ["assessor.id"], name="fk_invitation_created_by"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_invitation_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_invitation"),
        sa.UniqueConstraint("digest", name="uq_invitation_digest"),
    )
    op.create_index("ix_invitation_project_id", "invitation", ["project_id"], unique=False)

    op.create_table(
        "query",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("need", sa.Text(), server_default="", nullable=False, comment="information need behind the query"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_query_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_query"),
        sa.UniqueConstraint("project_id", "key", name="uq_query_project_id_key"),
    )
    op.create_table(
        "session",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column(
            "last_seen", sa.BigInteger(), nullable=False, comment="time of a recent request; an idle session ends"
        ),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_session_assessor_id"),
        sa.PrimaryKeyConstraint("digest", name="pk_session"),
    )
    op.create_index("ix_session_assessor_id", "session", ["assessor_id"], unique=False)

    op.create_table(
        "token",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("scopes", sa.JSON(), nullable=False, comment="of judge, read, manage"),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_token_assessor_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_token_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("digest", name="uq_token_digest"),
    )
    op.create_index("ix_token_assessor_id", "token", ["assessor_id"], unique=False)

    op.create_table(
        "membership",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("qualification", sa.Text(), server_default="not-required", nullable=False),
        sa.Column(
            "n_leases", sa.Integer(), server_default="0", nullable=False, comment="leases issued; seeds the honeypots"
        ),
        sa.Column("last_query_id", sa.Integer(), nullable=True, comment="query of the last pair"),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "qualification IN ('not-required', 'pending', 'passed', 'failed')", name="ck_membership_qualification"
        ),
        sa.CheckConstraint("role IN ('lead', 'judge')", name="ck_membership_role"),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_membership_assessor_id"),
        sa.ForeignKeyConstraint(["last_query_id"], ["query.id"], name="fk_membership_last_query_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_membership_project_id"),
        sa.PrimaryKeyConstraint("project_id", "assessor_id", name="pk_membership"),
    )
    op.create_index("ix_membership_assessor_id", "membership", ["assessor_id"], unique=False)

    op.create_table(
        "pair",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("query_id", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="real", nullable=False),
        sa.Column("gold_grade", sa.Integer(), nullable=True),
        sa.Column("explanation", sa.Text(), nullable=True, comment="shown after the answer to a training pair"),
        sa.Column("is_open", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column(
            "round", sa.Integer(), server_default="1", nullable=False, comment="answers of earlier rounds do not count"
        ),
        sa.CheckConstraint("kind = 'real' OR gold_grade IS NOT NULL", name="ck_pair_gold_grade"),
        sa.CheckConstraint("kind IN ('real', 'gold', 'training')", name="ck_pair_kind"),
        sa.ForeignKeyConstraint(["document_id"], ["document.id"], name="fk_pair_document_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_pair_project_id"),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name="fk_pair_query_id"),
        sa.PrimaryKeyConstraint("id", name="pk_pair"),
        sa.UniqueConstraint("query_id", "document_id", name="uq_pair_query_id_document_id"),
    )
    op.create_index("ix_pair_project_id_kind", "pair", ["project_id", "kind"], unique=False)

    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("issued", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("end_kind", sa.Text(), nullable=True),
        sa.Column(
            "is_undo",
            sa.Boolean(),
            server_default=sa.false(),
            nullable=False,
            comment="keeps the place of an undone answer",
        ),
        sa.CheckConstraint("end_kind IN ('answered', 'expired', 'returned')", name="ck_lease_end_kind"),
        sa.CheckConstraint("(ended IS NULL) = (end_kind IS NULL)", name="ck_lease_ended"),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_lease_assessor_id"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_lease_pair_id"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
        sa.UniqueConstraint("token", name="uq_lease_token"),
    )
    op.create_index(
        "ix_lease_live_expires",
        "lease",
        ["expires"],
        unique=False,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_index(
        "ix_lease_live_pair_id",
        "lease",
        ["pair_id"],
        unique=False,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_index(
        "uq_lease_live",
        "lease",
        ["assessor_id", "pair_id"],
        unique=True,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )

    op.create_table(
        "quota",
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("query_id", sa.Integer(), nullable=False),
        sa.Column(
            "taken", sa.Integer(), server_default="0", nullable=False, comment="counted answers, and leases not ended"
        ),
        sa.Column("target", sa.Integer(), nullable=False, comment="number of labels wanted now"),
        sa.Column("k_max", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Float(), server_default="0", nullable=False, comment="higher comes first"),
        sa.Column("shuffle", sa.Float(), nullable=False, comment="random order of equal priorities"),
        sa.Column("is_open", sa.Boolean(), server_default=sa.true(), nullable=False, comment="copy of pair.is_open"),
        sa.Column("round", sa.Integer(), server_default="1", nullable=False, comment="copy of pair.round"),
        sa.CheckConstraint("kind IN ('human', 'llm', 'expert')", name="ck_quota_kind"),
        sa.CheckConstraint("taken >= 0 AND taken <= k_max AND target <= k_max", name="ck_quota_taken"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_quota_pair_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_quota_project_id"),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name="fk_quota_query_id"),
        sa.PrimaryKeyConstraint("pair_id", "kind", name="pk_quota"),
        comment="Labels wanted and taken of each real pair, by kind of assessor",
    )
    op.create_index(
        "ix_quota_wanted",
        "quota",
        ["project_id", "kind", sa.literal_column("priority DESC"), "shuffle"],
        unique=False,
        sqlite_where=sa.text("is_open AND taken < target"),
        postgresql_where=sa.text("is_open AND taken < target"),
    )
    op.create_index(
        "ix_quota_wanted_query",
        "quota",
        ["query_id", "kind"],
        unique=False,
        sqlite_where=sa.text("is_open AND taken < target"),
        postgresql_where=sa.text("is_open AND taken < target"),
    )

    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("lease_id", sa.Integer(), nullable=True),
        sa.Column(
            "client_id",
            sa.Text(),
            nullable=False,
            comment="made by the client, so that a repeated request is recognized",
        ),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("grade", sa.Integer(), nullable=True),
        sa.Column("is_late", sa.Boolean(), server_default=sa.false(), nullable=False, comment="the lease had ended"),
        sa.Column(
            "is_counted", sa.Boolean(), server_default=sa.false(), nullable=False, comment="counted when received"
        ),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("spans", sa.JSON(), nullable=True, comment="marked passages: field, start, end"),
        sa.Column("active_ms", sa.BigInteger(), nullable=True),
        sa.Column("away_ms", sa.BigInteger(), nullable=True),
        sa.Column("guidelines_version", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("(kind = 'grade') = (grade IS NOT NULL)", name="ck_event_grade"),
        sa.CheckConstraint("kind IN ('grade', 'cannot-judge', 'later', 'withdrawn')", name="ck_event_kind"),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_event_assessor_id"),
        sa.ForeignKeyConstraint(["lease_id"], ["lease.id"], name="fk_event_lease_id"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_event_pair_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_event_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.UniqueConstraint("assessor_id", "client_id", name="uq_event_assessor_id_client_id"),
    )
    op.create_index("ix_event_pair_id", "event", ["pair_id"], unique=False)
    op.create_index("ix_event_project_id", "event", ["project_id"], unique=False)

    op.create_table(
        "answer",
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="grade, cannot-judge or later"),
        sa.Column("grade", sa.Integer(), nullable=True),
        sa.Column(
            "is_counted", sa.Boolean(), nullable=False, comment="real pairs: whether it takes a place of the quota"
        ),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_answer_assessor_id"),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_answer_event_id"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_answer_pair_id"),
        sa.PrimaryKeyConstraint("pair_id", "assessor_id", name="pk_answer"),
        comment="Latest answer of each assessor to each pair, written with its event",
    )
    op.create_index("ix_answer_assessor_id_event_id", "answer", ["assessor_id", "event_id"], unique=False)
    op.create_index(
        "ix_answer_later",
        "answer",
        ["assessor_id", "event_id"],
        unique=False,
        sqlite_where=sa.text("kind = 'later'"),
        postgresql_where=sa.text("kind = 'later'"),
    )
    op.execute(JUDGMENT_VIEW)
    for statement in APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)
