"""The database's clock as an SQL expression, and the reading of it.

Seconds since 1970. No decision uses a client's clock or this process's. Tests freeze and advance it by the one row of
``clock``, which every process on the same database sees.
"""

from typing import Any, Final

from sqlalchemy import Double, Select, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from graphcache_service.db.models import ClockRow


class database_now(FunctionElement[float]):
    """The current time, faked or not."""

    type = Double()
    inherit_cache = True


@compiles(database_now, "sqlite")
def _sqlite_now(element: Any, compiler: Any, **kwargs: Any) -> str:
    return "(SELECT coalesce(frozen_at, (julianday('now') - 2440587.5) * 86400.0) + offset_s FROM clock)"


@compiles(database_now, "postgresql")
def _postgresql_now(element: Any, compiler: Any, **kwargs: Any) -> str:
    return "(SELECT coalesce(frozen_at, extract(epoch FROM clock_timestamp())::float8) + offset_s FROM clock)"


_NOW: Final[Select[float]] = select(database_now())


async def now(session: AsyncSession) -> float:
    """Seconds since 1970 by the database's clock."""
    value = await session.scalar(_NOW)
    return float(value or 0.0)


async def freeze(session: AsyncSession, at: float) -> None:
    """Stop the clock at ``at``. For tests: everything that expires is decided by this clock."""
    await session.execute(update(ClockRow).values(frozen_at=at, offset_s=0.0))


async def advance(session: AsyncSession, seconds: float) -> None:
    """Move the clock forward, frozen or not. For tests."""
    await session.execute(update(ClockRow).values(offset_s=ClockRow.offset_s + seconds))
