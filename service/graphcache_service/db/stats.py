"""SQL of statistics: sums by group. The group is a column of the key, or one constant for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Double, String, cast, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import (
    ArtifactRow,
    AttemptRow,
    CompileRow,
    EvictionRow,
    GraphKeyRow,
    UploadRow,
    UsageRow,
    WaitRow,
    WorkerRow,
)

NEWEST_WAITS = 20_000
"""Percentiles come from this many of the newest waits."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows count, and how they are grouped."""

    namespaces: Sequence[str]
    since: float
    group_by: str | None

    def group(self) -> ColumnElement[Any]:
        """The group's name as text."""
        if self.group_by is None:
            return literal("all")
        return cast({"kind": GraphKeyRow.kind, "toolchain": GraphKeyRow.toolchain, "bucket": GraphKeyRow.bucket}[
            self.group_by
        ], String)


async def usage_sums(session: AsyncSession, which: Filter) -> list[tuple[str, str, int, float]]:
    """Group, event, count, seconds saved."""
    group = which.group().label("grouped")
    rows = await session.execute(
        select(group, UsageRow.event, func.sum(UsageRow.count), func.sum(UsageRow.saved_s))
        .join(GraphKeyRow, GraphKeyRow.key_digest == UsageRow.key_digest)
        .where(UsageRow.namespace.in_(which.namespaces), UsageRow.period_start >= which.since)
        .group_by(group, UsageRow.event)
    )
    return [(str(row[0]), str(row[1]), int(row[2]), float(row[3])) for row in rows]


async def compile_counts(session: AsyncSession, which: Filter) -> list[tuple[str, str, int]]:
    """Group, state, number of keys as they stand now."""
    group = which.group().label("grouped")
    rows = await session.execute(
        select(group, CompileRow.state, func.count())
        .join(GraphKeyRow, GraphKeyRow.key_digest == CompileRow.key_digest)
        .where(CompileRow.namespace.in_(which.namespaces))
        .group_by(group, CompileRow.state)
    )
    return [(str(row[0]), str(row[1]), int(row[2])) for row in rows]


async def attempt_counts(session: AsyncSession, which: Filter) -> list[tuple[str, str, int, float]]:
    """Group, outcome or failure class, number, seconds spent (the lease's length where the holder told none)."""
    group = which.group().label("grouped")
    outcome = func.coalesce(AttemptRow.failure_class, AttemptRow.outcome).label("ended_as")
    spent = func.coalesce(AttemptRow.compile_s, AttemptRow.ended_at - AttemptRow.started_at)
    rows = await session.execute(
        select(group, outcome, func.count(), func.sum(cast(spent, Double)))
        .join(GraphKeyRow, GraphKeyRow.key_digest == AttemptRow.key_digest)
        .where(
            AttemptRow.namespace.in_(which.namespaces), AttemptRow.outcome != "running",
            AttemptRow.ended_at >= which.since,
        )
        .group_by(group, outcome)
    )
    return [(str(row[0]), str(row[1]), int(row[2]), float(row[3] or 0.0)) for row in rows]


async def stored_bytes(session: AsyncSession, which: Filter) -> list[tuple[str, int]]:
    """Group, bytes of its standing artifacts."""
    group = which.group().label("grouped")
    rows = await session.execute(
        select(group, func.sum(ArtifactRow.size_bytes))
        .join(GraphKeyRow, GraphKeyRow.key_digest == ArtifactRow.key_digest)
        .where(ArtifactRow.namespace.in_(which.namespaces), ArtifactRow.state == "standing")
        .group_by(group)
    )
    return [(str(row[0]), int(row[1] or 0)) for row in rows]


async def waits(session: AsyncSession, which: Filter) -> list[tuple[str, float]]:
    """Group, seconds of each of the newest waits."""
    rows = await session.execute(
        select(which.group(), WaitRow.wait_s)
        .join(GraphKeyRow, GraphKeyRow.key_digest == WaitRow.key_digest)
        .where(WaitRow.namespace.in_(which.namespaces), WaitRow.ended_at >= which.since)
        .order_by(WaitRow.ended_at.desc())
        .limit(NEWEST_WAITS)
    )
    return [(str(row[0]), float(row[1])) for row in rows]


async def reserved_bytes(session: AsyncSession) -> int:
    """Bytes of uploads under way."""
    return int(await session.scalar(select(func.coalesce(func.sum(UploadRow.size_bytes), 0))) or 0)


async def evictions(session: AsyncSession, namespaces: Sequence[str], since: float) -> tuple[int, int, list[float]]:
    """Number, bytes, and the ages of the newest."""
    where = (EvictionRow.namespace.in_(namespaces), EvictionRow.evicted_at >= since)
    total = (await session.execute(select(func.count(), func.sum(EvictionRow.size_bytes)).where(*where))).one()
    ages = await session.scalars(
        select(EvictionRow.age_s).where(*where).order_by(EvictionRow.evicted_at.desc()).limit(NEWEST_WAITS)
    )
    return int(total[0]), int(total[1] or 0), [float(age) for age in ages]


async def quarantined(session: AsyncSession, namespaces: Sequence[str]) -> int:
    """Publications that were found bad."""
    statement = select(func.count()).select_from(ArtifactRow)
    return int(
        await session.scalar(
            statement.where(ArtifactRow.namespace.in_(namespaces), ArtifactRow.state == "quarantined")
        ) or 0
    )


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


async def compiles_by_toolchain(session: AsyncSession) -> list[tuple[str, str, int]]:
    """Toolchain, state, number of keys, of all namespaces."""
    rows = await session.execute(
        select(CompileRow.toolchain, CompileRow.state, func.count()).group_by(CompileRow.toolchain, CompileRow.state)
    )
    return [(str(row[0]), str(row[1]), int(row[2])) for row in rows]
