"""Migrations at start: one replica migrates, the others wait for it, none waits for ever."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from graphcache_service.db.engine import Database

MIGRATION_LOCK: Final = 0x67726170
"""The advisory lock of PostgreSQL under which migrations run; any number that all replicas share."""


def scripts_folder() -> Path:
    """The folder ``alembic``: inside the package when installed from a wheel, at the repository's top in a checkout.

    Raises:
        FileNotFoundError: the installation lacks it.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "alembic", package.parents[1] / "alembic"):
        if (folder / "env.py").is_file():
            return folder
    raise FileNotFoundError(f"the migrations are missing beside {package}: install npu-graphcache[service] again")


def alembic_config(connection: Connection) -> Config:
    """A configuration that runs on an open connection, inside its transaction."""
    config = Config()
    config.set_main_option("script_location", str(scripts_folder()))
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection, revision: str) -> None:
    if connection.dialect.name == "postgresql":
        # The lock ends with the transaction. A table in use for longer than this fails the start instead of blocking
        # every other query behind the migration.
        connection.execute(text("SET LOCAL statement_timeout = '120s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
    command.upgrade(alembic_config(connection), revision)


async def migrate(database: Database, revision: str = "head") -> None:
    """Bring the schema to ``revision``; does nothing where it is there already. Safe to run from many replicas at once.

    Raises:
        DatabaseUnavailable: the database cannot be asked, or a table stayed locked.
    """
    async with database.write() as session:
        connection = await session.connection()
        await connection.run_sync(_upgrade, revision)


async def downgrade(database: Database, revision: str) -> None:
    """Take the schema back to ``revision``. What later tables held is lost."""
    async with database.write() as session:
        connection = await session.connection()
        await connection.run_sync(lambda sync: command.downgrade(alembic_config(sync), revision))
