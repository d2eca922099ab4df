"""Statements that are built once, asked without a session: what every request needs.

SQLAlchemy takes 70 us to ask SQLite what it answers in 7, and a session 500 us to write what takes 60. So a statement
is compiled once for its dialect, and its text and values go to the driver.
"""

import sqlite3
from collections import namedtuple
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from sqlalchemy import URL, CursorResult, Dialect, Engine, Result, Row
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import ReturnsRows
from sqlalchemy.util import greenlet_spawn

from graphcache_service.db.inline_sqlite import InlineSQLite, begin_at_once, connect, when_free

PlainRow = Row[Any]
"""Columns by name, and no entity of a session."""
Ask = Callable[[Executable, Mapping[str, Any]], Awaitable[Sequence[PlainRow]]]
"""Asks a statement with its parameters, within one transaction."""

STATEMENTS_KEPT: Final = 256


def asking(session: AsyncSession) -> Ask:
    """The same, within a session's transaction."""

    async def ask(statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
        return _all(await session.execute(statement, parameters))

    return ask


def _all(result: Result[Any]) -> Sequence[PlainRow]:
    return result.all() if cast(CursorResult[Any], result).returns_rows else []


class Plain(Protocol):
    """One database without sessions. Errors are the driver's own; ``Database`` names them."""

    async def rows(self, statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
        """What a look-up by index finds."""

    def write(self) -> AbstractAsyncContextManager[Ask]:
        """A transaction; on SQLite nobody else of this process may write meanwhile."""

    async def close(self) -> None:
        """Closes its connections."""


class _Prepared:
    """The text of a statement, the order of its parameters, and the making of its rows."""

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled = cast(SQLCompiler, cast(ClauseElement, statement).compile(dialect=dialect))
        self.text = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        self._literals = {name: bound.effective_value for name, bound in compiled.binds.items() if not bound.required}
        columns = statement.exported_columns if isinstance(statement, ReturnsRows) else None
        names = columns.keys() if columns is not None else []
        named: Any = namedtuple("named", names, rename=True)  # type: ignore[misc]
        self._named: Callable[[Any], Any] = named._make
        converters = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns or ()]
        self._converted = [(place, convert) for place, convert in enumerate(converters) if convert is not None]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """The values in the text's order."""
        return [parameters[name] if name in parameters else self._literals[name] for name in self._names]

    def rows(self, found: Sequence[Any]) -> Sequence[PlainRow]:
        """What the driver found, with names."""
        typed = [self._typed(row) for row in found] if self._converted else found
        return cast(Sequence[PlainRow], [self._named(row) for row in typed])

    def _typed(self, row: Any) -> Any:
        values = list(row)
        for place, convert in self._converted:
            values[place] = convert(values[place])
        return values


def _preparing(dialect: Dialect) -> Callable[[Executable], _Prepared]:
    """Statements are told apart as objects: one that is built anew each time gains nothing."""
    return lru_cache(maxsize=STATEMENTS_KEPT)(lambda statement: _Prepared(statement, dialect))


class PlainSQLite:
    """Two connections on the event loop: one reads, one writes. A look-up never waits, so one is enough."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._prepared = _preparing(InlineSQLite())
        self._reading: sqlite3.Connection | None = None
        self._writing: sqlite3.Connection | None = None

    async def rows(self, statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
        self._reading = self._reading or connect(self._url)
        return self._ask(self._reading, statement, parameters)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Ask]:
        self._writing = connection = self._writing or connect(self._url)

        async def ask(statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
            return self._ask(connection, statement, parameters)

        async def begin() -> None:
            begin_at_once(connection)

        await when_free(begin)
        try:
            yield ask
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:  # SQLite has rolled some back by itself, such as on a full disk
                connection.execute("ROLLBACK")

    async def close(self) -> None:
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._reading = self._writing = None

    def _ask(
        self, connection: sqlite3.Connection, statement: Executable, parameters: Mapping[str, Any]
    ) -> Sequence[PlainRow]:
        prepared = self._prepared(statement)
        return prepared.rows(connection.execute(prepared.text, prepared.values(parameters)).fetchall())


class PlainPostgreSQL:
    """SQLAlchemy's connections, without a session: the round trip costs more than what could still be left out."""

    def __init__(self, reading: AsyncEngine, writing: AsyncEngine) -> None:
        self._reading = reading.sync_engine
        self._writing = writing

    async def rows(self, statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
        return await greenlet_spawn(_rows, self._reading, statement, parameters)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Ask]:
        async with self._writing.begin() as connection:

            async def ask(statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
                return _all(await connection.execute(statement, parameters))

            yield ask

    async def close(self) -> None:
        """The engine closes them."""


def _rows(engine: Engine, statement: Executable, parameters: Mapping[str, Any]) -> Sequence[PlainRow]:
    with engine.connect() as connection:
        return connection.execute(statement, parameters).all()
