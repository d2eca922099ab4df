"""FolderBlobs: blobs as files of one folder."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from graphcache_service.blobs.base import BlobStore, StoredBlob
from graphcache_service.blobs.errors import BlobStoreUnavailable, typed_os_errors
from graphcache_service.blobs.layout import blob_name, digest_of_name
from graphcache_service.blobs.mapped import MappedBlob
from graphcache_service.blobs.records import FolderRecords
from graphcache_service.blobs.staging import StagedFile, Staging


class FolderBlobs(BlobStore):
    """A folder of mode 0700; ``ab/abcdef...`` are blobs, ``staging`` is where they gather.

    The folder is handled here and not through obstore, which neither syncs a file before it is renamed, nor hashes on
    the way, nor hands out a descriptor to map.

    ``durable``: a blob and its name are on the disk before the upload is answered, so that even a power cut leaves no
    key without bytes.

    Raises:
        BlobStoreUnavailable: the folder cannot be made or used.
    """

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self.root = root
        self.durable = durable
        self._root_text = str(root)
        with typed_os_errors("open its folder"):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            root.chmod(0o700)
            self._root_identity = _identity(root)
        self.staging = Staging(root / "staging")
        self.records = FolderRecords(root, self.staging, durable=durable)

    async def check(self) -> None:
        await self.staging.run(self._check_root)

    async def size(self, digest: str) -> int | None:
        identity = await self.staging.run(self._identity_or_none, self._path(digest))
        return identity[2] if identity is not None else None

    async def open(self, digest: str) -> MappedBlob | None:
        return await self.staging.run(self._open, self._path(digest))

    async def commit(self, staged: StagedFile, digest: str) -> None:
        await self.staging.run(self._commit, staged, digest)

    async def verify(self, digest: str) -> bool:
        return await self.staging.run(self._verify, self._path(digest))

    async def delete(self, digest: str) -> bool:
        return await self.staging.run(self._delete, self._path(digest))

    async def iter_digests(self) -> AsyncIterator[StoredBlob]:
        for shard in await self.staging.run(self._shards):
            for blob in await self.staging.run(self._blobs_of_shard, shard):
                yield blob

    def identity(self, digest: str) -> object:
        return self._identity_or_none(self._path(digest))

    def unchanged(self, digest: str, identity: object) -> bool:
        try:
            return _identity(f"{self._root_text}/{digest[:2]}/{digest}") == identity
        except OSError:
            return False

    def file_below_root(self, digest: str) -> str | None:
        return blob_name(digest)

    def _path(self, digest: str) -> Path:
        return self.root / blob_name(digest)

    def _check_root(self) -> None:
        """A folder that was swapped, such as a disk that is not mounted any more, holds nothing: that is no answer."""
        with typed_os_errors("find its folder"):
            if _identity(self.root)[:2] != self._root_identity[:2]:
                raise BlobStoreUnavailable("find its folder", f"{self.root} is not the folder that it was at start")
            os.listdir(self.staging.folder)

    def _identity_or_none(self, path: Path) -> tuple[int, int, int, int] | None:
        with typed_os_errors("look for a blob"):
            try:
                return _identity(path)
            except FileNotFoundError:
                self._check_root()
                return None

    def _open(self, path: Path) -> MappedBlob | None:
        with typed_os_errors("open a blob"):
            try:
                return MappedBlob(path, path.name, self.staging.threads)
            except FileNotFoundError:
                self._check_root()
                return None

    def _commit(self, staged: StagedFile, digest: str) -> None:
        """Names are texts here: a path of pathlib costs as much as what the kernel does with it."""
        folder = f"{self._root_text}/{blob_name(digest).partition('/')[0]}"
        try:
            staged.check(digest)
            staged.close(self.durable)
            with typed_os_errors("store a blob", staged.size_bytes):
                # Replaces what is there: the same bytes, or a damaged file that this mends. Readers keep the old one.
                try:
                    staged.move(f"{folder}/{digest}")
                except FileNotFoundError:
                    Path(folder).mkdir(mode=0o700, exist_ok=True)
                    staged.move(f"{folder}/{digest}")
                if self.durable:
                    _sync_folder(folder)
        finally:
            staged.discard()

    def _verify(self, path: Path) -> bool:
        with typed_os_errors("read a blob"):
            try:
                with path.open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest() == path.name
            except FileNotFoundError:
                self._check_root()
                return False

    def _delete(self, path: Path) -> bool:
        with typed_os_errors("delete a blob"):
            try:
                path.unlink()
            except FileNotFoundError:
                self._check_root()
                return False
        return True

    def _shards(self) -> list[Path]:
        self._check_root()
        with typed_os_errors("list its blobs"):
            return [Path(entry.path) for entry in os.scandir(self.root) if entry.is_dir() and len(entry.name) == 2]

    def _blobs_of_shard(self, shard: Path) -> list[StoredBlob]:
        blobs: list[StoredBlob] = []
        with typed_os_errors("list its blobs"):
            for entry in os.scandir(shard):
                digest = digest_of_name(f"{shard.name}/{entry.name}")
                # A name that is deleted while the listing runs is passed over.
                with suppress(FileNotFoundError):
                    if digest is not None:
                        status = entry.stat()
                        blobs.append(StoredBlob(digest, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)))
        return blobs


def _identity(path: Path | str) -> tuple[int, int, int, int]:
    """Device, inode, size and time of change: two files that agree in these are one, and uncut."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _sync_folder(folder: str) -> None:
    """Puts the folder's names on the disk: a file's own sync does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
