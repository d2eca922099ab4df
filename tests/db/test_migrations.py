"""Migrations: up and down on both databases, the same schema as the models, and safe to start together."""

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from graphcache_service.db import tallies
from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import downgrade, migrate
from graphcache_service.db.models import Base
from graphcache_service.db.tallies import Filter


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names()) - {"alembic_version"}


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, Base.metadata))


async def test_migrations_go_up_and_down_and_up_again(empty_database_url: str) -> None:
    database = Database(parse_database_url(empty_database_url))
    for revision, step in (("head", migrate), ("base", downgrade), ("head", migrate)):
        await step(database, revision)
        async with database.write() as session:
            tables = await (await session.connection()).run_sync(_tables)
        assert tables == (set(Base.metadata.tables) if revision == "head" else set())
    await database.close()


async def test_migrated_schema_is_that_of_the_models(database_url: str) -> None:
    database = Database(parse_database_url(database_url))
    async with database.write() as session:
        assert await (await session.connection()).run_sync(_differences) == []
    await database.close()


BEFORE_TOTALS = """
    INSERT INTO graph_keys VALUES ('k', 'forward', 4, 64, 32, 8, 'stub-1.0', '{}');
    INSERT INTO compiles (id, namespace, key_digest, toolchain, needs_weights, state, generation, priority, attempts,
        created_at, queued_at, retry_alone)
        VALUES ('c', 'default', 'k', 'stub-1.0', false, 'queued', 1, 0, 0, 1, 1, false);
    INSERT INTO attempts (id, compile_id, generation, namespace, key_digest, owner, holder, toolchain, started_at,
        ended_at, outcome, failure_class)
        VALUES (1, 'c', 1, 'default', 'k', 'o', 'h', 'stub-1.0', 100, 130.5, 'failed', 'crashed');
    INSERT INTO usage_counts VALUES (60, 'default', 'k', 'miss', 2, 0), (120, 'default', 'k', 'miss', 3, 0)
"""


@pytest.mark.parametrize(("since", "misses"), [(None, 5), (120, 3)])
async def test_what_was_counted_before_running_totals_is_added_up(
    empty_database_url: str, since: int | None, misses: int
) -> None:
    database = Database(parse_database_url(empty_database_url))
    await migrate(database, "0002")
    async with database.write() as session:
        for statement in BEFORE_TOTALS.split(";"):
            await session.execute(text(statement))
    await migrate(database)
    async with database.read() as session:
        sums = await tallies.sums(session, Filter(("default",), since, ("bucket",)))
    expected = [("attempt_crashed", 1, 30.5), ("compile_queued", 1, 0.0), ("miss", misses, 0.0)]
    assert sorted(one[1:] for one in sums) == expected
    await database.close()


async def test_replicas_that_start_together_migrate_once(empty_database_url: str) -> None:
    databases = [Database(parse_database_url(empty_database_url)) for _ in range(4)]
    await asyncio.gather(*(migrate(database) for database in databases))
    async with databases[0].write() as session:
        assert await (await session.connection()).run_sync(_tables) == set(Base.metadata.tables)
    for database in databases:
        await database.close()
