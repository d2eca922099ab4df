"""Hedging: a compile that runs far past its history gets a second attempt; the first good one wins.

A hedge is a lease of its own beside the compile's, under an id of its own. It lives until it is published, fails,
expires, or the compile is published by another; whatever else becomes of the compile meanwhile leaves it alone, and
nothing that becomes of it, but its publication, touches the compile.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

from graphcache_service.core.callers import Caller
from graphcache_service.core.failures import FailedAttempt, end_failed_attempt
from graphcache_service.core.leases import as_lease, is_live
from graphcache_service.core.services import Change, Services
from graphcache_service.db import attempts, clock, compiles, hedges
from graphcache_service.db.models import CompileRow, HedgeRow
from graphcache_wire import ClaimRequest, FailureClass, Lease

LEAST_SAMPLES: Final = 5
"""Fewer compiles say nothing of what is late."""
LOOKED_AT: Final = 50
"""Leases that one claim looks at, the longest running first."""
EXPIRED_AT_ONCE: Final = 100


def is_overdue(running_s: float, history_s: Sequence[float], factor: float) -> bool:
    """Whether a compile runs longer than ``factor`` times the 95th percentile (nearest rank) of those alike."""
    if len(history_s) < LEAST_SAMPLES:
        return False
    return running_s > factor * sorted(history_s)[math.ceil(0.95 * len(history_s)) - 1]


async def hedge_overdue(services: Services, caller: Caller, request: ClaimRequest) -> Lease | None:
    """A hedge of the compile that runs longest past its history, for a claim that found nothing queued."""
    factor = services.settings.hedge_factor
    if factor is None:
        return None
    async with services.database.read() as session:
        now = await clock.now(session)
        rows = await hedges.unhedged(session, caller.namespace, request.toolchains, request.owner, now, LOOKED_AT)
        keys = await compiles.keys_of(session, [row.key_digest for row in rows])
    for row in rows:
        history_s = await services.history.times_alike(keys[row.key_digest])
        if _fits(row, request) and is_overdue(now - (row.leased_at or now), history_s, factor):
            lease = await _hedge(services, row, request)
            if lease is not None:
                return lease
    return None


def _fits(row: CompileRow, request: ClaimRequest) -> bool:
    """Whether the worker may try what ran out of memory before."""
    return not row.retry_alone or request.alone or (row.needed_memory_bytes or 0) < (request.max_memory_bytes or 0)


async def _hedge(services: Services, seen: CompileRow, request: ClaimRequest) -> Lease | None:
    async with services.change() as change:
        row = await compiles.lock_key(change.session, seen.namespace, seen.key_digest)
        key = await compiles.key_of(change.session, seen.key_digest)
        if row is None or key is None or row.id != seen.id or not is_live(row, seen.generation, change.now):
            return None
        ttl_s = services.settings.lease_ttl_s
        hedge = await hedges.begin(change.session, row, request.owner, request.holder, change.now, ttl_s)
        if hedge is None:
            return None
        await attempts.begin_attempt(change.session, hedge)
        return as_lease(hedge, key, change.now, ttl_s, attempt=row.attempts + 1)


async def end_hedge(
    change: Change, hedge: HedgeRow, state: Literal["failed", "lost", "late"], failed: FailedAttempt
) -> None:
    """End a live hedge without a graph, and its attempt."""
    if await compiles.move(change.session, hedge, state=state, ended_at=change.now) is None:
        return
    await end_failed_attempt(change, hedge.id, hedge.generation, failed)


async def end_hedge_of(change: Change, row: CompileRow) -> None:
    """The compile, whose row is locked, is published by another: its hedge ends where it has one."""
    hedge = await hedges.live(change.session, row.id)
    if hedge is not None:
        failed = FailedAttempt(FailureClass.CANCELLED, "another attempt published first")
        await end_hedge(change, hedge, "late", failed)


async def win(change: Change, row: CompileRow, hedge: HedgeRow) -> None:
    """The hedge publishes: whoever holds the compile's lease has lost it."""
    await compiles.move(change.session, hedge, state="ready", ended_at=change.now)
    if row.state == "leased":
        await attempts.end_attempt(
            change.session,
            row.id,
            row.generation,
            outcome="failed",
            ended_at=change.now,
            failure_class=FailureClass.CANCELLED,
            message=f"the hedge of {hedge.holder} published first",
        )


async def expire_hedges(change: Change) -> int:
    """End hedges whose lease ran out; returns how many."""
    ended = 0
    for hedge_id in await hedges.expired(change.session, change.now, EXPIRED_AT_ONCE):
        hedge = await hedges.lock(change.session, hedge_id)
        if hedge is not None and hedge.state == "leased" and not is_live(hedge, hedge.generation, change.now):
            silent_s = change.now - hedge.heartbeat_at
            message = f"no heartbeat from {hedge.holder} for {silent_s:.0f} s: its hedge ran out"
            await end_hedge(change, hedge, "lost", FailedAttempt(FailureClass.LOST, message))
            ended += 1
    return ended
