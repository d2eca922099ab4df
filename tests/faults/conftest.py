"""A real service of its own for each fault: these tests kill it, stop it and cut it off."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fakes.client_side import new_key
from fakes.databases import database_kind, database_url, postgres_server, sqlite_template
from fakes.forked_service import ForkedService
from fakes.forker import Forker
from fakes.running_service import RunningService
from fakes.s3_server import BLOB_BUCKET, S3Server, s3_server

from graphcache_client import DiskStore
from graphcache_wire import GraphKey

__all__ = ["database_kind", "database_url", "postgres_server", "s3_server", "sqlite_template"]


@pytest.fixture
def running(tmp_path) -> Iterator[RunningService]:
    service = RunningService(tmp_path / "service")
    yield service
    service.kill()


@pytest.fixture
def key() -> GraphKey:
    return new_key()


@pytest.fixture
def store(tmp_path) -> DiskStore:
    return DiskStore(tmp_path / "store")


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """The process that services are forked from."""
    forker = Forker("fakes.forked_service")
    yield forker
    forker.close()


@pytest.fixture
def places(database_kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where a service keeps its state: SQLite and a folder, or PostgreSQL and S3."""
    if database_kind == "sqlite":
        return {}
    server: S3Server = request.getfixturevalue("s3_server")
    store = server.settings(BLOB_BUCKET, uuid4().hex) | {"s3_allow_http": True}
    return {"database_url": request.getfixturevalue("database_url")} | store


@pytest.fixture
def service(forker: Forker, tmp_path: Path, places: dict[str, Any]) -> Iterator[ForkedService]:
    service = ForkedService(forker, tmp_path / "service", places)
    yield service
    service.kill()
