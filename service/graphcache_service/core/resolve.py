"""Resolve: may this asker have the graph, must it compile, or must it wait.

The first look is a read alone, and for a hit also the last. Only what changes something opens a transaction, one at a
time for a key in this process; the others then see what it did and wait.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from graphcache_service.core.callers import Caller
from graphcache_service.core.failures import expire, requeue
from graphcache_service.core.leases import as_lease, grant, is_live
from graphcache_service.core.outcomes import as_artifact, as_failed, as_pending, as_ready
from graphcache_service.core.services import Change, Services
from graphcache_service.core.usage import KeyId
from graphcache_service.core.waiters import QUEUE, Topic, key_topic
from graphcache_service.db import compiles, queue
from graphcache_service.db.compiles import Standing, Wish
from graphcache_service.db.models import CompileRow
from graphcache_wire import Granted, Outcome, Ready, ResolveRequest

TRAIN_PRIORITY: Final = 1_000
"""Above every manifest's (0 to 100)."""
PREWARM_PRIORITY: Final = 50
PRIORITIES: Final = {"train": TRAIN_PRIORITY, "prewarm": PREWARM_PRIORITY}


class Step(Enum):
    """What to do with a key as it stands."""

    READY = auto()
    FAILED = auto()
    WAIT = auto()
    ACT = auto()
    """Queue it, raise it, take it over, or grant it: something that changes the row."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of the request bears on the decision."""

    owner: str
    can_compile: bool
    priority: int
    retry_failed: bool


def has_lapsed(row: CompileRow, now: float) -> bool:
    """Whether a kept failure is to be forgotten."""
    return row.state == "failed" and row.failed_until is not None and row.failed_until <= now


def may_start(row: CompileRow, now: float) -> bool:
    """Whether a queued compile is past its back-off."""
    return row.state == "queued" and (row.not_before is None or row.not_before <= now)


def has_expired(row: CompileRow, now: float) -> bool:
    """Whether a lease ran out."""
    return row.state == "leased" and not is_live(row, row.generation, now)


def decide(standing: Standing | None, wanted: Wanted) -> Step:
    """The step for a key as it stands."""
    if standing is None:
        return Step.ACT
    row, now = standing.compile, standing.now
    if row.state == "ready":
        return Step.READY
    if row.state == "failed":
        return Step.ACT if wanted.retry_failed or has_lapsed(row, now) else Step.FAILED
    own = row.owner == wanted.owner and wanted.can_compile
    if has_expired(row, now) or own or row.priority < wanted.priority:
        return Step.ACT
    return Step.ACT if wanted.can_compile and may_start(row, now) else Step.WAIT


async def resolve(services: Services, caller: Caller, request: ResolveRequest) -> Outcome:
    """The answer to one resolve; held up to ``wait_s`` while the compile goes on.

    Raises:
        Forbidden: ``can_compile`` without the scope compile.
        Busy: too many requests are held open.
        DatabaseUnavailable: nobody can say whether the graph is stored.
    """
    caller.require("compile" if request.can_compile else "read")
    stored = await compiles.stored(services.database, caller.readable(), request.key.digest)
    if stored is not None:
        key_id = (stored.namespace, stored.key_digest)
        joined = services.usage.answered_ready(key_id, request.owner, stored.compile_s, stored.now)
        return Ready(artifact=as_artifact(stored), joined=joined)
    return await _Asking(services, caller, request).until(asyncio.get_running_loop().time() + request.wait_s)


@dataclass(slots=True)
class _Seen:
    """A look that many waiters share, and the answer that was made of it."""

    standing: Standing | None
    ready: Ready | None = None

    def as_ready(self, standing: Standing) -> Ready:
        self.ready = self.ready or as_ready(standing)
        return self.ready


class _Asking:
    """One resolve that is not a plain hit."""

    def __init__(self, services: Services, caller: Caller, request: ResolveRequest) -> None:
        self._services = services
        self._caller = caller
        self._request = request
        self._key_id: KeyId = (caller.namespace, request.key.digest)
        self._retry_failed = request.retry_failed

    async def until(self, deadline: float) -> Outcome:
        """Look, act and wait until there is an answer, or the deadline (of the event loop's clock) has come."""
        readable, woken = self._caller.readable(), False
        with self._services.waiters.sit(key_topic(*self._key_id)) as topic:
            while True:
                version, seen = await topic.look(readable, self._look, woken=woken)
                standing, woken = seen.standing, False
                step = decide(standing, self._wanted())
                if step is Step.ACT:
                    granted = await self._act_once(topic, version)
                    if granted is not None:
                        return granted
                elif standing is not None:
                    left_s = deadline - asyncio.get_running_loop().time()
                    answer = await self._answer(step, seen, standing, topic, last=left_s <= 0)
                    if answer is not None:
                        return answer
                    woken = await topic.changed(version, left_s)

    def _wanted(self) -> Wanted:
        request = self._request
        return Wanted(request.owner, request.can_compile, PRIORITIES[request.purpose], self._retry_failed)

    async def _look(self) -> _Seen:
        services, key = self._services, self._request.key
        return _Seen(await compiles.standing(services.database, self._caller.readable(), key.digest))

    async def _answer(self, step: Step, seen: _Seen, standing: Standing, topic: Topic, *, last: bool) -> Outcome | None:
        usage, owner = self._services.usage, self._request.owner
        if step is Step.READY:
            return self._ready(seen.as_ready(standing), standing)
        if step is Step.FAILED:
            usage.answered_failed(self._key_id, owner, standing.now)
            return as_failed(standing.compile, standing.now)
        usage.waits(self._key_id, owner, standing.now)
        if not last and not self._services.waiters.closed:
            return None
        before = await queue.queued_before(self._services.database, standing.compile)
        expected = await self._services.history.expected_s(self._request.key)
        return as_pending(standing, waiters=topic.sitting, queued_before=before, expected=expected)

    def _ready(self, ready: Ready, standing: Standing) -> Ready:
        key_id = (standing.compile.namespace, standing.compile.key_digest)
        usage, compile_s = self._services.usage, ready.artifact.compile_s
        joined = usage.answered_ready(key_id, self._request.owner, compile_s, standing.now)
        return Ready(artifact=ready.artifact, joined=joined)

    async def _act_once(self, topic: Topic, version: int) -> Granted | None:
        async with topic.lock:
            if topic.version != version:
                return None  # Another asker acted meanwhile: look at what it did first.
            async with self._services.change() as change:
                return await self._act(change)

    async def _act(self, change: Change) -> Granted | None:
        row = await self._queued_row(change)
        if has_expired(row, change.now):
            row = await expire(change, row, self._services.settings) or row
        if row.state == "failed" and (self._retry_failed or has_lapsed(row, change.now)):
            row = await requeue(change, row) or row
            self._services.usage.missed(self._key_id, self._request.owner, change.now)
        self._retry_failed = False
        if row.state in ("queued", "leased") and row.priority < self._wanted().priority:
            row = await compiles.move(change.session, row, priority=self._wanted().priority) or row
        return await self._grant(change, row)

    async def _queued_row(self, change: Change) -> CompileRow:
        """The key's row in the caller's own namespace, queued now where there was none."""
        key, session = self._request.key, change.session
        row = await compiles.lock_key(session, *self._key_id)
        if row is not None:
            return row
        await compiles.queue(session, [Wish(self._caller.namespace, key, self._wanted().priority)], change.now)
        row = await compiles.lock_key(session, *self._key_id)
        if row is None:
            raise RuntimeError(f"the row of key {key.digest} is gone right after it was written")
        self._services.usage.missed(self._key_id, self._request.owner, change.now)
        change.wake(key_topic(*self._key_id))
        if not self._request.can_compile:
            change.wake(QUEUE)
        return row

    async def _grant(self, change: Change, row: CompileRow) -> Granted | None:
        request, ttl_s = self._request, self._services.settings.lease_ttl_s
        if not request.can_compile:
            return None
        if is_live(row, row.generation, change.now) and row.owner == request.owner:
            return Granted(lease=as_lease(row, request.key, change.now, ttl_s, attempt=row.attempts + 1))
        if not may_start(row, change.now):
            return None
        lease = await grant(change, row, request.key, request.owner, request.holder, ttl_s)
        if lease is None:
            return None
        self._services.usage.granted(self._key_id, request.owner, change.now)
        return Granted(lease=lease)
