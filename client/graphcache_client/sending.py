"""Sends a request, again after a broken connection or a busy answer, then judges: an answer, an outage or a refusal."""

import math
import time
from collections.abc import Callable

import httpx
from pydantic import ValidationError

from graphcache_client.breaker import CircuitBreaker
from graphcache_client.errors import LeaseLost, RequestRefused, ServiceUnavailable
from graphcache_wire import ErrorBody, ErrorCode

CONNECT_S = 5.0
TRIES = 3
FIRST_PAUSE_S = 0.25
_BUSY = frozenset({429, 502, 503, 504})


class Sending:
    """What all requests to one service share: tries, pauses, the circuit breaker, and when it last answered."""

    def __init__(self, url: str, *, sleep: Callable[[float], None], breaker: CircuitBreaker) -> None:
        self._url = url
        self._sleep = sleep
        self._breaker = breaker
        self._answered_at = -math.inf

    def answered_since(self, moment: float) -> bool:
        """Whether the service gave any answer that is no outage after ``moment`` (``time.monotonic``)."""
        return self._answered_at > moment

    def call(self, send: Callable[[], httpx.Response], deadline: float | None = None) -> httpx.Response:
        """Send, and send again after a broken connection or a busy answer; then return or raise what it came to.

        Raises:
            ServiceUnavailable: it cannot be reached, cannot answer now, or did not lately and is left in peace.
            RequestRefused, LeaseLost: it said no.
        """
        left_s = self._breaker.refused_for_s()
        if left_s is not None:
            raise ServiceUnavailable(f"{self._url} did not answer before; the next try is in {left_s:.1f} s")
        pause_s = FIRST_PAUSE_S
        for number in range(1, TRIES + 1):
            last = number == TRIES
            try:
                answer = send()
            except httpx.InvalidURL as error:
                raise ServiceUnavailable(f"{self._url} is no URL of a service: {error}") from error
            except httpx.HTTPError as error:
                if last or (deadline is not None and time.monotonic() + pause_s >= deadline):
                    self._breaker.failed()
                    raise ServiceUnavailable(f"{self._url} cannot be reached: {_reason(error)}") from error
            else:
                if answer.status_code not in _BUSY or last:
                    return self._judged(answer)
                pause_s = max(pause_s, _retry_after_s(answer))
            self._sleep(pause_s)
            pause_s *= 2
        raise AssertionError("the last try returns or raises")

    def _answered(self) -> None:
        self._answered_at = time.monotonic()
        self._breaker.succeeded()

    def _judged(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success or answer.status_code == httpx.codes.PERMANENT_REDIRECT:
            self._answered()
            return answer
        body = _error_body(answer)
        if body is None or answer.status_code >= 500 or answer.status_code == 429:
            if body is None or answer.status_code in _BUSY:
                self._breaker.failed()
            said = body.message if body else f"status {answer.status_code} without an error of graphcache"
            raise ServiceUnavailable(f"{self._url} cannot answer now: {said}")
        self._answered()
        kind = LeaseLost if body.code is ErrorCode.LEASE_EXPIRED else RequestRefused
        raise kind(answer.status_code, body)


def timeout(seconds: float, deadline: float | None) -> httpx.Timeout:
    """At most ``seconds``, and not beyond the deadline; a fifth of a second is always given."""
    if deadline is not None:
        seconds = min(seconds, max(0.2, deadline - time.monotonic()))
    return httpx.Timeout(seconds, connect=min(CONNECT_S, seconds))


def _reason(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _error_body(answer: httpx.Response) -> ErrorBody | None:
    try:
        return ErrorBody.model_validate_json(answer.content)
    except ValidationError:
        return None


def _retry_after_s(answer: httpx.Response) -> float:
    try:
        return min(float(answer.headers.get("Retry-After", "0")), 10.0)
    except ValueError:
        return 0.0
