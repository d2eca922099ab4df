"""PUT of a blob: which lease, how many bytes, whole or in parts; and the statuses of what became of it."""

from typing import Final

from graphcache_service.api.asgi import AsgiRequest, RawHeaders
from graphcache_service.api.byte_ranges import ContentRange, sent_range
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import InvalidRequest, LengthRequired
from graphcache_service.core.upload_order import Progress, UploadOrder
from graphcache_service.core.uploads import Uploads
from graphcache_wire import routes

MAX_GENERATION: Final = 2**31 - 1


async def put_blob(request: AsgiRequest, uploads: Uploads, caller: Caller, digest: str) -> None:
    """Stores a body, or a part of one, and answers.

    Raises:
        LengthRequired, InvalidRequest: it does not say what comes.
        As ``Uploads.receive``.
    """
    body_bytes = request.announced_bytes()
    if body_bytes is None:
        raise LengthRequired("an upload announces its size", field="Content-Length", hint="send Content-Length")
    sent = _content_range(request, body_bytes)
    order = UploadOrder(
        caller=caller,
        digest=digest,
        size_bytes=body_bytes if sent is None else sent.size_bytes,
        compile_id=_compile_id(request),
        generation=_generation(request),
    )
    if sent is None:
        progress = await uploads.receive(order, request.body())
    elif sent.part is None:
        progress = await uploads.where(order)
    else:
        progress = await uploads.receive_part(order, sent.part.start, request.body())
    status, headers = _answer(progress, digest)
    await request.answer(status, headers)


def _answer(progress: Progress, digest: str) -> tuple[int, RawHeaders]:
    """201 stored now, 200 stored before, 308 more is to come."""
    if progress.stored:
        return (200 if progress.existing else 201), [(b"etag", f'"{digest}"'.encode())]
    if progress.received_bytes == 0:
        return 308, []
    return 308, [(b"range", f"bytes=0-{progress.received_bytes - 1}".encode())]


def _content_range(request: AsgiRequest, body_bytes: int) -> ContentRange | None:
    header = request.header(b"content-range")
    if header is None:
        return None
    sent = sent_range(header)
    if sent is None:
        raise InvalidRequest(
            f"Content-Range {header[:80]!r}: use bytes <first>-<last>/<size> or bytes */<size>", field="Content-Range"
        )
    part_bytes = sent.part.stop - sent.part.start if sent.part is not None else 0
    if part_bytes != body_bytes:
        raise InvalidRequest(
            f"Content-Range names {part_bytes} bytes, Content-Length {body_bytes}", field="Content-Range"
        )
    return sent


def _compile_id(request: AsgiRequest) -> str:
    compile_id = request.parameter(routes.COMPILE_ID_PARAMETER)
    if compile_id is None:
        raise InvalidRequest(
            "an upload names the lease it belongs to",
            field=routes.COMPILE_ID_PARAMETER,
            hint="add ?compile_id=...&generation=... of the lease",
        )
    return compile_id


def _generation(request: AsgiRequest) -> int:
    text = request.parameter(routes.GENERATION_PARAMETER) or ""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= MAX_GENERATION):
        raise InvalidRequest("generation is the lease's number, 1 or more", field=routes.GENERATION_PARAMETER)
    return int(text)
