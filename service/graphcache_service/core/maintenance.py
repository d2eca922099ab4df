"""What keeps the store small and whole: eviction down to the quota, uploads that were never published, old history,
records that could not be written.
"""

from typing import Final

from graphcache_service.core import eviction
from graphcache_service.core.records import settle
from graphcache_service.core.services import Services
from graphcache_service.db import attempts, clock, hedges, uploads, usage

EVERY_S: Final = 30.0
ORPHANS_EVERY: Final = 10
"""Rounds: looking for orphans goes through all blobs."""
DAY_S: Final = 86_400.0


class Maintenance:
    """Counts its rounds, since some work is due less often."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rounds = 0

    async def round(self) -> None:
        """One round.

        Raises:
            DatabaseUnavailable, BlobStoreUnavailable: the next round goes on.
        """
        await settle(self._services, self._services.unsettled)
        await eviction.make_room(self._services)
        await eviction.collect(self._services)
        if self._rounds % ORPHANS_EVERY == 0:
            await eviction.collect_orphans(self._services)
            await forget_history(self._services)
        self._rounds += 1


async def forget_history(services: Services) -> None:
    """Remove counters, waits, ended attempts, hedges and reservations that are older than the settings keep them."""
    async with services.database.write() as session:
        now = await clock.now(session)
        before = now - services.settings.history_days * DAY_S
        await usage.forget_before(session, before)
        await attempts.forget_before(session, before)
        await hedges.forget_before(session, before)
        await uploads.release_expired(session, now)
