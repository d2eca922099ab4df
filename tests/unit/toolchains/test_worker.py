"""The worker against a real service, with the stub toolchain: what it claims, publishes, reports and gives back."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.client_side import advance_clock
from fakes.compiles import environment, is_alive, pids_in, stub_key, until
from fakes.running_service import RunningService

from graphcache_client import HeldLease, RequestRefused, ServiceClient, ServiceUnavailable
from graphcache_runtime.toolchains.offered import known_versions
from graphcache_runtime.worker.settings import Machine, settings_for
from graphcache_runtime.worker.worker import IDLE_WAIT_S, Worker
from graphcache_wire import (
    ClaimRequest,
    Failed,
    FailureClass,
    GraphKey,
    ManifestRequest,
    Pending,
    Ready,
    ResolveRequest,
)

MIB = 2**20
BACK_OFF_STEP_S = 10
"""Less than a lease lives: a step that comes late must not end one."""
STUB = {"stub-1.0": "stub"}


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[RunningService]:
    service = RunningService(tmp_path_factory.mktemp("service"), max_attempts=2)
    yield service
    service.stop()


@pytest.fixture
def service(running) -> Iterator[ServiceClient]:
    with ServiceClient(running.url, holder="worker-under-test") as client:
        yield client


def queue(service: ServiceClient, *keys: GraphKey) -> None:
    service.create_manifest(ManifestRequest(name=keys[0].digest[:16], keys=list(keys)))


def state(service: ServiceClient, key: GraphKey):
    return service.resolve(ResolveRequest(key=key, owner="0" * 32, holder="asker"))


def drain(service: ServiceClient, folder, **more) -> int:
    settings = settings_for(Machine(2, 16 * 2**30), ("stub",), drain=True, **more)
    return Worker(service, settings, STUB, folder).run()


def test_a_drained_queue_is_published_or_failed_with_the_compilers_words(service, tmp_path):
    good, refused = stub_key(), stub_key("reject")
    queue(service, good, refused)
    assert drain(service, tmp_path, jobs=2) == 1
    ready, failed = state(service, good), state(service, refused)
    assert isinstance(ready, Ready)
    assert ready.artifact.producer == "worker-under-test"
    assert isinstance(failed, Failed)
    assert failed.failure.failure_class is FailureClass.REJECTED
    assert "no tactic found" in failed.failure.message
    assert "stub compiler at work" in failed.failure.log_tail
    attempt = service.graph(good.digest).attempts[-1]
    assert attempt.cpu_s > 0
    assert attempt.peak_memory_bytes > 50 * MIB
    assert list(tmp_path.iterdir()) == []
    assert known_versions(service.stats(group_by="toolchain"))[:2] == ["stub-1.0", "stub-1.0"]


def test_a_drained_worker_leaves_what_it_cannot_take_and_says_why(service, tmp_path, caplog):
    baked = stub_key(options={"mode": "baked", "weights": "0" * 64, "dtype": "fp32"})
    other = stub_key(toolchain="stub-2.0")
    queue(service, baked, other)
    with caplog.at_level(logging.INFO):
        assert drain(service, tmp_path) == 0
    assert isinstance(state(service, other), Pending)
    assert "left to others: 1 queued: of stub-2.0, which this worker does not have" in caplog.text
    assert "left to others: 1 queued: baked graphs of stub-1.0, whose weights only their asker has" in caplog.text


def started_worker(running: RunningService, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from graphcache_client.cli.app import main; main()", "worker"]
    command += ["--toolchain", "stub", "--url", running.url, "--work-dir", str(folder / "work")]
    variables = environment(STUB_PIDS=str(folder / "pids"))
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_an_idle_worker_stops_at_once_and_is_granted_nothing_more(running, service, tmp_path):
    before = service.stats().waiters
    worker = started_worker(running, tmp_path)
    until(lambda: service.stats().waiters > before, "the worker's claim is held open")
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert time.monotonic() - began < IDLE_WAIT_S / 4
    until(lambda: service.stats().waiters == before, "the service lets go of the claim")
    key = stub_key()
    queue(service, key)
    assert service.graph(key.digest).state == "queued"
    assert drain(service, tmp_path) == 1


def test_sigterm_kills_the_compile_and_gives_the_lease_back(running, service, tmp_path):
    key = stub_key("hang")
    queue(service, key)
    worker = started_worker(running, tmp_path)
    pids = pids_in(tmp_path / "pids")
    worker.send_signal(signal.SIGTERM)
    printed, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0, printed
    assert "0 graphs published" in printed
    assert not any(map(is_alive, pids))
    assert list((tmp_path / "work").iterdir()) == []
    after = state(service, key)
    assert isinstance(after, Pending)
    assert after.compile_state == "queued"
    claimed = service.claim(ClaimRequest(owner=service.owner, holder="next", toolchains=["stub-1.0"]))
    HeldLease(service, claimed.lease).fail(FailureClass.REJECTED, "the test is over")


def test_after_an_outage_the_worker_claims_again(service, tmp_path, monkeypatch):
    key = stub_key()
    queue(service, key)
    claim, outages = service.claim, [ServiceUnavailable("away")] * 2

    def claim_through_an_outage(request):
        if outages:
            raise outages.pop()
        return claim(request)

    monkeypatch.setattr(service, "claim", claim_through_an_outage)
    settings = settings_for(Machine(2, 16 * 2**30), ("stub",), drain=True)
    assert Worker(service, settings, STUB, tmp_path, jitter=lambda: -0.5).run() == 1
    assert isinstance(state(service, key), Ready)


def test_a_worker_whose_claims_are_refused_ends_with_the_services_words(running, tmp_path):
    settings = settings_for(Machine(2, 16 * 2**30), ("stub",))
    with ServiceClient(running.url, token="gc_unknown") as client, pytest.raises(RequestRefused, match="token"):
        Worker(client, settings, STUB, tmp_path).run()


def test_a_result_is_kept_through_an_outage_and_published(service, tmp_path, monkeypatch):
    key = stub_key()
    queue(service, key)
    upload, outages = service.upload, [ServiceUnavailable("away")]

    def upload_after_an_outage(*arguments):
        if outages:
            raise outages.pop()
        return upload(*arguments)

    monkeypatch.setattr(service, "upload", upload_after_an_outage)
    assert drain(service, tmp_path) == 1
    assert len(service.graph(key.digest).attempts) == 1


def test_out_of_memory_is_tried_again_alone_until_it_is_given_up(running, service, tmp_path):
    key = stub_key("no-memory")
    queue(service, key)
    settings = settings_for(Machine(2, 16 * 2**30), ("stub",), jobs=2, drain=True)
    worker = threading.Thread(target=Worker(service, settings, STUB, tmp_path).run)
    worker.start()
    while worker.is_alive():
        if service.graph(key.digest).state == "queued":
            advance_clock(running, BACK_OFF_STEP_S)
        worker.join(0.1)
    detail = service.graph(key.digest)
    assert detail.failure is not None
    assert detail.failure.failure_class is FailureClass.OUT_OF_MEMORY
    assert len(detail.attempts) == 2
    threads = [attempt.log_tail.partition("threads ")[2].strip()[0] for attempt in detail.attempts]
    assert sorted(threads) == ["1", "2"]


@pytest.mark.parametrize(
    ("machine", "asked", "jobs", "limit_gib"),
    [
        (Machine(8, 100 * 2**30), {}, 1, 90),
        (Machine(8, 100 * 2**30), {"jobs": 4}, 4, 22.5),
        (Machine(2, 100 * 2**30), {"jobs": 4}, 2, 45),
        (Machine(8, 100 * 2**30), {"jobs": 8, "memory_limit_bytes": 30 * 2**30}, 3, 30),
    ],
)
def test_jobs_are_bounded_by_cores_and_by_memory(machine, asked, jobs, limit_gib):
    settings = settings_for(machine, ("stub",), **asked)
    assert settings.jobs == jobs
    assert settings.memory_limit_bytes == int(limit_gib * 2**30)
    assert settings.memory_limit_bytes * settings.jobs <= machine.memory_bytes


def test_a_memory_limit_above_the_machines_memory_is_refused():
    with pytest.raises(ValueError, match=r"20\.0 GiB is more than .* 9\.0 of 10\.0 GiB"):
        settings_for(Machine(4, 10 * 2**30), ("stub",), memory_limit_bytes=20 * 2**30)


def test_a_compile_alone_may_take_what_all_together_may():
    settings = settings_for(Machine(4, 40 * 2**30), ("stub",), jobs=4)
    assert settings.limits(alone=True).memory_limit_bytes == 4 * settings.limits(alone=False).memory_limit_bytes
    assert settings.limits(alone=True).threads == 4
