"""SQL on reports."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow, ReportRow
from graphcache_service.db.upsert import upsert
from graphcache_wire.graphs import ReportRequest


async def record(session: AsyncSession, artifact_id: int, request: ReportRequest, now: float) -> None:
    """Take note of a report; one owner counts once for an artifact."""
    statement = upsert(session, ReportRow).values(
        artifact_id=artifact_id,
        owner=request.owner,
        holder=request.holder,
        reason=request.reason,
        message=request.message,
        created_at=now,
    )
    await session.execute(statement.on_conflict_do_nothing())


async def count(session: AsyncSession, artifact_id: int) -> int:
    """Reports about one artifact."""
    statement = select(func.count()).select_from(ReportRow).where(ReportRow.artifact_id == artifact_id)
    return int(await session.scalar(statement) or 0)


async def unusable_before(session: AsyncSession, namespace: str, key_digest: str) -> int:
    """Publications of a key that were quarantined for reports about them."""
    reported = select(ReportRow.id).where(ReportRow.artifact_id == ArtifactRow.id).exists()
    statement = (
        select(func.count())
        .select_from(ArtifactRow)
        .where(
            ArtifactRow.namespace == namespace,
            ArtifactRow.key_digest == key_digest,
            ArtifactRow.state == "quarantined",
            reported,
        )
    )
    return int(await session.scalar(statement) or 0)
