"""Real processes that die, stores that go away, files that vanish, and too few descriptors."""

import asyncio
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fakes.running_service import Holder, RunningService, lease_parameters, path_of, sha256
from fakes.s3_server import S3Server

StartService = Callable[..., RunningService]


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """Starts services that the test may break, and ends them."""
    started: list[RunningService] = []

    def start(**settings: object) -> RunningService:
        started.append(RunningService(tmp_path / f"service-{len(started)}", **settings))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for service in started:
        service.kill()


def stored(service: RunningService) -> list[str]:
    return sorted(file.name for file in service.blobs.glob("??/*"))


def begin_upload(holder: Holder, content: bytes, sent_bytes: int) -> socket.socket:
    url, lease = holder.http.base_url, holder.lease()
    connection = socket.create_connection((url.host, url.port or 80), timeout=30)
    query = "&".join(f"{name}={value}" for name, value in lease_parameters(lease).items())
    head = f"PUT {path_of(content)}?{query} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content[:sent_bytes])
    return connection


def test_kill_in_the_middle_of_an_upload_leaves_nothing(start_service: StartService) -> None:
    service = start_service()
    content, kept = os.urandom(4_000_000), os.urandom(10_000)
    holder = Holder(service)
    kept_path = holder.publish(kept)
    sending = begin_upload(holder, content, 3_500_000)
    staged = service.blobs / "staging"
    while not any(file.stat().st_size for file in staged.glob("*/*")):
        time.sleep(0.01)
    service.kill()
    sending.close()
    service.start()
    again = Holder(service)
    assert stored(service) == [sha256(kept)]
    assert list(staged.glob("*/*")) == []
    assert again.http.get(kept_path).content == kept
    assert again.http.get(again.publish(content)).content == content


def test_blob_removed_by_hand_gives_404_and_is_compiled_anew(folder_service: RunningService) -> None:
    holder = Holder(folder_service)
    for content in (os.urandom(10_000), os.urandom(3_000_000)):
        lease = holder.lease()
        holder.put(content, lease)
        holder.complete(content, lease)
        path = path_of(content)
        assert holder.http.get(path).status_code == 200
        (folder_service.blobs / sha256(content)[:2] / sha256(content)).unlink()
        assert holder.http.get(path).status_code == 404
        assert holder.lease(lease["key"])["generation"] == lease["generation"] + 1
        assert holder.http.get(holder.publish(content)).content == content


def test_file_cut_under_a_download_ends_that_connection_alone(folder_service: RunningService) -> None:
    """The map of a file that was cut would end a process that touches it."""
    holder = Holder(folder_service)
    content, other = os.urandom(1 << 20) * 40, os.urandom(10_000)
    path, other_path = holder.publish(content), holder.publish(other)
    with holder.http.stream("GET", path) as answer:
        parts = answer.iter_raw(65_536)
        next(parts)
        os.truncate(folder_service.blobs / sha256(content)[:2] / sha256(content), 1 << 20)
        with pytest.raises(httpx.RemoteProtocolError):
            list(parts)
    assert holder.http.get(other_path).content == other
    assert holder.http.get(path).status_code == 404
    assert holder.http.get(holder.publish(content)).content == content


def test_download_ends_well_though_its_blob_is_evicted(folder_service: RunningService) -> None:
    holder = Holder(folder_service)
    content = os.urandom(1 << 20) * 40
    with holder.http.stream("GET", holder.publish(content)) as answer:
        parts = answer.iter_raw(65_536)
        head = next(parts)
        (folder_service.blobs / sha256(content)[:2] / sha256(content)).unlink()
        assert sha256(head + b"".join(parts)) == sha256(content)


def test_graceful_stop_finishes_a_download(start_service: StartService) -> None:
    service = start_service()
    content = os.urandom(1 << 20) * 40
    path = Holder(service).publish(content)
    with httpx.stream("GET", service.url + path) as answer:
        parts = answer.iter_raw(65_536)
        head = next(parts)
        os.kill(service.pid, 15)
        assert sha256(head + b"".join(parts)) == sha256(content)


def test_too_few_descriptors_give_503_and_never_404(start_service: StartService) -> None:
    service = start_service(max_files=64)
    holder = Holder(service)
    paths = [holder.publish(os.urandom(2_000_000)) for _ in range(8)]
    idle = [socket.create_connection(("127.0.0.1", holder.http.base_url.port or 80)) for _ in range(100)]
    answers = [holder.http.get(path) for path in paths]
    assert {answer.status_code for answer in answers} <= {200, 503}
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert all("Retry-After" in answer.headers and answer.json()["retryable"] for answer in refused)
    for connection in idle:
        connection.close()


def test_folder_that_vanishes_gives_503_and_never_404(start_service: StartService) -> None:
    service = start_service(hot_blobs_bytes=0)
    holder = Holder(service)
    content = os.urandom(10_000)
    path = holder.publish(content)
    service.blobs.rename(service.blobs.with_name("unmounted"))
    answer = holder.http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert holder.put(content, holder.lease()).status_code == 503
    service.blobs.with_name("unmounted").rename(service.blobs)
    assert holder.http.get(path).content == content


def test_nginx_in_front_is_told_where_the_file_is(folder_service: RunningService) -> None:
    holder = Holder(folder_service)
    content = os.urandom(10_000)
    path = holder.publish(content)
    answer = holder.http.get(path, headers={"X-Graphcache-Accel": "1"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["X-Accel-Redirect"] == f"/blobs-inside/{sha256(content)[:2]}/{sha256(content)}"
    assert holder.http.get(path).content == content, "who does not come through nginx gets the bytes"


def test_redirect_is_followed_to_s3_without_this_service(s3_service: RunningService) -> None:
    holder = Holder(s3_service)
    content = os.urandom(10_000)
    answer = holder.http.get(holder.publish(content), params={"redirect": "1"})
    assert answer.status_code == 307
    assert httpx.get(answer.headers["Location"]).content == content


def test_redirect_from_a_folder_gives_the_bytes(folder_service: RunningService) -> None:
    holder = Holder(folder_service)
    content = os.urandom(10_000)
    assert holder.http.get(holder.publish(content), params={"redirect": "1"}).content == content


def test_s3_that_is_away_gives_503_and_recovers(s3_server: S3Server, s3_service: RunningService) -> None:
    holder = Holder(s3_service)
    content = os.urandom(2_000_000)
    path = holder.publish(content)
    s3_server.stop()
    try:
        answer = holder.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "secret" not in answer.text
    finally:
        s3_server.start()
    assert holder.http.get(path).content == content


async def digest_over_a_connection_of_its_own(service: RunningService, path: str) -> str:
    url = httpx.URL(service.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    sum_of_all = hashlib.sha256(await reader.read(-1))
    writer.close()
    return sum_of_all.hexdigest()


async def test_256_readers_of_one_large_blob_all_get_it_whole(folder_service: RunningService) -> None:
    content = os.urandom((1 << 20) + 1)
    path = Holder(folder_service).publish(content)
    readers = (digest_over_a_connection_of_its_own(folder_service, path) for _ in range(256))
    assert set(await asyncio.gather(*readers)) == {sha256(content)}
