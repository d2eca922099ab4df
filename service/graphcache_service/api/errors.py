"""The one table from domain errors to statuses, and the one shape in which every error leaves the service."""

import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from graphcache_service.core import errors
from graphcache_wire import ErrorBody, ErrorCode
from graphcache_wire.routes import REQUEST_ID_HEADER

log = structlog.get_logger()

TABLE: Final[dict[type[errors.ServiceError], tuple[int, ErrorCode]]] = {
    errors.InvalidRequest: (422, ErrorCode.INVALID_REQUEST),
    errors.Unauthenticated: (401, ErrorCode.UNAUTHENTICATED),
    errors.Forbidden: (403, ErrorCode.FORBIDDEN),
    errors.NotFound: (404, ErrorCode.NOT_FOUND),
    errors.MethodNotAllowed: (405, ErrorCode.METHOD_NOT_ALLOWED),
    errors.LeaseExpired: (409, ErrorCode.LEASE_EXPIRED),
    errors.ToolchainMismatch: (422, ErrorCode.TOOLCHAIN_MISMATCH),
    errors.BlobMissing: (422, ErrorCode.BLOB_MISSING),
    errors.DigestMismatch: (422, ErrorCode.DIGEST_MISMATCH),
    errors.LengthMismatch: (422, ErrorCode.LENGTH_MISMATCH),
    errors.LengthRequired: (411, ErrorCode.LENGTH_REQUIRED),
    errors.TooLarge: (413, ErrorCode.TOO_LARGE),
    errors.UploadTooSlow: (408, ErrorCode.UPLOAD_TOO_SLOW),
    errors.RangeNotSatisfiable: (416, ErrorCode.RANGE_NOT_SATISFIABLE),
    errors.QuotaExceeded: (507, ErrorCode.QUOTA_EXCEEDED),
    errors.StoreFull: (507, ErrorCode.STORE_FULL),
    errors.Busy: (503, ErrorCode.BUSY),
    errors.Unavailable: (503, ErrorCode.UNAVAILABLE),
    errors.ServiceError: (500, ErrorCode.INTERNAL),
}

HTTP_CODES: Final = {
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    413: ErrorCode.TOO_LARGE,
}
"""What the framework refuses by itself."""

FAULTS_TOLD: Final = 5
"""A request with more is wrong in kind, not in detail."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as it leaves: status, body and the headers that belong to it."""

    status: int
    body: ErrorBody
    headers: dict[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        """The body's bytes."""
        return self.body.model_dump_json(exclude_none=True).encode()

    def response(self) -> Response:
        """For the framework."""
        return Response(self.content(), self.status, self.headers, "application/json")


def new_request_id() -> str:
    """Names one request in answers and logs."""
    return secrets.token_hex(8)


def error_answer(error: errors.ServiceError, request_id: str) -> ErrorAnswer:
    """The answer to a domain error, by its nearest class in the table."""
    status, code = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    body = ErrorBody(
        code=code,
        message=error.message,
        request_id=request_id,
        retryable=isinstance(error, errors.Later),
        field=error.field,
        hint=error.hint,
        retry_after_s=error.retry_after_s,
    )
    headers = {REQUEST_ID_HEADER: request_id}
    if status == 503 or error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 1.0)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, errors.RangeNotSatisfiable):
        headers["Content-Range"] = f"bytes */{error.size_bytes}"
    return ErrorAnswer(status, body, headers)


def _fault(found: Any) -> tuple[str, str]:
    """The place of a fault, and what is wrong there."""
    if found["type"] == "json_invalid":
        return "body", f"no JSON: {found.get('ctx', {}).get('error', found['msg'])}"
    place = [str(part) for part in found["loc"]]
    # The first part says body, path or query, which no sender wrote.
    return ".".join(place[1:]) or place[0], str(found["msg"]).removeprefix("Value error, ")


def invalid_answer(found: list[Any], request_id: str) -> ErrorAnswer:
    """The answer to a request that does not parse: each of its first faults, and how many more there are."""
    faults = [_fault(one) for one in found[:FAULTS_TOLD]]
    field, message = faults[0]
    if len(faults) > 1:
        message = "; ".join(f"{place}: {what}" for place, what in faults)
    if len(found) > len(faults):
        message += f" (and {len(found) - len(faults)} more)"
    body = ErrorBody(
        code=ErrorCode.INVALID_REQUEST,
        message=message,
        request_id=request_id,
        retryable=False,
        field=field,
        hint="correct the field and send it again; nothing was stored",
    )
    return ErrorAnswer(422, body, {REQUEST_ID_HEADER: request_id})


def _http_answer(error: HTTPException, request_id: str) -> ErrorAnswer:
    code = HTTP_CODES.get(error.status_code, ErrorCode.INVALID_REQUEST)
    hint = "see /docs for the paths and methods of this API" if error.status_code in (404, 405) else None
    body = ErrorBody(code=code, message=str(error.detail), request_id=request_id, retryable=False, hint=hint)
    return ErrorAnswer(error.status_code, body, {**(error.headers or {}), REQUEST_ID_HEADER: request_id})


def internal_answer(request_id: str) -> ErrorAnswer:
    """The answer to a fault of the service itself; its cause is in the log, under the request's id."""
    body = ErrorBody(
        code=ErrorCode.INTERNAL,
        message="the service failed on this request",
        request_id=request_id,
        retryable=True,
        hint=f"look for request_id {request_id} in the service's log",
    )
    return ErrorAnswer(500, body, {REQUEST_ID_HEADER: request_id})


def _request_id(request: Request) -> str:
    return str(request.scope.get("graphcache.request_id") or new_request_id())


def logged_answer(error: errors.ServiceError, request_id: str) -> ErrorAnswer:
    """The answer to a domain error; what is the service's own trouble goes to the log too."""
    answer = error_answer(error, request_id)
    if answer.status >= 500:
        log.warning("refused", code=answer.body.code, message=error.message, request_id=request_id)
    return answer


async def _domain(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.ServiceError)  # registered for this class
    return logged_answer(error, _request_id(request)).response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid_answer(list(error.errors()), _request_id(request)).response()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _http_answer(error, _request_id(request)).response()


def install(app: FastAPI) -> None:
    """Let every error of ``app`` leave in the one shape; what nobody expected is handled by ``api.edge``."""
    app.add_exception_handler(errors.ServiceError, _domain)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
