"""Hedges: second attempts at compiles that run far past their history"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "hedges",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("compile_id", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("leased_at", sa.Double(), nullable=False),
        sa.Column("lease_expires_at", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", sa.Double(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.CheckConstraint("state IN ('leased', 'ready', 'failed', 'lost', 'late')", name=op.f("ck_hedges_state")),
        sa.CheckConstraint("(state = 'leased') = (ended_at IS NULL)", name=op.f("ck_hedges_ended")),
        sa.CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name=op.f("ck_hedges_progress")),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], name=op.f("fk_hedges_compile_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hedges")),
        sa.UniqueConstraint("compile_id", "generation", name=op.f("uq_hedges_compile_id_generation")),
    )
    op.create_index(
        "uq_hedges_live",
        "hedges",
        ["compile_id"],
        unique=True,
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.create_index(
        "ix_hedges_expiry",
        "hedges",
        ["lease_expires_at"],
        unique=False,
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )


def downgrade() -> None:
    op.drop_index(
        "ix_hedges_expiry",
        table_name="hedges",
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.drop_index(
        "uq_hedges_live",
        table_name="hedges",
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.drop_table("hedges")
