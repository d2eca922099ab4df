"""Events of a manifest over a real connection: each change arrives, a client that goes away and a stop are noticed."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fakes.client_side import new_key, publish
from fakes.compiles import until

from graphcache_client import ServiceClient
from graphcache_wire import ManifestRequest


@pytest.fixture
def client(running) -> Iterator[ServiceClient]:
    with ServiceClient(running.url) as client:
        yield client


def stream(running, manifest):
    return httpx.stream("GET", f"{running.url}/v1/manifests/{manifest.id}/events", timeout=60)


def statuses(answer: httpx.Response) -> Iterator[dict[str, object]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_every_change_arrives_and_the_stream_ends_when_all_is_done(running, client, tmp_path):
    keys = [new_key(), new_key()]
    manifest = client.create_manifest(ManifestRequest(name="job", keys=keys))
    with stream(running, manifest) as answer, ThreadPoolExecutor(1) as pool:
        told = statuses(answer)
        first = next(told)
        assert (first["queued"], first["ready"], first["done"]) == (2, 0, False)
        publishing = pool.submit(lambda: [publish(client, key, b"graph", tmp_path) for key in keys])
        ready = [status["ready"] for status in told]
        publishing.result()
    assert ready == sorted(ready)
    assert ready[-1] == 2


def test_a_client_that_goes_away_leaves_its_place(running, client):
    manifest = client.create_manifest(ManifestRequest(name="job", keys=[new_key()]))
    with stream(running, manifest) as answer:
        told = statuses(answer)
        next(told)
        until(lambda: client.stats().waiters == 1, "the stream waits")
    until(lambda: client.stats().waiters == 0, "the service lets go of it")


def test_a_stop_ends_the_streams_in_order(running, client):
    manifest = client.create_manifest(ManifestRequest(name="job", keys=[new_key()]))
    with stream(running, manifest) as answer:
        told = statuses(answer)
        next(told)
        assert running.stop() == 0
        assert list(told) == []
