"""Holders that die, stop or lose their lease: one lease time at most, and nothing that they send later counts."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes.client_side import advance_clock, new_key
from fakes.holder_process import HolderProcess

from graphcache_client import DiskStore, GraphCache, GraphNotReady, ServiceClient
from graphcache_wire import ResolveRequest

LEASE_TTL_S = 60.0
"""The service's default."""


def resolved(service, key, **more):
    return service.resolve(ResolveRequest(key=key, owner=service.owner, holder="next", **more))


def test_a_killed_holder_costs_one_lease_time_and_then_the_next_asker_is_granted(running, key):
    with HolderProcess(running.url, key) as holder, ServiceClient(running.url) as service:
        assert holder.started == "granted"
        holder.kill()
        waiting = resolved(service, key, can_compile=True)
        assert waiting.state == "pending"
        assert waiting.holder is not None
        assert waiting.heartbeat_age_s is not None
        advance_clock(running, LEASE_TTL_S + 1)
        assert resolved(service, key, can_compile=True).state == "granted"
        assert service.stats().totals.attempts["lost"] == 1


def test_a_waiter_is_granted_in_the_moment_that_the_sweeper_finds_the_lease_expired(running, key):
    with (
        HolderProcess(running.url, key) as holder,
        ServiceClient(running.url) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.kill()
        waiting = pool.submit(resolved, service, key, can_compile=True, wait_s=60.0)
        advance_clock(running, LEASE_TTL_S + 1)
        assert waiting.result(timeout=30).state == "granted"


def test_the_death_of_one_holder_frees_no_lease_of_another_with_the_same_name(running, key):
    other = new_key()
    with HolderProcess(running.url, key) as dying, HolderProcess(running.url, other) as living:
        dying.kill()
        advance_clock(running, LEASE_TTL_S / 2)
        assert living.publish() == "published"


def test_a_holder_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes(running, key):
    with HolderProcess(running.url, key) as stopped:
        stopped.process.send_signal(signal.SIGSTOP)
        advance_clock(running, LEASE_TTL_S + 1)
        with HolderProcess(running.url, key) as second:
            assert second.started == "granted"
            assert second.publish() == "published"
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.publish() == "LeaseLost"
    with ServiceClient(running.url) as service:
        detail = service.graph(key.digest)
    assert detail.state == "ready"
    assert [attempt.outcome for attempt in detail.attempts] == ["failed", "ready"]


def test_holders_keep_their_leases_over_a_kill_of_the_service(running):
    keys = [new_key() for _ in range(5)]
    holders = [HolderProcess(running.url, key) for key in keys]
    try:
        running.kill()
        running.start()
        assert [holder.publish() for holder in holders] == ["published"] * 5
    finally:
        for holder in holders:
            holder.kill()
    with ServiceClient(running.url) as service:
        assert service.stats().totals.attempts == {"ready": 5}


def test_a_failure_of_one_key_leaves_the_compile_and_the_waiters_of_another_alone(running, key, store):
    other = new_key()
    with HolderProcess(running.url, key), HolderProcess(running.url, other) as living, ThreadPoolExecutor(1) as pool:
        with ServiceClient(running.url) as service, GraphCache(service, store) as cache:
            waiting = pool.submit(cache.get, other, deadline_s=60)
            advance_clock(running, LEASE_TTL_S / 2)
            assert living.publish() == "published"
            assert waiting.result(timeout=60).tier in ("joined", "service")


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_of_a_client_that_is_hours_off_has_no_effect(running, key, hours, store, monkeypatch):
    import time

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3_600)
    with HolderProcess(running.url, key) as holder, ServiceClient(running.url) as service:
        with GraphCache(service, store) as cache, pytest.raises(GraphNotReady):
            cache.get(key, deadline_s=0)
        assert holder.publish() == "published"
        with GraphCache(service, DiskStore(store.root / "b")) as cache:
            assert cache.get(key).tier in ("joined", "service")
