"""SQL of what statistics tell beside the running totals: waits, evictions, uploads, toolchains."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, String, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import EvictionRow, GraphKeyRow, UploadRow, WaitRow, WorkerRow
from graphcache_service.db.tallies import Filter, Group

NEWEST = 5_000
"""Percentiles come from this many of the newest waits and evictions: enough for a p99, and read in milliseconds."""


async def waits(session: AsyncSession, which: Filter) -> list[tuple[Group, float]]:
    """Group, seconds of each of the newest waits."""
    asked: list[ColumnElement[Any]] = [cast(getattr(GraphKeyRow, name), String) for name in which.columns]
    newest: Select[Any] = (
        select(*asked, WaitRow.wait_s)
        .join(GraphKeyRow, GraphKeyRow.key_digest == WaitRow.key_digest)
        .where(WaitRow.namespace.in_(which.namespaces), WaitRow.ended_at >= (which.since or 0))
        .order_by(WaitRow.ended_at.desc())
        .limit(NEWEST)
    )
    return [(tuple(row[:-1]), float(row[-1])) for row in await session.execute(newest)]


async def reserved_bytes(session: AsyncSession) -> int:
    """Bytes of uploads under way."""
    return int(await session.scalar(select(func.coalesce(func.sum(UploadRow.size_bytes), 0))) or 0)


async def evicted_ages(session: AsyncSession, namespaces: Sequence[str], since: float) -> list[float]:
    """Seconds between last use and eviction of the newest evictions."""
    ages = await session.scalars(
        select(EvictionRow.age_s)
        .where(EvictionRow.namespace.in_(namespaces), EvictionRow.evicted_at >= since)
        .order_by(EvictionRow.evicted_at.desc())
        .limit(NEWEST)
    )
    return [float(age) for age in ages]


async def toolchains_seen(session: AsyncSession, namespaces: Sequence[str]) -> list[tuple[str, int, float]]:
    """Toolchain, number of workers that offered it, time of the last offer; newest first."""
    rows = await session.execute(
        select(WorkerRow.toolchain, func.count(), func.max(WorkerRow.last_claim_at))
        .where(WorkerRow.namespace.in_(namespaces))
        .group_by(WorkerRow.toolchain)
        .order_by(func.max(WorkerRow.last_claim_at).desc(), WorkerRow.toolchain)
        .limit(100)
    )
    return [(str(row[0]), int(row[1]), float(row[2])) for row in rows]
