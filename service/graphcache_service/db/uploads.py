"""SQL on uploads: bytes reserved against the quota before a body is read."""

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.clock import database_now
from graphcache_service.db.models import BlobRow, CompileRow, UploadRow

_GATE = (
    select(CompileRow, BlobRow, database_now())
    .outerjoin(BlobRow, BlobRow.digest == bindparam("digest"))
    .where(CompileRow.id == bindparam("compile_id"))
    .execution_options(populate_existing=True)
)
"""Built once: building it costs as much as running it."""


async def gate(session: AsyncSession, compile_id: str, digest: str) -> tuple[CompileRow, BlobRow | None, float] | None:
    """In one question: a compile, the record of a blob, and the database's time; None without such a compile."""
    row = (await session.execute(_GATE, {"compile_id": compile_id, "digest": digest})).one_or_none()
    return None if row is None else (row[0], row[1], float(row[2]))


async def reserve(session: AsyncSession, row: UploadRow) -> None:
    """Record a reservation."""
    session.add(row)
    await session.flush()


async def extend(session: AsyncSession, upload_id: str, expires_at: float) -> None:
    """The upload goes on."""
    await session.execute(update(UploadRow).where(UploadRow.id == upload_id).values(expires_at=expires_at))


async def release(session: AsyncSession, upload_id: str) -> None:
    """The upload ended, either way. Safe to repeat."""
    await session.execute(delete(UploadRow).where(UploadRow.id == upload_id))


async def release_expired(session: AsyncSession, now: float) -> None:
    """Reservations of processes that died with an upload under way."""
    await session.execute(delete(UploadRow).where(UploadRow.expires_at <= now))


async def reserved_bytes(session: AsyncSession) -> int:
    """All that is reserved."""
    return int(await session.scalar(select(func.coalesce(func.sum(UploadRow.size_bytes), 0))) or 0)
