"""Manifests: queued, pinned, told; and many keys asked at once."""

import asyncio
import json

import pytest
from fakes.replica import OTHER, Replica, key

from graphcache_service.core import manifests
from graphcache_service.core.callers import OPEN_CALLER
from graphcache_service.core.shared_reads import SharedReads


async def post(service: Replica, name: str, *buckets: int, **fields: object) -> dict[str, object]:
    return await service.call("POST", "/v1/manifests", json={"name": name, "keys": [key(b) for b in buckets]} | fields)


async def test_manifest_queues_what_is_not_stored(service: Replica) -> None:
    await service.publish(key(8))
    status = await post(service, "job", 8, 16, 24)
    assert (status["ready"], status["queued"], status["total"], status["done"]) == (1, 2, 3, False)


async def test_repeated_manifest_is_the_same_one(service: Replica) -> None:
    first = await post(service, "job", 8, 16)
    again = await post(service, "job", 16, 8, priority=70)
    assert (again["id"], again["priority"]) == (first["id"], 70)


async def test_newer_manifest_of_a_name_takes_over_the_pins(service: Replica) -> None:
    older = await post(service, "job", 8)
    newer = await post(service, "job", 16)
    assert (await service.call("GET", f"/v1/manifests/{older['id']}"))["pin"] is False
    assert newer["pin"] is True


async def test_deleted_manifest_is_gone_and_its_graphs_stay(service: Replica) -> None:
    await service.publish(key(8))
    status = await post(service, "job", 8)
    await service.call("DELETE", f"/v1/manifests/{status['id']}", 204)
    await service.call("GET", f"/v1/manifests/{status['id']}", 404)
    assert (await service.resolve(key(8)))["state"] == "ready"


async def test_manifest_retries_kept_failures_only_when_asked(service: Replica) -> None:
    await service.fail(await service.granted(key(8)), "rejected")
    assert (await post(service, "job", 8))["failed"] == 1
    assert (await post(service, "job", 8, retry_failed=True))["queued"] == 1


async def test_expected_time_comes_from_compiles_of_the_same_kind(service: Replica) -> None:
    await service.publish(key(8), compile_s=120.0)
    status = await post(service, "job", 16)
    assert status["eta_s"] == 120.0
    assert (await service.resolve(key(16)))["eta_s"] == 120.0


async def test_events_tell_every_change_until_done(service: Replica) -> None:
    status = await post(service, "job", 8)
    events = manifests.events(service.services, OPEN_CALLER, str(status["id"]))
    first = await anext(events)
    assert first is not None
    assert first.queued == 1
    await service.publish(key(8))
    assert [event.ready async for event in events if event is not None] == [1]


async def test_events_are_server_sent(service: Replica) -> None:
    await service.publish(key(8))
    status = await post(service, "job", 8)
    response = await service.http.get(f"/v1/manifests/{status['id']}/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    name, data = response.text.strip().split("\n")
    assert (name, json.loads(data.removeprefix("data: "))["done"]) == ("event: status", True)


async def test_quiet_stream_sends_comments_so_that_no_proxy_ends_it(
    service: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "EVENT_EVERY_S", 0.0)
    monkeypatch.setattr(manifests, "QUIET_S", 0.0)
    status = await post(service, "job", 8)
    events = manifests.events(service.services, OPEN_CALLER, str(status["id"]))
    assert await anext(events) is not None
    assert await anext(events) is None
    await service.publish(key(8))
    assert [event.ready async for event in events if event is not None] == [1]


async def test_many_that_ask_the_same_at_once_share_a_reading() -> None:
    shared, readings = SharedReads(), []

    async def read() -> int:
        readings.append(1)
        await asyncio.sleep(0)
        return len(readings)

    assert await asyncio.gather(*(shared.recent("a", 60.0, read) for _ in range(9))) == [1] * 9
    assert await shared.recent("b", 60.0, read) == 2
    assert await shared.recent("a", 0.0, read) == 3


async def test_resolve_many_says_what_stands_and_queues_the_rest(service: Replica) -> None:
    await service.publish(key(8))
    await service.fail(await service.granted(key(16)), "rejected")
    body = {"keys": [key(8), key(16), key(24)], "owner": OTHER, "holder": "n"}
    looked = await service.call("POST", "/v1/graphs/resolve-many", json=body | {"enqueue": False})
    assert [one["state"] for one in looked["outcomes"]] == ["ready", "failed", "absent"]
    asked = await service.call("POST", "/v1/graphs/resolve-many", json=body)
    assert [one["state"] for one in asked["outcomes"]] == ["ready", "failed", "pending"]
    assert await service.claim() is not None


async def test_list_pages_and_filters(service: Replica) -> None:
    await post(service, "job", 8, 16, 24, 32, 40)
    await service.publish(key(8))
    seen: list[str] = []
    cursor = None
    while True:
        page = await service.call("GET", "/v1/graphs", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        seen += [one["key_digest"] for one in page["graphs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 5
    ready = await service.call("GET", "/v1/graphs", params={"state": "ready", "kind": "moe-experts-fwd", "bucket": 8})
    assert [one["key"]["bucket"] for one in ready["graphs"]] == [8]
