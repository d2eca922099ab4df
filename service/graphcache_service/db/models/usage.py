"""What clients report and how long they wait; how often graphs are used stands in ``tallies``."""

from sqlalchemy import Double, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Digest, Id, NameText, Rowid


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
