"""Waiters: requests that are held open until something changes.

A topic is a key in a namespace, or the queue. It lives while somebody sits at it and carries a version: a waiter reads
the version, looks at the database, and waits for the version to move on: no change between look and wait is missed.
Belongs to one event loop; nothing here blocks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from graphcache_service.core.errors import Busy

Found = TypeVar("Found")

QUEUE: Final = "queue"
"""The topic of workers that wait for something to compile."""
EVERYTHING: Final = "*"
"""Wakes every topic: what changed is not known, such as after a lost connection."""


def key_topic(namespace: str, key_digest: str) -> str:
    """The topic of one key."""
    return f"{namespace}/{key_digest}"


class Topic:
    """What waiters of one key share: a version, a lock for whoever acts on it, and one look for all of a version."""

    def __init__(self) -> None:
        self.version = 0
        self.lock = asyncio.Lock()
        self.sitting = 0
        self._asleep: dict[asyncio.Future[bool], None] = {}
        self._looks: dict[Any, tuple[int, asyncio.Future[Any]]] = {}

    def wake(self) -> None:
        """The topic changed: let everybody look again.

        All at once: in parts, those who were answered first ask for their next graph before the last are answered.
        """
        self.version += 1
        for asleep in self._asleep:
            _end(asleep, True)

    async def changed(self, seen: int, timeout_s: float) -> bool:
        """Wait until the version is another than ``seen``; False at the time-out."""
        if self.version != seen:
            return True
        if timeout_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        asleep: asyncio.Future[bool] = loop.create_future()
        self._asleep[asleep] = None
        timer = loop.call_later(timeout_s, _end, asleep, False)
        try:
            return await asleep
        finally:
            timer.cancel()
            del self._asleep[asleep]

    async def look(self, what: Any, read: Callable[[], Awaitable[Found]], *, woken: bool = False) -> tuple[int, Found]:
        """The version and what ``read`` found; one read serves all who look at the same version at once.

        Args:
            woken: the asker was woken by this version, so what another one found at it will do too.
        """
        version = self.version
        under_way = self._looks.get(what)
        if under_way is None or under_way[0] != version or (under_way[1].done() and not woken):
            under_way = (version, asyncio.ensure_future(read()))
            self._looks[what] = under_way
        # A waiter whose client went away must not cancel the read for the others.
        return version, await asyncio.shield(under_way[1])


def _end(asleep: asyncio.Future[bool], woken: bool) -> None:
    if not asleep.done():
        asleep.set_result(woken)


class Waiters:
    """All topics of this process."""

    def __init__(self, max_held: int) -> None:
        self._topics: dict[str, Topic] = {}
        self._max_held = max_held
        self.held = 0
        self.closed = False

    @contextmanager
    def sit(self, name: str) -> Iterator[Topic]:
        """Take a place at a topic.

        Raises:
            Busy: as many requests are held open as the settings allow.
        """
        if self.held >= self._max_held:
            raise Busy(f"{self.held} requests are held open already", retry_after_s=1.0)
        topic = self._topics.setdefault(name, Topic())
        topic.sitting += 1
        self.held += 1
        try:
            yield topic
        finally:
            self.held -= 1
            topic.sitting -= 1
            if topic.sitting == 0:
                self._topics.pop(name, None)

    def wake(self, name: str) -> None:
        """Something changed at ``name``."""
        if name == EVERYTHING:
            for topic in list(self._topics.values()):
                topic.wake()
        elif name in self._topics:
            self._topics[name].wake()

    def waiting_for(self, name: str) -> int:
        """How many sit at a topic in this process."""
        return self._topics[name].sitting if name in self._topics else 0

    def close(self) -> None:
        """The service stops: every waiter is answered now with what stands."""
        self.closed = True
        self.wake(EVERYTHING)
