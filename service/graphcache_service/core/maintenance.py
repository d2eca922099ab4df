"""What keeps the store small and whole: eviction down to the quota, uploads that were never published, old history,
records that could not be written, totals that are added up.
"""

from typing import Final

from graphcache_service.core import eviction
from graphcache_service.core.orphans import OrphanSearch
from graphcache_service.core.records import settle
from graphcache_service.core.services import Services
from graphcache_service.db import attempts, clock, hedges, tallies, uploads, usage
from graphcache_service.db import eviction as evictions

EVERY_S: Final = 30.0
HISTORY_EVERY: Final = 120
"""Rounds: what is kept for days is as well removed an hour later."""
FOLD_EVERY_S: Final = 5.0
ROWS_AT_ONCE: Final = 500
"""What one transaction adds up or removes: some milliseconds, in which nobody else writes to SQLite."""


class Maintenance:
    """Counts its rounds, since some work is due less often."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._orphans = OrphanSearch(services)
        self._rounds = 0

    async def round(self) -> None:
        """One round.

        Raises:
            DatabaseUnavailable, BlobStoreUnavailable: the next round goes on.
        """
        await settle(self._services, self._services.unsettled)
        await eviction.make_room(self._services)
        await eviction.collect(self._services)
        await self._orphans.round()
        await release_reservations(self._services)
        if self._rounds % HISTORY_EVERY == 0:
            await fold_days(self._services)
            await forget_history(self._services)
        self._rounds += 1


async def fold_journal(services: Services) -> None:
    """Add what was counted since the last time to the totals.

    Raises:
        DatabaseUnavailable: the rest is added the next time; nothing counts twice.
    """
    while True:
        async with services.database.write() as session:
            if await tallies.fold(session, ROWS_AT_ONCE) < ROWS_AT_ONCE:
                return


async def fold_days(services: Services) -> None:
    """Add up the minutes of days that the settings keep by day alone."""
    while True:
        async with services.database.write() as session:
            before = tallies.day_of(await clock.now(session) - services.settings.usage_minutes_days * tallies.DAY_S)
            if not await tallies.fold_hour(session, before):
                return


async def release_reservations(services: Services) -> None:
    """Give back what uploads reserved whose process died."""
    async with services.database.write() as session:
        await uploads.release_expired(session, await clock.now(session))


async def forget_history(services: Services) -> None:
    """Remove counters, waits, evictions, ended attempts and hedges that are older than the settings keep them."""
    async with services.database.write() as session:
        before = await clock.now(session) - services.settings.history_days * tallies.DAY_S
        await tallies.forget_before(session, before)
        await usage.forget_before(session, before)
        await evictions.forget_before(session, before)
        await hedges.forget_before(session, before)
    while True:
        async with services.database.scan() as session:
            old = await attempts.old(session, before, ROWS_AT_ONCE)
        async with services.database.write() as session:
            await attempts.forget(session, old)
        if len(old) < ROWS_AT_ONCE:
            return
