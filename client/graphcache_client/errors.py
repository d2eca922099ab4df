"""What can go wrong in the client, as one tree.

GraphcacheError
├── ServiceUnavailable      the service cannot be reached or cannot answer now: never a miss
├── RequestRefused          the service understood and said no (4xx): trying again gives the same answer
│   └── LeaseLost           the lease ended or another holder has it: stop, nothing sent under it counts
├── GraphNotReady           the deadline passed while the graph was still being compiled
├── GraphMissing            mode require_hit: the graph is not there; the message says what to prewarm
├── CompileFailed           the service keeps a failure for this key
├── CompileAttemptFailed    a compile on this machine gave no graph; carries the failure's class
├── BadArtifact             bytes that are not what was announced: size, digest or signature
├── StoreUnusable           the local cache folder cannot be used
└── InvalidInput            a manifest file, a setting or a key that cannot be read
"""

from graphcache_wire import ErrorBody, Failure, FailureClass, GraphKey, Pending


class GraphcacheError(Exception):
    """The base of all errors of the client."""


class ServiceUnavailable(GraphcacheError):
    """The service cannot be reached or cannot answer now. The graph may well be stored: this is not a miss."""


class RequestRefused(GraphcacheError):
    """The service refused a request.

    Attributes:
        status: the HTTP status.
        body: the service's error; ``code``, ``message``, ``field``, ``hint``, ``request_id``.
    """

    def __init__(self, status: int, body: ErrorBody) -> None:
        self.status = status
        self.body = body
        place = f" ({body.field})" if body.field else ""
        hint = f" {body.hint}" if body.hint else ""
        super().__init__(f"{body.code}{place}: {body.message}{hint} [request {body.request_id}]")


class LeaseLost(RequestRefused):
    """The lease ended, or another generation holds it. Nothing sent under it changes anything."""


class GraphNotReady(GraphcacheError):
    """The deadline passed while the graph was still queued or being compiled.

    Attributes:
        pending: the last thing that the service said of it.
    """

    def __init__(self, key: GraphKey, pending: Pending, waited_s: float) -> None:
        self.key = key
        self.pending = pending
        where = f"held by {pending.holder}" if pending.holder else f"{pending.queued_before} compiles before it"
        eta = f", about {pending.eta_s:.0f} s to go" if pending.eta_s is not None else ""
        super().__init__(
            f"{key.label()} is not ready after {waited_s:.0f} s: {pending.compile_state}, {where}{eta}. "
            "Wait longer, start more workers, or prewarm it."
        )


class GraphMissing(GraphcacheError):
    """Mode require_hit, and the graph is neither on this node nor in the service."""

    def __init__(self, key: GraphKey) -> None:
        self.key = key
        super().__init__(
            f"{key.label()} ({key.toolchain}) is not in the cache, and mode require_hit compiles nothing. "
            f"Prewarm it: kind {key.kind}, e_hot {key.e_hot}, h {key.h}, f {key.f}, bucket {key.bucket}."
        )


class CompileFailed(GraphcacheError):
    """The service keeps a failure for this key.

    Attributes:
        failure: its class, message, log tail and number of attempts.
    """

    def __init__(self, key: GraphKey, failure: Failure, retry_after_s: float | None) -> None:
        self.key = key
        self.failure = failure
        self.retry_after_s = retry_after_s
        again = f" It is forgotten in {retry_after_s:.0f} s." if retry_after_s is not None else ""
        super().__init__(
            f"{key.label()} could not be compiled: {failure.failure_class} after {failure.attempts} attempts: "
            f"{failure.message}{again} To compile it again now, resolve it with retry_failed."
        )


class CompileAttemptFailed(GraphcacheError):
    """A compile on this machine gave no graph."""

    def __init__(self, failure_class: FailureClass, message: str, log_tail: str = "") -> None:
        self.failure_class = failure_class
        self.message = message
        self.log_tail = log_tail
        super().__init__(f"{failure_class}: {message}")


class BadArtifact(GraphcacheError):
    """Bytes that are not what was announced. ``reason`` is one of ``ReportRequest.reason``."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class StoreUnusable(GraphcacheError):
    """The local cache folder cannot be made, is not ours, or cannot be written."""


class InvalidInput(GraphcacheError):
    """A manifest file, a setting or a key that cannot be read; the message names the place."""
