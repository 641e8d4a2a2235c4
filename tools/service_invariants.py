"""What must hold in the database of the judging service after every transaction."""

from __future__ import annotations

from sqlalchemy import Connection, text

OF_PROJECT = "IN (SELECT id FROM pair WHERE project_id = :project)"
INVARIANTS = {
    "taken is the number of counted answers and leases": f"""
        SELECT quota.pair_id, quota.kind, quota.taken FROM quota WHERE quota.pair_id {OF_PROJECT} AND taken <>
            (SELECT count(*) FROM answer JOIN assessor ON assessor.id = answer.assessor_id
             WHERE answer.pair_id = quota.pair_id AND assessor.kind = quota.kind
             AND answer.generation = quota.generation AND answer.is_counted)
            + (SELECT count(*) FROM lease JOIN assessor ON assessor.id = lease.assessor_id
               WHERE lease.pair_id = quota.pair_id AND assessor.kind = quota.kind
               AND lease.generation = quota.generation AND lease.ended IS NULL)""",
    "answers in time and live leases take at most k_max places": f"""
        SELECT quota.pair_id, quota.kind FROM quota WHERE quota.pair_id {OF_PROJECT} AND k_max <
            (SELECT count(*) FROM answer JOIN assessor ON assessor.id = answer.assessor_id
             JOIN event ON event.id = answer.event_id
             WHERE answer.pair_id = quota.pair_id AND assessor.kind = quota.kind
             AND answer.generation = quota.generation AND answer.kind <> 'later'
             AND event.lease_id IS NOT NULL AND NOT event.is_late)
            + (SELECT count(*) FROM lease JOIN assessor ON assessor.id = lease.assessor_id
               WHERE lease.pair_id = quota.pair_id AND assessor.kind = quota.kind AND lease.ended IS NULL)""",
    "quotas follow their pairs": """
        SELECT quota.pair_id FROM quota JOIN pair ON pair.id = quota.pair_id WHERE pair.project_id = :project
        AND (quota.generation <> pair.generation OR quota.is_open <> pair.is_open OR pair.kind <> 'real')""",
    "with the policy compare, labels are wanted only of drawn pairs": """
        SELECT quota.pair_id FROM quota JOIN project ON project.id = quota.project_id
        WHERE project.id = :project AND project.settings ->> 'policy' = 'compare' AND quota.target > 0 AND NOT EXISTS (
            SELECT 1 FROM sampled_pair AS drawn WHERE drawn.pair_id = quota.pair_id AND drawn.kind = quota.kind)""",
    "answers have the sides of their leases": """
        SELECT event.id FROM event JOIN lease ON lease.id = event.lease_id
        WHERE event.project_id = :project AND event.is_swapped <> lease.is_swapped""",
    "live leases are of the current generation": """
        SELECT lease.id FROM lease JOIN pair ON pair.id = lease.pair_id
        WHERE pair.project_id = :project AND lease.ended IS NULL AND lease.generation <> pair.generation""",
    "no lease on a pair answered in the generation": f"""
        SELECT lease.id FROM lease
        JOIN answer ON answer.pair_id = lease.pair_id AND answer.assessor_id = lease.assessor_id
            AND answer.generation = lease.generation AND answer.kind <> 'later'
        WHERE lease.ended IS NULL AND lease.pair_id {OF_PROJECT}""",
    "answers repeat their events": f"""
        SELECT answer.pair_id, answer.assessor_id FROM answer JOIN event ON event.id = answer.event_id
        WHERE answer.pair_id {OF_PROJECT} AND (event.pair_id <> answer.pair_id
            OR event.assessor_id <> answer.assessor_id OR event.kind <> answer.kind
            OR event.generation <> answer.generation OR event.is_counted <> answer.is_counted
            OR coalesce(event.grade, -1) <> coalesce(answer.grade, -1)
            OR coalesce(event.swapped_grade, -1) <> coalesce(answer.swapped_grade, -1))""",
    "only LLM judges compare in both orders": f"""
        SELECT answer.pair_id FROM answer JOIN assessor ON assessor.id = answer.assessor_id
        JOIN pair ON pair.id = answer.pair_id
        WHERE answer.pair_id {OF_PROJECT} AND answer.swapped_grade IS NOT NULL
        AND (assessor.kind <> 'llm' OR pair.other_document_id IS NULL)""",
}
"""Queries that find violations of what must hold after every transaction."""


def find_violations(connection: Connection, project_id: int) -> list[str]:
    """Return the names of the invariants that do not hold in a project."""
    values = {"project": project_id}
    return [name for name, query in INVARIANTS.items() if connection.execute(text(query), values).first() is not None]
