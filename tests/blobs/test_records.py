"""The contract of records, on a folder and on a real S3 server: whole or absent, beside the blobs, and no blobs."""

import pytest

from graphcache_service.blobs.base import BlobStore
from graphcache_service.blobs.records import key_digest_of, record_name

KEY_DIGEST = "ab" * 32


async def names(store: BlobStore) -> list[str]:
    return sorted([name async for name in store.records.names()])


async def test_record_is_read_back_replaced_and_removed(store: BlobStore) -> None:
    name = record_name("default", KEY_DIGEST)
    assert await store.records.get(name) is None
    await store.records.put(name, b"first")
    await store.records.put(name, b"second")
    assert await store.records.get(name) == b"second"
    await store.records.delete(name)
    await store.records.delete(name)
    assert await store.records.get(name) is None
    assert await names(store) == []


async def test_records_of_two_namespaces_are_told_apart_whatever_they_are_called(store: BlobStore) -> None:
    both = [record_name(namespace, KEY_DIGEST) for namespace in ("team/a", "team.a")]
    for name in both:
        await store.records.put(name, name.encode())
    assert await names(store) == sorted(both)
    assert [await store.records.get(name) for name in both] == [name.encode() for name in both]


async def test_records_are_no_blobs(store: BlobStore) -> None:
    await store.records.put(record_name("default", KEY_DIGEST), b"{}")
    assert [blob async for blob in store.iter_digests()] == []
    assert store.staging.files() == []


@pytest.mark.parametrize("digest", ["", "../x", "AB" * 32, "ab" * 31])
def test_what_is_no_digest_names_no_record(digest: str) -> None:
    with pytest.raises(ValueError, match="not a sha256 digest"):
        record_name("default", digest)


@pytest.mark.parametrize("name", ["records/ab/x.json", f"records/cd/{KEY_DIGEST}.{'0' * 16}.json", f"ab/{KEY_DIGEST}"])
def test_what_is_no_record_is_passed_over(name: str) -> None:
    assert key_digest_of(name) is None
    assert key_digest_of(record_name("default", KEY_DIGEST)) == KEY_DIGEST
