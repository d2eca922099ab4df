"""The edge: what every request but a blob's passes first: its id, its body's limit, its log line, its last resort."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import structlog

from graphcache_service import metrics
from graphcache_service.api.errors import ErrorAnswer, error_answer, internal_answer, new_request_id
from graphcache_service.core.errors import TooLarge
from graphcache_service.settings import Settings
from graphcache_wire import routes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger()

LARGE_BODIES: Final = (routes.MANIFESTS, routes.RESOLVE_MANY, routes.USAGE)


class Edge:
    """A bare ASGI middleware: cheaper than the framework's, and it never touches a stream."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Passing(scope, receive, send, self._limit_of(scope["path"]))
        began = time.perf_counter()
        try:
            await self._answer(request)
        finally:
            request.record(time.perf_counter() - began)

    def _limit_of(self, path: str) -> int:
        large = path in LARGE_BODIES
        return self._settings.max_manifest_body_bytes if large else self._settings.max_body_bytes

    async def _answer(self, request: "_Passing") -> None:
        try:
            request.check_announced_length()
            await self._app(request.scope, request.receive, request.send)
        except TooLarge as error:
            await request.refuse(error_answer(error, request.id))
        except Exception:
            # The last resort: the cause goes to the log, and the asker learns that it is not its fault.
            log.exception("failed", request_id=request.id, path=request.scope["path"])
            await request.refuse(internal_answer(request.id))


class _Passing:
    """One request on its way."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit_bytes: int) -> None:
        self.id = new_request_id()
        self.scope = scope
        scope["graphcache.request_id"] = self.id
        self._receive = receive
        self._send = send
        self._limit_bytes = limit_bytes
        self._received_bytes = 0
        self._status: int | None = None
        self._over: TooLarge | None = None
        self._replaced = False

    def check_announced_length(self) -> None:
        for name, value in self.scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._limit_bytes:
                raise self._too_large(int(value))

    def _too_large(self, size_bytes: int) -> TooLarge:
        return TooLarge(
            f"the body has {size_bytes} bytes or more, and {self._limit_bytes} are allowed here",
            field="body",
            hint="split it into several requests",
        )

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received_bytes += len(message.get("body", b""))
            if self._received_bytes > self._limit_bytes:
                self._over = self._too_large(self._received_bytes)
                raise self._over
        return message

    async def send(self, message: Message) -> None:
        if self._over is not None and self._status is None:
            # The framework made an answer of its own from what the limit raised inside it: ours goes out instead.
            over, self._over = self._over, None
            await self.refuse(error_answer(over, self.id))
            self._replaced = True
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = message.setdefault("headers", [])
            header = routes.REQUEST_ID_HEADER.lower().encode()
            if all(name != header for name, _ in headers):
                message["headers"] = [*headers, (header, self.id.encode())]
        await self._send(message)

    async def refuse(self, answer: ErrorAnswer) -> None:
        if self._status is not None:
            return  # The answer has begun: all that is left is to break it off, which the server does.
        content = answer.content()
        headers = {**answer.headers, "Content-Type": "application/json", "Content-Length": str(len(content))}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": answer.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": content})

    def record(self, duration_s: float) -> None:
        route = self.scope.get("route")
        path = getattr(route, "path", "other")
        record_request(self.scope["method"], self.scope["path"], path, self._status or 0, duration_s, self.id)


def record_request(
    method: str, path: str, route: str, status: int, duration_s: float, request_id: str | None = None
) -> None:
    """Counts a request that was answered, and logs it. Status 0: its asker went away before."""
    metrics.count_request(method, route, status, duration_s)
    log.debug(
        "request", method=method, path=path, status=status, duration_s=round(duration_s, 4), request_id=request_id
    )
