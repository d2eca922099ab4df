"""One key, one compile: leases are granted once, expire, are taken over, and fence."""

import asyncio

from fakes.replica import NODE, OTHER, WORKER, Replica, key

from graphcache_service.core.sweeper import extend_leases_by_outage
from graphcache_service.db import clock


async def test_sixteen_askers_at_once_get_one_lease(service: Replica) -> None:
    owners = [f"{number:032x}" for number in range(16)]
    outcomes = await asyncio.gather(*(service.resolve(key(), owner, can_compile=True) for owner in owners))
    states = sorted(outcome["state"] for outcome in outcomes)
    assert states == ["granted"] + ["pending"] * 15


async def test_owner_that_asks_again_is_granted_the_same_lease(service: Replica) -> None:
    first = await service.granted(key())
    again = await service.granted(key())
    assert (again["compile_id"], again["generation"]) == (first["compile_id"], first["generation"])


async def test_pending_tells_holder_phase_progress_and_heartbeat_age(service: Replica) -> None:
    lease = await service.granted(key())
    await service.heartbeat(lease, phase="lower", progress=0.25)
    await service.pass_time(7)
    pending = await service.resolve(key(), OTHER)
    assert (pending["holder"], pending["phase"], pending["progress"]) == ("node-a", "lower", 0.25)
    assert pending["heartbeat_age_s"] == 7


async def test_expired_lease_goes_to_the_next_asker_within_one_lease_time(service: Replica) -> None:
    dead = await service.granted(key())
    await service.pass_time(dead["ttl_s"])
    taken = await service.granted(key(), OTHER)
    assert taken["generation"] == dead["generation"] + 1


async def test_expired_lease_cannot_complete(service: Replica) -> None:
    dead = await service.granted(key())
    await service.upload(dead, b"late")
    await service.pass_time(dead["ttl_s"])
    assert (await service.complete(dead, b"late", expect=409))["code"] == "lease_expired"


async def test_late_calls_of_a_holder_that_was_followed_change_nothing(service: Replica) -> None:
    stopped = await service.granted(key())
    await service.upload(stopped, b"first")
    await service.pass_time(stopped["ttl_s"])
    following = await service.granted(key(), OTHER)
    await service.heartbeat(stopped, expect=409)
    await service.fail(stopped, "rejected", expect=409)
    await service.complete(stopped, b"first", expect=409)
    await service.upload(following, b"second")
    assert (await service.complete(following, b"second"))["accepted"]
    assert (await service.resolve(key()))["artifact"]["producer_id"] == OTHER


async def test_slow_compile_with_heartbeats_keeps_its_lease(service: Replica) -> None:
    lease = await service.granted(key())
    for _ in range(90):  # 45 minutes, a heartbeat every 30 s
        await service.pass_time(30)
        await service.heartbeat(lease)
    assert (await service.resolve(key(), OTHER, can_compile=True))["state"] == "pending"


async def test_released_lease_is_queued_at_once_and_costs_no_attempt(service: Replica) -> None:
    lease = await service.granted(key())
    body = {"generation": lease["generation"], "reason": "shutting down"}
    answer = await service.call("POST", f"/v1/leases/{lease['compile_id']}/release", json=body)
    assert answer["state"] == "queued"
    assert (await service.granted(key(), OTHER))["attempt"] == 1


async def test_waiter_wakes_when_the_holder_publishes(service: Replica) -> None:
    lease = await service.granted(key())
    waiting = asyncio.create_task(service.resolve(key(), OTHER, wait_s=30.0))
    await service.upload(lease, b"graph")
    await service.complete(lease, b"graph")
    assert (await waiting)["state"] == "ready"


async def test_waiter_that_can_compile_takes_over_when_the_lease_expires(service: Replica) -> None:
    lease = await service.granted(key())
    waiting = asyncio.create_task(service.resolve(key(), OTHER, wait_s=30.0, can_compile=True))
    await service.until_held(1)
    await service.pass_time(lease["ttl_s"])
    assert (await waiting)["state"] == "granted"


async def test_failure_of_one_key_leaves_another_untouched(service: Replica) -> None:
    bad, good = await service.granted(key(8)), await service.granted(key(16))
    await service.fail(bad, "rejected")
    assert (await service.resolve(key(16), OTHER))["compile_state"] == "leased"
    await service.heartbeat(good)


async def test_unknown_compile_is_404_and_a_bad_id_422(service: Replica) -> None:
    body = {"generation": 1, "phase": "compile"}
    missing = await service.call("POST", f"/v1/leases/{'0' * 32}/heartbeat", 404, json=body)
    assert missing["code"] == "not_found"
    malformed = await service.call("POST", "/v1/leases/..%2f/heartbeat", 404, json=body)
    assert malformed["code"] == "not_found"
    assert (await service.call("POST", "/v1/leases/xyz/heartbeat", 422, json=body))["field"] == "compile_id"


async def test_time_without_any_replica_does_not_run_a_lease_down(service: Replica) -> None:
    lease = await service.granted(key())
    await service.sweeper.sweep()
    async with service.services.database.write() as session:
        await clock.advance(session, 3_600)
    assert await extend_leases_by_outage(service.services) == 3_600
    await service.heartbeat(lease)


async def test_worker_and_node_are_told_apart_by_owner_not_by_name(service: Replica) -> None:
    first = await service.granted(key(8), NODE)
    body = {"key": key(16), "owner": WORKER, "holder": "node-a", "can_compile": True}
    second = (await service.call("POST", "/v1/graphs/resolve", json=body))["lease"]
    await service.pass_time(40)
    await service.heartbeat(second)
    await service.pass_time(40)
    await service.heartbeat(second)
    await service.heartbeat(first, expect=409)
