"""SQL on who may read a blob."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow


async def readable_size(session: AsyncSession, digest: str, namespaces: Sequence[str]) -> int | None:
    """The size in bytes of a blob that a standing artifact in one of the namespaces names; None where there is none."""
    return await session.scalar(
        select(ArtifactRow.size_bytes)
        .where(ArtifactRow.blob == digest, ArtifactRow.namespace.in_(namespaces), ArtifactRow.state == "standing")
        .limit(1)
    )
