"""Add probabilities of the grades to answers, and to the view of judgments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from crowdrank.service.store.migrations.versions.v0001_projects_people_answers import JUDGMENT_VIEW

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column, and create the view again."""
    op.execute("DROP VIEW judgment")
    op.add_column(
        "event",
        sa.Column("probabilities", sa.JSON(), nullable=True, comment="of the grades, from least to most relevant"),
    )
    op.execute(JUDGMENT_VIEW.replace("FROM answer", ", event.probabilities AS probabilities FROM answer"))
