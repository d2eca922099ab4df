"""What is peculiar to blobs in a folder: who may look into it, disks that vanish, files that are cut or rot."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphcache_service.blobs.base import BlobStore
from graphcache_service.blobs.errors import BlobDamaged, BlobStoreUnavailable
from graphcache_service.blobs.folder import FolderBlobs
from graphcache_service.blobs.staging import Staging, sweep
from graphcache_service.core.errors import StoreFull

ABSENT = "0" * 64
KILLED_WITH_A_STAGED_FILE = """
import sys, time, pathlib
from graphcache_service.blobs.staging import Staging
staging = Staging(pathlib.Path(sys.argv[1]))
staging.new_file(9).append([b"half"])
print("staged", flush=True)
time.sleep(600)
"""


async def put(store: BlobStore, content: bytes) -> str:
    staged = store.staging.new_file(len(content))
    staged.append([content])
    digest = staged.digest()
    await store.commit(staged, digest)
    return digest


async def test_nobody_else_may_look_into_the_folder(folder_store: FolderBlobs) -> None:
    digest = await put(folder_store, b"secret")
    assert folder_store.root.stat().st_mode & 0o777 == 0o700
    assert (folder_store.root / digest[:2] / digest).stat().st_mode & 0o077 == 0


async def test_folder_that_vanished_is_no_answer(folder_store: FolderBlobs) -> None:
    folder_store.root.rename(folder_store.root.with_name("elsewhere"))
    with pytest.raises(BlobStoreUnavailable):
        await folder_store.size(ABSENT)
    with pytest.raises(BlobStoreUnavailable):
        await folder_store.check()


async def test_empty_folder_in_its_place_is_no_answer(folder_store: FolderBlobs) -> None:
    """As when the disk is not mounted: every blob would seem to be gone."""
    folder_store.root.rename(folder_store.root.with_name("elsewhere"))
    folder_store.root.mkdir()
    with pytest.raises(BlobStoreUnavailable):
        await folder_store.open(ABSENT)


async def test_flipped_bit_is_found_and_mended_by_the_next_upload(folder_store: FolderBlobs) -> None:
    digest = await put(folder_store, b"good bytes")
    (folder_store.root / digest[:2] / digest).write_bytes(b"bad! bytes")
    assert not await folder_store.verify(digest)
    assert await put(folder_store, b"good bytes") == digest
    assert await folder_store.verify(digest)


async def test_file_that_is_cut_while_it_is_read_is_damaged(folder_store: FolderBlobs) -> None:
    content = os.urandom(1 << 20) * 33
    digest = await put(folder_store, content)
    blob = await folder_store.open(digest)
    assert blob is not None
    parts = blob.read(0, blob.size_bytes)
    await anext(parts)
    os.truncate(folder_store.root / digest[:2] / digest, 100)
    with pytest.raises(BlobDamaged):
        await anext(parts)


async def test_cut_file_is_not_what_it_was(folder_store: FolderBlobs) -> None:
    digest = await put(folder_store, b"ten bytes!")
    identity = folder_store.identity(digest)
    assert folder_store.unchanged(digest, identity)
    os.truncate(folder_store.root / digest[:2] / digest, 3)
    assert not folder_store.unchanged(digest, identity)


def test_start_sweeps_what_a_killed_process_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_WITH_A_STAGED_FILE, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert sweep(tmp_path) == 0, "swept while its process lives"
    process.kill()
    process.wait()
    process.stdout.close()
    staging = Staging(tmp_path)
    assert staging.swept_files == 1
    assert list(tmp_path.iterdir()) == [staging.folder]
    staging.close()


def test_closed_staging_leaves_nothing(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    staging.new_file(4).append([b"half"])
    staging.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A disk of 8 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    return folder


async def test_full_disk_refuses_writes_serves_reads_and_recovers(small_disk: Path) -> None:
    store = FolderBlobs(small_disk / "blobs")
    try:
        kept, filler = await put(store, b"kept"), await put(store, bytes(5 << 20))
        for size_bytes in (4 << 20, (1 << 20) - 1):
            with pytest.raises(StoreFull):
                await _fill(store, size_bytes)
        assert await store.verify(kept)
        assert store.staging.files() == []
        await store.delete(filler)
        await put(store, os.urandom(4 << 20))
    finally:
        await store.close()
        await asyncio.to_thread(subprocess.run, ["umount", str(small_disk)], check=True)


async def _fill(store: FolderBlobs, size_bytes: int) -> None:
    """Uploads until there is no room: large files are refused before their bytes, small ones while they are written."""
    for _ in range(9):
        staged = store.staging.new_file(size_bytes)
        try:
            staged.preallocate()
            staged.append([os.urandom(size_bytes)])
            await store.commit(staged, staged.digest())
        finally:
            staged.discard()


async def test_file_that_left_memory_is_read_from_the_disk(folder_store: FolderBlobs) -> None:
    content = os.urandom(3_500_000)
    digest = await put(folder_store, content)
    descriptor = os.open(folder_store.root / digest[:2] / digest, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    blob = await folder_store.open(digest)
    assert blob is not None
    assert b"".join([bytes(part) async for part in blob.read(0, blob.size_bytes)]) == content
