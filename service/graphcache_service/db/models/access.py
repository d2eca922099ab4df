"""Who may call."""

from sqlalchemy import CheckConstraint, Double, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Digest, Id, NameText


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
