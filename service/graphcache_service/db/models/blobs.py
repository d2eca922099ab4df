"""Bytes that the store holds, and those on their way."""

from sqlalchemy import BigInteger, CheckConstraint, Double, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Digest, Id


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
