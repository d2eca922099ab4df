"""SQLite without a thread between: its statements run on the event loop.

A statement of the service takes 15 to 100 microseconds in SQLite. Handing it to a thread and back (aiosqlite) took 3
to 8 milliseconds on a busy two-core machine: five hops a query. So short statements run inline; whatever scans a table
goes through the threaded engine (``Database.scan``), and only ``Database.write`` waits for other processes, asleep.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy import URL, Pool
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import AsyncAdaptedQueuePool

from graphcache_service.core.errors import DatabaseUnavailable

DRIVER: Final = "sqlite+inline"
PRAGMAS: Final = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "cache_size=-16000")
BUSY_MS: Final = 5_000
"""How long a read waits for another process that recovers the file; readers never wait for writers."""
WRITE_WAIT_S: Final = 10.0
"""How long a write waits for another process on the same file."""
WRITE_RETRY_S: Final = 0.005


class InlineCursor(sqlite3.Cursor):
    """A cursor with the one method that the asynchronous engine asks of one."""

    async def _async_soft_close(self) -> None:
        """Its rows are still to be read, and nothing has to be awaited for them."""


class InlineConnection(sqlite3.Connection):
    """A connection that makes such cursors."""

    def cursor(self, factory: Any = InlineCursor) -> Any:
        return super().cursor(factory)


class InlineSQLite(SQLiteDialect_pysqlite):
    """Python's own driver, under SQLAlchemy's asynchronous engine."""

    driver = "inline"
    is_async = True
    supports_statement_cache = True

    @classmethod
    def get_pool_class(cls, url: URL) -> type[Pool]:
        return AsyncAdaptedQueuePool

    def get_driver_connection(self, connection: Any) -> Any:
        return connection


registry.register("sqlite.inline", __name__, "InlineSQLite")


def set_pragmas(connection: Any) -> None:
    """What every connection to the file is told first."""
    # Python's driver would begin transactions by itself, and too late.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def connect(url: URL) -> sqlite3.Connection:
    """A connection of its own, outside of every pool."""
    arguments: Any
    options: Any
    arguments, options = InlineSQLite().create_connect_args(url)
    options |= {"timeout": BUSY_MS / 1_000, "check_same_thread": False}
    connection: sqlite3.Connection = sqlite3.connect(*arguments, **options)
    set_pragmas(connection)
    return connection


def begin_at_once(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes, or fail at once where another process writes.

    Raises:
        sqlite3.OperationalError: see :func:`is_locked`.
    """
    connection.execute("PRAGMA busy_timeout=0")
    try:
        connection.execute("BEGIN IMMEDIATE")
    finally:
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def is_locked(error: sqlite3.OperationalError) -> bool:
    """Whether another process writes just now."""
    return (error.sqlite_errorcode & 0xFF) == sqlite3.SQLITE_BUSY


def is_full(error: sqlite3.OperationalError) -> bool:
    """Whether the disk has no room for what was written."""
    return (error.sqlite_errorcode & 0xFF) == sqlite3.SQLITE_FULL


async def when_free(begin: Callable[[], Awaitable[None]]) -> None:
    """Begin a transaction that writes, asleep while another process does.

    Raises:
        DatabaseUnavailable: it writes for too long, or the file cannot be written.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WRITE_WAIT_S
    while True:
        try:
            return await begin()
        except sqlite3.OperationalError as error:
            if not is_locked(error) or loop.time() > deadline:
                raise DatabaseUnavailable(f"the database cannot be written: {error}", retry_after_s=1.0) from error
        await asyncio.sleep(WRITE_RETRY_S)
