"""Manifests and their keys."""

from sqlalchemy import Boolean, Double, ForeignKey, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from graphcache_service.db.models.base import Base, Digest, Id, NameText


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
