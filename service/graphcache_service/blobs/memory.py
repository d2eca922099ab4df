"""Blobs that are kept at hand: small ones in memory, maps of large ones open."""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from graphcache_service.blobs.base import BlobStore, OpenBlob

TRUSTED_S = 60.0
"""Where a store cannot tell cheaply whether a blob changed, what is at hand is asked for again after this long."""


class MemoryBlob(OpenBlob):
    """A whole blob in memory."""

    def __init__(self, digest: str, content: bytes) -> None:
        self.digest = digest
        self.size_bytes = len(content)
        self.bytes = content

    async def read(self, start: int, stop: int) -> AsyncIterator[bytes | memoryview]:
        yield memoryview(self.bytes)[start:stop]

    async def content(self) -> bytes:
        return self.bytes


Blob = TypeVar("Blob", bound=OpenBlob)


@dataclass(slots=True)
class _Kept(Generic[Blob]):
    blob: Blob
    identity: object
    trusted_until: float


class KeptBlobs(Generic[Blob]):
    """The least recently used go first. What the store holds no more, or holds otherwise, is never given out.

    One event loop's; nothing here waits.
    """

    def __init__(self, store: BlobStore, *, max_bytes: int, max_blobs: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._max_blobs = max_blobs
        self._kept: OrderedDict[str, _Kept[Blob]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is at hand and unchanged."""
        kept = self._kept.get(digest)
        if kept is None:
            return None
        if not self._is_current(digest, kept):
            self.drop(digest)
            return None
        self._kept.move_to_end(digest)
        return kept.blob

    def keep(self, digest: str, blob: Blob, identity: object) -> None:
        """Keeps a blob. ``identity`` was taken before it was read."""
        self.drop(digest)
        self._kept[digest] = _Kept(blob, identity, time.monotonic() + TRUSTED_S)
        self.size_bytes += blob.size_bytes
        while self._kept and (self.size_bytes > self._max_bytes or len(self._kept) > self._max_blobs):
            self.drop(next(iter(self._kept)))

    def drop(self, digest: str) -> None:
        """Lets go of a blob; who reads it reads on."""
        kept = self._kept.pop(digest, None)
        if kept is not None:
            self.size_bytes -= kept.blob.size_bytes

    def drop_changed(self) -> None:
        """Lets go of all that the store holds no more: a deleted file takes up disk while it is open."""
        for digest, kept in list(self._kept.items()):
            if not self._is_current(digest, kept):
                self.drop(digest)

    def _is_current(self, digest: str, kept: _Kept[Blob]) -> bool:
        if kept.identity is None:
            return time.monotonic() < kept.trusted_until
        return self._store.unchanged(digest, kept.identity)
