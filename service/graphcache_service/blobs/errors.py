"""What the store itself can say, beside ``core.errors``: it cannot be asked, or it lost bytes."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from graphcache_service.core.errors import DigestMismatch, LengthMismatch, ServiceError, StoreFull, Unavailable

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class BlobStoreUnavailable(Unavailable):
    """The folder or the blob_bucket did not answer. It may in a moment; it is never the same as "not there"."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"the blob store could not {operation}: {reason}", retry_after_s=2.0)


class BlobDamaged(ServiceError):
    """A blob lost bytes after it was stored, such as a file that somebody cut."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"blob {digest} is damaged: {reason}")
        self.digest = digest


def no_room(size_bytes: int) -> StoreFull:
    return StoreFull(f"the blob store has no room for {size_bytes} bytes")


def digest_mismatch(announced: str, received: str) -> DigestMismatch:
    return DigestMismatch(
        f"the bytes have sha256 {received}, announced was {announced}: nothing was stored",
        field="digest",
        hint="hash the file again and upload it under its own digest",
    )


def length_mismatch(announced_bytes: int, received_bytes: int) -> LengthMismatch:
    return LengthMismatch(
        f"{received_bytes} bytes arrived, announced were {announced_bytes}: nothing was stored",
        field="Content-Length",
        hint="send exactly as many bytes as announced",
    )


@contextmanager
def typed_os_errors(operation: str, size_bytes: int = 0) -> Iterator[None]:
    """Turns what the operating system says into typed errors.

    Raises:
        StoreFull: no space, or a disk quota is used up.
        BlobStoreUnavailable: anything else, such as a mount that went away or too many open files.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(size_bytes) from error
        raise BlobStoreUnavailable(operation, error.strerror or type(error).__name__) from error
