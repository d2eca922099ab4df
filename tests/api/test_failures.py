"""Failure classes: what is kept, what is tried again, and when."""

import asyncio

import pytest
from fakes.replica import OTHER, Replica, key

RETRIED = ["crashed", "out_of_memory", "time_limit"]


async def test_refused_graph_is_failed_for_everybody_with_its_log(service: Replica) -> None:
    lease = await service.granted(key())
    await service.fail(lease, "rejected", message="unsupported op", log_tail="line 1\nline 2")
    failed = await service.resolve(key(), OTHER)
    assert (failed["state"], failed["failure"]["failure_class"]) == ("failed", "rejected")
    assert failed["failure"]["log_tail"] == "line 1\nline 2"
    assert failed["retry_after_s"] == 86_400


async def test_kept_failure_is_forgotten_after_its_time(service: Replica) -> None:
    await service.fail(await service.granted(key()), "rejected")
    await service.pass_time(86_401)
    assert (await service.granted(key(), OTHER))["attempt"] == 1


async def test_explicit_retry_clears_a_kept_failure_once(service: Replica) -> None:
    await service.fail(await service.granted(key()), "rejected")
    retried = await service.resolve(key(), OTHER, can_compile=True, retry_failed=True)
    assert retried["state"] == "granted"
    await service.fail(retried["lease"], "rejected")
    assert (await service.resolve(key(), OTHER))["state"] == "failed"


async def test_new_toolchain_is_another_key(service: Replica) -> None:
    await service.fail(await service.granted(key()), "rejected")
    await service.granted(key(toolchain="stub-1.1"))


@pytest.mark.parametrize("failure_class", RETRIED)
async def test_other_failures_are_tried_again_after_a_pause_that_doubles(service: Replica, failure_class: str) -> None:
    first = await service.fail(await service.granted(key()), failure_class)
    assert first == {"state": "queued", "retry_after_s": 5.0}
    assert (await service.resolve(key(), OTHER, can_compile=True))["state"] == "pending"
    await service.pass_time(5)
    second = await service.fail(await service.granted(key(), OTHER), failure_class)
    assert second["retry_after_s"] == 10.0


async def test_compile_that_kills_its_workers_fails_after_four_attempts_with_its_history(service: Replica) -> None:
    for _ in range(4):
        lease = await service.granted(key())
        await service.pass_time(lease["ttl_s"])
    failed = await service.resolve(key(), can_compile=True)
    assert (failed["state"], failed["failure"]["attempts"], failed["retry_after_s"]) == ("failed", 4, None)
    graph = await service.call("GET", f"/v1/graphs/{failed['key_digest']}")
    assert [one["failure_class"] for one in graph["attempts"]] == ["lost"] * 4


async def test_given_back_leases_never_reach_the_limit(service: Replica) -> None:
    for _ in range(10):
        await service.fail(await service.granted(key()), "cancelled")
    assert (await service.granted(key()))["attempt"] == 1


async def test_repeated_failure_report_counts_once(service: Replica) -> None:
    lease = await service.granted(key())
    first = await service.fail(lease, "crashed")
    assert await service.fail(lease, "crashed") == first
    await service.pass_time(5)
    assert (await service.granted(key()))["attempt"] == 2


async def test_out_of_memory_is_offered_only_alone_or_with_more_memory(service: Replica) -> None:
    await service.fail(await service.granted(key()), "out_of_memory", peak_memory_bytes=3_000)
    await service.pass_time(5)
    assert await service.claim(alone=False, max_memory_bytes=3_000) is None
    assert await service.claim(alone=False, max_memory_bytes=4_000) is not None


async def test_waiter_is_told_of_the_failure(service: Replica) -> None:
    lease = await service.granted(key())
    waiting = asyncio.create_task(service.resolve(key(), OTHER, wait_s=30.0))
    await asyncio.sleep(0)
    await service.fail(lease, "rejected", message="no")
    assert (await waiting)["failure"]["message"] == "no"
