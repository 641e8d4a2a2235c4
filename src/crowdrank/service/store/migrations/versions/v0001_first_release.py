"""Create the tables of the first release."""

from __future__ import annotations

from alembic import op

from crowdrank.service.store.schema import metadata

revision = "1"
down_revision = None

JUDGMENT_VIEW = """
CREATE VIEW judgment AS
SELECT project.name AS project, query.key AS query, document.key AS document, other.key AS other,
    event.is_swapped AS is_swapped, answer.swapped_grade AS swapped_grade, assessor.name AS assessor,
    assessor.kind AS kind, assessor.family AS family, assessor.price AS price, pair.kind AS pair_kind,
    pair.gold_grade AS gold_grade, answer.kind AS answer, answer.grade AS grade, event.received AS received,
    event.active_ms AS active_ms, event.comment AS comment, answer.is_counted AS is_counted,
    answer.generation = pair.generation AS is_current, event.is_late AS is_late, event.probabilities AS probabilities,
    sampled_pair.probability AS probability, sampled_pair.draw AS sample_draw
FROM answer
JOIN event ON event.id = answer.event_id
JOIN pair ON pair.id = answer.pair_id
JOIN query ON query.id = pair.query_id
JOIN document ON document.id = pair.document_id
LEFT JOIN document AS other ON other.id = pair.other_document_id
JOIN project ON project.id = pair.project_id
JOIN assessor ON assessor.id = answer.assessor_id
LEFT JOIN sampled_pair ON sampled_pair.pair_id = pair.id AND sampled_pair.kind = assessor.kind
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
    """Create the tables, the view of judgments, and what keeps events from being changed."""
    metadata.create_all(op.get_bind())
    op.execute(JUDGMENT_VIEW)
    for statement in APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)
