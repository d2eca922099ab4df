"""SQL on the compiles that wait for a worker: which is next, how many there are, how many stand before one."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.engine import Database
from graphcache_service.db.models import CompileRow


def _claimable(
    namespace: str, toolchains: Sequence[str], now: float, alone: bool, memory_bytes: int | None
) -> Select[CompileRow]:
    statement = select(CompileRow).where(
        CompileRow.state == "queued",
        CompileRow.namespace == namespace,
        CompileRow.toolchain.in_(toolchains),
        CompileRow.needs_weights.is_(False),
        (CompileRow.not_before.is_(None)) | (CompileRow.not_before <= now),
    )
    if alone:
        return statement
    enough = CompileRow.needed_memory_bytes < (memory_bytes or 0)
    return statement.where(CompileRow.retry_alone.is_(False) | enough)


async def most_urgent(
    session: AsyncSession,
    namespace: str,
    toolchains: Sequence[str],
    now: float,
    *,
    alone: bool,
    memory_bytes: int | None,
) -> CompileRow | None:
    """The queued row to compile next: highest priority, oldest first; rows that another claim locks are skipped."""
    return await session.scalar(
        _claimable(namespace, toolchains, now, alone, memory_bytes)
        .order_by(CompileRow.priority.desc(), CompileRow.queued_at, CompileRow.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )


async def count_queued(session: AsyncSession, namespace: str, toolchains: Sequence[str]) -> int:
    """Queued rows for some toolchains, those in back-off included."""
    statement = (
        select(func.count())
        .select_from(CompileRow)
        .where(
            CompileRow.state == "queued",
            CompileRow.namespace == namespace,
            CompileRow.toolchain.in_(toolchains),
            CompileRow.needs_weights.is_(False),
        )
    )
    return int(await session.scalar(statement) or 0)


_QUEUED_BEFORE: Final[Select[int]] = (
    select(func.count())
    .select_from(CompileRow)
    .where(
        CompileRow.state == "queued",
        CompileRow.namespace == bindparam("namespace"),
        CompileRow.toolchain == bindparam("toolchain"),
        (CompileRow.priority > bindparam("priority"))
        | ((CompileRow.priority == bindparam("priority")) & (CompileRow.queued_at < bindparam("queued_at"))),
    )
)


async def queued_before(database: Database, row: CompileRow) -> int:
    """Queued rows of the same toolchain that a worker takes before ``row``."""
    [found] = await database.rows(
        _QUEUED_BEFORE,
        {
            "namespace": row.namespace,
            "toolchain": row.toolchain,
            "priority": row.priority,
            "queued_at": row.queued_at,
        },
    )
    return int(found[0])
