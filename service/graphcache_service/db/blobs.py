"""SQL on blobs: the record of bytes that the store holds whole and checked."""

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import BlobRow
from graphcache_service.db.upsert import upsert


async def blob(session: AsyncSession, digest: str) -> BlobRow | None:
    """The row of a blob."""
    return await session.scalar(
        select(BlobRow).where(BlobRow.digest == digest).execution_options(populate_existing=True)
    )


async def record_blob(session: AsyncSession, digest: str, size_bytes: int, now: float) -> None:
    """Record bytes that were stored and checked; clears the collector's mark where it is set. Safe to repeat."""
    statement = upsert(session, BlobRow).values(
        digest=digest, size_bytes=size_bytes, created_at=now, last_fetched_at=now
    )
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=[BlobRow.digest],
            set_={"doomed_at": None, "size_bytes": size_bytes, "last_fetched_at": now},
        )
    )


async def forget_blob(session: AsyncSession, digest: str) -> None:
    """Remove the row of bytes that are gone."""
    await session.execute(delete(BlobRow).where(BlobRow.digest == digest))


async def stored(session: AsyncSession) -> tuple[int, int]:
    """How many blobs are recorded, and their bytes."""
    row = (await session.execute(select(func.count(), func.coalesce(func.sum(BlobRow.size_bytes), 0)))).one()
    return int(row[0]), int(row[1])
