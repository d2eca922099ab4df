"""Records: small files beside the blobs that say which graph a blob is, so that a lost database can be rebuilt.

``records/ab/abcdef....0123456789abcdef.json`` below the store's root: the key's digest, and a hash of the namespace,
which itself may hold characters that no file's name may.
"""

import hashlib
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from graphcache_service.blobs.errors import typed_os_errors
from graphcache_service.blobs.staging import Staging
from graphcache_wire.base import is_sha256

FOLDER: Final = "records"
_NAME: Final = re.compile(r"records/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[0-9a-f]{16}\.json")


def record_name(namespace: str, key_digest: str) -> str:
    """The one name of the record of a key in a namespace.

    Raises:
        ValueError: ``key_digest`` is no digest; nothing else ever becomes a path.
    """
    if not is_sha256(key_digest):
        raise ValueError(f"not a sha256 digest: {key_digest[:80]!r}")
    return f"{FOLDER}/{key_digest[:2]}/{key_digest}.{hashlib.sha256(namespace.encode()).hexdigest()[:16]}.json"


def key_digest_of(name: str) -> str | None:
    """The key's digest in a record's name; None for what is no record's name."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[2]


class Records(ABC):
    """Records by name. One appears at once and whole, or not at all; writing one again replaces it.

    Every call raises BlobStoreUnavailable where the store does not answer.
    """

    @abstractmethod
    async def put(self, name: str, content: bytes) -> None:
        """Write a record."""

    @abstractmethod
    async def get(self, name: str) -> bytes | None:
        """A record's bytes, or None where there is no such record."""

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Remove a record. Safe to repeat."""

    @abstractmethod
    def names(self) -> AsyncIterator[str]:
        """The names of all records, in no order. What is no record is passed over."""


class FolderRecords(Records):
    """Files of a folder of blobs; each is on the disk when ``put`` returns, where ``durable``."""

    def __init__(self, root: Path, staging: Staging, *, durable: bool) -> None:
        self._root = root
        self._staging = staging
        self._durable = durable

    async def put(self, name: str, content: bytes) -> None:
        await self._staging.run(self._put, name, content)

    async def get(self, name: str) -> bytes | None:
        return await self._staging.run(self._get, name)

    async def delete(self, name: str) -> None:
        await self._staging.run(self._delete, name)

    async def names(self) -> AsyncIterator[str]:
        for shard in await self._staging.run(self._shards):
            for name in await self._staging.run(self._names_of_shard, shard):
                yield name

    def _put(self, name: str, content: bytes) -> None:
        path = self._root / PurePosixPath(name)
        staged = self._staging.folder / f"record-{secrets.token_hex(16)}"
        with typed_os_errors("write a record", len(content)):
            try:
                self._write(staged, content)
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                staged.replace(path)
            finally:
                staged.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes) -> None:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            if self._durable:
                os.fsync(file.fileno())

    def _get(self, name: str) -> bytes | None:
        with typed_os_errors("read a record"), suppress(FileNotFoundError):
            return (self._root / PurePosixPath(name)).read_bytes()
        return None

    def _delete(self, name: str) -> None:
        with typed_os_errors("delete a record"):
            (self._root / PurePosixPath(name)).unlink(missing_ok=True)

    def _shards(self) -> list[str]:
        with typed_os_errors("list its records"), suppress(FileNotFoundError):
            return [entry.name for entry in os.scandir(self._root / FOLDER) if entry.is_dir()]
        return []

    def _names_of_shard(self, shard: str) -> list[str]:
        with typed_os_errors("list its records"), suppress(FileNotFoundError):
            names = [f"{FOLDER}/{shard}/{name}" for name in os.listdir(self._root / FOLDER / shard)]
            return [name for name in names if key_digest_of(name) is not None]
        return []
