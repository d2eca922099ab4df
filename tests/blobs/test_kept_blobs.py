"""What is kept at hand: bounded, least recently used first, and never what the store holds no more."""

import hashlib

import pytest

from graphcache_service.blobs.folder import FolderBlobs
from graphcache_service.blobs.memory import KeptBlobs, MemoryBlob


@pytest.fixture
def kept(folder_store: FolderBlobs) -> KeptBlobs[MemoryBlob]:
    return KeptBlobs(folder_store, max_bytes=100, max_blobs=3)


async def keep(store: FolderBlobs, kept: KeptBlobs[MemoryBlob], content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    staged = store.staging.new_file(len(content))
    staged.append([content])
    await store.commit(staged, digest)
    kept.keep(digest, MemoryBlob(digest, content), store.identity(digest))
    return digest


async def test_least_recently_used_goes_first(folder_store: FolderBlobs, kept: KeptBlobs[MemoryBlob]) -> None:
    first, second = await keep(folder_store, kept, b"1"), await keep(folder_store, kept, b"2")
    await keep(folder_store, kept, b"3")
    assert kept.get(first)
    await keep(folder_store, kept, b"4")
    assert kept.get(second) is None
    assert kept.get(first)
    assert len(kept) == 3


async def test_memory_is_bounded_by_bytes(folder_store: FolderBlobs, kept: KeptBlobs[MemoryBlob]) -> None:
    first = await keep(folder_store, kept, b"a" * 60)
    await keep(folder_store, kept, b"b" * 60)
    assert kept.get(first) is None
    assert kept.size_bytes == 60


async def test_larger_than_all_memory_is_not_kept(folder_store: FolderBlobs, kept: KeptBlobs[MemoryBlob]) -> None:
    assert kept.get(await keep(folder_store, kept, b"c" * 101)) is None
    assert kept.size_bytes == 0


async def test_deleted_blob_is_not_given_out(folder_store: FolderBlobs, kept: KeptBlobs[MemoryBlob]) -> None:
    digest = await keep(folder_store, kept, b"gone")
    await folder_store.delete(digest)
    assert kept.get(digest) is None
    assert (len(kept), kept.size_bytes) == (0, 0)


async def test_changed_blobs_are_let_go_together(folder_store: FolderBlobs, kept: KeptBlobs[MemoryBlob]) -> None:
    gone, stays = await keep(folder_store, kept, b"gone"), await keep(folder_store, kept, b"stays")
    await folder_store.delete(gone)
    kept.drop_changed()
    assert len(kept) == 1
    assert kept.get(stays)
