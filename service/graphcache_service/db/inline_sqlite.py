"""SQLite without a thread between: its statements run on the event loop.

A statement of the service takes 15 to 100 microseconds in SQLite. Handing it to a thread and back (aiosqlite) took 3
to 8 milliseconds on a busy two-core machine: five hops a query. So short statements run inline; whatever scans a table
goes through the threaded engine (``Database.scan``), and only ``Database.write`` waits for other processes, asleep.
"""

import sqlite3
from typing import Any, Final

from sqlalchemy import URL, Pool
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import AsyncAdaptedQueuePool

DRIVER: Final = "sqlite+inline"
BUSY_MS: Final = 5_000
"""How long a read waits for another process that recovers the file; readers never wait for writers."""


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
