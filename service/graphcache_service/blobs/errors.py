"""What can go wrong with stored bytes.

    BlobStoreError
    +-- BlobStoreUnavailable   the store could not be asked: say nothing about what it holds
    +-- StoreFull              no room for these bytes
    +-- DigestMismatch         other bytes arrived than were announced
    +-- LengthMismatch         more or fewer bytes arrived than were announced
    +-- BlobDamaged            the bytes in the store are not whole any more
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class BlobStoreError(Exception):
    """The base of every error of this package."""


class BlobStoreUnavailable(BlobStoreError):
    """The folder or the bucket did not answer. It may in a moment; it is never the same as "not there"."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"the blob store could not {operation}: {reason}")
        self.operation = operation
        self.reason = reason


class StoreFull(BlobStoreError):
    """The disk, or its quota, has no room."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"the blob store has no room for {size_bytes} bytes: free space or evict, then try again")
        self.size_bytes = size_bytes


class DigestMismatch(BlobStoreError):
    def __init__(self, announced: str, received: str) -> None:
        super().__init__(f"the bytes have sha256 {received}, announced was {announced}: nothing was stored")
        self.announced = announced
        self.received = received


class LengthMismatch(BlobStoreError):
    def __init__(self, announced_bytes: int, received_bytes: int) -> None:
        super().__init__(f"{received_bytes} bytes arrived, announced were {announced_bytes}: nothing was stored")
        self.announced_bytes = announced_bytes
        self.received_bytes = received_bytes


class BlobDamaged(BlobStoreError):
    """A blob lost bytes after it was stored, such as a file that somebody cut."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"blob {digest} is damaged: {reason}")
        self.digest = digest
        self.reason = reason


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def typed_os_errors(operation: str, size_bytes: int = 0) -> Iterator[None]:
    """Turns what the operating system says into this package's errors.

    Raises:
        StoreFull: no space, or a disk quota is used up.
        BlobStoreUnavailable: anything else, such as a mount that went away or too many open files.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StoreFull(size_bytes) from error
        raise BlobStoreUnavailable(operation, error.strerror or type(error).__name__) from error
