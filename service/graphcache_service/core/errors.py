"""Domain errors: they carry facts. ``api/errors.py`` holds the one table from them to a status and a body.

    ServiceError
    ├── Refused                     repeating the same request cannot help
    │   ├── InvalidRequest
    │   ├── Unauthenticated
    │   ├── Forbidden
    │   ├── NotFound
    │   ├── MethodNotAllowed
    │   ├── LeaseExpired
    │   ├── ToolchainMismatch
    │   ├── BlobMissing
    │   ├── DigestMismatch
    │   ├── LengthMismatch
    │   ├── LengthRequired
    │   ├── TooLarge
    │   ├── UploadTooSlow
    │   └── RangeNotSatisfiable
    └── Later                       the same request may succeed later
        ├── QuotaExceeded
        ├── StoreFull
        ├── Busy
        └── Unavailable
            └── DatabaseUnavailable, BlobStoreUnavailable (in blobs.store)

A leaf: ``db`` and ``blobs`` raise these too.
"""


class ServiceError(Exception):
    """What the service refuses or cannot do, told to the caller.

    Args:
        message: what was wrong, with the values that were wrong. Never a secret.
        field: the place in the request, such as ``key.bucket``.
        hint: what to do next.
        retry_after_s: seconds after which a repetition has a chance.
    """

    hint: str | None = None

    def __init__(
        self, message: str, *, field: str | None = None, hint: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint if hint is not None else type(self).hint
        self.retry_after_s = retry_after_s


class Refused(ServiceError):
    """The same request will be refused again."""


class Later(ServiceError):
    """The same request may succeed later."""


class InvalidRequest(Refused):
    """A value that no caller may send."""


class Unauthenticated(Refused):
    """No token, or none that is known, live and not revoked."""

    hint = "send the header Authorization: Bearer <token>; an administrator makes one by: graphcache token create"


class Forbidden(Refused):
    """The token lacks the scope or the namespace."""


class NotFound(Refused):
    """What was named does not exist, or not in a namespace that the caller may read."""


class MethodNotAllowed(Refused):
    """What was named is there, but not for this method.

    Args:
        allowed: the methods that it is for.
    """

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message, hint=f"use {', '.join(allowed)}")
        self.allowed = allowed


class LeaseExpired(Refused):
    """The lease ran out, ended, or belongs to a later generation: whoever sends this counts no more."""

    hint = "stop this compile and resolve the key again; nothing was changed"


class ToolchainMismatch(Refused):
    """The graph was made by another toolchain than its key names."""

    hint = "publish under a key of the toolchain that compiled it"


class BlobMissing(Refused):
    """A publication names a blob that is not stored."""

    hint = "upload the blob under the same lease, then complete again"


class DigestMismatch(Refused):
    """The bytes are not those that the digest names."""


class LengthMismatch(Refused):
    """The bytes are more or fewer than announced."""


class LengthRequired(Refused):
    """An upload must announce its length."""


class TooLarge(Refused):
    """The body is larger than the limit."""


class UploadTooSlow(Refused):
    """The body did not arrive before the deadline that its size allows."""


class RangeNotSatisfiable(Refused):
    """The range lies outside of the blob.

    Args:
        size_bytes: the blob's size, for the header Content-Range.
    """

    def __init__(self, message: str, *, size_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes


class QuotaExceeded(Later):
    """The store's quota is used up, and nothing may be evicted for this upload."""


class StoreFull(Later):
    """The disk or the blob store has no room left."""

    hint = "free space or lower the quota; what is stored is still served"


class Busy(Later):
    """As many requests are held open as the service allows."""


class Unavailable(Later):
    """A part that the service needs cannot be asked. Never to be read as "not there"."""


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, or did not answer in time."""
