"""Networks that swallow packets, services that are away or busy: everybody ends, and nothing is compiled twice."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes.client_side import publish, writes
from fakes.compiles import until
from fakes.holder_process import HolderProcess
from fakes.silent_proxy import SilentProxy

from graphcache_client import DiskStore, GraphCache, GraphNotReady, ServiceClient, ServiceUnavailable

CLIENTS = 128
DEADLINE_S = 3.0


def test_clients_behind_a_network_that_swallows_packets_all_end_by_their_deadline(running, key, tmp_path):
    asked = threading.Barrier(CLIENTS + 1)

    def wait_for_graph(number: int) -> str:
        with ServiceClient(proxy.url) as service:
            with GraphCache(service, DiskStore(tmp_path / str(number)), patience_s=0) as cache:
                asked.wait()
                with pytest.raises((ServiceUnavailable, GraphNotReady)):
                    cache.get(key, deadline_s=DEADLINE_S)
        return "ended"

    with (
        HolderProcess(running.url, key) as holder,
        SilentProxy(running.url) as proxy,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        ended = [pool.submit(wait_for_graph, number) for number in range(CLIENTS)]
        asked.wait()
        proxy.swallow()
        assert [end.result(timeout=120) for end in ended] == ["ended"] * CLIENTS
        assert holder.publish() == "published"
    with ServiceClient(running.url) as service:
        assert service.stats().totals.attempts == {"ready": 1}


def test_a_download_that_stalls_starts_no_compile(running, key, store, tmp_path):
    content, compiled = os.urandom(4_000_000), []
    with ServiceClient(running.url) as service:
        publish(service, key, content, tmp_path)

    def get() -> bytes:
        with ServiceClient(proxy.url) as behind:
            with GraphCache(behind, store, compile_here=writes(b"another", compiled)) as cache:
                return cache.get(key, deadline_s=60).path.read_bytes()

    with SilentProxy(running.url) as proxy, ThreadPoolExecutor(2) as pool:
        proxy.stall_after(1_000_000)
        ranks = [pool.submit(get) for _ in range(2)]
        until(proxy.stalls, "the download is under way")
        with ServiceClient(running.url) as service:
            assert service.graph(key.digest).state == "ready"
        proxy.go_on()
        assert [rank.result(timeout=60) for rank in ranks] == [content, content]
    assert compiled == []


def test_a_waiter_reconnects_to_a_service_that_was_killed_and_gets_its_graph(running, key, store):
    with HolderProcess(running.url, key) as holder, ThreadPoolExecutor(1) as pool:
        with ServiceClient(running.url) as service, GraphCache(service, store) as cache:
            waiting = pool.submit(cache.get, key, deadline_s=100)
            running.kill()
            running.start()
            assert holder.publish() == "published"
            assert waiting.result(timeout=100).path.read_bytes()


def test_a_dead_service_costs_each_call_less_than_its_time_out_once_the_circuit_is_open(running, key, store):
    running.kill()
    slept: list[float] = []
    with ServiceClient(running.url, sleep=slept.append) as service:
        cache = GraphCache(service, store, patience_s=0)
        for _ in range(10):
            with pytest.raises(ServiceUnavailable):
                cache.get(key)
    assert len(slept) < 10


def test_the_client_goes_on_with_the_cache_after_the_service_was_away(running, key, tmp_path):
    running.kill()
    with ServiceClient(running.url, sleep=lambda s: None) as service:
        with GraphCache(service, DiskStore(tmp_path / "a"), compile_here=writes(b"alone"), patience_s=0) as cache:
            assert cache.get(key).tier == "compiled"
    running.start()
    with ServiceClient(running.url) as service:
        publish(service, key, b"shared", tmp_path)
        with GraphCache(service, DiskStore(tmp_path / "b")) as cache:
            assert cache.get(key).tier == "service"


def test_waiters_cost_a_bounded_number_of_requests(running, key, tmp_path):
    started = threading.Barrier(65)

    def wait_for_graph(number: int) -> str:
        with ServiceClient(running.url) as service:
            with GraphCache(service, DiskStore(tmp_path / str(number))) as cache:
                started.wait()
                return cache.get(key, deadline_s=100).tier

    with HolderProcess(running.url, key) as holder, ThreadPoolExecutor(64) as pool:
        waiting = [pool.submit(wait_for_graph, number) for number in range(64)]
        started.wait()
        assert holder.publish() == "published"
        assert {waiter.result(timeout=100) for waiter in waiting} <= {"joined", "service"}
    with ServiceClient(running.url) as service:
        resolves = requests_of(service, "/v1/graphs/resolve")
    assert resolves <= 64 + 1


def requests_of(service: ServiceClient, path: str) -> float:
    text = service._http.get("/metrics").text
    lines = [
        line for line in text.splitlines() if line.startswith("graphcache_requests_total") and f'path="{path}"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines)
