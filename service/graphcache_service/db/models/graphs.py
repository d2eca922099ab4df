"""What was asked for, and what was published for it. A row of ``graph_keys`` is immutable and outlives eviction."""

from sqlalchemy import (
    BigInteger,
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
