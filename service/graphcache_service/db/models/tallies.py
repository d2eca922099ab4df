"""Running totals, so that statistics need not read what they tell of.

Triggers (migration 0003) and the writer of usage append to ``journal`` what changed, and contend for no row; the fold
(``db.tallies``) then adds it to ``tallies`` and, where it happened at a time, to ``periods``. What is true is always
the sum of both.

``what``: compile_STATE, artifact_STATE (how many there are now; bytes), attempt_OUTCOME (ended; seconds spent), evicted
(bytes), and the events of usage (seconds of compile saved).
"""

from sqlalchemy import BigInteger, Double, Index, Integer, String, text
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, NameText, Rowid

What = String(32)


class JournalRow(Base):
    """What changed and is not yet added up. ``at`` is NULL for what has no time: how many there are now."""

    __tablename__ = "journal"

    id: Mapped[int] = mapped_column(Rowid, primary_key=True)
    at: Mapped[float | None] = mapped_column(Double)
    namespace: Mapped[str] = mapped_column(NameText)
    toolchain: Mapped[str] = mapped_column(String(160))
    kind: Mapped[str] = mapped_column(String(32))
    bucket: Mapped[int] = mapped_column(Integer)
    what: Mapped[str] = mapped_column(What)
    number: Mapped[int] = mapped_column(BigInteger)
    amount: Mapped[float] = mapped_column(Double)


class TallyRow(Base):
    """The sum of all time."""

    __tablename__ = "tallies"

    namespace: Mapped[str] = mapped_column(NameText, primary_key=True)
    toolchain: Mapped[str] = mapped_column(String(160), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    bucket: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    what: Mapped[str] = mapped_column(What, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    amount: Mapped[float] = mapped_column(Double)


class PeriodRow(Base):
    """The sum of one minute; of one day (UTC) where it is longer ago."""

    __tablename__ = "periods"
    __table_args__ = (
        Index(
            "ix_periods_minutes",
            "period_start",
            sqlite_where=text("period_start % 86400 <> 0"),
            postgresql_where=text("period_start % 86400 <> 0"),
        ),
    )

    period_start: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    namespace: Mapped[str] = mapped_column(NameText, primary_key=True)
    toolchain: Mapped[str] = mapped_column(String(160), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    bucket: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    what: Mapped[str] = mapped_column(What, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    amount: Mapped[float] = mapped_column(Double)
