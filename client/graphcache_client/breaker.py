"""Circuit breaker: a dead service must not cost every call its time-out."""

import threading
import time
from collections.abc import Callable

FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class CircuitBreaker:
    """Closed: calls pass. Open: calls are refused at once until a pause ends; then one call tries.

    The pause doubles with each failed trial, up to ``LONGEST_PAUSE_S``. Safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until: float | None = None

    def refused_for_s(self) -> float | None:
        """Seconds until a call may try, or None when it may now. A call that may try then holds the one trial."""
        with self._lock:
            if self._open_until is None:
                return None
            left_s = self._open_until - self._clock()
            if left_s > 0:
                return left_s
            self._open_until = self._clock() + self._pause_s
            return None

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._pause_s, self._open_until = 0, FIRST_PAUSE_S, None

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._open_until is not None:
                self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            if self._failures >= FAILURES_TO_OPEN:
                self._open_until = self._clock() + self._pause_s
