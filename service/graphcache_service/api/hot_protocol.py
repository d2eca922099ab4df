"""The shortest way to a small hot blob: answered where its request's bytes arrive, before uvicorn makes a task of it.

Parsing by httptools, a task, the ASGI messages and their headers cost more than sending 64 KiB does. So a request that
is a plain GET of a blob, whole in one read, with no header beyond those in ``PLAIN_HEADERS``, and whose token and blob
are both remembered, is answered here. Everything else, and whatever is in doubt, goes uvicorn's way, untouched.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import structlog
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from graphcache_service import metrics
from graphcache_service.api.blobs import BlobRoute, whole_headers
from graphcache_service.core.errors import Unauthenticated

log = structlog.get_logger()

LEANS_ON: Final[Mapping[type, frozenset[str]]] = {
    HttpToolsProtocol: frozenset(
        {
            "data_received",
            "on_message_begin",
            "on_message_complete",
            "on_response_complete",
            "_unset_keepalive_if_required",
            "cycle",
            "pipeline",
            "flow",
            "transport",
        }
    ),
    RequestResponseCycle: frozenset({"response_complete"}),
    FlowControl: frozenset({"write_paused"}),
}
"""Methods of uvicorn's, and attributes that its constructors set, which it promises nobody to keep."""
REQUEST_START: Final = b"GET " + BlobRoute.PREFIX.encode()
REQUEST_END: Final = b" HTTP/1.1"
DIGEST_BYTES: Final = 64
REQUEST_LINE_BYTES: Final = len(REQUEST_START) + DIGEST_BYTES + len(REQUEST_END)
PLAIN_HEADERS: Final = frozenset({b"host", b"user-agent", b"accept", b"accept-encoding"})
"""What does not change the answer. A body, a range, a condition or another connection's end needs another header."""


def plain_get(data: bytes) -> tuple[str, str | None] | None:
    """The digest and Authorization of a request that is a plain GET of a blob; None for any other request."""
    if not data.startswith(REQUEST_START) or not data.endswith(b"\r\n\r\n"):
        return None
    first, *lines = data[:-4].split(b"\r\n")
    if len(first) != REQUEST_LINE_BYTES or not first.endswith(REQUEST_END):
        return None
    authorization: str | None = None
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"authorization" and authorization is None:
            authorization = value.strip(b" \t").decode("latin-1")
        elif name not in PLAIN_HEADERS and not (name == b"connection" and value.strip().lower() == b"keep-alive"):
            return None
    digest = first[len(REQUEST_START) : -len(REQUEST_END)]
    return digest.decode("latin-1"), authorization


@lru_cache(maxsize=4_096)
def head_of(digest: str, size_bytes: int) -> bytes:
    """Status line and headers of the whole blob: the same that ``BlobRoute`` sends."""
    lines = [b"%b: %b" % header for header in whole_headers(digest, size_bytes)]
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""])


class HotProtocol(HttpToolsProtocol):
    """uvicorn's connection, with a short way for hot blobs. ``hot_protocol`` makes the class for one route."""

    route: BlobRoute
    _in_message = False

    def on_message_begin(self) -> None:
        self._in_message = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        if not (self._is_idle() and self._answered(data)):
            super().data_received(data)

    def _is_idle(self) -> bool:
        """Whether these bytes begin a request, and nothing before it is still to be answered or read."""
        return (
            not self._in_message
            and (self.cycle is None or self.cycle.response_complete)
            and not self.pipeline
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _answered(self, data: bytes) -> bool:
        asked = plain_get(data)
        if asked is None:
            return False
        digest, authorization = asked
        try:
            blob = self.route.hot(authorization, digest)
        except Unauthenticated:
            return False
        if blob is None:
            return False
        self._unset_keepalive_if_required()
        self.transport.writelines([head_of(digest, blob.size_bytes), blob.bytes])
        self.on_response_complete()
        metrics.HOT_BLOBS.inc()
        return True


def missing_parts() -> list[str]:
    """What the short way leans on and this uvicorn has not."""
    return [
        f"{owner.__name__}.{name}"
        for owner, names in LEANS_ON.items()
        for name in sorted(names - set(dir(owner)) - set(vars(owner)["__init__"].__code__.co_names))
    ]


def hot_protocol(route: BlobRoute) -> type[HttpToolsProtocol]:
    """The class of connections that answer from ``route``; uvicorn's own where it has become another."""
    missing = missing_parts()
    if missing:
        log.warning("no_short_way", uvicorn=uvicorn.__version__, missing=missing)
        return HttpToolsProtocol
    return type("RoutedHotProtocol", (HotProtocol,), {"route": route})
