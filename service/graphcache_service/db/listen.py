"""Hearing what other processes changed: LISTEN on PostgreSQL, data_version on SQLite."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import asyncpg
import structlog
from sqlalchemy import text

from graphcache_service.core.errors import DatabaseUnavailable
from graphcache_service.db.engine import Database
from graphcache_service.db.wakeups import CHANNEL, last_wakeup, wakeups_after

Wake = Callable[[str], None]
log = structlog.get_logger()

POLL_S: Final = 0.05
"""How often SQLite's data_version is read while somebody waits: one PRAGMA, some 100 microseconds."""
IDLE_POLL_S: Final = 0.25
RECONNECT_S: Final = 1.0
LISTENER_CHECK_S: Final = 5.0
EVERYTHING: Final = "*"
DATA_VERSION: Final = text("PRAGMA data_version")


async def listen(database: Database, origin: str, wake: Wake, someone_waits: Callable[[], bool]) -> None:
    """Call ``wake`` with each topic that another process changed, until cancelled.

    A connection that was lost is made again; then everything is woken, since notices may have been missed.

    Args:
        origin: this process, whose own notices are passed over.
        someone_waits: lets SQLite be polled seldom while nobody waits.
    """
    while True:
        try:
            if database.dialect == "postgresql":
                await _listen_postgresql(database, origin, wake)
            else:
                await _poll_sqlite(database, origin, wake, someone_waits)
        except (DatabaseUnavailable, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("listener_lost", error=type(error).__name__)
        await asyncio.sleep(RECONNECT_S)
        wake(EVERYTHING)


async def _listen_postgresql(database: Database, origin: str, wake: Wake) -> None:
    url = database.url.set(drivername="postgresql").difference_update_query(["ssl"])
    connection = await asyncpg.connect(
        url.render_as_string(hide_password=False),
        ssl=database.url.query.get("ssl"),
        timeout=5.0,
        server_settings={"application_name": "graphcache-listen"},
    )

    def heard(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        notice = json.loads(str(payload))
        if notice["origin"] != origin:
            for topic in notice["topics"]:
                wake(topic)

    try:
        await connection.add_listener(CHANNEL, heard)
        wake(EVERYTHING)
        while True:
            # A connection that a firewall dropped says nothing: ask it, so that its loss is noticed.
            await asyncio.sleep(LISTENER_CHECK_S)
            await connection.execute("SELECT 1", timeout=5.0)
    finally:
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await connection.close(timeout=2.0)


async def _poll_sqlite(database: Database, origin: str, wake: Wake, someone_waits: Callable[[], bool]) -> None:
    # The version is of one connection: the one that is open here is kept.
    async with database.read() as poll:
        async with database.read() as session:
            last = await last_wakeup(session)
        seen = await poll.scalar(DATA_VERSION)
        while True:
            await asyncio.sleep(POLL_S if someone_waits() else IDLE_POLL_S)
            version = await poll.scalar(DATA_VERSION)
            if version == seen:
                continue
            seen = version
            async with database.read() as session:
                last, topics = await wakeups_after(session, last, origin)
            for topic in topics:
                wake(topic)
