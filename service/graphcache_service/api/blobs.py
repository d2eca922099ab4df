"""GET, HEAD and PUT of /v1/blobs/{sha256}: a bare ASGI route, since what a request costs is the Python around it.

GET and HEAD know Range, If-Range and If-None-Match. ``?redirect=1`` asks for a 307 to the store itself, where it can
give one. A request that bears ``X-Graphcache-Accel: 1`` comes from an nginx in front that sends the bytes by itself, if
the setting ``x_accel_prefix`` names its internal location.

PUT stores a body under a lease (``?compile_id=...&generation=...``): 201, or 200 where the bytes were stored already.
In parts: ``Content-Range: bytes 0-99/1000`` is answered 308 with ``Range: bytes=0-99`` until the last part gives 201;
an empty body with ``Content-Range: bytes */1000`` asks where to go on (308; without Range: at the beginning).
"""

import asyncio
import time
from contextlib import aclosing
from typing import Final

from graphcache_service.api.asgi import AsgiRequest, RawHeaders, Receive, Scope, Send
from graphcache_service.api.blob_uploads import put_blob
from graphcache_service.api.byte_ranges import ByteRange, has_already, wanted_range
from graphcache_service.api.edge import record_request
from graphcache_service.core.callers import Caller
from graphcache_service.core.downloads import Downloads, HotBlob, ReadableBlob
from graphcache_service.core.errors import InvalidRequest, MethodNotAllowed, RangeNotSatisfiable
from graphcache_service.core.services import Services
from graphcache_service.core.uploads import Uploads
from graphcache_wire import routes
from graphcache_wire.base import is_sha256

METHODS: Final = ("GET", "HEAD", "PUT")
CACHING: Final = (b"cache-control", b"private, max-age=31536000, immutable")
"""Bytes named by their digest never change. Private: a shared cache would hand them out without asking for a token."""
KIND: Final = (b"content-type", b"application/octet-stream")
ACCEPTS_RANGES: Final = (b"accept-ranges", b"bytes")
ACCEL_HEADER: Final = b"x-graphcache-accel"
CONDITIONS: Final = frozenset({b"range", b"if-none-match", ACCEL_HEADER})
"""A GET without these, and without parameters, gets the whole blob."""


class BlobRoute:
    """The blobs of one service process: an ASGI application for the paths that begin with ``PREFIX``."""

    PREFIX: Final = routes.BLOB.format(digest="")

    def __init__(self, services: Services, downloads: Downloads, uploads: Uploads) -> None:
        self._tokens = services.tokens
        self._settings = services.settings
        self._downloads = downloads
        self._uploads = uploads

    def hot(self, authorization: str | None, digest: str) -> HotBlob | None:
        """A small blob that is in memory, for a caller who is remembered; never waits.

        Raises:
            Unauthenticated: no token where one is needed, or no token's form.
        """
        caller = self._tokens.remembered(authorization)
        return self._downloads.hot(caller, digest) if caller is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive, send)
        began = time.perf_counter()
        try:
            await self._serve(request, request.path[len(self.PREFIX) :])
        except Exception as error:
            if request.status:
                # A part of the blob is out: only a broken connection still tells the client that it is not whole.
                raise
            await request.refuse(error)
        finally:
            took_s = time.perf_counter() - began
            record_request(request.method, request.path, routes.BLOB, request.status, took_s)

    async def _serve(self, request: AsgiRequest, digest: str) -> None:
        authorization = request.header(b"authorization")
        caller = self._tokens.remembered(authorization) or await self._tokens.caller(authorization)
        match request.method:
            case "GET":
                await self._get(request, caller, digest)
            case "HEAD":
                await self._head(request, caller, digest)
            case "PUT":
                await put_blob(request, self._uploads, caller, _checked(digest))
            case _:
                raise MethodNotAllowed(f"{request.method} is not for blobs", allowed=METHODS)

    async def _get(self, request: AsgiRequest, caller: Caller, digest: str) -> None:
        plain = not request.query and request.headers.keys().isdisjoint(CONDITIONS)
        hot = self._downloads.hot(caller, digest) if plain else None
        if hot is not None:
            await request.start(200, whole_headers(digest, hot.size_bytes))
            await request.send(hot.bytes, more=False)
        elif self._settings.x_accel_prefix is not None and request.has(ACCEL_HEADER):
            await self._let_proxy_send(request, caller, _checked(digest), self._settings.x_accel_prefix)
        elif request.parameter("redirect") == "1" and await self._redirect(request, caller, _checked(digest)):
            return
        else:
            await self._send(request, await self._downloads.open(caller, _checked(digest)))

    async def _head(self, request: AsgiRequest, caller: Caller, digest: str) -> None:
        blob = await self._downloads.open(caller, _checked(digest), counts=False)
        await request.start(200, whole_headers(digest, blob.size_bytes))
        await request.send(b"", more=False)

    async def _send(self, request: AsgiRequest, blob: ReadableBlob) -> None:
        if_none_match = request.header(b"if-none-match")
        if if_none_match is not None and has_already(if_none_match, _etag(blob)):
            await request.start(304, [(b"etag", _etag(blob).encode()), CACHING])
            await request.send(b"", more=False)
            return
        wanted = _range_of(request, blob)
        if wanted is None:
            await request.start(200, whole_headers(blob.digest, blob.size_bytes))
        else:
            await request.start(206, _part(blob, wanted))
        await self._send_bytes(request, blob, wanted or ByteRange(0, blob.size_bytes))

    async def _send_bytes(self, request: AsgiRequest, blob: ReadableBlob, wanted: ByteRange) -> None:
        gone = asyncio.ensure_future(request.disconnected())
        left_bytes = wanted.stop - wanted.start
        try:
            async with aclosing(self._downloads.read(blob, wanted.start, wanted.stop)) as parts:
                async for part in parts:
                    left_bytes -= len(part)
                    await request.send(part, more=left_bytes > 0)
                    if gone.done():
                        return
        finally:
            gone.cancel()

    async def _redirect(self, request: AsgiRequest, caller: Caller, digest: str) -> bool:
        url = await self._downloads.presigned(caller, digest)
        if url is not None:
            await request.answer(307, [(b"location", url.encode("ascii")), (b"cache-control", b"no-store")])
        return url is not None

    async def _let_proxy_send(self, request: AsgiRequest, caller: Caller, digest: str, prefix: str) -> None:
        """nginx answers Range and the like from the file; what it cannot know is who may read it."""
        blob = await self._downloads.open(caller, digest)
        below_root = self._downloads.file_below_root(digest)
        if below_root is None:
            await self._send(request, blob)
            return
        place = f"{prefix.rstrip('/')}/{below_root}".encode("ascii")
        await request.answer(200, [(b"x-accel-redirect", place), KIND, CACHING, (b"etag", _etag(blob).encode())])


def _checked(digest: str) -> str:
    if not is_sha256(digest):
        raise InvalidRequest("a blob is named by its sha256: 64 lower-case hexadecimal digits", field="digest")
    return digest


def _etag(blob: ReadableBlob) -> str:
    return f'"{blob.digest}"'


def _range_of(request: AsgiRequest, blob: ReadableBlob) -> ByteRange | None:
    """The range that the request wants; None for the whole blob.

    Raises:
        RangeNotSatisfiable: it lies outside.
    """
    header = request.header(b"range")
    if header is None or (request.header(b"if-range") or _etag(blob)) != _etag(blob):
        return None
    wanted = wanted_range(header, blob.size_bytes)
    if wanted == "unsatisfiable":
        message = f"the blob has {blob.size_bytes} bytes: the range {header[:80]} lies outside"
        raise RangeNotSatisfiable(message, size_bytes=blob.size_bytes)
    return wanted


def whole_headers(digest: str, size_bytes: int) -> RawHeaders:
    """The headers of a whole blob."""
    length = (b"content-length", b"%d" % size_bytes)
    return [length, (b"etag", b'"%b"' % digest.encode()), KIND, CACHING, ACCEPTS_RANGES]


def _part(blob: ReadableBlob, wanted: ByteRange) -> RawHeaders:
    place = f"bytes {wanted.start}-{wanted.stop - 1}/{blob.size_bytes}".encode()
    length = b"%d" % (wanted.stop - wanted.start)
    return [
        (b"content-length", length),
        (b"content-range", place),
        (b"etag", _etag(blob).encode()),
        KIND,
        CACHING,
        ACCEPTS_RANGES,
    ]
