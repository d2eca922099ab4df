"""Claims: the most urgent compile, for whom it can be, and once."""

import asyncio

from fakes.replica import NODE, OTHER, WORKER, Replica, key

from graphcache_service.core.callers import OPEN_CALLER
from graphcache_service.core.claim import claim
from graphcache_service.core.waiters import QUEUE
from graphcache_service.db import clock
from graphcache_wire import ClaimRequest

CLAIM = ClaimRequest(owner=WORKER, holder="worker-c", toolchains=["stub-1.0"], wait_s=30.0)
BAKED = {"mode": "baked", "weights": "0" * 64}


async def manifest(service: Replica, keys: list[dict[str, object]], priority: int = 50) -> None:
    body = {"name": f"m{priority}", "keys": keys, "priority": priority}
    await service.call("POST", "/v1/manifests", json=body)


async def test_trainer_that_waits_goes_before_prewarm(service: Replica) -> None:
    await manifest(service, [key(8), key(16)], priority=100)
    await service.resolve(key(24))
    buckets = [(await service.claim())["key"]["bucket"] for _ in range(3)]  # type: ignore[index]  # None fails too
    assert buckets[0] == 24


async def test_higher_manifest_goes_first_and_equal_ones_in_order(service: Replica) -> None:
    await manifest(service, [key(8)], priority=10)
    await service.pass_time(1)
    await manifest(service, [key(16)], priority=90)
    await service.pass_time(1)
    await manifest(service, [key(24)], priority=10)
    leases = [await service.claim() for _ in range(3)]
    assert [lease and lease["key"]["bucket"] for lease in leases] == [16, 8, 24]


async def test_asking_again_raises_a_priority_and_never_lowers_it(service: Replica) -> None:
    await manifest(service, [key(8), key(16)], priority=10)
    await service.resolve(key(16))
    await service.resolve(key(16), OTHER, purpose="prewarm")
    await manifest(service, [key(16)], priority=0)
    lease = await service.claim()
    assert lease is not None
    assert lease["key"]["bucket"] == 16


async def test_worker_gets_only_its_toolchains(service: Replica) -> None:
    await service.resolve(key())
    assert await service.claim(toolchains=["stub-1.1"]) is None
    assert await service.claim(toolchains=["stub-1.1", "stub-1.0"]) is not None


async def test_baked_graph_is_never_offered_to_a_worker(service: Replica) -> None:
    await service.resolve(key(options=BAKED))
    assert await service.claim() is None
    await service.granted(key(options=BAKED))


async def test_many_workers_get_different_compiles(service: Replica) -> None:
    keys = [key(8 * number) for number in range(1, 9)]
    await manifest(service, keys)  # type: ignore[arg-type]  # a list of the same dicts
    leases = await asyncio.gather(*(service.claim(f"{number:032x}") for number in range(10)))
    taken = [lease["compile_id"] for lease in leases if lease is not None]
    assert len(taken) == len(set(taken)) == 8


async def test_waiting_worker_wakes_when_something_is_queued(service: Replica) -> None:
    waiting = asyncio.create_task(service.claim(wait_s=30.0))
    await service.until_held(1)
    await service.resolve(key(), NODE)
    lease = await waiting
    assert lease is not None
    assert lease["owner"] == WORKER


async def test_a_worker_that_went_away_is_granted_nothing(service: Replica) -> None:
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    held = asyncio.create_task(claim(service.services, OPEN_CALLER, CLAIM, gone))
    await service.until_held(1)
    gone.set_result(None)
    assert (await held).lease is None
    await service.resolve(key())
    assert await service.claim() is not None


async def test_a_lease_for_a_worker_that_left_meanwhile_is_given_back(service: Replica) -> None:
    await service.resolve(key())
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with service.services.waiters.sit(QUEUE) as topic:
        async with topic.lock:
            held = asyncio.create_task(claim(service.services, OPEN_CALLER, CLAIM, gone))
            await service.until_held(2)
            gone.set_result(None)
        assert (await held).lease is None
    lease = await service.claim()
    assert lease is not None
    assert (lease["generation"], lease["attempt"]) == (2, 1)


async def test_claim_takes_over_an_expired_lease(service: Replica) -> None:
    lease = await service.granted(key())
    async with service.services.database.write() as session:
        await clock.advance(session, lease["ttl_s"])
    taken = await service.claim()
    assert taken is not None
    assert taken["generation"] == 2


async def test_stats_name_the_toolchains_that_workers_offer(service: Replica) -> None:
    await service.claim(toolchains=["stub-2.0"])
    assert [seen["toolchain"] for seen in (await service.stats())["toolchains"]] == ["stub-2.0"]
