"""Add the information per price of each member's answers, and its minimum in a project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add columns."""
    for table, name, comment in (
        ("project", "min_information", "minimum of membership.relative_information; NULL: everybody is asked"),
        (
            "membership",
            "relative_information",
            "information per price of an answer, relative to the mean of the kind; NULL: too few answers",
        ),
    ):
        op.add_column(table, sa.Column(name, sa.Float(), nullable=True, comment=comment))
