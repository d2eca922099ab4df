"""SQL of statistics: sums by group. The group is a column of the key, or one constant for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Double, Row, Select, String, cast, func, select
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


Group = tuple[str, ...]
"""The values of a filter's columns, as text."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows count, and by which columns of the key they are grouped."""

    namespaces: tuple[str, ...]
    since: float
    columns: tuple[str, ...]

    def grouped(self, table: type[Any], *values: ColumnElement[Any], also_by: Sequence[Any] = ()) -> Select[Any]:
        """Sums of ``values`` by the columns. A column that only the key has costs a look-up a row."""
        columns = [getattr(table, name, None) or getattr(GraphKeyRow, name) for name in self.columns]
        asked: list[ColumnElement[Any]] = [*(cast(column, String) for column in columns), *also_by, *values]
        statement: Select[Any] = select(*asked).select_from(table)
        if any(not hasattr(table, name) for name in self.columns):
            statement = statement.join(GraphKeyRow, GraphKeyRow.key_digest == table.key_digest)
        # No index on the bare column: it would lead to nearly all rows, one by one in the order of their digests, and
        # to their keys so too. In the order in which they lie it takes a third of the time.
        namespace = table.namespace.concat("")
        return statement.where(namespace.in_(self.namespaces)).group_by(*columns, *also_by)

    def split(self, row: Row[Any]) -> tuple[Group, tuple[Any, ...]]:
        """A row's group, and what follows it."""
        return tuple(row[: len(self.columns)]), tuple(row[len(self.columns) :])


async def usage_sums(session: AsyncSession, which: Filter) -> list[tuple[Group, str, int, float]]:
    """Group, event, count, seconds saved."""
    statement = which.grouped(
        UsageRow, func.sum(UsageRow.count), func.sum(UsageRow.saved_s), also_by=[UsageRow.event]
    ).where(UsageRow.period_start >= which.since)
    rows = [which.split(row) for row in await session.execute(statement)]
    return [(group, str(event), int(count), float(saved_s)) for group, (event, count, saved_s) in rows]


async def compile_counts(session: AsyncSession, which: Filter) -> list[tuple[Group, str, int]]:
    """Group, state, number of keys as they stand now."""
    statement = which.grouped(CompileRow, func.count(), also_by=[CompileRow.state])
    rows = [which.split(row) for row in await session.execute(statement)]
    return [(group, str(state), int(count)) for group, (state, count) in rows]


async def attempt_counts(session: AsyncSession, which: Filter) -> list[tuple[Group, str, int, float]]:
    """Group, outcome or failure class, number, seconds spent (the lease's length where the holder told none)."""
    outcome = func.coalesce(AttemptRow.failure_class, AttemptRow.outcome).label("ended_as")
    spent = func.coalesce(AttemptRow.compile_s, AttemptRow.ended_at - AttemptRow.started_at)
    statement = which.grouped(AttemptRow, func.count(), func.sum(cast(spent, Double)), also_by=[outcome]).where(
        AttemptRow.outcome != "running", AttemptRow.ended_at >= which.since
    )
    rows = [which.split(row) for row in await session.execute(statement)]
    return [(group, str(ended_as), int(count), float(spent_s or 0.0)) for group, (ended_as, count, spent_s) in rows]


async def artifact_sums(session: AsyncSession, which: Filter) -> list[tuple[Group, str, int, int]]:
    """Group, state (standing or quarantined), number, bytes."""
    statement = which.grouped(
        ArtifactRow, func.count(), func.sum(ArtifactRow.size_bytes), also_by=[ArtifactRow.state]
    ).where(ArtifactRow.state.in_(("standing", "quarantined")))
    rows = [which.split(row) for row in await session.execute(statement)]
    return [(group, str(state), int(count), int(size_bytes)) for group, (state, count, size_bytes) in rows]


async def waits(session: AsyncSession, which: Filter) -> list[tuple[Group, float]]:
    """Group, seconds of each of the newest waits."""
    asked: list[ColumnElement[Any]] = [cast(getattr(GraphKeyRow, name), String) for name in which.columns]
    newest: Select[Any] = (
        select(*asked, WaitRow.wait_s)
        .join(GraphKeyRow, GraphKeyRow.key_digest == WaitRow.key_digest)
        .where(WaitRow.namespace.in_(which.namespaces), WaitRow.ended_at >= which.since)
        .order_by(WaitRow.ended_at.desc())
        .limit(NEWEST_WAITS)
    )
    rows = [which.split(row) for row in await session.execute(newest)]
    return [(group, float(wait_s)) for group, (wait_s,) in rows]


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
