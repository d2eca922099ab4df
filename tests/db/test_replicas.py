"""Two replicas on one database: one lease a key, and waiters of one wake when the other publishes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from fakes.replica import NODE, OTHER, Replica, key, replica
from sqlalchemy.pool import QueuePool

from graphcache_service import background
from graphcache_service.core.flush import flush
from graphcache_service.core.maintenance import fold_journal

Pair = tuple[Replica, Replica]


@pytest.fixture
async def pair(database_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(replica(database_url, tmp_path)) for _ in range(2)]
        await both[0].freeze()
        tasks = [task for one in both for task in background.start(one.services)]
        stack.push_async_callback(background.stop, tasks)
        yield both[0], both[1]


async def test_askers_of_both_replicas_get_one_lease(pair: Pair) -> None:
    asks = [pair[number % 2].resolve(key(), f"{number:032x}", can_compile=True) for number in range(16)]
    states = sorted(outcome["state"] for outcome in await asyncio.gather(*asks))
    assert states == ["granted"] + ["pending"] * 15


async def test_workers_of_both_replicas_get_different_compiles(pair: Pair) -> None:
    body = {"name": "job", "keys": [key(8 * number) for number in range(1, 9)]}
    await pair[0].call("POST", "/v1/manifests", json=body)
    leases = await asyncio.gather(*(pair[number % 2].claim(f"{number:032x}") for number in range(8)))
    assert len({lease["compile_id"] for lease in leases if lease is not None}) == 8


async def test_waiter_of_one_replica_wakes_when_the_other_publishes(pair: Pair) -> None:
    here, there = pair
    lease = await here.granted(key(), NODE)
    waiting = asyncio.create_task(there.resolve(key(), OTHER, wait_s=50.0))
    await there.until_held(1)
    await here.upload(lease, b"graph")
    await here.complete(lease, b"graph")
    # Within the timeout of this wait, which is far shorter than the poll: it was woken.
    assert (await asyncio.wait_for(waiting, 20.0))["state"] == "ready"


async def test_worker_of_one_replica_wakes_when_the_other_queues(pair: Pair) -> None:
    here, there = pair
    waiting = asyncio.create_task(there.claim(wait_s=50.0))
    await there.until_held(1)
    await here.resolve(key(), NODE)
    assert await asyncio.wait_for(waiting, 20.0) is not None


async def test_lease_of_one_replica_is_renewed_and_fenced_by_the_other(pair: Pair) -> None:
    here, there = pair
    lease = await here.granted(key(), NODE)
    await there.heartbeat(lease)
    await there.pass_time(lease["ttl_s"])
    assert (await there.granted(key(), OTHER))["generation"] == 2
    await here.heartbeat(lease, expect=409)


async def test_what_both_replicas_add_up_at_once_counts_once(pair: Pair) -> None:
    here, there = pair
    for number in range(1, 13):
        await pair[number % 2].publish(key(8 * number), b"%d" % number)
    for replica_ in pair:
        await flush(replica_.services)
    await asyncio.gather(*(fold_journal(one.services) for one in (here, there, here, there)))
    totals = [(await one.stats())["totals"] for one in pair]
    assert totals[0] == totals[1]
    assert (totals[0]["misses"], totals[0]["compiles"]["ready"], totals[0]["attempts"]) == (12, 12, {"ready": 12})


async def test_quarantine_by_one_replica_is_seen_by_the_other(pair: Pair) -> None:
    here, there = pair
    artifact = await here.publish(key())
    for owner in (NODE, OTHER):
        body = {"blob": artifact["blob"], "owner": owner, "holder": "n", "reason": "load_failed"}
        await there.call("POST", f"/v1/graphs/{artifact['key_digest']}/report", json=body)
    assert (await here.resolve(key()))["state"] == "pending"


async def test_forty_askers_share_two_connections_and_hold_none_while_they_wait(
    database_url: str, tmp_path: Path
) -> None:
    async with replica(database_url, tmp_path, database_pool_size=1) as service:
        await service.freeze()
        await service.granted(key(), NODE)
        asks = [service.resolve(key(), f"{number:032x}", wait_s=50.0) for number in range(1, 41)]
        waiting = [asyncio.create_task(ask) for ask in asks]
        await service.until_held(40)
        pool = service.services.database.engine.pool
        assert isinstance(pool, QueuePool)
        async with asyncio.timeout(20.0):
            while pool.checkedout():  # noqa: ASYNC110 - the last look is under way, and the pool tells nobody
                await asyncio.sleep(0.01)
        service.services.waiters.close()
        assert {outcome["state"] for outcome in await asyncio.gather(*waiting)} == {"pending"}
