"""The sweeper: what must happen though nobody asks. Every replica runs it; doing it twice changes nothing."""

from typing import Final

from graphcache_service.core.failures import expire
from graphcache_service.core.hedging import expire_hedges
from graphcache_service.core.services import Change, Services
from graphcache_service.core.waiters import QUEUE, key_topic
from graphcache_service.db import compiles, sweeps, wakeups
from graphcache_service.settings import Settings

EXPIRED_AT_ONCE: Final = 100
"""Rows that one transaction takes over, so that it stays short."""
OUTAGE_S: Final = 5.0
"""A longer gap between sweeps of all replicas was an outage, in which no lease ran."""
SERVED_EVERY_S: Final = 2.0


async def expire_leases(change: Change, settings: Settings) -> int:
    """Take over leases that ran out; returns how many."""
    rows = await compiles.expired_leases(change.session, change.now, EXPIRED_AT_ONCE)
    for row in rows:
        await expire(change, row, settings)
    return len(rows)


async def extend_leases_by_outage(services: Services) -> float:
    """At a start: leases that lived when the service stopped get the time back in which no replica served.

    Returns:
        The seconds given back; 0 where another replica served meanwhile.
    """
    async with services.change() as change:
        served_at = await sweeps.served_at(change.session)
        outage_s = 0.0 if served_at is None else change.now - served_at
        if served_at is not None and outage_s > OUTAGE_S:
            await sweeps.extend_leases(change.session, served_at, outage_s)
        await sweeps.mark_served(change.session, change.now)
    return outage_s if outage_s > OUTAGE_S else 0.0


class Sweeper:
    """Remembers up to when it has swept, so that each end of a back-off wakes its waiters once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._swept_until: float | None = None
        self._served_at = 0.0

    async def sweep(self) -> None:
        """One round: expired leases move on, ended back-offs wake those who wait, lost waits are counted.

        Raises:
            DatabaseUnavailable: the next round tries again.
        """
        async with self._services.database.read() as session:
            due = await sweeps.due(session, self._swept_until)
        for namespace, key_digest in due.startable:
            self._services.waiters.wake(key_topic(namespace, key_digest))
        if due.startable:
            self._services.waiters.wake(QUEUE)
        self._swept_until = due.now
        self._services.usage.forget_lost_waits(due.now)
        if due.expired or due.now - self._served_at > SERVED_EVERY_S:
            await self._write(due.now)

    async def _write(self, now: float) -> None:
        async with self._services.change() as change:
            await expire_leases(change, self._services.settings)
            await expire_hedges(change)
            await sweeps.mark_served(change.session, change.now)
            await wakeups.forget_wakeups(change.session, change.now)
        self._served_at = now
