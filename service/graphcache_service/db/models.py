"""The tables. Times are seconds since 1970 by the database's clock; sizes are bytes; digests are lower-case hex.

One row of ``compiles`` a namespace and key: its unique constraint decides who creates it, CHECKs hold the state
machine, and ``generation`` fences. A row of ``graph_keys`` is immutable and outlives eviction: history stays readable.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

Id = String(32)
Digest = String(64)
NameText = String(128)
Rowid = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column of type INTEGER."""


class Base(DeclarativeBase):
    """All tables of the service."""

    metadata = MetaData(naming_convention=NAMING)


class ClockRow(Base):
    """The fake part of the clock: one row. Production leaves it at null and 0; tests freeze and advance it."""

    __tablename__ = "clock"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    frozen_at: Mapped[float | None] = mapped_column(Double)
    offset_s: Mapped[float] = mapped_column(Double, server_default="0")
    served_at: Mapped[float | None] = mapped_column(Double)
    """When some replica last swept. Leases do not run while no replica serves."""


class GraphKeyRow(Base):
    """A key that somebody asked for, with the fields that people filter by."""

    __tablename__ = "graph_keys"
    __table_args__ = (Index("ix_graph_keys_shape", "kind", "e_hot", "h", "f", "bucket"),)

    key_digest: Mapped[str] = mapped_column(Digest, primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    e_hot: Mapped[int] = mapped_column(Integer)
    h: Mapped[int] = mapped_column(Integer)
    f: Mapped[int] = mapped_column(Integer)
    bucket: Mapped[int] = mapped_column(Integer)
    toolchain: Mapped[str] = mapped_column(String(160), index=True)
    key_json: Mapped[str] = mapped_column(Text)


class ArtifactRow(Base):
    """A publication. ``standing`` is the one its key leads to; the other states are kept for the record."""

    __tablename__ = "artifacts"
    __table_args__ = (
        CheckConstraint("state IN ('standing', 'divergent', 'quarantined', 'evicted', 'lost')", name="state"),
        CheckConstraint("size_bytes >= 0 AND compile_s >= 0", name="sizes"),
        CheckConstraint("(signature IS NULL) = (public_key IS NULL)", name="signature"),
        Index("ix_artifacts_key", "namespace", "key_digest"),
        Index("ix_artifacts_blob", "blob"),
        Index("ix_artifacts_producer", "producer", "created_at"),
        Index(
            "uq_artifacts_standing",
            "namespace",
            "key_digest",
            unique=True,
            sqlite_where=text("state = 'standing'"),
            postgresql_where=text("state = 'standing'"),
        ),
    )

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    key_digest: Mapped[str] = mapped_column(Digest, ForeignKey("graph_keys.key_digest"))
    compile_id: Mapped[str] = mapped_column(Id)
    generation: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(16))
    blob: Mapped[str] = mapped_column(Digest)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    toolchain: Mapped[str] = mapped_column(String(160))
    compile_s: Mapped[float] = mapped_column(Double)
    producer: Mapped[str] = mapped_column(NameText)
    producer_id: Mapped[str] = mapped_column(Id)
    created_at: Mapped[float] = mapped_column(Double)
    public_key: Mapped[str | None] = mapped_column(String(64))
    signature: Mapped[str | None] = mapped_column(String(128))
    ended_at: Mapped[float | None] = mapped_column(Double)
    reason: Mapped[str] = mapped_column(Text, server_default="")


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


class BlobRow(Base):
    """Bytes that the store holds whole and checked. Written after the bytes, removed before them."""

    __tablename__ = "blobs"
    __table_args__ = (
        CheckConstraint("size_bytes >= 0", name="size"),
        Index(
            "ix_blobs_doomed",
            "doomed_at",
            sqlite_where=text("doomed_at IS NOT NULL"),
            postgresql_where=text("doomed_at IS NOT NULL"),
        ),
        Index("ix_blobs_created", "created_at"),
    )

    digest: Mapped[str] = mapped_column(Digest, primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[float] = mapped_column(Double)
    last_fetched_at: Mapped[float | None] = mapped_column(Double)
    doomed_at: Mapped[float | None] = mapped_column(Double)
    """Marked by the collector: the bytes go next, then the row. An upload of the same digest clears it."""


class TotalsRow(Base):
    """How much is stored: one row, kept by whoever adds or removes a blob, so that no upload counts them all."""

    __tablename__ = "totals"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    blobs: Mapped[int] = mapped_column(BigInteger, server_default="0")
    blob_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")


class UploadRow(Base):
    """Bytes reserved against the quota before a body is read."""

    __tablename__ = "uploads"
    __table_args__ = (
        CheckConstraint("size_bytes >= 0 AND received_bytes >= 0 AND received_bytes <= size_bytes", name="sizes"),
        Index("ix_uploads_expiry", "expires_at"),
        Index("ix_uploads_compile", "compile_id", "generation"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    compile_id: Mapped[str] = mapped_column(Id)
    generation: Mapped[int] = mapped_column(Integer)
    digest: Mapped[str] = mapped_column(Digest)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    received_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")
    created_at: Mapped[float] = mapped_column(Double)
    expires_at: Mapped[float] = mapped_column(Double)


class ManifestRow(Base):
    """The keys that a job will need."""

    __tablename__ = "manifests"
    __table_args__ = (Index("ix_manifests_name", "namespace", "name"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    name: Mapped[str] = mapped_column(NameText)
    priority: Mapped[int] = mapped_column(Integer)
    pin: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[float] = mapped_column(Double)


class ManifestKeyRow(Base):
    """One key of a manifest, in the order given."""

    __tablename__ = "manifest_keys"
    __table_args__ = (Index("ix_manifest_keys_key", "key_digest"),)

    manifest_id: Mapped[str] = mapped_column(Id, ForeignKey("manifests.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    key_digest: Mapped[str] = mapped_column(Digest, ForeignKey("graph_keys.key_digest"))


class ReportRow(Base):
    """A client could not use an artifact. One owner counts once."""

    __tablename__ = "reports"
    __table_args__ = (UniqueConstraint("artifact_id", "owner"),)

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    artifact_id: Mapped[int] = mapped_column(Rowid, ForeignKey("artifacts.id"))
    owner: Mapped[str] = mapped_column(Id)
    holder: Mapped[str] = mapped_column(NameText)
    reason: Mapped[str] = mapped_column(String(16))
    message: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(Double)


class UsageRow(Base):
    """Counters of one key in one period. ``event`` is hit_memory, hit_disk, hit_service, miss, error, joined_*."""

    __tablename__ = "usage_counts"
    __table_args__ = (Index("ix_usage_counts_key", "key_digest"),)

    period_start: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    namespace: Mapped[str] = mapped_column(NameText, primary_key=True)
    key_digest: Mapped[str] = mapped_column(Digest, primary_key=True)
    event: Mapped[str] = mapped_column(String(20), primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    saved_s: Mapped[float] = mapped_column(Double)
    """Seconds of compile that these did not have to spend."""


class UsageBatchRow(Base):
    """A client's batch that was counted, so that a repetition counts once."""

    __tablename__ = "usage_batches"
    __table_args__ = (Index("ix_usage_batches_age", "created_at"),)

    batch: Mapped[str] = mapped_column(Id, primary_key=True)
    owner: Mapped[str] = mapped_column(Id)
    created_at: Mapped[float] = mapped_column(Double)


class WaitRow(Base):
    """How long one asker waited for another's compile, for percentiles."""

    __tablename__ = "waits"
    __table_args__ = (Index("ix_waits_ended", "ended_at"),)

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    key_digest: Mapped[str] = mapped_column(Digest)
    ended_at: Mapped[float] = mapped_column(Double)
    wait_s: Mapped[float] = mapped_column(Double)
    outcome: Mapped[str] = mapped_column(String(16))


class EvictionRow(Base):
    """What was evicted, and how long after its last use."""

    __tablename__ = "evictions"
    __table_args__ = (Index("ix_evictions_at", "evicted_at"),)

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    key_digest: Mapped[str] = mapped_column(Digest)
    blob: Mapped[str] = mapped_column(Digest)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    age_s: Mapped[float] = mapped_column(Double)
    compile_s: Mapped[float] = mapped_column(Double)
    evicted_at: Mapped[float] = mapped_column(Double)


class TokenRow(Base):
    """A token, stored as its sha256."""

    __tablename__ = "tokens"
    __table_args__ = (CheckConstraint("scope IN ('read', 'compile', 'admin')", name="scope"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(NameText)
    token_sha256: Mapped[str] = mapped_column(Digest, unique=True)
    scope: Mapped[str] = mapped_column(String(16))
    namespace: Mapped[str] = mapped_column(NameText)
    reads_json: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float] = mapped_column(Double)
    expires_at: Mapped[float | None] = mapped_column(Double)
    revoked_at: Mapped[float | None] = mapped_column(Double)


class WorkerRow(Base):
    """A toolchain that a worker offered, and when it last did."""

    __tablename__ = "workers"

    owner: Mapped[str] = mapped_column(Id, primary_key=True)
    toolchain: Mapped[str] = mapped_column(String(160), primary_key=True)
    namespace: Mapped[str] = mapped_column(NameText)
    holder: Mapped[str] = mapped_column(NameText)
    last_claim_at: Mapped[float] = mapped_column(Double)


class WakeupRow(Base):
    """What changed, for processes that share a SQLite file. PostgreSQL uses NOTIFY."""

    __tablename__ = "wakeups"

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    topic: Mapped[str] = mapped_column(String(200))
    origin: Mapped[str] = mapped_column(Id)
    created_at: Mapped[float] = mapped_column(Double)
