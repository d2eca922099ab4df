"""GraphCache against a real service: each place that a graph can come from, and what an outage does."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fakes.client_side import advance_clock, new_key, publish, writes
from fakes.running_service import RunningService

from graphcache_client import (
    CompileAttemptFailed,
    CompileFailed,
    DiskStore,
    GraphCache,
    GraphMissing,
    GraphNotReady,
    RequestRefused,
    ServiceClient,
    ServiceUnavailable,
)
from graphcache_wire import FailureClass, ResolveRequest

NOWHERE = "http://127.0.0.1:9"


def asked(service, key, **more):
    return service.resolve(ResolveRequest(key=key, owner=service.owner, holder=service.holder, **more))


def test_the_first_asker_compiles_and_publishes_for_all(service, other, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    with GraphCache(other, DiskStore(tmp_path / "b")) as cache:
        found = cache.get(key)
    assert (found.tier, found.path.read_bytes(), found.artifact.producer) == ("service", b"graph", "node-a")


def test_memory_then_disk_then_service(service, other, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    tiers = []
    for _ in range(2):
        with GraphCache(other, DiskStore(tmp_path / "b")) as cache:
            tiers += [cache.get(key).tier, cache.get(key).tier]
    assert tiers == ["service", "memory", "disk", "memory"]


def test_a_graph_that_another_process_pruned_is_fetched_again(service, other, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    with GraphCache(other, DiskStore(tmp_path / "b")) as cache:
        cache.get(key).path.unlink()
        again = cache.get(key)
    assert (again.tier, again.path.read_bytes()) == ("service", b"graph")


def test_hits_of_memory_and_disk_reach_the_statistics(service, other, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    before = service.stats().totals.hits
    for _ in range(2):
        with GraphCache(other, DiskStore(tmp_path / "b")) as cache:
            for _ in range(3):
                cache.get(key)
    grown = {tier: count - before.get(tier, 0) for tier, count in service.stats().totals.hits.items()}
    assert (grown["memory"], grown["disk"], grown["service"]) == (4, 1, 1)


def test_sixty_four_ranks_ask_at_once_and_one_compiles(running, key, tmp_path):
    compiled = []
    started = threading.Barrier(64)

    def rank(number: int) -> str:
        with ServiceClient(running.url, holder=f"rank-{number}") as service:
            store = DiskStore(tmp_path / f"node-{number}")
            with GraphCache(service, store, compile_here=writes(b"graph", compiled)) as cache:
                started.wait()
                return cache.get(key, deadline_s=60).tier

    with ThreadPoolExecutor(64) as pool:
        tiers = list(pool.map(rank, range(64)))
    assert len(compiled) == 1
    assert tiers.count("compiled") == 1
    assert set(tiers) <= {"compiled", "joined", "service"}


def test_eight_ranks_of_one_node_ask_the_service_once(running, key, tmp_path):
    started = threading.Barrier(8)

    def rank(number: int) -> str:
        store = DiskStore(tmp_path / "node")
        with ServiceClient(running.url) as service, GraphCache(service, store, compile_here=writes(b"graph")) as cache:
            started.wait()
            return cache.get(key, deadline_s=60).tier

    with ThreadPoolExecutor(8) as pool:
        tiers = sorted(pool.map(rank, range(8)))
    assert tiers == ["compiled"] + ["disk"] * 7


def test_an_outage_compiles_here_and_says_so_in_one_line(key, store, caplog):
    with (
        ServiceClient(NOWHERE, sleep=lambda s: None) as away,
        GraphCache(away, store, compile_here=writes(b"x"), patience_s=0) as cache,
        caplog.at_level("WARNING"),
    ):
        assert cache.get(key).tier == "compiled"
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1
    assert NOWHERE in lines[0]
    assert "compiling" in lines[0]


def test_an_outage_is_never_a_miss(key, store):
    with ServiceClient(NOWHERE, sleep=lambda s: None) as away, GraphCache(away, store, patience_s=0) as cache:
        with pytest.raises(ServiceUnavailable, match="cannot be reached"):
            cache.get(key)
        with pytest.raises(ServiceUnavailable):
            cache.try_get(key)


def test_an_outage_serves_from_disk(service, key, tmp_path, store):
    publish(service, key, b"graph", tmp_path)
    with GraphCache(service, store) as cache:
        cache.get(key)
    with ServiceClient(NOWHERE, sleep=lambda s: None) as away, GraphCache(away, store) as cache:
        assert cache.get(key).tier == "disk"


def test_without_a_service_it_compiles_here(key, store):
    with GraphCache(None, store, compile_here=writes(b"graph")) as cache:
        assert cache.get(key).tier == "compiled"
    with GraphCache(None, store) as cache:
        assert cache.get(key).tier == "disk"


def test_require_hit_names_what_to_prewarm_and_compiles_nothing(service, key, store):
    calls = []
    with (
        GraphCache(service, store, compile_here=writes(b"x", calls), mode="require_hit") as cache,
        pytest.raises(GraphMissing, match=r"Prewarm it: kind moe-experts-fwd, e_hot 4, h 64, f 32, bucket 8"),
    ):
        cache.get(key)
    assert calls == []


def test_a_deadline_says_who_holds_the_compile(service, other, key, store):
    asked(service, key, can_compile=True)
    with GraphCache(other, store) as cache, pytest.raises(GraphNotReady, match="leased, held by node-a"):
        cache.get(key, deadline_s=0)


def test_try_get_asks_workers_and_does_not_wait(service, key, store):
    with GraphCache(service, store) as cache:
        assert cache.try_get(key) is None
    assert service.graph(key.digest).state == "queued"


def test_a_refused_compile_is_told_to_whoever_asks_next(service, other, key, store, tmp_path):
    def refuses(key, folder, report):
        raise CompileAttemptFailed(FailureClass.REJECTED, "no such operator", "log tail")

    with GraphCache(service, store, compile_here=refuses) as cache, pytest.raises(CompileAttemptFailed):
        cache.get(key)
    with GraphCache(other, DiskStore(tmp_path / "b")) as cache, pytest.raises(CompileFailed, match="no such operator"):
        cache.get(key)


def test_an_expired_holder_uses_what_it_compiled_and_changes_nothing(running, service, other, key, store, tmp_path):
    def slow(key, folder, report):
        advance_clock(running, 1_000)
        publish(other, key, b"second", tmp_path)
        return writes(b"first")(key, folder, report)

    with GraphCache(service, store, compile_here=slow) as cache:
        assert cache.get(key).path.read_bytes() == b"first"
    assert service.graph(key.digest).artifact.producer == "node-b"


def test_bytes_that_were_damaged_in_the_service_are_never_used(running, service, other, key, tmp_path):
    publish(service, key, b"good graph", tmp_path)
    blob = service.graph(key.digest).artifact.blob
    stored = next(path for path in running.blobs.rglob("*") if path.is_file() and path.name.endswith(blob[-40:]))
    stored.chmod(0o600)
    stored.write_bytes(b"evil graph")
    with GraphCache(other, DiskStore(tmp_path / "b"), compile_here=writes(b"new graph")) as cache:
        assert cache.get(key, deadline_s=30).path.read_bytes() == b"new graph"
    with GraphCache(service, DiskStore(tmp_path / "c")) as cache:
        assert cache.get(key).path.read_bytes() == b"new graph"


def test_a_download_goes_on_where_it_was_cut(service, key, tmp_path):
    content = bytes(range(256)) * 4_096
    publish(service, key, content, tmp_path)
    artifact = service.graph(key.digest).artifact
    part = tmp_path / "part"
    part.write_bytes(content[:1_000])
    service.download(artifact.blob, artifact.size_bytes, part)
    assert part.read_bytes() == content


def test_a_lease_that_ends_without_a_result_is_given_back(service, other, key, store):
    def interrupted(key, folder, report):
        raise KeyboardInterrupt

    with GraphCache(service, store, compile_here=interrupted) as cache, pytest.raises(KeyboardInterrupt):
        cache.get(key)
    assert asked(other, key, can_compile=True).state == "granted"


def test_a_url_that_is_no_service_is_told_from_a_miss(running, store, key):
    with (
        ServiceClient(f"{running.url}/elsewhere") as wrong,
        GraphCache(wrong, store) as cache,
        pytest.raises(RequestRefused, match="not_found"),
    ):
        cache.get(key)


def test_a_restart_of_the_service_is_waited_out_and_nothing_is_compiled_here(tmp_path, key):
    running = RunningService(tmp_path / "service")
    compiled = []
    try:
        with ServiceClient(running.url, holder="a") as first:
            publish(first, key, b"graph", tmp_path)
        running.kill()
        with ServiceClient(running.url, sleep=lambda s: None) as service:
            store = DiskStore(tmp_path / "b")
            restart = iter([running.start])
            with GraphCache(
                service, store, compile_here=writes(b"x", compiled), sleep=lambda s: next(restart, lambda: None)()
            ) as cache:
                assert cache.get(key).tier == "service"
    finally:
        running.kill()
    assert compiled == []


def test_a_graph_that_was_compiled_while_the_service_restarted_is_published(tmp_path, key):
    running = RunningService(tmp_path / "service")

    def compile_while_it_dies(key, folder, report):
        running.kill()
        return writes(b"graph")(key, folder, report)

    try:
        with ServiceClient(running.url, sleep=lambda s: None) as service:
            restart = iter([running.start])
            with GraphCache(
                service,
                DiskStore(tmp_path / "a"),
                compile_here=compile_while_it_dies,
                sleep=lambda s: next(restart, lambda: None)(),
            ) as cache:
                assert cache.get(key).tier == "compiled"
            assert service.graph(key.digest).state == "ready"
    finally:
        running.kill()


def test_a_large_graph_goes_up_in_parts(service, other, key, tmp_path, monkeypatch):
    monkeypatch.setattr("graphcache_client.uploads.PART_BYTES", 100_000)
    content = os.urandom(350_001)
    publish(service, key, content, tmp_path)
    with GraphCache(other, DiskStore(tmp_path / "b")) as cache:
        assert cache.get(key).path.read_bytes() == content


def test_an_upload_goes_on_where_a_connection_broke(service, key, tmp_path, monkeypatch):
    content = os.urandom(300_000)
    path = tmp_path / "graph"
    path.write_bytes(content)
    sent = []

    def breaks_once(path, start, end):
        sent.append(start)
        yield content[start : start + 50_000]
        if len(sent) == 2:
            raise httpx.WriteError("the connection broke")
        yield content[start + 50_000 : end]

    monkeypatch.setattr("graphcache_client.uploads.PART_BYTES", 100_000)
    monkeypatch.setattr("graphcache_client.uploads.pieces", breaks_once)
    lease = asked(service, key, can_compile=True).lease
    service.upload(path, hashlib.sha256(content).hexdigest(), len(content), lease)
    assert sent[0] == 0
    assert 0 not in sent[1:]


def test_bytes_that_are_stored_already_are_not_sent_again(service, key, tmp_path, monkeypatch):
    content = os.urandom(300_000)
    path = tmp_path / "graph"
    path.write_bytes(content)
    monkeypatch.setattr("graphcache_client.uploads.PART_BYTES", 100_000)
    digest = hashlib.sha256(content).hexdigest()
    service.upload(path, digest, len(content), asked(service, new_key(), can_compile=True).lease)
    monkeypatch.setattr("graphcache_client.uploads.pieces", lambda *part: pytest.fail("sent again"))
    service.upload(path, digest, len(content), asked(service, key, can_compile=True).lease)
