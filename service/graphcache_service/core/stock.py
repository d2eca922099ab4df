"""Stock: sums over everything that is stored and was compiled, kept for a while where that is much.

Reading them takes the longer the more entries there are. So that statistics cost no larger share of the processor for
that, the sums over many entries answer for some seconds: longer, the more there are.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db import stats as rows
from graphcache_service.db.engine import Database
from graphcache_service.db.stats import Filter, Group

ROWS_A_SECOND: Final = 10_000
"""A sum is kept for a second for each so many rows in it; one over fewer is read anew each time."""
KEPT_AT_MOST_S: Final = 60.0

Sum = TypeVar("Sum", bound=tuple[Any, ...])
Read = Callable[[AsyncSession, Filter], Awaitable[list[Sum]]]


@dataclass(frozen=True, slots=True)
class Stock:
    """Sums of ``db.stats``: group, what, number of rows; and what they took or weigh."""

    compiles: list[tuple[Group, str, int]]
    attempts: list[tuple[Group, str, int, float]]
    artifacts: list[tuple[Group, str, int, int]]

    def quarantined(self) -> int:
        """Publications that were found bad."""
        return sum(count for _, state, count, _ in self.artifacts if state == "quarantined")


def kept_s(summed_rows: int) -> float:
    """Seconds for which a sum over so many rows answers."""
    return min(KEPT_AT_MOST_S, float(summed_rows // ROWS_A_SECOND))


class Stocks:
    """The sums of this process that are still good, by what was asked."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, Filter], tuple[float, Any]] = {}
        self._one_reads = asyncio.Lock()

    async def of(self, database: Database, which: Filter) -> Stock:
        """The sums, none older than ``kept_s``; who asks meanwhile waits for the same reading.

        Raises:
            DatabaseUnavailable: it cannot be asked.
        """
        standing_now = replace(which, since=0.0)
        async with self._one_reads, database.scan() as session:
            return Stock(
                compiles=await self._sums(session, rows.compile_counts, standing_now),
                attempts=await self._sums(session, rows.attempt_counts, which),
                artifacts=await self._sums(session, rows.artifact_sums, standing_now),
            )

    async def _sums(self, session: AsyncSession, read: Read[Sum], which: Filter) -> list[Sum]:
        now = time.monotonic()
        self._kept = {asked: kept for asked, kept in self._kept.items() if kept[0] > now}
        if (read, which) in self._kept:
            known: list[Sum] = self._kept[read, which][1]
            return known
        sums = await read(session, which)
        self._kept[read, which] = (time.monotonic() + kept_s(sum(row[2] for row in sums)), sums)
        return sums
