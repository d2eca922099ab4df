"""A real service of its own for each fault: these tests kill it, stop it and cut it off."""

from collections.abc import Iterator

import pytest
from fakes.client_side import new_key
from fakes.running_service import RunningService

from graphcache_client import DiskStore
from graphcache_wire import GraphKey


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
