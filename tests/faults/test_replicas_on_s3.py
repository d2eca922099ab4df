"""Replicas as real processes on one PostgreSQL and one S3: one of them dies, or all that the database knew is lost."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.client_side import new_key, writes
from fakes.databases import PostgresServer
from fakes.forked_service import ForkedService
from fakes.forker import Forker
from fakes.running_service import Holder, path_of

from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_service.core.fsck import fsck
from graphcache_service.core.rebuild import rebuild

pytestmark = pytest.mark.parametrize("database_kind", ["postgresql"])
RANKS = 12


@pytest.fixture
def other(forker: Forker, tmp_path: Path, places: dict[str, Any]) -> Iterator[ForkedService]:
    """A second replica; what they share is the database and the store alone."""
    service = ForkedService(forker, tmp_path / "other", places)
    yield service
    service.kill()


def test_ranks_on_both_replicas_share_one_compile(service: ForkedService, other: ForkedService, tmp_path: Path) -> None:
    key, compiled, content = new_key(), [], os.urandom(100_000)
    service.start()
    other.start()

    def get(rank: int) -> bytes:
        url, store = (service, other)[rank % 2].url, DiskStore(tmp_path / str(rank))
        with ServiceClient(url) as client, GraphCache(client, store, compile_here=writes(content, compiled)) as cache:
            return cache.get(key, deadline_s=60).path.read_bytes()

    with ThreadPoolExecutor(RANKS) as pool:
        assert set(pool.map(get, range(RANKS))) == {content}
    assert len(compiled) == 1
    with ServiceClient(service.url) as here, ServiceClient(other.url) as there:
        told = [client.stats().totals for client in (here, there)]
    assert told[0].attempts == told[1].attempts == {"ready": 1}
    assert told[1].misses + told[1].joined_waits["ready"] + told[1].hits["service"] == RANKS


def test_holder_of_a_killed_replica_goes_on_at_the_other(service: ForkedService, other: ForkedService) -> None:
    service.start()
    other.start()
    content, holder = os.urandom(100_000), Holder(service)
    lease = holder.lease()
    service.kill()
    elsewhere = Holder(other)
    assert elsewhere.put(content, lease).status_code == 201
    assert elsewhere.complete(content, lease).json()["accepted"]
    service.start()
    assert Holder(service).http.get(path_of(content)).content == content


def test_all_that_was_published_comes_back_after_the_database_was_lost(
    service: ForkedService, forker: Forker, postgres_server: PostgresServer, places: dict[str, Any], tmp_path: Path
) -> None:
    service.start()
    holder, contents = Holder(service), [os.urandom(10_000) for _ in range(20)]
    paths = [holder.publish(content) for content in contents]
    service.kill()
    new = ForkedService(forker, tmp_path / "new", places | {"database_url": postgres_server.empty_database()})
    rebuilt = new.with_services(lambda services: rebuild(services, deep=True))
    assert (rebuilt.graphs, dict(rebuilt.skipped)) == (20, {})
    again = new.with_services(rebuild)
    assert (again.graphs, dict(again.skipped)) == (0, {"the database has it": 20})
    assert new.with_services(lambda services: fsck(services, deep=True)).clean()
    new.start()
    try:
        assert [Holder(new).http.get(path).content for path in paths] == contents
    finally:
        new.kill()
