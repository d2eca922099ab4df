"""Services: what every function of the core is given. Made once a process; no other replica needs its state."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.blobs.store import BlobStore
from graphcache_service.core.history import History
from graphcache_service.core.shared_reads import SharedReads
from graphcache_service.core.tokens import TokenCache
from graphcache_service.core.usage import KeyId, Usage
from graphcache_service.core.waiters import Waiters
from graphcache_service.db import clock, wakeups
from graphcache_service.db.engine import Database
from graphcache_service.settings import Settings


@dataclass(slots=True)
class Change:
    """A transaction under way: its session, the database's time at its begin, and whom to wake once it is committed.

    ``records``: keys whose artifact it changes, so that their records must be settled after the commit.
    """

    session: AsyncSession
    now: float
    topics: set[str] = field(default_factory=set)
    records: set[KeyId] = field(default_factory=set)

    def wake(self, topic: str) -> None:
        """Wake the waiters of ``topic``, here and in every replica, after the commit."""
        self.topics.add(topic)


@dataclass(slots=True)
class Services:
    """Settings, database, blob store, waiters, counters and tokens of this process.

    The clock is the database's: ``Change.now``, or ``db.clock.now(session)`` in a read.
    """

    settings: Settings
    database: Database
    blobs: BlobStore
    waiters: Waiters
    usage: Usage
    tokens: TokenCache
    history: History
    shared: SharedReads = field(default_factory=SharedReads)
    unsettled: set[KeyId] = field(default_factory=set)
    """Keys whose record may not say what the database says; maintenance settles them."""
    no_victims_until: float = 0.0
    """By the database's clock: nothing could be evicted a moment ago, so until then nobody searches again."""
    process_id: str = field(default_factory=lambda: secrets.token_hex(16))

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Change]:
        """A transaction that wakes its waiters when, and only when, it was committed.

        Raises:
            DatabaseUnavailable: nothing was changed.
        """
        async with self.database.write() as session:
            change = Change(session, await clock.now(session))
            yield change
            await wakeups.announce(session, change.topics, self.process_id, change.now)
        self.unsettled |= change.records
        for topic in change.topics:
            self.waiters.wake(topic)
