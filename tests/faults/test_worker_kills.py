"""kill -9 of a worker at every step of a compile: it stands, or the next worker makes it; nothing is half there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.compiles import stub_key
from fakes.forked_service import ForkedService
from fakes.forker import TESTS, Forker, Step

from graphcache_client import DiskStore, GraphCache, ServiceClient
from graphcache_service.core.fsck import fsck
from graphcache_wire import ManifestRequest

PAST_THE_LEASE_S = 61.0
PAST_ORPHANS_S = 3_601.0

STEPS = {
    "claimed": Step("worker.job.CompileJob.run", "before", "graphcache_runtime"),
    "compiling": Step("compiling.run._Child.watch", "before", "graphcache_runtime"),
    "uploading": Step("uploads.pieces", "after", "graphcache_client"),
    "uploaded": Step("transport.ServiceClient.complete", "before", "graphcache_client"),
    "published": Step("transport.ServiceClient.complete", "after", "graphcache_client"),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[Forker]:
    forker = Forker("fakes.forked_worker", TESTS / "fakes" / "plugin")
    yield forker
    forker.close()


@pytest.mark.parametrize("step", STEPS)
def test_worker_killed_at_a_step_leaves_its_compile_to_the_next(
    service: ForkedService, workers: Forker, tmp_path: Path, step: str
) -> None:
    key = stub_key()
    service.start()
    order = {"url": service.url, "log": str(tmp_path / "worker.log")}
    with ServiceClient(service.url) as client:
        client.create_manifest(ManifestRequest(name="job", keys=[key]))
        workers.fork(order | {"folder": str(tmp_path / "first")}, STEPS[step]).wait_for_death()
        service.assert_every_blob_is_whole()
        assert client.graph(key.digest).state == ("ready" if step == "published" else "leased")
        service.advance_clock(PAST_THE_LEASE_S)
        workers.fork(order | {"folder": str(tmp_path / "second")}).wait_for_death()
        detail = client.graph(key.digest)
        with GraphCache(client, DiskStore(tmp_path / "store")) as cache:
            assert cache.get(key, deadline_s=0).tier == "service"  # its bytes have the digest
    lost = [] if step == "published" else ["lost"]
    assert [attempt.failure_class for attempt in detail.attempts] == [*lost, None]
    service.advance_clock(PAST_ORPHANS_S)
    service.with_services(lambda services: fsck(services, mend=True))
    assert service.with_services(lambda services: fsck(services, deep=True)).clean()
