"""The engine: one way to read, one way to write, on SQLite (WAL) and PostgreSQL.

A write on SQLite begins IMMEDIATE, so that it never fails half-way for want of the lock, and writes of one process
queue in order instead of polling. A read is a statement of its own, and holds no transaction open.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, Literal

from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.sql.base import Executable

from graphcache_service.core.errors import DatabaseUnavailable, StoreFull
from graphcache_service.db.inline_sqlite import (
    BUSY_MS,
    DRIVER,
    InlineConnection,
    begin_at_once,
    is_full,
    set_pragmas,
    when_free,
)
from graphcache_service.db.plain import Ask, Plain, PlainPostgreSQL, PlainRow, PlainSQLite

Dialect = Literal["sqlite", "postgresql"]
POSTGRES_SETTINGS: Final = {"application_name": "graphcache", "statement_timeout": "30000", "lock_timeout": "10000"}


def parse_database_url(text: str) -> URL:
    """The URL with its asynchronous driver.

    Raises:
        ValueError: neither SQLite nor PostgreSQL, or no URL at all. The message never holds the password.
    """
    try:
        url = make_url(text)
    except Exception as error:
        raise ValueError("not a database URL: use sqlite:///path or postgresql://user@host/name") from error
    match url.get_backend_name():
        case "sqlite":
            return url.set(drivername=DRIVER)
        case "postgresql" | "postgres":
            # libpq and everybody's documentation say sslmode; SQLAlchemy hands asyncpg's own word through.
            mode = url.query.get("sslmode")
            plain = url.difference_update_query(["sslmode"])
            encrypted = plain if mode is None else plain.update_query_dict({"ssl": mode})
            return encrypted.set(drivername="postgresql+asyncpg")
        case other:
            raise ValueError(f"no database of kind {other!r}: use sqlite:///path or postgresql://user@host/name")


def _prepare_sqlite(engine: AsyncEngine, *, inline: bool) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, record: Any) -> None:
        # The listener below begins its transactions.
        set_pragmas(connection)

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        if inline and connection.get_execution_options().get("graphcache_write"):
            begin_at_once(connection.connection.driver_connection)


def make_sqlite_engine(url: URL, *, pool_size: int, inline: bool) -> AsyncEngine:
    """An engine on a SQLite file: ``inline`` on the event loop, or in threads for what takes long."""
    arguments: dict[str, Any] = {"timeout": BUSY_MS / 1_000}
    if inline:
        arguments |= {"check_same_thread": False, "factory": InlineConnection}
    engine = create_async_engine(
        url.set(drivername=DRIVER if inline else "sqlite+aiosqlite"), pool_size=pool_size, connect_args=arguments
    )
    _prepare_sqlite(engine, inline=inline)
    return engine


def make_postgresql_engine(url: URL, *, pool_size: int) -> AsyncEngine:
    """An engine on a PostgreSQL server; opens no connection yet."""
    return create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=10.0,
        pool_pre_ping=True,
        connect_args={"server_settings": POSTGRES_SETTINGS, "timeout": 5.0, "command_timeout": 60.0},
    )


@contextmanager
def _outages_named() -> Iterator[None]:
    """Turns a database that cannot be asked into ``DatabaseUnavailable``; other errors pass."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        if isinstance(error.orig, sqlite3.OperationalError) and is_full(error.orig):
            raise StoreFull("the disk of the database is full") from error
        raise DatabaseUnavailable(f"the database cannot be asked: {type(error.orig).__name__}") from error
    except sqlite3.OperationalError as error:
        if is_full(error):
            raise StoreFull("the disk of the database is full") from error
        raise DatabaseUnavailable(f"the database cannot be asked: {error}") from error
    except DBAPIError as error:
        if not error.connection_invalidated and not _is_outage(error):
            raise
        raise DatabaseUnavailable("the connection to the database was lost") from error
    except PoolTimeout as error:
        raise DatabaseUnavailable("all connections to the database are in use", retry_after_s=1.0) from error
    except (OSError, TimeoutError) as error:
        raise DatabaseUnavailable(f"the database cannot be reached: {type(error).__name__}") from error


def _is_outage(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed later.

    Of PostgreSQL's error codes: 08 (connection), 40 (deadlock), 53 (resources), 57 (shutting down, cancelled), 55P03 (a
    lock was not given in time).
    """
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return state[:2] in ("08", "40", "53", "57") or state == "55P03"


async def _begin(session: AsyncSession) -> None:
    try:
        await session.connection()
    except sqlite3.OperationalError:
        await session.rollback()
        raise


class Database:
    """Sessions to read and to write. Safe to share between tasks of one event loop."""

    def __init__(self, url: URL, *, pool_size: int = 5) -> None:
        self.url = url
        self.dialect: Dialect = "sqlite" if url.get_backend_name() == "sqlite" else "postgresql"
        if self.dialect == "sqlite":
            self.engine = make_sqlite_engine(url, pool_size=pool_size, inline=True)
            self._scanning = make_sqlite_engine(url, pool_size=2, inline=False)
            writing, reading = self.engine.execution_options(graphcache_write=True), self.engine
            scanning = self._scanning
        else:
            self.engine = self._scanning = make_postgresql_engine(url, pool_size=pool_size)
            writing, reading = self.engine, self.engine.execution_options(isolation_level="AUTOCOMMIT")
            scanning = reading
        self._read = async_sessionmaker(reading, expire_on_commit=False, autoflush=False)
        self._scan = async_sessionmaker(scanning, expire_on_commit=False, autoflush=False)
        self._write = async_sessionmaker(writing, expire_on_commit=False)
        self._plain: Plain = PlainSQLite(url) if self.dialect == "sqlite" else PlainPostgreSQL(reading, writing)
        self._one_writer = asyncio.Lock()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """A session for look-ups by index; every statement sees what is committed then.

        Raises:
            DatabaseUnavailable: it cannot be asked.
        """
        with _outages_named():
            async with self._read() as session:
                yield session

    async def rows(self, statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
        """What one look-up by index finds, for what every request asks; ``statement`` is built once, see ``plain``.

        Raises:
            DatabaseUnavailable: it cannot be asked.
        """
        with _outages_named():
            return await self._plain.rows(statement, parameters)

    @asynccontextmanager
    async def scan(self) -> AsyncIterator[AsyncSession]:
        """A session for reads that go through a table, such as statistics; nobody else waits for them.

        Raises:
            DatabaseUnavailable: it cannot be asked.
        """
        with _outages_named():
            async with self._scan() as session:
                yield session

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """A transaction: committed at the end, rolled back by an exception.

        Raises:
            DatabaseUnavailable: it cannot be asked; nothing was changed.
        """
        async with AsyncExitStack() as held:
            await self._enter_write(held)
            if self.dialect == "postgresql":
                yield await held.enter_async_context(self._write.begin())
                return
            session = await held.enter_async_context(self._write())
            await when_free(lambda: _begin(session))
            yield session
            await session.commit()

    @asynccontextmanager
    async def write_plain(self) -> AsyncIterator[Ask]:
        """As ``write``, without a session: for statements that are built once, see ``plain``."""
        async with AsyncExitStack() as held:
            await self._enter_write(held)
            yield await held.enter_async_context(self._plain.write())

    async def _enter_write(self, held: AsyncExitStack) -> None:
        if self.dialect == "sqlite":
            await held.enter_async_context(self._one_writer)
        held.enter_context(_outages_named())

    async def close(self) -> None:
        """Close all connections."""
        await self._plain.close()
        await self.engine.dispose()
        await self._scanning.dispose()
