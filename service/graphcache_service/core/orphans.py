"""Orphans: blobs that were uploaded and never published, or that nothing leads to any more. Marked, then removed.

Nobody is told when the last graph of a blob goes, so they are looked for: some blobs a round, in the order of their
digests, so that a round costs the same however much is stored.
"""

from typing import Final

from graphcache_service.core.eviction import collect
from graphcache_service.core.services import Services
from graphcache_service.db import blobs, clock

LOOKED_AT: Final = 5_000
"""Blobs a round: some 20 ms of a thread; 200,000 blobs are looked through in 20 minutes of rounds."""


class OrphanSearch:
    """Remembers up to which digest it has looked."""

    def __init__(self, services: Services, looked_at: int = LOOKED_AT) -> None:
        self._services = services
        self._looked_at = looked_at
        self._after = ""

    async def round(self) -> int:
        """Look at the next blobs, after the last at the first again; returns how many were removed.

        Raises:
            DatabaseUnavailable, BlobStoreUnavailable: what is marked goes later.
        """
        async with self._services.database.scan() as session:
            unused_since = await clock.now(session) - self._services.settings.orphan_grace_s
            page = await blobs.unnamed_after(session, self._after, unused_since, self._looked_at)
        self._after = page.last if page.looked_at == self._looked_at else ""
        if not page.unnamed:
            return 0
        async with self._services.change() as change:
            await blobs.doom_orphans(change.session, page.unnamed, unused_since, change.now)
        return await collect(self._services)
