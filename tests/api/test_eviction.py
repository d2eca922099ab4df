"""Eviction: by cost, down to the quota, and never what is pinned or in use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.replica import OTHER, Replica, key, replica

from graphcache_service.core import eviction
from graphcache_service.core.eviction import Excess, choose, excess
from graphcache_service.core.orphans import OrphanSearch
from graphcache_service.db import eviction as eviction_rows
from graphcache_service.db.eviction import Candidate
from graphcache_service.settings import Settings

DAY_S = 86_400.0


@pytest.fixture
async def small(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    """A replica that may store 1,000 bytes."""
    async with replica(database_url, tmp_path, quota_bytes=1_000) as started:
        await started.freeze()
        yield started


def candidate(blob: str, size_bytes: int, compile_s: float, last_used_at: float = 0.0) -> Candidate:
    return Candidate(blob, size_bytes, compile_s, last_used_at, graphs=1)


def test_cheapest_seconds_a_byte_go_first_and_age_halves_them() -> None:
    fresh, cheap, old = candidate("a", 10, 100.0, DAY_S), candidate("b", 10, 10.0, DAY_S), candidate("c", 10, 100.0)
    order = choose([fresh, cheap, old], Excess(30, 0), DAY_S, half_life_s=DAY_S / 10)
    assert [one.blob for one in order] == ["c", "b", "a"]


def test_no_more_goes_than_the_quota_asks_for() -> None:
    candidates = [candidate(str(number), 10, 1.0) for number in range(9)]
    assert len(choose(candidates, Excess(25, 0), 0.0, DAY_S)) == 3
    assert len(choose(candidates, Excess(0, 2), 0.0, DAY_S)) == 2


def test_nothing_goes_while_the_quota_holds() -> None:
    settings = Settings(quota_bytes=100)
    assert not excess(settings, stored_blobs=9, stored_bytes=90, wanted_bytes=10, wanted_blobs=1)
    assert excess(settings, stored_blobs=9, stored_bytes=90, wanted_bytes=11, wanted_blobs=1) == Excess(6, 0)


async def test_upload_over_the_quota_evicts_the_least_valuable_graph(small: Replica) -> None:
    await small.publish(key(8), b"a" * 400, compile_s=10.0)
    await small.publish(key(16), b"b" * 400, compile_s=1_000.0)
    await small.pass_time(DAY_S)
    await small.publish(key(24), b"c" * 400)
    states = [(await small.resolve(key(bucket)))["state"] for bucket in (8, 16, 24)]
    assert states == ["pending", "ready", "ready"]
    stats = await small.stats()
    assert (stats["evicted"], stats["evicted_bytes"], stats["blob_bytes"]) == (1, 400, 800)
    assert stats["evicted_age"]["p50_s"] == DAY_S


async def test_graph_used_in_the_last_minutes_stays_and_the_upload_is_refused(small: Replica) -> None:
    await small.publish(key(8), b"a" * 900)
    await small.pass_time(500)
    refused = await small.upload(await small.granted(key(16), OTHER), b"b" * 400, expect=507)
    assert (refused["code"], refused["retryable"]) == ("quota_exceeded", True)
    assert (await small.resolve(key(8)))["state"] == "ready"


async def test_search_in_vain_is_not_repeated_for_every_upload(small: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    await small.publish(key(8), b"a" * 900)
    lease, searches, candidates = await small.granted(key(16), OTHER), [], eviction_rows.candidates
    monkeypatch.setattr(eviction_rows, "candidates", lambda *a: searches.append(1) or candidates(*a))
    for _ in range(5):
        await small.upload(lease, b"b" * 400, expect=507)
    assert len(searches) == 1
    await small.pass_time(DAY_S)
    await small.upload(await small.granted(key(16), OTHER), b"b" * 400)
    assert len(searches) == 2


async def test_pinned_graph_stays_however_old(small: Replica) -> None:
    await small.publish(key(8), b"a" * 900)
    await small.call("POST", "/v1/manifests", json={"name": "job", "keys": [key(8)]})
    await small.pass_time(100 * DAY_S)
    await small.upload(await small.granted(key(16), OTHER), b"b" * 400, expect=507)
    assert (await small.resolve(key(8)))["state"] == "ready"


async def test_what_would_go_is_told_beforehand_and_nothing_goes(small: Replica) -> None:
    artifact = await small.publish(key(8), b"a" * 900)
    await small.pass_time(DAY_S)
    assert [one.blob for one in await eviction.plan(small.services, wanted_bytes=200)] == [artifact["blob"]]
    assert (await small.resolve(key(8)))["state"] == "ready"


async def test_graph_fetched_between_plan_and_eviction_stays(small: Replica) -> None:
    artifact = await small.publish(key(8), b"a" * 900)
    await small.pass_time(DAY_S)
    victims = await eviction.plan(small.services, wanted_bytes=200)
    await small.http.get(f"/v1/blobs/{artifact['blob']}")
    await small.stats()  # writes what was counted
    assert await eviction.evict(small.services, victims) == []


async def test_evicted_key_keeps_its_history_and_is_compiled_anew(small: Replica) -> None:
    await small.publish(key(8), b"a" * 900)
    await small.pass_time(DAY_S)
    await eviction.make_room(small.services, wanted_bytes=200)
    artifact = await small.publish(key(8), b"a" * 900)
    graph = await small.call("GET", f"/v1/graphs/{artifact['key_digest']}")
    assert [one["outcome"] for one in graph["attempts"]] == ["ready", "ready"]


async def test_upload_that_was_never_published_is_collected(small: Replica) -> None:
    await small.upload(await small.granted(key(8)), b"a" * 100)
    await small.pass_time(3_601)
    assert await OrphanSearch(small.services).round() == 1
    assert (await small.stats())["blob_bytes"] == 0


async def test_search_for_orphans_goes_on_where_it_stopped_and_begins_anew(small: Replica) -> None:
    lease = await small.granted(key(8))
    for number in range(5):
        await small.upload(lease, b"%d" % number)
    search = OrphanSearch(small.services, looked_at=2)
    assert [await search.round() for _ in range(3)] == [0, 0, 0]
    await small.pass_time(3_601)
    assert [await search.round() for _ in range(4)] == [2, 2, 1, 0]
