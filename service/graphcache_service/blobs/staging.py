"""Staging: where bytes gather while they are not yet a blob.

Each process has a folder of its own below the staging root and holds a lock on it for as long as it lives; the kernel
frees the lock when the process dies, however it dies. A start sweeps the folders whose lock is free, so two replicas on
one host never sweep each other's uploads.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from graphcache_service.blobs.errors import BlobStoreUnavailable, digest_mismatch, length_mismatch, typed_os_errors

PREALLOCATE_FROM_BYTES = 1 << 20
"""From this size on the disk's blocks are reserved first, so that a full disk is found before the body is read."""
T = TypeVar("T")
A = TypeVarTuple("A")

DISK_THREADS = 16
"""fsync waits for the disk, not for the processor: uploads that end together share one flush of its journal."""
NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV})


class StagedFile:
    """Bytes on their way in: appended, hashed on the way, never visible.

    Calls block, one at a time: a discard waits for the append that runs in another thread, and no append follows it.
    The file is opened at the first append, so that an upload that never sends a byte leaves no trace.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._path_text = str(path)
        self.size_bytes = size_bytes
        self._written_bytes = 0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._sha256 = hashlib.sha256()
        self._descriptor: int | None = None
        self._exists = False
        self._discarded = False
        self._one_call = threading.RLock()

    def preallocate(self) -> None:
        """Reserves the disk's blocks for a large file, where the file system can.

        Raises:
            StoreFull: the disk has not enough room for the announced size.
        """
        if self.size_bytes < PREALLOCATE_FROM_BYTES:
            return
        with self._one_call, typed_os_errors("stage an upload", self.size_bytes):
            try:
                os.posix_fallocate(self._open(), 0, self.size_bytes)
            except OSError as error:
                if error.errno not in NO_PREALLOCATION:
                    self.discard()
                    raise

    @property
    def received_bytes(self) -> int:
        """What arrived, whether it is written yet or held."""
        return self._written_bytes + self._held_bytes

    def append(self, chunks: Iterable[bytes]) -> None:
        """Writes and hashes what was held, and then ``chunks``.

        Raises:
            LengthMismatch: more bytes than announced.
            StoreFull, BlobStoreUnavailable: the disk refused.
        """
        with self._one_call:
            held, self._held, self._held_bytes = self._held, [], 0
            for chunk in [*held, *chunks]:
                if self._written_bytes + len(chunk) > self.size_bytes:
                    raise length_mismatch(self.size_bytes, self._written_bytes + len(chunk))
                self._sha256.update(chunk)
                self._write(chunk)
                self._written_bytes += len(chunk)

    def hold(self, chunks: list[bytes]) -> None:
        """Takes chunks without waiting for the disk: the next append or check writes them, in its own thread."""
        self._held += chunks
        self._held_bytes += sum(len(chunk) for chunk in chunks)

    def check(self, digest: str) -> None:
        """Writes what was held, and checks that everything arrived and nothing else.

        Raises:
            LengthMismatch, DigestMismatch: it did not.
        """
        self.append([])
        if self.received_bytes != self.size_bytes:
            raise length_mismatch(self.size_bytes, self.received_bytes)
        if self.digest() != digest:
            raise digest_mismatch(digest, self.digest())

    def digest(self) -> str:
        """sha256 of what was written so far."""
        return self._sha256.hexdigest()

    def close(self, durable: bool) -> None:
        """Ends writing. ``durable``: the bytes are on the disk when this returns, not only in the kernel's memory."""
        with self._one_call, typed_os_errors("stage an upload", self.size_bytes):
            descriptor = self._open()
            try:
                if durable:
                    os.fsync(descriptor)
            finally:
                self._descriptor = None
                os.close(descriptor)

    def move(self, path: str) -> None:
        """Gives the closed file its name as a blob.

        Raises:
            FileNotFoundError: the folder of that name is missing.
        """
        with self._one_call:
            os.replace(self._path_text, path)
            self._exists = False

    def discard(self) -> None:
        """Removes what was staged. Safe to repeat, and after the file became a blob."""
        with self._one_call:
            self._discarded = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            if self._exists:
                self.path.unlink(missing_ok=True)
                self._exists = False

    def _open(self) -> int:
        if self._discarded:
            raise BlobStoreUnavailable("stage an upload", "it ended meanwhile")
        if self._descriptor is None:
            self._descriptor = os.open(self._path_text, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            self._exists = True
        return self._descriptor

    def _write(self, chunk: bytes) -> None:
        with typed_os_errors("stage an upload", self.size_bytes):
            descriptor = self._open()
            rest, offset = memoryview(chunk), self._written_bytes
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[written:], offset + written


class Staging:
    """One process's folder for bytes on their way in.

    Raises:
        BlobStoreUnavailable: the folder cannot be made or locked.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        with typed_os_errors("open its staging folder"):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.swept_files = sweep(root)
            self.folder, lock = _own_folder(root)
        self._lock: int | None = lock
        self._numbers = count()
        self.threads = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="blobs")

    def new_file(self, size_bytes: int) -> StagedFile:
        """A file that will hold ``size_bytes`` bytes."""
        return StagedFile(self.folder / str(next(self._numbers)), size_bytes)

    async def run(self, call: Callable[[*A], T], *args: *A) -> T:
        """Runs what waits for the disk in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, call, *args)

    def files(self) -> list[Path]:
        """What lies there now, for the record."""
        return sorted(self.folder.iterdir())

    def close(self) -> None:
        """Removes this process's folder. Uploads under way fail. Safe to repeat."""
        self.threads.shutdown(wait=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(root: Path) -> int:
    """Removes what processes that live no more left behind; says how many files that were."""
    swept_files = 0
    for folder in root.iterdir():
        lock = _try_lock(folder)
        if lock is not None:
            swept_files += sum(1 for _ in folder.iterdir())
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
    return swept_files


def _own_folder(root: Path) -> tuple[Path, int]:
    """A new folder and the lock on it.

    Another process's sweep may see the folder between its making and its locking, and take it away: it is made anew.
    """
    while True:
        folder = root / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        lock = _try_lock(folder)
        if lock is not None and folder.exists():
            return folder, lock
        if lock is not None:
            os.close(lock)


def _try_lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock, or None where it is held, gone, or no folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
