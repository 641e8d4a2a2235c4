"""Add the tables of fits of the model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "snapshot",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("last_event_id", sa.Integer(), nullable=False, comment="newest event that the fit has seen"),
        sa.Column("agreement", sa.JSON(), nullable=False, comment="agreement of pairs of assessors"),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_snapshot_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_snapshot"),
    )
    op.create_index("ix_snapshot_project_id", "snapshot", ["project_id"], unique=False)

    op.create_table(
        "reliability",
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("assessor_id", sa.Integer(), nullable=False),
        sa.Column("informativeness", sa.Float(), nullable=True),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["assessor_id"], ["assessor.id"], name="fk_reliability_assessor_id"),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshot.id"], name="fk_reliability_snapshot_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("snapshot_id", "assessor_id", name="pk_reliability"),
        comment="Reliability of each assessor in a snapshot",
    )
    op.create_table(
        "standing",
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("relevance", sa.Float(), nullable=False),
        sa.Column("sd", sa.Float(), nullable=True),
        sa.Column("lower", sa.Float(), nullable=True),
        sa.Column("upper", sa.Float(), nullable=True),
        sa.Column("grade", sa.Integer(), nullable=False),
        sa.Column("probabilities", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_standing_pair_id"),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshot.id"], name="fk_standing_snapshot_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("snapshot_id", "pair_id", name="pk_standing"),
        comment="Consensus of each pair in a snapshot",
    )
