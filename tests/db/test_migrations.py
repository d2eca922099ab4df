"""Migrations: up and down on both databases, the same schema as the models, and safe to start together."""

import asyncio

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect

from graphcache_service.db.engine import Database, parse_database_url
from graphcache_service.db.migrate import downgrade, migrate
from graphcache_service.db.models import Base


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


async def test_replicas_that_start_together_migrate_once(empty_database_url: str) -> None:
    databases = [Database(parse_database_url(empty_database_url)) for _ in range(4)]
    await asyncio.gather(*(migrate(database) for database in databases))
    async with databases[0].write() as session:
        assert await (await session.connection()).run_sync(_tables) == set(Base.metadata.tables)
    for database in databases:
        await database.close()
