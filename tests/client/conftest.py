"""A real service for the client's tests."""

from collections.abc import Iterator

import pytest
from fakes.client_side import new_key
from fakes.running_service import RunningService

from graphcache_client import DiskStore, ServiceClient
from graphcache_wire import GraphKey


@pytest.fixture(scope="session")
def running(tmp_path_factory) -> Iterator[RunningService]:
    service = RunningService(tmp_path_factory.mktemp("service"))
    yield service
    service.stop()


@pytest.fixture
def service(running) -> Iterator[ServiceClient]:
    with ServiceClient(running.url, holder="node-a") as client:
        yield client


@pytest.fixture
def other(running) -> Iterator[ServiceClient]:
    with ServiceClient(running.url, holder="node-b") as client:
        yield client


@pytest.fixture
def key() -> GraphKey:
    return new_key()


@pytest.fixture
def store(tmp_path) -> DiskStore:
    return DiskStore(tmp_path / "node-a")
