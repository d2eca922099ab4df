"""Compiles and who works at them.

One row of ``compiles`` a namespace and key: its unique constraint decides who creates it, CHECKs hold the state
machine, and ``generation`` fences.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Digest, Id, NameText, Rowid


class CompileRow(Base):
    """The wish for one key in one namespace, and its lease while somebody compiles."""

    __tablename__ = "compiles"
    __table_args__ = (
        UniqueConstraint("namespace", "key_digest"),
        CheckConstraint("state IN ('queued', 'leased', 'ready', 'failed')", name="state"),
        CheckConstraint(
            "(state = 'leased') = (owner IS NOT NULL AND holder IS NOT NULL AND lease_expires_at IS NOT NULL)",
            name="lease",
        ),
        CheckConstraint("(state = 'ready') = (artifact_id IS NOT NULL)", name="artifact"),
        CheckConstraint("(state = 'failed') = (failure_class IS NOT NULL)", name="failure"),
        CheckConstraint("generation >= 0 AND attempts >= 0", name="counts"),
        CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress"),
        Index(
            "ix_compiles_queue",
            "toolchain",
            "priority",
            "queued_at",
            sqlite_where=text("state = 'queued'"),
            postgresql_where=text("state = 'queued'"),
        ),
        Index(
            "ix_compiles_expiry",
            "lease_expires_at",
            sqlite_where=text("state = 'leased'"),
            postgresql_where=text("state = 'leased'"),
        ),
        Index(
            "ix_compiles_backoff",
            "not_before",
            sqlite_where=text("not_before IS NOT NULL"),
            postgresql_where=text("not_before IS NOT NULL"),
        ),
        Index("ix_compiles_state", "state"),
        Index("ix_compiles_key", "key_digest"),
        Index("ix_compiles_artifact", "artifact_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    key_digest: Mapped[str] = mapped_column(Digest, ForeignKey("graph_keys.key_digest"))
    toolchain: Mapped[str] = mapped_column(String(160))
    needs_weights: Mapped[bool] = mapped_column(Boolean)
    """A baked graph: only an asker that has the weights can compile it, so no worker is offered it."""
    state: Mapped[str] = mapped_column(String(16))
    generation: Mapped[int] = mapped_column(Integer)
    priority: Mapped[int] = mapped_column(Integer)
    attempts: Mapped[int] = mapped_column(Integer)
    """Attempts that count against the limit since the last publication or explicit retry."""
    created_at: Mapped[float] = mapped_column(Double)
    queued_at: Mapped[float] = mapped_column(Double)
    not_before: Mapped[float | None] = mapped_column(Double)
    retry_alone: Mapped[bool] = mapped_column(Boolean)
    """The last attempt ran out of memory: offered only to a worker that is alone or has more than this."""
    needed_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    owner: Mapped[str | None] = mapped_column(Id)
    holder: Mapped[str | None] = mapped_column(NameText)
    leased_at: Mapped[float | None] = mapped_column(Double)
    lease_expires_at: Mapped[float | None] = mapped_column(Double)
    heartbeat_at: Mapped[float | None] = mapped_column(Double)
    phase: Mapped[str | None] = mapped_column(String(16))
    progress: Mapped[float | None] = mapped_column(Double)
    artifact_id: Mapped[int | None] = mapped_column(Rowid, ForeignKey("artifacts.id"))
    failure_class: Mapped[str | None] = mapped_column(String(16))
    failure_message: Mapped[str] = mapped_column(Text, server_default="")
    failure_log_tail: Mapped[str] = mapped_column(Text, server_default="")
    failed_until: Mapped[float | None] = mapped_column(Double)
    hits: Mapped[int] = mapped_column(BigInteger, server_default="0")
    last_used_at: Mapped[float | None] = mapped_column(Double)


class HedgeRow(Base):
    """A second attempt at a compile whose lease runs far past its history. For its holder it stands where a compile
    would: its own id and lease. ``generation`` is that of the lease it hedges. ``late``: another published first.
    """

    __tablename__ = "hedges"
    __table_args__ = (
        UniqueConstraint("compile_id", "generation"),
        CheckConstraint("state IN ('leased', 'ready', 'failed', 'lost', 'late')", name="state"),
        CheckConstraint("(state = 'leased') = (ended_at IS NULL)", name="ended"),
        CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress"),
        Index(
            "uq_hedges_live",
            "compile_id",
            unique=True,
            sqlite_where=text("state = 'leased'"),
            postgresql_where=text("state = 'leased'"),
        ),
        Index(
            "ix_hedges_expiry",
            "lease_expires_at",
            sqlite_where=text("state = 'leased'"),
            postgresql_where=text("state = 'leased'"),
        ),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    compile_id: Mapped[str] = mapped_column(Id, ForeignKey("compiles.id", ondelete="CASCADE"))
    generation: Mapped[int] = mapped_column(Integer)
    namespace: Mapped[str] = mapped_column(NameText)
    key_digest: Mapped[str] = mapped_column(Digest)
    toolchain: Mapped[str] = mapped_column(String(160))
    state: Mapped[str] = mapped_column(String(16))
    owner: Mapped[str] = mapped_column(Id)
    holder: Mapped[str] = mapped_column(NameText)
    leased_at: Mapped[float] = mapped_column(Double)
    lease_expires_at: Mapped[float] = mapped_column(Double)
    heartbeat_at: Mapped[float] = mapped_column(Double)
    phase: Mapped[str | None] = mapped_column(String(16))
    progress: Mapped[float | None] = mapped_column(Double)
    ended_at: Mapped[float | None] = mapped_column(Double)


LeasedRow = CompileRow | HedgeRow
"""What a lease is granted on."""


class AttemptRow(Base):
    """One try under one lease. ``compile_id`` is a hedge's own id where the lease was a hedge."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("compile_id", "generation"),
        CheckConstraint("outcome IN ('running', 'ready', 'failed')", name="outcome"),
        CheckConstraint("(outcome = 'running') = (ended_at IS NULL)", name="ended"),
        CheckConstraint("(outcome = 'failed') = (failure_class IS NOT NULL)", name="failure"),
        Index("ix_attempts_key", "namespace", "key_digest"),
        Index("ix_attempts_ended", "outcome", "ended_at"),
    )

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    compile_id: Mapped[str] = mapped_column(Id)
    generation: Mapped[int] = mapped_column(Integer)
    namespace: Mapped[str] = mapped_column(NameText)
    key_digest: Mapped[str] = mapped_column(Digest, ForeignKey("graph_keys.key_digest"))
    owner: Mapped[str] = mapped_column(Id)
    holder: Mapped[str] = mapped_column(NameText)
    toolchain: Mapped[str] = mapped_column(String(160))
    started_at: Mapped[float] = mapped_column(Double)
    ended_at: Mapped[float | None] = mapped_column(Double)
    outcome: Mapped[str] = mapped_column(String(16))
    failure_class: Mapped[str | None] = mapped_column(String(16))
    message: Mapped[str] = mapped_column(Text, server_default="")
    compile_s: Mapped[float | None] = mapped_column(Double)
    cpu_s: Mapped[float | None] = mapped_column(Double)
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    log_tail: Mapped[str] = mapped_column(Text, server_default="")


class WorkerRow(Base):
    """A toolchain that a worker offered, and when it last did."""

    __tablename__ = "workers"

    owner: Mapped[str] = mapped_column(Id, primary_key=True)
    toolchain: Mapped[str] = mapped_column(String(160), primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    holder: Mapped[str] = mapped_column(NameText)
    last_claim_at: Mapped[float] = mapped_column(Double)
