"""SQL on usage: what was used and fetched when, who waited, who offered what. Counters go to ``db.tallies``."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import (
    ArtifactRow,
    BlobRow,
    CompileRow,
    UsageBatchRow,
    WaitRow,
    WorkerRow,
)
from graphcache_service.db.upsert import upsert

ROWS_A_STATEMENT: Final = 500


async def mark_used(
    session: AsyncSession, used: Collection[tuple[str, str]], hits: Mapping[tuple[str, str], int], now: float
) -> None:
    """Note hits and the time of the last use of keys."""
    for namespace, key_digest in sorted(used):
        await session.execute(
            update(CompileRow)
            .where(CompileRow.namespace == namespace, CompileRow.key_digest == key_digest)
            .values(last_used_at=now, hits=CompileRow.hits + hits.get((namespace, key_digest), 0))
            .execution_options(synchronize_session=False)
        )


async def mark_fetched(session: AsyncSession, digests: Collection[str], now: float) -> None:
    """Note the time of the last fetch of blobs."""
    ordered = sorted(digests)
    for first in range(0, len(ordered), ROWS_A_STATEMENT):
        await session.execute(
            update(BlobRow)
            .where(BlobRow.digest.in_(ordered[first : first + ROWS_A_STATEMENT]))
            .values(last_fetched_at=now)
            .execution_options(synchronize_session=False)
        )


async def add_waits(session: AsyncSession, waits: list[dict[str, Any]]) -> None:
    """Record ended waits."""
    if waits:
        await session.execute(insert(WaitRow), waits)


async def mark_offers(session: AsyncSession, offers: list[dict[str, Any]]) -> None:
    """Note which toolchains workers offered, and when."""
    statement = upsert(session, WorkerRow)
    statement = statement.on_conflict_do_update(
        index_elements=[WorkerRow.owner, WorkerRow.toolchain], set_={"last_claim_at": statement.excluded.last_claim_at}
    )
    if offers:
        await session.execute(statement, sorted(offers, key=lambda row: (row["owner"], row["toolchain"])))


async def is_new_batch(session: AsyncSession, batch: str, owner: str, now: float) -> bool:
    """Take note of a client's batch; False where it was counted before."""
    statement = upsert(session, UsageBatchRow).values(batch=batch, owner=owner, created_at=now)
    row = await session.scalar(statement.on_conflict_do_nothing().returning(UsageBatchRow.batch))
    return row is not None


async def known_compile_s(
    session: AsyncSession, namespaces: Collection[str], key_digests: Collection[str]
) -> dict[str, tuple[str, float]]:
    """Namespace and compile seconds of the newest publication of each key; evicted ones count too."""
    rows = await session.execute(
        select(ArtifactRow.key_digest, ArtifactRow.namespace, ArtifactRow.compile_s)
        .where(ArtifactRow.key_digest.in_(key_digests), ArtifactRow.namespace.in_(namespaces))
        .where(ArtifactRow.state != "divergent")
        .order_by(ArtifactRow.id)
    )
    return {row.key_digest: (row.namespace, row.compile_s) for row in rows}


async def forget_before(session: AsyncSession, before: float) -> None:
    """Remove waits, batches and workers older than ``before``."""
    await session.execute(delete(WaitRow).where(WaitRow.ended_at < before))
    await session.execute(delete(UsageBatchRow).where(UsageBatchRow.created_at < before))
    await session.execute(delete(WorkerRow).where(WorkerRow.last_claim_at < before))
