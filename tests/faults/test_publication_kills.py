"""kill -9 at every step of a publication: each entry is whole or absent afterwards, and nobody else notices."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.client_side import advance_clock, new_key
from fakes.forked_service import ForkedService, Forker, Step
from fakes.running_service import Holder, lease_parameters, path_of, sha256

from graphcache_service.commands import with_services
from graphcache_service.core.fsck import Findings, fsck
from graphcache_service.core.services import Services
from graphcache_service.settings import load_settings

LEASE_TTL_S = 60.0
ORPHANED_S = 3_601.0
"""Past the grace after which bytes without a row are no upload under way."""

STEPS = [
    Step(function, moment)
    for function, moments in {
        "core.resolve.grant": ("before", "after"),
        "blobs.staging.StagedFile.append": ("before", "after"),
        "blobs.folder.FolderBlobs._commit": ("before", "after"),
        "blobs.staging.StagedFile.close": ("after",),
        "blobs.folder._sync_folder": ("before",),
        "db.blobs.record_blobs": ("before", "after"),
        "core.publish._check_blob": ("after",),
        "db.artifacts.insert_artifact": ("before", "after"),
        "db.attempts.end_attempt": ("before", "after"),
        "core.publish._accept": ("after",),
        "core.publish.settle": ("before", "after"),
        "blobs.records.FolderRecords._write": ("before", "after"),
        "blobs.records.FolderRecords._put": ("after",),
    }.items()
    for moment in moments
]
"""In the order in which a publication comes to them."""

HALF_AN_UPLOAD = """
import http.client, sys
host, path, length, part = sys.argv[1:]
connection = http.client.HTTPConnection(host)
connection.putrequest("PUT", path)
connection.putheader("Content-Length", length)
connection.endheaders()
connection.send(b"x" * int(part))
if part == length:
    assert connection.getresponse().status in (200, 201)
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def service(forker: Forker, tmp_path: Path) -> Iterator[ForkedService]:
    service = ForkedService(forker, tmp_path / "service")
    yield service
    service.kill()


@pytest.fixture
def key() -> dict[str, Any]:
    return new_key().model_dump(mode="json")


def on_data(service: ForkedService, work: Callable[[Services], Awaitable[Findings]]) -> Findings:
    return with_services(load_settings(environment={}, data_dir=service.data), work)


def mended_and_clean(service: ForkedService) -> bool:
    advance_clock(service, ORPHANED_S)
    on_data(service, lambda services: fsck(services, mend=True))
    return on_data(service, lambda services: fsck(services, deep=True)).clean()


def state_of(holder: Holder, key: dict[str, Any]) -> dict[str, Any]:
    asked = {"key": key, "owner": "f" * 32, "holder": "asker"}
    return holder.http.post("/v1/graphs/resolve", json=asked).raise_for_status().json()


def upload_and_complete(holder: Holder, lease: dict[str, Any], content: bytes) -> None:
    assert holder.put(content, lease).status_code in (200, 201)
    assert holder.complete(content, lease).status_code == 200


def publish(holder: Holder, key: dict[str, Any], content: bytes) -> None:
    upload_and_complete(holder, holder.lease(key), content)


def assert_every_blob_is_whole(service: ForkedService) -> None:
    for file in (service.data / "blobs").glob("??/*"):
        assert sha256(file.read_bytes()) == file.name


def assert_whole_or_absent(holder: Holder, key: dict[str, Any], content: bytes) -> bool:
    """Whether it is there; if so, its bytes are the ones that were published."""
    outcome = state_of(holder, key)
    if outcome["state"] == "ready":
        assert holder.http.get(path_of(content)).content == content
        return True
    assert outcome["state"] == "pending"
    return False


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_service_killed_at_a_step_of_a_publication_leaves_it_whole_or_absent(service, key, step):
    content, kept = os.urandom(300_000), os.urandom(10_000)
    service.start(die_at=step)
    with pytest.raises(httpx.TransportError):
        publish(Holder(service), key, content)
    service.wait_for_death()
    service.start()
    after = Holder(service)
    assert_every_blob_is_whole(service)
    published = assert_whole_or_absent(after, key, content)
    assert published == (STEPS.index(step) >= STEPS.index(Step("core.publish.settle", "before")))
    publish(after, new_key().model_dump(mode="json"), kept)
    if not published:
        advance_clock(service, LEASE_TTL_S + 1)
        publish(after, key, content)
    assert assert_whole_or_absent(after, key, content)
    assert mended_and_clean(service)
    assert assert_whole_or_absent(after, key, content)


UNANSWERED = [
    Step("blobs.folder._sync_folder", "before"),
    Step("core.publish._accept", "after"),
    Step("core.publish.settle", "before"),
]


@pytest.mark.parametrize("step", UNANSWERED, ids=str)
def test_holder_of_a_killed_service_repeats_what_it_was_not_answered(service, key, step):
    content = os.urandom(300_000)
    service.start()
    lease = Holder(service).lease(key)
    service.kill()
    service.start(die_at=step)
    with pytest.raises(httpx.TransportError):
        upload_and_complete(Holder(service), lease, content)
    service.wait_for_death()
    service.start()
    after = Holder(service)
    assert after.put(content, lease).status_code in (200, 201, 409)
    assert after.complete(content, lease).json()["accepted"]
    assert assert_whole_or_absent(after, key, content)


@pytest.mark.parametrize("sent_bytes", [150_000, 300_000], ids=["in its upload", "between upload and publication"])
def test_client_killed_leaves_nothing_visible_and_its_key_to_the_next(service, key, sent_bytes):
    content = b"x" * 300_000
    service.start()
    holder = Holder(service)
    query = "&".join(f"{name}={value}" for name, value in lease_parameters(holder.lease(key)).items())
    place = [service.url.removeprefix("http://"), f"{path_of(content)}?{query}", str(len(content)), str(sent_bytes)]
    command = [sys.executable, "-c", HALF_AN_UPLOAD, *place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "sent\n"
        client.kill()
    assert state_of(holder, key)["state"] == "pending"
    assert_every_blob_is_whole(service)
    advance_clock(service, LEASE_TTL_S + 1)
    other = Holder(service)
    publish(other, key, content)
    assert assert_whole_or_absent(other, key, content)
    assert mended_and_clean(service)
