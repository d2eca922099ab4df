"""The first schema"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_fetched_at", sa.Double(), nullable=True),
        sa.Column("doomed_at", sa.Double(), nullable=True),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_blobs_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_blobs")),
    )
    op.create_index("ix_blobs_created", "blobs", ["created_at"], unique=False)
    op.create_index(
        "ix_blobs_doomed",
        "blobs",
        ["doomed_at"],
        unique=False,
        sqlite_where=sa.text("doomed_at IS NOT NULL"),
        postgresql_where=sa.text("doomed_at IS NOT NULL"),
    )
    op.create_table(
        "clock",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("frozen_at", sa.Double(), nullable=True),
        sa.Column("offset_s", sa.Double(), server_default="0", nullable=False),
        sa.Column("served_at", sa.Double(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_clock_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clock")),
    )
    op.create_table(
        "evictions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("blob", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("age_s", sa.Double(), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=False),
        sa.Column("evicted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evictions")),
    )
    op.create_index("ix_evictions_at", "evictions", ["evicted_at"], unique=False)
    op.create_table(
        "graph_keys",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("e_hot", sa.Integer(), nullable=False),
        sa.Column("h", sa.Integer(), nullable=False),
        sa.Column("f", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("key_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name=op.f("pk_graph_keys")),
    )
    op.create_index("ix_graph_keys_shape", "graph_keys", ["kind", "e_hot", "h", "f", "bucket"], unique=False)
    op.create_index(op.f("ix_graph_keys_toolchain"), "graph_keys", ["toolchain"], unique=False)
    op.create_table(
        "manifests",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("pin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manifests")),
    )
    op.create_index("ix_manifests_name", "manifests", ["namespace", "name"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("reads_json", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.CheckConstraint("scope IN ('read', 'compile', 'admin')", name=op.f("ck_tokens_scope")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_tokens_token_sha256")),
    )
    op.create_table(
        "totals",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("blobs", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("blob_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_totals_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_totals")),
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("compile_id", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "size_bytes >= 0 AND received_bytes >= 0 AND received_bytes <= size_bytes", name=op.f("ck_uploads_sizes")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_compile", "uploads", ["compile_id", "generation"], unique=False)
    op.create_index("ix_uploads_expiry", "uploads", ["expires_at"], unique=False)
    op.create_table(
        "usage_batches",
        sa.Column("batch", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("batch", name=op.f("pk_usage_batches")),
    )
    op.create_index("ix_usage_batches_age", "usage_batches", ["created_at"], unique=False)
    op.create_table(
        "usage_counts",
        sa.Column("period_start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("event", sa.String(length=20), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("saved_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("period_start", "namespace", "key_digest", "event", name=op.f("pk_usage_counts")),
    )
    op.create_index("ix_usage_counts_key", "usage_counts", ["key_digest"], unique=False)
    op.create_table(
        "waits",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("wait_s", sa.Double(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_waits")),
    )
    op.create_index("ix_waits_ended", "waits", ["ended_at"], unique=False)
    op.create_table(
        "wakeups",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("topic", sa.String(length=200), nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_wakeups")),
    )
    op.create_table(
        "workers",
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("last_claim_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "toolchain", name=op.f("pk_workers")),
    )
    op.create_table(
        "artifacts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("compile_id", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("blob", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=False),
        sa.Column("producer", sa.String(length=128), nullable=False),
        sa.Column("producer_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=True),
        sa.Column("signature", sa.String(length=128), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "state IN ('standing', 'divergent', 'quarantined', 'evicted', 'lost')", name=op.f("ck_artifacts_state")
        ),
        sa.CheckConstraint("(signature IS NULL) = (public_key IS NULL)", name=op.f("ck_artifacts_signature")),
        sa.CheckConstraint("size_bytes >= 0 AND compile_s >= 0", name=op.f("ck_artifacts_sizes")),
        sa.ForeignKeyConstraint(["key_digest"], ["graph_keys.key_digest"], name=op.f("fk_artifacts_key_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_blob", "artifacts", ["blob"], unique=False)
    op.create_index("ix_artifacts_key", "artifacts", ["namespace", "key_digest"], unique=False)
    op.create_index("ix_artifacts_producer", "artifacts", ["producer", "created_at"], unique=False)
    op.create_index(
        "uq_artifacts_standing",
        "artifacts",
        ["namespace", "key_digest"],
        unique=True,
        sqlite_where=sa.text("state = 'standing'"),
        postgresql_where=sa.text("state = 'standing'"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("compile_id", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("failure_class", sa.String(length=16), nullable=True),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=True),
        sa.Column("cpu_s", sa.Double(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("log_tail", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint("(outcome = 'failed') = (failure_class IS NOT NULL)", name=op.f("ck_attempts_failure")),
        sa.CheckConstraint("(outcome = 'running') = (ended_at IS NULL)", name=op.f("ck_attempts_ended")),
        sa.CheckConstraint("outcome IN ('running', 'ready', 'failed')", name=op.f("ck_attempts_outcome")),
        sa.ForeignKeyConstraint(["key_digest"], ["graph_keys.key_digest"], name=op.f("fk_attempts_key_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("compile_id", "generation", name=op.f("uq_attempts_compile_id_generation")),
    )
    op.create_index("ix_attempts_ended", "attempts", ["outcome", "ended_at"], unique=False)
    op.create_index("ix_attempts_key", "attempts", ["namespace", "key_digest"], unique=False)
    op.create_table(
        "manifest_keys",
        sa.Column("manifest_id", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["key_digest"], ["graph_keys.key_digest"], name=op.f("fk_manifest_keys_key_digest")),
        sa.ForeignKeyConstraint(
            ["manifest_id"], ["manifests.id"], name=op.f("fk_manifest_keys_manifest_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("manifest_id", "position", name=op.f("pk_manifest_keys")),
    )
    op.create_index("ix_manifest_keys_key", "manifest_keys", ["key_digest"], unique=False)
    op.create_table(
        "compiles",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("needs_weights", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=True),
        sa.Column("retry_alone", sa.Boolean(), nullable=False),
        sa.Column("needed_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.String(length=32), nullable=True),
        sa.Column("holder", sa.String(length=128), nullable=True),
        sa.Column("leased_at", sa.Double(), nullable=True),
        sa.Column("lease_expires_at", sa.Double(), nullable=True),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("progress", sa.Double(), nullable=True),
        sa.Column("artifact_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("failure_class", sa.String(length=16), nullable=True),
        sa.Column("failure_message", sa.Text(), server_default="", nullable=False),
        sa.Column("failure_log_tail", sa.Text(), server_default="", nullable=False),
        sa.Column("failed_until", sa.Double(), nullable=True),
        sa.Column("hits", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.CheckConstraint("(state = 'failed') = (failure_class IS NOT NULL)", name=op.f("ck_compiles_failure")),
        sa.CheckConstraint(
            "(state = 'leased') = (owner IS NOT NULL AND holder IS NOT NULL AND lease_expires_at IS NOT NULL)",
            name=op.f("ck_compiles_lease"),
        ),
        sa.CheckConstraint("(state = 'ready') = (artifact_id IS NOT NULL)", name=op.f("ck_compiles_artifact")),
        sa.CheckConstraint("state IN ('queued', 'leased', 'ready', 'failed')", name=op.f("ck_compiles_state")),
        sa.CheckConstraint("generation >= 0 AND attempts >= 0", name=op.f("ck_compiles_counts")),
        sa.CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name=op.f("ck_compiles_progress")),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifacts.id"], name=op.f("fk_compiles_artifact_id")),
        sa.ForeignKeyConstraint(["key_digest"], ["graph_keys.key_digest"], name=op.f("fk_compiles_key_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_compiles")),
        sa.UniqueConstraint("namespace", "key_digest", name=op.f("uq_compiles_namespace_key_digest")),
    )
    op.create_index("ix_compiles_artifact", "compiles", ["artifact_id"], unique=False)
    op.create_index(
        "ix_compiles_expiry",
        "compiles",
        ["lease_expires_at"],
        unique=False,
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.create_index("ix_compiles_key", "compiles", ["key_digest"], unique=False)
    op.create_index(
        "ix_compiles_queue",
        "compiles",
        ["toolchain", "priority", "queued_at"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index("ix_compiles_state", "compiles", ["state"], unique=False)
    op.create_table(
        "reports",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("artifact_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifacts.id"], name=op.f("fk_reports_artifact_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
        sa.UniqueConstraint("artifact_id", "owner", name=op.f("uq_reports_artifact_id_owner")),
    )
    op.execute("INSERT INTO clock (id, offset_s) VALUES (1, 0)")
    op.execute("INSERT INTO totals (id, blobs, blob_bytes) VALUES (1, 0, 0)")


def downgrade() -> None:
    op.drop_table("reports")
    op.drop_index("ix_compiles_state", table_name="compiles")
    op.drop_index(
        "ix_compiles_queue",
        table_name="compiles",
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.drop_index("ix_compiles_key", table_name="compiles")
    op.drop_index(
        "ix_compiles_expiry",
        table_name="compiles",
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.drop_index("ix_compiles_artifact", table_name="compiles")
    op.drop_table("compiles")
    op.drop_index("ix_manifest_keys_key", table_name="manifest_keys")
    op.drop_table("manifest_keys")
    op.drop_index("ix_attempts_key", table_name="attempts")
    op.drop_index("ix_attempts_ended", table_name="attempts")
    op.drop_table("attempts")
    op.drop_index(
        "uq_artifacts_standing",
        table_name="artifacts",
        sqlite_where=sa.text("state = 'standing'"),
        postgresql_where=sa.text("state = 'standing'"),
    )
    op.drop_index("ix_artifacts_producer", table_name="artifacts")
    op.drop_index("ix_artifacts_key", table_name="artifacts")
    op.drop_index("ix_artifacts_blob", table_name="artifacts")
    op.drop_table("artifacts")
    op.drop_table("workers")
    op.drop_table("wakeups")
    op.drop_index("ix_waits_ended", table_name="waits")
    op.drop_table("waits")
    op.drop_index("ix_usage_counts_key", table_name="usage_counts")
    op.drop_table("usage_counts")
    op.drop_index("ix_usage_batches_age", table_name="usage_batches")
    op.drop_table("usage_batches")
    op.drop_index("ix_uploads_expiry", table_name="uploads")
    op.drop_index("ix_uploads_compile", table_name="uploads")
    op.drop_table("uploads")
    op.drop_table("totals")
    op.drop_table("tokens")
    op.drop_index("ix_manifests_name", table_name="manifests")
    op.drop_table("manifests")
    op.drop_index(op.f("ix_graph_keys_toolchain"), table_name="graph_keys")
    op.drop_index("ix_graph_keys_shape", table_name="graph_keys")
    op.drop_table("graph_keys")
    op.drop_index("ix_evictions_at", table_name="evictions")
    op.drop_table("evictions")
    op.drop_table("clock")
    op.drop_index(
        "ix_blobs_doomed",
        table_name="blobs",
        sqlite_where=sa.text("doomed_at IS NOT NULL"),
        postgresql_where=sa.text("doomed_at IS NOT NULL"),
    )
    op.drop_index("ix_blobs_created", table_name="blobs")
    op.drop_table("blobs")
