"""SQL of the sweeper."""

from dataclasses import dataclass

from sqlalchemy import Select, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db import clock, hedges
from graphcache_service.db.models import ClockRow, CompileRow


@dataclass(frozen=True, slots=True)
class Due:
    """What a sweep found. ``startable``: namespace and key of compiles whose back-off ended since the last sweep."""

    now: float
    expired: int
    startable: list[tuple[str, str]]


def startable_statement(now: float, swept_until: float) -> Select[str, str]:
    """Compiles whose back-off ended between two times: only what is queued has one."""
    return select(CompileRow.namespace, CompileRow.key_digest).where(
        CompileRow.not_before <= now, CompileRow.not_before > swept_until
    )


async def due(session: AsyncSession, swept_until: float | None) -> Due:
    """What there is to do; reads alone."""
    now = await clock.now(session)
    expired = await session.scalar(
        select(func.count())
        .select_from(CompileRow)
        .where(CompileRow.state == "leased", CompileRow.lease_expires_at <= now)
    )
    rows = await session.execute(startable_statement(now, 0.0 if swept_until is None else swept_until))
    return Due(now, int(expired or 0), [(row.namespace, row.key_digest) for row in rows])


async def served_at(session: AsyncSession) -> float | None:
    """When some replica last swept."""
    return await session.scalar(select(ClockRow.served_at))


async def mark_served(session: AsyncSession, now: float) -> None:
    """Some replica is alive at ``now``."""
    await session.execute(update(ClockRow).values(served_at=now))


async def extend_leases(session: AsyncSession, lived_at: float, by_s: float) -> None:
    """Move the end of the leases that were live at ``lived_at``, hedges included."""
    await hedges.extend(session, lived_at, by_s)
    await session.execute(
        update(CompileRow)
        .where(CompileRow.state == "leased", CompileRow.lease_expires_at > lived_at)
        .values(lease_expires_at=CompileRow.lease_expires_at + by_s)
        .execution_options(synchronize_session=False)
    )
