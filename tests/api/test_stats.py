"""Statistics: each resolve counts once, and what was saved is the compile's seconds."""

import asyncio

import pytest
from fakes.replica import NODE, OTHER, Replica, key
from sqlalchemy import select

from graphcache_service.core import stock
from graphcache_service.core.flush import flush
from graphcache_service.core.stock import KEPT_AT_MOST_S, ROWS_A_SECOND, kept_s
from graphcache_service.db.models import UsageRow


async def test_counters_are_exact(service: Replica) -> None:
    await service.publish(key(8), compile_s=30.0)  # one miss
    for _ in range(10):
        await service.resolve(key(8), OTHER)
    for bucket in (16, 24, 32, 40):
        await service.resolve(key(bucket), NODE)
    await service.fail((await service.resolve(key(16), NODE, can_compile=True))["lease"], "rejected")
    for _ in range(3):
        await service.resolve(key(16), OTHER)
    totals = (await service.stats())["totals"]
    assert totals["hits"] == {"memory": 0, "disk": 0, "service": 10}
    assert (totals["misses"], totals["errors"]) == (5, 3)
    assert totals["compile_s_saved"] == 300.0


async def test_hit_costs_no_write_until_the_counts_are_flushed(service: Replica) -> None:
    await service.publish(key())
    await flush(service.services)
    async with service.services.database.read() as session:
        rows = select(UsageRow.event, UsageRow.count).order_by(UsageRow.event)
        for _ in range(5):
            assert (await service.resolve(key(), OTHER))["state"] == "ready"
        assert [tuple(row) for row in await session.execute(rows)] == [("miss", 1)]
        await flush(service.services)
        assert [tuple(row) for row in await session.execute(rows)] == [("hit_service", 5), ("miss", 1)]


async def test_joined_waits_count_once_over_many_polls_and_tell_their_wait(service: Replica) -> None:
    lease = await service.granted(key())
    for _ in range(3):
        await service.resolve(key(), OTHER)
        await service.pass_time(20)
        await service.heartbeat(lease)
    await service.upload(lease, b"graph")
    await service.complete(lease, b"graph", compile_s=60.0)
    await service.resolve(key(), OTHER)
    totals = (await service.stats())["totals"]
    assert totals["joined_waits"] == {"ready": 1, "failed": 0, "timed_out": 0}
    assert totals["wait"] == {"count": 1, "p50_s": 60.0, "p95_s": 60.0, "p99_s": 60.0}
    assert (totals["compile_s_saved"], totals["compile_s_spent"]) == (60.0, 60.0)


async def test_asker_that_gave_up_counts_as_timed_out(service: Replica) -> None:
    await service.granted(key())
    await service.resolve(key(), OTHER)
    await service.pass_time(121)
    assert (await service.stats())["totals"]["joined_waits"]["timed_out"] == 1


async def test_sixty_three_of_sixty_four_ranks_join_one_compile(service: Replica) -> None:
    lease = await service.granted(key(), f"{0:032x}")
    waiting = [asyncio.create_task(service.resolve(key(), f"{rank:032x}", wait_s=50.0)) for rank in range(1, 64)]
    await service.until_held(63)
    await service.upload(lease, b"graph")
    await service.complete(lease, b"graph")
    assert {outcome["state"] for outcome in await asyncio.gather(*waiting)} == {"ready"}
    totals = (await service.stats())["totals"]
    assert (totals["misses"], totals["joined_waits"]["ready"], totals["attempts"]) == (1, 63, {"ready": 1})


async def test_clients_batches_count_once(service: Replica) -> None:
    artifact = await service.publish(key(), compile_s=10.0)
    digest = artifact["key_digest"]
    hits = [{"key_digest": digest, "tier": tier, "count": n} for tier, n in (("memory", 7), ("disk", 2))]
    body = {"owner": NODE, "batch": "1" * 32, "hits": hits}
    assert await service.call("POST", "/v1/usage", json=body) == {"accepted": True}
    assert await service.call("POST", "/v1/usage", json=body) == {"accepted": False}
    totals = (await service.stats())["totals"]
    assert totals["hits"] == {"memory": 7, "disk": 2, "service": 0}
    assert totals["compile_s_saved"] == 20.0


async def test_groups_and_since_select_rows(service: Replica) -> None:
    await service.publish(key(8))
    await service.resolve(key(8), OTHER)
    await service.stats()
    await service.pass_time(3_600)
    await service.publish(key(16), b"another", owner=OTHER)
    at = (await service.stats())["at"]
    grouped = await service.stats(group_by="bucket", since=at)
    assert [(group["group"], group["row"]["misses"]) for group in grouped["groups"]] == [("8", 0), ("16", 1)]
    assert grouped["totals"]["hits"]["service"] == 0


async def test_alarm_when_nothing_hits_after_a_change_of_toolchain(service: Replica) -> None:
    await service.publish(key(8))
    assert (await service.stats())["alarms"] == []
    for number in range(1, 12):
        await service.resolve(key(8 * number, toolchain="stub-1.1"))
    alarms = (await service.stats())["alarms"]
    assert [alarm["code"] for alarm in alarms] == ["no_hits_after_toolchain_change"]
    assert "stub-1.1" in alarms[0]["message"]


async def test_metrics_are_for_prometheus(service: Replica) -> None:
    await service.resolve(key())
    text = (await service.http.get("/metrics")).text
    assert 'graphcache_compiles{state="queued",toolchain="stub-1.0"} 1.0' in text
    assert "graphcache_request_seconds_bucket" in text


def test_sums_over_few_rows_are_never_kept_and_over_many_for_a_minute_at_most() -> None:
    assert kept_s(ROWS_A_SECOND - 1) == 0.0
    assert kept_s(20 * ROWS_A_SECOND) == 20.0
    assert kept_s(10**9) == KEPT_AT_MOST_S


async def test_sums_over_many_rows_answer_again_without_reading(
    service: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock, "kept_s", lambda summed_rows: KEPT_AT_MOST_S)
    await service.publish(key(8))
    assert (await service.stats())["totals"]["compiles"]["ready"] == 1
    await service.publish(key(16), b"another")
    totals = (await service.stats())["totals"]
    assert (totals["compiles"]["ready"], totals["misses"]) == (1, 2)
    assert (await service.stats(group_by="bucket"))["totals"]["compiles"]["ready"] == 2
