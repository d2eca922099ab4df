"""SQL on who may read a blob."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow


async def may_read(session: AsyncSession, digest: str, namespaces: Sequence[str]) -> bool:
    """Whether a standing artifact in one of the namespaces has these bytes."""
    statement = (
        select(ArtifactRow.id)
        .where(ArtifactRow.blob == digest, ArtifactRow.namespace.in_(namespaces), ArtifactRow.state == "standing")
        .limit(1)
    )
    return await session.scalar(statement) is not None
