"""SQL on who may read a blob."""

from collections.abc import Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import ArtifactRow

_READABLE_SIZE = (
    select(ArtifactRow.size_bytes)
    .where(
        ArtifactRow.blob == bindparam("digest"),
        ArtifactRow.namespace.in_(bindparam("namespaces", expanding=True)),
        ArtifactRow.state == "standing",
    )
    .limit(1)
)


async def readable_size(session: AsyncSession, digest: str, namespaces: Sequence[str]) -> int | None:
    """The size in bytes of a blob that a standing artifact in one of the namespaces names; None where there is none."""
    return await session.scalar(_READABLE_SIZE, {"digest": digest, "namespaces": list(namespaces)})
