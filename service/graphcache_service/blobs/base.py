"""BlobStore: immutable bytes by their sha256. What a folder and a bucket have in common."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from graphcache_service.blobs.records import Records
from graphcache_service.blobs.staging import StagedFile, Staging


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What a listing says of a blob. ``stored_at``: a blob younger than an upload's grace is no orphan yet."""

    digest: str
    size_bytes: int
    stored_at: datetime


class OpenBlob(ABC):
    """A blob being read, by any number of readers. What is open stays readable to its end, though it may be deleted
    meanwhile; it is closed when the last reader lets go of it.
    """

    digest: str
    size_bytes: int

    @abstractmethod
    def read(self, start: int, stop: int) -> AsyncIterator[bytes | memoryview]:
        """Yields the bytes ``start <= i < stop`` in slices; holds no more than a few slices in memory.

        Raises:
            BlobDamaged: the blob has lost bytes since it was opened.
            BlobStoreUnavailable: the store went away.
        """

    @abstractmethod
    async def content(self) -> bytes:
        """All of a small blob, in this process's memory; raises as ``read`` does."""


class BlobStore(ABC):
    """Where blobs are. A blob appears at once and whole, or not at all; putting the same bytes again is harmless.

    Every call that asks the store raises BlobStoreUnavailable where it does not answer, and ValueError for what is no
    digest.
    """

    staging: Staging
    records: Records

    @abstractmethod
    async def check(self) -> None:
        """Asks whether the store answers and can be written.

        Raises:
            BlobStoreUnavailable: it does not.
        """

    @abstractmethod
    async def size(self, digest: str) -> int | None:
        """The blob's size in bytes, or None where the store has no such blob."""

    @abstractmethod
    async def open(self, digest: str) -> OpenBlob | None:
        """The blob, opened for reading, or None where the store has no such blob."""

    @abstractmethod
    async def commit(self, staged: StagedFile, digest: str) -> None:
        """Makes a blob of what was staged, and ends the staged file, whatever happens.

        Raises:
            LengthMismatch, DigestMismatch: it is not what was announced; nothing is stored.
            StoreFull: there is no room.
        """

    @abstractmethod
    async def verify(self, digest: str) -> bool:
        """Reads the blob again: whether it is there and its bytes have this digest."""

    @abstractmethod
    async def delete(self, digest: str) -> bool:
        """Deletes the blob; downloads under way end well. False where there was none."""

    @abstractmethod
    def iter_digests(self) -> AsyncIterator[StoredBlob]:
        """All blobs, in no order. What is no blob is passed over."""

    async def presign(self, digest: str, expires_s: int) -> str | None:
        """A URL that gives the blob without this service for ``expires_s`` seconds, or None where there is none."""
        return None

    def unchanged(self, digest: str, identity: object) -> bool:
        """Whether the blob is still what it was when ``identity`` was taken. Cheap: asked for every hot answer."""
        return True

    def identity(self, digest: str) -> object:
        """What tells this blob from one that replaced it or was cut; None where the store cannot tell cheaply."""
        return None

    def file_below_root(self, digest: str) -> str | None:
        """The blob's path below the store's root, for a proxy that serves the folder itself; None for a bucket."""
        return None

    async def close(self) -> None:
        """Ends what is open, and removes what was staged."""
        self.staging.close()
