"""How often and how well graphs are used."""

from sqlalchemy import BigInteger, Double, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Digest, Id, NameText, Rowid


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
