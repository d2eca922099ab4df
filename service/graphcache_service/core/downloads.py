"""Downloads: whether a caller may read a blob, and where its bytes are at hand."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from graphcache_service.blobs.base import OpenBlob
from graphcache_service.blobs.errors import BlobDamaged
from graphcache_service.blobs.memory import KeptBlobs, MemoryBlob
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import NotFound
from graphcache_service.core.services import Services
from graphcache_service.db import downloads as rows

ACCESS_REMEMBERED_S: Final = 5.0
"""As long as tokens are: what was quarantined or evicted is refused by every replica after this long."""
MAX_REMEMBERED: Final = 16_384
MAX_OPEN_BLOBS: Final = 64
"""Large blobs whose maps stay open between requests: two descriptors each. Mapping 64 MiB anew costs milliseconds."""


@dataclass(frozen=True, slots=True)
class _Readable:
    """A caller may read a blob that has this size by its record."""

    size_bytes: int
    until: float


LostBlob = Callable[[Services, str], Awaitable[object]]
"""Told of a blob that artifacts name and the store has lost: drops the entry, so that the graph is compiled anew."""


ReadableBlob: TypeAlias = OpenBlob
HotBlob: TypeAlias = MemoryBlob
"""Blobs as the API knows them, which imports nothing of ``blobs``."""


class Downloads:
    """The readers' side of the blobs in this process."""

    def __init__(self, services: Services, on_lost: LostBlob) -> None:
        self._services = services
        self._on_lost = on_lost
        self._readable: dict[tuple[str, tuple[str, ...], str], _Readable] = {}
        self._verified: set[str] = set()
        settings = services.settings
        self._small: KeptBlobs[MemoryBlob] = KeptBlobs(
            services.blobs, max_bytes=settings.hot_blobs_bytes, max_blobs=MAX_REMEMBERED
        )
        self._large: KeptBlobs[OpenBlob] = KeptBlobs(services.blobs, max_bytes=2**62, max_blobs=MAX_OPEN_BLOBS)

    def hot(self, caller: Caller, digest: str) -> MemoryBlob | None:
        """A small blob that is in memory and that this caller is known to be allowed. Never waits: the hot path."""
        blob = self._small.get(digest)
        if blob is None or not self._known_readable(caller, digest):
            return None
        self._services.usage.fetched(digest)
        return blob

    async def open(self, caller: Caller, digest: str, *, counts: bool = True) -> OpenBlob:
        """A blob to read from. ``counts`` is false for a look that fetches nothing.

        Raises:
            NotFound: no graph that the caller may read has these bytes, or the store has lost them.
            BlobStoreUnavailable, DatabaseUnavailable: nobody can say.
        """
        size_bytes = await self._readable_size(caller, digest)
        blob = self._small.get(digest) or self._large.get(digest) or await self._fetch(digest, size_bytes)
        if counts:
            self._services.usage.fetched(digest)
        return blob

    async def presigned(self, caller: Caller, digest: str) -> str | None:
        """A URL of the store itself for this blob, or None where the store has none; raises as ``open`` does."""
        size_bytes = await self._readable_size(caller, digest)
        url = await self._services.blobs.presign(digest, int(self._services.settings.presign_s))
        if url is not None:
            if await self._services.blobs.size(digest) != size_bytes:
                raise await self._remove_damaged(digest)
            self._services.usage.fetched(digest)
        return url

    async def read(self, blob: ReadableBlob, start: int, stop: int) -> AsyncGenerator[bytes | memoryview]:
        """The bytes of an open blob. A blob that turns out damaged is removed, so that it is compiled anew.

        Raises:
            BlobDamaged, BlobStoreUnavailable: the rest cannot be had.
        """
        try:
            async for part in blob.read(start, stop):
                yield part
        except BlobDamaged:
            if not await self._services.blobs.verify(blob.digest):
                await self._remove_damaged(blob.digest)
            raise

    def file_below_root(self, digest: str) -> str | None:
        """Where a proxy finds the blob below the store's root; None where it cannot."""
        return self._services.blobs.file_below_root(digest)

    def _known_readable(self, caller: Caller, digest: str) -> _Readable | None:
        known = self._readable.get((caller.namespace, caller.reads, digest))
        return known if known is not None and known.until > time.monotonic() else None

    async def _readable_size(self, caller: Caller, digest: str) -> int:
        known = self._known_readable(caller, digest)
        if known is not None:
            return known.size_bytes
        caller.require("read")
        async with self._services.database.read() as session:
            size_bytes = await rows.readable_size(session, digest, caller.readable())
        if size_bytes is None:
            raise NotFound(
                f"no graph that you may read has the blob {digest}",
                field="digest",
                hint="resolve the key, and fetch the blob that its artifact names",
            )
        if len(self._readable) >= MAX_REMEMBERED:
            self._readable.clear()
        readable = _Readable(size_bytes, time.monotonic() + ACCESS_REMEMBERED_S)
        self._readable[caller.namespace, caller.reads, digest] = readable
        return size_bytes

    async def _fetch(self, digest: str, size_bytes: int) -> OpenBlob:
        store = self._services.blobs
        await self._verify_first_read(digest)
        identity = store.identity(digest)
        blob = await store.open(digest)
        if blob is None or blob.size_bytes != size_bytes:
            raise await self._remove_damaged(digest)
        if blob.size_bytes <= self._services.settings.hot_blob_max_bytes:
            small = MemoryBlob(digest, await blob.content())
            self._small.keep(digest, small, identity)
            return small
        if identity is not None:
            self._large.drop_changed()
            self._large.keep(digest, blob, identity)
        return blob

    async def _verify_first_read(self, digest: str) -> None:
        if not self._services.settings.verify_reads or digest in self._verified:
            return
        if not await self._services.blobs.verify(digest):
            raise await self._remove_damaged(digest)
        self._verified.add(digest)

    async def _remove_damaged(self, digest: str) -> NotFound:
        """Removes what is left of a blob and has its graphs compiled anew; what the reader is to be told."""
        self._large.drop(digest)
        self._readable = {key: known for key, known in self._readable.items() if key[2] != digest}
        self._verified.discard(digest)
        await self._services.blobs.delete(digest)
        await self._on_lost(self._services, digest)
        return NotFound(
            f"the store has lost the blob {digest}",
            field="digest",
            hint="resolve the key again: the graph is compiled anew",
        )
