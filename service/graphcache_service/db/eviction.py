"""SQL of eviction."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow, BlobRow, CompileRow, EvictionRow, ManifestKeyRow, ManifestRow


@dataclass(frozen=True, slots=True)
class Candidate:
    """A blob that may go, with all graphs that lead to it."""

    blob: str
    size_bytes: int
    compile_s: float
    """Of all its graphs together."""
    last_used_at: float
    graphs: int


def _last_used() -> ColumnElement[float]:
    used: ColumnElement[float] = func.coalesce(func.max(CompileRow.last_used_at), literal(0.0))
    fetched: ColumnElement[float] = func.coalesce(func.max(BlobRow.last_fetched_at), literal(0.0))
    # Neither database has a greatest() that the other has too.
    return (used + fetched + func.abs(used - fetched)) / 2.0


def _pinned() -> ColumnElement[bool]:
    """Whether a manifest pins a key of the blob, in whatever namespace."""
    return (
        select(literal(1))
        .select_from(ArtifactRow)
        .join(ManifestKeyRow, ManifestKeyRow.key_digest == ArtifactRow.key_digest)
        .join(ManifestRow, ManifestRow.id == ManifestKeyRow.manifest_id)
        .where(ArtifactRow.blob == BlobRow.digest, ArtifactRow.state == "standing", ManifestRow.pin)
        .correlate(BlobRow)
        .exists()
    )


async def candidates(session: AsyncSession, unused_since: float) -> list[Candidate]:
    """Blobs that were not used since ``unused_since`` and that no manifest pins. Goes through all blobs."""
    last_used = _last_used()
    rows = await session.execute(
        select(
            BlobRow.digest, BlobRow.size_bytes, func.sum(ArtifactRow.compile_s), last_used, func.count(CompileRow.id)
        )
        .join(ArtifactRow, (ArtifactRow.blob == BlobRow.digest) & (ArtifactRow.state == "standing"))
        .join(CompileRow, CompileRow.artifact_id == ArtifactRow.id)
        .where(BlobRow.doomed_at.is_(None), ~_pinned())
        .group_by(BlobRow.digest, BlobRow.size_bytes)
        .having(last_used <= unused_since)
    )
    return [Candidate(str(row[0]), int(row[1]), float(row[2]), float(row[3]), int(row[4])) for row in rows]


async def unprotected(session: AsyncSession, blobs: Sequence[str], unused_since: float) -> set[str]:
    """Which of these blobs are still not pinned and not used since."""
    used = (
        select(literal(1))
        .select_from(ArtifactRow)
        .join(CompileRow, CompileRow.artifact_id == ArtifactRow.id)
        .where(ArtifactRow.blob == BlobRow.digest, CompileRow.last_used_at > unused_since)
        .correlate(BlobRow)
        .exists()
    )
    rows = await session.scalars(select(BlobRow.digest).where(BlobRow.digest.in_(blobs), ~_pinned(), ~used))
    return set(rows)


async def forget_graphs(session: AsyncSession, blobs: Sequence[str], now: float) -> set[tuple[str, str]]:
    """Note the eviction of every graph of these blobs, forget its compile, and retire its artifact.

    Returns:
        Namespace and key of each.
    """
    artifacts = (
        await session.execute(
            select(ArtifactRow, CompileRow.last_used_at)
            .join(CompileRow, CompileRow.artifact_id == ArtifactRow.id)
            .where(ArtifactRow.blob.in_(blobs), ArtifactRow.state == "standing")
        )
    ).all()
    if not artifacts:
        return set()
    await session.execute(
        insert(EvictionRow),
        [
            {
                "namespace": one.namespace,
                "key_digest": one.key_digest,
                "blob": one.blob,
                "size_bytes": one.size_bytes,
                "age_s": max(0.0, now - (used or one.created_at)),
                "compile_s": one.compile_s,
                "evicted_at": now,
            }
            for one, used in artifacts
        ],
    )
    ids = [one.id for one, _ in artifacts]
    options = {"synchronize_session": False}
    await session.execute(delete(CompileRow).where(CompileRow.artifact_id.in_(ids)).execution_options(**options))
    await session.execute(
        update(ArtifactRow)
        .where(ArtifactRow.id.in_(ids))
        .values(state="evicted", ended_at=now, reason="evicted for the quota")
        .execution_options(**options)
    )
    return {(one.namespace, one.key_digest) for one, _ in artifacts}


async def forget_before(session: AsyncSession, before: float) -> None:
    """Remove what is on record of evictions before a time."""
    await session.execute(delete(EvictionRow).where(EvictionRow.evicted_at < before))
