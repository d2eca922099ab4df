"""The one shape of an error, and its codes. The service maps each code to a status in one table."""

from enum import StrEnum

from graphcache_wire.base import Bool, Seconds, WireModel


class ErrorCode(StrEnum):
    INVALID_REQUEST = "invalid_request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    LEASE_EXPIRED = "lease_expired"
    """The lease was taken by another generation, ended, or ran out: stop, nothing that you send counts."""
    TOOLCHAIN_MISMATCH = "toolchain_mismatch"
    BLOB_MISSING = "blob_missing"
    """A publication names a blob that is not stored: upload it first."""
    DIGEST_MISMATCH = "digest_mismatch"
    LENGTH_MISMATCH = "length_mismatch"
    LENGTH_REQUIRED = "length_required"
    TOO_LARGE = "too_large"
    UPLOAD_TOO_SLOW = "upload_too_slow"
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"
    QUOTA_EXCEEDED = "quota_exceeded"
    STORE_FULL = "store_full"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    """The database or the store cannot be asked. Never read this as "not there"."""
    INTERNAL = "internal"


class ErrorBody(WireModel):
    """The body of every answer of 4xx and 5xx."""

    code: ErrorCode
    message: str
    request_id: str
    retryable: Bool
    field: str | None = None
    """The place in the request, such as ``key.bucket``."""
    hint: str | None = None
    """What to do next."""
    retry_after_s: Seconds | None = None
