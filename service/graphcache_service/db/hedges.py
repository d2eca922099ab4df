"""SQL on hedges. A hedge is locked after its compile, always: whoever holds the compile's row may change its hedge."""

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import CompileRow, HedgeRow
from graphcache_service.db.upsert import upsert


async def lock(session: AsyncSession, hedge_id: str) -> HedgeRow | None:
    """A hedge and its compile, both locked until the transaction ends."""
    compile_id = await session.scalar(select(HedgeRow.compile_id).where(HedgeRow.id == hedge_id))
    if compile_id is None:
        return None
    await session.execute(select(CompileRow.id).where(CompileRow.id == compile_id).with_for_update())
    return await session.scalar(
        select(HedgeRow).where(HedgeRow.id == hedge_id).with_for_update().execution_options(populate_existing=True)
    )


async def compile_of(session: AsyncSession, hedge: HedgeRow) -> CompileRow:
    """The compile that it hedges."""
    rows = await session.scalars(
        select(CompileRow).where(CompileRow.id == hedge.compile_id).execution_options(populate_existing=True)
    )
    return rows.one()


async def unhedged(
    session: AsyncSession, namespace: str, toolchains: Sequence[str], owner: str, now: float, limit: int
) -> list[CompileRow]:
    """Live leases of others that were never hedged, those that run longest first; none that needs weights."""
    hedged = (
        select(HedgeRow.id)
        .where(
            HedgeRow.compile_id == CompileRow.id,
            (HedgeRow.generation == CompileRow.generation) | (HedgeRow.state == "leased"),
        )
        .correlate(CompileRow)
        .exists()
    )
    rows = await session.scalars(
        select(CompileRow)
        .where(
            CompileRow.state == "leased",
            CompileRow.lease_expires_at > now,
            CompileRow.namespace == namespace,
            CompileRow.toolchain.in_(toolchains),
            CompileRow.needs_weights.is_(False),
            CompileRow.owner != owner,
            ~hedged,
        )
        .order_by(CompileRow.leased_at, CompileRow.id)
        .limit(limit)
    )
    return list(rows)


async def begin(
    session: AsyncSession, row: CompileRow, owner: str, holder: str, now: float, ttl_s: float
) -> HedgeRow | None:
    """Lease a hedge of a compile; None where it has one. The unique constraints decide between two who ask at once."""
    values: dict[str, Any] = {
        "id": secrets.token_hex(16),
        "compile_id": row.id,
        "generation": row.generation,
        "namespace": row.namespace,
        "key_digest": row.key_digest,
        "toolchain": row.toolchain,
        "state": "leased",
        "owner": owner,
        "holder": holder,
        "leased_at": now,
        "heartbeat_at": now,
        "lease_expires_at": now + ttl_s,
        "phase": "starting",
    }
    hedge: HedgeRow | None = await session.scalar(
        upsert(session, HedgeRow).values(values).on_conflict_do_nothing().returning(HedgeRow)
    )
    return hedge


async def live(session: AsyncSession, compile_id: str) -> HedgeRow | None:
    """The hedge of a compile whose row the transaction has locked, while it lives."""
    return await session.scalar(
        select(HedgeRow)
        .where(HedgeRow.compile_id == compile_id, HedgeRow.state == "leased")
        .with_for_update()
        .execution_options(populate_existing=True)
    )


async def expired(session: AsyncSession, now: float, limit: int) -> list[str]:
    """Ids of hedges whose lease ran out."""
    rows = await session.scalars(
        select(HedgeRow.id)
        .join(CompileRow, CompileRow.id == HedgeRow.compile_id)
        .where(HedgeRow.state == "leased", HedgeRow.lease_expires_at <= now)
        .order_by(CompileRow.namespace, CompileRow.key_digest)  # the lock order of whoever changes many rows
        .limit(limit)
    )
    return list(rows)


async def extend(session: AsyncSession, lived_at: float, by_s: float) -> None:
    """Move the end of the hedges that were live at ``lived_at``."""
    await session.execute(
        update(HedgeRow)
        .where(HedgeRow.state == "leased", HedgeRow.lease_expires_at > lived_at)
        .values(lease_expires_at=HedgeRow.lease_expires_at + by_s)
        .execution_options(synchronize_session=False)
    )


async def forget_before(session: AsyncSession, before: float) -> None:
    """Remove hedges that ended before a time; their attempts are on record."""
    await session.execute(
        delete(HedgeRow).where(HedgeRow.ended_at < before).execution_options(synchronize_session=False)
    )
