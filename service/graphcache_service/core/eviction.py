"""Eviction: what goes when the quota is used up. By cost: seconds of compile that a byte saves, aged by its last use.

A blob is marked first and its graphs are forgotten; then the bytes go, under the lock of the blob's row, so that an
upload of the same digest either revives it before or stores it anew after.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import InvalidRequest
from graphcache_service.core.records import settle
from graphcache_service.core.services import Services
from graphcache_service.db import blobs, clock, uploads
from graphcache_service.db import eviction as rows
from graphcache_service.db.eviction import Candidate
from graphcache_service.settings import Settings
from graphcache_wire.admin import EvictionCandidate, EvictionPlan

log = structlog.get_logger()

LOW_WATER: Final = 0.95
"""Down to this share of the quota, so that not every upload has to look for victims."""
AT_ONCE: Final = 500
IN_VAIN_S: Final = 10.0
"""A search goes through all blobs (2.5 s of processor time for 200,000): where all are pinned or in use, not every
upload shall search again."""


@dataclass(frozen=True, slots=True)
class Excess:
    """What has to go."""

    size_bytes: int
    blobs: int

    def __bool__(self) -> bool:
        return self.size_bytes > 0 or self.blobs > 0


def excess(settings: Settings, *, stored_blobs: int, stored_bytes: int, wanted_bytes: int, wanted_blobs: int) -> Excess:
    """What has to go for the quota to hold with what is wanted; nothing while it does."""
    over_bytes = over_blobs = 0
    if settings.quota_bytes is not None and stored_bytes + wanted_bytes > settings.quota_bytes:
        over_bytes = stored_bytes + wanted_bytes - int(settings.quota_bytes * LOW_WATER)
    if settings.quota_blobs is not None and stored_blobs + wanted_blobs > settings.quota_blobs:
        over_blobs = stored_blobs + wanted_blobs - int(settings.quota_blobs * LOW_WATER)
    return Excess(over_bytes, over_blobs)


def value(candidate: Candidate, now: float, half_life_s: float) -> float:
    """Seconds of compile that each byte saves, halved for each ``half_life_s`` since its last use."""
    age_s = max(0.0, now - candidate.last_used_at)
    return candidate.compile_s / max(1, candidate.size_bytes) * float(0.5 ** (age_s / half_life_s))


def choose(candidates: Sequence[Candidate], over: Excess, now: float, half_life_s: float) -> list[Candidate]:
    """The least valuable blobs, until enough bytes and blobs are free or no candidate is left."""
    chosen: list[Candidate] = []
    freed_bytes = 0
    for candidate in sorted(candidates, key=lambda one: (value(one, now, half_life_s), one.blob)):
        if freed_bytes >= over.size_bytes and len(chosen) >= over.blobs:
            break
        chosen.append(candidate)
        freed_bytes += candidate.size_bytes
    return chosen


async def plan(services: Services, wanted_bytes: int = 0, wanted_blobs: int = 0) -> list[Candidate]:
    """What would go for ``wanted_bytes`` more: never what is pinned, or was used in the last minutes."""
    now, over = await _excess_now(services, wanted_bytes, wanted_blobs)
    return await _victims(services, now, over) if over else []


async def _excess_now(services: Services, wanted_bytes: int, wanted_blobs: int) -> tuple[float, Excess]:
    async with services.database.read() as session:
        now = await clock.now(session)
        stored_blobs, stored_bytes = await blobs.stored(session)
        stored_bytes += await uploads.reserved_bytes(session)
    return now, excess(
        services.settings,
        stored_blobs=stored_blobs,
        stored_bytes=stored_bytes,
        wanted_bytes=wanted_bytes,
        wanted_blobs=wanted_blobs,
    )


async def _victims(services: Services, now: float, over: Excess) -> list[Candidate]:
    async with services.database.scan() as session:
        candidates = await rows.candidates(session, now - services.settings.evict_protect_s)
    return choose(candidates, over, now, services.settings.evict_half_life_s)


async def evict(services: Services, victims: Sequence[Candidate]) -> list[Candidate]:
    """Evict what was chosen, unless it was used or pinned meanwhile; returns what went."""
    gone: list[Candidate] = []
    for first in range(0, len(victims), AT_ONCE):
        part = {victim.blob: victim for victim in victims[first : first + AT_ONCE]}
        async with services.change() as change:
            unused_since = change.now - services.settings.evict_protect_s
            still = await rows.unprotected(change.session, list(part), unused_since)
            marked = await blobs.doom(change.session, sorted(still), unused_since, change.now)
            change.records |= await rows.forget_graphs(change.session, sorted(marked), change.now)
        await settle(services, change.records)
        gone += [part[blob] for blob in marked]
    await collect(services)
    return gone


async def make_room(services: Services, wanted_bytes: int = 0, wanted_blobs: int = 0) -> list[Candidate]:
    """Evict as much as the quota asks for; returns what went.

    Raises:
        DatabaseUnavailable, BlobStoreUnavailable: what is marked goes later.
    """
    now, over = await _excess_now(services, wanted_bytes, wanted_blobs)
    if not over or now < services.no_victims_until:
        return []
    gone = await evict(services, await _victims(services, now, over))
    if not gone:
        services.no_victims_until = now + IN_VAIN_S
    return gone


async def collect(services: Services) -> int:
    """Remove the bytes of marked blobs; returns how many."""
    removed = 0
    while True:
        async with services.database.read() as session:
            marked = await blobs.doomed(session, AT_ONCE)
        for digest in marked:
            async with services.change() as change:
                if await blobs.forget_blob(change.session, digest, doomed_only=True):
                    await services.blobs.delete(digest)
                    removed += 1
        if len(marked) < AT_ONCE:
            return removed


async def what_would_go(services: Services, caller: Caller, wanted_bytes: int) -> list[Candidate]:
    """:func:`plan` for administrators.

    Raises:
        Forbidden: the scope is not admin.
        InvalidRequest: there is no quota, so nothing ever goes.
    """
    caller.require("admin")
    if services.settings.quota_bytes is None and services.settings.quota_blobs is None:
        raise InvalidRequest("no quota is set, so nothing is evicted", hint="set quota_bytes or quota_blobs")
    return await plan(services, wanted_bytes)


async def evict_now(services: Services, caller: Caller, wanted_bytes: int) -> list[Candidate]:
    """Evict what :func:`what_would_go` names; returns what went.

    Raises:
        Forbidden, InvalidRequest: as there.
    """
    gone = await evict(services, await what_would_go(services, caller, wanted_bytes))
    log.info("evicted", blobs=len(gone), room_bytes=wanted_bytes, token_id=caller.token_id)
    return gone


def as_plan(victims: Sequence[Candidate], shown: int) -> EvictionPlan:
    """What would go, the first of it by name."""
    return EvictionPlan(
        blobs=len(victims),
        size_bytes=sum(victim.size_bytes for victim in victims),
        candidates=[
            EvictionCandidate(
                blob=one.blob,
                size_bytes=one.size_bytes,
                compile_s=one.compile_s,
                graphs=one.graphs,
                last_used_at=datetime.fromtimestamp(one.last_used_at, UTC),
            )
            for one in victims[:shown]
        ],
    )
