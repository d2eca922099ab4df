"""A disk that is full, database and blobs alike: writes are refused, reads go on, and all recovers with room."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.client_side import new_key, writes
from fakes.running_service import Holder, RunningService, path_of

from graphcache_client import DiskStore, GraphCache, ServiceClient


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def running(small_disk: Path) -> Iterator[RunningService]:
    service = RunningService(small_disk / "service")
    yield service
    service.kill()


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4_096))
    return path


def test_full_disk_refuses_uploads_serves_reads_and_recovers(running: RunningService, small_disk: Path) -> None:
    holder, kept, content = Holder(running), os.urandom(200_000), os.urandom(2_000_000)
    kept_path, lease = holder.publish(kept), holder.lease()
    filler = fill(small_disk)
    refused = holder.put(content, lease)
    assert (refused.status_code, refused.json()["code"], refused.json()["retryable"]) == (507, "store_full", True)
    assert holder.http.get(kept_path).content == kept
    for path in ("/readyz", "/v1/stats", "/v1/graphs", "/metrics"):
        assert holder.http.get(path).status_code == 200
    filler.unlink()
    assert holder.put(content, lease).status_code == 201
    assert holder.complete(content, lease).json()["accepted"]
    assert holder.http.get(path_of(content)).content == content


def test_requester_uses_what_it_compiled_though_the_service_has_no_room(
    running: RunningService, small_disk: Path, tmp_path: Path
) -> None:
    key, content, filler = new_key(), os.urandom(2_000_000), []

    def compile_here(key, folder, report) -> Path:
        filler.append(fill(small_disk))
        return writes(content)(key, folder, report)

    with ServiceClient(running.url) as service:
        with GraphCache(service, DiskStore(tmp_path / "a"), compile_here=compile_here, patience_s=0) as cache:
            assert cache.get(key).path.read_bytes() == content
        filler[0].unlink()
        with GraphCache(service, DiskStore(tmp_path / "b"), compile_here=writes(content), patience_s=0) as cache:
            assert cache.get(key, deadline_s=90).path.read_bytes() == content
        assert service.graph(key.digest).state == "ready"
