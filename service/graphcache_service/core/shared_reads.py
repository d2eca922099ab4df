"""Shared reads: what many ask for again and again is read once for all of them, and answers for a moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

Found = TypeVar("Found")


class SharedReads:
    """The readings of this process that are still fresh, by what was asked."""

    def __init__(self) -> None:
        self._readings: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def recent(self, what: Hashable, max_age_s: float, read: Callable[[], Awaitable[Found]]) -> Found:
        """What ``read`` found at most ``max_age_s`` ago, or finds now; raises what it raises."""
        now = time.monotonic()
        self._readings = {
            asked: reading for asked, reading in self._readings.items() if now - reading[0] < max_age_s or asked == what
        }
        began, reading = self._readings.get(what, (now - max_age_s, None))
        if reading is None or now - began >= max_age_s or (reading.done() and reading.exception() is not None):
            reading = asyncio.ensure_future(read())
            self._readings[what] = (now, reading)
        # Whoever goes away must not cancel the read for the others.
        return await asyncio.shield(reading)
