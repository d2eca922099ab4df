"""Statistics: each resolve counts once, and what was saved is the compile's seconds."""

import asyncio

from fakes.replica import NODE, NOON, OTHER, Replica, key
from sqlalchemy import select

from graphcache_service.core.flush import flush
from graphcache_service.core.maintenance import fold_days, fold_journal, forget_history
from graphcache_service.core.stats import first_period
from graphcache_service.db.models import JournalRow, PeriodRow
from graphcache_service.db.tallies import DAY_S, day_of


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
        usage = JournalRow.what.in_(("miss", "hit_service"))
        rows = select(JournalRow.what, JournalRow.number).where(usage).order_by(JournalRow.what)
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


async def told(service: Replica, **query: str) -> list[object]:
    stats = await service.stats(**query)
    return [stats[name] for name in ("totals", "groups", "evicted", "quarantined")]


async def test_totals_are_the_same_before_and_after_they_are_added_up(service: Replica) -> None:
    await service.publish(key(8), compile_s=30.0)
    await service.resolve(key(8), OTHER)
    await service.fail(await service.granted(key(16)), "crashed")
    at = (await service.stats())["at"]
    before = [await told(service, group_by="bucket"), await told(service, group_by="kind", since=at)]
    await fold_journal(service.services)
    async with service.services.database.read() as session:
        assert await session.scalar(select(JournalRow.id)) is None
    assert [await told(service, group_by="bucket"), await told(service, group_by="kind", since=at)] == before


async def test_every_publication_and_failure_is_told_at_once(service: Replica) -> None:
    for number in range(1, 4):
        await service.publish(key(8 * number), b"%d" % number)
        totals = (await service.stats())["totals"]
        assert (totals["compiles"]["ready"], totals["stored_bytes"], totals["misses"]) == (number, number, number)
        await fold_journal(service.services)
    await service.fail(await service.granted(key(32)), "rejected")
    assert (await service.stats())["totals"]["compiles"] == {"queued": 0, "leased": 0, "ready": 3, "failed": 1}


async def test_old_minutes_become_days_and_old_days_go_and_the_totals_stay(service: Replica) -> None:
    await service.publish(key(8))
    await service.stats()
    morning = (await service.stats())["at"]
    await service.pass_time(3 * DAY_S)
    for _ in range(2):
        await fold_journal(service.services)
        await fold_days(service.services)
        async with service.services.database.read() as session:
            assert set(await session.scalars(select(PeriodRow.period_start))) == {day_of(NOON)}
        assert (await service.stats(since=morning))["totals"]["misses"] == 1
    await service.pass_time(90 * DAY_S)
    await forget_history(service.services)
    assert (await service.stats(since=morning))["totals"]["misses"] == 0
    assert (await service.stats())["totals"]["misses"] == 1


def test_counts_since_a_time_begin_with_its_minute_and_long_ago_with_its_day() -> None:
    assert first_period(NOON + 61, NOON + DAY_S, 2.0) == NOON + 60
    assert first_period(NOON + 61, NOON + 9 * DAY_S, 2.0) == day_of(NOON)
