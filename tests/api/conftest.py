"""A replica of the service for each test, on either database, with its clock frozen."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.databases import database_kind, database_url, empty_database_url, postgres_server, sqlite_template
from fakes.replica import Replica, replica

__all__ = ["database_kind", "database_url", "empty_database_url", "postgres_server", "sqlite_template"]


@pytest.fixture
async def service(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(database_url, tmp_path) as started:
        await started.freeze()
        yield started
