"""The contract of a blob store, on a folder and on a real S3 server."""

import asyncio
import hashlib
import os

import pytest

from graphcache_service.blobs.base import BlobStore
from graphcache_service.core.errors import DigestMismatch, LengthMismatch

ABSENT = "0" * 64


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def put(store: BlobStore, content: bytes) -> str:
    staged = store.staging.new_file(len(content))
    staged.append([content])
    await store.commit(staged, sha256(content))
    return sha256(content)


async def read(store: BlobStore, digest: str, start: int = 0, stop: int | None = None) -> bytes:
    blob = await store.open(digest)
    assert blob is not None
    return b"".join([bytes(part) async for part in blob.read(start, blob.size_bytes if stop is None else stop)])


async def test_what_was_put_is_read_back(store: BlobStore) -> None:
    content = os.urandom(3_000_001)
    digest = await put(store, content)
    assert await store.size(digest) == len(content)
    assert await read(store, digest) == content
    assert await store.verify(digest)


async def test_large_blob_in_parts_is_read_back(store: BlobStore) -> None:
    content = os.urandom(1 << 20) * 20 + b"odd end"
    digest = await put(store, content)
    assert sha256(await read(store, digest)) == digest


async def test_any_range_is_read(store: BlobStore) -> None:
    content = os.urandom(2_500_000)
    digest = await put(store, content)
    for start, stop in [(0, 1), (0, 0), (1_048_570, 1_048_590), (2_499_999, 2_500_000), (7, 2_400_000)]:
        assert await read(store, digest, start, stop) == content[start:stop]


async def test_blob_that_is_not_there_is_none(store: BlobStore) -> None:
    assert await store.size(ABSENT) is None
    assert await store.open(ABSENT) is None
    assert not await store.verify(ABSENT)
    assert not await store.delete(ABSENT)


async def test_nothing_is_visible_before_commit(store: BlobStore) -> None:
    content = os.urandom(100_000)
    staged = store.staging.new_file(len(content))
    staged.append([content])
    assert await store.size(sha256(content)) is None
    staged.discard()
    assert [blob async for blob in store.iter_digests()] == []


async def test_wrong_digest_is_refused_and_leaves_nothing(store: BlobStore) -> None:
    staged = store.staging.new_file(5)
    staged.append([b"wrong"])
    with pytest.raises(DigestMismatch, match="announced was"):
        await store.commit(staged, ABSENT)
    assert await store.size(ABSENT) is None
    assert store.staging.files() == []


async def test_too_few_bytes_are_refused_and_leave_nothing(store: BlobStore) -> None:
    staged = store.staging.new_file(5)
    staged.append([b"shor"])
    with pytest.raises(LengthMismatch):
        await store.commit(staged, sha256(b"shor"))
    assert await store.size(sha256(b"shor")) is None
    assert store.staging.files() == []


async def test_too_many_bytes_are_refused_and_leave_nothing(store: BlobStore) -> None:
    staged = store.staging.new_file(5)
    with pytest.raises(LengthMismatch):
        staged.append([b"lon", b"ger"])
    staged.discard()
    assert store.staging.files() == []


async def test_every_read_is_whole_while_two_writers_alternate(store: BlobStore) -> None:
    content = os.urandom(1 << 20) * 32
    digest = await put(store, content)

    async def write() -> None:
        for _ in range(3):
            await put(store, content)

    writers = asyncio.gather(write(), write())
    reads = 0
    while not writers.done() or not reads:
        assert sha256(await read(store, digest)) == digest
        reads += 1
    await writers


async def test_blob_is_read_to_its_end_though_it_is_deleted_meanwhile(folder_store: BlobStore) -> None:
    content = os.urandom(1 << 20) * 33
    digest = await put(folder_store, content)
    blob = await folder_store.open(digest)
    assert blob is not None
    parts = blob.read(0, blob.size_bytes)
    head = bytes(await anext(parts))
    await folder_store.delete(digest)
    assert head + b"".join([bytes(part) async for part in parts]) == content


async def test_same_bytes_twice_are_one_blob(store: BlobStore) -> None:
    digest = await put(store, b"the same")
    assert await put(store, b"the same") == digest
    assert [blob.digest async for blob in store.iter_digests()] == [digest]


async def test_deleted_blob_is_gone(store: BlobStore) -> None:
    digest = await put(store, b"short-lived")
    assert await store.delete(digest)
    assert await store.size(digest) is None


async def test_listing_gives_digest_size_and_age(store: BlobStore) -> None:
    digests = {await put(store, bytes([n]) * (n + 1)): n + 1 for n in range(5)}
    listed = [blob async for blob in store.iter_digests()]
    assert {blob.digest: blob.size_bytes for blob in listed} == digests
    assert all(blob.stored_at.tzinfo is not None for blob in listed)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "A" * 64, "0" * 63, "0" * 64 + "\n", "..%2f" + "0" * 59])
async def test_what_is_no_digest_never_becomes_a_path(store: BlobStore, digest: str) -> None:
    with pytest.raises(ValueError, match="not a sha256 digest"):
        await store.size(digest)


async def test_store_answers_its_check(store: BlobStore) -> None:
    await store.check()
