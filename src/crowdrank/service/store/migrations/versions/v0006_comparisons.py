"""Add rankings, draws of pairs with known probabilities, and these probabilities in the view of judgments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from crowdrank.service.store.migrations.versions.v0001_projects_people_answers import JUDGMENT_VIEW

revision = "0006"
down_revision = "0005"

COLUMNS = """, event.probabilities AS probabilities, sampled_pair.probability AS probability,
    sampled_pair.round AS sample_round
FROM answer"""
SAMPLE = """LEFT JOIN sampled_pair ON sampled_pair.pair_id = pair.id AND sampled_pair.kind = assessor.kind
WHERE answer.kind"""


def upgrade() -> None:
    """Add columns and tables, and create the view again."""
    op.execute("DROP VIEW judgment")
    measure = "policy compare: measure of rankings"
    op.add_column("project", sa.Column("measure", sa.Text(), server_default="nDCG@10", nullable=False, comment=measure))
    number = "policy compare: number of pairs to draw"
    op.add_column(
        "project", sa.Column("pairs_per_round", sa.Integer(), server_default="100", nullable=False, comment=number)
    )
    _create_rankings()
    _create_samples()
    op.execute(JUDGMENT_VIEW.replace("FROM answer", COLUMNS).replace("WHERE answer.kind", SAMPLE))


def _create_rankings() -> None:
    op.create_table(
        "ranking",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("n_documents", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False, comment="Parquet file: query, document, score"),
        sa.Column("digest", sa.Text(), nullable=False, comment="of the content"),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_ranking_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_ranking"),
        sa.UniqueConstraint("project_id", "name", name="uq_ranking_project_id_name"),
        comment="Rankings that the policy compare compares; the first one is the baseline",
    )


def _create_samples() -> None:
    labels = "Parquet file: labels of the pool at the time of the draw"
    op.create_table(
        "sample_round",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("labels", sa.LargeBinary(), nullable=False, comment=labels),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_sample_round_project_id"),
        sa.PrimaryKeyConstraint("project_id", "number", name="pk_sample_round"),
        comment="Draws of pairs with known probabilities",
    )
    kind = "kind of the assessors whose answers are part of the sample"
    probability = "probability with which the pair was drawn"
    op.create_table(
        "sampled_pair",
        sa.Column("pair_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment=kind),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False, comment="number of the sample_round"),
        sa.Column("probability", sa.Float(), nullable=False, comment=probability),
        sa.CheckConstraint("kind IN ('human', 'llm', 'expert')", name="ck_sampled_pair_kind"),
        sa.CheckConstraint("probability > 0 AND probability <= 1", name="ck_sampled_pair_probability"),
        sa.ForeignKeyConstraint(["pair_id"], ["pair.id"], name="fk_sampled_pair_pair_id"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_sampled_pair_project_id"),
        sa.PrimaryKeyConstraint("pair_id", "kind", name="pk_sampled_pair"),
        comment="Pairs drawn by the policy compare",
    )
    op.create_index("ix_sampled_pair_project_id", "sampled_pair", ["project_id"], unique=False)
