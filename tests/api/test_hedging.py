"""Hedging: a compile far past its history gets one second attempt, the first good one wins; nothing else changes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.replica import NODE, OTHER, WORKER, Json, Replica, key, replica, sha256

from graphcache_service.core.eviction import evict
from graphcache_service.core.fsck import fsck
from graphcache_service.core.hedging import is_overdue
from graphcache_service.core.sweeper import extend_leases_by_outage
from graphcache_service.db import clock
from graphcache_service.db import eviction as eviction_rows
from graphcache_wire import GraphKey

USUAL_S = 100.0
FACTOR = 2.0
SAMPLES = 5
THIRD = "d" * 32


def sample(number: int, **fields: Any) -> Json:
    """A graph of the usual kind and size, of which many are compiled."""
    return key(options={"flags": f"{number}"}, **fields)


@pytest.fixture
async def hedging(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    async with replica(database_url, tmp_path, hedge_factor=FACTOR) as started:
        await started.freeze()
        yield started


async def compile_samples(service: Replica, count: int = SAMPLES) -> None:
    for number in range(count):
        await service.publish(sample(number), b"sample %d" % number, compile_s=USUAL_S)


async def grow_late(service: Replica, lease: Json, seconds: float = FACTOR * USUAL_S + 1) -> None:
    """Let a holder compile on, with its heartbeats."""
    while seconds > 0:
        await service.pass_time(min(seconds, 30.0))
        await service.heartbeat(lease)
        seconds -= 30.0


async def late_and_hedged(service: Replica) -> tuple[Json, Json]:
    """The lease of a compile that is overdue, and its hedge."""
    await compile_samples(service)
    first = await service.granted(key())
    await grow_late(service, first)
    hedge = await service.claim()
    assert hedge is not None
    return first, hedge


async def attempts(service: Replica, lease: Json) -> list[tuple[str, str | None]]:
    """Outcome and class of the attempts at a lease's key, in the order of their begin."""
    digest = GraphKey.model_validate(lease["key"]).digest
    detail = await service.call("GET", f"/v1/graphs/{digest}")
    return [(one["outcome"], one.get("failure_class")) for one in detail["attempts"]]


async def assert_fenced(service: Replica, lease: Json) -> None:
    """Whatever a holder says is refused, and changes nothing."""
    before = await service.resolve(lease["key"], THIRD)
    await service.heartbeat(lease, expect=409)
    await service.upload(lease, b"late", expect=409)
    refused = await service.complete(lease, b"sample 0", expect=409)
    assert refused["code"] == "lease_expired"
    await service.fail(lease, "rejected", expect=409)
    release = {"generation": lease["generation"], "reason": "stopped"}
    await service.call("POST", f"/v1/leases/{lease['compile_id']}/release", 409, json=release)
    assert await service.resolve(lease["key"], THIRD) == before


@pytest.mark.parametrize(
    ("running_s", "history_s", "overdue"),
    [
        (201.0, [100.0] * 5, True),
        (200.0, [100.0] * 5, False),
        (1e9, [100.0] * 4, False),
        (1e9, [], False),
        (201.0, [100.0] * 19 + [900.0], True),
        (201.0, [100.0] * 9 + [900.0], False),
    ],
)
def test_overdue_is_past_the_factor_of_the_95th_percentile_of_five_or_more(
    running_s: float, history_s: list[float], overdue: bool
) -> None:
    assert is_overdue(running_s, history_s, FACTOR) == overdue


async def test_nothing_is_hedged_unless_it_is_asked_for(service: Replica) -> None:
    await compile_samples(service)
    lease = await service.granted(key())
    await grow_late(service, lease, 3_000.0)
    assert await service.claim() is None


async def test_overdue_compile_is_hedged_once_under_an_id_of_its_own(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    assert hedge["key"] == first["key"]
    assert (hedge["owner"], hedge["compile_id"] != first["compile_id"]) == (WORKER, True)
    assert await hedging.claim(OTHER) is None
    await hedging.heartbeat(first)
    await hedging.heartbeat(hedge)


async def test_compile_within_its_history_is_left_alone(hedging: Replica) -> None:
    await compile_samples(hedging)
    lease = await hedging.granted(key())
    await grow_late(hedging, lease, FACTOR * USUAL_S)
    assert await hedging.claim() is None


async def test_too_short_a_history_or_one_of_another_size_hedges_nothing(hedging: Replica) -> None:
    await compile_samples(hedging, SAMPLES - 1)
    same, other = await hedging.granted(key()), await hedging.granted(key(16), OTHER)
    for _ in range(100):
        await hedging.pass_time(30)
        await hedging.heartbeat(same)
        await hedging.heartbeat(other)
    assert await hedging.claim() is None


async def test_holder_of_the_lease_is_never_given_its_own_hedge(hedging: Replica) -> None:
    await compile_samples(hedging)
    first = await hedging.granted(key(), WORKER)
    await grow_late(hedging, first)
    assert await hedging.claim(WORKER) is None
    assert await hedging.claim(WORKER, ["other-1.0"]) is None
    assert await hedging.claim(OTHER) is not None


async def test_what_is_queued_goes_before_a_hedge(hedging: Replica) -> None:
    await compile_samples(hedging)
    await grow_late(hedging, await hedging.granted(key()))
    await hedging.resolve(key(16))
    queued, hedge = await hedging.claim(), await hedging.claim(OTHER)
    assert queued is not None
    assert hedge is not None
    assert (queued["key"]["bucket"], hedge["key"]["bucket"]) == (16, 8)


async def test_workers_that_claim_at_once_get_one_hedge(hedging: Replica) -> None:
    await compile_samples(hedging)
    await grow_late(hedging, await hedging.granted(key()))
    claims = await asyncio.gather(*(hedging.claim(f"{number:032x}") for number in range(8)))
    assert sum(lease is not None for lease in claims) == 1


async def test_hedge_that_publishes_first_wins_and_fences_the_first_attempt(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    waiting = asyncio.create_task(hedging.resolve(key(), OTHER, wait_s=30.0))
    await hedging.until_held(1)
    await hedging.upload(first, b"never published")
    await hedging.upload(hedge, b"hedge")
    answer = await hedging.complete(hedge, b"hedge")
    assert (answer["accepted"], answer["artifact"]["producer_id"]) == (True, WORKER)
    assert (await waiting)["artifact"] == answer["artifact"]
    assert await hedging.complete(hedge, b"hedge") == answer
    await assert_fenced(hedging, first)
    assert await attempts(hedging, hedge) == [("failed", "cancelled"), ("ready", None)]
    assert (await fsck(hedging.services, deep=True)).clean()


async def test_first_attempt_that_publishes_first_wins_and_fences_the_hedge(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    await hedging.upload(first, b"first")
    assert (await hedging.complete(first, b"first"))["accepted"]
    await assert_fenced(hedging, hedge)
    assert await attempts(hedging, hedge) == [("ready", None), ("failed", "cancelled")]


async def test_two_that_publish_at_once_leave_one_standing(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    await hedging.upload(first, b"same bytes")
    await hedging.upload(hedge, b"same bytes", expect=200)
    published = {"blob": sha256(b"same bytes"), "size_bytes": 10, "toolchain": key()["toolchain"], "compile_s": 1.0}
    answers = await asyncio.gather(
        *(
            hedging.http.post(
                f"/v1/leases/{lease['compile_id']}/complete",
                json={"generation": lease["generation"], "published": published},
            )
            for lease in (first, hedge)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert (await fsck(hedging.services)).clean()


async def test_second_bytes_of_a_hedge_change_nothing(hedging: Replica) -> None:
    _, hedge = await late_and_hedged(hedging)
    await hedging.upload(hedge, b"one")
    standing = (await hedging.complete(hedge, b"one"))["artifact"]
    again = await hedging.complete(hedge, b"sample 1")
    assert (again["accepted"], again["artifact"]) == (False, standing)


@pytest.mark.parametrize("failure_class", ["crashed", "rejected", "cancelled"])
async def test_hedge_that_fails_leaves_the_first_attempt_alone(hedging: Replica, failure_class: str) -> None:
    first, hedge = await late_and_hedged(hedging)
    await hedging.fail(hedge, failure_class)
    await hedging.fail(hedge, failure_class)
    await hedging.heartbeat(hedge, expect=409)
    await hedging.heartbeat(first)
    assert await hedging.claim(OTHER) is None
    await hedging.upload(first, b"first")
    assert (await hedging.complete(first, b"first"))["accepted"]
    assert await attempts(hedging, first) == [("ready", None), ("failed", failure_class)]


async def test_hedge_that_expires_leaves_the_first_attempt_alone(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    await grow_late(hedging, first, hedge["ttl_s"])
    await assert_fenced(hedging, hedge)
    await hedging.heartbeat(first)
    assert await attempts(hedging, first) == [("running", None), ("failed", "lost")]


@pytest.mark.parametrize("failure_class", ["crashed", "rejected"])
async def test_hedge_goes_on_where_the_first_attempt_fails_and_may_still_win(
    hedging: Replica, failure_class: str
) -> None:
    first, hedge = await late_and_hedged(hedging)
    await hedging.fail(first, failure_class)
    await hedging.heartbeat(hedge)
    await hedging.upload(hedge, b"hedge")
    assert (await hedging.complete(hedge, b"hedge"))["accepted"]
    assert (await hedging.resolve(key()))["artifact"]["blob"] == sha256(b"hedge")
    await assert_fenced(hedging, first)


async def test_hedge_of_a_lost_lease_and_the_one_that_followed_are_one_lease_and_one_hedge(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    await grow_late(hedging, hedge, first["ttl_s"])
    following = await hedging.granted(key(), OTHER)
    for _ in range(10):
        await hedging.pass_time(30)
        await hedging.heartbeat(following)
        await hedging.heartbeat(hedge)
    assert await hedging.claim(THIRD) is None
    await hedging.upload(hedge, b"hedge")
    assert (await hedging.complete(hedge, b"hedge"))["accepted"]
    for lost in (first, following):
        await assert_fenced(hedging, lost)


async def test_key_compiled_again_after_a_hedge_won_has_a_generation_of_its_own(hedging: Replica) -> None:
    first, hedge = await late_and_hedged(hedging)
    await hedging.upload(hedge, b"hedge")
    artifact = (await hedging.complete(hedge, b"hedge"))["artifact"]
    for owner in (NODE, OTHER):
        body = {"blob": artifact["blob"], "owner": owner, "holder": "n", "reason": "load_failed"}
        await hedging.call("POST", f"/v1/graphs/{artifact['key_digest']}/report", json=body)
    again = await hedging.granted(key(), OTHER)
    await assert_fenced(hedging, first)
    await assert_fenced(hedging, hedge)
    await hedging.upload(again, b"again")
    assert (await hedging.complete(again, b"again"))["accepted"]


async def test_baked_graph_is_never_hedged(hedging: Replica) -> None:
    baked = {"mode": "baked", "weights": "0" * 64}
    for number in range(SAMPLES):
        await hedging.publish(key(options=baked | {"flags": str(number)}), b"baked %d" % number)
    await grow_late(hedging, await hedging.granted(key(options=baked)))
    assert await hedging.claim() is None


async def test_time_without_any_replica_does_not_run_a_hedge_down(hedging: Replica) -> None:
    _, hedge = await late_and_hedged(hedging)
    await hedging.sweeper.sweep()
    async with hedging.services.database.write() as session:
        await clock.advance(session, 3_600)
    await extend_leases_by_outage(hedging.services)
    await hedging.heartbeat(hedge)


async def test_evicted_graph_takes_its_hedges_along(hedging: Replica) -> None:
    _, hedge = await late_and_hedged(hedging)
    await hedging.upload(hedge, b"hedge")
    await hedging.complete(hedge, b"hedge")
    await hedging.pass_time(1_000)
    async with hedging.services.database.scan() as session:
        victims = await eviction_rows.candidates(session, 1e12)
    await evict(hedging.services, victims)
    await hedging.heartbeat(hedge, expect=404)
