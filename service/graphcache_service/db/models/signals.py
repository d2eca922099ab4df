"""What replicas and processes tell one another: the time, and that something changed."""

from sqlalchemy import CheckConstraint, Double, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Id, Rowid


class ClockRow(Base):
    """The fake part of the clock: one row. Production leaves it at null and 0; tests freeze and advance it."""

    __tablename__ = "clock"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    frozen_at: Mapped[float | None] = mapped_column(Double)
    offset_s: Mapped[float] = mapped_column(Double, server_default="0")
    served_at: Mapped[float | None] = mapped_column(Double)
    """When some replica last swept. Leases do not run while no replica serves."""


class WakeupRow(Base):
    """What changed, for processes that share a SQLite file. PostgreSQL uses NOTIFY."""

    __tablename__ = "wakeups"

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    topic: Mapped[str] = mapped_column(String(200))
    origin: Mapped[str] = mapped_column(Id)
    created_at: Mapped[float] = mapped_column(Double)
