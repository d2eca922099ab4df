"""Telling other processes on the same database what changed: NOTIFY on PostgreSQL, rows of ``wakeups`` on SQLite."""

import json
from collections.abc import Collection
from typing import Final

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import WakeupRow

CHANNEL: Final = "graphcache"
TOPICS_A_NOTICE: Final = 40
"""A topic has up to 193 characters and PostgreSQL's payload 8000 bytes."""
KEPT_S: Final = 60.0


async def announce(session: AsyncSession, topics: Collection[str], origin: str, now: float) -> None:
    """Tell the other processes, at the commit of this transaction."""
    if not topics:
        return
    if session.get_bind().dialect.name == "sqlite":
        await session.execute(
            insert(WakeupRow), [{"topic": topic, "origin": origin, "created_at": now} for topic in sorted(topics)]
        )
        return
    ordered = sorted(topics)
    for first in range(0, len(ordered), TOPICS_A_NOTICE):
        notice = json.dumps({"origin": origin, "topics": ordered[first : first + TOPICS_A_NOTICE]})
        await session.execute(text("SELECT pg_notify(:channel, :notice)"), {"channel": CHANNEL, "notice": notice})


async def last_wakeup(session: AsyncSession) -> int:
    """The number of the newest row."""
    return int(await session.scalar(select(func.coalesce(func.max(WakeupRow.id), 0))) or 0)


async def wakeups_after(session: AsyncSession, last: int, origin: str) -> tuple[int, list[str]]:
    """The newest number, and the topics that other processes woke since ``last``."""
    rows = (
        await session.execute(
            select(WakeupRow.id, WakeupRow.topic, WakeupRow.origin).where(WakeupRow.id > last).order_by(WakeupRow.id)
        )
    ).all()
    newest = rows[-1].id if rows else last
    return newest, [row.topic for row in rows if row.origin != origin]


async def forget_wakeups(session: AsyncSession, now: float) -> None:
    """Remove rows that every process has read long ago; the newest stays, so that numbers never begin anew."""
    newest = select(func.max(WakeupRow.id)).scalar_subquery()
    await session.execute(delete(WakeupRow).where(WakeupRow.created_at < now - KEPT_S, WakeupRow.id < newest))
