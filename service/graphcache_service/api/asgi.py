"""A request of a bare ASGI route: its headers, its body, and its one answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

import structlog

from graphcache_service.api.errors import ErrorAnswer, error_answer, internal_answer, new_request_id
from graphcache_service.core.errors import InvalidRequest, Later, ServiceError
from graphcache_service.core.upload_order import UploadCut

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

log = structlog.get_logger()

CLOSE: Final = (b"connection", b"close")
LINGER_BYTES: Final = 1 << 20
LINGER_S: Final = 2.0
"""A body that nobody wants is read this far, so that its sender reads the answer instead of a broken connection."""


class AsgiRequest:
    """One request. ``status`` is 0 until the answer's status is on its way."""

    __slots__ = ("_parameters", "_receive", "_send", "headers", "method", "path", "query", "received_bytes", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.status = 0
        self.received_bytes = 0
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._parameters: Mapping[str, list[str]] | None = None
        self._receive = receive
        self._send = send

    def has(self, name: bytes) -> bool:
        return name in self.headers

    def header(self, name: bytes) -> str | None:
        """A header's value; ``name`` in lower case."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value is not None else None

    def parameter(self, name: str) -> str | None:
        """A query parameter's last value."""
        if self._parameters is None:
            self._parameters = parse_qs(self.query.decode("latin-1"))
        values = self._parameters.get(name)
        return values[-1] if values else None

    def announced_bytes(self) -> int | None:
        """Content-Length, or None where the body has no announced end.

        Raises:
            InvalidRequest: it is no number.
        """
        text = self.header(b"content-length")
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 19):
            raise InvalidRequest(f"Content-Length {text[:40]!r} is no number of bytes", field="Content-Length")
        return int(text) if text is not None else None

    async def body(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            UploadCut: the connection ended before the body did.
        """
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise UploadCut
            chunk: bytes = message.get("body", b"")
            self.received_bytes += len(chunk)
            more = message.get("more_body", False)
            if chunk:
                yield chunk

    async def disconnected(self) -> None:
        """Returns when the client went away, or everything was sent."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Sends status and headers."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, part: bytes | memoryview, *, more: bool) -> None:
        """Sends a part of the answer's body; waits while the client reads slower than that."""
        await self._send({"type": "http.response.body", "body": part, "more_body": more})

    async def answer(self, status: int, headers: RawHeaders, content: bytes = b"") -> None:
        """Sends a short answer. What is left of a large body is not waited for: the connection is closed then."""
        unread_bytes = self._unread_bytes()
        headers = [*headers, (b"content-length", b"%d" % len(content))]
        if unread_bytes <= LINGER_BYTES:
            await self.start(status, headers)
            await self.send(content, more=False)
            return
        await self.start(status, [*headers, CLOSE])
        await self.send(content, more=True)
        if not self.has(b"expect"):
            await self._linger()
        await self.send(b"", more=False)

    async def refuse(self, error: Exception) -> None:
        """Answers with an error, in the one shape of errors. What nobody expected goes to the log with its trace."""
        answer = _error_answer(error, self.path)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
        await self.answer(answer.status, [*headers, (b"content-type", b"application/json")], answer.content())

    def _unread_bytes(self) -> int:
        if self.method != "PUT":
            return 0
        if self.has(b"transfer-encoding"):
            return 2**63
        return int(self.headers.get(b"content-length", b"0")) - self.received_bytes

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                lingered_bytes = 0
                async for chunk in self.body():
                    lingered_bytes += len(chunk)
                    if lingered_bytes > LINGER_BYTES:
                        return
        except (TimeoutError, UploadCut):
            return


def _error_answer(error: Exception, path: str) -> ErrorAnswer:
    request_id = new_request_id()
    if not isinstance(error, ServiceError):
        log.error("failed", request_id=request_id, path=path, exc_info=error)
        return internal_answer(request_id)
    if isinstance(error, Later):
        log.warning("refused", request_id=request_id, path=path, message=error.message)
    return error_answer(error, request_id)
