"""Add what happens when the model flags an assessor, and how certain it is of each pair."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add columns."""
    op.add_column(
        "project",
        sa.Column(
            "flag_action",
            sa.Text(),
            server_default="notify",
            nullable=False,
            comment="what happens when the model flags an assessor: notify, honeypots, pause",
        ),
    )
    for name, kind, comment in (
        ("flag", sa.Text(), "flag of the last fit: careless, random or reversed"),
        ("acted_flag", sa.Text(), "last flag that was acted on"),
        ("acted_answers", sa.Integer(), "number of answers that it was based on"),
        ("pause_reason", sa.Text(), "flag and evidence, if the service paused the member"),
    ):
        op.add_column("membership", sa.Column(name, kind, nullable=True, comment=comment))
    op.add_column(
        "standing",
        sa.Column(
            "certainty", sa.Float(), nullable=True, comment="probability that the most probable grade is the true one"
        ),
    )
