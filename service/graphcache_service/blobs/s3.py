"""S3Blobs: blobs as objects of an S3 blob_bucket, through obstore."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from graphcache_service.blobs.base import BlobStore, OpenBlob, StoredBlob
from graphcache_service.blobs.errors import BlobDamaged, BlobStoreUnavailable
from graphcache_service.blobs.layout import blob_name, digest_of_name
from graphcache_service.blobs.records import FOLDER, Records, key_digest_of
from graphcache_service.blobs.staging import StagedFile, Staging

if TYPE_CHECKING:
    from obstore.store import S3Config

READ_SLICE_BYTES = 1 << 20
"""Each download holds about two of these."""
PART_BYTES = 8 << 20
PARTS_AT_ONCE = 3
"""An upload to the blob_bucket holds at most PARTS_AT_ONCE parts in memory. S3 wants parts of 5 MiB or more."""
LISTED_AT_ONCE = 1_000
PUT_END_S = 10.0
"""How long a stop waits for uploads to the blob_bucket that go on by themselves."""


@dataclass(frozen=True, slots=True)
class S3Location:
    """A blob_bucket and how to reach it. What is left out comes from the environment's own AWS settings.

    ``public_endpoint`` is where clients reach the same blob_bucket, if not at ``endpoint``: presigned URLs name it.
    """

    blob_bucket: str
    prefix: str = ""
    endpoint: str | None = None
    public_endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"S3Location(blob_bucket={self.blob_bucket!r}, prefix={self.prefix!r}, endpoint={self.endpoint!r})"


class S3Blobs(BlobStore):
    """Objects named as a folder's files are.

    Uploads gather in a local staging folder, are checked there, and go to the blob_bucket in one piece or as a
    multipart upload that appears when it is completed. So nothing unchecked ever reaches the blob_bucket, uploads
    resume the same way as with a folder, and memory stays constant.
    """

    def __init__(self, location: S3Location, staging: Path) -> None:
        self.staging = Staging(staging)
        self._store = _s3_store(location, location.endpoint)
        self._signing_store = _s3_store(location, location.public_endpoint or location.endpoint)
        self.records = S3Records(self._store)
        self._putting: set[asyncio.Future[obstore.PutResult]] = set()

    async def check(self) -> None:
        with _typed_s3_errors("list its blob_bucket"):
            try:
                async for _ in obstore.list(self._store, chunk_size=1):
                    return
            except FileNotFoundError as error:
                raise BlobStoreUnavailable("find its blob_bucket", "there is no such blob_bucket") from error

    async def size(self, digest: str) -> int | None:
        with _typed_s3_errors("look for a blob"):
            try:
                return (await obstore.head_async(self._store, blob_name(digest)))["size"]
            except FileNotFoundError:
                await self.check()
                return None

    async def open(self, digest: str) -> "S3Blob | None":
        size_bytes = await self.size(digest)
        return S3Blob(self._store, digest, size_bytes) if size_bytes is not None else None

    async def commit(self, staged: StagedFile, digest: str) -> None:
        try:
            staged.check(digest)
            staged.close(durable=False)
            with _typed_s3_errors("store a blob"):
                await self._put_to_its_end(blob_name(digest), staged.path)
        finally:
            staged.discard()

    async def _put_to_its_end(self, name: str, path: Path) -> None:
        """Cancelled, it goes on by itself: the parts of an upload that is dropped half-way stay in the blob_bucket,
        unseen and paid for. What it stores then has no row, and the collector removes it.
        """
        put = obstore.put_async(self._store, name, path, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        putting = asyncio.ensure_future(put)
        self._putting.add(putting)
        putting.add_done_callback(self._putting.discard)
        await asyncio.shield(putting)

    async def close(self) -> None:
        if self._putting:
            await asyncio.wait(self._putting, timeout=PUT_END_S)
        await super().close()

    async def verify(self, digest: str) -> bool:
        blob = await self.open(digest)
        if blob is None:
            return False
        sha256 = hashlib.sha256()
        try:
            async for part in blob.read(0, blob.size_bytes):
                sha256.update(part)
        except BlobDamaged:
            return False
        return sha256.hexdigest() == digest

    async def delete(self, digest: str) -> bool:
        """S3 does not say whether there was one: asked beforehand."""
        if await self.size(digest) is None:
            return False
        with _typed_s3_errors("delete a blob"):
            await obstore.delete_async(self._store, blob_name(digest))
        return True

    async def iter_digests(self) -> AsyncIterator[StoredBlob]:
        with _typed_s3_errors("list its blobs"):
            async for page in obstore.list(self._store, chunk_size=LISTED_AT_ONCE):
                for found in page:
                    digest = digest_of_name(found["path"])
                    if digest is not None:
                        yield StoredBlob(digest, found["size"], found["last_modified"])

    async def presign(self, digest: str, expires_s: int) -> str | None:
        with _typed_s3_errors("sign a URL"):
            return await obstore.sign_async(self._signing_store, "GET", blob_name(digest), timedelta(seconds=expires_s))


class S3Blob(OpenBlob):
    """One object, streamed by ranged requests."""

    def __init__(self, store: S3Store, digest: str, size_bytes: int) -> None:
        self._store = store
        self.digest = digest
        self.size_bytes = size_bytes

    async def read(self, start: int, stop: int) -> AsyncIterator[bytes | memoryview]:
        if start == stop:
            return
        left_bytes = stop - start
        with _typed_s3_errors("read a blob"):
            try:
                result = await obstore.get_async(self._store, blob_name(self.digest), options={"range": (start, stop)})
            except FileNotFoundError as error:
                raise BlobDamaged(self.digest, "it was deleted while it was read") from error
            async for part in result.stream(min_chunk_size=READ_SLICE_BYTES):
                left_bytes -= len(part)
                yield memoryview(part)
        if left_bytes:
            raise BlobDamaged(self.digest, f"{left_bytes} bytes are missing at its end")

    async def content(self) -> bytes:
        return b"".join([part async for part in self.read(0, self.size_bytes)])


class S3Records(Records):
    """Objects beside the blobs."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    async def put(self, name: str, content: bytes) -> None:
        with _typed_s3_errors("write a record"):
            await obstore.put_async(self._store, name, content)

    async def get(self, name: str) -> bytes | None:
        with _typed_s3_errors("read a record"):
            try:
                return bytes(await (await obstore.get_async(self._store, name)).bytes_async())
            except FileNotFoundError:
                return None

    async def delete(self, name: str) -> None:
        with _typed_s3_errors("delete a record"), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def names(self) -> AsyncIterator[str]:
        with _typed_s3_errors("list its records"):
            async for page in obstore.list(self._store, FOLDER, chunk_size=LISTED_AT_ONCE):
                for found in page:
                    if key_digest_of(found["path"]) is not None:
                        yield found["path"]


def _s3_store(location: S3Location, endpoint: str | None) -> S3Store:
    """Fails within seconds where S3 is away, so that a client hears 503 and can act on it."""
    config: S3Config = {"bucket": location.blob_bucket}
    if endpoint is not None:
        config["endpoint"] = endpoint
    if location.region is not None:
        config["region"] = location.region
    if location.access_key_id is not None and location.secret_access_key is not None:
        config |= {"access_key_id": location.access_key_id, "secret_access_key": location.secret_access_key}
    if location.session_token is not None:
        config["session_token"] = location.session_token
    return S3Store(
        prefix=location.prefix or None,
        config=config,
        client_options={
            "allow_http": (endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=3),
            "read_timeout": timedelta(seconds=20),
            "timeout": timedelta(hours=1),
        },
        retry_config={
            "max_retries": 2,
            "retry_timeout": timedelta(seconds=8),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
        },
    )


@contextmanager
def _typed_s3_errors(operation: str) -> Iterator[None]:
    """Turns obstore's errors into BlobStoreUnavailable, with the first line of its text: the rest may hold URLs."""
    try:
        yield
    except (BaseError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BlobStoreUnavailable(operation, reason) from error
