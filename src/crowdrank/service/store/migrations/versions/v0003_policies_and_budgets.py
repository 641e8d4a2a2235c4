"""Add policies with a stop rule, budgets, and failures of fits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns and tables."""
    op.add_column(
        "project",
        sa.Column(
            "settled",
            sa.Float(),
            nullable=True,
            comment="probability of the most probable grade of a settled pair; NULL: no stop rule",
        ),
    )
    op.add_column(
        "project", sa.Column("budget", sa.Float(), nullable=True, comment="money for answers; NULL: no limit")
    )
    op.add_column(
        "quota",
        sa.Column(
            "is_unsettled",
            sa.Boolean(),
            server_default=sa.false(),
            nullable=False,
            comment="labels beyond the target, up to k_max, are of use",
        ),
    )
    op.add_column(
        "snapshot",
        sa.Column(
            "is_complete",
            sa.Boolean(),
            server_default=sa.true(),
            nullable=False,
            comment="readers see only complete ones",
        ),
    )
    spare = sa.text("is_open AND is_unsettled AND taken < k_max")
    op.create_index(
        "ix_quota_spare",
        "quota",
        ["project_id", "kind", "taken", sa.text("priority DESC"), "shuffle"],
        unique=False,
        sqlite_where=spare,
        postgresql_where=spare,
    )
    op.create_table(
        "spending",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Float(), nullable=False, comment="at least the price of all answers and live leases"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_spending_project_id"),
        sa.PrimaryKeyConstraint("project_id", name="pk_spending"),
        comment="Money of projects with a budget; without a row it is not known",
    )
    op.create_table(
        "refit_failure",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_refit_failure_project_id"),
        sa.PrimaryKeyConstraint("project_id", name="pk_refit_failure"),
        comment="Last failure of a fit in the background, until one succeeds",
    )
