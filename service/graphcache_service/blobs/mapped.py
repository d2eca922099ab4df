"""A blob of a folder, read through a memory map."""

import asyncio
import errno
import mmap
import os
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from pathlib import Path

from graphcache_service.blobs.base import OpenBlob
from graphcache_service.blobs.errors import BlobDamaged, typed_os_errors

SLICE_BYTES = 16 << 20
"""What is handed to the socket at once; docs/performance-serving.md has the figures of 256 KiB to 16 MiB."""
COLD_SLICE_BYTES = 1 << 20
"""What is read into memory at once of a file that is not in the page cache; each reader of one holds this much."""


class MappedBlob(OpenBlob):
    """One map, shared by all readers of the blob.

    The bytes go from the map into the kernel's ``send`` and are never touched by this process: where a file was cut
    under the map, ``send`` answers EFAULT and that one connection ends, while reading such a page here would end the
    process by SIGBUS. So nothing may copy or hash a slice; ``FolderBlobs.verify`` reads the file instead.
    """

    def __init__(self, path: Path, digest: str, threads: Executor) -> None:
        self.digest = digest
        self._threads = threads
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._descriptor).st_size
        self._view = self._map()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def deleted(self) -> bool:
        """Whether no name leads to the file any more: then it only takes up disk for those who still read it."""
        return os.fstat(self._descriptor).st_nlink == 0

    async def read(self, start: int, stop: int) -> AsyncIterator[bytes | memoryview]:
        offset = start
        while offset < stop:
            end = min(offset + SLICE_BYTES, stop)
            if self._in_page_cache(end - 1):
                yield self._view[offset:end]
            else:
                end = min(offset + COLD_SLICE_BYTES, stop)
                os.posix_fadvise(self._descriptor, end, SLICE_BYTES, os.POSIX_FADV_WILLNEED)
                loop = asyncio.get_running_loop()
                yield await loop.run_in_executor(self._threads, self._read_from_disk, offset, end)
            offset = end

    async def content(self) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read_from_disk, 0, self.size_bytes)

    def _map(self) -> memoryview:
        if self.size_bytes == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, self.size_bytes, access=mmap.ACCESS_READ))

    def _in_page_cache(self, offset: int) -> bool:
        """Whether this byte can be sent without waiting for the disk in the event loop.

        Raises:
            BlobDamaged: the file ends before it.
        """
        try:
            if os.preadv(self._descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 0:
                raise BlobDamaged(self.digest, f"it ends before byte {offset} of {self.size_bytes}")
        except OSError as error:
            # A file system that cannot say, such as tmpfs before Linux 6.6, holds its files in memory.
            return error.errno == errno.EOPNOTSUPP
        return True

    def _read_from_disk(self, offset: int, end: int) -> bytes:
        parts: list[bytes] = []
        with typed_os_errors("read a blob"):
            while offset < end:
                part = os.pread(self._descriptor, end - offset, offset)
                if not part:
                    raise BlobDamaged(self.digest, f"it ends before byte {offset} of {self.size_bytes}")
                parts.append(part)
                offset += len(part)
        return b"".join(parts)
