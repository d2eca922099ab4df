"""Expected times, from compiles of the same kind and the nearest size."""

import math
import statistics
import time
from collections.abc import Sequence
from typing import Final

from graphcache_service.db import attempts
from graphcache_service.db.engine import Database
from graphcache_wire import GraphKey

NEAREST: Final = 5
HISTORY_ROWS: Final = 200
REMEMBERED_S: Final = 5.0


def expected_s(size: float, history: Sequence[tuple[float, float]]) -> float | None:
    """The median of the compiles nearest in size (on a scale of ratios); None without any.

    Args:
        size: E H F bucket of the graph that is asked for.
        history: the same product and the seconds of each compile that is known.
    """
    if not history:
        return None
    nearest = sorted(history, key=lambda known: abs(math.log(max(known[0], 1.0) / max(size, 1.0))))[:NEAREST]
    # Only those as near as the nearest: five compiles of a tiny graph say nothing about a large one.
    least = abs(math.log(max(nearest[0][0], 1.0) / max(size, 1.0)))
    alike = [known[1] for known in nearest if abs(math.log(max(known[0], 1.0) / max(size, 1.0))) <= least + 0.7]
    return statistics.median(alike)


class History:
    """Compile times by kind, read from the database at most every few seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read: dict[str, tuple[float, list[tuple[float, float]]]] = {}

    async def expected_s(self, key: GraphKey) -> float | None:
        """How long a compile of this key is expected to take."""
        return expected_s(size_of(key), await self._times(key))

    async def times_alike(self, key: GraphKey) -> list[float]:
        """Seconds of the known compiles of the same kind and size."""
        size = size_of(key)
        return [seconds for known_size, seconds in await self._times(key) if known_size == size]

    async def _times(self, key: GraphKey) -> list[tuple[float, float]]:
        known = self._read.get(key.kind)
        if known is None or known[0] < time.monotonic():
            async with self._database.read() as session:
                times = await attempts.compile_times(session, str(key.kind), HISTORY_ROWS)
            known = (time.monotonic() + REMEMBERED_S, times)
            self._read[key.kind] = known
        return known[1]


def size_of(key: GraphKey) -> float:
    """The product E H F bucket, as the history has it."""
    return float(key.e_hot) * key.h * key.f * key.bucket
