"""kill -9 at every step of a publication: each entry is whole or absent afterwards, and nobody else notices.

On SQLite and a folder, and on PostgreSQL and S3.
"""

import os
import subprocess
import sys
from typing import Any

import httpx
import pytest
from fakes.client_side import new_key
from fakes.forked_service import ForkedService
from fakes.forker import Step
from fakes.running_service import Holder, lease_parameters, path_of

from graphcache_service.core.fsck import Findings, fsck

LEASE_TTL_S = 60.0
ORPHANED_S = 3_601.0
"""Past the grace after which bytes without a row are no upload under way."""


def steps(**functions: tuple[str, ...]) -> list[Step]:
    return [Step(name.replace("__", "."), moment) for name, moments in functions.items() for moment in moments]


BEFORE_AND_AFTER = ("before", "after")
STEPS = {
    "sqlite": steps(
        core__resolve__grant=BEFORE_AND_AFTER,
        blobs__staging__StagedFile__append=BEFORE_AND_AFTER,
        blobs__folder__FolderBlobs___commit=BEFORE_AND_AFTER,
        blobs__staging__StagedFile__close=("after",),
        blobs__folder___sync_folder=("before",),
        db__blobs__record_blobs=BEFORE_AND_AFTER,
        core__publish___check_blob=("after",),
        db__artifacts__insert_artifact=BEFORE_AND_AFTER,
        db__attempts__end_attempt=BEFORE_AND_AFTER,
        core__publish___accept=("after",),
        core__publish__settle=BEFORE_AND_AFTER,
        blobs__records__FolderRecords___write=BEFORE_AND_AFTER,
        blobs__records__FolderRecords___put=("after",),
    ),
    "postgresql": steps(
        core__resolve__grant=("after",),
        blobs__staging__StagedFile__append=("after",),
        blobs__s3__S3Blobs__commit=BEFORE_AND_AFTER,
        db__blobs__record_blobs=("after",),
        db__artifacts__insert_artifact=("after",),
        core__publish___accept=("after",),
        core__publish__settle=("before",),
        blobs__s3__S3Records__put=BEFORE_AND_AFTER,
    ),
}
"""In the order in which a publication comes to them."""
PUBLISHED_FROM = Step("core.publish.settle", "before")

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


@pytest.fixture
def key() -> dict[str, Any]:
    return new_key().model_dump(mode="json")


def mended_and_clean(service: ForkedService) -> bool:
    service.advance_clock(ORPHANED_S)
    service.with_services(lambda services: fsck(services, mend=True))
    findings: Findings = service.with_services(lambda services: fsck(services, deep=True))
    return findings.clean()


def state_of(holder: Holder, key: dict[str, Any]) -> dict[str, Any]:
    asked = {"key": key, "owner": "f" * 32, "holder": "asker"}
    return holder.http.post("/v1/graphs/resolve", json=asked).raise_for_status().json()


def upload_and_complete(holder: Holder, lease: dict[str, Any], content: bytes) -> None:
    assert holder.put(content, lease).status_code in (200, 201)
    assert holder.complete(content, lease).status_code == 200


def publish(holder: Holder, key: dict[str, Any], content: bytes) -> None:
    upload_and_complete(holder, holder.lease(key), content)


def assert_whole_or_absent(holder: Holder, key: dict[str, Any], content: bytes) -> bool:
    """Whether it is there; if so, its bytes are the ones that were published."""
    outcome = state_of(holder, key)
    if outcome["state"] == "ready":
        assert holder.http.get(path_of(content)).content == content
        return True
    assert outcome["state"] == "pending"
    return False


@pytest.mark.parametrize(
    ("database_kind", "step"), [(kind, step) for kind, steps in STEPS.items() for step in steps], ids=str
)
def test_service_killed_at_a_step_of_a_publication_leaves_it_whole_or_absent(service, key, database_kind, step):
    content, kept = os.urandom(300_000), os.urandom(10_000)
    service.start(die_at=step)
    with pytest.raises(httpx.TransportError):
        publish(Holder(service), key, content)
    service.wait_for_death()
    service.start()
    after = Holder(service)
    service.assert_every_blob_is_whole()
    published = assert_whole_or_absent(after, key, content)
    order = STEPS[database_kind]
    assert published == (order.index(step) >= order.index(PUBLISHED_FROM))
    publish(after, new_key().model_dump(mode="json"), kept)
    if not published:
        service.advance_clock(LEASE_TTL_S + 1)
        publish(after, key, content)
    assert assert_whole_or_absent(after, key, content)
    assert mended_and_clean(service)
    assert assert_whole_or_absent(after, key, content)


UNANSWERED = [
    ("sqlite", Step("blobs.folder._sync_folder", "before")),
    ("sqlite", Step("core.publish._accept", "after")),
    ("sqlite", Step("core.publish.settle", "before")),
    ("postgresql", Step("core.publish.settle", "before")),
]


@pytest.mark.parametrize(("database_kind", "step"), UNANSWERED, ids=str)
def test_holder_of_a_killed_service_repeats_what_it_was_not_answered(service, key, database_kind, step):
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


@pytest.mark.parametrize("database_kind", ["sqlite"])
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
    service.assert_every_blob_is_whole()
    service.advance_clock(LEASE_TTL_S + 1)
    other = Holder(service)
    publish(other, key, content)
    assert assert_whole_or_absent(other, key, content)
    assert mended_and_clean(service)
